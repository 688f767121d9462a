//! Finds keys by the beginning of their names with a read-only SCAN.
//!
//! The scan is bounded: a server answers nothing else during one step, and a database may be huge.

use std::collections::BTreeSet;
use std::io;

use redbolt::resp::Frame;

use crate::link::{self, Link};

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) names: BTreeSet<Vec<u8>>,
    /// Whether the whole database was scanned.
    pub(crate) is_complete: bool,
}

/// The limits of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The number of keys of the database to scan, as far as the server counts.
    pub(crate) walked: usize,
    /// The number of names to find.
    pub(crate) names: usize,
}

/// Scans the keys that begin with the prefix. The inner error is the server's refusal.
pub(crate) fn scan(
    link: &mut Link,
    prefix: &[u8],
    bounds: Bounds,
) -> io::Result<Result<Scanned, String>> {
    let (mut scanned, mut cursor) = (Scanned::default(), b"0".to_vec());
    let (pattern, step) = (pattern(prefix), STEP.to_string());
    for _ in 0..bounds.walked.div_ceil(STEP) {
        let words = [b"SCAN", &cursor[..], b"MATCH", &pattern, b"COUNT", step.as_bytes()];
        let reply = link.ask(&words)?;
        let Some((next, names)) = page(&reply) else {
            return Ok(Err(link::text(&reply).err().unwrap_or_default()));
        };
        scanned.names.extend(names);
        if next == b"0" {
            scanned.is_complete = true;
            break;
        }
        if scanned.names.len() >= bounds.names {
            break;
        }
        cursor = next;
    }
    Ok(Ok(scanned))
}

/// Returns the next cursor, and the names of one step.
fn page(reply: &Frame) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Frame::Array(parts) = reply else { return None };
    let [Frame::Bulk(cursor), Frame::Array(names)] = &parts[..] else { return None };
    let name = |name: &Frame| match name {
        Frame::Bulk(name) => Some(name.to_vec()),
        _ => None,
    };
    Some((cursor.to_vec(), names.iter().filter_map(name).collect()))
}

/// Returns a pattern for everything that begins with the prefix.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if b"*?[]^\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// The number of keys that a server should scan in one step, which takes well below a millisecond.
const STEP: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(pattern(b""), b"*");
        assert_eq!(pattern(b"jobs:"), b"jobs:*");
        assert_eq!(pattern(b"a*[b]?\\"), b"a\\*\\[b\\]\\?\\\\*");
    }

    #[test]
    fn a_page_has_a_cursor_and_names() {
        let names = Frame::Array(vec![Frame::Bulk("a".into()), Frame::Bulk("b".into())]);
        let reply = Frame::Array(vec![Frame::Bulk("17".into()), names]);
        assert_eq!(page(&reply), Some((b"17".to_vec(), vec![b"a".to_vec(), b"b".to_vec()])));
        assert_eq!(page(&Frame::Error("NOPERM".into())), None);
        assert_eq!(page(&Frame::Array(vec![Frame::Int(1)])), None);
    }
}
