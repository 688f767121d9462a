//! Behaviour against real `redis-server` processes, one file per subject.
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
mod exclusion;
mod exposition;
mod extension;
mod fencing;
mod fork;
mod futures;
mod inspection;
mod leftovers;
mod locks;
mod log;
mod metrics;
mod muffler;
mod outages;
mod owed;
mod push;
mod restart_guard;
mod scenarios;
mod scripts;
mod support;
mod voters;
mod wait_queue;
mod waiting;
mod wire;
mod with;
