//! Plain drivers: the least cost of a lock written with redis, fred or rustis.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use fred::clients::Client;
use fred::interfaces::{ClientLike, KeysInterface, LuaInterface};
use fred::types::config::{Config, ServerConfig};
use fred::types::{Builder, Expiration, SetOptions};
use futures_util::future::try_join_all;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use redis::{cmd, pipe};
use rustis::client::{
    BatchPreparedCommand, Client as RustisClient, Config as RustisConfig,
    ServerConfig as RustisServer,
};
use rustis::commands::{
    GenericCommands, ScriptingCommands, SetCondition, SetExpiration, StringCommands,
};
use tokio::runtime::Runtime;

use super::contract::{Flight, Task};
use super::tasks;
use crate::contender::{Node, redis_clients};
use crate::wire::{GUARD, TOKEN, load_undo, write_restart_guards};

pub(super) fn start_redis(task: &Task) -> Result<Box<dyn Flight>> {
    start_redis_on(tasks::runtime()?, task)
}

pub(super) fn start_redis_on_many_threads(task: &Task) -> Result<Box<dyn Flight>> {
    start_redis_on(tasks::many_threads()?, task)
}

fn start_redis_on(runtime: Runtime, task: &Task) -> Result<Box<dyn Flight>> {
    let digest = prepare(task)?;
    let clients = redis_clients(&task.nodes)?;
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let connect =
        clients.iter().map(|client| client.get_multiplexed_async_connection_with_config(&patient));
    let connections = runtime.block_on(try_join_all(connect))?;
    Ok(Box::new(Redis { runtime, connections, digest, task: task.clone() }))
}

struct Redis {
    runtime: Runtime,
    connections: Vec<MultiplexedConnection>,
    digest: String,
    task: Task,
}

impl Flight for Redis {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let ttl = self.task.ttl.as_millis() as u64;
        tasks::fly(&self.runtime, &self.task.resources, locks, |resource, times| {
            let (connections, digest) = (self.connections.clone(), self.digest.clone());
            redis_locks(connections, digest, resource, ttl, times)
        })
    }
}

async fn redis_locks(
    mut connections: Vec<MultiplexedConnection>,
    digest: String,
    resource: String,
    ttl: u64,
    times: usize,
) -> Result<()> {
    let quorum = connections.len() / 2 + 1;
    let mut ask = pipe();
    ask.cmd("SET").arg(&resource).arg(TOKEN).arg("NX").arg("PX").arg(ttl);
    ask.cmd("PTTL").arg(GUARD);
    let mut release = cmd("EVALSHA");
    release.arg(digest).arg(1).arg(&resource).arg(TOKEN);
    for _ in 0..times {
        let asks =
            connections.iter_mut().map(|node| ask.query_async::<(Option<String>, i64)>(node));
        let granted = try_join_all(asks).await?.iter().filter(|(set, _)| set.is_some()).count();
        ensure!(granted >= quorum, "not granted");
        let releases = connections.iter_mut().map(|node| release.query_async::<usize>(node));
        let released: usize = try_join_all(releases).await?.iter().sum();
        ensure!(released >= quorum, "not held");
    }
    Ok(())
}

pub(super) fn start_fred(task: &Task) -> Result<Box<dyn Flight>> {
    let (runtime, digest) = (tasks::runtime()?, prepare(task)?);
    let clients = runtime.block_on(try_join_all(task.nodes.iter().map(connect_fred)))?;
    Ok(Box::new(Fred { runtime, clients, digest, task: task.clone() }))
}

async fn connect_fred(node: &Node) -> Result<Client> {
    let (host, port) = host_and_port(node)?;
    let server = ServerConfig::new_centralized(host, port);
    let mut builder = Builder::from_config(Config { server, ..Config::default() });
    builder.with_connection_config(|config| config.tcp.nodelay = Some(true));
    let client = builder.build()?;
    client.init().await?;
    Ok(client)
}

struct Fred {
    runtime: Runtime,
    clients: Vec<Client>,
    digest: String,
    task: Task,
}

impl Flight for Fred {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let ttl = self.task.ttl.as_millis() as i64;
        tasks::fly(&self.runtime, &self.task.resources, locks, |resource, times| {
            let (clients, digest) = (self.clients.clone(), self.digest.clone());
            fred_locks(clients, digest, resource, ttl, times)
        })
    }
}

async fn fred_locks(
    clients: Vec<Client>,
    digest: String,
    resource: String,
    ttl: i64,
    times: usize,
) -> Result<()> {
    let quorum = clients.len() / 2 + 1;
    for _ in 0..times {
        let asks = clients.iter().map(|node| fred_ask(node, &resource, ttl));
        let granted = try_join_all(asks).await?.into_iter().filter(|&granted| granted).count();
        ensure!(granted >= quorum, "not granted");
        let undo = |node: &Client| {
            let (node, digest, key) = (node.clone(), digest.clone(), resource.clone());
            async move { node.evalsha::<usize, _, _, _>(digest, key, TOKEN.as_slice()).await }
        };
        let released: usize = try_join_all(clients.iter().map(undo)).await?.iter().sum();
        ensure!(released >= quorum, "not held");
    }
    Ok(())
}

async fn fred_ask(node: &Client, resource: &str, ttl: i64) -> Result<bool> {
    let pipeline = node.pipeline();
    let ttl = Some(Expiration::PX(ttl));
    () = pipeline.set(resource, TOKEN.as_slice(), ttl, Some(SetOptions::NX), false).await?;
    () = pipeline.pttl(GUARD).await?;
    let (set, _guard): (Option<String>, i64) = pipeline.all().await?;
    Ok(set.is_some())
}

pub(super) fn start_rustis(task: &Task) -> Result<Box<dyn Flight>> {
    let (runtime, digest) = (tasks::runtime()?, prepare(task)?);
    let clients = runtime.block_on(try_join_all(task.nodes.iter().map(connect_rustis)))?;
    Ok(Box::new(Rustis { runtime, clients, digest, task: task.clone() }))
}

pub(crate) async fn connect_rustis(node: &Node) -> Result<RustisClient> {
    let (host, port) = host_and_port(node)?;
    let mut config = RustisConfig::default();
    config.server = RustisServer::Standalone { host: host.to_owned(), port };
    config.no_delay = true;
    Ok(RustisClient::connect(config).await?)
}

struct Rustis {
    runtime: Runtime,
    clients: Vec<RustisClient>,
    digest: String,
    task: Task,
}

impl Flight for Rustis {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let ttl = self.task.ttl.as_millis() as u64;
        tasks::fly(&self.runtime, &self.task.resources, locks, |resource, times| {
            let (clients, digest) = (self.clients.clone(), self.digest.clone());
            rustis_locks(clients, digest, resource, ttl, times)
        })
    }
}

async fn rustis_locks(
    clients: Vec<RustisClient>,
    digest: String,
    resource: String,
    ttl: u64,
    times: usize,
) -> Result<()> {
    let quorum = clients.len() / 2 + 1;
    for _ in 0..times {
        let asks = clients.iter().map(|node| rustis_ask(node, &resource, ttl));
        let granted = try_join_all(asks).await?.into_iter().filter(|&granted| granted).count();
        ensure!(granted >= quorum, "not granted");
        let releases = clients.iter().map(|node| async {
            let released: usize = node.evalsha(&*digest, &*resource, text(TOKEN)).await?;
            anyhow::Ok(released)
        });
        let released: usize = try_join_all(releases).await?.iter().sum();
        ensure!(released >= quorum, "not held");
    }
    Ok(())
}

async fn rustis_ask(node: &RustisClient, resource: &str, ttl: u64) -> Result<bool> {
    let mut pipeline = node.create_pipeline();
    let (free, ttl) = (SetCondition::NX, SetExpiration::Px(ttl));
    pipeline.set_with_options(resource, text(TOKEN), free, ttl).queue();
    pipeline.pttl(text(GUARD)).queue();
    let (set, _guard): (Option<String>, i64) = pipeline.execute().await?;
    Ok(set.is_some())
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the text is ASCII")
}

fn host_and_port(node: &Node) -> Result<(&str, u16)> {
    let Node::Tcp(address) = node else { bail!("the drivers are tried over TCP only") };
    let Some((host, port)) = address.rsplit_once(':') else { bail!("{address} has no port") };
    Ok((host, port.parse()?))
}

/// Returns the digest of the script that releases.
fn prepare(task: &Task) -> Result<String> {
    write_restart_guards(&task.nodes)?;
    Ok(String::from_utf8(load_undo(&task.nodes)?)?)
}

/// A timeout instead of the default of half a second, which is too short for a thousand locks on a
/// busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
