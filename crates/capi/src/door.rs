//! The door of a client: one call at a time, and locks that may be let go of at any time.
//!
//! A lock of the library borrows its client. Here it is kept with a share in the client instead, and touched behind the
//! door only. Whoever lets go of a lock while another call is inside leaves it at the door: the other call takes it
//! along when it ends. Nobody ever waits here. Not here: what calls do.

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
    /// Locks that nobody holds any longer. They borrow the client, so they are dropped before it: fields are dropped in
    /// the order in which they stand here.
    left: Mutex<Vec<LockGuard<'static>>>,
    /// Whether there are any, so that whoever leaves need not look.
    has_left: AtomicBool,
    client: Client,
}

// SAFETY: a `Client` is `Send`, so it may be used on one thread and then on another. Both it and the guards that borrow it
// are touched by whoever is behind the door, one thread at a time, and by the last drop, which is alone.
unsafe impl Send for Shared {}
// SAFETY: as above: what is reached through a shared reference is behind the door.
unsafe impl Sync for Shared {}

/// Whoever is behind the door.
pub(crate) struct Entered<'s> {
    shared: &'s Shared,
    /// `None` while it leaves.
    door: Option<MutexGuard<'s, ()>>,
}

/// A lock of a client.
pub(crate) struct Held {
    /// `None` once it was released or detached.
    guard: Mutex<Option<LockGuard<'static>>>,
    shared: Arc<Shared>,
}

impl Shared {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        let (left, has_left) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { door: Mutex::new(()), left, has_left, client })
    }

    /// Enters, unless somebody is inside.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Failure> {
        match self.door.try_lock() {
            Ok(door) => Ok(Entered { shared: self, door: Some(door) }),
            Err(TryLockError::WouldBlock) => Err(in_use()),
            // A call has panicked inside: what it left behind may be half done.
            Err(TryLockError::Poisoned(_)) => Err(Failure::panicked()),
        }
    }

    /// Lets go of a lock, now or when whoever is inside has left.
    fn let_go(&self, guard: LockGuard<'static>) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
        self.has_left.store(true, Ordering::SeqCst);
        // Whoever enters drops what was left when it leaves. If somebody is inside, then that one does.
        drop(self.enter());
    }

    /// Releases what was left, for whoever is inside.
    fn take_along(&self) {
        if self.has_left.load(Ordering::SeqCst) {
            self.has_left.store(false, Ordering::SeqCst);
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let locks = std::mem::take(&mut *left);
            // Whoever lets go of another one meanwhile does not wait for the releases of these.
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
        // Somebody may have let go of a lock after the look, and have found the door closed.
        if self.shared.has_left.load(Ordering::SeqCst) {
            drop(self.shared.enter());
        }
    }
}

impl Held {
    /// Keeps a lock with a share in the client that it borrows.
    pub(crate) fn new(shared: &Arc<Shared>, guard: LockGuard<'_>) -> Self {
        // SAFETY: only the lifetime changes. The guard borrows the client in `shared`, whose place in memory does not
        // change. It never outlives that: it is in this value beside a share, or in `left` before the client.
        let guard = unsafe { std::mem::transmute::<LockGuard<'_>, LockGuard<'static>>(guard) };
        Self { guard: Mutex::new(Some(guard)), shared: Arc::clone(shared) }
    }

    /// Asks the nodes something about the lock, and waits for them, behind the door.
    pub(crate) fn ask<T>(
        &self,
        ask: impl FnOnce(&mut LockGuard<'static>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with(|guard| {
            may_wait()?;
            ask(guard)
        })
    }

    /// Does something with the lock, behind the door.
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

    /// Ends the lock with something that waits for nodes behind the door. If somebody is inside, or nobody may wait, it is let
    /// go of.
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
