//! The engine, used by threads that block on its futures.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::{
    AcquireError, Config, DetachedLock, Engine, ExtendError, FencingToken, LockLost, LockMode,
    LockRequest, LossCause, OwnedGuard, Released,
    engine::AcquireFuture,
    inspect::{ForceUnlockReport, Inspection},
};

use crate::scenarios::api::{Api, Cancels, Detaches, Guards, Inspects, Locks, Notifies};
use crate::support::{LIMIT, eventually};

/// An engine with or without a thread that spins before it sleeps.
pub(super) struct Threaded<const SPINS: bool = false> {
    engine: Engine,
}

pub(super) struct Held {
    guard: OwnedGuard,
    /// The arguments of the callback.
    reported: Arc<Mutex<Vec<LossCause>>>,
}

impl Held {
    fn new(guard: OwnedGuard) -> Self {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&reported);
        guard.on_loss(move |cause| received.lock().unwrap().push(cause));
        Self { guard, reported }
    }
}

impl<const SPINS: bool> Api for Threaded<SPINS> {
    const SPINS: bool = SPINS;

    type Asked = AcquireFuture;
    type Held = Held;

    fn start(config: Config) -> Self {
        Self { engine: Engine::new(config).unwrap() }
    }

    fn request(&mut self, request: LockRequest<'static>) -> AcquireFuture {
        self.engine.acquire(request)
    }

    fn outcome(&mut self, asked: AcquireFuture) -> Result<Held, AcquireError> {
        asked.wait().map(Held::new)
    }

    fn batch(&mut self, requests: Vec<LockRequest<'static>>) -> Vec<Result<Held, AcquireError>> {
        let outcomes = self.engine.acquire_all(requests).wait();
        outcomes.into_iter().map(|outcome| outcome.map(Held::new)).collect()
    }

    fn remaining(&mut self, held: &Held) -> Duration {
        held.guard.remaining()
    }

    fn fencing_token(&mut self, held: &Held) -> Option<FencingToken> {
        held.guard.fencing_token()
    }

    fn extend(&mut self, held: &mut Held, ttl: Duration) -> Result<(), ExtendError> {
        held.guard.extend(ttl).wait()
    }

    fn mode(&mut self, held: &Held) -> LockMode {
        held.guard.mode()
    }

    fn slot(&mut self, held: &Held) -> Option<u16> {
        held.guard.slot()
    }

    fn try_upgrade(&mut self, held: &mut Held) -> Result<bool, ExtendError> {
        held.guard.try_upgrade().wait()
    }

    fn downgrade(&mut self, held: &mut Held) -> Result<(), ExtendError> {
        held.guard.downgrade().wait()
    }

    fn release(&mut self, held: Held) -> Result<Released, LockLost> {
        held.guard.release().wait()
    }

    fn panic_holding(self, request: LockRequest<'static>) -> Option<Self> {
        let guard = self.engine.acquire(request).wait().unwrap();
        let work = AssertUnwindSafe(move || {
            let _guard = guard;
            resume_unwind(Box::new("on purpose"))
        });
        let outcome: Result<(), _> = catch_unwind(work);
        assert!(outcome.is_err());
        Some(self)
    }

    fn end(self) {
        let report = self.engine.shutdown(LIMIT);
        assert!(report.is_clean(), "{report}");
    }
}

impl<const SPINS: bool> Cancels for Threaded<SPINS> {
    fn cancel(&mut self, asked: AcquireFuture) {
        drop(asked);
    }
}

impl<const SPINS: bool> Notifies for Threaded<SPINS> {
    fn losses(&mut self, held: &mut Held) -> Vec<LossCause> {
        eventually("the callback", || !held.reported.lock().unwrap().is_empty());
        held.reported.lock().unwrap().clone()
    }
}

impl<const SPINS: bool> Guards for Threaded<SPINS> {
    fn drop_guard(&mut self, held: Held) {
        drop(held.guard);
    }
}

impl<const SPINS: bool> Locks for Threaded<SPINS> {
    fn lock(&mut self, resource: &'static str) -> AcquireFuture {
        self.engine.lock(resource).acquire()
    }

    fn try_lock(&mut self, resource: &'static str) -> Result<Option<Held>, AcquireError> {
        Ok(self.engine.lock(resource).try_acquire().wait()?.map(Held::new))
    }
}

impl<const SPINS: bool> Inspects for Threaded<SPINS> {
    fn inspect(&mut self, resource: &'static [u8]) -> Inspection {
        self.engine.inspect(resource).wait().unwrap()
    }

    fn force_unlock(&mut self, resource: &'static [u8]) -> ForceUnlockReport {
        self.engine.force_unlock(resource, UnlockScope::Locks).wait().unwrap()
    }
}

impl<const SPINS: bool> Detaches for Threaded<SPINS> {
    fn detach(&mut self, held: Held) -> Option<DetachedLock> {
        held.guard.detach().wait().unwrap()
    }

    fn attach(&mut self, detached: DetachedLock) -> Held {
        Held::new(self.engine.attach(&detached).wait().unwrap())
    }
}
