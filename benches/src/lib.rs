//! Side-by-side benchmarks: what is measured, so that several programs can measure it.

#![deny(missing_docs, unsafe_code)]

pub mod codec;
pub mod contender;
pub mod counts;
pub mod crowd;
pub mod flight;
pub mod machine;
pub mod placement;
pub mod report;
pub mod rounds;
pub mod scale;
pub mod stats;
pub mod table;
pub mod waiting;
mod wire;
