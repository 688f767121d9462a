//! Push links: opened when a lock waits for a node's notifications, and what follows from these.
//!
//! The order is: the push link subscribes; the command link is told to send its invalidations there
//! (`CLIENT TRACKING`); and then each key that is waited for is read once more, which makes the node report its next
//! change, and shows whether it has changed already. A node reports a key once for each time that it is read, so every
//! refused attempt reads it again. `NOLOOP` keeps our own writes out of it. Where locks wait in the queue, a node reports only
//! what is read behind a `CLIENT CACHING YES` (`OPTIN`), or each script would count as a read of all its keys.
//!
//! The loss of either connection may have swallowed a notification, and counts as one. Where a server cannot or may
//! not send notifications, waiters go by their timers. What one node does by itself is in `tracking`. Not here: what the bytes mean, see `push_link`; what a lock does
//! about a notification, see `waiting`.

mod channels;
mod push_link;
mod tracking;

use std::mem;
use std::time::Duration;

use self::channels::Channels;
use self::push_link::{Cursor, News, PushStep, Stage, Tracking, push_limits};
use super::Core;
use super::effects::{Effect, LockEffect, NodeEffect};
use super::waiting::QueueKey;
use crate::proto::core::links::{Ability, Handshake, Inbox, Mistyped, Pipeline};
use crate::proto::core::locks::{Locks, Phase};
use crate::proto::fair_queue::TICKET_PREFIX;
use crate::proto::lock_kind::LockKind;
use crate::proto::mutants::mutant;
use crate::proto::names::{LockId, NodeId, TicketName};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;
use crate::resp::{Decoder, Token, Violation};

/// The push link of one node.
pub(super) struct Push {
    stage: Stage,
    /// Whether the command link sends its invalidations here.
    tracking: Tracking,
    pipeline: Pipeline<PushStep>,
    inbox: Inbox,
    decoder: Decoder,
    handshake: Handshake,
    reading: Cursor,
    /// All keys may have changed, and waiters are not woken yet.
    has_notified_all: bool,
    /// The resources about which other libraries have published messages, and whose waiters are not woken yet.
    published: Vec<QueueKey>,
    /// The channels of other libraries that it is subscribed to, or is to be.
    channels: Channels,
    /// Why it is subscribed to none of them, if that was found out.
    no_channel: Option<Cause>,
    /// It does not subscribe before this, because the node refused to end a subscription.
    channels_from: Timestamp,
    /// Whether the node can and may send notifications. That is a matter of two connections, and is tried again in its own
    /// time.
    ability: Ability,
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
            reading: Cursor::Start,
            has_notified_all: false,
            published: Vec::new(),
            channels: Channels::default(),
            no_channel: None,
            channels_from: Timestamp::default(),
            ability: Ability::Unknown,
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
        self.reading = Cursor::Start;
        self.tracking = Tracking::Off;
        self.untracked = None;
        self.published.clear();
        self.channels.disconnected()
    }

    /// The command link has ended, and does not send its invalidations here any more.
    pub(super) fn command_link_lost(&mut self) {
        self.tracking = Tracking::Off;
    }

    /// Another server process is there, which may send notifications although the last one did not.
    pub(super) fn forget_failures(&mut self, now: Timestamp) {
        self.failures = 0;
        self.ability = Ability::Unknown;
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

    /// Whether the node sends notifications, as far as it has shown.
    pub(super) fn ability(&self) -> Ability {
        self.ability
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

    /// Whether there is a connection, or will be.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Off { .. })
    }

    /// Takes the inbox out, so that tokens can borrow it while what they tell changes everything else.
    pub(super) fn take_inbox(&mut self) -> Inbox {
        mem::take(&mut self.inbox)
    }

    pub(super) fn give_back(&mut self, inbox: Inbox) {
        self.inbox = inbox;
    }

    /// The next token of what was read, and how long it is.
    pub(super) fn decode<'t>(
        &mut self,
        unread: &'t [u8],
    ) -> Result<Option<(Token<'t>, usize)>, Violation> {
        self.decoder.next(unread)
    }
}

impl Core {
    /// Whether a node sends notifications of changes to those who wait.
    #[must_use]
    pub fn push_state(&self, node: NodeId) -> PushState {
        self.node(node).push.state(self.boot, || self.locks.watchers(node).next().is_some())
    }

    /// Why waiters for locks of other libraries are not subscribed to the channels of those there, if that was found out.
    #[must_use]
    pub fn no_channel(&self, node: NodeId) -> Option<Cause> {
        self.node(node).push.no_channel
    }

    /// All that was read is understood. All keys may have changed.
    pub(super) fn wake_all_if_notified(&mut self, id: NodeId) {
        if mem::take(&mut self.node_mut(id).push.has_notified_all) {
            self.common.effects.of_locks(self.queues.fronts(), LockEffect::WakeBy(id));
            self.common.effects.of_node(id, NodeEffect::RefreshObservers);
        }
    }

    /// Notifies the waiters for what other libraries have published in one read, once each. A node that reports changes has
    /// reported those before.
    pub(super) fn notify_published(&mut self, node: NodeId) {
        let push = &mut self.node_mut(node).push;
        let mut published = mem::take(&mut push.published);
        if mutant!(ChannelIgnored) {
            published.clear();
        }
        if push.notifies() {
            return;
        }
        published.sort_unstable();
        published.dedup();
        // Our own release is published to us as well, while we leave the turn to others.
        let will_read = |core: &Self, of| {
            let first = core.queues.front(of).and_then(|first| core.locks.at_work(first));
            first.is_some_and(|(lock, active)| {
                lock.phase == Phase::Pausing && active.waiting.will_read()
            })
        };
        published.retain(|&of| !will_read(self, of));
        for queue in published {
            self.common.effects.of_node(node, NodeEffect::Notified(queue));
        }
    }

    pub(super) fn push_notified(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let (node, mut env) = self.node_in_env(id, now);
        let push = &mut node.push;
        match push.read(token, env.config.node(id), env.settings())? {
            None => {}
            Some(News::Subscribed(Ok(()))) => node.complete_push(None, &mut env),
            Some(News::Subscribed(Err(cause))) => node.close_push(cause, &mut env),
            Some(News::Untracked(cause)) => node.complete_push(Some(cause), &mut env),
            Some(News::Key(key)) => self.key_notified(id, key, now),
            // However many come in one read, each waiter is woken once.
            Some(News::All) => {
                push.has_notified_all = true;
                env.metrics.of(id).pushes += 1;
            }
            Some(News::Published(of)) => {
                push.published.push(of);
                env.metrics.of(id).pushes += 1;
            }
            // Messages that were published before did not reach this lock.
            Some(News::Confirmed(waiter)) => {
                if push.tracking == Tracking::Off {
                    env.effects.of_lock(waiter, LockEffect::ReadKeyAt(id));
                }
                self.with_waiter(waiter, now, |it| it.confirm_channel(id));
            }
            Some(News::ChannelRefused) => node.refuse_channel(&mut env),
            Some(News::UnsubscribeRefused(cause)) => {
                for waiter in node.drop_channels(cause, &mut env) {
                    self.with_waiter(waiter, now, |it| it.unsubscribe_at(id));
                }
            }
        }
        Ok(())
    }

    /// A node reports that a key has changed.
    fn key_notified(&mut self, id: NodeId, key: &[u8], now: ClockReading) {
        self.common.metrics.of(id).pushes += 1;
        if let Some(name) = key.strip_prefix(TICKET_PREFIX) {
            if let Some(lock) = self.queues.listener(TicketName::of(name)) {
                self.with_waiter(lock, now, |it| it.ticket_notified(id));
            }
        } else {
            self.common.effects.of_node(id, NodeEffect::Notified(self.queues.key(key)));
        }
        let observers = self.observers.of(key);
        observers.for_each(|it| self.common.effects.push(Effect::WakeObserver(it)));
    }

    /// A lock waits no longer. The next in its queue takes over its subscriptions, if it needs the same ones.
    pub(super) fn unsubscribe(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let (nodes, confirmed) = active.waiting.unsubscribe();
        let Some(kind) = active.foreign().filter(|_| !nodes.is_empty()) else { return };
        let names = kind.profile().channels(active.keys.first());
        let behind = active.waiting.place().and_then(|place| self.queues.behind(place));
        let heir = behind.filter(|&heir| self.locks.want_the_same(id, heir));
        if let Some(heir) = heir.and_then(|heir| self.locks.active_mut(heir)) {
            heir.waiting.subscribe_at(nodes);
            heir.waiting.confirm_at(confirmed);
        }
        for node in nodes.iter() {
            let push = &mut self.nodes[node.index()].push;
            names.iter().for_each(|name| push.unsubscribe(name, id, heir, now.boot));
        }
    }

    pub(super) fn close_push(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let (node, mut env) = self.node_in_env(id, now);
        node.close_push(cause, &mut env);
    }
}

impl Locks {
    /// The locks that wait for this node's notifications. To look for them is a walk.
    pub(super) fn watchers(&self, node: NodeId) -> impl Iterator<Item = LockId> {
        self.ids().filter(move |id| {
            self.at_work(*id).is_some_and(|(lock, active)| {
                matches!(lock.phase, Phase::Asking | Phase::Pausing)
                    && active.waiting.leads().contains(node)
            })
        })
    }

    /// Whether two locks wait for the same resource as the same library does.
    fn want_the_same(&self, one: LockId, other: LockId) -> bool {
        let wanted = |id| {
            let active = self.active(id)?;
            Some((active.foreign().map(LockKind::profile), active.keys.first()))
        };
        wanted(one) == wanted(other)
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
