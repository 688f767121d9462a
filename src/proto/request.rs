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

/// The most resources in one lock.
pub const MAX_KEYS: usize = 64;

/// The most bytes in the name of a resource.
pub const MAX_RESOURCE: usize = 64 << 10;

/// A request for a lock on one resource or on several, all or nothing.
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
    /// Asks for a lock on `resource`, 1 byte to 64 KiB, any bytes. It is the name of the key.
    ///
    /// Until said otherwise the TTL is 10 s and there is one attempt.
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

    /// Adds a resource to the same lock: all are granted together or none is. At most 64.
    pub fn and(mut self, resource: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.more.push(resource.as_ref().into());
        self
    }

    /// Whose locks it takes part in: [redbolt's own](Profile::PLAIN), unless said otherwise.
    pub fn format(mut self, format: Profile) -> Self {
        self.profile = format;
        self
    }

    /// How long to wait for it. A duration is the longest wait.
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
        /// How long the nodes keep the lock unless it is extended; cut to whole milliseconds. To be extended in time
        /// a lock needs a TTL of four round trips at least.
        pub fn ttl(ttl: Duration) => ttl = ttl;

        /// Asks for the lock beside others who share it, as a reader does beside readers. Whoever asks for it without
        /// this waits until all who share it are gone, and they wait for whoever has it alone.
        ///
        /// Each holder is on its own: one that dies leaves the others what they have, and keeps nobody out for longer
        /// than its own TTL. With a fencing token, all who share between two exclusive holders have the same number,
        /// an odd one. Only a lock on one resource can be shared.
        pub fn shared() => mode = LockMode::Shared;

        /// Asks for one of the resource's `permits`, 1 to 1 024: at most so many hold one at once, as of a semaphore.
        ///
        /// The lock tells the number of its permit, from 0 to `permits` - 1, and no other holder has the same. Whoever asks for
        /// the resource without this, or to share it, waits until all permits are given back, and the other way round. Where
        /// requests differ in `permits`, at most the largest of them are given. With a fencing token, each permit has a counter
        /// of its own. Only a lock on one resource can have permits.
        pub fn permits(permits: u16) => mode = LockMode::Permit { of: permits };

        /// Asks for a [`FencingToken`](super::FencingToken) with the lock. It needs the restart guard, and a
        /// `max_ttl` of at least 11 s. Each resource has a counter on each node, under its name behind
        /// `redbolt:fence:`.
        pub fn fenced() => fenced = true;

        /// Asks for the lock to be extended until it is released, so that the TTL says only how soon it ends
        /// if this process does. Without it a lock is a lease of fixed length.
        ///
        /// A [`Driver`](crate::Driver) extends the lock when it is processed, an [`Engine`](crate::Engine) on its
        /// thread. A blocking [`Client`](crate::Client) does nothing between two calls, and refuses.
        pub fn auto_extend(auto_extend: AutoExtend) => auto_extend = Some(auto_extend);
    }

    /// Whether the lock is to be extended until it is released.
    #[must_use]
    pub fn is_auto_extended(&self) -> bool {
        self.auto_extend.is_some()
    }

    /// Whether it asks for a fencing token.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Whose locks it takes part in.
    #[must_use]
    pub fn wanted_profile(&self) -> Profile {
        self.profile
    }

    /// Why a lock of its profile cannot change its mode, if it cannot.
    pub(crate) fn keeps_mode(&self) -> Option<RequestError> {
        let profile = self.profile;
        profile.cannot_change_mode().map(|what| RequestError::ProfileCannot { profile, what })
    }

    /// The TTL that it asks for.
    pub(crate) fn wanted_ttl(&self) -> Duration {
        self.ttl
    }

    /// Beside whom the lock is to be held.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// The resources that it asks for, in the order in which they were given.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.first).chain(self.more.iter().map(|resource| &**resource))
    }

    /// The same ask with names of its own, for a thread or a task that outlives those it was made of.
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

    /// The place of the first resource that was given before, among at most [`MAX_KEYS`].
    fn second_of_a_kind(&self) -> Option<usize> {
        if self.more.is_empty() {
            return None;
        }
        let mut sorted: [(&[u8], usize); MAX_KEYS] = [(&[], 0); MAX_KEYS];
        let keys = &mut sorted[..self.key_count()];
        keys.iter_mut().zip(self.resources().zip(0..)).for_each(|(place, key)| *place = key);
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
        if self.fenced && !config.can_fence() {
            return Err(RequestError::CannotFence);
        }
        check_ttl(config, self.ttl)?;
        match self.auto_extend.and_then(|auto_extend| auto_extend.every) {
            Some(every) if every.is_zero() || every > self.ttl / 2 => {
                Err(RequestError::AutoExtendInterval { every, ttl: self.ttl })
            }
            _ => Ok(()),
        }
    }
}

/// How a lock is auto-extended: see [`LockRequest::auto_extend`].
///
/// ```
/// use std::time::Duration;
/// use redbolt::{AutoExtend, LockRequest};
///
/// // Lost 3 s after this process stops, and in any case after an hour.
/// let auto_extend = AutoExtend::until_released().max_hold(Duration::from_secs(3600));
/// let request = LockRequest::new("leader").ttl(Duration::from_secs(3)).auto_extend(auto_extend);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoExtend {
    pub(super) every: Option<Duration>,
    pub(super) max_hold: Option<Duration>,
}

impl AutoExtend {
    /// Extends the lock each third of its TTL, for as long as the configuration's
    /// [`max_hold`](super::Settings::max_hold) allows.
    #[must_use]
    pub fn until_released() -> Self {
        Self { every: None, max_hold: None }
    }

    builder_methods! {
        /// Extends it so often, more than zero and at most half of the TTL; a little earlier at random, or
        /// together with other locks.
        #[must_use]
        pub fn every(every: Duration) => every = Some(every);

        /// Stops extending when the lock would be held for longer than this. It is lost when its validity ends behind that
        /// ([`LossCause::HeldTooLong`](super::LossCause::HeldTooLong)).
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

/// Whether a key of this name can be a lock's, which an operator may delete: no restart guard's, whether this client
/// minds it or not, and no counter's.
pub(crate) fn check_lock_name(config: &Config, key: &[u8]) -> Result<(), RequestError> {
    check_resource(key)?;
    check_counter(config, Profile::PLAIN, key)?;
    if config.settings.restart_guard_key == key {
        Err(RequestError::RestartGuardKey)
    } else {
        Ok(())
    }
}

/// Keys that are kept with resources are not resources: a script that writes them would change the lock of another client.
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

/// How the names begin of what is kept beside a resource.
const RESERVED: [&[u8]; 3] = [permits::ENDS_PREFIX, permits::COUNTERS_PREFIX, fair_queue::PREFIX];

/// A TTL is judged by the whole milliseconds that the nodes will get.
pub(super) fn check_ttl(config: &Config, ttl: Duration) -> Result<(), RequestError> {
    let max_ttl = config.settings.max_ttl;
    if ttl > max_ttl {
        return Err(RequestError::TtlAboveMaximum { ttl, max_ttl });
    }
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

/// How long an acquisition goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Attempts until granted or until this much time has passed. Zero is one attempt, as
    /// [`No`](Self::No).
    UpTo(Duration),
    /// Attempts until granted, or until the nodes' configuration makes a quorum impossible.
    Forever,
    /// One attempt.
    No,
}

impl From<Duration> for Wait {
    fn from(longest: Duration) -> Self {
        Self::UpTo(longest)
    }
}

messages! {
    /// A request that cannot be carried out, whatever the nodes say. Nothing was sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum RequestError {
        /// One call asks twice for a resource, in two locks.
        DuplicateRequest {
            /// Place of the second request, from zero.
            index: usize,
        }: "request {} is for a resource that an earlier one asks for" with (index + 1),
        /// A fenced lock needs the restart guard, and a `max_ttl` of at least 11 s.
        CannotFence: "fencing needs the restart guard, and a max_ttl of at least {MIN_MAX_TTL:?}",
        /// The name of the resource begins as those of fencing counters do.
        CounterKey: "the resource has a name of fencing counters, redbolt:fence:...",
        /// The same resource twice in one lock.
        DuplicateKey {
            /// Place of the second, from zero.
            index: usize,
        }: "resource {} of the lock is there twice" with (index + 1),
        /// A resource needs at least one byte.
        EmptyResource: "the resource's name is empty",
        /// An extension of this lock is under way.
        ExtensionUnderWay: "an extension of this lock is under way",
        /// A change of this lock's mode is under way.
        ModeChangeUnderWay: "a change of this lock's mode is under way",
        /// A lock that is not exclusive is not downgraded.
        NotExclusive: "the lock is not exclusive",
        /// A lock that is not shared is not upgraded.
        NotShared: "the lock is not shared",
        /// The client or driver belongs to the process that this one was forked from.
        Forked: "this client belongs to the process before the fork: make a new one in the child",
        /// The resource has the name of the restart guard's key.
        RestartGuardKey: "the resource has the name of the restart guard's key",
        /// A semaphore has 1 to 1 024 permits.
        Permits {
            /// How many were asked for.
            permits: u16,
        }: "{permits} permits, of 1 to {MAX_PERMITS}",
        /// One permit for several resources.
        PermitKeys {
            /// How many.
            keys: usize,
        }: "one permit for {keys} resources at once",
        /// The format of a profile has no room for what was asked.
        ProfileCannot {
            /// Whose format it is.
            profile: Profile,
            /// What it cannot do, and why.
            what: &'static str,
        }: "a lock of the profile {profile} cannot {what}",
        /// The name of the resource is that of a key which redbolt, or a format that is configured or asked for, keeps with its
        /// locks.
        ReservedKey: "the resource has the name of a key beside locks: redbolt:until:..., \
                redbolt:slotfence:..., redbolt:line..., or one that another library's format keeps there",
        /// A shared lock on several resources.
        SharedKeys {
            /// How many.
            keys: usize,
        }: "{keys} resources in one shared lock, only one can be shared",
        /// An owner holds the lock already, and a re-entry asks for what cannot be added to it.
        HeldWithout {
            /// What is missing.
            missing: &'static str,
        }: "the owner holds the lock without {missing}",
        /// A lock that can be entered again, on several resources.
        ReentrantKeys {
            /// How many.
            keys: usize,
        }: "{keys} resources in one reentrant lock, it can have one",
        /// The lock would be held for longer than the maximum hold time.
        HeldTooLong {
            /// The maximum hold time.
            max_hold: Duration,
        }: "the lock would be held for longer than the maximum of {max_hold:?}",
        /// A lock is auto-extended at intervals of more than zero and at most half of its TTL.
        AutoExtendInterval {
            /// The interval.
            every: Duration,
            /// The TTL.
            ttl: Duration,
        }: "a TTL of {ttl:?} cannot be auto-extended every {every:?} \
            (more than 0, at most half of it)",
        /// A blocking client has nobody who could auto-extend a lock between two calls.
        AutoExtendUnsupported: "a blocking client cannot auto-extend a lock: use an Engine, \
                or extend it yourself",
        /// The lock is not held: not yet granted, released, or lost.
        NotHeld: "the lock is not held",
        /// A lock that was detached was taken on other nodes, or on these in another order.
        OtherNodes: "the lock was taken on other nodes, on these in another order, \
                or with another quorum",
        /// A resource has at most 64 KiB.
        ResourceTooLong {
            /// Its length.
            len: usize,
        }: "the resource's name has {len} bytes, the limit is {MAX_RESOURCE}",
        /// A lock has at most 64 resources.
        TooManyKeys {
            /// How many were given.
            keys: usize,
        }: "{keys} resources in one lock, the limit is {MAX_KEYS}",
        /// More locks are under way than one core can have.
        TooManyLocks: "too many locks under way in this client",
        /// The TTL is over the configured maximum.
        TtlAboveMaximum {
            /// The TTL.
            ttl: Duration,
            /// The maximum.
            max_ttl: Duration,
        }: "the TTL of {ttl:?} is over the maximum of {max_ttl:?} (max_ttl)",
        /// The TTL is so short that the drift of clocks leaves no validity.
        TtlBelowDrift {
            /// The TTL.
            ttl: Duration,
            /// The drift.
            drift: Duration,
        }: "the TTL of {ttl:?} leaves no validity: clock drift takes {drift:?}",
        /// The TTL is zero, or below one millisecond.
        TtlZero: "the TTL is zero (it is counted in milliseconds)",
    }
}

impl Error for RequestError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{NodeSettings, Settings};

    /// Of 2.9 ms the nodes get 2 ms, and the drift takes more than that.
    #[test]
    fn a_ttl_is_judged_in_whole_milliseconds() {
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
