//! The restart guard on each link: read with the handshake, checked behind each ask, and written where
//! it is missing.
//!
//! What a value and a TTL mean is decided in `proto::restart_guard`. Here is what follows: a node votes only on
//! a link on which the value was read and is ours, and each of its grants only if the TTL that was read
//! behind it says so. Everything else puts the link into quarantine, where it is looked at until the
//! node may vote. A quarantine is the node's, kept in its key and counted by its clock; what is
//! remembered here is only when to look again. What one node does by itself is in `admission`; here is what follows for
//! others.

mod admission;
mod clock;
mod history;
mod watch;

use std::fmt;
use std::time::Duration;

use self::admission::{Admission, Candidate};
use super::Core;
use super::effects::{Effect, NodeEffect};
use crate::proto::classify::classify;
use crate::proto::config::Settings;
use crate::proto::core::links::{Ability, Handshake, Mistyped, Node, Nodes, Pending};
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::restart_guard::{Found, RestartGuard, Setup, Standing};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};
use crate::resp::Token;

pub(super) use self::admission::FollowUp;
pub(super) use self::history::Proof;
pub(super) use self::watch::{Unproven, Watch};

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
        self.set_up.is_done()
    }

    /// Admits a node to the vote, unless its restart guard or its state speaks against it. Nothing else does but what may
    /// change while the connection lasts.
    pub(super) fn let_in(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        let node = self.node_mut(id);
        let writes = handshake.capabilities().writes();
        if writes != Ability::Unknown {
            node.capabilities.set_writes(writes);
        }
        if let Ability::Refused(cause) = node.capabilities.writes() {
            self.suspend(id, cause, now);
            self.effects.push(Effect::SetUp);
        } else if self.config.settings.restart_guard == RestartGuard::Off {
            self.effects.of_node(id, NodeEffect::Admitted);
        } else {
            self.restart_guard_read(id, handshake, now);
        }
    }

    /// Judges the value and the TTL that were read on this link.
    fn restart_guard_read(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        let reading = self.candidate(id, now).take_reading(handshake);
        if reading.is_ours() {
            // Before the judgement: it may show that this clock was set, and the node does not vote then.
            self.clock_seen(id, reading.asked_at(), reading.pttl(), now);
        }
        self.reconsider(id, now, |node| node.judge(reading));
        self.effects.push(Effect::SetUp);
    }

    /// Borrows a node to decide about its vote.
    fn candidate(&mut self, id: NodeId, now: ClockReading) -> Candidate<'_> {
        let (node, env) = self.node_in_env(id, now);
        Candidate::new(node, env)
    }

    /// Decides about a node's vote, and applies that.
    fn reconsider(
        &mut self,
        id: NodeId,
        now: ClockReading,
        decide: impl FnOnce(&mut Candidate<'_>) -> Admission,
    ) {
        let admission = decide(&mut self.candidate(id, now));
        self.admit(id, admission, now);
    }

    /// Applies what was decided about a node's vote.
    fn admit(&mut self, id: NodeId, admission: Admission, now: ClockReading) {
        match admission {
            Admission::Unchanged => {}
            Admission::Votes => self.effects.of_node(id, NodeEffect::Admitted),
            Admission::Refused(cause) => self.retire(id, cause, now),
            Admission::KeptOut(next) => {
                self.effects.of_node(id, NodeEffect::Excluded);
                // Behind the undos that the node is sent now: a look may find that it votes.
                self.effects.of_node(id, NodeEffect::FollowUp(next));
            }
        }
    }

    /// Does what follows behind what a node is sent that is kept out.
    pub(super) fn follow_up(&mut self, id: NodeId, next: FollowUp, now: ClockReading) {
        self.candidate(id, now).follow_up(next);
    }

    /// Has the restart guards of a set written once all of its nodes have been looked at.
    pub(super) fn set_up(&mut self) {
        let Some(quarantine) = self.nodes.set_up_quarantine(&self.config.settings) else { return };
        self.set_up.finish();
        for node in self.config.node_ids() {
            self.effects.of_node(node, NodeEffect::Enrol(quarantine));
        }
    }

    /// Writes the restart guard of a node that has waited for the other nodes of its set, if it has.
    pub(super) fn enrol_in_set(&mut self, id: NodeId, quarantine: Duration, now: ClockReading) {
        if let Some(seen) = self.node_mut(id).restart_guard.take_seen() {
            self.reconsider(id, now, |node| node.enrol(&seen, quarantine));
        }
    }

    /// Takes the answer to a command that was to write the restart guard, or to drop who has read the old one.
    pub(super) fn guard_written(
        &mut self,
        id: NodeId,
        pending: Pending,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let mut candidate = self.candidate(id, now);
        let admission = match pending {
            Pending::DropOthers => candidate.others_dropped(answer)?,
            _ => candidate.enrolled(answer)?,
        };
        self.admit(id, admission, now);
        Ok(())
    }

    /// Suspends the vote of a node that takes no writes, until it would.
    pub(super) fn suspend(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        self.reconsider(id, now, |node| node.suspend(cause));
    }

    /// Looks again at a node that is in quarantine, if it is time.
    pub(super) fn quarantine_due(&mut self, id: NodeId, now: ClockReading) {
        self.reconsider(id, now, |node| node.check_quarantine());
    }

    /// The restart guard's TTL was read behind an ask: whether the vote counts.
    pub(super) fn check_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        vote: Vote,
        answer: Token<'_>,
        asked_at: Timestamp,
        now: ClockReading,
    ) -> Result<Vote, Mistyped> {
        let pttl = match answer {
            Token::Int(pttl) => pttl,
            Token::Error(text) => {
                let cause = classify(text).cause();
                return Ok(self.vote_without_ttl(id, claim, vote, cause, now));
            }
            _ => return Err(Mistyped),
        };
        if self.node(id).restart_guard.is_ours() {
            self.clock_seen(id, asked_at, pttl, now);
        }
        Ok(self.guarded_vote(id, claim, vote, pttl, now))
    }

    /// The vote of a node that replied to the question for the TTL with an error. That is no news of its restart guard.
    fn vote_without_ttl(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        vote: Vote,
        cause: Cause,
        now: ClockReading,
    ) -> Vote {
        if mutant!(RestartGuardIgnored) {
            return vote;
        }
        let grant = match vote {
            Vote::Fail(_) => return vote,
            Vote::Grant => Some(claim),
            Vote::Deny => None,
        };
        Vote::Fail(self.unread(id, grant, cause, now))
    }

    /// Takes an error in place of what would let these grants count: they are undone. An error that only an operator can fix
    /// is looked at once more; another one passes, and the next grant asks again. Returns why the grants do not count.
    pub(super) fn unread(
        &mut self,
        id: NodeId,
        grants: impl IntoIterator<Item = ClaimId>,
        cause: Cause,
        now: ClockReading,
    ) -> Cause {
        self.undo_grants(id, grants, now);
        let link = &self.node(id).link;
        if !link.is_ready() {
            return link.cause();
        }
        if cause.is_configuration() {
            self.reconsider(id, now, |node| node.question(cause));
        }
        cause
    }

    /// A vote stands if this connection has read the value that is ours, and the TTL behind the ask
    /// lets the node vote. A grant that does not stand is undone at once, on this connection.
    pub(super) fn guarded_vote(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        vote: Vote,
        pttl: i64,
        now: ClockReading,
    ) -> Vote {
        if mutant!(RestartGuardIgnored) {
            return vote;
        }
        let standing = Standing::of(pttl);
        if self.node(id).restart_guard.lets_vote(standing, now.boot) {
            return vote;
        }
        if vote == Vote::Grant {
            self.undo_grants(id, [claim], now);
        }
        if self.node(id).link.is_ready() {
            self.reconsider(id, now, |node| node.forbid_vote(standing));
        }
        // The node's own words for why it does not vote say more.
        if matches!(vote, Vote::Fail(_)) { vote } else { Vote::Fail(self.node(id).link.cause()) }
    }

    /// Undoes grants that do not count, whatever becomes of their locks. On a link that is being left the undo is behind them
    /// already.
    fn undo_grants(
        &mut self,
        node: NodeId,
        grants: impl IntoIterator<Item = ClaimId>,
        now: ClockReading,
    ) {
        if self.node(node).link.is_leaving() {
            return;
        }
        for id in grants {
            self.owe(node, id);
            self.send_undo(node, id, now);
        }
    }
}

impl Nodes {
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

/// Whether the restart guards of a set that was new, or is to be changed, have been written.
#[derive(Debug, Default)]
pub(super) struct SetUp {
    is_done: bool,
}

impl SetUp {
    fn is_done(&self) -> bool {
        self.is_done
    }

    fn finish(&mut self) {
        self.is_done = true;
    }

    /// Whether a node that is taken for new would be found without a restart guard by the first ask.
    pub(super) fn is_awaited(&self, setup: Setup) -> bool {
        setup == Setup::IfNew && !self.is_done
    }
}

/// What is known of a node's restart guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuardState {
    /// It was read, and does not let the node vote; nothing was written.
    Found(Found),
    /// This client does not guard its nodes.
    Off,
    /// The node does not vote yet.
    Quarantined {
        /// For so long.
        left: Duration,
        /// What was found before the node was enrolled.
        found: Found,
    },
    /// It was not read.
    Unknown,
    /// It lets the node vote.
    Votes,
}

impl fmt::Display for RestartGuardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(found) => found.fmt(f),
            Self::Off => f.write_str("not guarded"),
            Self::Quarantined { left, .. } => {
                write!(f, "quarantined {} s", left.as_secs_f64().ceil())
            }
            Self::Unknown => f.write_str("not read"),
            Self::Votes => f.write_str("remembers every lock"),
        }
    }
}
