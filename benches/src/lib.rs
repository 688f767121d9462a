//! Side-by-side benchmarks: the measurements, shared by several programs.

#![deny(missing_docs, unsafe_code)]

pub mod chart;
pub mod choice;
pub mod codec;
pub mod contender;
pub mod counts;
pub mod crowd;
pub mod flight;
pub mod kinds;
pub mod machine;
pub mod part;
pub mod placement;
pub mod progress;
pub mod report;
pub mod rounds;
pub mod scale;
pub mod section;
pub mod stalled;
pub mod stats;
pub mod table;
pub mod waiting;
pub mod weight;
mod wire;
