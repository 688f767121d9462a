//! Futures of what is asked about a lock that is held, and of queries, each with a blocking form.
//!
//! They wait for an outcome and nothing else: what they wait for was handed to the thread by the call. Plain `std::future`,
//! so that any executor will do, and none is needed.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::reply::Reply;
use super::runtime::Runtime;
use super::slot::{ExtendReply, LockSlot, Watcher};
use crate::api::error::EngineError;
use crate::api::guard::{ExtendError, unless_shared};
use crate::api::lock_lost::{LockLost, LockName};
use crate::proto::{LossCause, Released, debug_by_name};

/// An extension or a downgrade under way: a future, or [`wait`](Self::wait) for it.
///
/// It was handed to the thread by the call. Dropping it does not stop it.
#[must_use = "it says whether the lock is still held"]
pub struct ExtendFuture {
    reply: Arc<ExtendReply>,
    runtime: Arc<Runtime>,
}

impl ExtendFuture {
    pub(super) fn new(reply: Arc<ExtendReply>, runtime: Arc<Runtime>) -> Self {
        Self { reply, runtime }
    }

    /// Blocks until a quorum has answered: at most the configuration's `response_timeout`.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Refused`]: the lock is held until its validity ends.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, if the engine has none, and if the future was ready before.
    pub fn wait(self) -> Result<(), ExtendError> {
        self.runtime.refuse_own_thread();
        block_on(self)
    }
}

impl Future for ExtendFuture {
    type Output = Result<(), ExtendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.runtime.is_ours() {
            return Poll::Ready(Err(ExtendError::Lost(LockLost::new(
                LockName::default(),
                LossCause::Forked,
            ))));
        }
        self.reply.poll("an ExtendFuture", context.waker())
    }
}

/// Declares a future that changes the outcome of another one.
macro_rules! mapped_future {
    (
        $(#[$about:meta])+
        pub struct $name:ident($inner:ty) -> $output:ty = $map:expr;
        $(#[$wait:meta])+
        pub fn wait;
    ) => {
        $(#[$about])+
        pub struct $name($inner);

        impl $name {
            pub(super) fn new(inner: $inner) -> Self {
                Self(inner)
            }

            $(#[$wait])+
            pub fn wait(self) -> $output {
                $map(self.0.wait())
            }
        }

        impl std::future::Future for $name {
            type Output = $output;

            fn poll(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                std::pin::Pin::new(&mut self.0).poll(context).map($map)
            }
        }
    };
}

pub(super) use mapped_future;

mapped_future! {
    /// A shared lock that tries to become exclusive: a future, or [`wait`](Self::wait) for it. It tells whether the lock is
    /// exclusive now.
    ///
    /// It was handed to the thread by the call. Dropping it does not stop it.
    #[must_use = "it says whether the lock is exclusive"]
    pub struct UpgradeFuture(ExtendFuture) -> Result<bool, ExtendError> = unless_shared;

    /// Blocks until the nodes have answered: at most the configuration's `response_timeout`.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Request`]: it is exclusive already, or something else is under way.
    /// [`ExtendError::Refused`]: too few nodes vote, and it is shared as before.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, if the engine has none, and if the future was ready before.
    pub fn wait;
}

/// A release under way: a future, or [`wait`](Self::wait) for it.
///
/// It was handed to the thread by the call. Dropping it does not stop it.
#[must_use = "it says whether the lock was held to the end"]
pub struct ReleaseFuture {
    slot: Arc<LockSlot>,
}

impl ReleaseFuture {
    pub(super) fn new(slot: Arc<LockSlot>) -> Self {
        Self { slot }
    }

    /// Blocks until a quorum has confirmed the release, or whoever answers has: at most the
    /// configuration's `response_timeout`.
    ///
    /// # Errors
    ///
    /// The lock was lost before it was released.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if the engine has none.
    pub fn wait(self) -> Result<Released, LockLost> {
        self.slot.runtime.refuse_own_thread();
        block_on(self)
    }
}

impl Future for ReleaseFuture {
    type Output = Result<Released, LockLost>;

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
    slot: Arc<LockSlot>,
    number: Option<Watcher>,
}

impl LossFuture {
    pub(super) fn new(slot: Arc<LockSlot>) -> Self {
        Self { slot, number: None }
    }

    /// Blocks until the lock has ended.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if the engine has none.
    pub fn wait(self) -> Option<LossCause> {
        self.slot.runtime.refuse_own_thread();
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
    runtime: Arc<Runtime>,
}

impl<T, E: From<EngineError>> QueryFuture<T, E> {
    pub(super) fn new(reply: Arc<Reply<Result<T, E>>>, runtime: Arc<Runtime>) -> Self {
        Self { reply, runtime }
    }

    /// Blocks until the answer has come.
    ///
    /// # Errors
    ///
    /// The engine is busy, over, or belongs to the process that this one was forked from.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, if the engine has none, and if the future was ready before.
    pub fn wait(self) -> Result<T, E> {
        self.runtime.refuse_own_thread();
        block_on(self)
    }
}

impl<T, E: From<EngineError>> Future for QueryFuture<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.runtime.is_ours() {
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

debug_by_name!(ExtendFuture, LossFuture, ReleaseFuture, UpgradeFuture);

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
