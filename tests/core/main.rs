//! The protocol core against model nodes in virtual time, through its public face only. No socket,
//! no thread and no clock: a failure is the same on every machine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asks;
mod backing;
mod capabilities;
mod clock;
mod door;
mod fence;
mod forced;
mod ghosts;
mod greeting;
mod guard;
mod hang;
mod holding;
mod keeper;
mod lines;
mod links;
mod metrics;
mod owed;
mod push;
mod random;
mod record;
mod scripts;
mod waiting;
mod world;
