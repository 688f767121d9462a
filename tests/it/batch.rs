//! Batches
