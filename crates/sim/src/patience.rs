//! What those who wait may rely on: nobody sleeps beside a free resource, nobody asks in a frenzy while
//! another holds it, and among the locks of one client the first to come is the first to be served.
//!
//! Apart from `actor` because nothing here does anything.

use redbolt::proto::{LockState, WakeStrategy};

use crate::fault::What;
use crate::invariant::Violation;
use crate::plan::{Class, Job, KEYS, MAX_NODES, MS, Plan};
use crate::world::World;
use crate::world::queue::Time;

/// What is known of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// No node has its key since then.
    free_since: Option<Time>,
    /// Somebody began or ceased to hold it then.
    changed_at: Time,
}

/// How often a job has asked a node while somebody else held what it wants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    since: Time,
    times: u64,
}

impl World {
    /// Before something happens: it has taken too long since the last time.
    pub(crate) fn nobody_sleeps(&mut self) {
        if self.plan.class != Class::Waiting || self.is_healed {
            return;
        }
        for at in 0..self.jobs.len() {
            let Some(since) = self.could_have_since(at) else { continue };
            let slept = self.now - since;
            if slept > self.plan.longest_sleep {
                let by_us = (slept - self.plan.longest_sleep) / 1_000;
                self.violated(Violation::Slept { job: at, by_us });
            }
        }
    }

    /// Since when a job waits for what nobody has.
    fn could_have_since(&self, at: usize) -> Option<Time> {
        let (job, running) = (&self.plan.jobs[at], &self.jobs[at]);
        let id = running.id.filter(|_| job.patience > 0 && running.is_acquiring())?;
        let state = self.clients[usize::from(job.client)].core.state(id);
        if !matches!(state, LockState::Asked | LockState::Fencing | LockState::Pausing) {
            return None;
        }
        let mut since = running.turn_at;
        for key in keys_of(job) {
            since = since.max(self.watches[key].free_since?);
        }
        Some(since)
    }

    /// After something has happened: which resources nobody has.
    pub(crate) fn watch(&mut self) {
        if self.plan.class != Class::Waiting || self.is_healed {
            return;
        }
        for (key, watch) in KEYS.iter().zip(&mut self.watches).take(self.plan.keys) {
            let nodes = &self.nodes[..self.plan.nodes];
            let is_taken = nodes.iter().any(|node| node.holds(key, self.now));
            watch.free_since = if is_taken { None } else { watch.free_since.or(Some(self.now)) };
        }
    }

    /// A job began or ceased to be a holder.
    pub(crate) fn holder_changed(&mut self, at: usize) {
        for key in keys_of(&self.plan.jobs[at]) {
            self.watches[key].changed_at = self.now;
        }
    }

    /// A node is asked for a lock. While another holds it that must not be often.
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

    /// Nobody of the same client has waited longer for any of it.
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

    /// Others get their turn while one client asks again and again. Only where the lead is asked first: the
    /// other ways are for comparison, and leave too little time to those who need it.
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

    /// Who waits for nothing listens to nothing.
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

/// How long somebody may wait for what is free, by what goes wrong.
pub(crate) fn longest_sleep(plan: &Plan) -> Time {
    let is_muted = |what: What| matches!(what, What::PushLost | What::PushBroken);
    let deaf = plan.faults.iter().any(|fault| is_muted(fault.what));
    let others = plan.faults.iter().filter(|fault| !is_muted(fault.what)).count() as Time;
    let round_trip = 2 * (plan.net.delay + plan.net.jitter) * plan.net.pieces as Time;
    // Pauses without a word from the nodes, then deafness and a few rounds.
    let told = 300 * MS + 8 * round_trip;
    told + if deaf { CAP } else { 0 } + others * 600 * MS
}

fn keys_of(job: &Job) -> impl Iterator<Item = usize> + use<> {
    let keys = job.keys;
    (0..KEYS.len()).filter(move |key| keys >> key & 1 == 1)
}

/// The longest pause of who relies on being told.
const CAP: Time = 2_000 * MS;

/// One client may have a resource again and again for so long while others wait: at first it does not
/// know of them, and then they may not be listening.
const GREED: Time = 1_500 * MS;

/// So many asks of a node are no frenzy, however fast.
const FEW: u64 = 25;

/// And one more after so long.
const REST: Time = 10 * MS;
