//! A node on paper: what it is asked is read as requests, and each is answered by hand.

use std::collections::VecDeque;

use redbolt::proto::restart_guard::BIG_MS;

use crate::request::{Requests, Words};
use crate::{Command, Kind};

/// What a node was asked and has not answered, in order.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    requests: Requests,
    asked: VecDeque<Words>,
}

impl Scripted {
    /// Takes what is written to it, which is all; returns how much that was.
    pub fn hear(&mut self, bytes: &[u8]) -> usize {
        self.requests.hear(bytes);
        self.asked.extend(self.requests.complete());
        bytes.len()
    }

    /// The oldest request that is not answered.
    #[must_use]
    pub fn oldest(&self) -> Option<&Words> {
        self.asked.front()
    }

    /// What all of them are, however their scripts are called.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        self.asked.iter().map(|words| Command::new(words).kind.name()).collect()
    }

    /// The oldest request has its answer.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn answered(&mut self) -> Words {
        self.asked.pop_front().expect("a request to answer")
    }
}

/// How a node handshakes.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// Of the server's process: 40 characters.
    pub run_id: String,
    /// The server's name for the connection.
    pub client_id: u64,
    /// The restart guard's value.
    pub restart_guard: Option<Vec<u8>>,
    /// The restart guard's TTL, as `PTTL` tells it.
    pub pttl: i64,
}

impl Handshake {
    /// A restart guard's TTL with no quarantine left.
    pub const VOTES: i64 = BIG_MS as i64;

    /// A node that votes, without a restart guard.
    #[must_use]
    pub fn unguarded(run_id: String) -> Self {
        Self { run_id, client_id: 7, restart_guard: None, pttl: -2 }
    }

    /// What a master that keeps everything answers to a request of a handshake; `None` to any other.
    #[must_use]
    pub fn answer<W: AsRef<[u8]>>(&self, words: &[W]) -> Option<String> {
        let word = |at: usize| words.get(at).map_or(&[][..], AsRef::as_ref);
        Some(match Command::new(words).kind {
            Kind::Client if word(1) == b"ID" => format!(":{}\r\n", self.client_id),
            Kind::Auth | Kind::Select | Kind::Client | Kind::Track => "+OK\r\n".to_owned(),
            Kind::Info => match word(1) {
                b"server" => bulk(&format!("run_id:{}\r\n", self.run_id)),
                b"replication" => bulk("role:master\r\n"),
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

/// A bulk string.
#[must_use]
pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
