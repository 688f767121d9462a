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

/// Puts an answer, also if it is dropped without one: then nobody is there to answer.
pub(super) struct Sender<T> {
    reply: Option<Arc<Reply<Result<T, EngineError>>>>,
    shared: Arc<Shared>,
}

impl<T> Sender<T> {
    pub(super) fn new(reply: Arc<Reply<Result<T, EngineError>>>, shared: Arc<Shared>) -> Self {
        Self { reply: Some(reply), shared }
    }

    pub(super) fn send(mut self, value: T) {
        if let Some(reply) = self.reply.take() {
            reply.put(Ok(value), &self.shared);
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            reply.put(Err(EngineError::Over), &self.shared);
        }
    }
}
