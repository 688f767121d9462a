//! redbolt's blocking API as a waiter, and its engine, called by a blocking thread and awaited by a
//! task.

use anyhow::{Context, Result, anyhow, ensure};
use redbolt::{Client, Engine, LockGuard, LockRequest, OwnedGuard, Wait, config::WakeStrategy};

use tokio::runtime::{Builder, Runtime};

use super::contract::PATIENCE;
use crate::contender::{Asked, Contender, Task, redbolt_config};

pub(super) fn start(task: &Task, wake: WakeStrategy) -> Result<Box<dyn Contender>> {
    // A guard borrows its client. Both live as long as the program.
    let config = redbolt_config(task)?.wake(wake).build()?;
    let client: &'static Client = Box::leak(Box::new(Client::new(config)?));
    let report = client.warm_up(PATIENCE);
    ensure!(report.ready() == task.nodes.len(), "{report:?}");
    Ok(Box::new(Waiter { client, task: task.clone(), held: None }))
}

struct Waiter {
    client: &'static Client,
    task: Task,
    held: Option<LockGuard<'static>>,
}

impl Contender for Waiter {
    fn acquire(&mut self) -> Result<()> {
        let granted = self.client.acquire(request(&self.task));
        self.held = Some(granted.map_err(|error| anyhow!("{error}"))?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let outcome = self.held.take().context("no lock is held")?.release();
        outcome?;
        Ok(())
    }

    fn asked(&self) -> Option<Asked> {
        Some(Asked::from(&self.client.metrics().metrics))
    }
}

pub(super) fn start_engine(task: &Task) -> Result<Box<dyn Contender>> {
    let engine = Engine::new(redbolt_config(task)?.build()?)?;
    Ok(Box::new(EngineWaiter { engine, task: task.clone(), held: None }))
}

struct EngineWaiter {
    engine: Engine,
    task: Task,
    held: Option<OwnedGuard>,
}

impl Contender for EngineWaiter {
    fn acquire(&mut self) -> Result<()> {
        let granted = self.engine.acquire(request(&self.task)).wait();
        self.held = Some(granted.map_err(|error| anyhow!("{error}"))?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let outcome = self.held.take().context("no lock is held")?.release().wait();
        outcome?;
        Ok(())
    }

    fn asked(&self) -> Option<Asked> {
        counted(&self.engine)
    }
}

pub(super) fn start_futures(task: &Task) -> Result<Box<dyn Contender>> {
    let runtime = Builder::new_current_thread().build()?;
    let engine = Engine::new(redbolt_config(task)?.build()?)?;
    Ok(Box::new(FuturesWaiter { runtime, engine, task: task.clone(), held: None }))
}

struct FuturesWaiter {
    runtime: Runtime,
    engine: Engine,
    task: Task,
    held: Option<OwnedGuard>,
}

impl Contender for FuturesWaiter {
    fn acquire(&mut self) -> Result<()> {
        let granted = self.runtime.block_on(self.engine.acquire(request(&self.task)));
        self.held = Some(granted.map_err(|error| anyhow!("{error}"))?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("no lock is held")?;
        let outcome = self.runtime.block_on(held.release());
        outcome?;
        Ok(())
    }

    fn asked(&self) -> Option<Asked> {
        counted(&self.engine)
    }
}

fn counted(engine: &Engine) -> Option<Asked> {
    engine.metrics().wait().ok().map(|report| Asked::from(&report.metrics))
}

fn request(task: &Task) -> LockRequest<'_> {
    LockRequest::new(task.resource.as_bytes()).ttl(task.ttl).wait(Wait::UpTo(PATIENCE))
}
