//! `cargo xtask package`: packs the files that a registry would distribute, and uses them as its
//! users would.
//!
//! The published crates are packed, put into an empty directory together with the third-party
//! crates that they need, and built there by version: an empty cargo home, no network, nothing of
//! this repository. Two users try them: `cargo install redbolt-cli`, and a program that depends on
//! the other two.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
};

use crate::step::{self, Failure, cargo, root};

/// The published crates, in the order of their dependencies.
pub(crate) const PUBLISHED: [&str; 3] = ["redbolt", "redbolt-node", "redbolt-cli"];

/// Packs the crates and builds their users.
pub(crate) fn prove() -> Result<(), Failure> {
    let room = Room::new()?;
    let packages = pack()?;
    for package in &packages {
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(package).arg("-C").arg(room.packages());
        step::run("unpack", &mut unpack)?;
    }
    provide_third_parties(&room)?;
    move_in(&room)?;
    use_them(&room)?;
    for package in &packages {
        println!("xtask: {} {}", shown_size(package)?, package.display());
    }
    println!("xtask: all three build from the packages alone, and work together");
    Ok(())
}

/// Creates the files that a registry would get.
pub(crate) fn pack() -> Result<Vec<PathBuf>, Failure> {
    let mut pack = cargo("package");
    // Uncommitted changes are packed as well: this is a check, and publishes nothing.
    pack.args(["--quiet", "--no-verify", "--allow-dirty"]);
    pack.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    step::run("package", &mut pack)?;
    let folder = target().join("package");
    Ok(PUBLISHED.iter().map(|name| folder.join(format!("{}.crate", versioned(name)))).collect())
}

/// Vendors the third-party dependencies of the packages, in the versions of our lock file.
fn provide_third_parties(room: &Room) -> Result<(), Failure> {
    let folders = PUBLISHED.map(versioned);
    let patches = PUBLISHED.map(|name| format!("{name} = {{ path = {:?} }}\n", versioned(name)));
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = {folders:?}\n[patch.crates-io]\n{}",
        patches.concat()
    );
    let packages = room.packages();
    write(&packages.join("Cargo.toml"), &manifest)?;
    copy(&root().join("Cargo.lock"), &packages.join("Cargo.lock"))?;
    let mut vendor = cargo("vendor");
    vendor.current_dir(&packages).args(["--quiet", "--versioned-dirs"]).arg(room.vendored());
    // `cargo vendor` prints how to use the directory, which is known here.
    step::run("vendor", vendor.stdout(process::Stdio::null()))
}

/// Adds the packages to the directory source, as if a registry had delivered them.
fn move_in(room: &Room) -> Result<(), Failure> {
    for name in PUBLISHED.map(versioned) {
        let place = room.vendored().join(&name);
        let from = room.packages().join(&name);
        fs::rename(&from, &place).map_err(|error| of_file(&from, &error))?;
        write(&place.join(".cargo-checksum.json"), "{\"files\":{}}")?;
    }
    let source = format!(
        "[source.crates-io]\nreplace-with = \"packages\"\n[source.packages]\ndirectory = {:?}\n[net]\noffline = true\n",
        room.vendored()
    );
    write(&room.0.join(".cargo/config.toml"), &source)
}

/// Builds a program that uses the crates by version, and installs the command line as a user does.
fn use_them(room: &Room) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let mut install = room.cargo("install");
    install.args(["--quiet", "--debug", "redbolt-cli", "--version", version]);
    step::run("install", install.arg("--root").arg(room.installed()))?;

    let manifest = format!(
        "[package]\nname = \"guest\"\nedition = \"2024\"\n\
         [dependencies]\nredbolt = \"{version}\"\n[dev-dependencies]\nredbolt-node = \"{version}\"\n"
    );
    write(&room.0.join("guest/Cargo.toml"), &manifest)?;
    write(&room.0.join("guest/src/lib.rs"), include_str!("../guest/lib.rs"))?;
    write(&room.0.join("guest/tests/nodes.rs"), include_str!("../guest/nodes.rs"))?;
    let mut test = room.cargo("test");
    test.current_dir(room.0.join("guest")).arg("--quiet");
    test.env("REDBOLT_PROGRAM", room.installed().join("bin/redbolt"));
    step::run("guest", &mut test)?;
    // The documentation pages are files of the package, too.
    let mut docs = room.cargo("doc");
    docs.current_dir(room.0.join("guest")).env("RUSTDOCFLAGS", "-D warnings");
    step::run("docs", docs.args(["--quiet", "--no-deps", "--package", "redbolt"]))
}

/// An empty temporary directory outside the repository.
struct Room(PathBuf);

impl Room {
    fn new() -> Result<Self, Failure> {
        let place = env::temp_dir().join(format!("redbolt-package-{}", process::id()));
        let room = Self(place);
        fs::create_dir_all(room.packages()).map_err(|error| of_file(&room.0, &error))?;
        Ok(room)
    }

    fn packages(&self) -> PathBuf {
        self.0.join("packages")
    }

    fn vendored(&self) -> PathBuf {
        self.0.join("vendored")
    }

    fn installed(&self) -> PathBuf {
        self.0.join("installed")
    }

    /// Returns a cargo that uses only this directory.
    fn cargo(&self, subcommand: &str) -> Command {
        let mut command = cargo(subcommand);
        command.current_dir(&self.0);
        command
            .env("CARGO_HOME", self.0.join("home"))
            .env("CARGO_TARGET_DIR", self.0.join("target"));
        command
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // A leftover is in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns cargo's target directory.
pub(crate) fn target() -> PathBuf {
    let folder = root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    folder.canonicalize().unwrap_or(folder)
}

/// Returns a file's size in a readable form.
pub(crate) fn shown_size(file: &Path) -> Result<String, Failure> {
    let bytes = fs::metadata(file).map_err(|error| of_file(file, &error))?.len();
    Ok(if bytes < 1_000_000 {
        format!("{} kB", bytes.div_ceil(1_000))
    } else {
        format!("{}.{:02} MB", bytes / 1_000_000, bytes % 1_000_000 / 10_000)
    })
}

/// Writes a file, and creates its directories.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let made = file.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(file, text)).map_err(|error| of_file(file, &error))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map(drop).map_err(|error| of_file(from, &error))
}

/// Returns the error of an operation on a file.
pub(crate) fn of_file(file: &Path, error: &io::Error) -> Failure {
    Failure(format!("{}: {error}", file.display()))
}

fn versioned(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}
