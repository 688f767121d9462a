//! The channels of other libraries: which of them a push link hears for whom, and what has been said about that to the node.
//!
//! Who takes part in another library's locks is told of a release as that library tells its own, by a message on a channel. It
//! is heard on the push link while a lock waits, and left when nobody of this process waits for that resource any more. A
//! connection forgets its channels, a push link does not: it enters them again on the next connection. Not here: the names
//! of channels, see `profile`; when a lock begins and ends to wait; and what a lock does about a message.

use std::collections::BTreeMap;

use super::Push;
use super::push_link::{PushStep, Stage};
use crate::proto::core::links::Pipeline;
use crate::proto::core::waiting::QueueKey;
use crate::proto::names::LockId;
use crate::proto::time::Timestamp;
use crate::proto::vote::Cause;
use crate::resp::command;

/// The channels of one push link, by their names.
#[derive(Default)]
pub(super) struct Channels(BTreeMap<Box<[u8]>, Channel>);

struct Channel {
    /// The resource that it tells of.
    of: QueueKey,
    /// The lock that waits for it. Without one the channel has been left, which is not confirmed.
    waiter: Option<LockId>,
    /// Whether it was entered rather than left by the last command about it on this connection.
    is_entered: bool,
    /// Commands about it that have no answer.
    due: u32,
    /// What came of the last one that has.
    heard: Heard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    No,
    Yes,
    Forbidden,
}

impl Channels {
    /// Whether none is left that could be heard.
    pub(super) fn are_of_no_use(&self) -> bool {
        self.0.values().all(|channel| channel.heard == Heard::Forbidden || channel.waiter.is_none())
    }

    /// What a message on the channel of this name tells of; `None` if nobody asked for it.
    pub(super) fn resource(&self, name: &[u8]) -> Option<QueueKey> {
        Some(self.0.get(name)?.of)
    }

    /// The locks that hear one.
    pub(super) fn hearing(&self) -> Vec<LockId> {
        let heard = self.0.values().filter(|channel| channel.heard == Heard::Yes);
        heard.filter_map(|channel| channel.waiter).collect()
    }

    /// Their connection has ended. The locks that may have missed a message by that.
    pub(super) fn disconnected(&mut self) -> Vec<LockId> {
        let missed = self.hearing();
        self.0.retain(|_, channel| channel.waiter.is_some());
        for channel in self.0.values_mut() {
            (channel.is_entered, channel.due, channel.heard) = (false, 0, Heard::No);
        }
        missed
    }

    /// Nothing is heard any more, by anybody. The locks that were to hear one.
    pub(super) fn clear(&mut self) -> Vec<LockId> {
        std::mem::take(&mut self.0).into_values().filter_map(|channel| channel.waiter).collect()
    }

    /// Whether the lock that waits for this one hears another, or may yet.
    fn has_another(&self, name: &[u8]) -> bool {
        let waiter = self.0.get(name).and_then(|channel| channel.waiter);
        let mut others = self.0.iter().filter(|(other, _)| ***other != *name);
        let is_of_use = |channel: &Channel| channel.heard != Heard::Forbidden;
        waiter.is_some() && others.any(|(_, it)| it.waiter == waiter && is_of_use(it))
    }
}

impl Channel {
    /// Enters it, if that was not the last that was said about it.
    fn enter(&mut self, name: &[u8], pipeline: &mut Pipeline<PushStep>, now: Timestamp) {
        if self.is_entered {
            return;
        }
        self.is_entered = true;
        self.due += 1;
        pipeline.push(PushStep::Enter(name.into()), now, |out| {
            let _ = command(out, 2).arg(b"SUBSCRIBE").arg(name);
        });
    }

    fn leave(&mut self, name: &[u8], pipeline: &mut Pipeline<PushStep>, now: Timestamp) {
        self.is_entered = false;
        self.due += 1;
        pipeline.push(PushStep::Leave(name.into()), now, |out| {
            let _ = command(out, 2).arg(b"UNSUBSCRIBE").arg(name);
        });
    }

    /// An answer has come. Whether it is the last word about a lock that waits.
    fn answered(&mut self, heard: Heard) -> Option<LockId> {
        self.due = self.due.saturating_sub(1);
        self.heard = heard;
        self.waiter.filter(|_| self.due == 0)
    }

    /// Whether nobody needs to know of it.
    fn is_over(&self) -> bool {
        self.waiter.is_none() && self.due == 0
    }
}

impl Push {
    /// Whether it takes subscriptions to channels now: not for a while after it could not leave one.
    pub(in crate::proto::core) fn takes_subscriptions(&self, now: Timestamp) -> bool {
        now >= self.channels_from
    }

    /// A lock waits for what this channel tells of. Two resources may share one, such as `job` and `{job}` of Redisson: the second
    /// goes without.
    pub(in crate::proto::core) fn hear(
        &mut self,
        name: &[u8],
        of: QueueKey,
        waiter: LockId,
        now: Timestamp,
    ) {
        let channel = self.channels.0.entry(name.into()).or_insert(Channel {
            of,
            waiter: None,
            is_entered: false,
            due: 0,
            heard: Heard::No,
        });
        if channel.of != of && channel.waiter.is_some() {
            return;
        }
        (channel.of, channel.waiter) = (of, Some(waiter));
        if self.stage == Stage::Subscribed {
            channel.enter(name, &mut self.pipeline, now);
        }
    }

    /// A lock does not wait any longer; this one does, if any.
    pub(super) fn no_longer_hear(
        &mut self,
        name: &[u8],
        waiter: LockId,
        heir: Option<LockId>,
        now: Timestamp,
    ) {
        let Some(channel) = self.channels.0.get_mut(name) else { return };
        if channel.waiter != Some(waiter) {
            return;
        }
        channel.waiter = heir;
        if heir.is_none() && channel.is_entered && channel.heard != Heard::Forbidden {
            channel.leave(name, &mut self.pipeline, now);
        }
        if channel.is_over() {
            self.channels.0.remove(name);
        }
    }

    /// The connection takes subscriptions from now on.
    pub(super) fn enter_channels(&mut self, now: Timestamp) {
        let waited = self.channels.0.iter_mut().filter(|(_, channel)| channel.waiter.is_some());
        waited.for_each(|(name, channel)| channel.enter(name, &mut self.pipeline, now));
    }

    /// A channel was entered: the lock that hears it from now on.
    pub(super) fn entered(&mut self, name: &[u8]) -> Option<LockId> {
        (self.no_channel, self.failures) = (None, 0);
        self.channels.0.get_mut(name)?.answered(Heard::Yes)
    }

    /// It was left.
    pub(super) fn left(&mut self, name: &[u8]) {
        let Some(channel) = self.channels.0.get_mut(name) else { return };
        channel.answered(Heard::No);
        if channel.is_over() {
            self.channels.0.remove(name);
        }
    }

    /// The node does not let us enter it. Of several one is enough, and which of them that is we do not know.
    pub(super) fn kept_out(&mut self, name: &[u8], cause: Cause) {
        let Some(channel) = self.channels.0.get_mut(name) else { return };
        channel.answered(Heard::Forbidden);
        if channel.is_over() {
            self.channels.0.remove(name);
        } else if !self.channels.has_another(name) {
            self.no_channel = Some(cause);
        }
    }
}
