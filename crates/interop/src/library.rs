//! A library: how it is installed, how a peer of it is started, and what it supports.
//!
//! Libraries are installed into a folder outside the repository, and only when the command requests
//! it. The repository has only their names and versions, in `libraries`.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redbolt::Profile;

use crate::failure::Failure;
use crate::peer::Peer;

/// A library with locks.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) runtime: Runtime,
    /// The profile with which redbolt takes part in its locks.
    pub(crate) profile: Profile,
    pub(crate) prefix: &'static str,
    /// `true` if it also locks on several nodes.
    pub(crate) takes_majorities: bool,
    /// The way in which a lock is kept for longer than its TTL.
    pub(crate) extends: Extends,
    /// `true` if its owners may enter again.
    pub(crate) is_reentrant: bool,
    /// `true` if its locks have fencing tokens.
    pub(crate) is_fenced: bool,
    /// `true` if its release deletes a key without a check that it is still its own.
    pub(crate) deletes_without_a_look: bool,
    /// The keys that it leaves on the nodes after a release.
    pub(crate) keeps: &'static [Kept],
    /// The parts of its processes' output that are not complaints, each with the reason.
    pub(crate) says: &'static [(&'static str, &'static str)],
    /// `true` if another library of the list locks in the same way, so that fewer checks are
    /// enough.
    pub(crate) is_one_of_many: bool,
}

/// A key that is intentionally left after a release.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The kind of the entry, and the beginning of its name.
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
}

/// The way in which a lock is kept for longer than its TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extends {
    ByItself,
    Never,
    WhenTold,
}

/// The runtime of a library, its source, and its program.
#[derive(Debug)]
pub(crate) enum Runtime {
    /// A library from the proxy of Go's modules. It is built when it is installed.
    Go { modules: &'static [&'static str], program: &'static str },
    /// A library from Maven's repository. The program takes the kind of lock as an argument.
    Java { artifacts: &'static [&'static str], program: &'static str, kind: &'static str },
    /// A library from npm's registry.
    Node { packages: &'static [&'static str], program: &'static str },
    /// A library from Debian's archive, unpacked and not installed.
    Php { packages: &'static [&'static str], program: &'static str },
    /// A library from the Python package index.
    Python { packages: &'static [&'static str], program: &'static str },
    /// A library from RubyGems, or from files that are already in its folder.
    Ruby { gems: &'static [&'static str], program: &'static str },
    /// A library from crates.io: lines of a manifest. It is built when it is installed.
    Rust { crates: &'static str, program: &'static str },
}

impl Library {
    /// Returns the program that it needs to run, if that is missing.
    pub(crate) fn missing_runtime(&self) -> Option<&'static str> {
        let needed: &[&str] = match self.runtime {
            Runtime::Go { .. } => &["go"],
            Runtime::Java { .. } => &["java", "mvn"],
            Runtime::Node { .. } => &["node", "npm"],
            Runtime::Php { .. } => &["php", "apt-get", "dpkg-deb"],
            Runtime::Python { .. } => &["python3"],
            Runtime::Ruby { .. } => &["ruby", "gem"],
            Runtime::Rust { .. } => &["cargo"],
        };
        needed.iter().copied().find(|program| !is_there(program))
    }

    fn folder(&self) -> PathBuf {
        cache().join(format!("{}-{}", self.name, self.version))
    }

    /// Returns `true` if it was installed before.
    pub(crate) fn is_installed(&self) -> bool {
        fs::read_to_string(self.folder().join(DONE)).is_ok_and(|built| built == self.built())
    }

    /// Returns a text of everything that the installation builds. When the text changes, the
    /// library is installed again.
    fn built(&self) -> String {
        let (common, program) = match self.runtime {
            Runtime::Go { program, .. } => ("go/peer.go", program),
            Runtime::Rust { program, .. } => ("rust/peer.rs", program),
            _ => return String::new(),
        };
        let text = |name: &str| fs::read_to_string(programs().join(name)).unwrap_or_default();
        text(common) + &text(program)
    }

    /// Installs it, unless it was installed before.
    pub(crate) fn install(&self) -> Result<(), Failure> {
        if self.is_installed() {
            return Ok(());
        }
        let folder = self.folder();
        println!("interop: installing {} {} into {}", self.name, self.version, folder.display());
        fs::create_dir_all(&folder)?;
        match self.runtime {
            Runtime::Go { modules, program } => install_for_go(&folder, modules, program)?,
            Runtime::Java { artifacts, .. } => install_for_java(&folder, artifacts)?,
            Runtime::Node { packages, .. } => {
                let install = ["install", "--silent", "--no-fund", "--no-audit", "--prefix"];
                run(Command::new("npm").args(install).arg(&folder).args(packages))?;
            }
            Runtime::Php { packages, .. } => install_for_php(&folder, packages)?,
            Runtime::Python { packages, .. } => {
                run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
                let pip = folder.join("bin/pip");
                run(Command::new(pip).args(["install", "--quiet"]).args(packages))?;
            }
            Runtime::Ruby { .. } if folder.join("lib").exists() => {}
            Runtime::Ruby { gems, .. } => {
                let install = ["install", "--quiet", "--no-document", "--install-dir"];
                run(Command::new("gem").args(install).arg(&folder).args(gems))?;
            }
            Runtime::Rust { crates, program } => install_for_rust(&folder, crates, program)?,
        }
        Ok(fs::write(folder.join(DONE), self.built())?)
    }

    /// Returns the file to which its processes write their complaints.
    pub(crate) fn complaints(&self) -> PathBuf {
        self.folder().join("complaints")
    }

    /// Returns their complaints, without the known lines and the traces that follow those.
    pub(crate) fn complained(&self) -> Result<Vec<String>, Failure> {
        let all = fs::read_to_string(self.complaints())?;
        let mut is_known = false;
        let mut complaints = Vec::new();
        for line in all.lines() {
            if !(line.starts_with('\t') || line.starts_with("Caused by:")) {
                is_known = self.says.iter().any(|(known, _)| line.contains(known));
            }
            if !is_known {
                complaints.push(line.to_owned());
            }
        }
        Ok(complaints)
    }

    /// Starts a process of it for these nodes.
    pub(crate) fn start(&self, nodes: &[String]) -> Result<Peer, Failure> {
        // The process lives for seconds, and shares two cores.
        self.start_with(nodes, &["-XX:TieredStopAtLevel=1"])
    }

    /// Starts a process whose times are measured, with full optimisation.
    pub(crate) fn start_measured(&self, nodes: &[String]) -> Result<Peer, Failure> {
        self.start_with(nodes, &[])
    }

    /// Starts a process, with these options if it runs on Java.
    fn start_with(&self, nodes: &[String], options: &[&str]) -> Result<Peer, Failure> {
        let programs = programs();
        let folder = self.folder();
        let command = match self.runtime {
            Runtime::Java { program, kind, .. } => {
                let mut java = Command::new("java");
                java.args(options).arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
                java.arg(format!("-Dkind={kind}"));
                java.arg("-cp").arg(folder.join("lib/*")).arg(programs.join(program));
                java
            }
            Runtime::Go { .. } | Runtime::Rust { .. } => Command::new(folder.join("peer")),
            Runtime::Node { program, .. } => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", folder.join("node_modules")).arg(programs.join(program));
                node
            }
            Runtime::Php { program, .. } => {
                let mut php = Command::new("php");
                // The system's own settings are ignored, because they may load the same extension.
                php.arg("-n");
                for extension in ["igbinary.so", "redis.so"] {
                    let path = file_below(&folder.join("usr/lib/php"), extension)?;
                    php.arg("-d").arg(format!("extension={}", path.display()));
                }
                php.arg(programs.join(program)).arg(folder.join("usr/share/php"));
                php
            }
            Runtime::Python { program, .. } => {
                let mut python = Command::new(folder.join("bin/python"));
                python.env("PYTHONDONTWRITEBYTECODE", "1").arg(programs.join(program));
                python
            }
            Runtime::Ruby { program, .. } => {
                let mut ruby = Command::new("ruby");
                ruby.env("GEM_HOME", &folder).arg("-I").arg(folder.join("lib"));
                ruby.arg(programs.join(program));
                ruby
            }
        };
        self.spawn(command, nodes)
    }

    fn spawn(&self, mut command: Command, nodes: &[String]) -> Result<Peer, Failure> {
        let complaints = File::options().append(true).create(true).open(self.complaints())?;
        Peer::start(command.args(nodes).stderr(complaints))
    }
}

/// Copies these artifacts, and their dependencies, into the folder.
fn install_for_java(folder: &Path, artifacts: &[&str]) -> Result<(), Failure> {
    let log = ["org.slf4j:slf4j-simple:2.0.17"];
    let dependency = |artifact: &&str| {
        let mut words = artifact.split(':');
        let [group, name, version] = [(); 3].map(|()| words.next().unwrap_or_default());
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    let dependencies: String = artifacts.iter().chain(&log).map(dependency).collect();
    let project = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>interop</groupId><artifactId>interop</artifactId><version>1</version>\
         <dependencies>{dependencies}</dependencies></project>"
    );
    fs::write(folder.join("pom.xml"), project)?;
    let copy = ["--quiet", "--batch-mode", "dependency:copy-dependencies"];
    run(Command::new("mvn").args(copy).arg("-DoutputDirectory=lib").current_dir(folder))
}

/// Builds the program in the folder, which has all its dependencies.
fn install_for_go(folder: &Path, modules: &[&str], program: &str) -> Result<(), Failure> {
    let go = |args: &[&str]| run(Command::new("go").args(args).current_dir(folder));
    fs::copy(programs().join("go/peer.go"), folder.join("peer.go"))?;
    fs::copy(programs().join(program), folder.join("main.go"))?;
    fs::write(folder.join("go.mod"), "module interop\n\ngo 1.22\n")?;
    modules.iter().try_for_each(|module| go(&["get", module]))?;
    go(&["build", "-o", "peer", "."])
}

/// Unpacks these packages in the folder.
fn install_for_php(folder: &Path, packages: &[&str]) -> Result<(), Failure> {
    let mut download = Command::new("apt-get");
    run(download.args(["download", "--quiet=2"]).args(packages).current_dir(folder))?;
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(path).arg(folder))?;
        }
    }
    Ok(())
}

/// Builds the program with these crates in the folder.
fn install_for_rust(folder: &Path, crates: &str, program: &str) -> Result<(), Failure> {
    let source = folder.join("src");
    fs::create_dir_all(&source)?;
    fs::copy(programs().join("rust/peer.rs"), source.join("peer.rs"))?;
    fs::copy(programs().join(program), source.join("main.rs"))?;
    let package = "[package]\nname = \"peer\"\nversion = \"0.0.0\"\nedition = \"2021\"\n";
    let manifest = format!("{package}[workspace]\n[dependencies]\n{crates}\n");
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let target = folder.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--target-dir"]).arg(&target).current_dir(folder);
    run(&mut cargo)?;
    fs::copy(target.join("debug/peer"), folder.join("peer"))?;
    Ok(fs::remove_dir_all(target)?)
}

/// Returns a file of this name in one of the folders in this one.
fn file_below(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    for inner in fs::read_dir(folder)? {
        let path = inner?.path().join(name);
        if path.exists() {
            return Ok(path);
        }
    }
    Err(format!("{name} is missing in {}", folder.display()).into())
}

/// Returns the folder of the peers' programs.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Returns the folder into which they are installed.
fn cache() -> PathBuf {
    let own = env::var_os("REDBOLT_INTEROP_CACHE").filter(|own| !own.is_empty()).map(PathBuf::from);
    let of_user = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache/redbolt-interop"));
    own.or_else(of_user).unwrap_or_else(|| env::temp_dir().join("redbolt-interop"))
}

fn is_there(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).status();
    match status.map_err(|error| format!("{command:?}: {error}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{command:?}: {status}").into()),
    }
}

/// The file that exists once everything is installed, with the text of what was built.
const DONE: &str = "installed";
