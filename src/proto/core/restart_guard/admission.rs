//! The decision whether one node votes, from what was read of its restart guard.
//!
//! A node votes only on a connection on which the value was read and is ours. A transition here
//! changes this node only, and its consequences for claims and locks are effects.

use std::time::Duration;

use super::watch::Unproven;
use super::{FollowUp, RestartGuardState};
use crate::proto::answer::{Count, count};
use crate::proto::classify::classify;
use crate::proto::core::Env;
use crate::proto::core::effects::{Effect, NodeEffect};
use crate::proto::core::links::{
    Ability, Handshake, Link, Mistyped, Node, Nodes, Pending, Step, is_same_master,
};
use crate::proto::mutants::mutant;
use crate::proto::names::NodeId;
use crate::proto::restart_guard::{
    BIG_MS, Expected, Found, RestartGuard, RestartTrust, Setup, Standing,
};
use crate::proto::script;
use crate::proto::time::{Timestamp, ttl_ms};
use crate::proto::vote::{Cause, Vote};
use crate::resp::{Token, command};

/// The value and the TTL that were read on a link.
struct GuardReading {
    found: Found,
    /// The value, empty if the key is missing.
    value: Vec<u8>,
    pttl: i64,
    asked_at: Timestamp,
    /// Whether our value was written just before.
    was_enrolled: bool,
}

/// The grants that waited for a proof, and the cause if they do not count.
type Proven = (Vec<Unproven>, Option<Cause>);

/// A node whose vote is decided, in the environment of its transition.
pub(in crate::proto::core) struct Candidate<'a, 'e> {
    node: &'a mut Node,
    env: &'a mut Env<'e>,
}

impl Nodes {
    /// Borrows a node to decide about its vote.
    #[inline]
    pub(in crate::proto::core) fn candidate<'a, 'e>(
        &'a mut self,
        node: NodeId,
        env: &'a mut Env<'e>,
    ) -> Candidate<'a, 'e> {
        Candidate { node: &mut self[node.index()], env }
    }

    /// Admits a node to the vote after a handshake, unless its restart guard forbids that, or a
    /// state that may change while the connection lasts.
    pub(in crate::proto::core) fn let_in(
        &mut self,
        id: NodeId,
        handshake: Handshake,
        env: &mut Env<'_>,
    ) {
        if let Some(reading) = self.candidate(id, env).take_handshake(handshake) {
            if reading.found == Found::Ours {
                // Before `judge`, because a clock that was set forward keeps the node from voting.
                let (asked_at, pttl, now) = (reading.asked_at, reading.pttl, env.now.boot);
                let watch = &mut self[id.index()].restart_guard;
                if watch.record_ttl(asked_at, pttl, env.config.drift, now) {
                    self.doubt_clock(id, env);
                }
            }
            self.candidate(id, env).judge(reading);
        }
    }
}

impl Node {
    /// Returns the state of the restart guard of a node that has one.
    pub(super) fn restart_guard_state(&self, now: Timestamp) -> RestartGuardState {
        let (watch, is_quarantined) = (&self.restart_guard, self.link.is_quarantined());
        match watch.found() {
            _ if self.link.is_ready() => RestartGuardState::Votes,
            None => RestartGuardState::Unknown,
            Some(found)
                if is_quarantined && watch.is_ours() && self.link.cause() == Cause::Quarantined =>
            {
                RestartGuardState::Quarantined { left: watch.free_at().since(now), found }
            }
            Some(found) => RestartGuardState::Found(found),
        }
    }

    fn expected(&self, env: &Env<'_>) -> Expected {
        let node = env.config.node(self.id());
        // A replica that sentinels promote has its master's restart guard, and may lack its last
        // writes however these are synced.
        let restart_trust = match node.restart_trust {
            RestartTrust::Durable if node.has_sentinels => RestartTrust::Strict,
            restart_trust => restart_trust,
        };
        Expected {
            run_id: self.server.run_id(),
            replication_id: self.server.replication_id(),
            max_ttl_ms: ttl_ms(env.settings().max_ttl),
            nodes: env.settings().nodes.len() as u64,
            database: node.database.into(),
            restart_trust,
        }
    }
}

/// The reading of the guard.
impl Candidate<'_, '_> {
    /// Takes the result of a complete handshake, or of a later read, of a node that may vote but
    /// for states that can change. Returns what it has read of the restart guard, if that decides
    /// about the vote.
    fn take_handshake(&mut self, handshake: Handshake) -> Option<GuardReading> {
        let writes = handshake.capabilities().writes();
        if writes != Ability::Unknown {
            self.node.capabilities.set_writes(writes);
        }
        // A node that cannot write can neither grant nor be enrolled, so no attempt need ask it.
        if let Ability::Refused(cause) = self.node.capabilities.writes() {
            self.suspend(cause);
            self.env.effects.push(Effect::SetUp);
            return None;
        }
        if self.env.settings().restart_guard == RestartGuard::Off {
            self.env.effects.of_node(self.node.id(), NodeEffect::Admitted);
            return None;
        }
        Some(self.take_reading(handshake))
    }

    fn take_reading(&mut self, handshake: Handshake) -> GuardReading {
        let found = self.node.expected(self.env).judge(handshake.restart_guard());
        let (value, pttl) = handshake.into_restart_guard();
        // A set that has a restart guard is not new, and does not become new when all guards are
        // lost.
        if self.env.settings().setup == Setup::IfNew && found != Found::Missing {
            self.env.has_set_up = true;
        }
        let was_enrolled = self.node.restart_guard.record_value(found);
        let asked_at = self.node.restart_guard.asked_at();
        GuardReading { found, value, pttl, asked_at, was_enrolled }
    }

    /// Decides by the reading whether the node votes, or is enrolled.
    fn judge(&mut self, reading: GuardReading) {
        self.judge_value(reading);
        self.env.effects.push(Effect::SetUp);
    }

    fn judge_value(&mut self, reading: GuardReading) {
        let GuardReading { found, value, pttl, was_enrolled, .. } = reading;
        let setup = self.env.settings().setup;
        match found {
            Found::Ours => self.judge_ours(Standing::of(pttl), value),
            // It is unknown what wrote the value, and how long the node must be silent, so an
            // operator must look.
            Found::Unreadable => self.refuse_restart_guard(Cause::RestartGuardAltered),
            Found::OtherLimits { .. } if setup != Setup::Change => {
                self.refuse_restart_guard(Cause::OtherLimits)
            }
            // Our value was written a moment ago: other clients overwrite it, or the server is not
            // always the same.
            _ if was_enrolled => self.read_soon(),
            _ => self.enrol_when_due(found, value),
        }
    }

    /// Decides whether a node with our restart guard votes.
    fn judge_ours(&mut self, standing: Standing, value: Vec<u8>) {
        let (now, setup) = (self.env.now.boot, self.env.settings().setup);
        match standing {
            _ if setup == Setup::Change && !self.node.restart_guard.is_alone() => {
                self.node.restart_guard.question();
                self.quarantine(Timestamp::NEVER, FollowUp::DropOthers)
            }
            // Keys may have ended early there on which their holders still count.
            Standing::Votes if self.node.restart_guard.is_doubted(now) => {
                let left = self.node.restart_guard.doubted_until().since(now);
                self.quarantine_for(left)
            }
            Standing::Votes => self.env.effects.of_node(self.node.id(), NodeEffect::Admitted),
            Standing::Quarantined { left_ms } if setup == Setup::Init && !self.env.has_set_up => {
                self.node.restart_guard.set_free_at(now + Duration::from_millis(left_ms));
                self.enrol_when_due(Found::Ours, value)
            }
            Standing::Quarantined { left_ms } => {
                self.quarantine_for(Duration::from_millis(left_ms))
            }
            // The key expired between the two commands.
            Standing::Missing => self.read_soon(),
            Standing::Endless => self.refuse_restart_guard(Cause::RestartGuardAltered),
        }
    }

    /// Refuses a node whose restart guard only an operator can fix. A read-only client reads it
    /// again.
    fn refuse_restart_guard(&mut self, cause: Cause) {
        if self.env.settings().setup != Setup::ReadOnly {
            return self.node.retire(cause, self.env);
        }
        let again = self.env.now.boot + self.env.settings().reconnect_backoff.1;
        self.quarantine(again, FollowUp::Blame(cause))
    }
}

/// The writing of the guard.
impl Candidate<'_, '_> {
    /// Writes the restart guard of a node that has none, or another one: now, or once all nodes of
    /// a new or changed set have been read.
    fn enrol_when_due(&mut self, found: Found, seen: Vec<u8>) {
        let setup = self.env.settings().setup;
        let waits = match setup {
            Setup::Enrol => false,
            Setup::IfNew => !self.env.has_set_up && found == Found::Missing,
            Setup::Change | Setup::Init | Setup::ReadOnly => true,
        };
        if waits {
            self.node.restart_guard.hold_for_set_up(seen, setup == Setup::IfNew);
            let again = self.env.now.boot + self.env.settings().connect_timeout;
            return self.quarantine(again, FollowUp::None);
        }
        let quarantine = self.env.settings().max_ttl;
        if mutant!(RestartGuardMissingIsNew) {
            return self.enrol(&seen, Duration::ZERO);
        }
        if mutant!(RestartGuardTooShort) {
            return self.enrol(&seen, quarantine / 2);
        }
        self.enrol(&seen, quarantine)
    }

    /// Writes the restart guard of a node that waits for the other nodes of its set.
    pub(in crate::proto::core) fn enrol_in_set(&mut self, quarantine: Duration) {
        if let Some(seen) = self.node.restart_guard.take_seen() {
            self.enrol(&seen, quarantine);
        }
    }

    /// Replaces the value of the guard if it is still `seen`. The node votes after `quarantine`.
    fn enrol(&mut self, seen: &[u8], quarantine: Duration) {
        let expected = self.node.expected(self.env);
        let is_known =
            expected.run_id.is_some() || expected.restart_trust == RestartTrust::MarkerOnly;
        debug_assert!(is_known, "a restart guard speaks for a run");
        let value = expected.value();
        let (now, settings) = (self.env.now.boot, self.env.settings());
        // A read sent after this may be answered before it runs, and another client can write
        // meanwhile. So the script replaces only the value that was seen, and the quarantine counts
        // from when it runs: the node's TTL carries it.
        self.node.pipeline.push(Pending::Enrol, now, |out| {
            let eval = command(out, 7).arg(b"EVAL").arg(script::ENROL.text.as_bytes()).int(1);
            let eval = eval.arg(&settings.restart_guard_key).arg(seen).arg(&value);
            let _ = eval.int(BIG_MS.saturating_add(ttl_ms(quarantine)));
        });
        if settings.setup == Setup::Change {
            self.drop_others();
        }
        self.env.arm(now + settings.dead_peer_timeout);
        // The node votes only after a read behind this write: another client may have written
        // since.
        self.node.restart_guard.start_enrolment(now + quarantine, quarantine.is_zero());
        self.quarantine(Timestamp::NEVER, FollowUp::None)
    }

    /// Takes the answer to a command that writes the restart guard, or drops other connections.
    pub(in crate::proto::core) fn written(
        &mut self,
        pending: Pending,
        answer: Token<'_>,
    ) -> Result<(), Mistyped> {
        let answer = count(answer).ok_or(Mistyped)?.to_request(false);
        match pending {
            _ if !self.node.link.is_quarantined() => {}
            Pending::DropOthers => self.others_dropped(answer),
            _ => self.enrolled(answer),
        }
        Ok(())
    }

    fn enrolled(&mut self, answer: Count) {
        match answer {
            // The value is no longer the one that was seen.
            Count::Of(0) => self.read_soon(),
            Count::Of(_) => {
                self.node.restart_guard.mark_enrolled();
                // If the others are dropped, the guard is read behind that.
                if self.env.settings().setup != Setup::Change {
                    self.read_guard_again();
                }
            }
            Count::Fail(cause) if cause.is_configuration() || cause == Cause::ReadOnly => {
                self.node.retire(cause, self.env);
            }
            Count::Fail(_) | Count::NoScript => {
                let again = self.env.now.boot + self.env.settings().reconnect_backoff.1;
                let next = match answer {
                    Count::Fail(cause) => FollowUp::Blame(cause),
                    _ => FollowUp::None,
                };
                self.quarantine(again, next);
            }
        }
    }

    /// Drops all other connections of the node.
    fn drop_others(&mut self) {
        // Other clients have read the old value on theirs and would rely on it. That is also so if
        // another client has replaced the value, which may have stopped before this step.
        let now = self.env.now.boot;
        self.node.pipeline.push(Pending::DropOthers, now, |out| {
            let kill = command(out, 6).arg(b"CLIENT").arg(b"KILL").arg(b"TYPE").arg(b"normal");
            let _ = kill.arg(b"SKIPME").arg(b"yes");
        });
        self.env.arm(now + self.env.settings().dead_peer_timeout);
    }

    fn others_dropped(&mut self, answer: Count) {
        match answer {
            Count::Of(_) => {
                self.node.restart_guard.mark_alone();
                self.read_guard_again();
            }
            Count::Fail(cause) => self.node.retire(cause, self.env),
            Count::NoScript => self.node.retire(Cause::ServerError, self.env),
        }
    }
}

/// The votes.
impl Candidate<'_, '_> {
    /// Returns the vote as it counts. It counts if the value that was read on this connection is
    /// ours, and the TTL behind the request lets the node vote.
    #[inline]
    pub(super) fn guard_vote(&mut self, vote: Vote, pttl: Result<i64, Cause>) -> Vote {
        if mutant!(RestartGuardIgnored) {
            return vote;
        }
        let now = self.env.now.boot;
        match pttl.map(Standing::of) {
            // The TTL was read behind the request on one connection, so it shows a guard that had
            // gone before the request ran.
            Ok(standing) if self.node.restart_guard.lets_vote(standing, now) => return vote,
            Ok(standing) if self.node.link.is_ready() => self.forbid_vote(standing),
            Ok(_) => {}
            Err(_) if matches!(vote, Vote::Fail(_)) => return vote,
            // An error in place of the TTL shows nothing about the guard.
            Err(cause) => return Vote::Fail(self.miss_proof(cause)),
        }
        // The node's own reason explains more.
        if matches!(vote, Vote::Fail(_)) { vote } else { Vote::Fail(self.node.link.cause()) }
    }

    /// Takes an answer with the replication id. Returns the grants that waited for it, and the
    /// cause if they do not count.
    pub(in crate::proto::core) fn take_proof(
        &mut self,
        answer: Token<'_>,
    ) -> Result<Proven, Mistyped> {
        let known = self.node.server.replication_id();
        let is_same = matches!(answer, Token::Bulk(info) if is_same_master(info, known));
        let cause = match answer {
            Token::Bulk(_) if is_same => None,
            // With other data the node may have forgotten what it granted.
            Token::Bulk(_) => {
                self.doubt_history();
                Some(self.node.link.cause())
            }
            // A server that is busy has not changed its data.
            Token::Error(text) => Some(self.miss_proof(classify(text).cause())),
            _ => return Err(Mistyped),
        };
        Ok((self.node.restart_guard.finish_proof(is_same), cause))
    }

    /// Takes an error in place of a proof or a TTL. Returns why the grants do not count.
    fn miss_proof(&mut self, cause: Cause) -> Cause {
        if !self.node.link.is_ready() {
            return self.node.link.cause();
        }
        // Any other error passes, and the next grant asks again. This one only an operator can fix.
        if cause.is_configuration() {
            self.node.restart_guard.question();
            self.keep_out(cause, Timestamp::NEVER, FollowUp::Look);
        }
        cause
    }

    /// Ends the vote of a node after the TTL behind a request.
    fn forbid_vote(&mut self, standing: Standing) {
        // A missing guard was lost with the locks. The longest of these ends within `max_ttl`.
        let left = match standing {
            Standing::Quarantined { left_ms } => Duration::from_millis(left_ms),
            _ => self.env.settings().max_ttl,
        };
        let found = (standing == Standing::Missing).then_some(Found::Missing);
        self.node.restart_guard.forbid_vote(found, self.env.now.boot + left);
        self.read_guard_again()
    }

    /// Reads the guard again, because the node may have other data than before.
    fn doubt_history(&mut self) {
        // Also on a link in quarantine: requests behind this must not count either.
        self.node.restart_guard.question();
        if !self.node.link.is_ready() {
            return;
        }
        let free_at = self.env.now.boot + self.env.settings().max_ttl;
        self.node.restart_guard.forbid_vote(Some(Found::OtherHistory), free_at);
        self.read_guard_again()
    }
}

/// The quarantine.
impl Candidate<'_, '_> {
    /// Takes the step that follows what the node is sent.
    pub(in crate::proto::core) fn follow_up(&mut self, next: FollowUp) {
        match next {
            FollowUp::None => {}
            FollowUp::Blame(cause) => self.node.link.blame(cause),
            FollowUp::DropOthers => self.drop_others(),
            FollowUp::Look => self.send_read(),
        }
    }

    /// Reads again whether the node takes writes, and the value and TTL of its guard.
    fn read_guard_again(&mut self) {
        let cause = match self.node.link.is_quarantined() {
            true => self.node.link.cause(),
            false => Cause::Quarantined,
        };
        self.keep_out(cause, Timestamp::NEVER, FollowUp::Look)
    }

    fn send_read(&mut self) {
        let now = self.env.now;
        self.node.start_handshake(now);
        let reports_history = self.node.server.replication_id().is_some();
        let look = Step::look(&self.node.capabilities, reports_history, self.env.settings());
        self.node.send_steps(look, self.env);
        self.env.arm(now.boot + self.env.settings().dead_peer_timeout);
    }

    /// Reads the guard again after a pause, so that a guard that keeps changing is not read without
    /// end.
    fn read_soon(&mut self) {
        let again = self.env.now.boot + self.env.settings().reconnect_backoff.0;
        self.quarantine(again, FollowUp::None)
    }

    /// Reads the guard of a node in quarantine again, if that is due.
    pub(in crate::proto::core) fn check_quarantine(&mut self) {
        match self.node.link.state() {
            Link::Quarantined { until } if self.env.now.boot >= until => {
                self.read_guard_again();
            }
            Link::Quarantined { until } => self.env.arm(until),
            _ => {}
        }
    }

    fn quarantine_for(&mut self, left: Duration) {
        let now = self.env.now.boot;
        let free_at = now + left;
        self.node.restart_guard.set_free_at(free_at);
        // The node counts in whole ms. It is read earlier because `init` may declare it new
        // meanwhile, or it may lose its guard.
        let over = free_at + Duration::from_millis(1);
        self.quarantine(over.min(now + READS_APART), FollowUp::None)
    }

    fn quarantine(&mut self, until: Timestamp, next: FollowUp) {
        self.keep_out(Cause::Quarantined, until, next)
    }

    /// Suspends the vote of a node that takes no writes for now.
    pub(in crate::proto::core) fn suspend(&mut self, cause: Cause) {
        self.node.capabilities.set_writes(Ability::Refused(cause));
        self.keep_out(cause, self.env.now.boot + READS_APART, FollowUp::None)
    }

    /// Withdraws the doubt about the node's clock. Reads the guard again if the node was kept out
    /// for it.
    pub(super) fn believe_clock(&mut self) {
        let was_doubted = self.node.restart_guard.is_doubted(self.env.now.boot);
        self.node.restart_guard.believe_clock();
        match self.node.link.state() {
            Link::Quarantined { until } if was_doubted && until != Timestamp::NEVER => {
                self.read_guard_again()
            }
            _ => {}
        }
    }

    /// Keeps the node from voting, and reads it again at `until`.
    fn keep_out(&mut self, cause: Cause, until: Timestamp, next: FollowUp) {
        self.node.link.quarantine(cause, until);
        self.node.finish_handshake();
        self.env.report_state(self.node.id());
        self.env.arm(until);
        // An attempt need not wait for a node whose vote cannot count before the attempt ends.
        if !self.node.restart_guard.is_settling() {
            self.env.effects.of_node(self.node.id(), NodeEffect::FailQueuedAsks);
        }
        // The node may have keys of this client, which must be deleted or extended.
        self.env.effects.of_node(self.node.id(), NodeEffect::ResumeNonVoter);
        // Behind the undos that the node is sent now, because the read may show that it votes.
        self.env.effects.of_node(self.node.id(), NodeEffect::FollowUp(next));
    }
}

/// The interval of the reads of a node in quarantine, or of one that takes no writes.
const READS_APART: Duration = Duration::from_secs(1);
