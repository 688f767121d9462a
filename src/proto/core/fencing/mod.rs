//! Fencing tokens: a proposal, an agreement on one token, and its write-back.
//!
//! Invariant: a token is reported only when a quorum has it, and written back only to nodes that
//! still keep the lock for this holder. The rules for counters are in `proto::fence`.

mod state;
mod write_back;

pub(super) use self::state::Fencing;
