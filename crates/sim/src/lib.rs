//! Deterministic simulation of redbolt: many clients and nodes in virtual time, on the shipping
//! core.
//!
//! A schedule is drawn from a seed: the jobs, the nodes, the network, and the faults. It is played
//! as fast as the machine can, and each promise to a caller is checked at the moment of the
//! outcome. README.md lists the faults and the invariants. The crate uses the library like any
//! other program: it sees only `redbolt::proto` and the model of a node.

#![deny(unsafe_code)]

mod actor;
pub mod cli;
mod coverage;
mod credit;
mod cut_off;
#[cfg(test)]
mod doctored;
mod draw;
mod fair_queue;
mod fault;
#[cfg(test)]
mod force_unlock;
mod history;
mod hung;
mod invariant;
mod lab;
mod library_channel;
mod member;
mod mode;
pub mod mutants;
mod notes;
mod patience;
mod plan;
mod record;
mod register;
mod report;
mod shrink;
mod waiting;
mod world;

pub use coverage::Coverage;
pub use invariant::Violation;
pub use lab::{Lab, Outcome, hunt, run};
pub use plan::{Class, Cut, Plan};
pub use report::Totals;
pub use shrink::shrink;
