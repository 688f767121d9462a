//! An index of the locks that one core holds on a resource.
//!
//! Invariant: a core without inspections pays nothing. The first inspection scans all locks. From
//! then on granted locks are added, until that has cost as much as the scan; then the index is
//! dropped. The caller checks whether a lock is still held.

use std::collections::BTreeSet;

use crate::proto::core::claims::Claims;
use crate::proto::core::locks::Locks;
use crate::proto::core::waiting::{QueueKey, WaitQueues};
use crate::proto::names::LockId;
use crate::proto::slab::Key;

/// The locks by the hashes of their resources. The caller distinguishes equal hashes.
#[derive(Default)]
pub(crate) struct Holdings {
    /// The entries, also of locks that have ended.
    known: BTreeSet<(QueueKey, Key)>,
    /// The number of entries that are still added before the index is dropped.
    left: usize,
}

impl Holdings {
    /// Scans all locks, unless the index is complete.
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
            // The entries have cost as much as the scan, and may not be needed any more.
            if self.left == 0 {
                self.known.clear();
            }
        }
    }

    /// Returns the locks that are or were on a resource with this hash.
    pub(super) fn at(&self, key: QueueKey) -> impl Iterator<Item = Key> {
        let all = (key, Key::FIRST)..=(key, Key::LAST);
        self.known.range(all).map(|&(_, lock)| lock)
    }
}

/// The capacity for locks up to which all are scanned, without an index.
pub(crate) const FEW: usize = 64;
