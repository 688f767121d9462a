//! The state of one lock, shared by its holder, the engine's thread, and the tasks that wait.
//!
//! The holder reads it and never asks the thread: the lease is a copy, and the clock is read on each call. Invariant: wakers
//! and callbacks are called, and dropped, after the mutex is free. They are not ours: they may own the guard of this
//! lock, whose drop takes the mutex.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::reply::{Reply, register};
use super::runtime::{InFlight, Runtime};
use crate::api::error::{AcquireError, EngineError};
use crate::api::guard::ExtendError;
use crate::api::lock_lost::{LockLost, LockName};
use crate::api::report::RefusalReport;
use crate::net::lock;
use crate::proto::{
    FencingToken, Lease, LockId, LockMode, LockRequest, LossCause, Refusal, RefusalReason,
    Released, RequestError, Votes, step,
};

pub(super) type Callback = Box<dyn FnOnce(LossCause) + Send>;
pub(super) type ExtendReply = Reply<Result<(), ExtendError>>;

/// One lock from its request to its end. Exactly one release, or one request to detach it, is queued for each: by the
/// guard, or by the future if no guard came of it.
pub(super) struct LockSlot {
    pub(super) runtime: Arc<Runtime>,
    pub(super) request: LockRequest<'static>,
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    /// Until the acquisition has an outcome.
    in_flight: Option<InFlight>,
    /// Its id in the core, once the thread has asked for it.
    id: Option<LockId>,
    acquisition: Acquisition,
    lease: Lease,
    mode: LockMode,
    /// The longest TTL that it was asked for or extended by: in this mode, and ever.
    ttl: Duration,
    longest_ttl: Duration,
    token: Option<FencingToken>,
    /// The number of a semaphore's permit.
    permit: Option<u16>,
    /// Of the attempt that was granted.
    votes: Option<Votes>,
    /// By its holder, or its acquisition was cancelled.
    is_released: bool,
    lost: Option<LossCause>,
    outcome: Option<Result<Released, LossCause>>,
    /// The task that waits for the acquisition, or for the release.
    waiter: Option<Waker>,
    watchers: BTreeMap<Watcher, Waker>,
    /// Tasks that wait until no extension and no change of mode is pending.
    settling: BTreeMap<Watcher, Waker>,
    watchers_ever: u64,
    on_loss: Vec<Callback>,
    extension: Option<(Arc<ExtendReply>, Duration)>,
    mode_change: Option<(Arc<ExtendReply>, LockMode)>,
}

/// The number of a task that watches a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Watcher(u64);

impl Ord for Watcher {
    fn cmp(&self, other: &Self) -> Ordering {
        step();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Watcher {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
enum Acquisition {
    #[default]
    Pending,
    Decided(Result<(), Box<AcquireError>>),
    Taken,
}

/// The holder's side.
impl LockSlot {
    pub(super) fn new(
        runtime: Arc<Runtime>,
        in_flight: InFlight,
        request: LockRequest<'static>,
    ) -> Self {
        let (mode, ttl) = (request.mode(), request.wanted_ttl());
        let in_flight = Some(in_flight);
        let state = SlotState { in_flight, mode, ttl, longest_ttl: ttl, ..SlotState::default() };
        Self { runtime, request, state: Mutex::new(state) }
    }

    pub(super) fn poll_acquired(&self, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let Some(mut state) = self.lock_if_ours() else {
            return Poll::Ready(Err(EngineError::Forked.into()));
        };
        match std::mem::take(&mut state.acquisition) {
            Acquisition::Pending => wait(state, waker),
            Acquisition::Decided(outcome) => {
                state.acquisition = Acquisition::Taken;
                Poll::Ready(outcome.map_err(|error| *error))
            }
            Acquisition::Taken => unreachable!("a future drops its slot when it is ready"),
        }
    }

    /// Why a lock that was granted has ended before its future was polled.
    pub(super) fn why_ended(&self) -> AcquireError {
        if !self.runtime.is_ours() {
            return EngineError::Forked.into();
        }
        let state = self.lock();
        match (state.lost, state.votes) {
            (Some(LossCause::ShutDown), _) | (_, None) => EngineError::ShutDown.into(),
            (_, Some(votes)) => {
                let refusal = Refusal::new(RefusalReason::Expired, votes);
                let config = &self.runtime.config;
                let (addresses, core) = (config.addresses(), config.core());
                let report = RefusalReport::described(addresses, &core, refusal, |_, _| None);
                AcquireError::Refused(report.of_lock(self.request.resources()))
            }
        }
    }

    /// The validity that is left; zero once it was released. In a forked child it is zero: the child could not
    /// notice when the parent releases the lock.
    pub(super) fn remaining(&self) -> Duration {
        let Some(lease) = self.held().map(|state| state.lease) else { return Duration::ZERO };
        lease.remaining(self.runtime.config.clock().now())
    }

    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        self.held()?.token
    }

    /// The number of its permit, if it is one.
    pub(super) fn permit(&self) -> Option<u16> {
        self.held()?.permit
    }

    /// Marks it as released: its holder makes no more use of it. Returns the callbacks and the waiter that will not be called
    /// any more, to be discarded after the release was queued.
    #[must_use]
    pub(super) fn mark_released(&self) -> (Vec<Callback>, Option<Waker>) {
        let mut state = self.lock();
        state.is_released = true;
        (std::mem::take(&mut state.on_loss), state.waiter.take())
    }

    pub(super) fn poll_outcome(&self, waker: &Waker) -> Poll<Result<Released, LockLost>> {
        let Some(state) = self.lock_if_ours() else {
            return Poll::Ready(Err(self.lost_by(LossCause::Forked)));
        };
        match state.outcome {
            Some(outcome) => Poll::Ready(outcome.map_err(|cause| self.lost_by(cause))),
            None => wait(state, waker),
        }
    }

    /// Begins an extension, unless there can be none now. The message is to be queued by the caller.
    pub(super) fn begin_extension(&self, ttl: Duration) -> Result<Arc<ExtendReply>, ExtendError> {
        let mut state = self.held_for_change()?;
        let refused = match (&state.extension, &state.mode_change) {
            (Some(_), _) => RequestError::ExtensionUnderWay,
            (None, Some(_)) => RequestError::ModeChangeUnderWay,
            (None, None) => {
                let (reply, _) = state.extension.insert((Arc::default(), ttl));
                return Ok(Arc::clone(reply));
            }
        };
        Err(ExtendError::Request(refused))
    }

    /// The TTL to extend it by, if it has a shorter one than wanted, or than it had before its mode changed.
    pub(super) fn missing_ttl(&self, wanted: Duration) -> Option<Duration> {
        let state = self.lock_if_ours()?;
        Some(wanted.max(state.longest_ttl)).filter(|&ttl| ttl > state.ttl)
    }

    pub(super) fn mode(&self) -> LockMode {
        // In a forked child the mutex may be locked by a thread that is not there.
        self.lock_if_ours().map_or_else(|| self.request.mode(), |state| state.mode)
    }

    /// Begins a change of its mode, unless there can be none now. A downgrade takes effect at once: the holder is a reader from
    /// here on, whatever the nodes answer.
    pub(super) fn begin_mode_change(
        &self,
        mode: LockMode,
    ) -> Result<Arc<ExtendReply>, ExtendError> {
        let mut state = self.held_for_change()?;
        let keys = self.request.resources().count();
        let refused = match (mode, self.request.keeps_mode()) {
            (LockMode::Exclusive, _) if state.mode != LockMode::Shared => RequestError::NotShared,
            (_, Some(error)) => error,
            (LockMode::Shared, _) if state.mode != LockMode::Exclusive => {
                RequestError::NotExclusive
            }
            (LockMode::Shared, _) if keys > 1 => RequestError::SharedKeys { keys },
            _ if state.mode_change.is_some() => RequestError::ModeChangeUnderWay,
            (LockMode::Exclusive, _) if state.extension.is_some() => {
                RequestError::ExtensionUnderWay
            }
            _ => {
                if mode == LockMode::Shared {
                    state.mode = mode;
                }
                let (reply, _) = state.mode_change.insert((Arc::default(), mode));
                return Ok(Arc::clone(reply));
            }
        };
        Err(ExtendError::Request(refused))
    }

    /// Whether it was lost, once it has ended. A watcher is registered under its number.
    pub(super) fn poll_lost(
        &self,
        number: &mut Option<Watcher>,
        waker: &Waker,
    ) -> Poll<Option<LossCause>> {
        let Some(state) = self.lock_if_ours() else {
            return Poll::Ready(Some(LossCause::Forked));
        };
        if state.lost.is_some() || state.outcome.is_some() {
            return Poll::Ready(state.lost);
        }
        watch(state, |state| &mut state.watchers, number, waker)
    }

    /// Ready when neither an extension nor a change of mode is pending. It is registered as a watcher is.
    pub(super) fn poll_settled(&self, number: &mut Option<Watcher>, waker: &Waker) -> Poll<()> {
        let Some(state) = self.lock_if_ours() else { return Poll::Ready(()) };
        if state.extension.is_none() && state.mode_change.is_none() {
            return Poll::Ready(());
        }
        watch(state, |state| &mut state.settling, number, waker)
    }

    pub(super) fn unwatch(&self, number: Watcher) {
        // In a forked child the mutex may be locked by a thread that is not there.
        let Some(mut state) = self.lock_if_ours() else { return };
        let watcher = state.watchers.remove(&number).or_else(|| state.settling.remove(&number));
        drop(state);
        self.runtime.discard(watcher);
    }

    /// Has `callback` called if the lock is lost; at once if it is lost already.
    pub(super) fn on_loss(&self, callback: Callback) {
        let Some(mut state) = self.lock_if_ours() else { return };
        match state.lost {
            None if state.is_released => {}
            None => state.on_loss.push(callback),
            Some(cause) => {
                // The callback may release this lock, which takes the mutex.
                drop(state);
                callback(cause);
            }
        }
    }
}

/// The thread's side. The waker of the task that waits for the acquisition or the release is returned, to be woken after
/// all outcomes of a turn are there: a thread that is woken by the first would take it and sleep again.
impl LockSlot {
    pub(super) fn id(&self) -> Option<LockId> {
        self.lock().id
    }

    pub(super) fn is_released(&self) -> bool {
        self.lock().is_released
    }

    pub(super) fn set_id(&self, id: LockId) {
        self.lock().id = Some(id);
    }

    #[must_use]
    pub(super) fn grant(
        &self,
        lease: Lease,
        token: Option<FencingToken>,
        permit: Option<u16>,
        votes: Votes,
    ) -> Option<Waker> {
        let mut state = self.lock();
        state.lease = lease;
        state.token = token;
        state.permit = permit;
        state.votes = Some(votes);
        state.decide(Ok(()))
    }

    #[must_use]
    pub(super) fn refuse(&self, error: AcquireError) -> Option<Waker> {
        self.lock().decide(Err(Box::new(error)))
    }

    pub(super) fn set_lease(&self, lease: Lease) {
        self.lock().lease = lease;
    }

    pub(super) fn finish_extension(&self) {
        let mut state = self.lock();
        if let Some((_, ttl)) = state.extension {
            state.ttl = state.ttl.max(ttl);
            state.longest_ttl = state.longest_ttl.max(ttl);
        }
        self.end_extension(state, Ok(()));
    }

    pub(super) fn fail_extension(&self, error: ExtendError) {
        self.end_extension(self.lock(), Err(error));
    }

    /// Changes its mode, with which it has another claim. A reply that waits for the other mode stays: a downgrade that was
    /// delayed takes effect later, and has no reply any more.
    pub(super) fn set_mode(&self, mode: LockMode, lease: Lease, token: Option<FencingToken>) {
        let mut state = self.lock();
        (state.mode, state.lease, state.token) = (mode, lease, token);
        if mode == LockMode::Exclusive {
            state.ttl = self.request.wanted_ttl();
        }
        let change = state.mode_change.take_if(|(_, awaited)| *awaited == mode);
        self.settle(state, change.map(|(change, _)| change), Ok(()));
    }

    pub(super) fn fail_mode_change(&self, error: ExtendError) {
        let mut state = self.lock();
        let change = state.mode_change.take().map(|(change, _)| change);
        self.settle(state, change, Err(error));
    }

    /// An auto-extension has no reply.
    fn end_extension(
        &self,
        mut state: MutexGuard<'_, SlotState>,
        outcome: Result<(), ExtendError>,
    ) {
        let extension = state.extension.take().map(|(extension, _)| extension);
        self.settle(state, extension, outcome);
    }

    /// Answers what was pending, and wakes tasks that wait until nothing is.
    fn settle(
        &self,
        mut state: MutexGuard<'_, SlotState>,
        awaited: Option<Arc<ExtendReply>>,
        outcome: Result<(), ExtendError>,
    ) {
        let settling = std::mem::take(&mut state.settling);
        drop(state);
        if let Some(awaited) = awaited {
            awaited.send(outcome, &self.runtime);
        }
        self.runtime.wake(settling.into_values());
    }

    /// Ends it before its holder has released it. From here on it is not held for any reader of this slot; the first cause
    /// stays.
    pub(super) fn lose(&self, cause: LossCause) {
        let mut state = self.lock();
        if state.lost.is_some() || state.outcome.is_some() {
            return;
        }
        state.lost = Some(cause);
        let callbacks = std::mem::take(&mut state.on_loss);
        let watchers = std::mem::take(&mut state.watchers);
        self.end_extension(state, Err(self.not_extended_by(cause)));
        self.fail_mode_change(self.not_extended_by(cause));
        self.runtime.wake(watchers.into_values());
        // Last, because each may take long, and one that panics must not keep the others from being called.
        for callback in callbacks {
            self.runtime.run(|| callback(cause));
        }
    }

    /// Ends it. The first outcome stays.
    #[must_use]
    pub(super) fn end(&self, outcome: Result<Released, LossCause>) -> Option<Waker> {
        let mut state = self.lock();
        if state.outcome.is_some() {
            return None;
        }
        // A loss that was reported before the release stays the outcome: what the lock protected was in danger.
        if let Err(cause) = outcome {
            state.lost.get_or_insert(cause);
        }
        let outcome = state.lost.map_or(outcome, Err);
        state.outcome = Some(outcome);
        state.in_flight = None;
        let waiter = state.waiter.take();
        let watchers = std::mem::take(&mut state.watchers);
        self.end_extension(state, Err(ExtendError::Request(RequestError::NotHeld)));
        self.fail_mode_change(ExtendError::Request(RequestError::NotHeld));
        self.runtime.wake(watchers.into_values());
        waiter
    }

    /// Ends it because the thread ends; what has ended before stays as it is.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        let waiter = if matches!(state.acquisition, Acquisition::Pending) {
            let waiter = state.decide(Err(Box::new(EngineError::ShutDown.into())));
            drop(state);
            waiter
        } else {
            drop(state);
            self.lose(LossCause::ShutDown);
            self.end(Err(LossCause::ShutDown))
        };
        self.runtime.wake(waiter);
    }

    /// Its loss in words.
    pub(super) fn lost_by(&self, cause: LossCause) -> LockLost {
        LockLost::new(LockName::new(self.request.resources()), cause)
    }

    pub(super) fn not_extended_by(&self, cause: LossCause) -> ExtendError {
        ExtendError::Lost(self.lost_by(cause))
    }

    /// The cause of its loss, if that was reported.
    pub(super) fn loss(&self) -> Option<LossCause> {
        self.lock().lost
    }

    #[cfg(test)]
    pub(super) fn copy(&self) -> (Lease, Votes) {
        let state = self.lock();
        (state.lease, state.votes.expect("it was granted"))
    }

    /// In a forked child the mutex may be locked by a thread that is not there.
    fn lock_if_ours(&self) -> Option<MutexGuard<'_, SlotState>> {
        self.runtime.is_ours().then(|| self.lock())
    }

    /// The state of a lock that is neither lost nor released.
    fn held(&self) -> Option<MutexGuard<'_, SlotState>> {
        self.lock_if_ours().filter(|state| state.lost.is_none() && !state.is_released)
    }

    /// The same for a change of the lock, or why there can be none.
    fn held_for_change(&self) -> Result<MutexGuard<'_, SlotState>, ExtendError> {
        let lost = |cause| Err(self.not_extended_by(cause));
        let Some(state) = self.lock_if_ours() else { return lost(LossCause::Forked) };
        match state.lost {
            Some(cause) => lost(cause),
            None if state.is_released => Err(ExtendError::Request(RequestError::NotHeld)),
            None => Ok(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        lock(&self.state)
    }
}

impl SlotState {
    /// Decides the acquisition. Returns the task that waits for it.
    fn decide(&mut self, outcome: Result<(), Box<AcquireError>>) -> Option<Waker> {
        self.acquisition = Acquisition::Decided(outcome);
        self.in_flight = None;
        self.waiter.take()
    }
}

/// Registers the task that waits for the acquisition or the release.
fn wait<T>(mut state: MutexGuard<'_, SlotState>, waker: &Waker) -> Poll<T> {
    let replaced = register(&mut state.waiter, waker);
    drop(state);
    drop(replaced);
    Poll::Pending
}

/// Registers a watcher under its number. What it replaces is to be dropped after the mutex is free.
fn watch<T>(
    mut state: MutexGuard<'_, SlotState>,
    watchers: fn(&mut SlotState) -> &mut BTreeMap<Watcher, Waker>,
    number: &mut Option<Watcher>,
    waker: &Waker,
) -> Poll<T> {
    let replaced = match number.and_then(|number| watchers(&mut state).get_mut(&number)) {
        Some(known) if known.will_wake(waker) => None,
        Some(known) => Some(std::mem::replace(known, waker.clone())),
        None => {
            state.watchers_ever += 1;
            let new = *number.insert(Watcher(state.watchers_ever));
            watchers(&mut state).insert(new, waker.clone())
        }
    };
    drop(state);
    drop(replaced);
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::Context;

    use super::*;
    use crate::api::config::Config;
    use crate::api::engine::LossFuture;

    /// A lock of an engine without a thread.
    fn slot() -> Arc<LockSlot> {
        let config = Config::builder().node("127.0.0.1:1").build().unwrap();
        let runtime = Arc::new(Runtime::new(config, true));
        let in_flight = runtime.enter().unwrap();
        Arc::new(LockSlot::new(runtime, in_flight, LockRequest::new(b"job").into_owned()))
    }

    /// Such as one in a loop that watches beside something else.
    #[test]
    fn a_watcher_that_is_dropped_is_forgotten() {
        let slot = slot();
        let mut context = Context::from_waker(Waker::noop());
        let mut lasting = LossFuture::new(Arc::clone(&slot));
        assert!(Pin::new(&mut lasting).poll(&mut context).is_pending());
        for _ in 0..10 {
            let mut watcher = LossFuture::new(Arc::clone(&slot));
            assert!(Pin::new(&mut watcher).poll(&mut context).is_pending());
            assert!(Pin::new(&mut watcher).poll(&mut context).is_pending());
        }
        assert_eq!(slot.lock().watchers.len(), 1);
        slot.lose(LossCause::Gone);
        assert_eq!(Pin::new(&mut lasting).poll(&mut context), Poll::Ready(Some(LossCause::Gone)));
    }

    #[test]
    fn watchers_come_and_go_in_proportion() {
        crate::proto::grows_in_proportion(512, |count| {
            let slot = slot();
            let mut context = Context::from_waker(Waker::noop());
            let mut watchers: Vec<_> =
                (0..count).map(|_| LossFuture::new(Arc::clone(&slot))).collect();
            move || {
                for watcher in &mut watchers {
                    assert!(Pin::new(watcher).poll(&mut context).is_pending());
                }
                for watcher in &mut watchers {
                    assert!(Pin::new(watcher).poll(&mut context).is_pending());
                }
                while let Some(watcher) = watchers.pop() {
                    drop(watcher);
                }
                assert!(slot.lock().watchers.is_empty());
            }
        });
    }
}
