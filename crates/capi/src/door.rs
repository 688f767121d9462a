//! The door of a client: it admits one call at a time, while locks may be dropped at any time.
//!
//! A lock of the library borrows its client. Here each lock is kept with a shared reference to the
//! client, and used only by a call that has entered the door. A lock that is dropped while another
//! call is inside is put into `left`, and that call releases it when it ends. No thread ever waits
//! to enter.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use redbolt::{Client, LockGuard};

use crate::call::may_wait;
use crate::failure::Failure;
use crate::status::Status;

/// A client, shared by its handle and by its locks.
pub(crate) struct Shared {
    door: Mutex<()>,
    /// The dropped locks. They borrow the client, so they are dropped before it: fields are dropped
    /// in the order in which they are declared.
    left: Mutex<Vec<LockGuard<'static>>>,
    /// `true` if `left` has locks, so that a call that leaves need not lock it.
    has_left: AtomicBool,
    client: Client,
}

// SAFETY: a `Client` is `Send`, so it may be used on one thread and then on another. Both it and
// the guards that borrow it are used only by the thread that has entered the door, one at a time,
// and by the last drop, which has exclusive access.
unsafe impl Send for Shared {}
// SAFETY: as above: everything that a shared reference reaches is behind the door.
unsafe impl Sync for Shared {}

/// A call that has entered the door.
pub(crate) struct Entered<'s> {
    shared: &'s Shared,
    /// The door; `None` while the call leaves.
    door: Option<MutexGuard<'s, ()>>,
}

/// A lock of a client.
pub(crate) struct Held {
    /// The guard; `None` once it was released or detached.
    guard: Mutex<Option<LockGuard<'static>>>,
    shared: Arc<Shared>,
}

impl Shared {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        let (left, has_left) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { door: Mutex::new(()), left, has_left, client })
    }

    /// Enters, unless another call is inside.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Failure> {
        match self.door.try_lock() {
            Ok(door) => Ok(Entered { shared: self, door: Some(door) }),
            Err(TryLockError::WouldBlock) => Err(in_use()),
            // A call has panicked inside, and may have left its work half done.
            Err(TryLockError::Poisoned(_)) => Err(Failure::panicked()),
        }
    }

    /// Drops a lock, now or when the call inside has left.
    fn let_go(&self, guard: LockGuard<'static>) {
        // Dropping a guard uses the client, which another call may be using at this moment.
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
        self.has_left.store(true, Ordering::SeqCst);
        // A call that enters releases the dropped locks when it leaves. If another call is inside,
        // that one releases them.
        drop(self.enter());
    }

    /// Releases the dropped locks, for the call inside.
    fn take_along(&self) {
        if self.has_left.load(Ordering::SeqCst) {
            self.has_left.store(false, Ordering::SeqCst);
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let locks = std::mem::take(&mut *left);
            // The mutex is freed first, so that a thread that drops another lock meanwhile does not
            // wait for these releases.
            drop(left);
            drop(locks);
        }
    }
}

impl Deref for Entered<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.shared.client
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.shared.take_along();
        drop(self.door.take());
        // Another thread may have dropped a lock after `take_along` looked, and have found the door
        // closed.
        if self.shared.has_left.load(Ordering::SeqCst) {
            drop(self.shared.enter());
        }
    }
}

impl Held {
    /// Keeps a lock with a shared reference to the client that it borrows.
    pub(crate) fn new(shared: &Arc<Shared>, guard: LockGuard<'_>) -> Self {
        // SAFETY: only the lifetime changes. The guard borrows the client in `shared`, whose place
        // in memory does not change. It never outlives that: it is in this value together with a
        // reference, or in `left`, which is dropped before the client.
        let guard = unsafe { std::mem::transmute::<LockGuard<'_>, LockGuard<'static>>(guard) };
        Self { guard: Mutex::new(Some(guard)), shared: Arc::clone(shared) }
    }

    /// Runs a call on the lock that waits for the nodes, inside the door.
    pub(crate) fn ask<T>(
        &self,
        ask: impl FnOnce(&mut LockGuard<'static>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with(|guard| {
            may_wait()?;
            ask(guard)
        })
    }

    /// Runs a call on the lock inside the door.
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut LockGuard<'static>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _inside = self.shared.enter()?;
        match self.guard.try_lock().as_deref_mut() {
            Ok(Some(guard)) => act(guard),
            _ => Err(Failure::new(Status::Lost, "the lock was let go of")),
        }
    }

    /// Ends the lock with a call that waits for nodes, inside the door. If another call is inside,
    /// or this thread may not wait, the lock is dropped.
    pub(crate) fn end<T>(
        self,
        end: impl FnOnce(LockGuard<'static>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _inside = self.shared.enter()?;
        may_wait()?;
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        end(guard.expect("only its end takes the guard, and takes the lock with it"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(guard) = guard {
            self.shared.let_go(guard);
        }
    }
}

pub(crate) fn in_use() -> Failure {
    Failure::plain(Status::InUse)
}
