//! `sim`: runs schedules and reports the results. `cargo xtask sim` builds and runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    redbolt_sim::cli::main()
}
