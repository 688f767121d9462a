//! redbolt's engine: a thread for the nodes, and a caller that blocks until the outcome.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use redbolt::{AcquireError, Engine, LockLost, LockRequest, OwnedGuard, Released};

use super::contract::{Contender, PATIENCE, Task};
use super::redbolt_client::config;

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Caller { engine: engine(task)?, task: task.clone(), held: None }))
}

/// An engine with all nodes ready.
pub(super) fn engine(task: &Task) -> Result<Engine> {
    let engine = Engine::new(config(task)?.build()?)?;
    let until = Instant::now() + PATIENCE;
    while engine.node_report().wait()?.ready() < task.nodes.len() {
        ensure!(Instant::now() < until, "{:?}", engine.node_report().wait()?);
        std::thread::sleep(PATIENCE / 5_000);
    }
    Ok(engine)
}

struct Caller {
    engine: Engine,
    task: Task,
    held: Option<OwnedGuard>,
}

impl Contender for Caller {
    fn acquire(&mut self) -> Result<()> {
        let guard = self.engine.acquire(request(&self.task)).wait();
        self.held = Some(valid(guard)?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        released(self.held.take().context("no lock is held")?.release().wait())
    }
}

pub(super) fn request(task: &Task) -> LockRequest<'_> {
    LockRequest::new(task.resource.as_bytes()).ttl(task.ttl)
}

pub(super) fn valid(outcome: Result<OwnedGuard, AcquireError>) -> Result<OwnedGuard> {
    let guard = outcome.map_err(|error| anyhow!("{error}"))?;
    ensure!(guard.is_valid(), "granted too late");
    Ok(guard)
}

pub(super) fn released(outcome: Result<Released, LockLost>) -> Result<()> {
    outcome?;
    Ok(())
}
