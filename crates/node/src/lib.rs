//! An embedded Redis node for tests of programs that take redbolt locks: memory only, not a
//! database.
//!
//! [`Node::set`] starts the nodes of a test. They listen on loopback, each in a separate thread,
//! and end when they are dropped. With [`Node::stop`] and [`Node::start_again`] a test does to a
//! lock what real nodes can do: a minority fails, a majority fails, a node restarts with its memory
//! or without it.
//!
//! ```
//! use redbolt::{Client, Config, LockRequest};
//! use redbolt_node::{Memory, Node};
//!
//! let mut nodes = Node::set(3)?;
//! let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
//! let client = Client::new(Config::builder().nodes(&addresses).build()?)?;
//!
//! nodes[0].stop(Memory::Lost);
//! assert!(client.acquire(LockRequest::new(b"job"))?.is_valid(), "two of three are a quorum");
//! nodes[1].stop(Memory::Lost);
//! assert!(client.acquire(LockRequest::new(b"job")).is_err(), "one of three is none");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A node has the commands and the scripts that locks use, and replies like Redis 7.0, byte for
//! byte; the repository's tests compare both with a real server. A key holds a string, or one of
//! the types that only the scripts write: a sorted set, a hash, a list. It does not support other
//! types, persistence, replication, eviction, Lua (the lock scripts are modelled in Rust), RESP3,
//! patterns of channels, inline commands, TLS, and commands that no lock needs.
//!
//! A version of this crate belongs to the same version of redbolt, whose scripts it models.

#![deny(unsafe_code)]

mod calls;
mod clock;
mod commands;
mod denial;
mod fields;
mod integer;
mod keys;
mod mutants;
mod node;
mod reply;
mod request;
mod script;
mod scripts;
mod serve;
mod session;
mod sharers;
mod store;
mod tracking;

pub use node::Node;
pub use store::Memory;

/// The commands as a state machine, for redbolt's own tests and simulators: the clock is an
/// argument, and there is no thread, socket or entropy. It is not covered by the promises of
/// semantic versioning.
#[doc(hidden)]
pub mod model {
    pub use crate::{
        clock::{Clock, ClockReading},
        denial::Denial,
        session::ConnId,
        store::{Snapshot, Store},
    };
}

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
