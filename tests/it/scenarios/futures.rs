//! The engine's futures, awaited on executors that are independent of it.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::{
    AcquireError, Config, DetachedLock, Engine, ExtendError, FencingToken, LockLost, LockMode,
    LockRequest, LossCause, OwnedGuard, Released,
    engine::{AcquireFuture, LossFuture},
    inspect::{ForceUnlockReport, Inspection},
};

use crate::scenarios::api::{Api, Cancels, Detaches, Guards, Inspects, Locks, Notifies};

pub(super) type OnTokio = Awaited<Tokio>;
pub(super) type OnSmol = Awaited<Smol>;
pub(super) type OnTwentyLines = Awaited<TwentyLines>;

pub(super) struct Awaited<E> {
    engine: Engine,
    executor: E,
}

pub(super) trait Executor {
    fn start() -> Self;
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;
}

pub(super) struct Tokio(tokio::runtime::Runtime);

impl Executor for Tokio {
    fn start() -> Self {
        Self(tokio::runtime::Builder::new_current_thread().build().unwrap())
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
}

pub(super) struct Smol;

impl Executor for Smol {
    fn start() -> Self {
        Self
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}

pub(super) struct TwentyLines;

impl Executor for TwentyLines {
    fn start() -> Self {
        Self
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        crate::futures::block_on(future)
    }
}

pub(super) struct Held {
    guard: OwnedGuard,
    watcher: Option<LossFuture>,
    reported: Vec<LossCause>,
}

impl Held {
    fn new(guard: OwnedGuard) -> Self {
        let watcher = Some(guard.lost());
        Self { guard, watcher, reported: Vec::new() }
    }
}

impl<E: Executor> Api for Awaited<E> {
    type Asked = AcquireFuture;
    type Held = Held;

    fn start(config: Config) -> Self {
        let engine = Engine::new(config).unwrap();
        Self { engine, executor: E::start() }
    }

    fn request(&mut self, request: LockRequest<'static>) -> AcquireFuture {
        self.engine.acquire(request)
    }

    fn outcome(&mut self, asked: AcquireFuture) -> Result<Held, AcquireError> {
        self.executor.block_on(asked).map(Held::new)
    }

    fn batch(&mut self, requests: Vec<LockRequest<'static>>) -> Vec<Result<Held, AcquireError>> {
        let outcomes = self.executor.block_on(self.engine.acquire_all(requests));
        outcomes.into_iter().map(|outcome| outcome.map(Held::new)).collect()
    }

    fn remaining(&mut self, held: &Held) -> Duration {
        held.guard.remaining()
    }

    fn fencing_token(&mut self, held: &Held) -> Option<FencingToken> {
        held.guard.fencing_token()
    }

    fn extend(&mut self, held: &mut Held, ttl: Duration) -> Result<(), ExtendError> {
        self.executor.block_on(held.guard.extend(ttl))
    }

    fn mode(&mut self, held: &Held) -> LockMode {
        held.guard.mode()
    }

    fn slot(&mut self, held: &Held) -> Option<u16> {
        held.guard.slot()
    }

    fn try_upgrade(&mut self, held: &mut Held) -> Result<bool, ExtendError> {
        self.executor.block_on(held.guard.try_upgrade())
    }

    fn downgrade(&mut self, held: &mut Held) -> Result<(), ExtendError> {
        self.executor.block_on(held.guard.downgrade())
    }

    fn release(&mut self, held: Held) -> Result<Released, LockLost> {
        self.executor.block_on(held.guard.release())
    }

    fn panic_holding(self, request: LockRequest<'static>) -> Option<Self> {
        let work = async {
            let _guard = self.engine.acquire(request).await.unwrap();
            resume_unwind(Box::new("on purpose"))
        };
        let outcome: Result<(), _> =
            catch_unwind(AssertUnwindSafe(|| self.executor.block_on(work)));
        assert!(outcome.is_err());
        Some(self)
    }

    fn end(self) {
        drop(self.engine);
    }
}

impl<E: Executor> Cancels for Awaited<E> {
    /// Drops the future, like a `select!` whose other branch is ready.
    fn cancel(&mut self, mut asked: AcquireFuture) {
        let polled_once = poll_fn(|context| {
            assert!(Pin::new(&mut asked).poll(context).is_pending());
            Poll::Ready(())
        });
        self.executor.block_on(polled_once);
        drop(asked);
    }
}

impl<E: Executor> Notifies for Awaited<E> {
    fn losses(&mut self, held: &mut Held) -> Vec<LossCause> {
        if let Some(watcher) = held.watcher.take() {
            held.reported.extend(self.executor.block_on(watcher));
        }
        held.reported.clone()
    }
}

impl<E: Executor> Guards for Awaited<E> {
    fn drop_guard(&mut self, held: Held) {
        drop(held.guard);
    }
}

impl<E: Executor> Locks for Awaited<E> {
    fn lock(&mut self, resource: &'static str) -> AcquireFuture {
        self.engine.lock(resource).acquire()
    }

    fn try_lock(&mut self, resource: &'static str) -> Result<Option<Held>, AcquireError> {
        Ok(self.executor.block_on(self.engine.lock(resource).try_acquire())?.map(Held::new))
    }
}

impl<E: Executor> Inspects for Awaited<E> {
    fn inspect(&mut self, resource: &'static [u8]) -> Inspection {
        self.executor.block_on(self.engine.inspect(resource)).unwrap()
    }

    fn force_unlock(&mut self, resource: &'static [u8]) -> ForceUnlockReport {
        self.executor.block_on(self.engine.force_unlock(resource, UnlockScope::Locks)).unwrap()
    }
}

impl<E: Executor> Detaches for Awaited<E> {
    fn detach(&mut self, held: Held) -> Option<DetachedLock> {
        self.executor.block_on(held.guard.detach()).unwrap()
    }

    fn attach(&mut self, detached: DetachedLock) -> Held {
        Held::new(self.executor.block_on(self.engine.attach(&detached)).unwrap())
    }
}
