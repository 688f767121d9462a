//! Notifications: the waiters and observers that a message wakes, and the end of a wait.

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
    /// Returns whether a node sends notifications to waiters.
    #[must_use]
    pub fn push_state(&self, node: NodeId) -> PushState {
        self.node(node).push.state(self.boot, || self.locks.watchers(node).next().is_some())
    }

    /// Returns why waiters for other libraries' locks are not subscribed to channels on a node, if
    /// that is known.
    #[must_use]
    pub fn no_channel(&self, node: NodeId) -> Option<Cause> {
        self.node(node).push.no_channel
    }

    /// Wakes all first waiters after a read in which all keys were reported as changed.
    pub(in crate::proto::core) fn wake_all_if_notified(&mut self, id: NodeId) {
        if mem::take(&mut self.node_mut(id).push.has_notified_all) {
            self.common.effects.of_locks(self.queues.fronts(), LockEffect::WakeBy(id));
            self.common.effects.of_node(id, NodeEffect::RefreshObservers);
        }
    }

    /// Notifies the waiters for what other libraries have published in one read, once each.
    pub(in crate::proto::core) fn notify_published(&mut self, node: NodeId) {
        let push = &mut self.node_mut(node).push;
        let mut published = mem::take(&mut push.published);
        if mutant!(ChannelIgnored) {
            published.clear();
        }
        // A node that reports changes has reported these before.
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
            // However many arrive in one read, each waiter is woken once.
            Some(News::All) => {
                push.has_notified_all = true;
                env.metrics.of(id).pushes += 1;
            }
            Some(News::Published(of)) => {
                push.published.push(of);
                env.metrics.of(id).pushes += 1;
            }
            // Messages before the confirmation did not reach this lock, so it reads the key.
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

    /// Wakes the waiters and observers of a key that has changed.
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

    /// Ends the subscriptions of a lock that no longer waits. The next in its queue takes them over
    /// if it needs the same ones.
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
    /// Returns the locks that wait for this node's notifications. It scans all locks.
    pub(crate) fn watchers(&self, node: NodeId) -> impl Iterator<Item = LockId> {
        self.ids().filter(move |id| {
            self.at_work(*id).is_some_and(|(lock, active)| {
                matches!(lock.phase, Phase::Asking | Phase::Pausing)
                    && active.waiting.leads().contains(node)
            })
        })
    }

    /// Returns whether two locks wait for the same resource by the same library's rules.
    fn want_the_same(&self, one: LockId, other: LockId) -> bool {
        let wanted = |id| {
            let active = self.active(id)?;
            Some((active.foreign().map(LockKind::profile), active.keys.first()))
        };
        wanted(one) == wanted(other)
    }
}
