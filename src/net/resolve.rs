//! Resolves names, queries sentinels and reads TLS files, without delaying a lock.
//!
//! The system's resolver can block for about 30 s, and a file system can hang. Invariant: each such
//! task runs in a thread named `redbolt-resolve`, at most one per link, never on the loop's thread.
//! A result wakes the loop through a socket pair, because a `Poll` has at most one `Waker`, the
//! host's. Without names, sentinels and files there is no resolver.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::{Interest, Registry};
use socket2::SockRef;

use super::host_port::HostPort;
use super::hosts::LookUps;
use super::sentinel::{MasterQuery, NewSubscription};
use super::socket::send;
use super::threads;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Connector};
use crate::proto::Cause;

/// A result of a resolver thread.
pub(super) enum Finding {
    /// The route of a link to its node, or why there is none.
    Route { link: usize, route: Result<Route, (Cause, io::Error)> },
    /// The answer of a sentinel of this node, before it counts as a vote for a route.
    Sentinel { node: usize, new: NewSubscription },
}

#[derive(Default)]
pub(super) struct Route {
    pub(super) addresses: Vec<SocketAddr>,
    /// The master that sentinels have named.
    pub(super) master: Option<HostPort>,
    /// The contents of the TLS files, if the link uses TLS.
    #[cfg(feature = "tls")]
    pub(super) certificates: Option<Certificates>,
}

pub(super) struct RouteSources {
    pub(super) look_ups: Arc<LookUps>,
    /// The connector whose files are read, if the link uses TLS.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Connector>,
}

impl RouteSources {
    /// Returns the route to these addresses. Reads the files, which blocks.
    fn route(
        &self,
        addresses: Vec<SocketAddr>,
        master: Option<HostPort>,
    ) -> Result<Route, (Cause, io::Error)> {
        Ok(Route {
            addresses,
            master,
            #[cfg(feature = "tls")]
            certificates: match self.tls.as_ref().map(Connector::read) {
                Some(read) => Some(read.map_err(|error| (Cause::Io, io::Error::other(error)))?),
                None => None,
            },
        })
    }
}

pub(super) struct Resolver {
    findings: Receiver<Finding>,
    sender: Notifier,
    bell: mio::net::UnixStream,
}

/// A sender that passes findings to the loop and wakes it.
#[derive(Clone)]
struct Notifier {
    findings: Sender<Finding>,
    bell: Arc<UnixStream>,
}

impl Notifier {
    fn send(&self, finding: Finding) {
        // Sending fails if the client was dropped. A full bell is about to wake the loop.
        let _ = self.findings.send(finding);
        let _ = send(SockRef::from(&*self.bell), &[1]);
    }
}

impl Resolver {
    pub(super) fn new(registry: &Registry, token: mio::Token) -> io::Result<Self> {
        let (ringing, bell) = UnixStream::pair()?;
        // A full socket must not block the thread that rings, nor an empty one the loop.
        ringing.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let mut bell = mio::net::UnixStream::from_std(bell);
        registry.register(&mut bell, token, Interest::READABLE)?;
        let (sender, findings) = channel();
        let sender = Notifier { findings: sender, bell: Arc::new(ringing) };
        Ok(Self { findings, sender, bell })
    }

    pub(super) fn look_up(
        &self,
        link: usize,
        place: HostPort,
        sources: RouteSources,
    ) -> io::Result<()> {
        self.begin(link, move |_| {
            let addresses = sources.look_ups.resolver.resolve(&place);
            sources.route(addresses.map_err(|error| (Cause::NameLookup, error))?, None)
        })
    }

    /// Begins to query sentinels, whose connections are kept as subscriptions if
    /// `keeps_connections`.
    pub(super) fn ask(
        &self,
        link: usize,
        query: MasterQuery,
        sources: RouteSources,
        keeps_connections: bool,
    ) -> io::Result<()> {
        self.begin(link, move |sender| {
            let sender = sender.clone();
            let keep = move |new| {
                if keeps_connections {
                    sender.send(Finding::Sentinel { node: link, new });
                }
            };
            let master = query.ask(keep).map_err(|error| (Cause::NameLookup, error))?;
            sources.route(master.addresses, Some(master.place))
        })
    }

    fn begin(
        &self,
        link: usize,
        find: impl FnOnce(&Notifier) -> Result<Route, (Cause, io::Error)> + Send + 'static,
    ) -> io::Result<()> {
        let sender = self.sender.clone();
        let look_up = move || {
            let route = find(&sender);
            sender.send(Finding::Route { link, route });
        };
        threads::start("redbolt-resolve", look_up).map(drop)
    }

    /// Takes the next finding. Call it after each wake-up until it returns `None`.
    pub(super) fn next(&mut self) -> Option<Finding> {
        // The bell is emptied first: a finding that is sent later rings it again.
        let mut sink = [0; 64];
        while matches!(self.bell.read(&mut sink), Ok(1..)) {}
        self.findings.try_recv().ok()
    }
}
