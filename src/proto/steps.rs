//! Steps, counted in tests, so that a nested walk shows in a number and not in time.
//!
//! A walk over locks, claims or views consists of accesses to their slots and comparisons of their
//! identifiers, which `slab` counts. Other builds count nothing.

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

    /// Returns whether this thread counts steps, so that checks of debug builds must be left out.
    pub(crate) fn is_counting() -> bool {
        IS_COUNTING.get()
    }

    /// Asserts that four times as much work takes about four times as many steps. `prepare` sets up
    /// a given number of things and returns the work on them.
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
        // Allows for a logarithm, and for work that happens only now and then.
        let most = 4 * small * 3 / 2 + 64;
        assert!(large <= most, "{few} took {small} steps, {} took {large}", 4 * few);
        assert!(small >= few as u64 / 2, "nothing was counted: {small} steps for {few}");
    }
}
