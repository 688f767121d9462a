//! Requests that begin at a handle, and end where that acquires.
//!
//! A *lease* ends after its TTL; a *lock* is extended until it is released. Both wait for the holder unless said otherwise, and
//! have the options of a [`LockRequest`]. What a handle does with them stands beside that handle.

use std::time::Duration;

use crate::proto::{AutoExtend, LockRequest, Profile, Wait};

/// A lock or a lease that is about to be asked for: see [`Client::lease`](crate::Client::lease), [`Engine::lock`](crate::Engine::lock) and
/// [`Engine::lease`](crate::Engine::lease).
///
/// It has a copy of the name, so that it can be kept and moved. Nothing is sent before it acquires.
#[derive(Clone, Debug)]
#[must_use = "a RequestBuilder asks for nothing until it acquires"]
pub struct RequestBuilder<H> {
    pub(super) handle: H,
    pub(super) request: LockRequest<'static>,
}

/// Methods that it has of its request.
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
        /// How long to wait for the holder; a duration is the longest wait. For ever unless said otherwise.
        pub fn wait(wait: impl Into<Wait>);

        /// Beside others who share it: see [`LockRequest::shared`].
        pub fn shared();

        /// One of so many permits, as of a semaphore: see [`LockRequest::permits`].
        pub fn permits(permits: u16);

        /// With a fencing token: see [`LockRequest::fenced`].
        pub fn fenced();

        /// In the format of another library: see [the page on formats](crate::manual::profiles).
        pub fn format(format: Profile);

        /// How soon it ends if this process does: see [`LockRequest::ttl`]. That of a lock is 10 s unless said otherwise.
        pub fn ttl(ttl: Duration);
    }

    /// On one resource more, all or nothing. At most 64.
    pub fn and(mut self, resource: impl AsRef<[u8]>) -> Self {
        self.request = self.request.and(resource.as_ref()).into_owned();
        self
    }

    /// For how long a lock is extended at the most. It is lost when its validity ends behind that, so choose a [`ttl`](Self::ttl) that is
    /// shorter. A lease ends anyway.
    pub fn hold_at_most(mut self, most: Duration) -> Self {
        if self.request.is_auto_extended() {
            self.request = self.request.auto_extend(AutoExtend::until_released().max_hold(most));
        }
        self
    }
}
