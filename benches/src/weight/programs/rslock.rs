//! Acquires and releases one lock with rslock.

use std::error::Error;
use std::time::Duration;

use rslock::LockManager;
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let nodes = std::env::args().skip(1).map(|node| format!("redis://{node}")).collect();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let manager = LockManager::new(nodes);
        let lock = manager
            .lock("redbolt-weight-0".as_bytes(), Duration::from_secs(10))
            .await
            .map_err(|error| format!("{error:?}"))?;
        println!("held");
        manager.unlock(&lock).await;
        Ok(())
    })
}
