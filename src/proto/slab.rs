//! Slots that keep their memory when they are freed, and the time at which something is due for
//! them. The identifier of a tenant is reused only after 2^31 further tenants of its slot.
//!
//! There is no queue of timers. Slots are in rows and rows in blocks, and each row and block has a
//! lower bound of the time at which its first tenant is due. Arming costs two comparisons and
//! disarming nothing. Finding what is due costs one comparison for each block, and one for each row
//! of the blocks in which something is due.

use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use super::steps::step;
use super::time::Timestamp;

/// The identifier of a slot's present tenant.
#[derive(Clone, Copy, Debug, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        step();
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.index, self.generation).hash(state);
    }
}

impl Key {
    pub(super) const FIRST: Self = Self { index: 0, generation: 0 };

    pub(super) const LAST: Self = Self { index: u32::MAX, generation: u32::MAX };

    pub(super) const NONE: Self = Self { index: u32::MAX, generation: 0 };
}

/// A growing set of slots, in rows that never move. Identifiers of its tenants have the type `I`. A
/// freed value is not dropped, so that the next tenant reuses its buffers.
#[derive(Debug)]
pub(super) struct Slab<I, T> {
    rows: Vec<Box<[Slot<T>; ROW]>>,
    heads: Vec<Head>,
    blocks: Vec<Head>,
    used: u32,
    free: Vec<u32>,
    names: PhantomData<I>,
}

/// The state of a row, or of a block of rows.
#[derive(Clone, Debug)]
struct Head {
    tenants: u32,
    /// The time at which something is due here. It may be too early, but never too late.
    due: Timestamp,
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation, which is odd while the slot is occupied, so that no identifier matches a
    /// free slot.
    generation: u32,
    value: T,
}

impl Head {
    const EMPTY: Self = Self { tenants: 0, due: Timestamp::NEVER };

    fn leave(&mut self) {
        self.tenants -= 1;
        // Without tenants nothing is due, and the row need not be walked.
        if self.tenants == 0 {
            self.due = Timestamp::NEVER;
        }
    }
}

impl<I: Copy + From<Key> + Into<Key>, T> Slab<I, T> {
    pub(super) fn new() -> Self {
        let (rows, heads, blocks) = (Vec::new(), Vec::new(), Vec::new());
        Self { rows, heads, blocks, used: 0, free: Vec::new(), names: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Returns the number of free slots that were used before.
    pub(super) fn vacant(&self) -> usize {
        self.free.len()
    }

    /// Occupies a slot, with the value of its last tenant, or a new slot.
    #[inline]
    pub(super) fn occupy(&mut self, new: fn() -> T) -> (I, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| self.grow(new));
        let (row, at) = place(index);
        self.heads[row].tenants += 1;
        self.blocks[row / BLOCK].tenants += 1;
        let slot = &mut self.rows[row][at];
        slot.generation = slot.generation.wrapping_add(1);
        (Key { index, generation: slot.generation }.into(), &mut slot.value)
    }

    #[cold]
    fn grow(&mut self, new: fn() -> T) -> u32 {
        if place(self.used).1 == 0 {
            let slots = std::array::from_fn(|_| Slot { generation: 0, value: new() });
            self.rows.push(Box::new(slots));
            self.heads.push(Head::EMPTY);
            self.blocks.resize(self.heads.len().div_ceil(BLOCK), Head::EMPTY);
        }
        // It cannot overflow: the limit of locks in a core is far below 2^32.
        self.used += 1;
        self.used - 1
    }

    pub(super) fn free(&mut self, id: I) {
        let key = id.into();
        let (row, at) = place(key.index);
        let slot = &mut self.rows[row][at];
        debug_assert_eq!(slot.generation, key.generation, "a slot is freed once");
        // An identifier of the old tenant no longer matches.
        slot.generation = slot.generation.wrapping_add(1);
        self.heads[row].leave();
        self.blocks[row / BLOCK].leave();
        self.free.push(key.index);
    }

    #[inline]
    pub(super) fn find(&self, id: I) -> Option<&T> {
        let key = id.into();
        step();
        let (row, at) = place(key.index);
        let slot = &self.rows.get(row)?[at];
        // The slot may have another tenant by now.
        (slot.generation == key.generation).then_some(&slot.value)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, id: I) -> Option<&mut T> {
        let key = id.into();
        step();
        let (row, at) = place(key.index);
        let slot = &mut self.rows.get_mut(row)?[at];
        (slot.generation == key.generation).then_some(&mut slot.value)
    }

    /// Returns the tenant of the slot at `index`, below [`capacity`](Self::capacity), if it is
    /// occupied.
    pub(super) fn at(&self, index: usize) -> Option<I> {
        step();
        // It fits: the capacity does.
        let index = index as u32;
        let (row, at) = place(index);
        let generation = self.rows[row][at].generation;
        // Odd: occupied.
        (generation % 2 == 1).then(|| Key { index, generation }.into())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = I> {
        (0..self.capacity()).filter_map(|at| self.at(at))
    }

    /// Records that something is due for this slot at `at`.
    #[inline]
    pub(super) fn arm(&mut self, id: I, at: Timestamp) {
        let row = place(id.into().index).0;
        // A block must not be due later than its rows, or a timer would be missed.
        if let Some(head) = self.heads.get_mut(row).filter(|head| at < head.due) {
            head.due = at;
            let block = &mut self.blocks[row / BLOCK];
            block.due = at.min(block.due);
        }
    }

    pub(super) fn due(&self) -> Timestamp {
        let blocks = self.blocks.iter().inspect(|_| step());
        blocks.map(|block| block.due).min().unwrap_or(Timestamp::NEVER)
    }

    /// Returns when something is due in the row of this slot.
    pub(super) fn due_of(&self, id: I) -> Timestamp {
        let row = place(id.into().index).0;
        let due = self.heads.get(row).map_or(Timestamp::NEVER, |head| head.due);
        debug_assert!(
            self.blocks.get(row / BLOCK).is_none_or(|block| block.due <= due),
            "never too late"
        );
        due
    }

    /// Returns the next tenant, from index `at` on, of the rows in which something is due at `by`.
    /// A tenant that has something left to do must be armed again.
    pub(super) fn next_due(&mut self, at: &mut usize, by: Timestamp) -> Option<I> {
        loop {
            if at.is_multiple_of(ROW) || *at >= self.capacity() {
                let due = self.next_due_row(at.div_ceil(ROW), by)?;
                // Cleared before its tenants are visited, so that they can be armed again.
                self.heads[due].due = Timestamp::NEVER;
                *at = due * ROW;
            }
            let key = self.at(*at);
            *at += 1;
            if key.is_some() {
                return key;
            }
        }
    }

    /// Returns the first row, from this one on, in which something is due at `by`. After a walk to
    /// the end of a block its time is computed again.
    fn next_due_row(&mut self, mut row: usize, by: Timestamp) -> Option<usize> {
        let rows = self.heads.len();
        if row > 0 && (row == rows || row.is_multiple_of(BLOCK)) {
            self.record_next_due((row - 1) / BLOCK);
        }
        while row < rows {
            step();
            let block = row / BLOCK;
            let end = rows.min((block + 1) * BLOCK);
            if self.blocks[block].due <= by {
                let mut rest = self.heads[row..end].iter().inspect(|_| step());
                if let Some(at) = rest.position(|head| head.due <= by) {
                    return Some(row + at);
                }
                self.record_next_due(block);
            }
            row = end;
        }
        None
    }

    fn record_next_due(&mut self, block: usize) {
        let rows = self.heads.iter().skip(block * BLOCK).take(BLOCK).inspect(|_| step());
        self.blocks[block].due = rows.map(|head| head.due).min().unwrap_or(Timestamp::NEVER);
    }

    /// Returns one more than the last index, for walks during which slots are occupied and freed.
    pub(super) fn capacity(&self) -> usize {
        self.used as usize
    }
}

/// Returns the row of a slot, and its index in the row.
#[inline]
fn place(index: u32) -> (usize, usize) {
    (index as usize / ROW, index as usize % ROW)
}

const ROW: usize = 64;

/// The number of rows in a block. The 2^20 slots of a full core are in 256 blocks.
const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_in_which_something_is_due_are_walked() {
        let mut slab = Slab::<Key, _>::new();
        let keys: Vec<_> = (0..3 * ROW + 1).map(|_| slab.occupy(|| ()).0).collect();
        let due = |slab: &mut Slab<Key, ()>, by| {
            let mut at = 0;
            std::iter::from_fn(|| slab.next_due(&mut at, Timestamp(by))).collect::<Vec<_>>()
        };
        assert_eq!(due(&mut slab, 100), [], "nothing was armed");
        slab.arm(keys[ROW + 5], Timestamp(7));
        slab.arm(keys[ROW + 9], Timestamp(20));
        slab.arm(keys[3 * ROW], Timestamp(10));
        assert_eq!(slab.due(), Timestamp(7));
        assert_eq!(slab.due_of(keys[ROW]), Timestamp(7));
        assert_eq!(due(&mut slab, 6), []);
        slab.free(keys[ROW + 1]);
        let row: Vec<_> =
            keys[ROW..2 * ROW].iter().copied().filter(|&k| k != keys[ROW + 1]).collect();
        assert_eq!(due(&mut slab, 7), row);
        assert_eq!(slab.due(), Timestamp(10), "those of the row arm themselves again");
        assert_eq!(due(&mut slab, 10), keys[3 * ROW..]);
        assert_eq!(slab.due(), Timestamp::NEVER);
        assert_eq!(due(&mut slab, Timestamp::NEVER.0).len(), 3 * ROW, "all");
    }

    /// A row that is armed while it is walked is not lost.
    #[test]
    fn a_row_can_be_armed_while_it_is_walked() {
        let mut slab = Slab::<Key, _>::new();
        let keys: Vec<_> = (0..2 * ROW).map(|_| slab.occupy(|| ()).0).collect();
        slab.arm(keys[3], Timestamp(1));
        let mut at = 0;
        while let Some(key) = slab.next_due(&mut at, Timestamp(1)) {
            slab.arm(key, Timestamp(50 + u64::from(key.index)));
            if key == keys[9] {
                slab.arm(keys[ROW], Timestamp(1));
            }
        }
        assert_eq!(at, 2 * ROW, "the row that was armed behind it was walked as well");
        assert_eq!(slab.due(), Timestamp(50));
    }

    #[test]
    fn identifiers_are_not_reused_but_memory_is() {
        let mut slab = Slab::<Key, _>::new();
        let (first, value) = slab.occupy(Vec::<u8>::new);
        value.extend_from_slice(&[1; 100]);
        slab.free(first);
        assert!(slab.find(first).is_none());
        assert_eq!(slab.at(0), None);
        let (second, value) = slab.occupy(Vec::new);
        assert!(value.capacity() >= 100);
        assert_ne!(first, second);
        assert_eq!((slab.at(0), slab.len(), slab.capacity()), (Some(second), 1, 1));
    }
}
