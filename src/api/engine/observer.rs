//! Observing who leads from any thread or task.
//!
//! The thread leaves what it has seen in a place that it shares with whoever observes, the latest only, and wakes them.
//! Not here: what is seen, see the API's `leader`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::future::{block_on, refuse_own_thread};
use super::queue::Command;
use super::shared::Shared;
use super::slot::register;
use crate::api::leader::Observation;
use crate::proto::ObserverId;

/// What one who observes shares with the engine's thread.
pub(super) struct Lookout {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Its name in the core, once it is there.
    id: Option<ObserverId>,
    /// The thread is not to begin, or to end, with it.
    is_let_go: bool,
    /// Nothing more will be seen.
    is_over: bool,
    /// What was not given out yet.
    fresh: Option<Observation>,
    latest: Option<Observation>,
    waiter: Option<Waker>,
}

impl Lookout {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_changed(&self, waker: &Waker) -> Poll<Option<Observation>> {
        // In a forked child the mutex may be locked by a thread that is not there.
        if !self.shared.is_ours() {
            return Poll::Ready(None);
        }
        let mut state = self.lock();
        if let Some(fresh) = state.fresh.take() {
            return Poll::Ready(Some(fresh));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        let replaced = register(&mut state.waiter, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

/// The thread's side.
impl Lookout {
    pub(super) fn is_let_go(&self) -> bool {
        self.lock().is_let_go
    }

    pub(super) fn id(&self) -> Option<ObserverId> {
        self.lock().id
    }

    pub(super) fn begun(&self, id: ObserverId) {
        self.lock().id = Some(id);
    }

    /// Leaves what was seen. Whoever waits for it is given back.
    #[must_use]
    pub(super) fn seen(&self, observation: Observation) -> Option<Waker> {
        let mut state = self.lock();
        state.latest = Some(observation.clone());
        state.fresh = Some(observation);
        state.waiter.take()
    }

    /// The thread is no more.
    pub(super) fn over(&self) {
        let waiter = {
            let mut state = self.lock();
            state.is_over = true;
            state.waiter.take()
        };
        self.shared.wake(waiter);
    }
}

/// One who observes who leads: see [`Engine::observe`](super::Engine::observe). Dropping it ends it. It does not keep
/// the engine alive.
#[must_use = "dropping it ends it"]
pub struct OwnedObserver {
    lookout: Arc<Lookout>,
}

impl OwnedObserver {
    pub(super) fn of(lookout: Arc<Lookout>) -> Self {
        Self { lookout }
    }

    /// What was seen last, as far as this process knows; `None` until it is known for the first time, and in a forked
    /// child.
    #[must_use]
    pub fn latest(&self) -> Option<Observation> {
        if self.lookout.shared.is_ours() { self.lookout.lock().latest.clone() } else { None }
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
        ChangeFuture { lookout: &self.lookout }
    }
}

impl Drop for OwnedObserver {
    fn drop(&mut self) {
        let shared = &self.lookout.shared;
        if !shared.is_ours() {
            return;
        }
        let waiter = {
            let mut state = self.lookout.lock();
            state.is_let_go = true;
            state.waiter.take()
        };
        // An engine that has ended does not observe.
        drop(shared.queue.push(Command::Unobserve(Arc::clone(&self.lookout))));
        shared.discard(waiter);
    }
}

impl fmt::Debug for OwnedObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedObserver").finish_non_exhaustive()
    }
}

/// The next change of who leads: a future, or [`wait`](Self::wait) for it. Dropping it misses nothing.
#[must_use = "it says who leads"]
pub struct ChangeFuture<'o> {
    lookout: &'o Arc<Lookout>,
}

impl ChangeFuture<'_> {
    /// Blocks until there is a change, or the engine is shut down.
    ///
    /// # Panics
    ///
    /// On the engine's own thread.
    pub fn wait(self) -> Option<Observation> {
        refuse_own_thread(&self.lookout.shared);
        block_on(self)
    }
}

impl Future for ChangeFuture<'_> {
    type Output = Option<Observation>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.lookout.poll_changed(context.waker())
    }
}

impl fmt::Debug for ChangeFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFuture").finish_non_exhaustive()
    }
}
