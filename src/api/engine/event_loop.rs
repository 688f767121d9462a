//! The event loop of an engine: one driver, fed from the queue, and driven by a thread of the engine's own or by those of the program.
//!
//! In each turn it reads what the sockets have, carries out all messages that came meanwhile, and then writes: so all
//! messages of one turn make one write to each node. Invariant: a panic in redbolt ends the engine, and every caller gets an
//! outcome.

use std::io;
use std::mem;
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::executor::Executor;
use super::mailbox::Mailbox;
use super::queue::{Message, Queue};
use super::runtime::Runtime;
use super::shutdown::ShutdownReport;
use crate::api::busy;
use crate::api::driver::Driver;
use crate::api::own_poll::OwnPoll;
use crate::api::start::StartError;

pub(super) struct EventLoop {
    pub(super) poll: OwnPoll,
    runtime: Arc<Runtime>,
    mailbox: Mailbox,
    executor: Executor,
    /// In the last turn there was a message or an outcome.
    was_active: bool,
    /// When its host ends its sleep, if there is one; `None`: when it is called.
    host_wakes_at: Option<Instant>,
    /// The host was called since the last turn.
    is_host_called: bool,
    /// Until then callers are expected to write.
    busy_until: Instant,
}

impl EventLoop {
    /// A loop that is not driven yet, and its queue. It begins to connect to all nodes.
    pub(super) fn new(runtime: Arc<Runtime>) -> Result<(Self, Queue), StartError> {
        let config = &runtime.config;
        let tokens = Driver::tokens_needed(config);
        let poll = OwnPoll::new(tokens + 1, config.clock())?;
        let waker = mio::Waker::new(poll.registry(), mio::Token(tokens))?;
        let driver = Driver::in_registry(config.clone(), poll.registry(), 0..tokens)?;
        let executor = Executor::new(driver, Arc::clone(&runtime));
        let (mailbox, host_wakes_at, busy_until) = (Mailbox::default(), None, Instant::now());
        let (was_active, is_host_called) = (false, false);
        let event_loop = Self {
            poll,
            runtime,
            mailbox,
            executor,
            was_active,
            host_wakes_at,
            is_host_called,
            busy_until,
        };
        Ok((event_loop, Queue::new(waker)))
    }

    /// Works until the engine is closed, or for one turn without a sleep. Breaks when the engine has
    /// ended, with whether a bug in redbolt has ended it: panics of callbacks are caught at the call.
    pub(super) fn work(&mut self, queue: &Queue, may_sleep: bool) -> ControlFlow<bool, bool> {
        self.runtime.set_own_thread(true);
        self.is_host_called = false;
        let flow = caught(|| {
            loop {
                let is_done = self.executor.is_done();
                // Its time may have ended while it did not run: what came meanwhile is there.
                if !is_done || self.executor.has_work() {
                    self.turn(queue, may_sleep)?;
                }
                if is_done || !may_sleep {
                    return Ok(if is_done { Break(false) } else { Continue(false) });
                }
            }
        });
        self.runtime.set_own_thread(flow.is_break());
        flow
    }

    fn turn(&mut self, queue: &Queue, may_sleep: bool) -> io::Result<()> {
        self.wait(queue, may_sleep)?;
        // Before the messages, which can take long: an unread answer may arrive meanwhile.
        self.executor.driver.sockets.expire();
        self.carry_out(queue, |_| true);
        self.was_active |= self.executor.settle();
        Ok(())
    }

    /// Sleeps until something is readable, something is due, or a message was pushed, and reads.
    fn wait(&mut self, queue: &Queue, may_sleep: bool) -> io::Result<()> {
        let has_come = may_sleep && self.spin(queue);
        if has_come && !self.executor.driver.sockets.needs_loop() {
            return Ok(());
        }
        let sleeps = may_sleep && !has_come && self.mailbox.is_empty() && queue.prepare_sleep();
        if sleeps {
            self.mailbox.note_sleep();
        }
        let span = if sleeps { self.executor.deadline() } else { Some(Duration::ZERO) };
        let driver = &mut self.executor.driver;
        for event in self.poll.sleep(span, driver.latest())? {
            driver.on_event(event);
        }
        Ok(())
    }

    /// Does not sleep for a moment after a message or an outcome, or while answers are due, if the configuration asks for
    /// it: they are likely to come, and so is the next message. Returns whether one did.
    fn spin(&mut self, queue: &Queue) -> bool {
        let config = &self.runtime.config;
        let busy = config.busy_poll();
        let was_active = mem::take(&mut self.was_active);
        if busy.is_zero() || !self.mailbox.is_empty() {
            return false;
        }
        if !was_active && !self.executor.driver.sockets.awaits_answers() {
            return false;
        }
        let span = self.executor.deadline().map_or(busy, |due| due.min(busy));
        let has_come = || self.executor.driver.sockets.read_awaited() || queue.is_filled();
        busy::spin(span, || config.clock().boot(), has_come)
    }

    /// Carries out the messages that have come, up to the first that is not wanted. One reading of the clock is enough: it is
    /// earlier than the first byte of each. But it also begins the time in which nodes have to answer, so a burst of messages
    /// takes several turns.
    fn carry_out(&mut self, queue: &Queue, is_wanted: fn(&Message) -> bool) {
        self.mailbox.fill(queue);
        let now = self.runtime.config.clock().now();
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = self.mailbox.next_if(is_wanted) else { break };
            self.was_active = true;
            self.executor.execute(message, now);
        }
        self.mailbox.finish();
    }

    /// Ends everything, closes the connections, and reports.
    pub(super) fn end(self, queue: &Queue, has_failed: bool) -> ShutdownReport {
        let report = self.executor.end(self.mailbox.close(queue), has_failed);
        self.runtime.set_own_thread(false);
        report
    }
}

/// How an engine without a thread works with its host.
impl EventLoop {
    /// Carries out acquisitions and releases, and writes, on the thread of a caller. Outcomes and all other messages are left to
    /// the host. Continues with whether that is to be called, because it would come too late by itself.
    pub(super) fn write(&mut self, queue: &Queue) -> ControlFlow<bool, bool> {
        caught(|| {
            // They call no callback, and do not depend on answers that were not read.
            self.carry_out(queue, |it| matches!(it, Message::Acquire(_) | Message::Release(_)));
            let Executor { driver, outcomes, .. } = &mut self.executor;
            driver.settle();
            let has_rest = !self.mailbox.is_empty() || outcomes.has_any(driver);
            // While callers write, the host comes back before any of their requests is due, so that no call has to wake it.
            let now = Instant::now();
            self.busy_until = now + self.runtime.config.settings().response_timeout / 2;
            // The resolution of a host's timers.
            let soon = now + Duration::from_millis(1);
            let is_late = |due| self.host_wakes_at.is_none_or(|at| soon + due < at);
            let is_due = has_rest || self.executor.deadline().is_some_and(is_late);
            Ok(Continue(is_due && !mem::replace(&mut self.is_host_called, true)))
        })
    }

    /// Finds out how long the host may sleep.
    pub(super) fn find_timeout(&mut self, span: &mut Option<Duration>) -> ControlFlow<bool, bool> {
        let now = Instant::now();
        let has_rest = !self.mailbox.is_empty() || self.executor.is_done();
        let busy = if has_rest { now } else { self.busy_until }.checked_duration_since(now);
        *span = self.executor.deadline().into_iter().chain(busy).min();
        self.host_wakes_at = span.map(|span| now + span);
        Continue(false)
    }
}

/// The flow of work, which breaks off if the work fails.
fn caught(work: impl FnOnce() -> io::Result<ControlFlow<bool, bool>>) -> ControlFlow<bool, bool> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.ok().and_then(Result::ok).unwrap_or(Break(true))
}

/// Some hundred µs of work, and as many bytes as a socket takes at once.
const MESSAGES_PER_TURN: usize = 512;

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Instant;

    use redbolt_node::Node;

    use super::super::queue::ViewRequest;
    use super::super::reply::{Reply, Responder};
    use super::super::shared::Shared;
    use super::super::{Engine, Handle};
    use super::*;
    use crate::api::config::Config;
    use crate::proto::{LockRequest, Wait, grows_in_proportion};

    /// An engine whose loop is driven by the test.
    struct Thread {
        event_loop: EventLoop,
        shared: Arc<Shared>,
    }

    impl Thread {
        fn turn(&mut self) {
            self.event_loop.turn(&self.shared.queue, true).unwrap();
        }

        fn carry_out(&mut self) {
            self.event_loop.carry_out(&self.shared.queue, |_| true);
        }

        fn end(self) {
            self.shared.end(self.event_loop, false);
        }
    }

    /// Its node cannot be reached.
    fn thread() -> Thread {
        thread_of(Config::builder().node("127.0.0.1:1").build().unwrap())
    }

    fn thread_of(config: Config) -> Thread {
        let runtime = Arc::new(Runtime::new(config, true));
        let (event_loop, queue) = EventLoop::new(Arc::clone(&runtime)).unwrap();
        Thread { event_loop, shared: Arc::new(Shared::new(runtime, queue, None)) }
    }

    /// It did not run between its turn and the end of its time. Meanwhile the release was confirmed.
    #[test]
    fn what_came_before_its_time_was_over_is_read_before_it_ends() {
        let node = Node::start().unwrap();
        let builder = Config::builder().node(&node.address().to_string());
        let mut thread = thread_of(builder.new_nodes().build().unwrap());
        let handle = Handle::new(Arc::clone(&thread.shared), None);
        let engine = Engine { handle: Arc::new(handle) };
        let asked = engine.acquire(LockRequest::new("job").ttl(Duration::from_secs(20)));
        while thread.shared.runtime.in_flight() > 0 {
            thread.turn();
        }
        let now = thread.shared.runtime.config.clock().now();
        thread.event_loop.executor.execute(Message::Close(Instant::now()), now);
        thread.event_loop.executor.driver.settle();
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread.event_loop.executor.has_work() && thread.event_loop.executor.is_done());
        let flow = thread.event_loop.work(&thread.shared.queue, true);
        assert_eq!(flow, Break(false));
        assert!(!thread.event_loop.executor.has_work());
        // No thread drives it, so a wait would not end.
        thread.end();
        drop((asked, engine));
    }

    #[test]
    fn inspections_are_answered_in_proportion() {
        grows_in_proportion(512, |count| {
            let mut thread = thread();
            let asked: Vec<_> = (0..count).map(|_| Arc::new(Reply::default())).collect();
            for (at, reply) in asked.iter().enumerate() {
                let runtime = &thread.shared.runtime;
                let in_flight = Some(runtime.enter().unwrap());
                let responder = Responder::new(Arc::clone(reply), Arc::clone(runtime), in_flight);
                let name = format!("resource {at}").into_bytes().into_boxed_slice();
                let message = Message::View(name, ViewRequest::Inspect(responder));
                assert!(thread.shared.queue.push(message).is_ok());
            }
            move || {
                // All are in flight before the first is answered.
                for _ in 0..count / MESSAGES_PER_TURN + 1 {
                    thread.carry_out();
                }
                while thread.shared.runtime.in_flight() > 0 {
                    thread.turn();
                }
                for reply in asked {
                    assert!(reply.poll("a QueryFuture", Waker::noop()).is_ready());
                }
            }
        });
    }

    #[test]
    fn acquisitions_are_refused_and_cancelled_in_proportion() {
        grows_in_proportion(512, |count| {
            let mut thread = thread();
            let handle = Handle::new(Arc::clone(&thread.shared), None);
            let engine = Engine { handle: Arc::new(handle) };
            let names: Vec<_> = (0..count).map(|at| format!("resource {at}")).collect();
            let requests =
                names.iter().map(|name| LockRequest::new(name.as_bytes()).wait(Wait::Forever));
            let waiting: Vec<_> = requests.map(|request| engine.acquire(request)).collect();
            move || {
                for _ in 0..count / MESSAGES_PER_TURN + 1 {
                    thread.carry_out();
                    thread.event_loop.executor.deliver();
                }
                drop(waiting);
                while thread.shared.runtime.in_flight() > 0 {
                    thread.carry_out();
                    thread.event_loop.executor.deliver();
                }
                // No thread drives it, so a wait would not end.
                thread.end();
                drop(engine);
            }
        });
    }
}
