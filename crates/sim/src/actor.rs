//! The jobs of clients: holders, waiters, jobs that extend, cancel or never release, and holders
//! that write after a pause. The promises to callers are checked here, at the moment of each
//! outcome.

use std::time::Duration;

use redbolt::proto::{
    DetachedLock, Event as Told, Lease, LockRequest, LockState, LossCause, NodeState, Profile,
    RefusalReason, Wait,
    fence::{is_exclusive, is_shared},
};

use crate::coverage::{Edge, Phase};
use crate::history::{Does, Operation};
use crate::invariant::Violation;
use crate::notes::{Call, Marks, Running, Seen};
use crate::plan::{Job, KEYS, Kind, MAX_NODES, MS};
use crate::register::User;
use crate::world::World;
use crate::world::queue::{Event, Step, Time};
use crate::world::wire::NO_SLOT;

impl World {
    /// Schedules a job's first steps.
    pub(crate) fn begin(&mut self, at: usize, job: &Job) {
        if matches!(job.kind, Kind::Probe | Kind::Again) {
            return;
        }
        self.queue.push(job.at, Event::Act(at as u16, Step::Start));
        if let Kind::Cancel { after } = job.kind {
            self.queue.push(job.at + after, Event::Act(at as u16, Step::Cancel));
        }
    }

    pub(crate) fn act(&mut self, at: usize, step: Step) {
        let job = self.plan.jobs[at];
        let client = usize::from(match (step, job.hand_on) {
            (Step::Attach, Some(hand_on)) => hand_on.to,
            _ => job.client,
        });
        if !self.wait_for(client, Event::Act(at as u16, step)) {
            return;
        }
        self.story(|| format!("c{client} j{at} {step:?}"));
        match step {
            Step::Start if self.is_healed && job.kind != Kind::Probe => {}
            Step::Start => self.start(at, &job),
            Step::Look => self.look(at, &job),
            Step::Write => self.use_it(at, &job),
            Step::Extend => self.extend(at, &job),
            Step::ChangeMode => self.change_mode(at, &job),
            Step::Release | Step::Cancel => self.let_go(at, &job),
            Step::LetGo if job.kind != Kind::Probe => self.let_go(at, &job),
            Step::LetGo => {}
            Step::Last => self.read_last(at, &job),
            Step::Detach if self.is_healed => {}
            Step::Detach => self.detach(at, &job),
            Step::Attach => self.attach(at, client),
        }
    }

    pub(crate) fn call(&self, client: usize, bound: Time) -> Option<Call> {
        Some(Call { at: self.now, stalled: self.clients[client].stalled, bound })
    }

    /// Checks I6: a call returns in time, not counting the client's pauses.
    pub(crate) fn came_back(&mut self, at: usize, call: Option<Call>, name: &'static str) {
        let Some(call) = call else { return };
        let client = &self.clients[usize::from(self.plan.jobs[at].client)];
        let still = client.stalled - call.stalled;
        let bound = call.bound + call.bound / 50 + still + 2 * client.late() + 5 * MS;
        let took = self.now - call.at;
        if took > bound {
            self.violated(Violation::Late { job: at, call: name, by_us: (took - bound) / 1_000 });
        }
    }

    fn start(&mut self, at: usize, job: &Job) {
        let client = usize::from(job.client);
        let mut keys = (0..KEYS.len()).filter(|key| job.keys >> key & 1 == 1);
        let first = keys.next().unwrap_or_default();
        let mut request = LockRequest::new(KEYS[first]).ttl(Duration::from_millis(job.ttl_ms));
        for key in keys {
            request = request.and(KEYS[key]);
        }
        let patient = job.patience > 0;
        let wait = if patient { Wait::UpTo(Duration::from_nanos(job.patience)) } else { Wait::No };
        let now = self.clocks(client);
        self.note(0x100 + at as u64);
        let request = if job.fenced { request.fenced() } else { request };
        let request = request.format(job.profile);
        let request = if job.shared { request.shared() } else { request };
        let request = if job.permits > 0 { request.permits(job.permits) } else { request };
        let asked = self.clients[client].core.acquire(&request.wait(wait), now);
        let Ok(id) = asked else {
            return self.violated(Violation::Outcome { job: at, what: "a request error" });
        };
        let settings = self.clients[client].core.config().settings();
        let round = settings.connect_timeout.max(settings.response_timeout).as_nanos() as Time;
        // A fenced acquisition may need a second round with a corrected clock, and a write-back.
        let rounds = if job.fenced { 3 } else { 1 };
        // Nodes that gave different slots are asked again, once.
        let rounds = if job.permits > 0 { 2 * rounds } else { rounds };
        let bound = if patient { job.patience } else { rounds * round };
        let (call, now_at) = (self.call(client, bound), self.now);
        // A job that is started again has a new lock, and no ticket yet.
        self.tickets.retain(|ticket| ticket.job != at);
        let running = &mut self.jobs[at];
        running.id = Some(id);
        running.turn_at = now_at;
        running.acquire = call;
        self.settle(client);
        self.reached(client, Phase::Asked);
    }

    /// Checks the holder's lease and, if it is valid, schedules the write.
    pub(crate) fn look(&mut self, at: usize, job: &Job) {
        if self.remaining(at).is_zero() {
            return;
        }
        self.is_backed(at, self.remaining(at));
        self.a_quorum_keeps(at, job);
        let gap = 20_000 + 10_000 * at as Time;
        self.queue.push(self.now + gap, Event::Act(at as u16, Step::Write));
    }

    /// Checks the lease again just before it ends.
    fn read_last(&mut self, at: usize, job: &Job) {
        let left = self.remaining(at);
        self.jobs[at].looks = false;
        if left.is_zero() {
            return;
        }
        if self.is_at_the_end(left) {
            self.a_quorum_keeps(at, job);
            self.is_alone(at);
        } else {
            self.read_later(at, left);
        }
    }

    pub(crate) fn read_later(&mut self, at: usize, left: Duration) {
        if !std::mem::replace(&mut self.jobs[at].looks, true) {
            self.inspect_at_the_end(at, left);
        }
    }

    pub(crate) fn lease(&self, at: usize) -> Option<Lease> {
        let (client, job) = (&self.clients[usize::from(self.plan.jobs[at].client)], &self.jobs[at]);
        let known = job.id.and_then(|id| client.core.lease(id));
        known.or_else(|| job.detached.as_ref().map(DetachedLock::lease)).copied()
    }

    pub(crate) fn remaining(&self, at: usize) -> Duration {
        let client = &self.clients[usize::from(self.plan.jobs[at].client)];
        self.lease(at).map_or(Duration::ZERO, |lease| lease.remaining(client.clocks(self.now)))
    }

    fn use_it(&mut self, at: usize, job: &Job) {
        let Running { granted: Some(granted), wrote_since, attempt, token, .. } = self.jobs[at]
        else {
            return;
        };
        let granted = wrote_since.unwrap_or(granted);
        let begun = self.attempts[attempt].begun;
        self.note(0x110 + at as u64);
        for key in (0..KEYS.len()).filter(|key| job.keys >> key & 1 == 1) {
            let user = User { job: at as u16, token, granted, begun };
            let register = &mut self.registers[lane(key, self.jobs[at].slot)];
            let used = if job.shared { register.read(user) } else { register.write(user) };
            if let Err(token) = used {
                self.violated(Violation::StaleWrite { key, job: at, token });
            }
        }
    }

    fn extend(&mut self, at: usize, job: &Job) {
        let (client, running) = (usize::from(job.client), &mut self.jobs[at]);
        let Some(id) = running.id.filter(|_| running.is_held && running.extend.is_none()) else {
            return;
        };
        if running.change.is_some() {
            return self.extend_later(at, job.ttl_ms * MS / 6);
        }
        // Each extension has another TTL, which identifies the reply to it. Some are shorter than
        // the time that the lock has left. The first one of a job that changes its mode is much
        // longer than the job's TTL: the lease of a writer that was a reader must not include it.
        running.extensions += 1;
        let longer = job.ttl_ms + running.extensions;
        let ttl = match running.extensions {
            1 if job.changes[0] > 0 => 2 * longer,
            extensions if extensions % 3 == 2 => longer / 2,
            _ => longer,
        };
        running.extend_ttl = ttl.min(self.plan.setup.max_ttl_ms);
        let ttl = Duration::from_millis(running.extend_ttl);
        let now = self.clocks(client);
        self.note(0x120 + at as u64);
        if self.clients[client].core.extend(id, ttl, now).is_ok() {
            let bound = self.clients[client].core.config().settings().response_timeout;
            self.jobs[at].extend = self.call(client, bound.as_nanos() as Time);
            self.coverage.edge(Edge::HeldExtending);
        }
        self.settle(client);
        self.reached(client, Phase::Extending);
    }

    fn let_go(&mut self, at: usize, job: &Job) {
        let client = usize::from(job.client);
        let Some(id) = self.jobs[at].id.filter(|_| self.jobs[at].released.is_none()) else {
            return;
        };
        let was = self.clients[client].core.state(id);
        let is_held = matches!(was, LockState::Held | LockState::Extending);
        self.jobs[at].change = None;
        self.jobs[at].released = Some(self.marks(client));
        if is_held {
            let extending = self.jobs[at].extend.take().is_some();
            self.coverage.edge(if extending {
                Edge::ExtendingReleasing
            } else {
                Edge::HeldReleasing
            });
            let bound = self.clients[client].core.config().settings().response_timeout;
            self.jobs[at].release = self.call(client, bound.as_nanos() as Time);
        } else if matches!(was, LockState::Lost(_)) {
            self.coverage.edge(Edge::LostLetGo);
        }
        let now = self.clocks(client);
        self.note(0x130 + at as u64);
        self.core(client).release(id, now);
        self.settle(client);
        self.reached(client, Phase::Releasing);
        let next = self.plan.jobs.get(at + 1);
        if next.is_some_and(|next| next.kind == Kind::Again && next.client == job.client) {
            self.queue.push(self.now + AT_ONCE, Event::Act(at as u16 + 1, Step::Start));
        }
    }

    /// Detaches the lock as text. The keys stay, and the lease runs on.
    fn detach(&mut self, at: usize, job: &Job) {
        let client = usize::from(job.client);
        let Some(id) = self.jobs[at].id.filter(|_| self.jobs[at].is_held) else { return };
        let Some(hand_on) = job.hand_on.filter(|_| self.jobs[at].released.is_none()) else {
            return;
        };
        let now = self.clocks(client);
        self.note(0x140 + at as u64);
        let Some(detached) = self.core(client).detach(id, now) else { return };
        let text = detached.to_text();
        let running = &mut self.jobs[at];
        (running.id, running.was_detached) = (None, true);
        (running.extend, running.change, running.extend_ttl) = (None, None, 0);
        running.detached = text.parse().ok();
        self.coverage.edge(Edge::HeldDetached);
        self.settle(client);
        self.queue.push(self.now + hand_on.gap, Event::Act(at as u16, Step::Attach));
    }

    /// Attaches the lock to another client, with the same lease and token.
    fn attach(&mut self, at: usize, client: usize) {
        let Some(detached) = self.jobs[at].detached.take() else {
            return self.violated(Violation::Outcome {
                job: at,
                what: "that the detached lock is malformed",
            });
        };
        let now = self.clocks(client);
        self.note(0x150 + at as u64);
        let Ok(id) = self.core(client).attach(&detached, now) else {
            return self.violated(Violation::Outcome {
                job: at,
                what: "that the detached lock is of other nodes",
            });
        };
        self.plan.jobs[at].client = client as u8;
        self.jobs[at].id = Some(id);
        let core = &self.clients[client].core;
        let is_held = core.lease(id).is_some();
        let has_changed = core.lease(id).is_some_and(|lease| lease != detached.lease())
            || core.fencing_token(id) != detached.fencing_token().filter(|_| is_held);
        if has_changed {
            self.violated(Violation::Outcome {
                job: at,
                what: "another lease or token than the detached lock had",
            });
        }
        self.coverage.edge(if is_held { Edge::DetachedHeld } else { Edge::DetachedLost });
        self.settle(client);
        if is_held {
            self.is_alone(at);
            let job = self.plan.jobs[at];
            self.look(at, &job);
            self.work_on(at, &job);
        }
        if self.is_healed {
            self.queue.push(self.now, Event::Act(at as u16, Step::LetGo));
        }
    }

    /// Schedules the steps that fell due while the lock was detached.
    fn work_on(&mut self, at: usize, job: &Job) {
        let until = self.jobs[at].granted.unwrap_or(self.now) + job.work;
        let until = until.max(self.now + AT_ONCE);
        match job.kind {
            Kind::Forget => {}
            Kind::Fade => self.queue.push(until, Event::Act(at as u16, Step::Extend)),
            _ => self.queue.push(until, Event::Act(at as u16, Step::Release)),
        }
        if job.kind == Kind::AutoExtend {
            self.extend_later(at, job.ttl_ms * MS / 3);
        }
    }

    fn marks(&self, client: usize) -> Marks {
        let it = &self.clients[client];
        let offset = |slot: usize| {
            let wire = it.wires[slot]? as usize;
            let unsent = it.core.transmit(self.link(slot)).len();
            Some((wire, self.wires[wire].up.bytes.len() + unsent))
        };
        Marks { wires: self.sockets_used(), offsets: std::array::from_fn(offset) }
    }

    /// Records when an acquisition begins or ends a pause or a write-back.
    pub(crate) fn notice(&mut self, client: usize) {
        for at in 0..self.jobs.len() {
            let (plan, job) = (&self.plan.jobs[at], &self.jobs[at]);
            let may_change = plan.patience > 0 || plan.fenced;
            if usize::from(plan.client) != client || !may_change || job.acquire.is_none() {
                continue;
            }
            let Some(id) = job.id else { continue };
            let seen = match self.clients[client].core.state(id) {
                LockState::Asked => Seen::Asking,
                LockState::Fencing => Seen::Fencing,
                LockState::Pausing => Seen::Pausing,
                LockState::Queued => Seen::Queued,
                _ => continue,
            };
            self.note_place(at);
            let before = std::mem::replace(&mut self.jobs[at].seen, seen);
            match (before, seen) {
                (Seen::Queued, Seen::Asking | Seen::Pausing) => {
                    self.jobs[at].turn_at = self.now;
                    self.coverage.edge(Edge::QueuedAsking);
                }
                (Seen::Asking, Seen::Fencing) => {
                    self.coverage.edge(Edge::AskingFencing);
                    self.reached(client, Phase::Partly);
                }
                (Seen::Asking, Seen::Pausing) => self.coverage.edge(Edge::AskingPausing),
                (Seen::Fencing, Seen::Pausing) => self.coverage.edge(Edge::FencingPausing),
                (Seen::Pausing, Seen::Asking) => {
                    self.coverage.edge(Edge::PausingAsking);
                    self.is_patient(at);
                }
                _ => {}
            }
            if seen == Seen::Pausing && before != seen {
                self.jobs[at].paused_at = self.now;
                self.reached(client, Phase::Waiting);
            }
        }
    }

    /// Checks that a waiter does not retry at once many times in a row.
    fn is_patient(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        let is_hasty = self.now - job.paused_at < 50_000;
        job.hasty = if is_hasty { job.hasty + 1 } else { 0 };
        if job.hasty > MAX_HASTY {
            self.violated(Violation::Hasty { job: at });
        }
    }

    // The outcomes that callers get.

    pub(crate) fn reported(&mut self, client: usize, event: Told) {
        self.story(|| format!("c{client} is told {event:?}"));
        if self.is_sampled {
            let text = format!("{event:?}");
            self.shows_no_secret("an event", &text);
        }
        let (id, number) = match event {
            Told::Granted(id) => (id, 1),
            Told::Refused(id, _) => (id, 2),
            Told::Lost(id, _) => (id, 3),
            Told::Extended(id) => (id, 4),
            Told::NotExtended(id, _) => (id, 5),
            Told::Released(id, _) => (id, 6),
            Told::Shortened(id) => (id, 7),
            Told::Upgraded(id) => (id, 8),
            Told::NotUpgraded(id, _) => (id, 9),
            Told::Downgraded(id) => (id, 10),
            Told::DowngradeDelayed(id, _) => (id, 11),
            Told::Node(node, NodeState::Down(cause)) => {
                self.words_are_safe(client, node, cause);
                return self.note(0x200);
            }
            _ => return self.note(0x200),
        };
        let is_its = |(plan, job): (&Job, &Running)| {
            usize::from(plan.client) == client && job.id == Some(id)
        };
        let at = self.plan.jobs.iter().zip(&self.jobs).position(is_its);
        let Some(at) = at else {
            return self.violated(Violation::Outcome {
                job: usize::MAX,
                what: "an outcome of an unknown lock",
            });
        };
        self.note(0x200 + (number << 4) + at as u64);
        match event {
            Told::Granted(_) => self.granted(at),
            Told::Refused(_, refusal) => {
                self.denials_were_reported(at, &refusal.votes);
                self.refusal_is_safe(client, &refusal.votes);
                self.refused_with(at, refusal.reason);
            }
            Told::Lost(_, cause) => self.lost(at, cause),
            Told::Extended(_) => self.extended(at),
            Told::NotExtended(..) => self.not_extended(at),
            Told::Released(_, confirmed) => self.was_released(at, confirmed.nodes as usize),
            Told::Shortened(_) => self.shortened(at),
            Told::Upgraded(_) => self.upgraded(at),
            Told::NotUpgraded(_, refusal) => {
                self.denials_were_reported(at, &refusal.votes);
                self.refusal_is_safe(client, &refusal.votes);
                self.not_upgraded(at);
            }
            Told::Downgraded(_) => self.downgraded(at),
            Told::DowngradeDelayed(_, refusal) => {
                self.refusal_is_safe(client, &refusal.votes);
                self.downgrade_delayed(at);
            }
            _ => {}
        }
    }

    fn granted(&mut self, at: usize) {
        let job = self.plan.jobs[at];
        let client = usize::from(job.client);
        let call = self.jobs[at].acquire.take();
        if call.is_none() || self.jobs[at].was_granted() {
            return self
                .violated(Violation::Outcome { job: at, what: "a grant without a request" });
        }
        self.came_back(at, call, "acquire");
        self.tally.grants += 1;
        let was_fencing = self.jobs[at].seen == Seen::Fencing;
        self.coverage.edge(if was_fencing { Edge::FencingHeld } else { Edge::AskingHeld });
        let Some(attempt) = self.attempt_granted(at) else { return };
        let running = &mut self.jobs[at];
        running.granted = Some(self.now);
        running.attempt = attempt;
        running.is_held = true;
        let slot = running.id.and_then(|id| self.clients[client].core.slot(id));
        running.slot = slot;
        self.has_slot(at, &job);
        self.holder_changed(at);
        self.is_in_turn(at, call.map_or(self.now, |call| call.at));
        self.passes_nobody(at, call.map_or(self.now, |call| call.at));
        self.leaves_turns(at);
        self.has_token(at, &job);
        self.token_grows(at, &job);
        self.is_alone(at);
        self.limits_are_shared(at);
        self.note_validity(at);
        self.jobs[at].held_since = self.clocks(client);
        self.jobs[at].lease = self.lease(at);
        self.read_later(at, self.remaining(at));
        let called = call.map_or(self.now, |call| call.at);
        let (token, slot) = (self.jobs[at].token.unwrap_or(0), self.jobs[at].slot);
        let does = Does::Lock { token, shared: job.shared, slot };
        let operation = Operation { called, returned: self.now, owner: at as u16, does };
        self.record(at, operation);
        self.look(at, &job);
        self.go_on(at, &job);
        self.reached(client, Phase::Granted);
    }

    /// Schedules the steps of a new holder.
    fn go_on(&mut self, at: usize, job: &Job) {
        let name = at as u16;
        self.queue.push(self.now + job.work / 2, Event::Act(name, Step::Look));
        if job.kind == Kind::Fade {
            self.queue.push(self.now + job.work, Event::Act(name, Step::Extend));
        } else if job.kind != Kind::Forget {
            self.queue.push(self.now + job.work, Event::Act(name, Step::Release));
        }
        if job.kind == Kind::AutoExtend {
            self.extend_later(at, job.ttl_ms * MS / 3);
        }
        // In every other job that changes its mode, extend before the change.
        if job.changes[0] % 2 == 1 {
            self.queue.push(self.now + job.changes[0] / 2, Event::Act(name, Step::Extend));
        }
        for after in job.changes.into_iter().filter(|&after| after > 0) {
            self.queue.push(self.now + after, Event::Act(name, Step::ChangeMode));
        }
        if let Some(hand_on) = job.hand_on {
            self.queue.push(self.now + hand_on.after, Event::Act(name, Step::Detach));
        }
    }

    fn extend_later(&mut self, at: usize, span: Time) {
        let until = self.jobs[at].granted.unwrap_or(self.now) + self.plan.jobs[at].work;
        if self.now + span < until {
            self.queue.push(self.now + span, Event::Act(at as u16, Step::Extend));
        }
    }

    /// Checks I4 and I10: every counted grant was a reply to the attempt, and the reply that
    /// completed the quorum, or the proof behind it, was read just now.
    fn attempt_granted(&mut self, at: usize) -> Option<usize> {
        let (number, decided) = self.reported_of_last_attempt(at)?;
        // A fenced lock is decided by its write-back.
        if decided < self.now && self.jobs[at].seen != Seen::Fencing {
            let by_us = (self.now - decided) / 1_000;
            self.violated(Violation::Stalled { job: at, by_us });
        }
        Some(number)
    }

    /// Checks the same for a second claim, which is decided by its write-back too.
    pub(crate) fn second_granted(&mut self, at: usize) -> Option<usize> {
        self.reported_of_last_attempt(at).map(|(number, _)| number)
    }

    /// Returns the last attempt, and when its quorum was complete.
    fn reported_of_last_attempt(&mut self, at: usize) -> Option<(usize, Time)> {
        let client = usize::from(self.plan.jobs[at].client);
        let votes = self.jobs[at].id.map(|id| self.clients[client].core.votes(id))?;
        // Each client numbers its attempts separately.
        let by = client as u8;
        let own = self.attempts.iter().enumerate();
        let own = own.filter(|(_, it)| usize::from(it.job) == at && it.client == by);
        let last = own.max_by_key(|(_, attempt)| attempt.serial);
        let replied = |node: redbolt::proto::NodeId| last.and_then(|it| it.1.granted[node.index()]);
        let unsaid = votes.grants().iter().find(|&node| replied(node).is_none());
        let few = votes.grants().len() < self.plan.quorum();
        let (Some((number, _)), None, false) = (last, unsaid, few) else {
            let node = unsaid.map_or(0, redbolt::proto::NodeId::index);
            self.violated(Violation::Miscredited { job: at, what: "a grant", node });
            return None;
        };
        let mut read = [Time::MAX; MAX_NODES];
        for node in votes.grants().iter() {
            read[node.index()] = replied(node).unwrap_or(Time::MAX);
        }
        read.sort_unstable();
        Some((number, read[self.plan.quorum() - 1]))
    }

    /// Checks I4: a quorum's counters equal the token, and the token fits the mode of the lock.
    /// Redisson's tokens have no modes.
    pub(crate) fn has_token(&mut self, at: usize, job: &Job) {
        let core = &self.clients[usize::from(job.client)].core;
        let token = self.jobs[at].id.and_then(|id| core.fencing_token(id)).map(|token| token.get());
        self.jobs[at].token = token;
        let counters = self.attempts[self.jobs[at].attempt].counters;
        let replied = counters.iter().filter(|&&counter| Some(counter) == token).count();
        let of_mode = if job.shared { is_shared } else { is_exclusive };
        let is_own = job.profile == Profile::PLAIN;
        let is_wrong = token.is_some_and(|token| is_own && !of_mode(token));
        if is_wrong || token.is_some() != job.fenced || (job.fenced && replied < self.plan.quorum())
        {
            self.violated(Violation::Miscredited { job: at, what: "a fencing token", node: 0 });
        }
    }

    /// Checks I2: the token is larger than every token returned before this lock's first node
    /// granted. Holders that share may have the same one.
    pub(crate) fn token_grows(&mut self, at: usize, job: &Job) {
        let Some(token) = self.jobs[at].token else { return };
        self.tally.fenced += 1;
        let begun = self.attempts[self.jobs[at].attempt].begun;
        for key in (0..KEYS.len()).filter(|key| job.keys >> key & 1 == 1) {
            let lane = lane(key, self.jobs[at].slot);
            let clash = self.tokens[lane].iter().find(|&&(reported, earlier)| {
                earlier == token && !job.shared || (reported < begun && earlier > token)
            });
            if let Some(&(_, earlier)) = clash {
                self.violated(Violation::TokenOrder { key, earlier, later: token });
            }
            self.tokens[lane].push((self.now, token));
        }
    }

    /// Checks I1: no other job and no member validly holds any of its resources.
    pub(crate) fn is_alone(&mut self, at: usize) {
        if self.remaining(at).is_zero() {
            return;
        }
        self.no_member_is_beside(at);
        for other in 0..self.jobs.len() {
            let shared = self.plan.jobs[at].keys & self.plan.jobs[other].keys;
            let both_share = self.plan.jobs[at].shared && self.plan.jobs[other].shared;
            let slots = (self.jobs[at].slot, self.jobs[other].slot);
            let are_apart = matches!(slots, (Some(one), Some(two)) if one != two);
            let may_be_beside = both_share || are_apart;
            let is_rival = other != at && shared != 0 && !may_be_beside && self.jobs[other].is_held;
            if is_rival && !self.remaining(other).is_zero() {
                let key = shared.trailing_zeros() as usize;
                self.violated(Violation::TwoHolders { key, holder: other, rival: at });
            }
        }
    }

    /// Checks I1: there are no more valid permits than the largest number that a job wants, and the
    /// slot is one that this job wants.
    fn has_slot(&mut self, at: usize, job: &Job) {
        let slot = self.jobs[at].slot;
        let is_its = slot.map_or(job.permits == 0, |slot| slot < job.permits);
        let nodes = self.jobs[at]
            .id
            .map(|id| self.clients[usize::from(job.client)].core.votes(id).grants());
        let attempt = &self.attempts[self.jobs[at].attempt];
        let replied = slot.unwrap_or(NO_SLOT);
        let mut grants = nodes.into_iter().flat_map(redbolt::proto::NodeSet::iter);
        let other = grants.find(|node| attempt.slots[node.index()] != replied);
        if !is_its || other.is_some() {
            let node = other.map_or(0, redbolt::proto::NodeId::index);
            return self.violated(Violation::Miscredited { job: at, what: "a slot", node });
        }
        let is_valid = |other: &usize| {
            let both = self.plan.jobs[*other].keys & job.keys != 0;
            let is_held = self.jobs[*other].is_held && !self.remaining(*other).is_zero();
            both && self.jobs[*other].slot.is_some() && is_held
        };
        let held = (0..self.jobs.len()).filter(is_valid).count();
        let most = self.plan.jobs.iter().map(|job| job.permits).max().unwrap_or(0);
        if job.permits > 0 && held > usize::from(most) {
            let key = job.keys.trailing_zeros() as usize;
            self.violated(Violation::TwoHolders { key, holder: at, rival: at });
        }
    }

    /// Checks I1 on the nodes: a quorum keeps the key of a valid lock.
    pub(crate) fn a_quorum_keeps(&mut self, at: usize, job: &Job) {
        if self.keys_may_be_gone {
            return;
        }
        let tag = self.attempts[self.jobs[at].attempt].tag;
        for key in (0..KEYS.len()).filter(|key| job.keys >> key & 1 == 1) {
            let now = self.now;
            let nodes = self.nodes[..self.plan.nodes].iter_mut();
            let slot = self.jobs[at].slot;
            let keep = nodes.map(|node| match slot {
                Some(slot) => node.has_permit(KEYS[key], slot, tag, now),
                None => node.owners(KEYS[key], now).contains(&tag),
            });
            let nodes = keep.filter(|&keeps| keeps).count();
            if nodes < self.plan.quorum() {
                self.violated(Violation::NoQuorumBehind { key, job: at, nodes });
            }
        }
    }

    /// Records the end of the lease, for the history.
    pub(crate) fn note_validity(&mut self, at: usize) {
        let left = self.remaining(at).as_nanos() as Time;
        // The client's clock may be up to 1 % fast.
        self.jobs[at].valid_until = self.now + left - left / 50;
    }

    /// Rechecks leases after a client's wall clock was set: they may have ended, or look valid
    /// again.
    pub(crate) fn wall_stepped(&mut self, client: usize) {
        for at in 0..self.jobs.len() {
            if usize::from(self.plan.jobs[at].client) == client && self.jobs[at].is_held {
                self.is_alone(at);
                let before = self.jobs[at].valid_until;
                self.note_validity(at);
                self.jobs[at].valid_until = self.jobs[at].valid_until.min(before);
            }
        }
    }

    fn extended(&mut self, at: usize) {
        let job = self.plan.jobs[at];
        let call = self.jobs[at].extend.take();
        if call.is_none() || !self.jobs[at].is_held {
            return self
                .violated(Violation::Outcome { job: at, what: "an extension without a call" });
        }
        self.came_back(at, call, "extend");
        self.coverage.edge(Edge::ExtendingExtended);
        let client = usize::from(job.client);
        let Some(id) = self.jobs[at].id else { return };
        let votes = self.clients[client].core.votes(id);
        let (ttl, left) = (self.jobs[at].extend_ttl, self.remaining(at));
        self.extension_is_earned(at, &votes, ttl);
        self.is_no_revival(at, self.jobs[at].lease);
        self.is_within_hold(at, self.jobs[at].held_since, left);
        self.jobs[at].lease = self.lease(at);
        self.read_later(at, left);
        self.is_alone(at);
        self.is_backed(at, left);
        self.note_validity(at);
        if !self.remaining(at).is_zero() {
            self.a_quorum_keeps(at, &job);
        }
        if job.kind == Kind::AutoExtend {
            self.extend_later(at, job.ttl_ms * MS / 3);
        }
    }

    fn shortened(&mut self, at: usize) {
        if !self.jobs[at].is_held {
            return self.violated(Violation::Outcome {
                job: at,
                what: "a shorter lease without holding the lock",
            });
        }
        let left = self.remaining(at);
        self.is_backed(at, left);
        self.jobs[at].lease = self.lease(at);
        self.note_validity(at);
    }

    fn not_extended(&mut self, at: usize) {
        let call = self.jobs[at].extend.take();
        self.came_back(at, call, "extend");
        self.coverage.edge(Edge::ExtendingRefused);
        if self.plan.jobs[at].kind == Kind::AutoExtend {
            self.extend_later(at, self.plan.jobs[at].ttl_ms * MS / 6);
        }
    }

    fn lost(&mut self, at: usize, cause: LossCause) {
        if !self.jobs[at].is_held {
            return self
                .violated(Violation::Outcome { job: at, what: "a loss without holding the lock" });
        }
        self.tally.losses += 1;
        if let Some(id) = self.jobs[at].id.filter(|_| cause == LossCause::Gone) {
            let client = usize::from(self.plan.jobs[at].client);
            let gone = self.clients[client].core.votes(id).denies();
            self.is_gone_for_sure(at, gone);
        }
        let extending = self.jobs[at].extend.take().is_some();
        self.coverage.edge(match (cause, extending) {
            (LossCause::Gone, _) => Edge::LostGone,
            (_, true) => Edge::ExtendingLost,
            (_, false) => Edge::HeldLost,
        });
        (self.jobs[at].release, self.jobs[at].change) = (None, None);
        let ended = self.jobs[at].valid_until.min(self.now);
        let ended = if cause == LossCause::Gone { self.now } else { ended };
        self.no_longer_held(at, ended);
        if self.plan.jobs[at].kind != Kind::Forget {
            self.queue.push(self.now + MS, Event::Act(at as u16, Step::Release));
        }
    }

    fn was_released(&mut self, at: usize, confirmed: usize) {
        let call = self.jobs[at].release.take();
        if call.is_none() || !self.jobs[at].is_held {
            return self.violated(Violation::Outcome { job: at, what: "a release without a call" });
        }
        self.came_back(at, call, "release");
        self.coverage.edge(Edge::ReleasingReleased);
        let undone = self.attempts[self.jobs[at].attempt].undone;
        if undone.iter().filter(|&&undone| undone).count() < confirmed {
            self.violated(Violation::Miscredited { job: at, what: "a release", node: 0 });
        }
        self.no_longer_held(at, call.map_or(self.now, |call| call.at));
    }

    fn refused_with(&mut self, at: usize, reason: RefusalReason) {
        let call = self.jobs[at].acquire.take();
        if call.is_none() {
            return self
                .violated(Violation::Outcome { job: at, what: "a refusal without a request" });
        }
        self.came_back(at, call, "acquire");
        self.tally.refusals += 1;
        self.coverage.edge(match (reason, self.jobs[at].seen) {
            (RefusalReason::Cancelled, Seen::Pausing) => Edge::PausingCancelled,
            (RefusalReason::Cancelled, Seen::Queued) => Edge::QueuedCancelled,
            (RefusalReason::OutOfTime, Seen::Queued) => Edge::QueuedOutOfTime,
            (RefusalReason::Cancelled, _) => Edge::AskingCancelled,
            (RefusalReason::OutOfTime, Seen::Pausing) => Edge::PausingOutOfTime,
            (_, Seen::Fencing) => Edge::FencingRefused,
            _ => Edge::AskingRefused,
        });
        self.end(at);
        // The core retries a misconfigured node only after its backoff.
        if self.plan.jobs[at].kind == Kind::Probe && self.probe_again(at) {
            self.jobs[at] = Running::default();
        }
    }

    fn no_longer_held(&mut self, at: usize, since: Time) {
        self.jobs[at].is_held = false;
        self.holder_changed(at);
        let owner = at as u16;
        let unlock = Operation { called: since, returned: self.now, owner, does: Does::Unlock };
        self.record(at, unlock);
        self.end(at);
    }

    fn end(&mut self, at: usize) {
        self.jobs[at].ends += 1;
        if self.jobs[at].ends > 1 {
            self.violated(Violation::Outcome { job: at, what: "its final outcome twice" });
        }
    }
}

/// Returns the lane in which the tokens of a lock on this resource are compared.
fn lane(key: usize, slot: Option<u16>) -> usize {
    key + KEYS.len() * slot.map_or(0, |slot| 1 + usize::from(slot))
}

/// The time from a release to the next request of a job that acquires again.
const AT_ONCE: Time = 20_000;

/// A random pause is short now and then, but not this many times in a row.
const MAX_HASTY: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::plan::Plan;

    /// Returns a world in which the first job has just been granted the lock.
    fn held() -> (World, usize) {
        for seed in 0..100 {
            let mut world = World::new();
            world.plan = Plan::draw(Class::Safe, seed);
            world.plan.faults.clear();
            world.set_up();
            while let Some((at, event)) = world.queue.pop() {
                world.now = at;
                if !world.happens(event) {
                    break;
                }
                let keeps = |at: usize, job: &Running| {
                    job.is_held && world.plan.jobs[at].kind == Kind::AutoExtend
                };
                if let Some(at) = (0..world.jobs.len()).find(|&at| keeps(at, &world.jobs[at])) {
                    return (world, at);
                }
            }
        }
        panic!("no job was granted a lock and extended it");
    }

    #[test]
    fn a_call_that_comes_back_late_is_found() {
        let (mut world, at) = held();
        world.now += 1_000 * MS;
        let (now, stalled) = (world.now, 0);
        let call = |bound| Some(Call { at: now - now / 2, stalled, bound });
        world.came_back(at, call(now), "acquire");
        assert_eq!(world.violation, None);
        world.came_back(at, call(0), "acquire");
        assert_eq!(world.violation.map(|it| it.name()), Some("I6 late"));
    }

    #[test]
    fn an_extension_behind_a_release_is_found() {
        let (mut world, at) = held();
        world.jobs[at].released = Some(Marks { wires: 0, offsets: [None; MAX_NODES] });
        let job = world.plan.jobs[at];
        world.extend(at, &job);
        while world.violation.is_none() {
            let (at, event) = world.queue.pop().expect("the violation comes before the end");
            world.now = at;
            assert!(world.happens(event), "the violation comes before the end");
        }
        assert_eq!(world.violation.map(|it| it.name()), Some("I8 extended-after-release"));
    }
}
