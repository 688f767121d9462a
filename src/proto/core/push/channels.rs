//! The subscriptions of a push link to channels of other libraries, and the locks they are for.
//!
//! A waiter for a lock of another library is notified of a release by a message on a channel, as
//! the members of that library are. The push link is subscribed while a lock of this core waits for
//! the resource. A connection forgets its subscriptions; the push link makes them again on the next
//! one.

use super::{Channel, ChannelState, Channels, Push, PushStep, Stage};
use crate::proto::core::{links::Pipeline, waiting::QueueKey};
use crate::proto::{names::LockId, time::Timestamp, vote::Cause};
use crate::resp::command;

impl Channels {
    /// Returns whether no node may confirm any of the subscriptions.
    pub(super) fn are_of_no_use(&self) -> bool {
        self.0.values().all(|it| it.state == ChannelState::Forbidden || it.waiter.is_none())
    }

    /// Returns the resource of the channel of this name, if it was requested.
    pub(super) fn resource(&self, name: &[u8]) -> Option<QueueKey> {
        Some(self.0.get(name)?.of)
    }

    /// Returns the locks with a confirmed subscription.
    pub(super) fn subscribed(&self) -> Vec<LockId> {
        let on = self.0.values().filter(|channel| channel.state == ChannelState::On);
        on.filter_map(|channel| channel.waiter).collect()
    }

    /// Forgets what the connection, which has ended, has confirmed. Returns the locks that may have
    /// missed a message.
    pub(super) fn disconnected(&mut self) -> Vec<LockId> {
        let missed = self.subscribed();
        // The connection has ended its subscriptions, and those that are waited for are made again.
        self.0.retain(|_, channel| channel.waiter.is_some());
        for channel in self.0.values_mut() {
            (channel.is_subscribed, channel.due, channel.state) = (false, 0, ChannelState::Off);
        }
        missed
    }

    /// Removes all channels. Returns the locks that waited for messages.
    pub(super) fn clear(&mut self) -> Vec<LockId> {
        std::mem::take(&mut self.0).into_values().filter_map(|channel| channel.waiter).collect()
    }

    /// Returns whether the lock that waits for this channel is subscribed to another one, or may be
    /// yet.
    fn has_another(&self, name: &[u8]) -> bool {
        let waiter = self.0.get(name).and_then(|channel| channel.waiter);
        let mut others = self.0.iter().filter(|(other, _)| ***other != *name);
        let is_of_use = |channel: &Channel| channel.state != ChannelState::Forbidden;
        waiter.is_some() && others.any(|(_, it)| it.waiter == waiter && is_of_use(it))
    }
}

impl Channel {
    /// Subscribes to the channel, unless the last command about it did.
    fn subscribe(&mut self, name: &[u8], pipeline: &mut Pipeline<PushStep>, now: Timestamp) {
        if self.is_subscribed {
            return;
        }
        self.is_subscribed = true;
        self.due += 1;
        pipeline.push(PushStep::SubscribeTo(name.into()), now, |out| {
            let _ = command(out, 2).arg(b"SUBSCRIBE").arg(name);
        });
    }

    fn unsubscribe(&mut self, name: &[u8], pipeline: &mut Pipeline<PushStep>, now: Timestamp) {
        self.is_subscribed = false;
        self.due += 1;
        pipeline.push(PushStep::UnsubscribeFrom(name.into()), now, |out| {
            let _ = command(out, 2).arg(b"UNSUBSCRIBE").arg(name);
        });
    }

    /// Records an answer. Returns the lock that waits, if no other command about the channel is
    /// pending.
    fn answered(&mut self, state: ChannelState) -> Option<LockId> {
        self.due = self.due.saturating_sub(1);
        self.state = state;
        self.waiter.filter(|_| self.due == 0)
    }

    /// Returns whether the channel can be forgotten.
    fn is_over(&self) -> bool {
        self.waiter.is_none() && self.due == 0
    }
}

impl Push {
    /// Returns whether it takes subscriptions now.
    pub(in crate::proto::core) fn takes_subscriptions(&self, now: Timestamp) -> bool {
        // Not for a while after it could not leave a channel.
        now >= self.channels_from
    }

    /// Subscribes a lock to this channel.
    pub(in crate::proto::core) fn subscribe(
        &mut self,
        name: &[u8],
        of: QueueKey,
        waiter: LockId,
        now: Timestamp,
    ) {
        let channel = self.channels.0.entry(name.into()).or_insert(Channel {
            of,
            waiter: None,
            is_subscribed: false,
            due: 0,
            state: ChannelState::Off,
        });
        // Two resources may share a channel, such as `job` and `{job}` of Redisson. The second lock
        // waits without it.
        if channel.of != of && channel.waiter.is_some() {
            return;
        }
        (channel.of, channel.waiter) = (of, Some(waiter));
        if self.stage == Stage::Subscribed {
            channel.subscribe(name, &mut self.pipeline, now);
        }
    }

    /// Ends the subscription of a lock. `heir` is the lock that takes it over, if any.
    pub(super) fn unsubscribe(
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
        if heir.is_none() && channel.is_subscribed && channel.state != ChannelState::Forbidden {
            channel.unsubscribe(name, &mut self.pipeline, now);
        }
        if channel.is_over() {
            self.channels.0.remove(name);
        }
    }

    /// Subscribes to all channels that are waited for.
    pub(super) fn subscribe_all(&mut self, now: Timestamp) {
        let waited = self.channels.0.iter_mut().filter(|(_, channel)| channel.waiter.is_some());
        waited.for_each(|(name, channel)| channel.subscribe(name, &mut self.pipeline, now));
    }

    /// Records a confirmed subscription. Returns the lock that it is for.
    pub(super) fn channel_subscribed(&mut self, name: &[u8]) -> Option<LockId> {
        (self.no_channel, self.failures) = (None, 0);
        self.channels.0.get_mut(name)?.answered(ChannelState::On)
    }

    /// Records the confirmed end of a subscription.
    pub(super) fn channel_unsubscribed(&mut self, name: &[u8]) {
        let Some(channel) = self.channels.0.get_mut(name) else { return };
        channel.answered(ChannelState::Off);
        if channel.is_over() {
            self.channels.0.remove(name);
        }
    }

    /// Records a refused subscription.
    pub(super) fn channel_refused(&mut self, name: &[u8], cause: Cause) {
        let Some(channel) = self.channels.0.get_mut(name) else { return };
        channel.answered(ChannelState::Forbidden);
        if channel.is_over() {
            self.channels.0.remove(name);
        // One of a lock's channels is enough, and it is not known which.
        } else if !self.channels.has_another(name) {
            self.no_channel = Some(cause);
        }
    }
}
