//! `sim`: runs schedules and says what came of them. `cargo xtask sim` builds and runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    redbolt_sim::cli::main()
}
