//! The project's own commands: `cargo xtask check`, `cargo xtask test`, `cargo xtask bench`, `cargo
//! xtask demo`, `cargo xtask fuzz`, `cargo xtask chaos`, `cargo xtask sim`, `cargo xtask models`,
//! `cargo xtask mutants`, `cargo xtask coupling`, `cargo xtask capi`, `cargo xtask interop`, `cargo
//! xtask servers`; for releases `cargo xtask package`, `cargo xtask dist`, `cargo xtask deny`,
//! `cargo xtask msrv`.
//!
//! The crate uses no other crate of the workspace: it must build on any machine with Rust and a
//! shell, and report what else is missing.

mod capi;
mod counts;
mod dist;
mod mutants;
mod package;
mod policy;
mod programs;
mod step;
mod tasks;
mod test;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::test::Extent;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compare redbolt with other clients; `cargo xtask bench --help` shows the options. With
    /// --counts as the first option: count the instructions of the hot path
    #[command(disable_help_flag = true)]
    Bench {
        /// Options of the bench program; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the library for C and install it: headers, libraries, a file for pkg-config
    Capi {
        /// The folder that gets `include` and `lib`
        #[arg(long, required_unless_present = "header")]
        prefix: Option<PathBuf>,
        /// Write the committed header again, and install nothing
        #[arg(long, conflicts_with = "prefix")]
        header: bool,
    },
    /// Check format, lints, unit tests, the core and the rules of the house: about a minute
    Check,
    /// Count how coupled the parts are: calls between files of the core, open fields, long
    /// functions, and in each crate the files that import each other
    Coupling {
        /// Another tree of this repository, instead of this one
        tree: Option<PathBuf>,
    },
    /// Check licences, sources, advisories and duplicates of all dependencies, with cargo-deny
    Deny {
        /// Leave out the advisories, which need the network
        #[arg(long)]
        without_advisories: bool,
    },
    /// Show locks being taken, refused and released on embedded nodes
    Demo,
    /// Build the archive of a release: program, manual pages, completions
    Dist,
    /// Run the fuzz targets; `cargo xtask fuzz --help` shows the options
    #[command(disable_help_flag = true)]
    Fuzz {
        /// Options of the fuzz program; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check redbolt together with real processes of other lock libraries, which are installed
    /// outside the repository; `cargo xtask interop --help` shows the options
    #[command(disable_help_flag = true)]
    Interop {
        /// Options of the interop program; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Search the small models of the protocol exhaustively, and print how many states each has
    Models {
        /// Also run the searches that take minutes, and up to 14 GB
        #[arg(long)]
        all: bool,
    },
    /// Check that the published crates build with the oldest Rust that their manifests promise
    Msrv,
    /// Change single tokens in the files that hold safety rules, and list the changes that the
    /// tests do not notice. This takes hours; `--shard k/n` runs a part. It installs cargo-mutants
    /// if that is missing
    #[command(disable_help_flag = true)]
    Mutants {
        /// Options of cargo-mutants; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Pack the published crates, and build and use them from the packages in an empty directory
    Package,
    /// Check promises on real servers; `cargo xtask chaos --help` shows the programs
    #[command(disable_help_flag = true)]
    Chaos {
        /// Options of the chaos program; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check redbolt on every server program of this machine, and print a table of them; `cargo
    /// xtask servers --help` shows the options
    #[command(disable_help_flag = true)]
    Servers {
        /// Options of the servers program; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Search simulated worlds for broken promises; `cargo xtask sim --help` shows the options
    #[command(disable_help_flag = true)]
    Sim {
        /// Options of the simulator; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Use a core for more than half of the time, as a part of `test --stress`
    #[command(hide = true)]
    Spin {
        /// The seed of the pauses
        #[arg(long)]
        seed: u64,
    },
    /// Run everything that a change must pass, and install the programs that it needs
    Test {
        /// Also run chaos, the models and the peers of interop at full length, and a longer
        /// simulation
        #[arg(long, conflicts_with_all = ["only", "stress"])]
        all: bool,
        /// Only this test program, as the summary names it: `redbolt::it` or just `it`; may be
        /// repeated
        #[arg(long, value_name = "PROGRAM")]
        only: Vec<String>,
        /// Repeat the tests N times while the cores are stalled and processes of tests are frozen.
        /// Finished rounds of a commit are recorded, and a later call continues after them
        #[arg(long, value_name = "N")]
        stress: Option<u32>,
        /// Run as many tests at a time as on a machine with this number of cores
        #[arg(long, value_name = "N")]
        cores: Option<usize>,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Bench { arguments } => tasks::bench(&arguments),
        Task::Capi { prefix, .. } => {
            prefix.map_or_else(capi::header, |prefix| capi::install(&prefix))
        }
        Task::Check => test::check(),
        Task::Coupling { tree } => tasks::coupling(tree.as_deref()),
        Task::Demo => tasks::demo(),
        Task::Deny { without_advisories } => policy::deny(!without_advisories),
        Task::Dist => dist::build(),
        Task::Fuzz { arguments } => tasks::fuzz(&arguments),
        Task::Interop { arguments } => tasks::interop(&arguments),
        Task::Models { all } => tasks::models(all),
        Task::Msrv => policy::msrv(),
        Task::Mutants { arguments } => mutants::run(&arguments),
        Task::Package => package::prove(),
        Task::Chaos { arguments } => tasks::chaos(&arguments),
        Task::Servers { arguments } => tasks::servers(&arguments),
        Task::Sim { arguments } => tasks::sim(&arguments),
        Task::Spin { seed } => {
            test::stress::spin(seed);
            Ok(())
        }
        Task::Test { all, only, stress, cores } => test::test(&Extent { all, only, stress, cores }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use clap::CommandFactory;

    use super::*;
    use crate::step;

    fn read(page: &str) -> String {
        fs::read_to_string(step::root().join(page)).expect(page)
    }

    #[test]
    fn the_commands_that_ci_and_the_project_s_pages_name_exist() {
        let texts = PAGES.map(read).concat();
        let named: BTreeSet<_> = texts
            .split("cargo xtask ")
            .skip(1)
            .map(|text| text.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default())
            .filter(|name| !name.is_empty())
            .collect();
        assert!(named.len() > 8, "{named:?}");
        let all = Arguments::command();
        let missing: Vec<_> =
            named.into_iter().filter(|name| all.find_subcommand(name).is_none()).collect();
        assert!(missing.is_empty(), "no commands: {missing:?}");
    }

    #[test]
    fn ci_and_the_policy_name_the_oldest_rust_of_the_manifest() {
        let rust = env!("CARGO_PKG_RUST_VERSION");
        assert!(read(CI).contains(&format!("rustup toolchain install {rust} ")));
        assert!(read("RELEASING.md").contains(&format!("**{rust}**")));
    }

    const CI: &str = ".github/workflows/ci.yml";
    const PAGES: [&str; 5] = [CI, "CONTRIBUTING.md", "README.md", "RELEASING.md", "SECURITY.md"];
}
