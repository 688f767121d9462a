//! rustis, on tokio's current_thread runtime: the least cost of a lock written with it.

use std::sync::Arc;

use anyhow::Result;
use futures_util::future::try_join_all;
use rustis::client::{BatchPreparedCommand, Client, IntoConfig};
use rustis::commands::{
    GenericCommands, ScriptingCommands, SetCondition, SetExpiration, StringCommands,
};
use tokio::runtime::Builder;

use super::at_once::{self, Call};
use super::contract::{Contender, Node, PATIENCE, Task, redis_address};
use crate::wire::{GUARD, TOKEN, load_undo, write_restart_guards};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    write_restart_guards(&task.nodes)?;
    let words = Arc::new(Words {
        resource: task.resource.clone(),
        token: String::from_utf8(TOKEN.to_vec())?,
        guard: String::from_utf8(GUARD.to_vec())?,
        digest: String::from_utf8(load_undo(&task.nodes)?)?,
    });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let clients = runtime.block_on(try_join_all(task.nodes.iter().map(connect)))?;
    let ttl = task.ttl.as_millis() as u64;
    let call = move |node: &Client, call| {
        let (node, words) = (node.clone(), Arc::clone(&words));
        async move {
            match call {
                Call::Acquire => acquire(&node, &words, ttl).await,
                Call::Release => {
                    let Words { resource, token, digest, .. } = &*words;
                    Ok(node.evalsha::<usize>(digest, resource, token).await? == 1)
                }
            }
        }
    };
    Ok(at_once::start(runtime, clients, call))
}

async fn connect(node: &Node) -> Result<Client> {
    let mut config = redis_address(node).into_config()?;
    (config.no_delay, config.command_timeout) = (true, PATIENCE);
    Ok(Client::connect(config).await?)
}

/// The arguments of the commands as text: rustis would send bytes as a list of numbers.
struct Words {
    resource: String,
    token: String,
    guard: String,
    digest: String,
}

async fn acquire(node: &Client, words: &Words, ttl: u64) -> Result<bool> {
    let mut pipeline = node.create_pipeline();
    let expiration = SetExpiration::Px(ttl);
    pipeline.set_with_options(&words.resource, &words.token, SetCondition::NX, expiration).queue();
    pipeline.pttl(&words.guard).queue();
    let (granted, _guard): (bool, i64) = pipeline.execute().await?;
    Ok(granted)
}
