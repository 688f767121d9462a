//! Requests: the lock and its options. The library checks them.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use redbolt::{AutoExtend, LockMode, LockRequest, Profile, Wait};

use crate::call::{call, given, look, place};
use crate::failure::Failure;
use crate::foreign::{bytes, zero_ended};
use crate::status::Status;

/// A request: the resources and the options. It can be used for any number of acquisitions. Only
/// one thread may change it; many threads may read it at once.
pub struct RequestHandle {
    resources: Vec<Vec<u8>>,
    prefix: Vec<u8>,
    format: Profile,
    ttl: Duration,
    wait: Wait,
    mode: LockMode,
    is_fenced: bool,
    auto_extend: Option<AutoExtend>,
}

impl RequestHandle {
    fn new(resource: &[u8]) -> Self {
        Self {
            resources: vec![resource.to_vec()],
            prefix: Vec::new(),
            format: Profile::PLAIN,
            ttl: DEFAULT_TTL,
            wait: Wait::No,
            mode: LockMode::Exclusive,
            is_fenced: false,
            auto_extend: None,
        }
    }

    /// Returns the request for the library.
    pub(crate) fn asked(&self) -> LockRequest<'static> {
        let mut names = self.resources.iter().map(|resource| [&self.prefix[..], resource].concat());
        let first = names.next().expect("it is made with a resource");
        let request = LockRequest::new(&first).into_owned().ttl(self.ttl).wait(self.wait);
        let mut request = names
            .fold(request.format(self.format), |request, name| request.and(&name).into_owned());
        request = match self.mode {
            LockMode::Shared => request.shared(),
            LockMode::Permit { of } => request.permits(of),
            _ => request,
        };
        if self.is_fenced {
            request = request.fenced();
        }
        match self.auto_extend {
            Some(auto_extend) => request.auto_extend(auto_extend),
            None => request,
        }
    }
}

/// Creates a request for a lock on `resource`, a name that ends with a zero byte: one attempt, a
/// TTL of 10 s, exclusive, not extended, without a fencing token. Returns null if `resource` is
/// null. `redbolt_request_free` ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_new(
    resource: *const c_char,
) -> Option<Box<RequestHandle>> {
    look(None, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }.ok()?;
        Some(Box::new(RequestHandle::new(resource)))
    })
}

/// Creates a request for a name of any bytes, at most 64 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_new_bytes(
    resource: *const u8,
    length: usize,
    request: Option<&mut MaybeUninit<Option<Box<RequestHandle>>>>,
) -> Status {
    call(None, || {
        let request = place(request, "request")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { bytes(resource, length, "resource") }?;
        *request = Some(Box::new(RequestHandle::new(resource)));
        Ok(())
    })
}

/// Ends a request. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_free(request: Option<Box<RequestHandle>>) {
    look((), || drop(request));
}

/// Adds a resource to the same lock: all are granted together, or none is. At most 64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_and(
    request: Option<&mut RequestHandle>,
    resource: *const c_char,
) -> Status {
    change(request, |request| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        request.resources.push(resource.to_vec());
        Ok(())
    })
}

/// Does the same as `redbolt_request_and`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_and_bytes(
    request: Option<&mut RequestHandle>,
    resource: *const u8,
    length: usize,
) -> Status {
    change(request, |request| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { bytes(resource, length, "resource") }?;
        request.resources.push(resource.to_vec());
        Ok(())
    })
}

/// Sets how long the nodes keep the lock unless it is extended.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_set_ttl_ms(
    request: Option<&mut RequestHandle>,
    ttl_ms: u64,
) -> Status {
    change(request, |request| {
        request.ttl = Duration::from_millis(ttl_ms);
        Ok(())
    })
}

/// Sets how long to wait for the holder; 0 is one attempt, `UINT64_MAX` is until the lock is
/// granted.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_set_wait_ms(
    request: Option<&mut RequestHandle>,
    wait_ms: u64,
) -> Status {
    change(request, |request| {
        request.wait = wait_of(wait_ms);
        Ok(())
    })
}

/// Asks for the lock in shared (reader) mode.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_set_shared(request: Option<&mut RequestHandle>) -> Status {
    change(request, |request| {
        request.mode = LockMode::Shared;
        Ok(())
    })
}

/// Asks for one of `permits` permits, 1 to 1024, as of a semaphore. `redbolt_lock_slot` returns
/// which.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_set_permits(
    request: Option<&mut RequestHandle>,
    permits: u16,
) -> Status {
    change(request, |request| {
        request.mode = LockMode::Permit { of: permits };
        Ok(())
    })
}

/// Asks for a fencing token with the lock: `redbolt_lock_fencing_token` returns it.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_set_fenced(request: Option<&mut RequestHandle>) -> Status {
    change(request, |request| {
        request.is_fenced = true;
        Ok(())
    })
}

/// Sets the format of another library, to share its locks: `name` is `redisson`, `redisson-rw`,
/// `spring`, `python-redis-lock`, `redis-objects`, `setnx`, `symfony`, or `plain`, which is the
/// default. A lock that the format cannot represent is refused when it is acquired. The manual has
/// a page on formats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_set_format(
    request: Option<&mut RequestHandle>,
    name: *const c_char,
) -> Status {
    change(request, |request| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let name = unsafe { zero_ended(name, "name") }?;
        request.format = format_of(name)?;
        Ok(())
    })
}

/// Sets a prefix for the names of all resources, such as `redlock:` or `lock:` of other libraries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_set_prefix(
    request: Option<&mut RequestHandle>,
    prefix: *const c_char,
) -> Status {
    change(request, |request| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        request.prefix = unsafe { zero_ended(prefix, "prefix") }?.to_vec();
        Ok(())
    })
}

/// Does the same as `redbolt_request_set_prefix`, for a prefix of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_request_set_prefix_bytes(
    request: Option<&mut RequestHandle>,
    prefix: *const u8,
    length: usize,
) -> Status {
    change(request, |request| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        request.prefix = unsafe { bytes(prefix, length, "prefix") }?.to_vec();
        Ok(())
    })
}

/// Asks for the lock to be extended until it is released: each `every_ms`, more than zero and at
/// most half of the TTL, or 0 for a third of it; for at most `max_hold_ms`, or 0 for what the
/// configuration allows. A driver extends it when it is processed, an engine on its thread. A
/// client refuses: it does nothing between two calls.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_request_set_auto_extend(
    request: Option<&mut RequestHandle>,
    every_ms: u64,
    max_hold_ms: u64,
) -> Status {
    change(request, |request| {
        let mut auto_extend = AutoExtend::until_released();
        if every_ms != 0 {
            auto_extend = auto_extend.every(Duration::from_millis(every_ms));
        }
        if max_hold_ms != 0 {
            auto_extend = auto_extend.max_hold(Duration::from_millis(max_hold_ms));
        }
        request.auto_extend = Some(auto_extend);
        Ok(())
    })
}

/// Returns the format with this name.
pub(crate) fn format_of(name: &[u8]) -> Result<Profile, Failure> {
    let format = str::from_utf8(name).ok().and_then(Profile::of_name);
    format.ok_or_else(|| Failure::argument("there is no format of that name"))
}

/// Returns a request for a lease, which ends after its TTL.
pub(crate) fn lease(resource: &[u8], ttl_ms: u64) -> LockRequest<'_> {
    LockRequest::new(resource).ttl(Duration::from_millis(ttl_ms))
}

/// Returns a request for a lock that is extended until it is released.
pub(crate) fn extended(resource: &[u8]) -> LockRequest<'_> {
    LockRequest::new(resource).auto_extend(AutoExtend::until_released())
}

/// Returns the request with a wait until it is granted.
pub(crate) fn waiting(request: LockRequest<'_>) -> LockRequest<'_> {
    request.wait(Wait::Forever)
}

/// Returns the request with a single attempt.
pub(crate) fn once(request: LockRequest<'_>) -> LockRequest<'_> {
    request.wait(Wait::No)
}

/// Returns the wait that a number stands for.
pub(crate) fn wait_of(wait_ms: u64) -> Wait {
    match wait_ms {
        0 => Wait::No,
        u64::MAX => Wait::Forever,
        some => Wait::UpTo(Duration::from_millis(some)),
    }
}

fn change(
    request: Option<&mut RequestHandle>,
    change: impl FnOnce(&mut RequestHandle) -> Result<(), Failure>,
) -> Status {
    call(None, || change(given(request, "request")?))
}

/// The default TTL, which is that of [`LockRequest::new`].
const DEFAULT_TTL: Duration = Duration::from_secs(10);
