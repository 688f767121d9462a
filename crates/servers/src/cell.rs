//! The result of one feature on one server.

use std::error::Error;

/// Why a check did not come to its end.
pub(crate) type Failure = Box<dyn Error>;

/// The result of one feature on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It works.
    Yes,
    /// It works in the way that the words say.
    By(String),
    /// redbolt refuses it or does without, and says why in these words.
    Named(String),
    /// It does not do what redbolt promises.
    Failed(String),
}
