//! Busy polling: trying for a moment before a sleep, for programs with a CPU core to spare.
//!
//! A sleep and the wake-up after it take as long as a near node takes to answer. The bound can be
//! tested without a clock.

use std::time::Duration;

use crate::proto::Timestamp;

/// Tries until it succeeds, for at most `span` by `clock`. Returns whether it did. With a span of
/// zero nothing is tried.
pub(super) fn spin(
    span: Duration,
    clock: impl Fn() -> Timestamp,
    mut succeeds: impl FnMut() -> bool,
) -> bool {
    if span.is_zero() {
        return false;
    }
    let start = clock();
    loop {
        if succeeds() {
            return true;
        }
        if clock().since(start) >= span {
            return false;
        }
    }
}

/// The longest span: far more than an answer in one data center takes, and too little to be noticed
/// on a core that waits for an answer that does not come.
pub(super) const LONGEST: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TICK: Duration = Duration::from_micros(1);

    /// Returns how often it tries, and whether it succeeds, if each reading of the clock takes a
    /// tick and the try with this number succeeds.
    fn tries(span: Duration, lucky: u32) -> (u32, bool) {
        let (time, tries) = (Cell::new(Timestamp(0)), Cell::new(0));
        let clock = || time.replace(time.get() + TICK);
        let succeeded = spin(span, clock, || {
            tries.set(tries.get() + 1);
            tries.get() == lucky
        });
        (tries.get(), succeeded)
    }

    #[test]
    fn it_ends_with_the_first_success() {
        assert_eq!(tries(LONGEST, 1), (1, true));
        assert_eq!(tries(LONGEST, 17), (17, true));
    }

    #[test]
    fn it_ends_with_its_span() {
        assert_eq!(tries(5 * TICK, 100), (5, false));
        assert_eq!(tries(LONGEST, 1000), (200, false));
        assert_eq!(tries(TICK / 2, 100), (1, false));
        assert_eq!(tries(Duration::ZERO, 1), (0, false), "off");
    }
}
