//! Futures of an engine that end in a callback: each is polled by the thread that wakes it, which
//! is the engine's.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A future and the callback for its outcome, which is called once: with `None` if it was cancelled
/// before.
pub(crate) struct Task<F: Future> {
    open: Mutex<Option<Open<F>>>,
}

struct Open<F: Future> {
    future: F,
    done: Box<dyn FnOnce(Option<F::Output>) + Send>,
}

impl<F: Future + Unpin + Send + 'static> Task<F> {
    /// Begins to wait. If the outcome is ready, the callback runs before this returns.
    pub(crate) fn start(
        future: F,
        done: impl FnOnce(Option<F::Output>) + Send + 'static,
    ) -> Arc<Self> {
        let task = Arc::new(Self { open: Mutex::new(Some(Open { future, done: Box::new(done) })) });
        task.step();
        task
    }

    /// Cancels, unless the outcome is ready: dropping the future cancels the request.
    pub(crate) fn cancel(&self) {
        let open = self.lock().take();
        if let Some(Open { future, done }) = open {
            drop(future);
            done(None);
        }
    }

    fn step(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut open = self.lock();
        let Some(Open { future, .. }) = &mut *open else { return };
        let Poll::Ready(output) = Pin::new(future).poll(&mut Context::from_waker(&waker)) else {
            return;
        };
        let ended = open.take();
        // The callback may make any call that does not wait.
        drop(open);
        if let Some(Open { future, done }) = ended {
            drop(future);
            done(Some(output));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open<F>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future + Unpin + Send + 'static> Wake for Task<F> {
    fn wake(self: Arc<Self>) {
        self.step();
    }
}
