//! The test programs of the workspace and the tests in them.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, BufRead, BufReader, IsTerminal},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::plan::{self, Weight};
use crate::step::{self, Failure, cargo};

/// A test program, as cargo built it.
#[derive(Debug)]
pub(crate) struct Program {
    /// `redbolt` for the unit tests of a library, `redbolt::it` for a file of tests,
    /// `redbolt-cli::bin/redbolt` for the unit tests of a binary.
    pub(crate) name: String,
    executable: PathBuf,
    manifest: PathBuf,
    package: String,
    version: String,
    /// The directories with the libraries that the program is linked with at run time.
    libraries: OsString,
}

/// One test of a program.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) program: usize,
    /// The name of the test; `None` for a program without a test harness, which is a test by
    /// itself.
    pub(crate) name: Option<String>,
    pub(crate) ignored: bool,
    pub(crate) weight: Weight,
}

/// All test programs, and the examples that some of them run.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) all: Vec<Program>,
    /// The directory of the built examples.
    pub(crate) examples: Option<PathBuf>,
    /// The built binaries, by name.
    pub(crate) binaries: BTreeMap<String, PathBuf>,
    warnings: usize,
}

/// Builds the tests that each selection names to cargo, and lints them in the same pass: a second
/// pass over the workspace would take as long again. A warning does not end the build; the lints
/// are reported separately.
pub(crate) fn build(selections: &[&[&str]]) -> Result<(Programs, Result<(), Failure>), Failure> {
    let mut programs = Programs::default();
    for selection in selections {
        programs.build(selection)?;
    }
    programs.all.sort_by(|a, b| a.name.cmp(&b.name));
    programs.all.dedup_by(|a, b| a.name == b.name);
    let lints = match programs.warnings {
        0 => Ok(()),
        warnings => Err(Failure(format!("lints: {warnings} warnings"))),
    };
    Ok((programs, lints))
}

/// Lets clippy's driver compile the workspace, as `cargo clippy` does: it is the compiler with more
/// lints.
pub(crate) fn lint(command: &mut Command) {
    let driver = Path::new(command.get_program()).with_file_name("clippy-driver");
    command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", "");
}

impl Programs {
    fn build(&mut self, selection: &[&str]) -> Result<(), Failure> {
        let is_shown = io::stderr().is_terminal();
        let format = if is_shown { "json-diagnostic-rendered-ansi" } else { "json" };
        let mut command = cargo("test");
        lint(command.args(["--no-run", "--message-format", format]).args(selection));
        let shown = step::shown(&command);
        let failure = |error| Failure::not_run(&shown, &error);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failure)?;
        let messages = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        for line in messages.lines() {
            self.add(&line.map_err(failure)?)?;
        }
        let status = child.wait().map_err(failure)?;
        if status.success() { Ok(()) } else { Err(Failure::of("build", &shown, status)) }
    }

    /// Reads one message of cargo.
    fn add(&mut self, line: &str) -> Result<(), Failure> {
        // Output of a build script may come between the messages.
        let Ok(message) = serde_json::from_str::<Value>(line) else { return Ok(()) };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(rendered) = message["message"]["rendered"].as_str() {
            eprint!("{rendered}");
            // The last message of a target only counts the others, and has no position in the code.
            let is_warning = message["message"]["level"] == "warning";
            let stands_somewhere = message["message"]["spans"] != Value::Array(Vec::new());
            self.warnings += usize::from(is_warning && stands_somewhere);
        }
        let (Some(executable), Some(manifest)) =
            (text(&message["executable"]), text(&message["manifest_path"]))
        else {
            return Ok(());
        };
        let target = &message["target"];
        let (name, kind) = (text(&target["name"]), text(&target["kind"][0]));
        let (Some(name), Some(kind)) = (name, kind) else { return Ok(()) };
        let executable = PathBuf::from(executable);
        if message["profile"]["test"] == Value::Bool(false) {
            match kind.as_str() {
                "example" => self.examples = executable.parent().map(Path::to_owned),
                _ => drop(self.binaries.insert(name, executable)),
            }
            return Ok(());
        }
        let (package, version) = text(&message["package_id"])
            .and_then(|id| named(&id, &manifest))
            .ok_or_else(|| Failure(format!("build: cargo names no package: {line}")))?;
        let name = match kind.as_str() {
            // Benchmarks are linted, and run with other profiles.
            "bench" => return Ok(()),
            "test" => format!("{package}::{name}"),
            "bin" | "example" => format!("{package}::{kind}/{name}"),
            _ => package.clone(),
        };
        let libraries = libraries(&executable);
        let manifest = manifest.into();
        self.all.push(Program { name, executable, manifest, package, version, libraries });
        Ok(())
    }

    /// Returns the tests of all programs. A program lists its own.
    pub(crate) fn tests(&self) -> Result<Vec<Test>, Failure> {
        let mut tests = Vec::new();
        for (number, program) in self.all.iter().enumerate() {
            tests.extend(program.tests(number)?);
        }
        Ok(tests)
    }

    /// Returns the full name of a test, as `redbolt::it scenarios::fenced::engine`.
    pub(crate) fn name_of(&self, test: &Test) -> String {
        let program = &self.all[test.program].name;
        test.name.as_ref().map_or_else(|| program.clone(), |name| format!("{program} {name}"))
    }

    /// Returns the command that runs one test and nothing else.
    pub(crate) fn command_of(&self, test: &Test) -> Command {
        let mut command = self.all[test.program].command();
        if let Some(examples) = &self.examples {
            command.env("REDBOLT_EXAMPLES", examples);
        }
        if let Some(name) = &test.name {
            // The whole output goes to a file, also that of a test that is killed.
            command.args(["--exact", name, "--nocapture", "--color", "never"]);
        }
        command
    }
}

impl Program {
    /// Returns the program with the working directory and the variables that `cargo test` sets.
    fn command(&self) -> Command {
        let folder = self.manifest.parent().unwrap_or_else(|| Path::new("."));
        let mut command = Command::new(&self.executable);
        command.current_dir(folder).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", folder).env("CARGO_MANIFEST_PATH", &self.manifest);
        command.env("CARGO_PKG_NAME", &self.package).env("CARGO_PKG_VERSION", &self.version);
        command.env("LD_LIBRARY_PATH", &self.libraries);
        // Many tests panic on purpose, and naming the frames of a large program takes seconds.
        command.env("RUST_BACKTRACE", "0");
        command
    }

    fn tests(&self, program: usize) -> Result<Vec<Test>, Failure> {
        let weigh = |name: &str| plan::weight_of(&self.name, name);
        if plan::has_no_harness(&self.name) {
            let weight = weigh("");
            return Ok(vec![Test { program, name: None, ignored: false, weight }]);
        }
        let ignored = self.listed(&["--ignored"])?;
        let all = self.listed(&[])?.into_keys().map(|name| Test {
            program,
            ignored: ignored.contains_key(&name),
            weight: weigh(&name),
            name: Some(name),
        });
        Ok(all.collect())
    }

    fn listed(&self, options: &[&str]) -> Result<BTreeMap<String, ()>, Failure> {
        let mut command = self.command();
        command.args(["--list", "--format", "terse"]).args(options);
        let output = command.output().map_err(|error| Failure::not_run(&self.name, &error))?;
        if !output.status.success() {
            return Err(Failure::of("list", &self.name, output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(|name| (name.to_owned(), ())).collect())
    }
}

/// Returns the name and the version in a package id: `path+file:///a/b#name@1.0`, or
/// `path+file:///a/name#1.0` if the directory has the name of the package.
fn named(id: &str, manifest: &str) -> Option<(String, String)> {
    let (_, fragment) = id.rsplit_once('#')?;
    let (name, version) = match fragment.split_once('@') {
        Some((name, version)) => (name.to_owned(), version),
        None => {
            let folder = Path::new(manifest).parent()?.file_name()?;
            (folder.to_string_lossy().into_owned(), fragment)
        }
    };
    Some((name, version.to_owned()))
}

/// Returns the directories in which cargo lets a test look for shared libraries.
fn libraries(executable: &Path) -> OsString {
    let deps = executable.parent().unwrap_or_else(|| Path::new("."));
    let set = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [deps.to_owned(), deps.join("..")].into_iter().chain(std::env::split_paths(&set));
    std::env::join_paths(folders).unwrap_or(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_has_the_name_of_its_package_and_target() {
        let mut programs = Programs::default();
        for (kind, name) in [("lib", "redbolt"), ("test", "it"), ("bin", "redbolt")] {
            let line = format!(
                r#"{{"package_id":"path+file:///a/main#redbolt@0.1.0","manifest_path":"/a/main/Cargo.toml",
                "target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":true}},"executable":"/t/debug/deps/x"}}"#
            );
            programs.add(&line).unwrap();
        }
        let names: Vec<_> = programs.all.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["redbolt", "redbolt::it", "redbolt::bin/redbolt"]);
        assert_eq!(programs.all[0].version, "0.1.0");
    }

    #[test]
    fn a_package_id_without_a_name_is_named_after_its_directory() {
        let named = named("path+file:///a/resp-tests#0.1.0", "/a/resp-tests/Cargo.toml");
        assert_eq!(named, Some(("resp-tests".into(), "0.1.0".into())));
    }

    #[test]
    fn warnings_are_counted_and_their_summary_is_not() {
        let mut programs = Programs::default();
        for (level, spans) in [("warning", "[{}]"), ("warning", "[]"), ("note", "[{}]")] {
            let line = format!(
                r#"{{"reason":"compiler-message","message":{{"rendered":"","level":"{level}","spans":{spans}}}}}"#
            );
            programs.add(&line).unwrap();
        }
        assert_eq!(programs.warnings, 1);
    }

    #[test]
    fn lines_that_are_not_messages_are_skipped() {
        let mut programs = Programs::default();
        programs.add("warning: something").unwrap();
        programs.add(r#"{"reason":"build-finished","success":true}"#).unwrap();
        assert!(programs.all.is_empty());
    }
}
