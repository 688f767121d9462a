//! `redbolt status --wait`: waits until enough nodes vote.
//!
//! The quarantine of a restarted node begins when a client that takes locks connects to it. So the
//! client here is such a client, unlike that of a status without `--wait`: it writes restart guards
//! that are missing or of an earlier run.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    Client,
    report::{NodeReport, NodeState, NodeStatus},
};

use super::nodes;
use crate::args::{StatusArgs, VotersOrTime};
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::say::say;

/// The nodes that must vote, and the longest wait for them.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Whether all nodes must vote, and not only a quorum.
    all: bool,
    within: Option<Duration>,
}

impl Wanted {
    /// Parses the words after `--wait`. Returns `None` if there are none.
    pub(super) fn of(words: &[VotersOrTime]) -> Result<Option<Self>, Failure> {
        let (all, within) = match *words {
            [] => return Ok(None),
            [VotersOrTime::All] => (true, None),
            [VotersOrTime::Quorum] => (false, None),
            [VotersOrTime::All, VotersOrTime::Time(time)] => (true, Some(time)),
            [VotersOrTime::Quorum, VotersOrTime::Time(time)] => (false, Some(time)),
            _ => {
                return Err(Failure::usage(
                    "--wait: first `all` or `quorum`, then the longest time",
                ));
            }
        };
        Ok(Some(Self { all, within }))
    }

    /// Returns how many nodes must vote.
    fn voters(&self, report: &NodeReport) -> usize {
        if self.all { report.nodes.len() } else { report.quorum() }
    }

    fn is_met(&self, report: &NodeReport) -> bool {
        report.ready() >= self.voters(report)
    }

    /// Returns whether the nodes that do not need an operator are too few.
    fn is_hopeless(&self, report: &NodeReport) -> bool {
        let needs_operator = |node: &&NodeStatus| matches!(node.state, NodeState::Down(cause) if cause.is_configuration());
        let lost = report.nodes.iter().filter(needs_operator).count();
        report.nodes.len() - lost < self.voters(report)
    }
}

/// Waits, and prints the nodes. The exit status says whether enough of them vote.
pub(super) fn run(client: &Client, args: &StatusArgs, wanted: &Wanted) -> Result<u8, Failure> {
    let since = Instant::now();
    let mut said = BTreeMap::new();
    // A node may show something else while it starts, and a master while it fails over.
    let patience = client.config().settings().connect_timeout;
    let mut hopeless_since = None;
    loop {
        let left = wanted.within.map(|within| within.saturating_sub(since.elapsed()));
        let report = client.warm_up(left.map_or(TURN, |left| left.min(TURN)));
        if wanted.is_met(&report) {
            let (report, round_trips) = nodes::look(client)?;
            // A node may have ended since.
            if wanted.is_met(&report) {
                nodes::tell(args, &report, &round_trips)?;
                return Ok(exit::SUCCESS);
            }
        }
        hopeless_since = match wanted.is_hopeless(&report) {
            true => hopeless_since.or_else(|| Some(Instant::now())),
            false => None,
        };
        let is_hopeless = hopeless_since.is_some_and(|since: Instant| since.elapsed() >= patience);
        if is_hopeless || left.is_some_and(|left| left.is_zero()) {
            return give_up(args, wanted, &report, since.elapsed());
        }
        say_what_is_missing(&report, &mut said);
        thread::sleep(left.map_or(TURN, |left| left.min(TURN)));
    }
}

/// Prints what is known. A node that hangs is not asked again when the time has passed.
fn give_up(
    args: &StatusArgs,
    wanted: &Wanted,
    report: &NodeReport,
    waited: Duration,
) -> Result<u8, Failure> {
    nodes::tell(args, report, &[])?;
    let waited = show(wanted.within.map_or(waited, |within| within.min(waited)));
    let (ready, nodes, voters) = (report.ready(), report.nodes.len(), wanted.voters(report));
    say(format_args!("{ready} of {nodes} nodes vote after {waited}, {voters} must"));
    Ok(exit::NO_QUORUM)
}

/// Names each node that does not vote, and repeats it only for a different reason.
fn say_what_is_missing(report: &NodeReport, said: &mut BTreeMap<usize, NodeState>) {
    for (at, node) in report.nodes.iter().enumerate() {
        let is_telling = matches!(node.state, NodeState::Down(_));
        if is_telling && said.insert(at, node.state) != Some(node.state) {
            say(format_args!("waiting for {node}"));
        }
    }
}

/// The interval between looks.
const TURN: Duration = Duration::from_millis(100);
