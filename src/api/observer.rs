//! The observation of a leader on the calling thread.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::driver::{Driver, instant_in};
use super::leader::Observation;
use crate::proto::{LeaderVerdict, ObserverId, debug_by_name};

/// An observer of a leader, on the calling thread. See [`Client::observe`](super::Client::observe).
///
/// Nothing happens between two calls: it reads the answers of nodes while it waits, or while the
/// client waits for anything else. Dropping it ends the observation.
pub struct Observer<'c> {
    driver: &'c RefCell<Driver>,
    id: ObserverId,
    /// The verdict that was returned last.
    seen: Option<LeaderVerdict>,
}

impl<'c> Observer<'c> {
    pub(super) fn new(driver: &'c RefCell<Driver>, id: ObserverId) -> Self {
        Self { driver, id, seen: None }
    }

    /// Waits for at most `within` until there is a verdict that was not returned before: the leader
    /// at first, then a change. Returns `None` if there is none in that time, and in a forked
    /// child.
    ///
    /// If there were several changes since the last call, only the last is returned.
    pub fn changed(&mut self, within: Duration) -> Option<Observation> {
        let mut driver = self.driver.borrow_mut();
        let until = instant_in(within);
        driver.catch_up();
        // Bytes that have arrived are processed even if there is no time to wait.
        driver.process();
        loop {
            // Events of locks are dropped because their guards read their state from the core.
            while driver.poll_event().is_some() {}
            let fresh = driver.observation(self.id);
            if let Some(fresh) = fresh.filter(|fresh| self.seen.as_ref() != Some(&fresh.verdict)) {
                self.seen = Some(fresh.verdict.clone());
                return Some(fresh);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !driver.is_ours() {
                return None;
            }
            driver.wait_at_most(left);
        }
    }
}

impl Drop for Observer<'_> {
    fn drop(&mut self) {
        self.driver.borrow_mut().unobserve(self.id);
    }
}

debug_by_name!(Observer<'_>);
