//! The floor: the work that no client with many locks in flight can leave out.
//!
//! Requests are encoded once for each lock. Replies are split by their length and matched in order.
//! There is no clock, no timeout, no evaluation of the restart guard's TTL, and in the floor itself
//! no token for each lock. The second form shows what tokens cost.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use redbolt::resp::command;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::contract::{Flight, Task};
use crate::wire::{Due, GRANT, GUARD, TOKEN, Wire, load_undo, write_restart_guards};

pub(super) fn start_floor(task: &Task) -> Result<Box<dyn Flight>> {
    start(task, None)
}

pub(super) fn start_fresh(task: &Task) -> Result<Box<dyn Flight>> {
    let source = File::open("/dev/urandom")?;
    start(task, Some(Tokens { source, pool: [0; POOL], used: POOL }))
}

fn start(task: &Task, tokens: Option<Tokens>) -> Result<Box<dyn Flight>> {
    write_restart_guards(&task.nodes)?;
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
    let slot = |resource: &String| Slot::new(resource.as_bytes(), &digest, ttl, links.len());
    let (quorum, events) = (links.len() / 2 + 1, Vec::with_capacity(links.len()));
    let crowd =
        Crowd { slots: task.resources.iter().map(slot).collect(), quorum, ready: Vec::new() };
    Ok(Box::new(Raw { epoll, links, events, crowd, tokens }))
}

struct Raw {
    epoll: OwnedFd,
    links: Vec<Wire>,
    events: Vec<epoll::Event>,
    crowd: Crowd,
    /// The source of each lock's own token, if locks have their own.
    tokens: Option<Tokens>,
}

struct Crowd {
    slots: Vec<Slot>,
    quorum: usize,
    /// The locks whose requests have just got their majority.
    ready: Vec<usize>,
}

struct Slot {
    set: Vec<u8>,
    undo: Vec<u8>,
    /// The position of the token in both requests.
    token_at: [usize; 2],
    /// The present token of each node.
    tokens: Vec<[u8; TOKEN.len()]>,
    /// The number of the request that the votes are for.
    number: u64,
    yes: usize,
    held: bool,
}

impl Flight for Raw {
    fn fly(&mut self, locks: usize) -> Result<()> {
        let (mut begun, mut ended) = (0, 0);
        while begun < self.crowd.slots.len().min(locks) {
            self.say(begun)?;
            begun += 1;
        }
        while ended < locks {
            self.turn()?;
            while let Some(at) = self.crowd.ready.pop() {
                let slot = &mut self.crowd.slots[at];
                slot.held = !slot.held;
                if slot.held {
                    self.say(at)?;
                    continue;
                }
                ended += 1;
                if begun < locks {
                    self.say(at)?;
                    begun += 1;
                }
            }
        }
        Ok(())
    }
}

impl Raw {
    /// Requests the lock, or releases it if it is held.
    #[inline]
    fn say(&mut self, at: usize) -> Result<()> {
        let slot = &mut self.crowd.slots[at];
        slot.number += 1;
        slot.yes = 0;
        if let (Some(tokens), false) = (&mut self.tokens, slot.held) {
            tokens.draw(&mut slot.tokens)?;
        }
        let (request, token_at, len) = match slot.held {
            false => (&mut slot.set, slot.token_at[0], GRANT.len),
            true => (&mut slot.undo, slot.token_at[1], RELEASED.len()),
        };
        for (link, token) in self.links.iter_mut().zip(&slot.tokens) {
            if self.tokens.is_some() {
                request[token_at..token_at + token.len()].copy_from_slice(token);
            }
            link.say(request, [Due { len, slot: at, number: slot.number }]);
        }
        Ok(())
    }

    /// Writes the queued requests, and reads the replies that have arrived.
    #[inline]
    fn turn(&mut self) -> Result<()> {
        self.links.iter_mut().try_for_each(Wire::flush)?;
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&PATIENCE))?;
        ensure!(!self.events.is_empty(), "the nodes do not answer");
        for event in &self.events {
            let (link, crowd) = (&mut self.links[event.data.u64() as usize], &mut self.crowd);
            let mut sound = true;
            link.receive(|due, reply| sound &= crowd.count(due, reply))?;
            sound.then_some(()).context("not granted, or not held")?;
        }
        Ok(())
    }
}

impl Crowd {
    /// Counts a vote, and returns `true` if it is a yes.
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
    fn new(resource: &[u8], digest: &[u8], ttl: u64, nodes: usize) -> Self {
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
        let found = |bytes: &[u8]| memchr::memmem::find(bytes, TOKEN).expect("it was put there");
        let token_at = [found(&set), found(&undo)];
        let tokens = vec![*TOKEN; nodes];
        Self { set, undo, token_at, tokens, number: 0, yes: 0, held: false }
    }
}

/// A source of tokens like redbolt's: 16 random bytes for each lock, in hexadecimal digits, and the
/// node's number.
struct Tokens {
    source: File,
    pool: [u8; POOL],
    used: usize,
}

impl Tokens {
    #[inline]
    fn draw(&mut self, tokens: &mut [[u8; TOKEN.len()]]) -> Result<()> {
        if self.used == POOL {
            self.source.read_exact(&mut self.pool)?;
            self.used = 0;
        }
        let mut token = *TOKEN;
        let random = &self.pool[self.used..self.used + 16];
        for (pair, byte) in token.chunks_exact_mut(2).zip(random) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        self.used += 16;
        for (node, own) in tokens.iter_mut().enumerate() {
            *own = token;
            own[33] = HEX[node & 15];
        }
        Ok(())
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The number of random bytes that are drawn at a time.
const POOL: usize = 1 << 10;

const RELEASED: &[u8] = b":1\r\n";
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
