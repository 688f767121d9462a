//! The waiters in the queue for a resource, as one node reports them.

use std::fmt;
use std::time::Duration;

use crate::proto::key_state::{fingerprint, is_label};
use crate::proto::lock_mode::LockMode;
use crate::proto::names::TicketName;

/// The waiters in the queue for a resource, see docs/how-it-works/waiters.md.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FairQueue {
    /// Up to 16 waiters, in order: the first gets the lock next.
    pub waiters: Vec<Waiter>,
    /// The number of waiters.
    pub count: usize,
    /// The reservation of the resource for the waiters.
    pub kept: Kept,
    /// The time since the first waiter was called to take the resource; `None` if it was not
    /// called.
    pub called: Option<Duration>,
}

/// A process that waits for a resource, identified by its ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The mode that it requests; `None` if this version does not know the kind of ticket. For a
    /// permit `of` is 0, because a ticket does not contain that number.
    pub mode: Option<LockMode>,
    /// The first 4 bytes of a SHA-1 of the ticket's name: equal on all nodes, and of no use for
    /// removing the ticket.
    pub fingerprint: u32,
    /// The label of its lock, printable. `None` without one, or if no client can have such a label.
    pub label: Option<String>,
    /// The position: a waiter with a smaller stamp is ahead. As a rule it is the time at which it
    /// began to wait, by its own clock, in µs since 1970.
    pub stamp: u64,
    /// The time for which it has waited: from its stamp to the node's clock.
    pub age: Duration,
    /// The time until its ticket expires. A process that lives asks every 2 s, and each request
    /// sets this to 6 s.
    pub remaining: Duration,
    /// The time that it has to take its turn before it is passed over.
    pub grace: Duration,
}

/// A reservation of a resource for the waiters in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kept {
    /// The resource is not reserved.
    #[default]
    Open,
    /// The resource will be reserved as soon as its holder releases it or expires.
    Marked,
    /// The resource is reserved: no other client can take it.
    Closed,
}

impl FairQueue {
    /// Creates a queue with these waiters, of `count` in all.
    #[must_use]
    pub fn new(waiters: Vec<Waiter>, count: usize, kept: Kept, called: Option<Duration>) -> Self {
        Self { waiters, count, kept, called }
    }

    /// Reads the reply of the script [`VIEW_QUEUE`](crate::proto::script::VIEW_QUEUE); `None` if
    /// that is not a queue.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let mut words = lines.next()?.split(' ');
        let count = words.next()?.parse().ok()?;
        let kept = match words.next()? {
            "open" => Kept::Open,
            "marked" => Kept::Marked,
            "closed" => Kept::Closed,
            _ => return None,
        };
        let called: i64 = words.next()?.parse().ok()?;
        // It is -1 if the first waiter is not called.
        let called = u64::try_from(called).ok().map(Duration::from_millis);
        let waiters = lines.map(Waiter::read).collect::<Option<Vec<_>>>()?;
        Some(Self { waiters, count, kept, called })
    }
}

impl Waiter {
    /// Reads a ticket's name, its stamp, and in ms its age and its remaining time.
    fn read(line: &str) -> Option<Self> {
        // A label may contain spaces; the fields behind it do not.
        let mut words = line.rsplitn(4, ' ');
        let mut span = || words.next()?.parse().ok().map(Duration::from_millis);
        let (remaining, age) = (span()?, span()?);
        let stamp = words.next()?.parse().ok()?;
        let (name, rest) = words.next()?.split_once(':')?;
        let (grace, label) = rest.split_once(':').unwrap_or((rest, ""));
        // A client with write access to the node can make tickets with any label.
        let is_shown = !label.is_empty() && is_label(label.as_bytes());
        // The name is the same on all nodes except for the node's number.
        let fingerprint = fingerprint(&[&TicketName::of(name.as_bytes()).0]);
        let mode = match name.as_bytes().first()? {
            b'x' => Some(LockMode::Exclusive),
            b's' => Some(LockMode::Shared),
            b'p' => Some(LockMode::Permit { of: 0 }),
            _ => None,
        };
        let grace = Duration::from_millis(grace.parse().ok()?);
        let label = is_shown.then(|| label.to_owned());
        Some(Self { mode, fingerprint, label, stamp, age, remaining, grace })
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Some(LockMode::Exclusive) => "exclusive",
            Some(LockMode::Shared) => "shared",
            Some(LockMode::Permit { .. }) => "permit",
            None => "other",
        };
        if let Some(label) = &self.label {
            write!(f, "{label} ")?;
        }
        write!(f, "{mode} #{:08x}", self.fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_read_with_its_first_waiters() {
        let name = "0123456789abcdef".repeat(2);
        let of = |node: &str| {
            let text = format!(
                "3 marked 40\nx{name}{node}:35 17 900 5800\ns{name}{node}:20:web: 1 18 7 1"
            );
            FairQueue::read(text.as_bytes()).unwrap()
        };
        let queue = of("00");
        assert_eq!((queue.count, queue.kept), (3, Kept::Marked));
        assert_eq!(queue.called, Some(Duration::from_millis(40)));
        let [first, second] = &queue.waiters[..] else { panic!("{queue:?}") };
        assert_eq!((first.mode, second.mode), (Some(LockMode::Exclusive), Some(LockMode::Shared)));
        assert_eq!((first.stamp, first.age), (17, Duration::from_millis(900)));
        assert_eq!(first.remaining, Duration::from_millis(5_800));
        assert_eq!(first.grace, Duration::from_millis(35));
        assert_eq!((first.label.as_deref(), second.label.as_deref()), (None, Some("web: 1")));
        assert!(second.to_string().starts_with("web: 1 shared #"), "{second}");
        assert_ne!(first.fingerprint, second.fingerprint);
        assert_eq!(queue, of("01"), "on another node");
        assert!(!format!("{queue:?} {first}").contains("0123"));
    }

    /// A client with write access to the node can make tickets with any label.
    #[test]
    fn a_label_that_no_client_can_have_is_not_shown() {
        let name = "0123456789abcdef".repeat(2);
        let long = "x".repeat(200);
        for label in ["a\x1b[2J", "\u{9b}31m", "a\x7f", "a\u{202e}b", "\u{fc}", "", &long] {
            let text = format!("1 open -1\nx{name}00:35:{label} 17 900 5800");
            let queue = FairQueue::read(text.as_bytes()).unwrap();
            assert_eq!(queue.waiters[0].label, None, "{label:?}");
            assert!(queue.waiters[0].to_string().starts_with("exclusive #"), "{label:?}");
        }
    }

    #[test]
    fn other_data_is_not_read_as_a_queue() {
        assert_eq!(FairQueue::read(b"0 open -1"), Some(FairQueue::default()));
        for text in [
            "",
            "0",
            "0 open",
            "0 ajar -1",
            "-1 open -1",
            "1 open -1\nx",
            "1 open -1\nx00 1 1 1",
            "1 open -1\nx00:1 1 1",
            "1 open -1\nx00:1 1 -1 1",
            "1 open -1\n:1 1 1 1",
        ] {
            assert_eq!(FairQueue::read(text.as_bytes()), None, "{text:?}");
        }
        let other = FairQueue::read(b"1 closed -1\nq00:1 1 1 1").unwrap();
        assert_eq!((other.kept, other.waiters[0].mode), (Kept::Closed, None), "a newer version's");
    }
}
