//! The lock protocol: one deterministic state machine, without sockets, clocks or threads.
//!
//! This is [Redlock] with the rules of ARCHITECTURE.md. Everything that decides is in [`Core`]; time,
//! randomness and bytes are arguments, and outcomes are [`Event`]s. The same core runs behind every
//! front, in the simulator and in the fuzzers.
//!
//! # Driving a core
//!
//! The methods come in four families, and every one returns at once:
//!
//! 1. commands: [`acquire`](Core::acquire), [`extend`](Core::extend), [`release`](Core::release);
//! 2. inputs, which cannot fail: [`connected`](Core::connected), [`disconnected`](Core::disconnected),
//!    [`received`](Core::received) (the bytes were read into [`space`](Core::space)),
//!    [`timeout`](Core::timeout);
//! 3. outputs, until there are none: [`poll_link`](Core::poll_link), [`transmit`](Core::transmit) with
//!    [`transmitted`](Core::transmitted), [`poll_event`](Core::poll_event);
//! 4. [`poll_timeout`](Core::poll_timeout): when to call `timeout` at the latest.
//!
//! Outputs exist from the moment of the mutation, so they may be drained in any order; draining late
//! delays, it never corrupts. Early, late and repeated timeouts are harmless. Read what the sockets
//! have before calling `timeout`, or an answer that is already there counts as missing.
//!
//! Apart from `net` so that it can be simulated and proven; apart from `resp` because that knows
//! nothing of locks. Not here: addresses (a node is its place in the configuration) and the wait for
//! anything.
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

mod ask;
mod claim;
mod classify;
mod config;
mod core;
mod entropy;
mod event;
mod greeting;
mod inbox;
mod keys;
mod lease;
mod lock;
mod node;
mod nodes;
mod pipeline;
mod recipe;
pub mod script;
mod slab;
mod time;
mod vote;

pub use self::ask::{Ask, InputError, MAX_KEYS, MAX_RESOURCE, Wait};
pub use self::config::{
    Config, Credentials, MAX_LABEL, NodeSettings, Secret, Settings, SettingsError,
};
pub use self::core::{Core, Holder, KeyState, MAX_LOCKS, MAX_PIPELINE, NodeView, View, ViewId};
pub use self::event::{Confirmed, Event, LinkOp, LossCause, NodeState, Refusal, Why};
pub use self::lease::Lease;
pub use self::lock::LockId;
pub use self::nodes::{LinkId, MAX_NODES, NodeId, NodeSet};
pub use self::time::{Nanos, Now};
pub use self::vote::{Cause, Verdict, Vote, Votes};
