//! What the engine's calls give back: futures, each with a blocking form.
//!
//! They wait for an outcome and nothing else; what they wait for was handed to the thread by the call.
//! Plain `std::future`, so that any executor will do, and none is needed. Not here: the outcomes.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};

use super::EngineError;
use super::guard::OwnedGuard;
use super::reply::Reply;
use super::shared::Shared;
use super::slot::{Extension, Slot, Watcher};
use crate::api::client::{AcquireError, unless_contended};
use crate::api::guard::{ExtendError, ReleaseOutcome, unless_shared};
use crate::proto::LossCause;

/// A lock that is asked for: a future, or [`wait`](Self::wait) for it.
///
/// The nodes are asked from the moment of the call, whether it is polled or not. Dropping it cancels:
/// whatever the nodes have granted by then, or grant later, is undone. Whoever polls it long after it was
/// granted is refused ([`RefusalReason::Expired`](crate::RefusalReason::Expired)) if no validity is left.
#[must_use = "dropping it cancels the acquisition"]
pub struct AcquireFuture {
    state: Asked,
}

enum Asked {
    Refused(Box<AcquireError>),
    Done,
    UnderWay(Arc<Slot>),
}

impl AcquireFuture {
    pub(super) fn refused(error: impl Into<AcquireError>) -> Self {
        Self { state: Asked::Refused(Box::new(error.into())) }
    }

    pub(super) fn under_way(slot: Arc<Slot>) -> Self {
        Self { state: Asked::UnderWay(slot) }
    }

    /// Blocks until it is granted or refused, for as long as the request says.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`] at the door; [`AcquireError::Refused`] with every node's vote;
    /// [`AcquireError::Engine`] if the engine is busy, over or another process's. Nothing of the attempt
    /// stays on the nodes, or the undo is on its way.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, which is where callbacks run: it would wait for itself.
    pub fn wait(self) -> Result<OwnedGuard, AcquireError> {
        self.refuse_own_thread();
        block_on(self)
    }

    fn refuse_own_thread(&self) {
        if let Asked::UnderWay(slot) = &self.state {
            refuse_own_thread(&slot.shared);
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<OwnedGuard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &self.state {
            Asked::UnderWay(slot) => ready!(slot.poll_acquired(context.waker())),
            Asked::Refused(_) | Asked::Done => Ok(()),
        };
        Poll::Ready(match std::mem::replace(&mut self.state, Asked::Done) {
            Asked::Refused(error) => Err(*error),
            Asked::Done => panic!("an AcquireFuture was polled after it was ready"),
            // What was granted too late is undone by its guard.
            Asked::UnderWay(slot) => outcome.and_then(|()| OwnedGuard::of(slot).if_valid()),
        })
    }
}

impl Drop for AcquireFuture {
    fn drop(&mut self) {
        if let Asked::UnderWay(slot) = &self.state {
            slot.let_go();
        }
    }
}

/// One attempt to take a lock: a future, or [`wait`](Self::wait) for it. It gives `None` if somebody else has
/// the lock.
///
/// As an [`AcquireFuture`], it asks from the moment of the call, and dropping it cancels.
#[must_use = "dropping it cancels the acquisition"]
pub struct TryLockFuture {
    acquire: AcquireFuture,
}

impl TryLockFuture {
    pub(super) fn new(acquire: AcquireFuture) -> Self {
        Self { acquire }
    }

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
    pub fn wait(self) -> Result<Option<OwnedGuard>, AcquireError> {
        unless_contended(self.acquire.wait())
    }
}

impl Future for TryLockFuture {
    type Output = Result<Option<OwnedGuard>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.acquire).poll(context).map(unless_contended)
    }
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

/// An extension under way: a future, or [`wait`](Self::wait) for it.
///
/// It was handed to the thread by the call. Dropping it does not stop it.
#[must_use = "it says whether the lock was extended"]
pub struct ExtendFuture {
    reply: Arc<Extension>,
    shared: Arc<Shared>,
}

impl ExtendFuture {
    pub(super) fn new(reply: Arc<Extension>, shared: Arc<Shared>) -> Self {
        Self { reply, shared }
    }

    /// Blocks until a quorum has answered: at most the configuration's `response_timeout`.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Refused`]: the lock is held until its validity ends.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if it was ready before.
    pub fn wait(self) -> Result<(), ExtendError> {
        refuse_own_thread(&self.shared);
        block_on(self)
    }
}

impl Future for ExtendFuture {
    type Output = Result<(), ExtendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.shared.is_ours() {
            return Poll::Ready(Err(ExtendError::Lost(LossCause::Forked)));
        }
        self.reply.poll("an ExtendFuture", context.waker())
    }
}

/// A shared lock that tries to become exclusive: a future, or [`wait`](Self::wait) for it. It tells whether the lock is
/// exclusive now.
///
/// It was handed to the thread by the call. Dropping it does not stop it.
#[must_use = "it says whether the lock is exclusive"]
pub struct UpgradeFuture(ExtendFuture);

impl UpgradeFuture {
    pub(super) fn new(reply: Arc<Extension>, shared: Arc<Shared>) -> Self {
        Self(ExtendFuture { reply, shared })
    }

    /// Blocks until the nodes have answered: at most the configuration's `response_timeout`.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Request`]: it is exclusive already, or something else is under way.
    /// [`ExtendError::Refused`]: too few nodes vote, and it is shared as before.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if it was ready before.
    pub fn wait(self) -> Result<bool, ExtendError> {
        unless_shared(self.0.wait())
    }
}

impl Future for UpgradeFuture {
    type Output = Result<bool, ExtendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(unless_shared)
    }
}

/// An exclusive lock that is shared from the call on: a future, or [`wait`](Self::wait) for it. It is ready when other
/// readers may come, or when it is known that they have to wait.
///
/// Dropping it changes nothing.
#[must_use = "it says whether the lock was held"]
pub struct DowngradeFuture(ExtendFuture);

impl DowngradeFuture {
    pub(super) fn new(reply: Arc<Extension>, shared: Arc<Shared>) -> Self {
        Self(ExtendFuture { reply, shared })
    }

    /// Blocks until the nodes have answered: at most the configuration's `response_timeout`.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Request`]: it is shared already, or a lock on several resources.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if it was ready before.
    pub fn wait(self) -> Result<(), ExtendError> {
        self.0.wait()
    }
}

impl Future for DowngradeFuture {
    type Output = Result<(), ExtendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

/// A release under way: a future, or [`wait`](Self::wait) for it.
///
/// It was handed to the thread by the call. Dropping it does not stop it.
#[must_use = "it says whether the lock was held to the end"]
pub struct ReleaseFuture {
    slot: Arc<Slot>,
}

impl ReleaseFuture {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self { slot }
    }

    /// Blocks until a quorum has confirmed the release, or whoever answers has: at most the
    /// configuration's `response_timeout`.
    ///
    /// # Panics
    ///
    /// On the engine's own thread.
    pub fn wait(self) -> ReleaseOutcome {
        refuse_own_thread(&self.slot.shared);
        block_on(self)
    }
}

impl Future for ReleaseFuture {
    type Output = ReleaseOutcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.slot.poll_outcome(context.waker())
    }
}

/// The end of a lock, as seen by somebody who watches it: a future, or [`wait`](Self::wait) for it.
///
/// It gives the cause once the lock is lost, and `None` once the nodes have answered the release of a
/// lock that was held to its end. It does not keep the lock, and can be moved to another task or thread.
#[must_use = "it says when the lock is lost"]
pub struct LossFuture {
    slot: Arc<Slot>,
    number: Option<Watcher>,
}

impl LossFuture {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, number: None }
    }

    /// Blocks until the lock has ended.
    ///
    /// # Panics
    ///
    /// On the engine's own thread.
    pub fn wait(self) -> Option<LossCause> {
        refuse_own_thread(&self.slot.shared);
        block_on(self)
    }
}

impl Future for LossFuture {
    type Output = Option<LossCause>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { slot, number } = self.get_mut();
        slot.poll_lost(number, context.waker())
    }
}

impl Drop for LossFuture {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.slot.unwatch(number);
        }
    }
}

/// An answer about the engine, its nodes or a resource: a future, or [`wait`](Self::wait) for it.
#[must_use = "it does nothing but answer"]
pub struct QueryFuture<T, E = EngineError> {
    reply: Arc<Reply<Result<T, E>>>,
    shared: Arc<Shared>,
}

impl<T, E: From<EngineError>> QueryFuture<T, E> {
    pub(super) fn new(reply: Arc<Reply<Result<T, E>>>, shared: Arc<Shared>) -> Self {
        Self { reply, shared }
    }

    /// Blocks until the answer has come.
    ///
    /// # Errors
    ///
    /// The engine is busy, over, or belongs to the process that this one was forked from.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if it was ready before.
    pub fn wait(self) -> Result<T, E> {
        refuse_own_thread(&self.shared);
        block_on(self)
    }
}

impl<T, E: From<EngineError>> Future for QueryFuture<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.shared.is_ours() {
            return Poll::Ready(Err(EngineError::Forked.into()));
        }
        self.reply.poll("a QueryFuture", context.waker())
    }
}

impl<T, E> fmt::Debug for QueryFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryFuture").finish_non_exhaustive()
    }
}

macro_rules! debug_by_name {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

debug_by_name!(
    AcquireAllFuture,
    AcquireFuture,
    DowngradeFuture,
    ExtendFuture,
    LossFuture,
    ReleaseFuture,
    TryLockFuture,
    UpgradeFuture
);

pub(super) fn refuse_own_thread(shared: &Shared) {
    assert!(!shared.is_own_thread(), "a callback of an engine cannot wait for that engine");
}

/// The whole executor that a blocking call needs.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: Waker = Arc::new(Unpark(thread::current())).into();
    }
    let waker = WAKER.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
