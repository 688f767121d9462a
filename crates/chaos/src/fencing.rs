//! Fencing tokens of four processes, under every disturbance of the counters.
//!
//! Counters start far apart and are driven apart repeatedly, each process reaches different nodes,
//! some leases expire, and the node with the largest counter loses its memory. When that node votes
//! again, the processes cannot reach the nodes with the largest counters.
//!
//! Counters are at most 4 s ahead of the clock, as far as a client with a wrong clock could push
//! them. A counter that is further ahead than the quarantine lasts would be lost with its node's
//! memory. The documentation states this, and this program does not test it.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use redbolt::proto::script;
use redbolt_test_servers::{Mode, Reply, Server, servers};

use crate::clock::Moment;
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT, Ways};
use crate::stage::{Failure, RESOURCE, Stage};
use crate::wire::{Order, Report};
use crate::witness::Witness;
use crate::worker::Worker;

/// Lets processes acquire fenced locks.
#[derive(Clone, Debug)]
pub struct Fencing {
    /// The number of grants.
    pub grants: usize,
    /// True: all counters are lost without the restart guard noticing, and the run has to find
    /// tokens that do not grow.
    pub forget: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct FencingResult {
    /// The number of grants.
    pub grants: usize,
    /// The number of requests refused.
    pub refused: usize,
    /// Pairs of equal tokens, and tokens that are not larger than those of claims that had ended
    /// before.
    pub disorders: usize,
    /// The first of them.
    pub example: Option<(Claim, Claim)>,
    /// The number of pairs of overlapping claims.
    pub double_holders: usize,
    /// The number of tokens ahead of every clock, which must come from counters.
    pub counted_on: usize,
    /// The number of write-backs that one of the nodes received.
    pub write_backs: u64,
    /// The number of times that a counter was raised.
    pub raises: usize,
    /// The time for which the wiped node did not vote.
    pub quarantine: Option<Duration>,
    /// The number of grants since it votes again.
    pub after_return: usize,
    /// The duration of the run.
    pub took: Duration,
    wanted: usize,
    forget: bool,
}

impl FencingResult {
    /// Returns true if all tokens grew; if all counters were lost, if the check found that they did
    /// not.
    #[must_use]
    pub fn holds(&self) -> bool {
        if self.forget {
            return self.disorders > 0;
        }
        let grown = self.disorders == 0 && self.double_holders == 0;
        let was_hard = self.counted_on > 0 && self.write_backs > 0 && self.after_return > 0;
        grown && was_hard && self.grants >= self.wanted
    }
}

impl fmt::Display for FencingResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = if self.forget { ", all counters lost" } else { "" };
        write!(f, "fencing, {NODES} nodes, {PROCESSES} processes{lost}: {} grants, ", self.grants)?;
        write!(f, "{} refusals, {} tokens from counters, ", self.refused, self.counted_on)?;
        write!(f, "{} write-backs on one node, ", self.write_backs)?;
        write!(f, "{} counters driven apart, ", self.raises)?;
        if let Some(span) = self.quarantine {
            write!(f, "a wiped node back after {:.1} s and ", span.as_secs_f64())?;
            write!(f, "{} grants with it, ", self.after_return)?;
        }
        write!(f, "{} tokens that did not grow, ", self.disorders)?;
        write!(f, "{} double holders, {:.1} s", self.double_holders, self.took.as_secs_f64())?;
        if let Some((one, other)) = self.example {
            let (one, other) = (one.token.unwrap_or(0), other.token.unwrap_or(0));
            write!(f, "; the first: {other} after {one}")?;
        }
        Ok(())
    }
}

impl Fencing {
    /// Runs until there were enough grants, including some with the wiped node back.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<FencingResult, Failure> {
        let start = Instant::now();
        let mut play = Play::new(self, stage)?;
        let limit = LIMIT * 4 + Duration::from_millis(30) * self.grants as u32;
        while !play.is_over() {
            play.hear_all(play.scene != Scene::Quiet)?;
            play.disturb();
            play.go_on()?;
            if start.elapsed() > limit {
                return Err(format!("not finished within {limit:?}: {}", play.result).into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let mut result = play.end()?;
        result.took = start.elapsed();
        Ok(result)
    }
}

/// The stage of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// Counters are driven apart.
    Apart,
    /// This node was wiped at this time, and does not vote yet.
    Wiped { node: usize, at: Instant },
    /// The node votes again, since this many grants.
    Back { node: usize, grants: usize },
    /// All counters are ahead of the clock, since this many grants.
    Ahead { grants: usize },
    /// The processes finish: an acquisition in progress would write its token back.
    Quiet,
    /// All counters are lost, since this many grants.
    Forgotten { grants: usize },
}

struct Play {
    plan: Fencing,
    servers: Vec<Server>,
    processes: Vec<Process>,
    witness: Option<Witness>,
    ledger: Ledger,
    result: FencingResult,
    scene: Scene,
    disturb_at: Instant,
    rng: Rng,
}

struct Process {
    worker: Worker,
    ways: Ways,
    busy: bool,
    entered: Option<(Moment, u64)>,
}

impl Play {
    fn new(plan: &Fencing, stage: &Stage) -> Result<Self, Failure> {
        let servers = servers(NODES);
        let addresses = servers.iter().map(Server::address).collect();
        nodes::init(&nodes::part(addresses, MAX_TTL, true, "operator"))?;
        // The first server has no counter.
        let now = wall_us();
        for (server, value) in servers[1..].iter().zip([7, now, now + AHEAD_US / 2, now + AHEAD_US])
        {
            raise(server, value);
        }
        let processes = (0..PROCESSES).map(|number| {
            let ways = Ways::to(&servers);
            let part = nodes::part(ways.addresses(), MAX_TTL, true, &format!("process-{number}"));
            let worker = Worker::start(&stage.program, &part)?;
            Ok(Process { worker, ways, busy: false, entered: None })
        });
        Ok(Self {
            processes: processes.collect::<Result<_, Failure>>()?,
            witness: Some(witness_of_write_backs(&servers[WITNESS])?),
            servers,
            ledger: Ledger::default(),
            result: FencingResult {
                wanted: plan.grants,
                forget: plan.forget,
                ..Default::default()
            },
            scene: Scene::Apart,
            disturb_at: Instant::now(),
            rng: Rng::with_seed(stage.seed),
            plan: plan.clone(),
        })
    }

    fn is_over(&self) -> bool {
        let grants = self.ledger.len();
        let enough = match self.scene {
            Scene::Back { grants: before, .. } | Scene::Forgotten { grants: before } => {
                grants >= before + self.plan.grants / 5
            }
            _ => false,
        };
        enough && grants >= self.plan.grants
    }

    /// Reads the processes' reports, and gives idle ones new orders.
    fn hear_all(&mut self, keep_busy: bool) -> Result<(), Failure> {
        for number in 0..self.processes.len() {
            while let Some(report) = self.processes[number].worker.overhear()? {
                self.heard(number, report)?;
            }
            if keep_busy && !self.processes[number].busy {
                let order = self.next_order();
                let process = &mut self.processes[number];
                process.worker.order(&order)?;
                process.busy = true;
            }
        }
        Ok(())
    }

    fn heard(&mut self, number: usize, report: Report) -> Result<(), Failure> {
        let process = &mut self.processes[number];
        match report {
            Report::Entered { at, token, .. } => {
                let token = token.ok_or("a fenced lock has no token")?;
                // A token that is ahead of the clock comes from a counter.
                self.result.counted_on += usize::from(token > wall_us());
                process.entered = Some((at, token));
            }
            Report::Left { at: to, .. } => {
                let (from, token) =
                    process.entered.take().ok_or("a worker left without having entered")?;
                self.ledger.add(Claim::alone(number, from, to, Some(token)));
            }
            Report::Refused(_) => self.result.refused += 1,
            Report::Done => process.busy = false,
            Report::Changed { .. }
            | Report::Extended(_)
            | Report::Told(_)
            | Report::Writes { .. } => {}
        }
        Ok(())
    }

    /// Returns an order: many short holds, and sometimes one whose lease expires.
    fn next_order(&mut self) -> Order {
        let (keep, ttl, times) = match self.rng.u8(0..8) {
            0 => (None, 60, 1),
            _ => (Some(Duration::ZERO), 400, self.rng.u64(5..25)),
        };
        let (ttl, wait) = (Duration::from_millis(ttl), Duration::from_secs(2));
        Order { keep, fenced: true, times, ..Order::to_hold(ttl, wait) }
    }

    /// Cuts a process off from some nodes, and drives a counter apart.
    fn disturb(&mut self) {
        if Instant::now() < self.disturb_at {
            return;
        }
        self.disturb_at = Instant::now() + Duration::from_millis(self.rng.u64(50..400));
        let absent = match self.scene {
            Scene::Wiped { node, .. } => Some(node),
            _ => None,
        };
        // A quorum has to stay within reach.
        let spare = NODES - QUORUM - usize::from(absent.is_some());
        let others = (0..NODES).filter(|&node| Some(node) != absent);
        let cuts = self.rng.usize(0..=spare);
        let cut = self.rng.choose_multiple(others, cuts);
        let process = self.rng.usize(0..PROCESSES);
        self.processes[process].ways.set(&cut, Mode::Refuse);
        self.drive_apart(absent);
    }

    /// Raises a counter: mostly a little, sometimes to the limit, so that some tokens come from
    /// counters and some from clocks.
    fn drive_apart(&mut self, absent: Option<usize>) {
        let node = self.rng.usize(0..NODES);
        let drives = matches!(self.scene, Scene::Apart | Scene::Wiped { .. } | Scene::Back { .. });
        if Some(node) != absent && drives {
            let ahead_us = AHEAD_US >> self.rng.u32(0..22);
            raise(&self.servers[node], wall_us() + ahead_us);
            self.result.raises += 1;
        }
    }

    /// Moves on to the next stage when the current one is done.
    fn go_on(&mut self) -> Result<(), Failure> {
        let grants = self.ledger.len();
        match self.scene {
            Scene::Apart if grants < self.plan.grants / 3 => {}
            Scene::Apart if self.plan.forget => {
                let ahead = wall_us() + LOST_US;
                self.servers.iter().for_each(|server| raise(server, ahead));
                self.scene = Scene::Ahead { grants };
            }
            Scene::Apart => self.wipe(),
            Scene::Wiped { node, at } => {
                if nodes::votes(&self.servers[node]) {
                    self.result.quarantine = Some(at.elapsed());
                    self.scene = Scene::Back { node, grants };
                    self.hide_the_largest(node);
                }
            }
            // Tokens from these counters have to be granted first, so that later ones can be
            // smaller.
            Scene::Ahead { grants: before } if grants >= before + 20 => self.scene = Scene::Quiet,
            Scene::Quiet if !self.is_busy() => {
                for server in &self.servers {
                    server.cmd(&format!("DEL {}", counter_key()));
                }
                self.scene = Scene::Forgotten { grants };
            }
            Scene::Ahead { .. } | Scene::Quiet | Scene::Back { .. } | Scene::Forgotten { .. } => {}
        }
        Ok(())
    }

    /// Lets the node with the largest counter, except the witness, lose its memory.
    fn wipe(&mut self) {
        // A restart would end the connection of the witness.
        let others = (0..NODES).filter(|&node| node != WITNESS);
        let largest = others.max_by_key(|&node| counter(&self.servers[node]));
        if let Some(node) = largest {
            self.servers[node].restart();
            self.scene = Scene::Wiped { node, at: Instant::now() };
        }
    }

    /// Keeps all processes from the two nodes with the largest counters for a while, so that every
    /// quorum needs the wiped node.
    fn hide_the_largest(&mut self, back: usize) {
        let mut others: Vec<usize> = (0..NODES).filter(|&node| node != back).collect();
        others.sort_by_key(|&node| std::cmp::Reverse(counter(&self.servers[node])));
        others.truncate(NODES - QUORUM);
        for process in &self.processes {
            process.ways.set(&others, Mode::Refuse);
        }
        // The next disturbance would end some of the cuts.
        self.disturb_at = Instant::now() + Duration::from_millis(500);
    }

    fn is_busy(&self) -> bool {
        self.processes.iter().any(|process| process.busy)
    }

    /// Lets the processes finish, and checks the claims.
    fn end(mut self) -> Result<FencingResult, Failure> {
        let until = Instant::now() + LIMIT * 2;
        while self.is_busy() {
            self.hear_all(false)?;
            if Instant::now() > until {
                return Err("a worker does not finish".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let mut result = self.result;
        if let Some(witness) = self.witness.take() {
            result.write_backs = witness.dismiss(&self.servers[WITNESS])?.count;
        }
        if let Scene::Back { grants, node } = self.scene {
            // Without a counter the wiped node took no part in a fenced grant.
            let has_counted = counter(&self.servers[node]) > 0;
            result.after_return = if has_counted { self.ledger.len() - grants } else { 0 };
        }
        let (disorders, doubles) = (self.ledger.disorders(), self.ledger.double_holders());
        result.grants = self.ledger.len();
        (result.disorders, result.example) = (disorders.len(), disorders.first().copied());
        result.double_holders = doubles.len();
        Ok(result)
    }
}

fn witness_of_write_backs(server: &Server) -> Result<Witness, Failure> {
    let digest = server.run(&[b"SCRIPT", b"LOAD", script::WRITE_BACK.text.as_bytes()]);
    let Reply::Bulk(digest) = digest else {
        return Err("the server did not load the script".into());
    };
    let digest = String::from_utf8(digest)?;
    let text =
        format!("\"EVAL\" \"{}", &script::WRITE_BACK.text[..script::WRITE_BACK.text.len() / 2]);
    Witness::of(server, move |line| line.contains(&digest) || line.contains(&text))
}

/// Raises a counter. It never lowers one.
fn raise(server: &Server, value: u64) {
    let (key, value) = (counter_key(), value.to_string());
    server.run(&[b"EVAL", RAISE.as_bytes(), b"1", key.as_bytes(), value.as_bytes()]);
}

fn counter(server: &Server) -> u64 {
    match server.cmd(&format!("GET {}", counter_key())) {
        Reply::Bulk(value) => String::from_utf8_lossy(&value).parse().unwrap_or(0),
        _ => 0,
    }
}

fn counter_key() -> String {
    format!("redbolt:fence:{RESOURCE}")
}

fn wall_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |span| span.as_micros() as u64)
}

const RAISE: &str = "\
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then \
redis.call('SET', KEYS[1], ARGV[1], 'PX', 604800000) end";

const NODES: usize = 5;
const QUORUM: usize = 3;
const PROCESSES: usize = 4;
const WITNESS: usize = 0;

/// The maximum time by which counters are ahead of the clock, in microseconds.
const AHEAD_US: u64 = 4_000_000;

/// The time by which they are ahead when all are lost, in microseconds: no clock of a busy machine
/// catches up with that during a run.
const LOST_US: u64 = 3_600_000_000;

/// The shortest `max_ttl` with which locks can be fenced.
const MAX_TTL: Duration = Duration::from_secs(11);
