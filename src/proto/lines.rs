//! Who waits for what within one core, in the order in which they came.
//!
//! Of the locks of one core that wait for a resource, one asks at a time; the others stand in line behind
//! it, so that they neither wake nor deny one another. A lock on several resources stands in all of their
//! lines, with the place that its arrival gave it, and so two of them cannot wait for each other. Whoever
//! is granted stays in front until it has let go.
//!
//! A line also remembers for a moment that others, elsewhere, want the resource, so that this process
//! lets them have their turn. Not here: asking, and waking, see `core/wait.rs`.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::names::LockId;
use super::time::Nanos;

/// The lines of all resources that somebody here waits for.
///
/// A line is found by a hash of the resource's name. Two names with the same hash would share a line,
/// which costs them turns and nothing else; the seed keeps anybody from choosing such names.
pub(super) struct Lines {
    lines: BTreeMap<Place, Line>,
    seed: [u8; 16],
    /// Emptied queues, to be used again.
    spare: Vec<VecDeque<LockId>>,
    /// When a line that nobody stands in can be forgotten.
    forget_at: Nanos,
}

/// The place of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

#[derive(Default)]
struct Line {
    waiting: VecDeque<LockId>,
    /// When somebody elsewhere was last seen with it.
    contended_at: Option<Nanos>,
    /// When a lock of this core last let go of it.
    released_at: Option<Nanos>,
}

impl Lines {
    pub(super) fn new(seed: [u8; 16]) -> Self {
        Self { lines: BTreeMap::new(), seed, spare: Vec::new(), forget_at: Nanos::NEVER }
    }

    /// Whether nobody waits and nothing is remembered.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn place(&self, resource: &[u8]) -> Place {
        let mut hasher = DefaultHasher::new();
        (self.seed, resource).hash(&mut hasher);
        Place(hasher.finish())
    }

    /// Goes to the end of a line.
    pub(super) fn join(&mut self, place: Place, id: LockId) {
        let line = match self.lines.entry(place) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(vacant) => {
                let waiting = self.spare.pop().unwrap_or_default();
                vacant.insert(Line { waiting, ..Line::default() })
            }
        };
        // A name given twice, or two with one hash.
        if line.waiting.back() != Some(&id) {
            line.waiting.push_back(id);
        }
    }

    /// Leaves a line, from wherever it stands.
    pub(super) fn leave(&mut self, place: Place, id: LockId, now: Nanos) {
        let Some(line) = self.lines.get_mut(&place) else { return };
        match line.waiting.front() {
            Some(&front) if front == id => drop(line.waiting.pop_front()),
            _ => line.waiting.retain(|&other| other != id),
        }
        if line.waiting.is_empty() {
            match line.contended_at.map(|at| at + REMEMBERED) {
                Some(until) if now < until => self.forget_at = self.forget_at.min(until),
                _ => self.forget(place),
            }
        }
    }

    pub(super) fn front(&self, place: Place) -> Option<LockId> {
        self.lines.get(&place)?.waiting.front().copied()
    }

    /// Those in front of any line.
    pub(super) fn fronts(&self) -> impl Iterator<Item = LockId> {
        self.lines.values().filter_map(|line| line.waiting.front().copied())
    }

    /// Somebody elsewhere has it.
    pub(super) fn contended(&mut self, place: Place, now: Nanos) {
        if let Some(line) = self.lines.get_mut(&place) {
            line.contended_at = Some(now);
        }
    }

    /// A lock of this core has let go of it.
    pub(super) fn released(&mut self, place: Place, now: Nanos) {
        if let Some(line) = self.lines.get_mut(&place) {
            line.released_at = Some(now);
        }
    }

    /// When this core let go of a resource that others want as well, and wanted a moment ago.
    pub(super) fn owes_turn(&self, place: Place, now: Nanos) -> Option<Nanos> {
        let line = self.lines.get(&place)?;
        let contended = line.contended_at.is_some_and(|at| now < at + REMEMBERED);
        line.released_at.filter(|_| contended)
    }

    /// When [`purge`](Self::purge) is due.
    pub(super) fn forget_at(&self) -> Nanos {
        self.forget_at
    }

    /// Forgets the lines in which nobody stands and of which nothing is to be remembered.
    pub(super) fn purge(&mut self, now: Nanos) {
        if now < self.forget_at {
            return;
        }
        let mut next = Nanos::NEVER;
        self.lines.retain(|_, line| {
            let until = line.contended_at.map_or(now, |at| at + REMEMBERED);
            let kept = !line.waiting.is_empty() || now < until;
            if kept && line.waiting.is_empty() {
                next = next.min(until);
            }
            kept
        });
        self.forget_at = next;
    }

    fn forget(&mut self, place: Place) {
        if let Some(line) = self.lines.remove(&place)
            && self.spare.len() < SPARE
        {
            self.spare.push(line.waiting);
        }
    }
}

/// Contention is remembered for so long.
const REMEMBERED: Duration = Duration::from_secs(1);

/// So many emptied queues are kept.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::slab::Slab;

    fn ids<const N: usize>() -> [LockId; N] {
        let mut slab = Slab::new();
        std::array::from_fn(|_| LockId(slab.occupy(|| ()).0))
    }

    #[test]
    fn they_stand_in_the_order_in_which_they_came() {
        let mut lines = Lines::new([7; 16]);
        let place = lines.place(b"job");
        let [a, b, c] = ids();
        for id in [a, b, c] {
            lines.join(place, id);
        }
        assert_eq!(lines.front(place), Some(a));
        lines.leave(place, b, Nanos(1));
        assert_eq!(lines.front(place), Some(a));
        lines.leave(place, a, Nanos(2));
        assert_eq!(lines.front(place), Some(c));
        lines.leave(place, c, Nanos(3));
        assert!(lines.is_empty());
    }

    #[test]
    fn contention_is_remembered_for_a_second() {
        let mut lines = Lines::new([7; 16]);
        let place = lines.place(b"job");
        let [a] = ids();
        lines.join(place, a);
        lines.released(place, Nanos(5));
        assert_eq!(lines.owes_turn(place, Nanos(6)), None, "nobody else wants it");
        lines.contended(place, Nanos(0));
        lines.leave(place, a, Nanos(5));
        assert_eq!(lines.owes_turn(place, Nanos(6)), Some(Nanos(5)));
        let over = Nanos(0) + REMEMBERED;
        assert_eq!(lines.forget_at(), over);
        assert_eq!(lines.owes_turn(place, over), None);
        lines.purge(over);
        assert!(lines.is_empty());
        assert_eq!(lines.forget_at(), Nanos::NEVER);
    }
}
