//! A world in virtual time: cores, model nodes, and the wires between them.
//!
//! It is deterministic: the same calls and the same seed give the same run. Each step delivers what
//! has arrived, and then fires timers, as a driver has to. At every instant the world checks the
//! invariants of [`World::watch`]. Random faults are in `random`.

mod server;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redbolt::proto::{
    Cause, ClockReading, Config, Core, DetachedLock, Event, LinkId, LinkOp, LockId, LockMode,
    LockRequest, NodeId, NodeSettings, NodeState, ObserverId, PushState, Refusal, Settings,
    Timestamp, Vote, Wait, WakeStrategy, restart_guard::BIG_MS,
};
use redbolt::resp::{Decoder, Limits, Token};
use redbolt_node::Memory;
pub(crate) use redbolt_testkit::GUARD;
use redbolt_testkit::command::number;
use redbolt_testkit::{Command, Host, Kind, Random, command_links, fill};

pub(crate) use self::server::{Accept, Server, bulk, error};
use self::wire::{State, Wire};

pub(crate) struct World {
    /// The boot clock of all machines, in nanoseconds.
    pub(crate) boot: u64,
    /// The time in ns by which the clients' wall clock is ahead of the boot clock.
    pub(crate) wall_ahead: i64,
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
    /// The locks that are detached.
    pub(crate) records: Vec<DetachedLock>,
    /// The clients that observe an election, each with its key.
    pub(crate) observers: Vec<(usize, ObserverId, Vec<u8>)>,
    wires: Vec<Wire>,
    /// All commands that ran on servers, in order.
    pub(crate) log: Vec<Ran>,
    /// The longest piece into which bytes are cut.
    pub(crate) chunk: usize,
    /// `true` if the wall clock is set at random, all the time.
    pub(crate) jumping: bool,
    /// The time in ns by which timers fire late.
    pub(crate) late: u64,
    /// `true` if timers are also handled when none is due.
    pub(crate) nagging: bool,
    /// The owner of each fencing token that was ever seen of a key, or of one of its permits.
    fenced: BTreeMap<(Counter, u64), (usize, LockId)>,
    /// `true` if a lock's keys must exist, see [`watch`](Self::watch).
    watched: bool,
    random: Random,
}

pub(crate) struct Client {
    pub(crate) core: Core,
    /// The wire of each link: the nodes' command links, then their push links.
    links: Vec<Option<usize>>,
    /// The events of locks, and when they were polled.
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) states: Vec<(NodeId, NodeState)>,
    pub(crate) locks: Vec<Known>,
    /// `true` if the process is stopped: time passes, and it does nothing.
    pub(crate) is_stopped: bool,
}

/// A key, and the number of the permit if each permit has a separate counter.
type Counter = (Vec<u8>, Option<u16>);

/// A lock that is valid at this instant.
struct Held {
    client: usize,
    key: Vec<u8>,
    mode: LockMode,
    slot: Option<u16>,
}

/// A requested lock.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) id: LockId,
    pub(crate) keys: Vec<Vec<u8>>,
    /// The largest fencing token of its keys when it was requested.
    floor: u64,
    /// The end of its validity on the boot clock, as last seen.
    ends: Option<u64>,
    pub(crate) ended: u32,
    /// `true` if its holder has called release.
    let_go: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) at: u64,
    pub(crate) node: usize,
    /// `true` if the client had left the connection by then.
    pub(crate) is_ghost: bool,
    /// `true` if there is nothing to undo: the node did not have the script, or replied that the
    /// request must queue.
    pub(crate) keeps_nothing: bool,
    pub(crate) words: Vec<Vec<u8>>,
}

/// The fate of bytes that were written before their connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The bytes still run, now.
    Runs,
    /// The bytes run when [`World::free_ghosts`] releases them.
    LeavesGhost,
    Vanishes,
}

impl World {
    /// Returns a client and `nodes` nodes, with default settings.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with(nodes, 1, |_| {})
    }

    /// Returns a world whose waiters do not queue on the nodes, and ask the node that reported
    /// first.
    pub(crate) fn led(nodes: usize, clients: usize, set: impl Fn(&mut Settings)) -> Self {
        Self::with(nodes, clients, |settings| {
            settings.wake = WakeStrategy::Lead;
            set(settings);
        })
    }

    /// Returns a world with short timeouts, so that tests which wait for them take little virtual
    /// time.
    pub(crate) fn with(nodes: usize, clients: usize, set: impl Fn(&mut Settings)) -> Self {
        let mut settings = Settings::new(vec![NodeSettings::default(); nodes]);
        settings.response_timeout = ms(50);
        settings.connect_timeout = ms(500);
        settings.dead_peer_timeout = secs(2);
        set(&mut settings);
        let config = Arc::new(Config::new(settings).unwrap());
        let mut world = Self {
            boot: 1_000 * SECOND,
            wall_ahead: 0,
            servers: Vec::new(),
            clients: Vec::new(),
            records: Vec::new(),
            observers: Vec::new(),
            wires: Vec::new(),
            log: Vec::new(),
            chunk: usize::MAX,
            jumping: false,
            late: 0,
            nagging: false,
            fenced: BTreeMap::new(),
            watched: true,
            random: Random::new(1),
        };
        world.servers = (0..nodes).map(|name| Server::new(name, world.server_now())).collect();
        let now = world.server_now();
        for (server, node) in world.servers.iter_mut().zip(&config.settings().nodes) {
            server.remember(config.settings(), node, now);
        }
        world.clients = (0..clients).map(|name| Client::new(&config, name as u64)).collect();
        world
    }

    /// Removes the restart guards, as on new nodes.
    pub(crate) fn unguarded(mut self) -> Self {
        let now = self.server_now();
        for server in &mut self.servers {
            server.observe(&[b"DEL", GUARD], now);
        }
        self
    }

    /// Adds a client of the same nodes, with its own settings, and returns its index.
    pub(crate) fn join(&mut self, set: impl Fn(&mut Settings)) -> usize {
        let mut settings = self.clients[0].core.config().settings().clone();
        set(&mut settings);
        let config = Arc::new(Config::new(settings).unwrap());
        self.clients.push(Client::new(&config, self.clients.len() as u64));
        self.clients.len() - 1
    }

    /// Lets nodes lose keys of held locks from now on. The world still checks that no other client
    /// gets them.
    pub(crate) fn forgetful(mut self) -> Self {
        self.watched = false;
        self
    }

    /// Cuts bytes at random places from now on.
    pub(crate) fn cut_bytes(&mut self, chunk: usize, seed: u64) {
        self.chunk = chunk.max(1);
        self.random = Random::new(seed);
    }

    /// Opens all links and completes the handshakes, so that a test begins with voters.
    pub(crate) fn warm(mut self) -> Self {
        self.run(ms(1));
        for client in &self.clients {
            for node in client.core.config().node_ids() {
                assert_eq!(client.core.node_state(node), NodeState::Ready);
            }
        }
        self.log.clear();
        self
    }

    pub(crate) fn now(&self) -> ClockReading {
        let wall = (self.boot + EPOCH).checked_add_signed(self.wall_ahead).unwrap();
        ClockReading { boot: Timestamp(self.boot), wall: Timestamp(wall) }
    }

    /// Returns the correct time of a server's clock.
    pub(crate) fn server_now(&self) -> redbolt_node::model::ClockReading {
        redbolt_node::model::ClockReading::from_micros((self.boot + EPOCH) / 1_000)
    }

    pub(crate) fn link(&self, node: usize) -> LinkId {
        link_of(node)
    }

    pub(crate) fn node(&self, node: usize) -> NodeId {
        link_of(node).node()
    }

    // Commands. Each runs everything that can run without time passing.

    pub(crate) fn acquire(
        &mut self,
        client: usize,
        request: &LockRequest<'_>,
        keys: &[&[u8]],
    ) -> LockId {
        let id = self.begin(client, request, keys);
        self.flow();
        id
    }

    /// Does the same as [`acquire`](Self::acquire), but writes nothing yet.
    pub(crate) fn begin(
        &mut self,
        client: usize,
        request: &LockRequest<'_>,
        keys: &[&[u8]],
    ) -> LockId {
        let now = self.now();
        let of_these =
            |(counter, _): &&(Counter, u64)| counter.1.is_none() && keys.contains(&&counter.0[..]);
        let tokens = self.fenced.keys().filter(of_these).map(|&(_, token)| token);
        let is_permit = matches!(request.mode(), LockMode::Permit { .. });
        // It is not known in advance which permit it gets.
        let floor = tokens.max().filter(|_| !is_permit).unwrap_or_default();
        let client = &mut self.clients[client];
        let id = client.core.acquire(request, now).unwrap();
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        client.locks.push(Known { id, keys, floor, ends: None, ended: 0, let_go: false });
        id
    }

    /// Detaches a lock from a client, if the client holds it.
    pub(crate) fn detach(&mut self, client: usize, id: LockId) -> Option<DetachedLock> {
        let now = self.now();
        let detached = self.clients[client].core.detach(id, now)?;
        // Earlier events belong to this lock.
        self.flow();
        self.clients[client].locks.retain(|known| known.id != id);
        Some(detached)
    }

    pub(crate) fn attach(&mut self, client: usize, detached: &DetachedLock) -> LockId {
        let now = self.now();
        let id = self.clients[client].core.attach(detached, now).unwrap();
        let keys: Vec<_> = detached.keys().map(<[u8]>::to_vec).collect();
        if let Some(token) = detached.fencing_token() {
            // The token moves with the lock.
            let counter = |key: &Vec<u8>| (key.clone(), detached.slot());
            let owned = keys.iter().map(|key| ((counter(key), token.get()), (client, id)));
            self.fenced.extend(owned);
        }
        let known = Known { id, keys, floor: 0, ends: None, ended: 0, let_go: false };
        self.clients[client].locks.push(known);
        self.flow();
        id
    }

    pub(crate) fn lock(&mut self, key: &[u8], ttl: Duration) -> LockId {
        self.acquire(0, &LockRequest::new(key).ttl(ttl), &[key])
    }

    /// Requests a lock with `Wait::Forever`.
    pub(crate) fn wait_for(&mut self, key: &[u8], ttl: Duration) -> LockId {
        self.acquire(0, &LockRequest::new(key).ttl(ttl).wait(Wait::Forever), &[key])
    }

    pub(crate) fn extend(&mut self, id: LockId, ttl: Duration) {
        let now = self.now();
        self.core().extend(id, ttl, now).unwrap();
        self.flow();
    }

    /// Does the same as [`extend`](Self::extend) if keys were deleted without the holder's
    /// knowledge.
    pub(crate) fn extend_unwatched(&mut self, id: LockId, ttl: Duration) {
        self.watched = false;
        self.extend(id, ttl);
    }

    pub(crate) fn release(&mut self, id: LockId) {
        self.let_go(0, id);
        self.flow();
    }

    /// Does the same as [`release`](Self::release), for any client; writes nothing yet.
    pub(crate) fn let_go(&mut self, client: usize, id: LockId) {
        let now = self.now();
        let client = &mut self.clients[client];
        client.core.release(id, now);
        client.locks.iter_mut().filter(|known| known.id == id).for_each(|known| {
            known.let_go = true;
        });
    }

    /// Returns the first client's core, for a test with one client.
    pub(crate) fn core(&mut self) -> &mut Core {
        &mut self.clients[0].core
    }

    // Observations.

    /// Returns the first client's events of a lock.
    pub(crate) fn outcomes(&self, id: LockId) -> Vec<Event> {
        self.clients[0].outcomes(id)
    }

    pub(crate) fn is_granted(&self, id: LockId) -> bool {
        self.clients[0].is_granted(id)
    }

    /// Returns the refusal that is the first client's only event of a lock.
    pub(crate) fn refusal(&self, id: LockId) -> Refusal {
        match self.outcomes(id)[..] {
            [Event::Refused(_, refusal)] => refusal,
            ref other => panic!("{other:?}"),
        }
    }

    /// Returns a node's vote in that refusal.
    pub(crate) fn vote(&self, id: LockId, node: usize) -> Option<Vote> {
        self.refusal(id).votes.of(self.node(node))
    }

    pub(crate) fn state(&self, node: usize) -> NodeState {
        self.clients[0].core.node_state(self.node(node))
    }

    /// Returns whether a node notifies a client of changes.
    pub(crate) fn push_state(&self, client: usize, node: usize) -> PushState {
        self.clients[client].core.push_state(self.node(node))
    }

    /// Returns the number of a client's open or opening connections, including push links.
    pub(crate) fn connections(&self, client: usize) -> usize {
        self.clients[client].links.iter().flatten().count()
    }

    pub(crate) fn remaining(&self, id: LockId) -> Duration {
        self.clients[0].remaining(id, self.now())
    }

    /// Returns the numbers of locks and claims in a client's core.
    pub(crate) fn kept(&self, client: usize) -> (usize, usize) {
        (self.counted(client, "locks: "), self.counted(client, "claims: "))
    }

    /// Returns the number of earlier tickets to which a client's locks in the queue listen.
    pub(crate) fn listeners(&self, client: usize) -> usize {
        self.counted(client, "listeners: ")
    }

    fn counted(&self, client: usize, name: &str) -> usize {
        let text = format!("{:?}", self.clients[client].core);
        let rest = &text[text.find(name).unwrap() + name.len()..];
        rest[..rest.find([',', ' ']).unwrap()].parse().unwrap()
    }

    pub(crate) fn value(&mut self, node: usize, key: &[u8]) -> Vec<u8> {
        let now = self.server_now();
        self.servers[node].value(key, now)
    }

    pub(crate) fn set(&mut self, node: usize, key: &[u8], value: &[u8], ttl_ms: u64) {
        let (now, ttl) = (self.server_now(), ttl_ms.to_string());
        self.servers[node].observe(&[b"SET", key, value, b"PX", ttl.as_bytes()], now);
    }

    /// Sets another client's key on the first nodes, for these many ms each.
    pub(crate) fn foreign(&mut self, key: &[u8], ttls: &[u64]) {
        for (node, &ttl) in ttls.iter().enumerate() {
            self.set(node, key, b"theirs", ttl);
        }
    }

    /// Deletes a key, as an operator does by hand.
    pub(crate) fn delete(&mut self, node: usize, key: &[u8]) {
        let now = self.server_now();
        self.servers[node].observe(&[b"DEL", key], now);
        self.flow();
    }

    pub(crate) fn delete_everywhere(&mut self, key: &[u8]) {
        (0..self.servers.len()).for_each(|node| self.delete(node, key));
    }

    /// Sets the one-way delay of all nodes.
    pub(crate) fn delay(&mut self, span: Duration) {
        for server in &mut self.servers {
            server.delay = span.as_nanos() as u64;
        }
    }

    /// Returns the time until `done`, which must be within `span`.
    pub(crate) fn time_until(
        &mut self,
        span: Duration,
        done: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let begun = self.boot;
        self.run_until(span, done);
        Duration::from_nanos(self.boot - begun)
    }

    pub(crate) fn pttl(&mut self, node: usize, key: &[u8]) -> i64 {
        let now = self.server_now();
        let reply = self.servers[node].observe(&[b"PTTL", key], now);
        std::str::from_utf8(&reply[1..reply.len() - 2]).unwrap().parse().unwrap()
    }

    /// Upgrades a reader or downgrades a writer, if the core permits it.
    pub(crate) fn change_mode(&mut self, client: usize, id: LockId) {
        let now = self.now();
        let core = &mut self.clients[client].core;
        let _ = match core.mode(id) {
            Some(LockMode::Shared) => core.try_upgrade(id, now),
            _ => core.downgrade(id, now),
        };
        self.flow();
    }

    /// Returns the 32 digits that name each holder of a key on a node, in any kind of lock.
    fn names(&mut self, node: usize, key: &[u8]) -> Vec<Vec<u8>> {
        let now = self.server_now();
        let ends = [b"redbolt:until:", key].concat();
        let mut names = vec![self.value(node, key)];
        for key in [key, &ends] {
            let words: [&[u8]; 5] = [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"];
            let reply = self.servers[node].observe(&words, now);
            let parts: Vec<_> = bulks(&reply);
            let lives = |end: &[u8]| number(end) > (self.boot + EPOCH) / 1_000_000;
            let members = parts.chunks_exact(2).filter(|member| lives(&member[1]));
            names.extend(members.map(|member| member[0].clone()));
        }
        let name = |name: Vec<u8>| {
            let marks: [&[u8]; 2] = [b"r:", b"w:"];
            let name = marks.iter().find_map(|mark| name.strip_prefix(*mark)).unwrap_or(&name);
            name.get(..32).map(<[u8]>::to_vec)
        };
        names.into_iter().filter_map(name).collect()
    }

    /// Returns whether each node has the key.
    pub(crate) fn holders(&mut self, key: &[u8]) -> Vec<bool> {
        (0..self.servers.len()).map(|node| self.pttl(node, key) != -2).collect()
    }

    /// Returns the kinds of the commands that ran on a node.
    pub(crate) fn ran(&self, node: usize) -> Vec<&'static str> {
        self.log.iter().filter(|ran| ran.node == node).map(Ran::kind).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.log.iter().filter(|ran| ran.kind() == kind).count()
    }

    /// Sets how many µs a server's clock was ahead from the start.
    pub(crate) fn set_clock(&mut self, node: usize, ahead: i64) {
        self.servers[node].ahead = ahead;
        let (value, big) = (self.own_restart_guard(node, 0), BIG_MS);
        self.set_restart_guard(node, &value, big);
    }

    // Restart guards.

    /// Returns the value of a node's restart guard, and the rest of its quarantine in ms, which is
    /// negative if it has ended.
    pub(crate) fn restart_guard(&mut self, node: usize) -> (String, i64) {
        let value = String::from_utf8(self.value(node, GUARD)).unwrap();
        (value, self.pttl(node, GUARD) - BIG_MS as i64)
    }

    pub(crate) fn set_restart_guard(&mut self, node: usize, value: &str, ttl_ms: u64) {
        self.set(node, GUARD, value.as_bytes(), ttl_ms);
    }

    /// Returns the restart guard that all clients expect after this many restarts.
    pub(crate) fn own_restart_guard(&self, node: usize, restarts: u32) -> String {
        let settings = self.clients[0].core.config().settings();
        let expected = self.servers[node].expected(settings, &settings.nodes[node], restarts);
        String::from_utf8(expected.value()).unwrap()
    }

    pub(crate) fn flush(&mut self, node: usize) {
        let now = self.server_now();
        assert_eq!(self.servers[node].observe(&[b"FLUSHALL"], now), b"+OK\r\n");
    }

    /// Loses all connections, between two commands.
    pub(crate) fn restart_connections(&mut self) {
        for client in 0..self.clients.len() {
            for node in 0..self.servers.len() {
                self.cut(client, node, Written::Runs);
                self.cut_push(client, node);
            }
        }
    }

    /// Kills and restarts a server's process.
    pub(crate) fn restart(&mut self, node: usize, memory: Memory) {
        self.stop(node);
        self.start(node, memory);
    }

    // Faults.

    /// Loses the connection to a node; the client notices at once.
    pub(crate) fn cut(&mut self, client: usize, node: usize, written: Written) {
        self.cut_link(client, node, written);
    }

    /// Loses the push link to a node; the client notices at once.
    pub(crate) fn cut_push(&mut self, client: usize, node: usize) {
        self.cut_link(client, self.servers.len() + node, Written::Runs);
    }

    fn cut_link(&mut self, client: usize, link: usize, written: Written) {
        let Some(wire) = self.clients[client].links[link].take() else { return };
        self.abandon(wire, written);
        let (now, link) = (self.now(), self.wires[wire].link);
        self.clients[client].core.disconnected(link, Cause::ConnectionReset, now);
        self.flow();
    }

    /// Loses the push link on the server only: the client does not notice that messages no longer
    /// arrive.
    pub(crate) fn break_redirect(&mut self, client: usize, node: usize) {
        let Some(wire) = self.clients[client].links[self.servers.len() + node] else { return };
        let wire = &mut self.wires[wire];
        if let State::Open(conn) = wire.state {
            wire.state = State::Forgotten;
            wire.flow.up.clear();
            self.servers[node].store.disconnect(conn);
        }
    }

    fn abandon(&mut self, wire: usize, written: Written) {
        let wire = &mut self.wires[wire];
        wire.alive = false;
        wire.flow.down.clear();
        match written {
            Written::Runs => {}
            Written::LeavesGhost => wire.held = true,
            Written::Vanishes => wire.flow.up.clear(),
        }
    }

    /// Runs everything that was written to lost connections, on all nodes.
    pub(crate) fn free_ghosts(&mut self) {
        for wire in &mut self.wires {
            wire.held = false;
        }
        self.flow();
    }

    /// Kills a server's process.
    pub(crate) fn stop(&mut self, node: usize) {
        self.servers[node].accept = Accept::No;
        for wire in self.wires.iter_mut().filter(|wire| wire.node == node) {
            wire.state = State::Ended;
            wire.flow.up.clear();
        }
        self.flow();
    }

    pub(crate) fn start(&mut self, node: usize, memory: Memory) {
        let now = self.server_now();
        let server = &mut self.servers[node];
        server.accept = Accept::Yes;
        server.restart(node, memory, now);
    }

    /// Closes a server's connections, while the server keeps running.
    pub(crate) fn hang_up(&mut self, node: usize) {
        for wire in self.wires.iter_mut().filter(|wire| wire.node == node) {
            wire.state = State::Ended;
            wire.flow.up.clear();
        }
        self.flow();
    }

    pub(crate) fn pause(&mut self, node: usize) {
        self.servers[node].paused = true;
    }

    pub(crate) fn resume(&mut self, node: usize) {
        self.servers[node].paused = false;
        self.flow();
    }

    /// Sends unsolicited bytes from the server.
    pub(crate) fn say(&mut self, client: usize, node: usize, bytes: &[u8]) {
        if let Some(wire) = self.clients[client].links[node] {
            self.wires[wire].flow.down.push(self.boot, bytes.to_vec());
        }
        self.flow();
    }

    /// Sends unsolicited bytes on the push link.
    pub(crate) fn send_to_push(&mut self, client: usize, node: usize, bytes: &[u8]) {
        if let Some(wire) = self.clients[client].links[self.servers.len() + node] {
            self.wires[wire].flow.down.push(self.boot, bytes.to_vec());
        }
        self.flow();
    }

    /// Lets `answer` make a node's replies from now on, whenever it returns one.
    pub(crate) fn answer(
        &mut self,
        node: usize,
        answer: impl FnMut(&[&[u8]]) -> Option<Vec<u8>> + 'static,
    ) {
        self.servers[node].answer = Some(Box::new(answer));
    }

    // Time.

    pub(crate) fn run(&mut self, span: Duration) {
        self.run_to(self.boot + span.as_nanos() as u64);
    }

    fn run_to(&mut self, end: u64) {
        for _ in 0..MANY {
            self.flow();
            match self.next_at() {
                Some(next) if next <= end => self.boot = self.boot.max(next),
                _ => {
                    self.boot = end;
                    return self.flow();
                }
            }
        }
        panic!("too many events, at {} with {:?}", self.boot, self.next_at());
    }

    /// Runs until `done`, for at most `span`.
    pub(crate) fn run_until(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.boot + span.as_nanos() as u64;
        while !done(self) {
            let next = self.next_at().filter(|&next| next <= end);
            self.boot = self.boot.max(next.expect("the condition holds within the span"));
            self.flow();
        }
    }

    /// Returns the time of the next event.
    fn next_at(&self) -> Option<u64> {
        let running = self.clients.iter().filter(|client| !client.is_stopped);
        let timers = running.filter_map(|client| client.core.poll_timeout());
        let timers = timers.map(|at| at.0.saturating_add(self.late));
        let reported = (0..self.servers.len()).filter(|&node| self.reports(node));
        let timers = timers.chain(reported.map(|node| self.servers[node].expires_at));
        timers.chain(self.wires.iter().filter_map(|wire| self.wire_at(wire))).min()
    }

    fn wire_at(&self, wire: &Wire) -> Option<u64> {
        let server = &self.servers[wire.node];
        let up = wire.flow.up.next_at().filter(|_| !wire.held && !server.paused);
        let stopped = self.clients[wire.client].is_stopped;
        let reads = wire.alive && wire.state != State::Connecting && !stopped;
        let down = wire.flow.down.next_at().filter(|_| reads);
        let answered = server.accept != Accept::Silent && !stopped;
        let open =
            (wire.alive && answered && wire.state == State::Connecting).then_some(wire.open_at);
        [up, down, open].into_iter().flatten().min()
    }

    /// Returns `true` if any client listens to a server's notifications.
    fn reports(&self, node: usize) -> bool {
        let is_push = |wire: &Wire| wire.node == node && wire.link.is_push() && wire.alive;
        !self.servers[node].paused && self.wires.iter().any(is_push)
    }

    /// Sends the servers' notifications; those of expired keys only in an expiry cycle.
    fn report(&mut self, node: usize) -> bool {
        let now = self.server_now();
        let server = &mut self.servers[node];
        if !server.paused && self.boot >= server.expires_at {
            server.expire(now);
            server.expires_at = (self.boot / TENTH + 1) * TENTH;
        }
        let mut moved = false;
        while let Some((conn, message)) = server.store.poll_push() {
            let is_to = |wire: &&mut Wire| wire.node == node && wire.state == State::Open(conn);
            let to = self.wires.iter_mut().find(is_to);
            if let Some(wire) = to.filter(|wire| wire.alive && !server.loses_messages) {
                wire.flow.down.push(self.boot + server.delay, message);
                moved = true;
            }
        }
        moved
    }

    /// Runs everything that can happen without time passing.
    pub(crate) fn flow(&mut self) {
        if self.jumping {
            self.wall_ahead = self.random.below(2 * HOUR as u64) as i64 - HOUR;
        }
        for _ in 0..MANY {
            let mut moved = false;
            for client in 0..self.clients.len() {
                moved |= self.drain(client);
            }
            for node in 0..self.servers.len() {
                moved |= self.report(node);
            }
            for wire in 0..self.wires.len() {
                moved |= self.connect(wire) | self.serve(wire) | self.deliver(wire);
            }
            if !moved && !self.fire() {
                return self.watch();
            }
        }
        panic!("the world never comes to rest: {:?}", self.log.last());
    }

    /// Carries out a core's outputs.
    fn drain(&mut self, client: usize) -> bool {
        let mut moved = false;
        if self.clients[client].is_stopped {
            return false;
        }
        while let Some(op) = self.clients[client].core.poll_link() {
            self.link_op(client, op);
            moved = true;
        }
        for link in 0..self.clients[client].links.len() {
            moved |= self.write(client, link);
        }
        while let Some(event) = self.clients[client].core.poll_event() {
            self.clients[client].reported(self.boot, event);
            moved = true;
        }
        moved
    }

    fn link_op(&mut self, client: usize, op: LinkOp) {
        match op {
            LinkOp::Open(link) => {
                let open_at = self.boot + 2 * self.servers[link.node().index()].delay;
                self.clients[client].links[link.index()] = Some(self.wires.len());
                self.wires.push(Wire::new(client, link, open_at));
            }
            LinkOp::Close(link) => {
                let wire = self.clients[client].links[link.index()].take();
                self.abandon(wire.expect("only an open link is closed"), Written::Runs);
            }
        }
    }

    fn write(&mut self, client: usize, link: usize) -> bool {
        let Some(wire) = self.clients[client].links[link] else { return false };
        let wire = &mut self.wires[wire];
        let server = &mut self.servers[wire.node];
        let (window, at) = (server.window, self.boot + server.delay);
        if !matches!(wire.state, State::Open(_)) {
            return false;
        }
        let most = window.min(piece(&mut self.random, self.chunk));
        let taken = self.clients[client].core.take(wire.link, most);
        if window != usize::MAX {
            server.window -= taken.len();
        }
        let moved = !taken.is_empty();
        wire.flow.up.push(at, taken);
        moved
    }

    fn connect(&mut self, at: usize) -> bool {
        let wire = &mut self.wires[at];
        let waits = wire.state != State::Connecting || wire.open_at > self.boot;
        if !wire.alive || waits || self.clients[wire.client].is_stopped {
            return false;
        }
        let (client, node, link) = (wire.client, wire.node, wire.link);
        let now = self.now();
        match self.servers[node].accept {
            Accept::Silent => return false,
            Accept::Yes => {
                self.wires[at].state = State::Open(self.servers[node].store.connect());
                self.clients[client].core.connected(link, now);
            }
            Accept::No => {
                self.wires[at].alive = false;
                self.clients[client].links[link.index()] = None;
                self.clients[client].core.disconnected(link, Cause::ConnectionRefused, now);
            }
        }
        true
    }

    /// Runs the requests that have arrived on a wire.
    fn serve(&mut self, at: usize) -> bool {
        let wire = &mut self.wires[at];
        let server = &mut self.servers[wire.node];
        let State::Open(conn) = wire.state else { return false };
        if server.paused || wire.held {
            return false;
        }
        let requests = wire.flow.requests(self.boot);
        let moved = !requests.is_empty();
        for words in requests {
            let mut reply = Vec::new();
            let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let now = redbolt_node::model::ClockReading::from_micros((self.boot + EPOCH) / 1_000);
            server.run(conn, &args, now, &mut reply);
            let keeps_nothing = reply.starts_with(b"-NOSCRIPT") || reply.starts_with(b"+WAIT ");
            if wire.alive {
                wire.flow.down.push(self.boot + server.delay, reply);
            }
            let node = wire.node;
            self.log.push(Ran { at: self.boot, node, is_ghost: !wire.alive, keeps_nothing, words });
        }
        if !wire.alive && wire.flow.up.is_empty() {
            server.store.disconnect(conn);
            wire.state = State::Ended;
        }
        let node = wire.node;
        while let Some(killed) = self.servers[node].store.poll_close() {
            let now = self.server_now();
            self.servers[node].killed(killed, now);
            let is_killed = |w: &&mut Wire| w.node == node && w.state == State::Open(killed);
            if let Some(wire) = self.wires.iter_mut().find(is_killed) {
                wire.state = State::Ended;
                wire.flow.up.clear();
            }
        }
        moved
    }

    /// Lets a client read what has arrived, or notice that the server's end is closed.
    fn deliver(&mut self, at: usize) -> bool {
        let now = self.now();
        let wire = &mut self.wires[at];
        let (client, link) = (wire.client, wire.link);
        let stopped = self.clients[client].is_stopped;
        if !wire.alive || wire.state == State::Connecting || stopped {
            return false;
        }
        let core = &mut self.clients[client].core;
        if let Some(mut bytes) = wire.flow.down.arrived(self.boot) {
            let most = bytes.len().min(piece(&mut self.random, self.chunk));
            let taken = core.read(link, now, |space| fill(space, &bytes[..most]));
            wire.flow.down.unread(self.boot, bytes.split_off(taken));
            return true;
        }
        if wire.state == State::Ended && wire.flow.down.is_empty() {
            wire.alive = false;
            self.clients[client].links[link.index()] = None;
            self.clients[client].core.disconnected(link, Cause::ConnectionClosed, now);
            return true;
        }
        false
    }

    /// Fires the timers that are due. Afterwards none may be due in the past.
    fn fire(&mut self) -> bool {
        let now = self.now();
        let mut fired = false;
        for client in self.clients.iter_mut().filter(|client| !client.is_stopped) {
            let due = client.core.poll_timeout().map(|at| at.0.saturating_add(self.late));
            let is_due = due.is_some_and(|at| at <= now.boot.0);
            // The output of one timer is written before the next timer fires.
            if is_due {
                client.core.fire(now);
                fired = true;
            } else if self.nagging {
                client.core.timeout(now);
            }
        }
        fired
    }

    /// Returns the largest numbers of valid holders of one key: of readers, and of permits.
    pub(crate) fn most_beside(&self) -> [usize; 2] {
        let mut held = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            for at in 0..client.locks.len() {
                if !client.remaining(client.locks[at].id, self.now()).is_zero() {
                    held.extend(client.held(number, at));
                }
            }
        }
        let is_permit = |held: &&Held| matches!(held.mode, LockMode::Permit { .. });
        let most = |sort: &dyn Fn(&&Held) -> bool| {
            let beside =
                |one: &Held| held.iter().filter(|other| other.key == one.key).filter(sort).count();
            held.iter().map(beside).max().unwrap_or_default()
        };
        [most(&|held| held.mode == LockMode::Shared), most(&is_permit)]
    }

    /// Checks the invariants of every instant while nodes keep their data: no two clients hold a
    /// key validly in modes that exclude each other, and for each holder a quorum of nodes has it
    /// at the key. Only an extension or a change of mode prolongs a validity, and each lock ends
    /// once.
    fn watch(&mut self) {
        let mut held: Vec<Held> = Vec::new();
        for client in 0..self.clients.len() {
            for at in 0..self.clients[client].locks.len() {
                let id = self.clients[client].locks[at].id;
                let left = self.clients[client].remaining(id, self.now()).as_nanos() as u64;
                // Only the boot clock counts here, because the wall clock may shorten a validity
                // and restore it.
                let lease = self.clients[client].core.lease(id);
                let ends = lease.map(|l| {
                    l.remaining(ClockReading {
                        boot: Timestamp(self.boot),
                        ..ClockReading::default()
                    })
                });
                let ends = ends.map(|left| self.boot + left.as_nanos() as u64);
                let known = &mut self.clients[client].locks[at];
                if let (Some(before), Some(ends)) = (known.ends, ends) {
                    assert!(ends <= before.max(self.boot), "a validity grew without an extension");
                }
                known.ends = ends.or(known.ends);
                assert!(known.ended <= 1, "a lock ends once");
                self.watch_token(client, at);
                if left > 0 {
                    held.extend(self.clients[client].held(client, at));
                }
            }
        }
        for (at, one) in held.iter().enumerate() {
            let other = held[..at].iter().find(|other| one.key == other.key && one.excludes(other));
            assert!(other.is_none(), "two clients hold {:?}", one.key.escape_ascii().to_string());
        }
        if self.watched {
            self.watch_keys(&held);
        }
    }

    /// Checks that no two locks on a key have the same token, unless both share it, and that each
    /// token is larger than all that were known when its lock was requested. A reader has the odd
    /// token of the current readers, or the unique one from when it was a writer.
    fn watch_token(&mut self, client: usize, at: usize) {
        let Known { id, keys, floor, .. } = &self.clients[client].locks[at];
        let core = &self.clients[client].core;
        let Some(token) = core.fencing_token(*id).map(|token| token.get()) else { return };
        let is_readers = token % 2 == 1 && core.slot(*id).is_none();
        assert!(token > *floor || is_readers && token == *floor, "{token} after {floor}");
        assert!(!is_readers || core.mode(*id) == Some(LockMode::Shared), "a writer with {token}");
        for key in keys {
            let counter = (key.clone(), core.slot(*id));
            let owner = self.fenced.entry((counter, token)).or_insert((client, *id));
            assert!(is_readers || *owner == (client, *id), "{token} was returned twice");
        }
    }

    /// Checks that for each key a quorum knows at least as many holders as hold it.
    fn watch_keys(&mut self, held: &[Held]) {
        for Held { client, key, .. } in held {
            let quorum = self.clients[*client].core.config().quorum();
            let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            for node in 0..self.servers.len() {
                let names: BTreeSet<_> = self.names(node, key).into_iter().collect();
                names.into_iter().for_each(|name| *known.entry(name).or_default() += 1);
            }
            let kept = known.values().filter(|nodes| **nodes >= quorum).count();
            let holders = held.iter().filter(|other| other.key == *key).count();
            assert!(
                kept >= holders,
                "{holders} hold it, but a quorum of {quorum} nodes has only {kept}: {known:?}"
            );
        }
    }
}

impl Held {
    fn excludes(&self, other: &Self) -> bool {
        match (self.mode, other.mode) {
            (LockMode::Shared, LockMode::Shared) => false,
            (LockMode::Permit { .. }, LockMode::Permit { .. }) => self.slot == other.slot,
            _ => true,
        }
    }
}

impl Client {
    fn new(config: &Arc<Config>, seed: u64) -> Self {
        let core = Core::new(Arc::clone(config), Random::new(seed).entropy());
        let links = vec![None; 2 * config.node_count()];
        Self {
            core,
            links,
            events: Vec::new(),
            states: Vec::new(),
            locks: Vec::new(),
            is_stopped: false,
        }
    }

    pub(crate) fn outcomes(&self, id: LockId) -> Vec<Event> {
        let of = |event: &Event| lock_of(event) == Some(id);
        self.events.iter().map(|&(_, event)| event).filter(of).collect()
    }

    pub(crate) fn is_granted(&self, id: LockId) -> bool {
        self.outcomes(id).contains(&Event::Granted(id))
    }

    /// Returns the keys of a lock that is valid.
    fn held(&self, client: usize, at: usize) -> Vec<Held> {
        let Known { id, keys, .. } = &self.locks[at];
        let mode = self.core.mode(*id).expect("it is held");
        let slot = self.core.slot(*id);
        keys.iter().map(|key| Held { client, key: key.clone(), mode, slot }).collect()
    }

    pub(crate) fn remaining(&self, id: LockId, now: ClockReading) -> Duration {
        self.core.lease(id).map_or(Duration::ZERO, |lease| lease.remaining(now))
    }

    fn reported(&mut self, at: u64, event: Event) {
        if let Event::Node(node, state) = event {
            return self.states.push((node, state));
        }
        let known = self.locks.iter_mut().find(|known| lock_of(&event) == Some(known.id));
        match (known, event) {
            (Some(known), Event::Shortened(_)) => known.ends = None,
            (
                Some(known),
                Event::Extended(_)
                | Event::AutoExtended(_)
                | Event::Upgraded(_)
                | Event::Downgraded(_),
            ) => {
                assert!(!known.let_go, "a lock is extended after its release");
                known.ends = None;
            }
            (Some(known), Event::Refused(..) | Event::Released(..) | Event::Lost(..)) => {
                known.ended += 1;
            }
            _ => {}
        }
        self.events.push((at, event));
    }
}

impl Ran {
    /// Returns the kind of this command in the protocol.
    pub(crate) fn kind(&self) -> &'static str {
        self.command().name()
    }

    fn command(&self) -> Command<'_> {
        Command::new(&self.words)
    }

    pub(crate) fn is_ask(&self) -> bool {
        self.command().kind == Kind::Ask
    }

    pub(crate) fn is_undo(&self) -> bool {
        self.command().kind == Kind::Undo
    }

    /// Returns the token of a lock's command, without the node's number, and without the mark of a
    /// writer that is also a reader.
    pub(crate) fn token(&self) -> &[u8] {
        let token = self.whole_token();
        &token.strip_prefix(b"w:").unwrap_or(token)[..32]
    }

    pub(crate) fn whole_token(&self) -> &[u8] {
        self.command().token
    }

    /// Returns the TTL of a lock request, in ms.
    pub(crate) fn ttl(&self) -> u64 {
        self.command().number
    }
}

/// Returns the strings of a reply that is an array, and none for another reply.
fn bulks(reply: &[u8]) -> Vec<Vec<u8>> {
    let (mut decoder, mut at, mut parts) = (Decoder::new(Limits::default()), 0, Vec::new());
    while let Ok(Some((token, taken))) = decoder.next(&reply[at..]) {
        if let Token::Bulk(part) = token {
            parts.push(part.to_vec());
        }
        at += taken;
    }
    parts
}

/// Returns the length of the next piece when bytes are cut.
fn piece(random: &mut Random, longest: usize) -> usize {
    if longest == usize::MAX { longest } else { random.between(1, longest as u64) as usize }
}

pub(crate) fn lock_of(event: &Event) -> Option<LockId> {
    match *event {
        Event::Granted(id)
        | Event::Extended(id)
        | Event::AutoExtended(id)
        | Event::Lost(id, _)
        | Event::NotExtended(id, _)
        | Event::AutoExtendFailed(id, _)
        | Event::Refused(id, _)
        | Event::Released(id, _)
        | Event::Downgraded(id)
        | Event::DowngradeDelayed(id, _)
        | Event::NotUpgraded(id, _)
        | Event::Upgraded(id)
        | Event::Shortened(id) => Some(id),
        _ => None,
    }
}

fn link_of(node: usize) -> LinkId {
    LINKS[node]
}

static LINKS: LazyLock<Vec<LinkId>> = LazyLock::new(|| command_links(redbolt::proto::MAX_NODES));

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const HOUR: i64 = 3_600 * 1_000_000_000;
const EPOCH: u64 = 1_700_000_000 * SECOND;
/// The interval of a server's expiry cycle, which runs ten times a second.
const TENTH: u64 = SECOND / 10;
/// A number of steps that no test needs.
const MANY: usize = 40_000;
