//! The statistics of a crowd's turns: hand-offs, idle time, and their order.
//!
//! All functions take the turns in the order of their grants.

use std::time::Duration;

use super::span::Span;

/// A turn of one process. Times are in nanoseconds on the machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The process's number.
    pub process: usize,
    /// The time at which it began to wait.
    pub began: u64,
    /// The time at which it had the lock.
    pub granted: u64,
    /// The time at which it began to release it.
    pub released: u64,
}

impl Turn {
    fn wait(&self) -> u64 {
        self.granted - self.began
    }
}

/// Returns the times from the begin of each release to the next grant, to any process, sorted.
#[must_use]
pub fn gaps(turns: &[Turn]) -> Vec<u64> {
    let gap = |pair: &[Turn]| pair[1].granted.saturating_sub(pair[0].released);
    sorted(turns.windows(2).map(gap).collect())
}

/// Returns the gaps of a span between two processes of which the second was already waiting,
/// sorted.
#[must_use]
pub fn hand_offs(turns: &[Turn], span: Span) -> Vec<u64> {
    let is_one = |pair: &&[Turn]| {
        let (from, to) = (pair[0], pair[1]);
        let waited = to.began <= from.released;
        span.contains(from.released) && to.process != from.process && waited
    };
    let gap = |pair: &[Turn]| pair[1].granted.saturating_sub(pair[0].released);
    sorted(turns.windows(2).filter(is_one).map(gap).collect())
}

/// Returns the share of a span in which no process held the lock although one waited for it.
#[must_use]
pub fn idle(turns: &[Turn], span: Span) -> f64 {
    let (mut idle, mut whole, mut first_began) = (0, 0, u64::MAX);
    for pair in turns.windows(2).rev() {
        // This is the earliest of all whose turns are still to come.
        first_began = first_began.min(pair[1].began);
        if span.contains(pair[0].granted) {
            let free = pair[0].released.max(first_began);
            idle += pair[1].granted.saturating_sub(free);
            whole += pair[1].granted - pair[0].granted;
        }
    }
    idle as f64 / f64::max(whole as f64, 1.0)
}

/// The order in which processes got their turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// The share of waits during which a process that had begun to wait later got a turn.
    pub passed: f64,
    /// The largest number of turns that overtook one wait.
    pub most: usize,
    /// The share of grants to the process that had just released the lock.
    pub kept: f64,
    /// The longest wait, divided by the mean of all.
    pub longest: f64,
    /// The fewest and the most turns of one process.
    pub of_one: (usize, usize),
}

/// Returns the order of the waits that began in a span, of this many processes.
#[must_use]
pub fn order(turns: &[Turn], span: Span, processes: usize) -> Order {
    let (mut passed, mut most, mut kept, mut of_one) = (0, 0, 0, vec![0; processes]);
    let mut waits = Vec::new();
    for (at, turn) in turns.iter().enumerate().filter(|(_, turn)| span.contains(turn.began)) {
        let passes = passes(&turns[..at], turn);
        passed += usize::from(passes > 0);
        most = most.max(passes);
        kept += usize::from(at > 0 && turns[at - 1].process == turn.process);
        waits.push(turn.wait());
        if let Some(own) = of_one.get_mut(turn.process) {
            *own += 1;
        }
    }
    let share = |count: usize| count as f64 / waits.len().max(1) as f64;
    let mean = share(waits.iter().sum::<u64>() as usize);
    let longest = waits.iter().max().copied().unwrap_or(0) as f64;
    Order {
        passed: share(passed),
        most,
        kept: share(kept),
        longest: longest / mean.max(1.0),
        of_one: of_one.iter().min().copied().zip(of_one.iter().max().copied()).unwrap_or((0, 0)),
    }
}

/// Returns how many of the turns `before` overtook this one.
fn passes(before: &[Turn], turn: &Turn) -> usize {
    let meanwhile = before.iter().rev().take_while(|other| other.granted > turn.began);
    meanwhile.filter(|other| other.began > turn.began + PLACE_KNOWN.as_nanos() as u64).count()
}

fn sorted(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values
}

/// The difference from which waits have an order: a request takes a round trip, and processes share
/// the cores.
pub const PLACE_KNOWN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn turn(process: usize, began: u64, granted: u64, released: u64) -> Turn {
        Turn { process, began: began * MS, granted: granted * MS, released: released * MS }
    }

    #[test]
    fn a_hand_off_needs_another_process_that_waits() {
        let turns = [turn(0, 0, 1, 5), turn(1, 2, 7, 9), turn(1, 9, 10, 12), turn(0, 13, 14, 15)];
        assert_eq!(gaps(&turns), [MS, 2 * MS, 2 * MS]);
        assert_eq!(hand_offs(&turns, Span::ALWAYS), [2 * MS]);
        assert!(hand_offs(&turns, Span { begin: 6 * MS, end: 20 * MS }).is_empty());
    }

    #[test]
    fn a_free_lock_is_idle_only_while_a_process_waits() {
        let waiting = [turn(0, 0, 0, 6), turn(1, 1, 8, 9)];
        assert_eq!(idle(&waiting, Span::ALWAYS), 0.25);
        let late = [turn(0, 0, 0, 6), turn(1, 7, 8, 9)];
        assert_eq!(idle(&late, Span::ALWAYS), 0.125);
        let behind = [turn(0, 0, 0, 6), turn(1, 7, 8, 9), turn(2, 1, 10, 11)];
        assert_eq!(idle(&behind, Span::ALWAYS), 0.3);
        assert_eq!(idle(&waiting, Span { begin: MS, end: 9 * MS }), 0.0);
    }

    #[test]
    fn a_process_that_began_later_and_gets_a_turn_earlier_has_overtaken() {
        let turns = [turn(0, 0, 1, 2), turn(0, 5, 6, 7), turn(0, 8, 9, 10), turn(1, 1, 11, 12)];
        let order = order(&turns, Span::ALWAYS, 3);
        assert_eq!((order.passed, order.most, order.kept), (0.25, 2, 0.5));
        assert_eq!((order.of_one, order.longest), ((0, 3), 10.0 / 3.25));
    }

    #[test]
    fn waits_of_one_moment_have_no_order() {
        let turns = [turn(0, 2, 4, 5), turn(1, 1, 6, 7)];
        assert_eq!(order(&turns, Span::ALWAYS, 2).most, 0);
        let nothing = order(&[], Span::ALWAYS, 2);
        assert_eq!((nothing.passed, nothing.longest, nothing.of_one), (0.0, 0.0, (0, 0)));
    }
}
