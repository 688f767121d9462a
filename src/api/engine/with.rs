//! Work that ends with its lock: run while it is held, and notified or cancelled when it is lost.
//!
//! Invariant: the lock is released after the work, however that ends, and nothing of the work runs after the release.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::Engine;
use super::future::{ExtendFuture, LossFuture};
use super::guard::OwnedGuard;
use super::handle::LockHandle;
use crate::api::client::WithOutcome;
use crate::api::error::AcquireError;
use crate::proto::{FencingToken, LockMode, LockRequest, LossCause, messages, sources};

impl Engine {
    /// Runs `work` under a lock. If the lock is lost, `work` is cancelled: its future is dropped where it
    /// awaits. In every case the lock is released behind it, also if `work` panics or what is returned here is
    /// dropped.
    ///
    /// The nodes are asked from the moment of the call. With [`LockRequest::auto_extend`] the lock lasts as
    /// long as the work; otherwise its lease has to, or the work extends it. A cancelled future does not get
    /// to clear up: whoever has to do that awaits [`OwnedGuard::lost`] beside the work. Between two awaits
    /// nobody can stop it: look at [`HeldLock::is_valid`] there.
    ///
    /// ```no_run
    /// use redbolt::{AutoExtend, Engine, LockRequest};
    ///
    /// # async fn write(token: u64) {}
    /// # async fn f(engine: Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// let request = LockRequest::new("invoices").auto_extend(AutoExtend::until_released()).fenced();
    /// let done = engine.with(request, |lock| async move {
    ///     let Some(token) = lock.fencing_token() else { return };
    ///     write(token.into()).await;
    /// });
    /// println!("{}", done.await?.outcome);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`WithError::Acquire`]: `work` was not run. [`WithError::Lost`]: it was cancelled. A loss that is
    /// noticed by the release is no error: `work` was done, and
    /// [`WithOutcome::outcome`](crate::WithOutcome::outcome) says so.
    pub fn with<T, F, Fut>(
        &self,
        request: LockRequest<'_>,
        work: F,
    ) -> impl Future<Output = Result<WithOutcome<T>, WithError>> + use<T, F, Fut>
    where
        F: FnOnce(HeldLock) -> Fut,
        Fut: Future<Output = T>,
    {
        let acquire = self.acquire(request);
        async move {
            let guard = acquire.await?;
            let value = unless_lost(&guard, work).await?;
            Ok(WithOutcome { value, outcome: guard.release().await })
        }
    }

    /// Runs `work` under a lock on the calling thread, which waits for the lock, and releases it behind the
    /// work, also if that panics.
    ///
    /// Nobody can cancel a thread: `work` is told of a loss by [`HeldLock::is_valid`], which it looks at before
    /// each step, or by [`HeldLock::on_loss`].
    ///
    /// # Errors
    ///
    /// As [`AcquireFuture::wait`](super::AcquireFuture::wait); `work` was not run. What is returned says whether
    /// the lock was held to the end.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if `work` does.
    pub fn with_blocking<T>(
        &self,
        request: LockRequest<'_>,
        work: impl FnOnce(HeldLock) -> T,
    ) -> Result<WithOutcome<T>, AcquireError> {
        let guard = self.acquire(request).wait()?;
        let value = work(HeldLock::of(&guard));
        Ok(WithOutcome { value, outcome: guard.release().wait() })
    }
}

/// The work is dropped when this returns, before the lock is released.
async fn unless_lost<T, F, Fut>(guard: &OwnedGuard, work: F) -> Result<T, WithError>
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
    fn of(guard: &OwnedGuard) -> Self {
        Self { handle: guard.handle().clone() }
    }

    /// The validity that is left; see [`OwnedGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.handle.slot.remaining()
    }

    /// Whether the lock is held, by the clock as it is now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Beside whom it is held.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.handle.slot.request.mode()
    }

    /// The number of its permit; see [`OwnedGuard::slot`].
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        self.handle.slot.permit()
    }

    /// The fencing token; see [`OwnedGuard::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.handle.slot.fencing_token()
    }

    /// Asks the nodes to keep the lock for `ttl` from now; see [`OwnedGuard::extend`].
    pub fn extend(&self, ttl: Duration) -> ExtendFuture {
        self.handle.extend(ttl)
    }

    /// Watches for the loss of the lock; see [`OwnedGuard::lost`].
    pub fn lost(&self) -> LossFuture {
        LossFuture::new(Arc::clone(&self.handle.slot))
    }

    /// Has `callback` called once if the lock is lost before the work is done; see [`OwnedGuard::on_loss`] for
    /// the thread on which it runs.
    pub fn on_loss(&self, callback: impl FnOnce(LossCause) + Send + 'static) {
        self.handle.slot.on_loss(Box::new(callback));
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

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
