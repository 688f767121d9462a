//! The other kinds of locks at work: many readers on one key, and the permits of a semaphore.
//!
//! Only redbolt is measured. Their pairs without competition are contenders, see `contender`.

pub mod permits;
pub mod readers;
