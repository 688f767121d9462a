//! What is looked at when all is over: leftovers, memory, calls that never came back, histories.

use super::World;
use super::node::EPOCH_US;
use super::queue::{Event, Time};
use crate::fault::What;
use crate::history::Operation;
use crate::invariant::Violation;
use crate::plan::{KEYS, Kind, MS, Start};

impl World {
    /// Somebody wants the locks after everybody let go.
    pub(super) fn come_afterwards(&mut self) {
        self.healed_at = self.now;
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

    /// Asks so long after everything was healed. A node that has forgotten something is quarantined
    /// from the first ask on, so while that may be nobody waits.
    fn probe(&mut self, job: usize, after: Time) {
        let is_last = !self.is_quarantined || after >= self.bound();
        self.plan.jobs[job].patience = match is_last {
            true => self.bound().saturating_sub(after) + GRACE,
            false => 0,
        };
        self.queue.push(self.healed_at + after, Event::Probe(job as u16));
    }

    /// The one who came afterwards was refused. Whether there is another chance.
    pub(crate) fn probe_again(&mut self, job: usize) -> bool {
        let passed = self.now - self.healed_at;
        // While too many are quarantined nobody is asked. What the others have forgotten is found when that
        // is over, and may matter: a node with a wild clock is of no use to a fenced lock either.
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

    /// I9: how long it can take until the lock is free, with all nodes well: until they have been found
    /// again, and then what a ghost has left lives for a TTL, and a node that forgot something is
    /// quarantined for the longest of them.
    fn bound(&self) -> Time {
        // Who is quarantined is not looked at before the end: what is forgotten meanwhile is found then.
        self.bound_with(if self.is_quarantined { 2 } else { 1 })
    }

    /// The same with so many TTLs or quarantines one after the other.
    fn bound_with(&self, times: Time) -> Time {
        let longest = times * self.plan.setup.max_ttl_ms * MS;
        let nodes = &self.nodes[..self.plan.nodes];
        let stepped = nodes.iter().map(|node| node.stepped_back).max().unwrap_or(0) * 1_000;
        GRACE + longest + longest / 50 + stepped + self.quiet_at.saturating_sub(self.healed_at)
    }

    /// I5: everybody has let go a while ago. What a ghost has set may live for its TTL.
    pub(super) fn leftovers(&mut self) {
        for node in 0..self.plan.nodes {
            for (key, name) in KEYS.iter().enumerate().take(self.plan.keys) {
                let Some(owner) = self.nodes[node].owner(name, self.now) else { continue };
                let known = self.attempts.iter().find(|attempt| attempt.tag == owner);
                let Some(attempt) = known else { continue };
                let job = usize::from(attempt.job);
                let is_over = self.jobs[job].is_over() && self.plan.jobs[job].kind != Kind::Probe;
                // An undo may have gone where the address led to meanwhile, or the ask of whoever had
                // the lock before.
                let client = usize::from(self.plan.jobs[job].client);
                let mut had_it = (0..self.clients.len())
                    .filter(|&other| other == client || self.jobs[job].was_detached);
                let may_stay = self.nodes[node].is_stale
                    || attempt.has_ghosts[node]
                    || had_it.any(|client| self.clients[client].strayed.contains(&true));
                if is_over && !may_stay {
                    self.violated(Violation::KeySurvives { key, node, job });
                }
            }
        }
    }

    /// I2: what a minority of the nodes takes for the time is in no token, and in no counter that may
    /// become one when that clock is mended. The other clocks, and what was counted before, are within
    /// seconds of the time.
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

    /// The end of a schedule.
    pub(super) fn look_back(&mut self) {
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
        if self.is_sampled {
            self.nothing_is_kept();
            self.histories_hold();
        }
        for register in &self.registers {
            self.tally.stale_writes += register.stale;
            self.tally.writes_refused += register.refused;
        }
    }

    /// Whoever was told other limits may have been the first to come to a node that had forgotten its
    /// guard, and nobody gets anything under limits that the nodes do not keep. That takes an operator.
    fn may_be_misled(&self, job: usize) -> bool {
        let is_open = self.is_quarantined || self.plan.setup.start != Start::Ready;
        let client = self.plan.jobs[job].client;
        let mut told = self.plan.faults.iter().filter(|it| it.what == What::OtherLimits);
        told.any(|it| !self.is_changed && (is_open || it.client == client))
    }

    /// I7: once the longest TTL is over, a core remembers nothing.
    pub(crate) fn nothing_is_kept(&mut self) {
        self.now += 2 * self.plan.setup.max_ttl_ms * MS + 1_000 * MS;
        for client in 0..self.clients.len() {
            let now = self.clocks(client);
            self.core(client).timeout(now);
            while self.core(client).poll_event().is_some() {}
            let text = format!("{:?}", self.clients[client].core);
            self.shows_no_secret("the core", &text);
            for (what, name) in [("locks", "locks: "), ("claims", "claims: ")] {
                let amount = count(&text, name);
                if amount > 0 {
                    self.violated(Violation::Unbounded { client, what, amount });
                }
            }
        }
    }

    /// I1 and I2 once more, from what callers were told alone.
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

    /// I12.
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

/// Less than any wild clock is off, and more than all others are.
const WILDEST_US: u64 = 60_000_000;

/// The longest that a core may take to find its nodes again and to have everything undone that it
/// owes: the dead-peer limit, a backoff, a connection, a pause of undos, and some.
const GRACE: Time = 6_000 * MS;
