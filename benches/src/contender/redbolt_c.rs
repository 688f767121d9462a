//! redbolt's blocking API through its library for C, in a C program of its own, linked with the static library that
//! `cargo xtask capi` installs. Not here: the calls, see `redbolt.c`.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::contract::{Contender, Task};
use super::program::{self, Source, missing};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let source = Source {
        text: include_str!("redbolt.c"),
        flags: flags()?,
        signs: &["redbolt.h: No such", "-l:libredbolt.a"],
        install: INSTALL,
    };
    program::start(&source, task)
}

/// What `pkg-config` says. `cargo xtask bench` installs the library, and says where.
fn flags() -> Result<Vec<String>> {
    let mut ask = Command::new("pkg-config");
    let said = ask.args(["--static", "--cflags", "--libs", "redbolt"]).output();
    match said {
        Ok(said) if said.status.success() => {
            let said = String::from_utf8(said.stdout).context("pkg-config says no text")?;
            let is_library = |flag: &str| flag == "-lredbolt";
            let whole = |flag| if is_library(flag) { "-l:libredbolt.a" } else { flag };
            Ok(said.split_whitespace().map(|flag| whole(flag).to_owned()).collect())
        }
        _ => bail!(missing("the library for C was not found", INSTALL)),
    }
}

const INSTALL: &str = "cargo xtask capi --prefix DIR, and set PKG_CONFIG_PATH to DIR/lib/pkgconfig";
