//! A user's program: `cargo xtask package` builds it from the packages.

use redbolt::{AcquireError, Client, LockRequest};

/// Does the work unless another client holds the lock.
pub fn work(client: &Client, resource: &[u8], work: impl FnOnce()) -> Result<bool, AcquireError> {
    match client.acquire(LockRequest::new(resource)) {
        Ok(_lock) => {
            work();
            Ok(true)
        }
        Err(AcquireError::Refused(report)) if report.is_contended() => Ok(false),
        Err(error) => Err(error),
    }
}
