//! redbolt's embedded API in a host's mio loop that has no other work.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use redbolt::{Config, Driver, Event, LockId, LockRequest};

use super::contract::{BUSY, Contender, PATIENCE, Task};
use super::redbolt_client::config;

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.build()?)
}

/// Its host spins on reads for a while before it sleeps.
pub(super) fn start_busy(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.busy_poll(BUSY).build()?)
}

fn connect(task: &Task, config: Config) -> Result<Box<dyn Contender>> {
    let poll = mio::Poll::new()?;
    let tokens = 0..Driver::tokens_needed(&config);
    let events = mio::Events::with_capacity(tokens.len());
    let driver = Driver::in_registry(config, poll.registry(), tokens)?;
    let mut host = Host { poll, events, driver, task: task.clone(), held: None };
    let until = Instant::now() + PATIENCE;
    while host.driver.node_report().ready() < task.nodes.len() {
        ensure!(Instant::now() < until, "{:?}", host.driver.node_report());
        host.process()?;
    }
    Ok(Box::new(host))
}

struct Host {
    poll: mio::Poll,
    events: mio::Events,
    driver: Driver,
    task: Task,
    held: Option<LockId>,
}

impl Contender for Host {
    fn acquire(&mut self) -> Result<()> {
        let request = LockRequest::new(self.task.resource.as_bytes()).ttl(self.task.ttl);
        let id = self.driver.acquire(request)?;
        match self.outcome()? {
            Event::Granted(of) if of == id => self.held = Some(id),
            other => bail!("{other:?}"),
        }
        ensure!(!self.driver.remaining(id).is_zero(), "granted too late");
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let id = self.held.take().context("no lock is held")?;
        self.driver.release(id);
        match self.outcome()? {
            Event::Released(of, _) if of == id => Ok(()),
            other => bail!("{other:?}"),
        }
    }
}

impl Host {
    fn outcome(&mut self) -> Result<Event> {
        loop {
            match self.driver.poll_event() {
                Some(Event::Node(..)) => {}
                Some(event) => return Ok(event),
                None => self.process()?,
            }
        }
    }

    fn process(&mut self) -> Result<()> {
        // Does nothing without busy-polling.
        if self.driver.process_busy() {
            return Ok(());
        }
        self.poll.poll(&mut self.events, self.driver.timeout())?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.process();
        Ok(())
    }
}
