//! redbolt's embedded API in a host's mio loop that has nothing else to do.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redbolt::{Driver, Event, LockId, LockRequest};

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

/// For which resource each lock is in flight.
type Slots = HashMap<LockId, usize, BuildHasherDefault<Folded>>;

/// A host that has many locks open finds its own by their number: no more than a multiplication may stand
/// between them, for the floor has the place in its queue.
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
            // What the events of a turn lead to goes out in one write for each node.
            let Self { driver, task, slots, .. } = self;
            driver.batch(|driver| flown.go_on(driver, task, slots))?;
        }
        Ok(())
    }
}

/// How many locks of a call have begun and ended.
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

    /// Releases what was granted, and begins anew where a lock was released.
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
                    let slot = slots.remove(&id).context("it is in flight")?;
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
        self.poll.poll(&mut self.events, self.driver.deadline())?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.process();
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
