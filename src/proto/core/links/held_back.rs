//! The claims whose requests wait until a suspected node has answered.
//!
//! The list takes no more memory than the claims that are alive require, however long the node
//! hangs.

use crate::proto::names::ClaimId;

/// The claims whose requests are held back at one node.
pub(crate) struct HeldBack(Vec<ClaimId>);

impl HeldBack {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(2 * FEW + 1))
    }

    /// Holds back the request of a claim. `waits` selects the claims that still wait; `alive` is
    /// the number of all claims.
    pub(crate) fn add(
        &mut self,
        claim: ClaimId,
        alive: usize,
        waits: impl FnMut(&ClaimId) -> bool,
    ) {
        self.0.push(claim);
        // Attempts end while a node hangs, so claims that no longer wait are removed.
        if self.0.len() > 2 * alive.max(FEW) {
            self.0.retain(waits);
        }
    }

    /// Takes the claims whose requests were held back. The list must be given back, so that its
    /// memory is reused.
    pub(crate) fn take(&mut self) -> Vec<ClaimId> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn give_back(&mut self, mut list: Vec<ClaimId>) {
        list.clear();
        self.0 = list;
    }
}

/// The number of claims with room from the start, so that a program with few locks allocates
/// nothing when a node hangs.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::slab::Key;

    /// Attempts begin and end meanwhile.
    #[test]
    fn a_node_that_hangs_for_long_takes_no_more_memory_than_one_that_hangs_for_a_moment() {
        for (alive, most) in [(3, 2 * FEW), (20, 40)] {
            let mut held_back = HeldBack::new();
            let claim = ClaimId(Key::FIRST);
            (0..most).for_each(|_| held_back.add(claim, alive, |_| false));
            let list = held_back.take();
            assert_eq!(list.len(), most, "nobody is looked at before there are many");
            held_back.give_back(list);
            for _ in 0..=most {
                held_back.add(claim, alive, |_| false);
            }
            assert_eq!(held_back.take().len(), 0);
        }
    }
}
