//! Why a client, a driver or an engine was not started.

use std::error::Error;
use std::fmt;
use std::io;

use crate::proto::MAX_LOCKS;

/// Why a [`Client`](crate::Client), a [`Driver`](crate::Driver) or an [`Engine`](crate::Engine) was not started.
///
/// It turns into an [`io::Error`], for programs that have no error of their own.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// [`EngineLimits::in_flight`](crate::EngineLimits::in_flight) is out of its range.
    InFlight {
        /// What was given.
        limit: usize,
    },
    /// The system has no file descriptors, no threads or no randomness left.
    Io(io::Error),
    /// The range of tokens for [`Driver::in_registry`](crate::Driver::in_registry) is too small.
    Tokens {
        /// How many were given.
        given: usize,
        /// How many there must be.
        needed: usize,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight { limit } => {
                write!(f, "in_flight is {limit}, it must be from 1 to {MAX_LOCKS}")
            }
            Self::Io(error) => error.fmt(f),
            Self::Tokens { given, needed } => write!(f, "{given} tokens given, {needed} needed"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::InFlight { .. } | Self::Tokens { .. } => None,
        }
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Io(error) => error,
            error => Self::new(io::ErrorKind::InvalidInput, error),
        }
    }
}
