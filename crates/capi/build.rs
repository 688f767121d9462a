//! Gives the shared library the name that programs look for at run time: `libredbolt.so.N`, where N
//! is the version of the binary interface in the header.

use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed={HEADER}");
    let header = fs::read_to_string(HEADER).expect("the header is a part of this package");
    let version = header.lines().find_map(|line| line.strip_prefix(VERSION));
    let version = version.expect("the header names the version of the interface");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libredbolt.so.{version}");
    }
}

const HEADER: &str = "include/redbolt.h";
const VERSION: &str = "#define REDBOLT_ABI_VERSION ";
