//! The floor of a hand-off: the holder publishes to every node, each node notifies the waiter, and
//! the waiter requests the lock.
//!
//! Both sides are this code: connected and subscribed before the measurement, with requests encoded
//! once. A lost message would cost a second, which does not happen here.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redbolt::resp::command;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::contract::PATIENCE;
use crate::contender::{Asked, Contender, Task};
use crate::wire::{Due, Wire, load_undo};

pub(super) fn start_at_quorum(task: &Task) -> Result<Box<dyn Contender>> {
    start(task, task.nodes.len() / 2 + 1)
}

pub(super) fn start_at_first(task: &Task) -> Result<Box<dyn Contender>> {
    start(task, 1)
}

fn start(task: &Task, wake_at: usize) -> Result<Box<dyn Contender>> {
    let channels = Channels { own: task.resource.clone(), next: task.resource.clone() };
    Ok(Box::new(PubSub::connect(task, &channels, wake_at)?))
}

/// The channels on which a side is notified of releases, and publishes its own.
pub(super) struct Channels {
    pub(super) own: String,
    pub(super) next: String,
}

impl Channels {
    /// Returns the length of a message to ourselves.
    fn message_len(&self) -> usize {
        let (own, len) = (&self.own, self.own.len());
        format!("*3\r\n$7\r\nmessage\r\n${len}\r\n{own}\r\n$1\r\n-\r\n").len()
    }
}

/// The requests of a side, encoded once.
struct Requests {
    set: Vec<u8>,
    undo: Vec<u8>,
    release: Vec<u8>,
    subscribe: Vec<u8>,
}

impl Requests {
    fn new(task: &Task, channels: &Channels) -> Result<Self> {
        let digest = load_undo(&task.nodes)?;
        let (resource, ttl) = (task.resource.as_bytes(), task.ttl.as_millis() as u64);
        let token = token();
        let (mut set, mut undo, mut subscribe) = (Vec::new(), Vec::new(), Vec::new());
        drop(
            command(&mut set, 6)
                .arg(b"SET")
                .arg(resource)
                .arg(&token)
                .arg(b"NX")
                .arg(b"PX")
                .int(ttl),
        );
        drop(command(&mut undo, 5).arg(b"EVALSHA").arg(&digest).int(1).arg(resource).arg(&token));
        drop(command(&mut subscribe, 2).arg(b"SUBSCRIBE").arg(channels.own.as_bytes()));
        let mut release = undo.clone();
        let next = channels.next.as_bytes();
        drop(command(&mut release, 3).arg(b"PUBLISH").arg(next).arg(b"-"));
        Ok(Self { set, undo, release, subscribe })
    }
}

/// Returns a token as long as redbolt's without a label, and different for each side, in other
/// processes too.
fn token() -> Vec<u8> {
    static SIDES: AtomicU64 = AtomicU64::new(0);
    let side = SIDES.fetch_add(1, Ordering::Relaxed);
    format!("{:010x}{side:024x}", std::process::id()).into_bytes()
}

pub(super) struct PubSub {
    epoll: OwnedFd,
    /// The links for commands, one per node.
    links: Vec<Wire>,
    /// The subscribed links, one per node.
    ears: Vec<Wire>,
    events: Vec<epoll::Event>,
    quorum: usize,
    /// The number of nodes that must have notified that the lock is free.
    wake_at: usize,
    requests: Requests,
    /// The nodes that have notified since this wait began.
    told: Vec<bool>,
    /// The bytes of messages that each node has sent since we subscribed.
    heard: Vec<usize>,
    message_len: usize,
    /// `true` if a node has notified since the last request.
    news: bool,
    vote: Vote,
    /// The number of rounds of requests and of undos.
    rounds: u64,
    undone: u64,
}

/// The nodes' answers to the latest request.
#[derive(Default)]
struct Vote {
    number: u64,
    yes: usize,
    no: usize,
}

impl Contender for PubSub {
    fn acquire(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        self.turn(&NOW)?;
        self.told.fill(false);
        loop {
            self.news = false;
            if self.try_acquire()? {
                return Ok(());
            }
            self.await_messages(self.wake_at, until)?;
        }
    }

    fn release(&mut self) -> Result<()> {
        self.ask(Request::Release)?;
        ensure!(self.vote.yes >= self.quorum, "the lock was not held");
        Ok(())
    }

    fn asked(&self) -> Option<Asked> {
        let (nodes, heard) = (self.links.len() as u64, self.heard.iter().sum::<usize>());
        Some(Asked {
            rounds: self.rounds,
            to_nodes: self.rounds * nodes,
            undos: self.undone * nodes,
            notified: (heard / self.message_len) as u64,
        })
    }
}

#[derive(Clone, Copy)]
enum Request {
    Set,
    Undo,
    Release,
}

impl PubSub {
    /// Connects and subscribes.
    pub(super) fn connect(task: &Task, channels: &Channels, wake_at: usize) -> Result<Self> {
        let requests = Requests::new(task, channels)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (mut links, mut ears) = (Vec::new(), Vec::new());
        for node in &task.nodes {
            links.push(Wire::open(node)?);
            let mut ear = Wire::open(node)?;
            ear.say(&requests.subscribe, []);
            ear.flush()?;
            ears.push(ear);
        }
        for (at, wire) in links.iter().chain(&ears).enumerate() {
            let place = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, wire, place, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        let nodes = links.len();
        let mut side = Self {
            epoll,
            links,
            ears,
            events: Vec::with_capacity(2 * nodes),
            quorum: nodes / 2 + 1,
            wake_at,
            requests,
            told: vec![false; nodes],
            heard: vec![0; nodes],
            message_len: channels.message_len(),
            news: false,
            vote: Vote::default(),
            rounds: 0,
            undone: 0,
        };
        side.await_messages(nodes, Instant::now() + PATIENCE)?;
        side.heard.fill(0);
        Ok(side)
    }

    /// Asks all nodes once, and returns `true` if a quorum has granted; otherwise the grants are
    /// undone.
    pub(super) fn try_acquire(&mut self) -> Result<bool> {
        self.rounds += 1;
        self.ask(Request::Set)?;
        let granted = self.vote.yes >= self.quorum;
        if !granted {
            self.tell(Request::Undo)?;
        }
        Ok(granted)
    }

    /// Waits until a quorum of nodes has sent this many messages.
    pub(super) fn await_turn(&mut self, messages: u64, until: Instant) -> Result<()> {
        let due = messages as usize * self.message_len;
        while self.heard.iter().filter(|&&heard| heard >= due).count() < self.quorum {
            ensure!(Instant::now() < until, "its turn never came");
            self.turn(&SECOND)?;
        }
        Ok(())
    }

    /// Waits for a moment.
    pub(super) fn pause(&mut self) -> Result<()> {
        self.turn(&MOMENT)
    }

    /// Sends the request to all nodes and waits until a quorum has said yes, or no longer can.
    fn ask(&mut self, request: Request) -> Result<()> {
        self.tell(request)?;
        let until = Instant::now() + PATIENCE;
        let nodes = self.links.len();
        while self.vote.yes < self.quorum && self.vote.no <= nodes - self.quorum {
            ensure!(Instant::now() < until, "the nodes do not answer");
            self.turn(&SECOND)?;
        }
        Ok(())
    }

    fn tell(&mut self, request: Request) -> Result<()> {
        self.vote = Vote { number: self.vote.number + 1, yes: 0, no: 0 };
        let due = |len| Due { len, slot: 0, number: self.vote.number };
        // This reply is not counted.
        let unheeded = |len| Due { len, slot: 0, number: 0 };
        // +OK or $-1; :1 or :0; :1 and the number of notified subscribers.
        let (bytes, dues) = match request {
            Request::Set => (&self.requests.set, [Some(due(5)), None]),
            Request::Undo => (&self.requests.undo, [Some(unheeded(4)), None]),
            Request::Release => (&self.requests.release, [Some(due(4)), Some(unheeded(4))]),
        };
        self.undone += u64::from(!matches!(request, Request::Set));
        for link in &mut self.links {
            link.say(bytes, dues.into_iter().flatten());
            link.flush()?;
        }
        Ok(())
    }

    /// Waits until this many nodes have notified, and one of them since the last request.
    fn await_messages(&mut self, nodes: usize, until: Instant) -> Result<()> {
        let patience = Instant::now() + Duration::from_secs(1);
        while !self.news || self.told.iter().filter(|&&told| told).count() < nodes {
            ensure!(Instant::now() < until, "the lock was never released");
            if Instant::now() > patience {
                return Ok(());
            }
            self.turn(&SECOND)?;
        }
        Ok(())
    }

    fn turn(&mut self, timeout: &Timespec) -> Result<()> {
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(timeout))?;
        for event in &self.events {
            let (at, vote) = (event.data.u64() as usize, &mut self.vote);
            match at.checked_sub(self.links.len()) {
                None => self.links[at].receive(|due, reply| vote.count(due, reply))?,
                Some(node) => {
                    let heard = self.ears[node].hear_bytes()?;
                    self.heard[node] += heard;
                    self.told[node] |= heard > 0;
                    self.news |= heard > 0;
                }
            }
        }
        Ok(())
    }
}

impl Vote {
    fn count(&mut self, due: Due, reply: &[u8]) {
        if due.number == self.number {
            match reply.starts_with(b"+OK") || reply.starts_with(b":1") {
                true => self.yes += 1,
                false => self.no += 1,
            }
        }
    }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };
const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
