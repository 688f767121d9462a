//! The protocol core against model nodes in virtual time, through its public interface only. There
//! is no socket, no thread and no clock, so a failure is the same on every machine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asks;
mod auto_extend;
mod backing;
mod capabilities;
mod channels;
mod clock;
mod detach;
mod fair_queue;
mod fence;
mod force_unlock;
mod ghosts;
mod handshake;
mod hang;
mod history;
mod holding;
mod links;
mod metrics;
mod mode_change;
mod native;
mod observing;
mod owed;
mod permits;
mod push;
mod random;
mod restart_guard;
mod scripts;
mod sentinels;
mod validation;
mod wait_queue;
mod waiting;
mod world;
