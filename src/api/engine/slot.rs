//! What one lock's future, guard and watchers share with the engine's thread.
//!
//! Whoever holds a lock in hand looks here, never at the thread: the lease is a copy, and the clock is
//! read at each look. The thread writes outcomes; the holder writes that it has let go. Wakers and
//! callbacks are called, and dropped, after the mutex is free, for they are not ours: what they own may
//! be the guard of this lock. None is left by the time that the slot dies, which may be on the thread.
//! Not here: deciding anything.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::EngineError;
use super::queue::Command;
use super::reply::Reply;
use super::shared::{Place, Shared};
use crate::api::client::AcquireError;
use crate::api::guard::{ExtendError, ReleaseOutcome};
use crate::api::report::RefusalReport;
use crate::proto::{
    FencingToken, Lease, LockId, LockMode, LockRequest, LossCause, Refusal, RefusalReason,
    RequestError, Votes, step,
};

pub(super) type Callback = Box<dyn FnOnce(LossCause) + Send>;
pub(super) type Extension = Reply<Result<(), ExtendError>>;

/// One lock from its ask to its end. Exactly one release is queued for each, or one request to detach it: by
/// the guard, or by the future if no guard came of it.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    pub(super) request: LockRequest<'static>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Its place among what is in flight, until the acquisition has an outcome.
    place: Option<Place>,
    /// Its name in the core, once it has been asked for.
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
    /// Those that granted it.
    votes: Option<Votes>,
    /// The holder wants no more of it.
    is_let_go: bool,
    lost: Option<LossCause>,
    outcome: Option<ReleaseOutcome>,
    /// The task that waits for the acquisition, or for the release.
    waiter: Option<Waker>,
    watchers: BTreeMap<Watcher, Waker>,
    /// Those that wait until nothing is under way.
    settling: BTreeMap<Watcher, Waker>,
    watchers_ever: u64,
    on_loss: Vec<Callback>,
    extension: Option<(Arc<Extension>, Duration)>,
    /// Who waits for which mode.
    mode_change: Option<(Arc<Extension>, LockMode)>,
}

/// One who watches for the loss of a lock, by a number of its own.
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
    UnderWay,
    Over(Result<(), Box<AcquireError>>),
    Done,
}

/// The holder's side.
impl Slot {
    pub(super) fn new(shared: Arc<Shared>, place: Place, request: LockRequest<'static>) -> Self {
        let (mode, ttl) = (request.mode(), request.wanted_ttl());
        let state = State { place: Some(place), mode, ttl, longest_ttl: ttl, ..State::default() };
        Self { shared, request, state: Mutex::new(state) }
    }

    pub(super) fn poll_acquired(&self, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let Some(mut state) = self.lock_if_ours() else {
            return Poll::Ready(Err(EngineError::Forked.into()));
        };
        match std::mem::take(&mut state.acquisition) {
            Acquisition::UnderWay => {
                let replaced = register(&mut state.waiter, waker);
                drop(state);
                drop(replaced);
                Poll::Pending
            }
            Acquisition::Over(outcome) => {
                state.acquisition = Acquisition::Done;
                Poll::Ready(outcome.map_err(|error| *error))
            }
            Acquisition::Done => unreachable!("a future lets go of its slot when it is ready"),
        }
    }

    /// Why a lock that was granted is none any longer where its future is polled.
    pub(super) fn granted_too_late(&self) -> AcquireError {
        if !self.shared.is_ours() {
            return EngineError::Forked.into();
        }
        let state = self.lock();
        match (state.lost, state.votes) {
            (Some(LossCause::ShutDown), _) | (_, None) => EngineError::ShutDown.into(),
            (_, Some(votes)) => {
                let refusal = Refusal::new(RefusalReason::Expired, votes);
                let config = &self.shared.config;
                let (addresses, core) = (config.addresses(), config.core());
                AcquireError::Refused(RefusalReport::without_details(addresses, &core, refusal))
            }
        }
    }

    /// The validity that is left to its holder, who has let go of it at its release. In a forked child there is
    /// none: it could not tell when the parent lets go.
    pub(super) fn remaining(&self) -> Duration {
        if !self.shared.is_ours() {
            return Duration::ZERO;
        }
        let lease = {
            let state = self.lock();
            if state.is_over() { Lease::default() } else { state.lease }
        };
        lease.remaining(self.shared.config.clock().now())
    }

    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        if !self.shared.is_ours() {
            return None;
        }
        let state = self.lock();
        state.token.filter(|_| !state.is_over())
    }

    /// The number of its permit, if it is one.
    pub(super) fn permit(&self) -> Option<u16> {
        if !self.shared.is_ours() {
            return None;
        }
        let state = self.lock();
        state.permit.filter(|_| !state.is_over())
    }

    /// The holder wants no more of it: it is released, or its acquisition cancelled. Never waits.
    pub(super) fn let_go(self: &Arc<Self>) {
        self.hand_back(Command::Release(Arc::clone(self)));
    }

    /// The holder has nothing to do with it any longer, and says by `command` what becomes of it.
    pub(super) fn hand_back(&self, command: Command) {
        if !self.shared.is_ours() {
            return;
        }
        let (callbacks, waiter) = {
            let mut state = self.lock();
            state.is_let_go = true;
            (std::mem::take(&mut state.on_loss), state.waiter.take())
        };
        if self.shared.queue.push(command).is_err() {
            let waiter = self.ended(ReleaseOutcome::Lost(LossCause::ShutDown));
            self.shared.wake(waiter);
        }
        // Behind the command, and one by one: what they own may panic, or be the last engine.
        self.shared.discard(waiter);
        for callback in callbacks {
            self.shared.discard(callback);
        }
    }

    pub(super) fn poll_outcome(&self, waker: &Waker) -> Poll<ReleaseOutcome> {
        let Some(mut state) = self.lock_if_ours() else {
            return Poll::Ready(ReleaseOutcome::Lost(LossCause::Forked));
        };
        match state.outcome {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                let replaced = register(&mut state.waiter, waker);
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    /// Asks for an extension; the reply is there at once if there can be none.
    pub(super) fn extend(self: &Arc<Self>, ttl: Duration) -> Arc<Extension> {
        self.try_extend(ttl).unwrap_or_else(|error| self.replied(error))
    }

    pub(super) fn try_extend(
        self: &Arc<Self>,
        ttl: Duration,
    ) -> Result<Arc<Extension>, ExtendError> {
        let extension = Arc::new(Extension::default());
        self.begin_extension(&extension, ttl)?;
        if self.shared.queue.push(Command::Extend(Arc::clone(self), ttl)).is_err() {
            self.not_extended(ExtendError::Lost(LossCause::ShutDown));
        }
        Ok(extension)
    }

    fn replied(&self, error: ExtendError) -> Arc<Extension> {
        let reply = Arc::new(Extension::default());
        reply.put(Err(error), &self.shared);
        reply
    }

    fn begin_extension(
        &self,
        extension: &Arc<Extension>,
        ttl: Duration,
    ) -> Result<(), ExtendError> {
        if !self.shared.is_ours() {
            return Err(ExtendError::Lost(LossCause::Forked));
        }
        let mut state = self.lock();
        match (state.lost, &state.extension) {
            (Some(cause), _) => Err(ExtendError::Lost(cause)),
            (None, _) if state.is_let_go => Err(ExtendError::Request(RequestError::NotHeld)),
            (None, Some(_)) => Err(ExtendError::Request(RequestError::ExtensionUnderWay)),
            (None, None) if state.mode_change.is_some() => {
                Err(ExtendError::Request(RequestError::ModeChangeUnderWay))
            }
            (None, None) => {
                state.extension = Some((Arc::clone(extension), ttl));
                Ok(())
            }
        }
    }

    /// By how much it is to be extended for this TTL, or for a longer one that it had before its mode changed.
    pub(super) fn missing_ttl(&self, wanted: Duration) -> Option<Duration> {
        let state = self.lock_if_ours()?;
        Some(wanted.max(state.longest_ttl)).filter(|&ttl| ttl > state.ttl)
    }

    pub(super) fn mode(&self) -> LockMode {
        // In a forked child the mutex may be locked by a thread that is not there.
        self.lock_if_ours().map_or_else(|| self.request.mode(), |state| state.mode)
    }

    /// Asks for another mode; the reply is there at once if there can be none. Whoever becomes a reader is one at once.
    pub(super) fn change_mode(self: &Arc<Self>, mode: LockMode) -> Arc<Extension> {
        self.try_change_mode(mode).unwrap_or_else(|error| self.replied(error))
    }

    pub(super) fn try_change_mode(
        self: &Arc<Self>,
        mode: LockMode,
    ) -> Result<Arc<Extension>, ExtendError> {
        let change = Arc::new(Extension::default());
        self.begin_mode_change(mode, &change)?;
        if self.shared.queue.push(Command::ChangeMode(Arc::clone(self), mode)).is_err() {
            self.mode_not_changed(ExtendError::Lost(LossCause::ShutDown));
        }
        Ok(change)
    }

    fn begin_mode_change(
        &self,
        mode: LockMode,
        change: &Arc<Extension>,
    ) -> Result<(), ExtendError> {
        if !self.shared.is_ours() {
            return Err(ExtendError::Lost(LossCause::Forked));
        }
        let keys = self.request.resources().count();
        let keeps_mode = self.request.keeps_mode();
        let mut state = self.lock();
        let refused = match (state.lost, mode, keeps_mode) {
            (Some(cause), ..) => return Err(ExtendError::Lost(cause)),
            _ if state.is_let_go => RequestError::NotHeld,
            (_, LockMode::Exclusive, _) if state.mode != LockMode::Shared => {
                RequestError::NotShared
            }
            (_, _, Some(error)) => error,
            (_, LockMode::Shared, _) if state.mode != LockMode::Exclusive => {
                RequestError::NotExclusive
            }
            (_, LockMode::Shared, _) if keys > 1 => RequestError::SharedKeys { keys },
            _ if state.mode_change.is_some() => RequestError::ModeChangeUnderWay,
            (_, LockMode::Exclusive, _) if state.extension.is_some() => {
                RequestError::ExtensionUnderWay
            }
            _ => {
                if mode == LockMode::Shared {
                    state.mode = mode;
                }
                state.mode_change = Some((Arc::clone(change), mode));
                return Ok(());
            }
        };
        Err(ExtendError::Request(refused))
    }

    /// Whether it was lost, once it has ended. A watcher is remembered under its number.
    pub(super) fn poll_lost(
        &self,
        number: &mut Option<Watcher>,
        waker: &Waker,
    ) -> Poll<Option<LossCause>> {
        if !self.shared.is_ours() {
            return Poll::Ready(Some(LossCause::Forked));
        }
        let mut state = self.lock();
        if state.lost.is_some() || state.outcome.is_some() {
            return Poll::Ready(state.lost);
        }
        let State { watchers, watchers_ever, .. } = &mut *state;
        let replaced = watch(watchers, watchers_ever, number, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Ready when neither an extension nor a change of mode is under way. It is remembered as a watcher is.
    pub(super) fn poll_settled(&self, number: &mut Option<Watcher>, waker: &Waker) -> Poll<()> {
        let Some(mut state) = self.lock_if_ours() else { return Poll::Ready(()) };
        if state.extension.is_none() && state.mode_change.is_none() {
            return Poll::Ready(());
        }
        let State { settling, watchers_ever, .. } = &mut *state;
        let replaced = watch(settling, watchers_ever, number, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    pub(super) fn unwatch(&self, number: Watcher) {
        if !self.shared.is_ours() {
            return;
        }
        let mut state = self.lock();
        let watcher = state.watchers.remove(&number).or_else(|| state.settling.remove(&number));
        drop(state);
        self.shared.discard(watcher);
    }

    /// Has `callback` called at a loss; at once if it is lost already.
    pub(super) fn on_loss(&self, callback: Callback) {
        if !self.shared.is_ours() {
            return;
        }
        let mut state = self.lock();
        match state.lost {
            None if state.is_let_go => {}
            None => state.on_loss.push(callback),
            Some(cause) => {
                drop(state);
                callback(cause);
            }
        }
    }
}

/// The thread's side. Whoever waits for the acquisition or the release is given back, to be woken once
/// all outcomes of a turn are there: a thread that is woken takes what has come, and sleeps again.
impl Slot {
    pub(super) fn id(&self) -> Option<LockId> {
        self.lock().id
    }

    pub(super) fn is_let_go(&self) -> bool {
        self.lock().is_let_go
    }

    pub(super) fn asked(&self, id: LockId) {
        self.lock().id = Some(id);
    }

    #[must_use]
    pub(super) fn granted(
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
        state.acquisition_over(Ok(()))
    }

    #[must_use]
    pub(super) fn refused(&self, error: AcquireError) -> Option<Waker> {
        self.lock().acquisition_over(Err(Box::new(error)))
    }

    /// The lock lasts longer, or less long.
    pub(super) fn lease_changed(&self, lease: Lease) {
        self.lock().lease = lease;
    }

    pub(super) fn extended(&self) {
        let mut state = self.lock();
        if let Some((_, ttl)) = state.extension {
            state.ttl = state.ttl.max(ttl);
            state.longest_ttl = state.longest_ttl.max(ttl);
        }
        self.extension_over(state, Ok(()));
    }

    pub(super) fn not_extended(&self, error: ExtendError) {
        self.extension_over(self.lock(), Err(error));
    }

    /// It is of this mode now, with another claim. Whoever waits for the other mode does so still: a downgrade that was delayed
    /// comes to pass later, while nobody waits for it.
    pub(super) fn mode_changed(&self, mode: LockMode, lease: Lease, token: Option<FencingToken>) {
        let mut state = self.lock();
        (state.mode, state.lease, state.token) = (mode, lease, token);
        if mode == LockMode::Exclusive {
            state.ttl = self.request.wanted_ttl();
        }
        let change = state.mode_change.take_if(|(_, awaited)| *awaited == mode);
        self.is_over(state, change.map(|(change, _)| change), Ok(()));
    }

    pub(super) fn mode_not_changed(&self, error: ExtendError) {
        let mut state = self.lock();
        let change = state.mode_change.take().map(|(change, _)| change);
        self.is_over(state, change, Err(error));
    }

    /// Nobody need wait for one: those of a keeper have no future.
    fn extension_over(&self, mut state: MutexGuard<'_, State>, outcome: Result<(), ExtendError>) {
        let extension = state.extension.take().map(|(extension, _)| extension);
        self.is_over(state, extension, outcome);
    }

    fn is_over(
        &self,
        mut state: MutexGuard<'_, State>,
        awaited: Option<Arc<Extension>>,
        outcome: Result<(), ExtendError>,
    ) {
        let settling = std::mem::take(&mut state.settling);
        drop(state);
        if let Some(awaited) = awaited {
            awaited.put(outcome, &self.shared);
        }
        for waiting in settling.into_values() {
            self.shared.wake(Some(waiting));
        }
    }

    /// It is over although its holder has not let go. From here on no look at it says that it is held.
    pub(super) fn lost(&self, cause: LossCause) {
        let mut state = self.lock();
        if state.lost.is_some() || state.outcome.is_some() {
            return;
        }
        state.lost = Some(cause);
        let callbacks = std::mem::take(&mut state.on_loss);
        let watchers = std::mem::take(&mut state.watchers);
        self.extension_over(state, Err(ExtendError::Lost(cause)));
        self.mode_not_changed(ExtendError::Lost(cause));
        for watcher in watchers.into_values() {
            self.shared.wake(Some(watcher));
        }
        for callback in callbacks {
            self.shared.run(|| callback(cause));
        }
    }

    /// Nothing more will happen to it. The first ending is the only one.
    #[must_use]
    pub(super) fn ended(&self, outcome: ReleaseOutcome) -> Option<Waker> {
        let mut state = self.lock();
        if state.outcome.is_some() {
            return None;
        }
        if let ReleaseOutcome::Lost(cause) = outcome {
            state.lost.get_or_insert(cause);
        }
        let outcome = state.lost.map_or(outcome, ReleaseOutcome::Lost);
        state.outcome = Some(outcome);
        state.place = None;
        let waiter = state.waiter.take();
        let watchers = std::mem::take(&mut state.watchers);
        self.extension_over(state, Err(ExtendError::Request(RequestError::NotHeld)));
        self.mode_not_changed(ExtendError::Request(RequestError::NotHeld));
        for watcher in watchers.into_values() {
            self.shared.wake(Some(watcher));
        }
        waiter
    }

    /// The thread is no more. Nothing happens to what has ended before.
    pub(super) fn abandoned(&self) {
        let mut state = self.lock();
        let waiter = if matches!(state.acquisition, Acquisition::UnderWay) {
            let waiter = state.acquisition_over(Err(Box::new(EngineError::ShutDown.into())));
            drop(state);
            waiter
        } else {
            drop(state);
            self.lost(LossCause::ShutDown);
            self.ended(ReleaseOutcome::Lost(LossCause::ShutDown))
        };
        self.shared.wake(waiter);
    }

    /// The cause of a loss that was told.
    pub(super) fn loss(&self) -> Option<LossCause> {
        self.lock().lost
    }

    #[cfg(test)]
    pub(super) fn copy(&self) -> (Lease, Votes) {
        let state = self.lock();
        (state.lease, state.votes.expect("it was granted"))
    }

    /// In a forked child the mutex may be locked by a thread that is not there.
    fn lock_if_ours(&self) -> Option<MutexGuard<'_, State>> {
        self.shared.is_ours().then(|| self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nobody holds it any longer.
    fn is_over(&self) -> bool {
        self.lost.is_some() || self.is_let_go
    }

    /// Gives back whoever waits for it.
    fn acquisition_over(&mut self, outcome: Result<(), Box<AcquireError>>) -> Option<Waker> {
        self.acquisition = Acquisition::Over(outcome);
        self.place = None;
        self.waiter.take()
    }
}

/// Remembers a watcher under its number. What it replaces is to be dropped once the mutex is free.
#[must_use]
fn watch(
    watchers: &mut BTreeMap<Watcher, Waker>,
    ever: &mut u64,
    number: &mut Option<Watcher>,
    waker: &Waker,
) -> Option<Waker> {
    if let Some(registered) = number.and_then(|number| watchers.get_mut(&number)) {
        let is_known = registered.will_wake(waker);
        return (!is_known).then(|| std::mem::replace(registered, waker.clone()));
    }
    *ever += 1;
    let of = Watcher(*ever);
    *number = Some(of);
    watchers.insert(of, waker.clone())
}

/// Remembers whom to wake, without a copy of what is known. What it replaces is to be dropped once the
/// mutex is free.
#[must_use]
pub(super) fn register(known: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
        return None;
    }
    known.replace(waker.clone())
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::Context;

    use super::*;
    use crate::api::config::Config;
    use crate::api::engine::queue::Queue;
    use crate::api::engine::{EngineLimits, LossFuture};

    /// A lock of an engine without a thread.
    fn slot() -> Arc<Slot> {
        let config = Config::builder().node("127.0.0.1:1").unwrap().build().unwrap();
        let poll = mio::Poll::new().unwrap();
        let queue = Queue::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let shared = Arc::new(Shared::new(config, EngineLimits::default(), queue));
        let place = shared.enter().unwrap();
        Arc::new(Slot::new(shared, place, LockRequest::new(b"job").into_owned()))
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
        slot.lost(LossCause::Gone);
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

    /// The thread can hear of a loss when the holder has let go and it has not heard of that.
    #[test]
    fn a_loss_behind_a_release_is_told_by_the_ending_alone() {
        let slot = slot();
        slot.on_loss(Box::new(|_| panic!("it was released")));
        slot.let_go();
        slot.lost(LossCause::Gone);
        assert!(slot.ended(ReleaseOutcome::Lost(LossCause::Gone)).is_none());
        assert_eq!(
            slot.poll_outcome(Waker::noop()),
            Poll::Ready(ReleaseOutcome::Lost(LossCause::Gone))
        );
        assert_eq!(slot.shared.panics(), 0);
        assert_eq!(slot.shared.queue.end().len(), 1, "one release");
    }
}
