//! The reason why a check has no result.

use std::error::Error;

pub(crate) type Failure = Box<dyn Error>;
