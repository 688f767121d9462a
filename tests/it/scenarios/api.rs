//! The operations that a scenario needs of an API.

use std::time::Duration;

use redbolt::{
    AcquireError, Config, ConfigBuilder, DetachedLock, ExtendError, FencingToken, LockLost,
    LockMode, LockRequest, LossCause, RefusalReport, Released, RequestError,
    inspect::{ForceUnlockReport, Inspection},
};
use redbolt_test_servers::Server;

use crate::support::builder;
use crate::timed::Timed;

/// A party of a scenario, which uses one of the APIs.
pub(super) trait Api: Sized {
    /// A requested lock.
    type Asked;
    /// A held lock.
    type Held;

    /// `true` if it spins on reads before it sleeps, which affects only timing.
    const SPINS: bool = false;

    fn start(config: Config) -> Self;

    /// Sends a request, and returns at once.
    fn request(&mut self, request: LockRequest<'static>) -> Self::Asked;

    fn outcome(&mut self, asked: Self::Asked) -> Result<Self::Held, AcquireError>;

    /// Returns the outcomes of requests that are sent together.
    fn batch(
        &mut self,
        requests: Vec<LockRequest<'static>>,
    ) -> Vec<Result<Self::Held, AcquireError>>;

    fn remaining(&mut self, held: &Self::Held) -> Duration;

    fn fencing_token(&mut self, held: &Self::Held) -> Option<FencingToken>;

    fn mode(&mut self, held: &Self::Held) -> LockMode;

    /// Returns the number of its permit.
    fn slot(&mut self, held: &Self::Held) -> Option<u16>;

    fn extend(&mut self, held: &mut Self::Held, ttl: Duration) -> Result<(), ExtendError>;

    fn try_upgrade(&mut self, held: &mut Self::Held) -> Result<bool, ExtendError>;

    fn downgrade(&mut self, held: &mut Self::Held) -> Result<(), ExtendError>;

    fn release(&mut self, held: Self::Held) -> Result<Released, LockLost>;

    /// Panics while it holds a lock, as its user's code would; returns the API if it survives that.
    fn panic_holding(self, request: LockRequest<'static>) -> Option<Self>;

    /// Ends the API, without releasing its locks first.
    fn end(self);

    fn hold(&mut self, request: LockRequest<'static>) -> Self::Held {
        let asked = self.request(request);
        self.outcome(asked).unwrap_or_else(|error| panic!("must be granted: {error}"))
    }

    fn is_valid(&mut self, held: &Self::Held) -> bool {
        !self.remaining(held).is_zero()
    }

    fn refused(&mut self, request: LockRequest<'static>) -> RefusalReport {
        let asked = self.request(request);
        match self.outcome(asked) {
            Err(AcquireError::Refused(report)) => report,
            Err(error) => panic!("must be refused by the nodes: {error}"),
            Ok(_) => panic!("must be refused, and was granted"),
        }
    }

    fn turned_away(&mut self, request: LockRequest<'static>) -> RequestError {
        let asked = self.request(request);
        match self.outcome(asked) {
            Err(AcquireError::Request(error)) => error,
            Err(error) => panic!("must be refused at once: {error}"),
            Ok(_) => panic!("must be refused at once, and was granted"),
        }
    }
}

/// An API that can be called while it waits.
pub(super) trait Cancels: Api {
    fn cancel(&mut self, asked: Self::Asked);
}

/// An API that reports a loss by itself.
pub(super) trait Notifies: Api {
    /// Waits for a reported loss, and returns all reports.
    fn losses(&mut self, held: &mut Self::Held) -> Vec<LossCause>;
}

/// An API with the short forms that take only the name of a resource.
pub(super) trait Locks: Api {
    /// Begins to wait until the lock is granted.
    fn lock(&mut self, resource: &'static str) -> Self::Asked;

    fn try_lock(&mut self, resource: &'static str) -> Result<Option<Self::Held>, AcquireError>;
}

/// An API with a guard for each lock, which releases it when dropped.
pub(super) trait Guards: Api {
    fn drop_guard(&mut self, held: Self::Held);
}

/// An API that inspects locks and force-unlocks them.
pub(super) trait Inspects: Api {
    fn inspect(&mut self, resource: &'static [u8]) -> Inspection;

    fn force_unlock(&mut self, resource: &'static [u8]) -> ForceUnlockReport;
}

/// An API that detaches locks for other processes.
pub(super) trait Detaches: Api {
    fn detach(&mut self, held: Self::Held) -> Option<DetachedLock>;

    fn attach(&mut self, detached: DetachedLock) -> Self::Held;
}

pub(super) fn on<F: Api>(servers: &[Server]) -> F {
    start(builder(servers))
}

/// Returns a party that goes by the clock that the test moves.
pub(super) fn by<F: Api>(timed: &Timed) -> F {
    start(timed.builder())
}

fn start<F: Api>(builder: ConfigBuilder) -> F {
    let busy_poll = if F::SPINS { Duration::from_micros(200) } else { Duration::ZERO };
    F::start(builder.busy_poll(busy_poll).build().unwrap())
}
