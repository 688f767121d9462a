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
//! let config = Config::builder().nodes(["10.0.0.1", "10.0.0.2", "10.0.0.3"])?.build()?;
//! let client = Client::new(config)?;
//! let ask = Ask::new(b"invoices").ttl(Duration::from_secs(10)).wait(Wait::For(Duration::from_secs(5)));
//! let lock = client.acquire(ask)?;
//! // Work in steps, and check the lock before each of them: a lease can end while you work.
//! assert!(lock.is_valid());
//! match lock.release() {
//!     Ending::Released(confirmed) => println!("released, {confirmed}"),
//!     Ending::Lost(cause) => println!("it was no longer ours: {cause}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! New nodes do not vote for their first 30 s unless [`init`] or `redbolt init` says once that they are new: see
//! [getting started](manual::getting_started).
//!
//! | API | thread | for |
//! |---|---|---|
//! | [`Client`] | the caller's, blocking | the lowest latency |
//! | [`Driver`] | the host's | programs with an event loop of their own |
//! | [`Engine`] | one of its own | many threads, and futures on any executor |
//!
//! The [manual] explains each concept once:
//!
//! | to | begin with | read |
//! |---|---|---|
//! | choose between the three, fork, end, detach a lock | [`Client`], [`Engine`] | [choosing an API](manual::choosing_an_api) |
//! | wait for a lock | [`Ask::wait`], [`Wait`], [`Wake`] | [waiting](manual::waiting) |
//! | keep a lock until the work is done | [`Ask::keep_alive`], [`Engine::with`] | [auto-extension](manual::auto_extension) |
//! | lock several keys, or take many locks | [`Ask::and`], [`Client::acquire_all`] | [many keys](manual::many_keys) |
//! | refuse a holder whose time is over | [`Ask::fenced`], [`FencingToken`] | [fencing](manual::fencing) |
//! | bear nodes that lose their memory | [`init`], [`Guard`], [`Trust`] | [the restart guard](manual::restart_guard) |
//! | run it | [`Log`], [`MetricsReport`], [`NodeReport`] | [operations](manual::operations) |
//! | live in a loop of yours | [`Driver`] | [embedding](manual::embedding) |
//! | know what to rely on | [`LockGuard::is_valid`], [`RefusalReport`] | [guarantees](manual::guarantees) |
//!
//! [`resp`] is the codec, [`proto`] the protocol as a state machine without any input or output, [`net`]
//! the sockets and the clock; the APIs are at the root. Each is usable and testable without the ones above it.
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

#![deny(missing_docs, unsafe_code)]

mod front;
pub mod net;
pub mod proto;
pub mod resp;

pub use front::{
    Acquire, AcquireError, Answer, BreakReport, Client, Config, ConfigBuilder, ConfigError, Driver,
    Ending, Engine, EngineError, EngineLimits, Extend, ExtendError, Held, HeldLock, Inspection,
    InspectionVerdict, Level, LockGuard, Log, Lost, MetricsReport, NodeInspection, NodeReport,
    NodeStatus, NodeVote, Note, OwnedGuard, Owner, RefusalReport, Release, SetupError,
    ShutdownReport, Unreleased, WithError, init, init_change,
};
pub use proto::{
    Ask, Cause, Confirmed, DataKind, Event, Fate, FencingToken, Foreign, Guard, Histogram, Holder,
    InputError, Keep, KeyState, LockId, LockRecord, LockState, LossCause, Metrics, NodeGuard,
    NodeMetrics, NodeState, PushState, RecordError, Refusal, Settings, Trust, Vote, Wait, Wake,
    Why,
};

/// The manual: each concept is explained on one of these pages, and linked to from everywhere else. Begin with
/// [`getting_started`](manual::getting_started). The same pages are in the folder `docs` of the repository.
#[cfg(any(doc, doctest))]
pub mod manual {
    /// Links between pages are those of files. Here the definitions in front come first, so they count.
    macro_rules! pages {
        ($($page:ident: $file:literal,)*) => {$(
            #[doc = include_str!("../docs/rustdoc-links.md")]
            #[doc = include_str!(concat!("../docs/", $file))]
            pub mod $page {}
        )*};
    }

    pages! {
        getting_started: "getting-started.md",
        choosing_an_api: "choosing-an-api.md",
        waiting: "waiting.md",
        auto_extension: "auto-extension.md",
        many_keys: "many-keys.md",
        fencing: "fencing.md",
        restart_guard: "restart-guard.md",
        operations: "operations.md",
        command_line: "command-line.md",
        embedding: "embedding.md",
        guarantees: "guarantees.md",
        comparison: "comparison.md",
        protocol: "protocol.md",
        performance: "performance.md",
        promises: "PROMISES.md",
    }
}

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
