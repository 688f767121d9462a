//! Small models of the safety rules, searched exhaustively.
//!
//! Each model puts one rule that keeps two holders apart into a world small enough to visit every
//! reachable state. Variants of the model break one rule each, and a test checks that the search
//! finds the harm, because a search that cannot fail proves nothing.
//!
//! The simulator runs the shipping core at random; a model is exhaustive but is not the shipping
//! code. Two things tie them: models decide with the library's own functions where it exports them,
//! and `tests/conformance` gives the same cases to a real `redbolt::proto::Core`. `README.md` has
//! the bounds and the state counts.

pub mod extend;
pub mod fair_queue;
pub mod fencing;
pub mod ghosts;
pub mod permit_queue;
pub mod promotion;
pub mod read_write;
pub mod restart_guard;
pub mod search;
pub mod semaphore;
pub mod sentinel_answer;
pub mod turns;
