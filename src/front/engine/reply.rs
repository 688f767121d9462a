//! One answer, put once and taken once. Not here: who puts it.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use super::EngineError;
use super::shared::Shared;
use super::slot::register;

pub(super) struct Reply<T> {
    state: Mutex<(Option<T>, Option<Waker>)>,
}

impl<T> Default for Reply<T> {
    fn default() -> Self {
        Self { state: Mutex::new((None, None)) }
    }
}

impl<T> Reply<T> {
    pub(super) fn put(&self, value: T, shared: &Shared) {
        let waiter = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = Some(value);
            state.1.take()
        };
        shared.wake(waiter);
    }

    pub(super) fn poll(&self, waker: &Waker) -> Poll<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                register(&mut state.1, waker);
                Poll::Pending
            }
        }
    }
}

/// Somebody who has asked a question, and has a place among what is in flight for it. If it is dropped
/// without an answer, then nobody is there to answer.
pub(super) struct Asker<T, E: From<EngineError>> {
    reply: Arc<Reply<Result<T, E>>>,
    shared: Arc<Shared>,
    is_answered: bool,
}

impl<T, E: From<EngineError>> Asker<T, E> {
    /// Takes a place, which [`Shared::enter`] has found.
    pub(super) fn new(reply: Arc<Reply<Result<T, E>>>, shared: Arc<Shared>) -> Self {
        Self { reply, shared, is_answered: false }
    }

    pub(super) fn answer(mut self, answer: Result<T, E>) {
        self.is_answered = true;
        self.shared.leave();
        self.reply.put(answer, &self.shared);
    }
}

impl<T, E: From<EngineError>> Drop for Asker<T, E> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.leave();
            self.reply.put(Err(EngineError::Over.into()), &self.shared);
        }
    }
}
