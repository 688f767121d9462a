//! What nodes cost that hang: those who want one lock take turns, with all nodes alive and with a minority
//! that hangs, in virtual time and with the library's own timeouts.
//!
//! It must cost next to nothing. Nothing is late in this network by more than some jitter: where all nodes that
//! are left have to grant, whatever is late counts, which no client can help. No single schedule can show
//! that, so it is measured, beside `waiting` and with its means. Not here: that nothing unsafe comes of it,
//! which the schedules see to.

use std::fmt;

use redbolt::proto::WakeStrategy;

use crate::invariant::Violation;
use crate::waiting::{Crowd, Hang, Measured, Shown};

/// The same crowd twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    wake: WakeStrategy,
    nodes: usize,
    waiters: usize,
    grants: usize,
    how: Hang,
}

/// What came of both.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    alive: Measured,
    hung: Measured,
}

impl Pair {
    /// Enough to see what a bug costs: they all ask at once, and so there are many split votes. Whoever
    /// listens to a node when it begins to hang finds out at a timer, seconds later, and until then one
    /// process has the lock to itself. So most of the grants have to be later.
    pub(crate) const QUICK: Self =
        Self { wake: WakeStrategy::All, nodes: 3, waiters: 8, grants: 1_500, how: Hang::Stopped };

    /// All that are shown.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let crowds = [
            (WakeStrategy::Lead, 2),
            (WakeStrategy::Lead, 8),
            (WakeStrategy::Lead, 32),
            (WakeStrategy::All, 8),
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

    /// Lets them take turns.
    pub(crate) fn measure(self, seed: u64) -> Compared {
        let Self { wake, nodes, waiters, grants, how } = self;
        let crowd = |hung| Crowd { wake, nodes, waiters, grants, hung, how, tail: 0 };
        Compared { alive: crowd(0).measure(seed), hung: crowd((nodes - 1) / 2).measure(seed) }
    }
}

impl Compared {
    /// That it costs too much, or that the nodes which hang are asked in vain again and again.
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.dragged().or_else(|| self.piled())
    }

    /// Where all ask at once, votes are split more often when fewer nodes are left, so that single hand-offs
    /// may take longer.
    fn dragged(&self) -> Option<Violation> {
        let (all, hand_off) = self.ratios();
        let is_slow = self.hung.crowd.wake == WakeStrategy::Lead && hand_off > TARGET;
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

    /// Of the time that all turns took, and of the slowest hundredth of hand-offs.
    fn ratios(&self) -> (f64, f64) {
        let each = |of: &Measured| of.took as f64 / of.grants.max(1) as f64;
        let p99 = |of: &Measured| Shown(&of.hand_offs).share(990);
        (each(&self.hung) / each(&self.alive), p99(&self.hung) / p99(&self.alive))
    }
}

/// The head of a table of [`Compared`].
pub(crate) const HEAD: &str = "\
| N | waiters | wake | nodes that hang | granted beside them | hand-off p50 / p99 with all alive, ms | the same with them, ms | p99 | time |
|---|---|---|---|---|---|---|--:|--:|";

/// A line of a table.
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

/// So many times as long it may take.
const TARGET: f64 = 1.2;

/// So many asks a lock may send to a node that hangs: one at a time, and some before it is suspected.
const OPEN_ASKS: u64 = 4;

/// So many times the lock is had in each measurement.
const GRANTS: usize = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_hang_cost_next_to_nothing() {
        for (wake, nodes, how) in [
            (WakeStrategy::All, 3, Hang::Stopped),
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
