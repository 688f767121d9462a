//! One answer, put once and taken once. Not here: who puts it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::EngineError;
use super::shared::{Place, Shared};
use super::slot::register;

pub(super) struct Reply<T> {
    state: Mutex<State<T>>,
}

enum State<T> {
    Awaited(Option<Waker>),
    Put(T),
    Taken,
}

impl<T> Default for Reply<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State::Awaited(None)) }
    }
}

impl<T> Reply<T> {
    pub(super) fn put(&self, value: T, shared: &Shared) {
        let before = std::mem::replace(&mut *self.lock(), State::Put(value));
        if let State::Awaited(waiter) = before {
            shared.wake(waiter);
        }
    }

    /// Takes the answer if it is there. Nobody would ever wake `who` asks for it a second time.
    pub(super) fn poll(&self, who: &str, waker: &Waker) -> Poll<T> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Put(value) => Poll::Ready(value),
            State::Taken => panic!("{who} was polled after it was ready"),
            State::Awaited(mut waiter) => {
                let replaced = register(&mut waiter, waker);
                *state = State::Awaited(waiter);
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who has asked a question, with the place that it may have among what is in flight. If it is
/// dropped without an answer, then nobody is there to answer.
pub(super) struct Asker<T, E: From<EngineError>> {
    reply: Arc<Reply<Result<T, E>>>,
    shared: Arc<Shared>,
    place: Option<Place>,
    is_answered: bool,
}

impl<T, E: From<EngineError>> Asker<T, E> {
    pub(super) fn new(
        reply: Arc<Reply<Result<T, E>>>,
        shared: Arc<Shared>,
        place: Option<Place>,
    ) -> Self {
        Self { reply, shared, place, is_answered: false }
    }

    pub(super) fn answer(mut self, answer: Result<T, E>) {
        self.put(answer);
    }

    fn put(&mut self, answer: Result<T, E>) {
        self.is_answered = true;
        self.place = None;
        self.reply.put(answer, &self.shared);
    }
}

impl<T, E: From<EngineError>> Drop for Asker<T, E> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.put(Err(EngineError::ShutDown.into()));
        }
    }
}
