//! Claims: what nodes may hold for an attempt, and its undo.
//!
//! Invariant: an undo is sent to every node that may have seen the request, behind it on the same
//! connection, also if the node denied or did not answer in time. It is owed until the node
//! confirms it or the TTL has passed; an error or a lost connection confirms nothing. See
//! docs/how-it-works/protocol.md#undo.

mod claim;
mod debt;
mod set;
pub(super) mod undo;

pub(super) use self::claim::{Claim, hex};
pub(super) use self::debt::Debt;
pub(super) use self::set::Claims;
