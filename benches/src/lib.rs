//! Side-by-side benchmarks: what is measured, so that several programs can measure it.

#![deny(missing_docs, unsafe_code)]

pub mod codec;
