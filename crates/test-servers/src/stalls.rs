//! Tests on a real clock, repeated if the machine stalled.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Runs a test that needs the machine to run within `ttl`, and repeats it if the machine stalled.
///
/// A thread records the longest time for which it did not run. An attempt that fails although no
/// gap was longer than a third of the TTL has failed. With a longer gap it is inconclusive: that is
/// printed, and the test is repeated, up to five attempts in all. An attempt that succeeds has
/// shown what it was to show.
///
/// # Panics
///
/// With the panic of the attempt that failed, or if all attempts are inconclusive.
pub fn on_a_real_clock(ttl: Duration, attempt: impl FnMut()) {
    repeat_if_stalled(ttl, attempt, |line| println!("{line}"));
}

fn repeat_if_stalled(ttl: Duration, mut attempt: impl FnMut(), report: impl Fn(String)) {
    for number in 1..=ATTEMPTS {
        let watch = Watch::start();
        let outcome = catch_unwind(AssertUnwindSafe(&mut attempt));
        let gap = watch.end();
        match outcome {
            Ok(()) => return,
            Err(panic) if gap <= ttl / 3 => resume_unwind(panic),
            Err(_) => report(format!(
                "inconclusive: attempt {number} of {ATTEMPTS}, the machine stalled for {gap:?}, \
                 the TTL is {ttl:?}"
            )),
        }
    }
    panic!("the machine stalled in each of {ATTEMPTS} attempts");
}

const ATTEMPTS: usize = 5;

/// A thread that records its own stalls.
struct Watch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Watch {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (mut seen, mut longest) = (Instant::now(), Duration::ZERO);
            loop {
                let is_over = ends.load(Ordering::Relaxed);
                thread::sleep(TICK);
                longest = longest.max(seen.elapsed());
                seen = Instant::now();
                if is_over {
                    return longest;
                }
            }
        });
        Self { is_over, thread }
    }

    /// Returns the longest gap.
    fn end(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_stall_is_not_repeated() {
        let mut attempts = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let fails = || {
                attempts += 1;
                panic!("on purpose");
            };
            repeat_if_stalled(Duration::from_secs(600), fails, |_| {});
        }));
        assert!(outcome.is_err());
        assert_eq!(attempts, 1);
    }

    #[test]
    fn a_failure_in_a_stall_is_repeated_five_times() {
        // Each gap is longer than a third of a zero TTL.
        let mut attempts = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let fails = || {
                attempts += 1;
                panic!("on purpose");
            };
            repeat_if_stalled(Duration::ZERO, fails, |_| {});
        }));
        assert!(outcome.is_err());
        assert_eq!(attempts, ATTEMPTS);
    }

    #[test]
    fn a_success_ends_the_attempts() {
        let mut attempts = 0;
        let fails_once = || {
            attempts += 1;
            assert!(attempts > 1, "on purpose, once");
        };
        repeat_if_stalled(Duration::ZERO, fails_once, |line| assert!(line.contains("attempt 1")));
        assert_eq!(attempts, 2);
    }
}
