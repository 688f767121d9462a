//! The bytes of a connection in virtual time.

use std::collections::VecDeque;

use crate::request::{Requests, Words};

/// The bytes in flight in one direction, with the times at which they arrive. They are never
/// reordered.
#[derive(Debug, Default)]
pub struct Stream(VecDeque<(u64, Vec<u8>)>);

impl Stream {
    /// Sends bytes that arrive at `at`, or with those before them if that is later.
    pub fn push(&mut self, at: u64, bytes: Vec<u8>) {
        let at = self.0.back().map_or(at, |&(last, _)| last.max(at));
        if !bytes.is_empty() {
            self.0.push_back((at, bytes));
        }
    }

    /// Takes the oldest bytes if they have arrived by `now`.
    pub fn arrived(&mut self, now: u64) -> Option<Vec<u8>> {
        self.next_at().filter(|&at| at <= now)?;
        self.0.pop_front().map(|(_, bytes)| bytes)
    }

    /// Puts back the bytes that were not read.
    pub fn unread(&mut self, now: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.0.push_front((now, bytes));
        }
    }

    /// Returns the time at which the oldest bytes arrive.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.0.front().map(|&(at, _)| at)
    }

    /// Returns true if no bytes are in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Loses all bytes in flight.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The bytes in flight in both directions, and the request of which only a part has arrived.
#[derive(Debug, Default)]
pub struct Flow {
    /// The bytes to the server.
    pub up: Stream,
    /// The bytes to the client.
    pub down: Stream,
    requests: Requests,
}

impl Flow {
    /// Takes the complete requests among the bytes that have arrived by `now`.
    pub fn requests(&mut self, now: u64) -> Vec<Words> {
        while let Some(bytes) = self.up.arrived(now) {
            self.requests.receive(&bytes);
        }
        self.requests.complete()
    }

    /// Runs the requests that have arrived by `now`. Their replies, which `run` appends, arrive at
    /// `reply_at`.
    pub fn serve(&mut self, now: u64, reply_at: u64, mut run: impl FnMut(&[&[u8]], &mut Vec<u8>)) {
        while let Some(bytes) = self.up.arrived(now) {
            let mut replies = Vec::new();
            self.requests.receive(&bytes);
            self.requests.each(|words| run(words, &mut replies));
            self.down.push(reply_at, replies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_not_before_their_time() {
        let mut stream = Stream::default();
        stream.push(10, b"first".to_vec());
        stream.push(5, b"second".to_vec());
        stream.push(20, Vec::new());
        assert_eq!((stream.next_at(), stream.arrived(9)), (Some(10), None));
        assert_eq!(stream.arrived(10), Some(b"first".to_vec()));
        stream.unread(10, b"st".to_vec());
        let rest = [stream.arrived(10), stream.arrived(10), stream.arrived(99)];
        assert_eq!(rest, [Some(b"st".to_vec()), Some(b"second".to_vec()), None]);
    }

    #[test]
    fn a_request_in_two_pieces_runs_when_the_last_one_has_arrived() {
        let mut flow = Flow::default();
        flow.up.push(1, b"*1\r\n$4\r\nPI".to_vec());
        flow.up.push(2, b"NG\r\n*1\r\n$4\r\nPING\r\n".to_vec());
        for (now, reply) in [(1, None), (2, Some(b"+PONG\r\n+PONG\r\n".to_vec()))] {
            flow.serve(now, now, |words, replies| {
                assert_eq!(words, [b"PING"]);
                replies.extend_from_slice(b"+PONG\r\n");
            });
            assert_eq!(flow.down.arrived(now), reply);
        }
    }
}
