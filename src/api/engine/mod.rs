//! The engine: an event loop behind a handle that every thread and task can use. Its own background
//! thread drives it, or the threads of the program do.
//!
//! The handle queues messages (`queue`), the loop carries them out on the core that all APIs share (`event_loop`,
//! `executor`), and outcomes come back in the slot of each lock (`outcomes`, `slot`), where a future or a blocked thread
//! waits. The lease is in the slot as well, so that no holder waits for the thread.
//!
//! Files import only files below them: `runtime`, `reply`, `slot`, `queue`, `executor`, `event_loop`, `shared`, and on these
//! `guard`, `acquisition` and the rest of the API. Invariant: the loop is fed through the queue alone.

mod acquisition;
mod event_loop;
mod executor;
mod future;
mod guard;
mod held_lock;
mod io;
mod leadership;
mod mailbox;
mod observer;
mod observer_slot;
mod outcomes;
mod pending;
mod queue;
mod reentrant;
mod reply;
mod request;
mod run;
mod runtime;
mod shared;
mod shutdown;
mod slot;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::acquisition::{AcquireAllFuture, AcquireFuture, TryLockFuture};
pub use self::future::{ExtendFuture, LossFuture, QueryFuture, ReleaseFuture, UpgradeFuture};
pub use self::guard::OwnedGuard;
pub use self::held_lock::HeldLock;
pub use self::io::EngineIo;
pub use self::leadership::{CampaignFuture, Leadership};
pub use self::observer::{ChangeFuture, OwnedObserver};
pub use self::reentrant::{ReentrantFuture, ReentrantGuard};
pub use self::run::RunError;
pub use self::shutdown::{ShutdownReport, Unreleased};

use self::event_loop::EventLoop;
use self::observer_slot::ObserverSlot;
use self::queue::{Message, ViewRequest, WarmUp};
use self::reentrant::Holds;
use self::reply::{Reply, Responder};
use self::runtime::{InFlight, Runtime};
use self::shared::{GRACE, Shared};
use self::slot::LockSlot;
use super::builder::RequestBuilder;
use super::client::distinct;
use super::config::Config;
use super::detached;
use super::driver::{Driver, instant_in};
use super::error::{AcquireError, EngineError};
use super::inspection::{ForceUnlockReport, Inspection};
use super::metrics::MetricsReport;
use super::report::NodeReport;
use super::start::StartError;
use crate::net::{lock, start_thread};
use crate::proto::{
    AutoExtend, DetachedLock, LockRequest, UnlockScope, check_lock_name, debug_by_name,
};

/// Takes locks for all threads and tasks of a program, with one background thread of its own, named
/// `redbolt-engine`, or [without a thread](Self::unthreaded). `Send`, `Sync`, and cheap to clone.
///
/// Every call hands over and returns at once. What it returns is a future for any executor, and has a
/// `wait` that blocks instead. Calls made in close succession go to the nodes in one write each.
///
/// ```no_run
/// use std::time::Duration;
/// use redbolt::{Config, Engine, LockRequest};
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::builder().node("10.0.0.1").node("10.0.0.2").node("10.0.0.3").build()?;
/// let engine = Engine::new(config)?;
///
/// // In a task of any executor:
/// let guard = engine.acquire(LockRequest::new("job").wait(Duration::from_secs(2))).await?;
/// guard.extend(Duration::from_secs(10)).await?;
/// println!("{}", guard.release().await?);
///
/// // On a thread:
/// let guard = engine.lock("job").acquire_blocking()?;
/// guard.on_loss(|cause| eprintln!("stop: {cause}"));
/// drop(guard);
///
/// println!("{}", engine.shutdown(Duration::from_secs(1)));
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
///
/// Dropping an [`AcquireFuture`] before it is ready cancels it, also if it was never polled, and also if
/// the nodes had granted it in that moment: the lock is then released by the engine. A dropped [`ExtendFuture`]
/// or [`ReleaseFuture`] goes on.
///
/// # The end
///
/// [`shutdown`](Self::shutdown), or dropping the last handle, ends the engine and releases everything
/// that it holds. Guards and futures do not keep it alive. The drop blocks for no longer than 150 ms;
/// on the thread of an executor call `shutdown` elsewhere before. [Choosing an
/// API](crate::manual::choosing_an_api) has the rest, and what a forked child may expect.
#[derive(Clone)]
pub struct Engine {
    handle: Arc<Handle>,
}

/// It is dropped with the last clone of the engine.
struct Handle {
    shared: Arc<Shared>,
    /// The locks of owners who may enter them again.
    holds: Arc<Holds>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the thread and begins to connect to all nodes. A node that cannot be reached is no error.
    ///
    /// # Errors
    ///
    /// [`StartError::Io`]: the system has no file descriptors or no threads left.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let runtime = Arc::new(Runtime::new(config, true));
        let (event_loop, queue) = EventLoop::new(Arc::clone(&runtime))?;
        let shared = Arc::new(Shared::new(runtime, queue, None));
        let of_thread = Arc::clone(&shared);
        let thread = start_thread("redbolt-engine", move || of_thread.run(event_loop))?;
        Ok(Self { handle: Arc::new(Handle::new(shared, Some(thread))) })
    }

    /// Starts an engine without a thread, and begins to connect to all nodes. A task of the program's executor drives it through
    /// one file descriptor: see [`EngineIo`].
    ///
    /// A call for a lock, or its release, is written to the nodes at once by the thread that makes it; the rest is done where
    /// [`EngineIo::on_ready`] is called, also callbacks such as those of [`HeldLock::on_loss`]. Futures are awaited as those of any
    /// engine. Their `wait`, and [`acquire_blocking`](RequestBuilder::acquire_blocking), panic: they could wait on the thread that
    /// is to drive them. [`shutdown`](Self::shutdown), and dropping the last handle, drive the engine to its end on the calling
    /// thread. [`ConfigBuilder::busy_poll`](crate::ConfigBuilder::busy_poll) has no effect.
    ///
    /// ```no_run
    /// use redbolt::{Config, Engine};
    /// use tokio::{io::Interest, io::unix::AsyncFd, time::sleep};
    ///
    /// # async fn f(config: Config) -> Result<(), Box<dyn std::error::Error>> {
    /// let (engine, io) = Engine::unthreaded(config)?;
    /// # #[allow(deprecated)]
    /// let io = AsyncFd::with_interest(io, Interest::READABLE)?;
    /// tokio::spawn(async move {
    ///     while !io.get_ref().has_ended() {
    ///         let timeout = io.get_ref().timeout();
    ///         tokio::select! {
    ///             ready = io.readable() => ready.expect("the runtime lives").clear_ready(),
    ///             () = sleep(timeout.unwrap_or_default()), if timeout.is_some() => {}
    ///         }
    ///         io.get_ref().on_ready();
    ///     }
    /// });
    /// let invoices = engine.lock("invoices").await?;
    /// # drop(invoices); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StartError::Io`]: the system has no file descriptors left.
    pub fn unthreaded(config: Config) -> Result<(Self, EngineIo), StartError> {
        let runtime = Arc::new(Runtime::new(config, false));
        let (event_loop, queue) = EventLoop::new(Arc::clone(&runtime))?;
        let registry = event_loop.poll.registry().try_clone()?;
        let shared = Arc::new(Shared::new(runtime, queue, Some(event_loop)));
        let handle = Arc::new(Handle::new(Arc::clone(&shared), None));
        Ok((Self { handle }, EngineIo { shared, registry }))
    }

    /// As [`new`](Self::new), with these nodes and the defaults. Nothing is sent or waited for.
    ///
    /// # Errors
    ///
    /// [`StartError::Config`]: an address cannot be read, or there is none, or one twice. [`StartError::Io`] as `new`.
    pub fn connect<A: AsRef<str>>(nodes: impl IntoIterator<Item = A>) -> Result<Self, StartError> {
        Self::new(Config::builder().nodes(nodes).build()?)
    }

    /// Asks for a lock on `resource`, which is extended until it is released. It waits for the holder unless said otherwise. See
    /// [auto-extension](crate::manual::auto_extension).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn f(engine: redbolt::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// let invoices = engine.lock("invoices").await?;
    /// let prices = engine.lock("prices").wait(Duration::from_secs(2)).shared().await?;
    /// if let Some(lock) = engine.lock("tidy-up").try_acquire().await? { // None: another client holds it
    ///     lock.release().await?;
    /// }
    /// prices.release().await?;
    /// invoices.release().await?; // an error if it was lost: the work was not covered
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, resource: impl AsRef<[u8]>) -> RequestBuilder<Self> {
        let RequestBuilder { handle, request } = self.lease(resource, Duration::from_secs(10));
        RequestBuilder { handle, request: request.auto_extend(AutoExtend::until_released()) }
    }

    /// Asks for a lease on `resource`, which ends after `ttl` unless the holder extends it ([`HeldLock::extend`]) or releases
    /// it before. It waits for the holder unless said otherwise.
    pub fn lease(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> RequestBuilder<Self> {
        RequestBuilder::new(self.clone(), resource.as_ref()).ttl(ttl)
    }

    /// Takes a lock, waiting for as long as the request says: for its holder to let go, and as well for nodes to
    /// come back or to end their quarantine. What only an operator can mend ends a wait at once.
    ///
    /// How long to wait ([`LockRequest::wait`]) and how long the nodes keep the lock ([`LockRequest::ttl`])
    /// are two things, and both are in the request. The errors are those of [`AcquireFuture::wait`].
    pub fn acquire(&self, request: LockRequest<'_>) -> AcquireFuture {
        let slot = match self.slot(request) {
            Ok(slot) => slot,
            Err(error) => return AcquireFuture::refused(error),
        };
        if self.handle.shared.push(Message::Acquire(Arc::clone(&slot))).is_err() {
            return AcquireFuture::refused(EngineError::ShutDown);
        }
        AcquireFuture::pending(self.lock_handle(slot))
    }

    /// Takes several locks that have nothing to do with each other, and gives their outcomes once each of them is
    /// granted or refused. They are handed over together, so that the nodes hear of them in one write each. For
    /// all or nothing see [`LockRequest::and`].
    ///
    /// The outcomes are in the order of the requests. A lock that was granted early waits for the others with
    /// its validity running, so give them a wait that is short against their TTL, or have them extended. A
    /// request for a resource that an earlier one of the same call asks for could only wait for itself, and is
    /// refused at once ([`RequestError::DuplicateRequest`](crate::RequestError::DuplicateRequest)).
    pub fn acquire_all<'a>(
        &self,
        requests: impl IntoIterator<Item = LockRequest<'a>>,
    ) -> AcquireAllFuture {
        let slots: Vec<Result<_, AcquireError>> =
            distinct(requests).map(|request| Ok(self.slot(request?)?)).collect();
        let messages = slots.iter().flatten().map(|slot| Message::Acquire(Arc::clone(slot)));
        let is_taken = self.handle.shared.queue.push_all(messages);
        self.handle.shared.write();
        let asked = |slot| match slot {
            Ok(slot) if is_taken => AcquireFuture::pending(self.lock_handle(slot)),
            Ok(_) => AcquireFuture::refused(EngineError::ShutDown),
            Err(error) => AcquireFuture::refused(error),
        };
        AcquireAllFuture::new(slots.into_iter().map(asked).collect())
    }

    /// A slot for a lock that is to be asked for.
    fn slot(&self, request: LockRequest<'_>) -> Result<Arc<LockSlot>, EngineError> {
        let runtime = self.runtime();
        let in_flight = runtime.enter()?;
        Ok(Arc::new(LockSlot::new(Arc::clone(runtime), in_flight, request.into_owned())))
    }

    fn lock_handle(&self, slot: Arc<LockSlot>) -> HeldLock {
        HeldLock::new(slot, Arc::clone(&self.handle.shared))
    }

    fn runtime(&self) -> &Arc<Runtime> {
        &self.handle.shared.runtime
    }

    /// Takes a lock for `owner`, who may take it again while holding it: a task or a request, by a name that the caller
    /// chooses. A re-entry is a counted guard of the same lock, and sends nothing. The lock is released with the last of
    /// its guards.
    ///
    /// ```
    /// # use redbolt::{Config, Engine, LockRequest};
    /// # let node = redbolt_node::Node::start()?;
    /// # let config = Config::builder().node(&node.address().to_string()).new_nodes().build()?;
    /// # let engine = Engine::new(config)?;
    /// let outer = engine.acquire_reentrant(LockRequest::new("invoice:7"), "request:42").wait()?;
    /// // ... somewhere below, in code that does not know of the other guard:
    /// let inner = engine.acquire_reentrant(LockRequest::new("invoice:7"), "request:42").wait()?;
    /// assert_eq!(inner.hold_count(), 2);
    /// assert!(inner.release().is_none(), "the owner has another guard");
    /// outer.release().expect("it is the last").wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A re-entry has the lease that there is. If it asks for a longer TTL than was asked for before, the lock is extended
    /// by that first; if it asks to have alone what is shared, the lock is upgraded first, which is tried once. It is
    /// refused if the lock is over ([`AcquireError::Lost`]) or has not what it asks for
    /// ([`RequestError::HeldWithout`](crate::RequestError::HeldWithout)); see [the manual](crate::manual::reentrant). The
    /// errors are those of [`ReentrantFuture::wait`].
    pub fn acquire_reentrant(
        &self,
        request: LockRequest<'_>,
        owner: &(impl AsRef<[u8]> + ?Sized),
    ) -> ReentrantFuture {
        let holds = &self.handle.holds;
        ReentrantFuture::new(holds, request, owner.as_ref(), |request| self.acquire(request))
    }

    /// Stands for election, and leads from the outcome on until it [resigns](Leadership::resign) or the lead is lost. The leader's label
    /// is that of the configuration ([`ConfigBuilder::label`](crate::ConfigBuilder::label)): let it be the address, at most 128 bytes, at
    /// which the leader is reached. [`RequestBuilder::campaign`] has the options. See [leaders](crate::manual::leader).
    ///
    /// ```no_run
    /// # async fn serve(_term: redbolt::FencingToken) {}
    /// # async fn f(engine: redbolt::Engine) -> Result<(), redbolt::AcquireError> {
    /// loop {
    ///     let lead = engine.campaign("leader:shop").await?;
    ///     let (work, lost) = (serve(lead.term()), lead.lost());
    ///     // ... do the work until the lead is lost ...
    /// #   let _ = (work, lost);
    /// }
    /// # }
    /// ```
    pub fn campaign(&self, election: impl AsRef<[u8]>) -> CampaignFuture {
        self.lock(election).campaign()
    }

    /// Observes who leads in `election`, for as long as the result lives. Takes no part and writes nothing. What is seen is
    /// a hint: it may be over when it is read.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`]: the name is empty, too long, the restart guard's, or that of a fencing counter.
    /// [`AcquireError::Engine`]: the engine is over, or belongs to the process that this one was forked from.
    pub fn observe(
        &self,
        election: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<OwnedObserver, AcquireError> {
        let (shared, election) = (&self.handle.shared, election.as_ref());
        self.unlimited()?;
        check_lock_name(&self.config().core(), election)?;
        let slot = Arc::new(ObserverSlot::new(Arc::clone(self.runtime())));
        let message = Message::Observe(election.into(), Arc::clone(&slot));
        shared.push(message).map_err(|_| EngineError::ShutDown)?;
        Ok(OwnedObserver::new(slot, Arc::clone(shared)))
    }

    /// Asks all nodes who holds `resource`. Takes no lock and writes nothing.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`]: the name of the resource is empty or too long.
    /// [`AcquireError::Engine`]: as for an acquisition.
    pub fn inspect(
        &self,
        resource: &(impl AsRef<[u8]> + ?Sized),
    ) -> QueryFuture<Inspection, AcquireError> {
        self.view(resource.as_ref(), ViewRequest::Inspect)
    }

    /// Breaks the lock on `resource`, whoever holds it, on every node that can be reached; see
    /// [`Client::force_unlock`](crate::Client::force_unlock) for what it deletes, and for what it leaves alone.
    /// Dropping the future does not stop it.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`]: the name of the resource is empty or too long, the guard's, or that of a
    /// fencing counter. [`AcquireError::Engine`]: as for an acquisition.
    pub fn force_unlock(
        &self,
        resource: &(impl AsRef<[u8]> + ?Sized),
        scope: UnlockScope,
    ) -> QueryFuture<ForceUnlockReport, AcquireError> {
        self.view(resource.as_ref(), |responder| ViewRequest::ForceUnlock { scope, responder })
    }

    /// Attaches a lock that was [detached](OwnedGuard::detach), by this process or another one on the same
    /// machine. Dropping the guard, or the future before, releases it. The engine does not extend it by itself:
    /// that did not go along.
    ///
    /// A lock whose lease is over is no error: the guard's [`remaining`](HeldLock::remaining) is zero,
    /// [`lost`](HeldLock::lost) says so, and its release undoes what the nodes still keep. Attach it once: two
    /// who attach it are two holders of one lock.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`]: this engine has other nodes, the same in another order, or another quorum or
    /// limits. [`AcquireError::Engine`]: as for an acquisition.
    pub fn attach(&self, detached: &DetachedLock) -> QueryFuture<OwnedGuard, AcquireError> {
        let checked = detached::checked(detached, self.config()).map_err(AcquireError::from);
        let slot = checked.and_then(|detached| {
            Ok((self.slot(detached.request())?, Box::new(detached.into_owned())))
        });
        match slot {
            Ok((slot, detached)) => {
                let handle = self.lock_handle(Arc::clone(&slot));
                self.query(Ok(None), |responder: Responder<OwnedGuard, AcquireError>| {
                    // The guard is made with the outcome: if the future is gone by then, its drop releases
                    // the lock.
                    let attached = move |outcome: Result<(), AcquireError>| {
                        responder.send(outcome.map(|()| OwnedGuard::of(handle)));
                    };
                    Message::Attach(slot, detached, Box::new(attached))
                })
            }
            Err(error) => self.refused(error),
        }
    }

    /// Waits until every node is ready or known not to be, for at most `within`, and tells which.
    ///
    /// Without it the first acquisition waits for the connections as far as it needs them.
    ///
    /// # Errors
    ///
    /// [`EngineError::ShutDown`], and [`EngineError::Forked`] in a forked child.
    pub fn warm_up(&self, within: Duration) -> QueryFuture<NodeReport> {
        let warm_up = WarmUp { within, push: false };
        self.query(self.unlimited(), |responder| Message::WarmUp(warm_up, responder))
    }

    /// As [`warm_up`](Self::warm_up), and finds out besides which nodes tell those who wait, for at most
    /// `within` more: it opens the second connection that waiting takes. See
    /// [`NodeStatus::push`](crate::report::NodeStatus::push).
    ///
    /// # Errors
    ///
    /// As [`warm_up`](Self::warm_up).
    pub fn warm_up_push(&self, within: Duration) -> QueryFuture<NodeReport> {
        let warm_up = WarmUp { within, push: true };
        self.query(self.unlimited(), |responder| Message::WarmUp(warm_up, responder))
    }

    /// Which nodes can vote now. It is answered also when the engine is busy.
    ///
    /// # Errors
    ///
    /// [`EngineError::ShutDown`] once the engine is shut down: what it knew is gone with its thread.
    /// [`EngineError::Forked`] in a forked child.
    pub fn node_report(&self) -> QueryFuture<NodeReport> {
        self.read_driver(Driver::node_report)
    }

    /// What was counted since the start. It is answered also when the engine is busy.
    ///
    /// # Errors
    ///
    /// [`EngineError::ShutDown`] once the engine is shut down: the counts are gone with its thread, so take
    /// the last ones before. [`EngineError::Forked`] in a forked child.
    pub fn metrics(&self) -> QueryFuture<MetricsReport> {
        self.read_driver(Driver::metrics)
    }

    /// How many acquisitions and looks at resources have no outcome yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.runtime().in_flight()
    }

    /// How many panics of callbacks, wakers and a log were caught.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.runtime().panics()
    }

    /// Whether this is the process that started it. In a forked child it is not, and there is no thread for it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.runtime().is_ours()
    }

    /// The configuration that it was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.runtime().config
    }

    /// Ends the engine, for all handles: refuses what is new from now on, cancels acquisitions, tells the
    /// holders of locks that they are lost ([`LossCause::ShutDown`](crate::LossCause::ShutDown)), releases
    /// those locks, and waits until the nodes have confirmed it, or until `within` is over.
    ///
    /// The thread and its connections are gone then; one file descriptor, by which it could be woken, stays
    /// for as long as a handle, a guard or a future.
    ///
    /// It blocks for at most `within` and two seconds, and for longer than `within` only if the thread is in a callback of
    /// yours or is not run. A second call waits for the same end and
    /// gives the same report. The earliest end of all calls counts: one that has less time cuts those
    /// before it short, and none gives another one more time. From a callback of the engine it does not
    /// wait.
    pub fn shutdown(&self, within: Duration) -> ShutdownReport {
        self.handle.end(within, GRACE)
    }

    /// Has the thread answer a question about its driver. It does not count as in flight.
    fn read_driver<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Driver) -> T + Send + 'static,
    ) -> QueryFuture<T> {
        self.query(self.unlimited(), |responder| {
            Message::ReadDriver(Box::new(move |driver| responder.send(Ok(question(driver)))))
        })
    }

    /// Has the thread ask the nodes about a resource.
    fn view<T>(
        &self,
        resource: &[u8],
        request: impl FnOnce(Responder<T, AcquireError>) -> ViewRequest,
    ) -> QueryFuture<T, AcquireError> {
        let in_flight = self.runtime().enter().map(Some);
        self.query(in_flight, |responder| Message::View(resource.into(), request(responder)))
    }

    /// A call that does not count as in flight.
    fn unlimited(&self) -> Result<Option<InFlight>, EngineError> {
        if self.is_ours() { Ok(None) } else { Err(EngineError::Forked) }
    }

    fn query<T, E: From<EngineError>>(
        &self,
        in_flight: Result<Option<InFlight>, EngineError>,
        message: impl FnOnce(Responder<T, E>) -> Message,
    ) -> QueryFuture<T, E> {
        let runtime = self.runtime();
        let in_flight = match in_flight {
            Ok(in_flight) => in_flight,
            Err(error) => return self.refused(error.into()),
        };
        let reply = Arc::new(Reply::default());
        let responder = Responder::new(Arc::clone(&reply), Arc::clone(runtime), in_flight);
        // A message that comes too late is dropped, which answers it.
        drop(self.handle.shared.push(message(responder)));
        QueryFuture::new(reply, Arc::clone(runtime))
    }

    fn refused<T, E: From<EngineError>>(&self, error: E) -> QueryFuture<T, E> {
        QueryFuture::new(Arc::new(Reply::of(Err(error))), Arc::clone(self.runtime()))
    }
}

debug_by_name!(Engine { in_flight });

impl Handle {
    fn new(shared: Arc<Shared>, thread: Option<JoinHandle<()>>) -> Self {
        let holds = Arc::new(Holds::new(Arc::clone(&shared.runtime)));
        Self { shared, holds, thread: Mutex::new(thread) }
    }

    fn end(&self, within: Duration, grace: Duration) -> ShutdownReport {
        let shared = &self.shared;
        // The thread is the parent's, and a mutex of the queue may be locked for ever.
        if !shared.runtime.is_ours() {
            return ShutdownReport::default();
        }
        let until = instant_in(within);
        shared.queue.close(until);
        // A callback cannot wait for the thread that it runs on.
        if shared.runtime.is_own_thread() {
            return ShutdownReport::default();
        }
        let report = shared.report_by(until.checked_add(grace).unwrap_or(until));
        let Some(report) = report else { return ShutdownReport::default() };
        if let Some(thread) = lock(&self.thread).take() {
            // Its last act was the report, and a panic in it is part of that.
            let _ = thread.join();
        }
        report
    }
}

impl Drop for Handle {
    /// Gives releases up to 50 ms to be confirmed, and blocks for at most 150 ms. A thread that is in a
    /// callback of its user for longer is left to end by itself.
    fn drop(&mut self) {
        self.end(LAST_RELEASES, LEAST_GRACE);
    }
}

/// How long a drop of the last handle waits for confirmations.
const LAST_RELEASES: Duration = Duration::from_millis(50);

/// As [`GRACE`], for a drop, which shows no report.
const LEAST_GRACE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{self, Context, Waker};
    use std::time::Instant;

    use redbolt_node::Node;
    use redbolt_test_servers::Server;

    use super::queue::Queue;
    use super::*;
    use crate::api::guard::ExtendError;
    use crate::api::leader::Observation;
    use crate::api::lock_lost::LockLost;
    use crate::api::lock_lost::LockName;
    use crate::proto::Wait;
    use crate::proto::{Lease, LossCause, Votes};

    fn config(node: &Node) -> Config {
        let builder = Config::builder().node(&node.address().to_string());
        builder.new_nodes().response_timeout(LIMIT).build().unwrap()
    }

    /// What a forked child has in hand: everything but the thread.
    fn forked(config: Config, lease: Lease, votes: Votes) -> (Engine, HeldLock) {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let runtime = Arc::new(Runtime::new(config, true).forked());
        let shared = Arc::new(Shared::new(runtime, Queue::new(waker), None));
        let runtime = &shared.runtime;
        let request = LockRequest::new(b"job").into_owned();
        let slot = LockSlot::new(Arc::clone(runtime), runtime.copy_in_flight(), request);
        assert!(slot.grant(lease, None, None, votes).is_none());
        let engine = Engine { handle: Arc::new(Handle::new(shared, None)) };
        let handle = engine.lock_handle(Arc::new(slot));
        (engine, handle)
    }

    struct Counter(AtomicUsize);

    impl task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One that is woken by the first outcome would take that, sleep again, and be woken by the next.
    #[test]
    fn the_outcomes_of_a_turn_wake_once() {
        let server = Server::start();
        let builder = Config::builder().node(&server.address());
        let config = builder.new_nodes().response_timeout(LIMIT).build().unwrap();
        let engine = Engine::new(config).unwrap();
        drop(soon(engine.acquire(LockRequest::new(b"first").wait(LIMIT))).unwrap());

        // The thread does nothing until all have asked and wait.
        let (go, gate) = mpsc::channel::<()>();
        let waits = engine.read_driver(move |_| gate.recv());
        let counter = Arc::new(Counter(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&counter));
        let names: Vec<String> = (0..50).map(|at| format!("job{at}")).collect();
        let mut asked: Vec<AcquireFuture> =
            names.iter().map(|name| engine.acquire(LockRequest::new(name.as_bytes()))).collect();
        let mut context = Context::from_waker(&waker);
        for acquire in &mut asked {
            assert!(Pin::new(acquire).poll(&mut context).is_pending());
        }
        // The node reads the first request when all of them are there, or it could answer each in a
        // separate write, and a busy machine would read each in a separate turn.
        server.pause();
        go.send(()).unwrap();
        soon(waits).unwrap().unwrap();
        // The first look can be taken in the turn of the requests, before they are written; the
        // second one is taken in a later turn.
        (0..2).for_each(|_| soon(engine.read_driver(|_| ())).unwrap());
        server.resume();
        // No future is polled before the thread has reported all outcomes: a poll puts another waker
        // among the equal ones, and a wake-up may come after the outcome that it is for.
        let until = Instant::now() + LIMIT;
        while soon(engine.metrics()).unwrap().metrics.grants < 51 {
            assert!(Instant::now() < until, "not all are granted");
        }
        soon(engine.read_driver(|_| ())).unwrap();
        let wakes = counter.0.load(Ordering::Relaxed);
        assert!(asked.into_iter().all(|acquire| soon(acquire).is_ok()));
        // The node answers them in one write, but may get them in two.
        assert!((1..=2).contains(&wakes), "{wakes} wakes");
    }

    #[test]
    fn a_forked_child_holds_nothing_and_waits_for_nothing() {
        let node = Node::start().unwrap();
        let parent = Engine::new(config(&node)).unwrap();
        let guard = soon(parent.acquire(LockRequest::new(b"job").wait(LIMIT))).unwrap();
        let (lease, votes) = guard.copy();
        assert!(!lease.remaining(crate::net::now()).is_zero());

        let (engine, handle) = forked(config(&node), lease, votes);
        let refused = AcquireError::Engine(EngineError::Forked);
        assert_eq!(soon(engine.acquire(LockRequest::new(b"other"))).unwrap_err(), refused);
        // One that was under way at the time of the fork.
        assert_eq!(soon(AcquireFuture::pending(handle.clone())).unwrap_err(), refused);
        assert_eq!(soon(engine.node_report()).unwrap_err(), EngineError::Forked);
        assert!(!engine.shutdown(LIMIT).ended);

        let slot = Arc::new(ObserverSlot::new(Arc::clone(engine.runtime())));
        assert!(slot.record(Observation::of_nobody()).is_none());
        let mut observer = OwnedObserver::new(slot, Arc::clone(&engine.handle.shared));
        assert_eq!((soon(observer.changed()), observer.latest()), (None, None));
        drop(observer);

        let copy = OwnedGuard::of(handle);
        assert!(!copy.is_valid() && copy.fencing_token().is_none());
        copy.on_loss(|_| unreachable!("there is no thread that could tell"));
        let lost = LockLost::new(LockName::default(), LossCause::Forked);
        let lost = Err(ExtendError::Lost(lost));
        assert_eq!(soon(copy.extend(Duration::from_secs(5))), lost);
        assert_eq!(soon(copy.lost()), Some(LossCause::Forked));
        assert_eq!(soon(copy.release()).map_err(|lost| lost.cause()), Err(LossCause::Forked));
        // Nothing was handed over, and the parent's lock is as it was.
        assert!(engine.handle.shared.queue.end().is_empty());
        assert!(guard.is_valid());
        soon(guard.extend(Duration::from_secs(5))).unwrap();
    }

    /// It would be a bug of ours. Nobody may be left waiting for a thread that is no more.
    #[test]
    fn a_thread_that_fails_lets_everybody_know() {
        let node = Node::start().unwrap();
        // Both acquisitions that it leaves behind give their places back, or the last ask finds none.
        let builder = Config::builder().node(&node.address().to_string());
        let builder = builder.new_nodes().response_timeout(LIMIT).in_flight(2);
        let engine = Engine::new(builder.build().unwrap()).unwrap();
        let guard = soon(engine.acquire(LockRequest::new(b"job").wait(LIMIT))).unwrap();
        let (told, heard) = mpsc::channel();
        guard.on_loss(move |cause| told.send(cause).unwrap());
        let waiting = engine.acquire(LockRequest::new(b"job").wait(Wait::Forever));
        // In one turn, so that it fails with messages before and behind it.
        let (go, until) = mpsc::channel::<()>();
        let held_up = engine.read_driver(move |_| {
            // It ends when the sender is dropped.
            let _ = until.recv_timeout(LIMIT);
        });
        let failing = engine.read_driver(|_| -> () { panic!("on purpose, as a bug would") });
        let behind = engine.acquire(LockRequest::new(b"next").wait(Wait::Forever));
        let question = engine.node_report();
        drop(go);
        soon(held_up).unwrap();
        let over = AcquireError::Engine(EngineError::ShutDown);
        assert_eq!(soon(failing).unwrap_err(), EngineError::ShutDown);
        assert_eq!(soon(waiting).unwrap_err(), over);
        assert_eq!(soon(behind).unwrap_err(), over);
        assert_eq!(soon(question).unwrap_err(), EngineError::ShutDown);
        assert_eq!(heard.recv_timeout(LIMIT), Ok(LossCause::ShutDown));
        assert!(!guard.is_valid());
        assert_eq!(soon(guard.release()).map_err(|lost| lost.cause()), Err(LossCause::ShutDown));
        let report = engine.shutdown(LIMIT);
        assert!(report.ended && report.failed && !report.is_clean(), "{report}");
        assert_eq!(engine.in_flight(), 0);
        assert_eq!(soon(engine.acquire(LockRequest::new(b"job"))).unwrap_err(), over);
        // Its connections are closed, and their locks released.
        let next = Engine::new(config(&node)).unwrap();
        drop(soon(next.acquire(LockRequest::new(b"job").wait(LIMIT))).unwrap());
    }

    /// Only the report says which locks are left.
    #[test]
    fn a_shutdown_waits_for_a_report_that_is_late() {
        let node = Node::start().unwrap();
        let engine = Engine::new(config(&node)).unwrap();
        let guard = soon(engine.acquire(LockRequest::new(b"job").wait(LIMIT))).unwrap();
        let (began, begun) = mpsc::channel();
        drop(engine.read_driver(move |_| {
            began.send(()).unwrap();
            std::thread::sleep(4 * LEAST_GRACE);
        }));
        begun.recv_timeout(LIMIT).unwrap();
        let report = engine.shutdown(Duration::ZERO);
        assert!(report.ended, "{report}");
        assert_eq!(report.released + report.unreleased.len(), 1, "{report}");
        drop(guard);
    }

    /// The output of a future, of which a bug would have nobody wait for ever.
    fn soon<F: Future + Unpin>(mut future: F) -> F::Output {
        let until = Instant::now() + LIMIT;
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let task::Poll::Ready(output) = Pin::new(&mut future).poll(&mut context) {
                return output;
            }
            assert!(Instant::now() < until, "it waits without end");
            std::thread::yield_now();
        }
    }

    const LIMIT: Duration = Duration::from_secs(15);
}
