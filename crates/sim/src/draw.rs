//! Draws a schedule from a seed: everything except the members of other libraries.

use redbolt::proto::{Profile, WakeStrategy};
use redbolt_testkit::Random;

use crate::fault::{What, guided, swarm};
use crate::patience::longest_sleep;
use crate::plan::{
    ANSWER_MS, Class, ClientPlan, HandOn, Job, Kind, MAX_NODES, MAX_PERMITS, MS, Member, NATIVES,
    Net, Plan, Setup, Start, US,
};
use crate::world::node::EPOCH_US;
use crate::world::queue::Time;

impl Plan {
    /// Draws the schedule of a seed.
    #[must_use]
    pub fn draw(class: Class, seed: u64) -> Self {
        let mut plan = Self::empty(class);
        plan.redraw(class, seed);
        plan
    }

    /// Like [`draw`](Self::draw), reusing the memory of an old plan.
    pub(crate) fn redraw(&mut self, class: Class, seed: u64) {
        let mut random = Random::of(seed, class as u64);
        let draw = &mut random;
        self.class = class;
        self.seed = seed;
        self.nodes = match class {
            Class::Safe | Class::Shared | Class::Permits | Class::Profiles | Class::Waiting => {
                draw.pick(&SIZES)
            }
            _ => draw.pick(&[3, 3, 3, 5]),
        };
        self.keys = draw.pick(&[1, 1, 1, 2, 2, 3]);
        self.net = net(draw);
        self.clients.clear();
        self.jobs.clear();
        self.members.clear();
        self.faults.clear();
        let budget = clocks(draw, &mut self.node_clocks);
        let jobs = draw.pick(&[1, 2, 2, 2, 2, 3, 3, 4]);
        let least = if class.is_safe() { 1 } else { 2 };
        let jobs = match class {
            // Enough jobs that more than one permit is wanted at a time.
            Class::Permits => jobs + draw.pick(&[1, 2, 3]),
            _ => jobs.max(least),
        };
        for _ in 0..draw.pick(&[1, 2, 2, 2, 3]).clamp(least, jobs) {
            self.clients.push(client(draw, budget));
        }
        let span = self.draw_jobs(draw, jobs);
        self.draw_counters(draw);
        match class {
            Class::Safe | Class::Shared | Class::Permits | Class::Profiles => {
                swarm::draw(self, draw, span);
                guided::draw(self, draw, span);
                // A separate random stream keeps all other schedules unchanged.
                guided::draw_broken(self, &mut Random::of(seed, BROKEN));
                guided::draw_replicas(self, &mut Random::of(seed, REPLICAS));
            }
            Class::ClockStep => guided::draw_clock_step(self, draw),
            Class::MemoryLossUnguarded => guided::draw_memory_loss(self, draw),
            Class::Waiting => guided::draw_waiting(self, draw),
        }
        self.draw_wild_clocks(&mut Random::of(seed, WILD));
        self.draw_denials(&mut Random::of(seed, DENIED), span);
        self.draw_hand_ons(&mut Random::of(seed, HAND_ON));
        if class == Class::Shared {
            self.draw_sharers(&mut Random::of(seed, SHARED));
            self.draw_changes(&mut Random::of(seed, CHANGES));
        }
        if class == Class::Permits {
            self.draw_permits(&mut Random::of(seed, PERMITS));
            self.draw_changes_beside_permits(&mut Random::of(seed, MIXED));
        }
        if class == Class::Profiles {
            self.draw_profiles(&mut Random::of(seed, PROFILES));
            self.draw_late_profiles(&mut Random::of(seed, LATE_PROFILES));
            if seed != KEPT_ALONE {
                self.draw_members(&mut Random::of(seed, MEMBERS));
                self.draw_counters_of_redisson(&mut Random::of(seed, REDISSON));
            }
        }
        self.draw_queue(&mut Random::of(seed, QUEUE));
        self.draw_crowd(&mut Random::of(seed, CROWD));
        self.draw_stops(&mut Random::of(seed, STOPS));
        self.draw_far(&mut Random::of(seed, FAR));
        self.draw_natives(&mut Random::of(seed, NATIVE));
        self.longest_sleep = longest_sleep(self);
        let faults = self.faults.iter().map(|fault| fault.at + fault.span);
        let jobs = self.jobs.iter().map(Job::end);
        let members = self.members.iter().map(Member::end);
        let end = faults.chain(jobs).chain(members).max().unwrap_or(0);
        self.heal_at = end.min(MAX_SPAN) + 50 * MS;
    }

    /// Draws counters of nodes that have missed locks of one another, and clocks behind these
    /// counters: no quorum of counters is equal then, and the token has to be written back.
    fn draw_counters(&mut self, draw: &mut Random) {
        self.counters = [0; MAX_NODES];
        if self.jobs.iter().any(|job| job.fenced) && draw.chance(400) {
            let least = EPOCH_US + 9_000_000;
            self.counters = std::array::from_fn(|_| least + draw.below(3));
        }
    }

    /// Gives a minority of the nodes a wild clock, which matters for fencing tokens only. No
    /// client's clock is ever as far off.
    fn draw_wild_clocks(&mut self, draw: &mut Random) {
        self.wild = 0;
        if !self.class.is_safe() || !self.can_fence() || !draw.chance(300) {
            return;
        }
        let ahead =
            draw.pick(&[100, 900, 365 * 24 * 3_600_i64]) * if draw.chance(700) { 1 } else { -1 };
        for _ in self.quorum()..self.nodes {
            let node = draw.below(self.nodes as u64) as usize;
            if self.wild >> node & 1 == 0 {
                self.wild |= 1 << node;
                self.node_clocks[node].0 += ahead * 1_000_000;
            }
        }
    }

    /// Draws nodes that lack a command for a while.
    fn draw_denials(&mut self, draw: &mut Random, span: Time) {
        if self.class.is_safe() && draw.chance(80) {
            for _ in 0..draw.between(1, 2) {
                let denied = swarm::fault(self, draw, What::Denied, span);
                self.faults.push(denied);
            }
        }
    }

    /// Draws locks that leave their process while they are held. A detached lock is for processes
    /// of the same machine: if clients have separate clocks, a lock returns to its first client.
    fn draw_hand_ons(&mut self, draw: &mut Random) {
        if !self.class.is_safe() || !draw.chance(100) {
            return;
        }
        let splits = |what: What| {
            matches!(
                what,
                What::Freeze | What::StepWall { .. } | What::Skew { .. } | What::OtherLimits
            )
        };
        let is_one = !self.faults.iter().any(|fault| splits(fault.what));
        if is_one {
            let ClientPlan { ppm, wall_ahead, .. } = self.clients[0];
            for client in &mut self.clients {
                (client.ppm, client.wall_ahead) = (ppm, wall_ahead);
            }
        }
        let clients = self.clients.len() as u64;
        for job in self.jobs.iter_mut().filter(|job| job.kind.works()) {
            let [after, gap] = [(); 2].map(|()| draw.below(job.work / 2 + 1));
            let to = if is_one { draw.below(clients) as u8 } else { job.client };
            if draw.chance(700) {
                job.hand_on = Some(HandOn { after, gap, to });
            }
        }
    }

    /// Draws jobs that share. Only one resource can be shared.
    fn draw_sharers(&mut self, draw: &mut Random) {
        let most = draw.pick(&[400, 600, 800]);
        for job in &mut self.jobs {
            if draw.chance(most) {
                job.shared = true;
                job.keys = 1 << job.keys.trailing_zeros();
            }
        }
    }

    /// Draws jobs that lock one resource as members of other libraries do, next to jobs that do
    /// not.
    fn draw_profiles(&mut self, draw: &mut Random) {
        let most = draw.pick(&[400, 700, 1_000]);
        for job in &mut self.jobs {
            if draw.chance(most) {
                job.profile = draw.pick(&FOREIGN);
                job.shared = job.profile == Profile::REDISSON_RW && draw.chance(600);
                job.fenced = false;
                job.keys = 1 << job.keys.trailing_zeros();
            }
        }
    }

    /// Draws jobs that are fenced by Redisson's counter. It is lost with a node's memory, so no
    /// node loses its memory, and the other profiles use separate counters, so none of their jobs
    /// is fenced.
    fn draw_counters_of_redisson(&mut self, draw: &mut Random) {
        if !self.can_fence() || !self.members.is_empty() || !draw.chance(400) {
            return;
        }
        self.faults.retain(|fault| !fault.what.loses_memory());
        for job in &mut self.jobs {
            if job.profile != Profile::PLAIN && draw.chance(800) {
                (job.profile, job.shared) = (Profile::REDISSON, false);
            }
            job.fenced = job.profile == Profile::REDISSON;
        }
    }

    /// Replaces profiles by ones that were added later, so that earlier schedules stay unchanged.
    fn draw_late_profiles(&mut self, draw: &mut Random) {
        let most = draw.pick(&[0, 150, 300]);
        for job in self.jobs.iter_mut().filter(|job| job.profile != Profile::PLAIN) {
            if draw.chance(most) {
                job.profile = draw.pick(&LATE);
                job.shared = job.profile == Profile::SYMFONY && draw.chance(600);
            }
        }
    }

    /// Draws jobs that want permits, of nearly the same number, and jobs that share. Both are for
    /// one resource.
    fn draw_permits(&mut self, draw: &mut Random) {
        let most = draw.pick(&[600, 800, 1_000]);
        let permits = draw.pick(&[1, 2, 2, 2, 3, 4]);
        for job in &mut self.jobs {
            let (wants, another, shares) = (draw.chance(most), draw.chance(100), draw.chance(300));
            if wants {
                let other = draw.between(1, MAX_PERMITS as u64) as u16;
                job.permits = if another { other } else { permits };
            }
            job.shared = !wants && shares;
            if wants || shares {
                job.keys = 1 << job.keys.trailing_zeros();
            }
        }
    }

    /// Draws jobs that change their mode while they hold the lock: once, or there and back.
    fn draw_changes(&mut self, draw: &mut Random) {
        if KEPT_FROM_BEFORE.contains(&self.seed) {
            return;
        }
        let most = draw.pick(&[200, 500, 800]);
        self.draw_changes_of(draw, most);
    }

    /// Draws changes of mode next to jobs that want permits of the same resource.
    fn draw_changes_beside_permits(&mut self, draw: &mut Random) {
        if draw.chance(400) && !KEPT_FROM_BEFORE.contains(&self.seed) {
            let most = draw.pick(&[300, 600, 1_000]);
            self.draw_changes_of(draw, most);
        }
    }

    fn draw_changes_of(&mut self, draw: &mut Random, most: u64) {
        let single = |job: &&mut Job| {
            job.keys.count_ones() == 1 && job.kind != Kind::Probe && job.permits == 0
        };
        for job in self.jobs.iter_mut().filter(single) {
            if draw.chance(most) {
                let work = job.work.max(2);
                job.changes[0] = draw.between(1, work);
                job.changes[1] = draw.between(0, work);
            }
        }
    }

    /// In half of the schedules no server has a native command for an undo.
    fn draw_natives(&mut self, draw: &mut Random) {
        if draw.chance(500) {
            self.setup.natives = std::array::from_fn(|_| draw.pick(&NATIVES));
        }
    }

    /// Draws whether waiters queue on the nodes.
    fn draw_queue(&mut self, draw: &mut Random) {
        if draw.chance(600) && !KEPT_OUT_OF_QUEUE.contains(&self.seed) {
            self.setup.wake = WakeStrategy::Queue;
            // A pass can be judged only in schedules without faults.
            let calm = match self.class {
                Class::Permits => 200,
                Class::Waiting => 400,
                _ => 0,
            };
            if draw.chance(calm) {
                self.faults.clear();
                if self.class == Class::Permits && draw.chance(500) {
                    guided::draw_waiting_for_permits(self, draw);
                }
            }
        }
    }

    /// Draws a crowd in the queue with different kinds of waiters.
    fn draw_crowd(&mut self, draw: &mut Random) {
        let may = self.class == Class::Waiting && self.setup.wake == WakeStrategy::Queue;
        if may && !KEPT_FROM_BEFORE.contains(&self.seed) && draw.chance(300) {
            guided::draw_crowd_in_queue(self, draw);
        }
    }

    /// Draws a crowd in the queue of which several stop.
    fn draw_stops(&mut self, draw: &mut Random) {
        let may = self.setup.wake == WakeStrategy::Queue && !KEPT_FROM_BEFORE.contains(&self.seed);
        match self.class {
            Class::Waiting if may && draw.chance(200) => guided::draw_stops_in_queue(self, draw),
            Class::Permits if may && draw.chance(500) => guided::stop_more(self, draw),
            _ => {}
        }
    }

    /// Draws clients that take turns next to others that are far away.
    fn draw_far(&mut self, draw: &mut Random) {
        let may = self.class == Class::Waiting && self.setup.wake == WakeStrategy::Queue;
        if may && !KEPT_FROM_BEFORE.contains(&self.seed) && draw.chance(60) {
            guided::draw_far_in_queue(self, draw);
        }
    }

    /// Draws the jobs, and the time within which they act.
    fn draw_jobs(&mut self, draw: &mut Random, count: usize) -> Time {
        let ttl_ms = match draw.below(8) {
            0..=4 => draw.between(60, 400),
            5..=6 => draw.between(400, 1_500),
            _ => draw.between(10_000, 28_000),
        };
        let long = ttl_ms >= 10_000;
        self.draw_setup(draw, ttl_ms);
        let ttl = ttl_ms * MS;
        // No schedule lasts until the end of a long TTL.
        let span = if long { draw.between(100, 600) * MS } else { ttl };
        let start = if draw.chance(600) { 8 * self.net.delay + 10 * MS } else { 0 };
        for at in 0..count {
            let job = self.draw_job(draw, at, ttl_ms, span, start);
            self.jobs.push(job);
        }
        // The probe comes after all other jobs.
        self.jobs.push(Job {
            at: 0,
            client: draw.below(self.clients.len() as u64) as u8,
            keys: draw.between(1, (1 << self.keys) - 1) as u8,
            ttl_ms: 100 + count as u64,
            kind: Kind::Probe,
            patience: 0,
            work: MS,
            fenced: self.can_fence() && draw.chance(500),
            shared: false,
            permits: 0,
            profile: Profile::PLAIN,
            changes: [0; 2],
            hand_on: None,
        });
        start + 2 * span
    }

    /// Draws the settings of all clients. `max_ttl` is little more than the TTLs in use, because a
    /// quarantine lasts that long. Locks can be fenced only if it is long.
    fn draw_setup(&mut self, draw: &mut Random, ttl_ms: u64) {
        let restart_guard = self.class != Class::MemoryLossUnguarded && draw.chance(900);
        let fenced = restart_guard && draw.chance(if self.class.is_safe() { 300 } else { 700 });
        let needed = match ttl_ms {
            0..=400 => 500,
            401..=1_600 => 1_700,
            _ => 30_000,
        };
        let max_ttl_ms = if fenced { needed.max(12_000) } else { needed };
        self.setup = Setup {
            max_ttl_ms,
            other_ttl_ms: max_ttl_ms + 200,
            restart_guard,
            start: Start::Ready,
            durable: false,
            proven: draw.chance(100),
            labelled: draw.chance(250),
            wake: draw.pick(&WAKES),
            answer_ms: ANSWER_MS,
            natives: [NATIVES[0]; MAX_NODES],
        };
        if restart_guard && self.class.is_safe() {
            match draw.below(32) {
                0 | 1 => self.setup.start = Start::New,
                2 => self.setup.start = Start::Bare,
                3 | 4 => self.setup.durable = true,
                _ => {}
            }
        }
    }

    fn draw_job(&self, draw: &mut Random, at: usize, ttl_ms: u64, span: Time, start: Time) -> Job {
        let many = draw.chance(200);
        let keys = if many { draw.between(1, (1 << self.keys) - 1) as u8 } else { 1 };
        let kind = match draw.below(16) {
            0..=8 => Kind::Hold,
            9 | 10 => Kind::AutoExtend,
            11 => Kind::Fade,
            12 => Kind::Forget,
            _ => Kind::Cancel { after: draw.below(span / 2) },
        };
        let work = match kind {
            Kind::AutoExtend => draw.between(span / 2, 2 * span),
            Kind::Fade => draw.between(span / 2, span),
            _ => draw.below(span),
        };
        let patience = match draw.below(8) {
            0..=5 => 0,
            6 => draw.between(span / 4, span / 2),
            _ => draw.between(span / 2, span),
        };
        let at_time = if at == 0 { start } else { start + draw.below(span) };
        Job {
            at: at_time,
            client: (at % self.clients.len()) as u8,
            keys,
            ttl_ms: (ttl_ms & !15) + at as u64,
            kind,
            patience,
            work: work.max(MS),
            fenced: self.can_fence() && draw.chance(800),
            shared: false,
            permits: 0,
            profile: Profile::PLAIN,
            changes: [0; 2],
            hand_on: None,
        }
    }
}

fn net(draw: &mut Random) -> Net {
    let delay = draw.pick(&[20 * US, 200 * US, 200 * US, MS, 5 * MS]);
    let rough = draw.chance(300);
    Net {
        delay,
        jitter: draw.pick(&[0, delay / 2, 4 * delay]),
        tail_per_mille: if rough { draw.between(5, 100) } else { 0 },
        tail: draw.between(5, 300) * MS,
        loss_per_mille: if draw.chance(200) { draw.between(5, 100) } else { 0 },
        pieces: draw.pick(&[1, 1, 1, 1, 1, 1, 2, 4]),
        read: if draw.chance(60) { draw.between(1, 60) as usize } else { usize::MAX },
    }
}

/// Draws clock rates within what validity covers, 1 % between a client and a node, and returns what
/// the nodes leave of it for the clients.
fn clocks(draw: &mut Random, clocks: &mut [(i64, i64); MAX_NODES]) -> i64 {
    let rate = if draw.chance(300) { draw.between(0, 9_900) as i64 } else { 0 };
    for clock in clocks.iter_mut() {
        let ppm = if rate == 0 { 0 } else { draw.between(0, 2 * rate as u64) as i64 - rate };
        *clock = (draw.between(0, 1_000_000) as i64 - 500_000, ppm);
    }
    9_900 - rate
}

fn client(draw: &mut Random, budget: i64) -> ClientPlan {
    let ppm = if draw.chance(200) { draw.below(2 * budget as u64 + 1) as i64 - budget } else { 0 };
    let late = if draw.chance(100) { draw.between(1, 30) * MS } else { 0 };
    // Some clocks are so far apart that one proposes fencing tokens which another has already
    // passed.
    let apart = draw.pick(&[100_000, 3_000_000]);
    ClientPlan {
        ppm,
        wall_ahead: draw.below(2 * apart) as i64 - apart as i64,
        late,
        far: 0,
        far_from: 0,
    }
}

/// The random streams of parts that were added later.
const BROKEN: u64 = 0x78;
const REPLICAS: u64 = 0x7a;
const WILD: u64 = 0x77;
const SHARED: u64 = 0x73;
const PERMITS: u64 = 0x70;
const CHANGES: u64 = 0x6d;
const PROFILES: u64 = 0x66;
const LATE_PROFILES: u64 = 0x67;
const MEMBERS: u64 = 0x6a;
const REDISSON: u64 = 0x72;

/// The profiles whose locks live as long as their TTL.
const FOREIGN: [Profile; 6] = [
    Profile::REDIS_OBJECTS,
    Profile::REDISSON,
    Profile::REDISSON_RW,
    Profile::REDISSON_RW,
    Profile::SETNX,
    Profile::SPRING,
];

/// The profiles that were added later.
const LATE: [Profile; 3] = [Profile::PYTHON_REDIS_LOCK, Profile::SYMFONY, Profile::SYMFONY];

/// Schedules that found a bug before jobs changed their mode, or before crowds in the queue
/// differed: they stay unchanged.
const KEPT_FROM_BEFORE: [u64; 8] = [
    21_634,
    87_552,
    720_003_848,
    9_100_000_115_712,
    14_000_026_478,
    16_068,
    3_020_493_830_808,
    12_271_845_782_311,
];

/// A schedule that found a bug before there were members: it stays unchanged.
const KEPT_ALONE: u64 = 12_141_802_701_960;
const QUEUE: u64 = 0x6c;
const CROWD: u64 = 0x63;
const STOPS: u64 = 0x74;
const FAR: u64 = 0x76;
const MIXED: u64 = 0x6b;
const NATIVE: u64 = 0x6e;

/// Schedules that found a bug before waiters used the queue: they stay unchanged.
const KEPT_OUT_OF_QUEUE: [u64; 20] = [
    9_200_030_994,
    9_400_490_500,
    9_500_270_670,
    9_100_173_786,
    9_300_900_541,
    21_000_782_537,
    22_001_943_749,
    24_000_233_988,
    25_000_067_852,
    25_000_817_030,
    28_000_337_377,
    28_001_003_376,
    7_625_579_813_928,
    60_017_955_556,
    60_023_344_104,
    70_010_042_056,
    21_634,
    87_552,
    7_003_497,
    500_001_263,
];
const DENIED: u64 = 0x64;

/// The stream of locks that are detached.
const HAND_ON: u64 = 0x78;

/// The wake strategies of schedules without a queue.
const WAKES: [WakeStrategy; 8] = [
    WakeStrategy::Lead,
    WakeStrategy::Lead,
    WakeStrategy::Lead,
    WakeStrategy::Lead,
    WakeStrategy::Lead,
    WakeStrategy::Lead,
    WakeStrategy::Lead,
    WakeStrategy::Timer,
];

const SIZES: [usize; 16] = [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 5, 5, 5, 5, 1, 1];

/// The maximum time before a schedule is healed.
const MAX_SPAN: Time = 8_000 * MS;
