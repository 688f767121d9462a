//! One core, and nodes that are answered for by hand.
//!
//! Bytes take no time here, and time passes only when a test says so. Where bytes are under way, get lost or cut,
//! a world is wanted instead.

use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    Cause, ClockReading, Config, Core, Event, LinkId, LinkOp, LockId, LockRequest, NodeId, Settings,
};

use crate::request::Words;
use crate::{Command, Handshake, Host, Kind, Random, Scripted};

/// A core on a bench.
pub struct Bench {
    /// The core. It is open, for tests to turn every screw.
    pub core: Core,
    /// The time.
    pub now: ClockReading,
    /// By nodes.
    links: Vec<LinkId>,
    nodes: Vec<Scripted>,
}

impl Bench {
    /// All links are open, and nothing is answered.
    ///
    /// # Panics
    ///
    /// If the settings are not ones that may be made.
    #[must_use]
    pub fn new(settings: Settings, now: ClockReading) -> Self {
        let nodes = vec![Scripted::default(); settings.nodes.len()];
        let config = Config::new(settings).expect("settings that may be made");
        let core = Core::new(Arc::new(config), Random::new(0).entropy());
        let mut bench = Self { core, now, links: Vec::new(), nodes };
        bench.core.open_all(now);
        while let Some(link) = bench.connect() {
            bench.links.push(link);
        }
        bench.links.sort_by_key(|link| link.index());
        bench
    }

    /// Connects a link if the core wants one.
    pub fn connect(&mut self) -> Option<LinkId> {
        let Some(LinkOp::Open(link)) = self.core.poll_link() else { return None };
        self.core.connected(link, self.now);
        Some(link)
    }

    /// The core's name for a node.
    #[must_use]
    pub fn node(&self, node: usize) -> NodeId {
        self.links[node].node()
    }

    /// Time passes on both clocks, and timers are handled.
    pub fn wait(&mut self, span: Duration) {
        self.now.boot = self.now.boot + span;
        self.now.wall = self.now.wall + span;
        self.core.timeout(self.now);
    }

    /// Asks for a lock.
    ///
    /// # Panics
    ///
    /// If it may not be asked for.
    pub fn lock(&mut self, request: &LockRequest<'_>) -> LockId {
        self.core.acquire(request, self.now).expect("a request that may be made")
    }

    /// A connection is lost, with everything that was written to it.
    pub fn cut(&mut self, node: usize) {
        self.listen(node);
        self.nodes[node] = Scripted::default();
        self.core.disconnected(self.links[node], Cause::ConnectionReset, self.now);
    }

    /// Answers everything that a handshake asks, and nothing behind it.
    pub fn handshake(&mut self, node: usize, handshake: &Handshake) {
        while let Some(words) = self.next(node)
            && let Some(answer) = handshake.answer(&words)
        {
            self.answer(node, &answer);
            if Command::new(&words).kind == Kind::Check {
                return;
            }
        }
    }

    /// The oldest request that is not answered.
    pub fn next(&mut self, node: usize) -> Option<Words> {
        self.listen(node);
        self.nodes[node].oldest().cloned()
    }

    /// What all requests are that are not answered.
    pub fn waiting(&mut self, node: usize) -> Vec<&'static str> {
        self.listen(node);
        self.nodes[node].kinds()
    }

    /// Answers the oldest request.
    pub fn answer(&mut self, node: usize, answer: &str) {
        self.listen(node);
        self.nodes[node].answered();
        self.core.hear(self.links[node], answer.as_bytes(), self.now);
    }

    /// What was told about locks since the last time.
    pub fn told(&mut self) -> Vec<Event> {
        self.core.events().filter(|event| !matches!(event, Event::Node(..))).collect()
    }

    /// The node gets what the core has written.
    fn listen(&mut self, node: usize) {
        let scripted = &mut self.nodes[node];
        self.core.write(self.links[node], |bytes| scripted.hear(bytes));
    }
}
