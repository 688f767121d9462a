//! The error of an acquisition, shared by all APIs.

use std::error::Error;

use super::lock_lost::LockLost;
use super::report::RefusalReport;
use crate::proto::{RefusalReason, RequestError, messages, sources};

messages! {
    /// A reason why a lock was not granted.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum AcquireError {
        /// The engine does not accept the call. Only an [`Engine`](crate::Engine) returns it.
        Engine(error: EngineError): "{error}",
        /// The lock of this owner is lost, and guards of it still exist: all have to be dropped or
        /// released before it can be acquired again. Only
        /// [`Engine::acquire_reentrant`](crate::Engine::acquire_reentrant) returns it.
        Lost(lost: LockLost): "{lost}, and its owner has not let go of it",
        /// The request cannot be carried out, regardless of the nodes.
        Request(error: RequestError): "{error}",
        /// The nodes refused the request.
        Refused(report: RefusalReport): "{report}",
    }
}

sources! {
    AcquireError: Engine, Request, Refused;
    from Engine(EngineError), Request(RequestError)
}

messages! {
    /// A reason why an engine does not accept a call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum EngineError {
        /// The limit of calls in flight is reached.
        Busy {
            /// The limit that [`ConfigBuilder::in_flight`](crate::ConfigBuilder::in_flight) sets.
            limit: usize,
        }: "{limit} calls are in flight, which is the engine's limit",
        /// This process was forked from the one that started the engine, which drives it.
        Forked: "the engine belongs to the process before the fork",
        /// The engine was shut down.
        ShutDown: "the engine was shut down",
    }
}

impl Error for EngineError {}

/// Returns `None` for contention, that is, if another client has the lock.
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
