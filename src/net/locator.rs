//! Locates the node of each link: resolves names, queries sentinels, and has TLS files read.
//!
//! Invariant: a master's replies count only while a majority of its sentinels has named it recently
//! ([`sentinel_answer`]). This module owns the look-ups and the sentinel connections.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mio::Registry;

use super::address::{Address, Sentinels};
use super::clock::Clock;
use super::host_port::HostPort;
use super::hosts::{HostResolver, LookUps};
use super::resolve::{Finding, Resolver, Route, RouteSources};
use super::sentinel::{MasterQuery, OutstandingQueries, SentinelAccess, Subscriptions};
use super::socket::Socket;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Connector};
use crate::proto::{Cause, Settings, Timestamp, sentinel_answer};

/// The settings and services with which a client connects.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetAccess {
    pub(crate) clock: Clock,
    pub(crate) hosts: HostResolver,
    pub(crate) sentinels: SentinelAccess,
    /// Present if an address needs TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Connector>,
}

pub(super) struct Locator {
    net: NetAccess,
    /// The command links of all nodes, followed by their push links.
    links: Vec<LinkRoute>,
    /// Present if a node has a name or sentinels, or TLS has files.
    resolver: Option<Resolver>,
    look_ups: Arc<LookUps>,
    pub(super) subscriptions: Subscriptions,
    /// When the subscriptions of all sentinels were last checked.
    checked_at: Timestamp,
}

/// The known route of one link to its node.
struct LinkRoute {
    address: Address,
    /// A look-up is pending, even if its result is no longer wanted.
    is_looking_up: bool,
    /// The number of completed look-ups. Each route begins with another address of the name.
    turns: usize,
    /// The addresses of the name that this connection has not tried, the next one last.
    untried: Vec<SocketAddr>,
    stagger: Duration,
    /// The master that sentinels named for this connection.
    master: Option<HostPort>,
    /// The sentinels whose replies to queries of this link are pending.
    outstanding: OutstandingQueries,
    /// The contents of the TLS files, read for this connection.
    #[cfg(feature = "tls")]
    certificates: Option<Certificates>,
}

pub(super) enum Located {
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// A look-up is pending; a [`Finding`] will bring its result.
    Pending,
}

/// The reason why a link has no route, with details if needed.
pub(super) type NoRoute = (Cause, Option<String>);

impl Locator {
    /// Creates a locator whose tokens are `first_token`, for look-ups, and one more per sentinel.
    pub(super) fn new(
        addresses: &[Address],
        net: &NetAccess,
        registry: &Registry,
        first_token: usize,
    ) -> io::Result<Self> {
        let look_ups = Arc::new(LookUps::new(net.hosts.clone()));
        let links = addresses.iter().chain(addresses);
        let mut locator = Self {
            net: net.clone(),
            links: links.map(|address| LinkRoute::new(address.clone(), &look_ups)).collect(),
            resolver: None,
            look_ups,
            subscriptions: Subscriptions::new(addresses, first_token + 1),
            checked_at: Timestamp::default(),
        };
        let is_name = |address: &Address| {
            !matches!(address, Address::Ip(..) | Address::TlsIp(..) | Address::Unix(_))
        };
        if addresses.iter().any(is_name) || locator.has_files() {
            locator.resolver = Some(Resolver::new(registry, mio::Token(first_token))?);
        }
        Ok(locator)
    }

    pub(super) fn tokens_needed(addresses: &[Address]) -> usize {
        1 + Subscriptions::new(addresses, 0).len()
    }

    fn node_count(&self) -> usize {
        self.links.len() / 2
    }

    pub(super) fn has_resolver(&self) -> bool {
        self.resolver.is_some()
    }

    /// The number of sentinels of all nodes.
    #[inline]
    pub(super) fn sentinel_count(&self) -> usize {
        self.subscriptions.len()
    }

    pub(super) fn is_tls(&self, at: usize) -> bool {
        self.links[at].address.is_tls()
    }

    /// Returns whether TLS has files. Reading them on this thread could hang, and no lock would be
    /// extended.
    pub(super) fn has_files(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.net.tls.as_ref().is_some_and(Connector::has_files);
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Returns where to connect, or begins a look-up.
    pub(super) fn locate(&mut self, at: usize, settings: &Settings) -> io::Result<Located> {
        match &self.links[at].address {
            Address::TlsIp(ip, port) if self.has_files() => {
                self.look_up(at, (ip.to_string(), *port))
            }
            Address::Ip(ip, port) | Address::TlsIp(ip, port) => {
                Ok(Located::Tcp(SocketAddr::new(*ip, *port)))
            }
            Address::Unix(path) => Ok(Located::Unix(path.clone())),
            Address::Name(host, port) | Address::TlsName(host, port) => {
                self.look_up(at, (host.clone(), *port))
            }
            Address::Sentinels(sentinels) => self.find_master(at, sentinels.clone(), settings),
        }
    }

    fn look_up(&mut self, at: usize, place: HostPort) -> io::Result<Located> {
        let link = &mut self.links[at];
        if link.is_looking_up {
            return Ok(Located::Pending);
        }
        // An earlier look-up finished after the link had stopped waiting.
        if let Some(address) = link.untried.pop() {
            return Ok(Located::Tcp(address));
        }
        let sources = self.sources(at);
        let resolver =
            self.resolver.as_ref().expect("a resolver is made where there are names or files");
        resolver.look_up(at, place, sources)?;
        self.links[at].is_looking_up = true;
        Ok(Located::Pending)
    }

    fn sources(&self, at: usize) -> RouteSources {
        #[cfg(not(feature = "tls"))]
        let _ = at;
        RouteSources {
            look_ups: Arc::clone(&self.look_ups),
            #[cfg(feature = "tls")]
            tls: self.net.tls.clone().filter(|_| self.is_tls(at)),
        }
    }

    /// Queries sentinels, because an earlier answer may be out of date. Only the command link,
    /// which every node has, keeps their connections.
    fn find_master(
        &mut self,
        at: usize,
        sentinels: Sentinels,
        settings: &Settings,
    ) -> io::Result<Located> {
        if !self.links[at].is_looking_up {
            if at < self.node_count() {
                // Old answers must not confirm the new connection.
                self.subscriptions.forget(at);
            }
            self.ask_sentinels(at, sentinels, settings)?;
        }
        Ok(Located::Pending)
    }

    fn ask_sentinels(
        &mut self,
        at: usize,
        sentinels: Sentinels,
        settings: &Settings,
    ) -> io::Result<()> {
        let outstanding = self.links[at].outstanding.clone();
        let now = self.net.clock.now();
        let query = MasterQuery::new(sentinels, &self.net.sentinels, outstanding, settings, now);
        let keeps_connections = at < self.node_count();
        let resolver =
            self.resolver.as_ref().expect("a resolver is made where there are sentinels");
        resolver.ask(at, query, self.sources(at), keeps_connections)?;
        self.links[at].is_looking_up = true;
        Ok(())
    }

    /// Queries sentinels again if some have no subscription, for example after a restart: a
    /// failover could go unnoticed. Only for open connections, at most once per `pause`.
    pub(super) fn restore_subscriptions(
        &mut self,
        pause: Duration,
        now: Timestamp,
        is_open: impl Fn(usize) -> bool,
        settings: &Settings,
    ) {
        if now < self.checked_at + pause {
            return;
        }
        self.checked_at = now;
        for at in 0..self.node_count() {
            let link = &self.links[at];
            if let Address::Sentinels(sentinels) = &link.address
                && is_open(at)
                && !link.is_looking_up
                && !self.subscriptions.are_all_open(at)
            {
                let sentinels = sentinels.clone();
                // An error is harmless: the next check tries again.
                let _ = self.ask_sentinels(at, sentinels, settings);
            }
        }
    }

    pub(super) fn next_finding(&mut self) -> Option<Finding> {
        self.resolver.as_mut().and_then(Resolver::next)
    }

    /// Stores the route found for a link. Returns the outcome if the link still waits for it.
    pub(super) fn take_route(
        &mut self,
        at: usize,
        route: Result<Route, (Cause, io::Error)>,
        is_awaited: bool,
        connect_timeout: Duration,
    ) -> Option<Result<(), NoRoute>> {
        let link = &mut self.links[at];
        link.is_looking_up = false;
        // The sentinels' answer is valid for one connection only, so a late one is dropped.
        if !is_awaited && matches!(link.address, Address::Sentinels(_)) {
            return None;
        }
        link.master = None;
        let outcome = match route {
            Ok(route) if route.addresses.is_empty() => Err((Cause::NameLookup, None)),
            Ok(route) => {
                link.take(route, connect_timeout);
                Ok(())
            }
            Err((cause, error)) => Err((cause, Some(error.to_string()))),
        };
        is_awaited.then_some(outcome)
    }

    pub(super) fn next_address(&mut self, at: usize) -> Option<SocketAddr> {
        self.links[at].untried.pop()
    }

    pub(super) fn forget_addresses(&mut self, at: usize) {
        self.links[at].untried.clear();
    }

    /// Returns how long to wait before trying the next address; `None` if there is none.
    pub(super) fn pause_before_next(&self, at: usize) -> Option<Duration> {
        let link = &self.links[at];
        (!link.untried.is_empty()).then_some(link.stagger)
    }

    /// Returns the master named by a majority of a node's sentinels, if the link leads elsewhere.
    pub(super) fn other_master(&self, at: usize) -> Option<HostPort> {
        // A push link follows the master of its node.
        let named = self.subscriptions.named(at % self.node_count())?;
        (self.links[at].master.as_ref() != Some(&named)).then_some(named)
    }

    /// Returns whether a node's replies count: a majority of its sentinels has named it recently.
    /// Queries them again after half of that time.
    pub(super) fn check_master(
        &mut self,
        at: usize,
        latest: Timestamp,
        is_open: impl Fn(usize) -> bool,
        settings: &Settings,
        registry: &Registry,
    ) -> bool {
        let LinkRoute { master: Some(place), .. } = &self.links[at] else { return true };
        // Only replies on command links are checked.
        if at >= self.node_count() {
            return true;
        }
        let now = self.net.clock.now();
        let asked_at = self.subscriptions.vouched_at(at, place);
        if sentinel_answer::is_due(asked_at, now) && !self.subscriptions.ask(at, now, registry) {
            self.restore_subscriptions(ASK_AGAIN, latest, is_open, settings);
        }
        sentinel_answer::counts(asked_at, now)
    }

    /// Begins TLS on a socket if the address requires it.
    pub(super) fn secure(&self, at: usize, socket: Socket) -> io::Result<Socket> {
        if !self.is_tls(at) {
            return Ok(socket);
        }
        #[cfg(feature = "tls")]
        return self.over_tls(&self.links[at], socket);
        // Without the feature, parsing rejects addresses with TLS.
        #[cfg(not(feature = "tls"))]
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(feature = "tls")]
    fn over_tls(&self, link: &LinkRoute, socket: Socket) -> io::Result<Socket> {
        let tls = self.net.tls.as_ref().expect("a connector is made where addresses ask for TLS");
        let certificates = match &link.certificates {
            Some(certificates) => Ok(certificates.clone()),
            // The resolver's thread reads files, so there are none and this cannot block.
            None => tls.read(),
        };
        let session = certificates.and_then(|certificates| match &link.master {
            Some(place) => certificates.session(&Address::of(place, true)),
            None => certificates.session(&link.address),
        });
        Ok(socket.over_tls(session.map_err(io::Error::other)?))
    }
}

impl LinkRoute {
    fn new(address: Address, look_ups: &Arc<LookUps>) -> Self {
        Self {
            address,
            is_looking_up: false,
            turns: 0,
            untried: Vec::new(),
            stagger: Duration::ZERO,
            master: None,
            outstanding: OutstandingQueries::new(look_ups),
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }

    /// Stores the route for the next connection. Each begins with another address, and the pauses
    /// allow trying all before the connect timeout.
    fn take(&mut self, route: Route, connect_timeout: Duration) {
        self.untried = route.addresses;
        self.stagger = STAGGER.min(connect_timeout / (self.untried.len() as u32 + 1));
        // The next address is taken from the end.
        self.untried.reverse();
        let first = self.turns % self.untried.len().max(1);
        self.untried.rotate_right(first);
        self.turns = self.turns.wrapping_add(1);
        self.master = route.master;
        #[cfg(feature = "tls")]
        {
            self.certificates = route.certificates;
        }
    }
}

/// The maximum pause between two addresses: the minimum of RFC 8305, and shorter than the time
/// after which an unknown node is suspected.
const STAGGER: Duration = Duration::from_millis(100);

/// The pause between checks of the subscriptions while too few are open to refresh answers.
const ASK_AGAIN: Duration = Duration::from_millis(200);
