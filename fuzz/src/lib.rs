//! The bodies of the fuzz targets: functions that panic where redbolt is wrong.
//!
//! They are a library so that they break at compile time with the code they test, and so that
//! `cargo test` runs them over the committed corpus without a fuzzer. A target is three lines in
//! `targets/` that hand libFuzzer's bytes to its body; to add one, write the body as a module
//! here, list it in [`TARGETS`], add those three lines, a `[[bin]]` and a file in `corpus/`.

#![deny(missing_docs, unsafe_code)]

pub mod address;
pub mod core;
pub mod corpus;
pub mod decoder;
mod input;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its binary, and of its file in `corpus/`.
    pub name: &'static str,
    /// What runs on each input.
    pub body: fn(&[u8]),
    /// The longest input worth trying, in bytes.
    pub max_len: usize,
    /// Whether libFuzzer is told what the code compares, so that it can guess magic bytes. It costs
    /// half of the executions.
    pub compares: bool,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "address", body: address::body, max_len: address::MAX_LEN, compares: true },
    // An input chooses from tables, so there is nothing to guess.
    Target { name: "core", body: core::body, max_len: core::MAX_LEN, compares: false },
    Target { name: "decoder", body: decoder::body, max_len: decoder::MAX_LEN, compares: true },
];
