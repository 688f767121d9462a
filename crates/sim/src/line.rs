//! Checks of the line in which waiters stand: nobody who began to wait behind another one's door is granted before it, and
//! nothing stays on the nodes for a line in which nobody stands.
//!
//! The promise holds for those who take their turn in time, and while no node forgets. So who has passed is judged only
//! in schedules without faults, on networks that are fast beside the shortest grace. Not here: waiters who sleep, see
//! `patience`.

use redbolt::proto::WakeStrategy;

use crate::invariant::Violation;
use crate::plan::{Class, KEYS, Kind, MS};
use crate::world::World;
use crate::world::node::Node;
use crate::world::queue::Time;

impl World {
    /// After each event of a client: notes which of its jobs have passed their door.
    pub(crate) fn notice_door(&mut self, at: usize) {
        let client = usize::from(self.plan.jobs[at].client);
        let core = &self.clients[client].core;
        let has_door = self.jobs[at].id.is_some_and(|id| core.has_door(id));
        let job = &mut self.jobs[at];
        job.door_at = if has_door { job.door_at.or(Some(self.now)) } else { None };
    }

    /// A job was granted that was called at `called`: nobody may wait whose door it came behind.
    pub(crate) fn passes_nobody(&mut self, at: usize, called: Time) {
        if !self.judges_the_line() {
            return;
        }
        let job = self.plan.jobs[at];
        let is_passed = |&other: &usize| {
            let (rival, running) = (&self.plan.jobs[other], &self.jobs[other]);
            let excludes = !(rival.shared && job.shared);
            let is_rival = other != at && rival.keys & job.keys != 0 && excludes;
            is_rival && running.is_acquiring() && running.door_at.is_some_and(|door| door < called)
        };
        if let Some(passed) = (0..self.jobs.len()).find(is_passed) {
            self.violated(Violation::Passed { job: at, passed });
        }
    }

    /// Long after the last job has ended: no key is closed.
    pub(crate) fn no_line_is_left(&mut self) {
        if self.judges_the_line() {
            self.nodes_keep_nothing(Node::is_closed);
        }
    }

    /// When all jobs have ended: nobody has a ticket.
    pub(crate) fn nobody_stands(&mut self) {
        let mut jobs = self.plan.jobs.iter().zip(&self.jobs);
        let all_over = jobs.all(|(job, it)| job.kind == Kind::Probe || it.is_over());
        if all_over && self.judges_the_line() {
            self.nodes_keep_nothing(Node::has_line);
        }
    }

    fn nodes_keep_nothing(&mut self, keeps: impl Fn(&mut Node, &[u8], Time) -> bool) {
        for node in 0..self.plan.nodes {
            for (key, name) in KEYS.iter().enumerate().take(self.plan.keys) {
                if keeps(&mut self.nodes[node], name, self.now) {
                    self.violated(Violation::LineSurvives { key, node });
                }
            }
        }
    }

    fn judges_the_line(&self) -> bool {
        let round_trip =
            2 * (self.plan.net.delay + self.plan.net.jitter) * self.plan.net.pieces as Time;
        let is_calm = self.plan.class == Class::Waiting && self.plan.faults.is_empty();
        is_calm && self.plan.setup.wake == WakeStrategy::Line && 4 * round_trip < SHORTEST_GRACE
    }
}

/// Nobody who stands first is passed within this time.
const SHORTEST_GRACE: Time = 20 * MS;
