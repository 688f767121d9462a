//! Processes that auto-extend a lock, and are stopped for longer than the TTL.
//!
//! When such a process continues, the first check of its guard must report the loss, its callback
//! must be called once, and the lock's next holder must keep it unchanged: the same value on every
//! node, and the same expiry. In the control, another extender extends and deletes by the key's
//! name alone, as some libraries do, and the same check has to find that.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt::{Client, LockGuard, LockRequest, Wait};
use redbolt_test_servers::{Reply, Server, servers};

use crate::clock::{Moment, now};
use crate::ledger::{Claim, Ledger};
use crate::nodes::{self, LIMIT};
use crate::part::Role;
use crate::stage::{Failure, RESOURCE, Stage};
use crate::wire::{Order, Report};
use crate::worker::Worker;

/// Stops processes that auto-extend a lock.
#[derive(Clone, Debug)]
pub struct AutoExtension {
    /// The number of pauses that have to count.
    pub reps: usize,
    /// The numbers of nodes, one run for each.
    pub nodes: Vec<usize>,
    /// True: adds an extender that ignores tokens, and the run has to find what it breaks.
    pub careless: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct AutoExtensionResult {
    /// The number of holders that were stopped.
    pub pauses: usize,
    /// The number of holders that were stopped while they held the lock.
    pub counted: usize,
    /// The number of these holders whose check after the pause still reported the lock as held.
    pub looks_fooled: usize,
    /// The number of these holders whose callback was called once.
    pub told_once: usize,
    /// The number of these cases in which the next holder's key changed on any node.
    pub touched: usize,
    /// The time for which all holders together kept their locks before they were stopped, in TTLs.
    pub outlived: f64,
    /// The number of pairs of overlapping claims.
    pub double_holders: usize,
    /// The shortest and the longest pause.
    pub lengths: Option<(Duration, Duration)>,
    /// The duration of the run.
    pub took: Duration,
    wanted: usize,
    careless: bool,
}

impl AutoExtensionResult {
    /// Returns true if auto-extension kept its promises; in the control, if the check found
    /// violations.
    #[must_use]
    pub fn holds(&self) -> bool {
        let told = self.looks_fooled == 0 && self.told_once == self.counted;
        let alone = self.double_holders == 0 && self.touched == 0;
        let found = self.touched == self.counted;
        self.counted >= self.wanted && if self.careless { found } else { told && alone }
    }
}

impl fmt::Display for AutoExtensionResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shortest, longest) = self.lengths.unwrap_or_default();
        let beside = if self.careless { ", each with a careless one beside it" } else { "" };
        write!(f, "auto-extension: {} holders{beside} kept locks for ", self.pauses)?;
        write!(f, "{:.1} TTLs on average and were stopped ", self.outlived / self.pauses as f64)?;
        write!(
            f,
            "for {shortest:.0?} to {longest:.0?}, {} of them while they held it, ",
            self.counted
        )?;
        write!(f, "{} wrongly saw it as held afterwards, ", self.looks_fooled)?;
        write!(f, "{} called back once, {} next holders' ", self.told_once, self.touched)?;
        write!(f, "keys changed, {} double holders, ", self.double_holders)?;
        write!(f, "{:.1} s", self.took.as_secs_f64())
    }
}

impl AutoExtension {
    /// Stops holders until enough of them held the lock when they were stopped.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a pipe failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<Vec<AutoExtensionResult>, Failure> {
        self.nodes.iter().map(|&nodes| self.run_on(nodes, stage)).collect()
    }

    fn run_on(&self, nodes: usize, stage: &Stage) -> Result<AutoExtensionResult, Failure> {
        let start = Instant::now();
        let mut play = Play::new(nodes, self.careless, stage)?;
        while play.result.counted < self.reps && play.result.pauses < 2 * self.reps + 20 {
            play.pause()?;
        }
        let double_holders = play.ledger.double_holders().len();
        let (wanted, careless, took) = (self.reps, self.careless, start.elapsed());
        Ok(AutoExtensionResult { double_holders, took, wanted, careless, ..play.result })
    }
}

struct Play {
    holder: Worker,
    rival: Client,
    ledger: Ledger,
    result: AutoExtensionResult,
    rng: Rng,
    servers: Vec<Server>,
}

/// A holder's reports.
struct Stay {
    from: Moment,
    to: Moment,
    looked: Option<Moment>,
    told: usize,
}

/// The next holder's key on a node.
struct Found {
    value: Reply,
    /// The expiry on this node: the current time plus the remaining TTL.
    ends: Duration,
}

impl Play {
    fn new(nodes: usize, careless: bool, stage: &Stage) -> Result<Self, Failure> {
        let servers = servers(nodes);
        let addresses: Vec<String> = servers.iter().map(Server::address).collect();
        let part = |label: &str| nodes::part(addresses.clone(), MAX_TTL, true, label);
        nodes::init(&part("operator"))?;
        let role = if careless { Role::AutoExtendsCarelessly } else { Role::AutoExtends };
        Ok(Self {
            holder: Worker::start_as(role, &stage.program, &part("holder"))?,
            rival: Client::new(part("rival").config()?)?,
            ledger: Ledger::default(),
            result: AutoExtensionResult::default(),
            rng: Rng::with_seed(stage.seed),
            servers,
        })
    }

    fn pause(&mut self) -> Result<(), Failure> {
        let ttl = Duration::from_millis(self.rng.u64(150..400));
        self.holder.order(&order(ttl))?;
        let Report::Entered { at: from, .. } = self.holder.receive(LIMIT)? else {
            return Err("the holder was not granted the lock".into());
        };
        thread::sleep(ttl.mul_f64(self.rng.f64() * 4.0));
        self.holder.pause()?;
        let stopped = now();
        let length = ttl.mul_f64(self.rng.f64());
        let rival = acquire(&self.rival)?;
        let rival_from = now();
        if !rival.is_valid() {
            return Err("the rival's lease ended before its first check".into());
        }
        // A node that still had the holder's last key denied the rival.
        let is_theirs = |server: &&Server| nodes::keeps_for(server, "rival");
        let quorum = self.servers.len() / 2 + 1;
        nodes::eventually("a quorum has the rival's key", || {
            self.servers.iter().filter(is_theirs).count() >= quorum
        })?;
        let theirs: Vec<&Server> = self.servers.iter().filter(is_theirs).collect();
        let before: Vec<Found> = theirs.iter().copied().map(found_on).collect();
        thread::sleep(length);
        let resumed = now();
        self.holder.resume()?;
        let holder = stay(&self.holder, from)?;
        let after: Vec<Found> = theirs.iter().copied().map(found_on).collect();
        let touched = before.iter().zip(&after).any(|(before, after)| !before.is_as(after));
        let rival_to = now();
        if rival.is_valid() {
            self.ledger.add(Claim::alone(RIVAL, rival_from, rival_to, None));
        }
        // A lock that the careless extender let others take is no longer the rival's.
        let _ = rival.release();
        self.result.outlived += stopped.since(from).as_secs_f64() / ttl.as_secs_f64();
        self.judge(stopped, resumed, &holder, touched);
        Ok(())
    }

    fn judge(&mut self, stopped: Moment, resumed: Moment, holder: &Stay, touched: bool) {
        let Stay { from, to, .. } = *holder;
        self.ledger.add(Claim::alone(HOLDER, from, to, None));
        let result = &mut self.result;
        let length = resumed.since(stopped);
        let (shortest, longest) = result.lengths.unwrap_or((length, length));
        result.lengths = Some((shortest.min(length), longest.max(length)));
        result.pauses += 1;
        if holder.looked.is_some_and(|looked| looked < stopped) {
            // The lock was lost before its holder was stopped.
            return;
        }
        result.counted += 1;
        result.looks_fooled += usize::from(holder.to >= resumed);
        result.told_once += usize::from(holder.told == 1);
        result.touched += usize::from(touched);
    }
}

impl Found {
    /// Returns true if it is the same key, with the same expiry.
    fn is_as(&self, other: &Self) -> bool {
        self.value == other.value && self.ends.abs_diff(other.ends) <= READING
    }
}

fn found_on(server: &Server) -> Found {
    let mut connection = server.connect();
    let value = connection.cmd(&format!("GET {RESOURCE}"));
    let begun = now();
    let left = match connection.cmd(&format!("PTTL {RESOURCE}")) {
        Reply::Int(ms) => Duration::from_millis(ms.try_into().unwrap_or(0)),
        _ => Duration::ZERO,
    };
    Found { value, ends: Duration::from_nanos(begun.0) + left }
}

fn acquire(rival: &Client) -> Result<LockGuard<'_>, Failure> {
    let request = LockRequest::new(RESOURCE.as_bytes()).ttl(RIVAL_TTL).wait(Wait::UpTo(LIMIT));
    Ok(rival.acquire(request)?)
}

/// Reads the holder's reports until it has released.
fn stay(holder: &Worker, from: Moment) -> Result<Stay, Failure> {
    let (mut stay, mut callbacks) = (None, None);
    loop {
        match holder.receive(LIMIT)? {
            Report::Left { at, looked } => stay = Some((at, looked)),
            Report::Told(times) => callbacks = Some(times),
            Report::Done => {
                let (to, looked) = stay.ok_or("the holder has not left")?;
                let told = callbacks.ok_or("the holder did not report its callbacks")?;
                return Ok(Stay { from, to, looked, told });
            }
            Report::Refused(reason) => return Err(reason.into()),
            other => return Err(format!("unexpected report of a holder: {other:?}").into()),
        }
    }
}

fn order(ttl: Duration) -> Order {
    Order::to_hold(ttl, LIMIT)
}

const HOLDER: usize = 1;
const RIVAL: usize = 2;

/// The TTL of the rival's lock, which outlasts the holder's. An extension by the holder's TTL would
/// shorten it.
const RIVAL_TTL: Duration = Duration::from_secs(9);

const MAX_TTL: Duration = Duration::from_secs(10);

/// The maximum time between reading the local clock and the node's reply, on a busy machine.
const READING: Duration = Duration::from_millis(500);
