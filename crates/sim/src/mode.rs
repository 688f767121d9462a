//! Jobs that change the mode of their lock: readers that try to write, and writers that read on.
//! The checks follow the mode in force: a writer that downgrades is a reader from its call on, and
//! a reader that upgrades is a writer from its event on.

use redbolt::proto::{ClockReading, LockMode, RequestError, Timestamp};

use crate::history::{Does, Operation};
use crate::invariant::Violation;
use crate::notes::Call;
use crate::plan::Job;
use crate::world::World;
use crate::world::queue::Time;

impl World {
    /// Changes the mode of the job's lock, unless another operation is pending.
    pub(crate) fn change_mode(&mut self, at: usize, job: &Job) {
        let client = usize::from(job.client);
        let running = &self.jobs[at];
        let is_idle = running.extend.is_none() && running.change.is_none();
        let Some(id) = running.id.filter(|_| running.is_held && is_idle) else { return };
        if running.released.is_some() || self.is_healed {
            return;
        }
        let settings = self.clients[client].core.config().settings();
        // A fenced lock may need a second round with a corrected clock, and a write-back.
        let rounds = if job.fenced { 3 } else { 1 };
        let round = settings.connect_timeout.max(settings.response_timeout).as_nanos() as Time;
        let bound = rounds * round;
        let (call, now) = (self.call(client, bound), self.clocks(client));
        self.note(0x160 + at as u64);
        let core = &mut self.clients[client].core;
        let begun = if job.shared { core.try_upgrade(id, now) } else { core.downgrade(id, now) };
        match begun {
            Ok(()) => {
                self.jobs[at].change = call;
                // Its lease may end, and a change may be denied, within the call.
                if !job.shared {
                    self.reads_on(at);
                }
            }
            Err(RequestError::NotHeld | RequestError::ModeChangeUnderWay) => {}
            // No client gets another lease at the end of the longest hold.
            Err(RequestError::HeldTooLong { max_hold })
                if now.boot.since(self.jobs[at].held_since.boot) >= max_hold => {}
            Err(_) => {
                let what = "that its mode cannot be changed";
                return self.violated(Violation::Outcome { job: at, what });
            }
        }
        self.settle(client);
        self.is_of_mode(at);
    }

    /// Makes the job a reader from its call on, independent of the nodes' replies.
    fn reads_on(&mut self, at: usize) {
        self.plan.jobs[at].shared = true;
        let owner = at as u16;
        let (called, returned) = (self.now, self.now);
        self.record(at, Operation { called, returned, owner, does: Does::Downgrade });
    }

    pub(crate) fn upgraded(&mut self, at: usize) {
        let call = self.end_of_change(at);
        let Some(attempt) = self.second_granted(at) else { return };
        self.tally.upgrades += 1;
        self.plan.jobs[at].shared = false;
        let job = self.plan.jobs[at];
        let running = &mut self.jobs[at];
        (running.attempt, running.wrote_since) = (attempt, Some(self.now));
        self.has_token(at, &job);
        self.token_grows(at, &job);
        self.has_another_lease(at);
        let does = Does::Upgrade { token: self.jobs[at].token.unwrap_or(0) };
        let called = call.map_or(self.now, |call| call.at);
        self.record(at, Operation { called, returned: self.now, owner: at as u16, does });
        self.look(at, &job);
    }

    pub(crate) fn not_upgraded(&mut self, at: usize) {
        self.end_of_change(at);
        self.tally.upgrades_refused += 1;
        self.is_of_mode(at);
    }

    /// Handles the release to other readers. The validity is not shorter, unless a wall clock was
    /// set meanwhile.
    pub(crate) fn downgraded(&mut self, at: usize) {
        self.end_of_change(at);
        let Some(attempt) = self.second_granted(at) else { return };
        self.tally.downgrades += 1;
        let (before, client) = (self.jobs[at].lease, usize::from(self.plan.jobs[at].client));
        let clocks = self.clients[client].clocks(self.now);
        let by_boot = ClockReading { wall: Timestamp(0), ..clocks };
        let is_shorter = before
            .zip(self.lease(at))
            .is_some_and(|(before, lease)| lease.remaining(by_boot) < before.remaining(by_boot));
        let core = &self.clients[client].core;
        let token = self.jobs[at].id.and_then(|id| core.fencing_token(id)).map(|token| token.get());
        if is_shorter || token != self.jobs[at].token {
            let what = "a shorter validity or another token by a downgrade";
            self.violated(Violation::Outcome { job: at, what });
        }
        self.jobs[at].attempt = attempt;
        self.has_another_lease(at);
    }

    pub(crate) fn downgrade_delayed(&mut self, at: usize) {
        self.end_of_change(at);
        self.tally.downgrades_delayed += 1;
        self.is_of_mode(at);
    }

    fn end_of_change(&mut self, at: usize) -> Option<Call> {
        let call = self.jobs[at].change.take();
        if !self.jobs[at].is_held {
            let what = "a change of its mode without holding the lock";
            self.violated(Violation::Outcome { job: at, what });
        }
        self.came_back(at, call, "a change of mode");
        call
    }

    /// Checks a new lease, like one that begins.
    fn has_another_lease(&mut self, at: usize) {
        let left = self.remaining(at);
        self.is_of_mode(at);
        self.is_alone(at);
        self.is_backed(at, left);
        self.jobs[at].lease = self.lease(at);
        self.read_later(at, left);
        self.note_validity(at);
        if !left.is_zero() {
            let job = self.plan.jobs[at];
            self.a_quorum_keeps(at, &job);
        }
    }

    /// Checks that the core and the job agree on the mode.
    pub(crate) fn is_of_mode(&mut self, at: usize) {
        let job = self.plan.jobs[at];
        let core = &self.clients[usize::from(job.client)].core;
        let expected = if job.shared { LockMode::Shared } else { LockMode::Exclusive };
        let id = self.jobs[at].id.filter(|_| self.jobs[at].is_held);
        let is_other = id.and_then(|id| core.mode(id)).is_some_and(|mode| mode != expected);
        // An event that is not read yet may have changed it.
        if is_other && job.shared && self.jobs[at].change.is_none() {
            let what = "to be a writer while it reads";
            self.violated(Violation::Outcome { job: at, what });
        }
    }
}
