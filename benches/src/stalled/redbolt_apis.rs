//! redbolt's APIs with default settings, except for `dead_peer_timeout`.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use redbolt::{Client, Config, Driver, Engine, Event, LockId, LockLost, LockRequest, Released};

use super::contract::Contender;
use crate::contender::{Node, Task};

/// Returns a configuration with default timeouts, because the long ones of the other measurements
/// would hide the cost of a dead node.
fn config(task: &Task) -> Result<Config> {
    let builder = Config::builder().dead_peer_timeout(Duration::from_millis(250)).new_nodes();
    let builder = task.nodes.iter().fold(builder, |builder, node| match node {
        Node::Tcp(address) => builder.node(address),
        Node::Unix(path) => builder.node(&format!("unix://{path}")),
    });
    Ok(builder.build()?)
}

fn request(task: &Task) -> LockRequest<'_> {
    LockRequest::new(task.resource.as_bytes()).ttl(task.ttl)
}

fn released(outcome: Result<Released, LockLost>) -> Result<()> {
    outcome?;
    Ok(())
}

pub(super) fn start_client(task: &Task) -> Result<Box<dyn Contender>> {
    let client = Client::new(config(task)?)?;
    let report = client.warm_up(PATIENCE);
    ensure!(report.ready() == task.nodes.len(), "{report:?}");
    Ok(Box::new(Blocking { client, task: task.clone() }))
}

struct Blocking {
    client: Client,
    task: Task,
}

impl Contender for Blocking {
    fn pair(&mut self) -> Result<()> {
        let guard = self.client.acquire(request(&self.task)).map_err(|error| anyhow!("{error}"))?;
        released(guard.release())
    }
}

pub(super) fn start_engine(task: &Task) -> Result<Box<dyn Contender>> {
    let engine = Engine::new(config(task)?)?;
    let until = Instant::now() + PATIENCE;
    while engine.node_report().wait()?.ready() < task.nodes.len() {
        ensure!(Instant::now() < until, "{:?}", engine.node_report().wait()?);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Box::new(Handed { engine, task: task.clone() }))
}

struct Handed {
    engine: Engine,
    task: Task,
}

impl Contender for Handed {
    fn pair(&mut self) -> Result<()> {
        let granted = self.engine.acquire(request(&self.task)).wait();
        released(granted.map_err(|error| anyhow!("{error}"))?.release().wait())
    }
}

pub(super) fn start_driver(task: &Task) -> Result<Box<dyn Contender>> {
    let config = config(task)?;
    let poll = mio::Poll::new()?;
    let tokens = 0..Driver::tokens_needed(&config);
    let events = mio::Events::with_capacity(tokens.len());
    let driver = Driver::in_registry(config, poll.registry(), tokens)?;
    let mut host = Host { poll, events, driver, task: task.clone() };
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
}

impl Contender for Host {
    fn pair(&mut self) -> Result<()> {
        let id = self.driver.acquire(request(&self.task))?;
        match self.outcome(id)? {
            Event::Granted(_) => {}
            Event::Refused(_, refusal) => bail!("{}", self.driver.report(&refusal)),
            other => bail!("{other:?}"),
        }
        ensure!(!self.driver.remaining(id).is_zero(), "granted too late");
        self.driver.release(id);
        match self.outcome(id)? {
            Event::Released(..) => Ok(()),
            other => bail!("{other:?}"),
        }
    }
}

impl Host {
    fn outcome(&mut self, id: LockId) -> Result<Event> {
        loop {
            match self.driver.poll_event() {
                Some(Event::Node(..)) => {}
                Some(
                    event @ (Event::Granted(of) | Event::Refused(of, _) | Event::Released(of, _)),
                ) if of == id => return Ok(event),
                Some(other) => bail!("{other:?}"),
                None => self.process()?,
            }
        }
    }

    fn process(&mut self) -> Result<()> {
        self.poll.poll(&mut self.events, self.driver.timeout())?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.process();
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
