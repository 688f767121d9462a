//! One core, with nodes whose replies a test writes by hand. Bytes take no time here, and time
//! passes only when a test advances it. A test of delayed, lost or cut bytes needs a world instead.

use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    Cause, ClockReading, Config, Core, Event, LinkId, LinkOp, LockId, LockRequest, NodeId, Settings,
};

use crate::command::{Command, Kind};
use crate::host::Host;
use crate::random::Random;
use crate::request::Words;
use crate::scripted::{Handshake, Scripted};

/// A core on a test bench.
pub struct Bench {
    /// The core, open to every call of a test.
    pub core: Core,
    /// The current time.
    pub now: ClockReading,
    /// The links, by node.
    links: Vec<LinkId>,
    nodes: Vec<Scripted>,
}

impl Bench {
    /// Opens all links without answering any request.
    ///
    /// # Panics
    ///
    /// Panics if the settings are not valid.
    #[must_use]
    pub fn new(settings: Settings, now: ClockReading) -> Self {
        let nodes = vec![Scripted::default(); settings.nodes.len()];
        let config = Config::new(settings).expect("the test's settings are valid");
        let core = Core::new(Arc::new(config), Random::new(0).entropy());
        let mut bench = Self { core, now, links: Vec::new(), nodes };
        bench.core.open_all(now);
        while let Some(link) = bench.connect() {
            bench.links.push(link);
        }
        bench.links.sort_by_key(|link| link.index());
        bench
    }

    /// Connects a link if the core asks for one.
    pub fn connect(&mut self) -> Option<LinkId> {
        let Some(LinkOp::Open(link)) = self.core.poll_link() else { return None };
        self.core.connected(link, self.now);
        Some(link)
    }

    /// Returns the core's ID of a node.
    #[must_use]
    pub fn node(&self, node: usize) -> NodeId {
        self.links[node].node()
    }

    /// Advances both clocks, and fires the timers.
    pub fn wait(&mut self, span: Duration) {
        self.now.boot = self.now.boot + span;
        self.now.wall = self.now.wall + span;
        self.core.timeout(self.now);
    }

    /// Requests a lock.
    ///
    /// # Panics
    ///
    /// Panics if the request is not valid.
    pub fn lock(&mut self, request: &LockRequest<'_>) -> LockId {
        self.core.acquire(request, self.now).expect("the test's request is valid")
    }

    /// Loses a connection, with everything written to it.
    pub fn cut(&mut self, node: usize) {
        self.listen(node);
        self.nodes[node] = Scripted::default();
        self.core.disconnected(self.links[node], Cause::ConnectionReset, self.now);
    }

    /// Answers all requests of a handshake, and nothing behind it.
    pub fn handshake(&mut self, node: usize, handshake: &Handshake) {
        while let Some(words) = self.next(node)
            && let Some(answer) = handshake.answer(&words)
        {
            self.answer(node, &answer);
            // The check of the restart guard ends a handshake.
            if Command::new(&words).kind == Kind::Check {
                return;
            }
        }
    }

    /// Returns the oldest unanswered request.
    pub fn next(&mut self, node: usize) -> Option<Words> {
        self.listen(node);
        self.nodes[node].oldest().cloned()
    }

    /// Returns the kinds of all unanswered requests.
    pub fn waiting(&mut self, node: usize) -> Vec<&'static str> {
        self.listen(node);
        self.nodes[node].kinds()
    }

    /// Answers the oldest request.
    pub fn answer(&mut self, node: usize, answer: &str) {
        self.listen(node);
        self.nodes[node].answered();
        self.core.receive(self.links[node], answer.as_bytes(), self.now);
    }

    /// Returns the events since the last call.
    pub fn reported(&mut self) -> Vec<Event> {
        self.core.events().filter(|event| !matches!(event, Event::Node(..))).collect()
    }

    /// Passes what the core has written on to the node.
    fn listen(&mut self, node: usize) {
        let scripted = &mut self.nodes[node];
        self.core.write(self.links[node], |bytes| scripted.receive(bytes));
    }
}
