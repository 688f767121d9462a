//! Distributed locks on independent Redis or Valkey nodes.

#![deny(missing_docs, unsafe_code)]

mod front;
pub mod net;
pub mod proto;
pub mod resp;

pub use front::{
    AcquireError, Client, Config, ConfigBuilder, ConfigError, Driver, Ending, ExtendError, Held,
    Inspection, InspectionVerdict, LockGuard, NodeInspection, NodeReport, NodeStatus, NodeVote,
    RefusalReport,
};
pub use proto::{
    Ask, Cause, Confirmed, Event, Holder, InputError, KeyState, LockId, LossCause, NodeState,
    Refusal, Settings, Vote, Wait, Why,
};
