//! `fuzz`: builds the targets with coverage counters, runs them, and prints a summary.
//!
//! libFuzzer works on the stable toolchain: counting edges is an LLVM flag that `rustc` passes
//! through. The address sanitizer, which would need a nightly compiler, has nothing to find in code
//! without `unsafe`; overflow checks and debug assertions are on instead.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use redbolt_fuzz::{TARGETS, Target, corpus};

/// Fuzzes redbolt. Fails if a target crashes.
#[derive(Parser)]
struct Args {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Stop a target after this many executions; 0 runs only the corpus
    #[arg(long)]
    runs: Option<u64>,
    /// Afterwards, reduce the committed corpus to the inputs named in words, and the fewest others
    /// that reach as much code
    #[arg(long)]
    keep: bool,
    /// Targets to run; all if none is named
    targets: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the targets and returns true if none crashed.
fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let mut survived = true;
    for target in chosen(&args.targets)? {
        let program = build(target)?;
        let fuzzed = Fuzzed::new(target, &program, args)?;
        println!("{fuzzed}");
        survived &= fuzzed.crashes == 0;
        if args.keep {
            keep(target, &program)?;
        }
    }
    Ok(survived)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>, String> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let target = TARGETS.iter().find(|target| target.name == name);
        target.ok_or_else(|| format!("no target has the name {name}"))
    };
    names.iter().map(find).collect()
}

/// Builds an instrumented target in a separate target directory, and returns its path.
fn build(target: &Target) -> Result<PathBuf, Box<dyn Error>> {
    let (name, triple) = (target.name, host()?);
    // Otherwise targets with different flags would rebuild each other's dependencies each time.
    let (folder, flags) = if target.compares {
        (scratch(), [FLAGS, TRACE_COMPARES].concat())
    } else {
        (scratch().join("edges"), FLAGS.to_vec())
    };
    let status = cargo()
        .args(["build", "--release", "--features", "libfuzzer", "--bin", name])
        // With an explicit target, build scripts and macros are built without the flags.
        .args(["--target", &triple, "--target-dir"])
        .arg(&folder)
        .current_dir(home())
        .env("RUSTFLAGS", flags.join(" "))
        .status()?;
    if !status.success() {
        return Err(format!("{name} does not build").into());
    }
    Ok(folder.join(triple).join("release").join(name))
}

fn host() -> Result<String, Box<dyn Error>> {
    let output = Command::new("rustc").args(["--print", "host-tuple"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The result of one target's run.
struct Fuzzed {
    name: &'static str,
    executions: u64,
    edges: u64,
    crashes: usize,
    peak_mib: u64,
    crash_folder: PathBuf,
}

impl Fuzzed {
    fn new(target: &Target, program: &Path, args: &Args) -> Result<Self, Box<dyn Error>> {
        let found = fresh(&found(target))?;
        let crash_folder = fresh(&scratch().join("crashes").join(target.name))?;
        let output = Command::new(program)
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-runs={}", args.runs.map_or(-1, u64::cast_signed)))
            .arg(format!("-max_len={}", target.max_len))
            .arg(format!("-artifact_prefix={}/", crash_folder.display()))
            .args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=1024"])
            .args([found, unpacked(target, &scratch().join("seeds"), |_| true)?])
            .stderr(Stdio::piped())
            .output()?;
        let log = String::from_utf8_lossy(&output.stderr);
        let crashes = fs::read_dir(&crash_folder)?.count();
        if !output.status.success() {
            eprint!("{log}");
        }
        Ok(Self {
            name: target.name,
            executions: number_behind(&log, "stat::number_of_executed_units:"),
            edges: number_behind(&log, " cov: "),
            crashes: crashes.max(usize::from(!output.status.success())),
            peak_mib: number_behind(&log, "stat::peak_rss_mb:"),
            crash_folder,
        })
    }
}

impl std::fmt::Display for Fuzzed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, executions, edges, crashes, peak_mib, crash_folder } = self;
        write!(f, "{name}: {executions} executions, {edges} edges covered, ")?;
        write!(f, "{crashes} crashes, peak memory {peak_mib} MiB")?;
        if *crashes > 0 {
            write!(f, ", inputs in {}", crash_folder.display())?;
        }
        Ok(())
    }
}

/// Returns the number after the last occurrence of `label`.
fn number_behind(log: &str, label: &str) -> u64 {
    let behind = log.rsplit_once(label).map_or("", |(_, behind)| behind);
    let digits = behind.split_whitespace().next().unwrap_or("");
    digits.parse().unwrap_or(0)
}

/// Replaces the committed corpus by the fewest inputs that reach what it and the last run reached;
/// inputs named in words stay.
fn keep(target: &Target, program: &Path) -> Result<(), Box<dyn Error>> {
    let seeds = unpacked(target, &scratch().join("seeds"), |_| true)?;
    let mut inputs = corpus::read(target);
    let before = inputs.len();
    inputs.retain(|name, _| !corpus::by_chance(name));
    // A merge adds to its first folder the inputs that reach more.
    let merged = unpacked(target, &scratch().join("merged"), |name| !corpus::by_chance(name))?;
    let status = Command::new(program)
        .arg("-set_cover_merge=1")
        .args([&merged, &seeds, &found(target)])
        .stderr(Stdio::null())
        .status()?;
    if !status.success() {
        return Err("the corpora do not merge".into());
    }
    for input in fs::read_dir(merged)? {
        let input = fs::read(input?.path())?;
        if !inputs.values().any(|named| *named == input) {
            inputs.insert(corpus::digest(&input), input);
        }
    }
    println!("{}: {} inputs in the corpus, {before} before", target.name, inputs.len());
    corpus::write(target, inputs);
    Ok(())
}

/// Writes the committed inputs with names that are `wanted` as files in a folder below `parent`.
fn unpacked(
    target: &Target,
    parent: &Path,
    wanted: fn(&str) -> bool,
) -> Result<PathBuf, Box<dyn Error>> {
    let folder = fresh(&parent.join(target.name))?;
    for (name, input) in corpus::read(target) {
        if wanted(&name) {
            fs::write(folder.join(name), input)?;
        }
    }
    Ok(folder)
}

fn fresh(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    Ok(folder.to_owned())
}

/// Returns the folder of the inputs that the last run kept.
fn found(target: &Target) -> PathBuf {
    scratch().join("corpus").join(target.name)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns this package's folder.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of builds, found inputs and crashes, which git ignores.
fn scratch() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| home().join("../../target"), PathBuf::from).join("fuzz")
}

/// The flags for edge counters of libFuzzer, and every check of a debug build.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Ccodegen-units=1",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// The flags that let libFuzzer trace comparisons.
const TRACE_COMPARES: &[&str] = &["-Cllvm-args=-sanitizer-coverage-trace-compares"];
