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
//! // Work in steps, and look before each of them: a lease can end while you work.
//! assert!(lock.is_valid());
//! match lock.release() {
//!     Ending::Released(confirmed) => println!("released, {confirmed}"),
//!     Ending::Lost(cause) => println!("it was no longer ours: {cause}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nodes that nobody has used do not vote for their first 30 s unless somebody says that they are new: call
//! [`init`] once in their life, or run `redbolt init`; in tests [`ConfigBuilder::new_nodes`] does it.
//!
//! # Which front
//!
//! | front | thread | for |
//! |---|---|---|
//! | [`Client`] | the caller's, blocking | the lowest latency |
//! | [`Driver`] | the host's | programs with an event loop of their own |
//! | [`Engine`] | one of its own | many threads, and futures on any executor |
//!
//! All of them take the same [`Ask`]: [what to lock](Ask::and), [how long to wait](Ask::wait), [how long to
//! have it](Ask::ttl), and whether it is [kept alive](Ask::keep_alive) until it is released. Many locks that
//! have nothing to do with each other go out with one write to each node: [`Client::acquire_all`],
//! [`Driver::together`], and whatever an engine is asked in one turn.
//!
//! After a `fork` all of it belongs to the parent: in the child guards hold nothing, calls are refused
//! ([`InputError::Forked`], [`EngineError::Forked`]), and nothing that is left of it there reaches the nodes.
//! Dropping a client or the last handle of an engine lets go of what it holds, and gives the nodes
//! 50 ms to confirm it; [`Engine::shutdown`] takes the time that you give it, and reports.
//!
//! # Waiting
//!
//! Who waits is told by a node when the key has changed, over a second connection which is opened for that
//! and closed 5 s after the last wait; the end of a TTL is met by a timer. It takes Redis 6, and of an ACL
//! `+subscribe &__redis__:invalidate +client|tracking +client|id`. Where a node cannot tell, pauses of 5 to
//! 200 ms take its place, and [`NodeStatus::push`] and the [`Log`] say why. [`Wake::Timer`] does without.
//!
//! Those who wait for the same resource in one process get it in the order in which they came. Between
//! processes there is no order.
//!
//! # Kept alive, or for a lease
//!
//! A lock is a lease of fixed length unless somebody extends it. One that was asked for with
//! [`Ask::keep_alive`] is extended each third of its TTL until it is released, by a driver's turns or by an
//! engine's thread; a client has nobody between two calls, and refuses. [`Keep::max_hold`] limits it. Its
//! loss is told once, a moment before the validity is over: as [`Event::Lost`], to
//! [`OwnedGuard::on_loss`], and to whoever awaits [`OwnedGuard::lost`]. It cancels nothing by itself, but for
//! work that is run by [`Engine::with`].
//!
//! # What a lease is, and what it is not
//!
//! A lock here is a *lease*: the nodes keep it for a TTL, and its holder may rely on it for the
//! *validity*, which is the TTL less the time that the acquisition took, less what is not trusted to
//! clocks. Mutual exclusion holds inside the validity, as long as clocks run at nearly the same rate,
//! no node's clock is set forward while a lock that it granted lives, and no node forgets a key that it
//! has promised to keep without being noticed, which is what the guard below is for.
//!
//! What no lease can promise: that its holder is running. A process can be stopped between the look
//! at [`LockGuard::is_valid`] and the step that relies on it, for longer than the lease lasts. Where
//! that would do harm, the thing that is protected has to check for itself, by a fencing token.
//!
//! # Nodes that forget: the guard
//!
//! A node that is restarted without its data, or flushed, would grant a second time what it has granted
//! already. So each node has a *guard*: one key, `redbolt:guard`, that goes when the memory goes. A
//! client believes no grant of a node unless the guard is there and of the server's present run. A node
//! without it is enrolled by whoever comes first, and *quarantined*: it does not vote until every lock
//! that it may have forgotten is over, which takes [`max_ttl`](ConfigBuilder::max_ttl). A refusal says
//! so: `node 2 10.0.0.2:6379: quarantined 24 s, restarted: its run id changed`.
//!
//! * **It costs** one `PTTL` behind each ask, in the same write, and no round trip, at the first contact
//!   neither. A restart costs that node's vote for `max_ttl`, which is also the longest TTL: choose it no
//!   longer than the locks need. In a rolling restart wait out one quarantine before the next node. With
//!   one node there is no lock meanwhile.
//! * **New nodes** are as suspect as restarted ones. Whoever knows that they are new says so, once:
//!   [`init`], or `redbolt init` on the command line; in tests [`ConfigBuilder::new_nodes`].
//! * **All clients agree**, because the guard says for which `max_ttl` and how many nodes it was set up;
//!   a client with other values is refused, and told which they are. [`init_change`] changes them.
//! * **Options**, each with a loss: [`Trust::Durable`] for a node that syncs every write to its disk,
//!   [`Trust::MarkerOnly`] where `INFO` is forbidden, [`Guard::Off`] where a lock only saves work.
//! * **A user** with an ACL needs the key as well, `~redbolt:guard`; for tokens also `~redbolt:fence:*` and
//!   `+time`.
//!
//! What it does not see, and nothing in redbolt can:
//!
//! * a node's clock that is set forward: locks and quarantines end early;
//! * a single lock's key that is deleted or evicted, a server that reloads other data in the same run
//!   (`DEBUG RELOAD NOSAVE`), a virtual machine that is set back to a snapshot;
//! * an old master that is alive beside the new one: nodes must have no replicas that are promoted;
//! * `SWAPDB` of two databases that are both guarded, on connections that were open before;
//! * a node that takes the place of another: the guard knows how many nodes there are, not which;
//! * the memory of a node lost in the quarantine of a change to a smaller `max_ttl`;
//! * a wrong word of an operator: [`init`] on nodes that held locks or are flushed while it runs, or
//!   [`Trust::Durable`] on one that does not sync every write;
//! * other programs that lock the same keys without the guard.
//!
//! # Late holders: fencing tokens
//!
//! Ask for a [`FencingToken`] with [`Ask::fenced`]. It is a number that is larger for each later holder
//! of the resource; whatever the lock protects remembers the largest that it has seen, and refuses a
//! smaller one. That comparison is what protects, not the lock: `examples/fenced_write.rs` shows both
//! endings.
//!
//! ```
//! use redbolt::{Ask, Client, Config};
//!
//! # use redbolt_node::Node;
//! # let nodes = (0..3).map(|_| Node::start()).collect::<Result<Vec<_>, _>>()?;
//! # let (a, b, c) = (nodes[0].address(), nodes[1].address(), nodes[2].address());
//! # let builder = Config::builder().answer_within(std::time::Duration::from_secs(5));
//! # let builder = builder.node(&a.to_string())?.node(&b.to_string())?.node(&c.to_string())?;
//! # let config = builder.new_nodes().build()?;
//! let client = Client::new(config)?;
//! let mut largest_seen = 0;
//! for _ in 0..3 {
//!     let lock = client.acquire(Ask::new(b"invoices").fenced())?;
//!     let token = lock.fencing_token().expect("it was asked for");
//!     // Where the write is made, in one step with it:
//!     assert!(token.get() > largest_seen, "refuse the write");
//!     largest_seen = token.get();
//!     let _ = lock.release();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each node counts on its own, from the wall clock in µs, so that counters which diverged or were lost
//! come together again. Where a quorum of the grants is equal, which is the rule, a token costs no
//! second round trip; otherwise one. It costs each node a script in place of a `SET`, and a key for each
//! resource that lives for [`counter_life`](ConfigBuilder::counter_life).
//!
//! Tokens grow as long as no counter of a node that votes goes backwards. Where a node has lost its
//! counters, they grow if the servers' clocks agree within `max_ttl` less 10 s: so `max_ttl` must be at
//! least 11 s, and the guard on. Tokens are not consecutive, and those of two resources do not compare.
//!
//! # Locks that outlive a process
//!
//! [`LockGuard::hand_out`] turns a lock into a [`LockRecord`], and [`Client::take_in`] turns that into a
//! lock again, in another process of the same machine, with the same lease. Nobody keeps it alive in
//! between. Its text is the lock: keep it where nobody else can read it.
//!
//! ```no_run
//! use redbolt::{Ask, Client, Config, LockRecord};
//!
//! # fn save(text: &str) {}
//! # fn load() -> String { String::new() }
//! # let config = Config::builder().node("10.0.0.1")?.build()?;
//! let client = Client::new(config)?;
//! let lock = client.acquire(Ask::new(b"invoices"))?;
//! let record = lock.hand_out().ok_or("it is lost")?;
//! save(&record.to_text());
//! // In another process:
//! let lock = client.take_in(&LockRecord::from_text(&load())?)?;
//! println!("{}", lock.release());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
