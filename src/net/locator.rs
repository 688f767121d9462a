//! Where the node of each link is now: addresses of names, masters that sentinels name, and the files of TLS.
//!
//! Invariant: what a master says counts only while most of its sentinels have named it recently
//! ([`sentinel_answer`]). It owns everything that this needs: the look-ups, and the connections of the sentinels.

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

/// What the connections of a client are made with.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetAccess {
    pub(crate) clock: Clock,
    /// How names of hosts become addresses.
    pub(crate) hosts: HostResolver,
    pub(crate) sentinels: SentinelAccess,
    /// There is one if an address asks for TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Connector>,
}

pub(super) struct Locator {
    net: NetAccess,
    /// The command links of all nodes, then their push links.
    links: Vec<LinkRoute>,
    /// There is one if a node has a name, sentinels, or files of TLS.
    resolver: Option<Resolver>,
    look_ups: Arc<LookUps>,
    pub(super) subscriptions: Subscriptions,
    /// When it was last checked whether all sentinels have a subscription.
    checked_at: Timestamp,
}

/// How one link gets to its node, as far as it is known.
struct LinkRoute {
    address: Address,
    /// A look-up is pending, whether or not its answer is still wanted.
    is_looking_up: bool,
    /// Look-ups answered: each begins with another address of the name.
    turns: usize,
    /// Addresses of the name that have not been tried for this connection, the next one last.
    untried: Vec<SocketAddr>,
    /// The pause between two of them.
    stagger: Duration,
    /// The master that sentinels have named for this connection.
    master: Option<HostPort>,
    /// The sentinels that were asked for it and have not answered yet.
    outstanding: OutstandingQueries,
    /// The contents of the files of TLS, read for this connection.
    #[cfg(feature = "tls")]
    certificates: Option<Certificates>,
}

/// Where a link is to connect.
pub(super) enum Located {
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// It is being looked up: a [`Finding`] has the answer.
    Pending,
}

/// Why a link has no route: the words are there unless the cause says all.
pub(super) type NoRoute = (Cause, Option<String>);

impl Locator {
    /// Its tokens are `first_token`, for look-ups, and those after it, one for each sentinel.
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

    /// How many tokens it has for these addresses.
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

    /// Whether TLS has files. They are not read on this thread: with a file system that hangs no lock would be extended.
    pub(super) fn has_files(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.net.tls.as_ref().is_some_and(Connector::has_files);
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Where to connect, or begins to find out.
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
        // An earlier look-up was answered after the link had given it up.
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

    /// Asks where the master is now: what was answered before this connection may be out of date. For the command link, which
    /// is always there, the sentinels' connections are kept as well.
    fn find_master(
        &mut self,
        at: usize,
        sentinels: Sentinels,
        settings: &Settings,
    ) -> io::Result<Located> {
        if !self.links[at].is_looking_up {
            if at < self.node_count() {
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

    /// Asks sentinels again if not all of them have a subscription, such as after their restarts: otherwise a failover would not
    /// be noticed. Only for connections that are open, and after a pause.
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
                // An error is no loss: the next check tries again.
                let _ = self.ask_sentinels(at, sentinels, settings);
            }
        }
    }

    /// The next finding of the resolver, which is to be taken.
    pub(super) fn next_finding(&mut self) -> Option<Finding> {
        self.resolver.as_mut().and_then(Resolver::next)
    }

    /// Takes the route that was found for a link. Returns the outcome if the link still waits for it.
    pub(super) fn take_route(
        &mut self,
        at: usize,
        route: Result<Route, (Cause, io::Error)>,
        is_awaited: bool,
        connect_timeout: Duration,
    ) -> Option<Result<(), NoRoute>> {
        let link = &mut self.links[at];
        link.is_looking_up = false;
        // An answer of sentinels is for one connection only.
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

    /// The next address of a link's name that has not been tried.
    pub(super) fn next_address(&mut self, at: usize) -> Option<SocketAddr> {
        self.links[at].untried.pop()
    }

    pub(super) fn forget_addresses(&mut self, at: usize) {
        self.links[at].untried.clear();
    }

    /// How long to wait before the next address is tried; `None` if there is none.
    pub(super) fn pause_before_next(&self, at: usize) -> Option<Duration> {
        let link = &self.links[at];
        (!link.untried.is_empty()).then_some(link.stagger)
    }

    /// The master that most of a node's sentinels name now, if the link leads elsewhere.
    pub(super) fn other_master(&self, at: usize) -> Option<HostPort> {
        let named = self.subscriptions.named(at % self.node_count())?;
        (self.links[at].master.as_ref() != Some(&named)).then_some(named)
    }

    /// Checks whether what a node says counts now: most of its sentinels have named it recently. They are asked again once
    /// half of that time has passed.
    pub(super) fn check_master(
        &mut self,
        at: usize,
        latest: Timestamp,
        is_open: impl Fn(usize) -> bool,
        settings: &Settings,
        registry: &Registry,
    ) -> bool {
        let LinkRoute { master: Some(place), .. } = &self.links[at] else { return true };
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

    /// Begins TLS on a socket, if the address asks for it.
    pub(super) fn secure(&self, at: usize, socket: Socket) -> io::Result<Socket> {
        if !self.is_tls(at) {
            return Ok(socket);
        }
        #[cfg(feature = "tls")]
        return self.over_tls(&self.links[at], socket);
        // Such an address cannot be read.
        #[cfg(not(feature = "tls"))]
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(feature = "tls")]
    fn over_tls(&self, link: &LinkRoute, socket: Socket) -> io::Result<Socket> {
        let tls = self.net.tls.as_ref().expect("a connector is made where addresses ask for TLS");
        let certificates = match &link.certificates {
            Some(certificates) => Ok(certificates.clone()),
            // There is no file, or a thread would have read it.
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

    /// Takes a route for the next connection. Each begins with another address of the name, and all of them are tried before
    /// its time ends.
    fn take(&mut self, route: Route, connect_timeout: Duration) {
        self.untried = route.addresses;
        self.stagger = STAGGER.min(connect_timeout / (self.untried.len() as u32 + 1));
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

/// The pause between two addresses of a name: the least that RFC 8305 recommends, and shorter than the time after which a
/// node of which nothing is known is suspected.
const STAGGER: Duration = Duration::from_millis(100);

/// The pause between two checks of the subscriptions if too few are open, so that the answers grow old.
const ASK_AGAIN: Duration = Duration::from_millis(200);
