//! Processes campaign to lead, while leaders are stopped and killed, and nodes are stopped and lose
//! their memory. An observer reports the leaders. How long an election takes is measured elsewhere.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt::{Client, Config};
use redbolt_test_servers::{Server, servers};

use crate::clock::Moment;
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT};
use crate::part::{Part, Role};
use crate::stage::{Failure, RESOURCE, Stage};
use crate::wire::{Order, Report};
use crate::worker::Worker;

/// Elects leaders, round by round.
#[derive(Clone, Debug)]
pub struct Leaders {
    /// The minimum number of leaders that are elected and observed.
    pub rounds: usize,
    /// True: deletes the leader's key without its knowledge, and the run has to find two leaders,
    /// and ends then.
    pub forget: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct LeadersResult {
    /// True if keys were deleted.
    pub forget: bool,
    /// The number of leaders that were observed, each in its term or an earlier one.
    pub seen: usize,
    /// The number of leaders elected.
    pub elected: usize,
    /// The number of leaders that were stopped or killed.
    pub struck: usize,
    /// The number of nodes that were stopped, or have lost their memory.
    pub nodes_struck: usize,
    /// The number of observed terms that are above those of the observed process.
    pub strangers: usize,
    /// The number of pairs of leaders at one time.
    pub double_leaders: usize,
    /// The number of terms that do not grow.
    pub disorders: usize,
    /// The duration of the run.
    pub took: Duration,
}

impl LeadersResult {
    /// Returns true if there was one leader at a time, in terms that grow, and it was observed;
    /// with keys deleted, if the check found two.
    #[must_use]
    pub fn holds(&self) -> bool {
        if self.forget {
            return self.double_leaders > 0;
        }
        let kept = self.double_leaders == 0 && self.disorders == 0 && self.strangers == 0;
        kept && self.seen > 0 && self.struck > 0 && self.nodes_struck > 0
    }
}

impl fmt::Display for LeadersResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.forget { ", keys deleted" } else { "" };
        write!(
            f,
            "leaders, {NODES} nodes, {PROCESSES} candidates{how}: {} elected, ",
            self.elected
        )?;
        write!(
            f,
            "{} seen, {} struck, {} nodes struck; ",
            self.seen, self.struck, self.nodes_struck
        )?;
        write!(
            f,
            "{} double leaders, {} terms in disorder, ",
            self.double_leaders, self.disorders
        )?;
        write!(f, "{} of nobody, {:.1} s", self.strangers, self.took.as_secs_f64())
    }
}

impl Leaders {
    /// Plays the rounds.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<LeadersResult, Failure> {
        let start = Instant::now();
        let mut play = Play::new(self, stage)?;
        let has_found = |play: &Play| self.forget && !play.ledger.double_holders().is_empty();
        while play.result.seen < self.rounds && !has_found(&play) {
            play.round()?;
        }
        play.calm_down()?;
        play.judge();
        Ok(LeadersResult { took: start.elapsed(), ..play.result })
    }
}

struct Play {
    program: PathBuf,
    parts: Vec<Part>,
    servers: Vec<Server>,
    candidates: Vec<Candidate>,
    watch: Watch,
    /// The observations so far: the process, and the term.
    told: Vec<(usize, Option<u64>)>,
    has_wiped: bool,
    ledger: Ledger,
    result: LeadersResult,
    rng: Rng,
}

struct Candidate {
    worker: Worker,
    busy: bool,
    leads: Option<(Moment, u64)>,
    /// The largest of its terms.
    term: u64,
}

impl Play {
    fn new(plan: &Leaders, stage: &Stage) -> Result<Self, Failure> {
        let servers = servers(NODES);
        let addresses = || servers.iter().map(Server::address).collect();
        let part = |label: &str| nodes::part(addresses(), MAX_TTL, true, label);
        nodes::init(&part("operator"))?;
        let parts: Vec<_> =
            (0..PROCESSES).map(|number| part(&format!("{LABEL}{number}"))).collect();
        let candidate = |part| {
            let worker = Worker::start_as(Role::Leads, &stage.program, part)?;
            Ok(Candidate { worker, busy: false, leads: None, term: 0 })
        };
        Ok(Self {
            program: stage.program.clone(),
            candidates: parts.iter().map(candidate).collect::<Result<_, Failure>>()?,
            watch: Watch::begin(part("observer").config()?),
            parts,
            servers,
            told: Vec::new(),
            has_wiped: false,
            ledger: Ledger::default(),
            result: LeadersResult { forget: plan.forget, ..LeadersResult::default() },
            rng: Rng::with_seed(stage.seed),
        })
    }

    /// Waits until a leader is elected and observed, and then injects a fault into it or a node.
    fn round(&mut self) -> Result<(), Failure> {
        let leader = self.elected()?;
        let (node, times) = (self.rng.usize(0..NODES), self.rng.u32(1..4));
        let candidate = &mut self.candidates[leader];
        match self.rng.u8(0..8) {
            _ if self.result.forget => {
                for server in &self.servers {
                    server.cmd(&format!("DEL {RESOURCE}"));
                }
            }
            0 | 1 => {
                candidate.worker.pause()?;
                self.hear_for(times * TTL)?;
                self.candidates[leader].worker.resume()?;
                self.result.struck += 1;
            }
            2 | 3 => {
                candidate.worker =
                    Worker::start_as(Role::Leads, &self.program, &self.parts[leader])?;
                // It led until it was killed, of which there is no report.
                (candidate.busy, candidate.leads) = (false, None);
                self.result.struck += 1;
            }
            // Only once, or too many nodes would be in quarantine.
            4 if !self.has_wiped => {
                self.servers[node].restart();
                self.has_wiped = true;
                self.result.nodes_struck += 1;
            }
            5 => {
                self.servers[node].pause();
                self.hear_for(TTL / 2)?;
                self.servers[node].resume();
                self.result.nodes_struck += 1;
            }
            // The leader resigns.
            _ => {}
        }
        let until = Instant::now() + LIMIT;
        while self.candidates[leader].leads.is_some() {
            self.receive()?;
            if Instant::now() > until {
                return Err("a leader leads for too long".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until the process that leads is the observed leader, and returns it.
    fn elected(&mut self) -> Result<usize, Failure> {
        let until = Instant::now() + LIMIT;
        loop {
            self.receive()?;
            let leader = self.candidates.iter().position(|it| it.leads.is_some());
            let seen = self.told.last().map(|&(process, _)| process);
            if let Some(leader) = leader.filter(|_| leader == seen) {
                self.result.seen += 1;
                return Ok(leader);
            }
            if Instant::now() > until {
                return Err("nobody is seen to lead".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn hear_for(&mut self, span: Duration) -> Result<(), Failure> {
        let until = Instant::now() + span;
        while Instant::now() < until {
            self.receive()?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Reads all reports, and lets idle processes campaign.
    fn receive(&mut self) -> Result<(), Failure> {
        self.read()?;
        for candidate in self.candidates.iter_mut().filter(|candidate| !candidate.busy) {
            let keep = TTL.mul_f64(self.rng.f64() + 0.5);
            candidate.worker.order(&Order { keep: Some(keep), ..Order::to_hold(TTL, LIMIT) })?;
            candidate.busy = true;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        self.told.extend(self.watch.told.try_iter());
        for (number, candidate) in self.candidates.iter_mut().enumerate() {
            while let Some(report) = candidate.worker.overhear()? {
                match report {
                    Report::Entered { at, token, .. } => {
                        let term = token.ok_or("a leader without a term")?;
                        candidate.leads = Some((at, term));
                        candidate.term = candidate.term.max(term);
                        self.result.elected += 1;
                    }
                    Report::Left { at: to, .. } => {
                        let (from, term) = candidate.leads.take().ok_or("nobody led")?;
                        self.ledger.add(Claim::alone(number, from, to, Some(term)));
                    }
                    // Its lead had ended before its first check.
                    Report::Writes { token } => candidate.term = candidate.term.max(token),
                    Report::Done => candidate.busy = false,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn calm_down(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + 2 * LIMIT;
        while self.candidates.iter().any(|candidate| candidate.busy) {
            self.read()?;
            if Instant::now() > until {
                return Err("a candidate does not finish".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Checks that each observed term is that of the leader, or one that it had before.
    fn judge(&mut self) {
        let is_above = |&&(process, term): &&(usize, Option<u64>)| {
            let its = self.candidates.get(process).map_or(0, |candidate| candidate.term);
            term.is_some_and(|term| term > its)
        };
        self.result.strangers = self.told.iter().filter(is_above).count();
        self.result.double_leaders = self.ledger.double_holders().len();
        self.result.disorders = self.ledger.disorders().len();
    }
}

/// An observer.
struct Watch {
    told: Receiver<(usize, Option<u64>)>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn begin(config: Config) -> Self {
        let (sender, told) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let Ok(client) = Client::new(config) else { return };
            let Ok(mut observer) = client.observe(RESOURCE) else { return };
            while !ends.load(Ordering::Relaxed) {
                let Some(seen) = observer.changed(Duration::from_millis(50)) else { continue };
                let Some(leader) = seen.leader() else { continue };
                let label = leader.label.as_deref().and_then(|label| label.strip_prefix(LABEL));
                // An unknown label is that of no process.
                let process = label.and_then(|number| number.parse().ok()).unwrap_or(usize::MAX);
                let _ = sender.send((process, leader.term.map(redbolt::FencingToken::get)));
            }
        });
        Self { told, is_over, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const NODES: usize = 3;
const PROCESSES: usize = 3;
const LABEL: &str = "process-";
const TTL: Duration = Duration::from_millis(600);
/// The shortest `max_ttl` with which locks can be fenced.
const MAX_TTL: Duration = Duration::from_secs(11);
