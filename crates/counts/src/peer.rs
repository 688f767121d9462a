//! The other end of a connection: a model node that answers what it was really asked.
//!
//! So a change to the protocol is counted as it is, and no answer has to be kept in step with it. Not here:
//! how the bytes get there.

use std::ops::Range;

use redbolt::resp::{Decoder, Limits, Token};
use redbolt_node::model::{ClockReading, ConnId, Store};

/// A node with one connection to it. What it does is not to be counted, see [`aside`](crate::aside).
pub struct Peer {
    store: Store,
    conn: ConnId,
    decoder: Decoder,
    asked: Vec<u8>,
    replies: Vec<u8>,
}

impl Peer {
    /// A node that is new, and known by its number.
    #[must_use]
    pub fn new(number: usize, now: ClockReading) -> Self {
        let mut store = Store::new(&format!("{number:040}"), now);
        let conn = store.connect();
        let decoder = Decoder::new(Limits::default());
        Self { store, conn, decoder, asked: Vec::new(), replies: Vec::new() }
    }

    /// Somebody else locks a resource for a day.
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
        self.decoder = Decoder::new(Limits::default());
        self.asked.clear();
    }

    /// Takes what was written to it.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.asked.extend_from_slice(bytes);
    }

    /// Runs the commands that it has heard, which must be whole, and returns its replies.
    pub fn answer(&mut self, now: ClockReading) -> &[u8] {
        self.replies.clear();
        let (mut at, mut missing) = (0, 0);
        let mut words: Vec<Range<usize>> = Vec::new();
        while let Some((token, len)) = self.decoder.next(&self.asked[at..]).expect("RESP2") {
            at += len;
            match token {
                Token::Array(count) => missing = count,
                Token::Bulk(word) => {
                    // Behind the payload are CR and LF.
                    words.push(at - 2 - word.len()..at - 2);
                    missing -= 1;
                }
                other => panic!("a command is an array of bulk strings, not {other:?}"),
            }
            if missing == 0 {
                let words: Vec<_> = words.drain(..).map(|word| &self.asked[word]).collect();
                self.store.command(self.conn, &words, now, &mut self.replies);
            }
        }
        self.asked.clear();
        &self.replies
    }
}
