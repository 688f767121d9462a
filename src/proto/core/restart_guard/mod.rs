//! The restart guard on each link: read with the handshake, checked behind each ask, and written where
//! it is missing.
//!
//! What a value and a TTL mean is decided in `proto::restart_guard`. Here is what follows: a node votes only on
//! a link on which the value was read and is ours, and each of its grants only if the TTL that was read
//! behind it says so. Everything else puts the link into quarantine, where it is looked at until the
//! node may vote. A quarantine is the node's, kept in its key and counted by its clock; what is
//! remembered here is only when to look again.

mod clock;
mod history;
mod watch;

use std::fmt;
use std::time::Duration;

use super::Core;
use crate::proto::classify::classify;
use crate::proto::core::links::{Ability, Handshake, Link, Mistyped, Pending, Step};
use crate::proto::lock_kind::{Count, count};
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::restart_guard::{
    BIG_MS, Expected, Found, RestartGuard, RestartTrust, Setup, Standing,
};
use crate::proto::script;
use crate::proto::time::{ClockReading, Timestamp, ttl_ms};
use crate::proto::vote::{Cause, Vote};
use crate::resp::{Token, command};

pub(super) use self::history::Proof;
pub(super) use self::watch::{Unproven, Watch};

impl Core {
    /// What is known of a node's restart guard.
    #[must_use]
    pub fn restart_guard_state(&self, node: NodeId) -> RestartGuardState {
        let (link, watch) = (self.node(node).link.state(), &self.node(node).restart_guard);
        match (self.config.settings.restart_guard, link, watch.found()) {
            (RestartGuard::Off, ..) => RestartGuardState::Off,
            (_, Link::Ready, _) => RestartGuardState::Votes,
            (_, _, None) => RestartGuardState::Unknown,
            (_, Link::Quarantined { .. }, Some(found))
                if watch.is_ours() && self.node(node).link.cause() == Cause::Quarantined =>
            {
                RestartGuardState::Quarantined { left: watch.free_at().since(self.boot), found }
            }
            (_, _, Some(found)) => RestartGuardState::Found(found),
        }
    }

    /// Whether the restart guards of a set that was new, or that was to be changed, have been written.
    #[must_use]
    pub fn has_set_up(&self) -> bool {
        self.set_up.is_done()
    }

    /// Nothing speaks against this node but what may change while the connection lasts.
    pub(super) fn let_in(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        let writes = handshake.capabilities().writes();
        if writes != Ability::Unknown {
            self.node_mut(id).capabilities.writes_are(writes);
        }
        match self.node(id).capabilities.writes() {
            Ability::Refused(cause) => {
                self.suspend(id, cause, now);
                self.set_up(now);
            }
            _ if self.config.settings.restart_guard == RestartGuard::Off => {
                self.node_votes(id, now)
            }
            _ => self.restart_guard_read(id, handshake, now),
        }
    }

    /// Value and TTL have been read on this link.
    fn restart_guard_read(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        let found = self.expected(id).judge(handshake.restart_guard());
        let (value, pttl) = handshake.into_restart_guard();
        // A set that has a restart guard is not new, and will not be when all of them are gone.
        let setup = self.config.settings.setup;
        if setup == Setup::IfNew && found != Found::Missing {
            self.set_up.is_over();
        }
        let watch = &mut self.node_mut(id).restart_guard;
        let (was_enrolled, asked_at) = (watch.value_read(found), watch.asked_at());
        if found == Found::Ours {
            self.clock_seen(id, asked_at, pttl, now);
            self.ours_read(id, Standing::of(pttl), value, now);
        } else {
            self.other_read(id, found, was_enrolled, value, now);
        }
        self.set_up(now);
    }

    /// The restart guard is ours: whether the node votes.
    fn ours_read(&mut self, id: NodeId, standing: Standing, value: Vec<u8>, now: ClockReading) {
        let setup = self.config.settings.setup;
        match standing {
            _ if setup == Setup::Change && !self.node(id).restart_guard.is_alone() => {
                self.node_mut(id).restart_guard.is_in_question();
                self.quarantine(id, Timestamp::NEVER, now);
                self.drop_others(id, now);
            }
            Standing::Votes if self.is_doubted(id, now) => {
                let left = self.node(id).restart_guard.doubted_until().since(now.boot);
                self.quarantine_for(id, left, now);
            }
            Standing::Votes => self.node_votes(id, now),
            Standing::Quarantined { left_ms } if setup == Setup::Init && !self.set_up.is_done() => {
                let free_at = now.boot + Duration::from_millis(left_ms);
                self.node_mut(id).restart_guard.is_free_at(free_at);
                self.enrol_when_due(id, Found::Ours, value, now);
            }
            Standing::Quarantined { left_ms } => {
                self.quarantine_for(id, Duration::from_millis(left_ms), now);
            }
            // It went between the two commands.
            Standing::Missing => self.look_soon(id, now),
            Standing::Endless => self.refuse_restart_guard(id, Cause::RestartGuardAltered, now),
        }
    }

    /// The restart guard is not ours: whether it becomes so.
    fn other_read(
        &mut self,
        id: NodeId,
        found: Found,
        enrolled: bool,
        value: Vec<u8>,
        now: ClockReading,
    ) {
        match found {
            Found::Unreadable => self.refuse_restart_guard(id, Cause::RestartGuardAltered, now),
            Found::OtherLimits { .. } if self.config.settings.setup != Setup::Change => {
                self.refuse_restart_guard(id, Cause::OtherLimits, now);
            }
            // It was enrolled a moment ago: others fight over it, or it is not always the same server.
            _ if enrolled => self.look_soon(id, now),
            _ => self.enrol_when_due(id, found, value, now),
        }
    }

    /// Only an operator can mend this restart guard. Whoever only looks goes on looking.
    fn refuse_restart_guard(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        if self.config.settings.setup != Setup::ReadOnly {
            return self.retire(id, cause, now);
        }
        let again = now.boot + self.config.settings.reconnect_backoff.1;
        self.quarantine(id, again, now);
        self.node_mut(id).link.blamed(cause);
    }

    /// The restart guard of a node that has another one, or none, is written at once, or when all nodes have
    /// been looked at.
    fn enrol_when_due(&mut self, id: NodeId, found: Found, seen: Vec<u8>, now: ClockReading) {
        let waits = match self.config.settings.setup {
            Setup::Enrol => false,
            Setup::IfNew => !self.set_up.is_done() && found == Found::Missing,
            Setup::Change | Setup::Init | Setup::ReadOnly => true,
        };
        if waits {
            let is_settling = self.config.settings.setup == Setup::IfNew;
            self.node_mut(id).restart_guard.awaits_set_up(seen, is_settling);
            let again = now.boot + self.config.settings.connect_timeout;
            self.quarantine(id, again, now);
        } else {
            let quarantine = self.config.settings.max_ttl;
            if mutant!(RestartGuardMissingIsNew) {
                return self.enrol(id, &seen, Duration::ZERO, now);
            }
            if mutant!(RestartGuardTooShort) {
                return self.enrol(id, &seen, quarantine / 2, now);
            }
            self.enrol(id, &seen, quarantine, now);
        }
    }

    /// Whether all nodes of a set have been looked at that is being set up, and what follows.
    pub(super) fn set_up(&mut self, now: ClockReading) {
        let waiting = |core: &Self, id| core.node(id).restart_guard.is_awaiting_set_up();
        if !self.config.node_ids().any(|id| waiting(self, id)) {
            return;
        }
        let nodes = || self.config.node_ids();
        let found = |id| self.node(id).restart_guard.found();
        let is_new =
            |id| found(id) == Some(Found::Missing) || self.node(id).restart_guard.is_ours();
        let all_new = nodes().all(|id| waiting(self, id) && is_new(id));
        let all_known =
            nodes().all(|id| waiting(self, id) || self.node(id).restart_guard.is_ours());
        let hopeless = nodes().any(|id| !waiting(self, id) && self.node(id).link.is_settled());
        let quarantine = match self.config.settings.setup {
            Setup::IfNew | Setup::Init if all_new => Duration::ZERO,
            Setup::IfNew if hopeless => self.config.settings.max_ttl,
            Setup::Change if all_known => self.longest_ttl(),
            _ => return,
        };
        self.set_up.is_over();
        for id in self.config.node_ids() {
            if let Some(seen) = self.node_mut(id).restart_guard.take_seen() {
                self.enrol(id, &seen, quarantine, now);
            }
        }
    }

    /// The larger of our `max_ttl` and all that the nodes were set up for.
    fn longest_ttl(&self) -> Duration {
        let others = self.nodes.iter().filter_map(|node| match node.restart_guard.found() {
            Some(Found::OtherLimits { max_ttl_ms, .. }) => Some(Duration::from_millis(max_ttl_ms)),
            _ => None,
        });
        others.fold(self.config.settings.max_ttl, Duration::max)
    }

    /// Gives the restart guard our value, if it still is what was seen; the node votes after `quarantine`.
    fn enrol(&mut self, id: NodeId, seen: &[u8], quarantine: Duration, now: ClockReading) {
        let expected = self.expected(id);
        let is_known =
            expected.run_id.is_some() || expected.restart_trust == RestartTrust::MarkerOnly;
        debug_assert!(is_known, "a restart guard speaks for a run");
        let value = expected.value();
        let node = &mut self.nodes[id.index()];
        // A later look can be answered before this runs, and another client can write meanwhile. So the script writes over the
        // value that was seen only, and the quarantine counts from when it runs: the node's TTL carries it.
        node.pipeline.push(Pending::Enrol, now.boot, |out| {
            let eval = command(out, 7).arg(b"EVAL").arg(script::ENROL.text.as_bytes()).int(1);
            let eval = eval.arg(&self.config.settings.restart_guard_key).arg(seen).arg(&value);
            let _ = eval.int(BIG_MS.saturating_add(ttl_ms(quarantine)));
        });
        if self.config.settings.setup == Setup::Change {
            self.drop_others(id, now);
        }
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
        let watch = &mut self.node_mut(id).restart_guard;
        watch.is_being_enrolled(now.boot + quarantine, quarantine.is_zero());
        self.quarantine(id, Timestamp::NEVER, now);
    }

    pub(super) fn enrolled(
        &mut self,
        id: NodeId,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let answer = count(answer).ok_or(Mistyped)?.to_request(false);
        if !self.node(id).link.is_quarantined() {
            return Ok(());
        }
        match answer {
            // It is not what was seen any more.
            Count::Of(0) => self.look_soon(id, now),
            Count::Of(_) => {
                self.node_mut(id).restart_guard.enrolled();
                // Where the others are dropped, it is looked at behind that.
                if self.config.settings.setup != Setup::Change {
                    self.look_again(id, now);
                }
            }
            Count::Fail(cause) if cause.is_configuration() || cause == Cause::ReadOnly => {
                self.retire(id, cause, now);
            }
            Count::Fail(_) | Count::NoScript => {
                let again = now.boot + self.config.settings.reconnect_backoff.1;
                self.quarantine(id, again, now);
                if let Count::Fail(cause) = answer {
                    self.node_mut(id).link.blamed(cause);
                }
            }
        }
        Ok(())
    }

    /// Others have read the old value on their connections, and would rely on it. Also where it was
    /// another who moved the restart guard: he may have got no further.
    fn drop_others(&mut self, id: NodeId, now: ClockReading) {
        self.node_mut(id).pipeline.push(Pending::DropOthers, now.boot, |out| {
            let kill = command(out, 6).arg(b"CLIENT").arg(b"KILL").arg(b"TYPE").arg(b"normal");
            let _ = kill.arg(b"SKIPME").arg(b"yes");
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    pub(super) fn others_dropped(
        &mut self,
        id: NodeId,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let answer = count(answer).ok_or(Mistyped)?.to_request(false);
        if !self.node(id).link.is_quarantined() {
            return Ok(());
        }
        match answer {
            Count::Of(_) => {
                self.node_mut(id).restart_guard.others_dropped();
                self.look_again(id, now);
            }
            Count::Fail(cause) => self.retire(id, cause, now),
            Count::NoScript => self.retire(id, Cause::ServerError, now),
        }
        Ok(())
    }

    /// Looks once more whether the node takes writes, and at value and TTL.
    fn look_again(&mut self, id: NodeId, now: ClockReading) {
        let cause = match self.node(id).link.state() {
            Link::Quarantined { .. } => self.node(id).link.cause(),
            _ => Cause::Quarantined,
        };
        self.look_for(id, cause, now);
    }

    /// As [`look_again`](Self::look_again), of a node that does not vote meanwhile for this reason.
    fn look_for(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        self.keep_out(id, cause, Timestamp::NEVER, now);
        let settings = self.config.node(id);
        let node = &mut self.nodes[id.index()];
        node.handshake_begins(now);
        let tells_history = node.server.replication_id().is_some();
        for step in Step::look(&node.capabilities, tells_history, &self.config.settings) {
            node.pipeline.push(Pending::Handshake(step), now.boot, |out| {
                step.encode(out, settings, &self.config.settings);
            });
        }
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    /// As [`look_again`](Self::look_again), and not as fast as a restart guard could change under our eyes.
    fn look_soon(&mut self, id: NodeId, now: ClockReading) {
        let again = now.boot + self.config.settings.reconnect_backoff.0;
        self.quarantine(id, again, now);
    }

    fn quarantine_for(&mut self, id: NodeId, left: Duration, now: ClockReading) {
        let free_at = now.boot + left;
        self.node_mut(id).restart_guard.is_free_at(free_at);
        // The node counts in whole milliseconds. It may be called new meanwhile, or lose its restart guard.
        let over = free_at + Duration::from_millis(1);
        self.quarantine(id, over.min(now.boot + LOOKS_APART), now);
    }

    fn quarantine(&mut self, id: NodeId, until: Timestamp, now: ClockReading) {
        self.keep_out(id, Cause::Quarantined, until, now);
    }

    /// The server takes no writes for now, and does not vote until it would.
    pub(super) fn suspend(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        self.node_mut(id).capabilities.writes_are(Ability::Refused(cause));
        self.keep_out(id, cause, now.boot + LOOKS_APART, now);
    }

    /// The node does not vote; what needs no vote goes on. It is looked at again at `until`.
    fn keep_out(&mut self, id: NodeId, cause: Cause, until: Timestamp, now: ClockReading) {
        let node = self.node_mut(id);
        node.link.quarantined(cause, until);
        node.handshake_done();
        self.changed.insert(id);
        self.arm(until);
        self.node_kept_out(id, now);
    }

    pub(super) fn quarantine_due(&mut self, id: NodeId, until: Timestamp, now: ClockReading) {
        if now.boot >= until {
            self.look_again(id, now);
        } else {
            self.arm(until);
        }
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
        if !self.node(id).link.is_ready() {
            return self.node(id).link.cause();
        }
        if cause.is_configuration() {
            self.node_mut(id).restart_guard.is_in_question();
            self.look_for(id, cause, now);
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
        let is_doubted = self.is_doubted(id, now);
        let stands =
            self.node(id).restart_guard.is_ours() && standing == Standing::Votes && !is_doubted;
        if stands {
            return vote;
        }
        if vote == Vote::Grant {
            self.undo_grants(id, [claim], now);
        }
        if self.node(id).link.is_ready() {
            let left = match standing {
                Standing::Quarantined { left_ms } => Duration::from_millis(left_ms),
                _ => self.config.settings.max_ttl,
            };
            let found = (standing == Standing::Missing).then_some(Found::Missing);
            self.node_mut(id).restart_guard.forbids_vote(found, now.boot + left);
            self.look_again(id, now);
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

    fn expected(&self, id: NodeId) -> Expected {
        let settings = &self.config.settings;
        let node = self.config.node(id);
        // A replica that sentinels promote has its master's restart guard, and may lack its last writes
        // however these are synced.
        let restart_trust = match node.restart_trust {
            RestartTrust::Durable if node.has_sentinels => RestartTrust::Strict,
            restart_trust => restart_trust,
        };
        Expected {
            run_id: self.node(id).server.run_id(),
            replication_id: self.node(id).server.replication_id(),
            max_ttl_ms: ttl_ms(settings.max_ttl),
            nodes: self.nodes.len() as u64,
            database: node.database.into(),
            restart_trust,
        }
    }

    /// Why a node does not vote, in words.
    pub(super) fn quarantine_in_words(&self, id: NodeId) -> String {
        self.node(id).restart_guard.in_words(self.config.settings.setup, self.boot)
    }
}

impl Core {
    /// Which limits a node was set up for, and how to change them.
    pub(super) fn limits_in_words(&self, id: NodeId) -> String {
        let ours = &self.config.settings;
        let Some(Found::OtherLimits { max_ttl_ms, nodes }) = self.node(id).restart_guard.found()
        else {
            return Cause::OtherLimits.to_string();
        };
        let max_ttl = Duration::from_millis(max_ttl_ms);
        format!(
            "set up for {nodes} nodes and a max_ttl of {max_ttl:?}, this client for {} and {:?}",
            self.nodes.len(),
            ours.max_ttl
        )
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

    fn is_over(&mut self) {
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

/// A node in quarantine, or one that takes no writes, is looked at so often.
const LOOKS_APART: Duration = Duration::from_secs(1);
