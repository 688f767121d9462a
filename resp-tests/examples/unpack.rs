//! Writes each vector and each recorded reply to a separate file, for programs that read files.
//!
//! ```text
//! cargo run -p resp-tests --example unpack -- FOLDER
//! ```
//!
//! makes `FOLDER/vectors/NAME.resp` and `FOLDER/recorded/SERVER/NAME.resp`.

// A program of this repository may report errors by panicking.
#![allow(clippy::unwrap_used)]

use std::env;
use std::fs;
use std::path::PathBuf;

use resp_tests::{case, recorded};

fn main() {
    let folder = PathBuf::from(env::args_os().nth(1).expect("usage: unpack FOLDER"));
    let vectors =
        case::vectors().into_iter().map(|case| (format!("vectors/{}", case.name), case.stream));
    let recorded =
        recorded::read().into_iter().map(|(name, reply)| (format!("recorded/{name}"), reply));
    for (name, stream) in vectors.chain(recorded) {
        let path = folder.join(name + ".resp");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, stream).unwrap();
    }
}
