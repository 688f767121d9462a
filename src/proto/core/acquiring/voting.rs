//! Voting: from a node's answer to an ask to the vote that counts.
//!
//! Apart from the folder's `mod.rs`, which decides by votes. An answer may carry more than a vote: a fencing counter, the
//! restart guard's TTL, or for how long the key in the way will live. Not here: what the restart guard makes of a vote.

use crate::proto::classify::{ServerError, classify};
use crate::proto::core::Core;
use crate::proto::core::links::{Ability, Mistyped, Pending};
use crate::proto::core::locks::Phase;
use crate::proto::core::restart_guard::Unproven;
use crate::proto::line::Told;
use crate::proto::lock_kind::{Answer, Command, vote_of_set};
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};
use crate::resp::Token;

impl Core {
    /// An ask whose vote counts by what the restart guard says next.
    pub(in crate::proto::core) fn half_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let vote = match vote_of_set(token).ok_or(Mistyped)? {
            Answer::Vote(vote) => vote,
            _ => Vote::Fail(Cause::ServerError),
        };
        self.note_refused(id, claim, vote);
        self.node_mut(id).pipeline.becomes(Pending::Check { claim, vote });
        Ok(())
    }

    pub(in crate::proto::core) fn ask_answered(
        &mut self,
        id: NodeId,
        claim_id: ClaimId,
        (ask, by_digest, since): (Command, bool, Timestamp),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let answer = ask.vote(token).ok_or(Mistyped)?;
        if self.claims.find(claim_id).is_none() {
            return Ok(());
        }
        match answer {
            Answer::NoScript => {
                self.node_mut(id).forget_scripts();
                if by_digest && self.is_asking(claim_id) && self.node(id).link.takes_asks() {
                    self.send_ask(id, claim_id, now);
                    return Ok(());
                }
            }
            // No script was given the restart guard's key.
            Answer::Guarded(_) if self.config.restart_guard_key().is_none() => {
                return Err(Mistyped);
            }
            _ => {}
        }
        if answer.is_grant() && ask != Command::SetIfAbsent {
            // The script has rehearsed the undo before it wrote.
            self.node_mut(id).capabilities.undo_is(Ability::Given);
        }
        let told = Unproven::of_ask(claim_id, answer);
        self.script_answered(id, told, since, now);
        Ok(())
    }

    /// A grant by a script, which has read the restart guard's TTL itself.
    pub(in crate::proto::core) fn guarded_vote_of_script(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) -> Vote {
        match self.config.restart_guard_key() {
            Some(_) => self.guarded_vote(id, claim, Vote::Grant, 0, now),
            None => Vote::Grant,
        }
    }

    /// A node has granted an ask in line, or has not. It has read the restart guard itself.
    pub(in crate::proto::core) fn in_line_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        told: Told,
        since: Timestamp,
        now: ClockReading,
    ) {
        let answer = match told {
            Told::Granted { grant, .. } => {
                self.node_mut(id).capabilities.undo_is(Ability::Given);
                grant
            }
            Told::Waits(place) => {
                if let Some(claim) = self.claims.find_mut(claim) {
                    claim.told_to_wait(id);
                }
                match place.left_ms {
                    0 => Answer::Vote(Vote::Deny),
                    left_ms => Answer::DenyFor(left_ms),
                }
            }
        };
        self.script_answered(id, Unproven::of_ask(claim, answer), since, now);
    }

    /// The node forbids what the line needs: it is asked without, now and from now on. Whether this was such an answer.
    pub(in crate::proto::core) fn refuses_line(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        token: Token<'_>,
        now: ClockReading,
    ) -> bool {
        let Token::Error(text) = token else { return false };
        let ServerError::Cause(cause) = classify(text) else { return false };
        if !cause.is_forbidden() {
            return false;
        }
        self.node_mut(id).capabilities.line_is(Ability::Refused(cause));
        if self.is_asking(claim) && self.node(id).link.takes_asks() {
            self.send_ask(id, claim, now);
        }
        true
    }

    /// Whether answers to this claim's ask still decide something.
    fn is_asking(&self, claim: ClaimId) -> bool {
        let lock = self.claims.find(claim).and_then(|claim| self.locks.find(claim.lock()?));
        lock.is_some_and(|lock| matches!(lock.phase, Phase::Asking | Phase::Fencing))
    }

    pub(in crate::proto::core) fn voted(
        &mut self,
        node: NodeId,
        id: LockId,
        vote: Vote,
        now: ClockReading,
    ) {
        match self.count(node, id, vote) {
            Some(Phase::Fencing) if vote == Vote::Grant => self.raise_counter(node, id, now),
            Some(Phase::Asking | Phase::Fencing) => {}
            _ => return,
        }
        self.decide(id, now);
    }

    /// Counts a vote for the attempt that it belongs to. A grant that comes late to a lock that is
    /// held is kept; one that comes after the attempt has ended finds its undo behind it.
    pub(super) fn cast(&mut self, node: NodeId, claim: ClaimId, vote: Vote) -> Option<LockId> {
        let id = self.claims.find(claim)?.lock()?;
        self.count(node, id, vote).map(|_| id)
    }

    /// Counts a vote, and returns the phase of the lock that it is for. One that comes when the lock was
    /// extended is none of the extension's.
    #[inline]
    fn count(&mut self, node: NodeId, id: LockId, vote: Vote) -> Option<Phase> {
        let Some((lock, active)) = self.locks.at_work_mut(id) else {
            // An idle lock has all votes.
            return self.locks.find(id).map(|lock| lock.phase);
        };
        let counts = match lock.phase {
            Phase::Asking | Phase::Fencing => true,
            Phase::Held => active.hold.is_as_granted(),
            _ => false,
        };
        if counts {
            active.votes.cast(node, vote);
        }
        Some(lock.phase)
    }

    /// Remembers that an ask did not run. A script may have run in part, unless it may not write or not
    /// run at all, and an error that we do not know may come from something between us and the server.
    pub(in crate::proto::core) fn note_refused(&mut self, id: NodeId, claim: ClaimId, vote: Vote) {
        let Vote::Fail(cause) = vote else { return };
        if cause.is_forbidden() {
            // It may be what the undo needs as well.
            self.node_mut(id).capabilities.undo_is(Ability::Refused(cause));
        }
        if cause != Cause::ServerError
            && let Some(claim) = self.claims.find_mut(claim)
            && (claim.kind().ask == Command::SetIfAbsent || cause.is_forbidden())
        {
            claim.refused(id);
        }
    }
}
