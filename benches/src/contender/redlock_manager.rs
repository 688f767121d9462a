//! redlock: goes from node to node, with a new connection for each command.

use anyhow::{Context, Result};
use redlock::{Lock, RedLock};

use super::contract::{Contender, Task, redis_address};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    // A lock borrows its manager. Both live as long as the program.
    let manager = RedLock::new(task.nodes.iter().map(redis_address).collect());
    Ok(Box::new(Redlock { manager: Box::leak(Box::new(manager)), task: task.clone(), held: None }))
}

struct Redlock {
    manager: &'static RedLock,
    task: Task,
    held: Option<Lock<'static>>,
}

impl Contender for Redlock {
    fn acquire(&mut self) -> Result<()> {
        let ttl = self.task.ttl.as_millis() as usize;
        let held = self.manager.lock(self.task.resource.as_bytes(), ttl)?;
        self.held = Some(held.context("not granted")?);
        Ok(())
    }

    /// It does not say whether the lock was held.
    fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("no lock is held")?;
        self.manager.unlock(&held);
        Ok(())
    }
}
