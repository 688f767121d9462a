//! Processes wait in the queue for a lock, while waiters are stopped and killed, and nodes are
//! stopped and lose their keys.
//!
//! In each round they come one after the other, each when all nodes have the place of the previous
//! one. They have to be granted in this order, except for a waiter that a node has passed because
//! it did not take its turn. Queues of readers and writers are left to the simulator.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt::{Client, LockRequest, Wait};
use redbolt_test_servers::{Server, servers};

use crate::clock::{Moment, now};
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT, eventually};
use crate::part::{Part, Role};
use crate::places::{Watch, is_clear, tickets};
use crate::stage::{Failure, RESOURCE, Stage};
use crate::wire::{Order, Report};
use crate::worker::Worker;

/// Lets processes wait in the queue, round by round.
#[derive(Clone, Debug)]
pub struct FairQueue {
    /// The number of rounds.
    pub rounds: usize,
    /// True if they wait in the queue. Otherwise they wait by a timer, and the run has to find one
    /// that was passed, and ends then.
    pub in_queue: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct FairQueueResult {
    /// True if the processes waited in the queue.
    pub in_queue: bool,
    /// The number of rounds played.
    pub rounds: usize,
    /// The number of waiters granted.
    pub grants: usize,
    /// The number of waiters that were stopped or killed in the queue.
    pub struck: usize,
    /// The number of rounds in which a node was stopped.
    pub stopped: usize,
    /// The number of rounds in which a node lost its keys.
    pub wiped: usize,
    /// The number of waiters that nodes have passed because they did not take their turn.
    pub skipped: usize,
    /// The number of waiters whose order was judged.
    pub judged: usize,
    /// The number of waiters that were passed by one that came later.
    pub passed: usize,
    /// The number of pairs of overlapping claims.
    pub double_holders: usize,
    /// The duration of the run.
    pub took: Duration,
}

impl FairQueueResult {
    /// Returns true if no waiter was passed; without the queue, if the check found one that was.
    #[must_use]
    pub fn holds(&self) -> bool {
        let kept = if self.in_queue { self.passed == 0 } else { self.passed > 0 };
        kept && self.judged > 0 && self.double_holders == 0
    }
}

impl fmt::Display for FairQueueResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.in_queue { "in the queue" } else { "by a timer" };
        write!(
            f,
            "queue, {NODES} nodes, {WAITERS} processes wait {how}: {} rounds, ",
            self.rounds
        )?;
        write!(f, "{} waiters struck, {} nodes stopped, ", self.struck, self.stopped)?;
        write!(f, "{} wiped; {} grants, {} judged, ", self.wiped, self.grants, self.judged)?;
        write!(f, "{} lost their turn, {} were passed, ", self.skipped, self.passed)?;
        write!(f, "{} double holders, {:.1} s", self.double_holders, self.took.as_secs_f64())
    }
}

impl FairQueue {
    /// Plays the rounds, and checks at the end that nothing is left.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<FairQueueResult, Failure> {
        let start = Instant::now();
        let mut play = Play::new(self, stage)?;
        let holder = Client::new(play.role.config(&play.part)?)?;
        let has_found = |play: &Play| !self.in_queue && play.result.passed > 0;
        while play.result.rounds < self.rounds && !has_found(&play) {
            play.round(&holder)?;
        }
        let Play { servers, ledger, result, .. } = play;
        eventually("nothing is left of the queue", || servers.iter().all(is_clear))?;
        let double_holders = ledger.double_holders().len();
        Ok(FairQueueResult { double_holders, took: start.elapsed(), ..result })
    }
}

/// The fault of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A node is stopped before the first waiter comes.
    NodeStops,
    /// A node loses all keys while they wait. Places are lost, so no order is judged.
    NodeForgets,
    /// A waiter that is not the last is stopped until all others have been granted.
    WaiterStops,
    WaiterDies,
}

struct Play {
    program: PathBuf,
    part: Part,
    role: Role,
    servers: Vec<Server>,
    /// The waiters, in the order in which they come.
    waiters: Vec<Waiter>,
    ledger: Ledger,
    result: FairQueueResult,
    rng: Rng,
}

struct Waiter {
    worker: Worker,
    /// The name of its ticket in this round.
    ticket: Option<String>,
    entered: Option<Moment>,
    done: bool,
}

impl Waiter {
    fn start(role: Role, program: &Path, part: &Part) -> Result<Self, Failure> {
        let worker = Worker::start_as(role, program, part)?;
        Ok(Self { worker, ticket: None, entered: None, done: true })
    }
}

impl Play {
    fn new(plan: &FairQueue, stage: &Stage) -> Result<Self, Failure> {
        let servers = servers(NODES);
        let addresses = servers.iter().map(Server::address).collect();
        let part = nodes::part(addresses, MAX_TTL, true, "waiter");
        nodes::init(&part)?;
        let role = if plan.in_queue { Role::Queues } else { Role::WaitsByTimer };
        let waiters = (0..WAITERS).map(|_| Waiter::start(role, &stage.program, &part));
        Ok(Self {
            program: stage.program.clone(),
            waiters: waiters.collect::<Result<_, Failure>>()?,
            part,
            role,
            servers,
            ledger: Ledger::default(),
            result: FairQueueResult { in_queue: plan.in_queue, ..FairQueueResult::default() },
            rng: Rng::with_seed(stage.seed),
        })
    }

    fn round(&mut self, holder: &Client) -> Result<(), Failure> {
        nodes::all_vote(&self.servers, holder)?;
        let (fault, node) = (self.fault(), self.rng.usize(0..NODES));
        let victim = self.rng.usize(0..WAITERS - 1);
        let request = LockRequest::new(RESOURCE.as_bytes()).ttl(MAX_TTL).wait(Wait::UpTo(LIMIT));
        // The waiters come while the lock is held, so each of them has to wait.
        let guard = holder.acquire(request)?;
        let from = now();
        let mut watches = self.servers.iter().map(Watch::begin).collect::<Result<Vec<_>, _>>()?;
        self.come((fault == Fault::NodeStops).then_some(node))?;
        match fault {
            Fault::WaiterStops => self.waiters[victim].worker.pause()?,
            Fault::WaiterDies => {
                self.waiters[victim] = Waiter::start(self.role, &self.program, &self.part)?;
            }
            Fault::NodeForgets => {
                self.servers[node].restart();
                // Lost keys would look like tickets that nodes have passed.
                watches.clear();
            }
            Fault::Nothing | Fault::NodeStops => {}
        }
        let to = now();
        // If the lease has ended meanwhile, its end is not known here.
        if !guard.remaining().is_zero() {
            self.ledger.add(Claim::alone(WAITERS, from, to, None));
        }
        let _ = guard.release();
        let stopped = (fault == Fault::WaiterStops).then_some(victim);
        self.hear_until_done(stopped)?;
        self.servers[node].resume();
        self.waiters[victim].worker.resume()?;
        self.hear_until_done(None)?;
        self.judge(fault, victim, watches)
    }

    fn fault(&mut self) -> Fault {
        let fault = match self.rng.u8(0..10) {
            _ if !self.result.in_queue => Fault::Nothing,
            0..3 => Fault::Nothing,
            3 | 4 => Fault::NodeStops,
            5 => Fault::NodeForgets,
            6 | 7 => Fault::WaiterStops,
            _ => Fault::WaiterDies,
        };
        let is_of_waiter = matches!(fault, Fault::WaiterStops | Fault::WaiterDies);
        self.result.struck += usize::from(is_of_waiter);
        self.result.stopped += usize::from(fault == Fault::NodeStops);
        self.result.wiped += usize::from(fault == Fault::NodeForgets);
        fault
    }

    /// Lets the waiters come one after the other, each when all running nodes agree on the place of
    /// the previous one.
    fn come(&mut self, asleep: Option<usize>) -> Result<(), Failure> {
        asleep.into_iter().for_each(|node| self.servers[node].pause());
        let mut known: BTreeSet<String> =
            self.servers_but(asleep).flat_map(tickets).map(|(name, _)| name).collect();
        for at in 0..WAITERS {
            let order = Order { keep: Some(KEPT), ..Order::to_hold(TTL, LIMIT) };
            let waiter = &mut self.waiters[at];
            (waiter.ticket, waiter.entered, waiter.done) = (None, None, false);
            waiter.worker.order(&order)?;
            // Without a queue there is no ticket to wait for.
            if !self.result.in_queue {
                thread::sleep(BY_THEN);
                continue;
            }
            let until = Instant::now() + LIMIT;
            while self.waiters[at].ticket.is_none() && !self.waiters[at].done {
                self.receive()?;
                self.waiters[at].ticket = self.newcomer(asleep, &known);
                if Instant::now() > until {
                    return Err("a waiter finds no place".into());
                }
                thread::sleep(Duration::from_millis(1));
            }
            known.extend(self.waiters[at].ticket.clone());
        }
        Ok(())
    }

    fn servers_but(&self, asleep: Option<usize>) -> impl Iterator<Item = &Server> {
        let awake = self.servers.iter().enumerate().filter(move |(at, _)| Some(*at) != asleep);
        awake.map(|(_, server)| server)
    }

    /// Returns the waiter that has come since then, if all nodes agree on its place.
    fn newcomer(&self, asleep: Option<usize>, known: &BTreeSet<String>) -> Option<String> {
        let mut told = self.servers_but(asleep).map(|server| {
            let new = tickets(server).into_iter().filter(|(name, _)| !known.contains(name));
            new.collect::<Vec<_>>()
        });
        let first = told.next()?;
        let are_alike = told.all(|other| other == first);
        first.into_iter().next().filter(|_| are_alike).map(|(name, _)| name)
    }

    fn receive(&mut self) -> Result<(), Failure> {
        for (number, waiter) in self.waiters.iter_mut().enumerate() {
            while let Some(report) = waiter.worker.overhear()? {
                match report {
                    Report::Entered { at, .. } => waiter.entered = Some(at),
                    Report::Left { at: to, .. } => {
                        let from = waiter.entered.ok_or("a worker left without having entered")?;
                        self.ledger.add(Claim::alone(number, from, to, None));
                        self.result.grants += 1;
                    }
                    Report::Done => waiter.done = true,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn hear_until_done(&mut self, but: Option<usize>) -> Result<(), Failure> {
        let until = Instant::now() + 2 * LIMIT;
        let is_done = |(at, waiter): (usize, &Waiter)| waiter.done || Some(at) == but;
        while !self.waiters.iter().enumerate().all(is_done) {
            self.receive()?;
            if Instant::now() > until {
                return Err("a waiter does not get its turn".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Checks that the waiters were granted in the order of their arrival, except for those that a
    /// node has passed.
    fn judge(&mut self, fault: Fault, victim: usize, watches: Vec<Watch>) -> Result<(), Failure> {
        self.result.rounds += 1;
        let mut lost = BTreeSet::new();
        for (watch, server) in watches.into_iter().zip(&self.servers) {
            lost.extend(watch.end(server)?);
        }
        if fault == Fault::NodeForgets {
            return Ok(());
        }
        let is_struck = matches!(fault, Fault::WaiterStops | Fault::WaiterDies);
        let others = self.waiters.iter().enumerate().filter(|(at, _)| !is_struck || *at != victim);
        let mut latest_first = Vec::new();
        for (_, waiter) in others {
            let is_lost = waiter.ticket.as_ref().is_some_and(|name| lost.contains(name));
            let has_place = waiter.ticket.is_some() || !self.result.in_queue;
            self.result.skipped += usize::from(is_lost);
            if let Some(entered) = waiter.entered.filter(|_| has_place && !is_lost) {
                // Later waiters come first, so that each is compared with all that came after it.
                latest_first.insert(0, entered);
            }
        }
        self.result.judged += latest_first.len();
        let mut soonest = None;
        for entered in latest_first {
            self.result.passed += usize::from(soonest.is_some_and(|later| later < entered));
            soonest = soonest.into_iter().chain([entered]).min();
        }
        Ok(())
    }
}

const NODES: usize = 3;
const WAITERS: usize = 4;
/// The `max_ttl`. As a rule all waiters come within this time.
const MAX_TTL: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(2);
const KEPT: Duration = Duration::from_millis(2);
/// The time within which a waiter by timer has sent a request.
const BY_THEN: Duration = Duration::from_millis(40);
