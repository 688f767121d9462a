//! The engine from threads: its futures are waited for by blocking.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redbolt::{
    Acquire, AcquireError, Ask, Config, Ending, Engine, EngineLimits, ExtendError, FencingToken,
    Inspection, LossCause, OwnedGuard,
};

use crate::scenarios::front::{Cancels, Front, Guards, Inspects, Tells};
use crate::support::{LIMIT, eventually};

/// Its thread spins before it sleeps, or not.
pub(super) struct Threaded<const SPINS: bool = false> {
    engine: Engine,
}

pub(super) struct Held {
    guard: OwnedGuard,
    /// What the callback was told.
    told: Arc<Mutex<Vec<LossCause>>>,
}

impl Held {
    fn new(guard: OwnedGuard) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        guard.on_loss(move |cause| heard.lock().unwrap().push(cause));
        Self { guard, told }
    }
}

impl<const SPINS: bool> Front for Threaded<SPINS> {
    const SPINS: bool = SPINS;

    type Asked = Acquire;
    type Held = Held;

    fn start(config: Config) -> Self {
        Self { engine: Engine::start(config, EngineLimits::default()).unwrap() }
    }

    fn ask(&mut self, ask: Ask<'static>) -> Acquire {
        self.engine.acquire(ask)
    }

    fn outcome(&mut self, asked: Acquire) -> Result<Held, AcquireError> {
        asked.wait().map(Held::new)
    }

    /// What is asked in close succession goes out together.
    fn together(&mut self, asks: Vec<Ask<'static>>) -> Vec<Result<Held, AcquireError>> {
        let asked: Vec<_> = asks.into_iter().map(|ask| self.engine.acquire(ask)).collect();
        asked.into_iter().map(|asked| asked.wait().map(Held::new)).collect()
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

    fn release(&mut self, held: Held) -> Ending {
        held.guard.release().wait()
    }

    fn panic_holding(self, ask: Ask<'static>) -> Option<Self> {
        let guard = self.engine.acquire(ask).wait().unwrap();
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
    fn cancel(&mut self, asked: Acquire) {
        drop(asked);
    }
}

impl<const SPINS: bool> Tells for Threaded<SPINS> {
    fn losses(&mut self, held: &mut Held) -> Vec<LossCause> {
        eventually("the callback", || !held.told.lock().unwrap().is_empty());
        held.told.lock().unwrap().clone()
    }
}

impl<const SPINS: bool> Guards for Threaded<SPINS> {
    fn drop_guard(&mut self, held: Held) {
        drop(held.guard);
    }
}

impl<const SPINS: bool> Inspects for Threaded<SPINS> {
    fn inspect(&mut self, resource: &'static [u8]) -> Inspection {
        self.engine.inspect(resource).wait().unwrap()
    }
}
