//! The hand-over of commands to the engine's thread.
//!
//! A vector under a mutex, swapped whole, and one wake-up write for each sleep. It is bounded by what
//! can be in it: acquisitions and questions in flight, which the engine limits, and for each lock one
//! extension and one release. So a release is never refused, and two vectors that change places are all
//! the memory that it needs. Not here: what a command does.
//!
//! # No wake-up is lost
//!
//! Whoever pushes, and the thread before it sleeps, take the same mutex, so one of them is first. If the
//! push is first, the thread finds the command and does not sleep ([`may_sleep`](Queue::may_sleep)). If
//! the thread is first, it has left `asleep`; the first push takes that away and writes, once, after the
//! command is in the queue, and what was written stays readable until the thread polls. A writer
//! that is held up between the two writes late, which wakes the thread for nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::reply::Asker;
use super::slot::Slot;
use crate::front::client::AcquireError;
use crate::front::driver::Driver;
use crate::front::inspection::Inspection;

/// What the thread is asked to do.
pub(super) enum Command {
    Acquire(Arc<Slot>),
    /// End by then.
    Close(Instant),
    Extend(Arc<Slot>, Duration),
    /// Ask the nodes who holds a resource.
    Inspect(Box<[u8]>, Asker<Inspection, AcquireError>),
    /// Answer a question about the driver.
    Look(Box<dyn FnOnce(&Driver) + Send>),
    /// Let go of a lock, or cancel its acquisition.
    Release(Arc<Slot>),
}

impl Command {
    /// The lock that it is about.
    pub(super) fn slot(&self) -> Option<&Arc<Slot>> {
        match self {
            Self::Acquire(slot) | Self::Extend(slot, _) | Self::Release(slot) => Some(slot),
            Self::Close(_) | Self::Inspect(..) | Self::Look(_) => None,
        }
    }
}

pub(super) struct Queue {
    inner: Mutex<Inner>,
    waker: mio::Waker,
}

#[derive(Default)]
struct Inner {
    commands: Vec<Command>,
    /// The thread sleeps, or is about to, and nobody has woken it.
    asleep: bool,
    /// Nothing new is begun.
    closed: bool,
    /// Nobody takes commands any longer.
    ended: bool,
}

impl Queue {
    pub(super) fn new(waker: mio::Waker) -> Self {
        Self { inner: Mutex::default(), waker }
    }

    /// Hands a command over; gives it back if it comes too late.
    pub(super) fn push(&self, command: Command) -> Result<(), Command> {
        let mut inner = self.lock();
        let ends = matches!(command, Command::Extend(..) | Command::Release(_));
        if inner.ended || inner.closed && !ends {
            return Err(command);
        }
        inner.commands.push(command);
        self.wake(inner);
        Ok(())
    }

    /// Takes nothing new from now on, and has the thread end by `until`.
    pub(super) fn close(&self, until: Instant) {
        let mut inner = self.lock();
        inner.closed = true;
        if !inner.ended {
            inner.commands.push(Command::Close(until));
            self.wake(inner);
        }
    }

    /// Swaps all commands into `taken`, which is empty.
    pub(super) fn take(&self, taken: &mut Vec<Command>) {
        debug_assert!(taken.is_empty(), "commands are obeyed before more are taken");
        let mut inner = self.lock();
        inner.asleep = false;
        std::mem::swap(&mut inner.commands, taken);
    }

    /// Whether there is nothing to do; then the next push wakes the thread up.
    pub(super) fn may_sleep(&self) -> bool {
        let mut inner = self.lock();
        inner.asleep = inner.commands.is_empty();
        inner.asleep
    }

    /// Ends it; gives back what nobody will do.
    pub(super) fn end(&self) -> Vec<Command> {
        let mut inner = self.lock();
        inner.closed = true;
        inner.ended = true;
        std::mem::take(&mut inner.commands)
    }

    fn wake(&self, mut inner: MutexGuard<'_, Inner>) {
        let asleep = std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            // It fails only if the descriptor is gone, which lives as long as we do.
            let _ = self.waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
