//! The committed corpora: inputs that are run by `cargo test`, and from which a fuzzer starts.
//!
//! One file per target in `corpus/`, a pack as `resp_tests::pack` describes. An input with a name in
//! words is there for what it shows, often a fault that was found; it stays. One whose name is a
//! number was met by chance and is there for the code that it reaches, as long as no other reaches it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use resp_tests::pack::{self, Entry};

use crate::Target;

/// The inputs of a target, by name.
///
/// # Panics
///
/// There is none, or the file is damaged.
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
/// The file cannot be written.
pub fn write(target: &Target, inputs: BTreeMap<String, Vec<u8>>) {
    let entry = |(name, stream)| Entry { names: vec![name], stream, text: String::new() };
    let entries: Vec<_> = inputs.into_iter().map(entry).collect();
    let head = format!("Inputs of the fuzz target {}; src/corpus.rs says more.", target.name);
    pack::write(&path(target), &head, &entries);
}

/// Whether an input was met by chance: its name is the beginning of its digest.
#[must_use]
pub fn by_chance(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The name of an input that was met by chance.
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

/// Hexadecimal digits that tell the inputs of a corpus apart.
const DIGITS: usize = 12;
