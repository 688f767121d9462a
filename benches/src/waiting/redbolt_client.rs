//! redbolt's blocking front, waiting.

use anyhow::{Context, Result, anyhow, ensure};
use redbolt::{Ask, Client, Ending, LockGuard, Wait};

use super::PATIENCE;
use crate::contender::{Contender, Task, redbolt_config};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    // A guard borrows its client. Both live as long as the program.
    let client: &'static Client = Box::leak(Box::new(Client::new(redbolt_config(task)?.build()?)?));
    let report = client.warm_up(PATIENCE);
    ensure!(report.ready() == task.nodes.len(), "{report:?}");
    Ok(Box::new(Waiter { client, task: task.clone(), held: None }))
}

struct Waiter {
    client: &'static Client,
    task: Task,
    held: Option<LockGuard<'static>>,
}

impl Contender for Waiter {
    fn acquire(&mut self) -> Result<()> {
        let ask = Ask::new(self.task.resource.as_bytes());
        let ask = ask.ttl(self.task.ttl).wait(Wait::For(PATIENCE));
        self.held = Some(self.client.acquire(ask).map_err(|error| anyhow!("{error}"))?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let ending = self.held.take().context("no lock is held")?.release();
        ensure!(matches!(ending, Ending::Released(_)), "{ending}");
        Ok(())
    }
}
