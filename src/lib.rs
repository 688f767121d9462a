//! Distributed locks on independent Redis or Valkey nodes: [Redlock], with a RESP2 codec and an
//! event loop of its own. No driver crate, no async runtime, no thread that you did not ask for.
//!
//! An acquisition costs one round trip to the median node, allocates nothing in steady state, and
//! never reports a lock that the algorithm cannot defend.
//!
//! ```no_run
//! use std::time::Duration;
//! use redbolt::{Ask, Client, Config, Ending, Wait};
//!
//! let config = Config::builder()
//!     .node("10.0.0.1")?.node("10.0.0.2")?.node("10.0.0.3")?
//!     .build()?;
//! let client = Client::new(config)?;
//! let ask = Ask::new(b"invoices").ttl(Duration::from_secs(10)).wait(Wait::For(Duration::from_secs(5)));
//! let lock = client.acquire(ask)?;
//! // Work in steps, and look before each of them: a lease can end while you work.
//! assert!(lock.is_valid());
//! match lock.release() {
//!     Ending::Released(confirmed) => println!("released, {confirmed}"),
//!     Ending::Lost(cause) => println!("it was no longer ours: {cause}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which front
//!
//! | front | thread | for |
//! |---|---|---|
//! | [`Client`] | the caller's, blocking | the lowest latency |
//! | [`Driver`] | the host's | programs with an event loop of their own |
//!
//! # What a lease is, and what it is not
//!
//! A lock here is a *lease*: the nodes keep it for a TTL, and its holder may rely on it for the
//! *validity*, which is the TTL less the time that the acquisition took, less what is not trusted to
//! clocks. Mutual exclusion holds inside the validity, as long as clocks run at nearly the same rate,
//! nobody sets the clock of a majority of the nodes, and no node forgets a key that it has promised to
//! keep (a node without persistence forgets when it restarts).
//!
//! What no lease can promise: that its holder is running. A process can be stopped between the look
//! at [`LockGuard::is_valid`] and the step that relies on it, for longer than the lease lasts. Where
//! that would do harm, the thing that is protected has to check for itself.
//!
//! # Outcomes
//!
//! An acquisition is granted or refused, and a refusal tells *somebody holds it* from *your nodes are
//! no voters*, with every node's vote ([`RefusalReport`]). A lock that was granted ends in released or
//! lost, and never in both.
//!
//! # Layers
//!
//! [`resp`] is the codec, [`proto`] the protocol as a state machine without any input or output, [`net`]
//! the sockets and the clock; the fronts are at the root. Each is usable and testable without the ones
//! above it. ARCHITECTURE.md is the map.
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

#![deny(missing_docs, unsafe_code)]

mod front;
pub mod net;
pub mod proto;
pub mod resp;

pub use front::{
    AcquireError, Client, Config, ConfigBuilder, ConfigError, Driver, Ending, ExtendError, Held,
    Inspection, InspectionVerdict, LockGuard, NodeInspection, NodeReport, NodeStatus, NodeVote,
    RefusalReport, SetupError, init, init_change,
};
pub use proto::{
    Ask, Cause, Confirmed, Event, FencingToken, Guard, Holder, InputError, KeyState, LockId,
    LockState, LossCause, NodeGuard, NodeState, Refusal, Settings, Trust, Vote, Wait, Why,
};

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
