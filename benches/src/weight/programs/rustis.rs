//! Acquires and releases one lock, written with rustis.

use std::error::Error;

use rustis::client::Client;
use rustis::commands::{ScriptingCommands, SetCondition, SetExpiration, StringCommands};
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(lock(std::env::args().skip(1).collect()))
}

async fn lock(addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    let mut nodes = Vec::new();
    for address in addresses {
        nodes.push(Client::connect(format!("redis://{address}")).await?);
    }
    let quorum = nodes.len() / 2 + 1;
    let (mut granted, mut released) = (0, 0);
    for node in &nodes {
        let expiration = SetExpiration::Px(10_000);
        let set = node.set_with_options(RESOURCE, TOKEN, SetCondition::NX, expiration).await?;
        granted += usize::from(set);
    }
    println!("held: {}", granted >= quorum);
    for node in &nodes {
        released += node.eval::<usize>(UNDO, RESOURCE, TOKEN).await?;
    }
    if granted < quorum || released < quorum { Err("no majority".into()) } else { Ok(()) }
}

const RESOURCE: &str = "redbolt-weight-0";
const TOKEN: &str = "0123456789abcdef0123456789abcdef00";
const UNDO: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
