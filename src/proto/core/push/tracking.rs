//! The reports of one node: its push link from opening to loss, and the tracking by its command
//! link.
//!
//! A transition here changes this node only. The locks that read again, and those that wake, are
//! effects.

use std::mem;
use std::time::Duration;

use super::{LINGER, Push, PushState, Stage, Tracking, UNAVAILABLE_FOR, lasts};
use crate::proto::core::Env;
use crate::proto::core::effects::{LockEffect, NodeEffect};
use crate::proto::core::links::{Ability, Mistyped, Node, Pending};
use crate::proto::names::{LinkId, LockId};
use crate::proto::{
    classify::classify, config::WakeStrategy, event::LinkOp, time::Timestamp, vote::Cause,
};
use crate::resp::{Token, command};

/// The news about reports in an answer: they begin, or why there are none. `None` if it has no
/// news.
type TrackingNews = Option<Result<(), Cause>>;

impl Node {
    /// Opens the push link, or keeps it open, for a waiter or an observer.
    pub(in crate::proto::core) fn want_push(&mut self, env: &mut Env<'_>) {
        let now = env.now.boot;
        self.push.wanted_at = now;
        match self.push.stage {
            Stage::Off { retry_at } => match self.push.opens_at(retry_at) {
                opens_at if now >= opens_at => self.open_push(env),
                opens_at => env.arm(opens_at),
            },
            Stage::Subscribed => self.track(env),
            Stage::Opening { .. } | Stage::Handshake { .. } => {}
        }
    }

    fn open_push(&mut self, env: &mut Env<'_>) {
        let settings = env.settings();
        // The command link must be ready, because it is the one that reads keys.
        if settings.wake == WakeStrategy::Timer || !self.link.is_ready() {
            return;
        }
        let until = env.now.boot + settings.connect_timeout;
        self.push.stage = Stage::Opening { until };
        env.open_link(LinkId::push(self.id(), settings.nodes.len()));
        env.arm(until);
    }

    /// Starts the first flight on a connected socket.
    pub(in crate::proto::core) fn begin_push(&mut self, env: &Env<'_>) {
        if let Stage::Opening { until } = self.push.stage {
            self.push.stage = Stage::Handshake { until };
            let node = env.config.node(self.id());
            self.push.handshake(node, env.settings(), env.now.boot);
        }
    }

    /// Ends the first flight. `untracked` is why the node cannot or may not report changes, if so.
    pub(super) fn complete_push(&mut self, untracked: Option<Cause>, env: &mut Env<'_>) {
        self.push.stage = Stage::Subscribed;
        match untracked {
            None => self.track(env),
            // The link may still serve the channels of other libraries.
            Some(cause) => self.stop_tracking(cause, env),
        }
        self.push.begin_to_linger(env);
    }

    pub(in crate::proto::core) fn close_push(&mut self, cause: Cause, env: &mut Env<'_>) {
        let link = LinkId::push(self.id(), env.settings().nodes.len());
        env.ops.push_back(LinkOp::Close(link));
        self.sever_push(cause, env);
    }

    /// Ends the push link, which could not be opened or has lost its connection, and the reports.
    pub(in crate::proto::core) fn sever_push(&mut self, cause: Cause, env: &mut Env<'_>) {
        if !self.push.is_open() {
            return;
        }
        let (notified, asked) = (self.push.notifies(), self.push.tracking != Tracking::Off);
        let retry_at = env.now.boot + self.push.again_in(cause, env);
        // These locks may have missed a message, and wake.
        let missed = self.push.reset_connection();
        self.push.stage = Stage::Off { retry_at };
        self.push.failures = self.push.failures.saturating_add(1);
        self.push.ability = Ability::Refused(cause);
        if asked {
            self.send_track_off(env);
        }
        let lost = LockEffect::ChannelLostAt(self.id());
        missed.iter().for_each(|&lock| env.effects.of_lock(lock, lost));
        env.effects.of_node(self.id(), NodeEffect::PushLost(retry_at));
        let wake = LockEffect::WakeBy(self.id());
        match notified {
            true => self.end_reports(env),
            false => missed.iter().for_each(|&lock| env.effects.of_lock(lock, wake)),
        }
    }

    /// Closes a link after a refused subscription, if it has no other use.
    pub(super) fn refuse_channel(&mut self, env: &mut Env<'_>) {
        let push = &self.push;
        let is_of_no_use = env.now.boot < push.tracked_from && push.channels.are_of_no_use();
        if let Some(cause) = push.no_channel.filter(|_| is_of_no_use) {
            self.close_push(cause, env);
        }
    }

    /// Closes a link on which a channel cannot be left, because the subscription ends with the
    /// connection. Returns the locks that waited for messages.
    pub(super) fn drop_channels(&mut self, cause: Cause, env: &mut Env<'_>) -> Vec<LockId> {
        self.push.no_channel = Some(cause);
        self.push.channels_from = env.now.boot + UNAVAILABLE_FOR;
        self.close_push(Cause::default(), env);
        self.push.channels.clear()
    }

    /// Acts on the timer of the push link. `is_watched` returns whether a lock waits for the node.
    pub(in crate::proto::core) fn check_push_timer(
        &mut self,
        is_watched: impl FnOnce() -> bool,
        env: &mut Env<'_>,
    ) {
        let now = env.now.boot;
        let due = match self.push.stage {
            Stage::Off { .. } if self.push.wanted_at == Timestamp::default() => return,
            Stage::Off { retry_at } => self.push.opens_at(retry_at),
            Stage::Opening { until } | Stage::Handshake { until } => until,
            Stage::Subscribed => self.push.wanted_at + LINGER,
        };
        if now < due {
            return env.arm(due);
        }
        match self.push.stage {
            // It could not be opened, and `is_watched` scans all locks.
            Stage::Off { .. } if !self.link.is_ready() => {}
            Stage::Opening { .. } | Stage::Handshake { .. } => {
                self.close_push(Cause::NoAnswer, env);
            }
            Stage::Off { .. } | Stage::Subscribed => self.review_push(is_watched(), env),
        }
    }

    /// Opens, keeps or closes the push link, depending on whether a lock waits for the node.
    fn review_push(&mut self, is_watched: bool, env: &mut Env<'_>) {
        let now = env.now.boot;
        match (self.push.is_open(), is_watched) {
            (false, false) => self.push.wanted_at = Timestamp::default(),
            (false, true) => self.want_push(env),
            (true, false) => {
                let ability = self.push.lasting_ability(now);
                self.close_push(Cause::default(), env);
                self.push.put_away(ability, now);
            }
            (true, true) => {
                self.want_push(env);
                env.arm(now + LINGER);
            }
        }
    }
}

impl Node {
    /// Makes the node report on the push link what the command link reads, once the push link is
    /// subscribed.
    pub(in crate::proto::core) fn track(&mut self, env: &mut Env<'_>) {
        let ready = self.push.stage == Stage::Subscribed && self.link.is_ready();
        let Some(to) = self.push.handshake.client_id().filter(|_| ready) else { return };
        // Both links must lead to one process: in another one this client id belongs to another
        // client.
        if let (Some(here), Some(there)) = (self.push.handshake.run_id(), self.server.run_id())
            && here != there
        {
            return self.close_push(Cause::ConnectionReset, env);
        }
        // Reports to a connection that does not subscribe to them would be lost.
        let is_due = self.push.untracked.is_none() && env.now.boot >= self.push.tracked_from;
        if self.push.tracking == Tracking::Off && is_due {
            let by_choice = env.settings().wake == WakeStrategy::Queue;
            self.push.tracking = Tracking::Asked { by_choice };
            self.send_track(to, by_choice, env);
        }
    }

    fn send_track(&mut self, to: u64, by_choice: bool, env: &mut Env<'_>) {
        let now = env.now.boot;
        self.pipeline.push(Pending::Track { to: Some(to) }, now, |out| {
            let track = command(out, 6 + usize::from(by_choice));
            let track = track.arg(b"CLIENT").arg(b"TRACKING").arg(b"ON");
            let track = track.arg(b"REDIRECT").int(to).arg(b"NOLOOP");
            let _ = by_choice.then(|| track.arg(b"OPTIN"));
        });
        env.arm(now + env.settings().dead_peer_timeout);
    }

    /// Makes the node stop reporting, if a command can be sent.
    fn send_track_off(&mut self, env: &mut Env<'_>) {
        if !self.link.takes_extensions() {
            return;
        }
        let now = env.now.boot;
        self.pipeline.push(Pending::Track { to: None }, now, |out| {
            let _ = command(out, 3).arg(b"CLIENT").arg(b"TRACKING").arg(b"OFF");
        });
        env.arm(now + env.settings().dead_peer_timeout);
    }

    /// Records that the node cannot or may not report changes. The push link stays for the channels
    /// of other libraries if locks wait for these.
    fn stop_tracking(&mut self, cause: Cause, env: &mut Env<'_>) {
        if self.push.channels.are_of_no_use() {
            self.close_push(cause, env);
            return self.push.reopen_for_channels_only(env.now.boot);
        }
        let again_in = self.push.again_in(cause, env);
        let notified = self.push.notifies();
        self.push.tracking = Tracking::Off;
        self.push.tracked_from = env.now.boot + again_in;
        self.push.failures = self.push.failures.saturating_add(1);
        self.push.ability = Ability::Refused(cause);
        if notified {
            self.send_track_off(env);
            self.end_reports(env);
        }
        let read = LockEffect::ReadKeyAt(self.id());
        self.push.channels.subscribed().into_iter().for_each(|it| env.effects.of_lock(it, read));
    }

    /// Lets the locks and observers that relied on reports read again.
    fn end_reports(&self, env: &mut Env<'_>) {
        env.effects.of_node(self.id(), NodeEffect::ReportsLost);
        env.effects.of_node(self.id(), NodeEffect::RefreshObservers);
    }

    pub(in crate::proto::core) fn take_tracking_answer(
        &mut self,
        pending: Pending,
        answer: Token<'_>,
        env: &mut Env<'_>,
    ) -> Result<(), Mistyped> {
        let by_choice = env.settings().wake == WakeStrategy::Queue;
        let news = match pending {
            Pending::Track { to } => self.push.take_track_answer(to, by_choice, answer)?,
            _ => self.push.read_caching_answer(answer)?,
        };
        match news {
            None => {}
            Some(Ok(())) => {
                env.effects.of_node(self.id(), NodeEffect::ReadKeys);
                env.effects.of_node(self.id(), NodeEffect::RefreshObservers);
            }
            Some(Err(cause)) => self.stop_tracking(cause, env),
        }
        Ok(())
    }
}

impl Push {
    /// Returns whether the node notifies waiters. `is_watched` returns whether a lock waits for it.
    pub(super) fn state(&self, now: Timestamp, is_watched: impl FnOnce() -> bool) -> PushState {
        match (self.stage, self.ability) {
            _ if self.notifies() => PushState::Active,
            // A lost connection matters only if a lock waits for the next one.
            (Stage::Off { .. }, Ability::Refused(cause)) if lasts(cause) || is_watched() => {
                PushState::Unavailable(cause)
            }
            (Stage::Off { .. }, _) => PushState::Off,
            (Stage::Subscribed, Ability::Refused(cause))
                if now < self.tracked_from || self.untracked.is_some() =>
            {
                PushState::Unavailable(cause)
            }
            _ => PushState::Opening,
        }
    }

    /// Returns the part of its ability that stays true while no lock waits.
    fn lasting_ability(&self, now: Timestamp) -> Ability {
        match self.ability {
            refused if now < self.tracked_from => refused,
            _ => Ability::Unknown,
        }
    }

    /// Forgets a push link that was closed because no lock has waited for a while.
    fn put_away(&mut self, ability: Ability, now: Timestamp) {
        self.ability = ability;
        self.stage = Stage::Off { retry_at: now };
        self.failures = 0;
        self.wanted_at = Timestamp::default();
    }

    /// Takes the answer to `CLIENT TRACKING`. An answer about an earlier push link is ignored.
    fn take_track_answer(
        &mut self,
        to: Option<u64>,
        by_choice: bool,
        answer: Token<'_>,
    ) -> Result<TrackingNews, Mistyped> {
        let is_present = to.is_some() && to == self.handshake.client_id();
        match answer {
            Token::Simple(_) if is_present => {
                self.ability = Ability::Given;
                self.tracking = Tracking::On { by_choice };
                self.failures = 0;
                Ok(Some(Ok(())))
            }
            Token::Error(text) if is_present => Ok(Some(Err(classify(text).cause()))),
            Token::Simple(_) | Token::Error(_) => Ok(None),
            _ => Err(Mistyped),
        }
    }

    /// Takes the answer to `CLIENT CACHING`. If that is forbidden, the node reports nothing.
    fn read_caching_answer(&self, answer: Token<'_>) -> Result<TrackingNews, Mistyped> {
        match answer {
            Token::Simple(_) => Ok(None),
            Token::Error(text) => {
                let cause = classify(text).cause();
                // Not if the node does not track by choice, or the push link has been closed since.
                let is_news = cause.is_forbidden() && self.tracks_by_choice();
                Ok(is_news.then_some(Err(cause)))
            }
            _ => Err(Mistyped),
        }
    }

    /// Draws the time after which the push link, or its use, is tried again.
    fn again_in(&self, cause: Cause, env: &mut Env<'_>) -> Duration {
        let (least, most) = env.settings().reconnect_backoff;
        let cap = match lasts(cause) {
            true => UNAVAILABLE_FOR,
            false => most.min(least * (1 << self.failures.min(16))),
        };
        cap / 2 + env.random_below(cap / 2)
    }

    /// Subscribes to the channels that are waited for, and keeps the link open for a while.
    fn begin_to_linger(&mut self, env: &mut Env<'_>) {
        if self.stage == Stage::Subscribed {
            self.subscribe_all(env.now.boot);
            env.arm(self.wanted_at + LINGER);
        }
    }

    /// Lets a closed link be opened for channels at once, and for reports no earlier than before.
    fn reopen_for_channels_only(&mut self, now: Timestamp) {
        if let Stage::Off { retry_at } = &mut self.stage {
            self.tracked_from = mem::replace(retry_at, now);
        }
    }
}
