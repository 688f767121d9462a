//! Acquires and releases one lock, written with the redis crate and tokio.

use std::error::Error;

use redis::{Client, cmd};
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(lock(std::env::args().skip(1).collect()))
}

async fn lock(addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    let mut nodes = Vec::new();
    for address in addresses {
        let client = Client::open(format!("redis://{address}"))?;
        nodes.push(client.get_multiplexed_async_connection().await?);
    }
    let quorum = nodes.len() / 2 + 1;
    let (mut granted, mut released) = (0, 0);
    for node in &mut nodes {
        let mut set = cmd("SET");
        set.arg(RESOURCE).arg(TOKEN).arg("NX").arg("PX").arg(10_000);
        granted += usize::from(set.query_async::<Option<String>>(node).await?.is_some());
    }
    println!("held: {}", granted >= quorum);
    for node in &mut nodes {
        let mut undo = cmd("EVAL");
        undo.arg(UNDO).arg(1).arg(RESOURCE).arg(TOKEN);
        released += undo.query_async::<usize>(node).await?;
    }
    if granted < quorum || released < quorum { Err("no majority".into()) } else { Ok(()) }
}

const RESOURCE: &str = "redbolt-weight-0";
const TOKEN: &str = "0123456789abcdef0123456789abcdef00";
const UNDO: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
