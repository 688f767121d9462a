//! What happens when, in virtual time. Events at the same instant happen in the order in which they
//! were put in.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds of true time, which no machine's clock shows exactly.
pub(crate) type Time = u64;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A job takes a step.
    Act(u16, crate::actor::Step),
    /// The next thing that a reached phase has set off.
    Fault(u16),
    /// A fault that lasts is over.
    FaultEnds(u16),
    /// A server sees a connection.
    Connect(u32),
    /// Bytes reach a server.
    Up(u32),
    /// Bytes reach a client.
    Down(u32),
    /// A client's socket takes bytes again.
    Writable(u32),
    /// A client learns that a connection has ended.
    Eof(u32),
    /// A client learns that a connection was reset.
    Reset(u32),
    /// A core's timer.
    Timer(u16),
    /// All faults are over, and everybody lets go.
    Heal,
    /// Somebody who comes afterwards wants the lock.
    Probe(u16),
    /// A server removes the keys that are over, and tells of it.
    Expire(u8),
    /// A node that granted crashes, and comes back with such a memory.
    Wipe(u8, u8),
    /// A node's memory is kept for a restart that brings it back.
    Snapshot(u8),
    /// Nobody's key may be left.
    Leftovers,
    /// Everything is over.
    Final,
}

/// The earliest is the greatest, for the heap gives that first.
#[derive(PartialEq, Eq)]
struct Entry {
    at: Time,
    seq: u32,
    event: Event,
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    seq: u32,
    now: Time,
}

impl Queue {
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        (self.seq, self.now) = (0, 0);
    }

    /// What would be in the past happens now.
    #[inline]
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.seq += 1;
        self.heap.push(Entry { at: at.max(self.now), seq: self.seq, event });
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        let Entry { at, event, .. } = self.heap.pop()?;
        self.now = at;
        Some((at, event))
    }
}
