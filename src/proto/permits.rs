//! The slots of a semaphore: the order in which an attempt looks for a free one, and the choice
//! when nodes disagree.
//!
//! A permit is a slot, and each slot is a lock of a quorum. Each node grants the first slot that is
//! free there, in an order that is random for each attempt and the same on all nodes. If the nodes
//! grant different slots, the client chooses one that a quorum can grant. The nodes are asked in
//! `core/permits/`.

use std::cmp::Reverse;

/// The maximum number of permits of a semaphore.
pub const MAX_PERMITS: u16 = 1024;

/// The prefix of the key that has the expiry of each holder of a permit.
pub(super) const ENDS_PREFIX: &[u8] = b"redbolt:until:";

/// The prefix of the key that has the fencing counters of a semaphore's slots.
pub(super) const COUNTERS_PREFIX: &[u8] = b"redbolt:slotfence:";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotOrder {
    permits: u16,
    first: u16,
    /// The distance from one slot to the next. It has no common divisor with the number of permits,
    /// so that the order contains every slot.
    step: u16,
}

impl SlotOrder {
    /// The order of a lock that is not a permit.
    pub(super) const NONE: Self = Self { permits: 1, first: 0, step: 1 };

    pub(super) fn new(permits: u16, random: [u8; 16]) -> Self {
        let permits = permits.max(1);
        let number = |at: usize| u16::from_le_bytes([random[at], random[at + 1]]);
        let mut step = 1 + number(2) % permits;
        // With a common divisor the order would skip slots, which may be the only free ones.
        while divisor(step, permits) > 1 {
            step = step % permits + 1;
        }
        // Random, so that clients that start together do not all ask for the same slot.
        // The first byte of a token is less random than the others.
        Self { permits, first: number(4) % permits, step }
    }

    pub(super) fn permits(self) -> u16 {
        self.permits
    }

    pub(super) fn first(self) -> u16 {
        self.first
    }

    pub(super) fn step(self) -> u16 {
        self.step
    }

    /// Returns the slot at a position of the order.
    fn slot(self, place: usize) -> u16 {
        let at = usize::from(self.first) + place * usize::from(self.step);
        // The remainder is below the number of permits, so it fits.
        (at % usize::from(self.permits)) as u16
    }

    /// Returns the position of a slot in the order.
    fn place(self, slot: u16) -> Option<usize> {
        (0..usize::from(self.permits)).find(|&place| self.slot(place) == slot)
    }
}

fn divisor(one: u16, other: u16) -> u16 {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// The reply of a node: the slot that it granted, and the other slots that are free there, among
/// the 64 positions that it read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    slot: u16,
    /// The index of the block of 64 positions.
    part: u16,
    /// A bit for each position of the block, the lowest for the first.
    free: u64,
}

impl Offer {
    /// Returns an offer of a slot, and of the free ones in a block of 64 positions.
    pub(super) fn new(slot: u16, part: u16, free: u64) -> Self {
        Self { slot, part, free }
    }

    pub(super) fn slot(&self) -> u16 {
        self.slot
    }

    fn has_free(&self, place: usize) -> bool {
        usize::from(self.part) == place / PART && self.free >> (place % PART) & 1 == 1
    }
}

/// The number of positions that a node reads at once.
const PART: usize = 64;

/// Returns the slot that at least `quorum` of these nodes have granted or can grant; `None` if
/// there is none. Of several it is the one that most have granted, then the one that most can
/// grant, then the first in the order.
pub(super) fn best_slot(order: SlotOrder, offers: &[Offer], quorum: usize) -> Option<u16> {
    let given = offers.iter().filter_map(|offer| order.place(offer.slot));
    let free = offers.iter().flat_map(|offer| {
        let places = (0..PART).map(|at| usize::from(offer.part) * PART + at);
        places.filter(|&place| offer.has_free(place))
    });
    let worth = |place: usize| {
        let slot = order.slot(place);
        let ours = offers.iter().filter(|offer| offer.slot == slot).count();
        let open = offers.iter().filter(|offer| offer.slot != slot && offer.has_free(place));
        (ours, ours + open.count(), Reverse(place))
    };
    // A node may report a slot that this semaphore does not have, for another number of permits.
    let places = given.chain(free).filter(|&place| place < order.permits.into());
    // Less than a quorum in one slot is not a permit: two holders could have the slot at once.
    let all = places.map(worth).filter(|&(_, can, _)| can >= quorum);
    all.max().map(|(_, _, Reverse(place))| order.slot(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_comes_up_once() {
        for permits in (1..=66).chain([1000, 1023, MAX_PERMITS]) {
            for seed in [0, 1, 7, 128, 255] {
                let random = std::array::from_fn(|at| (at as u8 + 3).wrapping_mul(seed));
                let order = SlotOrder::new(permits, random);
                let mut slots: Vec<_> = (0..permits.into()).map(|at| order.slot(at)).collect();
                assert_eq!(order.place(slots[0]), Some(0));
                slots.sort_unstable();
                assert!(slots.into_iter().eq(0..permits), "{order:?}");
                assert_ne!(order.step(), 0, "that would be a move");
            }
        }
    }

    #[test]
    fn nodes_settle_on_a_slot_that_a_quorum_can_give() {
        let order = SlotOrder { permits: 10, first: 4, step: 3 };
        // The order of the slots: 4 7 0 3 6 9 2 5 8 1.
        let offer = |slot, free| Offer { slot, part: 0, free };
        let best = |offers: &[Offer], quorum| best_slot(order, offers, quorum);
        assert_eq!(best(&[offer(4, 1), offer(7, 0b11)], 2), Some(4), "one has it, one has it free");
        assert_eq!(best(&[offer(4, 1), offer(7, 0b10)], 2), None);
        let three = [offer(4, 1), offer(7, 0b1010), offer(0, 0b1100)];
        assert_eq!(best(&three, 2), Some(3), "nobody gave it, and two have it free");
        assert_eq!(best(&three, 3), None);
        let five = [offer(4, 1), offer(7, 0b11), offer(7, 0b10), offer(0, 0b111), offer(0, 0b111)];
        assert_eq!(best(&five, 3), Some(7), "the one that more have given");
        assert_eq!(best(&[offer(99, 0), offer(99, 0)], 2), None, "it is not of this semaphore");
    }

    #[test]
    fn positions_in_different_blocks_are_not_equal() {
        let order = SlotOrder { permits: 200, first: 0, step: 1 };
        let offers = [
            Offer { slot: 0, part: 0, free: 0b11 },
            Offer { slot: 64, part: 1, free: 0b11 },
            Offer { slot: 65, part: 1, free: 0b11 },
        ];
        assert_eq!(best_slot(order, &offers, 2), Some(64));
        assert_eq!(best_slot(order, &offers[..2], 2), None);
    }
}
