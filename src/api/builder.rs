//! Requests that begin at a handle, and end when the handle acquires them.
//!
//! A *lease* ends after its TTL; a *lock* is extended until it is released. Both wait for the
//! holder by default, and have the options of a [`LockRequest`].

use std::time::Duration;

use crate::proto::{AutoExtend, LockRequest, Profile, Wait};

/// The request for a lock or a lease. See [`Client::lease`](crate::Client::lease),
/// [`Engine::lock`](crate::Engine::lock) and [`Engine::lease`](crate::Engine::lease).
///
/// It has a copy of the name, so that it can be stored and moved. Nothing is sent before it
/// acquires.
#[derive(Clone, Debug)]
#[must_use = "a RequestBuilder asks for nothing until it acquires"]
pub struct RequestBuilder<H> {
    pub(super) handle: H,
    pub(super) request: LockRequest<'static>,
}

/// Delegates options to the request.
macro_rules! options {
    ($($(#[$about:meta])+ pub fn $name:ident($($value:ident: $type:ty)?);)+) => {$(
        $(#[$about])+
        pub fn $name(mut self $(, $value: $type)?) -> Self {
            self.request = self.request.$name($($value)?);
            self
        }
    )+};
}

impl<H> RequestBuilder<H> {
    pub(super) fn new(handle: H, resource: &[u8]) -> Self {
        Self { handle, request: LockRequest::new(resource).into_owned().wait(Wait::Forever) }
    }

    options! {
        /// Sets how long to wait for the holder; a duration is the longest wait. Waits forever by
        /// default.
        pub fn wait(wait: impl Into<Wait>);

        /// Shares the resource with other readers: see [`LockRequest::shared`].
        pub fn shared();

        /// Requests one of `permits` permits, as of a semaphore: see [`LockRequest::permits`].
        pub fn permits(permits: u16);

        /// Requests a fencing token: see [`LockRequest::fenced`].
        pub fn fenced();

        /// Uses the format of another library: see [the page on formats](crate::manual::profiles).
        pub fn format(format: Profile);

        /// Sets how soon the lock ends if this process dies: see [`LockRequest::ttl`]. Defaults to
        /// 10 s for a lock that is extended.
        pub fn ttl(ttl: Duration);
    }

    /// Adds a resource, all or nothing. A request has at most 64.
    pub fn and(mut self, resource: impl AsRef<[u8]>) -> Self {
        self.request = self.request.and(resource.as_ref()).into_owned();
        self
    }

    /// Limits how long a lock is extended. The lock is lost when its validity ends after that, so
    /// choose a shorter [`ttl`](Self::ttl). A lease ignores this because it ends anyway.
    pub fn hold_at_most(mut self, most: Duration) -> Self {
        if self.request.is_auto_extended() {
            self.request = self.request.auto_extend(AutoExtend::until_released().max_hold(most));
        }
        self
    }
}
