//! Work that ends with its lock: run while it is held, and notified or cancelled when it is lost.
//!
//! Invariant: the lock is released after the work, however that ends, and nothing of the work runs after the release.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::acquisition::AcquireFuture;
use super::held_lock::HeldLock;
use crate::api::error::AcquireError;
use crate::api::lock_lost::LockLost;
use crate::proto::LossCause;

/// Runs the work under the lock that is asked for, and releases it behind the work, which is dropped before that.
pub(super) async fn run<T, F, Fut>(acquire: AcquireFuture, work: F) -> Result<T, RunError<T>>
where
    F: FnOnce(HeldLock) -> Fut,
    Fut: Future<Output = T>,
{
    let guard = acquire.await?;
    let done = {
        let mut lost = pin!(guard.lost());
        let mut work = pin!(work(guard.lock().clone()));
        let done = poll_fn(|context| {
            if let Poll::Ready(Some(cause)) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(cause));
            }
            // The engine's thread may be late to report a loss; the clock is not.
            if !guard.is_valid() {
                return Poll::Ready(Err(LossCause::Expired));
            }
            work.as_mut().poll(context).map(Ok)
        });
        done.await
    };
    match done {
        Ok(value) => match guard.release().await {
            Ok(_) => Ok(value),
            Err(lost) => Err(RunError::Lost { lost, value: Some(value) }),
        },
        Err(cause) => Err(RunError::Lost { lost: guard.slot().lost_by(cause), value: None }),
    }
}

/// Why work under a lock was not done, or was not covered by it to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError<T> {
    /// There was no lock, and so no work.
    Acquire(AcquireError),
    /// The lock was lost before it was released.
    #[non_exhaustive]
    Lost {
        /// Which lock, and how.
        lost: LockLost,
        /// What the work returned that had ended by then; `None` if it was cancelled.
        value: Option<T>,
    },
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) => error.fmt(f),
            Self::Lost { lost, value: Some(_) } => write!(f, "{lost}; the work was done"),
            Self::Lost { lost, value: None } => write!(f, "{lost}; the work was cancelled"),
        }
    }
}

impl<T: fmt::Debug> Error for RunError<T> {}

impl<T> From<AcquireError> for RunError<T> {
    fn from(error: AcquireError) -> Self {
        Self::Acquire(error)
    }
}
