//! `cargo xtask bench --counts`: the instructions of the hot path, compared with the committed
//! baseline.
//!
//! It is for people who change the hot path, and not part of `cargo xtask test`, because the
//! figures depend on the compiler. `crates/counts` does the counting.

mod comparison;
mod figures;

use std::{
    env,
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use clap::Parser;

use self::{comparison::Comparison, figures::Figures};
use crate::{
    programs,
    step::{Failure, cargo, root, shown},
};

/// Count the instructions of the hot path and compare them with the baseline
///
/// Fails if a count has grown by more than 3 %, and names the functions that grew. Counts of
/// another compiler are not comparable: that is reported, and fails only with --strict.
#[derive(Parser)]
#[command(name = "cargo xtask bench --counts", no_binary_name = true)]
struct Options {
    /// Write the present counts as the new baseline
    #[arg(long, conflicts_with = "scenarios")]
    bless: bool,
    /// Fail if the compiler is not the baseline's, and if anything differs from the baseline
    #[arg(long)]
    strict: bool,
    /// Only scenarios whose names contain one of these parts, such as core/
    scenarios: Vec<String>,
}

/// Counts and compares.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::try_parse_from(arguments).unwrap_or_else(|error| error.exit());
    programs::provide_counter()?;
    let mut figures = Figures::parse(&measured(&options.scenarios)?).map_err(unreadable("it"))?;
    (figures.compiler, figures.target) = compiler()?;
    let file = root().join(BASELINE);
    let baseline = match fs::read_to_string(&file) {
        Ok(text) => Figures::parse(&text).map_err(unreadable(BASELINE))?,
        Err(_) => Figures::default(),
    };
    let wanted = |name: &str| {
        let mut parts = options.scenarios.iter();
        options.scenarios.is_empty() || parts.any(|part| name.contains(part.as_str()))
    };
    let comparison = Comparison::of(&baseline, &figures, wanted);
    println!("{comparison}");
    if options.bless {
        return write(&file, &figures.to_string());
    }
    match comparison.complaint(options.strict) {
        Some(complaint) => Err(Failure(complaint)),
        None => Ok(()),
    }
}

fn write(file: &PathBuf, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure(format!("{BASELINE}: {error}")))?;
    println!("xtask: {BASELINE} is written");
    Ok(())
}

fn unreadable(what: &str) -> impl Fn(String) -> Failure {
    move |fault| Failure(format!("counts: {what} cannot be read: {fault}"))
}

/// Returns the output of the counting program, built without the caller's compiler flags, which
/// would change the counts.
fn measured(scenarios: &[String]) -> Result<String, Failure> {
    eprintln!("xtask: building the counted programs; the first time takes a minute");
    let mut build = cargo("build");
    build.args(["--quiet", "--package", "redbolt-counts", "--profile", "counts", "--bins"]);
    let mut measure = cargo("run");
    measure.args(["--quiet", "--package", "redbolt-counts", "--profile", "counts"]);
    measure.args(["--bin", "measure", "--"]).args(scenarios);
    for command in [&mut build, &mut measure] {
        for flags in FLAGS {
            command.env_remove(flags);
        }
    }
    output(&mut build)?;
    output(&mut measure)
}

/// Returns the compiler and its target.
fn compiler() -> Result<(String, String), Failure> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let said = output(Command::new(rustc).current_dir(root()).arg("-vV"))?;
    let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let (version, llvm) = (said.lines().next(), field("LLVM version: "));
    let compiler = format!("{}, LLVM {}", version.unwrap_or("unknown"), llvm.unwrap_or("unknown"));
    Ok((compiler, field("host: ").unwrap_or("unknown").to_owned()))
}

/// Returns the standard output of a command. Its standard error is shown.
fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::not_run(&shown(command), &error))?;
    if !output.status.success() {
        return Err(Failure::of("counts", &shown(command), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const BASELINE: &str = "crates/counts/baseline.txt";
const FLAGS: [&str; 2] = ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"];
