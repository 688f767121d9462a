//! The pipeline of a link: bytes to be sent, and requests whose answers are pending, in order.
//!
//! A node answers in the order of its requests, and nothing else matches an answer to a request. So
//! a request stays here until its answer has come, however late.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

use crate::proto::time::Timestamp;

/// The outbox of a link, and its requests without an answer. It is not `Debug`, because the bytes
/// may contain passwords.
pub(crate) struct Pipeline<R> {
    /// Bytes that the socket has not taken. No handle on them is split off, so the memory is
    /// reused.
    outbox: BytesMut,
    /// The number of bytes that the socket has taken: the stream offset of the outbox's first byte.
    sent: u64,
    due: VecDeque<Due<R>>,
}

/// A request whose answer is pending.
#[derive(Debug)]
pub(crate) struct Due<R> {
    pub(crate) pending: R,
    pub(crate) since: Timestamp,
    /// The stream offset of its first byte.
    start: u64,
}

impl<R> Pipeline<R> {
    pub(crate) fn new() -> Self {
        Self { outbox: BytesMut::new(), sent: 0, due: VecDeque::new() }
    }

    /// Appends a request whose bytes `encode` writes.
    #[inline]
    pub(crate) fn push(&mut self, pending: R, now: Timestamp, encode: impl FnOnce(&mut BytesMut)) {
        let start = self.end();
        encode(&mut self.outbox);
        self.due.push_back(Due { pending, since: now, start });
    }

    /// Takes the request that the next answer belongs to.
    #[inline]
    pub(crate) fn answered(&mut self) -> Option<Due<R>> {
        self.due.pop_front()
    }

    /// Replaces the oldest request, which was answered in part, by `rest`, whose answer is pending.
    #[inline]
    pub(crate) fn becomes(&mut self, rest: R) {
        if let Some(due) = self.due.front_mut() {
            due.pending = rest;
        }
    }

    /// Puts back what [`answered`](Self::answered) took, because there was no answer to it.
    pub(crate) fn unanswered(&mut self, due: Due<R>) {
        self.due.push_front(due);
    }

    pub(crate) fn oldest(&self) -> Option<&Due<R>> {
        self.due.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// Returns how many requests fit without an allocation.
    pub(crate) fn room(&self) -> usize {
        self.due.capacity()
    }

    pub(crate) fn at(&self, at: usize) -> Option<&R> {
        self.due.get(at).map(|due| &due.pending)
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &R> {
        self.due.iter().map(|due| &due.pending)
    }

    /// Applies `change` to the requests until it returns `true`. Returns whether it did.
    pub(crate) fn change(&mut self, change: impl FnMut(&mut R) -> bool) -> bool {
        self.due.iter_mut().map(|due| &mut due.pending).any(change)
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.outbox
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        if bytes == self.outbox.len() {
            // Unlike `advance`, this gives the next request the same place in memory.
            self.outbox.clear();
        } else {
            self.outbox.advance(bytes);
        }
    }

    /// Takes back the first request that `wanted` selects, if no byte of it has reached the socket
    /// and the outbox is not longer than [`WITHDRAWABLE`].
    pub(crate) fn withdraw(&mut self, wanted: impl Fn(&R) -> bool) -> Option<R> {
        if self.outbox.is_empty() || self.outbox.len() > WITHDRAWABLE {
            return None;
        }
        // A request that has begun to leave must leave as a whole, or the server takes the next one
        // for its arguments.
        let unsent = self.due.partition_point(|due| due.start < self.sent);
        let at = unsent + self.due.range(unsent..).position(|due| wanted(&due.pending))?;
        let start = self.due[at].start;
        let end = self.due.get(at + 1).map_or_else(|| self.end(), |next| next.start);
        self.outbox.copy_within((end - self.sent) as usize.., (start - self.sent) as usize);
        self.outbox.truncate(self.outbox.len() - (end - start) as usize);
        let taken = self.due.remove(at)?;
        // Their bytes have moved: an old offset would cut the next withdrawal out of another
        // request.
        for later in self.due.range_mut(at..) {
            later.start -= end - start;
        }
        Some(taken.pending)
    }

    /// Takes back the last request, if `wanted` selects it and no byte of it has reached the
    /// socket. Returns whether it did.
    pub(crate) fn take_back_last(&mut self, wanted: impl Fn(&R) -> bool) -> bool {
        let is_wanted = |due: &&Due<R>| due.start >= self.sent && wanted(&due.pending);
        let Some(start) = self.due.back().filter(is_wanted).map(|due| due.start) else {
            return false;
        };
        self.outbox.truncate((start - self.sent) as usize);
        self.due.pop_back();
        true
    }

    /// Returns the requests without an answer, each with whether no byte of it has reached the
    /// socket.
    pub(crate) fn into_requests(self) -> impl Iterator<Item = (R, bool)> {
        // Only a request of which no byte was taken has certainly not run.
        self.due.into_iter().map(move |due| (due.pending, due.start >= self.sent))
    }

    fn end(&self) -> u64 {
        self.sent + self.outbox.len() as u64
    }
}

/// The longest outbox from which a request is taken back. That moves all bytes behind it, so to
/// cancel many requests one by one would cost the square of their number.
const WITHDRAWABLE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn filled() -> Pipeline<u8> {
        let mut pipeline = Pipeline::new();
        for (pending, bytes) in [(1, &b"aa"[..]), (2, b"bbb"), (3, b"c"), (2, b"dd")] {
            pipeline.push(pending, Timestamp(0), |out| out.extend_from_slice(bytes));
        }
        pipeline
    }

    #[test]
    fn only_an_untouched_request_is_withdrawn() {
        let mut pipeline = filled();
        pipeline.sent(3);
        assert_eq!(pipeline.withdraw(|&r| r == 1), None);
        let second = pipeline.withdraw(|&r| r == 2);
        assert_eq!(second, Some(2), "the second 2, for the first has begun");
        assert_eq!(pipeline.unsent(), b"bbc");
        assert_eq!(pipeline.withdraw(|&r| r == 2), None);
        assert_eq!(pipeline.withdraw(|&r| r == 3), Some(3));
        assert_eq!(pipeline.unsent(), b"bb");
        assert_eq!(pipeline.pending().copied().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn nothing_is_taken_back_from_a_very_long_outbox() {
        let mut pipeline = filled();
        pipeline.push(7, Timestamp(0), |out| out.resize(out.len() + WITHDRAWABLE, b'z'));
        assert_eq!(pipeline.withdraw(|&r| r == 3), None);
        pipeline.sent(8);
        assert_eq!(pipeline.withdraw(|&r| r == 7), Some(7));
    }

    /// A peer that reads slowly never drains the outbox.
    #[test]
    fn an_outbox_that_is_never_drained_stays_in_its_memory() {
        let mut pipeline = Pipeline::new();
        let mut round = |places: &mut BTreeSet<*const u8>| {
            pipeline.push((), Timestamp(0), |out| out.extend_from_slice(&[b'x'; 100]));
            pipeline.answered();
            // Some of the last request is always left, and not always as much.
            let left = pipeline.sent % 99 + 1;
            pipeline.sent(pipeline.unsent().len() - left as usize);
            places.insert(pipeline.unsent().as_ptr());
        };
        let (mut warm, mut steady) = (BTreeSet::new(), BTreeSet::new());
        (0..1_000).for_each(|_| round(&mut warm));
        (0..100_000).for_each(|_| round(&mut steady));
        let span = |places: &BTreeSet<*const u8>| {
            places.last().unwrap().addr() - places.first().unwrap().addr()
        };
        assert!(span(&steady) < 1_000, "{} bytes for at most 199", span(&steady));
    }

    #[test]
    fn an_outbox_that_is_drained_begins_where_it_began() {
        let mut pipeline = Pipeline::new();
        pipeline.push((), Timestamp(0), |out| out.extend_from_slice(&[b'x'; 1_000]));
        let (place, capacity) = (pipeline.unsent().as_ptr(), pipeline.outbox.capacity());
        pipeline.sent(1_000);
        for parts in 1..500 {
            pipeline.push((), Timestamp(0), |out| out.extend_from_slice(&[b'x'; 1_000]));
            assert_eq!(pipeline.unsent().as_ptr(), place, "after {parts} parts");
            assert_eq!(pipeline.outbox.capacity(), capacity, "after {parts} parts");
            (1..parts).for_each(|_| pipeline.sent(1));
            pipeline.sent(pipeline.unsent().len());
            assert!(pipeline.outbox.capacity() > capacity - parts, "no memory is given back");
        }
    }

    #[test]
    fn the_last_request_is_taken_back_while_no_byte_of_it_is_sent() {
        let mut pipeline = filled();
        let all = pipeline.unsent().to_vec();
        let last = *pipeline.pending().last().unwrap();
        assert!(!pipeline.take_back_last(|&r| r != last), "another one is wanted");
        assert!(pipeline.take_back_last(|&r| r == last));
        let rest = pipeline.unsent().to_vec();
        assert!(all.starts_with(&rest) && rest.len() < all.len());
        pipeline.push(last, Timestamp(0), |out| out.extend_from_slice(&all[rest.len()..]));
        assert_eq!(pipeline.unsent(), all);
        pipeline.sent(rest.len() + 1);
        assert!(!pipeline.take_back_last(|&r| r == last), "it has begun to leave");
        pipeline.sent(pipeline.unsent().len());
        assert!(!pipeline.take_back_last(|&r| r == last), "it has left");
    }

    #[test]
    fn offsets_hold_after_a_withdrawal() {
        let mut pipeline = filled();
        assert_eq!(pipeline.withdraw(|&r| r == 1), Some(1));
        assert_eq!(pipeline.withdraw(|&r| r == 3), Some(3));
        assert_eq!(pipeline.unsent(), b"bbbdd");
        pipeline.sent(3);
        assert_eq!(pipeline.withdraw(|&r| r == 2), Some(2));
        assert_eq!(pipeline.unsent(), b"");
        pipeline.push(9, Timestamp(0), |out| out.extend_from_slice(b"z"));
        assert_eq!(pipeline.withdraw(|&r| r == 9), Some(9));
        assert_eq!(pipeline.answered().map(|due| due.pending), Some(2));
        assert_eq!(pipeline.len(), 0);
    }
}
