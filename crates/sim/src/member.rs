//! Members of other libraries whose locks are a second since 1970, or redis-objects' empty string:
//! they take a lock, work, and release it or die.
//!
//! A member uses its own clock and goes from node to node; it holds the lock if it has a quorum of
//! them. A network delay passes between two of its commands, so that several clients that find an
//! expired second, redbolt's jobs among them, race for it, and losers overwrite it. Exclusion with
//! jobs is judged as far as the format promises it: until a second (the allowed difference of
//! clocks) before the value's, or before that of a loser that has overwritten it. Faults that no
//! lock of this format survives are not drawn: clocks that differ by more, nodes that forget, a
//! late `DEL`, and the take-over of newer versions of redis-objects, which set without a check.

use redbolt::proto::Profile;
use redbolt_testkit::Random;

use crate::fault::What;
use crate::invariant::Violation;
use crate::notes::Holdings;
use crate::plan::{Fate, Format, KEYS, Kind, MS, Member, Plan, Start};
use crate::world::World;
use crate::world::node::EPOCH_US;
use crate::world::queue::{Event, Move, Time};

impl Member {
    /// Returns its clock, in microseconds.
    fn clock(&self, now: Time) -> u64 {
        (EPOCH_US + now / 1_000).saturating_add_signed(self.ahead)
    }

    /// Returns the time, in microseconds of true time, until which the format promises that no
    /// other client takes a lock whose value ends at `end`.
    fn promised_until(&self, end: u64) -> u64 {
        end.saturating_add_signed(-self.ahead).saturating_sub(EPOCH_US + SECOND_US)
    }
}

impl Plan {
    /// Draws members of one version next to the jobs, all on one resource, and the value of one
    /// that died before.
    pub(crate) fn draw_members(&mut self, draw: &mut Random) {
        let longest = self.jobs.iter().map(|job| job.ttl_ms).max().unwrap_or(0);
        let is_changed = self.faults.iter().any(|fault| fault.what == What::Change);
        if longest >= 10_000 || self.wild != 0 || is_changed || !draw.chance(300) {
            return;
        }
        let may_happen = |what: What| {
            !what.loses_memory() && !matches!(what, What::StepNode { .. } | What::StepGrants)
        };
        self.faults.retain(|fault| may_happen(fault.what));
        // Longer than it takes until an extended lock's first second has passed.
        self.setup.max_ttl_ms = self.setup.max_ttl_ms.max(4_000);
        self.setup.other_ttl_ms = self.setup.max_ttl_ms + 200;
        self.draw_jobs_beside_members(draw);
        let format = draw.pick(&[Format::Setnx, Format::Timed, Format::Timed, Format::Empty]);
        for _ in 0..draw.between(1, 3) {
            let timeout = longest.div_ceil(1_000) + 1;
            self.members.push(Member {
                at: draw.below(2_000 * MS),
                // A node's clock is off by half a second, and by its drift.
                ahead: draw.between(0, 700_000) as i64 - 350_000,
                format,
                timeout,
                patience: draw.between(500, 4_000) * MS,
                // It ends before the lock expires by any clock.
                work: draw.below(timeout * 500) * MS,
                fate: if draw.chance(400) { Fate::Dies } else { Fate::Releases },
            });
        }
        if self.setup.start == Start::Ready && draw.chance(500) {
            let second = EPOCH_US / 1_000_000 + draw.below(5) - 2;
            self.members.push(Member { fate: Fate::Left(second), ..self.members[0] });
        }
    }

    fn draw_jobs_beside_members(&mut self, draw: &mut Random) {
        for job in &mut self.jobs {
            job.profile = draw.pick(&[Profile::REDIS_OBJECTS, Profile::SETNX]);
            (job.keys, job.shared, job.fenced) = (1, false, false);
            if job.kind != Kind::Probe && draw.chance(600) {
                job.patience = draw.between(500, 4_000) * MS;
            }
            if job.kind == Kind::AutoExtend && draw.chance(500) {
                job.work = draw.between(2_000, 4_000) * MS;
            }
        }
    }
}

impl World {
    /// Schedules a member's first step.
    pub(crate) fn join(&mut self, at: usize, member: &Member) {
        self.members.push(Holdings::default());
        if let Fate::Left(second) = member.fate {
            let second = second.to_string();
            for node in 0..self.plan.nodes {
                self.nodes[node].observe(&[b"SET", KEY, second.as_bytes()], 0);
            }
        } else {
            self.queue.push(member.at, Event::Member(at as u16, Move::Ask(0)));
        }
    }

    pub(crate) fn moves(&mut self, at: usize, next: Move) {
        self.note(0x170 + at as u64);
        match next {
            Move::Ask(node) => self.member_asks(at, node),
            Move::TakeOver(node) => self.member_takes_over(at, node),
            Move::Release => self.member_lets_go(at),
        }
    }

    fn member_asks(&mut self, at: usize, node: u8) {
        let (member, name) = (self.plan.members[at], usize::from(node));
        if node == 0 && (self.is_healed || self.now > member.at + member.patience) {
            return;
        }
        if self.nodes[name].serves(self.now) {
            let (end, value) = self.member_value(&member);
            let ttl = (member.timeout * 1_000).to_string();
            let words: [&[u8]; 6] = [b"SET", KEY, value.as_bytes(), b"NX", b"PX", ttl.as_bytes()];
            let words = if member.format == Format::Empty { &words[..] } else { &words[..4] };
            if self.nodes[name].observe(words, self.now) == b"+OK\r\n" {
                self.members[at].ends[name] = Some(end);
            } else if member.format != Format::Empty && self.is_over_for(&member, name) {
                let slow = if self.random.chance(300) { self.random.below(300 * MS) } else { 0 };
                return self.member_goes_on(at, Move::TakeOver(node), slow);
            }
        }
        self.member_leaves(at, node);
    }

    /// Overwrites the value. The member has the lock only if it overwrites an expired second, or
    /// nothing.
    fn member_takes_over(&mut self, at: usize, node: u8) {
        let (member, name) = (self.plan.members[at], usize::from(node));
        if self.nodes[name].serves(self.now) {
            let is_over = self.is_over_for(&member, name);
            let (end, value) = self.member_value(&member);
            let words = [&b"SET"[..], KEY, value.as_bytes()];
            let is_done = self.nodes[name].observe(&words, self.now) == b"+OK\r\n";
            self.story(|| format!("m{at} overwrites node {name}, and has it: {is_over}"));
            self.members[at].ends[name] = (is_done && is_over).then_some(end);
            // The overwritten lock now ends with the member's second, which is later than any job's
            // lease.
            self.keys_may_be_gone |= !is_over;
            if !is_over {
                self.overwrite_members(at, name, end);
            }
        }
        self.member_leaves(at, node);
    }

    /// Records that a member which did not get the node has overwritten the time of members that
    /// have it. If its clock is behind theirs, others may take the lock earlier from then on, which
    /// no lock of this format prevents.
    fn overwrite_members(&mut self, by: usize, node: usize, end: u64) {
        for other in (0..self.members.len()).filter(|&other| other != by) {
            let promised = self.plan.members[other].promised_until(end) * 1_000;
            let it = &mut self.members[other];
            if it.ends[node].is_some() {
                it.overwritten = Some(it.overwritten.unwrap_or(end).min(end));
                it.until = it.until.min(promised);
            }
        }
    }

    /// Goes to the next node, or counts whether the member has enough of them.
    fn member_leaves(&mut self, at: usize, node: u8) {
        if usize::from(node) + 1 < self.plan.nodes {
            return self.member_goes_on(at, Move::Ask(node + 1), 0);
        }
        let (member, it) = (self.plan.members[at], self.members[at]);
        let ends = it.ends;
        let first = ends.iter().flatten().min().copied().unwrap_or(0);
        let until = member.promised_until(first);
        if ends.iter().flatten().count() < self.plan.quorum() || until * 1_000 <= self.now {
            self.member_lets_go(at);
            let pause = self.random.below(60 * MS) + 20 * MS;
            return self.member_goes_on(at, Move::Ask(0), pause);
        }
        self.story(|| format!("m{at} holds the lock until {} ms", until / 1_000));
        let overwritten = it.overwritten.map_or(until, |end| member.promised_until(end));
        self.members[at].until = until.min(overwritten) * 1_000;
        self.member_is_alone(at);
        if member.fate == Fate::Releases {
            self.queue.push(self.now + member.work, Event::Member(at as u16, Move::Release));
        }
    }

    fn member_goes_on(&mut self, at: usize, next: Move, after: Time) {
        let net = self.plan.net;
        let delay = 2 * net.delay + self.random.below(net.jitter + 1);
        self.queue.push(self.now + after + delay, Event::Member(at as u16, next));
    }

    /// Deletes what the member has, without a check, unless its own time has passed.
    fn member_lets_go(&mut self, at: usize) {
        let member = self.plan.members[at];
        let it = std::mem::take(&mut self.members[at]);
        let has_time = |end: &u64| member.clock(self.now) + SECOND_US < *end;
        for node in 0..self.plan.nodes {
            if it.ends[node].as_ref().is_some_and(has_time) && self.nodes[node].serves(self.now) {
                self.nodes[node].observe(&[b"DEL", KEY], self.now);
            }
        }
    }

    /// Returns the end of a value set now, by the member's clock, and the value. A key with a TTL
    /// may end a second earlier, as far as is judged.
    fn member_value(&self, member: &Member) -> (u64, String) {
        let end = member.clock(self.now) + (member.timeout + 1) * SECOND_US;
        match member.format {
            Format::Setnx => (end - end % SECOND_US, (end / SECOND_US).to_string()),
            Format::Timed => (end, format!("{}.{:06}", end / SECOND_US, end % SECOND_US)),
            // Nodes' clocks may be fast.
            Format::Empty => (end - SECOND_US / 10, String::new()),
        }
    }

    /// Returns true if a member considers the value of a node expired. A value that is not a number
    /// is zero.
    fn is_over_for(&self, member: &Member, node: usize) -> bool {
        let value = self.nodes[node].value(KEY, self.now).unwrap_or_default();
        let is_of_number = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let length = value.iter().take_while(is_of_number).count();
        let number = std::str::from_utf8(&value[..length]).ok().and_then(|it| it.parse().ok());
        number.unwrap_or(0.0) * 1e6 < member.clock(self.now) as f64
    }

    /// Checks I1: no other client validly holds the resource. Members are numbered behind the jobs.
    fn member_is_alone(&mut self, at: usize) {
        let rival = self.jobs.len() + at;
        for job in 0..self.jobs.len() {
            if self.jobs[job].is_holding() && !self.remaining(job).is_zero() {
                self.violated(Violation::TwoHolders { key: 0, holder: job, rival });
            }
        }
        for other in (0..self.members.len()).filter(|&other| other != at) {
            if self.members[other].until > self.now {
                let holder = self.jobs.len() + other;
                self.violated(Violation::TwoHolders { key: 0, holder, rival });
            }
        }
    }

    /// Checks I1: no member holds the resource of a job that validly holds it.
    pub(crate) fn no_member_is_beside(&mut self, job: usize) {
        let now = self.now;
        if let Some(member) = self.members.iter().position(|member| member.until > now) {
            let holder = self.jobs.len() + member;
            self.violated(Violation::TwoHolders { key: 0, holder, rival: job });
        }
    }
}

/// The resource of all members.
const KEY: &[u8] = KEYS[0];

const SECOND_US: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    /// Returns the worlds at their start for all seeds of schedules with members.
    fn worlds() -> impl Iterator<Item = World> {
        let plans = (0..100).map(|seed| Plan::draw(Class::Profiles, seed));
        plans.filter(|plan| !plan.members.is_empty()).map(|plan| {
            let mut world = World::new();
            world.plan = plan;
            world.set_up();
            world
        })
    }

    /// Plays on, and lets `doctor` falsify the world before each event. Returns the holder and its
    /// rival if two held the lock.
    fn rivals(world: &mut World, doctor: fn(&mut World)) -> Option<(usize, usize)> {
        while world.violation.is_none() {
            let (at, event) = world.queue.pop()?;
            world.now = at;
            doctor(world);
            if !world.happens(event) {
                return None;
            }
        }
        match world.violation {
            Some(Violation::TwoHolders { holder, rival, .. }) => Some((holder, rival)),
            _ => None,
        }
    }

    fn free_all(world: &mut World) {
        world.keys_may_be_gone = true;
        for node in 0..world.plan.nodes {
            world.nodes[node].observe(&[b"DEL", KEY], world.now);
        }
    }

    #[test]
    fn members_and_jobs_exclude_each_other_and_a_violation_is_found() {
        let mut beside = [0; 3];
        for mut world in worlds() {
            let jobs = world.jobs.len();
            if let Some((holder, rival)) = rivals(&mut world, free_all) {
                beside[usize::from(holder >= jobs) + usize::from(rival >= jobs)] += 1;
            }
        }
        assert!(beside.iter().all(|&count| count > 0), "{beside:?}");
        assert!(worlds().all(|mut world| rivals(&mut world, |_| {}).is_none()));
    }

    #[test]
    fn a_value_that_is_not_a_number_has_expired() {
        let mut world = worlds().next().unwrap();
        let member = Member { ahead: 0, ..world.plan.members[0] };
        world.now = 500 * MS;
        let mut is_over = |value: &[u8]| {
            world.nodes[0].observe(&[b"SET", KEY, value], world.now);
            world.is_over_for(&member, 0)
        };
        for value in [&b""[..], b"1", b"token", b"1700000000", b"1700000000.49"] {
            assert!(is_over(value), "{value:?}");
        }
        for value in [&b"1700000001"[..], b"1700000000.51", b"1700000001.0102"] {
            assert!(!is_over(value), "{value:?}");
        }
    }
}
