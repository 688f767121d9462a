//! Deterministic simulation of redbolt: many clients and nodes in virtual time, on the shipping
//! core.
//!
//! A schedule is drawn from a seed: the jobs, the nodes, the network, and the faults. It is played
//! as fast as the machine can, and each promise to a caller is checked at the moment of the
//! outcome. README.md lists the faults and the invariants.
//!
//! Apart from the library because it is a user of it: it sees `redbolt::proto` and the model of a
//! node, and nothing else. Not here: the machine's sockets, threads and clocks, except in the
//! program that runs many schedules and measures their speed.

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
