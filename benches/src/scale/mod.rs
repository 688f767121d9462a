//! How cost grows with work.

pub mod held;
