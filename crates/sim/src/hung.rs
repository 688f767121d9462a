//! The cost of hanging nodes: a crowd takes turns on one lock, first with all nodes alive and then
//! with a minority that hangs, in virtual time and with the library's default timeouts.
//!
//! The cost must be next to nothing. This network has only some jitter and no late messages: if all
//! remaining nodes have to grant, every late message counts, and no client can help that. No single
//! schedule can show this cost, so it is measured with the means of `waiting`.

use std::fmt;

use redbolt::proto::WakeStrategy;

use crate::invariant::Violation;
use crate::waiting::{Crowd, Hang, Measured, Shown, Teller};

/// A pair of measurements of one crowd, with and without hanging nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    wake: WakeStrategy,
    nodes: usize,
    waiters: usize,
    grants: usize,
    how: Hang,
}

/// Both results.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    alive: Measured,
    hung: Measured,
}

impl Pair {
    /// Large enough to show the cost of a bug. Without notifications many votes are split. A
    /// process whose lead begins to hang notices that only at a timer, seconds later, and until
    /// then one process has the lock to itself, so most grants have to come after that.
    pub(crate) const QUICK: Self =
        Self { wake: WakeStrategy::Timer, nodes: 3, waiters: 8, grants: 1_500, how: Hang::Stopped };

    /// All pairs of the comparison.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let crowds = [
            (WakeStrategy::Lead, 2),
            (WakeStrategy::Lead, 8),
            (WakeStrategy::Lead, 32),
            (WakeStrategy::Queue, 8),
        ];
        let crowds = [3, 5].into_iter().flat_map(move |nodes| crowds.map(|crowd| (nodes, crowd)));
        crowds.flat_map(|(nodes, (wake, waiters))| {
            [Hang::Stopped, Hang::Blackholed].map(|how| Self {
                wake,
                nodes,
                waiters,
                grants: GRANTS,
                how,
            })
        })
    }

    /// Runs both measurements.
    pub(crate) fn measure(self, seed: u64) -> Compared {
        let Self { wake, nodes, waiters, grants, how } = self;
        let reported = Teller::ByNodes;
        let crowd = |hung| Crowd { wake, nodes, waiters, grants, hung, how, tail: 0, reported };
        Compared { alive: crowd(0).measure(seed), hung: crowd((nodes - 1) / 2).measure(seed) }
    }
}

impl Compared {
    /// Returns the violation, if hanging nodes cost too much or get request after request.
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.dragged().or_else(|| self.piled())
    }

    fn dragged(&self) -> Option<Violation> {
        let (all, hand_off) = self.ratios();
        let is_slow = hand_off > TARGET;
        let percent = |ratio: f64| (ratio * 100.0).round() as u64;
        let violation = Violation::Dragged {
            nodes: self.hung.crowd.nodes,
            percent: (percent(all), percent(hand_off)),
        };
        (all > TARGET || is_slow).then_some(violation)
    }

    fn piled(&self) -> Option<Violation> {
        let Measured { crowd: Crowd { hung, .. }, piled: asks, .. } = self.hung;
        (asks > hung as u64 * OPEN_ASKS).then_some(Violation::Piled { hung, asks })
    }

    /// Returns the ratios of the time per grant, and of the slowest hundredth of hand-offs.
    fn ratios(&self) -> (f64, f64) {
        let each = |of: &Measured| of.took as f64 / of.grants.max(1) as f64;
        let p99 = |of: &Measured| Shown(&of.hand_offs).share(990);
        (each(&self.hung) / each(&self.alive), p99(&self.hung) / p99(&self.alive))
    }
}

/// The header of a table of [`Compared`].
pub(crate) const HEAD: &str = "\
| N | waiters | wake | nodes that hang | granted with them | hand-off p50 / p99 with all alive, ms | the same with them, ms | p99 | time |
|---|---|---|---|---|---|---|--:|--:|";

/// A row of the table.
impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crowd { wake, nodes, waiters, hung, how, .. } = self.hung.crowd;
        let (alive, with) = (Shown(&self.alive.hand_offs), Shown(&self.hung.hand_offs));
        let (all, hand_off) = self.ratios();
        write!(
            f,
            "| {nodes} | {waiters} | {wake:?} | {hung} {} | {} of {waiters} ",
            format!("{how:?}").to_lowercase(),
            self.hung.rivals
        )?;
        write!(f, "| {:.2} / {:.2} ", alive.share(500), alive.share(990))?;
        write!(f, "| {:.2} / {:.2} ", with.share(500), with.share(990))?;
        write!(f, "| {hand_off:.2} | {all:.2} |")
    }
}

/// The largest allowed ratio.
const TARGET: f64 = 1.2;

/// The maximum number of requests of one lock to a hanging node: one at a time, and some before the
/// node is suspected.
const OPEN_ASKS: u64 = 4;

/// The number of grants in each measurement.
const GRANTS: usize = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_hang_cost_next_to_nothing() {
        for (wake, nodes, how) in [
            (WakeStrategy::Queue, 3, Hang::Stopped),
            (WakeStrategy::Lead, 3, Hang::Stopped),
            (WakeStrategy::Lead, 5, Hang::Blackholed),
        ] {
            let compared = Pair { wake, nodes, how, ..Pair::QUICK }.measure(1);
            assert_eq!(compared.hung.grants, Pair::QUICK.grants);
            assert!(compared.hung.rivals > Pair::QUICK.waiters / 2, "they compete");
            assert_eq!(compared.violation(), None, "{HEAD}\n{compared}");
        }
    }
}
