//! The carrying out of messages on the driver.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::observer_slot::ObserverSlot;
use super::outcomes::Outcomes;
use super::pending::{PendingQuery, Query};
use super::queue::{Attached, Message, ViewRequest, WarmUp};
use super::reply::Responder;
use super::runtime::Runtime;
use super::shutdown::ShutdownReport;
use super::slot::LockSlot;
use crate::api::driver::Driver;
use crate::api::error::{AcquireError, EngineError};
use crate::api::guard::{ExtendError, loss};
use crate::api::report::NodeReport;
use crate::proto::{
    ClockReading, DetachedLock, LockId, LockMode, LockState, Released, RequestError,
};

pub(super) struct Executor {
    pub(super) driver: Driver,
    runtime: Arc<Runtime>,
    pub(super) outcomes: Outcomes,
    /// Queries that are answered later.
    pending: Vec<PendingQuery>,
    /// The engine is to end by then.
    until: Option<Instant>,
}

impl Executor {
    pub(super) fn new(driver: Driver, runtime: Arc<Runtime>) -> Self {
        let outcomes = Outcomes::new(Arc::clone(&runtime));
        Self { driver, runtime, outcomes, pending: Vec::new(), until: None }
    }

    /// Whether the engine is to end, and has nothing left to do or no time.
    pub(super) fn is_done(&self) -> bool {
        self.until.is_some_and(|until| !self.has_work() || until <= Instant::now())
    }

    pub(super) fn has_work(&self) -> bool {
        self.outcomes.has_locks() || self.driver.has_pending_releases()
    }

    /// How long the thread may sleep; `None`: until something is ready.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let until = self.pending.iter().map(|pending| pending.until).chain(self.until).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.driver.timeout().into_iter().chain(left).min()
    }

    /// Writes what the messages have to say, and delivers what has come. Returns whether there were outcomes.
    pub(super) fn settle(&mut self) -> bool {
        self.driver.settle();
        let mut any = self.deliver();
        if self.answer_pending() {
            self.driver.settle();
            any |= self.deliver();
        }
        any
    }

    pub(super) fn deliver(&mut self) -> bool {
        self.outcomes.deliver(&mut self.driver)
    }

    pub(super) fn execute(&mut self, message: Message, now: ClockReading) {
        match message {
            Message::Acquire(slot) => self.acquire(slot, now),
            Message::Attach(slot, detached, attached) => {
                self.attach(slot, &detached, attached, now);
            }
            Message::ChangeMode(slot, mode) => self.change_mode(&slot, mode, now),
            Message::Close(until) => self.close(until, now),
            Message::Detach(slot, responder) => {
                let patience =
                    slot.id().map_or(Duration::ZERO, |id| self.driver.detach_timeout(id));
                self.pending.push(PendingQuery::detach(slot, patience, responder));
            }
            Message::Extend(slot, ttl) => self.extend(&slot, ttl, now),
            Message::ReadDriver(question) => question(&self.driver),
            Message::Observe(election, slot) => self.observe(&election, slot, now),
            Message::Release(slot) => self.release(&slot, now),
            Message::Unobserve(slot) => self.unobserve(&slot),
            Message::View(resource, request) => self.view(&resource, request, now),
            Message::WarmUp(warm_up, responder) => self.warm_up(warm_up, responder),
        }
    }

    fn acquire(&mut self, slot: Arc<LockSlot>, now: ClockReading) {
        // Its future was dropped before its turn. Nothing was sent, so its release has nothing to do.
        if slot.is_released() {
            return;
        }
        match self.driver.core_mut().acquire(&slot.request, now) {
            Ok(id) => {
                self.driver.name_lock(id, slot.request.resources());
                self.outcomes.insert_lock(id, slot);
            }
            Err(error) => {
                self.outcomes.wake_later(slot.refuse(AcquireError::Request(error)));
            }
        }
    }

    fn extend(&mut self, slot: &LockSlot, ttl: Duration, now: ClockReading) {
        let Some(id) = slot.id() else { return };
        if let Err(error) = self.driver.core_mut().extend(id, ttl, now) {
            slot.fail_extension(self.rejection(slot, id, error));
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
            slot.fail_mode_change(self.rejection(slot, id, error));
        }
    }

    /// Why the core rejects a message. A holder that has not released the lock learns how it was lost.
    fn rejection(&self, slot: &LockSlot, id: LockId, error: RequestError) -> ExtendError {
        match error {
            RequestError::NotHeld if !slot.is_released() => {
                let cause = slot.loss().unwrap_or_else(|| loss(self.driver.state(id)));
                slot.not_extended_by(cause)
            }
            error => ExtendError::Request(error),
        }
    }

    fn view(&mut self, resource: &[u8], request: ViewRequest, now: ClockReading) {
        let core = self.driver.core_mut();
        let begun = match request {
            ViewRequest::ForceUnlock { scope, .. } => core.force_unlock(resource, scope, now),
            ViewRequest::Inspect(_) => core.inspect(resource, now),
        };
        match begun {
            Ok(id) => self.outcomes.insert_view(id, request),
            Err(error) => request.refuse(error),
        }
    }

    fn observe(&mut self, election: &[u8], slot: Arc<ObserverSlot>, now: ClockReading) {
        if slot.is_dropped() {
            return;
        }
        // Its name was checked by the caller.
        if let Ok(id) = self.driver.core_mut().observe(election, now) {
            self.outcomes.insert_observer(id, slot);
        }
    }

    fn unobserve(&mut self, slot: &ObserverSlot) {
        if let Some(id) = slot.id() {
            self.driver.core_mut().unobserve(id);
            self.outcomes.remove_observer(id);
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
                self.outcomes.insert_lock(id, slot);
                // Before the guard is made, which reads the lease.
                self.outcomes.grant(id, &self.driver);
                attached(Ok(()));
            }
            Err(error) => attached(Err(error.into())),
        }
    }

    /// Detaches the lock if it has validity left; otherwise it is released.
    fn detach(&mut self, slot: &LockSlot) -> Option<DetachedLock> {
        let id = slot.id()?;
        let is_valid = !self.driver.remaining(id).is_zero();
        let detached = if is_valid { self.driver.detach(id) } else { None };
        if detached.is_some() {
            // No task waits for this outcome, and watchers are not to learn of a loss.
            let nodes = self.runtime.config.node_count() as u32;
            let confirmed = Released { nodes: 0, of: nodes };
            self.outcomes.end(id, Ok(confirmed));
        } else {
            self.release(slot, self.runtime.config.clock().now());
        }
        detached
    }

    fn warm_up(&mut self, warm_up: WarmUp, responder: Responder<NodeReport, EngineError>) {
        self.driver.connect();
        self.pending.push(PendingQuery::warm_up(warm_up, responder));
    }

    /// Answers the queries that have nothing left to wait for. Returns whether there were any.
    fn answer_pending(&mut self) -> bool {
        let before = self.pending.len();
        for pending in std::mem::take(&mut self.pending) {
            if pending.is_open(&self.driver) {
                self.pending.push(pending);
                continue;
            }
            match pending.query {
                Query::Detach(slot, responder) => responder.send(Ok(self.detach(&slot))),
                Query::WarmUp(warming, responder) => {
                    self.pending.extend(warming.go_on(&mut self.driver, responder));
                }
            }
        }
        self.outcomes.wake();
        self.pending.len() < before
    }

    /// Releases a lock, or cancels its acquisition.
    fn release(&mut self, slot: &LockSlot, now: ClockReading) {
        // A lock without an id was never asked for.
        let Some(id) = slot.id() else { return };
        let state = self.driver.state(id);
        self.driver.core_mut().release(id, now);
        if matches!(state, LockState::Lost(_) | LockState::Unknown) {
            self.outcomes.end(id, Err(loss(state)));
        }
    }

    /// Begins to end: cancels acquisitions and releases held locks, whose holders are notified first.
    fn close(&mut self, until: Instant, now: ClockReading) {
        let first = self.until.is_none();
        self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
        if !first {
            return;
        }
        self.outcomes.begin_closing();
        self.deliver();
        let (held, others): (Vec<_>, Vec<_>) =
            self.outcomes.lock_ids().partition(|&id| self.is_held(id));
        // Waiters first, so that no lock is handed on to one of them.
        for &id in others.iter().chain(&held) {
            let state = self.driver.state(id);
            match state {
                LockState::Held | LockState::Extending => self.outcomes.revoke(id),
                LockState::Lost(_) | LockState::Unknown => {
                    self.outcomes.end(id, Err(loss(state)));
                }
                _ => {}
            }
            self.driver.core_mut().release(id, now);
        }
    }

    fn is_held(&self, id: LockId) -> bool {
        matches!(self.driver.state(id), LockState::Held | LockState::Extending)
    }

    /// Ends everything that was begun and all messages that were not, closes the connections, and reports.
    pub(super) fn end(
        mut self,
        (messages, current): (Vec<Message>, Option<Arc<LockSlot>>),
        has_failed: bool,
    ) -> ShutdownReport {
        self.outcomes.wake();
        let Self { driver, runtime, outcomes, pending, .. } = self;
        let mut report = outcomes.close(&driver, has_failed);
        current.iter().chain(messages.iter().filter_map(Message::slot)).for_each(|it| it.abandon());
        messages.iter().filter_map(Message::observer).for_each(|observer| observer.close());
        // Dropping a responder answers its caller.
        drop((messages, pending));
        report.owed = !has_failed && driver.has_pending_releases();
        // It writes its last releases, and after a panic in it, it may panic once more.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(driver)));
        report.ended = true;
        report.panics = runtime.panics();
        report
    }
}
