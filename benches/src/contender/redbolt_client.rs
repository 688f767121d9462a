//! redbolt's blocking API.

use anyhow::{Context, Result, anyhow, ensure};
use redbolt::{Client, Config, ConfigBuilder, LockGuard, LockRequest};

use super::contract::{BUSY, Contender, Node, PATIENCE, Task};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.build()?, Kind::Exclusive)
}

/// Shares the lock, with nobody.
pub(super) fn start_shared(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.build()?, Kind::Shared)
}

/// Has one of some permits, alone.
pub(super) fn start_permit(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.build()?, Kind::Permit)
}

/// Spins on reads for a while before it sleeps.
pub(super) fn start_busy(task: &Task) -> Result<Box<dyn Contender>> {
    connect(task, config(task)?.busy_poll(BUSY).build()?, Kind::Exclusive)
}

fn connect(task: &Task, config: Config, kind: Kind) -> Result<Box<dyn Contender>> {
    // A guard borrows its client. Both live as long as the program.
    let client: &'static Client = Box::leak(Box::new(Client::new(config)?));
    let report = client.warm_up(PATIENCE);
    ensure!(report.ready() == task.nodes.len(), "{report:?}");
    Ok(Box::new(RedboltClient::new(client, task, kind)))
}

/// The defaults, except for longer timeouts, because the machine may have other work to do.
pub(crate) fn config(task: &Task) -> Result<ConfigBuilder> {
    let builder =
        Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE).new_nodes();
    Ok(task.nodes.iter().fold(builder, |builder, node| match node {
        Node::Tcp(address) => builder.node(address),
        Node::Unix(path) => builder.node(&format!("unix://{path}")),
    }))
}

/// What a client asks for.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Exclusive,
    Shared,
    Permit,
}

pub(super) struct RedboltClient {
    client: &'static Client,
    task: Task,
    kind: Kind,
    held: Option<LockGuard<'static>>,
}

impl RedboltClient {
    pub(super) fn new(client: &'static Client, task: &Task, kind: Kind) -> Self {
        Self { client, task: task.clone(), kind, held: None }
    }
}

impl Contender for RedboltClient {
    fn acquire(&mut self) -> Result<()> {
        let request = LockRequest::new(self.task.resource.as_bytes()).ttl(self.task.ttl);
        let request = match self.kind {
            Kind::Exclusive => request,
            Kind::Shared => request.shared(),
            Kind::Permit => request.permits(PERMITS),
        };
        self.held = Some(self.client.acquire(request).map_err(|error| anyhow!("{error}"))?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let outcome = self.held.take().context("no lock is held")?.release();
        outcome?;
        Ok(())
    }
}

/// As many as most semaphores have, or so.
const PERMITS: u16 = 10;
