//! A lock as whoever holds it uses it: its state, and the way to the thread.

use std::sync::Arc;
use std::time::Duration;

use super::future::{ExtendFuture, LossFuture};
use super::queue::Message;
use super::reply::Reply;
use super::shared::Shared;
use super::slot::LockSlot;
use crate::api::guard::ExtendError;
use crate::proto::{FencingToken, LockMode, LossCause, debug_by_name};

/// A lock that an [`Engine`](super::Engine) has granted, to look at and to extend: the guards of an engine are this and end it, and work
/// that is [run under a lock](crate::RequestBuilder::run) is given a copy. Whoever keeps a copy holds nothing once the lock was released.
/// `Send` and `Sync`.
#[derive(Clone)]
pub struct HeldLock {
    pub(super) slot: Arc<LockSlot>,
    shared: Arc<Shared>,
}

impl HeldLock {
    pub(super) fn new(slot: Arc<LockSlot>, shared: Arc<Shared>) -> Self {
        Self { slot, shared }
    }

    /// Queues the release of the lock, or cancels its acquisition. Never waits.
    pub(super) fn release(&self) {
        self.hand_over(Message::Release(Arc::clone(&self.slot)));
    }

    /// Queues the message that ends its holder's use of the lock.
    pub(super) fn hand_over(&self, message: Message) {
        let runtime = &self.slot.runtime;
        // The parent of a forked child holds the lock, and the child must not take the mutexes.
        if !runtime.is_ours() {
            return;
        }
        let (callbacks, waiter) = self.slot.mark_released();
        if self.shared.push(message).is_err() {
            runtime.wake(self.slot.end(Err(LossCause::ShutDown)));
        }
        // After the message, and one by one: their destructors may panic, or drop the last engine.
        runtime.discard(waiter);
        for callback in callbacks {
            runtime.discard(callback);
        }
    }

    pub(super) fn try_extend(&self, ttl: Duration) -> Result<ExtendFuture, ExtendError> {
        let reply = self.slot.begin_extension(ttl)?;
        if self.shared.push(Message::Extend(Arc::clone(&self.slot), ttl)).is_err() {
            self.slot.fail_extension(self.slot.not_extended_by(LossCause::ShutDown));
        }
        Ok(ExtendFuture::new(reply, Arc::clone(&self.slot.runtime)))
    }

    /// Asks for another mode. The future is ready at once if it cannot be changed.
    pub(super) fn change_mode(&self, mode: LockMode) -> ExtendFuture {
        self.try_change_mode(mode).unwrap_or_else(|error| self.failed(error))
    }

    pub(super) fn try_change_mode(&self, mode: LockMode) -> Result<ExtendFuture, ExtendError> {
        let reply = self.slot.begin_mode_change(mode)?;
        if self.shared.push(Message::ChangeMode(Arc::clone(&self.slot), mode)).is_err() {
            self.slot.fail_mode_change(self.slot.not_extended_by(LossCause::ShutDown));
        }
        Ok(ExtendFuture::new(reply, Arc::clone(&self.slot.runtime)))
    }

    fn failed(&self, error: ExtendError) -> ExtendFuture {
        let reply = Arc::new(Reply::of(Err(error)));
        ExtendFuture::new(reply, Arc::clone(&self.slot.runtime))
    }
}

/// What every holder has of it.
impl HeldLock {
    /// The validity that is left, by the clock as it is now; zero once the lock is lost. The engine's
    /// thread is not asked: if it is late, this is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.slot.remaining()
    }

    /// Whether the lock is held, by the clock as it is now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Beside whom it is held.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.slot.mode()
    }

    /// The number of its permit, from 0 on; `None` unless it was asked for
    /// ([`LockRequest::permits`](crate::LockRequest::permits)), and after the lock was lost.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        self.slot.permit()
    }

    /// The fencing token, for whatever the lock protects; `None` unless it was asked for
    /// ([`LockRequest::fenced`](crate::LockRequest::fenced)), and after the lock was lost.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.slot.fencing_token()
    }

    /// Asks the nodes to keep the lock for `ttl` from now, which is cut to whole milliseconds and at most
    /// the configuration's `max_ttl`. The validity is never shortened by it. One at a time: a second one is
    /// refused while the first is under way.
    pub fn extend(&self, ttl: Duration) -> ExtendFuture {
        self.try_extend(ttl).unwrap_or_else(|error| self.failed(error))
    }

    /// Watches for the loss of the lock: gives its cause, or `None` once the lock was held to its end and
    /// released or detached. Each call makes a watcher of its own, which may outlive the lock.
    ///
    /// ```no_run
    /// # async fn stop_work() {}
    /// # async fn f(lock: redbolt::engine::HeldLock) {
    /// if let Some(cause) = lock.lost().await {
    ///     eprintln!("the lock is lost: {cause}");
    ///     stop_work().await;
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> LossFuture {
        LossFuture::new(Arc::clone(&self.slot))
    }

    /// Has `callback` called once if the lock is lost; never if it is released or dropped before that.
    /// A call that has begun when the release is asked for by another thread goes on beside it.
    ///
    /// It runs on the engine's thread, or where [`EngineIo::on_ready`](super::EngineIo::on_ready) is called, and all
    /// locks of the engine wait while it does: keep it short, and let it not wait for this engine. A panic in it is
    /// caught, and counted by [`Engine::panics`](crate::Engine::panics). If the lock is lost already, it is called at
    /// once on the calling thread. Several may be set; each is called.
    pub fn on_loss(&self, callback: impl FnOnce(LossCause) + Send + 'static) {
        self.slot.on_loss(Box::new(callback));
    }
}

debug_by_name!(HeldLock { remaining });

#[cfg(test)]
mod tests {
    use std::task::{Poll, Waker};

    use super::*;
    use crate::api::config::Config;
    use crate::api::engine::queue::Queue;
    use crate::api::engine::runtime::Runtime;
    use crate::proto::LockRequest;

    /// The thread may learn of a loss before it takes the release from the queue.
    #[test]
    fn a_loss_behind_a_release_is_told_by_the_ending_alone() {
        let config = Config::builder().node("127.0.0.1:1").build().unwrap();
        let poll = mio::Poll::new().unwrap();
        let queue = Queue::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let shared = Arc::new(Shared::new(Arc::new(Runtime::new(config, true)), queue, None));
        let runtime = &shared.runtime;
        let in_flight = runtime.enter().unwrap();
        let request = LockRequest::new(b"job").into_owned();
        let slot = Arc::new(LockSlot::new(Arc::clone(runtime), in_flight, request));
        slot.on_loss(Box::new(|_| panic!("it was released")));
        HeldLock::new(Arc::clone(&slot), Arc::clone(&shared)).release();
        slot.lose(LossCause::Gone);
        assert!(slot.end(Err(LossCause::Gone)).is_none());
        let lost = slot.lost_by(LossCause::Gone);
        assert_eq!(slot.poll_outcome(Waker::noop()), Poll::Ready(Err(lost)));
        assert_eq!(runtime.panics(), 0);
        assert_eq!(shared.queue.end().len(), 1, "one release");
    }
}
