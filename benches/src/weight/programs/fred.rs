//! Acquires and releases one lock, written with fred.

use std::error::Error;

use fred::clients::Client;
use fred::interfaces::{ClientLike, KeysInterface, LuaInterface};
use fred::types::config::{Config, ServerConfig};
use fred::types::{Builder, Expiration, SetOptions};
use tokio::runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(lock(std::env::args().skip(1).collect()))
}

async fn lock(addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    let mut nodes: Vec<Client> = Vec::new();
    for address in addresses {
        let (host, port) = address.rsplit_once(':').ok_or("no port")?;
        let server = ServerConfig::new_centralized(host, port.parse()?);
        let client = Builder::from_config(Config { server, ..Config::default() }).build()?;
        client.init().await?;
        nodes.push(client);
    }
    let quorum = nodes.len() / 2 + 1;
    let (mut granted, mut released) = (0, 0);
    for node in &nodes {
        let expiration = Some(Expiration::PX(10_000));
        let set: Option<String> =
            node.set(RESOURCE, TOKEN, expiration, Some(SetOptions::NX), false).await?;
        granted += usize::from(set.is_some());
    }
    println!("held: {}", granted >= quorum);
    for node in &nodes {
        released += node.eval::<usize, _, _, _>(UNDO, RESOURCE, TOKEN).await?;
    }
    if granted < quorum || released < quorum { Err("no majority".into()) } else { Ok(()) }
}

const RESOURCE: &str = "redbolt-weight-0";
const TOKEN: &str = "0123456789abcdef0123456789abcdef00";
const UNDO: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
