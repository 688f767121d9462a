//! The lock protocol: a deterministic state machine without sockets, clocks or threads.
//!
//! It is [Redlock] with the rules of [the manual](crate::manual::protocol). [`Core`] makes every
//! decision. Time, randomness and bytes are its arguments, and outcomes are [`Event`]s. The same
//! core runs behind every API, in the simulator and in the fuzzers. It knows nodes by their index
//! in the configuration, not by address, and never waits.
//!
//! # Driving a core
//!
//! There are four kinds of methods, all of which return at once:
//!
//! 1. commands: [`acquire`](Core::acquire), [`extend`](Core::extend), [`release`](Core::release);
//! 2. inputs, which cannot fail: [`connected`](Core::connected),
//!    [`disconnected`](Core::disconnected), [`received`](Core::received) (the bytes were read into
//!    [`space`](Core::space)), [`timeout`](Core::timeout);
//! 3. outputs, until there are none: [`poll_link`](Core::poll_link), [`transmit`](Core::transmit)
//!    with [`transmitted`](Core::transmitted), [`poll_event`](Core::poll_event);
//! 4. [`poll_timeout`](Core::poll_timeout), which returns the latest time of the next call of
//!    `timeout`.
//!
//! Outputs may be drained in any order, and draining them late only delays. Early, late and
//! repeated timeouts are harmless. Read the available bytes of all sockets before a call of
//! `timeout`, because otherwise an answer that has already arrived counts as missing.
//!
//! A lock on one node, driven by hand:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use redbolt::proto::{
//!     ClockReading, Config, Core, Event, LinkOp, LockRequest, NodeSettings, Settings, Timestamp,
//! };
//!
//! let settings = Settings::new(vec![NodeSettings::default()]);
//! // Only an example may use such entropy.
//! let mut core = Core::new(Arc::new(Config::new(settings)?), |bytes| bytes.fill(0xab));
//! let at = |ms: u64| {
//!     let now = Timestamp(ms * 1_000_000);
//!     ClockReading { boot: now, wall: now }
//! };
//!
//! core.timeout(at(0)); // due at once: it opens the links
//! let Some(LinkOp::Open(link)) = core.poll_link() else { panic!("a link to open") };
//! let id = core.acquire(&LockRequest::new("job").ttl(Duration::from_secs(1)), at(1))?;
//! core.connected(link, at(2));
//!
//! // The handshake and the request leave in one write, followed by a query whether the node is
//! // still the master that it was during the handshake.
//! let flight = core.transmit(link).to_vec();
//! core.transmitted(link, flight.len());
//! assert!(flight.starts_with(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n"));
//! assert!(flight.ends_with(b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n"));
//!
//! // The answers, in order: name, id, three INFO sections; scripts run, DEL is allowed, this
//! // server has neither DELEX nor DELIFEQ, SET is allowed; the value and TTL of the restart guard,
//! // which show that the node has every lock; OK to the request; and the same master.
//! let answers = b"+OK\r\n:7\r\n\
//!     $47\r\nrun_id:0123456789012345678901234567890123456789\r\n\
//!     $11\r\nrole:master\r\n$11\r\nmaxmemory:0\r\n\
//!     :0\r\n:0\r\n-ERR wrong number of arguments for 'del' command\r\n\
//!     -ERR unknown command 'DELEX'\r\n-ERR unknown command 'DELIFEQ'\r\n-ERR syntax error\r\n\
//!     $50\r\n0123456789012345678901234567890123456789:30000:1:0\r\n:126144000000\r\n\
//!     +OK\r\n$11\r\nrole:master\r\n";
//! core.space(link)[..answers.len()].copy_from_slice(answers);
//! core.received(link, answers.len(), at(3));
//! assert_eq!(core.poll_event(), Some(Event::Granted(id)));
//!
//! // 1 s, less 1 % and 2 ms of drift, counted from before the first byte existed.
//! let lease = core.lease(id).expect("it is held");
//! assert_eq!(lease.remaining(at(101)), Duration::from_millis(1_000 - 12 - 100));
//! core.release(id, at(102));
//! assert!(core.transmit(link).starts_with(b"*5\r\n$4\r\nEVAL\r\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

mod answer;
mod arguments;
mod classify;
mod config;
mod core;
mod entropy;
mod event;
pub mod fair_queue;
pub mod fence;
#[doc(hidden)]
pub mod format;
mod key_state;
mod keys;
mod lease;
mod lock_kind;
mod lock_mode;
pub mod metrics;
mod mutants;
mod names;
mod permits;
mod printable;
mod profile;
mod request;
pub mod restart_guard;
#[doc(hidden)]
pub mod script;
pub mod sentinel_answer;
mod slab;
mod steps;
mod time;
mod vote;

pub(crate) use self::classify::without_arguments;
pub use self::config::{
    Config, Credentials, NodeSettings, Secret, Settings, SettingsError, WakeStrategy,
};
#[doc(hidden)]
pub use self::core::HandshakeStep;
pub use self::core::{
    Core, DataKind, DetachedLock, DetachedLockError, FairQueue, Fate, Foreign, Holder, Kept,
    KeyState, Leader, LeaderVerdict, LeaderView, MAX_LOCKS, MAX_PIPELINE, NodeSight, NodeView,
    Permits, PushState, Replicas, RestartGuardState, Sharers, UnlockScope, View, Waiter,
};
pub(crate) use self::core::{HANGS, Silence};
pub use self::event::{
    Event, LinkOp, LockState, LossCause, NodeState, Refusal, RefusalReason, Released,
};
pub use self::fence::FencingToken;
pub use self::key_state::{ForeignLock, MAX_LABEL};
pub use self::lease::Lease;
pub use self::lock_mode::LockMode;
pub use self::metrics::{Histogram, Metrics, NodeMetrics};
#[cfg(redbolt_mutants)]
pub use self::mutants::{Mutant, plant};
pub use self::names::{LinkId, LockId, MAX_NODES, NodeId, NodeSet, ObserverId, ViewId};
pub use self::permits::MAX_PERMITS;
pub(crate) use self::printable::{is_printable, printable};
pub use self::profile::Profile;
pub(crate) use self::request::check_lock_name;
pub use self::request::{AutoExtend, LockRequest, MAX_KEYS, MAX_RESOURCE, RequestError, Wait};
pub use self::restart_guard::{RestartGuard, RestartTrust, Setup};
#[cfg(test)]
pub(crate) use self::steps::grows_in_proportion;
pub(crate) use self::steps::step;
pub use self::time::{ClockReading, Timestamp};
pub use self::vote::{Cause, Verdict, Vote, Votes};
pub(crate) use crate::resp::{builder_methods, debug_by_name, messages, sources};
