//! Why a lock was not granted, by any API.

use std::error::Error;

use super::lock_lost::LockLost;
use super::report::RefusalReport;
use crate::proto::{RefusalReason, RequestError, messages, sources};

messages! {
    /// Why a lock was not granted.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum AcquireError {
        /// The engine does not take it. Only an [`Engine`](crate::Engine) says so.
        Engine(error: EngineError): "{error}",
        /// The owner holds the lock already, and it is over: all guards of it have to end before it can be taken again. Only
        /// [`Engine::acquire_reentrant`](crate::Engine::acquire_reentrant) says so.
        Lost(lost: LockLost): "{lost}, and its owner has not let go of it",
        /// The request cannot be carried out, whatever the nodes say.
        Request(error: RequestError): "{error}",
        /// The nodes refused it.
        Refused(report: RefusalReport): "{report}",
    }
}

sources! {
    AcquireError: Engine, Request, Refused;
    from Engine(EngineError), Request(RequestError)
}

messages! {
    /// Why an engine does not take a call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum EngineError {
        /// As much is in flight as its limits allow.
        Busy {
            /// The limit, [`ConfigBuilder::in_flight`](crate::ConfigBuilder::in_flight).
            limit: usize,
        }: "{limit} calls are in flight, which is the engine's limit",
        /// This process was forked from the one that started it, and has no thread for it.
        Forked: "the engine belongs to the process before the fork",
        /// It was shut down.
        ShutDown: "the engine was shut down",
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
