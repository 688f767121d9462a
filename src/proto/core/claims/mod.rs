//! What nodes may hold for our attempts, and its undo, owed until confirmed.
//!
//! Undo goes to every node that may have seen the ask, behind it on the same connection, also where the node denied or
//! did not answer in time. It is owed until the node has confirmed it: error answers and lost connections do not count,
//! and only the end of the TTL makes it pointless.
//!
//! Apart from `acquiring` and `holding`, because a claim outlives the lock that it was made for. What one claim knows is
//! in `claim`, what one node owes in `debt`, and the transitions of both in `undo`.

mod claim;
mod debt;
mod set;
pub(super) mod undo;

pub(super) use self::claim::{Claim, hex};
pub(super) use self::debt::Debt;
pub(super) use self::set::Claims;
