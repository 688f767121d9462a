//! Small models of redbolt's rules, searched to the last state.
//!
//! The simulator tries long runs of the whole core at random; here each rule that keeps two holders
//! apart is put into a world so small that everything which can happen there is tried. Every model
//! also has variants that break one rule, and a test that the search finds what comes of it: a search
//! that cannot fail proves nothing. `README.md` has the bounds and the figures.
//!
//! Apart from the simulator because a model is not the shipping code. What ties the two: decisions
//! are the library's own functions where it exports them, and `tests/conformance` puts the same
//! cases to a real `redbolt::proto::Core`. The models of some lock kinds
//! (`read_write`, `fair_queue`, `turns`, `semaphore`) came first, and the core after them.

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
