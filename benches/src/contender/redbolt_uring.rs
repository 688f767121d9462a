//! redbolt's core without its sockets layer: driven by submissions and completions of an io_uring, and no mio.
//!
//! It is what a program with a loop of that kind would write: bytes of the core are submitted, bytes that have come are given
//! to it, and the wait ends when the core has something due. Connecting is left out: the sockets are there before. Not here:
//! the buffers, see `ring`.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use redbolt::net::now;
use redbolt::proto::{
    Config, Core, Event, LinkId, LinkOp, LockId, LockRequest, NodeSettings, NodeState, Settings,
    Setup,
};
use rustix::io::Errno;

use super::contract::{Contender, NotInstalled, PATIENCE, Task};
use super::ring::Ring;
use crate::wire::connect;

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let sockets = task.nodes.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let ring = Ring::new(sockets).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::INVAL) => refused(&error).into(),
        _ => anyhow::Error::from(error),
    })?;
    let settings = Settings::new(vec![NodeSettings::default(); task.nodes.len()])
        .response_timeout(PATIENCE)
        .dead_peer_timeout(2 * PATIENCE)
        .setup(Setup::IfNew);
    let core = Core::new(Arc::new(Config::new(settings)?), entropy()?);
    let mut host = Host { core, ring, links: Vec::new(), task: task.clone(), held: None };
    host.core.open_all(now());
    let until = Instant::now() + PATIENCE;
    while !host.is_ready() {
        ensure!(Instant::now() < until, "not all nodes are ready");
        host.process()?;
    }
    Ok(Box::new(host))
}

/// What the kernel says where it does not let us.
fn refused(error: &std::io::Error) -> NotInstalled {
    NotInstalled(format!(
        "io_uring is refused: {error}. It takes Linux 6.1, `sysctl kernel.io_uring_disabled=0`, and a container that permits it"
    ))
}

/// The core asks for large portions.
fn entropy() -> Result<impl FnMut(&mut [u8]) + Send + 'static> {
    let mut source = File::open("/dev/urandom")?;
    Ok(move |out: &mut [u8]| source.read_exact(out).expect("it never ends"))
}

struct Host {
    core: Core,
    ring: Ring,
    /// One for each node.
    links: Vec<LinkId>,
    task: Task,
    held: Option<LockId>,
}

impl Contender for Host {
    fn acquire(&mut self) -> Result<()> {
        let request = LockRequest::new(self.task.resource.as_bytes()).ttl(self.task.ttl);
        let id = self.core.acquire(&request, now())?;
        match self.outcome()? {
            Event::Granted(of) if of == id => self.held = Some(id),
            other => bail!("{other:?}"),
        }
        let lease = self.core.lease(id).context("a lock that was granted has a lease")?;
        ensure!(!lease.remaining(now()).is_zero(), "granted too late");
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let id = self.held.take().context("no lock is held")?;
        self.core.release(id, now());
        match self.outcome()? {
            Event::Released(of, _) if of == id => Ok(()),
            other => bail!("{other:?}"),
        }
    }
}

impl Host {
    fn is_ready(&self) -> bool {
        let ready = |link: &LinkId| self.core.node_state(link.node()) == NodeState::Ready;
        self.links.len() == self.task.nodes.len() && self.links.iter().all(ready)
    }

    fn outcome(&mut self) -> Result<Event> {
        loop {
            match self.core.poll_event() {
                Some(Event::Node(..)) => {}
                Some(event) => return Ok(event),
                None => self.process()?,
            }
        }
    }

    /// Submits what there is to say, waits, and hears what has come.
    fn process(&mut self) -> Result<()> {
        self.connect()?;
        for (at, &link) in self.links.iter().enumerate() {
            let bytes = self.core.transmit(link);
            let length = bytes.len();
            if length > 0 && self.ring.takes(at) {
                self.ring.send(at, bytes)?;
                self.core.transmitted(link, length);
            }
        }
        let due = self.core.poll_timeout().map(|due| due.since(now().boot));
        let limit = due.unwrap_or(PATIENCE).min(PATIENCE);
        let (core, links) = (&mut self.core, &self.links);
        self.ring.wait(limit, |at, bytes| {
            core.space(links[at])[..bytes.len()].copy_from_slice(bytes);
            core.received(links[at], bytes.len(), now());
        })?;
        self.core.timeout(now());
        Ok(())
    }

    /// Each node is connected to once. One that is lost voids the measurement.
    fn connect(&mut self) -> Result<()> {
        while let Some(op) = self.core.poll_link() {
            match op {
                LinkOp::Open(link) if link.index() == self.links.len() => {
                    self.links.push(link);
                    self.core.connected(link, now());
                }
                other => bail!("a connection is lost, or another one wanted: {other:?}"),
            }
        }
        Ok(())
    }
}
