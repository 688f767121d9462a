//! Real `redis-server` processes, a proxy that misbehaves and peers that only pretend, for tests.
//!
//! This crate knows nothing of redbolt, and that is why it is apart: what it sees on a node is the
//! word of an independent checker, with a RESP client of its own. It is made for tests only, so
//! every failure is a panic with a sentence that says what to do. Every wait is bounded, and
//! everything that was started ends with the value that stands for it.
//!
//! ```
//! use redbolt_test_servers::{Reply, Server};
//!
//! let server = Server::start();
//! assert_eq!(server.cmd("SET key value"), Reply::Status("OK".into()));
//! assert_eq!(server.cmd("GET key"), Reply::Bulk(b"value".to_vec()));
//! ```

#![deny(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a library for tests: a panic is its way to report")]

mod acceptor;
mod client;
mod impostor;
mod program;
mod proxy;
mod server;

pub use client::{Connection, Reply};
pub use impostor::{Act, Impostor};
pub use program::program;
pub use proxy::{Mode, Proxy};
pub use server::{Server, programs, servers};
