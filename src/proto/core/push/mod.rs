//! Push links: opened when a lock waits for a node's notifications, and what follows from these.
//!
//! The order is: the push link subscribes; the command link is told to send its invalidations there
//! (`CLIENT TRACKING`); and then each key that is waited for is read once more, which makes the node report its next
//! change, and shows whether it has changed already. A node reports a key once for each time that it is read, so every
//! refused attempt reads it again. `NOLOOP` keeps our own writes out of it. Where locks wait in the queue, a node reports only
//! what is read behind a `CLIENT CACHING YES` (`OPTIN`), or each script would count as a read of all its keys.
//!
//! The loss of either connection may have swallowed a notification, and counts as one. Where a server cannot or may
//! not send notifications, waiters go by their timers. What one node does by itself is in `tracking`, and which waiters a
//! message wakes in `notifications`. Not here: what the bytes mean, see `push_link`; what a lock does about a notification, see
//! `waiting`.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Closed; not to be opened before `retry_at`.
    Off { retry_at: Timestamp },
    /// The socket is being connected.
    Opening { until: Timestamp },
    /// Its first flight has not been answered.
    Handshake { until: Timestamp },
    /// It is subscribed.
    Subscribed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracking {
    Off,
    /// The node was asked for it, and has not confirmed.
    Asked {
        by_choice: bool,
    },
    /// Changes of keys that the command link reads are reported here; or, by choice, of those alone that it
    /// announces.
    On {
        by_choice: bool,
    },
}

/// One command on a push link: of the flight that begins it, or about a channel behind that.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PushStep {
    Handshake(Step),
    Subscribe,
    SubscribeTo(Box<[u8]>),
    UnsubscribeFrom(Box<[u8]>),
}

/// How far the open message has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    /// Between two messages.
    Start,
    Kind,
    /// A confirmation: the channel, then how many there are.
    Subscribe,
    Unsubscribe,
    Count,
    /// A message: the channel, then its keys, or what another library has published about this resource.
    Channel,
    Published(QueueKey),
    Body,
    Keys(u32),
}

/// What has come on a push link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News<'b> {
    /// Every key may have changed.
    All,
    /// This key has changed.
    Key(&'b [u8]),
    /// Its first flight came to this.
    Subscribed(Result<(), Cause>),
    /// The same, but the node cannot or may not report changes here.
    Untracked(Cause),
    /// Another library has published a message about this resource.
    Published(QueueKey),
    /// The node has confirmed the subscription of a lock to a channel of its library.
    Confirmed(LockId),
    /// The node refuses a subscription.
    ChannelRefused,
    /// The node refuses to end one.
    UnsubscribeRefused(Cause),
}

/// The channels of one push link, by their names.
#[derive(Default)]
struct Channels(BTreeMap<Box<[u8]>, Channel>);

struct Channel {
    /// The resource that it tells of.
    of: QueueKey,
    /// The lock that waits for it. Without one the channel has been left, which is not confirmed.
    waiter: Option<LockId>,
    /// Whether it was entered rather than left by the last command about it on this connection.
    is_subscribed: bool,
    /// Commands about it that have no answer.
    due: u32,
    /// What came of the last one that has.
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

/// A message names one key as a rule; how many it may name is not said anywhere.
fn push_limits() -> Limits {
    Limits { bulk: 64 << 10, depth: 2, elements: 1 << 16, line: 64 << 10, reply: 1 << 20 }
}
