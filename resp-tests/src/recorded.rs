//! Replies of real servers, in the packs of `recorded/`.
//!
//! A reply is named after its server and its line in `recorded/commands.txt`, as in
//! `redis-7.0.15/ping`. Most replies are the same from all servers, so equal replies to one line
//! share an entry. Long replies are in a separate file, so that the others stay readable.
//! `examples/record.rs` records them.

use std::collections::BTreeMap;

use crate::case::here;
use crate::pack::{self, Entry};

/// Returns all recorded replies with their names, sorted by name.
#[must_use]
pub fn read() -> Vec<(String, Vec<u8>)> {
    let files = FILES.map(|(file, _)| pack::read(&here(file)));
    let named = |Entry { names, stream, .. }: Entry| {
        names.into_iter().map(move |name| (name, stream.clone()))
    };
    let mut replies: Vec<_> = files.into_iter().flatten().flat_map(named).collect();
    replies.sort();
    let twice = replies.windows(2).find(|pair| pair[0].0 == pair[1].0);
    assert!(twice.is_none(), "recorded twice: {}", twice.map_or("", |pair| &pair[0].0));
    replies
}

/// Replaces the recordings of a server by `replies`, which are named by their lines.
pub fn replace(server: &str, replies: Vec<(String, Vec<u8>)>) {
    let mut all = read();
    all.retain(|(name, _)| parts(name).0 != server);
    all.extend(replies.into_iter().map(|(line, reply)| (format!("{server}/{line}"), reply)));
    all.sort();
    for ((file, head), entries) in FILES.into_iter().zip(packed(&all)) {
        pack::write(&here(file), &format!("{head}\n{HEAD}"), &entries);
    }
}

/// Returns the entries of both files, sorted by line, then by the first server with this reply.
fn packed(replies: &[(String, Vec<u8>)]) -> [Vec<Entry>; 2] {
    let mut lines: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
    for (name, reply) in replies {
        let line = lines.entry(parts(name).1).or_default();
        match line.iter_mut().find(|entry| entry.stream == *reply) {
            Some(same) => same.names.push(name.clone()),
            None => line.push(Entry {
                names: vec![name.clone()],
                stream: reply.clone(),
                text: String::new(),
            }),
        }
    }
    let (long, short) = lines.into_values().flatten().partition(|entry| entry.stream.len() > LONG);
    [short, long]
}

/// Returns the server and the line in a name.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').expect("the name has a server and a line")
}

const FILES: [(&str, &str); 2] = [
    ("recorded/replies.txt", "Replies of up to 4 KiB to the lines of commands.txt."),
    ("recorded/long.txt", "Replies of more than 4 KiB to the lines of commands.txt."),
];

const HEAD: &str = "\
Written by `cargo run -p resp-tests --example record`; src/pack.rs says how to read it.
Where servers gave the same reply to a line, all their names stand above it.";

/// The length in bytes from which a reply fills more than a screen.
const LONG: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packs_are_what_recording_writes() {
        for ((file, _), entries) in FILES.into_iter().zip(packed(&read())) {
            assert_eq!(pack::read(&here(file)), entries, "{file}");
        }
    }

    #[test]
    fn equal_replies_to_a_line_share_an_entry() {
        let reply = |name: &str, reply: &[u8]| (name.to_owned(), reply.to_vec());
        let long = [b'x'; LONG + 1];
        let [short, long] = packed(&[
            reply("a/get", b"+1\r\n"),
            reply("a/ping", b"+PONG\r\n"),
            reply("a/text", &long),
            reply("b/get", b"+2\r\n"),
            reply("b/other", b"+PONG\r\n"),
            reply("b/ping", b"+PONG\r\n"),
            reply("b/text", b"+\r\n"),
        ]);
        let names = |entries: &[Entry]| {
            entries.iter().map(|entry| entry.names.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(names(&short), ["a/get", "b/get", "b/other", "a/ping b/ping", "b/text"]);
        assert_eq!(names(&long), ["a/text"]);
    }
}
