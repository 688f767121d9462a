//! Chaos tests on real servers: redbolt's promises are checked while servers are killed,
//! connections are lost and processes are stopped.
//!
//! Apart from the tests of the library because each of these programs runs for minutes, in several
//! processes, and ends with figures; `cargo test` runs a bounded share of each. A
//! [`ledger`](crate::Ledger) that does not use redbolt decides whether a promise was kept: it
//! compares the moments and numbers that processes report. Each program has a control, a run
//! without the protection, in which the same check has to find violations.
//!
//! Not here: schedules in virtual time, see the simulator; starting and breaking servers, see
//! `redbolt-test-servers`.

#![deny(missing_docs, unsafe_code)]

mod auto_extended;
mod auto_extension;
mod clock;
mod commands;
mod fencing;
mod ghosts;
mod leaders;
mod ledger;
mod line;
mod nodes;
mod pauses;
mod places;
mod register;
mod restarts;
mod storm;
mod wire;
mod witness;
mod work;
mod worker;

use std::error::Error;
use std::path::PathBuf;

pub use auto_extension::{AutoExtension, AutoExtensionResult};
pub use commands::{Commands, CommandsResult, SignalStorm, SignalStormResult};
pub use fencing::{Fencing, FencingResult};
pub use ghosts::{Ghosts, GhostsResult};
pub use leaders::{Leaders, LeadersResult};
pub use ledger::{Claim, Ledger};
pub use line::{Line, LineResult};
pub use pauses::{Pauses, PausesResult};
pub use restarts::{Restarts, RestartsResult};
pub use storm::{Prize, Storm, StormResult};
pub use work::{Part, Role, serve};

/// Why a program could not run to its end. Such a run proves nothing and refutes nothing.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What every program needs.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The program `chaos`, which runs again as each of the worker processes.
    pub program: PathBuf,
    /// The seed of all random choices. The same seed makes the same choices, but processes and
    /// servers are not deterministic.
    pub seed: u64,
}

/// The one resource that all processes compete for.
pub(crate) const RESOURCE: &str = "job";
