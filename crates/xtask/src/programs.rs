//! The programs that tests and counts need. Missing ones are installed with the system's package
//! manager.
//!
//! Every installation is announced, and if one fails, its commands are printed for running them by
//! hand. A package may start a service; the tests do not use it.

use std::{
    env,
    process::{Command, Stdio},
};

use crate::step::{self, Failure, cargo};

/// Finds or installs everything.
pub(crate) fn provide() -> Result<(), Failure> {
    provide_component("rustfmt", "fmt")?;
    provide_component("clippy", "clippy")?;
    provide_compilers()?;
    if install_missing(&PROGRAMS, "tests run it")? {
        println!("xtask: nothing is missing");
    }
    Ok(())
}

/// Finds or installs the program that counts instructions.
pub(crate) fn provide_counter() -> Result<(), Failure> {
    install_missing(&[COUNTER], "it counts instructions").map(drop)
}

/// Finds or installs the compilers for C.
pub(crate) fn provide_compilers() -> Result<(), Failure> {
    install_missing(&COMPILERS, "programs in C are built with it").map(drop)
}

/// Finds or installs the program that mutates the source.
pub(crate) fn provide_mutants() -> Result<(), Failure> {
    let mut version = cargo("mutants");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    install(&[MUTANTS.to_owned()])
}

/// Installs the missing ones of these programs. Returns `true` if none was missing.
fn install_missing(programs: &[Program], use_of_it: &str) -> Result<bool, Failure> {
    let missing: Vec<&Program> = programs.iter().filter(|program| program.is_missing()).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let names = missing.iter().map(|program| program.name).collect::<Vec<_>>().join(" and ");
    let Some(manager) = MANAGERS.iter().find(|manager| on_path(manager.name)) else {
        return Err(Failure(format!("no known package manager: install {names} by hand")));
    };
    println!("xtask: missing ({use_of_it}): {names}");
    install(&manager.commands(&missing, !is_root() && on_path("sudo")))?;
    match missing.iter().find(|program| program.is_missing()) {
        Some(program) => Err(Failure(format!("{} is still not in PATH", program.name))),
        None => Ok(false),
    }
}

/// Installs a component of the toolchain: a minimal one has neither `cargo fmt` nor `cargo clippy`.
fn provide_component(component: &str, subcommand: &str) -> Result<(), Failure> {
    let mut version = cargo(subcommand);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    if on_path("rustup") {
        return install(&[format!("rustup component add {component}")]);
    }
    let text = format!("`cargo {subcommand}` does not run: install {component} for your toolchain");
    Err(Failure(text))
}

fn install(commands: &[String]) -> Result<(), Failure> {
    for line in commands {
        println!("xtask: installing: {line}");
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        step::run("programs", command.args(words)).map_err(|failure| {
            Failure(format!("{failure}. To install by hand: {}", commands.join(" && ")))
        })?;
    }
    Ok(())
}

/// A required program, or a library in C, by its name for `pkg-config`.
struct Program {
    name: &'static str,
    is_library: bool,
    /// The environment variable that names another binary, for the tests and for this check.
    stand_in: Option<&'static str>,
    linux_only: bool,
}

impl Program {
    fn is_missing(&self) -> bool {
        let wanted = cfg!(target_os = "linux") || !self.linux_only;
        let stood_in = self.stand_in.is_some_and(|variable| env::var_os(variable).is_some());
        wanted && !stood_in && !self.is_there()
    }

    fn is_there(&self) -> bool {
        if !self.is_library {
            return on_path(self.name);
        }
        let mut exists = Command::new("pkg-config");
        exists.args(["--exists", self.name]).status().is_ok_and(|status| status.success())
    }
}

struct Manager {
    name: &'static str,
    /// The commands, in order; the package names are appended to the last.
    commands: &'static [&'static str],
    /// The packages that are not named after their programs.
    packages: &'static [(&'static str, &'static str)],
    /// `true` if it needs root, because it installs for the whole machine.
    needs_root: bool,
}

impl Manager {
    fn commands(&self, missing: &[&Program], sudo: bool) -> Vec<String> {
        let prefix = if self.needs_root && sudo { "sudo " } else { "" };
        let mut commands: Vec<_> =
            self.commands.iter().map(|line| format!("{prefix}{line}")).collect();
        for program in missing {
            let named = self.packages.iter().find(|(name, _)| *name == program.name);
            if let Some(install) = commands.last_mut() {
                install.push(' ');
                install.push_str(named.map_or(program.name, |(_, package)| package));
            }
        }
        commands
    }
}

fn is_root() -> bool {
    let user = Command::new("id").arg("-u").output();
    user.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

const fn for_linux(name: &'static str) -> Program {
    Program { name, is_library: false, stand_in: None, linux_only: true }
}

/// The programs of the tests: `strace` counts system calls, and `valgrind` finds memory errors.
const PROGRAMS: [Program; 5] = [
    Program {
        name: "redis-server",
        is_library: false,
        stand_in: Some("REDIS_SERVER"),
        linux_only: false,
    },
    for_linux("strace"),
    COUNTER,
    for_linux("python3"),
    Program { is_library: true, ..for_linux("libuv") },
];

/// The programs that build users of the C library. `pkg-config` finds libraries.
const COMPILERS: [Program; 3] = [for_linux("cc"), for_linux("c++"), for_linux("pkg-config")];

/// The version of cargo-mutants whose names of mutants the committed lists use.
const MUTANTS: &str = "cargo install --locked cargo-mutants@27.1.0";

const COUNTER: Program = for_linux("valgrind");

/// The package managers. Brew is last, because a Linux system with another package manager may have
/// it as well.
const MANAGERS: [Manager; 7] = [
    Manager {
        name: "apt-get",
        commands: &["apt-get update", "env DEBIAN_FRONTEND=noninteractive apt-get install -y"],
        packages: &[("c++", "g++"), ("cc", "gcc"), ("libuv", "libuv1-dev")],
        needs_root: true,
    },
    system("dnf", &["dnf install -y"], &RED_HAT),
    system("yum", &["yum install -y"], &RED_HAT),
    system(
        "apk",
        &["apk add"],
        &[("c++", "g++"), ("cc", "gcc"), ("libuv", "libuv-dev"), ("redis-server", "redis")],
    ),
    system(
        "pacman",
        &["pacman -Sy --noconfirm"],
        &[("c++", "gcc"), ("cc", "gcc"), ("python3", "python"), ("redis-server", "redis")],
    ),
    system("zypper", &["zypper --non-interactive install"], &RED_HAT),
    Manager {
        name: "brew",
        commands: &["brew install"],
        packages: &[("redis-server", "redis")],
        needs_root: false,
    },
];

const RED_HAT: [(&str, &str); 4] =
    [("c++", "gcc-c++"), ("cc", "gcc"), ("libuv", "libuv-devel"), ("redis-server", "redis")];

const fn system(
    name: &'static str,
    commands: &'static [&'static str],
    packages: &'static [(&'static str, &'static str)],
) -> Manager {
    Manager { name, commands, packages, needs_root: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(manager: &str, sudo: bool) -> Vec<String> {
        let manager = MANAGERS.iter().find(|known| known.name == manager).unwrap();
        manager.commands(&[&PROGRAMS[0], &PROGRAMS[1]], sudo)
    }

    #[test]
    fn debian_looks_for_packages_first() {
        let update = "apt-get update";
        let install = "env DEBIAN_FRONTEND=noninteractive apt-get install -y redis-server strace";
        assert_eq!(commands("apt-get", false), [update, install]);
        assert_eq!(
            commands("apt-get", true),
            [format!("sudo {update}"), format!("sudo {install}")]
        );
    }

    #[test]
    fn the_package_is_named_as_the_system_names_it() {
        assert_eq!(commands("dnf", true), ["sudo dnf install -y redis strace"]);
        assert_eq!(commands("brew", true), ["brew install redis strace"]);
        let zypper = MANAGERS.iter().find(|known| known.name == "zypper").unwrap();
        let missing = [&COMPILERS[1], &PROGRAMS[4]];
        let install = "zypper --non-interactive install gcc-c++ libuv-devel";
        assert_eq!(zypper.commands(&missing, false), [install]);
    }

    #[test]
    fn a_failed_installation_prints_its_commands() {
        let commands = ["false".to_owned(), "echo done".to_owned()];
        let failure = install(&commands).unwrap_err().to_string();
        assert!(failure.ends_with("To install by hand: false && echo done"), "{failure}");
    }
}
