//! The receive buffer of a link: the socket reads into it, and the decoder borrows it. It is a
//! `Vec` of initialised bytes, because a socket cannot read into a `BytesMut` without unsafe code.

use crate::resp::Limits;

/// Returns the limits of an answer. They are tight, because no command here has a larger one.
pub(super) fn reply_limits() -> Limits {
    Limits { bulk: 64 << 10, depth: 2, elements: 16, line: 64 << 10, reply: 1 << 20 }
}

/// A buffer with unread bytes at `start..end` and free space behind them.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Returns room for at least half of [`CHUNK`].
    pub(crate) fn space(&mut self) -> &mut [u8] {
        // The decoder takes complete tokens, so the buffer never has more than one token and a
        // chunk.
        if self.bytes.len() - self.end < CHUNK / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.bytes.len() - self.end < CHUNK / 2 {
                self.bytes.resize(self.end + CHUNK, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.bytes.len(), "the socket filled what there was");
    }

    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }
}

/// The size of one read: a flight of answers fits, and so does the largest section of `INFO`.
const CHUNK: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_every_move() {
        let mut inbox = Inbox::default();
        let mut expected = std::collections::VecDeque::new();
        for round in 0..200u32 {
            let space = inbox.space();
            let n = (round as usize * 977) % space.len() + 1;
            let n = n.min(space.len());
            for (i, byte) in space[..n].iter_mut().enumerate() {
                *byte = (round as usize + i) as u8;
                expected.push_back(*byte);
            }
            inbox.filled(n);
            let take = inbox.unread().len() * 9 / 10;
            assert!(
                inbox.unread()[..take].iter().eq(expected.drain(..take).collect::<Vec<_>>().iter())
            );
            inbox.consume(take);
        }
        assert!(inbox.bytes.len() < 4 * CHUNK);
    }
}
