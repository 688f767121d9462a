//! Setup of the restart guards of a set of nodes: once in its life, or when its limits change.
//!
//! Only an operator may decide it, and no program may do it at each start: nodes that are declared
//! new are trusted to have granted nothing. See [`Setup`] for what is written when.

use std::fmt;
use std::time::{Duration, Instant};

use super::client::Client;
use super::config::Config;
use super::driver::{Driver, instant_in};
use super::report::{NodeReport, NodeStatus};
use super::start::StartError;
use crate::proto::restart_guard::Found;
use crate::proto::{Cause, NodeState, RestartGuard, RestartGuardState, Setup, messages, sources};

/// Declares these nodes new: none of them has ever granted a lock, so they can vote at once.
///
/// Run it once in the life of a set of nodes, with the `max_ttl` that all its clients have. Never
/// run it in a start script: see [new nodes](crate::manual::restart_guard#new-nodes).
///
/// ```no_run
/// use std::time::Duration;
///
/// let config = redbolt::Config::builder()
///     .node("10.0.0.1").node("10.0.0.2").node("10.0.0.3")
///     .build()?;
/// println!("{}", redbolt::init(&config, Duration::from_secs(5))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// A node votes already, has another restart guard, or was not reached within `within`. Nothing was
/// written then, except for [`SetupError::Incomplete`].
pub fn init(config: &Config, within: Duration) -> Result<NodeReport, SetupError> {
    set_up(config, Setup::Init, within)
}

/// Changes the `max_ttl` of a set of nodes, or the number of its nodes.
///
/// `config` has the new values. All clients need them too, and are refused until they have them.
/// Run it again until it succeeds. Read [one set, one
/// configuration](crate::manual::restart_guard#one-set-one-configuration) first: some changes need
/// nodes to be stopped before, or kept up after.
///
/// # Errors
///
/// A node was not reached within `within`, its restart guard cannot be read, or the user may not
/// run `CLIENT KILL`. Nothing was written then, except for [`SetupError::Incomplete`].
pub fn init_change(config: &Config, within: Duration) -> Result<NodeReport, SetupError> {
    set_up(config, Setup::Change, within)
}

fn set_up(config: &Config, setup: Setup, within: Duration) -> Result<NodeReport, SetupError> {
    if config.settings().restart_guard == RestartGuard::Off {
        return Err(SetupError::RestartGuardOff);
    }
    let mut driver = Driver::new(config.with_setup(setup))?;
    let until = instant_in(within);
    driver.connect();
    let mut failures = vec![None; config.node_count()];
    loop {
        let mut report = driver.node_report();
        note_failures(&report, &mut failures);
        let left = until.saturating_duration_since(Instant::now());
        match progress(&report, setup, driver.sockets.core().has_set_up()) {
            SetupProgress::Done => return Ok(report),
            SetupProgress::Guarded => {
                // Its connections may still write restart guards, so it is closed first.
                drop(driver);
                return Err(SetupError::Guarded(inspect_the_rest(config, report, left)));
            }
            SetupProgress::Open
                if left.is_zero()
                    || !driver.sockets.core().has_set_up() && is_hopeless(&report, &failures) =>
            {
                recall_failures(&mut report, failures);
                return Err(match driver.sockets.core().has_set_up() {
                    true => SetupError::Incomplete(report),
                    false => SetupError::Unready(report),
                });
            }
            SetupProgress::Open => driver.wait_at_most(left),
        }
    }
}

/// Queries the nodes that have not answered, so that the report covers all although one node is
/// enough to refuse. These connections write nothing: a restart guard that vanishes in the meantime
/// does not make a set new.
fn inspect_the_rest(config: &Config, mut report: NodeReport, within: Duration) -> NodeReport {
    let is_open = |node: &NodeStatus| {
        node.restart_guard == RestartGuardState::Unknown && node.state == NodeState::Connecting
    };
    if report.nodes.iter().any(is_open)
        && let Ok(client) = Client::new(config.with_setup(Setup::ReadOnly))
    {
        let seen = client.warm_up(within).nodes;
        let open = report.nodes.iter_mut().zip(seen).filter(|(node, _)| is_open(node));
        open.for_each(|(node, seen)| *node = seen);
    }
    report
}

/// Stores the last failure of each node. Links are reopened repeatedly, so a failed node is "still
/// connecting" most of the time.
fn note_failures(report: &NodeReport, failures: &mut [Option<NodeStatus>]) {
    for (node, failure) in report.nodes.iter().zip(failures) {
        match node.state {
            NodeState::Down(Cause::Quarantined) | NodeState::Connecting => {}
            NodeState::Down(_) => *failure = Some(node.clone()),
            _ => *failure = None,
        }
    }
}

/// Restores the failure of each node that is not connected, or that only an operator can fix.
fn recall_failures(report: &mut NodeReport, failures: Vec<Option<NodeStatus>>) {
    for (node, failure) in report.nodes.iter_mut().zip(failures) {
        let Some(failure) = failure else { continue };
        let lasts = matches!(failure.state, NodeState::Down(cause) if cause.is_configuration());
        if lasts || node.state == NodeState::Connecting {
            *node = failure;
        }
    }
}

/// Returns whether only an operator can fix some node and all others have answered.
fn is_hopeless(report: &NodeReport, failures: &[Option<NodeStatus>]) -> bool {
    let lasts = |failure: &NodeStatus| matches!(failure.state, NodeState::Down(cause) if cause.is_configuration());
    let has_answered = |(node, failure): (&NodeStatus, &Option<NodeStatus>)| {
        failure.is_some() || node.restart_guard != RestartGuardState::Unknown
    };
    failures.iter().flatten().any(lasts) && report.nodes.iter().zip(failures).all(has_answered)
}

enum SetupProgress {
    Done,
    /// Restart guards exist where there must be none.
    Guarded,
    Open,
}

fn progress(report: &NodeReport, setup: Setup, written: bool) -> SetupProgress {
    let restart_guards = || report.nodes.iter().map(|node| (node.restart_guard, node.state));
    let is_ours = |restart_guard| {
        matches!(restart_guard, RestartGuardState::Votes | RestartGuardState::Quarantined { .. })
    };
    let has_another = |(restart_guard, state)| match restart_guard {
        RestartGuardState::Found(Found::Missing) => false,
        RestartGuardState::Found(_) => state != NodeState::Connecting,
        restart_guard => restart_guard == RestartGuardState::Votes,
    };
    let is_init = setup == Setup::Init;
    if restart_guards().all(|(restart_guard, _)| is_ours(restart_guard)) && (written || !is_init) {
        SetupProgress::Done
    } else if is_init && !written && restart_guards().any(has_another) {
        SetupProgress::Guarded
    } else {
        SetupProgress::Open
    }
}

messages! {
    /// A reason why the restart guards of a set were not written.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum SetupError {
        /// The restart guard is off in the configuration.
        RestartGuardOff: "the restart guard is off: there is nothing to set up",
        /// A node votes, or has another restart guard: the set is not new. The other nodes were
        /// queried too, so the report shows the state of each that answered in time.
        Guarded(report: NodeReport): "not new: a node votes or has another restart guard; nothing was written{}"
            with (RestartGuards(report)),
        /// Restart guards were written, and not all nodes confirmed theirs in time.
        Incomplete(report: NodeReport): "incomplete: not every node has confirmed its restart guard{}"
            with (RestartGuards(report)),
        /// No connection could be started.
        Start(error: StartError): "{error}",
        /// Not all nodes could be queried in time, or one cannot be set up.
        Unready(report: NodeReport): "not all nodes can be set up; nothing was written{}"
            with (RestartGuards(report)),
    }
}

struct RestartGuards<'r>(&'r NodeReport);

impl fmt::Display for RestartGuards<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.nodes.iter().try_for_each(|node| match (node.restart_guard, node.state) {
            (restart_guard, NodeState::Ready | NodeState::Down(Cause::Quarantined)) => {
                write!(f, "; node {} {}: {restart_guard}", node.number, node.address)
            }
            _ => write!(f, "; {node}"),
        })
    }
}

sources! { SetupError: Start; from Start(StartError) }
