//! The usual round trip of a node, as its answers have shown it.
//!
//! It is smoothed as in TCP, and takes one sample at a time, so that answers that piled up during a
//! pause count once.

use std::time::Duration;

use crate::proto::time::{Timestamp, saturating_nanos};

/// The smoothed round trip of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The round trip in ns, or zero before the first answer.
    smoothed: u64,
    /// The start of the current sample: answers to earlier requests are ignored.
    from: Timestamp,
}

impl Pace {
    /// Records an answer at `now` to a request sent at `since`.
    #[inline]
    pub(crate) fn answered(&mut self, since: Timestamp, now: Timestamp) {
        if since < self.from {
            return;
        }
        self.from = now;
        let took = now.0.saturating_sub(since.0).min(LONGEST);
        self.smoothed = match self.smoothed {
            0 => took.max(1),
            before => before - before / 8 + took / 8,
        };
    }

    /// Records a connection opened at `since` and made at `now`, which shows the way to a node that
    /// has not answered yet.
    pub(super) fn record_connection(&mut self, since: Timestamp, now: Timestamp) {
        if self.smoothed == 0 {
            self.smoothed = now.0.saturating_sub(since.0).clamp(1, LONGEST);
        }
    }

    /// Ignores answers to requests sent before `now`, because they may have waited in the socket.
    pub(super) fn ignore_before(&mut self, now: Timestamp) {
        self.from = self.from.max(now);
    }

    /// Returns whether the node usually answers within `span`, as far as is known.
    pub(crate) fn answers_within(&self, span: Duration) -> bool {
        self.smoothed <= saturating_nanos(span)
    }

    /// Returns the round trip, if it is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        (self.smoothed != 0).then(|| Duration::from_nanos(self.smoothed))
    }

    /// Returns the round trip in ns, or zero if it is unknown.
    #[inline]
    pub(crate) fn round_trip_ns(&self) -> u64 {
        self.smoothed
    }
}

/// The longest sample in ns: a longer answer shows that the node hung, and not how far away it is.
const LONGEST: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn paced(samples: impl IntoIterator<Item = u64>) -> (Pace, Timestamp) {
        let mut now = Timestamp(0);
        let mut pace = Pace::default();
        for took in samples {
            let since = now;
            now = now + Duration::from_nanos(took);
            pace.answered(since, now);
        }
        (pace, now)
    }

    #[test]
    fn the_pace_follows_the_round_trip_to_the_node() {
        let (pace, _) = paced([80 * MS]);
        assert_eq!(
            pace.round_trip(),
            Some(Duration::from_millis(80)),
            "the first is taken as it is"
        );
        let (pace, _) = paced([MS; 10].into_iter().chain([80 * MS; 4]));
        assert!(pace.round_trip() > Some(Duration::from_millis(20)), "{pace:?}");
        let (pace, _) = paced([80 * MS; 10].into_iter().chain([MS; 40]));
        assert!(pace.round_trip() < Some(Duration::from_millis(2)), "{pace:?}");
    }

    /// A node that hung answers everything at once.
    #[test]
    fn answers_that_piled_up_count_once() {
        let (mut pace, now) = paced([MS; 10]);
        let woken = now + Duration::from_secs(3_600);
        (0..1_000).for_each(|_| pace.answered(now, woken));
        let once = pace.round_trip().unwrap();
        assert!(once > Duration::from_millis(100) && once < Duration::from_millis(130), "{once:?}");
    }

    #[test]
    fn answers_that_waited_unread_are_not_samples() {
        let (mut pace, now) = paced([MS]);
        let later = now + Duration::from_millis(500);
        pace.ignore_before(later);
        pace.answered(now, later);
        assert_eq!(pace.round_trip(), Some(Duration::from_millis(1)));
    }
}
