//! The other end of a connection: a model node that runs the requests it receives.
//!
//! It follows changes of the protocol by itself, so no list of replies has to be kept in step. It
//! does not use the library's core, so the library's own unit tests can use it as well.

use redbolt_node::model::{ClockReading, ConnId, Store};

use crate::request::Requests;

/// A node with one connection to it.
pub struct Peer {
    store: Store,
    conn: ConnId,
    asked: Requests,
    replies: Vec<u8>,
}

impl Peer {
    /// Creates a node, with a run ID made from its number.
    #[must_use]
    pub fn new(number: usize, now: ClockReading) -> Self {
        let mut store = Store::new(&format!("{number:040}"), now);
        let conn = store.connect();
        Self { store, conn, asked: Requests::default(), replies: Vec::new() }
    }

    /// Lets another client lock a resource for a day.
    ///
    /// # Panics
    ///
    /// Panics if the resource is locked already.
    pub fn is_held_by_others(&mut self, resource: &[u8], now: ClockReading) {
        let conn = self.store.connect();
        self.replies.clear();
        let set = [b"SET", resource, b"theirs", b"PX", b"86400000"];
        self.store.command(conn, &set, now, &mut self.replies);
        assert_eq!(self.replies, b"+OK\r\n");
    }

    /// Sets the commands that it has in addition to those of Redis 7.0, like [`Store::offer`].
    pub fn offer(&mut self, commands: &[&'static str]) {
        self.store.offer(commands);
    }

    /// Ends its connection, and opens another one to the same process.
    pub fn reconnect(&mut self) {
        self.conn = self.store.connect();
        self.asked.clear();
    }

    /// Runs a request directly, and returns the reply.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W], now: ClockReading) -> String {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.replies.clear();
        self.store.command(self.conn, &words, now, &mut self.replies);
        String::from_utf8_lossy(&self.replies).into_owned()
    }

    /// Receives written bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.asked.receive(bytes);
    }

    /// Runs the complete requests that it has received, and returns the replies.
    pub fn answer(&mut self, now: ClockReading) -> &[u8] {
        let Self { store, conn, asked, replies } = self;
        replies.clear();
        asked.each(|words| store.command(*conn, words, now, replies));
        replies
    }
}
