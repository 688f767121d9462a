//! The faults F1 to F21 as data: what happens, when, to which client or node, and for how long.
//! `swarm` draws faults at random, `guided` aims them at weak points, `errors` lists the error
//! replies; `world` applies them.

pub(crate) mod errors;
pub(crate) mod guided;
pub(crate) mod swarm;

use crate::coverage::Phase;
use crate::world::queue::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The earliest time of the fault.
    pub(crate) at: Time,
    pub(crate) when: When,
    pub(crate) what: What,
    pub(crate) client: u8,
    pub(crate) node: u8,
    /// The duration, for faults that last.
    pub(crate) span: Time,
    /// The magnitude. Its unit depends on the kind of fault.
    pub(crate) amount: u64,
}

impl Fault {
    /// Returns true if all others take their turns as without the fault: a process stops, or never
    /// reaches a node, or the clock of a node is set back.
    pub(crate) fn leaves_turns(&self) -> bool {
        let is_harmless = matches!(self.what, What::PauseClient | What::StepNode { back: true });
        is_harmless || self.never_reaches()
    }

    /// Returns true if it keeps a client from a node from the beginning.
    pub(crate) fn never_reaches(&self) -> bool {
        self.what == What::HoleUp && self.when == When::Time && self.at == 0
    }
}

/// The trigger of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Time,
    /// The given time after the client has entered this phase.
    Reached(Phase, Time),
}

/// The effect of a restart on a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Kept,
    Lost,
    /// The node comes back with the memory of an earlier moment.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// F2: traffic to and from a node stalls, as after a lost packet.
    Stall,
    /// F4: the client's end is closed; the server runs what was written, later.
    Ghost,
    /// F4: both ends are closed, with everything in flight lost.
    Reset,
    /// F4: the server closes the connection after its answers.
    Finish,
    /// F4: the connection ends within an answer.
    CutReply,
    /// F5: nothing arrives in one direction.
    HoleUp,
    HoleDown,
    /// F5: a middlebox drops its state for the connection; later writes vanish silently.
    Mute,
    /// F6: the client is cut off from a set of nodes.
    Partition,
    /// F6: a node is cut off from all clients.
    Isolate,
    /// F7.
    PauseNode,
    /// F8, F9 with `loading`. If `amount` is odd, the peer gets no FIN or RST.
    Crash {
        loss: Loss,
        loading: bool,
    },
    /// F8, guided: crashes `amount` of the nodes that granted the client's lock, one after another.
    CrashGrants {
        loss: Loss,
    },
    /// F10.
    FlushAll,
    FlushScripts,
    /// F10, guided: right behind the next SET that the node grants.
    FlushBehindSet,
    /// F11: by `amount` microseconds.
    StepNode {
        back: bool,
    },
    /// F11, guided: the clocks of a quorum that granted.
    StepGrants,
    /// F12: the process stops. This also models a suspend, because the boot clock runs on.
    PauseClient,
    /// F12: the whole machine stops, and its boot clock with it; the wall clock is corrected
    /// afterwards.
    Freeze,
    /// F12: by `amount` microseconds.
    StepWall {
        back: bool,
    },
    /// F13: the error at this index of `PREFIXES`.
    Errors(u8),
    /// F14.
    Garbage,
    /// F15: connections are refused.
    Refuse,
    /// F15: connection attempts are not answered.
    Silent,
    /// F15: no file descriptor, no buffer, or an unknown host name.
    OpenFails,
    /// F15: the socket accepts no bytes for a while.
    Choke,
    /// F15: the socket accepts a few bytes at a time.
    ShortWrites,
    /// F16.
    Cancel,
    /// F17: the clock from which fencing tokens are proposed is wrong.
    Skew {
        back: bool,
    },
    /// F18: two addresses of the client lead to one server.
    Twin,
    /// F18: the client is configured with another `max_ttl`.
    OtherLimits,
    /// F18: an operator sets that `max_ttl` on the nodes.
    Change,
    /// F19: the node's next notification is lost.
    PushLost,
    /// F19: the node has lost its tracking table and sends no notification.
    PushBroken,
    /// F19: the node forbids subscribing, or tracking if `amount` is odd.
    PushForbidden,
    /// F19: the push link ends, the command link stays.
    PushReset,
    /// F21: the node becomes a replica and is promoted again, with all its connections open. It
    /// then has the memory of another node, or an earlier memory that its former replica has kept.
    Replica {
        of_its_own: bool,
    },
    /// F20: an operator takes commands away from all users; `amount` selects which, and how.
    Denied,
}

impl What {
    /// Returns true if a node loses memory by this fault.
    pub(crate) fn loses_memory(self) -> bool {
        match self {
            Self::Crash { loss, .. } | Self::CrashGrants { loss } => loss != Loss::Kept,
            Self::FlushAll | Self::FlushBehindSet | Self::Replica { .. } => true,
            _ => false,
        }
    }

    /// Returns the number of its fault class. F1 and F3 act in the network all the time.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Stall => 2,
            Self::Ghost | Self::Reset | Self::Finish | Self::CutReply => 4,
            Self::HoleUp | Self::HoleDown | Self::Mute => 5,
            Self::Partition | Self::Isolate => 6,
            Self::PauseNode => 7,
            Self::Crash { loading: false, .. } | Self::CrashGrants { .. } => 8,
            Self::Crash { loading: true, .. } => 9,
            Self::FlushAll | Self::FlushScripts | Self::FlushBehindSet => 10,
            Self::StepNode { .. } | Self::StepGrants => 11,
            Self::PauseClient | Self::Freeze | Self::StepWall { .. } => 12,
            Self::Errors(_) => 13,
            Self::Garbage => 14,
            Self::Refuse | Self::Silent | Self::OpenFails | Self::Choke | Self::ShortWrites => 15,
            Self::Cancel => 16,
            Self::Skew { .. } => 17,
            Self::Twin | Self::OtherLimits | Self::Change => 18,
            Self::PushLost | Self::PushBroken | Self::PushForbidden | Self::PushReset => 19,
            Self::Denied => 20,
            Self::Replica { .. } => 21,
        }
    }
}
