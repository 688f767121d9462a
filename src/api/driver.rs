//! The embedded API: a lock client inside the event loop of another program.
//!
//! Invariant: it has no thread and never waits. The host reports readiness and passed deadlines; outcomes
//! are events. It reads the clock itself, after the last read.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
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

/// Locks for a program with an event loop of its own.
///
/// Two ways to embed it:
///
/// * [`new`](Self::new): it has an epoll of its own, which is one file descriptor ([`AsFd`]). Watch
///   that for readability in any loop, and call [`process`](Self::process) when it is readable or when
///   [`timeout`](Self::timeout) has passed.
/// * [`in_registry`](Self::in_registry): its sockets live in the host's `mio::Poll`, under tokens that
///   the host chose. Pass events to [`on_event`](Self::on_event), then call `process`.
///
/// Commands return at once and their bytes are written at once; the outcome is an
/// [`Event`]. A driver never waits, so it has no `lock` and no guards; [what the APIs have in
/// common](crate::manual::choosing_an_api) says the rest. After every command or call of `process`, take events until there are none, and
/// ask for the deadline again. [Your own event loop](crate::manual::event_loop) has more, also on its end and a `fork`.
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
    /// `None` in a host's registry.
    own: Option<Box<OwnPoll>>,
    /// When the sockets were read last.
    read_at: Timestamp,
    /// Commands only queue their bytes.
    is_batching: bool,
    notes: Option<Box<Notes>>,
}

impl Driver {
    /// A driver with an epoll of its own. It begins to connect; a node that cannot be reached is no
    /// error.
    ///
    /// # Errors
    ///
    /// [`StartError::Io`]: the system has no file descriptors left.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let own = OwnPoll::new(Self::tokens_needed(&config), config.clock())?;
        let registry = own.registry().try_clone()?;
        Self::start(config, registry, 0, Some(Box::new(own)))
    }

    /// A driver whose sockets live in a host's loop, under `tokens`, of which
    /// [`tokens_needed`](Self::tokens_needed) says how many there must be.
    ///
    /// # Errors
    ///
    /// [`StartError::Tokens`]: the range is too small. [`StartError::Io`]: the system has no file descriptors
    /// left.
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

    /// How many `mio::Token`s a driver of this configuration uses: one for each node, one for name
    /// look-ups, one more for each node, for the links on which waiters will be told of releases, and one for each sentinel.
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
        // The first failure to draw is reported here; later ones cannot be, so they end the process
        // rather than let a token be guessed.
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

    /// Asks all nodes for a lock. The outcome is [`Event::Granted`] or [`Event::Refused`].
    ///
    /// # Errors
    ///
    /// The request cannot be carried out, and nothing is sent.
    pub fn acquire(&mut self, request: LockRequest<'_>) -> Result<LockId, RequestError> {
        self.acquire_at(&request, self.now())
    }

    /// The same for a caller that has read the clock.
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

    /// Asks all nodes to keep a held lock for `ttl` more. The outcome is [`Event::Extended`],
    /// [`Event::NotExtended`] or [`Event::Lost`].
    ///
    /// # Errors
    ///
    /// It is not held, an extension is under way, or the TTL is out of its range.
    pub fn extend(&mut self, id: LockId, ttl: Duration) -> Result<(), RequestError> {
        self.command(|core, now| core.extend(id, ttl, now))
    }

    /// Lets go of a lock, or cancels its acquisition; see
    /// [`Core::release`] for the outcomes.
    pub fn release(&mut self, id: LockId) {
        self.release_at(id, self.now());
    }

    /// The same for a caller that has read the clock.
    pub(super) fn release_at(&mut self, id: LockId, now: ClockReading) {
        if self.is_ours() {
            self.sockets.core_mut().release(id, now);
            self.finish();
        }
    }

    /// The same for a caller that may not process what is answered.
    pub(super) fn release_and_leave(&mut self, id: LockId) {
        self.act(|core, now| core.release_and_leave(id, now));
    }

    /// Runs `commands`, and writes what they have to say afterwards, together: many locks that are asked
    /// for, extended or released cost each node one write.
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
        let result = commands(self);
        self.is_batching = gathered;
        self.finish();
        result
    }

    /// Asks all nodes once for the resource of a shared lock alone, beside its own claim, which it keeps whatever comes of
    /// it. The outcome is [`Event::Upgraded`] or [`Event::NotUpgraded`], or [`Event::Lost`] of the lock itself. See
    /// [`Core::try_upgrade`].
    ///
    /// # Errors
    ///
    /// The lock is not held or not shared, or an extension or a change of its mode is under way.
    pub fn try_upgrade(&mut self, id: LockId) -> Result<(), RequestError> {
        self.command(|core, now| core.try_upgrade(id, now))
    }

    /// Makes a shared lock of an exclusive one, at once: its holder is a reader from this call on, whatever the
    /// nodes say. The outcome is [`Event::Downgraded`] when others may share the resource, or
    /// [`Event::DowngradeDelayed`]. See [`Core::downgrade`].
    ///
    /// # Errors
    ///
    /// The lock is not held or not exclusive, or on several resources.
    pub fn downgrade(&mut self, id: LockId) -> Result<(), RequestError> {
        self.command(|core, now| core.downgrade(id, now))
    }

    /// Asks all nodes who holds `resource`, without taking part. The outcome is
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

    /// The result of an inspection that is complete, once.
    pub fn take_inspection(&mut self, id: ViewId) -> Option<Inspection> {
        let core = self.sockets.core_mut();
        let view = core.take_view(id)?;
        let mine = core.held_on(&view.resource, self.config.clock().now());
        Some(Inspection::new(&self.config, core, view, mine))
    }

    /// Observes who leads in `election`, until [`unobserve`](Self::unobserve). [`Event::Observed`] says that it is known, or
    /// has changed. Takes no part and writes nothing. What is seen is a [hint](crate::manual::leader).
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

    /// Who leads, as it was announced last; `None` before the first [`Event::Observed`].
    #[must_use]
    pub fn observation(&self, id: ObserverId) -> Option<Observation> {
        let core = self.sockets.core();
        let view = core.observation(id).filter(|_| self.is_ours())?;
        Some(Observation::new(&self.config, core, view))
    }

    /// Observes no longer. An unknown id is ignored.
    pub fn unobserve(&mut self, id: ObserverId) {
        if self.is_ours() {
            self.sockets.core_mut().unobserve(id);
        }
    }

    /// Breaks the lock on `resource`, whoever holds it: an operator's means against a holder that
    /// hangs or is gone. See [`Core::force_unlock`] for what it deletes, and for what it leaves alone.
    /// The outcome is [`Event::Viewed`]; [`take_force_unlock`](Self::take_force_unlock) has the report.
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

    /// What was broken, once all nodes have answered or their time is over; once. For the ids that
    /// [`force_unlock`](Self::force_unlock) gave.
    pub fn take_force_unlock(&mut self, id: ViewId) -> Option<ForceUnlockReport> {
        let view = self.sockets.core_mut().take_view(id)?;
        Some(ForceUnlockReport::new(&self.config, self.sockets.core(), view))
    }

    /// Detaches a held lock, for another process on this machine to [attach](Self::attach). This driver forgets
    /// it and sends nothing about it any more. `None` if it is not held.
    ///
    /// A node that has not answered yet will not count for the lock, and may not hear of an extension:
    /// wait while it [awaits answers](Self::awaits_answers) if you can.
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

    /// Whether a node has not answered to all that it was asked about this lock, or is about to be. A
    /// lock is granted and extended by a quorum, before all have.
    #[must_use]
    pub fn awaits_answers(&self, id: LockId) -> bool {
        self.is_ours() && self.sockets.core().awaits_answers(id)
    }

    /// Attaches a lock that was detached. It is held from here on, with the lease that it had, and is extended
    /// and released as any other. A lock whose lease is over, or that was detached before the machine was
    /// restarted, is lost: [`Event::Lost`] follows, and releasing it undoes what the nodes still keep.
    ///
    /// # Errors
    ///
    /// This driver has other nodes, the same in another order, or another quorum or limits.
    pub fn attach(&mut self, detached: &DetachedLock) -> Result<LockId, RequestError> {
        self.check_process()?;
        let detached = detached::checked(detached, &self.config)?;
        let (core, now) = self.sockets.core_now();
        let id = core.attach(&detached, now)?;
        self.name_lock(id, detached.keys());
        self.finish();
        Ok(id)
    }

    /// Connects to all nodes that are not connected, ahead of their backoff.
    pub fn connect(&mut self) {
        self.act(Core::open_all);
    }

    /// Finds out which of the nodes that vote would tell those who wait, though nobody does: it opens the
    /// second connection to each, which is closed a few seconds later. See [`NodeStatus::push`].
    ///
    /// [`NodeStatus::push`]: crate::report::NodeStatus::push
    pub fn try_push(&mut self) {
        self.act(Core::try_push);
    }

    /// Takes a readiness event of the host's loop; `false` if it is not for this driver.
    pub fn on_event(&mut self, event: &mio::event::Event) -> bool {
        self.sockets.on_event(event)
    }

    /// Does everything that can be done now, without waiting.
    ///
    /// Call it when the file descriptor is readable, after events were passed on, and when the
    /// deadline has passed. Calling it at other times is harmless.
    pub fn process(&mut self) {
        self.wait(Some(Duration::ZERO));
    }

    /// As [`process`](Self::process), but waits for answers without sleeping. It tries to read where answers are
    /// due, for at most [`busy_poll`](crate::ConfigBuilder::busy_poll) and until the deadline, and ends with the
    /// first read that brings bytes. Returns whether one did.
    ///
    /// A host with a core to spare calls it before each sleep, and skips the sleep if it returns `true`. It does
    /// not replace the host's loop: only the poller reports some events, such as a completed connect, so poll
    /// without a timeout now and again. (A driver with an epoll of its own does that itself.)
    pub fn process_busy(&mut self) -> bool {
        let (has_read, _) = self.spin(self.timeout());
        self.turn(has_read, Some(Duration::ZERO));
        has_read
    }

    /// Reads what has come since the last call, such as the end of an idle connection, so that
    /// a request is not written to a connection that is gone. Calls in close succession pay nothing
    /// for it. Returns the time, for a command that follows at once.
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

    /// As [`catch_up`](Self::catch_up), and reads what nodes have answered about this lock: a grant that is
    /// not read yet may be what the lock rests on, once another node has lost the key. Events that are left over
    /// are dropped: their caller has left by a panic of its log, and they are no outcome of the next command.
    pub(super) fn catch_up_with(&mut self, id: LockId) {
        if self.awaits_answers(id) {
            self.wait(Some(Duration::ZERO));
        } else {
            self.catch_up();
        }
        while self.poll_event().is_some() {}
    }

    /// Carries out a command that cannot fail. In a forked child it does nothing.
    fn act(&mut self, command: impl FnOnce(&mut Core, ClockReading)) {
        if self.is_ours() {
            let (core, now) = self.sockets.core_now();
            command(core, now);
            self.finish();
        }
    }

    /// Gives the core a command, and writes its bytes. In a forked child it is an error.
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

    /// Reads the clock.
    pub(super) fn now(&self) -> ClockReading {
        self.config.clock().now()
    }

    /// The last reading of the clock.
    pub(super) fn latest(&self) -> Timestamp {
        self.sockets.core().latest()
    }

    /// Processes, and waits for up to `timeout` if it has an epoll of its own.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) {
        let (has_read, timeout) = self.spin(timeout);
        self.turn(has_read, timeout);
    }

    /// The same, for no longer than `left`.
    pub(super) fn wait_at_most(&mut self, left: Duration) {
        self.wait(Some(self.timeout().map_or(left, |deadline| deadline.min(left))));
    }

    /// Tries reads, for as long as the configuration and `timeout` allow. Returns whether one brought
    /// something, and for how long to sleep.
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

    /// The rest of a turn. It does not poll for readiness if something was read already, unless there are events that
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

    /// Processes until this lock is lost, or what is awaited has become of it. Other events are dropped: those of other locks
    /// because their guards ask the core, which knows; and those of this one because they report what this call does not wait for,
    /// such as a downgrade that was delayed, and has come to pass since.
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
            // In a callback of the log.
            if !self.is_ours() {
                return Event::Lost(id, LossCause::Forked);
            }
            // The ask, or the last turn, has read the clock.
            self.wait(self.sockets.deadline(self.latest()));
        }
    }

    /// Processes until each of these locks was granted, lost again, or refused; returns the refusals.
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

    /// Whether nothing is left of a lock's validity at this time.
    pub(super) fn is_over(&self, id: LockId, now: ClockReading) -> bool {
        self.sockets.core().lease(id).is_none_or(|lease| lease.remaining(now).is_zero())
    }

    /// The loss of a lock as an error, with the lock's name as long as that is known.
    #[must_use]
    pub fn lock_lost(&self, id: LockId, cause: LossCause) -> LockLost {
        LockLost::new(LockName::new(self.sockets.core().resources(id)), cause)
    }

    /// How long to wait for nodes that have not answered about a lock that is to be detached: for a small part
    /// of what is left of it, because one may hang.
    pub(super) fn detach_timeout(&self, id: LockId) -> Duration {
        let patience = MAX_DETACH_TIMEOUT.min(self.remaining(id) / 20);
        patience.min(self.config.settings().response_timeout)
    }

    /// Processes while this is so, for at most `within`.
    pub(super) fn wait_while(&mut self, within: Duration, is_awaited: impl Fn(&Self) -> bool) {
        let until = instant_in(within);
        while self.is_ours() && is_awaited(self) {
            let left = until.saturating_duration_since(Instant::now());
            self.wait_at_most(left);
            // Not before: what came while this thread did not run is there.
            if left.is_zero() {
                return;
            }
        }
    }

    /// How long to wait for readiness at the most before [`process`](Self::process) is due, as a timeout of `mio::Poll::poll`; `None`
    /// if only readiness matters.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let clock = self.config.clock();
        if self.is_ours() { clock.sleep(self.sockets.deadline(clock.boot())) } else { None }
    }

    /// The next outcome.
    pub fn poll_event(&mut self) -> Option<Event> {
        if !self.is_ours() {
            return None;
        }
        let event = self.next_event();
        self.note(event.as_ref());
        event
    }

    /// The validity that is left of a lock, by the clock as it is now; zero if it is not held.
    #[must_use]
    pub fn remaining(&self, id: LockId) -> Duration {
        let lease = self.sockets.core().lease(id).filter(|_| self.is_ours());
        lease.map_or(Duration::ZERO, |lease: &Lease| lease.remaining(self.config.clock().now()))
    }

    /// Beside whom a lock is wanted or held; `None` if it was refused or released.
    #[must_use]
    pub fn mode(&self, id: LockId) -> Option<LockMode> {
        self.sockets.core().mode(id)
    }

    /// The number of the permit of a lock that is held, from 0 on; `None` unless it was asked for
    /// ([`LockRequest::permits`]).
    #[must_use]
    pub fn slot(&self, id: LockId) -> Option<u16> {
        self.sockets.core().slot(id)
    }

    /// The fencing token of a lock that is held; `None` unless it was asked for
    /// ([`LockRequest::fenced`]).
    #[must_use]
    pub fn fencing_token(&self, id: LockId) -> Option<FencingToken> {
        self.sockets.core().fencing_token(id).filter(|_| self.is_ours())
    }

    /// Where a lock is in its life.
    #[must_use]
    pub fn state(&self, id: LockId) -> LockState {
        match self.sockets.core().state(id) {
            LockState::Unknown => LockState::Unknown,
            _ if !self.is_ours() => LockState::Lost(LossCause::Forked),
            state => state,
        }
    }

    /// The votes of a lock's present attempt, extension or release; none once it is not known.
    #[must_use]
    pub fn votes(&self, id: LockId) -> Votes {
        self.sockets.core().votes(id)
    }

    /// The votes of the last attempt of a lock that waits, after which it went on; `None` before. What
    /// stands in its way, while it waits.
    #[must_use]
    pub fn decided_votes(&self, id: LockId) -> Option<Votes> {
        self.sockets.core().decided_votes(id)
    }

    /// Whether a release or an undo is not confirmed yet on a node that can be reached.
    #[must_use]
    pub fn has_pending_releases(&self) -> bool {
        self.is_ours() && self.sockets.core().has_pending_releases()
    }

    /// A refusal in words, with addresses.
    #[must_use]
    pub fn report(&self, refusal: &Refusal) -> RefusalReport {
        RefusalReport::new(self.config.addresses(), self.sockets.core(), *refusal)
    }

    /// Which nodes can vote now.
    #[must_use]
    pub fn node_report(&self) -> NodeReport {
        NodeReport::new(self.config.addresses(), self.sockets.core())
    }

    /// What was counted since it was made.
    #[must_use]
    pub fn metrics(&self) -> MetricsReport {
        MetricsReport::new(&self.config, self.sockets.core())
    }

    /// Whether this node can vote now.
    #[must_use]
    pub fn node_state(&self, node: NodeId) -> NodeState {
        self.sockets.core().node_state(node)
    }

    /// Whether this is the process that made it. In a forked child it is not: the connections are the parent's, and nothing
    /// is sent or read there.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.sockets.is_ours()
    }

    /// The configuration it was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl Driver {
    /// The core, for an API that gives it several commands and writes once: nothing is written before
    /// [`settle`](Self::settle).
    pub(super) fn core_mut(&mut self) -> &mut Core {
        self.sockets.core_mut()
    }

    /// The next outcome, before the log gets it.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.sockets.core_mut().poll_event()
    }

    /// Whether there is a log.
    pub(super) fn has_log(&self) -> bool {
        self.notes.is_some()
    }

    /// Keeps the name of a lock for the log, if there is one.
    pub(super) fn name_lock<'r>(&mut self, id: LockId, resources: impl Iterator<Item = &'r [u8]>) {
        if let Some(notes) = &mut self.notes {
            notes.name(id, resources);
        }
    }

    /// Gives an outcome to the log, which is the host's code.
    #[inline]
    pub(super) fn note(&mut self, event: Option<&Event>) {
        if let Some(notes) = &mut self.notes {
            notes.note(self.config.addresses(), self.sockets.core(), event);
        }
    }

    /// The second half of a turn: writes what the commands have queued.
    pub(super) fn settle(&mut self) {
        self.sockets.settle();
        self.read_at = self.sockets.core().latest();
    }

    fn check_process(&self) -> Result<(), RequestError> {
        if self.is_ours() { Ok(()) } else { Err(RequestError::Forked) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.sockets.release_all();
    }
}

impl AsFd for Driver {
    /// The file descriptor to watch for readability.
    ///
    /// # Panics
    ///
    /// If the driver lives in a host's registry: that is the one to watch.
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

/// The end of a span that begins now; of one that no clock can hold, a time far beyond every wait.
pub(super) fn instant_in(span: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(span).unwrap_or(now + FOR_EVER)
}

/// A caller that comes back sooner has not been away.
const ABSENT: Duration = Duration::from_millis(1);

/// The longest wait for a node that may hang before a lock is detached.
const MAX_DETACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Connections that were read more recently are taken to be open.
const IDLE: Duration = Duration::from_millis(100);

/// A hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use redbolt_node::Node;

    use super::*;

    /// A machine may not run the thread between its look at the sockets and its look at the clock.
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

    /// A turn that has heard an answer looks for these as well, or they would wait for as long as answers
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
