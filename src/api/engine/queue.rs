//! The hand-over of messages to the engine's thread.
//!
//! A vector under a mutex, swapped whole, and one wake-up write for each sleep. It is bounded by what
//! can be in it: acquisitions and inspections in flight, which the engine limits, and for each lock one
//! extension, one change of its mode and one release. So a release is never refused, and two vectors that change places are all
//! the memory that it needs. Questions about the driver are not limited: they are wanted most when all else
//! is refused, and are answered as soon as they are taken.
//!
//! # No wake-up is lost
//!
//! A push, and the thread before it sleeps ([`prepare_sleep`](Queue::prepare_sleep)), take the same mutex, so one of them is
//! first. If the push is first, the thread finds the message and does not sleep. If the thread is first, it has set
//! `asleep`; the first push clears that and writes, once, after the message is in the queue, and what was written stays
//! readable until the thread polls. A push that is delayed between the two writes late, which wakes the thread for nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::observer_slot::ObserverSlot;
use super::reply::Responder;
use super::slot::LockSlot;
use crate::api::driver::Driver;
use crate::api::error::{AcquireError, EngineError};
use crate::api::inspection::{ForceUnlockReport, Inspection};
use crate::api::report::NodeReport;
use crate::net::lock;
use crate::proto::{DetachedLock, LockMode, RequestError, UnlockScope};

/// What the thread is asked to do.
pub(super) enum Message {
    Acquire(Arc<LockSlot>),
    /// Hold a lock that was detached, and call this with the outcome.
    Attach(Arc<LockSlot>, Box<DetachedLock>, Attached),
    ChangeMode(Arc<LockSlot>, LockMode),
    /// End by then.
    Close(Instant),
    Detach(Arc<LockSlot>, Responder<Option<DetachedLock>, EngineError>),
    Extend(Arc<LockSlot>, Duration),
    /// Answer a question about the driver.
    ReadDriver(Box<dyn FnOnce(&Driver) + Send>),
    /// Observe who leads by the lock on this resource.
    Observe(Box<[u8]>, Arc<ObserverSlot>),
    /// Release a lock, or cancel its acquisition.
    Release(Arc<LockSlot>),
    Unobserve(Arc<ObserverSlot>),
    /// Ask the nodes about a resource.
    View(Box<[u8]>, ViewRequest),
    /// Connect to all nodes.
    WarmUp(WarmUp, Responder<NodeReport, EngineError>),
}

/// Takes the outcome of attaching a lock. Above the queue, it makes the guard.
pub(super) type Attached = Box<dyn FnOnce(Result<(), AcquireError>) + Send>;

/// Why the nodes are asked about a resource, and where the answer goes.
pub(super) enum ViewRequest {
    ForceUnlock { scope: UnlockScope, responder: Responder<ForceUnlockReport, AcquireError> },
    Inspect(Responder<Inspection, AcquireError>),
}

impl ViewRequest {
    pub(super) fn refuse(self, error: RequestError) {
        match self {
            Self::ForceUnlock { responder, .. } => responder.send(Err(error.into())),
            Self::Inspect(responder) => responder.send(Err(error.into())),
        }
    }
}

/// Which connections are waited for, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarmUp {
    pub(super) within: Duration,
    /// The second connection of each node as well, for as long again.
    pub(super) push: bool,
}

impl Message {
    /// The lock that it is about.
    pub(super) fn slot(&self) -> Option<&Arc<LockSlot>> {
        match self {
            Self::Acquire(slot)
            | Self::Attach(slot, ..)
            | Self::ChangeMode(slot, _)
            | Self::Detach(slot, _)
            | Self::Extend(slot, _)
            | Self::Release(slot) => Some(slot),
            Self::Close(_)
            | Self::ReadDriver(_)
            | Self::Observe(..)
            | Self::Unobserve(_)
            | Self::View(..)
            | Self::WarmUp(..) => None,
        }
    }

    /// The observer that it would begin.
    pub(super) fn observer(&self) -> Option<&Arc<ObserverSlot>> {
        match self {
            Self::Observe(_, observer) => Some(observer),
            _ => None,
        }
    }
}

pub(super) struct Queue {
    inner: Mutex<Pushed>,
    /// There are messages: for a check without the mutex, which may be late.
    is_filled: AtomicBool,
    waker: mio::Waker,
}

#[derive(Default)]
struct Pushed {
    messages: Vec<Message>,
    /// The thread sleeps, or is about to, and was not woken.
    asleep: bool,
    /// Nothing new is taken.
    closed: bool,
    /// The thread takes no more messages.
    ended: bool,
    /// The host of an engine without a thread wants a turn.
    turn_due: bool,
}

impl Queue {
    pub(super) fn new(waker: mio::Waker) -> Self {
        Self { inner: Mutex::default(), is_filled: AtomicBool::new(false), waker }
    }

    /// Hands a message over; returns it if it comes too late.
    pub(super) fn push(&self, message: Message) -> Result<(), Message> {
        let mut inner = lock(&self.inner);
        let ends = matches!(message, Message::Extend(..) | Message::Release(_));
        if inner.ended || inner.closed && !ends {
            return Err(message);
        }
        inner.messages.push(message);
        self.wake(inner);
        Ok(())
    }

    /// Hands over messages that begin together. Returns whether they came in time.
    pub(super) fn push_all(&self, messages: impl IntoIterator<Item = Message>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return false;
        }
        inner.messages.extend(messages);
        self.wake(inner);
        true
    }

    /// Takes nothing new from now on, and has the thread end by `until`.
    pub(super) fn close(&self, until: Instant) {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        if !inner.ended {
            inner.messages.push(Message::Close(until));
            self.wake(inner);
        }
    }

    /// Swaps all messages into `taken`, which is empty.
    pub(super) fn take(&self, taken: &mut Vec<Message>) {
        debug_assert!(taken.is_empty(), "messages are carried out before more are taken");
        let mut inner = lock(&self.inner);
        inner.asleep = false;
        self.is_filled.store(false, Ordering::Relaxed);
        std::mem::swap(&mut inner.messages, taken);
    }

    /// Whether a message was pushed, as far as it can be seen without the mutex.
    pub(super) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Relaxed)
    }

    /// Has the next push wake the thread, unless there are messages. Returns whether the thread is to sleep.
    pub(super) fn prepare_sleep(&self) -> bool {
        let mut inner = lock(&self.inner);
        inner.asleep = inner.messages.is_empty();
        inner.asleep
    }

    /// Ends it. Returns the messages that will not be carried out.
    pub(super) fn end(&self) -> Vec<Message> {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        inner.ended = true;
        std::mem::take(&mut inner.messages)
    }

    /// Asks for a turn, or notes that it has begun.
    pub(super) fn set_turn_due(&self, is_due: bool) {
        lock(&self.inner).turn_due = is_due;
    }

    /// Whether anything came while the loop was driven.
    pub(super) fn is_due(&self) -> bool {
        let inner = lock(&self.inner);
        inner.turn_due || !inner.messages.is_empty()
    }

    /// Makes the descriptor readable that the thread or the host waits for.
    pub(super) fn ring(&self) {
        // It fails only if the descriptor is gone, which lives as long as we do.
        let _ = self.waker.wake();
    }

    fn wake(&self, mut inner: MutexGuard<'_, Pushed>) {
        self.is_filled.store(true, Ordering::Relaxed);
        let asleep = std::mem::take(&mut inner.asleep);
        // The write is a system call, and the thread takes the mutex first when it wakes up.
        drop(inner);
        if asleep {
            self.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        queue: Queue,
        poll: mio::Poll,
        events: mio::Events,
    }

    impl Bench {
        fn new() -> Self {
            let poll = mio::Poll::new().unwrap();
            let queue = Queue::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
            Self { queue, poll, events: mio::Events::with_capacity(8) }
        }

        fn push(&self) -> Result<(), Message> {
            self.queue.push(Message::ReadDriver(Box::new(|_| ())))
        }

        /// Whether the waker was written to since the last look: each write is told of once.
        fn was_woken(&mut self) -> bool {
            self.poll.poll(&mut self.events, Some(Duration::ZERO)).unwrap();
            !self.events.is_empty()
        }

        fn take(&self) -> usize {
            let mut taken = Vec::new();
            self.queue.take(&mut taken);
            taken.len()
        }
    }

    #[test]
    fn one_write_for_each_sleep_and_none_without() {
        let mut bench = Bench::new();
        assert!(bench.push().is_ok());
        assert!(!bench.was_woken(), "nobody sleeps");
        assert!(!bench.queue.prepare_sleep(), "there is something to do");
        assert_eq!(bench.take(), 1);
        for _ in 0..2 {
            assert!(bench.queue.prepare_sleep());
            assert!(bench.push().is_ok());
            assert!(bench.was_woken());
            assert!(bench.push().is_ok());
            assert!(!bench.was_woken(), "it was woken already");
            assert_eq!(bench.take(), 2);
        }
        // It woke up by itself, and nobody need wake it.
        assert!(bench.queue.prepare_sleep());
        assert_eq!(bench.take(), 0);
        assert!(bench.push().is_ok());
        assert!(!bench.was_woken());
    }

    #[test]
    fn what_comes_too_late_is_given_back() {
        let mut bench = Bench::new();
        assert!(bench.queue.prepare_sleep());
        bench.queue.close(Instant::now());
        assert!(bench.was_woken());
        assert!(bench.push().is_err(), "nothing new");
        assert_eq!(bench.take(), 1);
        bench.queue.close(Instant::now());
        assert_eq!(bench.queue.end().len(), 1);
        bench.queue.close(Instant::now());
        assert!(bench.queue.end().is_empty());
    }
}
