//! One step: a command, and its failure.

use std::{
    env, fmt,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

/// The failure of a step, in one line for the end of the output.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    pub(crate) fn of(step: &str, command: &str, status: ExitStatus) -> Self {
        Self(format!("{step}: `{command}` ended with {status}"))
    }

    pub(crate) fn not_run(command: &str, error: &io::Error) -> Self {
        Self(format!("`{command}` could not be run: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the cargo that runs us, at the root of the repository.
pub(crate) fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).arg(subcommand);
    command
}

/// Returns the root from the path that cargo sets at run time: two clones with one target directory
/// share this program.
pub(crate) fn root() -> PathBuf {
    let ours =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&ours).join("../..")
}

/// Runs a command with our own input and output.
pub(crate) fn run(step: &str, command: &mut Command) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::of(step, &shown(command), status)),
        Err(error) => Err(Failure::not_run(&shown(command), &error)),
    }
}

/// Runs a command to its end and returns its output, both streams in one. `watch` is called with
/// the process id while it can be signalled, and with `None` before it is reaped.
pub(crate) fn capture(
    step: &str,
    command: &mut Command,
    watch: impl Fn(Option<u32>),
) -> (String, Result<(), Failure>) {
    let shown = shown(command);
    let mut output = Vec::new();
    let outcome = match capture_into(&mut output, command, watch) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::of(step, &shown, status)),
        Err(error) => Err(Failure::not_run(&shown, &error)),
    };
    (String::from_utf8_lossy(&output).into_owned(), outcome)
}

fn capture_into(
    output: &mut Vec<u8>,
    command: &mut Command,
    watch: impl Fn(Option<u32>),
) -> io::Result<ExitStatus> {
    let (mut pipe, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let spawned = command.spawn();
    // The command holds the pipe's other end, which would keep the output open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned?;
    watch(Some(child.id()));
    let read = pipe.read_to_end(output);
    watch(None);
    let status = child.wait()?;
    read.map(|_| status)
}

/// Returns the command with the lowest priority.
pub(crate) fn in_the_background(command: &Command) -> Command {
    let mut niced = Command::new("nice");
    niced.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    niced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    niced.current_dir(command.get_current_dir().unwrap_or_else(|| Path::new(".")));
    niced
}

/// Returns a command as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
