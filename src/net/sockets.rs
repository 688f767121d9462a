//! The body of the event loop: moves bytes between the sockets and the core.
//!
//! Invariant: only this module handles the core's link operations and outgoing bytes. Readiness is
//! a hint; the result of a read or write decides.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::Registry;
use mio::event::Event;

use super::address::Address;
use super::cause;
use super::clock::{Clock, Origin};
use super::host_port;
use super::locator::{Located, Locator, NetAccess, NoRoute};
use super::resolve::Finding;
use super::socket::Socket;
use crate::proto::{Cause, ClockReading, Core, LinkId, LinkOp, Timestamp};

/// All sockets of one core.
pub(crate) struct Sockets {
    core: Core,
    clock: Clock,
    /// The command links of all nodes, followed by their push links.
    sockets: Vec<LinkSocket>,
    registry: Registry,
    /// The `mio::Token` of the first link; the other links and the locator follow.
    first_token: usize,
    locator: Locator,
    dead_peer_timeout: Duration,
    /// When the next address of any name is tried.
    race_at: Timestamp,
    /// Data was read since the last [`drive`](Self::drive).
    has_read: bool,
    /// The owner of these connections: two processes sharing them would mix up replies.
    origin: Origin,
}

/// One link's socket.
struct LinkSocket {
    link: Option<LinkId>,
    state: SocketState,
    /// The kernel's send buffer is full; the poller reports when it has room.
    blocked: bool,
    /// When the next address of the name is tried, unless one answers first.
    race_at: Timestamp,
    /// Received bytes stay unread until a majority of sentinels reconfirms this master.
    unread: bool,
}

enum SocketState {
    Closed,
    /// The addresses of a name that are being tried. The first to answer is used.
    Connecting(Vec<Socket>),
    Open(Socket),
    Resolving,
}

impl Sockets {
    pub(crate) fn new(
        core: Core,
        net: &NetAccess,
        addresses: &[Address],
        registry: Registry,
        first_token: usize,
    ) -> io::Result<Self> {
        let count = 2 * addresses.len();
        let locator = Locator::new(addresses, net, &registry, first_token + count)?;
        let dead_peer_timeout = core.config().settings().dead_peer_timeout;
        Ok(Self {
            core,
            clock: net.clock.clone(),
            sockets: (0..count).map(|_| LinkSocket::new()).collect(),
            registry,
            first_token,
            locator,
            dead_peer_timeout,
            race_at: Timestamp::NEVER,
            has_read: false,
            origin: Origin::here(),
        })
    }

    /// Returns the number of tokens: one per link (two per node), per sentinel and for look-ups.
    pub(crate) fn tokens_needed(addresses: &[Address]) -> usize {
        2 * addresses.len() + Locator::tokens_needed(addresses)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Returns the core and the current time.
    pub(crate) fn core_now(&mut self) -> (&mut Core, ClockReading) {
        (&mut self.core, self.clock.now())
    }

    /// Handles a readiness event; returns `false` if it is not for one of these sockets.
    pub(crate) fn on_event(&mut self, event: &Event) -> bool {
        let Some(at) = event.token().0.checked_sub(self.first_token) else { return false };
        // A forked child must not touch the parent's connections, so its events are dropped.
        if !self.is_ours() {
            return at <= self.sockets.len() + self.locator.sentinel_count();
        }
        if let Some(token) = at.checked_sub(self.sockets.len()) {
            return self.on_locator_event(token);
        }
        if matches!(self.sockets[at].state, SocketState::Connecting(_)) {
            self.finish_connecting(at);
            return true;
        }
        if event.is_writable() && self.sockets[at].blocked {
            self.set_blocked(at, false);
        }
        self.read(at, event.is_read_closed());
        true
    }

    /// Reads from sockets that owe a reply, without waiting for readiness. Returns whether data or
    /// the end of a connection was read.
    pub(crate) fn read_awaited(&mut self) -> bool {
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

    /// Returns whether there is a socket for [`read_awaited`](Self::read_awaited) to read from.
    pub(crate) fn awaits_answers(&self) -> bool {
        (0..self.core.config().node_count()).any(|at| self.is_awaited(at))
    }

    fn is_awaited(&self, at: usize) -> bool {
        let link_socket = &self.sockets[at];
        link_socket.is_open() && link_socket.link.is_some_and(|of| self.core.is_awaited(of))
    }

    /// Returns whether the poller is needed: for a connect, a look-up, room to write, or a message
    /// from a push link or a sentinel.
    pub(crate) fn needs_loop(&self) -> bool {
        let (command, push) = self.sockets.split_at(self.core.config().node_count());
        let waits = |link_socket: &LinkSocket| match link_socket.state {
            SocketState::Closed => false,
            SocketState::Connecting(_) | SocketState::Resolving => true,
            SocketState::Open(_) => link_socket.blocked,
        };
        command.iter().any(waits)
            || self.locator.subscriptions.is_any_open()
            || push.iter().any(|link_socket| !matches!(link_socket.state, SocketState::Closed))
    }

    /// Fires due timers, opens and closes links as the core requests, and writes its commands.
    pub(crate) fn drive(&mut self) {
        self.expire();
        self.settle();
    }

    /// Fires due timers without writing. Read all sockets first: a reply that has arrived is in
    /// time. Replies that arrived during a stall of this thread are read here.
    pub(crate) fn expire(&mut self) {
        if !self.is_ours() {
            return;
        }
        if self.race_at < Timestamp::NEVER {
            self.dial_late();
        }
        // Every read passed the time to the core, so `latest` is current if anything was read.
        let has_read = std::mem::take(&mut self.has_read);
        let due = self.core.poll_timeout().is_some_and(|due| due <= self.core.latest());
        if due || !has_read {
            let mut now = self.clock.now();
            // After a stall the replies in the kernel may be in time: read them before timing out.
            let stalled = |due: Timestamp| due + STALL <= now.boot;
            if self.core.poll_timeout().is_some_and(stalled) && self.read_awaited() {
                now = self.clock.now();
                self.has_read = false;
            }
            self.explain_unread(now.boot);
            self.core.timeout(now);
        }
    }

    /// Reports why replies were ignored, before their requests time out.
    fn explain_unread(&mut self, now: Timestamp) {
        if self.locator.sentinel_count() == 0
            || self.core.poll_timeout().is_none_or(|due| due > now)
        {
            return;
        }
        for at in 0..self.core.config().node_count() {
            if self.sockets[at].unread {
                self.explain(at, Cause::NoAnswer, NOT_CONFIRMED.to_owned());
            }
        }
    }

    /// Carries out all pending operations of the core. A failed connection can make it write to
    /// other links, so this repeats until no write fails.
    pub(crate) fn settle(&mut self) {
        if !self.is_ours() {
            return;
        }
        if self.locator.sentinel_count() > 0 {
            self.check_masters();
        }
        // Each pass except for the last closes or opens a link, so the loop is bounded.
        for _ in 0..=2 * self.sockets.len() {
            self.apply_link_ops();
            if !self.write_all() {
                return;
            }
        }
    }

    /// Writes to each link. Returns whether a connection failed.
    fn write_all(&mut self) -> bool {
        (0..self.sockets.len()).fold(false, |has_failed, at| self.write(at) | has_failed)
    }

    /// Returns how long the loop may sleep; `None` means until a socket is ready.
    pub(crate) fn deadline(&self, boot: Timestamp) -> Option<Duration> {
        let due = self.core.poll_timeout().unwrap_or(Timestamp::NEVER).min(self.race_at);
        (due < Timestamp::NEVER).then(|| due.since(boot))
    }

    /// Ends every connection, because the poller has failed.
    pub(crate) fn fail_all(&mut self, error: &io::Error) {
        if !self.is_ours() {
            return;
        }
        for at in 0..self.sockets.len() {
            self.failed(at, error);
        }
    }

    /// Returns whether this process created these sockets. In a forked child they and the locks
    /// belong to the parent: nothing is read, written, registered or closed.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.origin.is_here()
    }

    /// Releases all locks, as far as the sockets accept the bytes without blocking.
    ///
    /// Pending replies are read: closing a socket with unread data resets the connection, and the
    /// server then drops what it has not read, including releases.
    pub(crate) fn release_all(&mut self) {
        if self.is_ours() {
            self.core.release_all(self.clock.now());
            self.settle();
            for at in 0..self.sockets.len() {
                self.read_all(at, true);
            }
            self.settle();
        }
    }

    fn apply_link_ops(&mut self) {
        while let Some(op) = self.core.poll_link() {
            self.apply_link_op(op);
        }
    }

    /// Kept out of line, so that turns without link operations save no registers for it.
    #[cold]
    fn apply_link_op(&mut self, op: LinkOp) {
        match op {
            LinkOp::Close(link) => {
                #[cfg(feature = "tls")]
                self.explain_handshake(link.index());
                self.locator.forget_addresses(link.index());
                self.drop_socket(link.index());
            }
            LinkOp::Open(link) => {
                self.sockets[link.index()].link = Some(link);
                self.open(link.index());
            }
        }
    }

    fn open(&mut self, at: usize) {
        match self.locator.locate(at, self.core.config().settings()) {
            Ok(Located::Tcp(address)) => self.dial(at, address),
            Ok(Located::Unix(path)) => self.connect(at, Socket::unix(&path)),
            Ok(Located::Pending) => self.sockets[at].state = SocketState::Resolving,
            Err(error) => self.failed(at, &error),
        }
    }

    /// Handles an event of the locator; returns `false` if it does not own this token.
    fn on_locator_event(&mut self, token: usize) -> bool {
        match token.checked_sub(1) {
            None if self.locator.has_resolver() => self.take_findings(),
            Some(sentinel) if sentinel < self.locator.sentinel_count() => {
                let node = self.locator.subscriptions.receive(sentinel, &self.registry);
                self.follow_master(node);
            }
            _ => return false,
        }
        true
    }

    /// Keeps sentinel connections open, and queries sentinels before expected replies arrive.
    fn check_masters(&mut self) {
        let Self { locator, core, sockets, .. } = self;
        let is_open = |at: usize| sockets[at].is_open();
        let settings = core.config().settings();
        locator.restore_subscriptions(CHECK_SUBSCRIPTIONS, core.latest(), is_open, settings);
        // A reply is read only from a confirmed master, so confirm it in advance.
        for at in 0..self.core.config().node_count() {
            if self.is_awaited(at) {
                self.check_master(at);
            }
        }
    }

    /// Returns whether replies of this link's node count now.
    fn check_master(&mut self, at: usize) -> bool {
        let Self { locator, core, sockets, registry, .. } = self;
        let is_open = |at: usize| sockets[at].is_open();
        locator.check_master(at, core.latest(), is_open, core.config().settings(), registry)
    }

    /// Reacts to a reply or a change sent by a sentinel of this node.
    fn follow_master(&mut self, node: usize) {
        self.follow(node);
        self.follow(node + self.core.config().node_count());
        // The poller does not report unread bytes a second time.
        if self.sockets[node].unread {
            self.read(node, true);
        }
    }

    /// Closes a link when a majority of its sentinels names another master. A link that is down is
    /// opened at once, because its backoff belongs to the old master; the sentinels are queried
    /// again first.
    fn follow(&mut self, at: usize) {
        let Some(named) = self.locator.other_master(at) else { return };
        let link_socket = &self.sockets[at];
        // The pending look-up will bring the current master.
        if matches!(link_socket.state, SocketState::Resolving) {
            return;
        }
        if let (SocketState::Closed, Some(link)) = (&link_socket.state, link_socket.link) {
            return self.core.open_now(link, self.clock.now());
        }
        let words = format!("its sentinels name another master: {}", host_port::shown(&named));
        self.explain(at, Cause::Io, words);
        self.disconnected(at, Cause::Io);
    }

    /// Connects to the next address of a name, alongside pending attempts; `false` if none is left.
    fn connect_next(&mut self, at: usize) -> bool {
        let Some(address) = self.locator.next_address(at) else { return false };
        self.dial(at, address);
        true
    }

    /// Tries the next address of names whose last one has not answered in time: its packets may be
    /// lost (RFC 8305).
    fn dial_late(&mut self) {
        let now = self.clock.now().boot;
        if now < self.race_at {
            return;
        }
        for at in 0..self.sockets.len() {
            if self.sockets[at].race_at <= now {
                self.sockets[at].race_at = Timestamp::NEVER;
                self.connect_next(at);
            }
        }
        let times = self.sockets.iter().map(|link_socket| link_socket.race_at);
        self.race_at = times.min().unwrap_or(Timestamp::NEVER);
    }

    fn dial(&mut self, at: usize, address: SocketAddr) {
        let socket = Socket::tcp(address, self.dead_peer_timeout);
        let socket = socket.and_then(|socket| self.locator.secure(at, socket));
        self.connect(at, socket);
    }

    /// Records what a connection was waiting for when the core closed it.
    #[cfg(feature = "tls")]
    fn explain_handshake(&mut self, at: usize) {
        let link_socket = &self.sockets[at];
        let words = match &link_socket.state {
            SocketState::Connecting(sockets) => sockets.iter().find_map(Socket::unfinished),
            SocketState::Resolving if self.locator.is_tls(at) && self.locator.has_files() => {
                Some(STILL_READ)
            }
            _ => None,
        };
        if let Some(words) = words {
            self.explain(at, Cause::ConnectTimeout, words.to_owned());
        }
    }

    fn connect(&mut self, at: usize, socket: io::Result<Socket>) {
        let token = mio::Token(self.first_token + at);
        let registered = socket.and_then(|mut socket| {
            socket.register(&self.registry, token)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => self.begin_connecting(at, socket),
            Err(error) => self.connect_failed(at, &error),
        }
    }

    fn begin_connecting(&mut self, at: usize, socket: Socket) {
        let link_socket = &mut self.sockets[at];
        match &mut link_socket.state {
            SocketState::Connecting(sockets) => sockets.push(socket),
            state => *state = SocketState::Connecting(vec![socket]),
        }
        link_socket.race_at = match self.locator.pause_before_next(at) {
            Some(pause) => self.clock.now().boot + pause,
            None => Timestamp::NEVER,
        };
        self.race_at = self.race_at.min(link_socket.race_at);
    }

    /// Tries the next address of a name; the link fails with the last. `localhost` often resolves
    /// to `::1` first, and many servers listen only on `127.0.0.1`.
    fn connect_failed(&mut self, at: usize, error: &io::Error) {
        let others_go_on = matches!(&self.sockets[at].state, SocketState::Connecting(sockets) if !sockets.is_empty());
        if !self.connect_next(at) && !others_go_on {
            self.failed(at, error);
        }
    }

    fn take_findings(&mut self) {
        while let Some(finding) = self.locator.next_finding() {
            match finding {
                Finding::Route { link, route } => {
                    let is_awaited = matches!(self.sockets[link].state, SocketState::Resolving);
                    let timeout = self.core.config().settings().connect_timeout;
                    match self.locator.take_route(link, route, is_awaited, timeout) {
                        Some(Ok(())) => {
                            self.connect_next(link);
                            self.follow(link);
                        }
                        Some(Err(reason)) => self.give_up(link, reason),
                        None => {}
                    }
                }
                Finding::Sentinel { node, new } => {
                    self.locator.subscriptions.add(node, new, &self.registry);
                    self.follow_master(node);
                }
            }
        }
    }

    fn finish_connecting(&mut self, at: usize) {
        let SocketState::Connecting(sockets) = &mut self.sockets[at].state else { return };
        let mut index = 0;
        while index < sockets.len() {
            match sockets[index].continue_connecting() {
                Ok(false) => index += 1,
                Ok(true) => {
                    let socket = sockets.swap_remove(index);
                    return self.connected(at, socket);
                }
                Err(error) => {
                    sockets.remove(index).close_in(&self.registry);
                    self.connect_failed(at, &error);
                    // `connect_failed` may have changed the list, so it is walked again.
                    return self.finish_connecting(at);
                }
            }
        }
    }

    /// Uses the address that answered and closes the other attempts.
    fn connected(&mut self, at: usize, socket: Socket) {
        self.drop_socket(at);
        let link_socket = &mut self.sockets[at];
        link_socket.state = SocketState::Open(socket);
        self.locator.forget_addresses(at);
        self.set_blocked(at, false);
        if let Some(link) = self.sockets[at].link {
            self.core.connected(link, self.clock.now());
        }
        // Bytes that came with the connect will not be reported again.
        self.write(at);
        self.read(at, true);
    }

    /// Reads unless the node's replies do not count now. Returns whether there was data.
    #[inline]
    fn read(&mut self, at: usize, ended: bool) -> bool {
        if self.locator.sentinel_count() > 0 {
            // Bytes of a master that is not confirmed must not count, see `Locator::check_master`.
            self.sockets[at].unread = self.sockets[at].is_open() && !self.check_master(at);
            if self.sockets[at].unread {
                return false;
            }
        }
        self.read_all(at, ended)
    }

    /// Reads until the socket is empty. Returns whether it had data.
    ///
    /// A read that does not fill its buffer is the last one, because the poller reports later data.
    /// If the connection has `ended`, the poller will not report again, so reading continues to the
    /// end.
    fn read_all(&mut self, at: usize, ended: bool) -> bool {
        let mut came = false;
        loop {
            let link_socket = &mut self.sockets[at];
            let (SocketState::Open(socket), Some(link)) =
                (&mut link_socket.state, link_socket.link)
            else {
                return came;
            };
            let space = self.core.space(link);
            let room = space.len();
            let outcome = socket.read(space);
            let is_drained = socket.is_drained();
            match outcome {
                Ok(0) => {
                    self.disconnected(at, Cause::ConnectionClosed);
                    return true;
                }
                // The core must not see bytes of a server that may have been replaced.
                Ok(_) if !self.confirm_read(at) => return true,
                Ok(bytes) => {
                    self.core.received(link, bytes, self.clock.now());
                    self.has_read = true;
                    came = true;
                    if bytes < room && !ended && is_drained {
                        return true;
                    }
                    self.apply_link_ops();
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

    /// Returns whether the bytes just read count, and closes the connection if not. The thread may
    /// have stalled after checking the master, so the bytes may be younger than its confirmation.
    fn confirm_read(&mut self, at: usize) -> bool {
        if self.locator.sentinel_count() == 0 || self.check_master(at) {
            return true;
        }
        self.explain(at, Cause::NoAnswer, NOT_CONFIRMED.to_owned());
        self.disconnected(at, Cause::NoAnswer);
        false
    }

    /// Writes pending bytes once, if there is room. Returns whether the connection failed.
    fn write(&mut self, at: usize) -> bool {
        let link_socket = &mut self.sockets[at];
        let (SocketState::Open(socket), Some(link), false) =
            (&mut link_socket.state, link_socket.link, link_socket.blocked)
        else {
            return false;
        };
        let bytes = self.core.transmit(link);
        // TLS may have records to send although the core has no bytes.
        if bytes.is_empty() && !socket.has_unsent() {
            return false;
        }
        let outcome = loop {
            match socket.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(written) => {
                let is_full = written < bytes.len() || socket.has_unsent();
                self.core.transmitted(link, written);
                if !is_full {
                    return false;
                }
                self.set_blocked(at, true);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.set_blocked(at, true),
            Err(error) => self.write_failed(at, &error),
        }
        !self.sockets[at].is_open()
    }

    /// Reads what the server sent before it closed: that may end the link with a more precise
    /// cause.
    fn write_failed(&mut self, at: usize, error: &io::Error) {
        self.read(at, true);
        if self.sockets[at].is_open() {
            self.failed(at, error);
        }
    }

    /// Records whether the send buffer is full, and if so watches for room.
    fn set_blocked(&mut self, at: usize, blocked: bool) {
        let token = mio::Token(self.first_token + at);
        let link_socket = &mut self.sockets[at];
        link_socket.blocked = blocked;
        if let SocketState::Open(socket) = &mut link_socket.state
            && let Err(error) = socket.watch(&self.registry, token, blocked)
        {
            self.failed(at, &error);
        }
    }

    fn failed(&mut self, at: usize, error: &io::Error) {
        self.give_up(at, cause::of(error));
    }

    /// Ends a connection or an attempt, with its cause and details.
    fn give_up(&mut self, at: usize, (cause, words): NoRoute) {
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
        link_socket.race_at = Timestamp::NEVER;
        match std::mem::replace(&mut link_socket.state, SocketState::Closed) {
            SocketState::Open(socket) => socket.close_in(&self.registry),
            SocketState::Connecting(sockets) => {
                sockets.into_iter().for_each(|socket| socket.close_in(&self.registry));
            }
            SocketState::Closed | SocketState::Resolving => {}
        }
    }
}

impl LinkSocket {
    fn new() -> Self {
        Self {
            link: None,
            state: SocketState::Closed,
            blocked: false,
            race_at: Timestamp::NEVER,
            unread: false,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, SocketState::Open(_))
    }
}

/// The pause between two checks that all sentinels have a subscription.
const CHECK_SUBSCRIPTIONS: Duration = Duration::from_secs(5);

/// How late a timer fires before the thread is assumed to have stalled. Turns on time do not read
/// again.
const STALL: Duration = Duration::from_millis(2);

#[cfg(feature = "tls")]
const STILL_READ: &str = "the files of TLS are still being read, or a name is being looked up";

const NOT_CONFIRMED: &str = "most of its sentinels have not named it for 5 s";
