//! How cost grows with work: the work itself, at one size after the other.
//!
//! All of it is done by redbolt alone, through a driver in a host's mio loop, or through an engine where tasks wait.
//! Not here: which sizes there are, and what becomes of the figures, see `part/scale.rs`.

pub mod at_once;
pub mod growth;
pub mod held;
mod host;
pub mod pairs;
pub mod waiters;
