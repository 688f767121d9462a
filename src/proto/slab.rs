//! Slots that keep their memory when they are freed, under names that are never used twice.

/// The name of a slot's present tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Names nothing.
    pub(super) const NONE: Self = Self { index: u32::MAX, generation: 0 };
}

/// A growing set of slots. A freed value is not dropped: the next tenant finds its buffers.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Odd while occupied, so that a name made from it cannot match a free slot.
    generation: u32,
    value: T,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Occupies a slot whose last tenant's value is still in it, or a new one.
    pub(super) fn occupy(&mut self, new: impl FnOnce() -> T) -> (Key, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: new() });
            // The core's limit on locks keeps this far below 2^32.
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        (Key { index, generation: slot.generation }, &mut slot.value)
    }

    pub(super) fn free(&mut self, key: Key) {
        let slot = &mut self.slots[key.index as usize];
        debug_assert_eq!(slot.generation, key.generation, "a slot is freed once");
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        (slot.generation == key.generation).then_some(&slot.value)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        (slot.generation == key.generation).then_some(&mut slot.value)
    }

    /// The occupied slot at `index`, if there is one; see [`capacity`](Self::capacity).
    pub(super) fn at(&self, index: usize) -> Option<Key> {
        let generation = self.slots[index].generation;
        (generation % 2 == 1).then_some(Key { index: index as u32, generation })
    }

    /// One past the last index, for walks during which slots come and go.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_used_twice_and_memory_is() {
        let mut slab = Slab::new();
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
