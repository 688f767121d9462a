//! The common part of the floors: the least that a program must do to acquire and release a lock on
//! a majority of nodes, apart from waiting.
//!
//! Requests are encoded once. Replies are known to the byte, so they are counted, not parsed: a
//! node has answered when as many bytes have arrived as were due. The restart guard's TTL is read
//! but not evaluated. System calls are made without libc, and there is no timeout and no clock. A
//! floor has only what no lock client can leave out, so it is not a lock client: anything but a
//! grant or a confirmation ends the measurement. Not here: waiting, which differs between the
//! floors.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail, ensure};
use redbolt::resp::command;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::contract::{Contender, Task};
use crate::wire::{
    Expected, GRANT, GUARD, TOKEN, await_room, connect, load_undo, write_restart_guards,
};

/// A floor that reads the restart guard behind each request. `wait` creates its way of waiting from
/// its links.
pub(super) fn start_guarded<W: Wait + 'static>(
    task: &Task,
    wait: impl FnOnce(&Links) -> Result<W>,
) -> Result<Box<dyn Contender>> {
    write_restart_guards(&task.nodes)?;
    let request = |out: &mut Vec<u8>| drop(command(out, 2).arg(b"PTTL").arg(GUARD));
    start(task, wait, request, GRANT)
}

/// The same without reading the restart guard.
pub(super) fn start_unguarded<W: Wait + 'static>(
    task: &Task,
    wait: impl FnOnce(&Links) -> Result<W>,
) -> Result<Box<dyn Contender>> {
    start(task, wait, |_| (), Expected { begins: b"+OK\r\n", len: 5 })
}

fn start<W: Wait + 'static>(
    task: &Task,
    wait: impl FnOnce(&Links) -> Result<W>,
    check: impl FnOnce(&mut Vec<u8>),
    grant: Expected,
) -> Result<Box<dyn Contender>> {
    let connected = task.nodes.iter().map(|node| Ok(Link { socket: connect(node)?, due: 0 }));
    let all = connected.collect::<Result<Vec<_>>>()?;
    let links = Links { quorum: all.len() / 2 + 1, all, space: vec![0; 4096] };
    let wait = wait(&links)?;
    let digest = load_undo(&task.nodes)?;
    let (resource, ttl) = (task.resource.as_bytes(), task.ttl.as_millis() as u64);
    let (mut set, mut undo) = (Vec::new(), Vec::new());
    drop(command(&mut set, 6).arg(b"SET").arg(resource).arg(TOKEN).arg(b"NX").arg(b"PX").int(ttl));
    check(&mut set);
    drop(command(&mut undo, 5).arg(b"EVALSHA").arg(&digest).int(1).arg(resource).arg(TOKEN));
    Ok(Box::new(Floor { links, wait, set, grant, undo }))
}

/// How a floor waits for replies.
pub(super) trait Wait {
    /// Returns when a majority has answered the last written request. The others' replies are read
    /// with the next ones.
    fn majority(&mut self, links: &mut Links, reply: Expected) -> Result<()>;
}

pub(super) struct Links {
    pub(super) all: Vec<Link>,
    pub(super) quorum: usize,
    space: Vec<u8>,
}

pub(super) struct Link {
    pub(super) socket: OwnedFd,
    /// Bytes of replies that have not arrived.
    due: usize,
}

struct Floor<W> {
    links: Links,
    wait: W,
    set: Vec<u8>,
    grant: Expected,
    undo: Vec<u8>,
}

impl<W: Wait> Contender for Floor<W> {
    #[inline]
    fn acquire(&mut self) -> Result<()> {
        self.links.say(&self.set, self.grant)?;
        self.wait.majority(&mut self.links, self.grant)
    }

    #[inline]
    fn release(&mut self) -> Result<()> {
        let confirmed = Expected { begins: b":1\r\n", len: 4 };
        self.links.say(&self.undo, confirmed)?;
        self.wait.majority(&mut self.links, confirmed)
    }
}

impl Links {
    /// Sends the request to all nodes.
    #[inline]
    fn say(&mut self, request: &[u8], reply: Expected) -> Result<()> {
        for link in &mut self.all {
            link.say(request)?;
            link.due += reply.len;
        }
        Ok(())
    }

    /// Reads what a node has sent. Whether its last due reply is complete.
    #[inline]
    pub(super) fn receive(&mut self, at: usize, reply: Expected) -> Result<bool> {
        self.all[at].receive(&mut self.space, reply)
    }

    /// Reads from each node that owes a reply. Returns how many now owe none.
    #[inline]
    pub(super) fn hear_all(&mut self, reply: Expected) -> Result<usize> {
        let mut answered = 0;
        for link in self.all.iter_mut().filter(|link| link.due > 0) {
            answered += usize::from(link.receive(&mut self.space, reply)?);
        }
        Ok(answered)
    }
}

impl Link {
    #[inline]
    fn say(&mut self, request: &[u8]) -> Result<()> {
        let written = match send(&self.socket, request, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => {
                await_room(&self.socket)?;
                send(&self.socket, request, SendFlags::NOSIGNAL)?
            }
            outcome => outcome?,
        };
        ensure!(written == request.len(), "the socket took a part of a request");
        Ok(())
    }

    /// Reads what has arrived. Whether the last due reply is complete. A read that does not fill
    /// the buffer was the last one.
    #[inline]
    fn receive(&mut self, space: &mut [u8], reply: Expected) -> Result<bool> {
        loop {
            let len = match recv(&self.socket, &mut *space, RecvFlags::empty()) {
                Ok((0, _)) => bail!("the node closed the connection"),
                Ok((len, _)) => len,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            self.due = self.due.checked_sub(len).context("the node said more than was due")?;
            if self.due == 0 {
                let last = len.checked_sub(reply.len).map_or(&[][..], |start| &space[start..len]);
                ensure!(last.starts_with(reply.begins), "not granted, or not held");
                return Ok(true);
            }
            if len < space.len() {
                return Ok(false);
            }
        }
    }
}
