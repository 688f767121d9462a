//! Lock requests and their validation.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use super::config::Config;
use super::fair_queue;
use super::fence::{self, MIN_MAX_TTL};
use super::format;
use super::lock_mode::LockMode;
use super::permits::{self, MAX_PERMITS};
use super::profile::Profile;
use super::steps::step;
use super::time::ttl_ms;
use crate::resp::{builder_methods, messages};

/// The maximum number of resources in one lock.
pub const MAX_KEYS: usize = 64;

/// The maximum length of a resource's name, in bytes.
pub const MAX_RESOURCE: usize = 64 << 10;

/// A request for a lock on one or several resources, granted all or nothing.
///
/// The calls that take a request validate it, and return a [`RequestError`] before anything is
/// sent.
///
/// ```
/// use std::time::Duration;
/// use redbolt::{LockRequest, Wait};
///
/// let request = LockRequest::new("job").ttl(Duration::from_secs(5)).wait(Duration::from_secs(2));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a LockRequest does nothing until it is given to acquire"]
pub struct LockRequest<'a> {
    first: Cow<'a, [u8]>,
    more: Vec<Cow<'a, [u8]>>,
    profile: Profile,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) mode: LockMode,
    pub(super) fenced: bool,
    pub(super) auto_extend: Option<AutoExtend>,
}

impl<'a> LockRequest<'a> {
    /// Requests a lock on `resource`, whose name (1 byte to 64 KiB, any bytes) is the name of the
    /// key on the nodes.
    ///
    /// The defaults are a TTL of 10 s, one attempt, and exclusive mode.
    pub fn new(resource: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let (ttl, wait) = (Duration::from_secs(10), Wait::No);
        Self {
            first: resource.as_ref().into(),
            more: Vec::new(),
            profile: Profile::PLAIN,
            ttl,
            wait,
            mode: LockMode::Exclusive,
            fenced: false,
            auto_extend: None,
        }
    }

    /// Adds a resource to the lock, which is granted on all resources or on none. At most 64
    /// resources.
    pub fn and(mut self, resource: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.more.push(resource.as_ref().into());
        self
    }

    /// Sets the library in whose format the lock is written. Default: [redbolt's
    /// format](Profile::PLAIN).
    pub fn format(mut self, format: Profile) -> Self {
        self.profile = format;
        self
    }

    /// Sets how long the acquisition waits for the lock. A `Duration` is the maximum.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redbolt::{LockRequest, Wait};
    ///
    /// let patient = LockRequest::new("job").wait(Wait::Forever);
    /// let hurried = LockRequest::new("job").wait(Duration::from_secs(2)); // as Wait::UpTo
    /// ```
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    builder_methods! {
        /// Sets the TTL: how long the nodes keep the lock unless it is extended, rounded down to
        /// whole milliseconds. An extension reaches the nodes in time only if the TTL is at least
        /// four round trips.
        pub fn ttl(ttl: Duration) => ttl = ttl;

        /// Requests the lock in shared (reader) mode. Readers share the resource; exclusive holders
        /// and readers exclude each other.
        ///
        /// A reader that crashes does not affect the other readers, and blocks writers for at most
        /// its own TTL. With a fencing token, all readers between two exclusive holders get the
        /// same number, which is odd. A shared lock has one resource.
        pub fn shared() => mode = LockMode::Shared;

        /// Requests one of `permits` permits (1 to 1,024) of the resource, which then acts as a
        /// semaphore: at most `permits` clients hold it at once.
        ///
        /// A granted lock has the number of its permit, from 0 to `permits` - 1, which no other
        /// holder has. A permit and an exclusive or shared lock on the same resource exclude each
        /// other. If requests differ in `permits`, the number of holders is at most the largest of
        /// them. With a fencing token, each permit has its own counter. A permit has one
        /// resource.
        pub fn permits(permits: u16) => mode = LockMode::Permit { of: permits };

        /// Requests a [`FencingToken`](super::FencingToken) with the lock. This needs the restart
        /// guard and a `max_ttl` of at least 11 s. Each node keeps a counter for each resource, in
        /// a key with the resource's name after the prefix `redbolt:fence:`.
        pub fn fenced() => fenced = true;

        /// Extends the lock automatically until it is released. The TTL then only determines how
        /// soon the lock ends if this process stops. Without this the lock is a lease of fixed
        /// length.
        ///
        /// A [`Driver`](crate::Driver) extends the lock when it is processed, an
        /// [`Engine`](crate::Engine) on its thread. A blocking [`Client`](crate::Client) does
        /// nothing between two calls, so it refuses the request.
        pub fn auto_extend(auto_extend: AutoExtend) => auto_extend = Some(auto_extend);
    }

    /// Returns whether the lock is extended automatically until it is released.
    #[must_use]
    pub fn is_auto_extended(&self) -> bool {
        self.auto_extend.is_some()
    }

    /// Returns whether the lock comes with a fencing token.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Returns the profile in whose format the lock is written.
    #[must_use]
    pub fn wanted_profile(&self) -> Profile {
        self.profile
    }

    /// Returns the error for a change of mode if the profile does not support one.
    pub(crate) fn keeps_mode(&self) -> Option<RequestError> {
        let profile = self.profile;
        profile.cannot_change_mode().map(|what| RequestError::ProfileCannot { profile, what })
    }

    pub(crate) fn wanted_ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the requested mode.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// Returns the requested resources, in the order in which they were added.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.first).chain(self.more.iter().map(|resource| &**resource))
    }

    /// Returns the same request with owned names, for a thread or task that outlives the borrowed
    /// ones.
    pub fn into_owned(self) -> LockRequest<'static> {
        let owned = |resource: Cow<'_, [u8]>| Cow::Owned(resource.into_owned());
        LockRequest {
            first: owned(self.first),
            more: self.more.into_iter().map(owned).collect(),
            profile: self.profile,
            ttl: self.ttl,
            wait: self.wait,
            mode: self.mode,
            fenced: self.fenced,
            auto_extend: self.auto_extend,
        }
    }

    pub(super) fn key_count(&self) -> usize {
        1 + self.more.len()
    }

    /// Returns the index of the first resource that repeats an earlier one. The request has at most
    /// [`MAX_KEYS`] resources.
    fn second_of_a_kind(&self) -> Option<usize> {
        if self.more.is_empty() {
            return None;
        }
        let mut sorted: [(&[u8], usize); MAX_KEYS] = [(&[], 0); MAX_KEYS];
        let keys = &mut sorted[..self.key_count()];
        keys.iter_mut().zip(self.resources().zip(0..)).for_each(|(place, key)| *place = key);
        // Sorting needs n log n comparisons; comparing all pairs would need n².
        keys.sort_unstable_by(|one, other| {
            step();
            one.cmp(other)
        });
        let pairs = keys.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        pairs.map(|pair| pair[1].1).min()
    }

    fn check_profile(&self) -> Result<(), RequestError> {
        let profile = self.profile;
        let cannot = profile.cannot(self.mode, self.key_count(), self.fenced);
        let cannot = cannot.or_else(|| profile.cannot_be(&self.first));
        cannot.map_or(Ok(()), |what| Err(RequestError::ProfileCannot { profile, what }))
    }

    pub(super) fn check(&self, config: &Config) -> Result<(), RequestError> {
        if self.key_count() > MAX_KEYS {
            return Err(RequestError::TooManyKeys { keys: self.key_count() });
        }
        for key in self.resources() {
            check_resource(key)?;
            // A lock at this key would overwrite the restart guard, and the node would stop voting.
            if config.restart_guard_key() == Some(key) {
                return Err(RequestError::RestartGuardKey);
            }
            check_counter(config, self.profile, key)?;
        }
        if let Some(index) = self.second_of_a_kind() {
            return Err(RequestError::DuplicateKey { index });
        }
        self.check_profile()?;
        if self.mode == LockMode::Shared && !self.more.is_empty() {
            return Err(RequestError::SharedKeys { keys: self.key_count() });
        }
        if let LockMode::Permit { of } = self.mode {
            if !(1..=MAX_PERMITS).contains(&of) {
                return Err(RequestError::Permits { permits: of });
            }
            if !self.more.is_empty() {
                return Err(RequestError::PermitKeys { keys: self.key_count() });
            }
        }
        // Without the restart guard a node that lost its counters could repeat a token.
        if self.fenced && !config.can_fence() {
            return Err(RequestError::CannotFence);
        }
        check_ttl(config, self.ttl)?;
        match self.auto_extend.and_then(|auto_extend| auto_extend.every) {
            // At most half of the TTL, so that a failed extension can be repeated in time.
            Some(every) if every.is_zero() || every > self.ttl / 2 => {
                Err(RequestError::AutoExtendInterval { every, ttl: self.ttl })
            }
            _ => Ok(()),
        }
    }
}

/// Options of automatic extension; see [`LockRequest::auto_extend`].
///
/// ```
/// use std::time::Duration;
/// use redbolt::{AutoExtend, LockRequest};
///
/// // The lock ends at most 3 s after this process stops, and in any case after an hour.
/// let auto_extend = AutoExtend::until_released().max_hold(Duration::from_secs(3600));
/// let request = LockRequest::new("leader").ttl(Duration::from_secs(3)).auto_extend(auto_extend);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoExtend {
    pub(super) every: Option<Duration>,
    pub(super) max_hold: Option<Duration>,
}

impl AutoExtend {
    /// Extends the lock each third of its TTL, for as long as
    /// [`max_hold`](super::Settings::max_hold) of the configuration allows.
    #[must_use]
    pub fn until_released() -> Self {
        Self { every: None, max_hold: None }
    }

    builder_methods! {
        /// Sets the interval between extensions: more than zero and at most half of the TTL. An
        /// extension comes earlier at random, by up to an eighth of the interval, and by up to a
        /// further quarter if extensions of other locks are due.
        #[must_use]
        pub fn every(every: Duration) => every = Some(every);

        /// Sets how long the lock may be held. It is not extended past this limit, and is lost with
        /// [`LossCause::HeldTooLong`](super::LossCause::HeldTooLong) when its validity ends. The
        /// smaller of this and the configuration's [`max_hold`](super::Settings::max_hold) applies.
        #[must_use]
        pub fn max_hold(max_hold: Duration) => max_hold = Some(max_hold);
    }
}

pub(super) fn check_resource(key: &[u8]) -> Result<(), RequestError> {
    match key.len() {
        0 => Err(RequestError::EmptyResource),
        1..=MAX_RESOURCE => Ok(()),
        len => Err(RequestError::ResourceTooLong { len }),
    }
}

/// Checks that a key of this name may be a lock, which an operator may delete. Keys of restart
/// guards (even if this client does not use the guard) and of fencing counters are rejected.
pub(crate) fn check_lock_name(config: &Config, key: &[u8]) -> Result<(), RequestError> {
    check_resource(key)?;
    check_counter(config, Profile::PLAIN, key)?;
    if config.settings.restart_guard_key == key {
        Err(RequestError::RestartGuardKey)
    } else {
        Ok(())
    }
}

/// Rejects names of keys that are kept with resources: a script that writes such a key as a lock
/// would change the lock of another client.
fn check_counter(config: &Config, profile: Profile, key: &[u8]) -> Result<(), RequestError> {
    let is_reserved = || RESERVED.iter().any(|prefix| key.starts_with(prefix));
    if key.starts_with(fence::COUNTER_PREFIX) {
        Err(RequestError::CounterKey)
    } else if is_reserved() || format::keeps(&config.settings.formats, profile, key) {
        Err(RequestError::ReservedKey)
    } else {
        Ok(())
    }
}

/// The prefixes of keys that redbolt keeps with resources, other than fencing counters.
const RESERVED: [&[u8]; 3] = [permits::ENDS_PREFIX, permits::COUNTERS_PREFIX, fair_queue::PREFIX];

/// Validates a TTL after rounding it down to the milliseconds that the nodes get.
pub(super) fn check_ttl(config: &Config, ttl: Duration) -> Result<(), RequestError> {
    let max_ttl = config.settings.max_ttl;
    // A quarantine of `max_ttl` must outlast every lock that a node may have lost.
    if ttl > max_ttl {
        return Err(RequestError::TtlAboveMaximum { ttl, max_ttl });
    }
    // The nodes expire keys by whole milliseconds, so a fraction gives no validity.
    let ttl = Duration::from_millis(ttl_ms(ttl));
    let drift = config.drift.of(ttl);
    if ttl.is_zero() {
        Err(RequestError::TtlZero)
    } else if ttl <= drift {
        Err(RequestError::TtlBelowDrift { ttl, drift })
    } else {
        Ok(())
    }
}

/// How long an acquisition retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Retries until the lock is granted or this time has passed. Zero is the same as
    /// [`No`](Self::No).
    UpTo(Duration),
    /// Retries until the lock is granted, or the configuration of too many nodes is wrong for a
    /// quorum.
    Forever,
    /// Makes one attempt.
    No,
}

impl From<Duration> for Wait {
    fn from(longest: Duration) -> Self {
        Self::UpTo(longest)
    }
}

messages! {
    /// An invalid request, or one that the state of the lock does not allow. Nothing was sent to
    /// the nodes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum RequestError {
        /// Two locks of one call request the same resource.
        DuplicateRequest {
            /// The index of the second request, from zero.
            index: usize,
        }: "request {} is for a resource that an earlier one asks for" with (index + 1),
        /// Fencing needs the restart guard and a `max_ttl` of at least 11 s.
        CannotFence: "fencing needs the restart guard, and a max_ttl of at least {MIN_MAX_TTL:?}",
        /// The name of the resource begins with the prefix of fencing counters, `redbolt:fence:`.
        CounterKey: "the resource has a name of fencing counters, redbolt:fence:...",
        /// A resource is listed twice in one lock.
        DuplicateKey {
            /// The index of the second one, from zero.
            index: usize,
        }: "resource {} of the lock is there twice" with (index + 1),
        /// The name of the resource is empty.
        EmptyResource: "the resource's name is empty",
        /// An extension of this lock is still pending.
        ExtensionUnderWay: "an extension of this lock is under way",
        /// A change of this lock's mode is still pending.
        ModeChangeUnderWay: "a change of this lock's mode is under way",
        /// The lock cannot be downgraded because it is not exclusive.
        NotExclusive: "the lock is not exclusive",
        /// The lock cannot be upgraded because it is not shared.
        NotShared: "the lock is not shared",
        /// The client or driver was created before this process was forked, and belongs to the
        /// parent.
        Forked: "this client belongs to the process before the fork: make a new one in the child",
        /// The resource has the name of the restart guard's key.
        RestartGuardKey: "the resource has the name of the restart guard's key",
        /// The number of permits is not 1 to 1,024.
        Permits {
            /// The requested number of permits.
            permits: u16,
        }: "{permits} permits, of 1 to {MAX_PERMITS}",
        /// A permit was requested for several resources.
        PermitKeys {
            /// The number of resources.
            keys: usize,
        }: "one permit for {keys} resources at once",
        /// The format of a profile does not support the request.
        ProfileCannot {
            /// The profile.
            profile: Profile,
            /// The unsupported feature and the reason.
            what: &'static str,
        }: "a lock of the profile {profile} cannot {what}",
        /// The name of the resource is that of a key which redbolt, or a configured or requested
        /// format, keeps with its locks.
        ReservedKey: "the resource has the name of a key beside locks: redbolt:until:..., \
                redbolt:slotfence:..., redbolt:line..., or one that another library's format keeps there",
        /// A shared lock was requested on several resources.
        SharedKeys {
            /// The number of resources.
            keys: usize,
        }: "{keys} resources in one shared lock, only one can be shared",
        /// The owner already holds the lock, and its second request asks for something that the
        /// held lock lacks and that cannot be added.
        HeldWithout {
            /// The missing property.
            missing: &'static str,
        }: "the owner holds the lock without {missing}",
        /// A reentrant lock was requested on several resources.
        ReentrantKeys {
            /// The number of resources.
            keys: usize,
        }: "{keys} resources in one reentrant lock, it can have one",
        /// The lock would be held for longer than the maximum hold time.
        HeldTooLong {
            /// The maximum hold time.
            max_hold: Duration,
        }: "the lock would be held for longer than the maximum of {max_hold:?}",
        /// The interval of automatic extension is zero, or longer than half of the TTL.
        AutoExtendInterval {
            /// The interval.
            every: Duration,
            /// The TTL.
            ttl: Duration,
        }: "a TTL of {ttl:?} cannot be auto-extended every {every:?} \
            (more than 0, at most half of it)",
        /// A blocking client cannot auto-extend a lock because it does nothing between two calls.
        AutoExtendUnsupported: "a blocking client cannot auto-extend a lock: use an Engine, \
                or extend it yourself",
        /// The lock is not held: not yet granted, released, or lost.
        NotHeld: "the lock is not held",
        /// The detached lock was acquired on other nodes, in another order, or with another quorum.
        OtherNodes: "the lock was taken on other nodes, on these in another order, \
                or with another quorum",
        /// The name of the resource is longer than 64 KiB.
        ResourceTooLong {
            /// The length of the name in bytes.
            len: usize,
        }: "the resource's name has {len} bytes, the limit is {MAX_RESOURCE}",
        /// The lock has more than 64 resources.
        TooManyKeys {
            /// The number of resources.
            keys: usize,
        }: "{keys} resources in one lock, the limit is {MAX_KEYS}",
        /// The core has no room for another lock.
        TooManyLocks: "too many locks under way in this client",
        /// The TTL exceeds the configured maximum.
        TtlAboveMaximum {
            /// The requested TTL.
            ttl: Duration,
            /// The configured maximum.
            max_ttl: Duration,
        }: "the TTL of {ttl:?} is over the maximum of {max_ttl:?} (max_ttl)",
        /// The TTL is too short: clock drift leaves no validity.
        TtlBelowDrift {
            /// The requested TTL.
            ttl: Duration,
            /// The drift that is subtracted.
            drift: Duration,
        }: "the TTL of {ttl:?} leaves no validity: clock drift takes {drift:?}",
        /// The TTL is shorter than one millisecond.
        TtlZero: "the TTL is zero (it is counted in milliseconds)",
    }
}

impl Error for RequestError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{NodeSettings, Settings};

    /// A TTL of 2.9 ms is 2 ms on the nodes, which is less than the drift.
    #[test]
    fn a_ttl_is_validated_in_whole_milliseconds() {
        let settings = Settings::new(vec![NodeSettings::default()]);
        let config = Config::new(settings).unwrap();
        let judged = |us| check_ttl(&config, Duration::from_micros(us));
        assert_eq!(judged(999), Err(RequestError::TtlZero));
        assert!(matches!(judged(2_900), Err(RequestError::TtlBelowDrift { .. })));
        assert_eq!(judged(3_000), Ok(()));
        assert!(matches!(judged(30_000_001), Err(RequestError::TtlAboveMaximum { .. })));
        assert_eq!(judged(30_000_000), Ok(()));
    }
}
