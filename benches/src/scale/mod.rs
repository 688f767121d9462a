//! How cost grows with work: the work itself, at one size after another.
//!
//! redbolt alone does all of it, through a driver in a host's mio loop, or through an engine where
//! tasks wait. Not here: the sizes and the use of the figures, see `part/scale.rs`.

pub mod at_once;
pub mod growth;
pub mod held;
pub(crate) mod host;
pub mod pairs;
pub mod waiters;
