//! Compares the wake strategies: many processes acquire one resource again and again, in virtual
//! time, with each [`WakeStrategy`] in turn.
//!
//! This measures and checks nothing. The cores and the stores are the real ones. Delays are those
//! of machines in one data centre, and a server runs one command after another.
//!
//! It is separate from the schedules, in whose world a server's commands take no time, jitter has
//! no tail, and a schedule has room for 16 clients and 65 535 attempts. Adding all that would slow
//! down the hot loop of the safety gate. Both share the code that drives a core and reads its
//! requests. The clients' processor time is not modelled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    ClockReading, Config, Core, Event as Told, LinkId, LinkOp, LockId, LockRequest, NodeId,
    Profile, Timestamp, Wait, WakeStrategy,
};
use redbolt_node::model::{ClockReading as NodeNow, ConnId, Denial, Store};
use redbolt_testkit::request::Requests;
use redbolt_testkit::{Command, Host, Kind, Random};

use crate::plan::{MS, Setup, US};
use crate::world::client::settings;
use crate::world::node::{EPOCH_US, tag};
use crate::world::queue::Time;

/// One measurement: the waiters, the nodes, and the strategy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// The wake strategy.
    pub(crate) wake: WakeStrategy,
    /// The number of nodes.
    pub(crate) nodes: usize,
    /// The number of processes. Each wants the lock again as soon as it has released it.
    pub(crate) waiters: usize,
    /// The number of grants, of all processes together.
    pub(crate) grants: usize,
    /// The number of nodes, the first ones, that hang after a while and for good.
    pub(crate) hung: usize,
    /// The way in which they hang.
    pub(crate) how: Hang,
    /// The largest extra delay of a few messages in a thousand.
    pub(crate) tail: Time,
    /// The source of notifications of releases.
    pub(crate) reported: Teller,
}

/// The source of notifications of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// The nodes, which report changes of keys.
    ByNodes,
    /// The library whose format it is, on a channel. The nodes report nothing.
    ByLibrary,
}

/// The way in which a node hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// Its process is stopped; the kernel still accepts connections and bytes.
    Stopped,
    /// No packet reaches it.
    Blackholed,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) crowd: Crowd,
    /// Attempts that asked more than one node, or the only one.
    pub(crate) full: usize,
    /// The number of requests that went to the lead only.
    leads: usize,
    /// The times from the begin of a release to the next grant, sorted.
    pub(crate) hand_offs: Vec<Time>,
    /// The times from a request to its grant, or to the end for requests without a grant, sorted.
    waits: Vec<Time>,
    pub(crate) grants: usize,
    /// The smallest and the largest number of grants of one process.
    pub(crate) shares: (usize, usize),
    /// The number of processes that requested the lock and got it while nodes hung, if any did.
    pub(crate) rivals: usize,
    /// The maximum number of requests that one lock, requested then, sent to hanging nodes.
    pub(crate) piled: u64,
    /// From the first grant to the last release.
    pub(crate) took: Time,
}

impl Crowd {
    /// Returns all measurements of the comparison.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let sizes =
            [1, 3, 5].into_iter().flat_map(|nodes| [2, 8, 32].map(|waiters| (nodes, waiters)));
        sizes.flat_map(|(nodes, waiters)| {
            [WakeStrategy::Queue, WakeStrategy::Lead, WakeStrategy::Timer].map(|wake| Self {
                wake,
                nodes,
                waiters,
                grants: GRANTS,
                hung: 0,
                how: Hang::Stopped,
                tail: TAIL,
                reported: Teller::ByNodes,
            })
        })
    }

    /// Runs the measurement.
    #[must_use]
    pub(crate) fn measure(self, seed: u64) -> Measured {
        let mut bench = Bench::new(self, seed);
        bench.run();
        bench.measured()
    }
}

/// The header of a table of [`Measured`].
pub(crate) const HEAD: &str = "\
| N | waiters | wake | full attempts per grant | lead asks per grant | hand-off p50 / p99, ms | wait p50 / p99 / longest, ms | grants of one, fewest / most | time / sections |
|---|---|---|---|---|---|---|---|---|";

/// A row of the table.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crowd: Crowd { wake, nodes, waiters, .. }, .. } = self;
        let grants = self.grants.max(1) as f64;
        let (full, leads) = (self.full as f64 / grants, self.leads as f64 / grants);
        let (hand_offs, waits) = (Shown(&self.hand_offs), Shown(&self.waits));
        let ideal = grants * SECTION as f64;
        write!(f, "| {nodes} | {waiters} | {wake:?} | {full:.2} | {leads:.2} ")?;
        write!(f, "| {:.2} / {:.2} ", hand_offs.share(500), hand_offs.share(990))?;
        write!(
            f,
            "| {:.1} / {:.1} / {:.1} ",
            waits.share(500),
            waits.share(990),
            waits.share(1_000)
        )?;
        write!(f, "| {} / {} ", self.shares.0, self.shares.1)?;
        write!(f, "| {:.2} |", self.took as f64 / ideal)
    }
}

/// Sorted times, shown in milliseconds.
pub(crate) struct Shown<'a>(pub(crate) &'a [Time]);

impl Shown<'_> {
    /// Returns the quantile, in thousandths.
    pub(crate) fn share(&self, per_mille: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * per_mille / 1_000).map_or(0.0, |&time| time as f64 / MS as f64)
    }
}

/// Processes, nodes, and the messages between them.
struct Bench {
    crowd: Crowd,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    seq: u64,
    random: Random,
    processes: Vec<Process>,
    nodes: Vec<Node>,
    /// The nodes that hang after a while.
    hung: Vec<NodeId>,
    /// The nodes that each attempt asked, by the common part of its tokens.
    asked: BTreeMap<u128, BTreeSet<usize>>,
    /// The time of the last release.
    released: Option<Time>,
    first_grant: Option<Time>,
    last_release: Time,
    hand_offs: Vec<Time>,
    waits: Vec<Time>,
    piled: u64,
}

struct Process {
    core: Core,
    /// The time at which its timer event is due.
    armed: Time,
    lock: Option<LockId>,
    asked: Time,
    is_waiting: bool,
    /// The number of its requests to hanging nodes before those of the current lock.
    asks_before: u64,
    is_rival: bool,
    grants: usize,
    /// The arrival times of the last bytes of each link: at the node, and here.
    last: BTreeMap<LinkId, (Time, Time)>,
}

struct Node {
    store: Store,
    /// Connections, and their clients.
    peers: BTreeMap<ConnId, (usize, LinkId)>,
    /// Unread bytes.
    inbox: VecDeque<(usize, LinkId, Vec<u8>)>,
    is_busy: bool,
}

enum Event {
    Ask(usize),
    Release(usize),
    Timer(usize),
    Connected(usize, LinkId),
    /// Bytes reach a node.
    Up(usize, LinkId, Vec<u8>),
    /// A node is idle again.
    Serve(usize),
    /// Bytes reach a process.
    Down(usize, LinkId, Vec<u8>),
}

impl Bench {
    fn new(crowd: Crowd, seed: u64) -> Self {
        let setup = Setup { wake: crowd.wake, ..Setup::unguarded(30_000) };
        let settings = settings(crowd.nodes, &setup);
        let config = Arc::new(Config::new(settings).expect("the crowd's settings are valid"));
        let process = |name| Process::new(&config, Random::of(seed, 10 + name as u64));
        let mut bench = Self {
            crowd,
            now: 0,
            queue: BTreeMap::new(),
            seq: 0,
            random: Random::of(seed, 1),
            processes: (0..crowd.waiters).map(process).collect(),
            nodes: (0..crowd.nodes).map(|name| Node::new(name, crowd.reported)).collect(),
            hung: config.node_ids().take(crowd.hung).collect(),
            asked: BTreeMap::new(),
            released: None,
            first_grant: None,
            last_release: 0,
            hand_offs: Vec::new(),
            waits: Vec::new(),
            piled: 0,
        };
        for process in 0..crowd.waiters {
            bench.settle(process);
            let at = 20 * MS + bench.random.below(SECTION);
            bench.push(at, Event::Ask(process));
        }
        bench
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            match event {
                Event::Ask(process) => self.ask(process),
                Event::Release(process) => self.release(process),
                Event::Timer(process) => self.timer(process),
                Event::Connected(process, link) => self.connected(process, link),
                Event::Up(process, link, bytes) => self.reach(process, link, bytes),
                Event::Serve(node) => self.serve(node),
                Event::Down(process, link, bytes) => self.read(process, link, &bytes),
            }
            let is_done = self.waits.len() >= self.crowd.grants && self.released.is_some();
            if is_done || self.now > LONGEST {
                break;
            }
        }
    }

    fn measured(mut self) -> Measured {
        let grants = self.waits.len();
        let waiting = self.processes.iter().filter(|process| process.is_waiting);
        // Processes that still wait count with their wait so far.
        self.waits.extend(waiting.map(|process| self.now - process.asked));
        let shares = self.processes.iter().map(|process| process.grants);
        let shares = (shares.clone().min().unwrap_or(0), shares.max().unwrap_or(0));
        self.hand_offs.sort_unstable();
        self.waits.sort_unstable();
        let is_lead = |nodes: &BTreeSet<usize>| nodes.len() == 1 && self.crowd.nodes > 1;
        let leads = self.asked.values().filter(|nodes| is_lead(nodes)).count();
        Measured {
            crowd: self.crowd,
            full: self.asked.len() - leads,
            leads,
            hand_offs: self.hand_offs,
            waits: self.waits,
            grants,
            shares,
            rivals: self.processes.iter().filter(|process| process.is_rival).count(),
            piled: self.piled,
            took: self.last_release - self.first_grant.unwrap_or(0),
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.seq += 1;
        self.queue.insert((at.max(self.now), self.seq), event);
    }

    // Processes.

    fn ask(&mut self, at: usize) {
        let now = clocks(self.now);
        let profile = match self.crowd.reported {
            Teller::ByNodes => Profile::PLAIN,
            Teller::ByLibrary => Profile::REDISSON,
        };
        let ask = LockRequest::new(b"job").ttl(Duration::from_secs(10)).wait(Wait::UpTo(PATIENCE));
        let ask = ask.format(profile);
        let process = &mut self.processes[at];
        (process.asked, process.is_waiting) = (self.now, true);
        process.asks_before = process.asks_at(&self.hung);
        process.lock = Some(process.core.acquire(&ask, now).expect("the crowd's request is valid"));
        self.settle(at);
    }

    fn granted(&mut self, at: usize) {
        let process = &mut self.processes[at];
        process.is_waiting = false;
        process.grants += 1;
        if process.asked >= HANG_AT {
            process.is_rival = true;
            self.piled = self.piled.max(process.asks_at(&self.hung) - process.asks_before);
        }
        self.waits.push(self.now - process.asked);
        self.first_grant.get_or_insert(self.now);
        if let Some(released) = self.released.take() {
            self.hand_offs.push(self.now - released);
        }
        let section = SECTION / 2 + self.random.below(SECTION);
        self.push(self.now + section, Event::Release(at));
    }

    fn release(&mut self, at: usize) {
        let now = clocks(self.now);
        (self.released, self.last_release) = (Some(self.now), self.now);
        let process = &mut self.processes[at];
        if let Some(lock) = process.lock.take() {
            process.core.release(lock, now);
        }
        self.settle(at);
        self.push(self.now + THINK, Event::Ask(at));
    }

    fn timer(&mut self, at: usize) {
        let process = &mut self.processes[at];
        // Only the event of the latest timer counts.
        if process.armed == self.now {
            process.armed = Time::MAX;
            process.core.fire(clocks(self.now));
            self.settle(at);
        }
    }

    fn read(&mut self, at: usize, link: LinkId, bytes: &[u8]) {
        self.processes[at].core.receive(link, bytes, clocks(self.now));
        self.settle(at);
    }

    /// Carries out a core's outputs until there are none.
    fn settle(&mut self, at: usize) {
        while let Some(op) = self.processes[at].core.poll_link() {
            match op {
                LinkOp::Open(link) => {
                    let delay = 2 * self.delay();
                    self.push(self.now + delay, Event::Connected(at, link));
                }
                LinkOp::Close(link) => self.hang_up(at, link),
            }
        }
        while let Some(event) = self.processes[at].core.poll_event() {
            if matches!(event, Told::Granted(_)) {
                self.granted(at);
            }
        }
        let links: Vec<_> = self.processes[at].last.keys().copied().collect();
        links.into_iter().for_each(|link| self.write(at, link));
        let process = &mut self.processes[at];
        if let Some(due) = process.core.poll_timeout() {
            let due = due.0.saturating_sub(BOOT).max(self.now);
            if due < process.armed {
                process.armed = due;
                self.push(due, Event::Timer(at));
            }
        }
    }

    fn write(&mut self, at: usize, link: LinkId) {
        let bytes = self.processes[at].core.take(link, usize::MAX);
        if bytes.is_empty() {
            return;
        }
        let arrives = self.now + self.delay();
        let Some((last, _)) = self.processes[at].last.get_mut(&link) else { return };
        // Bytes on one connection arrive in order.
        *last = arrives.max(*last + 1);
        let arrives = *last;
        self.push(arrives, Event::Up(at, link, bytes));
    }

    // Nodes.

    fn hangs(&self, node: usize) -> bool {
        node < self.crowd.hung && self.now >= HANG_AT
    }

    fn connected(&mut self, at: usize, link: LinkId) {
        if self.hangs(link.node().index()) && self.crowd.how == Hang::Blackholed {
            return;
        }
        let node = &mut self.nodes[link.node().index()];
        let conn = node.store.connect();
        node.peers.insert(conn, (at, link));
        self.processes[at].last.insert(link, (0, 0));
        self.processes[at].core.connected(link, clocks(self.now));
        self.settle(at);
    }

    fn hang_up(&mut self, at: usize, link: LinkId) {
        let node = &mut self.nodes[link.node().index()];
        if let Some(conn) = node.conn(at, link) {
            node.peers.remove(&conn);
            node.store.disconnect(conn);
        }
        self.processes[at].last.remove(&link);
    }

    fn reach(&mut self, at: usize, link: LinkId, bytes: Vec<u8>) {
        let name = link.node().index();
        let node = &mut self.nodes[name];
        node.inbox.push_back((at, link, bytes));
        if !std::mem::replace(&mut node.is_busy, true) {
            self.push(self.now, Event::Serve(name));
        }
    }

    fn serve(&mut self, name: usize) {
        if self.hangs(name) {
            return;
        }
        let node = &mut self.nodes[name];
        let Some((at, link, bytes)) = node.inbox.pop_front() else {
            node.is_busy = false;
            return;
        };
        let Some(conn) = node.conn(at, link) else {
            // The connection has ended, so the next bytes are served.
            return self.push(self.now, Event::Serve(name));
        };
        let clock = NodeNow::from_micros(EPOCH_US + self.now / 1_000);
        let (mut requests, mut replies, mut commands) = (Requests::default(), Vec::new(), 0);
        requests.receive(&bytes);
        requests.each(|words| {
            let command = Command::new(words);
            if let (Kind::Ask, Some(attempt)) = (command.kind, tag(command.token)) {
                self.asked.entry(attempt).or_default().insert(name);
            }
            node.store.command(conn, words, clock, &mut replies);
            commands += 1;
        });
        let done = self.now + WAKE_UP + commands * COMMAND;
        let mut outgoing = vec![(at, link, replies)];
        while let Some((conn, message)) = node.store.poll_push() {
            outgoing.extend(node.peers.get(&conn).map(|&(at, link)| (at, link, message)));
        }
        for (at, link, bytes) in outgoing {
            self.send(at, link, bytes, done);
        }
        self.push(done, Event::Serve(name));
    }

    fn send(&mut self, at: usize, link: LinkId, bytes: Vec<u8>, done: Time) {
        let arrives = done + self.delay();
        let Some((_, last)) = self.processes[at].last.get_mut(&link) else { return };
        *last = arrives.max(*last + 1);
        let arrives = *last;
        if !bytes.is_empty() {
            self.push(arrives, Event::Down(at, link, bytes));
        }
    }

    /// Returns a one-way delay: most are close to the minimum, and a few are far longer.
    fn delay(&mut self) -> Time {
        let share = (1 + self.random.below(1 << 20)) as f64 / (1 << 20) as f64;
        let jitter = (-share.ln() * JITTER as f64) as Time;
        let is_late = self.crowd.tail > 0 && self.random.chance(3);
        let tail = if is_late { self.random.below(self.crowd.tail) } else { 0 };
        DELAY + jitter + tail
    }
}

impl Process {
    fn new(config: &Arc<Config>, random: Random) -> Self {
        let mut core = Core::new(Arc::clone(config), random.entropy());
        core.timeout(clocks(0));
        Self {
            core,
            armed: Time::MAX,
            lock: None,
            asked: 0,
            is_waiting: false,
            asks_before: 0,
            is_rival: false,
            grants: 0,
            last: BTreeMap::new(),
        }
    }

    fn asks_at(&self, nodes: &[NodeId]) -> u64 {
        nodes.iter().map(|&node| self.core.metrics().node(node).asks).sum()
    }
}

impl Node {
    fn new(name: usize, reported: Teller) -> Self {
        let mut store = Store::new(&format!("{name:040}"), NodeNow::from_micros(EPOCH_US));
        if reported == Teller::ByLibrary {
            // Then only the library's own messages wake waiters.
            store.deny("client|tracking", Some(Denial::Forbidden));
        }
        Self { store, peers: BTreeMap::new(), inbox: VecDeque::new(), is_busy: false }
    }

    fn conn(&self, at: usize, link: LinkId) -> Option<ConnId> {
        self.peers.iter().find(|&(_, peer)| *peer == (at, link)).map(|(&conn, _)| conn)
    }
}

fn clocks(now: Time) -> ClockReading {
    ClockReading { boot: Timestamp(BOOT + now), wall: Timestamp(EPOCH_US * 1_000 + now) }
}

const BOOT: Time = 1_000_000_000_000;

/// The number of grants in each measurement.
const GRANTS: usize = 3_000;

/// The average hold time.
const SECTION: Time = 5 * MS;

/// From a release to the next request of the same process.
const THINK: Time = 20 * US;

/// The time at which nodes begin to hang. By then clients know their round trips.
const HANG_AT: Time = 1_000 * MS;

/// Long enough that no process gives up.
const PATIENCE: Duration = Duration::from_secs(600);

/// The latest end of a measurement.
const LONGEST: Time = 3_600_000 * MS;

/// The shortest one-way delay, the average jitter on top, and the longest tail.
const DELAY: Time = 60 * US;
const JITTER: Time = 15 * US;
const TAIL: Time = 2 * MS;

/// A server's time for turning to a connection, and for each command.
const WAKE_UP: Time = 8 * US;
const COMMAND: Time = 2 * US;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_is_granted_with_every_wake_strategy() {
        for wake in [WakeStrategy::Queue, WakeStrategy::Lead, WakeStrategy::Timer] {
            let how = Hang::Stopped;
            let (nodes, waiters, grants, reported) = (3, 4, 40, Teller::ByNodes);
            let crowd = Crowd { wake, nodes, waiters, grants, hung: 0, how, tail: TAIL, reported };
            let measured = crowd.measure(1);
            assert_eq!(measured.grants, 40, "{wake:?}");
            assert!(measured.full >= 40 && measured.hand_offs.len() >= 39);
            assert_eq!(
                measured.leads > 0,
                wake == WakeStrategy::Lead,
                "{wake:?}: {}",
                measured.leads
            );
            assert_eq!(
                crowd.measure(1).waits,
                measured.waits,
                "the same seed gives the same waits"
            );
        }
    }
}
