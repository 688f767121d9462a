//! The epoll of an engine or of a driver that has its own, and how it sleeps.
//!
//! A sleep with a timeout makes the kernel set a timer and remove it again, which costs more than
//! the rest of the call. A client that acquires one lock after another sleeps twice for each, and
//! thousands of these sleeps have the same deadline. So a loop that sleeps often sets an alarm
//! once, and sleeps without a timeout for as long as the alarm is due in time.
//!
//! A timeout is rounded up to whole milliseconds, an alarm is not. Alarms for short sleeps were
//! tried and gain nothing: a process that has just released a lock then requests it again while the
//! next waiter is being granted.

use std::io;
use std::time::Duration;

use mio::{Events, Poll, Registry};

use crate::net::Clock;
use crate::proto::Timestamp;

pub(super) struct OwnPoll {
    poll: Poll,
    events: Events,
    #[cfg(target_os = "linux")]
    alarm: lasting::LastingAlarm,
}

impl OwnPoll {
    /// Creates a poll for `tokens` sources, with tokens from zero, whose alarm uses `clock`.
    pub(super) fn new(tokens: usize, clock: &Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        #[cfg(not(target_os = "linux"))]
        let _ = clock;
        Ok(Self {
            #[cfg(target_os = "linux")]
            alarm: lasting::LastingAlarm::new(poll.registry(), mio::Token(tokens), clock.clone()),
            poll,
            // Each source is ready at most once in a turn, and so is the alarm.
            events: Events::with_capacity(2 * tokens + 1),
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Sleeps until something is ready, for at most `timeout` from `now`; it may wake up earlier.
    /// The alarm is not an event of any source.
    #[inline]
    pub(super) fn sleep(
        &mut self,
        timeout: Option<Duration>,
        now: Timestamp,
    ) -> io::Result<&Events> {
        #[cfg(target_os = "linux")]
        let timeout = self.alarm.replace_timeout(timeout, now);
        #[cfg(not(target_os = "linux"))]
        let _ = now;
        match self.poll.poll(&mut self.events, timeout) {
            // A signal interrupted the sleep: there are no events.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => outcome?,
        }
        #[cfg(target_os = "linux")]
        self.alarm.note_rung(&self.events);
        Ok(&self.events)
    }
}

#[cfg(target_os = "linux")]
mod lasting {
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use mio::unix::SourceFd;
    use mio::{Events, Interest, Registry};

    use crate::net::{Alarm, Clock};
    use crate::proto::Timestamp;

    /// An alarm that stays set over many sleeps.
    pub(super) struct LastingAlarm {
        token: mio::Token,
        /// The alarm; `None` if the system has none left.
        alarm: Option<Alarm>,
        clock: Clock,
        /// The time at which it rings; long past if it was never set.
        due_at: Timestamp,
        /// The number of sleeps with a timeout since `counted_from`.
        sleeps: u32,
        counted_from: Timestamp,
    }

    impl LastingAlarm {
        pub(super) fn new(registry: &Registry, token: mio::Token, clock: Clock) -> Self {
            let alarm = Alarm::new().ok().filter(|alarm| {
                let fd = alarm.as_raw_fd();
                registry.register(&mut SourceFd(&fd), token, Interest::READABLE).is_ok()
            });
            let never = Timestamp::default();
            Self { token, alarm, clock, due_at: never, sleeps: 0, counted_from: never }
        }

        /// Returns the timeout to sleep with: none if an alarm ends the sleep in time.
        #[inline]
        pub(super) fn replace_timeout(
            &mut self,
            timeout: Option<Duration>,
            now: Timestamp,
        ) -> Option<Duration> {
            let span = timeout?;
            if span.is_zero() {
                return timeout;
            }
            let until = now + span;
            // An alarm that rings after `until` would let the sleep miss its deadline.
            let is_in_time = now < self.due_at && self.due_at <= until;
            let is_set = is_in_time || self.count_sleep(span, now) && self.set(until);
            timeout.filter(|_| !is_set)
        }

        /// Clears the alarm once it has rung: it is reported once.
        #[inline]
        pub(super) fn note_rung(&mut self, events: &Events) {
            if events.iter().any(|event| event.token() == self.token) {
                self.due_at = Timestamp::default();
            }
        }

        /// Counts a sleep. Returns whether there were many lately, within the time that the alarm
        /// would stay set.
        fn count_sleep(&mut self, span: Duration, now: Timestamp) -> bool {
            if now.since(self.counted_from) > span {
                (self.counted_from, self.sleeps) = (now, 0);
            }
            self.sleeps += 1;
            self.sleeps >= MANY
        }

        /// Sets the alarm. Returns whether that was possible.
        #[cold]
        fn set(&mut self, until: Timestamp) -> bool {
            self.sleeps = 0;
            let at = self.clock.of_machine(until);
            let is_set = self.alarm.as_ref().is_some_and(|alarm| alarm.set(at).is_ok());
            if is_set {
                self.due_at = until;
            }
            is_set
        }
    }

    /// The number of sleeps from which on an alarm costs less than their timeouts.
    const MANY: u32 = 16;

    #[cfg(test)]
    mod tests {
        use std::time::Instant;

        use super::*;
        use crate::api::own_poll::OwnPoll;
        use crate::proto::ClockReading;

        const SPAN: Duration = Duration::from_millis(40);

        fn at(ms: u64) -> Timestamp {
            Timestamp::default() + Duration::from_hours(1) + Duration::from_millis(ms)
        }

        /// Returns a clock that stands still at this time.
        fn clock(ms: u64) -> Clock {
            Clock::bent(move |reading| ClockReading { boot: at(ms), ..reading })
        }

        fn alarm() -> LastingAlarm {
            LastingAlarm::new(mio::Poll::new().unwrap().registry(), mio::Token(9), clock(0))
        }

        /// Returns the timeouts of sleeps at these times, each until its deadline.
        fn timeouts(alarm: &mut LastingAlarm, sleeps: &[(u64, u64)]) -> Vec<Option<u64>> {
            let each = sleeps.iter().map(|&(now, until)| {
                let span = Duration::from_millis(until - now);
                let timeout = alarm.replace_timeout(Some(span), at(now));
                timeout.map(|timeout| timeout.as_millis() as u64)
            });
            each.collect()
        }

        #[test]
        fn whoever_sleeps_often_until_the_same_time_sets_one_alarm() {
            let mut alarm = alarm();
            let many: Vec<_> = (0..u64::from(MANY)).map(|ms| (ms, 700)).collect();
            let first = timeouts(&mut alarm, &many);
            assert!(first[..first.len() - 1].iter().all(Option::is_some));
            assert_eq!(first.last(), Some(&None), "it is set now");
            assert_eq!(timeouts(&mut alarm, &[(20, 700), (699, 700), (30, 900)]), [None; 3]);
            // The alarm would ring too late, or has rung.
            assert_eq!(timeouts(&mut alarm, &[(40, 60), (700, 800)]), [Some(20), Some(100)]);
        }

        #[test]
        fn an_alarm_that_is_set_late_rings_in_time() {
            let mut own = OwnPoll::new(3, &clock(59_990)).unwrap();
            let begun = Instant::now();
            // The process was stopped for nearly a minute between its last reading of the clock, at
            // 0, and now.
            assert!(own.alarm.set(at(60_000)));
            assert!(!own.sleep(Some(Duration::from_secs(60)), at(0)).unwrap().is_empty());
            assert!(begun.elapsed() >= Duration::from_millis(10));
            assert!(begun.elapsed() < Duration::from_secs(30), "not a minute from now");
            assert!(own.alarm.set(at(80)), "what has passed rings at once");
            assert!(!own.sleep(Some(Duration::from_secs(60)), at(0)).unwrap().is_empty());
        }

        #[test]
        fn whoever_sleeps_now_and_then_sets_none() {
            let mut alarm = alarm();
            let rare: Vec<_> = (0..100).map(|at| (at * 10, at * 10 + 50)).collect();
            assert!(timeouts(&mut alarm, &rare).iter().all(Option::is_some));
            assert_eq!(alarm.due_at, Timestamp::default());
        }

        #[test]
        fn not_to_sleep_and_to_sleep_without_end_stay_what_they_are() {
            let mut alarm = alarm();
            for timeout in [Some(Duration::ZERO), None] {
                assert_eq!(alarm.replace_timeout(timeout, at(0)), timeout);
            }
        }

        #[test]
        fn an_alarm_ends_a_sleep_and_is_none_of_the_sources() {
            let mut own = OwnPoll::new(3, &clock(0)).unwrap();
            let begun = Instant::now();
            assert!(own.alarm.set(at(40)));
            let tokens: Vec<_> = {
                let events = own.sleep(Some(Duration::from_secs(60)), at(0)).unwrap();
                events.iter().map(|event| event.token()).collect()
            };
            assert_eq!(tokens, [mio::Token(3)]);
            assert!(begun.elapsed() >= SPAN);
            // An alarm that is set again does not report the earlier time.
            own.alarm.clock = clock(41);
            assert!(own.alarm.set(at(60_000)));
            assert!(own.sleep(Some(Duration::ZERO), at(41)).unwrap().is_empty());
            assert!(own.alarm.set(at(80)));
            assert!(!own.sleep(Some(Duration::from_secs(60)), at(42)).unwrap().is_empty());
        }
    }
}
