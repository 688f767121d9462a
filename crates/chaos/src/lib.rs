//! Proofs on real servers: what redbolt promises, while servers are killed, connections are lost and
//! processes are stopped.
//!
//! Apart from the tests of the library because each of these programs runs for minutes, in several
//! processes, and ends with numbers; `cargo test` runs a bounded share of each. Whether a promise was
//! kept is decided by a [`ledger`](crate::Ledger) that has never heard of redbolt: it compares moments and
//! numbers that processes report. Each program has a control, a run in which the protection is
//! switched off and the same check has to find what goes wrong.
//!
//! Not here: schedules in virtual time, see the simulator; how servers are started and broken, see
//! `redbolt-test-servers`.

#![deny(missing_docs, unsafe_code)]

mod auto_extended;
mod auto_extension;
mod clock;
mod commands;
mod fencing;
mod ghosts;
mod ledger;
mod nodes;
mod pauses;
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
pub use commands::{Commands, CommandsResult};
pub use fencing::{Fencing, FencingResult};
pub use ghosts::{Ghosts, GhostsResult};
pub use ledger::{Claim, Ledger};
pub use pauses::{Pauses, PausesResult};
pub use restarts::{Restarts, RestartsResult};
pub use storm::{Storm, StormResult};
pub use work::{Part, Role, serve};

/// Why a program could not be run to its end. Nothing was proven then, and nothing refuted.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What every program needs to know.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The program `chaos`, which is started again for each of the processes that take locks.
    pub program: PathBuf,
    /// Where all random choices come from. The same seed makes the same choices, but processes and
    /// servers run as they like.
    pub seed: u64,
}

/// The one resource that everybody wants.
pub(crate) const RESOURCE: &str = "job";
