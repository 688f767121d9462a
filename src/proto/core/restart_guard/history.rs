//! Whether a node that votes was a replica since its restart guard was read.
//!
//! A node that is made a replica takes over the memory of another one, with the other's restart guard or with a copy of
//! its own, and keeps run and connections. When it is promoted again, all that has changed is its replication id. To read
//! that is the dearest of all commands here, and a resync takes time. So it is read behind an ask only where nothing has
//! proven for a moment that the node is what it was, and the vote counts when that was answered. A client that asks again
//! and again asks nothing more: what it asked before has been answered by a master. Not here: what a value that speaks of
//! other data means, see `proto::restart_guard`.

use std::time::Duration;

use crate::proto::core::Core;
use crate::proto::core::links::{Mistyped, Pending, Step, is_same_master};
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::restart_guard::{Found, RestartGuard, RestartTrust};
use crate::proto::time::ClockReading;
use crate::proto::vote::Vote;
use crate::resp::Token;

impl Core {
    /// This claim's ask was sent: its vote may have to wait for the proof that the node has the data that it had. In front of
    /// an ask for a permit it is `None`: which slot was given there decides at once which others are moved.
    #[inline]
    pub(in crate::proto::core) fn prove_history(
        &mut self,
        id: NodeId,
        behind: Option<ClaimId>,
        now: ClockReading,
    ) {
        if self.node(id).restart_guard.was_proven(now.boot, MOMENT) {
            return;
        }
        if mutant!(HistoryIgnored) || !self.tells_history(id) {
            return;
        }
        let settings = self.config.node(id);
        let node = &mut self.nodes[id.index()];
        node.restart_guard.is_being_proven(now.boot);
        let pending = Pending::History { behind, granted: false };
        node.pipeline.push(pending, now.boot, |out| {
            Step::InfoReplication.encode(out, settings, &self.config.settings);
        });
    }

    /// Whether there is something to compare with, or will be once the handshake has been answered, which may take long.
    fn tells_history(&self, id: NodeId) -> bool {
        let is_guarded = self.config.settings.restart_guard == RestartGuard::On;
        let tells = self.config.node(id).restart_trust != RestartTrust::MarkerOnly;
        let is_known = self.node(id).server.replication_id().is_some();
        is_guarded && tells && (is_known || !self.node(id).link.is_ready())
    }

    /// Whether this grant waits for the proof, which is due next.
    #[inline]
    pub(in crate::proto::core) fn awaits_history(&mut self, id: NodeId, claim: ClaimId) -> bool {
        let pipeline = &mut self.nodes[id.index()].pipeline;
        let proof = |granted| Pending::History { behind: Some(claim), granted };
        let awaits = pipeline.oldest().is_some_and(|due| due.pending == proof(false));
        if awaits {
            pipeline.becomes(proof(true));
        }
        awaits
    }

    /// The node has told its replication id: whether it is what it was, and what becomes of the grant that waited for that.
    pub(in crate::proto::core) fn history_told(
        &mut self,
        id: NodeId,
        granted: Option<ClaimId>,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Vote>, Mistyped> {
        let is_same = match answer {
            Token::Bulk(info) => is_same_master(info, self.node(id).server.replication_id()),
            // Whatever forbids it is found by the look that follows.
            Token::Error(_) => false,
            _ => return Err(Mistyped),
        };
        if !is_same {
            return Ok(self.history_is_another(id, granted, now));
        }
        // The node may have been put into quarantine since.
        Ok(granted.map(|claim| self.guarded_vote(id, claim, Vote::Grant, 0, now)))
    }

    /// The node may have forgotten what it granted: it is looked at, and this grant is given back.
    fn history_is_another(
        &mut self,
        id: NodeId,
        granted: Option<ClaimId>,
        now: ClockReading,
    ) -> Option<Vote> {
        if let Some(claim) = granted.filter(|_| !self.node(id).link.is_leaving()) {
            self.give_back(id, claim, now);
        }
        // Also on a link that is quarantined already: what was asked behind this must not count either.
        self.node_mut(id).restart_guard.is_in_question();
        if self.node(id).link.is_ready() {
            let free_at = now.boot + self.config.settings.max_ttl;
            self.node_mut(id).restart_guard.forbids_vote(Some(Found::OtherHistory), free_at);
            self.look_again(id, now);
        }
        granted.map(|_| Vote::Fail(self.node(id).link.cause()))
    }
}

/// No server was seen to sync with a master and be promoted again in so short a time: that is half a dozen round trips between
/// the two, a fork and a transfer. On one machine, with all delays turned off, it took 2.6 to 30 ms.
const MOMENT: Duration = Duration::from_millis(2);
