//! Why a lock was not granted, by any API.

use std::error::Error;
use std::fmt;

use super::report::RefusalReport;
use crate::proto::{LossCause, RefusalReason, RequestError};

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The engine does not take it. Only an [`Engine`](crate::Engine) says so.
    Engine(EngineError),
    /// The owner holds the lock already, and it is over: all guards of it have to end before it can be taken again. Only
    /// [`Engine::acquire_reentrant`](crate::Engine::acquire_reentrant) says so.
    Lost(LossCause),
    /// The request cannot be carried out, whatever the nodes say.
    Request(RequestError),
    /// The nodes refused it.
    Refused(RefusalReport),
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Lost(cause) => write!(f, "the owner's lock is lost: {cause}"),
            Self::Request(error) => error.fmt(f),
            Self::Refused(report) => report.fmt(f),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Engine(error) => error,
            Self::Lost(_) => return None,
            Self::Request(error) => error,
            Self::Refused(report) => report,
        })
    }
}

impl From<EngineError> for AcquireError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<RequestError> for AcquireError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

/// Why an engine does not take a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineError {
    /// As much is in flight as its limits allow.
    Busy {
        /// The limit, [`EngineLimits::in_flight`](crate::EngineLimits::in_flight).
        limit: usize,
    },
    /// This process was forked from the one that started it, and has no thread for it.
    Forked,
    /// It was shut down.
    ShutDown,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { limit } => {
                write!(f, "{limit} calls are in flight, which is the engine's limit")
            }
            Self::Forked => f.write_str("the engine belongs to the process before the fork"),
            Self::ShutDown => f.write_str("the engine was shut down"),
        }
    }
}

impl Error for EngineError {}

/// `None` for contention: another client has the lock.
pub(super) fn unless_contended<G>(
    outcome: Result<G, AcquireError>,
) -> Result<Option<G>, AcquireError> {
    match outcome {
        Ok(guard) => Ok(Some(guard)),
        Err(AcquireError::Refused(report)) if report.reason() == RefusalReason::Contended => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
