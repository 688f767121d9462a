//! The cases on disk: a stream of bytes beside the text that it must decode to.
//!
//! Apart from the tests because several of them go over all cases. A case is a pair of files,
//! `name.resp` and `name.txt`; the text is the canonical one, after an optional first line
//! `limits NAME VALUE…` for the limits that are not the default.

use std::fs;
use std::path::{Path, PathBuf};

use redbolt::resp::Limits;

/// A stream and what it must decode to.
#[derive(Clone, Debug)]
pub struct Case {
    /// The path below the folder of the cases, without the ending.
    pub name: String,
    /// The bytes.
    pub stream: Vec<u8>,
    /// The limits to decode with.
    pub limits: Limits,
    /// The limits that are not the default, by name.
    pub set_limits: Vec<(String, u64)>,
    /// The canonical text.
    pub expected: String,
}

/// All vectors, in the order of their names.
#[must_use]
pub fn vectors() -> Vec<Case> {
    let root = folder("vectors");
    streams(&root).iter().map(|path| Case::read(&root, path)).collect()
}

/// All recorded replies, each with its path below `recorded/`, in the order of their names.
#[must_use]
pub fn recorded() -> Vec<(String, Vec<u8>)> {
    let root = folder("recorded");
    streams(&root).iter().map(|path| (name(&root, path), read(path))).collect()
}

/// A folder of this crate.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

impl Case {
    fn read(root: &Path, path: &Path) -> Self {
        let text = String::from_utf8(read(&path.with_extension("txt"))).expect("canonical text");
        let (head, expected) = match text.strip_prefix("limits ") {
            Some(rest) => rest.split_once('\n').expect("a line"),
            None => ("", text.as_str()),
        };
        let set_limits = pairs(head);
        Self {
            name: name(root, path),
            stream: read(path),
            limits: limits(&set_limits),
            set_limits,
            expected: expected.into(),
        }
    }
}

/// `bulk 3 line 9`
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
            _ => panic!("no limit is called {name}"),
        }
    }
    limits
}

fn streams(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of cases") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(streams(&path));
        } else if path.extension().is_some_and(|ending| ending == "resp") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn name(root: &Path, path: &Path) -> String {
    let name = path.strip_prefix(root).expect("below the root").with_extension("");
    name.to_string_lossy().into_owned()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
