//! Which locks of one core are on a resource, for whoever looks at one.
//!
//! Hardly anybody ever looks, so nothing is kept of it. The first look walks through all locks and writes them
//! down; from then on those that are granted are written down as well, until that has cost as much as the
//! walk. So whoever looks at many resources walks seldom, and whoever has stopped looking soon pays nothing.
//! Not here: whether such a lock is still held, which is seen where it is.

use std::collections::BTreeSet;

use crate::proto::core::waiting::QueueKey;
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
    /// Whether every lock that is held is in it.
    pub(super) fn is_complete(&self) -> bool {
        self.left > 0
    }

    /// All that are held, which took a walk of so many steps.
    pub(super) fn begin(&mut self, held: impl Iterator<Item = (QueueKey, Key)>, walked: usize) {
        self.known.extend(held);
        self.left = walked;
    }

    /// One more was granted.
    pub(super) fn granted(&mut self, key: QueueKey, lock: Key) {
        self.known.insert((key, lock));
        self.left -= 1;
        if self.left == 0 {
            self.known.clear();
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
