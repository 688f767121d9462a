//! Who waits for outcomes of the core, and the delivery of each to its slot.
//!
//! Invariant: a lock, a view or an observer is known here from the message that begins it to its last outcome. Tasks are
//! woken after all outcomes of a turn are in their slots.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::task::Waker;

use super::observer_slot::ObserverSlot;
use super::queue::ViewRequest;
use super::runtime::Runtime;
use super::shutdown::{ShutdownReport, Unreleased};
use super::slot::LockSlot;
use crate::api::driver::Driver;
use crate::api::error::{AcquireError, EngineError};
use crate::api::guard::ExtendError;
use crate::proto::{
    Event, LockId, LockState, LossCause, ObserverId, Refusal, RefusalReason, Released, ViewId,
};

type ById<I, T> = HashMap<I, T, BuildHasherDefault<IdHasher>>;

pub(super) struct Outcomes {
    runtime: Arc<Runtime>,
    locks: ById<LockId, Arc<LockSlot>>,
    views: ById<ViewId, ViewRequest>,
    observers: ById<ObserverId, Arc<ObserverSlot>>,
    /// Tasks whose outcome is there, to be woken together.
    waiters: Vec<Waker>,
    /// The next outcome, if it was taken to know that there is one.
    early: Option<Event>,
    /// What ends from now on is counted in the report.
    is_closing: bool,
    report: ShutdownReport,
}

impl Outcomes {
    pub(super) fn new(runtime: Arc<Runtime>) -> Self {
        Self {
            runtime,
            locks: HashMap::default(),
            views: HashMap::default(),
            observers: HashMap::default(),
            waiters: Vec::new(),
            early: None,
            is_closing: false,
            report: ShutdownReport::default(),
        }
    }

    pub(super) fn has_locks(&self) -> bool {
        !self.locks.is_empty()
    }

    pub(super) fn lock_ids(&self) -> impl Iterator<Item = LockId> {
        self.locks.keys().copied()
    }

    pub(super) fn insert_lock(&mut self, id: LockId, slot: Arc<LockSlot>) {
        slot.set_id(id);
        self.locks.insert(id, slot);
    }

    pub(super) fn insert_view(&mut self, id: ViewId, request: ViewRequest) {
        self.views.insert(id, request);
    }

    pub(super) fn insert_observer(&mut self, id: ObserverId, slot: Arc<ObserverSlot>) {
        slot.set_id(id);
        self.observers.insert(id, slot);
    }

    pub(super) fn remove_observer(&mut self, id: ObserverId) {
        self.observers.remove(&id);
    }

    /// Delivers all outcomes that the core has, and then wakes the tasks that wait for them: a thread that was woken by
    /// the first would take it and sleep again. Returns whether there were any.
    pub(super) fn deliver(&mut self, driver: &mut Driver) -> bool {
        let mut any = false;
        while let Some(event) = self.next_event(driver) {
            any = true;
            match event {
                Event::Granted(id) => self.grant(id, driver),
                Event::Refused(id, refusal) => self.refuse(id, &refusal, driver),
                Event::Extended(id) => self.finish_extension(id, driver),
                Event::AutoExtended(id) | Event::Shortened(id) => self.set_lease(id, driver),
                Event::NotExtended(id, it) => self.fail(id, it, driver, LockSlot::fail_extension),
                Event::Lost(id, cause) => self.lose(id, cause, driver),
                Event::Released(id, confirmed) => self.finish_release(id, confirmed),
                Event::Observed(id) => self.record_observation(id, driver),
                Event::Viewed(id) => self.answer_view(id, driver),
                Event::Upgraded(id) | Event::Downgraded(id) | Event::DowngradeDelayed(id, _) => {
                    self.set_mode(id, driver);
                }
                Event::NotUpgraded(id, it) => self.fail(id, it, driver, LockSlot::fail_mode_change),
                Event::Node(..) | Event::AutoExtendFailed(..) => {}
            }
        }
        self.wake();
        any
    }

    /// Whether there is something to deliver.
    pub(super) fn has_any(&mut self, driver: &mut Driver) -> bool {
        self.early = self.early.take().or_else(|| driver.next_event());
        self.early.is_some() || !self.waiters.is_empty()
    }

    /// The next outcome, which the log gets first. A panic of the log must not cost a caller the outcome, and a log
    /// that takes long must not delay those that are in their slots.
    fn next_event(&mut self, driver: &mut Driver) -> Option<Event> {
        let event = self.early.take().or_else(|| driver.next_event());
        if driver.has_log() {
            self.wake();
        }
        self.runtime.run(|| driver.note(event.as_ref()));
        event
    }

    /// Has a task woken with the others. One that is woken anyway need not be woken twice.
    pub(super) fn wake_later(&mut self, waiter: Option<Waker>) {
        let Some(waiter) = waiter else { return };
        if self.waiters.last().is_some_and(|last| last.will_wake(&waiter)) {
            self.runtime.discard(waiter);
        } else {
            self.waiters.push(waiter);
        }
    }

    pub(super) fn wake(&mut self) {
        self.runtime.wake(self.waiters.drain(..));
    }

    pub(super) fn grant(&mut self, id: LockId, driver: &Driver) {
        let Some(slot) = self.locks.get(&id) else { return };
        // The lock may have ended already, by an event behind this one: then it has no lease.
        let lease = driver.sockets.core().lease(id).copied().unwrap_or_default();
        let (token, permit) = (driver.fencing_token(id), driver.slot(id));
        let waiter = slot.grant(lease, token, permit, driver.votes(id));
        self.wake_later(waiter);
    }

    fn refuse(&mut self, id: LockId, refusal: &Refusal, driver: &Driver) {
        let Some(slot) = self.locks.remove(&id) else { return };
        if slot.is_released() {
            return;
        }
        // Its caller has not cancelled it, so the end of the engine has.
        let error = if refusal.reason == RefusalReason::Cancelled {
            self.report.cancelled += 1;
            EngineError::ShutDown.into()
        } else {
            AcquireError::Refused(driver.report(refusal).of_lock(slot.request.resources()))
        };
        let waiter = slot.refuse(error);
        self.wake_later(waiter);
    }

    fn finish_extension(&self, id: LockId, driver: &Driver) {
        self.set_lease(id, driver);
        if let Some(slot) = self.locks.get(&id) {
            slot.finish_extension();
        }
    }

    fn set_lease(&self, id: LockId, driver: &Driver) {
        if let (Some(slot), Some(lease)) = (self.locks.get(&id), driver.sockets.core().lease(id)) {
            slot.set_lease(*lease);
        }
    }

    fn fail(&self, id: LockId, it: Refusal, driver: &Driver, fail: fn(&LockSlot, ExtendError)) {
        if let Some(slot) = self.locks.get(&id) {
            let report = driver.report(&it).of_lock(slot.request.resources());
            fail(slot, ExtendError::Refused(report));
        }
    }

    fn set_mode(&self, id: LockId, driver: &Driver) {
        let slot = self.locks.get(&id);
        if let (Some(slot), Some(lease), Some(mode)) =
            (slot, driver.sockets.core().lease(id), driver.mode(id))
        {
            slot.set_mode(mode, *lease, driver.fencing_token(id));
        }
    }

    fn lose(&mut self, id: LockId, cause: LossCause, driver: &Driver) {
        // Before the callbacks, which may take long.
        self.wake();
        if let Some(slot) = self.locks.get(&id) {
            slot.lose(cause);
        }
        // It was released in the same moment: no second release will end it.
        if driver.state(id) == LockState::Unknown {
            self.end(id, Err(cause));
        }
    }

    /// Takes a lock from its holder, because the engine ends.
    pub(super) fn revoke(&self, id: LockId) {
        if let Some(slot) = self.locks.get(&id)
            && !slot.is_released()
        {
            slot.lose(LossCause::ShutDown);
        }
    }

    fn finish_release(&mut self, id: LockId, confirmed: Released) {
        if self.is_closing {
            self.count(id, confirmed);
        }
        self.end(id, Ok(confirmed));
    }

    fn count(&mut self, id: LockId, confirmed: Released) {
        if confirmed.nodes as usize >= self.runtime.config.quorum() {
            self.report.released += 1;
        } else if let Some(slot) = self.locks.get(&id) {
            self.report.unreleased.push(unreleased(slot, confirmed));
        }
    }

    pub(super) fn end(&mut self, id: LockId, outcome: Result<Released, LossCause>) {
        if let Some(slot) = self.locks.remove(&id) {
            let waiter = slot.end(outcome);
            self.wake_later(waiter);
        }
    }

    fn record_observation(&mut self, id: ObserverId, driver: &Driver) {
        let Some(slot) = self.observers.get(&id) else { return };
        if let Some(observation) = driver.observation(id) {
            let waiter = slot.record(observation);
            self.wake_later(waiter);
        }
    }

    fn answer_view(&mut self, id: ViewId, driver: &mut Driver) {
        match self.views.remove(&id) {
            Some(ViewRequest::ForceUnlock { responder, .. }) => {
                if let Some(report) = driver.take_force_unlock(id) {
                    responder.send(Ok(report));
                }
            }
            Some(ViewRequest::Inspect(responder)) => {
                if let Some(inspection) = driver.take_inspection(id) {
                    responder.send(Ok(inspection));
                }
            }
            None => {}
        }
    }

    /// Counts what ends from now on.
    pub(super) fn begin_closing(&mut self) {
        self.is_closing = true;
    }

    /// Ends everything that has no outcome yet. The driver does not work any more if the thread `has_failed`.
    pub(super) fn close(mut self, driver: &Driver, has_failed: bool) -> ShutdownReport {
        for (id, slot) in std::mem::take(&mut self.locks) {
            if has_failed || driver.state(id) != LockState::Releasing {
                slot.abandon();
                continue;
            }
            let votes = driver.votes(id);
            // At most MAX_NODES.
            let (nodes, of) = (votes.grants().len() as u32, votes.node_count() as u32);
            let confirmed = Released { nodes, of };
            self.report.unreleased.push(unreleased(&slot, confirmed));
            self.runtime.wake(slot.end(Ok(confirmed)));
        }
        self.observers.values().for_each(|slot| slot.close());
        self.report.failed = has_failed;
        self.report
    }
}

fn unreleased(slot: &LockSlot, confirmed: Released) -> Unreleased {
    Unreleased { resources: slot.request.resources().map(<[u8]>::to_vec).collect(), confirmed }
}

/// Ids are chosen by the core, so they need not be hashed with a secret.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, part: u32) {
        // Fibonacci hashing: the first part ends up in the upper half, and is rotated down by the next.
        self.0 = (self.0.rotate_left(32) ^ u64::from(part)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
