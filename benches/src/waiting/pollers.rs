//! Lock clients that retry after a pause: rslock and redlock, with default settings.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use redlock::RedLock;
use rslock::{LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::contract::PATIENCE;
use crate::contender::{Contender, Node, Task, redis_clients};

pub(super) fn start_rslock(task: &Task) -> Result<Box<dyn Contender>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let manager = LockManager::from_clients(redis_clients(&task.nodes)?);
    Ok(Box::new(Rslock { runtime, manager, task: task.clone(), held: None }))
}

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    task: Task,
    held: Option<LockGuard>,
}

impl Contender for Rslock {
    fn acquire(&mut self) -> Result<()> {
        let acquire = async {
            let resource = self.task.resource.as_bytes();
            timeout(PATIENCE, self.manager.acquire(resource, self.task.ttl)).await
        };
        self.held = Some(self.runtime.block_on(acquire)??);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("no lock is held")?;
        self.runtime.block_on(held.release());
        Ok(())
    }
}

pub(super) fn start_redlock(task: &Task) -> Result<Box<dyn Contender>> {
    let address = |node: &Node| match node {
        Node::Tcp(address) => format!("redis://{address}"),
        Node::Unix(path) => format!("unix://{path}"),
    };
    // A lock borrows its manager. Both live as long as the program.
    let manager = RedLock::new(task.nodes.iter().map(address).collect());
    Ok(Box::new(Redlock { manager: Box::leak(Box::new(manager)), task: task.clone(), held: None }))
}

struct Redlock {
    manager: &'static RedLock,
    task: Task,
    held: Option<redlock::Lock<'static>>,
}

impl Contender for Redlock {
    /// Its own `acquire` is this loop, without a limit.
    fn acquire(&mut self) -> Result<()> {
        let (until, ttl) = (Instant::now() + PATIENCE, self.task.ttl.as_millis() as usize);
        while Instant::now() < until {
            self.held = self.manager.lock(self.task.resource.as_bytes(), ttl)?;
            if self.held.is_some() {
                return Ok(());
            }
        }
        bail!("the lock was never released");
    }

    fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("no lock is held")?;
        self.manager.unlock(&held);
        Ok(())
    }
}
