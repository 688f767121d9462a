//! Observing who leads on the calling thread.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::driver::{Driver, instant_in};
use super::leader::Observation;
use crate::proto::{LeaderVerdict, ObserverId, debug_by_name};

/// One who observes who leads, on the calling thread: see [`Client::observe`](super::Client::observe).
///
/// Nothing happens between two calls: it sees what nodes say while it waits, or while the client waits for anything else.
/// Dropping it ends it.
pub struct Observer<'c> {
    driver: &'c RefCell<Driver>,
    id: ObserverId,
    /// What was given out last.
    seen: Option<LeaderVerdict>,
}

impl<'c> Observer<'c> {
    pub(super) fn new(driver: &'c RefCell<Driver>, id: ObserverId) -> Self {
        Self { driver, id, seen: None }
    }

    /// Waits until something is seen that was not given out before, for at most `within`: the first time for who leads,
    /// and then for a change. `None` if there is nothing new in that time; also in a forked child.
    ///
    /// Of several changes meanwhile the last one is given out.
    pub fn changed(&mut self, within: Duration) -> Option<Observation> {
        let mut driver = self.driver.borrow_mut();
        let until = instant_in(within);
        driver.catch_up();
        // What has come is looked at also if there is no time to wait.
        driver.process();
        loop {
            // Events of locks are dropped: their guards ask the core, which knows.
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
