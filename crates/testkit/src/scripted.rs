//! A scripted node: its requests are parsed, and the test answers each by hand.

use std::collections::VecDeque;

use redbolt::proto::restart_guard::BIG_MS;

use crate::command::{Command, Kind};
use crate::request::{Requests, Words};

/// The unanswered requests of a node, in order.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    requests: Requests,
    asked: VecDeque<Words>,
}

impl Scripted {
    /// Takes all written bytes and returns their number.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        self.requests.receive(bytes);
        self.asked.extend(self.requests.complete());
        bytes.len()
    }

    /// Returns the oldest unanswered request.
    #[must_use]
    pub fn oldest(&self) -> Option<&Words> {
        self.asked.front()
    }

    /// Returns the kinds of all unanswered requests, without regard to how they call their scripts.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        self.asked.iter().map(|words| Command::new(words).kind.name()).collect()
    }

    /// Removes the oldest request, which has been answered.
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    pub fn answered(&mut self) -> Words {
        self.asked.pop_front().expect("a request to answer")
    }
}

/// A node's answers to a handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The run ID of the server's process: 40 characters.
    pub run_id: String,
    /// The `master_replid` of the server, if it reports one: 40 characters.
    pub replication_id: Option<String>,
    /// The connection's ID, as `CLIENT ID` returns it.
    pub client_id: u64,
    /// The restart guard's value.
    pub restart_guard: Option<Vec<u8>>,
    /// The restart guard's TTL, as `PTTL` returns it.
    pub pttl: i64,
}

impl Handshake {
    /// The TTL of a restart guard whose quarantine has ended.
    pub const VOTES: i64 = BIG_MS as i64;

    /// Returns the handshake of a node that votes, without a restart guard.
    #[must_use]
    pub fn unguarded(run_id: String) -> Self {
        Self { run_id, replication_id: None, client_id: 7, restart_guard: None, pttl: -2 }
    }

    /// Returns the reply of a master without eviction to a handshake's request; `None` for any
    /// other request.
    #[must_use]
    pub fn answer<W: AsRef<[u8]>>(&self, words: &[W]) -> Option<String> {
        let word = |at: usize| words.get(at).map_or(&[][..], AsRef::as_ref);
        Some(match Command::new(words).kind {
            Kind::Client if word(1) == b"ID" => format!(":{}\r\n", self.client_id),
            Kind::Auth | Kind::Select | Kind::Client | Kind::Track => "+OK\r\n".to_owned(),
            Kind::Info => match word(1) {
                b"server" => bulk(&format!("run_id:{}\r\n", self.run_id)),
                b"replication" => bulk(&match &self.replication_id {
                    Some(reported) => format!("role:master\r\nmaster_replid:{reported}\r\n"),
                    None => "role:master\r\n".to_owned(),
                }),
                _ => bulk("maxmemory:0\r\n"),
            },
            Kind::ProbeCall if word(0) == b"DEL" => "-ERR wrong number of arguments\r\n".to_owned(),
            Kind::ProbeCall => ":0\r\n".to_owned(),
            Kind::ProbeWrite => "-ERR syntax error\r\n".to_owned(),
            Kind::Look => match &self.restart_guard {
                Some(value) => bulk(&String::from_utf8_lossy(value)),
                None => "$-1\r\n".to_owned(),
            },
            Kind::Check => format!(":{}\r\n", self.pttl),
            Kind::Subscribe => {
                let channel = String::from_utf8_lossy(word(1));
                format!("*3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(&channel))
            }
            _ => return None,
        })
    }
}

/// Returns a bulk string.
#[must_use]
pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
