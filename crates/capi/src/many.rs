//! Many locks in one call: arrays of the host, and the outcome for each of their places.

use std::mem::MaybeUninit;

use redbolt::LockRequest;

use crate::call::given;
use crate::failure::Failure;
use crate::foreign::{array, places};
use crate::lock::LockHandle;
use crate::request::RequestHandle;
use crate::status::Status;

/// The places of the outcomes, in the order of the requests.
pub(crate) struct Outcomes<'a> {
    locks: &'a mut [MaybeUninit<Option<Box<LockHandle>>>],
    /// The statuses; empty if the host does not want them.
    statuses: &'a mut [MaybeUninit<Status>],
}

impl<'a> Outcomes<'a> {
    /// Sets all locks to null, and all statuses to a failure, until there are outcomes.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or the start of `count` places that are not used by anything else for
    /// `'a`.
    pub(crate) unsafe fn at(
        locks: *mut MaybeUninit<Option<Box<LockHandle>>>,
        statuses: *mut MaybeUninit<Status>,
        count: usize,
    ) -> Result<Self, Failure> {
        let wanted = if statuses.is_null() { 0 } else { count };
        // SAFETY: the caller promises it.
        let (locks, statuses) =
            unsafe { (places(locks, count, "locks")?, places(statuses, wanted, "statuses")?) };
        for lock in locks.iter_mut() {
            lock.write(None);
        }
        for status in statuses.iter_mut() {
            status.write(Status::Cancelled);
        }
        Ok(Self { locks, statuses })
    }

    /// Writes all outcomes, and returns the first refusal.
    pub(crate) fn tell(
        self,
        outcomes: impl Iterator<Item = Result<Box<LockHandle>, Failure>>,
    ) -> Result<(), Failure> {
        let mut first = Ok(());
        for (at, outcome) in outcomes.enumerate().take(self.locks.len()) {
            let status = outcome.as_ref().map_or_else(Failure::status, |_| Status::Ok);
            if let Some(place) = self.statuses.get_mut(at) {
                place.write(status);
            }
            match outcome {
                Ok(lock) => {
                    self.locks[at].write(Some(lock));
                }
                Err(refusal) => first = first.and(Err(refusal)),
            }
        }
        first
    }
}

/// Returns the host's requests. None of them may be null.
///
/// # Safety
///
/// `requests` is null, or the start of `count` handles that stay as they are for `'a`.
pub(crate) unsafe fn asked<'a>(
    requests: *const Option<&'a RequestHandle>,
    count: usize,
) -> Result<Vec<LockRequest<'a>>, Failure> {
    // SAFETY: the caller promises it.
    let requests: &'a [Option<&'a RequestHandle>] = unsafe { array(requests, count, "requests") }?;
    requests.iter().map(|request| Ok(given(*request, "a request")?.asked())).collect()
}
