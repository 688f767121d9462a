//! All faults at once, at random: nodes are killed, flushed and stopped, connections are cut,
//! processes are stopped, while five processes compete for one lock or a few permits, or read and
//! write, extend their locks, change the mode, and let them expire.
//!
//! The other programs find foreseen faults; this one also finds the rest. Clocks are not set.

use std::fmt;
use std::num::NonZeroU16;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt_test_servers::{Mode, Server, servers};

use crate::clock::Moment;
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT, Ways};
use crate::stage::{Failure, Stage};
use crate::wire::{Order, Report, Wants};
use crate::worker::Worker;

/// Runs a storm of faults.
#[derive(Clone, Debug)]
pub struct Storm {
    /// The duration.
    pub lasts: Duration,
    /// The number of nodes.
    pub nodes: usize,
    /// True if the restart guard is on. Without it the run has to find double holders, and ends
    /// then.
    pub guarded: bool,
    /// The locks for which the processes compete.
    pub prize: Prize,
}

/// The locks for which processes compete in a storm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each is a storm of its own")]
pub enum Prize {
    /// One lock.
    #[default]
    Lock,
    /// This many permits.
    Permits(NonZeroU16),
    /// One lock, which some of them share. Readers become writers, and writers readers.
    ReadWrite,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct StormResult {
    /// The number of nodes.
    pub nodes: usize,
    /// True if the restart guard was on.
    pub guarded: bool,
    /// The locks for which the processes competed.
    pub prize: Prize,
    /// The number of grants.
    pub grants: usize,
    /// The number of requests refused.
    pub refused: usize,
    /// The number of readers that became writers.
    pub upgraded: usize,
    /// The number of writers that became readers.
    pub downgraded: usize,
    /// The number of readers that began while another one read.
    pub beside: usize,
    /// The number of extensions that succeeded.
    pub extended: usize,
    /// The number of leases that ended before their holders released.
    pub lost: usize,
    /// The number of nodes killed and restarted, with no memory or with a stale one.
    pub wipes: usize,
    /// The number of nodes flushed.
    pub flushes: usize,
    /// The number of nodes and processes that were stopped for a while.
    pub stops: usize,
    /// The number of changes of a process's connections.
    pub cuts: usize,
    /// The number of pairs of overlapping claims, of one permit if there are several.
    pub double_holders: usize,
    /// The first of them.
    pub example: Option<(Claim, Claim)>,
    /// The duration of the run.
    pub took: Duration,
}

impl StormResult {
    /// Returns true if exclusion held; without the restart guard, if the check found that it did
    /// not.
    #[must_use]
    pub fn holds(&self) -> bool {
        if !self.guarded {
            return self.double_holders > 0;
        }
        // Without changes of the mode, the run would prove nothing about them.
        let changed = self.upgraded > 0 && self.downgraded > 0 && self.beside > 0;
        let lively = changed || self.prize != Prize::ReadWrite;
        lively && self.grants > 0 && self.wipes > 0 && self.double_holders == 0
    }
}

impl fmt::Display for StormResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = if self.guarded { "on" } else { "off" };
        write!(f, "storm, {} nodes, {PROCESSES} processes, guard {guard}: ", self.nodes)?;
        if let Prize::Permits(permits) = self.prize {
            write!(f, "{permits} permits, ")?;
        }
        write!(f, "{} nodes wiped, {} emptied, ", self.wipes, self.flushes)?;
        write!(f, "{} stops, {} cuts; {} grants, ", self.stops, self.cuts, self.grants)?;
        if self.prize == Prize::ReadWrite {
            write!(f, "{} upgraded, {} downgraded, ", self.upgraded, self.downgraded)?;
            write!(f, "{} read beside others, ", self.beside)?;
        }
        write!(f, "{} extended, {} lost, {} refusals, ", self.extended, self.lost, self.refused)?;
        write!(f, "{} double holders, {:.1} s", self.double_holders, self.took.as_secs_f64())?;
        if let Some((one, other)) = self.example {
            write!(f, "; the first: {one:?} and {other:?}")?;
        }
        Ok(())
    }
}

impl Storm {
    /// Runs the storm.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<StormResult, Failure> {
        let start = Instant::now();
        let mut play = Play::new(self, stage)?;
        let has_found = |play: &Play| !self.guarded && play.doubles().next().is_some();
        while start.elapsed() < self.lasts && !has_found(&play) {
            play.hear_all(true)?;
            play.end_stops()?;
            if Instant::now() > play.strike_at {
                play.strike()?;
            }
            thread::sleep(Duration::from_millis(1));
        }
        play.calm_down()?;
        let doubles: Vec<_> = play.doubles().collect();
        Ok(StormResult {
            beside: play.ledgers.iter().map(|ledger| ledger.sharers().len()).sum(),
            double_holders: doubles.len(),
            example: doubles.first().copied(),
            took: start.elapsed(),
            ..play.result
        })
    }
}

struct Play {
    servers: Vec<Server>,
    processes: Vec<Process>,
    /// The time until which each node is stopped.
    stopped: Vec<Option<Instant>>,
    /// The ledger of each permit, or of the lock.
    ledgers: Vec<Ledger>,
    result: StormResult,
    strike_at: Instant,
    rng: Rng,
}

struct Process {
    worker: Worker,
    ways: Ways,
    busy: bool,
    /// True if it was ordered to share.
    shared: bool,
    entered: Option<Entered>,
    stopped: Option<Instant>,
}

/// The lock that a process holds.
#[derive(Clone, Copy)]
struct Entered {
    from: Moment,
    /// The number of the permit.
    slot: usize,
    shared: bool,
}

impl Play {
    fn new(plan: &Storm, stage: &Stage) -> Result<Self, Failure> {
        let servers = servers(plan.nodes);
        let part = |nodes, label: &str| nodes::part(nodes, MAX_TTL, plan.guarded, label);
        nodes::init(&part(servers.iter().map(Server::address).collect(), "operator"))?;
        let processes = (0..PROCESSES).map(|number| {
            let ways = Ways::to(&servers);
            let label = format!("process-{number}");
            let worker = Worker::start(&stage.program, &part(ways.addresses(), &label))?;
            let shared = false;
            Ok(Process { worker, ways, busy: false, shared, entered: None, stopped: None })
        });
        let Storm { nodes, guarded, prize, .. } = *plan;
        let ledgers = match prize {
            Prize::Permits(permits) => usize::from(permits.get()),
            Prize::Lock | Prize::ReadWrite => 1,
        };
        Ok(Self {
            processes: processes.collect::<Result<_, Failure>>()?,
            stopped: vec![None; nodes],
            servers,
            ledgers: vec![Ledger::default(); ledgers],
            result: StormResult { nodes, guarded, prize, ..StormResult::default() },
            strike_at: Instant::now(),
            rng: Rng::with_seed(stage.seed),
        })
    }

    fn doubles(&self) -> impl Iterator<Item = (Claim, Claim)> {
        self.ledgers.iter().flat_map(Ledger::double_holders)
    }

    fn hear_all(&mut self, keep_busy: bool) -> Result<(), Failure> {
        for number in 0..self.processes.len() {
            while let Some(report) = self.processes[number].worker.overhear()? {
                self.heard(number, &report)?;
            }
            if keep_busy && !self.processes[number].busy {
                let order = self.next_order();
                let process = &mut self.processes[number];
                process.worker.order(&order)?;
                (process.busy, process.shared) = (true, order.wants == Wants::Shared);
            }
        }
        Ok(())
    }

    fn heard(&mut self, number: usize, report: &Report) -> Result<(), Failure> {
        let process = &mut self.processes[number];
        match *report {
            Report::Entered { at: from, slot, .. } => {
                // A lock has only one ledger.
                let (slot, shared) = (slot.map_or(0, usize::from), process.shared);
                process.entered = Some(Entered { from, slot, shared });
                self.result.grants += 1;
            }
            Report::Changed { until, at: from } => {
                let Entered { slot, shared, .. } = self.ends(number, until)?;
                let changed = Entered { from, slot, shared: !shared };
                self.processes[number].entered = Some(changed);
                self.result.upgraded += usize::from(shared);
                self.result.downgraded += usize::from(!shared);
            }
            Report::Left { at, looked } => {
                self.ends(number, at)?;
                self.result.lost += usize::from(looked.is_some());
            }
            Report::Refused(_) => self.result.refused += 1,
            Report::Extended(done) => self.result.extended += usize::from(done),
            Report::Done => process.busy = false,
            Report::Told(_) | Report::Writes { .. } => {}
        }
        Ok(())
    }

    /// Ends what a process has held until now, and returns it.
    fn ends(&mut self, number: usize, to: Moment) -> Result<Entered, Failure> {
        let entered = self.processes[number].entered.take();
        let entered = entered.ok_or("a worker left without having entered")?;
        let Entered { from, slot, shared } = entered;
        let ledger = self.ledgers.get_mut(slot).ok_or("a permit that there is not")?;
        ledger.add(Claim { shared, ..Claim::alone(number, from, to, None) });
        Ok(entered)
    }

    fn next_order(&mut self) -> Order {
        let rng = &mut self.rng;
        let ttl = Duration::from_millis(rng.u64(50..=400));
        let keep = (rng.u8(0..3) > 0).then(|| ttl.mul_f64(rng.f64() * 1.5));
        let extend_after = rng.bool().then(|| ttl.mul_f64(rng.f64()));
        let (wait, fresh) = (Duration::from_millis(rng.u64(10..1500)), rng.u8(0..4) == 0);
        let wants = match self.result.prize {
            Prize::Permits(permits) => Wants::Permit { of: permits.get() },
            Prize::ReadWrite if rng.bool() => Wants::Shared,
            Prize::Lock | Prize::ReadWrite => Wants::Alone,
        };
        let changes = self.result.prize == Prize::ReadWrite && rng.bool();
        let change_every = changes.then(|| Duration::from_millis(rng.u64(2..60)));
        Order { keep, extend_after, change_every, fresh, wants, ..Order::to_hold(ttl, wait) }
    }

    /// Injects one fault.
    fn strike(&mut self) -> Result<(), Failure> {
        let node = self.rng.usize(0..self.servers.len());
        let process = self.rng.usize(0..PROCESSES);
        let awake = self.stopped[node].is_none();
        match self.rng.u8(0..20) {
            0..3 => self.wipe(node),
            // The control has to find the effects of lost memory only.
            12.. if !self.result.guarded => self.wipe(node),
            3 if awake => {
                self.servers[node].cmd("FLUSHALL");
                self.result.flushes += 1;
            }
            4 if awake => drop(self.servers[node].cmd("SAVE")),
            5 if awake => drop(self.servers[node].cmd("CLIENT KILL TYPE normal")),
            6..9 if awake => {
                self.servers[node].pause();
                self.stopped[node] = Some(self.a_while());
                self.result.stops += 1;
            }
            9..12 if self.processes[process].stopped.is_none() => {
                self.processes[process].worker.pause()?;
                self.processes[process].stopped = Some(self.a_while());
                self.result.stops += 1;
            }
            _ => self.cut(process),
        }
        self.strike_at = Instant::now() + Duration::from_millis(self.rng.u64(10..150));
        Ok(())
    }

    fn a_while(&mut self) -> Instant {
        Instant::now() + Duration::from_millis(self.rng.u64(1..700))
    }

    fn wipe(&mut self, node: usize) {
        self.servers[node].restart();
        // The new process is not stopped.
        self.stopped[node] = None;
        self.result.wipes += 1;
    }

    fn cut(&mut self, process: usize) {
        let n = self.servers.len();
        // A quorum stays within reach.
        let cuts = self.rng.usize(0..=n / 2);
        let cut = self.rng.choose_multiple(0..n, cuts);
        let delay = Duration::from_millis(self.rng.u64(1..30));
        let modes = [Mode::Refuse, Mode::Stall, Mode::Orphan, Mode::Coalesce(delay), Mode::Bytes];
        let mode = modes[self.rng.usize(0..modes.len())];
        self.processes[process].ways.set(&cut, mode);
        self.result.cuts += 1;
    }

    /// Continues nodes and processes that were stopped for long enough.
    fn end_stops(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for (server, stopped) in self.servers.iter().zip(&mut self.stopped) {
            if stopped.take_if(|until| *until <= now).is_some() {
                server.resume();
            }
        }
        for Process { worker, stopped, .. } in &mut self.processes {
            if stopped.take_if(|until| *until <= now).is_some() {
                worker.resume()?;
            }
        }
        Ok(())
    }

    /// Ends all faults, and lets the processes finish.
    fn calm_down(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + LIMIT;
        self.processes.iter().for_each(|process| process.ways.set(&[], Mode::Pass));
        while self.processes.iter().any(|process| process.busy) {
            self.end_stops()?;
            self.hear_all(false)?;
            if Instant::now() > until {
                return Err("a worker does not finish".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

const PROCESSES: usize = 5;
const MAX_TTL: Duration = Duration::from_millis(400);
