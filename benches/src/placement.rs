//! The cores of the client and of the nodes.
//!
//! They decide everything on a small machine: a wake-up on the same core costs a fraction of one
//! that crosses cores. Figures of different placements are not comparable.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};
use redbolt_test_servers::Server;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of client and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All run on the same core.
    OneCore,
    /// The client runs on one core, the nodes on the others.
    Split,
    /// The kernel schedules them.
    Unpinned,
}

impl Placement {
    /// All placements, with their names on the command line.
    pub const ALL: [(&'static str, Self); 3] =
        [("one-core", Self::OneCore), ("split", Self::Split), ("unpinned", Self::Unpinned)];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one-core",
            Self::Split => "split",
            Self::Unpinned => "unpinned",
        }
    }

    /// Sets the affinity of this thread, of those that it will start, and of the nodes, on the
    /// `usable` cores. Returns a description.
    ///
    /// # Errors
    ///
    /// There are too few cores, or the system does not permit it.
    pub fn apply(self, usable: &[usize], servers: &[Server]) -> Result<String> {
        let (client, nodes) = match self {
            Self::OneCore => (&usable[usable.len() - 1..], &usable[usable.len() - 1..]),
            Self::Split => {
                ensure!(usable.len() > 1, "split needs two cores, and there is one");
                usable.split_at(1)
            }
            Self::Unpinned => (usable, usable),
        };
        sched_setaffinity(None, &set(client))?;
        for server in servers {
            sched_setaffinity(Some(pid(server)), &set(nodes))?;
        }
        Ok(match self {
            Self::Unpinned => format!("all on any of {} cores", usable.len()),
            _ => format!("client on core {}, nodes on core {}", list(client), list(nodes)),
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|&(_, placement)| placement).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|(known, _)| *known).collect();
            format!("one of {}", known.join(", "))
        })
    }
}

/// Returns the cores that this thread may run on. Call this before any affinity is set.
///
/// # Errors
///
/// The system does not report them.
pub fn usable_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the id of the main thread, on which Redis runs commands.
fn pid(server: &Server) -> Pid {
    // A process id fits, and is never zero.
    Pid::from_raw(server.pid() as i32).expect("a running server has a process id")
}

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    set
}
