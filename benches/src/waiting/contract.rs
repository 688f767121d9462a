//! The place of a waiter among others, and the time limit of a wait.

use std::time::Duration;

/// The seat of a contender among all that want the same lock.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Its number, from zero.
    pub at: usize,
    /// The number of contenders.
    pub of: usize,
}

/// The longest wait; after it the measurement is void.
pub const PATIENCE: Duration = Duration::from_secs(30);
