//! Checks for waiters: none sleeps while its resource is free, none sends request after request
//! while another client holds the resource, and one client's locks are served in the order of their
//! requests.

use std::hash::{DefaultHasher, Hash, Hasher};

use redbolt::proto::{LockState, WakeStrategy};

use crate::fault::{Fault, What};
use crate::invariant::Violation;
use crate::notes::{Asked, Left, Watch};
use crate::plan::{Class, Job, KEYS, Kind, MAX_NODES, MS, Plan};
use crate::world::World;
use crate::world::node::{Taken, grace_ms};
use crate::world::queue::Time;

impl World {
    /// Checks, before each event, that no waiter has slept too long while its resource was free.
    pub(crate) fn nobody_sleeps(&mut self) {
        if self.plan.class != Class::Waiting || self.is_healed {
            return;
        }
        let has_stops = self.has(What::PauseClient);
        for at in 0..self.jobs.len() {
            let Some(since) = self.could_have_since(at) else { continue };
            let slept = self.now - since;
            // The grace of a waiter that has stopped counts from when its ticket became the first.
            if slept > self.plan.longest_sleep || has_stops {
                self.slept(at, slept);
            }
        }
    }

    /// Checks the time that a job has slept although its resource is free. If jobs take turns, the
    /// first may have stopped, and the others wait for its grace. When it gives up or is passed,
    /// the next one is the first, with another grace. While others share the resource, a writer
    /// that has stopped is noticed at the next poll.
    pub(crate) fn slept(&mut self, at: usize, slept: Time) {
        let (job, now) = (self.plan.jobs[at], self.now);
        let (mut grace, mut graces, mut first) = (0, 0, DefaultHasher::new());
        for node in self.nodes[..self.plan.nodes].iter_mut().filter(|_| takes_turns(&self.plan)) {
            for key in keys_of(&job) {
                let queue = [&b"redbolt:line:"[..], KEYS[key]].concat();
                let tickets = node.tickets(&queue, now);
                tickets.first().hash(&mut first);
                let mut all = tickets.iter().map(|ticket| grace_ms(ticket) * MS);
                graces = graces.max(all.clone().sum());
                grace = grace.max(all.next().unwrap_or_default());
            }
        }
        let (since, first, left) = (now - slept, first.finish(), &mut self.jobs[at].left);
        if left.since != since {
            *left = Left { since, first, from: since };
        } else if left.first != first {
            *left = Left { since, first, from: now };
        }
        let slept = now - left.from;
        let pings =
            if job.shared && self.has(What::PauseClient) { CAP + PINGED_AFTER + graces } else { 0 };
        let unseen = if self.ends_unseen(&job) { CAP } else { 0 };
        // A node whose clock is set back forgets the time of a call, and the grace counts again.
        let calls = if self.has(What::StepNode { back: true }) { 2 } else { 1 };
        let longest = self.plan.longest_sleep + calls * (grace + grace / 50) + pings + unseen;
        if slept > longest {
            let by_us = (slept - longest) / 1_000;
            self.violated(Violation::Slept { job: at, by_us });
        }
    }

    /// Returns true if a writer behind tickets of stopped processes may miss the end of the last
    /// reader until its next request. A reader that dies leaves a key that lives as long as the
    /// lock of another reader, which has released; the writer's reads show only that the key
    /// exists.
    fn ends_unseen(&self, job: &Job) -> bool {
        let dies = |other: &Job| other.kind == Kind::Forget && other.shared;
        let has_dead_sharer = self.plan.jobs.iter().any(|it| dies(it) && it.keys & job.keys != 0);
        has_dead_sharer && !job.shared && takes_turns(&self.plan) && self.has(What::PauseClient)
    }

    pub(crate) fn has(&self, what: What) -> bool {
        self.plan.faults.iter().any(|fault| fault.what == what)
    }

    /// Returns the time since which a job has waited for a resource that no job holds.
    fn could_have_since(&self, at: usize) -> Option<Time> {
        let (job, running) = (&self.plan.jobs[at], &self.jobs[at]);
        let id = running.id.filter(|_| job.patience > 0 && running.is_acquiring())?;
        let client = &self.clients[usize::from(job.client)];
        let state = client.core.state(id);
        if !matches!(state, LockState::Asked | LockState::Fencing | LockState::Pausing) {
            return None;
        }
        // A stopped client sleeps only since it resumed.
        let mut since = running.turn_at.max(client.paused_until);
        for key in keys_of(job) {
            let Watch { free_since, shared_since, .. } = self.watches[key];
            let may_share = shared_since.filter(|_| job.shared);
            since = since.max(free_since.into_iter().chain(may_share).min()?);
        }
        (since <= self.now).then_some(since)
    }

    /// Records, after each event, which resources are free.
    pub(crate) fn watch(&mut self) {
        if self.plan.class != Class::Waiting || self.is_healed {
            return;
        }
        let now = self.now;
        for (at, key) in KEYS.iter().enumerate().take(self.plan.keys) {
            let is_wanted = self.is_wanted_alone(at);
            let nodes = &mut self.nodes[..self.plan.nodes];
            let mut taken = nodes.iter_mut().map(|node| node.taken(key, now));
            let (is_taken, is_shared) = taken.by_ref().fold((false, true), |(any, all), taken| {
                (any || taken != Taken::Not, all && taken != Taken::Alone)
            });
            let watch = &mut self.watches[at];
            let since = |is, since: Option<Time>| if is { since.or(Some(now)) } else { None };
            watch.free_since = since(!is_taken, watch.free_since);
            watch.shared_since = since(is_shared && !is_wanted, watch.shared_since);
        }
    }

    /// Returns true if a client that is not stopped requests a resource exclusively, or waits for
    /// it.
    fn is_wanted_alone(&self, key: usize) -> bool {
        let mut jobs = self.plan.jobs.iter().zip(&self.jobs);
        jobs.any(|(job, running)| {
            let is_alive = self.clients[usize::from(job.client)].paused_until <= self.now;
            job.keys >> key & 1 == 1 && !job.shared && running.is_acquiring() && is_alive
        })
    }

    pub(crate) fn holder_changed(&mut self, at: usize) {
        for key in keys_of(&self.plan.jobs[at]) {
            self.watches[key].changed_at = self.now;
        }
    }

    /// Counts a lock request to a node. While another job holds the lock only few are allowed.
    pub(crate) fn is_asked(&mut self, at: usize, node: usize) {
        let job = self.plan.jobs[at];
        let is_rival = |other: &usize| {
            *other != at
                && self.plan.jobs[*other].keys & job.keys != 0
                && self.jobs[*other].is_holding()
        };
        let is_held = (0..self.jobs.len()).any(|other| is_rival(&other));
        let changed = keys_of(&job).map(|key| self.watches[key].changed_at).max().unwrap_or(0);
        let asked = &mut self.jobs[at].asked[node];
        if !is_held || asked.since < changed {
            *asked = Asked { since: self.now, times: 0 };
        }
        asked.times += 1;
        let (times, span) = (asked.times, self.now - asked.since);
        if times > FEW + span / REST {
            self.violated(Violation::Frenzy { job: at, times, within_us: span / 1_000 });
        }
    }

    /// Checks that no job of the same client has waited longer for any of its resources.
    pub(crate) fn is_in_turn(&mut self, at: usize, called: Time) {
        let job = self.plan.jobs[at];
        let is_before = |&other: &usize| {
            let (rival, running) = (&self.plan.jobs[other], &self.jobs[other]);
            let is_rival = other != at && rival.client == job.client && rival.keys & job.keys != 0;
            let waits = rival.patience > 0 && running.released.is_none();
            is_rival && waits && running.called_at().is_some_and(|before| before < called)
        };
        if job.patience > 0
            && let Some(before) = (0..self.jobs.len()).find(is_before)
        {
            self.violated(Violation::OutOfTurn { job: at, before });
        }
    }

    /// Checks that others get their turn while one client acquires again and again. Only
    /// `WakeStrategy::Lead` is checked: the queue has an order with its own check, and the timer
    /// alone is not fair.
    pub(crate) fn leaves_turns(&mut self, at: usize) {
        if self.plan.class != Class::Waiting || self.plan.setup.wake != WakeStrategy::Lead {
            return;
        }
        let job = self.plan.jobs[at];
        for other in 0..self.jobs.len() {
            let rival = self.plan.jobs[other];
            let waits = rival.patience > 0 && self.jobs[other].is_acquiring();
            if rival.client == job.client || rival.keys & job.keys == 0 || !waits {
                continue;
            }
            let now = self.now;
            let passed_by = &mut self.jobs[other].passed_by;
            let (_, since) = *passed_by.insert(match *passed_by {
                Some((client, since)) if client == job.client => (client, since),
                _ => (job.client, now),
            });
            if now - since > GREED + self.plan.longest_sleep {
                self.violated(Violation::Greedy { job: other, client: job.client.into() });
            }
        }
    }

    /// Checks that a client without waiters has no push link.
    pub(crate) fn nobody_listens(&mut self) {
        for client in 0..self.clients.len() {
            let pushes = &self.clients[client].wires[MAX_NODES..];
            let amount = pushes.iter().flatten().count();
            if amount > 0 {
                self.violated(Violation::Unbounded { client, what: "push links", amount });
            }
        }
    }
}

/// Returns the maximum sleep of a waiter while its resource is free, given the schedule's faults.
pub(crate) fn longest_sleep(plan: &Plan) -> Time {
    if takes_turns(plan) {
        return longest_turn(plan);
    }
    let is_muted = |what: What| matches!(what, What::PushLost | What::PushBroken);
    let deaf = plan.faults.iter().any(|fault| is_muted(fault.what));
    let others = plan.faults.iter().filter(|fault| !is_muted(fault.what)).count() as Time;
    let round_trip = 2 * (plan.net.delay + plan.net.jitter) * plan.net.pieces as Time;
    // Pauses without notifications, then muted notifications, and a few rounds.
    let reported = 300 * MS + 8 * round_trip;
    reported + if deaf { CAP } else { 0 } + others * 600 * MS
}

/// Returns true if waiters queue on the nodes, and the only faults are that processes stop or never
/// reach one of the nodes, or that clocks of nodes are set back.
pub(crate) fn takes_turns(plan: &Plan) -> bool {
    plan.setup.wake == WakeStrategy::Queue && plan.faults.iter().all(Fault::leaves_turns)
}

/// Returns the maximum time that the second waiter takes to get a free resource, in addition to the
/// grace of the head: a few round trips, and some of its timers. A waiter further back inspects
/// less often, in proportion to the number of tickets in front of it at its last request. A holder
/// that never reaches the node to which a waiter subscribes does not hold the lock there, so the
/// waiter is not notified of the release.
fn longest_turn(plan: &Plan) -> Time {
    let far = plan.clients.iter().map(|client| client.far + client.late).max().unwrap_or_default();
    let one_way = plan.net.delay + plan.net.jitter + far;
    let is_unheard = plan.faults.iter().any(Fault::never_reaches);
    let reported = 16 * 2 * one_way * plan.net.pieces as Time + 100 * MS;
    let stops = plan.faults.iter().any(|fault| fault.what == What::PauseClient);
    let looks = if stops { READ_FROM_BEHIND * plan.jobs.len() as Time } else { 0 };
    reported + looks + if is_unheard { CAP } else { 0 }
}

pub(crate) fn keys_of(job: &Job) -> impl Iterator<Item = usize> + use<> {
    let keys = job.keys;
    (0..KEYS.len()).filter(move |key| keys >> key & 1 == 1)
}

/// The longest pause of a waiter that relies on notifications.
pub(crate) const CAP: Time = 2_000 * MS;

/// The period after which a waiter inspects a resource, for each ticket in front of it.
const READ_FROM_BEHIND: Time = 50 * MS;

/// The time since its last request for which a waiter is not pinged.
const PINGED_AFTER: Time = 500 * MS;

/// The time for which one client may have a resource again and again while others wait: at first it
/// does not know of them, and later their notifications may be muted.
const GREED: Time = 1_500 * MS;

/// The number of requests to a node that are not judged, however fast.
const FEW: u64 = 25;

/// The period after which one more request is allowed.
const REST: Time = 10 * MS;
