//! The body of the event loop: from readiness to the core, and from the core to the sockets.
//!
//! The core's outputs are matched here and nowhere else. Readiness is a hint: what counts is what a read or a
//! write returns. Not here: waiting for readiness, which the API or the host does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::Registry;
use mio::event::Event;

use super::address::Address;
use super::cause;
use super::clock::{Clock, Origin};
use super::hosts::{HostResolver, LookUps};
use super::resolve::{Answer, Found, Means, Resolver, Way};
use super::sentinel::{self, Asking, Ears, Place, Question, SentinelAccess, Sentinels};
use super::socket::Socket;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Connector};
use crate::proto::{Cause, ClockReading, Core, LinkId, LinkOp, Timestamp, sentinel_word};

/// All sockets of one core.
pub(crate) struct Sockets {
    core: Core,
    clock: Clock,
    /// The command links of all nodes, then their push links.
    sockets: Vec<LinkSocket>,
    registry: Registry,
    /// The `mio::Token` of the first link; the others follow, then the resolver's, then those of the sentinels.
    first_token: usize,
    resolver: Option<Resolver>,
    look_ups: Arc<LookUps>,
    ears: Ears,
    /// When it was last looked whether all sentinels are listened to.
    listened_at: Timestamp,
    dead_peer_timeout: Duration,
    /// When the next address of a name is tried beside those that are being connected.
    race_at: Timestamp,
    sentinels: SentinelAccess,
    /// There is one if an address asks for TLS.
    #[cfg(feature = "tls")]
    tls: Option<Connector>,
    /// Something was read since the last [`drive`](Self::drive).
    heard: bool,
    /// The process whose connections these are: two that shared them would mix up their answers.
    origin: Origin,
}

/// One link's socket.
struct LinkSocket {
    link: Option<LinkId>,
    address: Address,
    state: State,
    /// The kernel's send buffer is full. The poller reports when it has room.
    blocked: bool,
    /// A look-up is under way, whether or not its answer is still wanted.
    looking: bool,
    /// Look-ups answered: each begins with another address of the name.
    turns: usize,
    /// Addresses of the name that have not been tried for this connection, the next one last.
    others: Vec<SocketAddr>,
    /// When the next of them is tried, if none has answered by then.
    race_at: Timestamp,
    /// The pause between two of them.
    stagger: Duration,
    /// Where sentinels have said that the master is, when they were asked for this connection.
    master: Option<Place>,
    /// The sentinels that were asked where it is and have not answered yet.
    asking: Asking,
    /// The contents of the files of TLS, read for this connection.
    #[cfg(feature = "tls")]
    certificates: Option<Certificates>,
    /// What has come is left unread until sentinels have given their word again.
    unread: bool,
}

enum State {
    Closed,
    /// The addresses of a name that have been tried and have not answered. The first that does is taken.
    Connecting(Vec<Socket>),
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
        let is_name = |address: &Address| {
            !matches!(address, Address::Ip(..) | Address::TlsIp(..) | Address::Unix(_))
        };
        let names = addresses.iter().any(is_name);
        let bell = mio::Token(first_token + 2 * addresses.len());
        let resolver = names.then(|| Resolver::new(&registry, bell)).transpose()?;
        let ears = Ears::new(addresses, bell.0 + 1);
        let dead_peer_timeout = core.config().settings().dead_peer_timeout;
        let look_ups = Arc::default();
        let sockets = [addresses, addresses].concat().into_iter();
        let sockets = sockets.map(|address| LinkSocket::new(address, &look_ups)).collect();
        let (origin, heard) = (Origin::here(), false);
        Ok(Self {
            core,
            clock,
            sockets,
            registry,
            first_token,
            resolver,
            look_ups,
            ears,
            listened_at: Timestamp::default(),
            dead_peer_timeout,
            race_at: Timestamp::NEVER,
            sentinels: SentinelAccess::default(),
            #[cfg(feature = "tls")]
            tls: None,
            heard,
            origin,
        })
    }

    /// How many tokens there must be for these addresses: one for each link, of which each node has two, one for look-ups, and one
    /// for each sentinel.
    pub(crate) fn tokens_needed(addresses: &[Address]) -> usize {
        2 * addresses.len() + 1 + Ears::new(addresses, 0).len()
    }

    /// How sentinels are spoken with.
    pub(crate) fn with_sentinels(self, sentinels: SentinelAccess) -> Self {
        Self { sentinels, ..self }
    }

    /// How names of hosts become addresses.
    pub(crate) fn with_hosts(mut self, hosts: HostResolver) -> Self {
        self.look_ups = Arc::new(LookUps::new(hosts));
        for link_socket in &mut self.sockets {
            link_socket.asking = Asking::new(&self.look_ups);
        }
        self
    }

    /// With what sessions are begun where an address asks for TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(mut self, tls: Option<Connector>) -> io::Result<Self> {
        if tls.as_ref().is_some_and(Connector::has_files) && self.resolver.is_none() {
            let bell = mio::Token(self.first_token + self.sockets.len());
            self.resolver = Some(Resolver::new(&self.registry, bell)?);
        }
        Ok(Self { tls, ..self })
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
            return at <= self.sockets.len() + self.ears.len();
        }
        if at == self.sockets.len() && self.resolver.is_some() {
            self.answers_found();
            return true;
        }
        if at >= self.sockets.len() {
            return self.sentinel_speaks(at - self.sockets.len());
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

    /// Reads where answers are due, without waiting for readiness. Returns whether anything came, be it the end of
    /// a connection.
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

    /// Whether events are possible that only the poller reports: a completed connect, an address, room to write, a
    /// message on a push link, or of a sentinel.
    pub(crate) fn needs_loop(&self) -> bool {
        let (command, push) = self.sockets.split_at(self.core.config().node_count());
        let waits = |link_socket: &LinkSocket| match link_socket.state {
            State::Closed => false,
            State::Connecting(_) | State::Resolving => true,
            State::Open(_) => link_socket.blocked,
        };
        command.iter().any(waits)
            || self.ears.is_listening()
            || push.iter().any(|link_socket| !matches!(link_socket.state, State::Closed))
    }

    /// Fires due timers, opens and closes links as the core wants, and writes its commands.
    pub(crate) fn drive(&mut self) {
        self.expire();
        self.settle();
    }

    /// Fires due timers and writes nothing. Read everything first: an answer that is there has come in time. What came
    /// since, while this thread did not run, is read here.
    pub(crate) fn expire(&mut self) {
        if !self.is_ours() {
            return;
        }
        if self.race_at < Timestamp::NEVER {
            self.dial_late();
        }
        // The core has been given the time with everything that was read.
        let heard = std::mem::take(&mut self.heard);
        let due = self.core.poll_timeout().is_some_and(|due| due <= self.core.latest());
        if due || !heard {
            let mut now = self.clock.now();
            let stalled = |due: Timestamp| due + STALL <= now.boot;
            if self.core.poll_timeout().is_some_and(stalled) && self.listen() {
                now = self.clock.now();
                self.heard = false;
            }
            self.explain_unread(now.boot);
            self.core.timeout(now);
        }
    }

    /// Says why answers do not count, before they are given up.
    fn explain_unread(&mut self, now: Timestamp) {
        if self.ears.len() == 0 || self.core.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        for at in 0..self.core.config().node_count() {
            if self.sockets[at].unread {
                self.explain(at, Cause::NoAnswer, NO_WORD.to_owned());
            }
        }
    }

    /// Does everything that the core wants done now. A connection that fails can make the core write to other links, so
    /// this goes on until none does.
    pub(crate) fn settle(&mut self) {
        if !self.is_ours() {
            return;
        }
        if self.ears.len() > 0 {
            self.keep_listening();
        }
        // Each pass but the last ends a link, or opens one.
        for _ in 0..=2 * self.sockets.len() {
            self.link_ops();
            if !self.write_all() {
                return;
            }
        }
    }

    /// Writes what waits on each link. Returns whether a connection has failed at that.
    fn write_all(&mut self) -> bool {
        (0..self.sockets.len()).fold(false, |has_failed, at| self.write(at) | has_failed)
    }

    /// How long the loop may sleep; `None`: until something is ready.
    pub(crate) fn deadline(&self, boot: Timestamp) -> Option<Duration> {
        let due = self.core.poll_timeout().unwrap_or(Timestamp::NEVER).min(self.race_at);
        (due < Timestamp::NEVER).then(|| due.since(boot))
    }

    /// Ends every connection: the poller has failed, so nothing can be received.
    pub(crate) fn fail_all(&mut self, error: &io::Error) {
        if !self.is_ours() {
            return;
        }
        for at in 0..self.sockets.len() {
            self.failed(at, error);
        }
    }

    /// Whether this process made it. In a forked child the connections and the locks are the parent's: nothing is
    /// read, written, registered or closed there.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.origin.is_here()
    }

    /// Releases everything that is held, as far as the sockets take the bytes.
    ///
    /// It also reads what has come. A socket that is closed with unread answers is reset, and a server whose
    /// connection is reset drops what it has not read, releases too.
    pub(crate) fn let_go(&mut self) {
        if self.is_ours() {
            self.core.release_all(self.clock.now());
            self.settle();
            for at in 0..self.sockets.len() {
                self.read_all(at, true);
            }
            self.settle();
        }
    }

    fn link_ops(&mut self) {
        while let Some(op) = self.core.poll_link() {
            match op {
                LinkOp::Close(link) => {
                    #[cfg(feature = "tls")]
                    self.explain_handshake(link.index());
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
        match &self.sockets[at].address {
            Address::TlsIp(ip, port) if self.has_files() => {
                let place = (ip.to_string(), *port);
                self.look_up(at, place);
            }
            Address::Ip(ip, port) | Address::TlsIp(ip, port) => {
                let place = SocketAddr::new(*ip, *port);
                self.dial(at, place);
            }
            Address::Unix(path) => {
                let socket = Socket::unix(path);
                self.connect(at, socket);
            }
            Address::Name(host, port) | Address::TlsName(host, port) => {
                let place = (host.clone(), *port);
                self.look_up(at, place);
            }
            Address::Sentinels(sentinels) => {
                let sentinels = sentinels.clone();
                self.ask_sentinels(at, sentinels);
            }
        }
    }

    /// Finds out what a connection needs, unless that is known or goes on already.
    fn look_up(&mut self, at: usize, place: Place) {
        let link_socket = &mut self.sockets[at];
        link_socket.state = State::Resolving;
        if link_socket.looking {
            return;
        }
        if !link_socket.others.is_empty() {
            // An earlier look-up was answered after the link had given it up.
            self.connect_next(at);
            return;
        }
        link_socket.looking = true;
        let means = self.means(at);
        let resolver =
            self.resolver.as_ref().expect("a resolver is made where there are names or files");
        if let Err(error) = resolver.look_up(at, place, means) {
            self.sockets[at].looking = false;
            self.failed(at, &error);
        }
    }

    fn means(&self, at: usize) -> Means {
        #[cfg(not(feature = "tls"))]
        let _ = at;
        Means {
            look_ups: Arc::clone(&self.look_ups),
            #[cfg(feature = "tls")]
            tls: self.tls.clone().filter(|_| self.sockets[at].address.is_tls()),
        }
    }

    /// Whether TLS has files. They are not read on this thread: with a file system that hangs no lock would be extended.
    fn has_files(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().is_some_and(Connector::has_files);
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Asks where the master is now: what was said before this connection may be out of date. For the command link, which is
    /// always there, they are listened to as well.
    fn ask_sentinels(&mut self, at: usize, sentinels: Sentinels) {
        self.sockets[at].state = State::Resolving;
        if self.sockets[at].looking {
            return;
        }
        if at < self.core.config().node_count() {
            self.ears.forget(at);
        }
        if let Err(error) = self.begin_to_ask(at, sentinels) {
            self.failed(at, &error);
        }
    }

    fn begin_to_ask(&mut self, at: usize, sentinels: Sentinels) -> io::Result<()> {
        let settings = self.core.config().settings();
        let asking = self.sockets[at].asking.clone();
        let asked_at = self.clock.now();
        let question = Question::new(sentinels, &self.sentinels, asking, settings, asked_at);
        let listen = at < self.core.config().node_count();
        let resolver =
            self.resolver.as_ref().expect("a resolver is made where there are sentinels");
        resolver.ask(at, question, self.means(at), listen)?;
        self.sockets[at].looking = true;
        Ok(())
    }

    /// Sees to it that sentinels are listened to, and that answers which are due find a young word.
    fn keep_listening(&mut self) {
        self.listen_again(LISTEN_AGAIN);
        for at in 0..self.core.config().node_count() {
            if self.is_awaited(at) {
                self.is_vouched_for(at);
            }
        }
    }

    /// Asks sentinels again where not all are listened to, such as after their restarts: nobody else would tell of a failover. Only
    /// while something is going on, and after a pause.
    fn listen_again(&mut self, pause: Duration) {
        let now = self.core.latest();
        if now < self.listened_at + pause {
            return;
        }
        self.listened_at = now;
        for at in 0..self.core.config().node_count() {
            let link_socket = &self.sockets[at];
            if let Address::Sentinels(sentinels) = &link_socket.address
                && matches!(link_socket.state, State::Open(_))
                && !link_socket.looking
                && !self.ears.are_all_open(at)
            {
                let sentinels = sentinels.clone();
                // Otherwise it is tried again the next time.
                let _ = self.begin_to_ask(at, sentinels);
            }
        }
    }

    /// A sentinel has said something; `false` if there is none with this token.
    fn sentinel_speaks(&mut self, token: usize) -> bool {
        let Some(seat) = token.checked_sub(1).filter(|&seat| seat < self.ears.len()) else {
            return false;
        };
        let node = self.ears.hear(seat, &self.registry);
        self.told(node);
        true
    }

    /// A sentinel of this node has said something.
    fn told(&mut self, node: usize) {
        self.follow(node);
        self.follow(node + self.core.config().node_count());
        if self.sockets[node].unread {
            self.read(node, true);
        }
    }

    /// Whether what the node says counts: most of its sentinels have named it a while ago at the most. They are asked again when half
    /// of that time is over, and something is said.
    fn is_vouched_for(&mut self, at: usize) -> bool {
        let LinkSocket { master: Some(place), .. } = &self.sockets[at] else { return true };
        if at >= self.core.config().node_count() {
            return true;
        }
        let now = self.clock.now();
        let word = self.ears.vouched_at(at, place);
        if sentinel_word::needs_word(word, now) && !self.ears.ask(at, now, &self.registry) {
            self.listen_again(ASK_AGAIN);
        }
        sentinel_word::counts(word, now)
    }

    /// Gives up a link that leads to another master than most of its sentinels name now, and opens one that is down: its backoff
    /// is for the master that is gone. They are asked again before that.
    fn follow(&mut self, at: usize) {
        let link_socket = &self.sockets[at];
        let Some(place) = self.ears.named(at % self.core.config().node_count()) else { return };
        let leads_there = link_socket.master.as_ref() == Some(&place);
        if leads_there || matches!(link_socket.state, State::Resolving) {
            return;
        }
        if let (State::Closed, Some(link)) = (&link_socket.state, link_socket.link) {
            return self.core.open_now(link, self.clock.now());
        }
        let words = format!("its sentinels name another master: {}", sentinel::shown(&place));
        self.explain(at, Cause::Io, words);
        self.disconnected(at, Cause::Io);
    }

    /// Connects to the next address of a name, beside those that have not answered yet; `false` if there is none.
    fn connect_next(&mut self, at: usize) -> bool {
        let Some(place) = self.sockets[at].others.pop() else { return false };
        self.dial(at, place);
        true
    }

    /// Tries the next address where the last one has not answered in time: its packets may vanish (RFC 8305).
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

    fn dial(&mut self, at: usize, place: SocketAddr) {
        let socket = Socket::tcp(place, self.dead_peer_timeout);
        let socket = match self.sockets[at].address.is_tls() {
            true => socket.and_then(|socket| self.over_tls(at, socket)),
            false => socket,
        };
        self.connect(at, socket);
    }

    #[cfg(feature = "tls")]
    fn over_tls(&mut self, at: usize, socket: Socket) -> io::Result<Socket> {
        let tls = self.tls.as_ref().expect("a connector is made where addresses ask for TLS");
        let link_socket = &self.sockets[at];
        let certificates = match &link_socket.certificates {
            Some(certificates) => Ok(certificates.clone()),
            // There is no file, or a thread would have read it.
            None => tls.read(),
        };
        let session = certificates.and_then(|certificates| match &link_socket.master {
            Some(place) => certificates.session(&sentinel::over_tls(place)),
            None => certificates.session(&link_socket.address),
        });
        Ok(socket.over_tls(session.map_err(io::Error::other)?))
    }

    /// Says what a connection was waiting for that was given up.
    #[cfg(feature = "tls")]
    fn explain_handshake(&mut self, at: usize) {
        let link_socket = &self.sockets[at];
        let words = match &link_socket.state {
            State::Connecting(sockets) => sockets.iter().find_map(Socket::unfinished),
            State::Resolving if link_socket.address.is_tls() && self.has_files() => {
                Some(STILL_READ)
            }
            _ => None,
        };
        if let Some(words) = words {
            self.explain(at, Cause::ConnectTimeout, words.to_owned());
        }
    }

    /// Such an address cannot be read.
    #[cfg(not(feature = "tls"))]
    fn over_tls(&mut self, _: usize, _: Socket) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
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
            State::Connecting(sockets) => sockets.push(socket),
            state => *state = State::Connecting(vec![socket]),
        }
        if link_socket.others.is_empty() {
            link_socket.race_at = Timestamp::NEVER;
            return;
        }
        link_socket.race_at = self.clock.now().boot + link_socket.stagger;
        self.race_at = self.race_at.min(link_socket.race_at);
    }

    /// Tries the next address of a name before the link fails: `localhost` often means `::1` first, and many servers
    /// listen on `127.0.0.1` only. The link fails with the last address that does.
    fn connect_failed(&mut self, at: usize, error: &io::Error) {
        let others_go_on =
            matches!(&self.sockets[at].state, State::Connecting(sockets) if !sockets.is_empty());
        if !self.connect_next(at) && !others_go_on {
            self.failed(at, error);
        }
    }

    fn answers_found(&mut self) {
        while let Some(answer) = self.resolver.as_mut().and_then(Resolver::answer) {
            match answer {
                Answer::Found(found) => self.way_found(found),
                Answer::Told(node, told) => {
                    self.ears.listen(node, told, &self.registry);
                    self.told(node);
                }
            }
        }
    }

    fn way_found(&mut self, Found { link: at, way }: Found) {
        let link_socket = &mut self.sockets[at];
        link_socket.looking = false;
        let awaited = matches!(link_socket.state, State::Resolving);
        if !awaited && matches!(link_socket.address, Address::Sentinels(_)) {
            return;
        }
        link_socket.master = None;
        match way {
            Ok(way) if way.addresses.is_empty() => {
                if awaited {
                    self.disconnected(at, Cause::NameLookup);
                }
            }
            Ok(way) => {
                link_socket.take(way, self.core.config().settings().connect_timeout);
                if awaited {
                    self.connect_next(at);
                    // They may have changed their minds since.
                    self.follow(at);
                }
            }
            Err(_) if !awaited => {}
            Err((cause, error)) => {
                self.explain(at, cause, error.to_string());
                self.disconnected(at, cause);
            }
        }
    }

    fn finish_connecting(&mut self, at: usize) {
        let State::Connecting(sockets) = &mut self.sockets[at].state else { return };
        let mut place = 0;
        while place < sockets.len() {
            match sockets[place].is_connected() {
                Ok(false) => place += 1,
                Ok(true) => {
                    let socket = sockets.swap_remove(place);
                    return self.connected(at, socket);
                }
                Err(error) => {
                    sockets.remove(place).end(&self.registry);
                    self.connect_failed(at, &error);
                    return self.finish_connecting(at);
                }
            }
        }
    }

    /// An address has answered. The other ones are given up.
    fn connected(&mut self, at: usize, socket: Socket) {
        self.drop_socket(at);
        let link_socket = &mut self.sockets[at];
        link_socket.state = State::Open(socket);
        link_socket.others.clear();
        self.set_blocked(at, false);
        if let Some(link) = self.sockets[at].link {
            self.core.connected(link, self.clock.now());
        }
        self.write(at);
        self.read(at, true);
    }

    /// Reads, unless what has come does not count now. Returns whether there was anything.
    #[inline]
    fn read(&mut self, at: usize, ended: bool) -> bool {
        if self.ears.len() > 0 {
            let is_open = matches!(self.sockets[at].state, State::Open(_));
            self.sockets[at].unread = is_open && !self.is_vouched_for(at);
            if self.sockets[at].unread {
                return false;
            }
        }
        self.read_all(at, ended)
    }

    /// Reads until the socket has no more. Returns whether it had anything.
    ///
    /// A read that does not fill its space is the last one: the poller reports what comes later. Unless the
    /// connection has `ended`: the poller has reported that end and will not report it again, so it is read now.
    fn read_all(&mut self, at: usize, ended: bool) -> bool {
        let mut came = false;
        loop {
            let link_socket = &mut self.sockets[at];
            let (State::Open(socket), Some(link)) = (&mut link_socket.state, link_socket.link)
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
                Ok(_) if !self.is_still_vouched_for(at) => return true,
                Ok(bytes) => {
                    self.core.received(link, bytes, self.clock.now());
                    self.heard = true;
                    came = true;
                    if bytes < room && !ended && is_drained {
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

    /// Whether the bytes that were just read count; if not, their connection is closed. This thread may have been stopped
    /// since it looked at the word of sentinels, and the answer be younger than that look.
    fn is_still_vouched_for(&mut self, at: usize) -> bool {
        if self.ears.len() == 0 || self.is_vouched_for(at) {
            return true;
        }
        self.explain(at, Cause::NoAnswer, NO_WORD.to_owned());
        self.disconnected(at, Cause::NoAnswer);
        false
    }

    /// Writes once what waits, if there is room. Returns whether the connection has failed at that.
    fn write(&mut self, at: usize) -> bool {
        let link_socket = &mut self.sockets[at];
        let (State::Open(socket), Some(link), false) =
            (&mut link_socket.state, link_socket.link, link_socket.blocked)
        else {
            return false;
        };
        let bytes = self.core.transmit(link);
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
        !matches!(self.sockets[at].state, State::Open(_))
    }

    /// Reads first what the server sent before it closed the connection. That may end the link, with a better cause.
    fn write_failed(&mut self, at: usize, error: &io::Error) {
        self.read(at, true);
        if matches!(self.sockets[at].state, State::Open(_)) {
            self.failed(at, error);
        }
    }

    /// Notes whether the kernel's send buffer is full, and watches for room if it is.
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
        link_socket.race_at = Timestamp::NEVER;
        match std::mem::replace(&mut link_socket.state, State::Closed) {
            State::Open(socket) => socket.end(&self.registry),
            State::Connecting(sockets) => {
                sockets.into_iter().for_each(|socket| socket.end(&self.registry));
            }
            State::Closed | State::Resolving => {}
        }
    }
}

impl LinkSocket {
    fn new(address: Address, look_ups: &Arc<LookUps>) -> Self {
        let state = State::Closed;
        Self {
            link: None,
            address,
            state,
            blocked: false,
            looking: false,
            turns: 0,
            others: Vec::new(),
            race_at: Timestamp::NEVER,
            stagger: Duration::ZERO,
            master: None,
            asking: Asking::new(look_ups),
            #[cfg(feature = "tls")]
            certificates: None,
            unread: false,
        }
    }

    /// Takes what was found out for the next connection. Each begins with another address of the name, and all of them are
    /// tried before its time ends.
    fn take(&mut self, way: Way, connect_timeout: Duration) {
        self.others = way.addresses;
        self.stagger = STAGGER.min(connect_timeout / (self.others.len() as u32 + 1));
        self.others.reverse();
        let first = self.turns % self.others.len().max(1);
        self.others.rotate_right(first);
        self.turns = self.turns.wrapping_add(1);
        self.master = way.master;
        #[cfg(feature = "tls")]
        {
            self.certificates = way.certificates;
        }
    }
}

/// The pause between two addresses of a name: the least that RFC 8305 recommends, and shorter than the time after which a
/// node of which nothing is known is suspected.
const STAGGER: Duration = Duration::from_millis(100);

/// The pause between two looks at whether all sentinels are listened to.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// The same where fewer than most are, so that their word grows old.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A timer that is noticed so much later may have come while the thread did not run. Looks that end in time read nothing in
/// vain.
const STALL: Duration = Duration::from_millis(2);

#[cfg(feature = "tls")]
const STILL_READ: &str = "the files of TLS are still being read, or a name is being looked up";

const NO_WORD: &str = "most of its sentinels have not named it for 5 s";
