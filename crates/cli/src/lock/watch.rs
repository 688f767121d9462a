//! Shows who holds the lock during a wait.
//!
//! Nothing is shown in the first second. A terminal has one line, which is rewritten in place each
//! second. Elsewhere, such as in a log, each new holder gets one line.

use std::io::{self, IsTerminal};
use std::time::Duration;

use crate::duration::show;
use crate::foreign;
use crate::say::printable;
use crate::speak::{raw, say};
use redbolt::inspect::InspectionVerdict;

/// The display, which is off if the wait is quiet.
#[derive(Debug)]
pub(super) struct Watch {
    since: Duration,
    /// The time of the next look, or `None` if the wait is quiet.
    next: Option<Duration>,
    /// Whether a line is rewritten in place, instead of adding one for each holder.
    in_place: bool,
    is_shown: bool,
    /// The last holder that got a line.
    last: Option<String>,
}

impl Watch {
    /// Creates the display of a wait that begins at `now`. With verbose notes no line is rewritten
    /// in place, because the notes would be appended to it.
    pub(super) fn new(now: Duration, quiet: bool, verbose: bool) -> Self {
        let next = (!quiet).then_some(now + PERIOD);
        let in_place = !verbose && io::stderr().is_terminal();
        Self { since: now, next, in_place, is_shown: false, last: None }
    }

    /// Returns whether anything is shown.
    pub(super) fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// Returns whether it is time to look who holds the lock. If so, sets the time of the next
    /// look.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.next = Some(now + PERIOD);
        }
        due
    }

    /// Returns how long until the next look.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        Some(self.next?.saturating_sub(now))
    }

    /// Shows the holder of the named lock, or how long a quarantine lasts.
    pub(super) fn show(
        &mut self,
        name: &str,
        seen: &InspectionVerdict,
        quarantine: Option<Duration>,
        now: Duration,
    ) {
        let waited = now.saturating_sub(self.since).as_secs();
        if !self.in_place {
            if let Some(words) = self.of_new_holder(seen) {
                say(format_args!("{name}: waiting {waited} s, {words}"));
            }
            return;
        }
        let line = format!("redbolt: waiting {waited} s, {}", in_words(seen, quarantine));
        // A line that wraps could not be erased.
        let line: String = printable(&line).chars().take(WIDTH).collect();
        raw(&format!("{CLEAR}{line}"));
        self.is_shown = true;
    }

    /// Returns a description of a holder that has not had a line yet. Quarantines and missing nodes
    /// are reported elsewhere.
    fn of_new_holder(&mut self, seen: &InspectionVerdict) -> Option<String> {
        let holder = identity(seen)?;
        if self.last.as_ref() == Some(&holder) {
            return None;
        }
        self.last = Some(holder);
        Some(in_words(seen, None))
    }

    /// Erases the line, before other output.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            raw(CLEAR);
        }
    }
}

/// Returns the part of a verdict that is constant for one holder and differs between holders.
/// Sharers of a lock come and go, so together they count as one holder; so do permits.
fn identity(seen: &InspectionVerdict) -> Option<String> {
    match seen {
        InspectionVerdict::Held(holder) => {
            Some(format!("{:08x} {}", holder.fingerprint, holder.label.as_deref().unwrap_or("")))
        }
        InspectionVerdict::Permits(_) => Some("permits".to_owned()),
        InspectionVerdict::Shared(_) => Some("shared".to_owned()),
        // The description contains the end of a lock, which changes with each extension.
        InspectionVerdict::Foreign(data) => {
            match foreign::lock(data).filter(|it| it.ends.is_some()) {
                Some(lock) => Some(format!("lock {}", lock.library.unwrap_or_default())),
                None => Some(foreign::holder(data)),
            }
        }
        _ => None,
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

/// The time before the first line, and between looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Returns to the first column, and erases to the end of the line.
const CLEAR: &str = "\r\x1b[K";

/// Narrow enough for every terminal.
const WIDTH: usize = 79;

#[cfg(test)]
mod tests {
    use redbolt::inspect::{DataKind, Foreign, ForeignLock, Holder};

    use super::*;

    #[test]
    fn each_new_holder_has_one_line_in_a_log() {
        let held = |label: &str, fingerprint| {
            let left = Some(Duration::from_secs(1));
            InspectionVerdict::Held(Holder::new(Some(label.to_owned()), fingerprint, left))
        };
        let mut watch = Watch::new(Duration::ZERO, false, true);
        assert_eq!(watch.of_new_holder(&InspectionVerdict::Undecided), None);
        assert!(watch.of_new_holder(&held("web-1:77", 1)).unwrap().contains("web-1:77"));
        // Between two extensions too few nodes may have answered.
        for seen in [held("web-1:77", 1), InspectionVerdict::Undecided, held("web-1:77", 1)] {
            assert_eq!(watch.of_new_holder(&seen), None);
        }
        assert!(watch.of_new_holder(&held("web-1:77", 2)).is_some(), "another grant");
        let lock_until = |second| {
            let mut lock = ForeignLock::new("string", format!("held by SETNX until {second}"));
            lock.ends = Some(Duration::from_secs(second));
            InspectionVerdict::Foreign(Foreign::new(DataKind::Lock(lock), None))
        };
        assert!(watch.of_new_holder(&lock_until(1_900_000_000)).is_some());
        assert_eq!(watch.of_new_holder(&lock_until(1_900_000_010)), None, "it was extended");
    }

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
