//! What nodes answer: what an honest one would, and what some node might.

use super::wire::{Request, Step};

/// The answer of a node that does as it is told. `refuse` is its other opinion: held, gone, or of
/// the wrong kind.
pub(super) fn honest(request: Request, node: usize, refuse: bool, era: char) -> String {
    match request {
        Request::Greet(step) => greeting(step, node, refuse, era),
        Request::Ask { many: false, .. } if refuse => "$-1\r\n".into(),
        Request::Ask { many: true, .. } if refuse => ":700\r\n".into(),
        Request::Ask { .. } => "+OK\r\n".into(),
        Request::Extend { .. } | Request::Undo { .. } | Request::Kill => {
            if refuse { ":0\r\n" } else { ":1\r\n" }.into()
        }
        Request::Remaining | Request::ViewTtl => if refuse { ":-2\r\n" } else { ":40\r\n" }.into(),
        Request::ViewValue => bulk(if refuse { "" } else { "00112233445566778899aabbccddeeff:me" }),
    }
}

fn greeting(step: Step, node: usize, refuse: bool, era: char) -> String {
    match step {
        Step::Auth if refuse => "-WRONGPASS invalid username-password pair\r\n".into(),
        Step::Select if refuse => "-ERR DB index is out of range\r\n".into(),
        Step::Auth | Step::Select | Step::SetName => "+OK\r\n".into(),
        Step::ClientId => format!(":{}\r\n", node + 7),
        Step::InfoServer => server(node, era),
        Step::InfoReplication => bulk(if refuse { "role:slave\r\n" } else { "role:master\r\n" }),
        Step::InfoMemory if refuse => bulk("maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n"),
        Step::InfoMemory => bulk("maxmemory:0\r\n"),
    }
}

/// The server on a node's address. It is another process in each era.
fn server(node: usize, era: char) -> String {
    let (era, node) = (era.to_string(), node.to_string());
    bulk(&format!("redis_mode:standalone\r\nrun_id:{}{}\r\n", node.repeat(20), era.repeat(20)))
}

/// Something that a server says to somebody.
pub(super) fn plausible(code: u8, node: usize) -> String {
    let fixed = match PLAUSIBLE.get(usize::from(code)) {
        Some(text) => return (*text).into(),
        None => usize::from(code) - PLAUSIBLE.len(),
    };
    match fixed {
        0 => server(0, ERA),
        1 => server(node, NEXT_ERA),
        2 => server(node, ERA),
        3 => bulk("redis_mode:cluster\r\nrun_id:short\r\n"),
        4 => bulk("role:master\r\n"),
        5 => bulk("role:slave\r\n"),
        6 => bulk(""),
        number => format!(":{}\r\n", i64::try_from(number).map_or(0, |n| n - 20)),
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Server processes are named by the letter that their run id ends in.
pub(super) const ERA: char = 'a';
pub(super) const NEXT_ERA: char = 'b';
/// Of the servers that are there after everything; no input knows of it.
pub(super) const LAST_ERA: char = 'f';

const PLAUSIBLE: &[&str] = &[
    "+OK\r\n",
    "$-1\r\n",
    ":0\r\n",
    ":1\r\n",
    ":-1\r\n",
    ":-2\r\n",
    ":30000\r\n",
    ":9223372036854775807\r\n",
    "-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
    "-MISCONF Redis is configured to save RDB snapshots\r\n",
    "-BUSY Redis is busy running a script.\r\n",
    "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    "-NOAUTH Authentication required.\r\n",
    "-NOPERM this user has no permissions to run the 'set' command\r\n",
    "-ERR unknown command 'SET', with args beginning with: 'k0'\r\n",
    "-ERR Error running script (call to f_0): @user_script:1: -READONLY x\r\n",
    "-DENIED Redis is running in protected mode\r\n",
    "-\r\n",
    "+\r\n",
    "*0\r\n",
    "*-1\r\n",
    "*2\r\n+OK\r\n+OK\r\n",
    "*1\r\n:1\r\n",
    "%1\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
];
