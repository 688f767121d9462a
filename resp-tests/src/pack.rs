//! Packs: text files with many named byte streams.
//!
//! One file per stream would be two thousand unread files. A pack can be read, searched
//! by name, edited by hand and compared with `git diff`:
//!
//! ```text
//! # A comment. Comments stand before the first entry.
//!
//! = redis-6.2.14/ping
//! = redis-7.0.15/ping
//! "+PONG\r\n"
//!
//! = limit/bulk-at
//! "$3\r\n"
//! "abc\r\n"
//! limits bulk 3
//! bulk 3 "abc"
//! ```
//!
//! An entry has one name or more, then lines. Lines that begin with a quotation mark are its
//! stream, in pieces, quoted as by `text::quoted`; `"x" * 65536` repeats a piece. The other lines
//! are its text. An empty line ends the entry. Names are unique within a file. A file that breaks
//! any of these rules is refused, with the number of the line: a pack never loses an entry
//! silently. `case.rs` gives an entry's text its meaning.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::text::{quoted, unquoted};

/// One entry of a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its names. Entries with equal contents may share one entry under several names.
    pub names: Vec<String>,
    /// The bytes.
    pub stream: Vec<u8>,
    /// The lines that are not the stream, each with its line feed.
    pub text: String,
}

/// Returns the entries of a file, in order.
///
/// # Panics
///
/// If the file cannot be read, or is not a pack.
#[must_use]
pub fn read(path: &Path) -> Vec<Entry> {
    let shown = path.display();
    let pack = fs::read_to_string(path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    parse(&pack).unwrap_or_else(|fault| panic!("{shown}:{fault}"))
}

/// Replaces a file: `head` as a comment, and the entries in order.
///
/// # Panics
///
/// If the file cannot be written, or the entries would not parse again.
pub fn write(path: &Path, head: &str, entries: &[Entry]) {
    let pack = render(head, entries);
    assert_eq!(parse(&pack).as_deref(), Ok(entries), "a pack parses as it was written");
    fs::write(path, pack).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns the entries of a pack, or the number of the wrong line, and the reason.
fn parse(pack: &str) -> Result<Vec<Entry>, String> {
    let (mut entries, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open: Option<Entry> = None;
    for (at, line) in pack.lines().enumerate() {
        let wrong = |reason: &str| format!("{}: {reason}: {line}", at + 1);
        if let Some(name) = line.strip_prefix("= ") {
            if !seen.insert(name) {
                return Err(wrong("this name is taken"));
            }
            let entry = open.get_or_insert_default();
            if !(entry.stream.is_empty() && entry.text.is_empty()) {
                return Err(wrong("an empty line must end the entry above"));
            }
            entry.names.push(name.to_owned());
        } else if line.is_empty() {
            entries.extend(open.take());
        } else if let Some(entry) = &mut open {
            entry.take(line).ok_or_else(|| wrong("this is no piece of a stream"))?;
        } else if !(line.starts_with('#') && seen.is_empty()) {
            return Err(wrong("no entry begins here"));
        }
    }
    entries.extend(open);
    Ok(entries)
}

fn render(head: &str, entries: &[Entry]) -> String {
    let mut out = String::new();
    for line in head.lines() {
        out += format!("# {line}").trim_end();
        out.push('\n');
    }
    for Entry { names, stream, text } in entries {
        out.push('\n');
        for name in names {
            writeln!(out, "= {name}").expect("a String takes everything");
        }
        for (piece, times) in pieces(stream) {
            out += &quoted(piece);
            if times > 1 {
                write!(out, " * {times}").expect("a String takes everything");
            }
            out.push('\n');
        }
        out += text;
    }
    out
}

impl Entry {
    fn take(&mut self, line: &str) -> Option<()> {
        if !line.starts_with('"') {
            self.text.push_str(line);
            self.text.push('\n');
            return Some(());
        }
        let (piece, behind) = unquoted(line)?;
        let times = match behind.strip_prefix(" * ") {
            Some(times) => times.parse().ok()?,
            None => behind.is_empty().then_some(1)?,
        };
        self.stream.extend(piece.repeat(times));
        Some(())
    }
}

/// Splits a stream into pieces that fill a line each, with the number of repetitions. If possible,
/// a piece ends after a line feed of the stream.
fn pieces(mut stream: &[u8]) -> Vec<(&[u8], usize)> {
    let mut pieces = Vec::new();
    while let [first, rest @ ..] = stream {
        let run = 1 + rest.iter().take_while(|byte| *byte == first).count();
        let (len, times) = if run >= LONG_RUN { (1, run) } else { (filling(stream), 1) };
        pieces.push((&stream[..len], times));
        stream = &stream[len * times..];
    }
    pieces
}

/// Returns how many bytes fill a line.
fn filling(stream: &[u8]) -> usize {
    let (mut width, mut behind_line) = (0, 0);
    for (at, byte) in stream.iter().enumerate() {
        width += quoted(&[*byte]).len() - 2;
        if width > WIDTH {
            return if behind_line > 0 { behind_line } else { at };
        }
        if *byte == b'\n' {
            behind_line = at + 1;
        }
    }
    stream.len()
}

/// The largest number of characters between the quotation marks of a line.
const WIDTH: usize = 98;

/// The number of equal bytes from which a piece is written as a repetition.
const LONG_RUN: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(names: &[&str], stream: &[u8], text: &str) -> Entry {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Entry { names, stream: stream.to_vec(), text: text.to_owned() }
    }

    #[test]
    fn every_stream_comes_back_from_its_text() {
        let all: Vec<u8> = (0..=255).collect();
        let lines = b"$5\r\n00001\r\n".repeat(100);
        let run = [b"$65536\r\n".as_slice(), &[b'x'; 65536], b"\r\n"].concat();
        let entries = [
            entry(&["every/byte", "again"], &all, ""),
            entry(&["lines"], &lines, "array 2\n  nil-bulk\n"),
            entry(&["run"], &run, "limits line 3\n"),
            entry(&["long-without-an-end"], &all.repeat(3), ""),
            entry(&["nothing"], b"", ""),
        ];
        let pack = render("What this is.\n\nAnd why.", &entries);
        assert_eq!(parse(&pack).unwrap(), entries, "{pack}");
        assert!(pack.lines().all(|line| line.len() <= 100), "{pack}");
        assert!(pack.contains("\n\"x\" * 65536\n"), "{pack}");
    }

    #[test]
    fn a_line_ends_where_the_stream_has_one() {
        let pack = render("", &[entry(&["a"], &b":12345678\r\n".repeat(20), "")]);
        assert!(pack.lines().skip(2).all(|line| line.ends_with("\\r\\n\"")), "{pack}");
    }

    #[test]
    fn an_invalid_pack_is_refused_with_its_line() {
        for (pack, fault) in [
            ("= a\n\"x\"\n\n= a\n\"y\"\n", "4: this name is taken: = a"),
            ("= a\n\"x\"\n= b\n", "3: an empty line must end the entry above: = b"),
            ("= a\n\"x\\q\"\n", "2: this is no piece of a stream: \"x\\q\""),
            ("= a\n\"x\n", "2: this is no piece of a stream: \"x"),
            ("= a\n\"x\" 3\n", "2: this is no piece of a stream: \"x\" 3"),
            ("= a\n\"x\" * \n", "2: this is no piece of a stream: \"x\" * "),
            ("# head\nx\n", "2: no entry begins here: x"),
            ("= a\n\"x\"\n\n# lost\n", "4: no entry begins here: # lost"),
        ] {
            assert_eq!(parse(pack), Err(fault.to_owned()));
        }
    }
}
