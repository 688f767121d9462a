//! The lock behind a handle: one of a client, which is used inside its door, or one of an engine,
//! whose thread is waited for, and which an owner may have entered more than once. `lock` has the
//! functions for C.

use std::time::Duration;

use redbolt::engine::{ExtendFuture, ReentrantGuard, ReleaseFuture};
use redbolt::{
    DetachedLock, ExtendError, FencingToken, LockLost, LockMode, LossCause, OwnedGuard, Released,
};

use crate::call::may_wait;
use crate::door::Held;
use crate::failure::Failure;
use crate::status::Status;

pub(crate) enum Holder {
    Client(Held),
    Engine(OwnedGuard),
    Reentrant(ReentrantGuard),
}

impl Holder {
    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Client(held) => held.with(|guard| Ok(guard.remaining())).unwrap_or_default(),
            Self::Engine(guard) => guard.remaining(),
            Self::Reentrant(guard) => guard.remaining(),
        }
    }

    pub(crate) fn mode(&self) -> Option<LockMode> {
        match self {
            Self::Client(held) => held.with(|guard| Ok(guard.mode())).ok(),
            Self::Engine(guard) => Some(guard.mode()),
            Self::Reentrant(guard) => Some(guard.mode()),
        }
    }

    pub(crate) fn slot(&self) -> Option<u16> {
        match self {
            Self::Client(held) => held.with(|guard| Ok(guard.slot())).ok()?,
            Self::Engine(guard) => guard.slot(),
            Self::Reentrant(guard) => guard.slot(),
        }
    }

    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        match self {
            Self::Client(held) => held.with(|guard| Ok(guard.fencing_token())).ok()?,
            Self::Engine(guard) => guard.fencing_token(),
            Self::Reentrant(guard) => guard.fencing_token(),
        }
    }

    pub(crate) fn hold_count(&self) -> usize {
        match self {
            Self::Client(_) | Self::Engine(_) => 1,
            Self::Reentrant(guard) => guard.hold_count(),
        }
    }

    pub(crate) fn extend(&self, ttl: Duration) -> Result<(), Failure> {
        match self {
            Self::Client(held) => held.ask(|guard| Ok(guard.extend(ttl)?)),
            Self::Engine(_) | Self::Reentrant(_) => {
                may_wait()?;
                Ok(self.extend_later(ttl)?.wait()?)
            }
        }
    }

    /// Does the same as [`extend`](Self::extend), by an engine.
    pub(crate) fn extend_later(&self, ttl: Duration) -> Result<ExtendFuture, Failure> {
        match self {
            Self::Client(_) => Err(of_client()),
            Self::Engine(guard) => Ok(guard.extend(ttl)),
            Self::Reentrant(guard) => Ok(guard.extend(ttl)),
        }
    }

    pub(crate) fn try_upgrade(&self) -> Result<(), Failure> {
        match self {
            Self::Client(held) => held.ask(|guard| upgraded(guard.try_upgrade())),
            Self::Engine(guard) => {
                may_wait()?;
                upgraded(guard.try_upgrade().wait())
            }
            Self::Reentrant(_) => Err(of_owner()),
        }
    }

    pub(crate) fn downgrade(&self) -> Result<(), Failure> {
        match self {
            Self::Client(held) => held.ask(|guard| Ok(guard.downgrade()?)),
            Self::Engine(guard) => {
                may_wait()?;
                Ok(guard.downgrade().wait()?)
            }
            Self::Reentrant(_) => Err(of_owner()),
        }
    }

    pub(crate) fn release(self) -> Result<(), Failure> {
        match self {
            Self::Client(held) => held.end(|guard| released(guard.release())),
            Self::Engine(_) | Self::Reentrant(_) => {
                may_wait()?;
                self.release_later()?.map_or(Ok(()), |future| released(future.wait()))
            }
        }
    }

    /// Does the same as [`release`](Self::release), by an engine. Returns `None` if the owner has
    /// entered the lock more often than left it.
    pub(crate) fn release_later(self) -> Result<Option<ReleaseFuture>, Failure> {
        match self {
            Self::Client(_) => Err(of_client()),
            Self::Engine(guard) => Ok(Some(guard.release())),
            Self::Reentrant(guard) => Ok(guard.release()),
        }
    }

    pub(crate) fn detach(self) -> Result<Option<DetachedLock>, Failure> {
        match self {
            Self::Client(held) => held.end(|guard| Ok(guard.detach())),
            Self::Engine(guard) => {
                may_wait()?;
                Ok(guard.detach().wait()?)
            }
            Self::Reentrant(_) => Err(of_owner()),
        }
    }

    pub(crate) fn on_loss(
        &self,
        callback: impl FnOnce(LossCause) + Send + 'static,
    ) -> Result<(), Failure> {
        match self {
            Self::Client(_) => return Err(of_client()),
            Self::Engine(guard) => guard.on_loss(callback),
            Self::Reentrant(guard) => guard.on_loss(callback),
        }
        Ok(())
    }
}

fn of_client() -> Failure {
    Failure::new(Status::Request, "the lock is a client's: only an engine calls back")
}

fn of_owner() -> Failure {
    Failure::new(Status::Request, "the lock is an owner's, who may have entered it more than once")
}

fn upgraded(outcome: Result<bool, ExtendError>) -> Result<(), Failure> {
    match outcome? {
        true => Ok(()),
        false => Err(Failure::contended("others share the resource: the lock is shared as before")),
    }
}

pub(crate) fn released(outcome: Result<Released, LockLost>) -> Result<(), Failure> {
    outcome?;
    Ok(())
}
