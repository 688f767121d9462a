//! `cargo xtask capi`: installs the C library, and makes its header.
//!
//! What is installed is tried: a program in C and one in C++ is built with it as `pkg-config` says, with each of the two
//! libraries, and runs. Not here: the tests of the library itself, see `crates/capi/tests`.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf, absolute},
    process::Command,
};

use crate::{
    package::{copy, of_file, target},
    programs,
    step::{self, Failure, cargo, root},
};

/// Makes the committed header anew.
pub(crate) fn header() -> Result<(), Failure> {
    let mut make = cargo("test");
    make.args(["--quiet", "--package", "redbolt-capi", "--test", "header"]);
    step::run("capi", make.env("REDBOLT_WRITE_HEADER", "1"))
}

/// Builds the libraries and installs them with all that belongs to them.
pub(crate) fn install(prefix: &Path) -> Result<(), Failure> {
    eprintln!("xtask: building the C library; it takes minutes");
    if !cfg!(target_os = "linux") {
        return Err(Failure("capi: the library is installed on Linux only".into()));
    }
    build()?;
    install_from(&target().join("dist"), prefix)
}

/// Installs the libraries that the tests have built, in a folder that is removed afterwards.
pub(crate) fn try_install() -> Result<(), Failure> {
    let prefix = target().join("test-capi");
    install_from(&target().join("debug/deps"), &prefix)?;
    fs::remove_dir_all(&prefix).map_err(|error| of_file(&prefix, &error))
}

fn install_from(built: &Path, prefix: &Path) -> Result<(), Failure> {
    programs::provide_compilers()?;
    // The file for pkg-config names it.
    let prefix = absolute(prefix).map_err(|error| of_file(prefix, &error))?;
    let version = abi_version()?;
    let place = Place::under(&prefix)?;
    place.fill(&version, built)?;
    for library in ["-lredbolt", "-l:libredbolt.a"] {
        place.try_it("cc", "try.c", library)?;
        place.try_it("c++", "try.cpp", library)?;
    }
    println!("xtask: installed and tried: {}", prefix.display());
    Ok(())
}

fn build() -> Result<(), Failure> {
    let mut build = cargo("rustc");
    build.args(["--quiet", "--locked", "--package", "redbolt-capi", "--lib"]);
    // Without the third one, so that they are optimized as wholes.
    build.args(["--profile", "dist", "--crate-type", "staticlib,cdylib"]);
    step::run("capi", &mut build)
}

/// The version of the binary interface, as the header has it.
fn abi_version() -> Result<String, Failure> {
    let file = root().join(HOME).join("include/redbolt.h");
    let header = fs::read_to_string(&file).map_err(|error| of_file(&file, &error))?;
    let number = header.lines().find_map(|line| line.strip_prefix("#define REDBOLT_ABI_VERSION "));
    number.map(str::to_owned).ok_or_else(|| Failure("capi: the header has no version".into()))
}

/// Where it is installed.
struct Place {
    prefix: PathBuf,
    include: PathBuf,
    lib: PathBuf,
    pkg_config: PathBuf,
}

impl Place {
    fn under(prefix: &Path) -> Result<Self, Failure> {
        let (include, lib) = (prefix.join("include"), prefix.join("lib"));
        let pkg_config = lib.join("pkgconfig");
        for folder in [&include, &pkg_config] {
            fs::create_dir_all(folder).map_err(|error| of_file(folder, &error))?;
        }
        Ok(Self { prefix: prefix.to_owned(), include, lib, pkg_config })
    }

    fn fill(&self, abi_version: &str, built: &Path) -> Result<(), Failure> {
        for header in HEADERS {
            replace(&root().join(HOME).join("include").join(header), &self.include.join(header))?;
        }
        replace(&built.join("libredbolt_capi.a"), &self.lib.join("libredbolt.a"))?;
        let shared = format!("libredbolt.so.{abi_version}");
        replace(&built.join("libredbolt_capi.so"), &self.lib.join(&shared))?;
        let link = self.lib.join("libredbolt.so");
        remove(&link)?;
        symlink(&shared, &link).map_err(|error| of_file(&link, &error))?;
        let file = self.pkg_config.join("redbolt.pc");
        fs::write(&file, pkg_config(&self.prefix)).map_err(|error| of_file(&file, &error))
    }

    /// Builds a program as its user would, with one of the libraries, and runs it.
    fn try_it(&self, compiler: &str, source: &str, library: &str) -> Result<(), Failure> {
        let folder = target().join("capi");
        fs::create_dir_all(&folder).map_err(|error| of_file(&folder, &error))?;
        let (source, program) = (folder.join(source), folder.join("try"));
        fs::write(&source, TRY).map_err(|error| of_file(&source, &error))?;
        let said = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", &self.pkg_config)
            .args(["--static", "--cflags", "--libs", "redbolt"])
            .output()
            .map_err(|error| Failure::not_run("pkg-config", &error))?;
        if !said.status.success() {
            return Err(Failure::of("capi", "pkg-config redbolt", said.status));
        }
        let flags = String::from_utf8_lossy(&said.stdout).replace("-lredbolt", library);
        let mut build = Command::new(compiler);
        build.arg(&source).args(words(&flags)).arg("-o").arg(&program);
        step::run("capi", &mut build)?;
        step::run("capi", Command::new(&program).env("LD_LIBRARY_PATH", &self.lib))
    }
}

/// The words that `pkg-config` prints: it puts a backslash before each space of a path.
fn words(flags: &str) -> Vec<String> {
    let (mut words, mut word, mut is_escaped) = (Vec::new(), String::new(), false);
    for c in flags.chars().chain([' ']) {
        match c {
            '\\' if !is_escaped => is_escaped = true,
            c if c.is_whitespace() && !is_escaped => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            }
            c => {
                word.push(c);
                is_escaped = false;
            }
        }
    }
    words
}

/// A new file in the place of an old one, which programs that run keep.
fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    remove(to)?;
    copy(from, to)
}

fn remove(file: &Path) -> Result<(), Failure> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(of_file(file, &error)),
        _ => Ok(()),
    }
}

fn pkg_config(prefix: &Path) -> String {
    let (prefix, version) = (prefix.display().to_string(), env!("CARGO_PKG_VERSION"));
    let prefix = prefix.replace(' ', "\\ ");
    format!(
        "prefix={prefix}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\nName: redbolt\n\
         Description: Distributed locks on independent Redis nodes\nVersion: {version}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lredbolt\nLibs.private: {SYSTEM}\n"
    )
}

const HOME: &str = "crates/capi";
const HEADERS: [&str; 2] = ["redbolt.h", "redbolt.hpp"];
/// What the static library needs of the system, as rustc says (`--print native-static-libs`).
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";
/// In C and in C++.
const TRY: &str = r"
#ifdef __cplusplus
#include <redbolt.hpp>
#else
#include <redbolt.h>
#endif
int main(void) { return redbolt_abi_version() == REDBOLT_ABI_VERSION ? 0 : 1; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_for_pkg_config_names_the_prefix_and_the_version() {
        let file = pkg_config(Path::new("/opt/redbolt"));
        let version = format!("Version: {}", env!("CARGO_PKG_VERSION"));
        for line in ["prefix=/opt/redbolt", "Libs: -L${libdir} -lredbolt", &version] {
            assert!(file.lines().any(|it| it == line), "{line}: {file}");
        }
    }

    #[test]
    fn a_path_with_a_space_is_one_word() {
        assert_eq!(words("-I/a\\ b/include  -lredbolt\n"), ["-I/a b/include", "-lredbolt"]);
        assert!(pkg_config(Path::new("/a b")).starts_with("prefix=/a\\ b\n"));
    }

    #[test]
    fn the_header_says_its_version() {
        assert!(abi_version().unwrap().parse::<u32>().is_ok());
    }
}
