//! Notifications: which waiters and observers a message wakes, and the end of a wait.

use std::mem;

use super::{News, PushState, Tracking};
use crate::proto::core::effects::{Effect, LockEffect, NodeEffect};
use crate::proto::core::locks::{Locks, Phase};
use crate::proto::core::{Core, links::Mistyped};
use crate::proto::names::{LockId, NodeId, TicketName};
use crate::proto::{
    fair_queue::TICKET_PREFIX, lock_kind::LockKind, mutants::mutant, time::ClockReading,
    vote::Cause,
};
use crate::resp::Token;

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
    pub(in crate::proto::core) fn wake_all_if_notified(&mut self, id: NodeId) {
        if mem::take(&mut self.node_mut(id).push.has_notified_all) {
            self.common.effects.of_locks(self.queues.fronts(), LockEffect::WakeBy(id));
            self.common.effects.of_node(id, NodeEffect::RefreshObservers);
        }
    }

    /// Notifies the waiters for what other libraries have published in one read, once each. A node that reports changes has
    /// reported those before.
    pub(in crate::proto::core) fn notify_published(&mut self, node: NodeId) {
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

    pub(in crate::proto::core) fn push_notified(
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
    pub(in crate::proto::core) fn unsubscribe(&mut self, id: LockId, now: ClockReading) {
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

    pub(in crate::proto::core) fn close_push(
        &mut self,
        id: NodeId,
        cause: Cause,
        now: ClockReading,
    ) {
        let (node, mut env) = self.node_in_env(id, now);
        node.close_push(cause, &mut env);
    }
}

impl Locks {
    /// The locks that wait for this node's notifications. To look for them is a walk.
    pub(crate) fn watchers(&self, node: NodeId) -> impl Iterator<Item = LockId> {
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
