//! The loop's body: from readiness to the core, and from the core to the sockets.
//!
//! The core's outputs are matched here and nowhere else. What readiness says is a hint: only what a
//! read or a write returns is acted upon. Not here: waiting for readiness, which is the API's or
//! the host's.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::Registry;
use mio::event::Event;

use super::address::Address;
use super::cause;
use super::clock::{Clock, Origin};
use super::resolve::{Found, Resolver};
use super::socket::Socket;
use crate::proto::{Cause, ClockReading, Core, LinkId, LinkOp, Timestamp};

/// All sockets of one core.
pub(crate) struct Sockets {
    core: Core,
    clock: Clock,
    /// The command links of all nodes, then their push links.
    sockets: Vec<LinkSocket>,
    registry: Registry,
    /// The `mio::Token` of the first link; the others follow, then the resolver's.
    first_token: usize,
    resolver: Option<Resolver>,
    dead_peer_timeout: Duration,
    /// Something was read since the last [`drive`](Self::drive).
    heard: bool,
    /// A connection used by two processes would mix up their answers, and so would its place in a poll.
    origin: Origin,
}

/// One link's socket.
struct LinkSocket {
    link: Option<LinkId>,
    address: Address,
    state: State,
    /// The kernel's buffer is full; it tells when it is not.
    blocked: bool,
    /// A look-up is under way, wanted or not.
    looking: bool,
    /// Look-ups answered, so that each begins with another address of the name.
    turns: usize,
    /// Addresses of the name that are tried if this connection fails, the next one last.
    others: Vec<SocketAddr>,
}

enum State {
    Closed,
    Connecting(Socket),
    Open(Socket),
    Resolving,
}

impl Sockets {
    pub(crate) fn new(
        core: Core,
        clock: Clock,
        addresses: &[Address],
        registry: Registry,
        first_token: usize,
    ) -> io::Result<Self> {
        let names = addresses.iter().any(|address| matches!(address, Address::Name(..)));
        let bell = mio::Token(first_token + 2 * addresses.len());
        let resolver = names.then(|| Resolver::new(&registry, bell)).transpose()?;
        let dead_peer_timeout = core.config().settings().dead_peer_timeout;
        let sockets = [addresses, addresses].concat().into_iter().map(LinkSocket::new).collect();
        let (origin, heard) = (Origin::here(), false);
        Ok(Self {
            core,
            clock,
            sockets,
            registry,
            first_token,
            resolver,
            dead_peer_timeout,
            heard,
            origin,
        })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// The core, and the time for a command to it.
    pub(crate) fn core_now(&mut self) -> (&mut Core, ClockReading) {
        (&mut self.core, self.clock.now())
    }

    /// Takes a readiness event; `false` if it is not for one of our sockets.
    pub(crate) fn on_event(&mut self, event: &Event) -> bool {
        let Some(at) = event.token().0.checked_sub(self.first_token) else { return false };
        if !self.is_ours() {
            return at <= self.sockets.len();
        }
        if at == self.sockets.len() && self.resolver.is_some() {
            self.names_found();
            return true;
        }
        if at >= self.sockets.len() {
            return false;
        }
        if matches!(self.sockets[at].state, State::Connecting(_)) {
            self.finish_connecting(at);
            return true;
        }
        if event.is_writable() && self.sockets[at].blocked {
            self.set_blocked(at, false);
        }
        self.read(at, event.is_read_closed());
        true
    }

    /// Reads where answers are due, without having been told that they are there; whether anything came,
    /// be it the end of a connection.
    pub(crate) fn listen(&mut self) -> bool {
        if !self.is_ours() {
            return false;
        }
        let mut came = false;
        for at in 0..self.core.config().node_count() {
            if self.is_awaited(at) {
                came |= self.read(at, false);
            }
        }
        came
    }

    /// Whether there is a socket for [`listen`](Self::listen) to read from.
    pub(crate) fn awaits_answers(&self) -> bool {
        (0..self.core.config().node_count()).any(|at| self.is_awaited(at))
    }

    fn is_awaited(&self, at: usize) -> bool {
        let link_socket = &self.sockets[at];
        matches!(link_socket.state, State::Open(_))
            && link_socket.link.is_some_and(|of| self.core.is_awaited(of))
    }

    /// Whether something may happen that readiness alone tells of: a connection that stands, an address,
    /// room to write, a message on a push link.
    pub(crate) fn needs_loop(&self) -> bool {
        let (command, push) = self.sockets.split_at(self.core.config().node_count());
        let waits = |link_socket: &LinkSocket| match link_socket.state {
            State::Closed => false,
            State::Connecting(_) | State::Resolving => true,
            State::Open(_) => link_socket.blocked,
        };
        command.iter().any(waits)
            || push.iter().any(|link_socket| !matches!(link_socket.state, State::Closed))
    }

    /// Fires what is due, does what the core wishes about links, and writes what it has to say.
    pub(crate) fn drive(&mut self) {
        self.expire();
        self.settle();
    }

    /// Fires what is due, and writes nothing. It is time for it when everything has been read.
    pub(crate) fn expire(&mut self) {
        if !self.is_ours() {
            return;
        }
        // What was read came with a reading of the clock.
        let heard = std::mem::take(&mut self.heard);
        let due = self.core.poll_timeout().is_some_and(|due| due <= self.core.latest());
        if due || !heard {
            self.core.timeout(self.clock.now());
        }
    }

    /// Does everything that the core wants done now. A write that fails can give the core something
    /// to say to others, so it goes on until nothing is left.
    pub(crate) fn settle(&mut self) {
        if !self.is_ours() {
            return;
        }
        // Each pass but the last one ends a link or writes to one that had nothing to write.
        for _ in 0..=2 * self.sockets.len() {
            self.link_ops();
            let mut idle = true;
            for at in 0..self.sockets.len() {
                idle &= !self.write(at);
            }
            if idle {
                return;
            }
        }
    }

    /// How long the loop may sleep.
    pub(crate) fn deadline(&self, boot: Timestamp) -> Option<Duration> {
        self.core.poll_timeout().map(|due| due.since(boot))
    }

    /// Nothing can be heard any longer: every connection is over.
    pub(crate) fn fail_all(&mut self, error: &io::Error) {
        if !self.is_ours() {
            return;
        }
        for at in 0..self.sockets.len() {
            self.failed(at, error);
        }
    }

    /// Whether this is the process that made it. In a forked child the connections are the parent's, and so
    /// are the locks: nothing is read, written, registered or given up there.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.origin.is_here()
    }

    /// Writes the releases of everything that is held, as far as the sockets take them.
    ///
    /// What has come is read as well: a socket that is closed with unread answers is reset, and a server that
    /// cannot answer any longer drops what it has not read by then, releases too.
    pub(crate) fn let_go(&mut self) {
        if self.is_ours() {
            self.core.release_all(self.clock.now());
            self.settle();
            for at in 0..self.sockets.len() {
                self.read(at, true);
            }
            self.settle();
        }
    }

    fn link_ops(&mut self) {
        while let Some(op) = self.core.poll_link() {
            match op {
                LinkOp::Close(link) => {
                    self.sockets[link.index()].others.clear();
                    self.drop_socket(link.index());
                }
                LinkOp::Open(link) => {
                    self.sockets[link.index()].link = Some(link);
                    self.open(link.index());
                }
            }
        }
    }

    fn open(&mut self, at: usize) {
        let link_socket = &mut self.sockets[at];
        match &link_socket.address {
            Address::Ip(ip, port) => {
                let address = SocketAddr::new(*ip, *port);
                self.connect(at, Socket::tcp(address, self.dead_peer_timeout));
            }
            Address::Unix(path) => {
                let socket = Socket::unix(path);
                self.connect(at, socket);
            }
            Address::Name(host, port) => {
                link_socket.state = State::Resolving;
                if link_socket.looking {
                    return;
                }
                if !link_socket.others.is_empty() {
                    // A look-up that took longer than the link had for it was not in vain.
                    self.connect_next(at);
                    return;
                }
                link_socket.looking = true;
                let resolver =
                    self.resolver.as_ref().expect("a resolver is made where there are names");
                if let Err(error) = resolver.look_up(at, host, *port) {
                    link_socket.looking = false;
                    self.failed(at, &error);
                }
            }
        }
    }

    /// Connects to the next address of a name; `false` if there is none.
    fn connect_next(&mut self, at: usize) -> bool {
        let Some(address) = self.sockets[at].others.pop() else { return false };
        self.drop_socket(at);
        self.connect(at, Socket::tcp(address, self.dead_peer_timeout));
        true
    }

    fn connect(&mut self, at: usize, socket: io::Result<Socket>) {
        let token = mio::Token(self.first_token + at);
        let registered = socket.and_then(|mut socket| {
            socket.register(&self.registry, token)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => self.sockets[at].state = State::Connecting(socket),
            Err(error) => self.connect_failed(at, &error),
        }
    }

    /// A name that leads to several addresses is reached by any of them: `localhost` often stands for
    /// `::1` first, and many servers listen on `127.0.0.1` alone.
    fn connect_failed(&mut self, at: usize, error: &io::Error) {
        if !self.connect_next(at) {
            self.failed(at, error);
        }
    }

    fn names_found(&mut self) {
        while let Some(found) = self.resolver.as_mut().and_then(Resolver::answer) {
            self.name_found(&found);
        }
    }

    fn name_found(&mut self, found: &Found) {
        let link_socket = &mut self.sockets[found.link];
        link_socket.looking = false;
        let awaited = matches!(link_socket.state, State::Resolving);
        match found.addresses.as_deref() {
            Ok(addresses @ [_, ..]) => {
                link_socket.others = addresses.iter().rev().copied().collect();
                link_socket.others.rotate_right(link_socket.turns % addresses.len());
                link_socket.turns = link_socket.turns.wrapping_add(1);
                if awaited {
                    self.connect_next(found.link);
                }
            }
            _ if !awaited => {}
            Ok([]) => self.disconnected(found.link, Cause::NameLookup),
            Err(error) => {
                self.explain(found.link, Cause::NameLookup, error.to_string());
                self.disconnected(found.link, Cause::NameLookup);
            }
        }
    }

    fn finish_connecting(&mut self, at: usize) {
        let State::Connecting(socket) = &self.sockets[at].state else { return };
        match socket.is_connected() {
            Ok(false) => {}
            Ok(true) => {
                let link_socket = &mut self.sockets[at];
                if let State::Connecting(socket) =
                    std::mem::replace(&mut link_socket.state, State::Closed)
                {
                    link_socket.state = State::Open(socket);
                }
                link_socket.others.clear();
                self.set_blocked(at, false);
                if let Some(link) = self.sockets[at].link {
                    self.core.connected(link, self.clock.now());
                }
                self.write(at);
                self.read(at, true);
            }
            Err(error) => self.connect_failed(at, &error),
        }
    }

    /// Reads until the socket has no more; whether it had anything. A read that did not fill its space was
    /// the last one, for the kernel tells when more has come.
    ///
    /// But of an end that it has told of together with the last bytes it does not tell again.
    fn read(&mut self, at: usize, ended: bool) -> bool {
        let mut came = false;
        loop {
            let link_socket = &mut self.sockets[at];
            let (State::Open(socket), Some(link)) = (&mut link_socket.state, link_socket.link)
            else {
                return came;
            };
            let space = self.core.space(link);
            let room = space.len();
            match socket.read(space) {
                Ok(0) => {
                    self.disconnected(at, Cause::ConnectionClosed);
                    return true;
                }
                Ok(bytes) => {
                    self.core.received(link, bytes, self.clock.now());
                    self.heard = true;
                    came = true;
                    if bytes < room && !ended {
                        return true;
                    }
                    self.link_ops();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return came,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed(at, &error);
                    return true;
                }
            }
        }
    }

    /// Writes what there is, once; `false` if there was nothing to do.
    fn write(&mut self, at: usize) -> bool {
        loop {
            let link_socket = &mut self.sockets[at];
            let (State::Open(socket), Some(link), false) =
                (&mut link_socket.state, link_socket.link, link_socket.blocked)
            else {
                return false;
            };
            let bytes = self.core.transmit(link);
            if bytes.is_empty() {
                return false;
            }
            match socket.write(bytes) {
                Ok(written) => {
                    let full = written < bytes.len();
                    self.core.transmitted(link, written);
                    if full {
                        self.set_blocked(at, true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.set_blocked(at, true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.write_failed(at, &error),
            }
            return true;
        }
    }

    /// What the server said before it hung up is still there to be read, and may end the link itself.
    fn write_failed(&mut self, at: usize, error: &io::Error) {
        self.read(at, true);
        if matches!(self.sockets[at].state, State::Open(_)) {
            self.failed(at, error);
        }
    }

    /// Whether the kernel's buffer is full.
    fn set_blocked(&mut self, at: usize, blocked: bool) {
        let token = mio::Token(self.first_token + at);
        let link_socket = &mut self.sockets[at];
        link_socket.blocked = blocked;
        if let State::Open(socket) = &mut link_socket.state
            && let Err(error) = socket.watch(&self.registry, token, blocked)
        {
            self.failed(at, &error);
        }
    }

    fn failed(&mut self, at: usize, error: &io::Error) {
        let (cause, words) = cause::of(error);
        if let Some(words) = words {
            self.explain(at, cause, words);
        }
        self.disconnected(at, cause);
    }

    fn explain(&mut self, at: usize, cause: Cause, words: String) {
        if let Some(link) = self.sockets[at].link {
            self.core.explain(link, cause, words);
        }
    }

    fn disconnected(&mut self, at: usize, cause: Cause) {
        self.drop_socket(at);
        if let Some(link) = self.sockets[at].link {
            self.core.disconnected(link, cause, self.clock.now());
        }
    }

    fn drop_socket(&mut self, at: usize) {
        let link_socket = &mut self.sockets[at];
        link_socket.blocked = false;
        if let State::Connecting(mut socket) | State::Open(mut socket) =
            std::mem::replace(&mut link_socket.state, State::Closed)
        {
            socket.deregister(&self.registry);
        }
    }
}

impl LinkSocket {
    fn new(address: Address) -> Self {
        let state = State::Closed;
        Self {
            link: None,
            address,
            state,
            blocked: false,
            looking: false,
            turns: 0,
            others: Vec::new(),
        }
    }
}
