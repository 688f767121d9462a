//! The worth of another library's channel: a crowd takes turns on one lock of that library's
//! format, on a node that sends no notifications, so that only the messages of releases end a pause
//! before its timer.
//!
//! A waiter that misses them is granted later. Slowness is not a violation in a single schedule, so
//! it is measured, with the means of `waiting`. The class `profiles` checks that schedules are safe
//! with messages that are late, lost and forbidden.

use redbolt::proto::WakeStrategy;

use crate::invariant::Violation;
use crate::waiting::{Crowd, Hang, Measured, Teller};

/// Two processes: one waits for the other, and no third one requests in between.
const CROWD: Crowd = Crowd {
    wake: WakeStrategy::Lead,
    nodes: 1,
    waiters: 2,
    grants: 400,
    hung: 0,
    how: Hang::Stopped,
    tail: 0,
    reported: Teller::ByLibrary,
};

/// Runs the measurement.
pub(crate) fn measure(seed: u64) -> Measured {
    CROWD.measure(seed)
}

/// Returns the violation, if a waiter gets too few grants. The process that has just released
/// requests again at once.
pub(crate) fn violation(measured: &Measured) -> Option<Violation> {
    let Measured { grants, crowd: Crowd { waiters, .. }, shares: (fewest, _), .. } = *measured;
    (fewest < grants / waiters / 4).then_some(Violation::Deaf { fewest, grants })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::Shown;

    /// The result matches nodes that send notifications, with about as many requests. The control
    /// is a planted bug, `ChannelIgnored`.
    #[test]
    fn a_release_is_received_when_nodes_report_nothing() {
        for waiters in [2, 8] {
            let published = Crowd { waiters, ..CROWD }.measure(1);
            let counted = (published.grants, violation(&published));
            assert_eq!(counted, (CROWD.grants, None), "{published}");
            let reported = Crowd { waiters, reported: Teller::ByNodes, ..CROWD }.measure(1);
            assert!(published.full * 3 <= reported.full * 4, "{published}\n{reported}");
            let p99 = |of: &Measured| Shown(&of.hand_offs).share(990);
            assert!(p99(&published) < 1.0, "{published}\n{reported}");
        }
    }
}
