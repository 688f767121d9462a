//! One answer, sent once and taken once, as a oneshot channel.
//!
//! Invariant: a reply whose sender is gone has an answer, so that no caller waits for ever.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use super::runtime::{InFlight, Runtime};
use crate::api::error::EngineError;
use crate::net::lock;

pub(super) struct Reply<T> {
    state: Mutex<ReplyState<T>>,
}

enum ReplyState<T> {
    Awaited(Option<Waker>),
    Sent(T),
    Taken,
}

impl<T> Default for Reply<T> {
    fn default() -> Self {
        Self { state: Mutex::new(ReplyState::Awaited(None)) }
    }
}

impl<T> Reply<T> {
    /// A reply whose answer is known.
    pub(super) fn of(value: T) -> Self {
        Self { state: Mutex::new(ReplyState::Sent(value)) }
    }

    /// Sends the answer. If its future was dropped, the answer is dropped with the reply: a guard in it then releases
    /// its lock.
    pub(super) fn send(&self, value: T, runtime: &Runtime) {
        let before = std::mem::replace(&mut *lock(&self.state), ReplyState::Sent(value));
        // After the mutex is free: the waker is not ours, and may poll this reply.
        if let ReplyState::Awaited(waiter) = before {
            runtime.wake(waiter);
        }
    }

    /// Takes the answer if it is there. Panics if it was taken before, because `future` would never be woken.
    pub(super) fn poll(&self, future: &str, waker: &Waker) -> Poll<T> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, ReplyState::Taken) {
            ReplyState::Sent(value) => Poll::Ready(value),
            ReplyState::Taken => panic!("{future} was polled after it was ready"),
            ReplyState::Awaited(mut waiter) => {
                let replaced = register(&mut waiter, waker);
                *state = ReplyState::Awaited(waiter);
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }
}

/// The sender of one reply, with the call that may count as in flight until then.
pub(super) struct Responder<T, E: From<EngineError>> {
    reply: Arc<Reply<Result<T, E>>>,
    runtime: Arc<Runtime>,
    in_flight: Option<InFlight>,
    has_sent: bool,
}

impl<T, E: From<EngineError>> Responder<T, E> {
    pub(super) fn new(
        reply: Arc<Reply<Result<T, E>>>,
        runtime: Arc<Runtime>,
        in_flight: Option<InFlight>,
    ) -> Self {
        Self { reply, runtime, in_flight, has_sent: false }
    }

    pub(super) fn send(mut self, answer: Result<T, E>) {
        self.put(answer);
    }

    fn put(&mut self, answer: Result<T, E>) {
        self.has_sent = true;
        // Before the caller is woken, which may begin its next call at once.
        self.in_flight = None;
        self.reply.send(answer, &self.runtime);
    }
}

impl<T, E: From<EngineError>> Drop for Responder<T, E> {
    /// A message that is dropped, also by a panic of the thread, is answered.
    fn drop(&mut self) {
        if !self.has_sent {
            self.put(Err(EngineError::ShutDown.into()));
        }
    }
}

/// Registers a waker, without a copy of one that is registered already. What it replaces is returned, to be dropped
/// after the mutex is free: its destructor is not ours.
#[must_use]
pub(super) fn register(known: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
        return None;
    }
    known.replace(waker.clone())
}
