//! Whether a node that votes was a replica since its restart guard was read.
//!
//! A node that is made a replica takes over the memory of another one, with the other's restart guard or with a copy of
//! its own, and keeps run and connections. When it is promoted again, all that has changed is its replication id. To read
//! that is the dearest of all commands here, and a resync takes time: whatever was run within less than that of something
//! that the same master ran, was run by it too. So a grant counts at once if its answer comes so soon behind the sending of
//! what the node has answered before. Where it will hardly be as fast, the id is asked for in the same write, behind the last
//! ask, and the grants count when that is answered; where it is not as fast after all, it is asked for then, which costs a
//! round trip. Not here: what a value that speaks of other data means, see `proto::restart_guard`.

use super::watch::Unproven;
use crate::proto::config::Config;
use crate::proto::core::effects::ClaimEffect;
use crate::proto::core::links::{Node, Pending, Step};
use crate::proto::core::{Core, Env};
use crate::proto::lock_kind::Command;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::restart_guard::{RestartGuard, RestartTrust};
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Sends an ask, as [`send`](Self::send) does, and the proof behind it that the node has the data that it had: if one is
    /// due that has not left yet, or if the answer will hardly come so soon that none is needed.
    #[inline]
    pub(in crate::proto::core) fn send_with_proof(
        &mut self,
        to: NodeId,
        claim: ClaimId,
        command: Command,
        numbers: (u64, u64),
        now: ClockReading,
        pending: impl FnOnce(bool) -> Pending,
    ) {
        let is_due = self.node_mut(to).withdraw_proof();
        self.send(to, claim, command, numbers, now, pending);
        let node = &mut self.nodes[to.index()];
        node.restart_guard.reserve(node.pipeline.room());
        if is_due || !node.will_be_proven(now) && node.reports_history(&self.config) {
            node.ask_for_proof(&self.config, now);
        }
    }

    /// Takes the grant of a node for what was sent at `since`. Returns whether the grant waits for a proof: the next one that
    /// is due, or one that is asked for now.
    #[inline]
    pub(in crate::proto::core) fn awaits_proof(
        &mut self,
        id: NodeId,
        grant: Unproven,
        since: Timestamp,
        now: ClockReading,
    ) -> bool {
        let node = &mut self.nodes[id.index()];
        let is_fast = node.restart_guard.record_answer(since, RESYNC_NS, now);
        if is_fast || !node.reports_history(&self.config) {
            return false;
        }
        // What is being undone does not count: it may be forgotten before the proof comes.
        !self.claims.is_owed(grant.claim(), id) && node.await_proof(grant, &mut env!(self, now))
    }
}

impl Node {
    /// Takes back a proof that was to be the last that leaves. Returns whether there was one.
    #[inline]
    fn withdraw_proof(&mut self) -> bool {
        let is_taken = self.restart_guard.has_proofs_due()
            && self.pipeline.take_back_last(|pending| matches!(pending, Pending::History));
        if is_taken {
            self.restart_guard.cancel_proof();
        }
        is_taken
    }

    /// Whether an answer to what is sent now will hardly be late. Behind a handshake, which may leave in pieces, nothing is
    /// known of when its commands will have run.
    #[inline]
    fn will_be_proven(&self, now: ClockReading) -> bool {
        let left = RESYNC_NS.saturating_sub(2 * self.pace.round_trip_ns());
        self.link.is_ready() && self.restart_guard.is_proven_within(left, now)
    }

    fn ask_for_proof(&mut self, config: &Config, now: ClockReading) {
        let node = config.node(self.id());
        self.restart_guard.start_proof(now);
        self.pipeline.push(Pending::History, now.boot, |out| {
            Step::InfoReplication.encode(out, node, &config.settings);
        });
    }

    /// Whether there is something to compare with, or will be once the handshake has been answered, which may take long.
    fn reports_history(&self, config: &Config) -> bool {
        if mutant!(HistoryIgnored) {
            return false;
        }
        (self.server.replication_id().is_some() || !self.link.is_ready())
            && config.settings.restart_guard == RestartGuard::On
            && config.node(self.id()).restart_trust != RestartTrust::MarkerOnly
    }

    /// Fails the votes that wait for a proof.
    pub(in crate::proto::core) fn fail_unproven(&mut self, env: &mut Env<'_>) {
        for grant in self.restart_guard.take_unproven() {
            env.effects.of_claim(self.id(), grant.claim(), ClaimEffect::VoteFailed);
        }
    }

    /// Undoes the grants that wait for a proof, of a node that does not vote any more.
    pub(in crate::proto::core) fn disown_unproven(&self, env: &mut Env<'_>) {
        for grant in self.restart_guard.unproven() {
            env.effects.of_claim(self.id(), grant.claim(), ClaimEffect::Disown);
        }
    }

    /// Lets a grant wait for the next proof. Returns whether it does.
    fn await_proof(&mut self, grant: Unproven, env: &mut Env<'_>) -> bool {
        // The next proof would say nothing of what a node ran that is looked at once more.
        if !self.restart_guard.is_ours() {
            return false;
        }
        if !self.restart_guard.has_proofs_due() {
            // It is no voter any more, whatever it says.
            if self.link.is_leaving() {
                return false;
            }
            env.metrics.of(self.id()).late_proofs += 1;
            self.ask_for_proof(env.config, env.now);
            env.arm(env.now.boot + env.settings().dead_peer_timeout);
        }
        self.restart_guard.hold_for_proof(grant);
        true
    }
}

/// No server was seen to sync with a master and be promoted again in so short a time: that is half a dozen round trips between
/// the two, a fork and a transfer. On one machine, with all delays turned off, it took 2.6 to 30 ms.
const RESYNC_NS: u64 = 2_000_000;
