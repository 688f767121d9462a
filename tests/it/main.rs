//! Behaviour on real `redis-server` processes, one file per subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acl;
mod addresses;
mod auto_extend;
mod batch;
mod cancel;
mod clock;
mod connections;
mod detach;
mod distance;
mod driver;
mod engine;
mod errors;
mod exclusion;
mod exposition;
mod extension;
mod fencing;
mod fork;
mod futures;
mod inspection;
mod leader;
mod leftovers;
mod line;
mod locks;
mod log;
mod metrics;
mod mode_change;
mod muffler;
mod outages;
mod owed;
mod permits;
mod profiles;
mod push;
mod reentrant;
mod restart_guard;
mod scenarios;
mod scripts;
mod shared;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod voters;
mod wait_queue;
mod waiting;
mod wire;
mod with;
