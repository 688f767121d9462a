//! Behaviour against real `redis-server` processes, one file per subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acl;
mod addresses;
mod batch;
mod cancel;
mod clock;
mod connections;
mod distance;
mod driver;
mod engine;
mod exclusion;
mod exposition;
mod extension;
mod fencing;
mod fork;
mod futures;
mod guard;
mod inspection;
mod keeper;
mod leftovers;
mod lines;
mod locks;
mod log;
mod metrics;
mod muffler;
mod outages;
mod owed;
mod push;
mod record;
mod scenarios;
mod scripts;
mod support;
mod voters;
mod waiting;
mod wire;
mod with;
