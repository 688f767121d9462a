//! Checks of the queue: no job that began to wait once a quorum knew another's place is granted
//! before it; nothing stays on the nodes for a queue without waiters; and no waiter for a permit
//! sleeps while a slot is free.
//!
//! With several permits, a waiter that came later may be granted one first while another is free. A
//! waiter that wants one of fewer permits than others do may lose its place, because they treat it
//! as one that does not come. Neither is judged.
//!
//! The promise holds for waiters that take their turn in time, and while no node forgets. So passes
//! are judged only in schedules whose only faults are clients that never reach a node, on networks
//! that are fast compared with the shortest grace.

use std::collections::BTreeSet;

use redbolt::proto::script::{ACQUIRE_IN_QUEUE, ACQUIRE_PERMIT_IN_QUEUE};
use redbolt::proto::{LockState, WakeStrategy};
use redbolt_testkit::Command;
use redbolt_testkit::command::number;

use crate::fault::{Fault, What};
use crate::invariant::Violation;
use crate::notes::Ticket;
use crate::patience::{keys_of, takes_turns};
use crate::plan::{Class, Job, KEYS, Kind, MAX_NODES, MS, Start};
use crate::world::World;
use crate::world::node::{Node, grace_ms};
use crate::world::queue::Time;

/// The checks of a request in the queue, at its node.
impl World {
    /// Checks that a stamp is sent only once a quorum has reported one, and never gets smaller;
    /// that a waiting request leaves no free key, and a granted one keeps its ticket; and that no
    /// call remains for a held resource.
    pub(crate) fn keeps_to_the_queue(
        &mut self,
        at: usize,
        attempt: u16,
        request: &Command<'_>,
        words: &[&[u8]],
        reply: &[u8],
    ) {
        let in_queue = [Some(&ACQUIRE_IN_QUEUE), Some(&ACQUIRE_PERMIT_IN_QUEUE)];
        let (waits, is_granted) = (reply.starts_with(b"+WAIT "), reply.starts_with(b"+OK "));
        let Some(attempt) = self.attempts.get(usize::from(attempt)) else { return };
        if !in_queue.contains(&request.script) || !(waits || is_granted) {
            return;
        }
        let (job, wire) = (usize::from(attempt.job), &self.wires[at]);
        let (node, link) = (wire.node, wire.slot % MAX_NODES);
        let keys = number(words[2]) as usize;
        let (names, argv) = words[3..].split_at(keys.min(words.len() - 3));
        let (Some(&resource), Some(&stamp)) = (names.first(), argv.get(3)) else { return };
        let (call, ticket) = (names.get(4).copied(), argv.last().copied().unwrap_or_default());
        let has_bad_stamp = self.sends_stamp((at, link), number(stamp), job, ticket);
        let mut replied = reply.split(|&byte| byte == b' ').skip(1);
        let (left, before) =
            (replied.next().unwrap_or_default(), replied.nth(1).unwrap_or_default());
        let is_held = waits && left != b"0" && before != b"0" && !ticket.starts_with(b"p");
        let is_free = waits && left == b"0" && !ticket.starts_with(b"p");
        let (now, server) = (self.now, &mut self.nodes[node]);
        let what = match has_bad_stamp {
            Some(what) => what,
            None if waits && !server.holds(resource, now) => "left a free key behind",
            None if is_free && !server.has_closed(resource, now) => "did not close what is free",
            None if is_granted && !server.has_queue(resource, now) => "lost its ticket by a grant",
            None if is_held && call.is_some_and(|call| server.holds(call, now)) => {
                "left somebody called for what is held"
            }
            None => return,
        };
        self.violated(Violation::QueueRule { job, node, what });
    }

    /// Returns, before a request in the queue, the called waiter if it is the head and within its
    /// grace.
    pub(crate) fn called_first(
        &mut self,
        node: usize,
        request: &Command<'_>,
        words: &[&[u8]],
    ) -> Option<Vec<u8>> {
        let in_queue = [Some(&ACQUIRE_IN_QUEUE), Some(&ACQUIRE_PERMIT_IN_QUEUE)];
        if !in_queue.contains(&request.script) || !takes_turns(&self.plan) {
            return None;
        }
        let (stamps, ends, call) = (words.get(4)?, words.get(5)?, words.get(7)?);
        let (now, server) = (self.now, &mut self.nodes[node]);
        let (since, whom) = server.called(call, now)?;
        let is_first = server.tickets(stamps, now).first() == Some(&whom);
        let in_time = server.clock(now).micros() / 1_000 <= since + grace_ms(&whom);
        // A waiter that was pinged before the resource was free also has to answer in time.
        (is_first && in_time && server.is_in_time(ends, &whom, now)).then_some(whom)
    }

    /// Checks, after the request, that the called waiter is still the head, unless the request was
    /// its own.
    pub(crate) fn leaves_the_turn(
        &mut self,
        node: usize,
        attempt: u16,
        words: &[&[u8]],
        called: Vec<u8>,
    ) {
        let (now, own) = (self.now, words.last().copied().unwrap_or_default());
        let stands = self.nodes[node].tickets(words[4], now).contains(&called);
        let Some(attempt) = self.attempts.get(usize::from(attempt)) else { return };
        let job = usize::from(attempt.job);
        if !stands && !called.starts_with(own) {
            let what = "took the turn of who was called, within its grace";
            self.violated(Violation::QueueRule { job, node, what });
        }
    }

    fn sends_stamp(
        &mut self,
        (wire, link): (usize, usize),
        stamp: u64,
        job: usize,
        name: &[u8],
    ) -> Option<&'static str> {
        let is_calm = self.judges_the_queue();
        let known = self.tickets.iter().position(|ticket| ticket.name == name);
        let known = known.unwrap_or_else(|| {
            // Another ticket of the same waiter, with another grace, continues from the last stamp.
            // A lock that left because nodes forbid the queue may come back, at a new place.
            let is_back = stamp == 0 && self.has(What::Denied);
            let same_job = |ticket: &&Ticket| ticket.job == job && !is_back;
            let former = self.tickets.iter().rev().find(same_job).cloned();
            let new = Ticket { job, name: Vec::new(), reported: 0, sent: Vec::new(), silent: 0 };
            self.tickets.push(Ticket { name: name.to_vec(), ..former.unwrap_or(new) });
            self.tickets.len() - 1
        });
        let ticket = &mut self.tickets[known];
        let before = ticket.sent.iter_mut().find(|(on, _)| *on == wire);
        let is_smaller = before.as_ref().is_some_and(|(_, before)| stamp < *before);
        match before {
            Some((_, before)) => *before = stamp,
            None => ticket.sent.push((wire, stamp)),
        }
        let is_early = stamp > 0 && (ticket.reported.count_ones() as usize) < self.plan.quorum();
        ticket.silent += usize::from(stamp == 0);
        // The second request follows the replies of a quorum to the first.
        let is_late = is_calm && ticket.silent > SILENT_ASKS * self.plan.nodes;
        ticket.reported |= 1 << link;
        match (is_smaller, is_early, is_late) {
            (true, _, _) => Some("says a smaller stamp than the one before"),
            (_, true, _) => Some("says a stamp before a quorum has told any"),
            (_, _, true) => Some("says no stamp although a quorum has told one"),
            _ => None,
        }
    }
}

impl World {
    /// Records, after each event of a client, which of its jobs have a place that a quorum knows.
    pub(crate) fn note_place(&mut self, at: usize) {
        let client = usize::from(self.plan.jobs[at].client);
        let core = &self.clients[client].core;
        let has_place = self.jobs[at].id.is_some_and(|id| core.has_place(id));
        let job = &mut self.jobs[at];
        job.place_at = if has_place { job.place_at.or(Some(self.now)) } else { None };
    }

    /// Checks, for a job that was called at `called` and is granted, that no job waits whose place
    /// a quorum knew then.
    pub(crate) fn passes_nobody(&mut self, at: usize, called: Time) {
        if !self.judges_the_queue() {
            return;
        }
        let job = self.plan.jobs[at];
        let is_passed = |&other: &usize| {
            let (rival, running) = (&self.plan.jobs[other], &self.jobs[other]);
            let has_stood = job.patience > 0 && rival.permits + job.permits > 2;
            let are_beside = rival.permits > 0 && job.permits > 0 && has_stood;
            let excludes = !(are_beside || rival.shared && job.shared);
            let is_rival = other != at && rival.keys & job.keys != 0 && excludes;
            let is_called_in_vain = rival.permits > 0 && self.most_permits(rival) > rival.permits;
            is_rival
                && !is_called_in_vain
                && running.is_acquiring()
                && running.place_at.is_some_and(|known| known < called)
        };
        if let Some(passed) = (0..self.jobs.len()).find(is_passed) {
            self.violated(Violation::Passed { job: at, passed });
        }
    }

    /// Returns the largest number of permits that a job wants of the same resource.
    fn most_permits(&self, job: &Job) -> u16 {
        let beside = self.plan.jobs.iter().filter(|other| other.keys & job.keys != 0);
        beside.map(|other| other.permits).max().unwrap_or_default()
    }

    /// Checks, after each event, that the first job to request a permit has not slept for long
    /// while all nodes had a slot for it.
    pub(crate) fn no_slot_stays_free(&mut self) {
        let stops = |fault: &Fault| fault.what == What::PauseClient;
        let is_calm = self.plan.faults.iter().all(stops) && self.may_judge_the_queue();
        if self.plan.class != Class::Permits || self.is_healed || !is_calm {
            return;
        }
        for key in 0..self.plan.keys {
            let waiter = self.waits_for_slot(key);
            let before = self.watches[key].slot_free_since;
            // A job that replaces one that gave up does not know for how long the first was called.
            let since =
                waiter.map(|job| before.filter(|it| it.0 == job).unwrap_or((job, self.now)));
            self.watches[key].slot_free_since = since;
            if let Some((job, since)) = since {
                self.slept(job, self.now - since);
            }
        }
    }

    /// Returns a job that waits for a permit, if all jobs of the resource want permits and there
    /// are fewer holders than the smallest number of permits wanted.
    fn waits_for_slot(&mut self, key: usize) -> Option<usize> {
        let is_of = |job: &Job| keys_of(job).any(|of| of == key) && job.kind != Kind::Probe;
        let jobs = || self.plan.jobs.iter().filter(|job| is_of(job));
        let fewest = jobs().map(|job| job.permits).min().filter(|&fewest| fewest > 0)?;
        let waits = |&at: &usize| {
            let (job, running) = (&self.plan.jobs[at], &self.jobs[at]);
            let client = &self.clients[usize::from(job.client)];
            let id = running.id.filter(|_| running.is_acquiring());
            let state = id.map(|id| client.core.state(id));
            let is_asking = matches!(state, Some(LockState::Asked | LockState::Pausing));
            is_of(job) && job.patience > 0 && is_asking && client.paused_until <= self.now
        };
        let waiter = (0..self.jobs.len()).find(waits)?;
        let (nodes, now) = (self.plan.nodes, self.now);
        let nodes = self.nodes[..nodes].iter_mut();
        let holders: BTreeSet<_> = nodes.flat_map(|node| node.owners(KEYS[key], now)).collect();
        (holders.len() < usize::from(fewest)).then_some(waiter)
    }

    /// Checks, long after the last job has ended, that no key is closed.
    pub(crate) fn no_queue_is_left(&mut self) {
        if self.judges_the_queue() {
            self.nodes_keep_nothing(Node::is_closed);
        }
    }

    /// Checks, at the end of any schedule, once the data of the last request has expired, that no
    /// node has a ticket and no key is closed.
    pub(crate) fn no_queue_is_kept(&mut self) {
        let nodes = &self.nodes[..self.plan.nodes];
        let stepped = nodes.iter().map(|node| node.stepped_back).max().unwrap_or(0) * 1_000;
        let at = self.now.max(self.scripted_at + KEPT_FOR + KEPT_FOR / 50 + stepped);
        for node in 0..self.plan.nodes {
            for (key, name) in KEYS.iter().enumerate().take(self.plan.keys) {
                let server = &mut self.nodes[node];
                if server.has_queue(name, at) || server.is_closed(name, at) {
                    self.violated(Violation::QueueSurvives { key, node });
                }
            }
        }
    }

    /// Checks, when all jobs have ended, that no ticket is left.
    pub(crate) fn nobody_stands(&mut self) {
        let mut jobs = self.plan.jobs.iter().zip(&self.jobs);
        let all_over = jobs.all(|(job, it)| job.kind == Kind::Probe || it.is_over());
        if all_over && self.judges_the_queue() {
            self.nodes_keep_nothing(Node::has_queue);
        }
    }

    fn nodes_keep_nothing(&mut self, keeps: impl Fn(&mut Node, &[u8], Time) -> bool) {
        for node in 0..self.plan.nodes {
            for (key, name) in KEYS.iter().enumerate().take(self.plan.keys) {
                if keeps(&mut self.nodes[node], name, self.now) {
                    self.violated(Violation::QueueSurvives { key, node });
                }
            }
        }
    }

    fn judges_the_queue(&self) -> bool {
        let is_calm = match self.plan.class {
            Class::Waiting => self.plan.faults.iter().all(Fault::never_reaches),
            _ => self.plan.faults.is_empty(),
        };
        is_calm && self.may_judge_the_queue()
    }

    /// Returns true if waiters queue on the nodes, on a network that is fast compared with the
    /// shortest grace.
    fn may_judge_the_queue(&self) -> bool {
        let round_trip =
            2 * (self.plan.net.delay + self.plan.net.jitter) * self.plan.net.pieces as Time;
        let net = &self.plan.net;
        let is_even = net.tail_per_mille == 0 && net.loss_per_mille == 0;
        let waits = match self.plan.class {
            Class::Permits => is_even && self.plan.setup.start == Start::Ready,
            class => class == Class::Waiting,
        };
        waits && self.plan.setup.wake == WakeStrategy::Queue && 4 * round_trip < SHORTEST_GRACE
    }
}

/// The number of requests to each node in which a waiter may send no stamp.
const SILENT_ASKS: usize = 3;

/// The lifetime of a closed key after the last request; no ticket lives longer.
const KEPT_FOR: Time = 8_000 * MS;

/// The shortest time within which the head cannot be passed.
const SHORTEST_GRACE: Time = 20 * MS;
