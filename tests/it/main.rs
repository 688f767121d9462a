//! Behaviour against real `redis-server` processes, one file per subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod addresses;
mod cancel;
mod connections;
mod driver;
mod exclusion;
mod extension;
mod fencing;
mod guard;
mod inspection;
mod locks;
mod outages;
mod owed;
mod record;
mod support;
mod voters;
mod waiting;
mod wire;
