//! `cargo xtask dist`: one archive for a release, with the program, its manual pages and its
//! completions.
//!
//! The program is static if the standard library for musl is installed. Otherwise it uses this
//! machine's C library, and the archive's name shows it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    package::{copy, of_file, shown_size, target},
    step::{self, Failure, cargo, root},
};

/// Builds the archive, tries its contents, and prints its size.
pub(crate) fn build() -> Result<(), Failure> {
    let platform = platform()?;
    if !platform.ends_with("-musl") {
        println!(
            "xtask: Rust for musl is not installed: the program will need this system's C library"
        );
    }
    let program = build_program(&platform)?;
    let name = format!("redbolt-{}-{platform}", env!("CARGO_PKG_VERSION"));
    let folder = target().join("dist").join(&name);
    fill(&folder, &program)?;
    let archive = pack(&folder, &name)?;
    println!("xtask: {} {}", shown_size(&program)?, program.display());
    println!("xtask: {} {}", shown_size(&archive)?, archive.display());
    let bytes = fs::metadata(&archive).map_err(|error| of_file(&archive, &error))?.len();
    if bytes > LIMIT {
        return Err(Failure(format!("dist: {bytes} bytes are more than {LIMIT}")));
    }
    Ok(())
}

/// Returns the target: this machine, static if possible.
fn platform() -> Result<String, Failure> {
    let said = said_by(Command::new(RUSTC).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Failure("dist: rustc does not say its host".into()))?;
    let musl = with_musl(host);
    let mut libraries = Command::new(RUSTC);
    let libraries = said_by(libraries.args(["--print", "target-libdir", "--target", &musl]))?;
    Ok(if Path::new(libraries.trim()).is_dir() { musl } else { host.to_owned() })
}

fn with_musl(host: &str) -> String {
    host.replace("-linux-gnu", "-linux-musl")
}

fn build_program(platform: &str) -> Result<PathBuf, Failure> {
    let mut build = cargo("build");
    build.args(["--quiet", "--locked", "--package", "redbolt-cli", "--profile", "dist"]);
    step::run("dist", build.args(["--target", platform]))?;
    Ok(target().join(platform).join("dist/redbolt"))
}

/// Fills the archive's folder. The program itself prints the pages and the completions.
fn fill(folder: &Path, program: &Path) -> Result<(), Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| of_file(folder, &error))?;
    }
    let completions = folder.join("completions");
    fs::create_dir_all(&completions).map_err(|error| of_file(&completions, &error))?;
    copy(program, &folder.join("redbolt"))?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(file), &folder.join(file))?;
    }
    step::run("dist", Command::new(program).arg("man").arg(folder.join("man/man1")))?;
    for (shell, file) in [("bash", "redbolt"), ("zsh", "_redbolt"), ("fish", "redbolt.fish")] {
        let script = said_by(Command::new(program).args(["completions", shell]))?;
        let file = completions.join(file);
        fs::write(&file, script).map_err(|error| of_file(&file, &error))?;
    }
    Ok(())
}

fn pack(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let archive = folder.with_file_name(format!("{name}.tar.gz"));
    let mut pack = Command::new("tar");
    pack.arg("-czf").arg(&archive).arg("-C").arg(target().join("dist")).arg(name);
    step::run("dist", &mut pack)?;
    Ok(archive)
}

fn said_by(command: &mut Command) -> Result<String, Failure> {
    let shown = step::shown(command);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::not_run(&shown, &error))?;
    if !output.status.success() {
        return Err(Failure::of("dist", &shown, output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Failure(format!("dist: `{shown}` printed no text")))
}

const RUSTC: &str = "rustc";

/// The largest size of an archive in bytes.
const LIMIT: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_is_for_the_machine_that_builds_it() {
        assert_eq!(with_musl("aarch64-unknown-linux-gnu"), "aarch64-unknown-linux-musl");
        assert_eq!(with_musl("aarch64-apple-darwin"), "aarch64-apple-darwin");
    }
}
