//! Setting up the guards of a set of nodes: once in its life, or when its limits change.
//!
//! Apart from `client` because it is an operator's act, and one that no program may do at each start:
//! nodes that are called new are believed to have granted nothing. Not here: what is written when, see
//! [`Setup`].

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use super::config::Config;
use super::driver::Driver;
use super::report::NodeReport;
use crate::proto::guard::Found;
use crate::proto::{NodeGuard, NodeState, Setup};

/// Says that these nodes are new: none of them ever granted a lock, so that they can vote at once.
///
/// Run it once in the life of a set of nodes, with the `max_ttl` that all its clients have; never in a
/// start script. A node that lost its memory in a restart looks new too, and would be believed.
///
/// # Errors
///
/// A node votes already, or has another guard, or was not reached within `within`. Nothing was written
/// then, except in [`SetupError::Incomplete`].
pub fn init(config: &Config, within: Duration) -> Result<NodeReport, SetupError> {
    set_up(config, Setup::Init, within)
}

/// Moves a set of nodes to another `max_ttl`, or to another number of nodes.
///
/// All clients have to be told the new values as well. No node votes until the larger of both
/// `max_ttl` is over, and all other connections to the nodes are closed, for clients read the guard
/// when they connect. Nodes that carry the new values already are left alone, so that it can be run
/// again: do so until it succeeds, because with some nodes moved and some not the old clients and the
/// new ones might both find a quorum.
///
/// # Errors
///
/// A node was not reached within `within`, or its guard cannot be read. Nothing was written then,
/// except in [`SetupError::Incomplete`].
pub fn init_change(config: &Config, within: Duration) -> Result<NodeReport, SetupError> {
    set_up(config, Setup::Change, within)
}

fn set_up(config: &Config, setup: Setup, within: Duration) -> Result<NodeReport, SetupError> {
    let mut driver = Driver::new(config.with_setup(setup))?;
    let until = Instant::now() + within;
    driver.connect();
    loop {
        let report = driver.nodes();
        let left = until.saturating_duration_since(Instant::now());
        match progress(&report, setup, driver.has_set_up()) {
            Progress::Done => return Ok(report),
            Progress::Guarded => return Err(SetupError::Guarded(report)),
            Progress::Open if left.is_zero() => {
                return Err(match driver.has_set_up() {
                    true => SetupError::Incomplete(report),
                    false => SetupError::Unready(report),
                });
            }
            Progress::Open => {
                let wait = driver.deadline().map_or(left, |deadline| deadline.min(left));
                driver.wait(Some(wait));
            }
        }
    }
}

enum Progress {
    Done,
    /// There are guards where there must be none.
    Guarded,
    Open,
}

fn progress(report: &NodeReport, setup: Setup, written: bool) -> Progress {
    let guards = || report.nodes.iter().map(|node| (node.guard, node.state));
    let is_ours = |guard| matches!(guard, NodeGuard::Votes | NodeGuard::Quarantined { .. });
    let has_another = |(guard, state)| match guard {
        NodeGuard::Found(Found::Missing) => false,
        NodeGuard::Found(_) => state != NodeState::Connecting,
        guard => guard == NodeGuard::Votes,
    };
    let is_init = setup == Setup::Init;
    if guards().all(|(guard, _)| is_ours(guard)) && (written || !is_init) {
        Progress::Done
    } else if is_init && !written && guards().any(has_another) {
        Progress::Guarded
    } else {
        Progress::Open
    }
}

/// Why the guards of a set were not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// A node votes, or has another guard: the set is not new.
    Guarded(NodeReport),
    /// Guards were written, and not all nodes confirmed theirs in time.
    Incomplete(NodeReport),
    /// The system has no file descriptors left.
    Io(io::Error),
    /// Not all nodes could be asked in time, or one cannot be set up.
    Unready(NodeReport),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guarded(report) => {
                f.write_str("not new: a node votes or has another guard; nothing was written")?;
                guards(report, f)
            }
            Self::Incomplete(report) => {
                f.write_str("incomplete: not every node has confirmed its guard")?;
                guards(report, f)
            }
            Self::Io(error) => error.fmt(f),
            Self::Unready(report) => {
                f.write_str("not all nodes can be set up; nothing was written")?;
                guards(report, f)
            }
        }
    }
}

fn guards(report: &NodeReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for node in &report.nodes {
        match node.guard {
            NodeGuard::Unknown | NodeGuard::Off => write!(f, "; {node}")?,
            guard => write!(f, "; node {} {}: {guard}", node.number, node.address)?,
        }
    }
    Ok(())
}

impl Error for SetupError {}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
