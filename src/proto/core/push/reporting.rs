//! How one node comes to report changes: its push link from opening to loss, and what its command link is told for that.
//!
//! Invariant: a transition here changes this node only. Which locks look, and which are woken, follows from what it returns.

use std::mem;
use std::time::Duration;

use super::push_link::{Stage, Tracking};
use super::{LINGER, Push, PushState, Severed, Timer, UNAVAILABLE_FOR, lasts};
use crate::proto::classify::classify;
use crate::proto::config::WakeStrategy;
use crate::proto::core::Env;
use crate::proto::core::effects::NodeEffect;
use crate::proto::core::links::{Ability, Mistyped, Node, Pending};
use crate::proto::names::{LinkId, LockId};
use crate::proto::time::Timestamp;
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

/// What an answer says of reports: that they begin, or why there are none; `None` if it says nothing.
type TrackingNews = Option<Result<(), Cause>>;

/// The push link.
impl Node {
    /// Opens the push link, or keeps it open, for a lock that waits or an observer.
    pub(in crate::proto::core) fn want_push(&mut self, env: &mut Env<'_>) {
        let now = env.now().boot;
        self.push.wanted_at = now;
        match self.push.stage {
            Stage::Off { retry_at } => match self.push.opens_at(retry_at) {
                opens_at if now >= opens_at => self.open_push(env),
                opens_at => env.arm(opens_at),
            },
            Stage::Subscribed => {
                let closes = self.track(env);
                closes
                    .into_iter()
                    .for_each(|cause| env.of_node(self.id(), NodeEffect::ClosePush(cause)));
            }
            Stage::Opening { .. } | Stage::Handshake { .. } => {}
        }
    }

    fn open_push(&mut self, env: &mut Env<'_>) {
        let settings = env.settings();
        if settings.wake == WakeStrategy::Timer || !self.link.is_ready() {
            return;
        }
        let until = env.now().boot + settings.connect_timeout;
        self.push.stage = Stage::Opening { until };
        env.open_link(LinkId::push(self.id(), settings.nodes.len()));
        env.arm(until);
    }

    /// Begins the first flight on a socket that is connected.
    pub(in crate::proto::core) fn begin_push(&mut self, env: &Env<'_>) {
        if let Stage::Opening { until } = self.push.stage {
            self.push.stage = Stage::Handshake { until };
            let node = env.settings_of(self.id());
            self.push.handshake(node, env.settings(), env.now().boot);
        }
    }

    /// Ends the connection of the push link, and with it the reports. Returns `None` if there was none.
    pub(super) fn sever_push(&mut self, cause: Cause, env: &mut Env<'_>) -> Option<Severed> {
        if matches!(self.push.stage, Stage::Off { .. }) {
            return None;
        }
        let (notified, asked) = (self.push.notifies(), self.push.tracking != Tracking::Off);
        let retry_at = env.now().boot + self.push.again_in(cause, env);
        let missed = self.push.reset_connection();
        self.push.stage = Stage::Off { retry_at };
        self.push.failures = self.push.failures.saturating_add(1);
        self.push.ability = Ability::Refused(cause);
        if asked {
            self.send_track_off(env);
        }
        Some(Severed { notified, missed, retry_at })
    }
}

/// Reports.
impl Node {
    /// Tells the node to report on the push link what the command link reads, once that is subscribed. Both have to lead to
    /// the same process, as far as that can be known: in another one the client id is a stranger's. Returns why the push
    /// link has to be closed, if so.
    #[must_use]
    pub(super) fn track(&mut self, env: &mut Env<'_>) -> Option<Cause> {
        let ready = self.push.stage == Stage::Subscribed && self.link.is_ready();
        let to = self.push.handshake.client_id().filter(|_| ready)?;
        if let (Some(here), Some(there)) = (self.push.handshake.run_id(), self.server.run_id())
            && here != there
        {
            return Some(Cause::ConnectionReset);
        }
        // Reports to a connection that does not hear them would be lost.
        let is_due = self.push.untracked.is_none() && env.now().boot >= self.push.tracked_from;
        if self.push.tracking == Tracking::Off && is_due {
            let by_choice = env.settings().wake == WakeStrategy::Line;
            self.push.tracking = Tracking::Asked { by_choice };
            self.send_track(to, by_choice, env);
        }
        None
    }

    fn send_track(&mut self, to: u64, by_choice: bool, env: &mut Env<'_>) {
        let now = env.now().boot;
        self.pipeline.push(Pending::Track { to: Some(to) }, now, |out| {
            let track = command(out, 6 + usize::from(by_choice));
            let track = track.arg(b"CLIENT").arg(b"TRACKING").arg(b"ON");
            let track = track.arg(b"REDIRECT").int(to).arg(b"NOLOOP");
            let _ = by_choice.then(|| track.arg(b"OPTIN"));
        });
        env.arm(now + env.settings().dead_peer_timeout);
    }

    /// Tells the node to report no more, if it can be told.
    fn send_track_off(&mut self, env: &mut Env<'_>) {
        if !self.link.takes_extensions() {
            return;
        }
        let now = env.now().boot;
        self.pipeline.push(Pending::Track { to: None }, now, |out| {
            let _ = command(out, 3).arg(b"CLIENT").arg(b"TRACKING").arg(b"OFF");
        });
        env.arm(now + env.settings().dead_peer_timeout);
    }

    /// Stops reports that the node cannot or may not send; the push link stays for the channels of other libraries. Returns
    /// the locks that hear one.
    pub(super) fn stop_tracking(&mut self, cause: Cause, env: &mut Env<'_>) -> Vec<LockId> {
        let again_in = self.push.again_in(cause, env);
        let notified = self.push.notifies();
        self.push.tracking = Tracking::Off;
        self.push.tracked_from = env.now().boot + again_in;
        self.push.failures = self.push.failures.saturating_add(1);
        self.push.ability = Ability::Refused(cause);
        if notified {
            self.send_track_off(env);
        }
        self.push.channels.hearing()
    }
}

impl Push {
    /// Whether the node sends notifications to those who wait. `is_watched` says whether a lock waits for them.
    pub(super) fn state(&self, now: Timestamp, is_watched: impl FnOnce() -> bool) -> PushState {
        match (self.stage, self.ability) {
            _ if self.notifies() => PushState::Active,
            // A connection that was lost is nobody's concern unless somebody waits for the next.
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

    /// Does what the timer of the push link asks for, as far as it concerns this node only. `may_open` if the node votes.
    pub(super) fn check_timer(&self, may_open: bool, env: &mut Env<'_>) -> Timer {
        let now = env.now().boot;
        let due = match self.stage {
            Stage::Off { .. } if self.wanted_at == Timestamp::default() => return Timer::Runs,
            Stage::Off { retry_at } => self.opens_at(retry_at),
            Stage::Opening { until } | Stage::Handshake { until } => until,
            Stage::Subscribed => self.wanted_at + LINGER,
        };
        if now < due {
            env.arm(due);
            return Timer::Runs;
        }
        match self.stage {
            // It could not be opened, and to look for those who wait for it is a walk.
            Stage::Off { .. } if !may_open => Timer::Runs,
            Stage::Off { .. } => Timer::Opens,
            Stage::Opening { .. } | Stage::Handshake { .. } => Timer::Closes(Cause::NoAnswer),
            Stage::Subscribed => Timer::Lingered,
        }
    }

    /// What is known of the node's reports, as far as it is worth knowing when nobody waits.
    pub(super) fn lasting_ability(&self, now: Timestamp) -> Ability {
        match self.ability {
            refused if now < self.tracked_from => refused,
            _ => Ability::Unknown,
        }
    }

    /// Forgets a push link that was closed because nobody has waited for a while.
    pub(super) fn put_away(&mut self, ability: Ability, now: Timestamp) {
        self.ability = ability;
        self.stage = Stage::Off { retry_at: now };
        self.failures = 0;
        self.wanted_at = Timestamp::default();
    }

    /// Takes the answer to `CLIENT TRACKING`. One that is about an earlier push link says nothing.
    pub(super) fn take_track_answer(
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

    /// Takes the answer to `CLIENT CACHING`. Where it is forbidden, the node reports nothing: if it was to, and not on a
    /// push link that is closed since.
    pub(super) fn read_caching_answer(&self, answer: Token<'_>) -> Result<TrackingNews, Mistyped> {
        match answer {
            Token::Simple(_) => Ok(None),
            Token::Error(text) => {
                let cause = classify(text).cause();
                let is_news = cause.is_forbidden() && self.tracks_by_choice();
                Ok(is_news.then_some(Err(cause)))
            }
            _ => Err(Mistyped),
        }
    }

    /// Draws after how long the push link, or what it is for, is tried again.
    fn again_in(&self, cause: Cause, env: &mut Env<'_>) -> Duration {
        let (least, most) = env.settings().reconnect_backoff;
        let cap = match lasts(cause) {
            true => UNAVAILABLE_FOR,
            false => most.min(least * (1 << self.failures.min(16))),
        };
        cap / 2 + env.random_below(cap / 2)
    }

    /// Enters the channels that are waited for, and keeps the link open for a while.
    pub(super) fn begin_to_linger(&mut self, env: &mut Env<'_>) {
        if self.stage == Stage::Subscribed {
            self.enter_channels(env.now().boot);
            env.arm(self.wanted_at + LINGER);
        }
    }

    /// Lets a closed link be opened at once for channels, and for reports as late as it was to be opened.
    pub(super) fn reopen_for_channels_only(&mut self, now: Timestamp) {
        if let Stage::Off { retry_at } = &mut self.stage {
            self.tracked_from = mem::replace(retry_at, now);
        }
    }
}
