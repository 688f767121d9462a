//! The cost of a client in the build: a program that acquires and releases one lock, for each way
//! to do that in Rust.
//!
//! Each is a source in `programs` and a manifest that is generated here: a package outside this
//! workspace, so that only its own features are on, with the versions of this workspace's lock
//! file. The table is in `part/build.rs`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redbolt_test_servers::{Reply, Server};
use serde_json::Value;
use tempfile::TempDir;

use crate::counts::Counts;

/// A program that takes one lock.
#[derive(Clone, Copy)]
pub struct Program {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// Its dependencies, in a line.
    pub about: &'static str,
    /// The names and options of its dependencies.
    dependencies: &'static [(&'static str, &'static str)],
    source: &'static str,
}

/// All programs, the floor first.
pub const ALL: [Program; 8] = [
    Program {
        name: "raw mio",
        about: "sockets in a mio loop and requests as text, without a parser",
        dependencies: &[("mio", MIO)],
        source: include_str!("programs/raw_mio.rs"),
    },
    Program {
        name: "redbolt",
        about: "the blocking client; the only one with the restart guard",
        dependencies: &[("redbolt", "")],
        source: include_str!("programs/redbolt.rs"),
    },
    Program {
        name: "rslock",
        about: "with its tokio feature, on tokio's current_thread",
        dependencies: &[
            ("rslock", r#", default-features = false, features = ["tokio-comp"]"#),
            TOKIO,
        ],
        source: include_str!("programs/rslock.rs"),
    },
    Program {
        name: "redlock",
        about: "with its default features",
        dependencies: &[("redlock", "")],
        source: include_str!("programs/redlock.rs"),
    },
    Program {
        name: "redis sync",
        about: "the driver without its default features, and thirty lines for a lock",
        dependencies: &[("redis", ", default-features = false")],
        source: include_str!("programs/redis_sync.rs"),
    },
    Program {
        name: "redis tokio",
        about: "the driver with its tokio feature, the same lines, on tokio's current_thread",
        dependencies: &[
            ("redis", r#", default-features = false, features = ["tokio-comp"]"#),
            TOKIO,
        ],
        source: include_str!("programs/redis_tokio.rs"),
    },
    Program {
        name: "fred",
        about: "the driver with keys and scripts only, the same lines, on tokio's current_thread",
        dependencies: &[
            ("fred", r#", default-features = false, features = ["i-keys", "i-scripts"]"#),
            TOKIO,
        ],
        source: include_str!("programs/fred.rs"),
    },
    Program {
        name: "rustis",
        about: "the driver with its tokio feature only, the same lines, on tokio's current_thread",
        dependencies: &[
            ("rustis", r#", default-features = false, features = ["tokio-runtime"]"#),
            TOKIO,
        ],
        source: include_str!("programs/rustis.rs"),
    },
];

/// The cost of a program.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Packages that were compiled for it, including those of build scripts and macros, excluding
    /// itself.
    pub crates: usize,
    /// The time of each clean build.
    pub clean: Vec<Duration>,
    /// The size of the stripped program in bytes.
    pub size: u64,
}

/// A program in a separate folder.
pub struct Package {
    folder: TempDir,
}

impl Package {
    /// Writes the package, and makes sure that all its dependencies are on this machine.
    ///
    /// # Errors
    ///
    /// A version is not in the lock file, or cannot be fetched.
    pub fn write(program: Program) -> Result<Self> {
        let (folder, root) = (tempfile::tempdir()?, root());
        let lock = std::fs::read_to_string(root.join("Cargo.lock"))
            .context("the workspace of this build is gone")?;
        std::fs::create_dir(folder.path().join("src"))?;
        std::fs::write(folder.path().join("Cargo.toml"), program.manifest(&lock, &root)?)?;
        std::fs::write(folder.path().join("Cargo.lock"), lock)?;
        std::fs::write(folder.path().join("src/main.rs"), program.source)?;
        let package = Self { folder };
        // This uses the network only if a dependency is missing.
        if package.cargo(&["fetch", "--offline"]).output()?.status.success() {
            return Ok(package);
        }
        done("cargo fetch", package.cargo(&["fetch"]))?;
        Ok(package)
    }

    /// Builds it this many times from scratch, and lets it acquire a lock on these nodes.
    ///
    /// # Errors
    ///
    /// It does not build, or does not work.
    pub fn weigh(&self, builds: usize, servers: &[Server]) -> Result<Weight> {
        let (mut clean, mut crates) = (Vec::new(), 0);
        for _ in 0..builds.max(1) {
            match std::fs::remove_dir_all(self.target()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
            let start = Instant::now();
            let messages = done("cargo build", self.build())?;
            clean.push(start.elapsed());
            crates = crates_of(&messages)?;
        }
        let size = std::fs::metadata(self.binary())?.len();
        prove(&self.binary(), servers).context("it was built, but")?;
        Ok(Weight { crates, clean, size })
    }

    fn build(&self) -> Command {
        let mut build = self.cargo(&["build", "--release", "--offline", "--quiet"]);
        build.args(["--message-format", "json", "--target-dir"]).arg(self.target());
        build
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        // These variables are meant for the build of the bench program.
        for name in
            ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"]
        {
            cargo.env_remove(name);
        }
        cargo
    }

    fn binary(&self) -> PathBuf {
        self.target().join("release").join(PACKAGE)
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("target")
    }
}

impl Program {
    fn manifest(&self, lock: &str, root: &Path) -> Result<String> {
        let line = |(name, options): &(&str, &str)| {
            if *name == "redbolt" {
                return Ok(format!("redbolt = {{ path = {:?} }}\n", root.display().to_string()));
            }
            let version = version(lock, name).with_context(|| format!("{name} is not locked"))?;
            Ok(format!("{name} = {{ version = \"={version}\"{options} }}\n"))
        };
        let dependencies = self.dependencies.iter().map(line).collect::<Result<String>>()?;
        Ok(format!(
            "[package]\nname = \"{PACKAGE}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [workspace]\n\n[dependencies]\n{dependencies}\n[profile.release]\nstrip = true\n"
        ))
    }
}

/// Returns the newest version of this name in a lock file, which is the one that the name alone
/// refers to.
fn version<'l>(lock: &'l str, name: &str) -> Option<&'l str> {
    let begin = format!("name = \"{name}\"\n");
    let versions = lock.split("[[package]]\n").filter_map(|entry| {
        let rest = entry.strip_prefix(&begin)?.strip_prefix("version = \"")?;
        rest.split('"').next()
    });
    versions.last()
}

/// Returns the number of packages in cargo's messages, without the program itself.
fn crates_of(messages: &str) -> Result<usize> {
    let mut packages = HashSet::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)?;
        let is_program = message["target"]["name"] == PACKAGE;
        if message["reason"] == "compiler-artifact" && !is_program {
            packages.insert(message["package_id"].as_str().context("of no package")?.to_owned());
        }
    }
    Ok(packages.len())
}

/// Checks that the program acquires its lock on a majority, and leaves nothing behind.
fn prove(binary: &Path, servers: &[Server]) -> Result<()> {
    let before = Counts::of(servers).sets()?;
    let mut program = Command::new(binary);
    program.args(servers.iter().map(Server::address)).stdin(Stdio::null()).stdout(Stdio::null());
    let mut program = program.stderr(Stdio::null()).spawn()?;
    let outcome = ended(&mut program);
    if outcome.is_err() {
        let _ = program.kill();
    }
    program.wait()?;
    outcome?;
    let after = Counts::of(servers).sets()?;
    let asked = after.iter().zip(&before).filter(|(after, before)| after > before).count();
    ensure!(asked > servers.len() / 2, "it asked {asked} of {} nodes", servers.len());
    let until = Instant::now() + PATIENCE;
    let is_left = |server: &Server| server.run(&[b"EXISTS", RESOURCE]) != Reply::Int(0);
    while servers.iter().filter(|server| is_left(server)).count() > servers.len() / 2 {
        ensure!(Instant::now() < until, "it did not release its lock");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn ended(program: &mut Child) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = program.try_wait()? {
            ensure!(status.success(), "it ended with {status}");
            return Ok(());
        }
        ensure!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the output of a command that must succeed.
fn done(what: &str, mut command: Command) -> Result<String> {
    let output = command.output().context("cargo cannot be started")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what} failed: {}", words.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the workspace that this was built from.
fn root() -> PathBuf {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    benches.parent().expect("the benches are in a workspace").to_owned()
}

const PACKAGE: &str = "one-lock";

/// The resource of all programs.
const RESOURCE: &[u8] = b"redbolt-weight-0";

const MIO: &str = r#", default-features = false, features = ["net", "os-poll"]"#;
const TOKIO: (&str, &str) =
    ("tokio", r#", default-features = false, features = ["net", "rt", "time"]"#);
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use redbolt_test_servers::servers;

    use super::*;

    #[test]
    fn each_manifest_names_locked_versions_and_can_be_read() {
        let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
        for program in ALL {
            let package = Package::write(program).unwrap();
            let metadata = package.cargo(&["metadata", "--offline", "--format-version", "1"]);
            let metadata: Value =
                serde_json::from_str(&done("cargo metadata", metadata).unwrap()).unwrap();
            let packages = metadata["packages"].as_array().unwrap();
            for (name, _) in program.dependencies {
                let found = packages.iter().find(|package| package["name"] == *name).unwrap();
                assert_eq!(found["version"].as_str(), version(&lock, name), "{}", program.name);
            }
        }
    }

    #[test]
    fn the_floor_is_built_and_takes_its_lock() {
        let servers = servers(3);
        let package = Package::write(ALL[0]).unwrap();
        let weight = package.weigh(1, &servers).unwrap();
        assert!((1..=6).contains(&weight.crates), "{weight:?}");
        assert!(weight.size > 10_000 && weight.clean.len() == 1, "{weight:?}");
        // A program that is refused the lock does not count.
        servers.iter().for_each(|server| {
            server.run(&[b"SET", RESOURCE, b"somebody else"]);
        });
        assert!(prove(&package.binary(), &servers).is_err());
    }
}
