//! Many waiters for one resource: each is granted it, releases it at once, and the next follows.
//!
//! All are in one process, so no node has to send notifications: in one driver, in which they
//! queue, and as tasks on one engine. Waiters in other processes are in `waiting` and `crowd`.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use futures_util::future::try_join_all;
use redbolt::{Config, ConfigBuilder, Engine, Event, LockRequest, Wait};
use tokio::runtime::{Builder, Runtime};

use super::at_once::Cost;
use super::host::{Host, PATIENCE};
use crate::stats::cpu_time;

/// A driver in which many wait.
pub struct Waiters {
    host: Host,
}

impl Waiters {
    /// Connects to new nodes.
    ///
    /// # Errors
    ///
    /// They are not ready.
    pub fn connect(nodes: &[String]) -> Result<Self> {
        Ok(Self { host: Host::connect(patient(), nodes)? })
    }

    /// Lets this many request the lock at once, and returns the cost of all when each has had it.
    ///
    /// # Errors
    ///
    /// One was not granted the lock.
    pub fn wait(&mut self, waiters: usize) -> Result<Cost> {
        let (start, cpu) = (Instant::now(), cpu_time());
        self.host
            .driver
            .batch(|driver| (0..waiters).try_for_each(|_| driver.acquire(request()).map(drop)))?;
        let mut open = waiters;
        while open > 0 {
            match self.host.event()? {
                Event::Granted(id) => self.host.driver.release(id),
                Event::Released(..) => open -= 1,
                event => self.host.void(event)?,
            }
        }
        Ok(cost(start, cpu))
    }
}

/// An engine on which many tasks wait.
pub struct Tasks {
    runtime: Runtime,
    engine: Engine,
}

impl Tasks {
    /// Connects to new nodes.
    ///
    /// # Errors
    ///
    /// They are not ready.
    pub fn connect(nodes: &[String]) -> Result<Self> {
        let engine = Engine::new(patient().new_nodes().nodes(nodes).build()?)?;
        let until = Instant::now() + PATIENCE;
        while engine.node_report().wait()?.ready() < nodes.len() {
            ensure!(Instant::now() < until, "{:?}", engine.node_report().wait()?);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self { runtime: Builder::new_current_thread().build()?, engine })
    }

    /// Lets this many request the lock at once, and returns the cost of all when each has had it.
    ///
    /// # Errors
    ///
    /// One was not granted the lock.
    pub fn wait(&mut self, waiters: usize) -> Result<Cost> {
        let (start, cpu) = (Instant::now(), cpu_time());
        let one = || async {
            let guard = self.engine.acquire(request()).await.map_err(|error| anyhow!("{error}"))?;
            guard.release().await?;
            anyhow::Ok(())
        };
        self.runtime.block_on(try_join_all((0..waiters).map(|_| one())))?;
        Ok(cost(start, cpu))
    }
}

fn patient() -> ConfigBuilder {
    Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE)
}

fn request() -> LockRequest<'static> {
    LockRequest::new(b"redbolt-wanted-0")
        .ttl(Duration::from_secs(30))
        .wait(Wait::UpTo(6 * PATIENCE))
}

fn cost(start: Instant, cpu: Duration) -> Cost {
    let (cpu, wall) = (cpu_time() - cpu, start.elapsed());
    Cost { cpu: cpu.as_nanos() as u64, wall: wall.as_nanos() as u64 }
}

#[cfg(test)]
mod tests {
    use redbolt_test_servers::servers;

    use super::*;
    use crate::counts::Counts;

    #[test]
    fn each_waiter_gets_it_once() {
        let servers = servers(1);
        let nodes = [servers[0].address()];
        Waiters::connect(&nodes).unwrap().wait(5).unwrap();
        // The restart guard is written by a `SET` as well.
        let before = Counts::of(&servers).sets().unwrap();
        Tasks::connect(&nodes).unwrap().wait(7).unwrap();
        let after = Counts::of(&servers).sets().unwrap();
        assert!(after[0] - before[0] >= 7, "{before:?} {after:?}");
    }
}
