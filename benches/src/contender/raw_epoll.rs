//! The floor: the least that a program must do to take and release a lock on a majority of nodes.
//!
//! Requests are encoded once. Replies are known to the byte, so they are counted, not parsed: a node
//! has answered when as many bytes have come as were due. The guard's TTL is read, and what it means is
//! not looked at. System calls are made without libc, there
//! is no timeout and no clock. What no lock client could leave out is in it and nothing else, so it
//! is not one: whatever is not a grant or a confirmation ends the measurement.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail, ensure};
use redbolt::resp::command;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{Contender, Task};
use crate::wire::{Expected, GRANT, GUARD, TOKEN, await_room, connect, load_undo, write_guards};

pub(super) fn start_guarded(task: &Task) -> Result<Box<dyn Contender>> {
    write_guards(&task.nodes)?;
    let request = |out: &mut Vec<u8>| drop(command(out, 2).arg(b"PTTL").arg(GUARD));
    start(task, request, GRANT)
}

pub(super) fn start_unguarded(task: &Task) -> Result<Box<dyn Contender>> {
    start(task, |_| (), Expected { begins: b"+OK\r\n", len: 5 })
}

fn start(
    task: &Task,
    check: impl FnOnce(&mut Vec<u8>),
    grant: Expected,
) -> Result<Box<dyn Contender>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut links = Vec::new();
    for node in &task.nodes {
        let socket = connect(node)?;
        ioctl_fionbio(&socket, true)?;
        let place = epoll::EventData::new_u64(links.len() as u64);
        epoll::add(&epoll, &socket, place, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        links.push(Link { socket, due: 0 });
    }
    let digest = load_undo(&task.nodes)?;
    let (resource, ttl) = (task.resource.as_bytes(), task.ttl.as_millis() as u64);
    let (mut set, mut undo) = (Vec::new(), Vec::new());
    drop(command(&mut set, 6).arg(b"SET").arg(resource).arg(TOKEN).arg(b"NX").arg(b"PX").int(ttl));
    check(&mut set);
    drop(command(&mut undo, 5).arg(b"EVALSHA").arg(&digest).int(1).arg(resource).arg(TOKEN));
    let (quorum, events) = (links.len() / 2 + 1, Vec::with_capacity(links.len()));
    Ok(Box::new(RawEpoll { epoll, links, quorum, set, grant, undo, events, space: vec![0; 4096] }))
}

struct RawEpoll {
    epoll: OwnedFd,
    links: Vec<Link>,
    quorum: usize,
    set: Vec<u8>,
    grant: Expected,
    undo: Vec<u8>,
    events: Vec<epoll::Event>,
    space: Vec<u8>,
}

struct Link {
    socket: OwnedFd,
    /// Bytes of replies that have not come.
    due: usize,
}

impl Contender for RawEpoll {
    fn acquire(&mut self) -> Result<()> {
        let request = std::mem::take(&mut self.set);
        let outcome = self.ask(&request, self.grant);
        self.set = request;
        outcome
    }

    fn release(&mut self) -> Result<()> {
        let request = std::mem::take(&mut self.undo);
        let outcome = self.ask(&request, Expected { begins: b":1\r\n", len: 4 });
        self.undo = request;
        outcome
    }
}

impl RawEpoll {
    /// Sends the request to all nodes and waits for the reply of a majority. The others' replies are
    /// read with the next call's.
    #[inline]
    fn ask(&mut self, request: &[u8], reply: Expected) -> Result<()> {
        for link in &mut self.links {
            link.say(request)?;
            link.due += reply.len;
        }
        let mut answered = 0;
        while answered < self.quorum {
            self.events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut self.events), None)?;
            for event in &self.events {
                let link = &mut self.links[event.data.u64() as usize];
                answered += usize::from(link.hear(&mut self.space, reply)?);
            }
        }
        Ok(())
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

    /// Reads what has come, and tells whether the last reply that is due was in it. A read that did
    /// not fill the space was the last one.
    #[inline]
    fn hear(&mut self, space: &mut [u8], reply: Expected) -> Result<bool> {
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
