//! redbolt's engine, used by one blocking thread, and by tasks on an executor.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use redbolt::{
    AcquireError, Engine, LockLost, LockRequest, Released,
    engine::{AcquireFuture, ReleaseFuture},
};
use tokio::runtime::Runtime;

use super::contract::{Flight, Task};
use super::tasks;
use crate::contender::{self, redbolt_config};

pub(super) fn start_blocking(task: &Task) -> Result<Box<dyn Flight>> {
    Ok(Box::new(Producer { engine: engine(task)?, task: task.clone() }))
}

pub(super) fn start_futures(task: &Task) -> Result<Box<dyn Flight>> {
    let (runtime, engine) = (tasks::runtime()?, engine(task)?);
    Ok(Box::new(Futures { runtime, engine, task: task.clone() }))
}

fn engine(task: &Task) -> Result<Engine> {
    let (nodes, ttl) = (task.nodes.clone(), task.ttl);
    let config =
        redbolt_config(&contender::Task { nodes, resource: String::new(), ttl })?.build()?;
    let engine = Engine::new(config)?;
    let until = Instant::now() + PATIENCE;
    while engine.node_report().wait()?.ready() < task.nodes.len() {
        ensure!(Instant::now() < until, "{:?}", engine.node_report().wait()?);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(engine)
}

/// A thread that keeps as many calls in flight as the plan permits, and waits for the oldest.
struct Producer {
    engine: Engine,
    task: Task,
}

/// The call in flight for a resource.
enum Call {
    Acquire(AcquireFuture),
    Release(ReleaseFuture),
}

impl Flight for Producer {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let mut calls = VecDeque::new();
        let mut begun = self.task.resources.len().min(locks);
        for slot in 0..begun {
            calls.push_back((slot, self.request(slot)));
        }
        while let Some((slot, call)) = calls.pop_front() {
            match call {
                Call::Acquire(acquire) => {
                    let guard = acquire.wait().map_err(refused)?;
                    ensure!(guard.is_valid(), "granted too late");
                    calls.push_back((slot, Call::Release(guard.release())));
                }
                Call::Release(release) => {
                    released(release.wait())?;
                    if begun < locks {
                        begun += 1;
                        calls.push_back((slot, self.request(slot)));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Producer {
    fn request(&self, slot: usize) -> Call {
        let resource = self.task.resources[slot].as_bytes();
        Call::Acquire(self.engine.acquire(LockRequest::new(resource).ttl(self.task.ttl)))
    }
}

struct Futures {
    runtime: Runtime,
    engine: Engine,
    task: Task,
}

impl Flight for Futures {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let ttl = self.task.ttl;
        tasks::fly(&self.runtime, &self.task.resources, locks, |resource, times| {
            let engine = self.engine.clone();
            async move {
                for _ in 0..times {
                    let request = LockRequest::new(resource.as_bytes()).ttl(ttl);
                    let guard = engine.acquire(request).await.map_err(refused)?;
                    ensure!(guard.is_valid(), "granted too late");
                    released(guard.release().await)?;
                }
                Ok(())
            }
        })
    }
}

fn refused(error: AcquireError) -> anyhow::Error {
    anyhow!("{error}")
}

fn released(outcome: Result<Released, LockLost>) -> Result<()> {
    outcome?;
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(10);
