//! One connection, from a client's socket to a server's: bytes in flight in both directions.

use std::collections::VecDeque;

use redbolt::proto::LinkId;
use redbolt_node::model::ConnId;
use redbolt_testkit::request::{Requests, Words};

/// A connection. It outlives the client's socket, because the server may still run what was
/// written.
pub(crate) struct Wire {
    pub(crate) client: usize,
    pub(crate) node: usize,
    pub(crate) link: LinkId,
    /// When the client's socket is connected.
    pub(crate) open_at: u64,
    pub(crate) state: State,
    /// The client's socket exists.
    pub(crate) alive: bool,
    /// Bytes to the server are held back until a test releases them.
    pub(crate) held: bool,
    pub(crate) up: Stream,
    pub(crate) down: Stream,
    requests: Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connecting,
    Open(ConnId),
    /// The server's end is gone, and the client has not noticed.
    Forgotten,
    /// The server's end is closed.
    Ended,
}

impl Wire {
    pub(crate) fn new(client: usize, link: LinkId, open_at: u64) -> Self {
        Self {
            client,
            node: link.node().index(),
            link,
            open_at,
            state: State::Connecting,
            alive: true,
            held: false,
            up: Stream::default(),
            down: Stream::default(),
            requests: Requests::default(),
        }
    }

    /// The complete requests among the bytes that have arrived.
    pub(crate) fn arrived(&mut self, now: u64) -> Vec<Words> {
        while let Some(bytes) = self.up.arrived(now) {
            self.requests.hear(&bytes);
        }
        self.requests.complete()
    }
}

/// Bytes with their arrival times.
#[derive(Default)]
pub(crate) struct Stream(VecDeque<(u64, Vec<u8>)>);

impl Stream {
    pub(crate) fn push(&mut self, at: u64, bytes: Vec<u8>) {
        // Bytes are not reordered.
        let at = self.0.back().map_or(at, |&(last, _)| last.max(at));
        if !bytes.is_empty() {
            self.0.push_back((at, bytes));
        }
    }

    pub(crate) fn arrived(&mut self, now: u64) -> Option<Vec<u8>> {
        self.next_at().filter(|&at| at <= now)?;
        self.0.pop_front().map(|(_, bytes)| bytes)
    }

    /// Puts back the bytes that were not read.
    pub(crate) fn unread(&mut self, now: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.0.push_front((now, bytes));
        }
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.0.front().map(|&(at, _)| at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
