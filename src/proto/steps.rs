//! Steps, counted in tests: so that a walk inside a walk is seen by its size and not by its time.
//!
//! Every walk over locks, claims or views is made of looks at their slots and comparisons of their names, and
//! these are counted where they happen, in `slab`. In all other builds there is nothing of it.

/// One more step.
#[inline(always)]
pub(crate) fn step() {
    #[cfg(test)]
    counted::STEPS.set(counted::STEPS.get() + 1);
}

#[cfg(test)]
pub(crate) use counted::{grows_in_proportion, is_counting};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
        static IS_COUNTING: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether steps are counted on this thread, so that what only a debug build does should not be done.
    pub(crate) fn is_counting() -> bool {
        IS_COUNTING.get()
    }

    /// Asserts that the steps of four times as much work are about four times as many. `prepare` makes a number
    /// of things ready, and what it returns is the work on them.
    #[track_caller]
    pub(crate) fn grows_in_proportion<W: FnOnce()>(few: usize, prepare: impl Fn(usize) -> W) {
        IS_COUNTING.set(true);
        let [small, large] = [few, 4 * few].map(|size| {
            let active = prepare(size);
            STEPS.set(0);
            active();
            STEPS.get()
        });
        IS_COUNTING.set(false);
        // A logarithm is allowed for, and what is only now and then.
        let most = 4 * small * 3 / 2 + 64;
        assert!(large <= most, "{few} took {small} steps, {} took {large}", 4 * few);
        assert!(small >= few as u64 / 2, "nothing was counted: {small} steps for {few}");
    }
}
