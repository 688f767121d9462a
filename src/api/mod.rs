//! The APIs that hold locks.
//!
//! All of them drive the same [`Core`](crate::proto::Core) through the same sockets, and differ in
//! which thread waits: see [choosing an API](crate::manual::choosing_an_api).

mod builder;
mod busy;
mod client;
mod config;
mod detached;
mod driver;
mod engine;
mod environment;
mod error;
mod guard;
mod inspection;
mod label;
mod leader;
mod lock_lost;
mod log;
mod metrics;
mod notes;
mod observer;
mod own_poll;
mod report;
mod setup;
mod start;

pub use builder::RequestBuilder;
pub use client::Client;
pub use config::{Config, ConfigBuilder, ConfigError, ConfigFault};
pub use driver::Driver;
pub use engine::*;
pub use error::{AcquireError, EngineError};
pub use guard::{ExtendError, LockGuard};
pub use inspection::{ForceUnlockReport, Inspection, InspectionVerdict, NodeInspection, Owner};
pub use leader::{NodeObservation, Observation};
pub use lock_lost::LockLost;
pub use log::{Level, Log, Note};
pub use metrics::MetricsReport;
pub use observer::Observer;
pub use report::{NodeReport, NodeStatus, NodeVote, RefusalReport};
pub use setup::{SetupError, init, init_change};
pub use start::StartError;
