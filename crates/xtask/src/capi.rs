//! `cargo xtask capi`: installs the C library, and writes its header.
//!
//! The installed files are tried: a program in C and one in C++ are built with each of the two
//! libraries as `pkg-config` describes, and run; another one of each as CMake does. The tests of
//! the library itself are in `crates/capi/tests`.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf, absolute},
    process::{Command, Stdio},
};

use crate::{
    package::{copy, of_file, target},
    programs,
    step::{self, Failure, cargo, root},
};

/// Writes the committed header again.
pub(crate) fn header() -> Result<(), Failure> {
    let mut make = cargo("test");
    make.args(["--quiet", "--package", "redbolt-capi", "--test", "header"]);
    step::run("capi", make.env("REDBOLT_WRITE_HEADER", "1"))
}

/// Builds the libraries and installs them with everything that belongs to them.
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
    // The file for pkg-config names the prefix, so it must be absolute.
    let prefix = absolute(prefix).map_err(|error| of_file(prefix, &error))?;
    let version = abi_version()?;
    let place = Place::under(&prefix)?;
    place.fill(&version, built)?;
    for library in ["-lredbolt", "-l:libredbolt.a"] {
        place.try_it("cc", "try.c", library)?;
        place.try_it("c++", "try.cpp", library)?;
    }
    place.try_cmake()?;
    println!("xtask: installed and tried: {}", prefix.display());
    Ok(())
}

fn build() -> Result<(), Failure> {
    let mut build = cargo("rustc");
    build.args(["--quiet", "--locked", "--package", "redbolt-capi", "--lib"]);
    // The crate type `rlib` is left out, so that these libraries are optimized as wholes.
    build.args(["--profile", "dist", "--crate-type", "staticlib,cdylib"]);
    step::run("capi", &mut build)
}

/// Returns the version of the binary interface in the header.
fn abi_version() -> Result<String, Failure> {
    let file = root().join(HOME).join("include/redbolt.h");
    let header = fs::read_to_string(&file).map_err(|error| of_file(&file, &error))?;
    let number = header.lines().find_map(|line| line.strip_prefix("#define REDBOLT_ABI_VERSION "));
    number.map(str::to_owned).ok_or_else(|| Failure("capi: the header has no version".into()))
}

/// The installed folders.
struct Place {
    prefix: PathBuf,
    include: PathBuf,
    lib: PathBuf,
    pkg_config: PathBuf,
    cmake: PathBuf,
}

impl Place {
    fn under(prefix: &Path) -> Result<Self, Failure> {
        let (include, lib) = (prefix.join("include"), prefix.join("lib"));
        let pkg_config = lib.join("pkgconfig");
        let cmake = lib.join("cmake/redbolt");
        for folder in [&include, &pkg_config, &cmake] {
            fs::create_dir_all(folder).map_err(|error| of_file(folder, &error))?;
        }
        Ok(Self { prefix: prefix.to_owned(), include, lib, pkg_config, cmake })
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
        fs::write(&file, pkg_config(&self.prefix)).map_err(|error| of_file(&file, &error))?;
        for (name, text) in cmake_files(abi_version) {
            let file = self.cmake.join(name);
            fs::write(&file, text).map_err(|error| of_file(&file, &error))?;
        }
        Ok(())
    }

    /// Builds a program of each language with each library, as a user of CMake would, and runs
    /// them. Without cmake, it only checks that the files that the package names exist.
    fn try_cmake(&self) -> Result<(), Failure> {
        if Command::new("cmake").arg("--version").output().is_err() {
            return self.has_what_cmake_names();
        }
        let (source, build) = (target().join("capi/cmake"), target().join("capi/cmake-build"));
        fs::create_dir_all(&source).map_err(|error| of_file(&source, &error))?;
        for (name, text) in [("CMakeLists.txt", CMAKE_LISTS), ("try.c", TRY), ("try.cpp", TRY)] {
            let file = source.join(name);
            fs::write(&file, text).map_err(|error| of_file(&file, &error))?;
        }
        // A cache of another prefix would find that library.
        remove_folder(&build)?;
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&source).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display()));
        step::run("capi", configure.stdout(Stdio::null()))?;
        let mut make = Command::new("cmake");
        step::run("capi", make.arg("--build").arg(&build).stdout(Stdio::null()))?;
        for program in ["try-c", "try-cpp", "try-c-static", "try-cpp-static"] {
            step::run("capi", &mut Command::new(build.join(program)))?;
        }
        Ok(())
    }

    fn has_what_cmake_names(&self) -> Result<(), Failure> {
        let version = abi_version()?;
        for file in ["libredbolt.a".to_owned(), format!("libredbolt.so.{version}")] {
            let file = self.lib.join(file);
            fs::metadata(&file).map_err(|error| of_file(&file, &error))?;
        }
        Ok(())
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

/// Returns the words that `pkg-config` prints: it puts a backslash before each space of a path.
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

fn remove_folder(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(of_file(folder, &error)),
        _ => Ok(()),
    }
}

/// Replaces a file by a new one; running programs keep the old one.
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

/// Returns the package for `find_package(redbolt)`: the targets `redbolt::redbolt` and
/// `redbolt::static`, with paths relative to the file, so that the prefix can be moved.
fn cmake_files(abi_version: &str) -> [(&'static str, String); 2] {
    let shared = format!("libredbolt.so.{abi_version}");
    let config =
        CMAKE_CONFIG.replace("@SHARED@", &shared).replace("@SYSTEM@", &SYSTEM.replace(' ', ";"));
    let version = CMAKE_VERSION.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    [("redbolt-config.cmake", config), ("redbolt-config-version.cmake", version)]
}

const HOME: &str = "crates/capi";
const HEADERS: [&str; 2] = ["redbolt.h", "redbolt.hpp"];
/// The system's libraries that the static library needs, as rustc prints them (`--print
/// native-static-libs`).
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";
const CMAKE_CONFIG: &str = r#"# find_package(redbolt): redbolt::redbolt is the shared library, redbolt::static the static one.
get_filename_component(_redbolt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET redbolt::redbolt)
  add_library(redbolt::redbolt SHARED IMPORTED)
  set_target_properties(redbolt::redbolt PROPERTIES
    IMPORTED_LOCATION "${_redbolt_prefix}/lib/@SHARED@"
    IMPORTED_SONAME "@SHARED@"
    INTERFACE_INCLUDE_DIRECTORIES "${_redbolt_prefix}/include")
  add_library(redbolt::static STATIC IMPORTED)
  set_target_properties(redbolt::static PROPERTIES
    IMPORTED_LOCATION "${_redbolt_prefix}/lib/libredbolt.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_redbolt_prefix}/include"
    INTERFACE_LINK_LIBRARIES "@SYSTEM@")
endif()
unset(_redbolt_prefix)
"#;
/// The file that checks the version. Before 1.0 the second number is the major one.
const CMAKE_VERSION: &str = r#"set(PACKAGE_VERSION "@VERSION@")
string(REGEX MATCH "^[0-9]+\.[0-9]+" _redbolt_series "${PACKAGE_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
   AND NOT PACKAGE_FIND_VERSION VERSION_LESS _redbolt_series)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
unset(_redbolt_series)
"#;
const CMAKE_LISTS: &str = "\
cmake_minimum_required(VERSION 3.13)
project(try C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(redbolt 0.1 REQUIRED)
foreach(language c cpp)
  add_executable(try-${language} try.${language})
  target_link_libraries(try-${language} PRIVATE redbolt::redbolt)
  add_executable(try-${language}-static try.${language})
  target_link_libraries(try-${language}-static PRIVATE redbolt::static)
endforeach()
";
/// A program that is valid in C and in C++.
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
    fn the_files_for_cmake_name_the_libraries_and_the_version() {
        let [(name, config), (_, version)] = cmake_files("7");
        assert_eq!(name, "redbolt-config.cmake");
        for line in [
            r#"    IMPORTED_LOCATION "${_redbolt_prefix}/lib/libredbolt.so.7""#,
            r#"    IMPORTED_LOCATION "${_redbolt_prefix}/lib/libredbolt.a""#,
        ] {
            assert!(config.lines().any(|it| it == line), "{line}: {config}");
        }
        assert!(version.contains(env!("CARGO_PKG_VERSION")) && !(config + &version).contains('@'));
    }

    #[test]
    fn the_header_has_its_version() {
        assert!(abi_version().unwrap().parse::<u32>().is_ok());
    }
}
