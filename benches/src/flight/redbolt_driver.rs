//! redbolt's embedded front in a host's mio loop that has nothing else to do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redbolt::{Ask, Driver, Event, LockId};

use super::{Flight, Task};
use crate::contender::{self, redbolt_config};

pub(super) fn start(task: &Task) -> Result<Box<dyn Flight>> {
    let (nodes, ttl) = (task.nodes.clone(), task.ttl);
    let config =
        redbolt_config(&contender::Task { nodes, resource: String::new(), ttl })?.build()?;
    let poll = mio::Poll::new()?;
    let tokens = 0..Driver::tokens_needed(&config);
    let events = mio::Events::with_capacity(tokens.len());
    let driver = Driver::in_registry(config, poll.registry(), tokens)?;
    let mut host = Host { poll, events, driver, task: task.clone(), slots: HashMap::new() };
    let until = Instant::now() + PATIENCE;
    while host.driver.nodes().ready() < task.nodes.len() {
        ensure!(Instant::now() < until, "{:?}", host.driver.nodes());
        host.turn()?;
    }
    Ok(Box::new(host))
}

struct Host {
    poll: mio::Poll,
    events: mio::Events,
    driver: Driver,
    task: Task,
    /// Which resource a lock in flight is for.
    slots: HashMap<LockId, usize>,
}

impl Flight for Host {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let (mut begun, mut ended) = (0, 0);
        while begun < self.task.resources.len().min(locks) {
            self.begin(begun)?;
            begun += 1;
        }
        while ended < locks {
            match self.driver.poll_event() {
                None => self.turn()?,
                Some(Event::Node(..)) => {}
                Some(Event::Granted(id)) => {
                    ensure!(!self.driver.remaining(id).is_zero(), "granted too late");
                    self.driver.release(id);
                }
                Some(Event::Released(id, _)) => {
                    let slot = self.slots.remove(&id).context("it is in flight")?;
                    ended += 1;
                    if begun < locks {
                        self.begin(slot)?;
                        begun += 1;
                    }
                }
                Some(other) => bail!("{other:?}"),
            }
        }
        Ok(())
    }
}

impl Host {
    fn begin(&mut self, slot: usize) -> Result<()> {
        let ask = Ask::new(self.task.resources[slot].as_bytes()).ttl(self.task.ttl);
        let id = self.driver.acquire(&ask)?;
        self.slots.insert(id, slot);
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        self.poll.poll(&mut self.events, self.driver.deadline())?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.turn();
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
