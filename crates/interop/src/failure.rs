//! Why something was not found out.

use std::error::Error;

pub(crate) type Failure = Box<dyn Error>;
