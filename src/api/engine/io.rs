//! The host's side of an engine without a thread.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Registry;

use super::shared::{GRACE, Shared};
use crate::proto::debug_by_name;

/// The input and output of an [`Engine`](super::Engine) without a thread, which a task or an event loop of the program drives: see
/// [`Engine::unthreaded`](super::Engine::unthreaded). `Send`, and bound to no lifetime.
///
/// Its file descriptor ([`AsFd`], [`AsRawFd`]) becomes readable when something is to be done. Wait until it is readable or
/// [`timeout`](Self::timeout) has passed, call [`on_ready`](Self::on_ready), and so on until [`has_ended`](Self::has_ended). Locks are
/// extended, and losses noticed, by these calls alone: a task that keeps its executor busy for long delays them.
///
/// Dropping it ends the engine at once, as [`Engine::shutdown`](super::Engine::shutdown) without any time: pending futures fail with
/// [`EngineError::ShutDown`](super::EngineError::ShutDown), held locks are lost
/// ([`LossCause::ShutDown`](crate::LossCause::ShutDown)), and their releases are sent and not waited for. In a forked child it does
/// nothing.
pub struct EngineIo {
    pub(super) shared: Arc<Shared>,
    /// A second descriptor of the loop's poll.
    pub(super) registry: Registry,
}

impl EngineIo {
    /// Does everything that can be done now, and never sleeps: reads answers, fires due timers, carries out calls, delivers
    /// outcomes, and writes. Callbacks and wakers are called on this thread.
    ///
    /// Calling it at other times is harmless, also from a callback or from two threads: the second call does nothing then, and the
    /// descriptor becomes readable again. A host whose readiness is edge-triggered, as that of tokio's `AsyncFd`, clears the
    /// readiness before the call.
    pub fn on_ready(&self) {
        if self.shared.runtime.is_ours() {
            self.shared.turn();
        }
    }

    /// Returns after how long [`on_ready`](Self::on_ready) is due if the descriptor does not become readable before, as a
    /// timeout of `mio::Poll::poll`; `None`: only readiness matters. Ask again after each `on_ready`: a call that needs it earlier
    /// than it was asked for makes the descriptor readable.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        if self.shared.runtime.is_ours() { self.shared.timeout() } else { None }
    }

    /// Returns whether the engine has ended, by a shutdown or with its last handle. The descriptor becomes readable then.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.runtime.is_ours() && self.shared.has_ended()
    }
}

impl AsFd for EngineIo {
    /// The file descriptor to watch for readability.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registry.as_fd()
    }
}

impl AsRawFd for EngineIo {
    /// The descriptor of [`AsFd`]. It stays open, and does not change, until this value is dropped.
    fn as_raw_fd(&self) -> RawFd {
        self.registry.as_raw_fd()
    }
}

impl Drop for EngineIo {
    fn drop(&mut self) {
        // In a forked child the mutexes may be locked for ever, and the locks are the parent's.
        if self.shared.runtime.is_ours() {
            self.shared.queue.close(Instant::now());
            self.shared.report_by(Instant::now() + GRACE);
        }
    }
}

debug_by_name!(EngineIo { has_ended });
