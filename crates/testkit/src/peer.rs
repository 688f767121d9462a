//! The other end of a connection: a model node that answers what it was really asked.
//!
//! So a change to the protocol is answered as it is, and no answer has to be kept in step with it. It knows nothing
//! of the library's core, so that the library's own unit tests can use it as well. Not here: how the bytes get
//! there.

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
    /// A node that is new, and known by its number.
    #[must_use]
    pub fn new(number: usize, now: ClockReading) -> Self {
        let mut store = Store::new(&format!("{number:040}"), now);
        let conn = store.connect();
        Self { store, conn, asked: Requests::default(), replies: Vec::new() }
    }

    /// Somebody else locks a resource for a day.
    ///
    /// # Panics
    ///
    /// If somebody has it.
    pub fn is_held_by_others(&mut self, resource: &[u8], now: ClockReading) {
        let conn = self.store.connect();
        self.replies.clear();
        let set = [b"SET", resource, b"theirs", b"PX", b"86400000"];
        self.store.command(conn, &set, now, &mut self.replies);
        assert_eq!(self.replies, b"+OK\r\n");
    }

    /// Its connection is over, and another one leads to the same process.
    pub fn reconnect(&mut self) {
        self.conn = self.store.connect();
        self.asked.clear();
    }

    /// What a request is answered, without a detour through bytes.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W], now: ClockReading) -> String {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.replies.clear();
        self.store.command(self.conn, &words, now, &mut self.replies);
        String::from_utf8_lossy(&self.replies).into_owned()
    }

    /// Takes what was written to it.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.asked.hear(bytes);
    }

    /// Runs the requests that it has heard, as far as they are complete, and returns its replies.
    pub fn answer(&mut self, now: ClockReading) -> &[u8] {
        let Self { store, conn, asked, replies } = self;
        replies.clear();
        asked.each(|words| store.command(*conn, words, now, replies));
        replies
    }
}
