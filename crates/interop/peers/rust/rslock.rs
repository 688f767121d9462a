//! rslock, on a majority of all nodes.

mod peer;

use std::collections::HashMap;
use std::time::Duration;

use peer::{Adapter, Outcome};
use rslock::{Lock, LockError, LockManager};
use tokio::runtime::{Builder, Runtime};

struct Peer {
    runtime: Runtime,
    manager: LockManager,
    held: HashMap<String, Lock>,
}

impl Adapter for Peer {
    fn attempt(&mut self, name: &str, ttl: usize) -> Outcome<bool> {
        let ttl = Duration::from_millis(ttl as u64);
        match self.runtime.block_on(self.manager.lock(name.as_bytes(), ttl)) {
            Ok(lock) => {
                self.held.insert(name.to_owned(), lock);
                Ok(true)
            }
            Err(LockError::Unavailable) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn release(&mut self, name: &str) -> Outcome<()> {
        let lock = self.held.remove(name).ok_or("it is not held")?;
        self.runtime.block_on(self.manager.unlock(&lock));
        Ok(())
    }

    fn extend(&mut self, name: &str, ttl: usize) -> Outcome<()> {
        let ttl = Duration::from_millis(ttl as u64);
        let lock = self.held.get(name).ok_or("it is not held")?;
        let lock = self.runtime.block_on(self.manager.extend(lock, ttl))?;
        self.held.insert(name.to_owned(), lock);
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let mut manager = LockManager::new(peer::addresses());
    manager.set_retry(1, Duration::from_millis(10));
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    peer::serve(&mut Peer { runtime, manager, held: HashMap::new() })
}
