//! The parts that all tests of a core share: driving a core, bytes in flight, reading and classifying its requests,
//! nodes that answer, and random numbers from a seed. A change of the protocol edits this crate
//! only.
//!
//! Apart from the library because it is a user of it, and apart from the tests because copies would
//! drift. It parses requests without the library's decoder and classifies them by the protocol's
//! words alone, so that the library is not checked against itself.
//!
//! Not here: what must hold, which is each test's own; worlds with connections and faults
//! (`tests/core/world`, `crates/sim`); the states of the models and the ledger of the fuzzer, which
//! prove something only if they are independent of this crate.

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
