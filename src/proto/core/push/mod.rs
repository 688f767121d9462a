//! Push links: the second connection to a node, on which it sends notifications to waiters.
//!
//! The order of steps matters. The push link subscribes; the command link is told to send its
//! invalidations there (`CLIENT TRACKING`); then each key that is waited for is read again, which
//! makes the node report its next change and shows whether it has changed already. A node reports a
//! key once for each read, so every refused attempt reads it again. `NOLOOP` excludes our own
//! writes. If locks wait in the queue, a node reports only what is read behind a `CLIENT CACHING
//! YES` (`OPTIN`), because otherwise each script would count as a read of all its keys.
//!
//! A notification is a hint: losing one costs time only. The loss of either connection may have
//! swallowed one, and counts as one. Without notifications, waiters rely on their timers. See
//! docs/how-it-works/waiters.md.

mod channels;
mod notifications;
mod push_link;
mod tracking;

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use super::waiting::QueueKey;
use crate::proto::core::links::handshake::{Handshake, Step};
use crate::proto::core::links::{capability::Ability, inbox::Inbox, pipeline::Pipeline};
use crate::proto::{names::LockId, time::Timestamp, vote::Cause};
use crate::resp::{Decoder, Limits, Token, Violation};

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
    /// Whether all keys may have changed, and the waiters are not woken yet.
    has_notified_all: bool,
    /// The resources about which other libraries have published messages, and whose waiters are not
    /// woken yet.
    published: Vec<QueueKey>,
    /// The channels of other libraries to which it is subscribed, or will be.
    channels: Channels,
    /// The reason why it is subscribed to none of them, if known.
    no_channel: Option<Cause>,
    /// The time before which it subscribes to no channel, because the node refused to end a
    /// subscription.
    channels_from: Timestamp,
    /// Whether the node can and may send notifications. This depends on two connections, and is
    /// tried again independently of them.
    ability: Ability,
    /// The reason why the node cannot or may not send its invalidations here, as far as the first
    /// flight has shown.
    untracked: Option<Cause>,
    /// The time before which the node is not asked for invalidations again.
    tracked_from: Timestamp,
    /// The number of links that failed since one last notified.
    failures: u32,
    /// The time at which a lock last had a use for it. Zero if none has.
    wanted_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The link is closed, and not to be opened before `retry_at`.
    Off { retry_at: Timestamp },
    /// The socket is being connected.
    Opening { until: Timestamp },
    /// The first flight has not been answered.
    Handshake { until: Timestamp },
    /// The link is subscribed.
    Subscribed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracking {
    Off,
    /// The node was asked to report changes, and has not confirmed.
    Asked {
        by_choice: bool,
    },
    /// The node reports changes of the keys that the command link reads or, by choice, only of
    /// those that it announces.
    On {
        by_choice: bool,
    },
}

/// A command on a push link: a part of the first flight, or one about a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PushStep {
    Handshake(Step),
    Subscribe,
    SubscribeTo(Box<[u8]>),
    UnsubscribeFrom(Box<[u8]>),
}

/// The part of the current message that is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    /// The next message.
    Start,
    Kind,
    /// A confirmation: the channel, then the number of channels.
    Subscribe,
    Unsubscribe,
    Count,
    /// A message: the channel, then its keys, or the message of another library about this
    /// resource.
    Channel,
    Published(QueueKey),
    Body,
    Keys(u32),
}

/// An event on a push link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News<'b> {
    /// A change of any number of keys.
    All,
    /// This key has changed.
    Key(&'b [u8]),
    /// The first flight has ended.
    Subscribed(Result<(), Cause>),
    /// The first flight has ended, but the node cannot or may not report changes here.
    Untracked(Cause),
    /// A message of another library about this resource.
    Published(QueueKey),
    /// The node has confirmed the subscription of a lock to a channel of its library.
    Confirmed(LockId),
    /// The node refuses a subscription.
    ChannelRefused,
    /// The node refuses to end a subscription.
    UnsubscribeRefused(Cause),
}

/// The channels of one push link, by name.
#[derive(Default)]
struct Channels(BTreeMap<Box<[u8]>, Channel>);

struct Channel {
    /// The resource of the channel.
    of: QueueKey,
    /// The lock that waits for it. Without one the channel has been left, which is not confirmed
    /// yet.
    waiter: Option<LockId>,
    /// Whether the last command about it on this connection was a subscription.
    is_subscribed: bool,
    /// The number of commands about it without an answer.
    due: u32,
    /// The result of the last command that was answered.
    state: ChannelState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelState {
    Off,
    On,
    Forbidden,
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

    /// Forgets the connection, which has ended. Returns the locks that may have missed a message of
    /// their library.
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

    /// Records that the command link has ended, and sends no invalidations any longer.
    pub(super) fn command_link_lost(&mut self) {
        // The next connection of the command link must ask for tracking again.
        self.tracking = Tracking::Off;
    }

    /// Forgets all failures, because another server process may be able to notify.
    pub(super) fn forget_failures(&mut self, now: Timestamp) {
        self.failures = 0;
        self.ability = Ability::Unknown;
        self.no_channel = None;
        // The limits were those of the other process.
        (self.tracked_from, self.channels_from) = (now, now);
        if let Stage::Off { retry_at } = &mut self.stage {
            *retry_at = now;
        }
    }

    /// Returns when it may be opened, as far as that is useful.
    fn opens_at(&self, retry_at: Timestamp) -> Timestamp {
        // If the node does not track, only a channel is a reason to open the link.
        match self.channels.are_of_no_use() {
            true => retry_at.max(self.tracked_from),
            false => retry_at,
        }
    }

    /// Returns whether a lock may wait for its notifications.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self.stage, Stage::Off { .. }) || self.wanted_at != Timestamp::default()
    }

    /// Returns whether the node reports changes of the keys that the command link reads.
    pub(super) fn notifies(&self) -> bool {
        self.stage == Stage::Subscribed && matches!(self.tracking, Tracking::On { .. })
    }

    pub(super) fn ability(&self) -> Ability {
        self.ability
    }

    /// Returns whether it takes subscriptions to channels of other libraries, as far as is known.
    pub(super) fn takes_channels(&self) -> bool {
        self.stage == Stage::Subscribed && self.no_channel.is_none()
    }

    /// Returns whether, once confirmed, it reports only keys that are read behind a `CLIENT CACHING
    /// YES`.
    pub(super) fn tracks_by_choice(&self) -> bool {
        let (Tracking::Asked { by_choice } | Tracking::On { by_choice }) = self.tracking else {
            return false;
        };
        by_choice
    }

    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        self.pipeline.unsent()
    }

    #[inline]
    pub(super) fn sent(&mut self, bytes: usize) {
        self.pipeline.sent(bytes);
    }

    #[inline]
    pub(super) fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// Returns whether there is a connection, or will be.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Off { .. })
    }

    /// Takes the inbox, so that tokens can borrow it while their news change everything else.
    pub(super) fn take_inbox(&mut self) -> Inbox {
        mem::take(&mut self.inbox)
    }

    pub(super) fn give_back(&mut self, inbox: Inbox) {
        self.inbox = inbox;
    }

    pub(super) fn decode<'t>(
        &mut self,
        unread: &'t [u8],
    ) -> Result<Option<(Token<'t>, usize)>, Violation> {
        self.decoder.next(unread)
    }
}

/// Returns whether the server cannot send notifications, or forbids them.
fn lasts(cause: Cause) -> bool {
    cause.is_configuration() || cause == Cause::ServerError
}

/// The notifications of a node to waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushState {
    /// The link is not in use: no lock waits for notifications.
    Off,
    /// The connection is being prepared.
    Opening,
    /// The node sends them.
    Active,
    /// The node cannot or may not send them, or a lock waits and the connection is lost. Waiters
    /// rely on their timers. It is tried again after a while.
    Unavailable(Cause),
}

/// The time after which a push link without a use is closed.
const LINGER: Duration = Duration::from_secs(5);

/// The time after which a server that cannot send notifications, or forbids them, is asked again.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(60);

/// Returns the limits of a message. It usually names one key; a maximum is not documented.
fn push_limits() -> Limits {
    Limits { bulk: 64 << 10, depth: 2, elements: 1 << 16, line: 64 << 10, reply: 1 << 20 }
}
