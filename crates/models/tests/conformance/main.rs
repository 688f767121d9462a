//! Conformance of the models with the shipping code. Each decision that a model's client takes is
//! given to a real core, as bytes in and events out; each action of a model's node is given to the
//! library's scripts, run by the embedded node, which another test compares with real servers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod extend;
mod fair_queue;
mod fencing;
mod ghosts;
mod permit_queue;
mod read_write;
mod restart_guard;
mod semaphore;
mod turns;
