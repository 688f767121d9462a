//! The ways to hold a lock.
//!
//! | front | thread | for |
//! |---|---|---|
//! | [`Client`] | the caller's | the lowest latency: reads and writes happen on the calling thread |
//! | [`Driver`] | the host's | programs with an event loop of their own |
//!
//! All of them drive the same [`Core`](crate::proto::Core) through the same sockets; they differ
//! in who waits. Not here: a background thread, and futures; they come as fronts of their own.

mod client;
mod config;
mod driver;
mod guard;
mod inspection;
mod record;
mod report;
mod setup;

pub use client::{AcquireError, Client, Held};
pub use config::{Config, ConfigBuilder, ConfigError};
pub use driver::Driver;
pub use guard::{Ending, ExtendError, LockGuard};
pub use inspection::{BreakReport, Inspection, InspectionVerdict, NodeInspection, Owner};
pub use report::{NodeReport, NodeStatus, NodeVote, RefusalReport};
pub use setup::{SetupError, init, init_change};
