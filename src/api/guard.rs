//! The guard of a client's lock.

use std::cell::RefCell;
use std::time::Duration;

use super::driver::Driver;
use super::lock_lost::LockLost;
use super::report::RefusalReport;
use crate::proto::{
    DetachedLock, Event, FencingToken, LockId, LockMode, LockState, LossCause, RefusalReason,
    Released, RequestError, debug_by_name, messages, sources,
};

/// A lock that was granted.
///
/// It protects nothing by itself: check [`is_valid`](Self::is_valid) before each step that relies on
/// it, and know that a pause between the check and the step cannot be seen from here.
///
/// Dropping it writes the release at once and does not wait. What the sockets did not take goes with
/// the client's next call, or with its drop. In a forked child it is lost
/// ([`LossCause::Forked`]), and neither a call nor a drop there sends anything.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard<'c> {
    driver: &'c RefCell<Driver>,
    id: LockId,
    /// Beside whom it was held when it was last changed: the core forgets a lock once no node can keep it.
    mode: LockMode,
    /// The release was begun.
    released: bool,
}

impl<'c> LockGuard<'c> {
    pub(super) fn new(driver: &'c RefCell<Driver>, id: LockId, mode: LockMode) -> Self {
        Self { driver, id, mode, released: false }
    }

    /// The validity that is left, by the clock as it is now; zero once the lock is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.driver.borrow().remaining(self.id)
    }

    /// Whether the lock is held, by the clock as it is now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Beside whom it is held, or was held until it was lost.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.driver.borrow().mode(self.id).unwrap_or(self.mode)
    }

    /// The number of its permit, from 0 on; `None` unless it was asked for
    /// ([`LockRequest::permits`](crate::LockRequest::permits)), and after the lock was lost.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        self.driver.borrow().slot(self.id)
    }

    /// The fencing token, for whatever the lock protects; `None` unless it was asked for
    /// ([`LockRequest::fenced`](crate::LockRequest::fenced)), and after the lock was lost.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.driver.borrow().fencing_token(self.id)
    }

    /// Asks the nodes to keep the lock for `ttl` from now, and waits for a quorum. The validity is never
    /// shortened by it, unless nodes answer that they have lost the key: then it is what the others keep.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Refused`]: the lock is held until
    /// [`remaining`](Self::remaining) is zero.
    pub fn extend(&mut self, ttl: Duration) -> Result<(), ExtendError> {
        let awaited = |it: &Event| matches!(it, Event::Extended(_) | Event::NotExtended(..));
        self.change(|driver, id| driver.extend(id, ttl), awaited)
    }

    /// Tries once to become the only holder of a resource that is shared, and tells whether it is. It keeps its shared lock
    /// whatever comes of that: `false` says that others share it, and nothing is different. From `true` on
    /// the guard is exclusive, with a validity and a fencing token of its own.
    ///
    /// There is no waiting for it: two who wait for each other to let go would wait for ever. Whoever has to write
    /// releases its shared lock and takes an exclusive one, and reads again what it has read.
    ///
    /// ```no_run
    /// # fn f(client: redbolt::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// # use redbolt::LockRequest;
    /// let mut lock = client.acquire(LockRequest::new("prices").shared())?;
    /// if lock.try_upgrade()? {
    ///     // Nobody else is there: write.
    ///     lock.downgrade()?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Request`]: it is exclusive already, or was held for too long.
    /// [`ExtendError::Refused`]: too few nodes vote; it is shared as before.
    pub fn try_upgrade(&mut self) -> Result<bool, ExtendError> {
        let awaited = |it: &Event| matches!(it, Event::Upgraded(_) | Event::NotUpgraded(..));
        let outcome = self.change(Driver::try_upgrade, awaited);
        unless_shared(outcome)
    }

    /// Shares a resource from now on that it held alone, with a validity that is no shorter. It does not fail: the
    /// holder is a reader from the call on, and returns when other readers may come, or when it is known that
    /// they have to wait until the lock is released or its TTL is over.
    ///
    /// It keeps its fencing token, which readers who come later may be ahead of.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: stop. [`ExtendError::Request`]: it is shared already, or a lock on several resources.
    pub fn downgrade(&mut self) -> Result<(), ExtendError> {
        let awaited = |it: &Event| matches!(it, Event::Downgraded(_) | Event::DowngradeDelayed(..));
        self.change(Driver::downgrade, awaited)
    }

    /// Begins a change of the lock, and waits for its outcome.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Driver, LockId) -> Result<(), RequestError>,
        awaited: fn(&Event) -> bool,
    ) -> Result<(), ExtendError> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up_with(self.id);
        match change(&mut driver, self.id) {
            Ok(()) => {}
            Err(RequestError::Forked | RequestError::NotHeld) => {
                let cause = loss(driver.state(self.id));
                return Err(ExtendError::Lost(driver.lock_lost(self.id, cause)));
            }
            Err(error) => return Err(ExtendError::Request(error)),
        }
        let outcome = driver.outcome(self.id, awaited);
        self.mode = driver.mode(self.id).unwrap_or(self.mode);
        match outcome {
            Event::Lost(_, cause) => Err(ExtendError::Lost(driver.lock_lost(self.id, cause))),
            Event::NotExtended(_, refusal) | Event::NotUpgraded(_, refusal) => {
                let resources = driver.sockets.core().resources(self.id);
                Err(ExtendError::Refused(driver.report(&refusal).of_lock(resources)))
            }
            _ => Ok(()),
        }
    }

    /// Detaches the lock, for another process on this machine to [attach](super::Client::attach). Until then
    /// it stays taken, and its lease runs. `None` if it is lost.
    ///
    /// Waits for nodes that have not answered yet, because those that have will be the ones that count for
    /// the lock: for a twentieth of its validity and for half a second at the most.
    #[must_use = "the lock stays taken, and only the record can release it"]
    pub fn detach(mut self) -> Option<DetachedLock> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up();
        let patience = driver.detach_timeout(self.id);
        driver.wait_while(patience, |driver| driver.awaits_answers(self.id));
        if driver.remaining(self.id).is_zero() {
            return None;
        }
        let detached = driver.detach(self.id);
        drop(driver);
        self.released = detached.is_some();
        detached
    }

    /// Releases the lock and waits until a quorum has confirmed it, or until whoever answers has.
    ///
    /// # Errors
    ///
    /// The lock was lost before: what it protects may have been in other hands. What nodes still keep of it is released.
    pub fn release(mut self) -> Result<Released, LockLost> {
        self.released = true;
        let mut driver = self.driver.borrow_mut();
        let now = driver.catch_up();
        // Before the core forgets the name and the cause.
        let is_over = driver.is_over(self.id, now);
        let lost = is_over.then(|| driver.lock_lost(self.id, loss(driver.state(self.id))));
        driver.release_at(self.id, now);
        if let Some(lost) = lost {
            while driver.poll_event().is_some() {}
            return Err(lost);
        }
        match driver.outcome(self.id, |it| matches!(it, Event::Released(..))) {
            Event::Lost(_, cause) => Err(driver.lock_lost(self.id, cause)),
            Event::Released(_, released) => Ok(released),
            other => unreachable!("a held lock ends in released or lost, not in {other:?}"),
        }
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if !self.released {
            self.driver.borrow_mut().release_and_leave(self.id);
        }
    }
}

debug_by_name!(LockGuard<'_> { remaining });

/// How a lock was lost that its holder has not released. One that the core does not know any more
/// has expired longer ago than its TTL.
pub(super) fn loss(state: LockState) -> LossCause {
    match state {
        LockState::Lost(cause) => cause,
        _ => LossCause::Expired,
    }
}

/// Contention alone says that others share the resource.
pub(super) fn unless_shared(outcome: Result<(), ExtendError>) -> Result<bool, ExtendError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(ExtendError::Refused(report)) if report.reason() == RefusalReason::Contended => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

messages! {
    /// Why a lock was not extended, or its mode not changed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ExtendError {
        /// It cannot be carried out, whatever the nodes say.
        Request(error: RequestError): "{error}",
        /// The lock is over. Stop what it protects.
        Lost(lost: LockLost): "{lost}",
        /// No quorum extended it, or made it exclusive. It is held as before, and may be tried again.
        Refused(report: RefusalReport): "{report}",
    }
}

sources! { ExtendError: Request, Refused }
