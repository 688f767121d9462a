//! The models against what ships: each decision that a model takes is put to a real core, bytes in and
//! events out, and each thing that a model's node does to the scripts, as the model of a server runs
//! them (which is held against real servers by a test of its own).
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
