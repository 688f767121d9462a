//! Observing who leads from any thread or task.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::future::block_on;
use super::observer_slot::ObserverSlot;
use super::queue::Message;
use super::shared::Shared;
use crate::api::leader::Observation;
use crate::proto::debug_by_name;

/// One who observes who leads: see [`Engine::observe`](super::Engine::observe). Dropping it ends it. It does not keep
/// the engine alive.
#[must_use = "dropping it ends it"]
pub struct OwnedObserver {
    slot: Arc<ObserverSlot>,
    shared: Arc<Shared>,
}

impl OwnedObserver {
    pub(super) fn new(slot: Arc<ObserverSlot>, shared: Arc<Shared>) -> Self {
        Self { slot, shared }
    }

    /// What was seen last, as far as this process knows; `None` until it is known for the first time, and in a forked
    /// child.
    #[must_use]
    pub fn latest(&self) -> Option<Observation> {
        self.slot.latest()
    }

    /// The next change: a future, or [`wait`](ChangeFuture::wait) for it. It gives what was not given out before, first of
    /// all who leads; of several changes meanwhile the last one. `None` once the engine is shut down.
    ///
    /// ```no_run
    /// # async fn f(engine: redbolt::Engine) -> Result<(), redbolt::AcquireError> {
    /// let mut observer = engine.observe("leader:shop")?;
    /// while let Some(seen) = observer.changed().await {
    ///     match seen.leader() {
    ///         Some(leader) => println!("ask {:?}", leader.label),
    ///         None => println!("{seen}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn changed(&mut self) -> ChangeFuture<'_> {
        ChangeFuture { slot: &self.slot }
    }
}

impl Drop for OwnedObserver {
    fn drop(&mut self) {
        // A forked child must not take the mutexes, and its parent goes on to observe.
        if !self.shared.runtime.is_ours() {
            return;
        }
        let waiter = self.slot.mark_dropped();
        // An engine that has ended does not observe.
        drop(self.shared.push(Message::Unobserve(Arc::clone(&self.slot))));
        self.shared.runtime.discard(waiter);
    }
}

/// The next change of who leads: a future, or [`wait`](Self::wait) for it. Dropping it misses nothing.
#[must_use = "it says who leads"]
pub struct ChangeFuture<'o> {
    slot: &'o ObserverSlot,
}

impl ChangeFuture<'_> {
    /// Blocks until there is a change, or the engine is shut down.
    ///
    /// # Panics
    ///
    /// On the engine's own thread, and if the engine has none.
    pub fn wait(self) -> Option<Observation> {
        self.slot.runtime().refuse_own_thread();
        block_on(self)
    }
}

impl Future for ChangeFuture<'_> {
    type Output = Option<Observation>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.slot.poll_changed(context.waker())
    }
}

debug_by_name!(OwnedObserver, ChangeFuture<'_>);
