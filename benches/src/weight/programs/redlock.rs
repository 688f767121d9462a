//! Acquires and releases one lock with redlock.

use std::error::Error;

use redlock::RedLock;

fn main() -> Result<(), Box<dyn Error>> {
    let nodes = std::env::args().skip(1).map(|node| format!("redis://{node}/")).collect();
    let manager = RedLock::new(nodes);
    let lock = manager.lock(b"redbolt-weight-0", 10_000)?.ok_or("not granted")?;
    println!("held");
    manager.unlock(&lock);
    Ok(())
}
