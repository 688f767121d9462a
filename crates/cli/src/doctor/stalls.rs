//! Reads what has delayed a server: its slow log, and the events of its latency monitor.
//!
//! The slow log contains the arguments of commands, which may be secrets. Only the name of a
//! command is kept.

use std::io;
use std::time::Duration;

use redbolt::resp::Frame;

use crate::link::{self, Link};

/// An event during which the server answered no client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// The name of a command, or of an event of the latency monitor.
    pub(super) what: String,
    /// The start, in seconds since 1970 by the server's clock.
    pub(super) at: u64,
    /// The longest duration.
    pub(super) took: Duration,
}

/// Returns the latest slow commands, or the server's refusal.
pub(super) fn slow_commands(link: &mut Link) -> io::Result<Result<Vec<Stall>, String>> {
    let reply = link.ask(&[b"SLOWLOG", b"GET", b"64"])?;
    Ok(list(&reply, slow_command))
}

/// Returns the latest event of each kind, or the server's refusal.
pub(super) fn events(link: &mut Link) -> io::Result<Result<Vec<Stall>, String>> {
    let reply = link.ask(&[b"LATENCY", b"LATEST"])?;
    Ok(list(&reply, event))
}

fn list(reply: &Frame, read: impl Fn(&[Frame]) -> Option<Stall>) -> Result<Vec<Stall>, String> {
    let Frame::Array(entries) = reply else {
        return Err(link::text(reply).err().unwrap_or_default());
    };
    let fields = entries.iter().filter_map(|entry| match entry {
        Frame::Array(fields) => Some(&fields[..]),
        _ => None,
    });
    Ok(fields.filter_map(read).collect())
}

fn slow_command(fields: &[Frame]) -> Option<Stall> {
    let [_, Frame::Int(at), Frame::Int(micros), Frame::Array(words), ..] = fields else {
        return None;
    };
    let what = link::text(words.first()?).ok()?.to_uppercase();
    let took = Duration::from_micros(u64::try_from(*micros).ok()?);
    Some(Stall { what, at: u64::try_from(*at).ok()?, took })
}

/// Parses an event: the longest of its kind, at the time of the latest.
fn event(fields: &[Frame]) -> Option<Stall> {
    let [name, Frame::Int(at), _, Frame::Int(longest_ms), ..] = fields else { return None };
    let took = Duration::from_millis(u64::try_from(*longest_ms).ok()?);
    Some(Stall { what: link::text(name).ok()?, at: u64::try_from(*at).ok()?, took })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_a_slow_command_is_kept() {
        let words = ["auth", "hunter2"].map(|word| Frame::Bulk(word.into())).to_vec();
        let entry = vec![Frame::Int(1), Frame::Int(1700), Frame::Int(250_000), Frame::Array(words)];
        let read = list(&Frame::Array(vec![Frame::Array(entry)]), slow_command);
        let took = Duration::from_millis(250);
        assert_eq!(read, Ok(vec![Stall { what: "AUTH".to_owned(), at: 1700, took }]));
    }

    #[test]
    fn an_event_has_its_longest_time() {
        let entry =
            vec![Frame::Bulk("fork".into()), Frame::Int(1700), Frame::Int(3), Frame::Int(400)];
        let read = list(&Frame::Array(vec![Frame::Array(entry)]), event);
        let took = Duration::from_millis(400);
        assert_eq!(read, Ok(vec![Stall { what: "fork".to_owned(), at: 1700, took }]));
        assert_eq!(list(&Frame::Error("NOPERM x".into()), event), Err("NOPERM x".to_owned()));
    }
}
