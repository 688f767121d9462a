//! fred, on tokio's current_thread runtime: the least cost of a lock written with it.

use anyhow::{Context, Result};
use fred::clients::Client;
use fred::interfaces::{ClientLike, KeysInterface, LuaInterface};
use fred::types::config::{Config, ServerConfig};
use fred::types::{Builder, Expiration, Key, SetOptions, Value};
use futures_util::future::try_join_all;
use tokio::runtime;

use super::at_once::{self, Call};
use super::contract::{Contender, Node, PATIENCE, Task};
use crate::wire::{GUARD, TOKEN, load_undo, write_restart_guards};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    write_restart_guards(&task.nodes)?;
    let digest = String::from_utf8(load_undo(&task.nodes)?)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let clients = runtime.block_on(try_join_all(task.nodes.iter().map(connect)))?;
    let (resource, ttl) = (Key::from(task.resource.clone()), task.ttl.as_millis() as i64);
    let call = move |node: &Client, call| {
        let (node, digest, resource) = (node.clone(), digest.clone(), resource.clone());
        async move {
            match call {
                Call::Acquire => acquire(&node, resource, ttl).await,
                Call::Release => {
                    let token = Value::from_static(TOKEN);
                    Ok(node.evalsha::<usize, _, _, _>(digest, resource, token).await? == 1)
                }
            }
        }
    };
    Ok(at_once::start(runtime, clients, call))
}

async fn connect(node: &Node) -> Result<Client> {
    let server = match node {
        Node::Tcp(address) => {
            let (host, port) = address.rsplit_once(':').context("an address without a port")?;
            ServerConfig::new_centralized(host, port.parse()?)
        }
        Node::Unix(path) => ServerConfig::Unix { path: path.into() },
    };
    let mut builder = Builder::from_config(Config { server, ..Config::default() });
    builder.with_connection_config(|config| config.tcp.nodelay = Some(true));
    builder.with_performance_config(|config| config.default_command_timeout = PATIENCE);
    let client = builder.build()?;
    client.init().await?;
    Ok(client)
}

async fn acquire(node: &Client, resource: Key, ttl: i64) -> Result<bool> {
    let (pipeline, token) = (node.pipeline(), Value::from_static(TOKEN));
    let expiration = Some(Expiration::PX(ttl));
    () = pipeline.set(resource, token, expiration, Some(SetOptions::NX), false).await?;
    () = pipeline.pttl(GUARD).await?;
    let (set, _guard): (Option<String>, i64) = pipeline.all().await?;
    Ok(set.is_some())
}
