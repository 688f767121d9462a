//! Behaviour against real `redis-server` processes, one file per subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod connections;
mod exclusion;
mod locks;
mod outages;
mod owed;
mod support;
mod voters;
mod wire;
