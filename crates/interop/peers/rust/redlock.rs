//! redlock of badboy, on a majority of all nodes.

mod peer;

use std::collections::HashMap;

use peer::{Adapter, Outcome};
use redlock::{Lock, RedLock};

struct Peer<'m> {
    manager: &'m RedLock,
    held: HashMap<String, Lock<'m>>,
}

impl Adapter for Peer<'_> {
    fn attempt(&mut self, name: &str, ttl: usize) -> Outcome<bool> {
        let lock = self.manager.lock(name.as_bytes(), ttl)?;
        let got = lock.is_some();
        self.held.extend(lock.map(|lock| (name.to_owned(), lock)));
        Ok(got)
    }

    fn release(&mut self, name: &str) -> Outcome<()> {
        let lock = self.held.remove(name).ok_or("it is not held")?;
        self.manager.unlock(&lock);
        Ok(())
    }

    fn extend(&mut self, _: &str, _: usize) -> Outcome<()> {
        Err("it cannot extend".into())
    }
}

fn main() -> Outcome<()> {
    let mut manager = RedLock::new(peer::addresses());
    // It sleeps after each attempt, also the last, for up to this many milliseconds.
    manager.set_retry(1, 10);
    peer::serve(&mut Peer { manager: &manager, held: HashMap::new() })
}
