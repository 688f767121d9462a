//! Holders that are stopped for longer than their lease, and then write.
//!
//! No lease can prevent that: the process held the lock when it was stopped, and does not notice
//! that time has passed. The program shows that the first check afterwards reports the loss, and
//! that a resource which checks fencing tokens refuses an unchecked write, while one that does not
//! loses the rival's value.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt_test_servers::{Server, servers};

use crate::clock::{Moment, now};
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT};
use crate::register::Register;
use crate::stage::{Failure, Stage};
use crate::wire::{Order, Report};
use crate::worker::Worker;

/// Stops holders.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// The number of pauses that have to count.
    pub reps: usize,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct PausesResult {
    /// The number of holders that were stopped.
    pub pauses: usize,
    /// The number of holders that were stopped while they held the lock.
    pub counted: usize,
    /// The number of these holders whose check after the pause still reported the lock as held.
    pub looks_fooled: usize,
    /// The number of late writes of these holders that the fenced register refused.
    pub refused: usize,
    /// The number of late writes of these holders that replaced the rival's value in the plain
    /// register.
    pub overwritten: usize,
    /// The number of rivals' writes that the fenced register refused.
    pub rivals_refused: usize,
    /// The number of pairs of overlapping claims.
    pub double_holders: usize,
    /// The shortest and the longest pause.
    pub lengths: Option<(Duration, Duration)>,
    /// The duration of the run.
    pub took: Duration,
    wanted: usize,
}

impl PausesResult {
    /// Returns true if the fence kept its promise, and was needed.
    #[must_use]
    pub fn holds(&self) -> bool {
        let kept = self.looks_fooled == 0 && self.double_holders == 0 && self.rivals_refused == 0;
        let fenced = self.refused == self.counted && self.overwritten == self.counted;
        kept && fenced && self.counted >= self.wanted
    }
}

impl fmt::Display for PausesResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shortest, longest) = self.lengths.unwrap_or_default();
        write!(f, "pauses: {} holders stopped for {shortest:.0?} to {longest:.0?}, ", self.pauses)?;
        write!(
            f,
            "{} of them while they held the lock, {} wrongly ",
            self.counted, self.looks_fooled
        )?;
        write!(
            f,
            "saw it as held afterwards, {} late writes refused by the fence, ",
            self.refused
        )?;
        write!(f, "{} taken without a fence, ", self.overwritten)?;
        write!(f, "{} rivals refused, ", self.rivals_refused)?;
        write!(f, "{} double holders, {:.1} s", self.double_holders, self.took.as_secs_f64())
    }
}

impl Pauses {
    /// Stops holders until enough of them held the lock when they were stopped.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<PausesResult, Failure> {
        let start = Instant::now();
        let mut play = Play::new(stage)?;
        while play.result.counted < self.reps && play.result.pauses < 2 * self.reps + 20 {
            play.pause()?;
        }
        let double_holders = play.ledger.double_holders().len();
        let (wanted, took) = (self.reps, start.elapsed());
        Ok(PausesResult { double_holders, took, wanted, ..play.result })
    }
}

struct Play {
    holder: Worker,
    rival: Worker,
    ledger: Ledger,
    register: Register,
    result: PausesResult,
    rng: Rng,
    _servers: Vec<Server>,
}

/// The reported claim of one process.
struct Stay {
    token: u64,
    to: Moment,
    looked: Option<Moment>,
    /// True if the fenced register took its write.
    fresh: bool,
}

impl Play {
    fn new(stage: &Stage) -> Result<Self, Failure> {
        let servers = servers(3);
        let addresses: Vec<String> = servers.iter().map(Server::address).collect();
        let part = |label: &str| nodes::part(addresses.clone(), MAX_TTL, true, label);
        nodes::init(&part("operator"))?;
        Ok(Self {
            holder: Worker::start(&stage.program, &part("holder"))?,
            rival: Worker::start(&stage.program, &part("rival"))?,
            ledger: Ledger::default(),
            register: Register::default(),
            result: PausesResult::default(),
            rng: Rng::with_seed(stage.seed),
            _servers: servers,
        })
    }

    fn pause(&mut self) -> Result<(), Failure> {
        let ttl = Duration::from_millis(self.rng.u64(80..250));
        self.holder.order(&order(ttl, None))?;
        let Report::Entered { at: from, token: Some(token), .. } = self.holder.receive(LIMIT)?
        else {
            return Err("the holder was not granted the lock".into());
        };
        // The holder is stopped at a random moment of its lease.
        thread::sleep(ttl.mul_f64(self.rng.f64() / 2.0));
        self.holder.pause()?;
        let stopped = now();
        self.rival.order(&order(ttl, Some(Duration::ZERO)))?;
        let rival = self.stay(RIVAL, None)?;
        thread::sleep(ttl.mul_f64(self.rng.f64() * 2.0));
        let resumed = now();
        self.holder.resume()?;
        let holder = self.stay(HOLDER, Some((from, token)))?;
        self.judge(stopped, resumed, &holder, &rival);
        Ok(())
    }

    fn judge(&mut self, stopped: Moment, resumed: Moment, holder: &Stay, rival: &Stay) {
        let result = &mut self.result;
        let length = resumed.since(stopped);
        let (shortest, longest) = result.lengths.unwrap_or((length, length));
        result.lengths = Some((shortest.min(length), longest.max(length)));
        result.pauses += 1;
        result.rivals_refused += usize::from(!rival.fresh || rival.token <= holder.token);
        if holder.looked.is_some_and(|looked| looked < stopped) {
            // The lease ended before the holder was stopped.
            return;
        }
        result.counted += 1;
        result.looks_fooled += usize::from(holder.to >= resumed);
        let refused = !holder.fresh && self.register.fenced() == RIVAL;
        result.refused += usize::from(refused);
        result.overwritten += usize::from(self.register.plain() == HOLDER);
    }

    /// Reads a process's reports until its order is done.
    fn stay(&mut self, who: usize, mut from: Option<(Moment, u64)>) -> Result<Stay, Failure> {
        let (mut stay, mut fresh) = (None, false);
        let worker = if who == HOLDER { &self.holder } else { &self.rival };
        loop {
            match worker.receive(LIMIT)? {
                Report::Entered { at, token, .. } => from = token.map(|token| (at, token)),
                Report::Writes { token } => fresh = self.register.write(token, who),
                Report::Left { at: to, looked } => {
                    let (from, token) = from.ok_or("a worker left without having entered")?;
                    self.ledger.add(Claim::alone(who, from, to, Some(token)));
                    stay = Some(Stay { token, to, looked, fresh });
                }
                Report::Done => {
                    return stay.ok_or_else(|| "the worker did not hold the lock".into());
                }
                Report::Changed { .. } | Report::Extended(_) | Report::Told(_) => {}
                Report::Refused(reason) => return Err(reason.into()),
            }
        }
    }
}

fn order(ttl: Duration, keep: Option<Duration>) -> Order {
    Order { keep, fenced: true, ..Order::to_hold(ttl, Duration::from_secs(5)) }
}

const HOLDER: usize = 1;
const RIVAL: usize = 2;

/// The shortest `max_ttl` with which locks can be fenced, and a margin.
const MAX_TTL: Duration = Duration::from_secs(11);
