//! The queue of events in virtual time. Events at the same instant happen in the order in which
//! they were pushed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds of true time. Every machine's clock differs from it a little.
pub(crate) type Time = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A job takes a step.
    Act(u16, Step),
    /// A member of another library takes a step.
    Member(u16, Move),
    /// A fault that was armed for a phase happens.
    Fault(u16),
    /// A fault that lasts ends.
    FaultEnds(u16),
    /// A server accepts a new connection.
    Connect(u32),
    /// Bytes reach a server.
    Up(u32),
    /// Bytes reach a client.
    Down(u32),
    /// A client's socket becomes writable again.
    Writable(u32),
    /// A client notices that a connection has ended.
    Eof(u32),
    /// A client notices that a connection was reset.
    Reset(u32),
    /// A core's timer.
    Timer(u16),
    /// All faults end, and all jobs release their locks.
    Heal,
    /// A newcomer wants the lock.
    Probe(u16),
    /// A server removes expired keys, and notifies.
    Expire(u8),
    /// A node that granted crashes, and comes back with this memory.
    Wipe(u8, u8),
    /// Saves a node's memory for a restart that brings it back.
    Snapshot(u8),
    /// Checks that no key is left.
    Leftovers,
    /// The end of the schedule.
    Final,
}

/// A job's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Requests the lock.
    Start,
    /// Checks the lease, and will write if it is valid.
    Look,
    /// Writes, without another check.
    Write,
    Extend,
    /// Takes the lock in the other mode.
    ChangeMode,
    Release,
    /// Releases, with or without the lock.
    Cancel,
    /// Releases, after the faults have ended.
    LetGo,
    /// Checks the lease just before it ends.
    Last,
    /// Detaches the lock from its client.
    Detach,
    /// Attaches it to a client.
    Attach,
}

/// A member's next step, at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Sends SETNX, and GET if there is a value.
    Ask(u8),
    /// Sends GETSET, because a second has passed.
    TakeOver(u8),
    Release,
}

/// An event with its time. The earliest entry is the greatest, because `BinaryHeap` pops the
/// greatest.
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

    /// Schedules an event. One in the past happens now.
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
