//! The bodies of the fuzz targets: functions that panic if redbolt is wrong.
//!
//! They are a library, so that they stop compiling when the code they test changes, and so that
//! `cargo test` runs them on the committed corpus without a fuzzer. A target is three lines in
//! `targets/` that pass libFuzzer's bytes to its body. To add one, write the body as a module here,
//! list it in [`TARGETS`], add those three lines, a `[[bin]]` and a file in `corpus/`.

#![deny(missing_docs, unsafe_code)]

pub mod address;
pub mod command_line;
pub mod core;
pub mod corpus;
pub mod decoder;
mod input;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its binary, and of its file in `corpus/`.
    pub name: &'static str,
    /// The function that runs on each input.
    pub body: fn(&[u8]),
    /// The longest input worth trying, in bytes.
    pub max_len: usize,
    /// True if libFuzzer traces comparisons, so that it can guess magic bytes. That halves the
    /// executions.
    pub compares: bool,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "address", body: address::body, max_len: address::MAX_LEN, compares: true },
    Target {
        name: "command_line",
        body: command_line::body,
        max_len: command_line::MAX_LEN,
        compares: true,
    },
    // An input chooses from tables, so there are no magic bytes to guess.
    Target { name: "core", body: core::body, max_len: core::MAX_LEN, compares: false },
    Target { name: "decoder", body: decoder::body, max_len: decoder::MAX_LEN, compares: true },
];
