//! The common parts of all tests of a core: driving a core, bytes in flight, parsing and
//! classifying its requests, nodes that answer, and random numbers from a seed. A change of the
//! protocol edits only this crate.
//!
//! It is a user of the library, like the tests, which would drift apart with copies of it. It
//! parses requests without the library's decoder and classifies them by the protocol's words alone,
//! so that the library is not checked against itself. The states of the models and the ledger of
//! the fuzzer do not use this crate, because they prove something only if they are independent.

#![deny(unsafe_code)]

mod bench;
pub mod command;
mod flow;
mod host;
mod manual;
mod peer;
mod random;
pub mod request;
mod scripted;

pub use bench::Bench;
pub use command::{Command, GUARD, Kind, script_of_digest, script_of_text};
pub use flow::{Flow, Stream};
pub use host::{Host, command_links, fill};
pub use manual::{NATIVE, acl_rules, publish};
pub use peer::Peer;
pub use random::{Random, mix};
pub use scripted::{Handshake, Scripted, bulk};
