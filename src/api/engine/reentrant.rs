//! Locks that their owner may enter again: one lock on the nodes, and counted guards of it in this process.
//!
//! The caller names the owner: a task, a request, never a thread. A table has the lock that an owner holds on a
//! resource, and the number of its guards. Invariant: counts change under the table's mutex. The call that takes a count from
//! one to zero takes the lock out of the table, so that a re-entry either comes before and keeps it, or comes after and asks
//! for a lock of its own. The lock is released, and wakers are called, after the mutex is free.
//!
//! Of several pending acquisitions of one owner, each asks for itself, and waits for as long as its request says. The first
//! to be granted goes into the table, and the others join it. If a re-entry wants more of the lock than it has (alone, or
//! for longer), it asks for that while its guard counts already, one step after the other: several of one owner take
//! turns. Nothing of this is on the nodes, where a count would be raised twice by a request that is sent again.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::acquisition::AcquireFuture;
use super::future::{ExtendFuture, ReleaseFuture, block_on};
use super::guard::OwnedGuard;
use super::held_lock::HeldLock;
use super::runtime::Runtime;
use super::slot::{LockSlot, Watcher};
use crate::api::error::AcquireError;
use crate::api::guard::ExtendError;
use crate::net::lock;
use crate::proto::{LockMode, LockRequest, LossCause, Profile, RequestError, debug_by_name};

/// The locks of all owners.
pub(super) struct Holds {
    runtime: Arc<Runtime>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    holds: HashMap<Arc<Owned>, CountedLock>,
    /// Pending acquisitions of an owner, to be woken when one of them is granted.
    entering: HashMap<Arc<Owned>, BTreeMap<u64, Waker>>,
    entering_ever: u64,
}

/// A resource, and who owns a lock on it.
#[derive(PartialEq, Eq, Hash)]
struct Owned {
    resource: Box<[u8]>,
    owner: Box<[u8]>,
}

/// A lock, and how many guards of it there are: at least one.
struct CountedLock {
    guard: OwnedGuard,
    count: usize,
}

/// The lock that an acquisition asks for, compared with one that its owner holds already.
#[derive(Clone, Copy)]
struct Wanted {
    mode: LockMode,
    fenced: bool,
    profile: Profile,
    auto_extended: bool,
    ttl: Duration,
}

impl Holds {
    pub(super) fn new(runtime: Arc<Runtime>) -> Self {
        Self { runtime, table: Mutex::default() }
    }

    /// Enters the lock that this owner holds; `None` if it holds none.
    fn enter(
        self: &Arc<Self>,
        owned: &Arc<Owned>,
        wanted: Wanted,
    ) -> Option<Result<Raising, AcquireError>> {
        let mut table = lock(&self.table);
        Some(table.holds.get_mut(owned)?.enter(self, owned, wanted))
    }

    /// Inserts a lock that was granted. If the owner holds another one by now, that is entered, and this one released.
    fn insert(
        self: &Arc<Self>,
        owned: &Arc<Owned>,
        guard: OwnedGuard,
        wanted: Wanted,
    ) -> Result<Raising, AcquireError> {
        let mut table = lock(&self.table);
        if let Some(other) = table.holds.get_mut(owned) {
            let entered = other.enter(self, owned, wanted);
            // The mutex is free before the release: what that drops is not ours.
            drop(table);
            drop(guard);
            return entered;
        }
        let hold = CountedLock { guard, count: 1 };
        let first = hold.another(self, owned);
        table.holds.insert(Arc::clone(owned), hold);
        let others = table.entering.remove(owned);
        drop(table);
        self.runtime.wake(others.into_iter().flat_map(BTreeMap::into_values));
        Ok(Raising::new(first, wanted))
    }

    /// Drops one guard; the last one returns the lock.
    fn leave(&self, owned: &Arc<Owned>) -> Option<OwnedGuard> {
        let mut table = lock(&self.table);
        let hold = table.holds.get_mut(owned)?;
        hold.count -= 1;
        if hold.count > 0 {
            return None;
        }
        table.holds.remove(owned).map(|hold| hold.guard)
    }

    fn count(&self, owned: &Arc<Owned>) -> usize {
        lock(&self.table).holds.get(owned).map_or(0, |hold| hold.count)
    }

    /// Registers the waker of an acquisition, for the case that another one of the owner is granted. What it replaces is to
    /// be dropped after the mutex is free.
    #[must_use]
    fn watch(&self, owned: &Arc<Owned>, number: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let mut table = lock(&self.table);
        let number = *number.get_or_insert_with(|| {
            table.entering_ever += 1;
            table.entering_ever
        });
        let entering = table.entering.entry(Arc::clone(owned)).or_default();
        entering.insert(number, waker.clone())
    }

    #[must_use]
    fn unwatch(&self, owned: &Arc<Owned>, number: u64) -> Option<Waker> {
        let mut table = lock(&self.table);
        let entering = table.entering.get_mut(owned)?;
        let waker = entering.remove(&number);
        if entering.is_empty() {
            table.entering.remove(owned);
        }
        waker
    }
}

impl CountedLock {
    fn another(&self, holds: &Arc<Holds>, owned: &Arc<Owned>) -> ReentrantGuard {
        let (lock, holds) = (self.guard.lock().clone(), Arc::clone(holds));
        ReentrantGuard { lock, holds, owned: Arc::clone(owned), is_out: false }
    }

    fn enter(
        &mut self,
        holds: &Arc<Holds>,
        owned: &Arc<Owned>,
        wanted: Wanted,
    ) -> Result<Raising, AcquireError> {
        self.check(wanted)?;
        self.count += 1;
        Ok(Raising::new(self.another(holds, owned), wanted))
    }

    /// Whether the owner may enter it again.
    fn check(&self, wanted: Wanted) -> Result<(), AcquireError> {
        let slot = self.guard.slot();
        if slot.remaining().is_zero() {
            return Err(AcquireError::Lost(
                slot.lost_by(slot.loss().unwrap_or(LossCause::Expired)),
            ));
        }
        let missing = match wanted {
            _ if !can_become(self.guard.mode(), wanted.mode) => match wanted.mode {
                LockMode::Exclusive => "having it alone",
                LockMode::Permit { .. } => "such a permit",
                LockMode::Shared => "sharing it",
            },
            _ if wanted.fenced && slot.fencing_token().is_none() => "a fencing token",
            _ if wanted.profile != slot.request.wanted_profile() => "this profile",
            _ if wanted.auto_extended && !slot.request.is_auto_extended() => "auto-extension",
            _ => return Ok(()),
        };
        Err(RequestError::HeldWithout { missing }.into())
    }
}

/// Whether the holder in one mode holds the resource in the other as well, or can try to.
fn can_become(held: LockMode, wanted: LockMode) -> bool {
    let is_permit = |mode| matches!(mode, LockMode::Permit { .. });
    held == wanted || !is_permit(held) && !is_permit(wanted)
}

/// One of the guards by which an owner holds a lock: see
/// [`Engine::acquire_reentrant`](super::Engine::acquire_reentrant). `Send` and `Sync`, and bound to no lifetime.
///
/// All guards of an owner stand for one lock, with one lease, one permit and one fencing token: what one of them extends is
/// extended for all. The owner may have the lock alone although this guard was asked for to share it, and a reader that
/// has become a writer has a new fencing token. The lock is released with the last of the guards, in whatever order they
/// end. Dropping one never blocks.
#[must_use = "dropping the last guard releases the lock"]
pub struct ReentrantGuard {
    lock: HeldLock,
    holds: Arc<Holds>,
    owned: Arc<Owned>,
    /// It has left the count.
    is_out: bool,
}

impl ReentrantGuard {
    /// How many guards of this lock its owner has now, with this one.
    #[must_use]
    pub fn hold_count(&self) -> usize {
        if self.holds.runtime.is_ours() { self.holds.count(&self.owned) } else { 0 }
    }

    /// The owner, as it was given.
    #[must_use]
    pub fn owner(&self) -> &[u8] {
        &self.owned.owner
    }

    /// Ends this guard. The last one releases the lock, and gives its outcome; `None` if the owner has others.
    pub fn release(mut self) -> Option<ReleaseFuture> {
        self.leave().map(OwnedGuard::release)
    }

    fn leave(&mut self) -> Option<OwnedGuard> {
        // In a forked child the mutex may be locked by a thread that is not there.
        if std::mem::replace(&mut self.is_out, true) || !self.holds.runtime.is_ours() {
            return None;
        }
        self.holds.leave(&self.owned)
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl Deref for ReentrantGuard {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.lock
    }
}

debug_by_name!(ReentrantGuard { remaining, hold_count });

/// A lock that an owner asks for, or enters again: a future, or [`wait`](Self::wait) for it.
///
/// As an [`AcquireFuture`] it asks from the moment of the call, and dropping it cancels.
#[must_use = "dropping it cancels the acquisition"]
pub struct ReentrantFuture {
    holds: Arc<Holds>,
    state: Entering,
}

enum Entering {
    Refused(Box<AcquireError>),
    Entered(ReentrantGuard),
    Raising(Raising),
    Acquiring(Acquiring),
    Done,
}

/// A re-entry for which the lock of the owner becomes exclusive, or is extended, first.
struct Raising {
    guard: ReentrantGuard,
    mode: LockMode,
    ttl: Duration,
    pending: Option<ExtendFuture>,
    settling: Settling,
}

/// Waits until nothing of a lock is pending that another re-entry has begun.
struct Settling {
    slot: Arc<LockSlot>,
    number: Option<Watcher>,
}

impl Drop for Settling {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.slot.unwatch(number);
        }
    }
}

/// A pending acquisition.
struct Acquiring {
    acquire: AcquireFuture,
    wanted: Wanted,
    registration: Registration,
}

/// The waker of an acquisition among those of its owner, until this is dropped.
struct Registration {
    holds: Arc<Holds>,
    owned: Arc<Owned>,
    number: Option<u64>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && self.holds.runtime.is_ours()
        {
            let waker = self.holds.unwatch(&self.owned, number);
            self.holds.runtime.discard(waker);
        }
    }
}

impl ReentrantFuture {
    pub(super) fn new(
        holds: &Arc<Holds>,
        request: LockRequest<'_>,
        owner: &[u8],
        acquire: impl FnOnce(LockRequest<'_>) -> AcquireFuture,
    ) -> Self {
        let state = Entering::begin(holds, request, owner, acquire);
        Self { holds: Arc::clone(holds), state }
    }

    /// Blocks until the owner holds the lock, or is refused.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Lost`]: the owner holds the lock already, and it is over.
    /// [`RequestError::HeldWithout`]: the owner holds it, but not as this request wants it.
    /// [`AcquireError::Refused`], whatever the request says about waiting: the owner shares it, this request wants it alone,
    /// and others share it too. Where a longer TTL was asked for, the errors of an extension. The others are those of [`AcquireFuture::wait`].
    ///
    /// # Panics
    ///
    /// On the engine's own thread, as [`AcquireFuture::wait`].
    pub fn wait(self) -> Result<ReentrantGuard, AcquireError> {
        if matches!(self.state, Entering::Acquiring(_) | Entering::Raising(_)) {
            self.holds.runtime.refuse_own_thread();
        }
        block_on(self)
    }
}

impl Entering {
    fn begin(
        holds: &Arc<Holds>,
        request: LockRequest<'_>,
        owner: &[u8],
        acquire: impl FnOnce(LockRequest<'_>) -> AcquireFuture,
    ) -> Self {
        let resource = match request.resources().collect::<Vec<_>>()[..] {
            [one] => one.into(),
            ref more => {
                let error = RequestError::ReentrantKeys { keys: more.len() };
                return Self::Refused(Box::new(error.into()));
            }
        };
        let wanted = Wanted {
            mode: request.mode(),
            fenced: request.is_fenced(),
            profile: request.wanted_profile(),
            auto_extended: request.is_auto_extended(),
            ttl: request.wanted_ttl(),
        };
        let owned = Arc::new(Owned { resource, owner: owner.into() });
        // In a forked child the mutex may be locked by a thread that is not there.
        let held = if holds.runtime.is_ours() { holds.enter(&owned, wanted) } else { None };
        if let Some(held) = held {
            return Self::entered(held);
        }
        let registration = Registration { holds: Arc::clone(holds), owned, number: None };
        Self::Acquiring(Acquiring { acquire: acquire(request), wanted, registration })
    }

    fn entered(held: Result<Raising, AcquireError>) -> Self {
        match held {
            Err(error) => Self::Refused(Box::new(error)),
            Ok(entered) => entered.begun(),
        }
    }
}

impl Raising {
    fn new(guard: ReentrantGuard, Wanted { mode, ttl, .. }: Wanted) -> Self {
        let settling = Settling { slot: Arc::clone(&guard.lock.slot), number: None };
        Self { guard, mode, ttl, pending: None, settling }
    }

    /// Asks for what is missing, from the call on.
    fn begun(mut self) -> Entering {
        match self.begin() {
            Ok(true) => Entering::Raising(self),
            Ok(false) => Entering::Entered(self.guard),
            Err(error) => Entering::Refused(Box::new(refused(error))),
        }
    }

    /// Begins the step that is missing next, unless another re-entry has begun or just done it. Returns whether any is
    /// missing.
    fn begin(&mut self) -> Result<bool, ExtendError> {
        let HeldLock { slot, .. } = &self.guard.lock;
        let begun = if (slot.mode(), self.mode) == (LockMode::Shared, LockMode::Exclusive) {
            self.guard.lock.try_change_mode(LockMode::Exclusive)
        } else if let Some(ttl) = slot.missing_ttl(self.ttl) {
            self.guard.lock.try_extend(ttl)
        } else {
            return Ok(false);
        };
        match begun {
            Ok(pending) => self.pending = Some(pending),
            Err(ExtendError::Request(
                RequestError::ExtensionUnderWay
                | RequestError::ModeChangeUnderWay
                | RequestError::NotShared,
            )) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// A step that another re-entry has asked for may be the one that this one needs; one that was refused to another is
    /// tried again.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ExtendError>> {
        loop {
            if let Some(pending) = &mut self.pending {
                let outcome = ready!(Pin::new(pending).poll(context));
                self.pending = None;
                if outcome.is_err() {
                    return Poll::Ready(outcome);
                }
            }
            match self.begin() {
                Ok(true) if self.pending.is_none() => {
                    let Settling { slot, number } = &mut self.settling;
                    ready!(slot.poll_settled(number, context.waker()));
                }
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Why a lock does not become what a re-entry wants it to be.
fn refused(error: ExtendError) -> AcquireError {
    match error {
        ExtendError::Lost(lost) => AcquireError::Lost(lost),
        ExtendError::Request(error) => error.into(),
        ExtendError::Refused(report) => AcquireError::Refused(report),
    }
}

impl Acquiring {
    /// What has become of it, unless it goes on.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Entering> {
        let Registration { holds, owned, number } = &mut self.registration;
        if holds.runtime.is_ours() {
            // Before the look-up: a grant behind it finds the waker.
            let replaced = holds.watch(owned, number, context.waker());
            holds.runtime.discard(replaced);
            if let Some(held) = holds.enter(owned, self.wanted) {
                return Poll::Ready(Entering::entered(held));
            }
        }
        match Pin::new(&mut self.acquire).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Entering::Refused(Box::new(error))),
            Poll::Ready(Ok(guard)) => {
                let held = holds.insert(owned, guard, self.wanted);
                Poll::Ready(Entering::entered(held))
            }
        }
    }
}

impl Future for ReentrantFuture {
    type Output = Result<ReentrantGuard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut self.state, Entering::Done) {
                Entering::Refused(error) => return Poll::Ready(Err(*error)),
                Entering::Entered(guard) => return Poll::Ready(Ok(guard)),
                Entering::Done => panic!("a ReentrantFuture was polled after it was ready"),
                Entering::Acquiring(mut acquiring) => match acquiring.poll(context) {
                    Poll::Ready(next) => self.state = next,
                    Poll::Pending => {
                        self.state = Entering::Acquiring(acquiring);
                        return Poll::Pending;
                    }
                },
                Entering::Raising(mut raising) => match raising.poll(context) {
                    Poll::Pending => {
                        self.state = Entering::Raising(raising);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(())) => return Poll::Ready(Ok(raising.guard)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(refused(error))),
                },
            }
        }
    }
}

debug_by_name!(ReentrantFuture);

#[cfg(test)]
mod tests {
    use redbolt_node::Node;

    use super::*;
    use crate::api::config::{Config, ConfigBuilder};
    use crate::api::engine::Engine;

    /// A machine that is stalled must not look like a node that hangs.
    fn patient(builder: ConfigBuilder) -> Config {
        let patience = Duration::from_secs(60);
        let builder = builder.response_timeout(patience).dead_peer_timeout(2 * patience);
        builder.new_nodes().build().unwrap()
    }

    /// What a thread does next. Each step is done under the table's mutex, so that all orders of steps are all that can
    /// happen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum OwnerStep {
        /// Looks whether the owner has a lock, and enters it.
        Look,
        /// Has been granted one, unless it has entered another.
        Granted,
        Leave,
    }

    /// All orders in which these threads can do their steps.
    fn orders<T>(threads: &[&[T]]) -> Vec<Vec<usize>> {
        if threads.iter().all(|steps| steps.is_empty()) {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for thread in (0..threads.len()).filter(|&thread| !threads[thread].is_empty()) {
            let mut rest = threads.to_vec();
            rest[thread] = &rest[thread][1..];
            let tails = orders(&rest);
            all.extend(tails.into_iter().map(|tail| [&[thread][..], &tail].concat()));
        }
        all
    }

    struct Play {
        engine: Engine,
        owned: Arc<Owned>,
        guards: Vec<Option<ReentrantGuard>>,
        /// All locks that were ever granted.
        slots: Vec<Arc<LockSlot>>,
    }

    const WANTED: Wanted = Wanted {
        profile: Profile::PLAIN,
        mode: LockMode::Exclusive,
        fenced: false,
        auto_extended: false,
        ttl: Duration::from_secs(10),
    };

    impl Play {
        fn holds(&self) -> &Arc<Holds> {
            &self.engine.handle.holds
        }

        fn act(&mut self, thread: usize, step: OwnerStep) {
            match step {
                OwnerStep::Look => {
                    let entered = self.holds().enter(&self.owned, WANTED);
                    self.guards[thread] = entered.map(|entered| entered.unwrap().guard);
                }
                OwnerStep::Granted if self.guards[thread].is_none() => {
                    // On a resource of its own, as if the nodes had granted the same one twice: to share it.
                    let name = format!("job {}", self.slots.len());
                    let guard = self.engine.acquire(LockRequest::new(&name)).wait().unwrap();
                    self.slots.push(Arc::clone(guard.slot()));
                    let entered = self.holds().insert(&self.owned, guard, WANTED).unwrap();
                    self.guards[thread] = Some(entered.guard);
                }
                OwnerStep::Granted => {}
                OwnerStep::Leave => drop(self.guards[thread].take()),
            }
        }

        /// All guards are of one lock, which is held for as long as there is one of them. No other lock is.
        fn check(&self) {
            let guards: Vec<_> = self.guards.iter().flatten().collect();
            assert_eq!(self.holds().count(&self.owned), guards.len());
            for slot in &self.slots {
                let is_its = guards.iter().any(|guard| Arc::ptr_eq(&guard.lock.slot, slot));
                assert_eq!(is_its, !slot.is_released());
            }
            assert!(
                guards.windows(2).all(|pair| Arc::ptr_eq(&pair[0].lock.slot, &pair[1].lock.slot))
            );
            assert_eq!(lock(&self.holds().table).holds.len(), usize::from(!guards.is_empty()));
        }
    }

    #[test]
    fn in_every_order_of_steps_all_guards_are_of_one_lock_that_ends_with_the_last() {
        use OwnerStep::{Granted, Leave, Look};
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string());
        let engine = Engine::new(patient(builder)).unwrap();
        let threads: [&[OwnerStep]; 3] =
            [&[Granted, Leave], &[Look, Granted, Leave], &[Look, Granted, Leave]];
        let orders = orders(&threads);
        assert_eq!(orders.len(), 560);
        for order in orders {
            let owned = Arc::new(Owned { resource: (*b"job").into(), owner: (*b"me").into() });
            let guards = vec![None, None, None];
            let mut play = Play { engine: engine.clone(), owned, guards, slots: Vec::new() };
            let mut at = [0; 3];
            for &thread in &order {
                play.act(thread, threads[thread][at[thread]]);
                at[thread] += 1;
                play.check();
            }
        }
    }

    /// What a thread does next beside others that may write.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Move {
        Ask(LockMode),
        /// Waits for what it has asked for.
        Finish,
        /// Drops what it has: a guard, or what it has asked for.
        Leave,
    }

    enum Has {
        Nothing,
        Asked(ReentrantFuture, LockMode),
        Entered(ReentrantGuard, LockMode),
    }

    /// An owner that reads, whose threads ask to read and to write, and perhaps a stranger who reads as well.
    struct Readers {
        engine: Engine,
        /// Of each order its own, on which nothing of another is left.
        resource: String,
        stranger: Option<OwnedGuard>,
        threads: Vec<Has>,
        upgraded: usize,
        refused: usize,
    }

    impl Readers {
        fn ask(&self, mode: LockMode) -> ReentrantFuture {
            let request = LockRequest::new(&self.resource);
            let request = if mode == LockMode::Shared { request.shared() } else { request };
            self.engine.acquire_reentrant(request.wait(crate::proto::Wait::No), "me")
        }

        fn act(&mut self, thread: usize, step: Move) {
            let before = std::mem::replace(&mut self.threads[thread], Has::Nothing);
            self.threads[thread] = match (step, before) {
                (Move::Ask(mode), _) => {
                    let mut asked = self.ask(mode);
                    // Of an owner without a lock each asks the nodes for itself.
                    if matches!(asked.state, Entering::Acquiring(_)) {
                        let outcome = block_on(&mut asked);
                        outcome.map_or(Has::Nothing, |guard| Has::Entered(guard, mode))
                    } else {
                        Has::Asked(asked, mode)
                    }
                }
                (Move::Finish, Has::Asked(asked, mode)) => match asked.wait() {
                    Ok(guard) => {
                        self.upgraded += usize::from(mode == LockMode::Exclusive);
                        Has::Entered(guard, mode)
                    }
                    Err(AcquireError::Refused(report)) if report.is_contended() => {
                        assert!(self.stranger.is_some() && mode == LockMode::Exclusive);
                        self.refused += 1;
                        Has::Nothing
                    }
                    Err(other) => panic!("{other}"),
                },
                (Move::Finish, before) => before,
                (Move::Leave, _) => Has::Nothing,
            };
        }

        /// All that have entered hold one lock, as they want it, and beside nobody else.
        fn check(&self) {
            let count = self.threads.iter().filter(|has| !matches!(has, Has::Nothing)).count();
            let holds = &self.engine.handle.holds;
            assert_eq!(
                lock(&holds.table).holds.values().map(|hold| hold.count).sum::<usize>(),
                count
            );
            for has in &self.threads {
                let Has::Entered(guard, mode) = has else { continue };
                assert!(guard.is_valid() && guard.hold_count() == count);
                let alone = guard.mode() == LockMode::Exclusive;
                assert!(alone || *mode == LockMode::Shared, "a writer that is none");
                assert!(!alone || self.stranger.is_none(), "a writer beside a reader");
            }
        }
    }

    #[test]
    fn in_every_order_of_steps_readers_become_writers_and_count() {
        const READ: LockMode = LockMode::Shared;
        const WRITE: LockMode = LockMode::Exclusive;
        use Move::{Ask, Finish, Leave};
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string());
        let engine = Engine::new(patient(builder)).unwrap();
        let other = Engine::new(engine.config().clone()).unwrap();
        let threads: [&[Move]; 3] = [
            &[Ask(READ), Finish, Leave],
            &[Ask(WRITE), Finish, Leave],
            &[Ask(WRITE), Finish, Leave],
        ];
        let (mut upgraded, mut refused) = (0, 0);
        let orders = orders(&threads);
        assert_eq!(orders.len(), 1680);
        let plays = orders.iter().flat_map(|order| [(order, false), (order, true)]);
        for (number, (order, has_stranger)) in plays.enumerate() {
            let resource = format!("job {number}");
            let beside = || other.acquire(LockRequest::new(&resource).shared()).wait().unwrap();
            let stranger = has_stranger.then(beside);
            let mut threads_have = Vec::new();
            threads_have.resize_with(3, || Has::Nothing);
            let mut play = Readers {
                engine: engine.clone(),
                resource,
                stranger,
                threads: threads_have,
                upgraded: 0,
                refused: 0,
            };
            let mut at = [0; 3];
            for &thread in order {
                play.act(thread, threads[thread][at[thread]]);
                at[thread] += 1;
                play.check();
            }
            (upgraded, refused) = (upgraded + play.upgraded, refused + play.refused);
        }
        assert!(upgraded > 500 && refused > 500, "{upgraded} upgraded, {refused} refused");
    }

    #[test]
    fn nothing_is_left_of_acquisitions_that_are_over_or_dropped() {
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string());
        let engine = Engine::new(patient(builder)).unwrap();
        let request = || LockRequest::new("job").wait(crate::proto::Wait::Forever);
        let first = engine.acquire_reentrant(request(), "first").wait().unwrap();
        let mut waiting: Vec<_> =
            (0..5).map(|_| engine.acquire_reentrant(request(), "second")).collect();
        let mut context = Context::from_waker(Waker::noop());
        for future in &mut waiting {
            assert!(Pin::new(&mut *future).poll(&mut context).is_pending());
            assert!(Pin::new(future).poll(&mut context).is_pending());
        }
        let holds = &engine.handle.holds;
        assert_eq!(
            lock(&holds.table).entering.values().map(BTreeMap::len).collect::<Vec<_>>(),
            [5]
        );
        waiting.truncate(2);
        drop(first);
        let guards: Vec<_> = waiting.into_iter().map(|future| future.wait().unwrap()).collect();
        assert_eq!(guards[0].hold_count(), 2);
        drop(guards);
        let inner = lock(&holds.table);
        assert!(inner.holds.is_empty() && inner.entering.is_empty());
    }
}
