//! Nodes that lose their memory while locks are held.
//!
//! In each cycle a quorum grants the holder the lock, often a bare quorum, because the holder's
//! connections to the other nodes are cut. Then nodes that granted it are killed and restarted
//! without their memory, and rivals request the lock at once. Without the restart guard the nodes
//! that lost the lock and those that never had it are a quorum for a rival. The models show why the
//! restart guard is sufficient.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt::Client;
use redbolt_test_servers::{Mode, Server, servers};

use crate::clock::{Moment, now};
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT, Ways};
use crate::stage::{Failure, Stage};
use crate::wire::{Order, Report};
use crate::witness::Witness;
use crate::worker::Worker;

/// Kills and restarts nodes of held locks.
#[derive(Clone, Debug)]
pub struct Restarts {
    /// The number of cycles that have to count, for each number of nodes.
    pub cycles: usize,
    /// The numbers of nodes.
    pub nodes: Vec<usize>,
    /// The number of sets of nodes that run in parallel, for each number of nodes.
    pub lanes: usize,
    /// The `max_ttl`, which is the TTL of the holder's lock.
    pub max_ttl: Duration,
    /// True if the restart guard is on. Without it the run has to find double holders.
    pub guarded: bool,
    /// True: restarted nodes load a snapshot from before the grant, instead of nothing.
    pub stale: bool,
}

/// The results for one number of nodes.
#[derive(Clone, Debug)]
pub struct RestartsResult {
    /// The number of nodes.
    pub nodes: usize,
    /// True if the restart guard was on.
    pub guarded: bool,
    /// True if nodes came back with stale data.
    pub stale: bool,
    /// The TTL of the holder's locks.
    pub max_ttl: Duration,
    /// The number of cycles.
    pub cycles: usize,
    /// The number of cycles in which a wiped node received a request while the holder's lease was
    /// valid.
    pub asked: usize,
    /// The number of cycles in which the resource was granted again after the wipe.
    pub granted_again: usize,
    /// The number of cycles with both.
    pub counted: usize,
    /// The number of processes killed and restarted.
    pub wipes: usize,
    /// The number of grants.
    pub grants: usize,
    /// The number of pairs of overlapping claims.
    pub double_holders: usize,
    /// The first of them.
    pub example: Option<(Claim, Claim)>,
    /// The duration of the run.
    pub took: Duration,
    /// The number of cycles that had to count.
    wanted: usize,
}

impl RestartsResult {
    /// Returns true if exclusion held; without the restart guard, if the check found that it did
    /// not.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.counted >= self.wanted && self.guarded == (self.double_holders == 0)
    }
}

impl Restarts {
    /// Runs the cycles, in parallel for each number of nodes.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<Vec<RestartsResult>, Failure> {
        let sets: Vec<usize> =
            self.nodes.iter().flat_map(|&n| std::iter::repeat_n(n, self.lanes)).collect();
        let lanes: Vec<_> = thread::scope(|scope| {
            let lanes: Vec<_> = sets
                .iter()
                .enumerate()
                .map(|(at, &n)| scope.spawn(move || self.lane(stage, n, at)))
                .collect();
            let joined =
                lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane has panicked"));
            joined.map(|lane| lane?).collect::<Result<_, Failure>>()
        })?;
        let of = |n: usize| lanes.iter().filter(move |lane: &&RestartsResult| lane.nodes == n);
        let sum = |n: usize| of(n).cloned().reduce(RestartsResult::and);
        Ok(self.nodes.iter().filter_map(|&n| sum(n)).collect())
    }

    fn lane(&self, stage: &Stage, n: usize, at: usize) -> Result<RestartsResult, Failure> {
        let start = Instant::now();
        let wanted = self.cycles.div_ceil(self.lanes);
        let mut lane = Lane::new(self, stage, n, at)?;
        let mut result = self.nothing_yet(n, wanted);
        // Not every cycle counts, but a run in which few do has to end.
        while result.counted < wanted && result.cycles < 2 * wanted + 20 {
            let cycle = lane.cycle().map_err(|error| {
                format!("cycle {} of lane {at} ({n} nodes): {error}", result.cycles + 1)
            })?;
            result.cycles += 1;
            result.wipes += cycle.wipes;
            result.asked += usize::from(cycle.asked);
            result.granted_again += usize::from(cycle.granted_again);
            result.counted += usize::from(cycle.asked && cycle.granted_again);
        }
        let doubles = lane.ledger.double_holders();
        result.grants = lane.ledger.len();
        (result.double_holders, result.example) = (doubles.len(), doubles.first().copied());
        result.took = start.elapsed();
        Ok(result)
    }

    fn nothing_yet(&self, nodes: usize, wanted: usize) -> RestartsResult {
        RestartsResult {
            nodes,
            guarded: self.guarded,
            stale: self.stale,
            max_ttl: self.max_ttl,
            cycles: 0,
            asked: 0,
            granted_again: 0,
            counted: 0,
            wipes: 0,
            grants: 0,
            double_holders: 0,
            example: None,
            took: Duration::ZERO,
            wanted,
        }
    }
}

impl RestartsResult {
    /// Returns the sum of two lanes of the same kind.
    fn and(self, other: Self) -> Self {
        Self {
            cycles: self.cycles + other.cycles,
            asked: self.asked + other.asked,
            granted_again: self.granted_again + other.granted_again,
            counted: self.counted + other.counted,
            wipes: self.wipes + other.wipes,
            grants: self.grants + other.grants,
            double_holders: self.double_holders + other.double_holders,
            example: self.example.or(other.example),
            took: self.took.max(other.took),
            wanted: self.wanted + other.wanted,
            ..self
        }
    }
}

impl fmt::Display for RestartsResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let restart_guard = if self.guarded { "on" } else { "off" };
        let memory = if self.stale { "stale" } else { "lost" };
        write!(f, "restarts, {} nodes, memory {memory}, guard {restart_guard}, ", self.nodes)?;
        write!(f, "max_ttl {:?}: ", self.max_ttl)?;
        write!(f, "{} cycles run, {} nodes wiped, ", self.cycles, self.wipes)?;
        write!(f, "{} cycles in which a wiped node was asked while ", self.asked)?;
        write!(
            f,
            "the lease was valid, {} in which the lock was granted again, ",
            self.granted_again
        )?;
        write!(f, "{} counted (both), {} grants, ", self.counted, self.grants)?;
        write!(f, "{} double holders, {:.1} s", self.double_holders, self.took.as_secs_f64())?;
        if let Some((one, other)) = self.example {
            let common = one.to.min(other.to).since(other.from);
            write!(f, "; the first two both held the lock for {common:?}")?;
        }
        Ok(())
    }
}

/// One set of servers, and the processes that compete for its lock.
struct Lane {
    servers: Vec<Server>,
    ways: Ways,
    holder: Worker,
    /// The worker that keeps its connections over the cycles.
    steady: Worker,
    /// The worker that opens new connections in each cycle.
    fresh: Worker,
    /// The client that inspects the nodes between cycles, if the restart guard is on.
    operator: Option<Client>,
    ledger: Ledger,
    rng: Rng,
    max_ttl: Duration,
    stale: bool,
}

/// The result of one cycle.
#[derive(Default)]
struct Cycle {
    wipes: usize,
    asked: bool,
    granted_again: bool,
}

impl Lane {
    fn new(plan: &Restarts, stage: &Stage, n: usize, at: usize) -> Result<Self, Failure> {
        let Restarts { max_ttl, guarded, stale, .. } = *plan;
        let servers = servers(n);
        let ways = Ways::to(&servers);
        let part = |nodes, label: &str| nodes::part(nodes, max_ttl, guarded, label);
        let straight: Vec<String> = servers.iter().map(Server::address).collect();
        let operator = part(straight.clone(), "operator");
        nodes::init(&operator)?;
        let operator = guarded.then(|| operator.config()).transpose()?;
        let worker = |nodes, label: &str| Worker::start(&stage.program, &part(nodes, label));
        Ok(Self {
            holder: worker(ways.addresses(), HOLDER)?,
            steady: worker(straight.clone(), "steady")?,
            fresh: worker(straight, "fresh")?,
            servers,
            ways,
            operator: operator.map(Client::new).transpose()?,
            ledger: Ledger::default(),
            rng: Rng::with_seed(stage.seed.wrapping_add(at as u64)),
            max_ttl,
            stale,
        })
    }

    fn cycle(&mut self) -> Result<Cycle, Failure> {
        let mut cycle = Cycle::default();
        if let Some(operator) = &self.operator {
            nodes::all_vote(&self.servers, operator)?;
        }
        if self.stale {
            // A restarted server loads this file.
            self.servers.iter().for_each(|server| drop(server.cmd("SAVE")));
        }
        let cut = self.cut_the_holder_off();
        let to_hold = self.holding();
        self.holder.order(&to_hold)?;
        let entered = self.holder.receive(LIMIT)?;
        let Report::Entered { at: from, .. } = entered else {
            self.ways.set(&[], Mode::Pass);
            return finish(&self.holder, entered).map(|()| cycle);
        };
        let rivals = self.rivalry();
        self.steady.order(&rivals)?;
        thread::sleep(self.max_ttl.mul_f64(self.rng.f64() / 4.0));
        let victims = self.victims(&cut);
        // Only a later grant can be a result of the lost memory.
        let wiped = now();
        let witness = self.wipe(&victims)?;
        cycle.wipes = victims.len();
        self.fresh.order(&Order { fresh: true, ..rivals })?;
        let left = self.stays(0, Some(from))?;
        self.ways.set(&[], Mode::Pass);
        let again = [self.stays(1, None)?, self.stays(2, None)?];
        cycle.granted_again = again.iter().flatten().any(|stay| stay.0 > wiped);
        if let Some(witness) = witness {
            let asked = witness.dismiss(&self.servers[victims[0]])?.first;
            cycle.asked = matches!((asked, left), (Some(asked), Some(left)) if asked < left.1);
        }
        Ok(cycle)
    }

    /// Cuts connections of the holder, in most cycles enough to leave a bare quorum.
    fn cut_the_holder_off(&mut self) -> Vec<usize> {
        let n = self.servers.len();
        let spare = n - (n / 2 + 1);
        let cuts = if self.rng.u8(0..4) > 0 { spare } else { self.rng.usize(0..=spare) };
        let cut = self.rng.choose_multiple(0..n, cuts);
        // A stalled connection delivers its bytes late.
        let mode = if self.rng.u8(0..4) > 0 { Mode::Refuse } else { Mode::Stall };
        self.ways.set(&cut, mode);
        cut
    }

    fn holding(&mut self) -> Order {
        let extend = self.rng.u8(0..4) == 0;
        let extend_after = extend.then(|| self.max_ttl.mul_f64(self.rng.f64() * 0.8));
        Order { extend_after, ..Order::to_hold(self.max_ttl, self.max_ttl * 5) }
    }

    fn rivalry(&mut self) -> Order {
        let keep = Some(Duration::from_millis(self.rng.u64(0..20)));
        Order { keep, extend_after: None, wait: self.max_ttl * 10, ..self.holding() }
    }

    /// Returns the nodes to wipe: in most cycles one of those that keep the holder's lock,
    /// otherwise all of them.
    fn victims(&mut self, cut: &[usize]) -> Vec<usize> {
        let keeps = |&at: &usize| nodes::keeps_for(&self.servers[at], HOLDER);
        let kept = (0..self.servers.len()).filter(|at| !cut.contains(at)).filter(keeps);
        let kept: Vec<usize> = kept.collect();
        if self.rng.u8(0..4) > 0 { self.rng.choice(kept).into_iter().collect() } else { kept }
    }

    /// Kills nodes and restarts them, and watches the first of them from its first moment.
    fn wipe(&mut self, victims: &[usize]) -> Result<Option<Witness>, Failure> {
        victims.iter().for_each(|&at| self.servers[at].kill());
        victims.iter().for_each(|&at| self.servers[at].restart());
        victims.first().map(|&at| Witness::of_asks(&self.servers[at])).transpose()
    }

    /// Reads a process's reports until its order is done, and adds its claim to the ledger.
    fn stays(
        &mut self,
        holder: usize,
        mut from: Option<Moment>,
    ) -> Result<Option<(Moment, Moment)>, Failure> {
        let mut stay = None;
        let worker = [&self.holder, &self.steady, &self.fresh][holder];
        loop {
            match worker.receive(LIMIT)? {
                Report::Entered { at, .. } => from = Some(at),
                Report::Left { at: to, .. } => {
                    let from = from.take().ok_or("a worker left without having entered")?;
                    stay = Some((from, to));
                    self.ledger.add(Claim::alone(holder, from, to, None));
                }
                Report::Done => return Ok(stay),
                Report::Extended(_)
                | Report::Refused(_)
                | Report::Changed { .. }
                | Report::Told(_)
                | Report::Writes { .. } => {}
            }
        }
    }
}

/// Reads the reports of an order that was refused.
fn finish(worker: &Worker, mut report: Report) -> Result<(), Failure> {
    while report != Report::Done {
        report = worker.receive(LIMIT)?;
    }
    Ok(())
}

/// The label of the holder's tokens.
const HOLDER: &str = "holder";
