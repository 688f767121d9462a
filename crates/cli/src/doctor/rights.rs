//! Finds out which commands the user may run, by probes that change nothing.
//!
//! A server checks the right to run a command before it parses the arguments. So each probe that
//! could write has arguments that no server accepts, or a key that does not exist. A refusal leaves
//! an entry in the server's ACL log.

use std::io;

use redbolt::resp::Frame;

use crate::link::{self, Link};

/// The purpose for which a command is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    Locks,
    Notifications,
    Queue,
    Fencing,
    Sharing,
}

/// A command that the user may not run, or that the server does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) command: &'static str,
    pub(super) need: Need,
}

/// Probes each command. `key` must be the name of a key that does not exist.
pub(super) fn probe(link: &mut Link, key: &[u8]) -> io::Result<Vec<Denied>> {
    let words = |&(_, _, probe): &Probe| probe.split(' ').map(|word| filled(word, key)).collect();
    let commands: Vec<Vec<&[u8]>> = PROBES.iter().map(words).collect();
    let replies = link.ask_all(&commands)?;
    let refused = PROBES.iter().zip(&replies).filter(|(_, reply)| is_denied(reply));
    Ok(refused.map(|(&(command, need, _), _)| Denied { command, need }).collect())
}

/// Probes whether the connection may subscribe to notifications. Nothing else can be asked on the
/// connection after that.
pub(super) fn probe_subscribe(link: &mut Link) -> io::Result<Option<Denied>> {
    let reply = link.ask(&[b"SUBSCRIBE", b"__redis__:invalidate"])?;
    let is_refused = matches!(reply, Frame::Error(_));
    let denied = Denied { command: "SUBSCRIBE", need: Need::Notifications };
    Ok(is_refused.then_some(denied))
}

fn filled<'a>(word: &'a str, key: &'a [u8]) -> &'a [u8] {
    match word {
        "KEY" => key,
        "EMPTY" => b"",
        _ => word.as_bytes(),
    }
}

/// Returns whether the command itself is refused, and not only its key or its arguments.
fn is_denied(reply: &Frame) -> bool {
    let Err(words) = link::text(reply) else { return false };
    let words = words.to_lowercase();
    let is_forbidden = words.starts_with("noperm") && words.contains(" to run the ");
    is_forbidden || words.contains("unknown command") || words.contains("unknown subcommand")
}

type Probe = (&'static str, Need, &'static str);

/// The commands with their purposes, and words that no server executes as a write.
const PROBES: [Probe; 22] = [
    ("EVAL", Need::Locks, "EVAL EMPTY x"),
    ("EVALSHA", Need::Locks, "EVALSHA 0000000000000000000000000000000000000000 0"),
    ("GET", Need::Locks, "GET KEY"),
    ("SET", Need::Locks, "SET KEY x NX XX"),
    ("DEL", Need::Locks, "DEL KEY"),
    ("PTTL", Need::Locks, "PTTL KEY"),
    ("PEXPIRE", Need::Locks, "PEXPIRE KEY x"),
    ("CLIENT SETNAME", Need::Locks, "CLIENT SETNAME redbolt-doctor"),
    ("CLIENT ID", Need::Locks, "CLIENT ID"),
    ("CLIENT TRACKING", Need::Notifications, "CLIENT TRACKING x"),
    ("CLIENT CACHING", Need::Queue, "CLIENT CACHING x"),
    ("ZRANK", Need::Queue, "ZRANK KEY x"),
    ("ZCARD", Need::Queue, "ZCARD KEY"),
    ("ZRANGEBYSCORE", Need::Queue, "ZRANGEBYSCORE KEY x x"),
    ("TIME", Need::Fencing, "TIME"),
    ("TYPE", Need::Sharing, "TYPE KEY"),
    ("ZADD", Need::Sharing, "ZADD KEY x x"),
    ("ZREM", Need::Sharing, "ZREM KEY x"),
    ("ZSCORE", Need::Sharing, "ZSCORE KEY x"),
    ("ZRANGE", Need::Sharing, "ZRANGE KEY x x"),
    ("ZREMRANGEBYSCORE", Need::Sharing, "ZREMRANGEBYSCORE KEY x x"),
    ("PEXPIREAT", Need::Sharing, "PEXPIREAT KEY x"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_key_is_no_refused_command() {
        let is_denied = |text: &'static str| is_denied(&Frame::Error(text.into()));
        for denied in [
            "NOPERM User worker has no permissions to run the 'eval' command",
            "NOPERM this user has no permissions to run the 'eval' command or its subcommand",
            "ERR unknown command 'EVAL', with args beginning with: ''",
            "ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.",
            "ERR Unknown subcommand or wrong number of arguments for 'tracking'. Try CLIENT HELP",
        ] {
            assert!(is_denied(denied), "{denied}");
        }
        for allowed in [
            "NOPERM No permissions to access a key",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "ERR syntax error",
            "NOSCRIPT No matching script. Please use EVAL.",
            "READONLY You can't write against a read only replica.",
        ] {
            assert!(!is_denied(allowed), "{allowed}");
        }
        assert!(!super::is_denied(&Frame::Int(0)));
    }
}
