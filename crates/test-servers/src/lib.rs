//! Real `redis-server` processes, a faulty proxy and fake servers, for tests.
//!
//! This crate is independent of redbolt, because it checks a node's state with a separate RESP
//! client. It is for tests only, so every failure is a panic whose message names the remedy. Every
//! wait is bounded. Dropping a value ends everything that it has started.
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
mod authority;
mod client;
mod impostor;
mod program;
mod proxy;
mod sentinels;
mod server;
mod stalls;
mod wait;

pub use authority::{Authority, Identity};
pub use client::{Connection, Reply};
pub use impostor::{Act, Impostor};
pub use program::program;
pub use proxy::{Mode, Proxy};
pub use sentinels::Sentinels;
pub use server::{Server, programs, servers, servers_over_tls};
pub use stalls::on_a_real_clock;
pub use wait::until;
