//! What every part of an engine relies on: its configuration, the process that started it, its limit, and calls of code
//! that is not ours.
//!
//! Invariant: a panic of a callback, a waker or a destructor of the program is caught where that is called, counted, and
//! goes no further.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread::{self, ThreadId};

use crate::api::config::Config;
use crate::api::error::EngineError;
use crate::net::{Origin, lock};

pub(super) struct Runtime {
    pub(super) config: Config,
    in_flight: AtomicUsize,
    panics: AtomicU64,
    /// The thread that drives the loop, which must not wait for itself.
    thread: Mutex<Option<ThreadId>>,
    /// A thread of the engine's own drives it.
    pub(super) has_thread: bool,
    /// In a forked process there is no thread, and a mutex may be locked for ever.
    origin: Origin,
}

impl Runtime {
    pub(super) fn new(config: Config, has_thread: bool) -> Self {
        Self {
            config,
            in_flight: AtomicUsize::new(0),
            panics: AtomicU64::new(0),
            thread: Mutex::new(None),
            has_thread,
            origin: Origin::here(),
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

    /// Makes the calling thread the engine's own, or no thread.
    pub(super) fn set_own_thread(&self, is_this: bool) {
        *lock(&self.thread) = is_this.then(|| thread::current().id());
    }

    /// Whether the calling thread drives the loop now. In a forked process the mutex may be locked for ever.
    pub(super) fn is_own_thread(&self) -> bool {
        self.is_ours() && *lock(&self.thread) == Some(thread::current().id())
    }

    /// Panics on the engine's own thread, where a callback would wait for itself, and for an engine
    /// without a thread, because the caller may be the thread that has to drive it.
    pub(super) fn refuse_own_thread(&self) {
        assert!(self.has_thread, "an engine without a thread cannot be waited for: await it");
        assert!(!self.is_own_thread(), "a callback of an engine cannot wait for that engine");
    }

    /// Counts an acquisition or an inspection as in flight.
    pub(super) fn enter(self: &Arc<Self>) -> Result<InFlight, EngineError> {
        if !self.is_ours() {
            return Err(EngineError::Forked);
        }
        let limit = self.config.in_flight();
        let room = |taken: usize| (taken < limit).then(|| taken + 1);
        match self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(InFlight(Arc::clone(self))),
            Err(_) => Err(EngineError::Busy { limit }),
        }
    }

    /// What a forked process finds of a call that was in flight.
    #[cfg(test)]
    pub(super) fn copy_in_flight(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Runs code that is not ours. A panic in it is counted and goes no further.
    pub(super) fn run(&self, foreign: impl FnOnce()) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(foreign)) else { return };
        self.panics.fetch_add(1, Ordering::Relaxed);
        // The payload is not ours either, and its drop may panic with another one. That one is leaked: dropping
        // it could go on for ever.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(payload);
        }
    }

    /// Drops what is not ours.
    pub(super) fn discard<T>(&self, foreign: T) {
        self.run(|| drop(foreign));
    }

    /// Wakes a task. The waker is the executor's code.
    pub(super) fn wake(&self, wakers: impl IntoIterator<Item = Waker>) {
        for waker in wakers {
            self.run(|| waker.wake());
        }
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// A call in flight, which counts until this is dropped.
pub(super) struct InFlight(Arc<Runtime>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
