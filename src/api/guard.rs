//! The guard of a lock that a client acquired.

use std::cell::RefCell;
use std::time::Duration;

use super::driver::Driver;
use super::lock_lost::LockLost;
use super::report::RefusalReport;
use crate::proto::{
    DetachedLock, Event, FencingToken, LockId, LockMode, LockState, LossCause, RefusalReason,
    Released, RequestError, debug_by_name, messages, sources,
};

/// The guard of a granted lock.
///
/// It cannot enforce anything by itself. Check [`is_valid`](Self::is_valid) before each step that
/// relies on the lock; a pause of the process between check and step goes unnoticed.
///
/// Dropping it writes the release at once and does not wait. Bytes that a socket did not accept are
/// written by the client's next call, or when the client is dropped. In a forked child the lock is
/// lost ([`LossCause::Forked`]): neither a call nor a drop sends anything there.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard<'c> {
    driver: &'c RefCell<Driver>,
    id: LockId,
    /// The sharing mode after the last change. It is kept here because the core forgets a lock once
    /// no node can keep it.
    mode: LockMode,
    released: bool,
}

impl<'c> LockGuard<'c> {
    pub(super) fn new(driver: &'c RefCell<Driver>, id: LockId, mode: LockMode) -> Self {
        Self { driver, id, mode, released: false }
    }

    /// Returns the validity that is left, by the current clock; zero once the lock is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.driver.borrow().remaining(self.id)
    }

    /// Returns whether the lock is held, by the current clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the sharing mode of the lock, or the one that it had when it was lost.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.driver.borrow().mode(self.id).unwrap_or(self.mode)
    }

    /// Returns the number of the permit, counted from 0. `None` if the request had no permits
    /// ([`LockRequest::permits`](crate::LockRequest::permits)), or if the lock is lost.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        self.driver.borrow().slot(self.id)
    }

    /// Returns the fencing token to pass to the protected resource. `None` if the request had none
    /// ([`LockRequest::fenced`](crate::LockRequest::fenced)), or if the lock is lost.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.driver.borrow().fencing_token(self.id)
    }

    /// Extends the lock to `ttl` from now and waits for a quorum. This never shortens the validity,
    /// unless nodes reply that they have lost the key: then the validity is what the other nodes
    /// keep.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: the lock is lost; stop the work. [`ExtendError::Refused`]: the lock
    /// is held until [`remaining`](Self::remaining) is zero.
    pub fn extend(&mut self, ttl: Duration) -> Result<(), ExtendError> {
        let awaited = |it: &Event| matches!(it, Event::Extended(_) | Event::NotExtended(..));
        self.change(|driver, id| driver.extend(id, ttl), awaited)
    }

    /// Tries once to become the only holder of a shared resource, and returns whether it did. On
    /// `false`, others share the resource and nothing has changed. On `true`, the guard is
    /// exclusive, with a new validity and a new fencing token. The shared lock is kept either way.
    ///
    /// An upgrade cannot wait: two readers that each wait for the other to release would wait
    /// forever. A reader that must write releases its shared lock, acquires an exclusive one, and
    /// reads again.
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
    /// [`ExtendError::Lost`]: the lock is lost; stop the work. [`ExtendError::Request`]: the lock
    /// is exclusive already, or was held for too long. [`ExtendError::Refused`]: too few nodes
    /// vote; the lock is shared as before.
    pub fn try_upgrade(&mut self) -> Result<bool, ExtendError> {
        let awaited = |it: &Event| matches!(it, Event::Upgraded(_) | Event::NotUpgraded(..));
        let outcome = self.change(Driver::try_upgrade, awaited);
        unless_shared(outcome)
    }

    /// Turns an exclusive lock into a shared one, without shortening its validity. It does not fail
    /// for lack of nodes: the holder is a reader from the call on. The call returns when other
    /// readers may enter, or when they are known to be blocked until the lock is released or its
    /// TTL ends.
    ///
    /// The lock keeps its fencing token. Readers that come later may have a higher one.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`]: the lock is lost; stop the work. [`ExtendError::Request`]: the lock
    /// is shared already, or is on several resources.
    pub fn downgrade(&mut self) -> Result<(), ExtendError> {
        let awaited = |it: &Event| matches!(it, Event::Downgraded(_) | Event::DowngradeDelayed(..));
        self.change(Driver::downgrade, awaited)
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut Driver, LockId) -> Result<(), RequestError>,
        awaited: fn(&Event) -> bool,
    ) -> Result<(), ExtendError> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up_with(self.id);
        match change(&mut driver, self.id) {
            Ok(()) => {}
            // The holder must stop its work, so this is a loss and not an invalid request.
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

    /// Detaches the lock so that another process on this machine can
    /// [attach](super::Client::attach) it. Until then it stays held and its lease runs. Returns
    /// `None` if the lock is lost.
    ///
    /// Waits for nodes that have not answered yet, because only those that have will count for the
    /// lock. It waits for at most the shortest of a twentieth of the validity, half a second, and
    /// the [response timeout](super::ConfigBuilder::response_timeout).
    #[must_use = "the lock stays taken, and only the record can release it"]
    pub fn detach(mut self) -> Option<DetachedLock> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up();
        let patience = driver.detach_timeout(self.id);
        driver.wait_while(patience, |driver| driver.awaits_answers(self.id));
        // A lock that expired during the wait must not be passed on as held.
        if driver.remaining(self.id).is_zero() {
            return None;
        }
        let detached = driver.detach(self.id);
        drop(driver);
        self.released = detached.is_some();
        detached
    }

    /// Releases the lock and waits until a quorum, or every node that answers, has confirmed it.
    ///
    /// # Errors
    ///
    /// The lock was lost before, so another client may have held it. Its keys that are left on nodes are
    /// released.
    pub fn release(mut self) -> Result<Released, LockLost> {
        self.released = true;
        let mut driver = self.driver.borrow_mut();
        let now = driver.catch_up();
        // The core forgets the name and the cause with the release, so read them first.
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

/// Returns why a lock that its holder did not release was lost. A lock that the core has forgotten
/// expired longer than its TTL ago.
pub(super) fn loss(state: LockState) -> LossCause {
    match state {
        LockState::Lost(cause) => cause,
        _ => LossCause::Expired,
    }
}

/// Converts a refusal for contention to `false`: others share the resource.
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
    /// A reason why a lock was not extended, or its mode not changed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ExtendError {
        /// The request cannot be carried out, regardless of the nodes.
        Request(error: RequestError): "{error}",
        /// The lock is lost. Stop the work that it protects.
        Lost(lost: LockLost): "{lost}",
        /// No quorum extended the lock or made it exclusive. It is held as before; a retry is
        /// allowed.
        Refused(report: RefusalReport): "{report}",
    }
}

sources! { ExtendError: Request, Refused }
