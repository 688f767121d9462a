//! Futures of locks that are asked for.
//!
//! Invariant: a future that is dropped before it has returned its guard cancels the acquisition, or releases the lock
//! that was granted meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::future::{block_on, mapped_future};
use super::guard::OwnedGuard;
use super::held_lock::HeldLock;
use crate::api::error::{AcquireError, unless_contended};
use crate::proto::debug_by_name;

/// A lock that is asked for: a future, or [`wait`](Self::wait) for it.
///
/// `Send + 'static`, so that any executor can spawn it.
///
/// # Cancellation
///
/// The nodes are asked from the moment of the call, whether it is polled or not. Dropping it, as `timeout` and `select!` of
/// tokio do, cancels: everything that the nodes have granted by then, or grant later, is undone. A future that is polled long
/// after the grant is refused ([`RefusalReason::Expired`](crate::RefusalReason::Expired)) if no validity is left.
#[must_use = "dropping it cancels the acquisition"]
pub struct AcquireFuture {
    state: AcquireState,
}

enum AcquireState {
    Refused(Box<AcquireError>),
    Done,
    Pending(HeldLock),
}

impl AcquireFuture {
    pub(super) fn refused(error: impl Into<AcquireError>) -> Self {
        Self { state: AcquireState::Refused(Box::new(error.into())) }
    }

    pub(super) fn pending(handle: HeldLock) -> Self {
        Self { state: AcquireState::Pending(handle) }
    }

    /// Blocks until it is granted or refused, for as long as the request says.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`] if the request is not valid; [`AcquireError::Refused`] with every node's vote;
    /// [`AcquireError::Engine`] if the engine is busy, over or another process's. Nothing of the attempt
    /// stays on the nodes, or the undo is on its way.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, which is where callbacks run: it would wait for itself. Also if the engine has no
    /// thread.
    pub fn wait(self) -> Result<OwnedGuard, AcquireError> {
        self.refuse_own_thread();
        block_on(self)
    }

    fn refuse_own_thread(&self) {
        if let AcquireState::Pending(handle) = &self.state {
            handle.slot.runtime.refuse_own_thread();
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<OwnedGuard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &self.state {
            AcquireState::Pending(handle) => ready!(handle.slot.poll_acquired(context.waker())),
            AcquireState::Refused(_) | AcquireState::Done => Ok(()),
        };
        Poll::Ready(match std::mem::replace(&mut self.state, AcquireState::Done) {
            AcquireState::Refused(error) => Err(*error),
            AcquireState::Done => panic!("an AcquireFuture was polled after it was ready"),
            // A guard from here on, whose drop releases a lock that was granted too late. A refused acquisition
            // needs no release.
            AcquireState::Pending(handle) => {
                outcome.and_then(|()| OwnedGuard::of(handle).if_valid())
            }
        })
    }
}

impl Drop for AcquireFuture {
    fn drop(&mut self) {
        // Also if the lock was granted and the outcome was never polled: no guard exists that would release it.
        if let AcquireState::Pending(handle) = &self.state {
            handle.release();
        }
    }
}

mapped_future! {
    /// One attempt to take a lock: a future, or [`wait`](Self::wait) for it. It gives `None` if somebody else has
    /// the lock.
    ///
    /// As an [`AcquireFuture`], it asks from the moment of the call, and dropping it cancels.
    #[must_use = "dropping it cancels the acquisition"]
    pub struct TryLockFuture(AcquireFuture) -> Result<Option<OwnedGuard>, AcquireError> = unless_contended;

    /// Blocks until it is granted or refused.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Refused`]: it is not known whether somebody has it, for too few nodes vote, or answered
    /// too late. The others are those of [`AcquireFuture::wait`].
    ///
    /// # Panics
    ///
    /// On the engine's own thread, as [`AcquireFuture::wait`].
    pub fn wait;
}

/// Locks that are asked for together: a future, or [`wait`](Self::wait) for it. It gives the outcome of each, in
/// the order of the requests, once all have one.
///
/// As an [`AcquireFuture`], it asks from the moment of the call, and dropping it cancels: what was granted by
/// then is released.
#[must_use = "dropping it cancels the acquisitions"]
pub struct AcquireAllFuture {
    /// Those without an outcome, and some behind the first of them that have one.
    asked: std::vec::IntoIter<AcquireFuture>,
    outcomes: Vec<Result<OwnedGuard, AcquireError>>,
}

impl AcquireAllFuture {
    pub(super) fn new(asked: Vec<AcquireFuture>) -> Self {
        let outcomes = Vec::with_capacity(asked.len());
        Self { asked: asked.into_iter(), outcomes }
    }

    /// Blocks until each of them is granted or refused. The errors are those of [`AcquireFuture::wait`].
    ///
    /// # Panics
    ///
    /// On the engine's own thread, as [`AcquireFuture::wait`].
    pub fn wait(self) -> Vec<Result<OwnedGuard, AcquireError>> {
        self.asked.as_slice().iter().for_each(AcquireFuture::refuse_own_thread);
        block_on(self)
    }
}

impl Future for AcquireAllFuture {
    type Output = Vec<Result<OwnedGuard, AcquireError>>;

    /// One after the other, so that each is polled once for all who come before it.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { asked, outcomes } = self.get_mut();
        while let Some(first) = asked.as_mut_slice().first_mut() {
            outcomes.push(ready!(Pin::new(first).poll(context)));
            asked.next();
        }
        // The first of them may have waited for the last.
        let valid = |outcome: Result<OwnedGuard, _>| outcome.and_then(OwnedGuard::if_valid);
        Poll::Ready(std::mem::take(outcomes).into_iter().map(valid).collect())
    }
}

debug_by_name!(AcquireAllFuture, AcquireFuture, TryLockFuture);
