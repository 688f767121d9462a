//! Distributed locks on independent Redis or Valkey nodes.

#![deny(missing_docs, unsafe_code)]

pub mod proto;
pub mod resp;

pub use proto::{Ask, Wait};
