//! The growth of cost with work: the work itself, at one size after another.
//!
//! Only redbolt is measured, through a driver in a host's mio loop, or through an engine if tasks
//! wait. The sizes and the figures are in `part/scale`.

pub mod at_once;
pub mod growth;
pub mod held;
pub(crate) mod host;
pub mod pairs;
pub mod waiters;
