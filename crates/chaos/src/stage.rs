//! The common arguments of all programs, and their failures.

use std::error::Error;
use std::path::PathBuf;

/// The reason why a program could not run to its end. Such a run proves nothing and refutes
/// nothing.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The arguments that every program needs.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The program `chaos`, which runs again as each of the worker processes.
    pub program: PathBuf,
    /// The seed of all random choices. The same seed makes the same choices, but processes and
    /// servers are not deterministic.
    pub seed: u64,
}

/// The one resource for which all processes compete.
pub(crate) const RESOURCE: &str = "job";
