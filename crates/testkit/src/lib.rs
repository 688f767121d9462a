//! What the tests of a core have in common: how a core is driven, how its requests are read, which request is
//! which, nodes that answer, and random numbers from a seed. A change of the protocol is told to all of them
//! here, and nowhere else.
//!
//! Apart from the library because it is a user of it, and apart from each user because they would drift. It reads
//! requests without the library's decoder and knows commands by the words of the protocol alone, so that the
//! library is not checked with itself.
//!
//! Not here: what must hold (that is each test's own), worlds with wires and faults (`tests/core/world`,
//! `crates/sim`), the states of the models and the ledger of the fuzzer, which have to be independent of all this
//! to be worth anything.

#![deny(unsafe_code)]

mod bench;
pub mod command;
mod host;
mod peer;
mod random;
pub mod request;
mod scripted;

pub use bench::Bench;
pub use command::{Command, Kind, Script};
pub use host::{Host, command_links, fill};
pub use peer::Peer;
pub use random::{Random, mix};
pub use scripted::{Handshake, Scripted, bulk};

/// The key of the restart guard, unless a configuration names another.
pub const GUARD: &[u8] = b"redbolt:guard";
