//! The engine: one background thread behind a handle that every thread and task can use.
//!
//! The handle hands commands over (`queue`), the thread gives them to the core that all APIs share and
//! writes once for all commands of a turn (`thread`), and outcomes come back in a slot for each lock
//! (`slot`), to whoever waits there: as a future, or blocking (`future`). What a holder looks at is in
//! the slot as well, so that no look waits for the thread (`guard`).
//!
//! Not here: anything about the protocol. The thread is fed through the queue alone, and nothing else of
//! redbolt starts one, but for name look-ups.

mod future;
mod guard;
mod queue;
mod reply;
mod shared;
mod shutdown;
mod slot;
mod thread;
mod with;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Poll;

pub use self::future::{
    AcquireFuture, ExtendFuture, LossFuture, QueryFuture, ReleaseFuture, TryLockFuture,
};
pub use self::guard::OwnedGuard;
pub use self::shutdown::{ShutdownReport, Unreleased};
pub use self::with::{HeldLock, WithError};

use self::queue::{Command, Queue};
use self::reply::{Asker, Reply};
use self::shared::{Place, Shared};
use self::slot::Slot;
use self::thread::Thread;
use super::client::AcquireError;
use super::config::Config;
use super::driver::{Driver, instant_in};
use super::inspection::Inspection;
use super::metrics::MetricsReport;
use super::report::NodeReport;
use crate::proto::{AutoExtend, LockRequest, MAX_LOCKS, Wait};

/// Takes locks for all threads and tasks of a program, with one background thread of its own, named
/// `redbolt-engine`. `Send`, `Sync`, and cheap to clone.
///
/// Every call hands over and returns at once. What it returns is a future for any executor, and has a
/// `wait` that blocks instead. Calls made in close succession go to the nodes in one write each.
///
/// ```no_run
/// use std::time::Duration;
/// use redbolt::{Config, Engine, EngineLimits, LockRequest, Wait};
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::builder().node("10.0.0.1")?.node("10.0.0.2")?.node("10.0.0.3")?.build()?;
/// let engine = Engine::start(config, EngineLimits::default())?;
///
/// // In a task of any executor:
/// let guard = engine.acquire(LockRequest::new("job").wait(Wait::UpTo(Duration::from_secs(2)))).await?;
/// guard.extend(Duration::from_secs(10)).await?;
/// println!("{}", guard.release().await);
///
/// // On a thread:
/// let guard = engine.try_acquire(LockRequest::new("job")).wait()?;
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

/// What is dropped with the last clone.
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the thread and begins to connect to all nodes. A node that cannot be reached is no error.
    ///
    /// # Errors
    ///
    /// A limit is out of its range, or the system has no file descriptors or no threads left.
    pub fn start(config: Config, limits: EngineLimits) -> io::Result<Self> {
        limits.check()?;
        let poll = Poll::new()?;
        let tokens = Driver::tokens_needed(&config);
        let waker = mio::Waker::new(poll.registry(), mio::Token(tokens))?;
        let driver = Driver::in_registry(config.clone(), poll.registry(), 0..tokens)?;
        let shared = Arc::new(Shared::new(config, limits, Queue::new(waker)));
        let thread = Thread::new(poll, driver, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("redbolt-engine".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self { handle: Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// Takes the lock on `resource`, waits until it is granted, and extends it until it is released:
    /// [`acquire`](Self::acquire) with [`Wait::Forever`] and [`AutoExtend::until_released`], and the default
    /// TTL of 10 s.
    ///
    /// ```no_run
    /// # async fn f(engine: redbolt::Engine) -> Result<(), redbolt::AcquireError> {
    /// let lock = engine.lock("invoices").await?;
    /// # drop(lock); Ok(()) }
    /// ```
    pub fn lock(&self, resource: &(impl AsRef<[u8]> + ?Sized)) -> AcquireFuture {
        self.acquire(extended(resource).wait(Wait::Forever))
    }

    /// Tries once to take the lock on `resource`, and extends it until it is released. `None` says that
    /// somebody else has it: a quorum of the nodes has answered, and others have what is missing.
    ///
    /// ```no_run
    /// # async fn f(engine: redbolt::Engine) -> Result<(), redbolt::AcquireError> {
    /// match engine.try_lock("invoices").await? {
    ///     Some(lock) => drop(lock),
    ///     None => println!("somebody else does it"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_lock(&self, resource: &(impl AsRef<[u8]> + ?Sized)) -> TryLockFuture {
        TryLockFuture::new(self.acquire(extended(resource)))
    }

    /// Takes a lock, waiting for as long as the request says: for its holder to let go, and as well for nodes to
    /// come back or to end their quarantine. What only an operator can mend ends a wait at once.
    ///
    /// How long to wait ([`LockRequest::wait`]) and how long the nodes keep the lock ([`LockRequest::ttl`])
    /// are two things, and both are in the request. The errors are those of [`AcquireFuture::wait`].
    pub fn acquire(&self, request: LockRequest<'_>) -> AcquireFuture {
        let shared = &self.handle.shared;
        let place = match shared.enter() {
            Ok(place) => place,
            Err(error) => return AcquireFuture::refused(error),
        };
        let slot = Arc::new(Slot::new(Arc::clone(shared), place, request.into_owned()));
        if shared.queue.push(Command::Acquire(Arc::clone(&slot))).is_err() {
            return AcquireFuture::refused(EngineError::ShutDown);
        }
        AcquireFuture::under_way(slot)
    }

    /// Takes a lock in one attempt, whatever the request says about waiting.
    pub fn try_acquire(&self, request: LockRequest<'_>) -> AcquireFuture {
        self.acquire(request.wait(Wait::No))
    }

    /// Takes a lock, waiting for up to `wait`, whatever the request says about waiting. Zero is one attempt.
    pub fn acquire_timeout(&self, request: LockRequest<'_>, wait: Duration) -> AcquireFuture {
        self.acquire(request.wait(Wait::UpTo(wait)))
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
        let place = self.handle.shared.enter().map(Some);
        self.query(place, |asker| Command::Inspect(resource.as_ref().into(), asker))
    }

    /// Which nodes can vote now. It is answered also when the engine is busy.
    ///
    /// # Errors
    ///
    /// [`EngineError::ShutDown`] once the engine is shut down: what it knew is gone with its thread.
    /// [`EngineError::Forked`] in a forked child.
    pub fn node_report(&self) -> QueryFuture<NodeReport> {
        self.look(Driver::node_report)
    }

    /// What was counted since the start. It is answered also when the engine is busy.
    ///
    /// # Errors
    ///
    /// [`EngineError::ShutDown`] once the engine is shut down: the counts are gone with its thread, so take
    /// the last ones before. [`EngineError::Forked`] in a forked child.
    pub fn metrics(&self) -> QueryFuture<MetricsReport> {
        self.look(Driver::metrics)
    }

    /// How many acquisitions and inspections have no outcome yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.handle.shared.in_flight()
    }

    /// How many panics of callbacks, wakers and a log were caught.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.handle.shared.panics()
    }

    /// The configuration that it was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.handle.shared.config
    }

    /// Ends the engine, for all handles: refuses what is new from now on, cancels acquisitions, tells the
    /// holders of locks that they are lost ([`LossCause::ShutDown`](crate::LossCause::ShutDown)), releases
    /// those locks, and waits until the nodes have confirmed it, or until `within` is over.
    ///
    /// The thread and its connections are gone then; one file descriptor, by which it could be woken, stays
    /// for as long as a handle, a guard or a future.
    ///
    /// It blocks for at most `within` and a tenth of a second. A second call waits for the same end and
    /// gives the same report. The earliest end of all calls counts: one that has less time cuts those
    /// before it short, and none gives another one more time. From a callback of the engine it does not
    /// wait.
    pub fn shutdown(&self, within: Duration) -> ShutdownReport {
        self.handle.end(within)
    }

    /// Has the thread answer a question about its driver. It needs no place among what is in flight.
    fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Driver) -> T + Send + 'static,
    ) -> QueryFuture<T> {
        let place = if self.handle.shared.is_ours() { Ok(None) } else { Err(EngineError::Forked) };
        self.query(place, |asker| {
            Command::Look(Box::new(move |driver| asker.answer(Ok(question(driver)))))
        })
    }

    fn query<T, E: From<EngineError>>(
        &self,
        place: Result<Option<Place>, EngineError>,
        command: impl FnOnce(Asker<T, E>) -> Command,
    ) -> QueryFuture<T, E> {
        let shared = &self.handle.shared;
        let reply = Arc::new(Reply::default());
        match place {
            Err(error) => reply.put(Err(error.into()), shared),
            Ok(place) => {
                let asker = Asker::new(Arc::clone(&reply), Arc::clone(shared), place);
                // A question that comes too late is dropped, which answers it.
                drop(shared.queue.push(command(asker)));
            }
        }
        QueryFuture::new(reply, Arc::clone(shared))
    }
}

/// What the short forms ask for.
fn extended(resource: &(impl AsRef<[u8]> + ?Sized)) -> LockRequest<'_> {
    LockRequest::new(resource).auto_extend(AutoExtend::until_released())
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl Handle {
    fn end(&self, within: Duration) -> ShutdownReport {
        let shared = &self.shared;
        if !shared.is_ours() {
            return ShutdownReport::default();
        }
        let until = instant_in(within);
        shared.queue.close(until);
        let report = if shared.is_own_thread() {
            None
        } else {
            shared.report_by(until.checked_add(GRACE).unwrap_or(until))
        };
        let Some(report) = report else { return ShutdownReport::default() };
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && !shared.is_own_thread()
        {
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
        self.end(LAST_RELEASES);
    }
}

/// What an engine takes at most.
///
/// ```
/// let mut limits = redbolt::EngineLimits::default();
/// limits.in_flight = 100;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineLimits {
    /// The most acquisitions and inspections without an outcome at one time, from 1 to 2²⁰; 8192 by
    /// default. One more is refused with [`EngineError::Busy`], and nothing is sent. Locks that are held do
    /// not count, and neither do their extensions, of which each has one at a time; releases are always
    /// taken, and [`Engine::node_report`] and [`Engine::metrics`] always answered.
    ///
    /// Above 16384 a node that answers slowly may refuse asks for a full pipeline
    /// ([`Cause::Backlog`](crate::Cause::Backlog)).
    pub in_flight: usize,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self { in_flight: 1 << 13 }
    }
}

impl EngineLimits {
    fn check(self) -> io::Result<()> {
        if (1..=MAX_LOCKS).contains(&self.in_flight) {
            return Ok(());
        }
        let text = format!("in_flight is {}, it must be from 1 to {MAX_LOCKS}", self.in_flight);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

/// Why an engine does not take a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineError {
    /// As much is in flight as its limits allow.
    Busy {
        /// The limit, [`EngineLimits::in_flight`].
        limit: usize,
    },
    /// This process was forked from the one that started it, and has no thread for it.
    Forked,
    /// It was shut down.
    ShutDown,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { limit } => {
                write!(f, "{limit} calls are in flight, which is the engine's limit")
            }
            Self::Forked => f.write_str("the engine belongs to the process before the fork"),
            Self::ShutDown => f.write_str("the engine was shut down"),
        }
    }
}

impl Error for EngineError {}

/// How long a drop of the last handle waits for confirmations.
const LAST_RELEASES: Duration = Duration::from_millis(50);

/// For the thread to report after its time is over.
const GRACE: Duration = Duration::from_millis(100);

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

    use super::*;
    use crate::api::guard::{ExtendError, ReleaseOutcome};
    use crate::proto::{Lease, LossCause, Votes};

    fn config(node: &Node) -> Config {
        let builder = Config::builder().node(&node.address().to_string()).unwrap();
        builder.new_nodes().response_timeout(LIMIT).build().unwrap()
    }

    /// What a forked child has in hand: everything but the thread.
    fn forked(config: Config, lease: Lease, votes: Votes) -> (Engine, Arc<Slot>) {
        let poll = Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let shared = Shared::new(config, EngineLimits::default(), Queue::new(waker)).forked();
        let shared = Arc::new(shared);
        let place = shared.copy_of_a_place();
        let slot =
            Arc::new(Slot::new(Arc::clone(&shared), place, LockRequest::new(b"job").into_owned()));
        assert!(slot.granted(lease, None, votes).is_none());
        (Engine { handle: Arc::new(Handle { shared, thread: Mutex::new(None) }) }, slot)
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
        let builder = Config::builder().node(&server.address()).unwrap();
        let config = builder.new_nodes().response_timeout(LIMIT).build().unwrap();
        let engine = Engine::start(config, EngineLimits::default()).unwrap();
        drop(soon(engine.acquire_timeout(LockRequest::new(b"first"), LIMIT)).unwrap());

        // The thread does nothing until all have asked and wait.
        let (go, gate) = mpsc::channel::<()>();
        let waits = engine.look(move |_| gate.recv());
        let counter = Arc::new(Counter(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&counter));
        let names: Vec<String> = (0..50).map(|at| format!("job{at}")).collect();
        let mut asked: Vec<AcquireFuture> =
            names.iter().map(|name| engine.acquire(LockRequest::new(name.as_bytes()))).collect();
        let mut context = Context::from_waker(&waker);
        for acquire in &mut asked {
            assert!(Pin::new(acquire).poll(&mut context).is_pending());
        }
        go.send(()).unwrap();
        soon(waits).unwrap().unwrap();
        assert!(asked.into_iter().all(|acquire| soon(acquire).is_ok()));
        let wakes = counter.0.load(Ordering::Relaxed);
        // The node answers them in one write, but may be told of them in two.
        assert!((1..=2).contains(&wakes), "{wakes} wakes");
    }

    #[test]
    fn a_forked_child_holds_nothing_and_waits_for_nothing() {
        let node = Node::start().unwrap();
        let parent = Engine::start(config(&node), EngineLimits::default()).unwrap();
        let guard = soon(parent.acquire_timeout(LockRequest::new(b"job"), LIMIT)).unwrap();
        let (lease, votes) = guard.copy();
        assert!(!lease.remaining(crate::net::now()).is_zero());

        let (engine, slot) = forked(config(&node), lease, votes);
        let refused = AcquireError::Engine(EngineError::Forked);
        assert_eq!(soon(engine.acquire(LockRequest::new(b"other"))).unwrap_err(), refused);
        // One that was under way at the time of the fork.
        assert_eq!(soon(AcquireFuture::under_way(Arc::clone(&slot))).unwrap_err(), refused);
        assert_eq!(soon(engine.node_report()).unwrap_err(), EngineError::Forked);
        assert!(!engine.shutdown(LIMIT).ended);

        let copy = OwnedGuard::of(slot);
        assert!(!copy.is_valid() && copy.fencing_token().is_none());
        copy.on_loss(|_| unreachable!("there is no thread that could tell"));
        let lost = Err(ExtendError::Lost(LossCause::Forked));
        assert_eq!(soon(copy.extend(Duration::from_secs(5))), lost);
        assert_eq!(soon(copy.lost()), Some(LossCause::Forked));
        assert_eq!(soon(copy.release()), ReleaseOutcome::Lost(LossCause::Forked));
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
        let engine = Engine::start(config(&node), EngineLimits { in_flight: 2 }).unwrap();
        let guard = soon(engine.acquire_timeout(LockRequest::new(b"job"), LIMIT)).unwrap();
        let (told, heard) = mpsc::channel();
        guard.on_loss(move |cause| told.send(cause).unwrap());
        let waiting = engine.acquire(LockRequest::new(b"job").wait(Wait::Forever));
        // In one turn, so that it fails with commands before and behind it.
        let (go, until) = mpsc::channel::<()>();
        let held_up = engine.look(move |_| {
            // It ends when the sender is dropped.
            let _ = until.recv_timeout(LIMIT);
        });
        let failing = engine.look(|_| -> () { panic!("on purpose, as a bug would") });
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
        assert_eq!(soon(guard.release()), ReleaseOutcome::Lost(LossCause::ShutDown));
        let report = engine.shutdown(LIMIT);
        assert!(report.ended && report.failed && !report.is_clean(), "{report}");
        assert_eq!(engine.in_flight(), 0);
        assert_eq!(soon(engine.acquire(LockRequest::new(b"job"))).unwrap_err(), over);
        // Its connections have let go.
        let next = Engine::start(config(&node), EngineLimits::default()).unwrap();
        drop(soon(next.acquire_timeout(LockRequest::new(b"job"), LIMIT)).unwrap());
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
