//! Acquires and releases one lock with redbolt.

use std::error::Error;
use std::time::Duration;

use redbolt::{Client, Config, LockRequest};

fn main() -> Result<(), Box<dyn Error>> {
    let nodes: Vec<String> = std::env::args().skip(1).collect();
    let builder = Config::builder().response_timeout(Duration::from_secs(5)).new_nodes();
    let builder = nodes.iter().try_fold(builder, |builder, node| builder.node(node))?;
    let client = Client::new(builder.build()?)?;
    client.warm_up(Duration::from_secs(5));
    let guard = client.acquire(LockRequest::new(b"redbolt-weight-0").ttl(Duration::from_secs(10)))?;
    println!("held");
    guard.release();
    Ok(())
}
