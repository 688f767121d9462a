//! What an engine does with the requests that begin at it.

use std::future::{Future, IntoFuture};

use super::Engine;
use super::acquisition::{AcquireFuture, TryLockFuture};
use super::guard::OwnedGuard;
use super::held_lock::HeldLock;
use super::leadership::CampaignFuture;
use super::run::{RunError, run};
use crate::api::builder::RequestBuilder;
use crate::api::error::AcquireError;
use crate::proto::Wait;

impl RequestBuilder<Engine> {
    /// Asks from this call on. To `.await` the builder is the same.
    pub fn acquire(self) -> AcquireFuture {
        self.handle.acquire(self.request)
    }

    /// Waits for it on this thread, for as long as it says.
    ///
    /// # Errors
    ///
    /// As [`AcquireFuture::wait`].
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if the engine has none.
    pub fn acquire_blocking(self) -> Result<OwnedGuard, AcquireError> {
        self.acquire().wait()
    }

    /// Tries once. `None` says that another client has the lock: a quorum of the nodes has answered, and others
    /// have what is missing.
    pub fn try_acquire(self) -> TryLockFuture {
        TryLockFuture::new(self.wait(Wait::No).acquire())
    }

    /// Stands for election: the lead is this lock, with a fencing token, which is the term. See
    /// [leaders](crate::manual::leader).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn f(engine: redbolt::Engine) -> Result<(), redbolt::AcquireError> {
    /// // Another one leads 3 s after this process has died, at the latest.
    /// let lead = engine.lock("leader:shop").ttl(Duration::from_secs(3)).campaign().await?;
    /// # drop(lead); Ok(()) }
    /// ```
    pub fn campaign(self) -> CampaignFuture {
        CampaignFuture::new(self.fenced().acquire())
    }

    /// Runs `work` while the lock is held, and releases the lock after it, also if `work` panics.
    ///
    /// The returned future is `Send` if `work`, its future and its value are, and `'static` if they are, so that it can be
    /// spawned. The nodes are asked from the moment of the call.
    ///
    /// # Cancellation
    ///
    /// If the lock is lost, or the returned future is dropped, the future of `work` is dropped where it awaits, and the lock is
    /// released after that. Between two awaits nothing stops it: check [`HeldLock::is_valid`] there. Work that has to
    /// clean up does so in a `drop`, or awaits [`HeldLock::lost`] in a `select!`.
    ///
    /// ```no_run
    /// # async fn make_report(_: redbolt::engine::HeldLock) -> String { String::new() }
    /// # async fn f(engine: redbolt::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = engine.lock("nightly").run(|lock| async move { make_report(lock).await }).await?;
    /// # drop(report); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`]: `work` was not run. [`RunError::Lost`]: it was cancelled; or it had ended before the
    /// loss was noticed, and the error has its value.
    pub fn run<T, F, Fut>(
        self,
        work: F,
    ) -> impl Future<Output = Result<T, RunError<T>>> + use<T, F, Fut>
    where
        F: FnOnce(HeldLock) -> Fut,
        Fut: Future<Output = T>,
    {
        run(self.acquire(), work)
    }
}

impl IntoFuture for RequestBuilder<Engine> {
    type Output = Result<OwnedGuard, AcquireError>;
    type IntoFuture = AcquireFuture;

    fn into_future(self) -> AcquireFuture {
        self.acquire()
    }
}
