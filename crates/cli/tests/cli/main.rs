//! The program as a user runs it, against real servers.
//!
//! One binary for all tests, so that it is linked once. `redbolt-test-servers`, which knows nothing
//! of redbolt, reads the nodes' state.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the way to report")]

mod at_least;
mod bench;
mod chaos;
mod counter;
mod doctor;
mod escapes;
mod fair_queue;
mod fencing;
mod forbidden;
mod harness;
mod held;
mod hold;
mod init;
mod input;
mod json;
mod lead;
mod list;
mod look;
mod loss;
mod manual;
mod pair;
mod permits;
mod profiles;
mod recipes;
mod restart_guard;
mod sentinels;
mod shared;
mod signals;
mod status_wait;
mod statuses;
mod terminal;
mod tls;
mod token_files;
mod unlock;
mod usage;
mod waiting;
