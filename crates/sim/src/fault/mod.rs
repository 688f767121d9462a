//! What can go wrong, as data: F1 to F20, when, to whom, and for how long.
//!
//! `swarm` draws faults anywhere; `guided` aims them where they hurt; `errors` are the error replies.
//! Not here: what a fault does to the world, which is in `world`.

pub(crate) mod errors;
pub(crate) mod guided;
pub(crate) mod swarm;

use crate::coverage::Phase;
use crate::world::queue::Time;

/// One fault of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Not before this.
    pub(crate) at: Time,
    pub(crate) when: When,
    pub(crate) what: What,
    pub(crate) client: u8,
    pub(crate) node: u8,
    /// For how long, where it lasts.
    pub(crate) span: Time,
    /// How much, whatever that is.
    pub(crate) amount: u64,
}

/// What sets a fault off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Time,
    /// The client has just come into this phase; so much later.
    Reached(Phase, Time),
}

/// What a restart does to a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Kept,
    Lost,
    /// It comes back as it was some time ago.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// F2: what is under way to and from a node stands still, as for a lost packet.
    Stall,
    /// F4: the client's end is gone; what was written runs later.
    Ghost,
    /// F4: both ends are gone, and what was under way.
    Reset,
    /// F4: the server ends the connection behind what it has answered.
    Finish,
    /// F4: the connection ends at some byte of an answer.
    CutReply,
    /// F5: nothing arrives in one direction.
    HoleUp,
    HoleDown,
    /// F5: something between forgets the connection; what is written to it is lost without a word.
    Mute,
    /// F6: the client is cut off from a set of nodes.
    Partition,
    /// F6: a node is cut off from everybody.
    Isolate,
    /// F7.
    PauseNode,
    /// F8, F9 with `loading`. Without a word, if `amount` is odd.
    Crash {
        loss: Loss,
        loading: bool,
    },
    /// F8 aimed: nodes of the grant set of the client, in turn, as many as `amount` says.
    CrashGrants {
        loss: Loss,
    },
    /// F10.
    FlushAll,
    FlushScripts,
    /// F10 aimed: right behind the next SET that the node grants.
    FlushBehindSet,
    /// F11: by `amount` microseconds.
    StepNode {
        back: bool,
    },
    /// F11 aimed: the clocks of a quorum that granted.
    StepGrants,
    /// F12: the process stands still. A suspend is the same: the boot clock runs on.
    PauseClient,
    /// F12: the whole machine stands still, and its boot clock with it; the wall clock is put right.
    Freeze,
    /// F12: by `amount` microseconds.
    StepWall {
        back: bool,
    },
    /// F13: by its place among the prefixes.
    Errors(u8),
    /// F14.
    Garbage,
    /// F15: nobody listens.
    Refuse,
    /// F15: connections are not answered.
    Silent,
    /// F15: no file descriptor, no buffer, or no such name.
    OpenFails,
    /// F15: the socket takes nothing for a while.
    Choke,
    /// F15: the socket takes a few bytes at a time.
    ShortWrites,
    /// F16.
    Cancel,
    /// F17: the clock that fencing tokens are proposed from.
    Skew {
        back: bool,
    },
    /// F18: two addresses of the client lead to one server.
    Twin,
    /// F18: the client was told another `max_ttl`.
    OtherLimits,
    /// F18: an operator tells the nodes the same.
    Change,
    /// F19: what the node tells next does not arrive.
    PushLost,
    /// F19: the node has forgotten whom to tell, and says nothing.
    PushBroken,
    /// F19: the node does not let clients subscribe, or track if `amount` is odd.
    PushForbidden,
    /// F19: the push link ends, and the command link does not.
    PushReset,
    /// F20: an operator takes commands away from everybody; which and how, `amount` says.
    Denied,
}

impl What {
    /// Whether a node forgets something by it.
    pub(crate) fn loses_memory(self) -> bool {
        match self {
            Self::Crash { loss, .. } | Self::CrashGrants { loss } => loss != Loss::Kept,
            Self::FlushAll | Self::FlushBehindSet => true,
            _ => false,
        }
    }

    /// The number of the fault it is a kind of. F1 and F3 are in the network all the time.
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
        }
    }
}
