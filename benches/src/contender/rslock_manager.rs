//! rslock: one manager, on tokio's current_thread runtime.

use anyhow::{Context, Result};
use rslock::{Lock, LockManager};
use tokio::runtime::{Builder, Runtime};

use super::contract::{Contender, Task, redis_clients};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let manager = LockManager::from_clients(redis_clients(&task.nodes)?);
    Ok(Box::new(Rslock { runtime, manager, task: task.clone(), held: None }))
}

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    task: Task,
    held: Option<Lock>,
}

impl Contender for Rslock {
    fn acquire(&mut self) -> Result<()> {
        let lock = self.manager.lock(self.task.resource.as_bytes(), self.task.ttl);
        self.held = Some(self.runtime.block_on(lock)?);
        Ok(())
    }

    /// It does not say whether the lock was held.
    fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("no lock is held")?;
        self.runtime.block_on(self.manager.unlock(&held));
        Ok(())
    }
}
