//! The committed corpora: inputs that `cargo test` runs, and from which a fuzzer starts.
//!
//! One file per target in `corpus/`, a pack as described in `resp_tests::pack`. An input named in
//! words demonstrates something, often a former fault, and stays. An input named by a number was
//! found by chance. It stays as long as no other input reaches the same code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use resp_tests::pack::{self, Entry};

use crate::Target;

/// Returns the inputs of a target, by name.
///
/// # Panics
///
/// Panics if the file is missing or damaged.
#[must_use]
pub fn read(target: &Target) -> BTreeMap<String, Vec<u8>> {
    let named = |Entry { names, stream, .. }: Entry| {
        names.into_iter().map(move |name| (name, stream.clone()))
    };
    let inputs: BTreeMap<_, _> = pack::read(&path(target)).into_iter().flat_map(named).collect();
    assert!(!inputs.is_empty(), "the corpus of {} is empty", target.name);
    inputs
}

/// Replaces the inputs of a target.
///
/// # Panics
///
/// Panics if the file cannot be written.
pub fn write(target: &Target, inputs: BTreeMap<String, Vec<u8>>) {
    let entry = |(name, stream)| Entry { names: vec![name], stream, text: String::new() };
    let entries: Vec<_> = inputs.into_iter().map(entry).collect();
    let head = format!("Inputs of the fuzz target {}; src/corpus.rs says more.", target.name);
    pack::write(&path(target), &head, &entries);
}

/// Returns true if an input was found by chance: its name is the beginning of its digest.
#[must_use]
pub fn by_chance(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the name of an input that was found by chance.
#[must_use]
pub fn digest(input: &[u8]) -> String {
    let mut name = sha1_smol::Sha1::from(input).digest().to_string();
    name.truncate(DIGITS);
    name
}

fn path(target: &Target) -> PathBuf {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    corpora.join(target.name).with_extension("txt")
}

/// The number of hexadecimal digits that distinguishes the inputs of a corpus.
const DIGITS: usize = 12;
