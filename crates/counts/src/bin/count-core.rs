//! The core, with nodes in memory: an attempt without its input and output.
//!
//! The calls are those of a driver that hears all replies in one turn. The nodes are models that answer
//! what they were really asked, uncounted, so that a change to the protocol is counted as it is. Time is
//! an argument: each step takes 100 µs, so that timers are due as often as in a local network.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    Ask, Config, Core, Event, LinkId, LinkOp, LockId, Nanos, NodeSettings, NodeState, Now, Settings,
    Setup,
};
use redbolt::resp::{Decoder, Limits, Token};
use redbolt_counts::{Scenario, aside, run};
use redbolt_node::{ConnId, Store};

fn main() -> ExitCode {
    run(&[
        Scenario { name: "core/pair-1", prepare: || pairs(1, 0) },
        Scenario { name: "core/pair-3", prepare: || pairs(3, 0) },
        Scenario { name: "core/pair-5", prepare: || pairs(5, 0) },
        Scenario { name: "core/pair-3-beside-10000", prepare: || pairs(3, 10_000) },
        Scenario { name: "core/fenced-pair-3", prepare: fenced_pairs },
        Scenario { name: "core/extend-3", prepare: extensions },
        Scenario { name: "core/refused-3", prepare: refusals },
    ])
}

fn pairs(nodes: usize, idle: usize) -> Box<dyn FnMut()> {
    let mut world = World::new(nodes);
    for lock in 0..idle {
        world.acquire(&Ask::new(format!("idle {lock}").as_bytes()).ttl(LONG));
    }
    Box::new(move || {
        let id = world.acquire(&Ask::new(b"orders:4711"));
        world.release(id);
    })
}

fn fenced_pairs() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    Box::new(move || {
        let id = world.acquire(&Ask::new(b"orders:4711").fenced());
        world.release(id);
    })
}

fn extensions() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    let id = world.acquire(&Ask::new(b"orders:4711"));
    Box::new(move || {
        world.core.extend(id, SHORT, world.now).expect("it is held");
        world.turn();
        assert_eq!(world.event(), Some(Event::Extended(id)));
    })
}

/// Each is denied by all nodes, and undone.
fn refusals() -> Box<dyn FnMut()> {
    let mut world = World::new(3);
    for node in &mut world.nodes {
        let mut reply = Vec::new();
        let set = [b"SET", &b"orders:4711"[..], b"theirs", b"PX", b"86400000"];
        let conn = node.store.connect();
        node.store.command(conn, &set, time_of_nodes(world.now), &mut reply);
        assert_eq!(reply, b"+OK\r\n");
    }
    Box::new(move || {
        let id = world.core.acquire(&Ask::new(b"orders:4711"), world.now).expect("a valid ask");
        world.turn();
        assert!(matches!(world.event(), Some(Event::Refused(of, _)) if of == id));
        // The undos.
        world.turn();
    })
}

/// One core, its links and the nodes at their other ends.
struct World {
    core: Core,
    links: Vec<LinkId>,
    nodes: Vec<Peer>,
    now: Now,
}

/// A node, with the one connection to it.
struct Peer {
    store: Store,
    conn: ConnId,
    decoder: Decoder,
    asked: Vec<u8>,
    replies: Vec<u8>,
}

impl World {
    /// All nodes are ready to vote.
    fn new(nodes: usize) -> Self {
        let settings = Settings {
            nodes: vec![NodeSettings::default(); nodes],
            setup: Setup::IfNew,
            ..Settings::default()
        };
        let config = Arc::new(Config::new(settings).expect("settings that hold"));
        let now = Now { boot: Nanos(1_000 * SECOND), wall: Nanos(1_700_000_000 * SECOND) };
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let core = Core::new(config, move |bytes| bytes.fill_with(|| next_byte(&mut random)));
        let nodes = (0..nodes).map(|name| Peer::new(name, now)).collect();
        let mut world = Self { core, links: Vec::new(), nodes, now };
        world.core.timeout(now);
        while let Some(LinkOp::Open(link)) = world.core.poll_link() {
            world.links.push(link);
            world.core.connected(link, now);
        }
        while !world.links.iter().all(|link| world.core.node_state(link.node()) == NodeState::Ready) {
            world.turn();
        }
        while world.event().is_some() {}
        world
    }

    fn acquire(&mut self, ask: &Ask<'_>) -> LockId {
        let id = self.core.acquire(ask, self.now).expect("a valid ask");
        self.turn();
        assert_eq!(self.event(), Some(Event::Granted(id)));
        id
    }

    fn release(&mut self, id: LockId) {
        self.core.release(id, self.now);
        self.turn();
        assert!(matches!(self.event(), Some(Event::Released(of, _)) if of == id));
    }

    fn event(&mut self) -> Option<Event> {
        self.core.poll_event()
    }

    /// Writes what there is to say, lets all nodes answer, and hears it.
    fn turn(&mut self) {
        while self.core.poll_link().is_some() {}
        for (link, node) in self.links.iter().zip(&mut self.nodes) {
            let bytes = self.core.transmit(*link);
            if !bytes.is_empty() {
                aside(|| node.asked.extend_from_slice(bytes));
                let written = bytes.len();
                self.core.transmitted(*link, written);
            }
        }
        self.now.boot.0 += STEP;
        self.now.wall.0 += STEP;
        for (link, node) in self.links.iter().zip(&mut self.nodes) {
            let space = self.core.space(*link);
            let mut read = 0;
            aside(|| read = node.answer(self.now, space));
            if read > 0 {
                self.core.received(*link, read, self.now);
            }
        }
        if self.core.poll_timeout().is_some_and(|due| due <= self.core.latest()) {
            self.core.timeout(self.now);
        }
    }
}

impl Peer {
    fn new(name: usize, now: Now) -> Self {
        let mut store = Store::new(&format!("{name:040}"), time_of_nodes(now));
        let conn = store.connect();
        let decoder = Decoder::new(Limits::default());
        Self { store, conn, decoder, asked: Vec::new(), replies: Vec::new() }
    }

    /// Runs what it was asked; returns how many bytes of replies are in `space`.
    fn answer(&mut self, now: Now, space: &mut [u8]) -> usize {
        let (mut at, mut missing) = (0, 0);
        let mut words: Vec<&[u8]> = Vec::new();
        while let Some((token, len)) = self.decoder.next(&self.asked[at..]).expect("RESP2") {
            at += len;
            match token {
                Token::Array(count) => missing = count,
                Token::Bulk(_) => {
                    // The payload, with the CR LF behind it.
                    let end = at - 2;
                    let Token::Bulk(word) = token else { continue };
                    words.push(&self.asked[end - word.len()..end]);
                    missing -= 1;
                }
                other => panic!("a command is an array of bulk strings, not {other:?}"),
            }
            if missing == 0 {
                let now = time_of_nodes(now);
                self.store.command(self.conn, &words, now, &mut self.replies);
                words.clear();
            }
        }
        self.asked.clear();
        let read = self.replies.len();
        space[..read].copy_from_slice(&self.replies);
        self.replies.clear();
        read
    }
}

fn time_of_nodes(now: Now) -> redbolt_node::Now {
    redbolt_node::Now::from_micros(now.wall.0 / 1_000)
}

/// Always the same bytes; they only have to differ.
fn next_byte(state: &mut u64) -> u8 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 32) as u8
}

const SECOND: u64 = 1_000_000_000;
const STEP: u64 = 100_000;
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(30);
