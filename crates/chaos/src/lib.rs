//! Chaos tests on real servers: redbolt's promises are checked while servers are killed,
//! connections are lost and processes are stopped.
//!
//! Each of these programs runs for minutes, in several processes, and ends with figures; `cargo
//! test` runs a bounded share of each. A [`ledger`](crate::Ledger) that does not use redbolt
//! decides whether a promise was kept: it compares the times and numbers that processes report.
//! Each program has a control, a run without the protection, in which the same check has to find
//! violations.

#![deny(missing_docs, unsafe_code)]

mod auto_extended;
mod auto_extension;
mod clock;
mod commands;
mod fair_queue;
mod fencing;
mod ghosts;
mod leaders;
mod ledger;
mod nodes;
mod part;
mod pauses;
mod places;
mod register;
mod restarts;
mod stage;
mod storm;
mod wire;
mod witness;
mod work;
mod worker;

pub use auto_extension::{AutoExtension, AutoExtensionResult};
pub use commands::{Commands, CommandsResult, SignalStorm, SignalStormResult};
pub use fair_queue::{FairQueue, FairQueueResult};
pub use fencing::{Fencing, FencingResult};
pub use ghosts::{Ghosts, GhostsResult};
pub use leaders::{Leaders, LeadersResult};
pub use ledger::{Claim, Ledger};
pub use part::{Part, Role};
pub use pauses::{Pauses, PausesResult};
pub use restarts::{Restarts, RestartsResult};
pub use stage::{Failure, Stage};
pub use storm::{Prize, Storm, StormResult};
pub use work::serve;
