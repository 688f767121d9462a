//! The redis crate's multiplexed connections: the least cost of a lock written with them.

use std::sync::Arc;

use anyhow::Result;
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::runtime::{Builder, Runtime};

use super::at_once::{self, Call};
use super::contract::{Contender, PATIENCE, Task, redis_clients};
use super::redis_sync::requests;

pub(super) fn start_current_thread(task: &Task) -> Result<Box<dyn Contender>> {
    start(task, Builder::new_current_thread().enable_all().build()?)
}

pub(super) fn start_multi_thread(task: &Task) -> Result<Box<dyn Contender>> {
    start(task, Builder::new_multi_thread().enable_all().build()?)
}

fn start(task: &Task, runtime: Runtime) -> Result<Box<dyn Contender>> {
    let clients = redis_clients(&task.nodes)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let connect = |client: &Client| {
        let (client, config) = (client.clone(), config.clone());
        async move { client.get_multiplexed_async_connection_with_config(&config).await }
    };
    let connections = runtime.block_on(try_join_all(clients.iter().map(connect)))?;
    let requests = Arc::new(requests(task)?);
    let call = move |node: &MultiplexedConnection, call| {
        let (mut node, requests) = (node.clone(), Arc::clone(&requests));
        async move {
            Ok(match call {
                Call::Acquire => {
                    let (set, _guard): (Option<String>, i64) =
                        requests.ask.query_async(&mut node).await?;
                    set.is_some()
                }
                Call::Release => requests.undo.query_async::<usize>(&mut node).await? == 1,
            })
        }
    };
    Ok(at_once::start(runtime, connections, call))
}
