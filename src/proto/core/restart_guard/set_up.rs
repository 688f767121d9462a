//! The restart guards of all nodes: the set-up of a set, doubt about a clock, and grants that do not count.

use std::time::Duration;

use super::RestartGuardState;
use crate::proto::core::links::{Node, Nodes};
use crate::proto::core::{Core, Env, effects::NodeEffect};
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::restart_guard::{Found, RestartGuard, Setup, Standing};
use crate::proto::vote::{Cause, Vote};
use crate::proto::{config::Settings, time::ClockReading};

impl Core {
    /// What is known of a node's restart guard.
    #[must_use]
    pub fn restart_guard_state(&self, node: NodeId) -> RestartGuardState {
        match self.config.settings.restart_guard {
            RestartGuard::Off => RestartGuardState::Off,
            RestartGuard::On => self.node(node).restart_guard_state(self.boot),
        }
    }

    /// Whether the restart guards of a set that was new, or that was to be changed, have been written.
    #[must_use]
    pub fn has_set_up(&self) -> bool {
        self.common.has_set_up
    }

    /// Returns the vote as it counts with what was read of the restart guard's TTL behind the ask.
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

    /// Undoes grants that do not count, whatever becomes of their locks. On a link that is being left the undo is behind them
    /// already.
    pub(in crate::proto::core) fn undo_grants(
        &mut self,
        node: NodeId,
        grants: impl IntoIterator<Item = ClaimId>,
        now: ClockReading,
    ) {
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
    /// Records that the clock of a node was set forward: the TTL of its restart guard went down by more than the time that
    /// has passed here. Nothing is written, because what one client thinks of a clock must not take a node from all others.
    #[cold]
    pub(crate) fn doubt_clock(&mut self, id: NodeId, env: &mut Env<'_>) {
        let now = env.now.boot;
        self[id.index()].restart_guard.doubt_until(now + env.settings().max_ttl);
        // A quorum of clocks is not set forward at once: ours has stood still, and the next looks compare with nothing that
        // was seen before.
        let is_doubted = |node: &&Node| node.restart_guard.is_doubted(now);
        if self.iter().filter(is_doubted).count() >= env.config.quorum() {
            env.config.node_ids().for_each(|id| self.candidate(id, env).believe_clock());
        }
    }

    /// Has the restart guards of a set written once all of its nodes have been looked at.
    pub(crate) fn set_up(&self, env: &mut Env<'_>) {
        if let Some(quarantine) = self.set_up_quarantine(env.settings()) {
            env.has_set_up = true;
            self.iter()
                .for_each(|node| env.effects.of_node(node.id(), NodeEffect::Enrol(quarantine)));
        }
    }

    /// For how long the nodes of a set are kept out once their restart guards are written; `None` if they are not to be
    /// written, or not all nodes have been looked at.
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

    /// The larger of our `max_ttl` and all that the nodes were set up for.
    fn longest_ttl(&self, ours: Duration) -> Duration {
        let others = self.iter().filter_map(|node| match node.restart_guard.found() {
            Some(Found::OtherLimits { max_ttl_ms, .. }) => Some(Duration::from_millis(max_ttl_ms)),
            _ => None,
        });
        others.fold(ours, Duration::max)
    }
}
