//! redbolt's engine, awaited on tokio's current_thread runtime.

use anyhow::{Context, Result};
use redbolt::{Engine, OwnedGuard};
use tokio::runtime::{Builder, Runtime};

use super::contract::{Contender, Task};
use super::redbolt_engine::{engine, released, request, valid};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let (runtime, engine) = (Builder::new_current_thread().build()?, engine(task)?);
    Ok(Box::new(Futures { runtime, engine, task: task.clone(), held: None }))
}

struct Futures {
    runtime: Runtime,
    engine: Engine,
    task: Task,
    held: Option<OwnedGuard>,
}

impl Contender for Futures {
    fn acquire(&mut self) -> Result<()> {
        let guard = self.runtime.block_on(self.engine.acquire(request(&self.task)));
        self.held = Some(valid(guard)?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("no lock is held")?;
        released(self.runtime.block_on(held.release()))
    }
}
