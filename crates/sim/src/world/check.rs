//! The final checks: leftover keys, memory, calls that never returned, histories.

use redbolt::proto::WakeStrategy;

use super::World;
use super::node::EPOCH_US;
use super::queue::{Event, Time};
use crate::fault::What;
use crate::history::Operation;
use crate::invariant::Violation;
use crate::plan::{KEYS, Kind, MS, Start};

impl World {
    /// Schedules the newcomers, which want the locks after all jobs have released.
    pub(super) fn come_afterwards(&mut self) {
        self.healed_at = self.now;
        self.nobody_stands();
        let wires = self.wires[..self.sockets_used].iter().filter(|wire| wire.server_alive);
        self.quiet_at = wires.map(|wire| wire.up.last_at()).max().unwrap_or(0);
        for job in 0..self.plan.jobs.len() {
            if self.plan.jobs[job].kind == Kind::Probe {
                self.probe(job, MS);
            }
        }
        self.queue.push(self.now + GRACE, Event::Leftovers);
        self.queue.push(self.now + self.bound() + 2 * GRACE, Event::Final);
    }

    /// Requests the lock this long after the healing. A node that has lost its memory is
    /// quarantined from the first request on, so the newcomer waits only once no quarantine can be
    /// left.
    fn probe(&mut self, job: usize, after: Time) {
        let is_last = !self.is_quarantined || after >= self.bound();
        self.plan.jobs[job].patience = match is_last {
            true => self.bound().saturating_sub(after) + GRACE,
            false => 0,
        };
        self.queue.push(self.healed_at + after, Event::Probe(job as u16));
    }

    /// Schedules another attempt of a refused newcomer. Returns true if it gets one.
    pub(crate) fn probe_again(&mut self, job: usize) -> bool {
        let passed = self.now - self.healed_at;
        // While too many nodes are quarantined no request is sent. So a second loss of memory is
        // found only afterwards, and it may matter: a node with a wild clock does not help a fenced
        // lock either.
        let (over_once, over_twice) = (self.bound_with(1), self.bound());
        let next = match passed {
            _ if !self.is_quarantined => passed + 100 * MS,
            ..GRACE => GRACE,
            _ if passed < over_once => over_once,
            _ => over_twice,
        };
        if next <= passed || next > self.bound() {
            return false;
        }
        self.probe(job, next);
        true
    }

    /// Returns the bound of I9: the maximum time until the lock is free, with all nodes healthy.
    /// Clients reconnect; then a ghost's key lives for a TTL, and a node that lost its memory is
    /// quarantined for the longest TTL.
    fn bound(&self) -> Time {
        // A loss of memory may be found only after the first quarantine, and then costs another
        // one.
        self.bound_with(if self.is_quarantined { 2 } else { 1 })
    }

    /// Returns the bound with this many TTLs or quarantines in sequence.
    fn bound_with(&self, times: Time) -> Time {
        let longest = times * self.plan.setup.max_ttl_ms * MS;
        let nodes = &self.nodes[..self.plan.nodes];
        let stepped = nodes.iter().map(|node| node.stepped_back).max().unwrap_or(0) * 1_000;
        GRACE + longest + longest / 50 + stepped + self.quiet_at.saturating_sub(self.healed_at)
    }

    /// Checks I5, a while after all jobs have released. A key that a ghost has set may live for its
    /// TTL.
    pub(super) fn leftovers(&mut self) {
        self.no_queue_is_left();
        for node in 0..self.plan.nodes {
            for (key, name) in KEYS.iter().enumerate().take(self.plan.keys) {
                for owner in self.nodes[node].owners(name, self.now) {
                    self.may_be_left(node, key, owner);
                }
            }
        }
    }

    fn may_be_left(&mut self, node: usize, key: usize, owner: u128) {
        let Some(attempt) = self.attempts.iter().find(|attempt| attempt.tag == owner) else {
            return;
        };
        let job = usize::from(attempt.job);
        let is_over = self.jobs[job].is_over() && self.plan.jobs[job].kind != Kind::Probe;
        // The undo may have gone to another server to which the address led meanwhile, as may the
        // request of the client that had the lock before.
        let client = usize::from(self.plan.jobs[job].client);
        let mut had_it =
            (0..self.clients.len()).filter(|&other| other == client || self.jobs[job].was_detached);
        let may_stay = self.nodes[node].is_stale
            || attempt.has_ghosts[node]
            || had_it.any(|client| self.clients[client].strayed.contains(&true));
        if is_over && !may_stay {
            self.violated(Violation::KeySurvives { key, node, job });
        }
    }

    /// Checks I2: no token holds the time of a minority's clock, and neither does a counter that
    /// may become a token once that clock is corrected. All other clocks and all earlier counters
    /// are within seconds of the true time.
    fn no_counter_is_wild(&mut self) {
        if self.plan.wild == 0 {
            return;
        }
        for (node, key) in
            (0..self.plan.nodes).flat_map(|node| (0..KEYS.len()).map(move |key| (node, key)))
        {
            let name = [&b"redbolt:fence:"[..], KEYS[key]].concat();
            let counter = self.nodes[node].number(&name, self.now);
            if counter > EPOCH_US + self.now / 1_000 + WILDEST_US {
                self.violated(Violation::WildCounter { key, node, counter });
            }
        }
    }

    /// Runs the checks at the end of a schedule.
    pub(super) fn recheck(&mut self) {
        self.no_counter_is_wild();
        for job in 0..self.jobs.len() {
            let is_probe = self.plan.jobs[job].kind == Kind::Probe;
            if is_probe && !self.jobs[job].was_granted() && !self.may_be_misled(job) {
                let end = if self.jobs[job].is_over() { "was refused" } else { "never ended" };
                self.violated(Violation::NotLive { job, end });
            } else if let Some(call) = self.jobs[job].open_call() {
                self.violated(Violation::Late { job, call, by_us: u64::MAX });
            }
        }
        self.nobody_listens();
        self.no_queue_is_kept();
        if self.is_sampled {
            self.nothing_is_kept();
            self.histories_hold();
        }
        for register in &self.registers {
            self.tally.stale_writes += register.stale;
            self.tally.writes_refused += register.refused;
        }
    }

    /// Returns true if a client with other limits may have been the first to reach a node without a
    /// restart guard. No client is granted a lock under limits that the nodes do not have, and only
    /// an operator can correct that.
    fn may_be_misled(&self, job: usize) -> bool {
        let is_open = self.is_quarantined || self.plan.setup.start != Start::Ready;
        let client = self.plan.jobs[job].client;
        let mut reported = self.plan.faults.iter().filter(|it| it.what == What::OtherLimits);
        reported.any(|it| !self.is_changed && (is_open || it.client == client))
    }

    /// Checks I7: once the longest TTL has passed, a core remembers nothing.
    pub(crate) fn nothing_is_kept(&mut self) {
        let tickets = if self.plan.setup.wake == WakeStrategy::Queue { TICKET } else { 0 };
        self.now += 2 * self.plan.setup.max_ttl_ms * MS + 1_000 * MS + tickets;
        for client in 0..self.clients.len() {
            let now = self.clocks(client);
            self.core(client).timeout(now);
            while self.core(client).poll_event().is_some() {}
            let text = format!("{:?}", self.clients[client].core);
            self.shows_no_secret("the core", &text);
            let kept = [("locks", "locks: "), ("claims", "claims: "), ("listeners", "listeners: ")];
            for (what, name) in kept {
                let amount = count(&text, name);
                if amount > 0 {
                    self.violated(Violation::Unbounded { client, what, amount });
                }
            }
        }
    }

    /// Checks I1 and I2 again, from the callers' results alone.
    fn histories_hold(&mut self) {
        for key in 0..self.plan.keys {
            let operations = self.histories[key].len();
            for fenced in [false, true] {
                if !self.histories[key].is_linearizable(fenced) {
                    self.violated(Violation::NotLinearizable { key, operations, fenced });
                    break;
                }
            }
        }
    }

    pub(crate) fn record(&mut self, job: usize, operation: Operation) {
        if self.is_sampled {
            let keys = self.plan.jobs[job].keys;
            for key in (0..KEYS.len()).filter(|key| keys >> key & 1 == 1) {
                self.histories[key].push(operation);
            }
        }
    }

    /// Checks I12: no text contains a token or the password.
    pub(crate) fn shows_no_secret(&mut self, place: &'static str, text: &str) {
        let shows = |tag: u128| {
            let digits = tag.to_le_bytes();
            text.as_bytes().windows(digits.len()).any(|window| window == digits)
        };
        let leaks = text.contains(super::node::PASSWORD)
            || self.attempts.iter().any(|attempt| shows(attempt.tag));
        if leaks {
            self.violated(Violation::Leaked { place });
        }
    }
}

fn count(text: &str, name: &str) -> usize {
    let rest = text.find(name).map_or("", |at| &text[at + name.len()..]);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap_or(usize::MAX)
}

/// The maximum lifetime of a ticket on a node after its last request.
const TICKET: Time = 12_000 * MS;

/// Wild clocks are off by more than this, all others by less.
const WILDEST_US: u64 = 60_000_000;

/// The longest time that a core may take to reconnect to its nodes and to have every owed undo
/// confirmed: the dead-peer limit, a backoff, a connect, a pause between undos, and a margin.
const GRACE: Time = 6_000 * MS;
