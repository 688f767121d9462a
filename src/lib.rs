//! Distributed locks on independent Redis or Valkey nodes: [Redlock], with a RESP2 codec and an
//! event loop. It needs no driver crate and no async runtime, and starts no thread that you did not
//! request.
//!
//! An acquisition costs one round trip to the median node, allocates nothing in steady state, and
//! never reports a lock that the algorithm cannot defend.
//!
//! ```no_run
//! use std::time::Duration;
//! use redbolt::Client;
//!
//! let client = Client::connect(["10.0.0.1", "10.0.0.2", "10.0.0.3"])?;
//! let lease = client.lease("invoices", Duration::from_secs(10)).acquire()?; // waits for the holder
//! // Work in steps, and check the lock before each of them: a lease can end while you work.
//! assert!(lease.is_valid());
//! lease.release()?; // an error if the lock was lost: the work was not covered
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An engine extends its locks until they are released, for tasks of any executor and for threads:
//!
//! ```no_run
//! use std::time::Duration;
//! use redbolt::{Client, Engine};
//!
//! # async fn make_report(_: redbolt::engine::HeldLock) -> String { String::new() }
//! # fn write(_: Option<redbolt::FencingToken>) {}
//! # async fn f(done: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
//! // Blocking, on the calling thread
//! let (client, ttl) = (Client::connect(["10.0.0.1", "10.0.0.2", "10.0.0.3"])?, Duration::from_secs(10));
//! let invoices = client.lease("invoices", ttl).acquire()?; // waits for the holder
//! let orders = client.lease("orders", ttl).wait(Duration::from_secs(2)).fenced().acquire()?;
//! if let Some(lease) = client.lease("tidy-up", ttl).try_acquire()? { // None: another client holds it
//!     lease.release()?;
//! }
//! write(orders.fencing_token());
//! invoices.release()?; // Err(LockLost): the work was not covered
//!
//! // Async, on tokio or any executor
//! let engine = Engine::connect(["10.0.0.1", "10.0.0.2", "10.0.0.3"])?;
//! let invoices = engine.lock("invoices").await?; // extended until it is released
//! let prices = engine.lock("prices").wait(Duration::from_secs(2)).shared().await?;
//! if let Some(lock) = engine.lock("tidy-up").try_acquire().await? {
//!     lock.release().await?;
//! }
//! let report = engine.lock("nightly").run(|lock| async move { make_report(lock).await }).await?;
//! tokio::select! {
//!     cause = invoices.lost() => println!("stop: {cause:?}"),
//!     () = done => println!("done: {report}"),
//! }
//! invoices.release().await?;
//! prices.release().await?;
//! let from_a_thread = engine.lock("invoices").acquire_blocking()?;
//! # drop(from_a_thread);
//! engine.shutdown(Duration::from_secs(1));
//! # Ok(()) }
//! ```
//!
//! The outcome of a release cannot be ignored by accident. This compiles:
//!
//! ```no_run
//! #![deny(unused_must_use)]
//! # async fn f(lease: redbolt::LockGuard<'_>, lock: redbolt::OwnedGuard) {
//! let _ = lease.release();
//! let _ = lock.release().await;
//! # }
//! ```
//!
//! And this does not:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # fn f(lease: redbolt::LockGuard<'_>) {
//! lease.release();
//! # }
//! ```
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # async fn f(lock: redbolt::OwnedGuard) {
//! lock.release().await;
//! # }
//! ```
//!
//! New nodes do not vote for their first 30 s unless [`init`] or `redbolt init` declares once that
//! they are new: see [getting started](manual::getting_started).
//!
//! | API | thread | for |
//! |---|---|---|
//! | [`Client`] | the caller's, blocking | the lowest latency |
//! | [`Driver`] | the host's | programs with an event loop of their own |
//! | [`Engine`] | one of its own, or [the executor's](Engine::unthreaded) | many threads, and futures on any executor |
//!
//! The [manual] explains each concept once:
//!
//! | to | begin with | read |
//! |---|---|---|
//! | choose between the three, fork, end, detach a lock | [`Client`], [`Engine`] | [choosing an API](manual::choosing_an_api) |
//! | wait for a lock | [`LockRequest::wait`], [`Wait`], [`WakeStrategy`](config::WakeStrategy) | [waiting](manual::waiting) |
//! | keep a lock until the work is done | [`Engine::lock`], [`RequestBuilder::run`] | [auto-extension](manual::auto_extension) |
//! | lock several keys, or take many locks | [`LockRequest::and`], [`Client::acquire_all`] | [many keys](manual::many_keys) |
//! | let at most so many in at once | [`LockRequest::permits`] | [semaphores](manual::semaphores) |
//! | let readers in together | [`LockRequest::shared`], [`LockMode`] | [shared locks](manual::shared_locks) |
//! | take a lock that its owner holds already | [`Engine::acquire_reentrant`] | [re-entry](manual::reentrant) |
//! | have one leader among many, and see who leads | [`Engine::campaign`], [`Engine::observe`] | [leaders](manual::leader) |
//! | refuse a holder whose time is over | [`LockRequest::fenced`], [`FencingToken`] | [fencing](manual::fencing) |
//! | bear nodes that lose their memory | [`init`], [`RestartGuard`](config::RestartGuard), [`RestartTrust`](config::RestartTrust) | [the restart guard](manual::restart_guard) |
//! | run it | [`log`], [`metrics`], [`report`], [`inspect`] | [operations](manual::operations) |
//! | lock on tokio | [`Engine`] | [on tokio](manual::tokio) |
//! | lock in your own event loop | [`Driver`] | [event loop](manual::event_loop) |
//! | be called from C or C++ | | [the C library](manual::c_library) |
//! | know what to rely on | [`LockGuard::is_valid`], [`RefusalReport`] | [guarantees](manual::guarantees) |
//!
//! [`resp`] is the codec, [`proto`] the protocol as a state machine without input or output, and
//! [`net`] the sockets and the clock. The APIs are at the root, with modules for the types that
//! they take and return. Each layer can be used and tested without those above it.
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

#![deny(missing_docs, unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Downstream code keeps compiling when variants and fields are added. Types that are complete by
// nature opt out at their definition.
#![deny(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod api;
pub mod net;
pub mod proto;
pub mod resp;

pub use api::{
    AcquireError, Client, Config, ConfigBuilder, ConfigError, Driver, Engine, EngineError,
    ExtendError, LockGuard, LockLost, OwnedGuard, RefusalReport, RequestBuilder, SetupError,
    StartError, init, init_change,
};
pub use proto::{
    AutoExtend, DetachedLock, DetachedLockError, Event, FencingToken, LockId, LockMode,
    LockRequest, LossCause, Profile, RefusalReason, Released, RequestError, Wait,
};

/// The parts of a [`Config`], and its errors.
pub mod config {
    pub use crate::api::ConfigFault;
    #[cfg(feature = "tls")]
    pub use crate::net::TlsError;
    pub use crate::net::{Address, AddressError, Sentinels};
    pub use crate::proto::{
        Credentials, NodeSettings, RestartGuard, RestartTrust, Secret, Settings, SettingsError,
        WakeStrategy,
    };
}

/// The results of an [`Engine`]: futures, each with a blocking form, work under a lock, and the
/// report of its shutdown.
pub mod engine {
    pub use crate::api::{
        AcquireAllFuture, AcquireFuture, EngineIo, ExtendFuture, HeldLock, LossFuture, QueryFuture,
        ReentrantFuture, ReentrantGuard, ReleaseFuture, RunError, ShutdownReport, TryLockFuture,
        Unreleased, UpgradeFuture,
    };
}

/// The holder of a resource as reported by each node, and the outcome of breaking a lock.
pub mod inspect {
    pub use crate::api::{ForceUnlockReport, Inspection, InspectionVerdict, NodeInspection, Owner};
    pub use crate::proto::{
        DataKind, FairQueue, Fate, Foreign, ForeignLock, Holder, Kept, KeyState, Permits, Sharers,
        UnlockScope, Waiter,
    };
}

/// The types for campaigning for the lead, holding it, and observing a leader.
pub mod leader {
    pub use crate::api::{
        CampaignFuture, ChangeFuture, Leadership, NodeObservation, Observation, Observer,
        OwnedObserver,
    };
    pub use crate::proto::{Leader, LeaderVerdict, NodeSight, ObserverId};
}

/// The notes for the log of a program.
pub mod log {
    pub use crate::api::{Level, Log, Note};
}

/// The counts, also as text for Prometheus.
pub mod metrics {
    pub use crate::api::MetricsReport;
    pub use crate::proto::metrics::By;
    pub use crate::proto::{Histogram, Metrics, NodeMetrics};
}

/// The states of locks and nodes: the votes behind an outcome, with causes, and which nodes can
/// vote.
pub mod report {
    pub use crate::api::{NodeReport, NodeStatus, NodeVote};
    pub use crate::proto::restart_guard::Found;
    pub use crate::proto::{
        Cause, LockState, NodeState, PushState, Refusal, Replicas, RestartGuardState, Vote, Votes,
    };
}

/// The manual. Each concept is explained on one of these pages, and linked from everywhere else.
/// Begin with [`getting_started`](manual::getting_started).
///
/// The design is explained in [`protocol`](manual::protocol), [`waiters`](manual::waiters),
/// [`kinds_of_locks`](manual::kinds_of_locks), [`guard`](manual::guard), [`holes`](manual::holes),
/// [`failover`](manual::failover), [`redbolt_lock`](manual::redbolt_lock),
/// [`formats`](manual::formats) and [`performance`](manual::performance); all other pages are about
/// use. The same pages are in the folder `docs` of the repository, with their figures and the
/// [`evidence`](manual::evidence).
#[cfg(any(doc, doctest))]
pub mod manual {
    /// The measurements, models and tests: the folder `docs/evidence` of the repository, which is
    /// not part of this package.
    pub mod evidence {}

    /// Links between pages are links between files. The definitions included first come first in
    /// each page, so they take precedence.
    macro_rules! pages {
        ($($page:ident: $file:literal,)*) => {$(
            #[doc = include_str!("../docs/rustdoc-links.md")]
            #[doc = include_str!(concat!("../docs/", $file))]
            pub mod $page {}
        )*};
    }

    pages! {
        getting_started: "use/getting-started.md", choosing_an_api: "use/choosing-an-api.md",
        waiting: "use/waiting.md", auto_extension: "use/auto-extension.md",
        many_keys: "use/many-keys.md", semaphores: "use/semaphores.md",
        shared_locks: "use/shared-locks.md", reentrant: "use/reentrant.md", leader: "use/leader.md",
        fencing: "use/fencing.md", profiles: "use/profiles.md",
        restart_guard: "use/restart-guard.md", sentinels: "use/sentinels.md", tls: "use/tls.md",
        operations: "use/operations.md", command_line: "use/command-line.md",
        c_library: "use/c-library.md", guarantees: "use/guarantees.md",
        tokio: "use/tokio.md", shell: "use/shell.md", event_loop: "use/event-loop.md",
        protocol: "how-it-works/protocol.md", waiters: "how-it-works/waiters.md",
        kinds_of_locks: "how-it-works/kinds-of-locks.md", guard: "how-it-works/guard.md",
        holes: "how-it-works/holes.md", failover: "how-it-works/failover.md",
        redbolt_lock: "how-it-works/redbolt-lock.md", formats: "how-it-works/formats.md",
        performance: "how-it-works/performance.md",
    }
}

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
