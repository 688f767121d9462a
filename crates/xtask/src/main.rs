//! The project's own commands: `cargo xtask check`, `cargo xtask test`, `cargo xtask bench`, `cargo xtask demo`,
//! `cargo xtask fuzz`, `cargo xtask chaos`, `cargo xtask sim`, `cargo xtask models`, `cargo xtask mutants`,
//! `cargo xtask coupling`, `cargo xtask capi`, `cargo xtask interop`, `cargo xtask servers`; for releases `cargo xtask package`,
//! `cargo xtask dist`, `cargo xtask deny`, `cargo xtask msrv`.
//!
//! Apart from the other crates because it needs none of them: it must build on any machine with
//! Rust and a shell, and tell what else is missing. Not here: the tests themselves.

mod capi;
mod counts;
mod dist;
mod mutants;
mod package;
mod policy;
mod programs;
mod step;
mod test;

use std::{
    env,
    path::{self, Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::{Parser, Subcommand};

use crate::{
    step::{Failure, cargo},
    test::Extent,
};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure redbolt beside other clients; `cargo xtask bench --help` shows the options. With
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
        /// Make the committed header anew, and install nothing
        #[arg(long, conflicts_with = "prefix")]
        header: bool,
    },
    /// Check format, lints, unit tests, the core and the rules of the house: about a minute
    Check,
    /// Count how coupled the parts are: calls between files of the core, open fields, long functions, and in each crate the
    /// files that import each other
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
    /// Check redbolt beside real processes of other lock libraries, which are installed outside of the repository;
    /// `cargo xtask interop --help` shows the options
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
    /// Check redbolt on every server program that is here, and print a table of them; `cargo xtask servers --help` shows
    /// the options
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
        /// Finished rounds of a commit are on record, and a later call goes on behind them
        #[arg(long, value_name = "N")]
        stress: Option<u32>,
        /// Run as many tests at a time as on a machine with this number of cores
        #[arg(long, value_name = "N")]
        cores: Option<usize>,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Bench { arguments } => bench(&arguments),
        Task::Capi { prefix, .. } => {
            prefix.map_or_else(capi::header, |prefix| capi::install(&prefix))
        }
        Task::Check => test::check(),
        Task::Coupling { tree } => coupling(tree.as_deref()),
        Task::Demo => demo(),
        Task::Deny { without_advisories } => policy::deny(!without_advisories),
        Task::Dist => dist::build(),
        Task::Fuzz { arguments } => fuzz(&arguments),
        Task::Interop { arguments } => interop(&arguments),
        Task::Models { all } => models(all),
        Task::Msrv => policy::msrv(),
        Task::Mutants { arguments } => mutants::run(&arguments),
        Task::Package => package::prove(),
        Task::Chaos { arguments } => chaos(&arguments),
        Task::Servers { arguments } => servers(&arguments),
        Task::Sim { arguments } => sim(&arguments),
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

/// Runs the benchmarks, all built with one profile. Building is quiet unless it fails.
fn bench(arguments: &[String]) -> Result<(), Failure> {
    if let [first, options @ ..] = arguments
        && first == "--counts"
    {
        return counts::run(options);
    }
    eprintln!("xtask: building the benchmarks; the first time takes minutes");
    // The bench program runs other programs of its package, which `cargo run` would not build.
    // All other parts measure the library as it is by default.
    let over_tls = arguments.iter().any(|argument| argument == "tls");
    let features: &[&str] = if over_tls { &["--features", "tls"] } else { &[] };
    let mut build = cargo("build");
    step::run("bench", build.args(SUITE).args(features).arg("--bins"))?;
    let mut bench = cargo("run");
    bench.args(features);
    if cfg!(target_os = "linux") {
        // Its contender in C finds the library there.
        let prefix = package::target().join("bench-capi");
        capi::install(&prefix)?;
        bench.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    }
    step::run("bench", bench.args(SUITE).args(["--bin", "bench", "--"]).args(arguments))
}

/// Prints the coupling counts, through the test that checks them.
fn coupling(tree: Option<&Path>) -> Result<(), Failure> {
    let mut count = cargo("test");
    count.args(["--quiet", "--package", "redbolt", "--test", "house"]);
    count.args(["the_parts_of_the_core_do_not_grow_together", "--", "--nocapture"]);
    if let Some(tree) = tree {
        // A relative path refers to the present directory.
        let tree = path::absolute(tree).map_err(|error| Failure(error.to_string()))?;
        count.env("COUPLING_OF", tree);
    }
    step::run("coupling", &mut count)
}

/// Runs the demo of the command line, as a release build. Building is quiet unless it fails.
fn demo() -> Result<(), Failure> {
    eprintln!("xtask: building redbolt; the first time takes a minute");
    let mut demo = cargo("run");
    demo.args(["--quiet", "--package", "redbolt-cli", "--release", "--bin", "redbolt"]);
    step::run("demo", demo.args(["--", "demo"]))
}

/// Runs the targets over and over with generated inputs. It needs a C++ compiler.
fn fuzz(arguments: &[String]) -> Result<(), Failure> {
    let mut fuzz = cargo("run");
    fuzz.args(["--quiet", "--package", "redbolt-fuzz", "--bin", "fuzz", "--"]);
    step::run("fuzz", fuzz.args(arguments))
}

/// Runs real servers, processes and faults, at full size and with all assertions of the core.
fn chaos(arguments: &[String]) -> Result<(), Failure> {
    // One of the programs tests the command line, and expects it beside itself.
    let mut build = cargo("build");
    step::run("chaos", build.args(["--quiet", "--package", "redbolt-cli", "--bin", "redbolt"]))?;
    let mut chaos = cargo("run");
    chaos.args(["--quiet", "--package", "redbolt-chaos", "--bin", "chaos", "--"]);
    step::run("chaos", chaos.args(arguments))
}

/// The models by their tests, one after the other, since each may take gigabytes.
fn models(all: bool) -> Result<(), Failure> {
    let mut models = cargo("test");
    models.args(["--quiet", "--package", "redbolt-models", "--"]);
    models.args(["--nocapture", "--test-threads", "1"]);
    if all {
        models.arg("--include-ignored");
    }
    step::run("models", &mut models)
}

/// Runs processes of other libraries beside redbolt.
fn interop(arguments: &[impl AsRef<str>]) -> Result<(), Failure> {
    let mut interop = cargo("run");
    interop.args(["--quiet", "--package", "redbolt-interop", "--bin", "interop", "--"]);
    step::run("interop", interop.args(arguments.iter().map(AsRef::as_ref)))
}

/// Runs the features on each server program.
fn servers(arguments: &[String]) -> Result<(), Failure> {
    let mut servers = cargo("run");
    servers.args(["--quiet", "--package", "redbolt-servers", "--bin", "servers", "--"]);
    step::run("servers", servers.args(arguments))
}

fn sim(arguments: &[String]) -> Result<(), Failure> {
    step::run("sim", &mut simulator(arguments))
}

/// The simulator, as a release build with all assertions of the core; with planted bugs, if the
/// arguments ask for them.
fn simulator(arguments: &[impl AsRef<str>]) -> Command {
    let mut sim = cargo("run");
    sim.args(["--quiet", "--package", "redbolt-sim", "--profile", "sim", "--bin", "sim"]);
    let plants = |argument: &str| PLANTED.iter().any(|it| argument.starts_with(it));
    if arguments.iter().any(|argument| plants(argument.as_ref())) {
        plant(&mut sim);
    }
    sim.arg("--").args(arguments.iter().map(AsRef::as_ref));
    sim
}

/// Builds it with bugs in the core, in a target directory of its own, and with the flags that are
/// set already.
fn plant(command: &mut Command) {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    command.arg("--target-dir").arg(Path::new(&target).join("mutants"));
    let (name, gap) = match env::var_os("CARGO_ENCODED_RUSTFLAGS") {
        Some(_) => ("CARGO_ENCODED_RUSTFLAGS", "\x1f"),
        None => ("RUSTFLAGS", " "),
    };
    let mut flags = env::var_os(name).unwrap_or_default();
    if !flags.is_empty() {
        flags.push(gap);
    }
    flags.push(["--cfg", "redbolt_mutants"].join(gap));
    command.env(name, flags);
}

/// The benchmarks' package and profile, the same for all contenders.
const SUITE: [&str; 5] = ["--quiet", "--package", "redbolt-benches", "--profile", "bench-suite"];

/// The prefixes of simulator options that need bugs in the core.
const PLANTED: [&str; 1] = ["--mutant"];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use clap::CommandFactory;

    use super::*;

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
