//! The floor: the work that no client that survives a dead minority can leave out.
//!
//! It is like `contender::raw_epoll`, but a lost node is left out from then on, and not
//! reconnected.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail, ensure};
use redbolt::resp::command;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::contract::Contender;
use crate::contender::Task;
use crate::wire::{Expected, GRANT, GUARD, TOKEN, connect, load_undo, write_restart_guards};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    write_restart_guards(&task.nodes)?;
    let digest = load_undo(&task.nodes)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut links = Vec::new();
    for node in &task.nodes {
        let socket = connect(node)?;
        ioctl_fionbio(&socket, true)?;
        let place = epoll::EventData::new_u64(links.len() as u64);
        epoll::add(&epoll, &socket, place, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        links.push(Some(Link { socket, due: 0 }));
    }
    let (resource, ttl) = (task.resource.as_bytes(), task.ttl.as_millis() as u64);
    let (mut set, mut undo) = (Vec::new(), Vec::new());
    drop(command(&mut set, 6).arg(b"SET").arg(resource).arg(TOKEN).arg(b"NX").arg(b"PX").int(ttl));
    drop(command(&mut set, 2).arg(b"PTTL").arg(GUARD));
    drop(command(&mut undo, 5).arg(b"EVALSHA").arg(&digest).int(1).arg(resource).arg(TOKEN));
    let (quorum, events) = (links.len() / 2 + 1, Vec::with_capacity(links.len()));
    let nodes = Nodes { epoll, links, quorum, events, space: vec![0; 4096] };
    Ok(Box::new(Raw { nodes, set, undo }))
}

struct Raw {
    nodes: Nodes,
    set: Vec<u8>,
    undo: Vec<u8>,
}

struct Nodes {
    epoll: OwnedFd,
    /// The nodes that are not lost.
    links: Vec<Option<Link>>,
    quorum: usize,
    events: Vec<epoll::Event>,
    space: Vec<u8>,
}

struct Link {
    socket: OwnedFd,
    /// The bytes of replies that have not arrived.
    due: usize,
}

impl Contender for Raw {
    fn pair(&mut self) -> Result<()> {
        self.nodes.ask(&self.set, GRANT)?;
        self.nodes.ask(&self.undo, RELEASED)
    }
}

impl Nodes {
    /// Sends the request to all nodes and waits for the replies of a majority. The others' replies
    /// are read in the next call.
    fn ask(&mut self, request: &[u8], reply: Expected) -> Result<()> {
        for place in &mut self.links {
            if place.as_mut().is_some_and(|link| link.say(request, reply).is_err()) {
                *place = None;
            }
        }
        let mut answered = 0;
        while answered < self.quorum {
            self.events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&PATIENCE))?;
            ensure!(!self.events.is_empty(), "the nodes do not answer");
            for event in &self.events {
                let place = &mut self.links[event.data.u64() as usize];
                match place.as_mut().map(|link| link.receive(&mut self.space, reply)) {
                    Some(Ok(whole)) => answered += usize::from(whole),
                    Some(Err(_)) => *place = None,
                    None => {}
                }
            }
        }
        Ok(())
    }
}

impl Link {
    fn say(&mut self, request: &[u8], reply: Expected) -> Result<()> {
        let written = send(&self.socket, request, SendFlags::NOSIGNAL)?;
        ensure!(written == request.len(), "the socket took a part of a request");
        self.due += reply.len;
        Ok(())
    }

    /// Reads what has arrived, and returns `true` if the last due reply is complete.
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

const RELEASED: Expected = Expected { begins: b":1\r\n", len: 4 };
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
