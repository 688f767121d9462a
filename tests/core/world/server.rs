//! A node of the world: a model store, and its present faults.

use redbolt::proto::restart_guard::{BIG_MS, Expected};
use redbolt::proto::{NodeSettings, Settings};
use redbolt::resp::{Decoder, Limits, Token};
use redbolt_node::{
    Memory,
    model::{ClockReading, ConnId, Store},
};

/// A server's treatment of connection attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    /// The server accepts them.
    Yes,
    /// The port is closed.
    No,
    /// The server never answers.
    Silent,
}

pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) accept: Accept,
    /// `true` if it is stopped: bytes queue up, and nothing runs.
    pub(crate) paused: bool,
    /// The one-way delay in ns.
    pub(crate) delay: u64,
    /// The number of bytes that clients' sockets still accept.
    pub(crate) window: usize,
    /// `true` if messages to push links are lost.
    pub(crate) loses_messages: bool,
    /// The time of the next expiry cycle.
    pub(crate) expires_at: u64,
    /// The time in µs by which its clock is ahead.
    pub(crate) ahead: i64,
    /// A function whose replies replace those of the store, if it returns one.
    pub(crate) answer: Option<Box<Answer>>,
    /// A connection of the world, for reading keys.
    observer: ConnId,
    /// The database that this connection reads.
    database: String,
    name: usize,
    runs: u32,
}

pub(crate) type Answer = dyn FnMut(&[&[u8]]) -> Option<Vec<u8>>;

impl Server {
    pub(crate) fn new(name: usize, now: ClockReading) -> Self {
        let mut store = Store::new(&run_id(name, 0), now);
        let observer = store.connect();
        let (accept, window) = (Accept::Yes, usize::MAX);
        Self {
            store,
            accept,
            paused: false,
            delay: 0,
            window,
            loses_messages: false,
            expires_at: 0,
            ahead: 0,
            answer: None,
            observer,
            database: "0".to_owned(),
            name,
            runs: 0,
        }
    }

    /// Runs one command and appends the reply.
    pub(crate) fn run(
        &mut self,
        conn: ConnId,
        args: &[&[u8]],
        now: ClockReading,
        out: &mut Vec<u8>,
    ) {
        match self.answer.as_mut().and_then(|answer| answer(args)) {
            Some(answer) => out.extend_from_slice(&answer),
            None => self.store.command(conn, args, self.clock(now), out),
        }
    }

    /// Runs the expiry cycle.
    pub(crate) fn expire(&mut self, now: ClockReading) {
        self.store.expire(self.clock(now));
    }

    fn clock(&self, now: ClockReading) -> ClockReading {
        ClockReading::from_micros(now.micros().saturating_add_signed(self.ahead))
    }

    pub(crate) fn restart(&mut self, name: usize, memory: Memory, now: ClockReading) {
        self.runs += 1;
        self.store.restart(memory, &run_id(name, self.runs), self.clock(now));
        self.observer = self.store.connect();
    }

    /// Handles a killed connection; if it was the world's own, opens another.
    pub(crate) fn killed(&mut self, conn: ConnId, now: ClockReading) {
        if conn == self.observer {
            self.observer = self.store.connect();
            self.inspect(&self.database.clone(), now);
        }
    }

    /// Writes a restart guard by which the node votes.
    pub(crate) fn remember(&mut self, settings: &Settings, node: &NodeSettings, now: ClockReading) {
        let expected = self.expected(settings, node, self.runs);
        self.inspect(&node.database.to_string(), now);
        let life = BIG_MS.to_string();
        let set =
            [b"SET", &settings.restart_guard_key[..], &expected.value(), b"PX", life.as_bytes()];
        assert_eq!(self.observe(&set, now), b"+OK\r\n");
        self.inspect("0", now);
    }

    /// Returns the restart guard that a client with these settings expects after this many
    /// restarts.
    pub(crate) fn expected(&self, settings: &Settings, node: &NodeSettings, runs: u32) -> Expected {
        Expected {
            run_id: run_id(self.name, runs).as_bytes().try_into().ok(),
            replication_id: None,
            max_ttl_ms: settings.max_ttl.as_millis() as u64,
            nodes: settings.nodes.len() as u64,
            database: node.database.into(),
            restart_trust: node.restart_trust,
        }
    }

    /// Reads keys from this database from now on.
    pub(crate) fn inspect(&mut self, database: &str, now: ClockReading) {
        assert_eq!(self.observe(&[b"SELECT", database.as_bytes()], now), b"+OK\r\n");
        database.clone_into(&mut self.database);
    }

    /// Runs a command of the world and returns the reply.
    pub(crate) fn observe(&mut self, args: &[&[u8]], now: ClockReading) -> Vec<u8> {
        let mut out = Vec::new();
        self.store.command(self.observer, args, self.clock(now), &mut out);
        out
    }

    /// Returns the value of a key, empty if the key does not exist.
    pub(crate) fn value(&mut self, key: &[u8], now: ClockReading) -> Vec<u8> {
        let reply = self.observe(&[b"GET", key], now);
        match Decoder::new(Limits::default()).next(&reply) {
            Ok(Some((Token::Bulk(value), _))) => value.to_vec(),
            _ => Vec::new(),
        }
    }
}

pub(crate) fn error(text: &str) -> Option<Vec<u8>> {
    Some(format!("-{text}\r\n").into_bytes())
}

pub(crate) fn bulk(text: &str) -> Option<Vec<u8>> {
    Some(format!("${}\r\n{text}\r\n", text.len()).into_bytes())
}

fn run_id(name: usize, run: u32) -> String {
    format!("{name:020}{run:020}")
}
