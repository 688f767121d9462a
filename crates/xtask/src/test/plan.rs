//! The share of the machine that each test takes.

use std::time::Duration;

/// The share of the machine that a test takes while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The test mostly waits: for leases, timeouts and other processes.
    Waits,
    /// The test keeps several processes busy for a part of its time.
    Mixed,
    /// The test computes: one for each core.
    Computes,
    /// The test counts or measures: nothing else runs meanwhile, and the simulator is stopped.
    Alone,
}

impl Weight {
    /// Returns the weight in units; a core has [`UNITS_OF_A_CORE`].
    pub(crate) fn units(self) -> usize {
        match self {
            Self::Waits => 1,
            Self::Mixed => UNITS_OF_A_CORE / 2,
            Self::Computes | Self::Alone => UNITS_OF_A_CORE,
        }
    }
}

/// Returns the expected duration of a test that has not run here before: tests that take long in
/// every run come first.
pub(crate) fn guess(name: &str) -> Duration {
    let found = LONG.iter().find(|(start, _)| name.starts_with(start));
    Duration::from_secs(found.map_or(1, |(_, seconds)| *seconds))
}

/// Tests that take many seconds, by the beginning of their full names.
const LONG: [(&str, u64); 14] = [
    ("redbolt-capi::programs secured::c_and_cpp", 100),
    ("redbolt::it wire::split_and_coalesced", 90),
    ("redbolt-benches::smoke", 80),
    ("redbolt net::tls::tests::bytes_pass", 60),
    ("redbolt::it push::no_", 45),
    ("redbolt-benches weight", 30),
    ("redbolt-capi::programs", 25),
    ("redbolt-chaos", 25),
    ("redbolt-cli::cli chaos", 20),
    ("redbolt-cli::cli init", 20),
    ("redbolt-node::differential", 20),
    ("redbolt-models", 15),
    ("redbolt-sim", 15),
    ("redbolt::examples", 10),
];

/// The number of waiting tests that share a core.
pub(crate) const UNITS_OF_A_CORE: usize = 8;

/// The weights of tests whose program and name begin like this. The first match counts.
const WEIGHTS: [(&str, &str, Weight); 13] = [
    ("redbolt::allocations", "", Weight::Alone),
    ("redbolt::syscalls", "", Weight::Alone),
    ("redbolt-benches::count", "", Weight::Alone),
    ("redbolt-benches::scale", "", Weight::Alone),
    ("redbolt::it", "", Weight::Waits),
    ("redbolt::examples", "", Weight::Waits),
    ("redbolt-cli::cli", "", Weight::Waits),
    ("redbolt-node::node", "", Weight::Waits),
    ("redbolt-test-servers", "", Weight::Waits),
    ("redbolt-test-servers::faults", "", Weight::Waits),
    ("redbolt-chaos::bounded", "", Weight::Mixed),
    ("redbolt-servers::bounded", "", Weight::Mixed),
    ("redbolt-capi::programs", "", Weight::Mixed),
];

pub(crate) fn weight_of(program: &str, test: &str) -> Weight {
    let found = WEIGHTS.iter().find(|(of, start, _)| *of == program && test.starts_with(start));
    found.map_or(Weight::Computes, |(_, _, weight)| *weight)
}

/// Returns `true` if the program is a test by itself.
pub(crate) fn has_no_harness(program: &str) -> bool {
    program == "redbolt-test-servers::orphans"
}
