//! The commands that run one program of the workspace.

use std::{
    env,
    path::{self, Path},
    process::Command,
};

use crate::{
    capi, counts, package,
    step::{self, Failure, cargo},
};

/// Runs the benchmarks, all built with one profile. Building is quiet unless it fails.
pub(crate) fn bench(arguments: &[String]) -> Result<(), Failure> {
    if let [first, options @ ..] = arguments
        && first == "--counts"
    {
        return counts::run(options);
    }
    eprintln!("xtask: building the benchmarks; the first time takes minutes");
    // The bench program runs other programs of its package, which `cargo run` would not build. All
    // parts except `tls` measure the library with its default features.
    let over_tls = arguments.iter().any(|argument| argument == "tls");
    let features: &[&str] = if over_tls { &["--features", "tls"] } else { &[] };
    let mut build = cargo("build");
    step::run("bench", build.args(SUITE).args(features).arg("--bins"))?;
    let mut bench = cargo("run");
    bench.args(features);
    if cfg!(target_os = "linux") {
        // The contender in C finds the library there.
        let prefix = package::target().join("bench-capi");
        capi::install(&prefix)?;
        bench.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    }
    step::run("bench", bench.args(SUITE).args(["--bin", "bench", "--"]).args(arguments))
}

/// Prints the coupling counts, through the test that checks them.
pub(crate) fn coupling(tree: Option<&Path>) -> Result<(), Failure> {
    let mut count = cargo("test");
    count.args(["--quiet", "--package", "redbolt", "--test", "house"]);
    count.args(["coupling_in_the_core_does_not_grow", "--", "--nocapture"]);
    if let Some(tree) = tree {
        // A relative path refers to the present directory.
        let tree = path::absolute(tree).map_err(|error| Failure(error.to_string()))?;
        count.env("COUPLING_OF", tree);
    }
    step::run("coupling", &mut count)
}

/// Runs the demo of the command line, as a release build. Building is quiet unless it fails.
pub(crate) fn demo() -> Result<(), Failure> {
    eprintln!("xtask: building redbolt; the first time takes a minute");
    let mut demo = cargo("run");
    demo.args(["--quiet", "--package", "redbolt-cli", "--release", "--bin", "redbolt"]);
    step::run("demo", demo.args(["--", "demo"]))
}

/// Runs the targets repeatedly with generated inputs. It needs a C++ compiler.
pub(crate) fn fuzz(arguments: &[String]) -> Result<(), Failure> {
    let mut fuzz = cargo("run");
    fuzz.args(["--quiet", "--package", "redbolt-fuzz", "--bin", "fuzz", "--"]);
    step::run("fuzz", fuzz.args(arguments))
}

/// Runs real servers, processes and faults, at full size and with all assertions of the core.
pub(crate) fn chaos(arguments: &[String]) -> Result<(), Failure> {
    // One of the programs tests the command line, and expects it in its own folder.
    let mut build = cargo("build");
    step::run("chaos", build.args(["--quiet", "--package", "redbolt-cli", "--bin", "redbolt"]))?;
    let mut chaos = cargo("run");
    chaos.args(["--quiet", "--package", "redbolt-chaos", "--bin", "chaos", "--"]);
    step::run("chaos", chaos.args(arguments))
}

/// Runs the models by their tests, one after the other, because each may take gigabytes.
pub(crate) fn models(all: bool) -> Result<(), Failure> {
    let mut models = cargo("test");
    models.args(["--quiet", "--package", "redbolt-models", "--"]);
    models.args(["--nocapture", "--test-threads", "1"]);
    if all {
        models.arg("--include-ignored");
    }
    step::run("models", &mut models)
}

/// Runs processes of other libraries together with redbolt.
pub(crate) fn interop(arguments: &[impl AsRef<str>]) -> Result<(), Failure> {
    let mut interop = cargo("run");
    interop.args(["--quiet", "--package", "redbolt-interop", "--bin", "interop", "--"]);
    step::run("interop", interop.args(arguments.iter().map(AsRef::as_ref)))
}

/// Checks the features on each server program.
pub(crate) fn servers(arguments: &[String]) -> Result<(), Failure> {
    let mut servers = cargo("run");
    servers.args(["--quiet", "--package", "redbolt-servers", "--bin", "servers", "--"]);
    step::run("servers", servers.args(arguments))
}

pub(crate) fn sim(arguments: &[String]) -> Result<(), Failure> {
    step::run("sim", &mut simulator(arguments))
}

/// Returns the simulator, as a release build with all assertions of the core; with planted bugs, if
/// the arguments require them.
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

/// Builds the simulator with bugs in the core, in a separate target directory, and with the flags
/// that are set already.
pub(crate) fn plant(command: &mut Command) {
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
