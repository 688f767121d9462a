//! Checks whether the clocks of the nodes and of this host agree.
//!
//! A TTL is a duration, so locks tolerate clocks that differ. Fencing tokens are derived from the
//! time, and a node refuses those that are too far from its own.

use std::time::Duration;

use redbolt::proto::fence::MAX_SKEW;

use super::subject::Subject;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::duration::show;

pub(super) fn clock(facts: &Facts) -> Finding {
    let Some(offset) = facts.clock else {
        return Finding::skip(CLOCK, "The user may not run TIME, so the clock is not known.");
    };
    let why = format!("The node's clock is {}.", offset.in_words("this host's"));
    judge(CLOCK, why, offset.at_least())
}

/// Compares the two clocks that are furthest apart.
pub(super) fn between_nodes(subjects: &[Subject<'_>]) -> Finding {
    let clocks = subjects.iter().filter_map(|of| Some((of.status.number, of.facts.clock?)));
    let clocks: Vec<_> = clocks.collect();
    let pairs = clocks.iter().flat_map(|one| clocks.iter().map(move |other| (one, other)));
    let ahead = pairs.filter(|(one, other)| one.0 != other.0);
    let furthest = ahead.max_by_key(|(one, other)| one.1.ahead_us.saturating_sub(other.1.ahead_us));
    let Some((one, other)) = furthest else {
        return Finding::skip(CLOCKS, "Fewer than two nodes tell the time.");
    };
    let apart = one.1.from(other.1);
    let other = format!("that of node {}", other.0);
    let why = format!("The clock of node {} is {}.", one.0, apart.in_words(&other));
    judge(CLOCKS, why, apart.at_least())
}

fn judge(check: &'static str, why: String, apart: Duration) -> Finding {
    if apart > MAX_SKEW {
        let limit = show(MAX_SKEW);
        return Finding::fail(
            check,
            why,
            format!("Run a time service on both: with more than {limit} no lock gets a token."),
        );
    }
    if apart > NOTABLE {
        return Finding::warn(check, why, "Run a time service on both, such as chrony.");
    }
    Finding::pass(check, why)
}

const CLOCK: &str = "clock";
const CLOCKS: &str = "clocks";

/// The smallest difference that is reported, larger than a time service leaves.
const NOTABLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::clock::Offset;
    use crate::doctor::finding::Outcome;

    #[test]
    fn a_clock_is_judged_by_what_is_certain() {
        let of = |ahead_us, error_us| {
            let clock = Some(Offset { ahead_us, error_us });
            clock_of(Facts { clock, ..Facts::default() })
        };
        assert_eq!(of(900_000, 50), Outcome::Pass);
        assert_eq!(of(-120_000_000, 50), Outcome::Fail);
        assert_eq!(of(1_200_000, 50), Outcome::Warn);
        assert_eq!(of(1_200_000, 300_000), Outcome::Pass);
        assert_eq!(clock_of(Facts::default()), Outcome::Skip);
    }

    fn clock_of(facts: Facts) -> Outcome {
        clock(&facts).outcome
    }
}
