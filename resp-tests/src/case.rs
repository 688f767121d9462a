//! The vectors: byte streams, each with the text that it must decode to.
//!
//! `vectors.txt` is a hand-written pack, see `pack.rs`. The text of a vector is the canonical one,
//! after an optional first line `limits NAME VALUE…` for limits that differ from the default.

use std::path::{Path, PathBuf};

use redbolt::resp::Limits;

use crate::pack::{self, Entry};

/// A stream and the text that it must decode to.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name in `vectors.txt`.
    pub name: String,
    /// The bytes.
    pub stream: Vec<u8>,
    /// The limits to decode with.
    pub limits: Limits,
    /// The limits that differ from the default, by name.
    pub set_limits: Vec<(String, u64)>,
    /// The canonical text.
    pub expected: String,
}

/// Returns all vectors, sorted by name.
#[must_use]
pub fn vectors() -> Vec<Case> {
    let mut cases: Vec<_> = pack::read(&here("vectors.txt")).into_iter().map(Case::new).collect();
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// Returns the path of a file or folder of this crate.
#[must_use]
pub fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

impl Case {
    fn new(Entry { names, stream, text }: Entry) -> Self {
        let (head, expected) = match text.strip_prefix("limits ") {
            Some(rest) => rest.split_once('\n').expect("a line"),
            None => ("", text.as_str()),
        };
        let set_limits = pairs(head);
        let [name] = <[String; 1]>::try_from(names).expect("a vector has one name");
        Self { name, stream, limits: limits(&set_limits), set_limits, expected: expected.into() }
    }
}

/// Parses `bulk 3 line 9`.
fn pairs(text: &str) -> Vec<(String, u64)> {
    let words: Vec<_> = text.split_whitespace().collect();
    let pair = |pair: &[&str]| (pair[0].into(), pair[1].parse().expect("a number"));
    words.chunks(2).map(pair).collect()
}

fn limits(set: &[(String, u64)]) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in set {
        let small = usize::try_from(*value).expect("a usize");
        match name.as_str() {
            "bulk" => limits.bulk = small,
            "depth" => limits.depth = small,
            "elements" => limits.elements = u32::try_from(*value).expect("a u32"),
            "line" => limits.line = small,
            "reply" => limits.reply = *value,
            _ => panic!("no limit has the name {name}"),
        }
    }
    limits
}
