//! Clients that wait for all nodes: rslock, and the first version of a lock that a user would write
//! with a driver.

use anyhow::{Result, bail, ensure};
use futures_util::future::{join_all, try_join_all};
use redis::aio::MultiplexedConnection;
use redis::{cmd, pipe};
use rslock::LockManager;
use rustis::client::Client;
use rustis::commands::{ScriptingCommands, SetCondition, SetExpiration, StringCommands};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::contract::{Contender, LIMIT};
use crate::contender::{Task, redis_clients};
use crate::flight::drivers::{connect_rustis, text};
use crate::wire::{TOKEN, load_undo};

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Runs a pair, and aborts it at the limit, because some clients wait forever.
fn within_limit(runtime: &Runtime, pair: impl Future<Output = Result<()>>) -> Result<()> {
    runtime.block_on(async {
        match timeout(LIMIT, pair).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("broken off after {LIMIT:?}"),
        }
    })
}

pub(super) fn start_rslock(task: &Task) -> Result<Box<dyn Contender>> {
    let manager = LockManager::from_clients(redis_clients(&task.nodes)?);
    Ok(Box::new(Rslock { runtime: runtime()?, manager, task: task.clone() }))
}

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    task: Task,
}

impl Contender for Rslock {
    fn pair(&mut self) -> Result<()> {
        within_limit(&self.runtime, async {
            let lock = self.manager.lock(self.task.resource.as_bytes(), self.task.ttl).await?;
            self.manager.unlock(&lock).await;
            Ok(())
        })
    }
}

pub(super) fn start_redis(task: &Task) -> Result<Box<dyn Contender>> {
    let (runtime, digest) = (runtime()?, digest(task)?);
    let clients = redis_clients(&task.nodes)?;
    let connect = clients.iter().map(redis::Client::get_multiplexed_async_connection);
    let connections = runtime.block_on(try_join_all(connect))?;
    Ok(Box::new(Redis { runtime, connections, digest, task: task.clone() }))
}

struct Redis {
    runtime: Runtime,
    connections: Vec<MultiplexedConnection>,
    digest: String,
    task: Task,
}

impl Contender for Redis {
    fn pair(&mut self) -> Result<()> {
        let Self { runtime, connections, digest, task } = self;
        let (resource, ttl) = (&task.resource, task.ttl.as_millis() as u64);
        let mut set = pipe();
        set.cmd("SET").arg(resource).arg(TOKEN).arg("NX").arg("PX").arg(ttl);
        let mut release = cmd("EVALSHA");
        release.arg(&*digest).arg(1).arg(resource).arg(TOKEN);
        let quorum = connections.len() / 2 + 1;
        within_limit(runtime, async {
            let asks =
                connections.iter_mut().map(|node| set.query_async::<(Option<String>,)>(node));
            let asked = join_all(asks).await;
            let granted = asked.iter().flatten().filter(|(set,)| set.is_some()).count();
            ensure!(granted >= quorum, "granted by {granted}");
            let releases = connections.iter_mut().map(|node| release.query_async::<usize>(node));
            let released: usize = join_all(releases).await.into_iter().flatten().sum();
            ensure!(released >= quorum, "released by {released}");
            Ok(())
        })
    }
}

pub(super) fn start_rustis(task: &Task) -> Result<Box<dyn Contender>> {
    let (runtime, digest) = (runtime()?, digest(task)?);
    let clients = runtime.block_on(try_join_all(task.nodes.iter().map(connect_rustis)))?;
    Ok(Box::new(Rustis { runtime, clients, digest, task: task.clone() }))
}

struct Rustis {
    runtime: Runtime,
    clients: Vec<Client>,
    digest: String,
    task: Task,
}

impl Contender for Rustis {
    fn pair(&mut self) -> Result<()> {
        let (resource, digest, ttl) =
            (&*self.task.resource, &*self.digest, self.task.ttl.as_millis() as u64);
        let quorum = self.clients.len() / 2 + 1;
        let set = async |node: &Client| {
            let (free, ttl) = (SetCondition::NX, SetExpiration::Px(ttl));
            node.set_with_options(resource, text(TOKEN), free, ttl).await
        };
        let release = async |node: &Client| -> Result<usize, rustis::Error> {
            node.evalsha(digest, resource, text(TOKEN)).await
        };
        within_limit(&self.runtime, async {
            let asked = join_all(self.clients.iter().map(set)).await;
            let granted = asked.into_iter().flatten().filter(|&set: &bool| set).count();
            ensure!(granted >= quorum, "granted by {granted}");
            let released = join_all(self.clients.iter().map(release)).await;
            let released: usize = released.into_iter().flatten().sum();
            ensure!(released >= quorum, "released by {released}");
            Ok(())
        })
    }
}

fn digest(task: &Task) -> Result<String> {
    Ok(String::from_utf8(load_undo(&task.nodes)?)?)
}
