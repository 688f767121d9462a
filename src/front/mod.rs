//! The ways to hold a lock.
//!
//! All of them drive the same [`Core`](crate::proto::Core) through the same sockets, and differ in who waits: see
//! [choosing an API](crate::manual::choosing_an_api). Not here: the protocol.

mod busy;
mod client;
mod config;
mod driver;
mod engine;
mod guard;
mod inspection;
mod label;
mod log;
mod metrics;
mod record;
mod report;
mod setup;

pub use client::{AcquireError, Client, Held};
pub use config::{Config, ConfigBuilder, ConfigError};
pub use driver::Driver;
pub use engine::{
    Acquire, Answer, Engine, EngineError, EngineLimits, Extend, HeldLock, Lost, OwnedGuard,
    Release, ShutdownReport, Unreleased, WithError,
};
pub use guard::{Ending, ExtendError, LockGuard};
pub use inspection::{BreakReport, Inspection, InspectionVerdict, NodeInspection, Owner};
pub use log::{Level, Log, Note};
pub use metrics::MetricsReport;
pub use report::{NodeReport, NodeStatus, NodeVote, RefusalReport};
pub use setup::{SetupError, init, init_change};
