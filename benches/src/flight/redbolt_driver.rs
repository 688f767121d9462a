//! redbolt's embedded API in a host's mio loop that has no other work.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redbolt::{Driver, Event, LockId, LockRequest};

use super::contract::{Flight, Task};
use crate::contender::{self, redbolt_config};

pub(super) fn start(task: &Task) -> Result<Box<dyn Flight>> {
    let (nodes, ttl) = (task.nodes.clone(), task.ttl);
    let config =
        redbolt_config(&contender::Task { nodes, resource: String::new(), ttl })?.build()?;
    let poll = mio::Poll::new()?;
    let tokens = 0..Driver::tokens_needed(&config);
    let events = mio::Events::with_capacity(tokens.len());
    let driver = Driver::in_registry(config, poll.registry(), tokens)?;
    let slots =
        Slots::with_capacity_and_hasher(task.resources.len(), BuildHasherDefault::default());
    let mut host = Host { poll, events, driver, task: task.clone(), slots };
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
    slots: Slots,
}

/// The index of the resource of each lock in flight.
type Slots = HashMap<LockId, usize, BuildHasherDefault<Folded>>;

/// A hasher for ids, because a host with many locks in flight looks them up. A single
/// multiplication is the whole hash, because the floor finds its lock in a queue.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

impl Flight for Host {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let Self { driver, task, slots, .. } = self;
        let mut flown = Flown { locks, begun: 0, ended: 0 };
        driver.batch(|driver| {
            (0..task.resources.len()).try_for_each(|slot| flown.begin(slot, driver, task, slots))
        })?;
        while flown.ended < locks {
            self.process()?;
            // Everything that these events lead to is sent in one write to each node.
            let Self { driver, task, slots, .. } = self;
            driver.batch(|driver| flown.go_on(driver, task, slots))?;
        }
        Ok(())
    }
}

/// The numbers of locks of a call that have begun and ended.
struct Flown {
    locks: usize,
    begun: usize,
    ended: usize,
}

impl Flown {
    fn begin(
        &mut self,
        slot: usize,
        driver: &mut Driver,
        task: &Task,
        slots: &mut Slots,
    ) -> Result<()> {
        if self.begun < self.locks {
            let id =
                driver.acquire(LockRequest::new(task.resources[slot].as_bytes()).ttl(task.ttl))?;
            slots.insert(id, slot);
            self.begun += 1;
        }
        Ok(())
    }

    /// Releases granted locks, and requests new ones for those released.
    fn go_on(&mut self, driver: &mut Driver, task: &Task, slots: &mut Slots) -> Result<()> {
        while let Some(event) = driver.poll_event() {
            match event {
                Event::Node(..) => {}
                Event::Granted(id) => {
                    ensure!(!driver.remaining(id).is_zero(), "granted too late");
                    driver.release(id);
                }
                Event::Released(id, _) => {
                    self.ended += 1;
                    let slot = slots.remove(&id).context("the lock is in flight")?;
                    self.begin(slot, driver, task, slots)?;
                }
                other => bail!("{other:?}"),
            }
        }
        Ok(())
    }
}

impl Host {
    fn process(&mut self) -> Result<()> {
        self.poll.poll(&mut self.events, self.driver.timeout())?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.process();
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
