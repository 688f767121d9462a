//! The cost of a permit: round trips and commands, in virtual time, with many clients and a network
//! of random delays. Each permit is held for a second. A one-way delay is 50 to 250 µs. Faults, and
//! the processor time of nodes and clients, are left out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    ClockReading, Config, Core, Event, LinkId, LinkOp, LockId, LockRequest, NodeSettings,
    RestartGuard, Settings, Timestamp,
};
use redbolt_node::model::{self, ConnId, Store};
use redbolt_testkit::request::Requests;
use redbolt_testkit::{Host, Random};

/// The number of nodes for which the design gives its figures.
const NODES: usize = 3;
const CLIENTS: usize = 8;
const HELD: u64 = 1_000_000_000;
/// The time after which the semaphore is full and results count.
const WARM: u64 = 2 * HELD;

enum Happens {
    Arrives,
    Releases(usize, LockId),
    /// Bytes of a client reach a node.
    Up(usize, usize, Vec<u8>),
    Down(usize, usize, Vec<u8>),
    Fires(usize),
}

struct World {
    now: u64,
    count: u64,
    /// The events, by time and then in the order in which they were added.
    queue: BTreeMap<(u64, u64), Happens>,
    random: Random,
    cores: Vec<Core>,
    links: Vec<LinkId>,
    stores: Vec<Store>,
    conns: Vec<Vec<ConnId>>,
    asked: Vec<Vec<Requests>>,
    /// The arrival times of the last bytes of each connection, up and down.
    last: Vec<Vec<[u64; 2]>>,
    /// The time at which each client's timer fires.
    armed: Vec<u64>,
    granted: u64,
}

/// The cost of the attempts after the first seconds.
#[derive(Debug)]
struct Cost {
    fill: f64,
    rounds: f64,
    commands: f64,
}

impl World {
    fn new() -> Self {
        let mut settings = Settings::new(vec![NodeSettings::default(); NODES]);
        settings.restart_guard = RestartGuard::Off;
        let config = Arc::new(Config::new(settings).unwrap());
        let core = |at| Core::new(Arc::clone(&config), Random::of(7, at).entropy());
        let micros = model::ClockReading::from_micros;
        let name = |at: usize| format!("{at:040}");
        let mut stores: Vec<_> =
            (0..NODES).map(|at| Store::new(&name(at), micros(START / 1_000))).collect();
        let conns = (0..CLIENTS).map(|_| stores.iter_mut().map(Store::connect).collect());
        let conns = conns.collect();
        Self {
            now: START,
            count: 0,
            queue: BTreeMap::new(),
            random: Random::new(11),
            cores: (0..CLIENTS as u64).map(core).collect(),
            links: redbolt_testkit::command_links(NODES),
            stores,
            conns,
            asked: vec![vec![Requests::default(); NODES]; CLIENTS],
            last: vec![vec![[0; 2]; NODES]; CLIENTS],
            armed: vec![u64::MAX; CLIENTS],
            granted: 0,
        }
    }

    fn clocks(&self) -> ClockReading {
        ClockReading { boot: Timestamp(self.now), wall: Timestamp(self.now) }
    }

    fn at(&mut self, at: u64, what: Happens) {
        self.count += 1;
        self.queue.insert((at, self.count), what);
    }

    /// Sends bytes, which take a random time and arrive in order.
    fn send(&mut self, client: usize, node: usize, down: usize, what: Happens) {
        let delay = self.random.between(50_000, 250_000);
        let last = &mut self.last[client][node][down];
        *last = (*last + 1).max(self.now + delay);
        let at = *last;
        self.at(at, what);
    }

    /// Carries out the outputs of a core.
    fn settle(&mut self, client: usize) {
        let now = self.clocks();
        let ops: Vec<_> = self.cores[client].link_ops().collect();
        for op in ops {
            if let LinkOp::Open(link) = op {
                self.cores[client].connected(link, now);
            }
        }
        let events: Vec<_> = self.cores[client].events().collect();
        for event in events {
            if let Event::Granted(id) = event {
                self.granted += u64::from(self.now > START + WARM);
                self.at(self.now + HELD, Happens::Releases(client, id));
            }
        }
        for node in 0..NODES {
            let bytes = self.cores[client].take(self.links[node], usize::MAX);
            if !bytes.is_empty() {
                self.send(client, node, 0, Happens::Up(client, node, bytes));
            }
        }
        if let Some(at) = self.cores[client].poll_timeout()
            && at.0 < self.armed[client]
        {
            self.armed[client] = at.0;
            self.at(at.0.max(self.now), Happens::Fires(client));
        }
    }

    fn happens(&mut self, what: Happens, request: &LockRequest<'_>, gap: u64) {
        let now = self.clocks();
        match what {
            Happens::Arrives => {
                let client = self.random.below(CLIENTS as u64) as usize;
                self.cores[client].acquire(request, now).unwrap();
                self.settle(client);
                // Exponential: attempts come independently of one another.
                let share = (self.random.below(1 << 40) + 1) as f64 / (1_u64 << 40) as f64;
                self.at(self.now + (-share.ln() * gap as f64) as u64, Happens::Arrives);
            }
            Happens::Releases(client, id) => {
                self.cores[client].release(id, now);
                self.settle(client);
            }
            Happens::Up(client, node, bytes) => {
                let (clock, conn) =
                    (model::ClockReading::from_micros(self.now / 1_000), self.conns[client][node]);
                let (store, mut out) = (&mut self.stores[node], Vec::new());
                self.asked[client][node].receive(&bytes);
                self.asked[client][node].each(|words| store.command(conn, words, clock, &mut out));
                self.send(client, node, 1, Happens::Down(client, node, out));
            }
            Happens::Down(client, node, bytes) => {
                self.cores[client].receive(self.links[node], &bytes, now);
                self.settle(client);
            }
            Happens::Fires(client) => {
                self.armed[client] = u64::MAX;
                self.cores[client].timeout(now);
                self.settle(client);
            }
        }
    }

    /// Returns the number of requests and undos sent, and of attempts that settled.
    fn sent(&self) -> (u64, u64) {
        let nodes = self.cores.iter().flat_map(|core| &core.metrics().nodes);
        let commands = nodes.map(|node| node.asks + node.undos).sum();
        (commands, self.cores.iter().map(|core| core.metrics().settled).sum())
    }
}

/// Measures attempts at a rate of `offered` permits in use, if there were enough of them.
fn cost(permits: u16, offered: f64, seconds: u64) -> Cost {
    let mut world = World::new();
    for client in 0..CLIENTS {
        let now = world.clocks();
        world.cores[client].open_all(now);
        world.settle(client);
    }
    let request = LockRequest::new(b"job").ttl(Duration::from_secs(10)).permits(permits);
    let gap = (HELD as f64 / offered) as u64;
    world.at(START + HELD / 10, Happens::Arrives);
    let (mut before, mut is_warm) = ((0, 0), false);
    let end = START + WARM + seconds * HELD;
    while let Some(((at, _), what)) = world.queue.pop_first() {
        world.now = at;
        if at > end {
            break;
        }
        if !is_warm && at > START + WARM {
            (before, is_warm) = (world.sent(), true);
        }
        world.happens(what, &request, gap);
    }
    let (commands, settled) = world.sent();
    let granted = world.granted as f64;
    Cost {
        fill: granted / seconds as f64 / f64::from(permits),
        rounds: 1.0 + (settled - before.1) as f64 / granted,
        commands: (commands - before.0) as f64 / granted,
    }
}

/// The rows of the design's table: permits, attempts offered, fill, round trips and commands.
const TABLE: [(u16, f64, f64, f64, f64); 5] = [
    (2, 1.75, 0.57, 1.00, 11.5),
    (10, 9.0, 0.75, 1.00, 9.3),
    (100, 90.0, 0.88, 1.00, 8.2),
    (1_000, 900.0, 0.90, 1.00, 8.0),
    // Some of the attempts are denied.
    (1_000, 1_010.0, 0.98, 1.02, 8.2),
];

#[test]
fn a_permit_takes_one_round_trip_and_few_commands() {
    for (permits, offered, fill, rounds, commands) in TABLE.into_iter().take(3) {
        let found = cost(permits, offered, if permits < 100 { 200 } else { 12 });
        println!("{permits} permits: {found:.3?}");
        assert!((found.fill - fill).abs() < 0.08, "{permits}: {found:?}");
        assert!(found.rounds < rounds + 0.02, "{permits}: {found:?}");
        assert!(found.commands < commands * 1.1, "{permits}: {found:?}");
    }
}

/// Minutes of a core: `cargo test --profile sim -p redbolt-sim --test permits -- --ignored
/// --nocapture`.
#[test]
#[ignore = "the largest rows of the table take long, and are for the record"]
fn a_thousand_permits_take_one_round_trip_and_few_commands() {
    for (permits, offered, fill, rounds, commands) in TABLE.into_iter().skip(3) {
        let found = cost(permits, offered, 12);
        println!("{permits} permits: {found:.3?}");
        assert!((found.fill - fill).abs() < 0.03, "{found:?}");
        assert!(found.rounds < rounds + 0.02, "{found:?}");
        assert!(found.commands < commands * 1.1, "{found:?}");
    }
}

/// The start time, in Unix ns.
const START: u64 = 1_767_225_600_000_000_000;
