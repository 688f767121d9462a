//! One connection, from a client's socket to a server's: a stream of bytes in each direction, cut
//! and delayed anywhere. Each end is closed separately. A wire whose client end is closed is a
//! ghost: the server may still run what was written to it.

use std::collections::VecDeque;

use redbolt_node::model::ConnId;
use redbolt_testkit::Random;

use super::queue::Time;
use crate::plan::MAX_NODES;

/// A connection. Its entry stays for the rest of the schedule.
pub(crate) struct Wire {
    pub(crate) client: usize,
    /// The index of its link at the client. For a command link this is also the client's number of
    /// the node.
    pub(crate) slot: usize,
    /// The server to which the wire really leads.
    pub(crate) node: usize,
    /// The server's connection, once accepted.
    pub(crate) conn: Option<ConnId>,
    pub(crate) accepted_at: Time,
    /// Open at the client's end.
    pub(crate) client_alive: bool,
    /// Open at the server's end.
    pub(crate) server_alive: bool,
    /// The server's machine went away without FIN or RST.
    pub(crate) lost: bool,
    /// A middlebox has dropped its state for this connection, and sends no RST either.
    pub(crate) mute: bool,
    /// Bytes were written after that, and not acknowledged.
    pub(crate) unacknowledged: bool,
    pub(crate) up: Stream,
    pub(crate) down: Stream,
    /// The meaning of the replies in `down`, by the offset at which each ends.
    pub(crate) tags: VecDeque<Tag>,
    /// The number of requests that the server has read.
    pub(crate) asked: u32,
    pub(crate) answered: u32,
    /// A SET that was just granted here counts only with the restart-guard check that follows it.
    pub(crate) pending: Option<(u16, Says)>,
    /// Attempts whose grants the client has read without the proof behind them: some may count only
    /// then.
    pub(crate) unproven: Vec<u16>,
    /// The number of the server's messages that will be lost.
    pub(crate) drops: u64,
    /// Garbage was injected, so the client is right to close the link.
    pub(crate) poisoned: bool,
    pub(crate) random: Random,
}

/// The meaning of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) end: usize,
    pub(crate) attempt: u16,
    pub(crate) says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// A request was granted on this server; `until` is the latest end of the key.
    Granted {
        /// The number of a permit; [`NO_SLOT`] of other locks.
        slot: u16,
        counter: u64,
        until: Time,
    },
    /// The counter has reached this value, and the key still belongs to the attempt.
    Raised {
        counter: u64,
    },
    /// An extension of `ttl` ms succeeded; `until` is the latest end of the key.
    Extended {
        ttl: u64,
        until: Time,
    },
    /// Another owner has the lock.
    Denied,
    /// There was no key to extend.
    Gone {
        ttl: u64,
    },
    /// The handshake selected the client's database.
    LetIn,
    Undone,
    /// The node reports whether it is still the same master.
    Proven,
    /// Any other reply.
    Other,
}

pub(crate) const NO_SLOT: u16 = u16::MAX;

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            client: 0,
            slot: 0,
            node: 0,
            conn: None,
            accepted_at: 0,
            client_alive: false,
            server_alive: false,
            lost: false,
            mute: false,
            unacknowledged: false,
            up: Stream::default(),
            down: Stream::default(),
            tags: VecDeque::new(),
            asked: 0,
            answered: 0,
            pending: None,
            unproven: Vec::new(),
            drops: 0,
            poisoned: false,
            random: Random::new(0),
        }
    }

    /// Reuses this wire for a new connection.
    pub(crate) fn open(&mut self, client: usize, slot: usize, node: usize, random: Random) {
        (self.client, self.slot, self.node) = (client, slot, node);
        self.conn = None;
        (self.client_alive, self.server_alive) = (true, false);
        (self.lost, self.unacknowledged, self.poisoned) = (false, false, false);
        self.mute = false;
        self.up.clear();
        self.down.clear();
        self.tags.clear();
        (self.asked, self.answered) = (0, 0);
        self.unproven.clear();
        (self.pending, self.drops) = (None, 0);
        self.random = random;
    }

    /// Notifies the client that the server's machine is back and answers data for unknown
    /// connections with RST.
    pub(crate) fn is_notified_of_its_end(&self) -> bool {
        self.lost && !self.mute && self.unacknowledged && self.client_alive
    }

    /// Returns true if the client end is a push link.
    pub(crate) fn is_push(&self) -> bool {
        self.slot >= MAX_NODES
    }

    pub(crate) fn is_open(&self) -> bool {
        self.client_alive && self.server_alive
    }
}

/// Bytes in one direction, and their arrival times. Bytes are never reordered.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes sent.
    pub(crate) sent: usize,
    /// The number of bytes read.
    pub(crate) read: usize,
    /// The number of bytes that have arrived.
    pub(crate) arrived: usize,
    /// The pieces in flight: arrival time, and end offset.
    pieces: VecDeque<(Time, usize)>,
}

impl Stream {
    fn clear(&mut self) {
        self.bytes.clear();
        (self.sent, self.read, self.arrived) = (0, 0, 0);
        self.pieces.clear();
    }

    /// Drops the unread bytes.
    pub(crate) fn lose(&mut self) {
        self.bytes.truncate(self.read);
        (self.sent, self.arrived) = (self.read, self.read);
        self.pieces.clear();
    }

    /// Returns the end offset of the last piece.
    pub(crate) fn last_end(&self) -> usize {
        self.pieces.back().map_or(self.arrived, |&(_, end)| end)
    }

    pub(crate) fn last_at(&self) -> Time {
        self.pieces.back().map_or(0, |&(at, _)| at)
    }

    /// Schedules all bytes up to `end` to arrive at `at`, or with the piece before them if that is
    /// later. Returns the time if nothing else arrives then.
    #[inline]
    pub(crate) fn piece(&mut self, at: Time, end: usize) -> Option<Time> {
        if let Some((last, last_end)) = self.pieces.back_mut()
            && *last >= at
        {
            *last_end = end;
            return None;
        }
        self.pieces.push_back((at, end));
        Some(at)
    }

    /// Counts what has arrived by `now`.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time) {
        while let Some(&(at, end)) = self.pieces.front() {
            if at > now {
                return;
            }
            self.arrived = end.min(self.bytes.len());
            self.pieces.pop_front();
        }
    }

    /// Appends bytes that have arrived already, behind bytes that have all been read. An empty last
    /// piece may still be in flight; its end offset must not cover these bytes, or a reply from
    /// here would answer a request that is sent meanwhile.
    pub(crate) fn push_arrived(&mut self, bytes: &[u8]) {
        self.pieces.clear();
        self.bytes.extend_from_slice(bytes);
        (self.sent, self.arrived) = (self.bytes.len(), self.bytes.len());
    }

    /// Delays everything in flight. Returns the new arrival times.
    pub(crate) fn delay(&mut self, by: Time) -> impl Iterator<Item = Time> {
        for (at, _) in &mut self.pieces {
            *at += by;
        }
        self.pieces.iter().map(|&(at, _)| at)
    }

    /// Cuts the stream: of the bytes in flight, only the first `bytes` will arrive.
    pub(crate) fn cut(&mut self, bytes: usize) {
        let end = (self.read + bytes).min(self.bytes.len());
        self.bytes.truncate(end.max(self.arrived));
        while self.pieces.back().is_some_and(|&(_, piece)| piece > end) && self.pieces.len() > 1 {
            self.pieces.pop_back();
        }
        if let Some((_, last)) = self.pieces.back_mut() {
            *last = self.bytes.len();
        }
    }

    pub(crate) fn unread(&self) -> usize {
        self.bytes.len() - self.read
    }
}
