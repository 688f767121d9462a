//! What handles, guards, futures and the thread have in common. Not here: anything about one lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::Instant;

use super::queue::Queue;
use super::reentrant::Holds;
use super::shutdown::ShutdownReport;
use super::{EngineError, EngineLimits};
use crate::api::config::Config;
use crate::net::Origin;

pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) limits: EngineLimits,
    pub(super) queue: Queue,
    /// The locks of owners who may enter them again.
    pub(super) holds: Holds,
    /// The engine's own thread, which must not wait for itself.
    pub(super) thread: OnceLock<ThreadId>,
    in_flight: AtomicUsize,
    panics: AtomicU64,
    /// In a forked process there is no thread, and a mutex may be locked for ever.
    origin: Origin,
    report: Mutex<Option<ShutdownReport>>,
    ended: Condvar,
}

impl Shared {
    pub(super) fn new(config: Config, limits: EngineLimits, queue: Queue) -> Self {
        Self {
            config,
            limits,
            queue,
            holds: Holds::default(),
            thread: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            panics: AtomicU64::new(0),
            origin: Origin::here(),
            report: Mutex::new(None),
            ended: Condvar::new(),
        }
    }

    /// Whether this is the process that made it.
    #[inline]
    pub(super) fn is_ours(&self) -> bool {
        self.origin.is_here()
    }

    /// As a forked process finds it.
    #[cfg(test)]
    pub(super) fn forked(self) -> Self {
        Self { origin: Origin::elsewhere(), ..self }
    }

    pub(super) fn is_own_thread(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// Takes a place for an acquisition or an inspection.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Place, EngineError> {
        if !self.is_ours() {
            return Err(EngineError::Forked);
        }
        let limit = self.limits.in_flight;
        let room = |taken: usize| (taken < limit).then(|| taken + 1);
        match self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(Place(Arc::clone(self))),
            Err(_) => Err(EngineError::Busy { limit }),
        }
    }

    /// A place for what a forked process finds.
    #[cfg(test)]
    pub(super) fn copy_of_a_place(self: &Arc<Self>) -> Place {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(self))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Runs code that is not ours. A panic in it is counted and goes no further.
    pub(super) fn run(&self, foreign: impl FnOnce()) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(foreign)) else { return };
        self.panics.fetch_add(1, Ordering::Relaxed);
        // What it panicked with is not ours either, and neither is what the drop of that panics with: it
        // is never dropped, for this could go on for ever.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(payload);
        }
    }

    /// Drops what is not ours. What that does is up to its owner.
    pub(super) fn discard<T>(&self, foreign: T) {
        self.run(|| drop(foreign));
    }

    /// Wakes a task. What a waker does is up to the executor.
    pub(super) fn wake(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.run(|| waker.wake());
        }
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// The thread has done its last.
    pub(super) fn end(&self, report: ShutdownReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.ended.notify_all();
    }

    /// What the thread reported at its end, if it ends by then.
    pub(super) fn report_by(&self, until: Instant) -> Option<ShutdownReport> {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if report.is_some() || left.is_zero() {
                return report.clone();
            }
            let waited = self.ended.wait_timeout(report, left);
            report = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A place among what is in flight, which is given back by its drop.
pub(super) struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
