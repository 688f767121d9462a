//! Proof that a node which grants was not a replica since its restart guard was read.
//!
//! A node that is made a replica takes over another node's data and restart guard, and keeps its
//! run and its connections. If it is promoted again, only its replication id has changed. Reading
//! that id is expensive, but a resync takes time. So a grant counts at once if it is answered
//! within [`RESYNC_NS`] of the sending of a command that the same master has answered. If the
//! answer will hardly be as fast, the id is read in the same write, behind the last request. If it
//! is late after all, the id is read then, which costs a round trip.
//!
//! See docs/how-it-works/guard.md.

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
    /// Sends a request as [`send`](Self::send) does. A read of the replication id follows if one
    /// waits to be sent, or if the answer will hardly come fast enough.
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
        // One read behind the last request of a write proves them all.
        let is_due = self.node_mut(to).withdraw_proof();
        self.send(to, claim, command, numbers, now, pending);
        let node = &mut self.nodes[to.index()];
        node.restart_guard.reserve(node.pipeline.room());
        if is_due || !node.will_be_proven(now) && node.reports_history(&self.config) {
            node.ask_for_proof(&self.config, now);
        }
    }

    /// Takes a node's grant for a request sent at `since`. Returns whether the grant must wait for
    /// a proof: the next one due, or one requested now.
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
        // A grant that is being undone may be forgotten before the proof comes, so it does not
        // count.
        !self.claims.is_owed(grant.claim(), id) && node.await_proof(grant, &mut env!(self, now))
    }
}

impl Node {
    /// Takes back a read of the replication id that is last in the outbox. Returns whether there
    /// was one.
    #[inline]
    fn withdraw_proof(&mut self) -> bool {
        let is_taken = self.restart_guard.has_proofs_due()
            && self.pipeline.take_back_last(|pending| matches!(pending, Pending::History));
        if is_taken {
            self.restart_guard.cancel_proof();
        }
        is_taken
    }

    /// Returns whether an answer to a request sent now is likely to come fast enough.
    #[inline]
    fn will_be_proven(&self, now: ClockReading) -> bool {
        let left = RESYNC_NS.saturating_sub(2 * self.pace.round_trip_ns());
        // A handshake may leave in pieces, so it is unknown when the commands behind it will run.
        self.link.is_ready() && self.restart_guard.is_proven_within(left, now)
    }

    fn ask_for_proof(&mut self, config: &Config, now: ClockReading) {
        let node = config.node(self.id());
        self.restart_guard.start_proof(now);
        self.pipeline.push(Pending::History, now.boot, |out| {
            Step::InfoReplication.encode(out, node, &config.settings);
        });
    }

    /// Returns whether there is a replication id to compare with, or may be one after the
    /// handshake.
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

    /// Undoes the grants that wait for a proof, on a node that no longer votes.
    pub(in crate::proto::core) fn disown_unproven(&self, env: &mut Env<'_>) {
        for grant in self.restart_guard.unproven() {
            env.effects.of_claim(self.id(), grant.claim(), ClaimEffect::Disown);
        }
    }

    /// Lets a grant wait for the next proof. Returns whether it does.
    fn await_proof(&mut self, grant: Unproven, env: &mut Env<'_>) -> bool {
        // The guard is being read again, so the next proof does not cover what ran before.
        if !self.restart_guard.is_ours() {
            return false;
        }
        if !self.restart_guard.has_proofs_due() {
            // A link that is being left does not vote, even if proven.
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

/// The shortest time in ns in which a server can sync with a master and be promoted again: half a
/// dozen round trips between the two, a fork and a transfer. The fastest seen took 2.6 ms, on one
/// machine with all delays turned off.
const RESYNC_NS: u64 = 2_000_000;
