//! The result of one feature on one server.

use std::error::Error;

/// The reason why a check could not be completed.
pub(crate) type Failure = Box<dyn Error>;

/// The result of one feature on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The feature works.
    Yes,
    /// The feature works in the way that the text describes.
    By(String),
    /// Redbolt refuses the feature or does without it, and reports this cause.
    Named(String),
    /// The feature does not do what redbolt promises.
    Failed(String),
}
