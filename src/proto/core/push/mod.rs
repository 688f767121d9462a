//! Push links: opened when a lock waits for a node's notifications, and what follows from these.
//!
//! The order is: the push link subscribes; the command link is told to send its invalidations there
//! (`CLIENT TRACKING`); and then each key that is waited for is read once more, which makes the node report its next
//! change, and shows whether it has changed already. A node reports a key once for each time that it is read, so every
//! refused attempt reads it again. `NOLOOP` keeps our own writes out of it. Where locks stand in line, a node reports only
//! what is read behind a `CLIENT CACHING YES` (`OPTIN`), or each script would count as a read of all its keys.
//!
//! The loss of either connection may have swallowed a notification, and counts as one. Where a server cannot or may
//! not send notifications, waiters go by their timers. Not here: what the bytes mean, see `push_link`; what a lock does
//! about a notification, see `waiting`.

mod channels;
mod push_link;

use std::mem;
use std::time::Duration;

use self::channels::Channels;
use self::push_link::{News, PushStep, Reading, Stage, Tracking, push_limits};
use super::Core;
use super::waiting::QueueKey;
use crate::proto::classify::classify;
use crate::proto::config::WakeStrategy;
use crate::proto::core::links::{Ability, Handshake, Inbox, Mistyped, Pending, Pipeline};
use crate::proto::core::locks::{Active, Phase};
use crate::proto::event::LinkOp;
use crate::proto::line::TICKET_PREFIX;
use crate::proto::lock_kind::LockKind;
use crate::proto::mutants::mutant;
use crate::proto::names::{LinkId, LockId, NodeId};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;
use crate::resp::{Decoder, Token, command};

/// The push link of one node.
pub(super) struct Push {
    stage: Stage,
    /// Whether the command link sends its invalidations here.
    tracking: Tracking,
    pipeline: Pipeline<PushStep>,
    inbox: Inbox,
    decoder: Decoder,
    handshake: Handshake,
    reading: Reading,
    /// All keys may have changed, and waiters are not woken yet.
    has_notified_all: bool,
    /// What other libraries have told of, and waiters are not woken yet.
    said: Vec<QueueKey>,
    /// The channels of other libraries that it hears, or is to hear.
    channels: Channels,
    /// Why it hears none of them, if that was found out.
    no_channel: Option<Cause>,
    /// What it could not leave it is not to enter before this.
    channels_from: Timestamp,
    /// Why the node cannot or may not send its invalidations here, as far as the first flight has shown.
    untracked: Option<Cause>,
    /// It is not asked for them again before this.
    tracked_from: Timestamp,
    /// Links that failed since the last one on which notifications were on.
    failures: u32,
    /// When a lock last had a use for it.
    wanted_at: Timestamp,
}

impl Push {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Off { retry_at: Timestamp::default() },
            tracking: Tracking::Off,
            pipeline: Pipeline::new(),
            inbox: Inbox::default(),
            decoder: Decoder::new(push_limits()),
            handshake: Handshake::default(),
            reading: Reading::Start,
            has_notified_all: false,
            said: Vec::new(),
            channels: Channels::default(),
            no_channel: None,
            channels_from: Timestamp::default(),
            untracked: None,
            tracked_from: Timestamp::default(),
            failures: 0,
            wanted_at: Timestamp::default(),
        }
    }

    /// Its connection has ended, and all that belonged to it is forgotten. The locks that may have missed what their
    /// library has told.
    fn reset_connection(&mut self) -> Vec<LockId> {
        self.pipeline = Pipeline::new();
        self.inbox.clear();
        self.decoder = Decoder::new(push_limits());
        self.handshake = Handshake::default();
        self.reading = Reading::Start;
        self.tracking = Tracking::Off;
        self.untracked = None;
        self.said.clear();
        self.channels.disconnected()
    }

    /// The command link has ended, and does not send its invalidations here any more.
    pub(super) fn command_link_lost(&mut self) {
        self.tracking = Tracking::Off;
    }

    /// Another server process is there, which may send notifications although the last one did not.
    pub(super) fn forget_failures(&mut self, now: Timestamp) {
        self.failures = 0;
        self.no_channel = None;
        (self.tracked_from, self.channels_from) = (now, now);
        if let Stage::Off { retry_at } = &mut self.stage {
            *retry_at = now;
        }
    }

    /// When it may be opened, as far as that is of use: where nothing is tracked, for the channels of other libraries.
    fn opens_at(&self, retry_at: Timestamp) -> Timestamp {
        match self.channels.are_of_no_use() {
            true => retry_at.max(self.tracked_from),
            false => retry_at,
        }
    }

    /// Whether a lock may wait for its notifications.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self.stage, Stage::Off { .. }) || self.wanted_at != Timestamp::default()
    }

    /// Whether the node reports changes of what the command link reads from now on.
    pub(super) fn notifies(&self) -> bool {
        self.stage == Stage::Subscribed && matches!(self.tracking, Tracking::On { .. })
    }

    /// Whether it takes subscriptions to channels of other libraries, as far as that is known.
    pub(super) fn takes_channels(&self) -> bool {
        self.stage == Stage::Subscribed && self.no_channel.is_none()
    }

    /// Whether it reports changes only of what is read behind a `CLIENT CACHING YES`, once it has confirmed that.
    pub(super) fn tracks_by_choice(&self) -> bool {
        let (Tracking::Asked { by_choice } | Tracking::On { by_choice }) = self.tracking else {
            return false;
        };
        by_choice
    }

    /// The bytes that wait to be written.
    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        self.pipeline.unsent()
    }

    #[inline]
    pub(super) fn sent(&mut self, bytes: usize) {
        self.pipeline.sent(bytes);
    }

    /// Where the next bytes are to be read to.
    #[inline]
    pub(super) fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }
}

impl Core {
    /// Whether a node sends notifications of changes to those who wait.
    #[must_use]
    pub fn push_state(&self, id: NodeId) -> PushState {
        let node = self.node(id);
        match (node.push.stage, node.capabilities.push()) {
            _ if node.push.notifies() => PushState::Active,
            // A connection that was lost is nobody's concern unless somebody waits for the next.
            (Stage::Off { .. }, Ability::Refused(cause))
                if lasts(cause) || !self.watchers(id).is_empty() =>
            {
                PushState::Unavailable(cause)
            }
            (Stage::Off { .. }, _) => PushState::Off,
            (Stage::Subscribed, Ability::Refused(cause))
                if self.boot < node.push.tracked_from || node.push.untracked.is_some() =>
            {
                PushState::Unavailable(cause)
            }
            _ => PushState::Opening,
        }
    }

    /// Why those who wait for other libraries' locks do not hear what these tell there, if that was found out.
    #[must_use]
    pub fn no_channel(&self, node: NodeId) -> Option<Cause> {
        self.node(node).push.no_channel
    }

    /// Opens the push links of all nodes that vote, as if a lock waited, to see whether they send notifications: the
    /// outcome is in [`push_state`](Self::push_state).
    pub fn try_push(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        for node in self.config.node_ids() {
            if self.node(node).link.is_ready() {
                self.want_push(node, now);
            }
        }
    }

    /// A lock waits for this node's notifications.
    pub(super) fn want_push(&mut self, id: NodeId, now: ClockReading) {
        let push = &mut self.node_mut(id).push;
        push.wanted_at = now.boot;
        match push.stage {
            Stage::Off { retry_at } => match push.opens_at(retry_at) {
                opens_at if now.boot >= opens_at => self.open_push(id, now),
                opens_at => self.arm(opens_at),
            },
            Stage::Subscribed => self.track(id, now),
            Stage::Opening { .. } | Stage::Handshake { .. } => {}
        }
    }

    fn open_push(&mut self, id: NodeId, now: ClockReading) {
        if self.config.settings.wake == WakeStrategy::Timer || !self.node(id).link.is_ready() {
            return;
        }
        let until = now.boot + self.config.settings.connect_timeout;
        self.node_mut(id).push.stage = Stage::Opening { until };
        self.ops.push_back(LinkOp::Open(self.push_link(id)));
        self.arm(until);
    }

    fn push_link(&self, id: NodeId) -> LinkId {
        LinkId::push(id, self.nodes.len())
    }

    pub(super) fn push_connected(&mut self, id: NodeId, now: ClockReading) {
        let settings = self.config.node(id);
        let push = &mut self.nodes[id.index()].push;
        if let Stage::Opening { until } = push.stage {
            push.stage = Stage::Handshake { until };
            push.handshake(settings, &self.config.settings, now.boot);
        }
    }

    /// Bytes came on the push link.
    pub(super) fn push_received(&mut self, id: NodeId, bytes: usize, now: ClockReading) {
        let is_open = |core: &Self| !matches!(core.node(id).push.stage, Stage::Off { .. });
        if !is_open(self) {
            return;
        }
        let mut inbox = mem::take(&mut self.node_mut(id).push.inbox);
        inbox.filled(bytes);
        while is_open(self) {
            match self.nodes[id.index()].push.decoder.next(inbox.unread()) {
                Ok(None) => break,
                Ok(Some((token, len))) => {
                    if self.push_notified(id, token, now).is_err() {
                        self.close_push(id, Cause::UnexpectedReply, now);
                    }
                    inbox.consume(len);
                }
                Err(_) => self.close_push(id, Cause::Violation, now),
            }
        }
        if !is_open(self) {
            inbox.clear();
        }
        let push = &mut self.node_mut(id).push;
        push.inbox = inbox;
        if mem::take(&mut push.has_notified_all) {
            let firsts = self.queues.fronts().collect();
            self.may_be_free(id, firsts, now);
            self.keys_changed(id, now);
        }
        self.hear_others(id, now);
    }

    /// What other libraries have told in one read: each waiter is woken once, also where they tell it on several channels.
    /// A node that reports changes has reported what they tell of before they did.
    fn hear_others(&mut self, id: NodeId, now: ClockReading) {
        let push = &mut self.node_mut(id).push;
        let mut said = mem::take(&mut push.said);
        if mutant!(ChannelIgnored) {
            said.clear();
        }
        if push.notifies() {
            return;
        }
        said.sort_unstable();
        said.dedup();
        // Our own release is told to us as well, while we leave the turn to others.
        let will_look = |core: &Self, of| {
            let first = core.queues.front(of).and_then(|first| core.locks.at_work(first));
            first.is_some_and(|(lock, active)| {
                lock.phase == Phase::Pausing && active.waiting.will_look()
            })
        };
        said.retain(|&of| !will_look(self, of));
        said.into_iter().for_each(|of| self.resource_changed(of, id, now));
    }

    /// Whoever is the first that waits here is to know of it.
    fn resource_changed(&mut self, of: QueueKey, id: NodeId, now: ClockReading) {
        if let Some(first) = self.queues.front(of) {
            self.way_changed(first, id, now);
        }
    }

    fn push_notified(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let settings = self.config.node(id);
        let push = &mut self.nodes[id.index()].push;
        match push.read(token, settings, &self.config.settings)? {
            None => {}
            Some(News::Subscribed(Ok(()))) => self.subscribed(id, now),
            Some(News::Subscribed(Err(cause))) => self.close_push(id, cause, now),
            Some(News::Key(key)) => {
                self.metrics.of(id).pushes += 1;
                match key.strip_prefix(TICKET_PREFIX) {
                    Some(ticket) => self.ticket_changed(id, ticket, now),
                    None => self.resource_changed(self.queues.key(key), id, now),
                }
                self.key_changed(key, now);
            }
            // However many come in one read, each waiter is woken once.
            Some(News::All) => {
                push.has_notified_all = true;
                self.metrics.of(id).pushes += 1;
            }
            Some(News::Said(of)) => {
                push.said.push(of);
                self.metrics.of(id).pushes += 1;
            }
            Some(news) => self.heard_of_channels(id, news, now),
        }
        Ok(())
    }

    fn heard_of_channels(&mut self, id: NodeId, news: News<'_>, now: ClockReading) {
        let push = &mut self.nodes[id.index()].push;
        match news {
            News::Untracked(cause) => {
                push.stage = Stage::Subscribed;
                self.untracked(id, cause, now);
                self.begin_to_linger(id, now);
            }
            // What was told before that was told to others.
            News::Hears(waiter) => {
                let looks = push.tracking == Tracking::Off;
                self.hears(id, waiter);
                self.look_at_keys(id, Vec::from_iter(looks.then_some(waiter)), now);
            }
            News::KeptOut => {
                let is_of_no_use = now.boot < push.tracked_from && push.channels.are_of_no_use();
                if let Some(cause) = push.no_channel.filter(|_| is_of_no_use) {
                    self.close_push(id, cause, now);
                }
            }
            News::CannotLeave(cause) => {
                push.no_channel = Some(cause);
                push.channels_from = now.boot + UNAVAILABLE_FOR;
                self.close_push(id, Cause::default(), now);
                for waiter in self.node_mut(id).push.channels.clear() {
                    if let Some(active) = self.locks.active_mut(waiter) {
                        active.waiting.listen_no_more_at(id);
                    }
                }
            }
            _ => {}
        }
    }

    /// A lock hears its library's channel from now on.
    fn hears(&mut self, id: NodeId, waiter: LockId) {
        let Some(active) = self.locks.active_mut(waiter) else { return };
        if active.foreign().is_some_and(|kind| kind.profile().tells_every_release()) {
            active.waiting.hear_at(id.into());
        }
    }

    fn subscribed(&mut self, id: NodeId, now: ClockReading) {
        self.node_mut(id).push.stage = Stage::Subscribed;
        self.track(id, now);
        self.begin_to_linger(id, now);
    }

    fn begin_to_linger(&mut self, id: NodeId, now: ClockReading) {
        let push = &mut self.node_mut(id).push;
        if push.stage == Stage::Subscribed {
            push.enter_channels(now.boot);
            let due = push.wanted_at + LINGER;
            self.arm(due);
        }
    }

    /// The node cannot or may not report changes. Where another library's channel is to be heard, the link stays for that.
    fn untracked(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        if self.node(id).push.channels.are_of_no_use() {
            self.close_push(id, cause, now);
            let push = &mut self.node_mut(id).push;
            if let Stage::Off { retry_at } = &mut push.stage {
                push.tracked_from = mem::replace(retry_at, now.boot);
            }
            return;
        }
        let again_in = self.again_in(id, cause);
        let push = &mut self.node_mut(id).push;
        let notified = push.notifies();
        push.tracking = Tracking::Off;
        push.tracked_from = now.boot + again_in;
        push.failures = push.failures.saturating_add(1);
        let hearing = push.channels.hearing();
        self.node_mut(id).capabilities.push_is(Ability::Refused(cause));
        self.reports_end(id, notified, notified, now);
        self.look_at_keys(id, hearing, now);
    }

    /// The node reports no more. Whoever relied on that looks.
    fn reports_end(&mut self, id: NodeId, notified: bool, asked: bool, now: ClockReading) {
        if asked && self.node(id).link.takes_extensions() {
            self.send_track(id, None, now);
        }
        if notified {
            self.reports_lost(id, now);
            self.keys_changed(id, now);
        }
    }

    /// Tells the node to report on the push link what the command link reads, once that is subscribed. Both have to lead to
    /// the same process, as far as that can be known: in another one the client id is a stranger's.
    pub(super) fn track(&mut self, id: NodeId, now: ClockReading) {
        let by_choice = self.config.settings.wake == WakeStrategy::Line;
        let node = &mut self.nodes[id.index()];
        let ready = node.push.stage == Stage::Subscribed && node.link.is_ready();
        let Some(to) = node.push.handshake.client_id().filter(|_| ready) else { return };
        if let (Some(here), Some(there)) = (node.push.handshake.run_id(), node.server.run_id())
            && here != there
        {
            return self.close_push(id, Cause::ConnectionReset, now);
        }
        // Reports to a connection that does not hear them would be lost.
        let is_due = node.push.untracked.is_none() && now.boot >= node.push.tracked_from;
        if node.push.tracking == Tracking::Off && is_due {
            node.push.tracking = Tracking::Asked { by_choice };
            self.send_track(id, Some(to), now);
        }
    }

    fn send_track(&mut self, id: NodeId, to: Option<u64>, now: ClockReading) {
        let pipeline = &mut self.nodes[id.index()].pipeline;
        let by_choice = self.config.settings.wake == WakeStrategy::Line;
        pipeline.push(Pending::Track { to }, now.boot, |out| match to {
            Some(to) => {
                let track = command(out, 6 + usize::from(by_choice));
                let track = track.arg(b"CLIENT").arg(b"TRACKING").arg(b"ON");
                let track = track.arg(b"REDIRECT").int(to).arg(b"NOLOOP");
                let _ = by_choice.then(|| track.arg(b"OPTIN"));
            }
            None => {
                let _ = command(out, 3).arg(b"CLIENT").arg(b"TRACKING").arg(b"OFF");
            }
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    pub(super) fn track_answered(
        &mut self,
        id: NodeId,
        to: Option<u64>,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let by_choice = self.config.settings.wake == WakeStrategy::Line;
        let node = self.node_mut(id);
        let is_present = to.is_some() && to == node.push.handshake.client_id();
        match answer {
            Token::Simple(_) if is_present => {
                node.capabilities.push_is(Ability::Given);
                node.push.tracking = Tracking::On { by_choice };
                node.push.failures = 0;
                self.look_at_keys(id, self.watchers(id), now);
                self.keys_changed(id, now);
            }
            Token::Error(text) if is_present => {
                self.untracked(id, classify(text).cause(), now);
            }
            Token::Simple(_) | Token::Error(_) => {}
            _ => return Err(Mistyped),
        }
        Ok(())
    }

    /// `CLIENT CACHING` was answered. Where it is forbidden, the node reports nothing: if it was to, and not on a push link that
    /// is closed since.
    pub(super) fn caching_answered(
        &mut self,
        id: NodeId,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        match answer {
            Token::Simple(_) => {}
            Token::Error(text) => {
                let cause = classify(text).cause();
                if cause.is_forbidden() && self.node(id).push.tracks_by_choice() {
                    self.untracked(id, cause, now);
                }
            }
            _ => return Err(Mistyped),
        }
        Ok(())
    }

    /// What these locks wait for may have changed before the node began to report that, or another library was heard.
    fn look_at_keys(&mut self, id: NodeId, locks: Vec<LockId>, now: ClockReading) {
        for lock in locks {
            self.look_at_way(lock, id, now);
        }
    }

    /// A lock waits for a lead's notifications. If it is of a library that tells of releases on channels, these are heard
    /// as well.
    pub(super) fn listen(&mut self, id: LockId, node: NodeId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let push = &mut self.nodes[node.index()].push;
        let profile = active.foreign().map(LockKind::profile).filter(|it| it.has_channels());
        let (Some(profile), true) = (profile, now.boot >= push.channels_from) else { return };
        if !active.waiting.listen_at(node.into()) {
            return;
        }
        let of = self.queues.key(active.keys.first());
        for name in profile.channels(active.keys.first()) {
            push.hear(&name, of, id, now.boot);
        }
    }

    /// A lock does not wait any longer. Whoever is next in its queue hears the channels in its place, if it would hear the
    /// same ones.
    pub(super) fn stop_listening(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let (nodes, heard) = active.waiting.stop_listening();
        let Some(kind) = active.foreign().filter(|_| !nodes.is_empty()) else { return };
        let names = kind.profile().channels(active.keys.first());
        let heir = self.heir(id);
        if let Some(heir) = heir.and_then(|heir| self.locks.active_mut(heir)) {
            heir.waiting.listen_at(nodes);
            heir.waiting.hear_at(heard);
        }
        for node in nodes.iter() {
            let push = &mut self.nodes[node.index()].push;
            names.iter().for_each(|name| push.no_longer_hear(name, id, heir, now.boot));
        }
    }

    /// Who waits behind a lock for the same, as the same library does.
    fn heir(&self, id: LockId) -> Option<LockId> {
        let active = self.locks.active(id)?;
        let next = self.queues.behind(active.waiting.place()?)?;
        let profile = |of: &Active| of.foreign().map(LockKind::profile);
        let is_heir = |next: &Active| {
            profile(next) == profile(active) && next.keys.first() == active.keys.first()
        };
        self.locks.active(next).is_some_and(is_heir).then_some(next)
    }

    /// The locks that wait for this node's notifications.
    fn watchers(&self, node: NodeId) -> Vec<LockId> {
        let waits = |id: &LockId| {
            self.locks.at_work(*id).is_some_and(|(lock, active)| {
                matches!(lock.phase, Phase::Asking | Phase::Pausing)
                    && active.waiting.leads().contains(node)
            })
        };
        self.locks.ids().filter(waits).collect()
    }

    /// The push link could not be opened, or its connection ended.
    pub(super) fn push_severed(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let push = &self.node(id).push;
        if matches!(push.stage, Stage::Off { .. }) {
            return;
        }
        let (notified, asked) = (push.notifies(), push.tracking != Tracking::Off);
        let retry_at = now.boot + self.again_in(id, cause);
        let push = &mut self.node_mut(id).push;
        let missed = push.reset_connection();
        for &lock in &missed {
            let lock = self.locks.active_mut(lock);
            lock.into_iter().for_each(|active| active.waiting.hear_no_more_at(id));
        }
        let push = &mut self.node_mut(id).push;
        push.stage = Stage::Off { retry_at };
        push.failures = push.failures.saturating_add(1);
        self.node_mut(id).capabilities.push_is(Ability::Refused(cause));
        let watchers = self.watchers(id);
        if !watchers.is_empty() {
            self.arm(retry_at);
        }
        self.reports_end(id, notified, asked, now);
        if !notified {
            self.may_be_free(id, missed, now);
        }
    }

    /// After how long the push link, or what it is for, is tried again.
    fn again_in(&mut self, id: NodeId, cause: Cause) -> Duration {
        let (least, most) = self.config.settings.reconnect_backoff;
        let cap = match lasts(cause) {
            true => UNAVAILABLE_FOR,
            false => most.min(least * (1 << self.node(id).push.failures.min(16))),
        };
        cap / 2 + self.entropy.below(cap / 2)
    }

    fn close_push(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        self.ops.push_back(LinkOp::Close(self.push_link(id)));
        self.push_severed(id, cause, now);
    }

    /// The command link is gone, and with it what the node was to report.
    pub(super) fn reports_lost(&mut self, id: NodeId, now: ClockReading) {
        self.may_be_free(id, self.watchers(id), now);
    }

    /// What these locks wait for at a node may have changed unheard.
    fn may_be_free(&mut self, id: NodeId, locks: Vec<LockId>, now: ClockReading) {
        locks.into_iter().for_each(|lock| self.changed_at(lock, id, now));
    }

    pub(super) fn push_due(&mut self, id: NodeId, now: ClockReading) {
        let (is_ready, push) = (self.node(id).link.is_ready(), &self.node(id).push);
        match push.stage {
            Stage::Off { .. } if push.wanted_at == Timestamp::default() => {}
            Stage::Off { retry_at } => match push.opens_at(retry_at) {
                opens_at if now.boot < opens_at => self.arm(opens_at),
                // It could not be opened, and to look for those who wait for it is a walk.
                _ if !is_ready => {}
                _ if self.watchers(id).is_empty() => {
                    self.node_mut(id).push.wanted_at = Timestamp::default();
                }
                _ => self.want_push(id, now),
            },
            Stage::Opening { until } | Stage::Handshake { until } if now.boot >= until => {
                self.close_push(id, Cause::NoAnswer, now);
            }
            Stage::Opening { until } | Stage::Handshake { until } => self.arm(until),
            Stage::Subscribed if now.boot >= push.wanted_at + LINGER => {
                if self.watchers(id).is_empty() {
                    self.put_push_away(id, now);
                } else {
                    self.want_push(id, now);
                    self.arm(now.boot + LINGER);
                }
            }
            Stage::Subscribed => {
                let due = push.wanted_at + LINGER;
                self.arm(due);
            }
        }
    }

    /// Nobody has waited for a while.
    fn put_push_away(&mut self, id: NodeId, now: ClockReading) {
        let ability = match self.node(id).capabilities.push() {
            refused if now.boot < self.node(id).push.tracked_from => refused,
            _ => Ability::Unknown,
        };
        self.close_push(id, Cause::default(), now);
        let node = self.node_mut(id);
        node.capabilities.push_is(ability);
        node.push.stage = Stage::Off { retry_at: now.boot };
        node.push.failures = 0;
        node.push.wanted_at = Timestamp::default();
    }
}

/// Whether the server cannot send notifications, or forbids it.
fn lasts(cause: Cause) -> bool {
    cause.is_configuration() || cause == Cause::ServerError
}

/// Whether a node sends notifications of changes to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushState {
    /// Nobody waits for it.
    Off,
    /// It is being arranged.
    Opening,
    /// It sends them.
    Active,
    /// It cannot or may not, or a lock waits and its connection is lost: waiters go by their timers. It is tried again
    /// after a while.
    Unavailable(Cause),
}

/// A push link that nobody has a use for is closed after so long.
const LINGER: Duration = Duration::from_secs(5);

/// A server that cannot send notifications, or forbids it, is asked again after so long.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(60);
