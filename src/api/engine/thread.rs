//! The engine's thread: an event loop over one driver, fed from the queue.
//!
//! In each turn it reads what the sockets have, carries out all messages that came meanwhile, and then writes: so all
//! messages of one turn make one write to each node. Invariant: a panic in redbolt ends the engine, and every caller gets an
//! outcome.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::executor::Executor;
use super::mailbox::Mailbox;
use super::shared::Shared;
use crate::api::busy;
use crate::api::driver::Driver;
use crate::api::own_poll::OwnPoll;

pub(super) struct Thread {
    poll: OwnPoll,
    shared: Arc<Shared>,
    mailbox: Mailbox,
    executor: Executor,
    /// In the last turn there was a message or an outcome.
    was_active: bool,
}

impl Thread {
    pub(super) fn new(poll: OwnPoll, driver: Driver, shared: Arc<Shared>) -> Self {
        let executor = Executor::new(driver, Arc::clone(&shared.runtime));
        Self { poll, shared, mailbox: Mailbox::default(), executor, was_active: false }
    }

    /// Works until the engine is closed.
    pub(super) fn run(mut self) {
        self.shared.runtime.adopt_thread();
        // Foreign code is caught where it is called, so this is a bug of ours.
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        self.end(!matches!(ended, Ok(Ok(()))));
    }

    fn work(&mut self) -> io::Result<()> {
        while !self.executor.is_done() {
            self.turn()?;
        }
        // Its time may have ended while it did not run: what came meanwhile is there.
        if self.executor.has_work() { self.turn() } else { Ok(()) }
    }

    fn turn(&mut self) -> io::Result<()> {
        self.wait()?;
        // Before the messages, which can take long: an unread answer may arrive meanwhile.
        self.executor.driver.sockets.expire();
        self.carry_out();
        self.was_active |= self.executor.settle();
        Ok(())
    }

    /// Sleeps until something is readable, something is due, or a message was pushed, and reads.
    fn wait(&mut self) -> io::Result<()> {
        let has_come = self.spin();
        if has_come && !self.executor.driver.sockets.needs_loop() {
            return Ok(());
        }
        let sleeps = !has_come && self.mailbox.is_empty() && self.shared.queue.prepare_sleep();
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
    fn spin(&mut self) -> bool {
        let config = &self.shared.runtime.config;
        let busy = config.busy_poll();
        let was_active = std::mem::take(&mut self.was_active);
        if busy.is_zero() || !self.mailbox.is_empty() {
            return false;
        }
        if !was_active && !self.executor.driver.sockets.awaits_answers() {
            return false;
        }
        let span = self.executor.deadline().map_or(busy, |due| due.min(busy));
        let has_come =
            || self.executor.driver.sockets.read_awaited() || self.shared.queue.is_filled();
        busy::spin(span, || config.clock().boot(), has_come)
    }

    /// Carries out the messages that have come. One reading of the clock is enough: it is earlier than the first byte of
    /// each. But it also begins the time in which nodes have to answer, so a burst of messages takes several turns.
    fn carry_out(&mut self) {
        self.mailbox.fill(&self.shared.queue);
        let now = self.shared.runtime.config.clock().now();
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = self.mailbox.next() else { break };
            self.was_active = true;
            self.executor.execute(message, now);
        }
        self.mailbox.finish();
    }

    fn end(self, has_failed: bool) {
        let Self { poll, shared, mailbox, executor, .. } = self;
        let report = executor.end(mailbox.close(&shared.queue), has_failed);
        // Before the report, after which a shutdown returns.
        drop(poll);
        shared.end(report);
    }
}

/// Some hundred µs of work, and as many bytes as a socket takes at once.
const MESSAGES_PER_TURN: usize = 512;

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Instant;

    use redbolt_node::Node;

    use super::super::queue::{Message, Queue, ViewRequest};
    use super::super::reply::{Reply, Responder};
    use super::super::runtime::Runtime;
    use super::super::{Engine, Handle, ShutdownReport};
    use super::*;
    use crate::api::config::Config;
    use crate::proto::{LockRequest, Wait, grows_in_proportion};

    /// An engine whose thread is worked by the test, and whose node cannot be reached.
    fn thread() -> Thread {
        thread_of(Config::builder().node("127.0.0.1:1").build().unwrap())
    }

    fn thread_of(config: Config) -> Thread {
        let tokens = Driver::tokens_needed(&config);
        let poll = OwnPoll::new(tokens + 1, config.clock()).unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(tokens)).unwrap();
        let driver = Driver::in_registry(config.clone(), poll.registry(), 0..tokens).unwrap();
        let shared = Shared::new(Runtime::new(config), Queue::new(waker));
        Thread::new(poll, driver, Arc::new(shared))
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
            thread.turn().unwrap();
        }
        let now = thread.shared.runtime.config.clock().now();
        thread.executor.execute(Message::Close(Instant::now()), now);
        thread.executor.driver.settle();
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread.executor.has_work() && thread.executor.is_done());
        thread.work().unwrap();
        assert!(!thread.executor.has_work());
        // Nobody works for it, so that it cannot be waited for.
        thread.shared.end(ShutdownReport::default());
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
                // All of them are under way before the first is answered.
                for _ in 0..count / MESSAGES_PER_TURN + 1 {
                    thread.carry_out();
                }
                while thread.shared.runtime.in_flight() > 0 {
                    thread.turn().unwrap();
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
                    thread.executor.deliver();
                }
                drop(waiting);
                while thread.shared.runtime.in_flight() > 0 {
                    thread.carry_out();
                    thread.executor.deliver();
                }
                // Nobody works for it, so that it cannot be waited for.
                thread.shared.end(ShutdownReport::default());
                drop(engine);
            }
        });
    }
}
