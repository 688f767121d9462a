//! The floor: what no client with many locks in flight could leave out.
//!
//! Requests are encoded once for each lock. Replies are cut off by their length and matched in order.
//! Not here: a clock, a timeout, a token of its own for each lock, a look at what the guard's TTL means.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use redbolt::resp::command;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::{Flight, Task};
use crate::wire::{Due, GRANT, GUARD, TOKEN, Wire, load_undo, write_guards};

pub(super) fn start(task: &Task) -> Result<Box<dyn Flight>> {
    write_guards(&task.nodes)?;
    let digest = load_undo(&task.nodes)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut links = Vec::new();
    for node in &task.nodes {
        let link = Wire::open(node)?;
        let place = epoll::EventData::new_u64(links.len() as u64);
        epoll::add(&epoll, &link, place, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        links.push(link);
    }
    let ttl = task.ttl.as_millis() as u64;
    let slot = |resource: &String| Slot::new(resource.as_bytes(), &digest, ttl);
    let (quorum, events) = (links.len() / 2 + 1, Vec::with_capacity(links.len()));
    let crowd =
        Crowd { slots: task.resources.iter().map(slot).collect(), quorum, ready: Vec::new() };
    Ok(Box::new(Raw { epoll, links, events, crowd }))
}

struct Raw {
    epoll: OwnedFd,
    links: Vec<Wire>,
    events: Vec<epoll::Event>,
    crowd: Crowd,
}

struct Crowd {
    slots: Vec<Slot>,
    quorum: usize,
    /// Whose request has just got its majority.
    ready: Vec<usize>,
}

/// A lock in flight.
struct Slot {
    set: Vec<u8>,
    undo: Vec<u8>,
    /// Which request the votes are for.
    number: u64,
    yes: usize,
    held: bool,
}

impl Flight for Raw {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let (mut begun, mut ended) = (0, 0);
        while begun < self.crowd.slots.len().min(locks) {
            self.say(begun);
            begun += 1;
        }
        while ended < locks {
            self.turn()?;
            while let Some(at) = self.crowd.ready.pop() {
                let slot = &mut self.crowd.slots[at];
                slot.held = !slot.held;
                if slot.held {
                    self.say(at);
                    continue;
                }
                ended += 1;
                if begun < locks {
                    self.say(at);
                    begun += 1;
                }
            }
        }
        Ok(())
    }
}

impl Raw {
    /// Asks for the lock, or releases it if it is held.
    #[inline]
    fn say(&mut self, at: usize) {
        let slot = &mut self.crowd.slots[at];
        slot.number += 1;
        slot.yes = 0;
        let (request, len) = match slot.held {
            false => (&slot.set, GRANT.len),
            true => (&slot.undo, RELEASED.len()),
        };
        for link in &mut self.links {
            link.say(request, [Due { len, slot: at, number: slot.number }]);
        }
    }

    /// Writes what is to be said, and hears what has come.
    #[inline]
    fn turn(&mut self) -> Result<()> {
        self.links.iter_mut().try_for_each(Wire::flush)?;
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&PATIENCE))?;
        ensure!(!self.events.is_empty(), "the nodes do not answer");
        for event in &self.events {
            let (link, crowd) = (&mut self.links[event.data.u64() as usize], &mut self.crowd);
            let mut sound = true;
            link.hear(|due, reply| sound &= crowd.count(due, reply))?;
            sound.then_some(()).context("not granted, or not held")?;
        }
        Ok(())
    }
}

impl Crowd {
    /// Counts a vote, and tells whether it is a yes.
    #[inline]
    fn count(&mut self, due: Due, reply: &[u8]) -> bool {
        let slot = &mut self.slots[due.slot];
        if due.number == slot.number {
            slot.yes += 1;
            if slot.yes == self.quorum {
                self.ready.push(due.slot);
            }
        }
        reply.starts_with(GRANT.begins) || reply == RELEASED
    }
}

impl Slot {
    fn new(resource: &[u8], digest: &[u8], ttl: u64) -> Self {
        let (mut set, mut undo) = (Vec::new(), Vec::new());
        drop(
            command(&mut set, 6)
                .arg(b"SET")
                .arg(resource)
                .arg(TOKEN)
                .arg(b"NX")
                .arg(b"PX")
                .int(ttl),
        );
        drop(command(&mut set, 2).arg(b"PTTL").arg(GUARD));
        drop(command(&mut undo, 5).arg(b"EVALSHA").arg(digest).int(1).arg(resource).arg(TOKEN));
        Self { set, undo, number: 0, yes: 0, held: false }
    }
}

const RELEASED: &[u8] = b":1\r\n";
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
