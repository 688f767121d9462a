//! Leadership: the guard of an engine's lock, and the future of it, under a leader's names.

use std::ops::Deref;

use super::acquisition::AcquireFuture;
use super::future::{ReleaseFuture, mapped_future};
use super::guard::OwnedGuard;
use super::held_lock::HeldLock;
use crate::api::error::AcquireError;
use crate::proto::{FencingToken, debug_by_name};

/// The lead in an election: see [`Engine::campaign`](super::Engine::campaign). `Send` and `Sync`, and bound to no lifetime.
///
/// Act as a leader only while [`is_valid`](HeldLock::is_valid), and stamp each write with the [`term`](Self::term): a pause
/// between the look and the write cannot be seen from here, but the store can refuse a smaller term than the largest that
/// it has seen.
///
/// Dropping it resigns, and never blocks. It does not keep the engine alive: with the last handle, or by a shutdown, the
/// lead is lost ([`LossCause::ShutDown`](crate::LossCause::ShutDown)).
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: OwnedGuard,
    term: FencingToken,
}

impl Leadership {
    fn of_elected(elected: Result<OwnedGuard, AcquireError>) -> Result<Self, AcquireError> {
        let guard = elected?;
        match guard.fencing_token() {
            Some(term) => Ok(Self { guard, term }),
            None => Err(guard.slot().why_ended()),
        }
    }

    /// The number of this term, which is the lock's fencing token: larger than that of each leader before. It stays what
    /// it was when the lead is over, so that a store can refuse what comes too late.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// The label under which others see this leader; empty if the configuration has none.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        &self.guard.slot().runtime.config.settings().label
    }

    /// Resigns, so that another one can be elected at once. Stop acting as a leader before.
    pub fn resign(self) -> ReleaseFuture {
        self.guard.release()
    }
}

/// [`remaining`](HeldLock::remaining), [`is_valid`](HeldLock::is_valid), [`lost`](HeldLock::lost) and [`on_loss`](HeldLock::on_loss)
/// are those of the lock: the lead is over when it is.
impl Deref for Leadership {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.guard
    }
}

mapped_future! {
    /// A campaign under way: a future, or [`wait`](Self::wait) for it.
    ///
    /// As an [`AcquireFuture`] it stands for election from the moment of the call, and dropping it withdraws.
    #[must_use = "dropping it withdraws the candidate"]
    pub struct CampaignFuture(AcquireFuture) -> Result<Leadership, AcquireError> = Leadership::of_elected;

    /// Blocks until this candidate is elected, or gives up.
    ///
    /// # Errors
    ///
    /// As [`AcquireFuture::wait`].
    ///
    /// # Panics
    ///
    /// On the engine's own thread, as [`AcquireFuture::wait`].
    pub fn wait;
}

debug_by_name!(CampaignFuture, Leadership { term, remaining });
