//! The restart guards of all nodes together: set-up, doubt about clocks, and grants that do not
//! count.

use std::time::Duration;

use super::RestartGuardState;
use crate::proto::core::links::{Node, Nodes};
use crate::proto::core::{Core, Env, effects::NodeEffect};
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::restart_guard::{Found, RestartGuard, Setup, Standing};
use crate::proto::vote::{Cause, Vote};
use crate::proto::{config::Settings, time::ClockReading};

impl Core {
    /// Returns the state of a node's restart guard.
    #[must_use]
    pub fn restart_guard_state(&self, node: NodeId) -> RestartGuardState {
        match self.config.settings.restart_guard {
            RestartGuard::Off => RestartGuardState::Off,
            RestartGuard::On => self.node(node).restart_guard_state(self.boot),
        }
    }

    /// Returns whether the restart guards of a new or changed set have been written.
    #[must_use]
    pub fn has_set_up(&self) -> bool {
        self.common.has_set_up
    }

    /// Returns the vote as it counts, given the TTL of the restart guard read behind the request.
    #[inline]
    pub(in crate::proto::core) fn guarded_vote(
        &mut self,
        id: NodeId,
        vote: Vote,
        pttl: Result<i64, Cause>,
        now: ClockReading,
    ) -> Vote {
        let watch = &self.nodes[id.index()].restart_guard;
        match pttl {
            Ok(pttl) if watch.lets_vote(Standing::of(pttl), now.boot) => vote,
            pttl => self.nodes.candidate(id, &mut env!(self, now)).guard_vote(vote, pttl),
        }
    }

    /// Undoes grants that do not count.
    pub(in crate::proto::core) fn undo_grants(
        &mut self,
        node: NodeId,
        grants: impl IntoIterator<Item = ClaimId>,
        now: ClockReading,
    ) {
        // The undos have been sent already.
        if self.node(node).link.is_leaving() {
            return;
        }
        for id in grants {
            self.at_claim(id, now, |claim| {
                claim.owe(node);
                claim.send_undo(node);
            });
        }
    }
}

impl Nodes {
    /// Records that a node's clock was set forward: the TTL of its restart guard fell by more than
    /// the time that has passed here.
    #[cold]
    pub(crate) fn doubt_clock(&mut self, id: NodeId, env: &mut Env<'_>) {
        // Nothing is written: one client's opinion of a clock must not take the node from all
        // others.
        let now = env.now.boot;
        self[id.index()].restart_guard.doubt_until(now + env.settings().max_ttl);
        // A quorum of clocks is not set forward at once, so our clock stood still. The next
        // readings are not compared with earlier ones.
        let is_doubted = |node: &&Node| node.restart_guard.is_doubted(now);
        if self.iter().filter(is_doubted).count() >= env.config.quorum() {
            env.config.node_ids().for_each(|id| self.candidate(id, env).believe_clock());
        }
    }

    /// Writes the restart guards of a set once all of its nodes have been read.
    pub(crate) fn set_up(&self, env: &mut Env<'_>) {
        if let Some(quarantine) = self.set_up_quarantine(env.settings()) {
            env.has_set_up = true;
            self.iter()
                .for_each(|node| env.effects.of_node(node.id(), NodeEffect::Enrol(quarantine)));
        }
    }

    /// Returns the quarantine with which the nodes' restart guards are to be written, or `None` if
    /// they are not to be written, or not yet.
    fn set_up_quarantine(&self, settings: &Settings) -> Option<Duration> {
        let is_waiting = |node: &Node| node.restart_guard.is_awaiting_set_up();
        if !self.iter().any(is_waiting) {
            return None;
        }
        let is_ours = |node: &Node| node.restart_guard.is_ours();
        let is_new =
            |node: &Node| node.restart_guard.found() == Some(Found::Missing) || is_ours(node);
        let all_new = self.iter().all(|node| is_waiting(node) && is_new(node));
        let all_known = self.iter().all(|node| is_waiting(node) || is_ours(node));
        let hopeless = self.iter().any(|node| !is_waiting(node) && node.link.is_settled());
        match settings.setup {
            Setup::IfNew | Setup::Init if all_new => Some(Duration::ZERO),
            Setup::IfNew if hopeless => Some(settings.max_ttl),
            Setup::Change if all_known => Some(self.longest_ttl(settings.max_ttl)),
            _ => None,
        }
    }

    /// Returns the largest `max_ttl` of this client and of the limits that the nodes have.
    fn longest_ttl(&self, ours: Duration) -> Duration {
        let others = self.iter().filter_map(|node| match node.restart_guard.found() {
            Some(Found::OtherLimits { max_ttl_ms, .. }) => Some(Duration::from_millis(max_ttl_ms)),
            _ => None,
        });
        others.fold(ours, Duration::max)
    }
}
