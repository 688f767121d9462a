//! Measures how far a node's clock is from this host's, by the answers to `TIME`.
//!
//! A node reads its clock at some moment between question and answer. So the middle of the round
//! trip is right to within half of it, and the shortest round trip gives the best bound.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redbolt::resp::Frame;

use crate::duration::show;
use crate::link::{self, Link};

/// The offset of a clock from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// The time by which the clock is ahead, in microseconds; negative if it is behind.
    pub(super) ahead_us: i64,
    /// The largest error of that time, in microseconds.
    pub(super) error_us: u64,
}

impl Offset {
    /// Returns how far apart the clocks are at least.
    pub(super) fn at_least(self) -> Duration {
        Duration::from_micros(self.ahead_us.unsigned_abs().saturating_sub(self.error_us))
    }

    /// Returns the offset from another clock. Both offsets are from the same third clock.
    pub(super) fn from(self, other: Self) -> Self {
        Self {
            ahead_us: self.ahead_us.saturating_sub(other.ahead_us),
            error_us: self.error_us.saturating_add(other.error_us),
        }
    }
}

impl Offset {
    /// Describes the offset, ending with "ahead of" or "behind" `other`, or without a side if the
    /// error is larger.
    pub(super) fn in_words(self, other: &str) -> String {
        let micros = |micros| show(Duration::from_micros(micros));
        let apart = self.ahead_us.unsigned_abs();
        if self.at_least().is_zero() {
            return format!("within {} of {other}", micros(apart.saturating_add(self.error_us)));
        }
        let side = if self.ahead_us < 0 { "behind" } else { "ahead of" };
        format!("{} {side} {other}, give or take {}", micros(apart), micros(self.error_us))
    }
}

/// Reads the node's clock a few times. Returns `None` if the node does not report the time.
pub(super) fn measure(link: &mut Link) -> io::Result<Option<Offset>> {
    let mut best: Option<Offset> = None;
    for _ in 0..READINGS {
        let (sent, at) = (Instant::now(), SystemTime::now());
        let reply = link.ask(&[b"TIME"])?;
        let round_trip = sent.elapsed();
        let Some(offset) = time(&reply).and_then(|there| offset(at, round_trip, there)) else {
            return Ok(None);
        };
        best = best.filter(|best| best.error_us <= offset.error_us).or(Some(offset));
    }
    Ok(best)
}

/// Parses the node's time since 1970.
fn time(reply: &Frame) -> Option<Duration> {
    let Frame::Array(parts) = reply else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let number = |part| link::text(part).ok()?.parse().ok();
    Some(Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?))
}

fn offset(sent: SystemTime, round_trip: Duration, there: Duration) -> Option<Offset> {
    let half = round_trip / 2;
    let here = sent.duration_since(UNIX_EPOCH).ok()? + half;
    let micros = |span: Duration| i64::try_from(span.as_micros()).ok();
    // The node's clock counts whole microseconds.
    let error_us = u64::try_from(half.as_micros()).ok()? + 1;
    Some(Offset { ahead_us: micros(there)? - micros(here)?, error_us })
}

const READINGS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_right_to_half_of_its_round_trip() {
        let sent = UNIX_EPOCH + Duration::from_secs(1000);
        let there = Duration::from_micros(1_000_120_400);
        let read = offset(sent, Duration::from_micros(800), there).unwrap();
        assert_eq!(read, Offset { ahead_us: 120_000, error_us: 401 });
        assert_eq!(read.at_least(), Duration::from_micros(119_599));
        let words = "120 ms ahead of ours, give or take 401 us";
        assert_eq!(read.in_words("ours"), words);
    }

    #[test]
    fn errors_of_two_clocks_add_up() {
        let one = Offset { ahead_us: 500, error_us: 100 };
        let other = Offset { ahead_us: -7_000_000, error_us: 300 };
        let apart = one.from(other);
        assert_eq!(apart, Offset { ahead_us: 7_000_500, error_us: 400 });
        assert!(other.from(one).in_words("it").starts_with("7.0 s behind it, give"));
        let unknown = Offset { ahead_us: 5, error_us: 9 };
        assert_eq!(unknown.in_words("ours"), "within 14 us of ours");
    }

    #[test]
    fn a_time_is_two_numbers() {
        let reply = Frame::Array(vec![Frame::Bulk("12".into()), Frame::Bulk("34".into())]);
        assert_eq!(time(&reply), Some(Duration::from_micros(12_000_034)));
        assert_eq!(time(&Frame::Error("NOPERM".into())), None);
    }
}
