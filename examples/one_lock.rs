//! The smallest program: a lock acquired and released on the given nodes.
//!
//! ```text
//! cargo run --example one_lock -- 10.0.0.1 10.0.0.2 10.0.0.3
//! ```

use std::env;
use std::error::Error;

use redbolt::{Config, Engine};

fn main() -> Result<(), Box<dyn Error>> {
    // This is only for nodes that are really new. In production an operator runs `redbolt init`,
    // once.
    let config = Config::builder().nodes(env::args().skip(1)).new_nodes().build()?;
    let engine = Engine::new(config)?;
    match engine.lock("redbolt-example").try_acquire().wait()? {
        Some(lock) => println!("held, and then released: {}", lock.release().wait()?),
        None => println!("another client holds the lock"),
    }
    Ok(())
}
