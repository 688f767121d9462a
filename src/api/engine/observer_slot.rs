//! The latest observation of an election, shared by an observer and the engine's thread.
//!
//! Invariant: only the latest observation is kept, and each is returned once as a change.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use super::reply::register;
use super::runtime::Runtime;
use crate::api::leader::Observation;
use crate::net::lock;
use crate::proto::ObserverId;

pub(super) struct ObserverSlot {
    runtime: Arc<Runtime>,
    state: Mutex<ObserverState>,
}

#[derive(Default)]
struct ObserverState {
    /// Its id in the core, once it is there.
    id: Option<ObserverId>,
    is_dropped: bool,
    /// The thread has ended.
    is_closed: bool,
    /// An observation that was not returned as a change yet.
    fresh: Option<Observation>,
    latest: Option<Observation>,
    waiter: Option<Waker>,
}

/// The observer's side.
impl ObserverSlot {
    pub(super) fn new(runtime: Arc<Runtime>) -> Self {
        Self { runtime, state: Mutex::default() }
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(super) fn latest(&self) -> Option<Observation> {
        // In a forked child the mutex may be locked by a thread that is not there.
        if self.runtime.is_ours() { lock(&self.state).latest.clone() } else { None }
    }

    pub(super) fn poll_changed(&self, waker: &Waker) -> Poll<Option<Observation>> {
        if !self.runtime.is_ours() {
            return Poll::Ready(None);
        }
        let mut state = lock(&self.state);
        if let Some(fresh) = state.fresh.take() {
            return Poll::Ready(Some(fresh));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        let replaced = register(&mut state.waiter, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Marks it as dropped, for the case that the thread has not begun to observe. Returns the waiter, to be discarded
    /// after the message to the thread.
    #[must_use]
    pub(super) fn mark_dropped(&self) -> Option<Waker> {
        let mut state = lock(&self.state);
        state.is_dropped = true;
        state.waiter.take()
    }
}

/// The thread's side.
impl ObserverSlot {
    pub(super) fn is_dropped(&self) -> bool {
        lock(&self.state).is_dropped
    }

    pub(super) fn id(&self) -> Option<ObserverId> {
        lock(&self.state).id
    }

    pub(super) fn set_id(&self, id: ObserverId) {
        lock(&self.state).id = Some(id);
    }

    /// Keeps an observation. Returns the waiter, to be woken after the turn.
    #[must_use]
    pub(super) fn record(&self, observation: Observation) -> Option<Waker> {
        let mut state = lock(&self.state);
        state.latest = Some(observation.clone());
        state.fresh = Some(observation);
        state.waiter.take()
    }

    /// Ends it: there will be no more observations.
    pub(super) fn close(&self) {
        let waiter = {
            let mut state = lock(&self.state);
            state.is_closed = true;
            state.waiter.take()
        };
        self.runtime.wake(waiter);
    }
}
