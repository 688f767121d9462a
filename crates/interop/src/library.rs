//! The libraries: where each comes from, how a peer of it is started, and what it can do.
//!
//! They are installed into a folder outside of the repository, and only by the command that is asked to. Nothing of them is
//! in the repository but the names and versions. Not here: what is checked, see `checks`.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redbolt::Profile;

use crate::Failure;
use crate::peer::Peer;

/// A library that takes locks.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    runtime: Runtime,
    /// With which redbolt takes part in its locks.
    pub(crate) profile: Profile,
    pub(crate) prefix: &'static str,
    /// Whether it locks on several nodes too.
    pub(crate) takes_majorities: bool,
    /// How a lock of it is kept for longer than its TTL.
    pub(crate) extends: Extends,
    /// Whether its owners may enter again.
    pub(crate) is_reentrant: bool,
}

/// How a lock is kept for longer than its TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extends {
    ByItself,
    Never,
    WhenTold,
}

#[derive(Debug)]
enum Runtime {
    /// From Maven's repository.
    Java { artifact: &'static str, program: &'static str },
    /// From the Python package index.
    Python { packages: &'static [&'static str], program: &'static str },
}

/// A lock of the usual kind on one node, in Python.
const IN_PYTHON: Library = Library {
    name: "",
    version: "",
    runtime: Runtime::Python { packages: &[], program: "" },
    profile: Profile::Plain,
    prefix: "",
    takes_majorities: false,
    extends: Extends::WhenTold,
    is_reentrant: false,
};

const REDISSON: Library = Library {
    name: "redisson",
    version: "4.7.0",
    runtime: Runtime::Java { artifact: "org.redisson:redisson", program: "RedissonPeer.java" },
    profile: Profile::Redisson,
    prefix: "",
    takes_majorities: true,
    extends: Extends::ByItself,
    is_reentrant: true,
};

/// All of them.
pub(crate) const ALL: [Library; 6] = [
    REDISSON,
    Library { name: "redisson-3", version: "3.52.0", ..REDISSON },
    Library {
        name: "redis-py",
        version: "8.1.0",
        runtime: Runtime::Python { packages: &["redis==8.1.0"], program: "redis_py.py" },
        ..IN_PYTHON
    },
    Library {
        name: "redlock-py",
        version: "1.0.8",
        runtime: Runtime::Python {
            packages: &["redlock-py==1.0.8", "redis==8.1.0"],
            program: "redlock_py.py",
        },
        takes_majorities: true,
        extends: Extends::Never,
        ..IN_PYTHON
    },
    Library {
        name: "pottery",
        version: "3.0.1",
        runtime: Runtime::Python { packages: &["pottery==3.0.1"], program: "pottery_lock.py" },
        prefix: "redlock:",
        takes_majorities: true,
        ..IN_PYTHON
    },
    Library {
        name: "python-redis-lock",
        version: "4.0.1",
        runtime: Runtime::Python {
            packages: &["python-redis-lock==4.0.1"],
            program: "python_redis_lock.py",
        },
        prefix: "lock:",
        ..IN_PYTHON
    },
];

impl Library {
    /// The program without which it does not run, if that is missing.
    pub(crate) fn missing_runtime(&self) -> Option<&'static str> {
        let needed: &[&str] = match self.runtime {
            Runtime::Java { .. } => &["java", "mvn"],
            Runtime::Python { .. } => &["python3"],
        };
        needed.iter().copied().find(|program| !is_there(program))
    }

    fn folder(&self) -> PathBuf {
        cache().join(format!("{}-{}", self.name, self.version))
    }

    /// Whether it was installed before.
    pub(crate) fn is_installed(&self) -> bool {
        self.folder().join(DONE).exists()
    }

    /// Installs it, unless it was before.
    pub(crate) fn install(&self) -> Result<(), Failure> {
        if self.is_installed() {
            return Ok(());
        }
        let folder = self.folder();
        println!("interop: installing {} {} into {}", self.name, self.version, folder.display());
        fs::create_dir_all(&folder)?;
        match self.runtime {
            Runtime::Java { artifact, .. } => self.install_for_java(&folder, artifact)?,
            Runtime::Python { packages, .. } => {
                run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
                let pip = folder.join("bin/pip");
                run(Command::new(pip).args(["install", "--quiet"]).args(packages))?;
            }
        }
        Ok(fs::write(folder.join(DONE), "")?)
    }

    fn install_for_java(&self, folder: &Path, artifact: &str) -> Result<(), Failure> {
        let (group, name) = artifact.split_once(':').ok_or("no artifact")?;
        let version = self.version;
        let dependency = format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>"
        );
        let log = "<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>\
             <version>2.0.17</version></dependency>";
        let project = format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>interop</groupId><artifactId>interop</artifactId><version>1</version>\
             <dependencies>{dependency}{log}</dependencies></project>"
        );
        fs::write(folder.join("pom.xml"), project)?;
        let copy = ["--quiet", "--batch-mode", "dependency:copy-dependencies"];
        run(Command::new("mvn").args(copy).arg("-DoutputDirectory=lib").current_dir(folder))
    }

    /// Where its processes write what they complain of.
    pub(crate) fn complaints(&self) -> PathBuf {
        self.folder().join("complaints")
    }

    /// Starts a process of it for these nodes.
    pub(crate) fn start(&self, nodes: &[String]) -> Result<Peer, Failure> {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let mut command = match self.runtime {
            Runtime::Java { program, .. } => {
                let mut java = Command::new("java");
                let libraries = self.folder().join("lib/*");
                java.args([
                    "-XX:TieredStopAtLevel=1",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                ]);
                java.arg("-cp").arg(libraries).arg(programs.join(program));
                java
            }
            Runtime::Python { program, .. } => {
                let mut python = Command::new(self.folder().join("bin/python"));
                python.env("PYTHONDONTWRITEBYTECODE", "1").arg(programs.join(program));
                python
            }
        };
        let complaints = File::options().append(true).create(true).open(self.complaints())?;
        Peer::start(command.args(nodes).stderr(complaints))
    }
}

/// Where they are installed.
fn cache() -> PathBuf {
    let own = env::var_os("REDBOLT_INTEROP_CACHE").map(PathBuf::from);
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

/// A file that is there once all is.
const DONE: &str = "installed";
