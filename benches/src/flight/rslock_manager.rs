//! rslock: one manager, a task for each lock in flight.

use anyhow::Result;
use rslock::LockManager;
use tokio::runtime::Runtime;

use super::contract::{Flight, Task};
use super::tasks;
use crate::contender::redis_clients;

pub(super) fn start(task: &Task) -> Result<Box<dyn Flight>> {
    let manager = LockManager::from_clients(redis_clients(&task.nodes)?);
    Ok(Box::new(Rslock { runtime: tasks::runtime()?, manager, task: task.clone() }))
}

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    task: Task,
}

impl Flight for Rslock {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let ttl = self.task.ttl;
        tasks::fly(&self.runtime, &self.task.resources, locks, |resource, times| {
            let manager = self.manager.clone();
            async move {
                for _ in 0..times {
                    let lock = manager.lock(resource.as_bytes(), ttl).await?;
                    manager.unlock(&lock).await;
                }
                Ok(())
            }
        })
    }
}
