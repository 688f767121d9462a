//! The other kinds of locks at work: many readers on one key, and the permits of a semaphore.
//!
//! redbolt alone does all of it. Their pairs without competition are contenders, see `contender`.
//! Not here: the sizes and the use of the figures, see `part/kinds`.

pub mod permits;
pub mod readers;
