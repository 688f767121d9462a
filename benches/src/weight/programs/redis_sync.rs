//! Acquires and releases one lock, written with the redis crate.

use std::error::Error;

use redis::{Client, Connection, cmd};

fn main() -> Result<(), Box<dyn Error>> {
    let connect = |node: String| Client::open(format!("redis://{node}"))?.get_connection();
    let mut nodes =
        std::env::args().skip(1).map(connect).collect::<Result<Vec<Connection>, _>>()?;
    let quorum = nodes.len() / 2 + 1;
    let mut granted = 0;
    for node in &mut nodes {
        let mut set = cmd("SET");
        set.arg(RESOURCE).arg(TOKEN).arg("NX").arg("PX").arg(10_000);
        granted += usize::from(set.query::<Option<String>>(node)?.is_some());
    }
    println!("held: {}", granted >= quorum);
    let mut released = 0;
    for node in &mut nodes {
        released += cmd("EVAL").arg(UNDO).arg(1).arg(RESOURCE).arg(TOKEN).query::<usize>(node)?;
    }
    if granted < quorum || released < quorum { Err("no majority".into()) } else { Ok(()) }
}

const RESOURCE: &str = "redbolt-weight-0";
const TOKEN: &str = "0123456789abcdef0123456789abcdef00";
const UNDO: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
