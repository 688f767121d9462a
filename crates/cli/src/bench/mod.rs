//! `redbolt bench`: how fast the user's own nodes grant and release locks.
//!
//! | file | part |
//! |---|---|
//! | [`production`] | whether the nodes seem to be in use |
//! | [`load`], [`lanes`] | taking and releasing locks, and the locks in flight |
//! | [`figures`] | what was measured |
//! | [`report`], [`draw`], [`progress`] | the report, its histogram, and a line meanwhile |
//!
//! This file connects these parts and chooses the exit status. Comparisons with other libraries are
//! in `benches`.

mod draw;
mod figures;
mod lanes;
mod load;
mod production;
mod progress;
mod report;

use redbolt::proto::restart_guard::Found;
use redbolt::{
    Config,
    report::{NodeReport, NodeState, NodeStatus, RestartGuardState},
};

use self::figures::Figures;
use self::load::Load;
use self::production::Sign;
use self::progress::Progress;
use self::report::Report;
use crate::args::{BenchArgs, Nodes};
use crate::exit::{self, Failure};
use crate::say::{json_line, print, say};
use crate::signals::{Signals, die_of};
use crate::{init, nodes};

/// Measures the nodes of `args`. Returns the exit status.
pub(crate) fn run(args: &BenchArgs) -> Result<u8, Failure> {
    let config = config(args)?;
    let told = production::look(&args.nodes, &config);
    let signs = production::signs(&told);
    consent(args, &signs)?;

    let mut load = Load::new(config, Signals::block()?)?;
    let ready = match load.connect()? {
        Ok(report) => report,
        Err(signal) => return Ok(die_of(signal.as_raw())),
    };
    check_quorum(&args.nodes, &load, &ready)?;
    if signs.is_empty() {
        consent(args, &production::silent(&told, &ready))?;
    }
    tell_absent(&ready);

    let progress = Progress::begin(args);
    let figures = load.run(args, &progress);
    drop(progress);
    let (figures, unconfirmed) = (figures?, !load.let_go()?);
    let report = Report { args, figures: &figures, load: &load };
    let text = if args.json { json_line(&report.as_json()) } else { report.as_text() };
    print(&text)?;
    if unconfirmed {
        say(UNCONFIRMED);
    }
    status(&figures)
}

/// Builds a configuration that writes no restart guard.
fn config(args: &BenchArgs) -> Result<Config, Failure> {
    let builder = nodes::builder(&args.nodes)?.client_name(b"redbolt-bench");
    let builder = builder.busy_poll(args.busy_poll);
    nodes::build(builder.restart_guard(args.restart_guard.into()).read_only(), &args.nodes)
}

/// Refuses nodes that seem to be in use, unless `--yes` is given: load would harm their users.
fn consent(args: &BenchArgs, signs: &[Sign]) -> Result<(), Failure> {
    if signs.is_empty() {
        return Ok(());
    }
    let lines: String = signs.iter().map(|sign| format!("{sign}\n")).collect();
    if args.yes {
        say(format_args!("warning: these nodes look as if they were in use\n{lines}"));
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "these nodes look as if they were in use: nothing was done\n{lines}{CONSENT}{}",
        nodes::command("bench --yes", &args.nodes)
    )))
}

fn check_quorum(nodes: &Nodes, load: &Load, ready: &NodeReport) -> Result<(), Failure> {
    if ready.has_quorum() {
        return Ok(());
    }
    let head = format!("too few nodes can vote, {} needed", load.config().quorum());
    let text = ready.nodes.iter().fold(head, |text, node| format!("{text}\n{}", line(node)));
    let found = |node: &NodeStatus| match node.restart_guard {
        RestartGuardState::Found(found) | RestartGuardState::Quarantined { found, .. } => {
            Some(found)
        }
        _ => None,
    };
    let has_other_limits = |node| matches!(found(node), Some(Found::OtherLimits { .. }));
    let hint = if ready.nodes.iter().any(has_other_limits) {
        OTHER_LIMITS.to_owned()
    } else if ready.is_new() {
        format!("{NEW}{}", nodes::init_command(nodes))
    } else if ready.nodes.iter().any(|node| found(node).is_some()) {
        NO_GUARDS.to_owned()
    } else {
        String::new()
    };
    Err(Failure::no_quorum(format_args!("{text}\n{hint}")))
}

/// Describes whether the node votes, regardless of its restart guard.
fn line(node: &NodeStatus) -> String {
    match node.restart_guard {
        RestartGuardState::Votes | RestartGuardState::Off => node.to_string(),
        _ => init::line(node),
    }
}

/// A quorum is enough to measure, but missing nodes are reported.
fn tell_absent(ready: &NodeReport) {
    let absent = ready.nodes.iter().filter(|node| node.state != NodeState::Ready);
    absent.for_each(|node| say(format_args!("warning: without {}", line(node))));
}

fn status(figures: &Figures) -> Result<u8, Failure> {
    match figures.interrupted {
        Some(signal) => Ok(die_of(signal.as_raw())),
        None if figures.pair.is_empty() => Err(Failure::no_quorum(NOTHING)),
        None => Ok(exit::SUCCESS),
    }
}

const CONSENT: &str =
    "bench would put load on them, with keys that only it uses; to do it all the same: ";

const NEW: &str = "if these nodes are new and never held a lock: ";

const OTHER_LIMITS: &str = "all who use these nodes must name all of them, and the same --max-ttl";

const NO_GUARDS: &str = "bench writes no restart guards: a node gets one from the first lock that is asked for, and votes \
    --max-ttl later";

const NOTHING: &str = "no lock was granted and released, so nothing was measured";

const UNCONFIRMED: &str = "warning: not every node confirmed the last releases; what is left there ends \
    with its TTL";
