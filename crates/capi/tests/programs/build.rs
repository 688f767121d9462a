//! Builds programs with the system's compilers, and runs them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

/// A program that was built, once for all tests that run it.
pub(crate) struct Program {
    path: PathBuf,
}

/// Builds a program in C, linked with the static library.
pub(crate) fn c(source: &str) -> Program {
    Program::c_with(source, &[])
}

/// Builds a program in C++, linked with the static library.
pub(crate) fn cpp(source: &str) -> Program {
    cpp_with(source, &[])
}

/// Builds a program in C++ with more options of the compiler.
pub(crate) fn cpp_with(source: &str, options: &[&str]) -> Program {
    Program::build("c++", &[&["-std=c++17", "-Wpedantic"], options].concat(), source, &[])
}

impl Program {
    /// Builds a program in C with packages of `pkg-config`.
    pub(crate) fn c_with(source: &str, packages: &[&str]) -> Self {
        Self::build("cc", &["-std=gnu11", "-Wpedantic"], source, packages)
    }

    fn build(compiler: &str, options: &[&str], source: &str, packages: &[&str]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.replace('/', "-"));
        let of_all = Arc::clone(BUILT.lock().unwrap().entry(path.clone()).or_default());
        of_all.get_or_init(|| {
            if !is_current(&path) {
                Self::build_at(&path, compiler, options, source, packages);
            }
        });
        Self { path }
    }

    /// Builds a program at this path. Another process may run the previous one, so it is replaced
    /// as a whole.
    fn build_at(path: &Path, compiler: &str, options: &[&str], source: &str, packages: &[&str]) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let made = folder.path().join("program");
        let mut build = Command::new(compiler);
        build.args(options).args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        build.arg("-I").arg(home().join("include")).arg(home().join(source));
        build.arg(library("a")).args(["-ldl", "-lm"]).arg("-o").arg(&made);
        build.args(packages.iter().flat_map(|package| flags(package)));
        let output =
            build.output().unwrap_or_else(|error| panic!("{compiler}: {error}: {INSTALL}"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        fs::rename(made, path).unwrap();
    }

    /// Runs the program, which must succeed, and returns its output.
    pub(crate) fn run(&self, arguments: &[String]) -> String {
        succeeded(ended(Command::new(&self.path).args(arguments)))
    }

    /// Runs the program, which must fail, and returns its error.
    pub(crate) fn refused(&self, arguments: &[String]) -> String {
        let output = ended(Command::new(&self.path).args(arguments));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        text(&output.stderr)
    }

    /// Runs the program, which must succeed without a finding of valgrind, and returns its output.
    pub(crate) fn run_under_valgrind(&self, arguments: &[String]) -> String {
        succeeded(ended(valgrind().arg(&self.path).args(arguments)))
    }

    /// Runs a program that uses TLS. Valgrind cannot track which bytes the assembly of ring has
    /// written, and treats all decrypted data as uninitialised, so that check is off.
    pub(crate) fn run_tls_under_valgrind(&self, arguments: &[String]) -> String {
        let mut valgrind = valgrind();
        succeeded(ended(valgrind.arg("--undef-value-errors=no").arg(&self.path).args(arguments)))
    }

    /// Returns the output, which must be the same with and without valgrind.
    pub(crate) fn run_both_ways(&self, arguments: &[String]) -> String {
        let said = self.run(arguments);
        assert_eq!(self.run_under_valgrind(arguments), said, "valgrind changes what it says");
        said
    }

    /// Runs a program that forks. The memory of the engine's thread is lost in the child, which
    /// does not have that thread, so leaks are not checked.
    pub(crate) fn run_forking_under_valgrind(&self, arguments: &[String]) -> String {
        succeeded(ended(valgrind().arg("--leak-check=no").arg(&self.path).args(arguments)))
    }

    /// Runs a program with a fault, and returns the report of valgrind.
    pub(crate) fn fails_under_valgrind(&self, arguments: &[String]) -> String {
        let output = ended(valgrind().arg(&self.path).args(arguments));
        assert_eq!(output.status.code(), Some(FOUND), "{}", text(&output.stderr));
        text(&output.stderr)
    }
}

/// Returns `true` if a program was built, by a test in another process, from the library and the
/// sources as they are now.
fn is_current(program: &Path) -> bool {
    let changed = |file: &Path| fs::metadata(file).and_then(|metadata| metadata.modified()).ok();
    let folders = ["include", "tests/c"].map(|folder| fs::read_dir(home().join(folder)).unwrap());
    let sources = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let newest = sources.chain([library("a")]).map(|file| changed(&file)).max();
    changed(program).is_some_and(|made| newest.flatten().is_some_and(|newest| newest < made))
}

/// Compiles a complete text in C or C++.
pub(crate) fn compiles(snippet: &str, kind: &str) {
    succeeded(compiled(snippet, kind, &[]));
}

/// Returns `true` if a text compiles without a warning.
pub(crate) fn is_accepted(snippet: &str, kind: &str, options: &[&str]) -> bool {
    compiled(snippet, kind, options).status.success()
}

fn compiled(snippet: &str, kind: &str, options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("snippet").with_extension(kind);
    fs::write(&source, snippet).unwrap();
    let (compiler, standard) =
        if kind == "c" { ("cc", "-std=gnu11") } else { ("c++", "-std=c++17") };
    let mut compile = Command::new(compiler);
    compile.args([standard, "-Wall", "-Wextra", "-Werror", "-c", "-o", "/dev/null"]).args(options);
    ended(compile.arg("-I").arg(home().join("include")).arg(&source))
}

/// Returns the library of this build, in the folder of this program.
pub(crate) fn library(ending: &str) -> PathBuf {
    let ours = env::current_exe().unwrap();
    ours.parent().unwrap().join(format!("libredbolt_capi.{ending}"))
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn flags(package: &str) -> Vec<String> {
    let output = Command::new("pkg-config").args(["--cflags", "--libs", package]).output();
    let output = output.unwrap_or_else(|error| panic!("pkg-config: {error}: {INSTALL}"));
    assert!(output.status.success(), "{package} is missing: {INSTALL}");
    text(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

fn valgrind() -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
    command.args(["--show-leak-kinds=definite,indirect", &format!("--error-exitcode={FOUND}")]);
    command
}

/// Runs a command to its end, within a time that only a bug exceeds.
pub(crate) fn ended(command: &mut Command) -> Output {
    let name = command.get_program().to_owned();
    // The output goes to files, because valgrind reports more than a pipe holds.
    let [said, complained] = [(), ()].map(|()| tempfile::tempfile().unwrap());
    let child = command
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(complained.try_clone().unwrap())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{}: {error}: {INSTALL}", shown(&name)));
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{} does not end: {}", shown(&name), text(&content(complained)));
        }
        thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: content(said), stderr: content(complained) }
}

fn content(mut file: File) -> Vec<u8> {
    let mut content = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut content)).unwrap();
    content
}

pub(crate) fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

fn shown(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

static BUILT: LazyLock<Mutex<HashMap<PathBuf, Arc<OnceLock<()>>>>> = LazyLock::new(Mutex::default);
const INSTALL: &str = "run `cargo xtask test`, or install it: \
    apt-get install -y gcc g++ pkg-config libuv1-dev valgrind python3";
const LIMIT: Duration = Duration::from_secs(180);
/// The exit status by which valgrind reports a finding.
const FOUND: i32 = 99;
