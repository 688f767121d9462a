//! The embedded API: a lock client inside the event loop of another program.
//!
//! Invariant: it has no thread and never waits. The host reports readiness and passed deadlines,
//! and outcomes are events. The driver reads the clock itself, after the last read.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use mio::Registry;

use super::busy;
use super::config::Config;
use super::detached;
use super::inspection::{ForceUnlockReport, Inspection};
use super::leader::Observation;
use super::lock_lost::{LockLost, LockName};
use super::metrics::MetricsReport;
use super::notes::Notes;
use super::own_poll::OwnPoll;
use super::report::{NodeReport, RefusalReport};
use super::start::StartError;
use crate::net::Sockets;
use crate::proto::{
    ClockReading, Core, DetachedLock, Event, FencingToken, Lease, LockId, LockMode, LockRequest,
    LockState, LossCause, NodeId, NodeState, ObserverId, Refusal, RequestError, Timestamp,
    UnlockScope, ViewId, Votes,
};

/// A lock client for a program that has its own event loop.
///
/// There are two ways to embed it:
///
/// - [`new`](Self::new): the driver has its own epoll, which is one file descriptor ([`AsFd`]).
///   Watch it for readability in any loop, and call [`process`](Self::process) when it is readable
///   or when [`timeout`](Self::timeout) has passed.
/// - [`in_registry`](Self::in_registry): the driver's sockets are in the host's `mio::Poll`, under
///   tokens that the host chose. Pass events to [`on_event`](Self::on_event), then call `process`.
///
/// Commands return at once and write their bytes at once; the outcome is an [`Event`]. A driver
/// never waits, so it has no `lock` and no guards. After each command or call of `process`, take
/// events until there are none, then read the timeout again.
///
/// See [your own event loop](crate::manual::event_loop) for details, also on dropping it and on
/// `fork`, and [what the APIs have in common](crate::manual::choosing_an_api).
///
/// ```no_run
/// use std::time::Duration;
/// use redbolt::{LockRequest, Config, Driver, proto::Event};
///
/// let config = Config::builder().node("127.0.0.1:6379").build()?;
/// let mut driver = Driver::new(config)?;
/// let id = driver.acquire(LockRequest::new("job"))?;
/// // In the host's loop, whenever the driver's file descriptor is readable or its deadline passed:
/// driver.process();
/// while let Some(event) = driver.poll_event() {
///     match event {
///         Event::Granted(granted) if granted == id => {
///             println!("held for {:?}", driver.remaining(id));
///             driver.release(id);
///         }
///         Event::Refused(_, refusal) => println!("{}", driver.report(&refusal)),
///         _ => {}
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver {
    config: Config,
    pub(super) sockets: Sockets,
    /// The driver's own epoll; `None` in a host's registry.
    own: Option<Box<OwnPoll>>,
    /// The time at which the sockets were last read.
    read_at: Timestamp,
    /// Set while commands only queue their bytes.
    is_batching: bool,
    notes: Option<Box<Notes>>,
}

impl Driver {
    /// Creates a driver with its own epoll and starts connecting. A node that cannot be reached is
    /// not an error.
    ///
    /// # Errors
    ///
    /// [`StartError::Io`]: the system has no file descriptors left.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let own = OwnPoll::new(Self::tokens_needed(&config), config.clock())?;
        let registry = own.registry().try_clone()?;
        Self::start(config, registry, 0, Some(Box::new(own)))
    }

    /// Creates a driver whose sockets are in a host's loop, under `tokens`. The range needs at
    /// least [`tokens_needed`](Self::tokens_needed) tokens.
    ///
    /// # Errors
    ///
    /// [`StartError::Tokens`]: the range is too small. [`StartError::Io`]: the system has no file
    /// descriptors left.
    pub fn in_registry(
        config: Config,
        registry: &Registry,
        tokens: Range<usize>,
    ) -> Result<Self, StartError> {
        let needed = Self::tokens_needed(&config);
        if tokens.len() < needed {
            return Err(StartError::Tokens { given: tokens.len(), needed });
        }
        Self::start(config, registry.try_clone()?, tokens.start, None)
    }

    /// Returns how many `mio::Token`s a driver of this configuration uses: two for each node (its
    /// link, and the link that notifies waiters of releases), one for name look-ups, and one for
    /// each sentinel.
    #[must_use]
    pub fn tokens_needed(config: &Config) -> usize {
        Sockets::tokens_needed(config.addresses())
    }

    fn start(
        config: Config,
        registry: Registry,
        first_token: usize,
        own: Option<Box<OwnPoll>>,
    ) -> Result<Self, StartError> {
        // The first failure to draw randomness is reported here. A later one cannot be, so it ends
        // the process rather than let a token be guessed.
        getrandom::fill(&mut [0; 16]).map_err(io::Error::other)?;
        let core = Core::new(config.core(), |bytes| {
            getrandom::fill(bytes).expect("the system's source of randomness stays available");
        });
        let read_at = config.clock().boot();
        let (addresses, net) = (config.addresses(), config.net());
        let sockets = Sockets::new(core, net, addresses, registry, first_token)?;
        let notes = Notes::new(&config);
        let mut driver = Self { config, sockets, own, read_at, is_batching: false, notes };
        driver.sockets.drive();
        Ok(driver)
    }

    /// Requests a lock from all nodes. The outcome is [`Event::Granted`] or [`Event::Refused`].
    ///
    /// # Errors
    ///
    /// The request cannot be carried out, and nothing is sent.
    pub fn acquire(&mut self, request: LockRequest<'_>) -> Result<LockId, RequestError> {
        self.acquire_at(&request, self.now())
    }

    /// Acquires as [`acquire`](Self::acquire) does, with the caller's reading of the clock.
    pub(super) fn acquire_at(
        &mut self,
        request: &LockRequest<'_>,
        now: ClockReading,
    ) -> Result<LockId, RequestError> {
        self.check_process()?;
        let id = self.sockets.core_mut().acquire(request, now)?;
        self.name_lock(id, request.resources());
        self.finish();
        Ok(id)
    }

    /// Asks all nodes to keep a held lock for `ttl` from now. The outcome is [`Event::Extended`],
    /// [`Event::NotExtended`] or [`Event::Lost`].
    ///
    /// # Errors
    ///
    /// The lock is not held, an extension is in flight, or the TTL is out of range.
    pub fn extend(&mut self, id: LockId, ttl: Duration) -> Result<(), RequestError> {
        self.command(|core, now| core.extend(id, ttl, now))
    }

    /// Releases a lock, or cancels its acquisition. See [`Core::release`] for the outcomes.
    pub fn release(&mut self, id: LockId) {
        self.release_at(id, self.now());
    }

    /// Releases as [`release`](Self::release) does, with the caller's reading of the clock.
    pub(super) fn release_at(&mut self, id: LockId, now: ClockReading) {
        // A forked child must not release a lock that its parent holds.
        if self.is_ours() {
            self.sockets.core_mut().release(id, now);
            self.finish();
        }
    }

    /// Releases as [`release`](Self::release) does, for a caller that may not process the replies.
    pub(super) fn release_and_leave(&mut self, id: LockId) {
        self.act(|core, now| core.release_and_leave(id, now));
    }

    /// Runs `commands` and then writes their bytes together: many locks that are acquired, extended
    /// or released cost one write to each node.
    ///
    /// ```
    /// # use redbolt::{Config, Driver, LockRequest};
    /// # let node = redbolt_node::Node::start()?;
    /// # let config = Config::builder().node(&node.address().to_string()).new_nodes().build()?;
    /// let mut driver = Driver::new(config)?;
    /// let names: Vec<String> = (0..100).map(|shard| format!("shard {shard}")).collect();
    /// let locks: Result<Vec<_>, _> = driver.batch(|driver| {
    ///     names.iter().map(|name| driver.acquire(LockRequest::new(name))).collect()
    /// });
    /// assert_eq!(locks?.len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch<T>(&mut self, commands: impl FnOnce(&mut Self) -> T) -> T {
        let gathered = std::mem::replace(&mut self.is_batching, true);
        // A driver that is used after a panic must write again.
        let result = catch_unwind(AssertUnwindSafe(|| commands(self)));
        self.is_batching = gathered;
        self.finish();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Tries once to turn a shared lock into an exclusive one. The shared lock is kept either way.
    ///
    /// The outcome is [`Event::Upgraded`] or [`Event::NotUpgraded`], or [`Event::Lost`] if the
    /// shared lock is lost. See [`Core::try_upgrade`].
    ///
    /// # Errors
    ///
    /// The lock is not held or not shared, or an extension or a change of its mode is in flight.
    pub fn try_upgrade(&mut self, id: LockId) -> Result<(), RequestError> {
        self.command(|core, now| core.try_upgrade(id, now))
    }

    /// Turns an exclusive lock into a shared one at once: its holder is a reader from this call on,
    /// regardless of the nodes. The outcome is [`Event::Downgraded`] when others may share the
    /// resource, or [`Event::DowngradeDelayed`]. See [`Core::downgrade`].
    ///
    /// # Errors
    ///
    /// The lock is not held or not exclusive, or on several resources.
    pub fn downgrade(&mut self, id: LockId) -> Result<(), RequestError> {
        self.command(|core, now| core.downgrade(id, now))
    }

    /// Queries all nodes for the holder of `resource`, without taking part. The outcome is
    /// [`Event::Viewed`].
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long.
    pub fn inspect(
        &mut self,
        resource: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<ViewId, RequestError> {
        self.command(|core, now| core.inspect(resource.as_ref(), now))
    }

    /// Takes the result of a complete inspection. It can be taken once.
    pub fn take_inspection(&mut self, id: ViewId) -> Option<Inspection> {
        let core = self.sockets.core_mut();
        let view = core.take_view(id)?;
        let mine = core.held_on(&view.resource, self.config.clock().now());
        Some(Inspection::new(&self.config, core, view, mine))
    }

    /// Observes who leads in `election`, until [`unobserve`](Self::unobserve). Takes no part and
    /// writes nothing.
    ///
    /// [`Event::Observed`] reports that the leader is known, or has changed. An observation is a
    /// [hint](crate::manual::leader).
    ///
    /// # Errors
    ///
    /// The name is empty, too long, the restart guard's, or that of a fencing counter.
    pub fn observe(
        &mut self,
        election: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<ObserverId, RequestError> {
        self.command(|core, now| core.observe(election.as_ref(), now))
    }

    /// Returns the last announced observation; `None` before the first [`Event::Observed`].
    #[must_use]
    pub fn observation(&self, id: ObserverId) -> Option<Observation> {
        let core = self.sockets.core();
        let view = core.observation(id).filter(|_| self.is_ours())?;
        Some(Observation::new(&self.config, core, view))
    }

    /// Stops observing. An unknown id is ignored.
    pub fn unobserve(&mut self, id: ObserverId) {
        if self.is_ours() {
            self.sockets.core_mut().unobserve(id);
        }
    }

    /// Breaks the lock on `resource`, whichever client holds it. It is meant for operators, against
    /// a holder that hangs or has died. See [`Core::force_unlock`] for what it deletes and what it
    /// keeps.
    ///
    /// The outcome is [`Event::Viewed`]; [`take_force_unlock`](Self::take_force_unlock) returns the
    /// report.
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long, the guard's, or that of a fencing counter.
    pub fn force_unlock(
        &mut self,
        resource: &(impl AsRef<[u8]> + ?Sized),
        scope: UnlockScope,
    ) -> Result<ViewId, RequestError> {
        self.command(|core, now| core.force_unlock(resource.as_ref(), scope, now))
    }

    /// Takes the report of a [`force_unlock`](Self::force_unlock) with this id, once all nodes have
    /// answered or timed out. It can be taken once.
    pub fn take_force_unlock(&mut self, id: ViewId) -> Option<ForceUnlockReport> {
        let view = self.sockets.core_mut().take_view(id)?;
        Some(ForceUnlockReport::new(&self.config, self.sockets.core(), view))
    }

    /// Detaches a held lock so that another process on this machine can [attach](Self::attach) it.
    /// This driver forgets it and sends nothing more about it. Returns `None` if the lock is not
    /// held.
    ///
    /// A node that has not answered yet will not count for the lock, and may receive no extension
    /// of it. If possible, wait while the driver [awaits answers](Self::awaits_answers).
    pub fn detach(&mut self, id: LockId) -> Option<DetachedLock> {
        if !self.is_ours() {
            return None;
        }
        let (core, now) = self.sockets.core_now();
        let mut detached = core.detach(id, now)?;
        self.finish();
        if let Some(notes) = &mut self.notes {
            notes.forget(id);
        }
        detached::name(&mut detached, &self.config);
        Some(detached)
    }

    /// Returns whether a node still has to answer a request about this lock, including one not yet
    /// sent. A quorum grants or extends a lock before all nodes have answered.
    #[must_use]
    pub fn awaits_answers(&self, id: LockId) -> bool {
        self.is_ours() && self.sockets.core().awaits_answers(id)
    }

    /// Attaches a detached lock. From then on it is held with the lease that it had, and is
    /// extended and released like any other lock.
    ///
    /// If its lease has expired, or it was detached before the machine was restarted, the lock is
    /// lost: [`Event::Lost`] follows, and releasing it undoes what the nodes still keep.
    ///
    /// # Errors
    ///
    /// This driver has other nodes, the same nodes in another order, or another quorum or limits.
    pub fn attach(&mut self, detached: &DetachedLock) -> Result<LockId, RequestError> {
        self.check_process()?;
        let detached = detached::checked(detached, &self.config)?;
        let (core, now) = self.sockets.core_now();
        let id = core.attach(&detached, now)?;
        self.name_lock(id, detached.keys());
        self.finish();
        Ok(id)
    }

    /// Connects at once to all nodes that are not connected, without waiting for their backoff.
    pub fn connect(&mut self) {
        self.act(Core::open_all);
    }

    /// Probes which of the voting nodes can push notifications, although no waiter needs them yet.
    /// It opens the second connection to each node, which is closed a few seconds later. See
    /// [`NodeStatus::push`](crate::report::NodeStatus::push).
    pub fn try_push(&mut self) {
        self.act(Core::try_push);
    }

    /// Handles a readiness event of the host's loop; returns `false` if it is not for this driver.
    pub fn on_event(&mut self, event: &mio::event::Event) -> bool {
        self.sockets.on_event(event)
    }

    /// Does everything that can be done now, without waiting.
    ///
    /// Call it when the file descriptor is readable, after passing on events, and when the timeout
    /// has passed. Other calls are harmless.
    pub fn process(&mut self) {
        self.wait(Some(Duration::ZERO));
    }

    /// Processes as [`process`](Self::process) does, but polls for answers without sleeping. It
    /// tries the links that owe an answer, for at most
    /// [`busy_poll`](crate::ConfigBuilder::busy_poll) and until the deadline, and ends with the
    /// first read that brings bytes. Returns whether one did.
    ///
    /// A host with a CPU core to spare calls it before each sleep, and skips the sleep if it
    /// returns `true`. The host's loop is still needed: only the poller reports some events, such
    /// as a completed connect, so poll now and then with a timeout of zero. (A driver with its own
    /// epoll does that itself.)
    pub fn process_busy(&mut self) -> bool {
        let (has_read, _) = self.spin(self.timeout());
        self.turn(has_read, Some(Duration::ZERO));
        has_read
    }

    /// Reads what has arrived since the last call, such as the end of an idle connection, so that
    /// no request is written to a closed connection. Costs nothing in calls that follow each other
    /// closely. Returns the time, for a command that follows at once.
    pub(super) fn catch_up(&mut self) -> ClockReading {
        let now = self.now();
        let absence = now.boot.since(self.read_at);
        if absence > ABSENT {
            self.sockets.core_mut().resume(now.boot);
        }
        if absence <= IDLE {
            return now;
        }
        self.wait(Some(Duration::ZERO));
        self.now()
    }

    /// Reads as [`catch_up`](Self::catch_up) does, and also the pending answers about this lock.
    /// The lock may depend on a grant that is not read yet if another node has lost the key.
    ///
    /// Leftover events are dropped: their caller left by a panic of its log, and they are not
    /// outcomes of the next command.
    pub(super) fn catch_up_with(&mut self, id: LockId) {
        if self.awaits_answers(id) {
            self.wait(Some(Duration::ZERO));
        } else {
            self.catch_up();
        }
        while self.poll_event().is_some() {}
    }

    /// Carries out a command that cannot fail. Does nothing in a forked child.
    fn act(&mut self, command: impl FnOnce(&mut Core, ClockReading)) {
        if self.is_ours() {
            let (core, now) = self.sockets.core_now();
            command(core, now);
            self.finish();
        }
    }

    /// Gives the core a command and writes its bytes. Fails in a forked child.
    fn command<T>(
        &mut self,
        command: impl FnOnce(&mut Core, ClockReading) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        self.check_process()?;
        let (core, now) = self.sockets.core_now();
        let outcome = command(core, now);
        self.finish();
        outcome
    }

    /// Writes the bytes of a command, unless more commands follow.
    fn finish(&mut self) {
        if !self.is_batching {
            self.sockets.settle();
        }
    }

    pub(super) fn now(&self) -> ClockReading {
        self.config.clock().now()
    }

    /// Returns the last reading of the clock.
    pub(super) fn latest(&self) -> Timestamp {
        self.sockets.core().latest()
    }

    /// Processes; if the driver has its own epoll, first waits for up to `timeout`.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) {
        let (has_read, timeout) = self.spin(timeout);
        self.turn(has_read, timeout);
    }

    /// Processes and waits as [`wait`](Self::wait) does, until the deadline but for no longer than
    /// `left`.
    pub(super) fn wait_at_most(&mut self, left: Duration) {
        self.wait(Some(self.timeout().map_or(left, |deadline| deadline.min(left))));
    }

    /// Tries reads for as long as the configuration and `timeout` allow. Returns whether one
    /// brought anything, and for how long to sleep.
    fn spin(&mut self, timeout: Option<Duration>) -> (bool, Option<Duration>) {
        let busy = self.config.busy_poll();
        if busy.is_zero() || !self.is_ours() || !self.sockets.awaits_answers() {
            return (false, timeout);
        }
        let span = timeout.map_or(busy, |timeout| timeout.min(busy));
        let clock = self.config.clock();
        match busy::spin(span, || clock.boot(), || self.sockets.read_awaited()) {
            true => (true, Some(Duration::ZERO)),
            false => (false, timeout.map(|timeout| timeout - span)),
        }
    }

    /// Runs the rest of a turn. After a read it skips the poll for readiness, except for events that
    /// only the poller reports: those would wait for as long as answers keep coming.
    fn turn(&mut self, has_read: bool, timeout: Option<Duration>) {
        // A forked child would take events from its parent's poll.
        if !self.is_ours() {
            return;
        }
        if let Some(own) = &mut self.own
            && (!has_read || self.sockets.needs_loop())
        {
            match own.sleep(timeout, self.sockets.core().latest()) {
                Ok(events) => events.iter().for_each(|event| {
                    self.sockets.on_event(event);
                }),
                Err(error) => self.sockets.fail_all(&error),
            }
        }
        self.sockets.drive();
        self.read_at = self.sockets.core().latest();
    }

    /// Processes until an awaited event of this lock arrives, or its loss. Other events are
    /// dropped. Guards of other locks read their state from the core. Other events of this lock
    /// report something that this call does not wait for, such as a delayed downgrade that has
    /// taken effect since.
    pub(super) fn outcome(&mut self, id: LockId, awaited: fn(&Event) -> bool) -> Event {
        loop {
            while let Some(event) = self.poll_event() {
                let of = match event {
                    Event::Extended(of) | Event::Granted(of) | Event::AutoExtended(of) => of,
                    Event::Lost(of, _) | Event::Released(of, _) => of,
                    Event::Downgraded(of) | Event::Upgraded(of) => of,
                    Event::DowngradeDelayed(of, _) | Event::NotUpgraded(of, _) => of,
                    Event::NotExtended(of, _)
                    | Event::AutoExtendFailed(of, _)
                    | Event::Refused(of, _) => of,
                    Event::Node(..)
                    | Event::Observed(_)
                    | Event::Shortened(_)
                    | Event::Viewed(_) => continue,
                };
                if of == id && (awaited(&event) || matches!(event, Event::Lost(..))) {
                    return event;
                }
            }
            // A callback of the log may have forked, and this is the child.
            if !self.is_ours() {
                return Event::Lost(id, LossCause::Forked);
            }
            // The clock was read by the request or the last turn.
            self.wait(self.sockets.deadline(self.latest()));
        }
    }

    /// Processes until each of these locks was granted or refused. Returns the refusals. A granted
    /// lock may be lost since.
    pub(super) fn outcomes(&mut self, mut open: HashSet<LockId>) -> HashMap<LockId, Refusal> {
        let mut refused = HashMap::new();
        loop {
            while let Some(event) = self.poll_event() {
                match event {
                    Event::Refused(of, refusal) if open.remove(&of) => {
                        refused.insert(of, refusal);
                    }
                    Event::Granted(of) => drop(open.remove(&of)),
                    _ => {}
                }
            }
            if open.is_empty() || !self.is_ours() {
                return refused;
            }
            self.wait(self.sockets.deadline(self.latest()));
        }
    }

    /// Returns whether the lock has no validity left at this time.
    pub(super) fn is_over(&self, id: LockId, now: ClockReading) -> bool {
        self.sockets.core().lease(id).is_none_or(|lease| lease.remaining(now).is_zero())
    }

    /// Returns the loss of a lock as an error, with the lock's name if it is still known.
    #[must_use]
    pub fn lock_lost(&self, id: LockId, cause: LossCause) -> LockLost {
        LockLost::new(LockName::new(self.sockets.core().resources(id)), cause)
    }

    /// Returns how long to wait for nodes that have not answered about a lock that is to be
    /// detached: a small part of its remaining validity, because a node may hang.
    pub(super) fn detach_timeout(&self, id: LockId) -> Duration {
        let patience = MAX_DETACH_TIMEOUT.min(self.remaining(id) / 20);
        patience.min(self.config.settings().response_timeout)
    }

    /// Processes while `is_awaited` holds, for at most `within`.
    pub(super) fn wait_while(&mut self, within: Duration, is_awaited: impl Fn(&Self) -> bool) {
        let until = instant_in(within);
        while self.is_ours() && is_awaited(self) {
            let left = until.saturating_duration_since(Instant::now());
            self.wait_at_most(left);
            // Checked only after processing: bytes that arrived while this thread did not run count
            // too.
            if left.is_zero() {
                return;
            }
        }
    }

    /// Returns the longest wait for readiness before [`process`](Self::process) is due, as a
    /// timeout of `mio::Poll::poll`; `None` if only readiness matters.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let clock = self.config.clock();
        if self.is_ours() { clock.sleep(self.sockets.deadline(clock.boot())) } else { None }
    }

    /// Returns the next outcome.
    pub fn poll_event(&mut self) -> Option<Event> {
        if !self.is_ours() {
            return None;
        }
        let event = self.next_event();
        self.note(event.as_ref());
        event
    }

    /// Returns the validity that a lock has left, by the current clock; zero if it is not held.
    #[must_use]
    pub fn remaining(&self, id: LockId) -> Duration {
        let lease = self.sockets.core().lease(id).filter(|_| self.is_ours());
        lease.map_or(Duration::ZERO, |lease: &Lease| lease.remaining(self.config.clock().now()))
    }

    /// Returns the sharing mode of a lock that is requested or held; `None` if it was refused or
    /// released.
    #[must_use]
    pub fn mode(&self, id: LockId) -> Option<LockMode> {
        self.sockets.core().mode(id)
    }

    /// Returns the permit number of a held lock, counted from 0. `None` if its request had no
    /// permits ([`LockRequest::permits`]).
    #[must_use]
    pub fn slot(&self, id: LockId) -> Option<u16> {
        self.sockets.core().slot(id)
    }

    /// Returns the fencing token of a held lock. `None` if its request had none
    /// ([`LockRequest::fenced`]).
    #[must_use]
    pub fn fencing_token(&self, id: LockId) -> Option<FencingToken> {
        self.sockets.core().fencing_token(id).filter(|_| self.is_ours())
    }

    /// Returns the state of a lock.
    #[must_use]
    pub fn state(&self, id: LockId) -> LockState {
        match self.sockets.core().state(id) {
            LockState::Unknown => LockState::Unknown,
            _ if !self.is_ours() => LockState::Lost(LossCause::Forked),
            state => state,
        }
    }

    /// Returns the votes of the current attempt, extension or release of a lock; empty for
    /// an unknown lock.
    #[must_use]
    pub fn votes(&self, id: LockId) -> Votes {
        self.sockets.core().votes(id)
    }

    /// Returns the votes of the last failed attempt of a waiting lock, which show what it waits
    /// for; `None` before the first.
    #[must_use]
    pub fn decided_votes(&self, id: LockId) -> Option<Votes> {
        self.sockets.core().decided_votes(id)
    }

    /// Returns whether a release or an undo is still unconfirmed on a node that can be reached.
    #[must_use]
    pub fn has_pending_releases(&self) -> bool {
        self.is_ours() && self.sockets.core().has_pending_releases()
    }

    /// Converts a refusal to a report with the addresses of the nodes.
    #[must_use]
    pub fn report(&self, refusal: &Refusal) -> RefusalReport {
        RefusalReport::new(self.config.addresses(), self.sockets.core(), *refusal)
    }

    /// Returns which nodes can vote now.
    #[must_use]
    pub fn node_report(&self) -> NodeReport {
        NodeReport::new(self.config.addresses(), self.sockets.core())
    }

    /// Returns the counts since the driver was created.
    #[must_use]
    pub fn metrics(&self) -> MetricsReport {
        MetricsReport::new(&self.config, self.sockets.core())
    }

    /// Returns whether this node can vote now, and if not, why.
    #[must_use]
    pub fn node_state(&self, node: NodeId) -> NodeState {
        self.sockets.core().node_state(node)
    }

    /// Returns whether this process created the driver. A forked child did not: the connections
    /// belong to its parent, and nothing is sent or read there.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.sockets.is_ours()
    }

    /// Returns the configuration that the driver was created with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl Driver {
    /// Returns the core, for an API that gives it several commands and writes once: nothing is
    /// written before [`settle`](Self::settle).
    pub(super) fn core_mut(&mut self) -> &mut Core {
        self.sockets.core_mut()
    }

    /// Returns the next outcome before the log receives it.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.sockets.core_mut().poll_event()
    }

    pub(super) fn has_log(&self) -> bool {
        self.notes.is_some()
    }

    /// Stores the name of a lock for the log, if there is one.
    pub(super) fn name_lock<'r>(&mut self, id: LockId, resources: impl Iterator<Item = &'r [u8]>) {
        if let Some(notes) = &mut self.notes {
            notes.name(id, resources);
        }
    }

    /// Passes an outcome to the log, which is code of the host.
    #[inline]
    pub(super) fn note(&mut self, event: Option<&Event>) {
        if let Some(notes) = &mut self.notes {
            notes.note(self.config.addresses(), self.sockets.core(), event);
        }
    }

    /// Runs the second half of a turn: writes what the commands have queued.
    pub(super) fn settle(&mut self) {
        self.sockets.settle();
        self.read_at = self.sockets.core().latest();
    }

    fn check_process(&self) -> Result<(), RequestError> {
        // A forked child shares the sockets of its parent, and its bytes would mix with the
        // parent's.
        if self.is_ours() { Ok(()) } else { Err(RequestError::Forked) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.sockets.release_all();
    }
}

impl AsFd for Driver {
    /// Returns the file descriptor to watch for readability.
    ///
    /// # Panics
    ///
    /// Panics if the driver is in a host's registry: watch that one instead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let own =
            self.own.as_ref().expect("a driver in a host's registry has no descriptor of its own");
        own.registry().as_fd()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("core", self.sockets.core()).finish_non_exhaustive()
    }
}

/// Returns the end of a span that begins now. If no clock can represent it, returns a time far
/// beyond every wait.
pub(super) fn instant_in(span: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(span).unwrap_or(now + FOR_EVER)
}

/// The longest absence of a caller after which the core need not resume.
const ABSENT: Duration = Duration::from_millis(1);

/// The longest wait for a node that may hang before a lock is detached.
const MAX_DETACH_TIMEOUT: Duration = Duration::from_millis(500);

/// The time since the last read within which connections are assumed to be open.
const IDLE: Duration = Duration::from_millis(100);

const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use redbolt_node::Node;

    use super::*;

    /// The scheduler may pause the thread between its read of the sockets and its read of the
    /// clock.
    #[test]
    fn a_driver_writes_at_once_after_a_batch_that_panics() {
        let config = Config::builder().node("127.0.0.1:1").build().unwrap();
        let mut driver = Driver::new(config).unwrap();
        let panics = |driver: &mut Driver| driver.batch(|_| panic!("in the caller's code"));
        assert!(catch_unwind(AssertUnwindSafe(|| panics(&mut driver))).is_err());
        assert!(!driver.is_batching);
    }

    #[test]
    fn an_answer_that_is_there_when_its_time_is_over_counts() {
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string());
        let soon = Duration::from_millis(200);
        let mut driver =
            Driver::new(builder.response_timeout(soon).new_nodes().build().unwrap()).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while driver.node_report().ready() == 0 {
            assert!(Instant::now() < until, "it is not ready");
            driver.process();
        }
        let id = driver.acquire(LockRequest::new("job").ttl(Duration::from_secs(20))).unwrap();
        std::thread::sleep(5 * soon);
        driver.sockets.expire();
        assert_eq!(driver.state(id), LockState::Held);
    }

    /// A turn that has read an answer must also poll for these events. Otherwise they would wait
    /// for as long as answers keep coming.
    /// keep coming.
    #[test]
    fn connections_do_not_wait_for_answers_to_stop() {
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string());
        let config = builder.connect_timeout(Duration::from_secs(60)).build().unwrap();
        let mut driver = Driver::new(config).unwrap();
        assert!(
            driver.sockets.needs_loop() && !driver.sockets.awaits_answers(),
            "it is being connected"
        );
        let until = Instant::now() + Duration::from_secs(10);
        while driver.sockets.needs_loop() {
            assert!(Instant::now() < until, "the connection is not looked at");
            driver.turn(true, Some(Duration::ZERO));
        }
        while driver.node_report().nodes[0].state == NodeState::Connecting {
            assert!(Instant::now() < until);
            driver.process_busy();
        }
        driver.inspect(b"job").unwrap();
        assert!(!driver.sockets.needs_loop() && driver.sockets.awaits_answers());
    }
}
