//! What a caller asks for, and the door at which bad input is turned away.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::config::Config;
use super::fence;
use super::steps::step;
use super::time::ttl_ms;

/// The most resources in one lock.
pub const MAX_KEYS: usize = 64;

/// The most bytes in the name of a resource.
pub const MAX_RESOURCE: usize = 64 << 10;

/// A request for a lock on one resource or on several, all or nothing.
///
/// ```
/// use std::time::Duration;
/// use redbolt::{Ask, Wait};
///
/// let ask = Ask::new(b"job").ttl(Duration::from_secs(5)).wait(Wait::For(Duration::from_secs(2)));
/// ```
#[derive(Clone, Debug)]
#[must_use = "an Ask does nothing until it is given to acquire"]
pub struct Ask<'a> {
    first: Cow<'a, [u8]>,
    more: Vec<Cow<'a, [u8]>>,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) fenced: bool,
    pub(super) keep: Option<Keep>,
}

impl<'a> Ask<'a> {
    /// Asks for a lock on `resource`, 1 byte to 64 KiB, any bytes. It is the name of the key.
    ///
    /// Until said otherwise the TTL is 10 s and there is one attempt.
    pub fn new(resource: &'a [u8]) -> Self {
        let (ttl, wait) = (Duration::from_secs(10), Wait::Try);
        Self { first: resource.into(), more: Vec::new(), ttl, wait, fenced: false, keep: None }
    }

    /// Adds a resource to the same lock: all are granted together or none is. At most 64.
    pub fn and(mut self, resource: &'a [u8]) -> Self {
        self.more.push(resource.into());
        self
    }

    /// How long the nodes keep the lock unless it is extended; cut to whole milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for it.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Asks for a [`FencingToken`](super::FencingToken) with the lock. It needs the guard, and a
    /// `max_ttl` of at least 11 s. Each resource has a counter on each node, under its name behind
    /// `redbolt:fence:`.
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Asks for the lock to be extended until it is released, so that the TTL says only how soon it ends
    /// if this process does. Without it a lock is a lease of fixed length.
    ///
    /// It needs somebody to do it: a [`Driver`](crate::Driver) that takes its turns, or an
    /// [`Engine`](crate::Engine). A [`Client`](crate::Client) has nobody between two calls, and refuses.
    pub fn keep_alive(mut self, keep: Keep) -> Self {
        self.keep = Some(keep);
        self
    }

    /// Whether the lock is to be extended until it is released.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.keep.is_some()
    }

    /// The resources that it asks for, in the order in which they were given.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.keys()
    }

    /// The same ask with names of its own, for a thread or a task that outlives those it was made of.
    pub fn into_owned(self) -> Ask<'static> {
        let owned = |resource: Cow<'_, [u8]>| Cow::Owned(resource.into_owned());
        Ask {
            first: owned(self.first),
            more: self.more.into_iter().map(owned).collect(),
            ttl: self.ttl,
            wait: self.wait,
            fenced: self.fenced,
            keep: self.keep,
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.first).chain(self.more.iter().map(|resource| &**resource))
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
        keys.iter_mut().zip(self.keys().zip(0..)).for_each(|(place, key)| *place = key);
        keys.sort_unstable_by(|one, other| {
            step();
            one.cmp(other)
        });
        let pairs = keys.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        pairs.map(|pair| pair[1].1).min()
    }

    pub(super) fn check(&self, config: &Config) -> Result<(), InputError> {
        if self.key_count() > MAX_KEYS {
            return Err(InputError::TooManyKeys { keys: self.key_count() });
        }
        for key in self.keys() {
            check_resource(key)?;
            if config.guard_key() == Some(key) {
                return Err(InputError::GuardKey);
            }
            check_counter(key)?;
        }
        if let Some(index) = self.second_of_a_kind() {
            return Err(InputError::DuplicateKey { index });
        }
        if self.fenced && !config.can_fence() {
            return Err(InputError::CannotFence);
        }
        check_ttl(config, self.ttl)?;
        match self.keep.and_then(|keep| keep.every) {
            Some(every) if every.is_zero() || every > self.ttl / 2 => {
                Err(InputError::KeepInterval { every, ttl: self.ttl })
            }
            _ => Ok(()),
        }
    }
}

/// How a lock is kept alive: see [`Ask::keep_alive`].
///
/// ```
/// use std::time::Duration;
/// use redbolt::{Ask, Keep};
///
/// // Lost 3 s after this process stops, and in any case after an hour.
/// let keep = Keep::until_released().max_hold(Duration::from_secs(3600));
/// let ask = Ask::new(b"leader").ttl(Duration::from_secs(3)).keep_alive(keep);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub(super) every: Option<Duration>,
    pub(super) max_hold: Option<Duration>,
}

impl Keep {
    /// Extends the lock each third of its TTL, for as long as the configuration's
    /// [`max_hold`](super::Settings::max_hold) allows.
    #[must_use]
    pub fn until_released() -> Self {
        Self { every: None, max_hold: None }
    }

    /// Extends it so often, more than zero and at most half of the TTL; a little earlier at random, or
    /// together with other locks.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// Stops extending when the lock would be held for longer than this. It is lost then
    /// ([`LossCause::HeldTooLong`](super::LossCause::HeldTooLong)).
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }
}

pub(super) fn check_resource(key: &[u8]) -> Result<(), InputError> {
    match key.len() {
        0 => Err(InputError::EmptyResource),
        1..=MAX_RESOURCE => Ok(()),
        len => Err(InputError::ResourceTooLong { len }),
    }
}

/// Whether an operator may delete a key of this name: no guard, whether this client minds it or not,
/// and no counter.
pub(super) fn check_breakable(config: &Config, key: &[u8]) -> Result<(), InputError> {
    check_resource(key)?;
    check_counter(key)?;
    if config.settings.guard_key == key { Err(InputError::GuardKey) } else { Ok(()) }
}

fn check_counter(key: &[u8]) -> Result<(), InputError> {
    if key.starts_with(fence::COUNTER_PREFIX) { Err(InputError::CounterKey) } else { Ok(()) }
}

/// A TTL is judged by the whole milliseconds that the nodes will get.
pub(super) fn check_ttl(config: &Config, ttl: Duration) -> Result<(), InputError> {
    let max_ttl = config.settings.max_ttl;
    if ttl > max_ttl {
        return Err(InputError::TtlAboveMaximum { ttl, max_ttl });
    }
    let ttl = Duration::from_millis(ttl_ms(ttl));
    let drift = config.drift.of(ttl);
    if ttl.is_zero() {
        Err(InputError::TtlZero)
    } else if ttl <= drift {
        Err(InputError::TtlBelowDrift { ttl, drift })
    } else {
        Ok(())
    }
}

/// How long an acquisition goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Attempts until granted or until this much time has passed. Zero is one attempt, as
    /// [`Try`](Self::Try).
    For(Duration),
    /// Attempts until granted, or until the nodes' configuration makes a quorum impossible.
    Forever,
    /// One attempt.
    Try,
}

/// A request that cannot be carried out, whatever the nodes say. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputError {
    /// One call asks twice for a resource, in two locks.
    AskedTwice {
        /// Place of the second ask, from zero.
        index: usize,
    },
    /// A fenced lock needs the guard, and a `max_ttl` of at least 11 s.
    CannotFence,
    /// The name of the resource begins as those of fencing counters do.
    CounterKey,
    /// The same resource twice in one lock.
    DuplicateKey {
        /// Place of the second, from zero.
        index: usize,
    },
    /// A resource needs at least one byte.
    EmptyResource,
    /// An extension of this lock is under way.
    ExtensionUnderWay,
    /// The client or driver belongs to the process that this one was forked from.
    Forked,
    /// The resource has the name of the guard's key.
    GuardKey,
    /// The lock would be held for longer than the maximum hold time.
    HeldTooLong {
        /// The maximum hold time.
        max_hold: Duration,
    },
    /// A lock is kept alive at intervals of more than zero and at most half of its TTL.
    KeepInterval {
        /// The interval.
        every: Duration,
        /// The TTL.
        ttl: Duration,
    },
    /// A blocking client has nobody who could keep a lock alive between two calls.
    NoKeeper,
    /// The lock is not held: not yet granted, released, or lost.
    NotHeld,
    /// A lock that was handed out was taken on other nodes, or on these in another order.
    OtherNodes,
    /// A resource has at most 64 KiB.
    ResourceTooLong {
        /// Its length.
        len: usize,
    },
    /// A lock has at most 64 resources.
    TooManyKeys {
        /// How many were given.
        keys: usize,
    },
    /// More locks are under way than one core can have.
    TooManyLocks,
    /// The TTL is over the configured maximum.
    TtlAboveMaximum {
        /// The TTL.
        ttl: Duration,
        /// The maximum.
        max_ttl: Duration,
    },
    /// The TTL is so short that the drift of clocks leaves no validity.
    TtlBelowDrift {
        /// The TTL.
        ttl: Duration,
        /// The drift.
        drift: Duration,
    },
    /// The TTL is zero, or below one millisecond.
    TtlZero,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AskedTwice { index } => {
                write!(f, "ask {} is for a resource that an earlier one asks for", index + 1)
            }
            Self::CannotFence => write!(
                f,
                "fencing needs the guard, and a max_ttl of at least {:?}",
                fence::MIN_MAX_TTL
            ),
            Self::CounterKey => {
                f.write_str("the resource has a name of fencing counters, redbolt:fence:...")
            }
            Self::DuplicateKey { index } => {
                write!(f, "resource {} of the lock is there twice", index + 1)
            }
            Self::EmptyResource => f.write_str("the resource's name is empty"),
            Self::ExtensionUnderWay => f.write_str("an extension of this lock is under way"),
            Self::Forked => f.write_str(
                "this client belongs to the process before the fork: make a new one in the child",
            ),
            Self::GuardKey => f.write_str("the resource has the name of the guard's key"),
            Self::HeldTooLong { max_hold } => {
                write!(f, "the lock would be held for longer than the maximum of {max_hold:?}")
            }
            Self::KeepInterval { every, ttl } => write!(
                f,
                "a TTL of {ttl:?} cannot be kept alive every {every:?} (more than 0, at most half of it)"
            ),
            Self::NoKeeper => f.write_str(
                "a blocking client cannot keep a lock alive: use an Engine, or extend it yourself",
            ),
            Self::NotHeld => f.write_str("the lock is not held"),
            Self::OtherNodes => f.write_str(
                "the lock was taken on other nodes, on these in another order, or with another quorum",
            ),
            Self::ResourceTooLong { len } => {
                write!(f, "the resource's name has {len} bytes, the limit is {MAX_RESOURCE}")
            }
            Self::TooManyKeys { keys } => {
                write!(f, "{keys} resources in one lock, the limit is {MAX_KEYS}")
            }
            Self::TooManyLocks => f.write_str("too many locks under way in this client"),
            Self::TtlAboveMaximum { ttl, max_ttl } => {
                write!(f, "the TTL of {ttl:?} is over the maximum of {max_ttl:?} (max_ttl)")
            }
            Self::TtlBelowDrift { ttl, drift } => {
                write!(f, "the TTL of {ttl:?} leaves no validity: clock drift takes {drift:?}")
            }
            Self::TtlZero => f.write_str("the TTL is zero (it is counted in milliseconds)"),
        }
    }
}

impl Error for InputError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{NodeSettings, Settings};

    /// Of 2.9 ms the nodes get 2 ms, and the drift takes more than that.
    #[test]
    fn a_ttl_is_judged_in_whole_milliseconds() {
        let settings = Settings { nodes: vec![NodeSettings::default()], ..Settings::default() };
        let config = Config::new(settings).unwrap();
        let judged = |us| check_ttl(&config, Duration::from_micros(us));
        assert_eq!(judged(999), Err(InputError::TtlZero));
        assert!(matches!(judged(2_900), Err(InputError::TtlBelowDrift { .. })));
        assert_eq!(judged(3_000), Ok(()));
        assert!(matches!(judged(30_000_001), Err(InputError::TtlAboveMaximum { .. })));
        assert_eq!(judged(30_000_000), Ok(()));
    }
}
