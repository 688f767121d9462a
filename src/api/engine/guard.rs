//! The guard of a lock that an engine has granted.
//!
//! Invariant: it queues one release, or one request to detach the lock, and a forked child queues none.

use std::ops::Deref;
use std::sync::Arc;

use super::future::{ExtendFuture, QueryFuture, ReleaseFuture, UpgradeFuture};
use super::held_lock::HeldLock;
use super::queue::Message;
use super::reply::{Reply, Responder};
use super::slot::LockSlot;
use crate::api::error::AcquireError;
use crate::proto::{DetachedLock, LockMode, debug_by_name};

/// A lock that an [`Engine`](super::Engine) has granted. `Send` and `Sync`, and bound to no lifetime.
///
/// It protects nothing by itself: check [`is_valid`](HeldLock::is_valid) before each step that relies on it,
/// and know that a pause between the check and the step cannot be seen from here.
///
/// Dropping it queues the release and never blocks. It does not keep the engine alive: with the last
/// handle, or by a shutdown, the lock is lost ([`LossCause::ShutDown`](crate::LossCause::ShutDown)). In
/// a forked child it is worth nothing ([`LossCause::Forked`](crate::LossCause::Forked)), and to drop it
/// there does no harm.
#[must_use = "dropping the guard releases the lock"]
pub struct OwnedGuard {
    /// Empty once it was released or detached.
    lock: Option<HeldLock>,
}

impl OwnedGuard {
    /// A guard for a lock that was granted.
    pub(super) fn of(lock: HeldLock) -> Self {
        Self { lock: Some(lock) }
    }

    /// Itself, if anything is left of the lock.
    pub(super) fn if_valid(self) -> Result<Self, AcquireError> {
        if self.is_valid() { Ok(self) } else { Err(self.slot().why_ended()) }
    }

    /// What the slot of another process would have of it.
    #[cfg(test)]
    pub(super) fn copy(&self) -> (crate::proto::Lease, crate::proto::Votes) {
        self.slot().copy()
    }

    /// The resources that it is a lock on.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.slot().request.resources()
    }

    /// Tries once to become the only holder of a resource that is shared, and tells whether it is. It keeps its shared lock
    /// whatever comes of that: `false` says that others share it, and nothing is different. From `true` on
    /// the guard is exclusive, with a validity and a fencing token of its own.
    ///
    /// There is no waiting for it: two who wait for each other to let go would wait for ever. Whoever has to write
    /// releases its shared lock and takes an exclusive one, and reads again what it has read.
    ///
    /// ```no_run
    /// # async fn f(engine: redbolt::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// # use redbolt::LockRequest;
    /// let lock = engine.acquire(LockRequest::new("prices").shared()).await?;
    /// if lock.try_upgrade().await? {
    ///     // Nobody else is there: write.
    ///     lock.downgrade().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_upgrade(&self) -> UpgradeFuture {
        UpgradeFuture::new(self.lock().change_mode(LockMode::Exclusive))
    }

    /// Shares a resource from now on that it held alone, with a validity that is no shorter. The holder is a reader from the
    /// call on, whether or not anybody waits for the future, which is ready when other readers may come, or when it is known
    /// that they have to wait until the lock is released or its TTL is over.
    ///
    /// It keeps its fencing token, which readers who come later may be ahead of.
    pub fn downgrade(&self) -> ExtendFuture {
        self.lock().change_mode(LockMode::Shared)
    }

    /// Releases the lock. The release is queued by the call, whether or not anybody waits for the future, which fails if the
    /// lock was lost before.
    pub fn release(mut self) -> ReleaseFuture {
        let lock = self.take_lock();
        lock.release();
        ReleaseFuture::new(lock.slot)
    }

    /// Detaches the lock, for another process on this machine to [attach](super::Engine::attach). Until then it
    /// stays taken, its lease runs, and nobody extends it. `None` if it is lost.
    ///
    /// The thread waits for nodes that have not answered yet, because those that have will be the ones that
    /// count for the lock: for a twentieth of its validity and for half a second at the most. Dropping the
    /// future does not stop it: the lock is taken then until its lease is over.
    ///
    /// # Errors
    ///
    /// [`EngineError::ShutDown`](super::EngineError::ShutDown), and the lock is released;
    /// [`EngineError::Forked`](super::EngineError::Forked) in a forked child.
    pub fn detach(mut self) -> QueryFuture<Option<DetachedLock>> {
        let lock = self.take_lock();
        let (runtime, reply) = (Arc::clone(&lock.slot.runtime), Arc::new(Reply::default()));
        let responder = Responder::new(Arc::clone(&reply), Arc::clone(&runtime), None);
        lock.hand_over(Message::Detach(Arc::clone(&lock.slot), responder));
        QueryFuture::new(reply, runtime)
    }

    fn take_lock(&mut self) -> HeldLock {
        self.lock.take().expect("only its end empties it, and takes the guard with it")
    }

    pub(super) fn lock(&self) -> &HeldLock {
        self.lock.as_ref().expect("only its end empties it, and takes the guard with it")
    }

    pub(super) fn slot(&self) -> &Arc<LockSlot> {
        &self.lock().slot
    }
}

impl Drop for OwnedGuard {
    fn drop(&mut self) {
        // Empty after a release or a detachment, which has queued its message.
        if let Some(lock) = &self.lock {
            lock.release();
        }
    }
}

impl Deref for OwnedGuard {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        self.lock()
    }
}

debug_by_name!(OwnedGuard { remaining });
