//! The engine's thread: one driver, fed from the queue.
//!
//! In each turn it reads what the sockets have, gives the core all commands that came meanwhile, and
//! then writes: so all commands of one turn make one write to each node. Outcomes go to the slots. A
//! panic in code that is not ours is caught where that code is called; one in ours ends the engine, and
//! everybody is told. Not here: the protocol, and waiting for an outcome.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::observer_slot::ObserverSlot;
use super::pending::{Pending, Question};
use super::queue::{Attached, Command, ViewRequest, WarmUp};
use super::reply::Responder;
use super::shared::Shared;
use super::shutdown::{ShutdownReport, Unreleased};
use super::slot::LockSlot;
use crate::api::busy;
use crate::api::driver::Driver;
use crate::api::error::{AcquireError, EngineError};
use crate::api::guard::{ExtendError, ReleaseOutcome, loss};
use crate::api::own_poll::OwnPoll;
use crate::api::report::NodeReport;
use crate::proto::{
    ClockReading, Confirmed, DetachedLock, Event, LockId, LockMode, LockState, LossCause,
    ObserverId, Refusal, RefusalReason, RequestError, ViewId,
};

pub(super) struct Thread {
    poll: OwnPoll,
    driver: Driver,
    shared: Arc<Shared>,
    /// Commands that were taken, the next one last.
    commands: Vec<Command>,
    /// The lock of the command that is being obeyed, so that a panic does not lose it.
    concerned: Option<Arc<LockSlot>>,
    /// Every lock that has not ended, by its name in the core.
    slots: HashMap<LockId, Arc<LockSlot>, BuildHasherDefault<NameHasher>>,
    /// Looks at resources under way, each with whoever asked for it.
    views: HashMap<ViewId, ViewRequest, BuildHasherDefault<NameHasher>>,
    /// Those who observe who leads.
    observers: HashMap<ObserverId, Arc<ObserverSlot>, BuildHasherDefault<NameHasher>>,
    /// What is answered later.
    pending: Vec<Pending>,
    /// The engine is to end by then.
    until: Option<Instant>,
    /// Whoever waits for outcomes of this turn.
    waiters: Vec<Waker>,
    /// In the last turn something was asked or told.
    is_stirred: bool,
    /// It has slept since the last commands were taken.
    has_slept: bool,
    /// Several commands were taken together the last time that there were any.
    comes_in_crowds: bool,
    report: ShutdownReport,
}

impl Thread {
    pub(super) fn new(poll: OwnPoll, driver: Driver, shared: Arc<Shared>) -> Self {
        Self {
            poll,
            driver,
            shared,
            commands: Vec::new(),
            concerned: None,
            slots: HashMap::default(),
            views: HashMap::default(),
            observers: HashMap::default(),
            pending: Vec::new(),
            until: None,
            waiters: Vec::new(),
            is_stirred: false,
            has_slept: false,
            comes_in_crowds: false,
            report: ShutdownReport::default(),
        }
    }

    /// Works until it is told to end.
    pub(super) fn run(mut self) {
        self.shared.runtime.adopt_thread();
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        self.report.failed = !matches!(ended, Ok(Ok(())));
        self.end();
    }

    fn work(&mut self) -> io::Result<()> {
        while !self.is_done() {
            self.process()?;
        }
        // Its time may have ended while it did not run: what came meanwhile is there.
        if self.has_work() { self.process() } else { Ok(()) }
    }

    fn process(&mut self) -> io::Result<()> {
        self.hear()?;
        // Before the commands, which can take long: by then an answer may have come that was not read.
        self.driver.expire();
        self.obey();
        self.driver.settle();
        self.tell();
        if self.answer_pending() {
            self.driver.settle();
            self.tell();
        }
        Ok(())
    }

    /// Whether it was told to end, and has nothing left to do or no time.
    fn is_done(&self) -> bool {
        self.until.is_some_and(|until| !self.has_work() || until <= Instant::now())
    }

    fn has_work(&self) -> bool {
        !self.slots.is_empty() || self.driver.has_pending_releases()
    }

    /// Sleeps until something is readable, something is due, or somebody has pushed a command.
    fn hear(&mut self) -> io::Result<()> {
        let heard = self.spin();
        if heard && !self.driver.needs_loop() {
            return Ok(());
        }
        let idle = !heard && self.commands.is_empty() && self.shared.queue.prepare_sleep();
        self.has_slept |= idle;
        let span = if idle { self.due() } else { Some(Duration::ZERO) };
        match self.poll.sleep(span, self.driver.latest()) {
            Ok(events) => {
                for event in events {
                    self.driver.on_event(event);
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does not sleep for a moment after it was asked or has told something, or while answers are due, if
    /// the configuration wants it so: they are likely to come, and so is the next command. Whether one did.
    fn spin(&mut self) -> bool {
        let busy = self.shared.runtime.config.busy_poll();
        let stirred = std::mem::take(&mut self.is_stirred);
        if busy.is_zero() || !self.commands.is_empty() {
            return false;
        }
        if !stirred && !self.driver.is_awaiting() {
            return false;
        }
        let span = self.due().map_or(busy, |due| due.min(busy));
        let clock = self.shared.runtime.config.clock();
        let heard = || self.driver.listen() || self.shared.queue.is_filled();
        busy::spin(span, || clock.boot(), heard)
    }

    fn due(&self) -> Option<Duration> {
        let until = self.pending.iter().map(|pending| pending.until).chain(self.until).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match (self.driver.deadline(), left) {
            (Some(deadline), Some(left)) => Some(deadline.min(left)),
            (deadline, left) => deadline.or(left),
        }
    }

    /// Gives the core the commands that have come. One reading of the clock is enough: it is earlier than
    /// the first byte of each. But it is also when the time begins in which nodes have to answer, so a
    /// crowd of commands takes several turns.
    fn obey(&mut self) {
        if self.commands.is_empty() {
            self.take_commands();
        }
        let now = self.shared.runtime.config.clock().now();
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = self.commands.pop() else { break };
            self.is_stirred = true;
            self.concerned = command.slot().cloned();
            match command {
                Command::Acquire(slot) => self.acquire(slot, now),
                Command::Attach(slot, detached, attached) => {
                    self.attach(slot, &detached, attached, now)
                }
                Command::ChangeMode(slot, mode) => self.change_mode(&slot, mode, now),
                Command::Close(until) => self.close(until, now),
                Command::Detach(slot, responder) => self.begin_to_detach(slot, responder),
                Command::Extend(slot, ttl) => self.extend(&slot, ttl, now),
                Command::Look(question) => question(&self.driver),
                Command::Observe(election, observer) => self.observe(&election, observer, now),
                Command::Release(slot) => self.release(&slot, now),
                Command::Unobserve(observer) => self.unobserve(&observer),
                Command::View(resource, request) => self.view(&resource, request, now),
                Command::WarmUp(warm_up, responder) => self.warm_up(warm_up, responder),
            }
        }
        self.concerned = None;
    }

    /// Takes the commands that have come. Whoever pushed the first of them was interrupted by our waking up
    /// if they share a core with us. Where commands come in crowds, they are let go on first: each
    /// command by itself would cost them and the nodes as much as all of them together.
    fn take_commands(&mut self) {
        let queue = &self.shared.queue;
        if std::mem::take(&mut self.has_slept) && self.comes_in_crowds && queue.is_filled() {
            std::thread::yield_now();
        }
        queue.take(&mut self.commands);
        self.commands.reverse();
        if !self.commands.is_empty() {
            self.comes_in_crowds = self.commands.len() > 1;
        }
    }

    fn acquire(&mut self, slot: Arc<LockSlot>, now: ClockReading) {
        if slot.is_released() {
            return;
        }
        match self.driver.core_mut().acquire(&slot.request, now) {
            Ok(id) => {
                self.driver.name_lock(id, slot.request.resources());
                slot.set_id(id);
                self.slots.insert(id, slot);
            }
            Err(error) => {
                let waiter = slot.refuse(AcquireError::Request(error));
                self.will_wake(waiter);
            }
        }
    }

    fn extend(&mut self, slot: &LockSlot, ttl: Duration, now: ClockReading) {
        let Some(id) = slot.id() else { return };
        if let Err(error) = self.driver.core_mut().extend(id, ttl, now) {
            slot.fail_extension(self.refused_at_the_door(slot, id, error));
        }
    }

    fn change_mode(&mut self, slot: &LockSlot, mode: LockMode, now: ClockReading) {
        let Some(id) = slot.id() else { return };
        let core = self.driver.core_mut();
        let begun = match mode {
            LockMode::Exclusive => core.try_upgrade(id, now),
            LockMode::Shared | LockMode::Permit { .. } => core.downgrade(id, now),
        };
        if let Err(error) = begun {
            slot.fail_mode_change(self.refused_at_the_door(slot, id, error));
        }
    }

    /// Why the core does not do it. One who has let go knows that the lock is not held.
    fn refused_at_the_door(&self, slot: &LockSlot, id: LockId, error: RequestError) -> ExtendError {
        match error {
            RequestError::NotHeld if !slot.is_released() => {
                let cause = slot.loss().unwrap_or_else(|| loss(self.driver.state(id)));
                ExtendError::Lost(cause)
            }
            error => ExtendError::Request(error),
        }
    }

    fn view(&mut self, resource: &[u8], request: ViewRequest, now: ClockReading) {
        let core = self.driver.core_mut();
        let begun = match request {
            ViewRequest::ForceUnlock { force, .. } => core.begin_force_unlock(force, resource, now),
            ViewRequest::Inspect(_) => core.inspect(resource, now),
        };
        match begun {
            Ok(id) => drop(self.views.insert(id, request)),
            Err(error) => request.refuse(error),
        }
    }

    fn viewed(&mut self, id: ViewId) {
        match self.views.remove(&id) {
            Some(ViewRequest::ForceUnlock { responder, .. }) => {
                if let Some(report) = self.driver.take_force_unlock(id) {
                    responder.send(Ok(report));
                }
            }
            Some(ViewRequest::Inspect(responder)) => {
                if let Some(inspection) = self.driver.take_inspection(id) {
                    responder.send(Ok(inspection));
                }
            }
            None => {}
        }
    }

    fn observe(&mut self, election: &[u8], observer: Arc<ObserverSlot>, now: ClockReading) {
        if observer.is_dropped() {
            return;
        }
        // Its name was accepted at the door.
        if let Ok(id) = self.driver.core_mut().observe(election, now) {
            observer.set_id(id);
            self.observers.insert(id, observer);
        }
    }

    fn unobserve(&mut self, observer: &ObserverSlot) {
        if let Some(id) = observer.id() {
            self.driver.core_mut().unobserve(id);
            self.observers.remove(&id);
        }
    }

    fn observed(&mut self, id: ObserverId) {
        let Some(observer) = self.observers.get(&id) else { return };
        if let Some(observation) = self.driver.observation(id) {
            let waiter = observer.record(observation);
            self.will_wake(waiter);
        }
    }

    fn attach(
        &mut self,
        slot: Arc<LockSlot>,
        detached: &DetachedLock,
        attached: Attached,
        now: ClockReading,
    ) {
        match self.driver.core_mut().attach(detached, now) {
            Ok(id) => {
                self.driver.name_lock(id, detached.keys());
                slot.set_id(id);
                self.slots.insert(id, slot);
                self.granted(id);
                attached(Ok(()));
            }
            Err(error) => attached(Err(error.into())),
        }
    }

    fn begin_to_detach(
        &mut self,
        slot: Arc<LockSlot>,
        responder: Responder<Option<DetachedLock>, EngineError>,
    ) {
        let patience = slot.id().map_or(Duration::ZERO, |id| self.driver.patience_to_detach(id));
        self.pending.push(Pending::detach(slot, patience, responder));
    }

    /// The lock leaves, if there is anything left of it; otherwise it is released.
    fn detach(&mut self, slot: &LockSlot) -> Option<DetachedLock> {
        let id = slot.id()?;
        let is_valid = !self.driver.remaining(id).is_zero();
        let detached = if is_valid { self.driver.detach(id) } else { None };
        if detached.is_some() {
            // Nobody asks how it ended, and to those who watch it was not lost.
            let nodes = self.shared.runtime.config.node_count() as u32;
            self.over(id, ReleaseOutcome::Released(Confirmed { nodes: 0, of: nodes }));
        } else {
            self.release(slot, self.shared.runtime.config.clock().now());
        }
        detached
    }

    fn warm_up(&mut self, warm_up: WarmUp, responder: Responder<NodeReport, EngineError>) {
        self.driver.connect();
        self.pending.push(Pending::warm_up(warm_up, responder));
    }

    /// Answers what is known now, or need not be waited for any longer. Whether there was anything.
    fn answer_pending(&mut self) -> bool {
        let before = self.pending.len();
        for pending in std::mem::take(&mut self.pending) {
            if pending.is_open(&self.driver) {
                self.pending.push(pending);
                continue;
            }
            match pending.question {
                Question::Detach(slot, responder) => responder.send(Ok(self.detach(&slot))),
                Question::WarmUp(warming, responder) => {
                    self.pending.extend(warming.go_on(&mut self.driver, responder));
                }
            }
        }
        self.wake();
        self.pending.len() < before
    }

    /// The holder lets go, or whoever waits gives up. An ask that was never made has no name.
    fn release(&mut self, slot: &LockSlot, now: ClockReading) {
        let Some(id) = slot.id() else { return };
        let state = self.driver.state(id);
        self.driver.core_mut().release(id, now);
        if matches!(state, LockState::Lost(_) | LockState::Unknown) {
            self.over(id, ReleaseOutcome::Lost(loss(state)));
        }
    }

    /// Begins to end: cancels what is asked for and lets go of what is held, whose holders are told first.
    fn close(&mut self, until: Instant, now: ClockReading) {
        let first = self.until.is_none();
        self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
        if !first {
            return;
        }
        self.tell();
        let ids: Vec<LockId> = self.slots.keys().copied().collect();
        let (held, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(|&id| self.is_held(id));
        // Waiters first, so that no lock is handed on to one of them.
        for &id in others.iter().chain(&held) {
            let state = self.driver.state(id);
            match state {
                LockState::Held | LockState::Extending => self.take_back(id),
                LockState::Lost(_) | LockState::Unknown => {
                    self.over(id, ReleaseOutcome::Lost(loss(state)));
                }
                _ => {}
            }
            self.driver.core_mut().release(id, now);
        }
    }

    fn is_held(&self, id: LockId) -> bool {
        matches!(self.driver.state(id), LockState::Held | LockState::Extending)
    }

    fn take_back(&self, id: LockId) {
        if let Some(slot) = self.slots.get(&id)
            && !slot.is_released()
        {
            slot.lose(LossCause::ShutDown);
        }
    }

    /// Passes the core's outcomes on, and then wakes whoever waits for them: a thread that was woken by the
    /// first of them would take that and sleep again.
    fn tell(&mut self) {
        while let Some(event) = self.next_event() {
            self.is_stirred = true;
            match event {
                Event::Granted(id) => self.granted(id),
                Event::Refused(id, refusal) => self.refused(id, refusal),
                Event::Extended(id) => self.extended(id),
                Event::AutoExtended(id) | Event::Shortened(id) => self.lease_changed(id),
                Event::NotExtended(id, refusal) => self.not_extended(id, refusal),
                Event::Lost(id, cause) => self.lost(id, cause),
                Event::Released(id, confirmed) => self.released(id, confirmed),
                Event::Observed(id) => self.observed(id),
                Event::Viewed(id) => self.viewed(id),
                Event::Upgraded(id) | Event::Downgraded(id) | Event::DowngradeDelayed(id, _) => {
                    self.mode_changed(id);
                }
                Event::NotUpgraded(id, refusal) => self.not_upgraded(id, refusal),
                Event::Node(..) | Event::AutoExtendFailed(..) => {}
            }
        }
        self.wake();
    }

    /// One that is woken anyway need not be woken twice.
    fn will_wake(&mut self, waiter: Option<Waker>) {
        let Some(waiter) = waiter else { return };
        if self.waiters.last().is_some_and(|last| last.will_wake(&waiter)) {
            self.shared.runtime.discard(waiter);
        } else {
            self.waiters.push(waiter);
        }
    }

    fn wake(&mut self) {
        for waiter in self.waiters.drain(..) {
            self.shared.runtime.wake(Some(waiter));
        }
    }

    /// The log hears of it first. A panic there must not cost anybody the outcome, and neither must one
    /// who takes long there.
    fn next_event(&mut self) -> Option<Event> {
        let event = self.driver.next_event();
        if self.driver.has_log() {
            self.wake();
        }
        self.shared.runtime.run(|| self.driver.note(event));
        event
    }

    fn granted(&mut self, id: LockId) {
        let Some(slot) = self.slots.get(&id) else { return };
        // It is over already if its events come one behind the other.
        let lease = self.driver.lease(id).copied().unwrap_or_default();
        let token = self.driver.fencing_token(id);
        let permit = self.driver.slot(id);
        let waiter = slot.grant(lease, token, permit, self.driver.votes(id));
        self.will_wake(waiter);
    }

    fn refused(&mut self, id: LockId, refusal: Refusal) {
        let Some(slot) = self.slots.remove(&id) else { return };
        if slot.is_released() {
            return;
        }
        if refusal.reason == RefusalReason::Cancelled {
            self.report.cancelled += 1;
            let waiter = slot.refuse(EngineError::ShutDown.into());
            return self.will_wake(waiter);
        }
        let waiter = slot.refuse(AcquireError::Refused(self.driver.report(&refusal)));
        self.will_wake(waiter);
    }

    fn extended(&self, id: LockId) {
        self.lease_changed(id);
        if let Some(slot) = self.slots.get(&id) {
            slot.finish_extension();
        }
    }

    fn lease_changed(&self, id: LockId) {
        if let (Some(slot), Some(lease)) = (self.slots.get(&id), self.driver.lease(id)) {
            slot.set_lease(*lease);
        }
    }

    fn not_extended(&self, id: LockId, refusal: Refusal) {
        if let Some(slot) = self.slots.get(&id) {
            slot.fail_extension(ExtendError::Refused(self.driver.report(&refusal)));
        }
    }

    fn mode_changed(&self, id: LockId) {
        let (driver, slot) = (&self.driver, self.slots.get(&id));
        if let (Some(slot), Some(lease), Some(mode)) = (slot, driver.lease(id), driver.mode(id)) {
            slot.set_mode(mode, *lease, driver.fencing_token(id));
        }
    }

    fn not_upgraded(&self, id: LockId, refusal: Refusal) {
        if let Some(slot) = self.slots.get(&id) {
            slot.fail_mode_change(ExtendError::Refused(self.driver.report(&refusal)));
        }
    }

    fn lost(&mut self, id: LockId, cause: LossCause) {
        // Callbacks may take long.
        self.wake();
        if let Some(slot) = self.slots.get(&id) {
            slot.lose(cause);
        }
        // Released in the same moment: nobody will let go of it a second time.
        if self.driver.state(id) == LockState::Unknown {
            self.over(id, ReleaseOutcome::Lost(cause));
        }
    }

    fn released(&mut self, id: LockId, confirmed: Confirmed) {
        if self.until.is_some() {
            self.count(id, confirmed);
        }
        self.over(id, ReleaseOutcome::Released(confirmed));
    }

    fn count(&mut self, id: LockId, confirmed: Confirmed) {
        if confirmed.nodes as usize >= self.shared.runtime.config.quorum() {
            self.report.released += 1;
        } else if let Some(slot) = self.slots.get(&id) {
            let resources = slot.request.resources().map(<[u8]>::to_vec).collect();
            self.report.unreleased.push(Unreleased { resources, confirmed });
        }
    }

    fn over(&mut self, id: LockId, outcome: ReleaseOutcome) {
        if let Some(slot) = self.slots.remove(&id) {
            let waiter = slot.end(outcome);
            self.will_wake(waiter);
        }
    }

    /// Tells everybody who still waits, lets go of the connections, and reports.
    fn end(mut self) {
        self.wake();
        // What was pushed before is the last.
        let rest = self.shared.queue.end();
        for (id, slot) in std::mem::take(&mut self.slots) {
            self.leave_behind(id, &slot);
        }
        let unheard: Vec<Command> = self.commands.drain(..).chain(rest).collect();
        let slots = unheard.iter().filter_map(Command::slot);
        self.concerned.iter().chain(slots).for_each(|slot| slot.abandon());
        let unbegun = unheard.iter().filter_map(Command::observer);
        self.observers.values().chain(unbegun).for_each(|observer| observer.close());
        drop(unheard);
        self.views.clear();
        self.pending.clear();
        let Self { driver, shared, mut report, poll, .. } = self;
        report.owed = !report.failed && driver.has_pending_releases();
        // After a panic in it, it may panic once more.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(driver)));
        drop(poll);
        report.ended = true;
        report.panics = shared.runtime.panics();
        shared.end(report);
    }

    /// What had not ended in time.
    fn leave_behind(&mut self, id: LockId, slot: &LockSlot) {
        if self.report.failed || self.driver.state(id) != LockState::Releasing {
            return slot.abandon();
        }
        let votes = self.driver.votes(id);
        // At most MAX_NODES.
        let (nodes, of) = (votes.grants().len() as u32, votes.node_count() as u32);
        let (resources, confirmed) =
            (slot.request.resources().map(<[u8]>::to_vec).collect(), Confirmed { nodes, of });
        self.report.unreleased.push(Unreleased { resources, confirmed });
        let waiter = slot.end(ReleaseOutcome::Released(confirmed));
        self.shared.runtime.wake(waiter);
    }
}

/// Nobody else chooses the names of locks, so they need not be hashed with a secret.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, part: u32) {
        // Fibonacci hashing: what comes first ends up in the upper half, and is turned down by the next.
        self.0 = (self.0.rotate_left(32) ^ u64::from(part)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Some hundred µs of work, and as many bytes as a socket takes at once.
const COMMANDS_PER_TURN: usize = 512;

#[cfg(test)]
mod tests {
    use redbolt_node::Node;

    use super::super::queue::Queue;
    use super::super::reply::Reply;
    use super::super::runtime::Runtime;
    use super::super::{Engine, Handle};
    use super::*;
    use crate::api::config::Config;
    use crate::proto::{LockRequest, MAX_LOCKS, Wait, grows_in_proportion};

    /// An engine whose thread is worked by the test, and whose node cannot be reached.
    fn thread() -> Thread {
        thread_of(Config::builder().node("127.0.0.1:1").unwrap().build().unwrap())
    }

    fn thread_of(config: Config) -> Thread {
        let tokens = Driver::tokens_needed(&config);
        let poll = OwnPoll::new(tokens + 1, config.clock()).unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(tokens)).unwrap();
        let driver = Driver::in_registry(config.clone(), poll.registry(), 0..tokens).unwrap();
        let shared = Shared::new(Runtime::new(config, MAX_LOCKS), Queue::new(waker));
        Thread::new(poll, driver, Arc::new(shared))
    }

    /// It did not run between its turn and the end of its time. Meanwhile the release was confirmed.
    #[test]
    fn what_came_before_its_time_was_over_is_read_before_it_ends() {
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string()).unwrap();
        let mut thread = thread_of(builder.new_nodes().build().unwrap());
        let handle = Handle::new(Arc::clone(&thread.shared), None);
        let engine = Engine { handle: Arc::new(handle) };
        let asked = engine.acquire(LockRequest::new("job").ttl(Duration::from_secs(20)));
        while thread.shared.runtime.in_flight() > 0 {
            thread.process().unwrap();
        }
        let now = thread.shared.runtime.config.clock().now();
        thread.close(Instant::now(), now);
        thread.driver.settle();
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread.has_work() && thread.is_done());
        thread.work().unwrap();
        assert!(!thread.has_work());
        // Nobody works for it, so that it cannot be waited for.
        thread.shared.end(ShutdownReport::default());
        drop((asked, engine));
    }

    #[test]
    fn inspections_are_answered_in_proportion() {
        grows_in_proportion(512, |count| {
            let mut thread = thread();
            let asked: Vec<_> = (0..count).map(|_| Arc::new(Reply::default())).collect();
            for (at, reply) in asked.iter().enumerate() {
                let runtime = &thread.shared.runtime;
                let in_flight = Some(runtime.enter().unwrap());
                let responder = Responder::new(Arc::clone(reply), Arc::clone(runtime), in_flight);
                let name = format!("resource {at}").into_bytes().into_boxed_slice();
                thread.commands.push(Command::View(name, ViewRequest::Inspect(responder)));
            }
            move || {
                // All of them are under way before the first is answered.
                while !thread.commands.is_empty() {
                    thread.obey();
                }
                while thread.shared.runtime.in_flight() > 0 {
                    thread.hear().unwrap();
                    thread.driver.expire();
                    thread.driver.settle();
                    thread.tell();
                }
                for reply in asked {
                    assert!(reply.poll("a QueryFuture", Waker::noop()).is_ready());
                }
            }
        });
    }

    #[test]
    fn acquisitions_are_refused_and_cancelled_in_proportion() {
        grows_in_proportion(512, |count| {
            let mut thread = thread();
            let handle = Handle::new(Arc::clone(&thread.shared), None);
            let engine = Engine { handle: Arc::new(handle) };
            let names: Vec<_> = (0..count).map(|at| format!("resource {at}")).collect();
            let requests =
                names.iter().map(|name| LockRequest::new(name.as_bytes()).wait(Wait::Forever));
            let waiting: Vec<_> = requests.map(|request| engine.acquire(request)).collect();
            move || {
                for _ in 0..count / COMMANDS_PER_TURN + 1 {
                    thread.obey();
                    thread.tell();
                }
                drop(waiting);
                while !thread.slots.is_empty() {
                    thread.obey();
                    thread.tell();
                }
                // Nobody works for it, so that it cannot be waited for.
                thread.shared.end(ShutdownReport::default());
                drop(engine);
            }
        });
    }
}
