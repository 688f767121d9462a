//! The wall clock of nodes, which a test can move. No other clock is used.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// The wall clock of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockReading {
    micros: u64,
}

impl ClockReading {
    /// Creates a reading from Unix time in microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    /// Creates a reading from Unix time in milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self { micros: millis * 1_000 }
    }

    /// Returns Unix time in microseconds.
    pub const fn micros(self) -> u64 {
        self.micros
    }

    /// Returns Unix time in milliseconds. It is signed, as on the server, because TTLs may be
    /// negative.
    pub(crate) fn millis(self) -> i64 {
        (self.micros / 1_000).cast_signed()
    }
}

/// The machine's wall clock plus the time that a test has added. Clones show the same time.
///
/// A test gives one clock to its nodes and, through `ConfigBuilder::bend_clock`, to its clients.
/// Leases, quarantines and graces then end when the test advances the clock, and a stalled machine
/// ends none.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let nanos = by.as_nanos().try_into().unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Returns the time by which the clock is ahead of the machine's, in ns.
    pub fn ahead(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Reads the clock.
    pub fn now(&self) -> ClockReading {
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let shown = since_epoch + Duration::from_nanos(self.ahead());
        ClockReading::from_micros(shown.as_micros().try_into().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_clock_move_together() {
        let clock = Clock::default();
        let (copy, before) = (clock.clone(), clock.now());
        copy.advance(Duration::from_secs(3_600));
        let hour_later = ClockReading::from_micros(before.micros() + 3_600_000_000);
        assert!(clock.now() >= hour_later);
    }
}
