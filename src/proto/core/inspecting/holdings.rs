//! Which locks of one core are on a resource, for whoever looks at one.
//!
//! Hardly anybody ever looks, so nothing is kept of it. The first look walks through all locks and writes them
//! down; from then on those that are granted are written down as well, until that has cost as much as the
//! walk. So whoever looks at many resources walks seldom, and whoever has stopped looking soon pays nothing.
//! Not here: whether such a lock is still held, which is seen where it is.

use std::collections::BTreeSet;

use crate::proto::core::claims::Claims;
use crate::proto::core::locks::Locks;
use crate::proto::core::waiting::{QueueKey, WaitQueues};
use crate::proto::names::LockId;
use crate::proto::slab::Key;

/// Locks by the places of their resources. Two names with one hash are told apart by whoever asks.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Of locks that are over, too.
    known: BTreeSet<(QueueKey, Key)>,
    /// How many more are written down, unless somebody looks.
    left: usize,
}

impl Holdings {
    /// Walks through all locks, unless it is known which are held.
    pub(super) fn learn(&mut self, locks: &Locks, claims: &Claims, queues: &WaitQueues) {
        if self.left > 0 {
            return;
        }
        let held = locks.ids().filter_map(|id| Some((id, locks.find(id)?)));
        for (id, lock) in held.filter(|(_, lock)| lock.phase.is_held()) {
            let keys = claims.find(lock.claim()).into_iter().flat_map(|claim| claim.keys().iter());
            self.known.extend(keys.map(|key| (queues.key(key), id.0)));
        }
        self.left = locks.capacity();
    }

    /// Notes that a lock is granted, on resources in these places.
    pub(in crate::proto::core) fn granted(
        &mut self,
        lock: LockId,
        mut places: impl Iterator<Item = QueueKey>,
    ) {
        while self.left > 0
            && let Some(place) = places.next()
        {
            self.known.insert((place, lock.0));
            self.left -= 1;
            if self.left == 0 {
                self.known.clear();
            }
        }
    }

    /// Those that are, or were, on a resource in this place.
    pub(super) fn at(&self, key: QueueKey) -> impl Iterator<Item = Key> {
        let all = (key, Key::FIRST)..=(key, Key::LAST);
        self.known.range(all).map(|&(_, lock)| lock)
    }
}

/// So few places of locks are walked through each time.
pub(crate) const FEW: usize = 64;
