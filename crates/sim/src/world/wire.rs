//! One connection, from a client's socket to a server's: a stream of bytes in each direction, cut
//! and delayed anywhere.
//!
//! The two ends live and die apart. A wire whose client has gone is a ghost: what was written to it
//! may still run.

use std::collections::VecDeque;

use redbolt_node::model::ConnId;
use redbolt_testkit::Random;

use super::queue::Time;
use crate::plan::MAX_NODES;

/// A connection that was opened at some time. It stays for the rest of the schedule.
pub(crate) struct Wire {
    pub(crate) client: usize,
    /// The place of its link at the client: the client's name for the node, if it is a command link.
    pub(crate) slot: usize,
    /// The server that it really leads to.
    pub(crate) node: usize,
    /// The server's connection, once it accepted.
    pub(crate) conn: Option<ConnId>,
    /// When that was.
    pub(crate) accepted_at: Time,
    /// Open at the client's end.
    pub(crate) client_alive: bool,
    /// Open at the server's end.
    pub(crate) server_alive: bool,
    /// The server's machine is gone without a word.
    pub(crate) lost: bool,
    /// Something between has forgotten it, and says nothing either.
    pub(crate) mute: bool,
    /// Bytes were written since, and nobody has acknowledged them.
    pub(crate) unacknowledged: bool,
    pub(crate) up: Stream,
    pub(crate) down: Stream,
    /// What replies in `down` will tell the client, by where they end.
    pub(crate) tags: VecDeque<Tag>,
    /// Requests that the server read, and replies that the client has read.
    pub(crate) asked: u32,
    pub(crate) answered: u32,
    /// A SET that was just granted here waits for the look at the restart guard behind it.
    pub(crate) pending: Option<(u16, Says)>,
    /// So many messages of the server do not arrive.
    pub(crate) drops: u64,
    /// Nonsense was put into it, so that the client is right to hang up.
    pub(crate) poisoned: bool,
    pub(crate) random: Random,
}

/// What a reply means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) end: usize,
    pub(crate) attempt: u16,
    pub(crate) says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// An ask was granted, in full, and no key lives for longer.
    Granted { counter: u64, until: Time },
    /// The counter has reached this, and the key is the attempt's.
    Raised { counter: u64 },
    /// An extension by so many ms was done, and the key may live for so long.
    Extended { ttl: u64, until: Time },
    /// Another has the lock.
    Denied,
    /// There was nothing to extend.
    Gone { ttl: u64 },
    /// The connection is in the client's database.
    LetIn,
    /// An undo was done.
    Undone,
    /// Anything else.
    Other,
}

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
            drops: 0,
            poisoned: false,
            random: Random::new(0),
        }
    }

    /// Makes a used wire a new connection on its way.
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
        (self.pending, self.drops) = (None, 0);
        self.random = random;
    }

    /// The server's machine is back, and answers what it does not know with a reset.
    pub(crate) fn is_told_of_its_end(&self) -> bool {
        self.lost && !self.mute && self.unacknowledged && self.client_alive
    }

    /// Whether it leads from a push link.
    pub(crate) fn is_push(&self) -> bool {
        self.slot >= MAX_NODES
    }

    /// Both ends are open.
    pub(crate) fn is_open(&self) -> bool {
        self.client_alive && self.server_alive
    }
}

/// Bytes in one direction, with the moments at which they arrive. Bytes do not overtake one another.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// How many have been put on their way.
    pub(crate) sent: usize,
    /// How many have been read.
    pub(crate) read: usize,
    /// How many have arrived.
    pub(crate) arrived: usize,
    /// When what arrives, by where it ends.
    pieces: VecDeque<(Time, usize)>,
}

impl Stream {
    fn clear(&mut self) {
        self.bytes.clear();
        (self.sent, self.read, self.arrived) = (0, 0, 0);
        self.pieces.clear();
    }

    /// Loses what has not been read.
    pub(crate) fn lose(&mut self) {
        self.bytes.truncate(self.read);
        (self.sent, self.arrived) = (self.read, self.read);
        self.pieces.clear();
    }

    /// Where the last piece ends.
    pub(crate) fn last_end(&self) -> usize {
        self.pieces.back().map_or(self.arrived, |&(_, end)| end)
    }

    /// When the last byte arrives.
    pub(crate) fn last_at(&self) -> Time {
        self.pieces.back().map_or(0, |&(at, _)| at)
    }

    /// All bytes up to `end` of the stream arrive at `at`, or behind those before them. Whether that
    /// is a moment at which nothing else arrives.
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

    /// Takes note of what has arrived by `now`.
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

    /// These bytes are here at once, behind others that all have been read. A last piece without a byte may
    /// still be under way: it must not carry them, or a request that is sent meanwhile is answered by them.
    pub(crate) fn push_arrived(&mut self, bytes: &[u8]) {
        self.pieces.clear();
        self.bytes.extend_from_slice(bytes);
        (self.sent, self.arrived) = (self.bytes.len(), self.bytes.len());
    }

    /// Everything that is under way stands still for a while longer. The times at which it arrives.
    pub(crate) fn delay(&mut self, by: Time) -> impl Iterator<Item = Time> {
        for (at, _) in &mut self.pieces {
            *at += by;
        }
        self.pieces.iter().map(|&(at, _)| at)
    }

    /// Of what is under way, only the first `bytes` will arrive.
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
