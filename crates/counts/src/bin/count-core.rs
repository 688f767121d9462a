//! Counts the core, with nodes in memory: an attempt without its I/O.
//!
//! The calls are those of a driver that reads all replies in one iteration of its loop. The nodes
//! are models that run the real requests, uncounted. Time is an argument: each iteration takes 100
//! µs, so timers fire as often as in a local network. The core is driven here, and not by the test
//! kit, because other callers of the core would change its machine code, and so the counts.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    ClockReading, Config, Core, Event, LinkId, LinkOp, LockId, LockRequest, NodeSettings,
    NodeState, Settings, Setup, Timestamp,
};
use redbolt_counts::{Scenario, aside, run};
use redbolt_testkit::{Peer, Random};

fn main() -> ExitCode {
    run(&[
        Scenario { name: "core/pair-1", prepare: || pairs(1, 0) },
        Scenario { name: "core/pair-3", prepare: || pairs(3, 0) },
        Scenario { name: "core/pair-5", prepare: || pairs(5, 0) },
        Scenario { name: "core/pair-3-beside-10000", prepare: || pairs(3, 10_000) },
        Scenario { name: "core/64-pairs-3", prepare: pairs_at_once },
        Scenario { name: "core/fenced-pair-3", prepare: fenced_pairs },
        Scenario { name: "core/extend-3", prepare: extensions },
        Scenario { name: "core/refused-3", prepare: refusals },
    ])
}

fn pairs(nodes: usize, idle: usize) -> Box<dyn FnMut()> {
    let mut world = World::new(nodes);
    for lock in 0..idle {
        world.acquire(&LockRequest::new(format!("idle {lock}").as_bytes()).ttl(LONG));
    }
    // A lock is idle only when the time of its round has passed.
    world.sit_out(ROUND);
    Box::new(move || {
        let id = world.acquire(&LockRequest::new(b"orders:4711"));
        world.release(id);
    })
}

/// Returns a scenario in which all requests to a node are written together, and all of its replies
/// are read together.
fn pairs_at_once() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    let names: Vec<_> = (0..64).map(|shard| format!("orders:{shard}")).collect();
    let mut held = Vec::with_capacity(names.len());
    Box::new(move || {
        for name in &names {
            held.push(
                world
                    .core
                    .acquire(&LockRequest::new(name.as_bytes()), world.now)
                    .expect("the request is valid"),
            );
        }
        world.process();
        for id in &held {
            assert_eq!(world.event(), Some(Event::Granted(*id)));
        }
        for id in &held {
            world.core.release(*id, world.now);
        }
        world.process();
        for id in held.drain(..) {
            assert!(matches!(world.event(), Some(Event::Released(of, _)) if of == id));
        }
    })
}

fn fenced_pairs() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    Box::new(move || {
        let id = world.acquire(&LockRequest::new(b"orders:4711").fenced());
        world.release(id);
    })
}

fn extensions() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    let id = world.acquire(&LockRequest::new(b"orders:4711"));
    Box::new(move || {
        world.core.extend(id, SHORT, world.now).expect("the lock is held");
        world.process();
        assert_eq!(world.event(), Some(Event::Extended(id)));
    })
}

/// Returns a scenario in which all nodes deny each request, and it is undone.
fn refusals() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    for node in &mut world.nodes {
        node.is_held_by_others(b"orders:4711", time_of_nodes(world.now));
    }
    Box::new(move || {
        let id = world
            .core
            .acquire(&LockRequest::new(b"orders:4711"), world.now)
            .expect("the request is valid");
        world.process();
        assert!(matches!(world.event(), Some(Event::Refused(of, _)) if of == id));
        // This sends the undos.
        world.process();
    })
}

/// A core, its links, and the nodes at their other ends.
struct World {
    core: Core,
    links: Vec<LinkId>,
    nodes: Vec<Peer>,
    now: ClockReading,
}

impl World {
    /// Returns a world whose nodes have all voted in their handshake.
    fn new(nodes: usize) -> Self {
        let mut settings = Settings::new(vec![NodeSettings::default(); nodes]);
        settings.setup = Setup::IfNew;
        let config = Arc::new(Config::new(settings).expect("the settings are valid"));
        let now = ClockReading {
            boot: Timestamp(1_000 * SECOND),
            wall: Timestamp(1_700_000_000 * SECOND),
        };
        let core = Core::new(config, Random::new(0).entropy());
        let nodes = (0..nodes).map(|name| Peer::new(name, time_of_nodes(now))).collect();
        let mut world = Self { core, links: Vec::new(), nodes, now };
        world.core.timeout(now);
        while let Some(LinkOp::Open(link)) = world.core.poll_link() {
            world.links.push(link);
            world.core.connected(link, now);
        }
        while !world.links.iter().all(|link| world.core.node_state(link.node()) == NodeState::Ready)
        {
            world.process();
        }
        while world.event().is_some() {}
        world
    }

    fn acquire(&mut self, ask: &LockRequest<'_>) -> LockId {
        let id = self.core.acquire(ask, self.now).expect("the request is valid");
        self.process();
        assert_eq!(self.event(), Some(Event::Granted(id)));
        id
    }

    fn release(&mut self, id: LockId) {
        self.core.release(id, self.now);
        self.process();
        assert!(matches!(self.event(), Some(Event::Released(of, _)) if of == id));
    }

    fn event(&mut self) -> Option<Event> {
        self.core.poll_event()
    }

    /// Writes the pending bytes, lets all nodes answer, and reads the replies.
    fn process(&mut self) {
        while self.core.poll_link().is_some() {}
        for (link, node) in self.links.iter().zip(&mut self.nodes) {
            let bytes = self.core.transmit(*link);
            if !bytes.is_empty() {
                aside(|| node.receive(bytes));
                let written = bytes.len();
                self.core.transmitted(*link, written);
            }
        }
        self.pass(STEP);
        for (link, node) in self.links.iter().zip(&mut self.nodes) {
            let space = self.core.space(*link);
            let mut read = 0;
            aside(|| {
                let replies = node.answer(time_of_nodes(self.now));
                space[..replies.len()].copy_from_slice(replies);
                read = replies.len();
            });
            if read > 0 {
                self.core.received(*link, read, self.now);
            }
        }
        if self.core.poll_timeout().is_some_and(|due| due <= self.core.latest()) {
            self.core.timeout(self.now);
        }
    }

    /// Waits for this long without any event.
    fn sit_out(&mut self, span: Duration) {
        self.pass(span.as_nanos() as u64);
        self.core.timeout(self.now);
    }

    fn pass(&mut self, nanos: u64) {
        self.now.boot.0 += nanos;
        self.now.wall.0 += nanos;
    }
}

fn time_of_nodes(now: ClockReading) -> redbolt_node::model::ClockReading {
    redbolt_node::model::ClockReading::from_micros(now.wall.0 / 1_000)
}

const SECOND: u64 = 1_000_000_000;
const STEP: u64 = 100_000;
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(30);
/// A time longer than a round with the default settings.
const ROUND: Duration = Duration::from_secs(2);
