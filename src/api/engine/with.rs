//! Work that ends with its lock: run while it is held, and notified or cancelled when it is lost.
//!
//! Invariant: the lock is released after the work, however that ends, and nothing of the work runs after the release.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::guard::OwnedGuard;
use super::handle::{LockHandle, lock_methods};
use crate::api::error::AcquireError;
use crate::proto::{LossCause, debug_by_name, messages, sources};

/// The work is dropped when this returns, before the lock is released.
pub(super) async fn unless_lost<T, F, Fut>(guard: &OwnedGuard, work: F) -> Result<T, WithError>
where
    F: FnOnce(HeldLock) -> Fut,
    Fut: Future<Output = T>,
{
    let mut lost = pin!(guard.lost());
    let mut work = pin!(work(HeldLock::of(guard)));
    let outcome = poll_fn(|context| {
        if let Poll::Ready(Some(cause)) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(cause));
        }
        // The engine's thread may be late to report a loss; the clock is not.
        if !guard.is_valid() {
            return Poll::Ready(Err(LossCause::Expired));
        }
        work.as_mut().poll(context).map(Ok)
    });
    outcome.await.map_err(WithError::Lost)
}

/// A lock as the work sees that is run under it: to look at and to extend. It is released behind the work, and
/// nothing of it is held from then on, whoever keeps this.
#[derive(Clone)]
pub struct HeldLock {
    handle: LockHandle,
}

impl HeldLock {
    pub(super) fn of(guard: &OwnedGuard) -> Self {
        Self { handle: guard.handle().clone() }
    }

    fn handle(&self) -> &LockHandle {
        &self.handle
    }
}

lock_methods!(HeldLock);
debug_by_name!(HeldLock { remaining });

messages! {
    /// Why work under a lock was not done to its end.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum WithError {
        /// There was no lock, and so no work.
        Acquire(error: AcquireError): "{error}",
        /// The lock was lost, and the work cancelled.
        Lost(cause: LossCause): "the lock is lost, and the work was cancelled: {cause}",
    }
}

sources! { WithError: Acquire; from Acquire(AcquireError) }
