//! How long a node takes to answer, as far as its answers have shown.
//!
//! A smoothed round trip, as TCP has one: one sample at a time, so that answers which piled up behind a pause
//! count once. Apart from `metrics`, which counts every answer and decides nothing. Not here: what
//! follows when a node takes longer, see `suspect`.

use std::time::Duration;

use crate::proto::time::{Timestamp, saturating_nanos};

/// The smoothed round trip of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// In nanoseconds; zero before the first answer.
    smoothed: u64,
    /// The answer to a request that was sent before is no sample.
    from: Timestamp,
}

impl Pace {
    /// The answer to a request that was sent at `since` came at `now`.
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

    /// Records that the connection was opened at `since` and stands at `now`. That shows the way to a node that has not
    /// answered yet.
    pub(super) fn record_connection(&mut self, since: Timestamp, now: Timestamp) {
        if self.smoothed == 0 {
            self.smoothed = now.0.saturating_sub(since.0).clamp(1, LONGEST);
        }
    }

    /// Ignores answers to requests that were sent before `now`: nobody has read them, and they may have waited for long.
    pub(super) fn ignore_before(&mut self, now: Timestamp) {
        self.from = self.from.max(now);
    }

    /// Whether it usually takes no longer than that, as far as is known.
    pub(crate) fn answers_within(&self, span: Duration) -> bool {
        self.smoothed <= saturating_nanos(span)
    }

    /// `None` if nothing is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        (self.smoothed != 0).then(|| Duration::from_nanos(self.smoothed))
    }

    /// Zero if nothing is known.
    #[inline]
    pub(crate) fn round_trip_ns(&self) -> u64 {
        self.smoothed
    }
}

/// An answer that took longer says that the node hung, and not how far it is.
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
    fn it_follows_the_round_trip_to_the_node() {
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
    fn what_piled_up_counts_once() {
        let (mut pace, now) = paced([MS; 10]);
        let woken = now + Duration::from_secs(3_600);
        (0..1_000).for_each(|_| pace.answered(now, woken));
        let once = pace.round_trip().unwrap();
        assert!(once > Duration::from_millis(100) && once < Duration::from_millis(130), "{once:?}");
    }

    #[test]
    fn what_nobody_listened_for_is_no_sample() {
        let (mut pace, now) = paced([MS]);
        let later = now + Duration::from_millis(500);
        pace.ignore_before(later);
        pace.answered(now, later);
        assert_eq!(pace.round_trip(), Some(Duration::from_millis(1)));
    }
}
