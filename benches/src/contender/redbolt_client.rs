//! redbolt's blocking API.

use anyhow::{Context, Result, anyhow, ensure};
use redbolt::{Client, Config, ConfigBuilder, LockGuard, LockRequest, ReleaseOutcome};

use super::{BUSY, Contender, Node, PATIENCE, Task};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.build()?)
}

/// Spins on reads for a while before it sleeps.
pub(super) fn start_busy(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.busy_poll(BUSY).build()?)
}

fn connect(task: &Task, config: Config) -> Result<Box<dyn Contender>> {
    // A guard borrows its client. Both live as long as the program.
    let client: &'static Client = Box::leak(Box::new(Client::new(config)?));
    let report = client.warm_up(PATIENCE);
    ensure!(report.ready() == task.nodes.len(), "{report:?}");
    Ok(Box::new(RedboltClient { client, task: task.clone(), held: None }))
}

/// The defaults, except for longer timeouts, because the machine may have other work to do.
pub(crate) fn config(task: &Task) -> Result<ConfigBuilder> {
    let builder =
        Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE).new_nodes();
    Ok(task.nodes.iter().try_fold(builder, |builder, node| match node {
        Node::Tcp(address) => builder.node(address),
        Node::Unix(path) => builder.node(&format!("unix://{path}")),
    })?)
}

struct RedboltClient {
    client: &'static Client,
    task: Task,
    held: Option<LockGuard<'static>>,
}

impl Contender for RedboltClient {
    fn acquire(&mut self) -> Result<()> {
        let request = LockRequest::new(self.task.resource.as_bytes()).ttl(self.task.ttl);
        self.held = Some(self.client.acquire(request).map_err(|error| anyhow!("{error}"))?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let outcome = self.held.take().context("no lock is held")?.release();
        ensure!(matches!(outcome, ReleaseOutcome::Released(_)), "{outcome}");
        Ok(())
    }
}
