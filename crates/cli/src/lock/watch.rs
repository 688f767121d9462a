//! The line at a terminal that shows who holds the lock during a wait.
//!
//! It appears only on a terminal, and only if the wait takes longer than a moment. It is rewritten in place once a
//! second. In a log it would be noise.

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::speak::raw;
use crate::duration::show;
use crate::foreign;
use crate::say::printable;
use redbolt::inspect::InspectionVerdict;

/// The line, or nothing if standard error is not a terminal.
#[derive(Debug)]
pub(super) struct Watch {
    since: Duration,
    /// When to look again; `None` without a terminal.
    next: Option<Duration>,
    is_shown: bool,
}

impl Watch {
    /// The line of a wait that begins at `now`.
    pub(super) fn new(now: Duration, quiet: bool) -> Self {
        let next = (!quiet && io::stderr().is_terminal()).then_some(now + PERIOD);
        Self { since: now, next, is_shown: false }
    }

    /// Whether there is a terminal to show the line on.
    pub(super) fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// Whether it is time to look who holds the lock. If so, the next time is set.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.next = Some(now + PERIOD);
        }
        due
    }

    /// How long until the next look.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        Some(self.next?.saturating_sub(now))
    }

    /// Shows who holds the lock, or how long a quarantine lasts.
    pub(super) fn show(
        &mut self,
        seen: &InspectionVerdict,
        quarantine: Option<Duration>,
        now: Duration,
    ) {
        let waited = now.saturating_sub(self.since).as_secs();
        let line = format!("redbolt: waiting {waited} s, {}", in_words(seen, quarantine));
        // A line that wraps could not be erased.
        let line: String = printable(&line).chars().take(WIDTH).collect();
        raw(&format!("{CLEAR}{line}"));
        self.is_shown = true;
    }

    /// Removes the line, before anything else is written.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            raw(CLEAR);
        }
    }
}

fn in_words(seen: &InspectionVerdict, quarantine: Option<Duration>) -> String {
    if let Some(left) = quarantine {
        return format!("the nodes are quarantined for {} more", show(left));
    }
    let (holder, remaining) = match seen {
        InspectionVerdict::Held(holder) => (holder.to_string(), holder.remaining),
        InspectionVerdict::Permits(permits) => (permits.to_string(), permits.remaining),
        InspectionVerdict::Shared(sharers) => (sharers.to_string(), sharers.remaining),
        InspectionVerdict::Foreign(data) => (foreign::holder(data), foreign::remaining(data)),
        _ => return "nobody holds the lock on enough nodes".to_owned(),
    };
    match remaining {
        Some(left) => format!("held by {holder} for {} more unless extended", show(left)),
        None => format!("held by {holder} without end"),
    }
}

/// Shorter waits show no line.
const PERIOD: Duration = Duration::from_secs(1);

/// Back to the first column, and erase to the end of the line.
const CLEAR: &str = "\r\x1b[K";

/// Narrow enough for every terminal.
const WIDTH: usize = 79;

#[cfg(test)]
mod tests {
    use redbolt::inspect::{DataKind, Foreign, ForeignLock, Holder};

    use super::*;

    #[test]
    fn the_holder_is_told_with_what_is_known() {
        let held = |remaining| {
            let label = Some("web-1:77".to_owned());
            InspectionVerdict::Held(Holder::new(label, 0, remaining))
        };
        assert_eq!(
            in_words(&held(Some(Duration::from_millis(8_300))), None),
            "held by web-1:77 for 8.3 s more unless extended"
        );
        assert_eq!(in_words(&held(None), None), "held by web-1:77 without end");
        let hash = Foreign::new(DataKind::Hash, None);
        let hash = in_words(&InspectionVerdict::Foreign(hash), None);
        assert_eq!(hash, "held by other data, a hash without end");
        let theirs = ForeignLock::new("hash", "held by Redisson 1f0c…:42".to_owned());
        let theirs = Foreign::new(DataKind::Lock(theirs), None);
        let theirs = in_words(&InspectionVerdict::Foreign(theirs), None);
        assert_eq!(theirs, "held by Redisson 1f0c…:42 without end");
        let mut over =
            ForeignLock::new("string", "held by SETNX until second 1100000000".to_owned());
        over.ends = Some(Duration::from_secs(1_100_000_000));
        let over = Foreign::new(DataKind::Lock(over), None);
        let over = in_words(&InspectionVerdict::Foreign(over), None);
        assert!(over.ends_with("until second 1100000000 for 0 us more unless extended"), "{over}");
        assert!(in_words(&InspectionVerdict::Undecided, None).contains("nobody"));
        let left = Some(Duration::from_secs(26));
        let quarantined = in_words(&InspectionVerdict::Undecided, left);
        assert_eq!(quarantined, "the nodes are quarantined for 26.0 s more");
    }
}
