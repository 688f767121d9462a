//! Fencing tokens: proposing a value, agreeing on one, and writing it back where nodes are behind.
//!
//! Apart from `acquiring`, whose attempt pauses here between its quorum and its grant. What counters amount to is
//! decided in `proto::fence`; here is which nodes are asked, and which are raised.

mod state;
mod write_back;

pub(super) use self::state::Fencing;
