//! The records of jobs, resources, tickets and members while a schedule runs.

use redbolt::proto::{ClockReading, DetachedLock, Lease, LockId};

use crate::plan::MAX_NODES;
use crate::world::queue::Time;

/// The state of a job.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) id: Option<LockId>,
    /// The lock while it is detached.
    pub(crate) detached: Option<DetachedLock>,
    /// It has been detached from the client that requested it.
    pub(crate) was_detached: bool,
    /// The number of final outcomes that it got.
    pub(crate) ends: u8,
    pub(crate) acquire: Option<Call>,
    pub(crate) release: Option<Call>,
    pub(crate) extend: Option<Call>,
    /// A change of its mode.
    pub(crate) change: Option<Call>,
    pub(crate) extensions: u64,
    pub(crate) extend_ttl: u64,
    pub(crate) granted: Option<Time>,
    /// The index of its attempt that was granted.
    pub(crate) attempt: usize,
    /// The time of its grant, on its client's clocks.
    pub(crate) held_since: ClockReading,
    /// Its lease, as last reported.
    pub(crate) lease: Option<Lease>,
    /// A check just before the end of the lease is scheduled.
    pub(crate) looks: bool,
    pub(crate) token: Option<u64>,
    /// The time at which it became a writer, if it was a reader first.
    pub(crate) wrote_since: Option<Time>,
    /// The number of its permit.
    pub(crate) slot: Option<u16>,
    /// The latest end of its validity, in true time, as far as is known.
    pub(crate) valid_until: Time,
    /// True while the client considers it held.
    pub(crate) is_held: bool,
    /// The last observed state of the acquisition.
    pub(crate) seen: Seen,
    pub(crate) paused_at: Time,
    /// The number of pauses in a row that were next to none.
    pub(crate) hasty: u32,
    pub(crate) released: Option<Marks>,
    /// The time since which it is first in its client's wait queue.
    pub(crate) turn_at: Time,
    /// The time at which a quorum knew its place in the queue, if one does.
    pub(crate) place_at: Option<Time>,
    /// The waiters to which it leaves a free resource.
    pub(crate) left: Left,
    /// The requests, by node.
    pub(crate) asked: [Asked; MAX_NODES],
    /// The client that acquires this job's resource again and again, and since when.
    pub(crate) passed_by: Option<(u8, Time)>,
}

/// The state of an acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    #[default]
    Asking,
    Fencing,
    Pausing,
    Queued,
}

/// A call that has not returned.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) at: Time,
    /// The time for which the client had been stopped before the call.
    pub(crate) stalled: Time,
    pub(crate) bound: Time,
}

/// The client's write positions when it called release.
pub(crate) struct Marks {
    /// The first number of wires that are opened later.
    pub(crate) wires: usize,
    /// The wire of each link, and the offset at which the release begins.
    pub(crate) offsets: [Option<(usize, usize)>; MAX_NODES],
}

impl Running {
    /// Returns true if it got its final outcome.
    pub(crate) fn is_over(&self) -> bool {
        self.ends > 0
    }

    /// Returns true if nothing is left to release.
    pub(crate) fn is_let_go(&self) -> bool {
        self.id.is_none() || self.released.is_some()
    }

    pub(crate) fn was_granted(&self) -> bool {
        self.granted.is_some()
    }

    pub(crate) fn is_acquiring(&self) -> bool {
        self.acquire.is_some() && self.released.is_none()
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.is_held
    }

    /// Returns the time of its request, if that call has not returned.
    pub(crate) fn called_at(&self) -> Option<Time> {
        self.acquire.map(|call| call.at)
    }

    /// Returns a call that should have returned by now.
    pub(crate) fn open_call(&self) -> Option<&'static str> {
        let name = |call: Option<Call>, name| call.map(|_| name);
        name(self.acquire, "acquire")
            .or_else(|| name(self.release, "release"))
            .or_else(|| name(self.extend, "extend"))
            .or_else(|| name(self.change, "a change of mode"))
    }
}

/// The observed state of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// The time since which no node has its key.
    pub(crate) free_since: Option<Time>,
    /// The time since which only readers have it, and no writer wants it.
    pub(crate) shared_since: Option<Time>,
    /// The time at which a job last began or ceased to hold it.
    pub(crate) changed_at: Time,
    /// The first waiter for a permit, and the time since which there has been a slot for each job
    /// that wants one.
    pub(crate) slot_free_since: Option<(usize, Time)>,
}

/// The waiters to which a sleeping job leaves a free resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// The time since which it has slept.
    pub(crate) since: Time,
    /// A hash of the first ticket on each node.
    pub(crate) first: u64,
    /// The time since which these tickets are the first.
    pub(crate) from: Time,
}

/// The number of lock requests of a job to a node while another job held the lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) since: Time,
    pub(crate) times: u64,
}

/// The stamps that a waiter has sent, and the nodes that have reported one to it.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(crate) job: usize,
    pub(crate) name: Vec<u8>,
    /// A bit for each node, by the client's number.
    pub(crate) reported: u8,
    /// The last stamp on each connection, by wire.
    pub(crate) sent: Vec<(usize, u64)>,
    /// The number of its requests without a stamp.
    pub(crate) silent: usize,
}

/// The nodes that a member has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holdings {
    /// The end of its time on each node, by its clock.
    pub(crate) ends: [Option<u64>; MAX_NODES],
    /// The earliest end that another member has written over this member's value without getting
    /// the node.
    pub(crate) overwritten: Option<u64>,
    /// The time until which it holds the lock, in true time.
    pub(crate) until: Time,
}
