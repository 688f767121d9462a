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
    /// From the proxy of Go's modules: the folder of a program and what it needs. It is built when it is installed.
    Go { modules: &'static [&'static str], program: &'static str },
    /// From Maven's repository.
    /// The program is told which kind of lock it takes.
    Java { artifacts: &'static [&'static str], program: &'static str, kind: &'static str },
    /// From npm's registry.
    Node { packages: &'static [&'static str], program: &'static str },
    /// From the Python package index.
    Python { packages: &'static [&'static str], program: &'static str },
    /// From RubyGems, or from files that are in its folder already.
    Ruby { gems: &'static [&'static str], program: &'static str },
}

/// A lock of the usual kind on one node; where it runs is said of each.
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
    runtime: Runtime::Java {
        artifacts: &["org.redisson:redisson:4.7.0"],
        program: "RedissonPeer.java",
        kind: "lock",
    },
    profile: Profile::Redisson,
    prefix: "",
    takes_majorities: true,
    extends: Extends::ByItself,
    is_reentrant: true,
};

/// The last version whose value is a time.
const REDIS_OBJECTS: Library = Library {
    name: "redis-objects-1.4",
    version: "1.4.0",
    runtime: Runtime::Ruby {
        gems: &["redis-objects:1.4.0", "redis:4.8.0"],
        program: "redis_objects.rb",
    },
    profile: Profile::RedisObjects,
    extends: Extends::Never,
    ..IN_PYTHON
};

/// All of them.
pub(crate) const ALL: [Library; 12] = [
    REDISSON,
    Library {
        name: "redisson-3",
        version: "3.52.0",
        runtime: Runtime::Java {
            artifacts: &["org.redisson:redisson:3.52.0"],
            program: "RedissonPeer.java",
            kind: "lock",
        },
        ..REDISSON
    },
    Library {
        name: "redisson-rw",
        runtime: Runtime::Java {
            artifacts: &["org.redisson:redisson:4.7.0"],
            program: "RedissonPeer.java",
            kind: "read-write",
        },
        profile: Profile::RedissonRw,
        takes_majorities: false,
        ..REDISSON
    },
    Library {
        name: "spring-integration",
        version: "7.1.0",
        runtime: Runtime::Java {
            artifacts: &[
                "org.springframework.integration:spring-integration-redis:7.1.0",
                "io.lettuce:lettuce-core:7.5.2.RELEASE",
            ],
            program: "SpringPeer.java",
            kind: "lock",
        },
        profile: Profile::Spring,
        prefix: "shop:",
        takes_majorities: false,
        extends: Extends::WhenTold,
        ..REDISSON
    },
    REDIS_OBJECTS,
    Library {
        name: "redis-objects",
        version: "1.7.0",
        runtime: Runtime::Ruby {
            gems: &["redis-objects:1.7.0", "redis:4.8.0"],
            program: "redis_objects.rb",
        },
        ..REDIS_OBJECTS
    },
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
    Library {
        name: "node-redlock",
        version: "5.0.0-beta.2",
        runtime: Runtime::Node {
            packages: &["redlock@5.0.0-beta.2", "ioredis@5"],
            program: "redlock.js",
        },
        takes_majorities: true,
        ..IN_PYTHON
    },
    Library {
        name: "redsync",
        version: "4.13.0",
        runtime: Runtime::Go {
            modules: &[
                "github.com/go-redsync/redsync/v4@v4.13.0",
                "github.com/redis/go-redis/v9@v9.7.0",
            ],
            program: "redsync/main.go",
        },
        takes_majorities: true,
        ..IN_PYTHON
    },
];

impl Library {
    /// The program without which it does not run, if that is missing.
    pub(crate) fn missing_runtime(&self) -> Option<&'static str> {
        let needed: &[&str] = match self.runtime {
            Runtime::Go { .. } => &["go"],
            Runtime::Java { .. } => &["java", "mvn"],
            Runtime::Node { .. } => &["node", "npm"],
            Runtime::Python { .. } => &["python3"],
            Runtime::Ruby { .. } => &["ruby", "gem"],
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
            Runtime::Go { modules, program } => install_for_go(&folder, modules, program)?,
            Runtime::Java { artifacts, .. } => install_for_java(&folder, artifacts)?,
            Runtime::Node { packages, .. } => {
                let install = ["install", "--silent", "--no-fund", "--no-audit", "--prefix"];
                run(Command::new("npm").args(install).arg(&folder).args(packages))?;
            }
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
        }
        Ok(fs::write(folder.join(DONE), "")?)
    }

    /// Where its processes write what they complain of.
    pub(crate) fn complaints(&self) -> PathBuf {
        self.folder().join("complaints")
    }

    /// Starts a process of it for these nodes.
    pub(crate) fn start(&self, nodes: &[String]) -> Result<Peer, Failure> {
        let programs = programs();
        let mut command = match self.runtime {
            Runtime::Java { program, kind, .. } => {
                let mut java = Command::new("java");
                let libraries = self.folder().join("lib/*");
                java.args([
                    "-XX:TieredStopAtLevel=1",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                ]);
                java.arg(format!("-Dkind={kind}"));
                java.arg("-cp").arg(libraries).arg(programs.join(program));
                java
            }
            Runtime::Go { .. } => Command::new(self.folder().join("peer")),
            Runtime::Node { program, .. } => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", self.folder().join("node_modules"))
                    .arg(programs.join(program));
                node
            }
            Runtime::Python { program, .. } => {
                let mut python = Command::new(self.folder().join("bin/python"));
                python.env("PYTHONDONTWRITEBYTECODE", "1").arg(programs.join(program));
                python
            }
            Runtime::Ruby { program, .. } => {
                let mut ruby = Command::new("ruby");
                ruby.env("GEM_HOME", self.folder()).arg("-I").arg(self.folder().join("lib"));
                ruby.arg(programs.join(program));
                ruby
            }
        };
        let complaints = File::options().append(true).create(true).open(self.complaints())?;
        Peer::start(command.args(nodes).stderr(complaints))
    }
}

/// Copies these artifacts, and what they need, into the folder.
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

/// Builds the program in the folder, where all that it needs is.
fn install_for_go(folder: &Path, modules: &[&str], program: &str) -> Result<(), Failure> {
    let go = |args: &[&str]| run(Command::new("go").args(args).current_dir(folder));
    fs::copy(programs().join(program), folder.join("main.go"))?;
    fs::write(folder.join("go.mod"), "module interop\n\ngo 1.22\n")?;
    modules.iter().try_for_each(|module| go(&["get", module]))?;
    go(&["build", "-o", "peer", "."])
}

/// Where the programs of the peers are.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
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
