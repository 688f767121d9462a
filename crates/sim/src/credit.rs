//! The part of I4 beyond grants: extensions, denials and losses count only real replies, and a
//! lease promises no more than the nodes do, up to its last moment. Nothing here acts on the world:
//! outcomes are compared with the replies that the client had read by then.

use std::cmp::Reverse;
use std::time::Duration;

use redbolt::proto::{Cause, ClockReading, Lease, NodeId, NodeSet, Vote, Votes};

use crate::fault::What;
use crate::invariant::Violation;
use crate::plan::{MS, Start};
use crate::world::queue::{Event, Step, Time};
use crate::world::wire::Wire;
use crate::world::{Attempt, World};

impl World {
    /// Checks that an extension counts only nodes that had granted, and a quorum of them.
    pub(crate) fn extension_is_earned(&mut self, at: usize, votes: &Votes, ttl: u64) {
        let attempt = &self.attempts[self.jobs[at].attempt];
        let earned = |node: &NodeId| {
            attempt.extended[node.index()] == ttl && attempt.granted[node.index()].is_some()
        };
        let unearned = votes.grants().iter().find(|node| !earned(node));
        let few = votes.grants().len() < self.plan.quorum();
        if unearned.is_some() || few {
            let node = unearned.map_or(0, NodeId::index);
            self.violated(Violation::Miscredited { job: at, what: "an extension", node });
        }
    }

    /// Checks that a lease ends no later than a quorum of nodes keeps the key, according to their
    /// replies. A reply that the key is missing cancels all earlier ones.
    pub(crate) fn is_backed(&mut self, at: usize, left: Duration) {
        let attempt = &self.attempts[self.jobs[at].attempt];
        let mut until = attempt.until;
        if let Some(slot) = self.jobs[at].slot {
            let others = until.iter_mut().zip(&attempt.slots).filter(|(_, of)| **of != slot);
            others.for_each(|(until, _)| *until = 0);
        }
        until.sort_unstable_by_key(|&until| Reverse(until));
        let left = left.as_nanos() as Time;
        // The client's clock may be 1 % off.
        let (ends, quorum) = (self.now + left - left / 50, self.plan.quorum());
        if left > 0 && ends > until[quorum - 1] {
            self.violated(Violation::Miscredited { job: at, what: "the lease", node: 0 });
        }
    }

    /// Checks that an expired lease does not become valid again.
    pub(crate) fn is_no_revival(&mut self, at: usize, before: Option<Lease>) {
        let clocks = self.clients[usize::from(self.plan.jobs[at].client)].clocks(self.now);
        if before.is_some_and(|lease| lease.remaining(clocks).is_zero()) {
            self.violated(Violation::Outcome { job: at, what: "an extension of an expired lease" });
        }
    }

    /// Checks that no lock is extended past `max_hold`.
    pub(crate) fn is_within_hold(&mut self, at: usize, granted: ClockReading, left: Duration) {
        let client = &self.clients[usize::from(self.plan.jobs[at].client)];
        let Some(longest) = client.core.config().settings().max_hold else { return };
        let held = client.clocks(self.now).boot.since(granted.boot) + left;
        if held > longest + longest / 50 {
            self.violated(Violation::Outcome {
                job: at,
                what: "an extension past the longest hold",
            });
        }
    }

    /// Checks that a refusal names a node for a denial only if that node denied, or gave another
    /// permit than the others.
    pub(crate) fn denials_were_reported(&mut self, at: usize, votes: &Votes) {
        let own = |attempt: &&Attempt| usize::from(attempt.job) == at;
        let replied = |node: &NodeId| {
            let mut attempts = self.attempts.iter().filter(own);
            attempts.any(|attempt| {
                let gave =
                    self.plan.jobs[at].permits > 0 && attempt.granted[node.index()].is_some();
                gave || attempt.denied[node.index()]
            })
        };
        let unsaid = votes.denies().iter().find(|node| !replied(node));
        if let Some(node) = unsaid.map(NodeId::index) {
            self.violated(Violation::Miscredited { job: at, what: "a denial", node });
        }
    }

    /// Checks that a lock is reported as lost only because of nodes that replied so.
    pub(crate) fn is_gone_for_sure(&mut self, at: usize, gone: NodeSet) {
        let attempt = &self.attempts[self.jobs[at].attempt];
        let unsaid = gone.iter().find(|node| !attempt.gone[node.index()]);
        if let Some(node) = unsaid.map(NodeId::index) {
            self.violated(Violation::Miscredited { job: at, what: "a loss", node });
        }
    }

    /// Checks that a client with other limits is granted nothing by nodes that keep theirs.
    pub(crate) fn limits_are_shared(&mut self, at: usize) {
        let client = self.plan.jobs[at].client;
        let misled =
            self.plan.faults.iter().any(|it| it.what == What::OtherLimits && it.client == client);
        let is_ready = self.plan.setup.start == Start::Ready;
        let nodes_know = is_ready && !self.keys_may_be_gone && !self.is_changed;
        if misled && nodes_know {
            self.violated(Violation::Outcome { job: at, what: "a grant in spite of its limits" });
        }
    }

    /// Checks that a client sends lock requests only after the node has accepted its password and
    /// database.
    pub(crate) fn is_let_in(&mut self, wire: usize) {
        let Wire { client, slot, .. } = self.wires[wire];
        if self.plan.setup.proven && !self.clients[client].let_in[slot] {
            self.violated(Violation::AskedAtTheDoor { client, node: slot });
        }
    }

    /// Schedules a check of the lease just before it ends.
    pub(crate) fn inspect_at_the_end(&mut self, at: usize, left: Duration) {
        let left = left.as_nanos() as Time;
        // The client's clock may be 1 % off, and a check after the end is useless.
        self.queue.push(self.now + left - left / 50, Event::Act(at as u16, Step::Last));
    }

    /// Returns true if the check came close enough to the end.
    pub(crate) fn is_at_the_end(&self, left: Duration) -> bool {
        left < Duration::from_nanos(MS / 10)
    }

    /// Checks the node errors that a refusal can show.
    pub(crate) fn refusal_is_safe(&mut self, client: usize, votes: &Votes) {
        for node in votes.fails().iter() {
            if let Some(Vote::Fail(cause)) = votes.of(node) {
                self.words_are_safe(client, node, cause);
            }
        }
    }

    /// Checks that the text of a node's error contains nothing that only the client may know.
    pub(crate) fn words_are_safe(&mut self, client: usize, node: NodeId, cause: Cause) {
        if self.plan.faults.iter().any(|fault| matches!(fault.what, What::Errors(_))) {
            let words = self.clients[client].core.detail(node, cause).unwrap_or_default();
            self.shows_no_secret("a node's error", &words);
        }
    }
}
