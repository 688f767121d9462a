//! Failovers behind three sentinels, with an old master that is cut off together with a client. The
//! cores and the stores are the real ones, and so is the rule for the age of the sentinels' answers
//! (`redbolt::proto::sentinel_answer`).
//!
//! A holder is on the old master and loses contact with the sentinels one by one. A rival goes to
//! the master that a majority names: a promoted replica with another memory and run ID. Both take,
//! extend and release one lock again and again, exclusively, shared, or as the only permit of a
//! semaphore; clients that share it change their mode. No two may hold it, and fencing tokens grow
//! from one holder to the next.
//!
//! `cargo xtask sim --cut-off 10000` plays many. The schedules of the simulator cannot express
//! this, because in their world each address leads to one server at a time and no arrived byte is
//! left unread. The small driver here follows the rules of `src/net` for asking sentinels, but is
//! not its code. Several nodes, of which a rival needs more than this one, drift of clocks, and the
//! sockets of sentinels are left out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::restart_guard::{BIG_MS, Expected};
use redbolt::proto::{
    Cause, ClockReading, Config, Core, Event, LinkId, LinkOp, LockId, LockMode, LockRequest,
    NodeSettings, NodeState, Settings, Timestamp, WakeStrategy, sentinel_answer,
};
use redbolt_node::Memory;
use redbolt_node::model::{ClockReading as NodeNow, ConnId, Store};
use redbolt_testkit::{Flow, GUARD, Host, Random};

use crate::invariant::Violation;
use crate::plan::MS;
use crate::world::node::EPOCH_US;
use crate::world::queue::Time;

/// A rule that is broken, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests break a rule"))]
enum Rule {
    /// No rule is broken.
    Meant,
    /// An answer counts for ever.
    NoLimit,
    /// The answer of one sentinel is enough.
    WordOfOne,
    /// An answer is dated when it arrives.
    DatedWhenItComes,
    /// Locks have the largest TTL, which leaves no time for the answer.
    LongestLocks,
    /// An extension counts on a promoted replica at once, as on a node without sentinels.
    PromotedCountsAtOnce,
    /// The age of an answer is measured by the boot clock only.
    AgedByBootOnly,
    /// A reply counts if the sentinels' answer was recent at the client's last check, before it was
    /// stopped.
    LooksBeforeItReads,
}

/// The origin of the new master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failover {
    /// It has no keys, and sentinels take seconds to agree. Locks are long.
    Empty,
    /// It is a replica with the keys of the old master, sentinels agree within 300 ms, and a second
    /// failover may follow. Locks are shorter and longer than the time for which an answer counts.
    Replica,
}

/// The kind of both clients' locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Both hold it exclusively.
    Alone,
    /// One of them shares it, and changes its mode.
    Shared,
    /// The only permit of a semaphore.
    Permit,
}

/// The events of one schedule.
#[derive(Clone, Debug, Default)]
struct Played {
    /// Grants and extensions on the first master, and on promoted ones.
    granted: [u32; 2],
    /// Extensions on a promoted replica before its quarantine has ended.
    extended_early: u32,
    /// Changes of a holder's mode.
    changed: u32,
    /// The number of times that the holder was stopped.
    stopped: u32,
    /// Steps in which a master's bytes had to wait for the sentinels' answers.
    withheld: u32,
    violation: Option<Violation>,
}

/// The servers by place: the first master, then those that follow it.
const OLD: usize = 0;
const NEW: usize = 1;
const PLACES: usize = 3;

/// The index of the holder. The other client is the rival.
const HOLDER: usize = 0;

const SENTINELS: usize = 3;

struct World {
    now: Time,
    ends_at: Time,
    random: Random,
    rule: Rule,
    failover: Failover,
    kind: Kind,
    servers: [Store; PLACES],
    /// The time at which each replica becomes the master, with the keys of its predecessor.
    promotions: VecDeque<(Time, usize)>,
    /// Sentinels answer the holder late.
    is_slow: bool,
    /// The part that is stopped from time to time: the holder's process, or its machine with the
    /// boot clock.
    stops: Option<Stopped>,
    /// The times at which each sentinel begins to name the next master, and the one after that.
    switches_at: [[Time; SENTINELS]; PLACES - 1],
    clients: [Client; 2],
    /// The upper bound of all TTLs; each is up to a second less.
    ttl: Duration,
    largest_token: u64,
    played: Played,
}

/// The holder, and the rival.
struct Client {
    core: Core,
    /// The time until which it reaches each sentinel.
    reaches_until: [Time; SENTINELS],
    seats: [Seat; SENTINELS],
    /// The link that is to be opened, once a majority of sentinels has named a master.
    opens: Option<LinkId>,
    wire: Option<Wire>,
    lock: Option<LockId>,
    request: LockRequest<'static>,
    /// The time by which its wall clock is ahead.
    wall_ahead: Time,
    /// The time for which its boot clock has stood still.
    boot_behind: Time,
    stop: Option<Stop>,
    acts_at: Time,
}

/// A sentinel's answers to one client.
#[derive(Clone, Copy, Default)]
struct Seat {
    replied: Option<Word>,
    /// An answer in flight, with its time of arrival.
    answer: Option<(Time, Word)>,
}

#[derive(Clone, Copy)]
struct Word {
    place: usize,
    asked_at: ClockReading,
}

/// A client that is stopped after it has sent a request.
#[derive(Clone, Copy)]
struct Stop {
    what: Stopped,
    stopped_at: Time,
    until: Time,
    /// The time that the request takes to the server.
    late: Time,
    /// The sentinels' answers were recent when it was stopped.
    was_young: bool,
}

/// The part of a client that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    Process,
    Machine,
}

struct Wire {
    link: LinkId,
    place: usize,
    open_at: Time,
    is_open: bool,
    conn: ConnId,
    flow: Flow,
}

impl World {
    fn new(seed: u64, rule: Rule, failover: Failover) -> Self {
        let mut random = Random::new(seed);
        let begins_at = WARM + random.below(20_000) * MS;
        let (switches_at, promotions) = failovers(begins_at, failover, &mut random);
        let (kind, requests) = requests(&mut random);
        let mut part = 0;
        let mut clients = requests.map(|request| {
            part += 1;
            Client::new(request, rule, Random::of(seed, part))
        });
        clients.iter_mut().for_each(|client| client.wall_ahead = random.below(2_000) * MS);
        // The rival reaches all sentinels and is let in by the new master once a majority has named
        // it. The cause that cuts off the holder may be what the sentinels have noticed.
        let seen = switches_at[usize::from(promotions.len() > 1 && random.chance(500))];
        for (until, switches_at) in clients[HOLDER].reaches_until.iter_mut().zip(seen) {
            *until = match random.below(4) {
                0 => Time::MAX,
                1 => begins_at + random.below(20_000) * MS,
                _ => switches_at - random.below(500) * MS,
            };
        }
        let names = ["old", "new", "newest"];
        let mut servers = names.map(|name| Store::new(&run_id(name), node_clock(0)));
        remember(&mut servers[OLD]);
        let longest = match (failover, rule) {
            (Failover::Replica, _) => Duration::from_millis(2_000 + random.below(7_000)),
            (_, Rule::LongestLocks) => MAX_TTL,
            _ => LONGEST,
        };
        Self {
            now: 0,
            ends_at: ends_at(&switches_at, failover, &mut random),
            rule,
            failover,
            kind,
            servers,
            promotions,
            is_slow: random.chance(500),
            stops: [None, None, Some(Stopped::Process), Some(Stopped::Machine)]
                [random.below(4) as usize],
            switches_at,
            clients,
            ttl: longest,
            largest_token: 0,
            played: Played::default(),
            random,
        }
    }

    /// Plays the schedule until its end or the first violation.
    fn run(mut self) -> Played {
        while self.now < self.ends_at && self.played.violation.is_none() {
            let next = [self.next(0), self.next(1)];
            self.now = next[0].min(next[1]).max(self.now + 1);
            self.promote();
            for (at, due) in next.into_iter().enumerate() {
                if due <= self.now {
                    self.serve(at);
                    self.step(at);
                }
            }
        }
        self.played
    }

    /// Promotes a replica. No sentinel has named it before, so it has no connections yet. Its clock
    /// is behind that of its predecessor, so its keys live longer.
    fn promote(&mut self) {
        if let Some((_, place)) = self.promotions.front().copied().filter(|(at, _)| *at <= self.now)
        {
            self.promotions.pop_front();
            let keys = Memory::Stale(self.servers[place - 1].snapshot());
            let clock = self.node_clock(place);
            self.servers[place].restart(keys, &run_id(["old", "new", "newest"][place]), clock);
        }
    }

    fn node_clock(&self, place: usize) -> NodeNow {
        node_clock(self.now - (self.now.min(place as Time * BEHIND)))
    }

    fn reading(&self, at: usize) -> ClockReading {
        let wall = EPOCH_US * 1_000 + self.now + self.clients[at].wall_ahead;
        let boot = BOOT + self.now - self.clients[at].boot_behind;
        ClockReading { boot: Timestamp(boot), wall: Timestamp(wall) }
    }

    /// Returns the place that a sentinel names at this time.
    fn named(&self, by: usize, at: Time) -> usize {
        self.switches_at.iter().filter(|switches_at| switches_at[by] <= at).count()
    }

    /// Returns the time of this client's next event.
    fn next(&self, at: usize) -> Time {
        let client = &self.clients[at];
        if let Some(Stop { until, .. }) = client.stop {
            let up = client.wire.iter().filter_map(|wire| wire.flow.up.next_at());
            return up.fold(until, Time::min);
        }
        let timer = client.core.poll_timeout();
        let timer = timer.map(|at| at.0.saturating_sub(BOOT) + client.boot_behind);
        let answers = client.seats.iter().filter_map(|seat| seat.answer).map(|(at, _)| at);
        let wire = client.wire.iter().flat_map(|wire| {
            let opens = (!wire.is_open).then_some(wire.open_at);
            let unread = wire.flow.down.next_at().filter(|at| *at > self.now);
            [wire.flow.up.next_at(), unread].into_iter().flatten().chain(opens)
        });
        let switches = self.switches_at.iter().flatten().copied().filter(|&at| at > self.now);
        let promoted_at = self.promotions.front().map(|(at, _)| *at);
        let ours = [Some(client.acts_at), promoted_at].into_iter().flatten();
        let times = answers.chain(wire).chain(timer).chain(switches).chain(ours);
        times.min().unwrap_or(Time::MAX)
    }

    fn step(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(stop) = client.stop {
            if self.now < stop.until {
                return;
            }
            if stop.what == Stopped::Machine {
                client.boot_behind += self.now - stop.stopped_at;
            }
        }
        self.receive_sentinels(at);
        self.follow(at);
        self.carry(at);
        self.clients[at].stop = None;
        let now = self.reading(at);
        if self.clients[at].core.poll_timeout().is_some_and(|due| due <= now.boot) {
            self.clients[at].core.timeout(now);
        }
        if self.now >= self.clients[at].acts_at {
            self.act(at);
            self.stop(at);
        }
        self.settle(at);
    }

    /// Receives answers and changes: a sentinel that has answered once announces changes by itself.
    fn receive_sentinels(&mut self, at: usize) {
        let (now, rule, reading) = (self.now, self.rule, self.reading(at));
        for by in 0..SENTINELS {
            let reported = self.named(by, now.min(self.clients[at].reaches_until[by] - 1));
            let seat = &mut self.clients[at].seats[by];
            if let Some(word) = &mut seat.replied {
                word.place = word.place.max(reported);
            }
            if let Some((_, word)) = seat.answer.take_if(|(comes, _)| *comes <= now) {
                let is_late = rule == Rule::DatedWhenItComes;
                let asked_at = if is_late { reading } else { word.asked_at };
                seat.replied = Some(Word { asked_at, ..word });
            }
        }
    }

    /// Asks all sentinels with no answer in flight. One that cannot be reached any more never
    /// answers.
    fn ask_sentinels(&mut self, at: usize) {
        let asked_at = self.reading(at);
        for by in 0..SENTINELS {
            let (there, back) = (self.delay(at), self.delay(at));
            let reached = self.now + there;
            let place = self.named(by, reached);
            let client = &mut self.clients[at];
            if client.seats[by].answer.is_some() {
                continue;
            }
            let word = Word { place, asked_at };
            let comes = if reached < client.reaches_until[by] { reached + back } else { Time::MAX };
            client.seats[by].answer = Some((comes, word));
        }
    }

    /// Returns a delay: mostly a few ms, and for the holder sometimes seconds.
    fn delay(&mut self, at: usize) -> Time {
        match self.random.below(4) {
            0 if at == HOLDER && self.is_slow => self.random.below(9_000) * MS,
            _ => (1 + self.random.below(5)) * MS,
        }
    }

    /// Connects to the master that a majority of sentinels names, and leaves any other.
    fn follow(&mut self, at: usize) {
        let now = self.reading(at);
        let open_at = self.now + 2 * MS;
        let client = &mut self.clients[at];
        let named = (0..PLACES).find(|&place| client.votes(place) > SENTINELS / 2);
        let Some(place) = named else { return };
        if let Some(wire) = client.wire.take_if(|wire| wire.place != place) {
            self.servers[wire.place].disconnect(wire.conn);
            client.core.disconnected(wire.link, Cause::Io, now);
        }
        if let Some(link) = client.opens.take() {
            let conn = self.servers[place].connect();
            client.wire =
                Some(Wire { link, place, open_at, is_open: false, conn, flow: Flow::default() });
        }
    }

    /// Returns true if replies of the client's master count.
    fn is_vouched_for(&self, at: usize, place: usize) -> bool {
        let (word, now) = (self.vouched_at(at, place), self.reading(at));
        let looked = self.clients[at].stop.is_some_and(|stop| stop.was_young);
        match self.rule {
            Rule::NoLimit => word.is_some(),
            Rule::LooksBeforeItReads if looked => true,
            Rule::AgedByBootOnly => {
                let word = word.map(|word| ClockReading { wall: now.wall, ..word });
                sentinel_answer::counts(word, now)
            }
            _ => sentinel_answer::counts(word, now),
        }
    }

    fn vouched_at(&self, at: usize, place: usize) -> Option<ClockReading> {
        let words = self.clients[at].seats.iter().filter_map(|seat| seat.replied);
        let named = words.filter(|word| word.place == place);
        let asked_at = named.map(|word| word.asked_at);
        let all = if self.rule == Rule::WordOfOne { 1 } else { SENTINELS };
        sentinel_answer::vouched_at(all, asked_at)
    }

    /// Runs on the server what has arrived, even if its client is stopped.
    fn serve(&mut self, at: usize) {
        let now = self.now;
        let Some(place) = self.clients[at].wire.as_ref().map(|wire| wire.place) else { return };
        let node_clock = self.node_clock(place);
        let Some(wire) = &mut self.clients[at].wire else { return };
        let (store, conn) = (&mut self.servers[place], wire.conn);
        wire.flow.serve(now, now + MS, |words, replies| {
            store.command(conn, words, node_clock, replies);
        });
    }

    /// Delivers the bytes that have arrived on the client's open connection.
    fn carry(&mut self, at: usize) {
        let (now, clock) = (self.now, self.reading(at));
        let Some(place) = self.clients[at].wire.as_ref().map(|wire| wire.place) else { return };
        let Some(wire) = &mut self.clients[at].wire else { return };
        if !wire.is_open {
            wire.is_open = wire.open_at <= now;
            let link = wire.link;
            if wire.is_open {
                self.clients[at].core.connected(link, clock);
            }
            return;
        }
        let is_due = wire.flow.down.next_at().is_some_and(|comes| comes <= now);
        let is_awaited = !wire.flow.up.is_empty() || !wire.flow.down.is_empty();
        if is_awaited && sentinel_answer::is_due(self.vouched_at(at, place), clock) {
            self.ask_sentinels(at);
        }
        if is_due && !self.is_vouched_for(at, place) {
            self.played.withheld += 1;
            return;
        }
        while let Some(wire) = &mut self.clients[at].wire
            && let Some(bytes) = wire.flow.down.arrived(now)
        {
            let link = wire.link;
            self.clients[at].core.receive(link, &bytes, clock);
            self.settle(at);
        }
    }

    /// Stops the holder behind a request from time to time, mostly for longer than the request
    /// takes.
    fn stop(&mut self, at: usize) {
        let Some(what) = self.stops.filter(|_| at == HOLDER) else { return };
        let place = self.clients[at].wire.as_ref().map(|wire| wire.place);
        let has_begun = self.switches_at[0].iter().any(|&at| at <= self.now);
        if let Some(place) = place
            && self.random.chance(if has_begun { 200 } else { 10 })
        {
            let late = self.random.below(8_000) * MS;
            let until = self.now + late + self.random.below(3_000) * MS;
            let was_young = self.is_vouched_for(at, place);
            let stopped_at = self.now;
            self.clients[at].stop = Some(Stop { what, stopped_at, until, late, was_young });
            self.played.stopped += 1;
        }
    }

    /// Takes the lock, extends it, changes its mode, or releases it.
    fn act(&mut self, at: usize) {
        let now = self.reading(at);
        let ttl = self.ttl - Duration::from_millis(self.random.below(1_000));
        let is_replica = self.failover == Failover::Replica;
        let (is_released, is_changed) =
            (self.random.chance(if is_replica { 20 } else { 100 }), self.random.chance(150));
        let client = &mut self.clients[at];
        let shares = client.request.mode() == LockMode::Shared;
        match client.lock {
            None => {
                let request = client.request.clone().ttl(ttl);
                client.lock = client.core.acquire(&request, now).ok();
            }
            Some(id) if is_released => client.core.release(id, now),
            // A change may be pending already, or the lock not held yet.
            Some(id) if is_changed && shares => {
                let is_shared = client.core.mode(id) == Some(LockMode::Shared);
                let core = &mut client.core;
                let _ = if is_shared { core.try_upgrade(id, now) } else { core.downgrade(id, now) };
            }
            Some(id) => drop(client.core.extend(id, ttl, now)),
        }
        // A client that waits for the end of a quarantine has to be there when it ends.
        let pause = if at == HOLDER && !is_replica { 1_500 } else { 300 };
        client.acts_at = self.now + (pause / 3 + self.random.below(pause)) * MS;
    }

    fn settle(&mut self, at: usize) {
        let now = self.now;
        let late = self.clients[at].stop.map_or(0, |stop| stop.late);
        let client = &mut self.clients[at];
        while let Some(op) = client.core.poll_link() {
            match op {
                LinkOp::Open(link) => {
                    client.opens = Some(link);
                    client.seats.iter_mut().for_each(|seat| seat.replied = None);
                }
                LinkOp::Close(_) => {
                    client.opens = None;
                    if let Some(wire) = client.wire.take() {
                        self.servers[wire.place].disconnect(wire.conn);
                    }
                }
            }
        }
        if let Some(wire) = client.wire.as_mut().filter(|wire| wire.is_open) {
            let bytes = client.core.take(wire.link, usize::MAX);
            wire.flow.up.push(now + late + MS, bytes);
        }
        let asks = client.opens.is_some();
        self.receive_events(at);
        if asks {
            self.ask_sentinels(at);
        }
    }

    fn receive_events(&mut self, at: usize) {
        while let Some(event) = self.clients[at].core.poll_event() {
            match event {
                Event::Granted(id) => self.granted(at, id),
                Event::Extended(_) => self.extended(at),
                Event::Upgraded(id) => {
                    self.played.changed += 1;
                    self.granted(at, id);
                }
                Event::Downgraded(_) => self.played.changed += 1,
                Event::Released(..) | Event::Refused(..) | Event::Lost(..) => {
                    self.clients[at].lock = None;
                }
                _ => {}
            }
        }
    }

    fn granted(&mut self, at: usize, id: LockId) {
        self.counted(at);
        let client = &self.clients[at];
        // Holders that share may have one token.
        let is_shared = client.core.mode(id) == Some(LockMode::Shared);
        if let Some(token) = client.core.fencing_token(id) {
            let (earlier, later) = (self.largest_token, token.get());
            if later < earlier + u64::from(!is_shared) {
                self.played.violation = Some(Violation::TokenOrder { key: 0, earlier, later });
            }
            self.largest_token = earlier.max(later);
        }
    }

    fn extended(&mut self, at: usize) {
        self.counted(at);
        let client = &self.clients[at];
        let node = client.core.config().node_ids().next();
        let votes = node.is_some_and(|node| client.core.node_state(node) == NodeState::Ready);
        self.played.extended_early += u32::from(!votes);
    }

    /// Counts a grant or an extension, and checks exclusion.
    fn counted(&mut self, at: usize) {
        let place = self.clients[at].wire.as_ref().map_or(OLD, |wire| wire.place);
        self.played.granted[place.min(NEW)] += 1;
        let modes = [0, 1].map(|at| self.clients[at].holds(self.reading(at)));
        if let [Some(one), Some(other)] = modes {
            let (holder, rival) = (1 - at, at);
            if one != LockMode::Shared || other != one {
                self.played.violation = Some(Violation::TwoHolders { key: 0, holder, rival });
            }
        }
    }
}

impl Client {
    fn new(request: LockRequest<'static>, rule: Rule, entropy: Random) -> Self {
        let mut node = NodeSettings::default();
        node.has_sentinels = rule != Rule::PromotedCountsAtOnce;
        let mut settings = Settings::new(vec![node]);
        settings.max_ttl = MAX_TTL;
        settings.wake = WakeStrategy::Timer;
        settings.reconnect_backoff = (Duration::from_millis(5), Duration::from_millis(50));
        let config = Arc::new(Config::new(settings).expect("the settings are valid"));
        let core = Core::new(config, entropy.entropy());
        Self {
            core,
            reaches_until: [Time::MAX; SENTINELS],
            seats: [Seat::default(); SENTINELS],
            opens: None,
            wire: None,
            lock: None,
            request,
            wall_ahead: 0,
            boot_behind: 0,
            stop: None,
            acts_at: 0,
        }
    }

    fn votes(&self, place: usize) -> usize {
        self.seats
            .iter()
            .filter(|seat| seat.replied.is_some_and(|word| word.place == place))
            .count()
    }

    /// Returns the mode in which the client holds the lock by its own clock, if it does.
    fn holds(&self, now: ClockReading) -> Option<LockMode> {
        let id = self.lock?;
        let lease = self.core.lease(id)?;
        self.core.mode(id).filter(|_| !lease.remaining(now).is_zero())
    }
}

/// Draws the kind of the two clients' locks, mostly exclusive, and their requests.
fn requests(random: &mut Random) -> (Kind, [LockRequest<'static>; 2]) {
    let mut alone = LockRequest::new(b"job");
    if random.chance(300) {
        alone = alone.fenced();
    }
    match random.below(6) {
        0 => (Kind::Shared, [alone.clone().shared(), alone]),
        1 => (Kind::Shared, [alone.clone(), alone.shared()]),
        2 => (Kind::Permit, [alone.clone().permits(1), alone.permits(1)]),
        _ => (Kind::Alone, [alone.clone(), alone]),
    }
}

/// Draws when the sentinels begin to name each master, and when replicas are promoted.
fn failovers(
    begins_at: Time,
    failover: Failover,
    random: &mut Random,
) -> ([[Time; SENTINELS]; PLACES - 1], VecDeque<(Time, usize)>) {
    let mut switches_at = [[Time::MAX; SENTINELS]; PLACES - 1];
    let again_at = begins_at + (1_000 + random.below(9_000)) * MS;
    let (count, agree_within) = match failover {
        Failover::Empty => (1, 20_000),
        Failover::Replica => (1 + usize::from(random.chance(300)), 300),
    };
    let times = [begins_at, again_at];
    for (switches_at, begins_at) in switches_at.iter_mut().zip(times).take(count) {
        switches_at.fill_with(|| begins_at + random.below(agree_within) * MS);
    }
    let promotions = times.into_iter().zip(NEW..).take(count);
    let promotions = promotions.filter(|_| failover == Failover::Replica).collect();
    (switches_at, promotions)
}

/// Returns the end of the schedule: the quarantine of the last master has ended, and so have all
/// locks from before. For failovers to a replica, one in three waits for the quarantine.
fn ends_at(
    switches_at: &[[Time; SENTINELS]; PLACES - 1],
    failover: Failover,
    random: &mut Random,
) -> Time {
    let last = switches_at.iter().flatten().copied().filter(|&at| at < Time::MAX).max();
    let rest = match failover {
        Failover::Replica if random.chance(667) => 16_000,
        _ => 40_000,
    };
    last.unwrap_or_default() + rest * MS
}

/// Lets the first master vote from the beginning.
fn remember(store: &mut Store) {
    let expected = Expected {
        run_id: run_id("old").as_bytes().try_into().ok(),
        replication_id: None,
        max_ttl_ms: MAX_TTL.as_millis() as u64,
        nodes: 1,
        database: 0,
        restart_trust: NodeSettings::default().restart_trust,
    };
    let (conn, life) = (store.connect(), BIG_MS.to_string());
    let set = [b"SET", GUARD, &expected.value(), b"PX", life.as_bytes()];
    store.command(conn, &set, node_clock(0), &mut Vec::new());
    store.disconnect(conn);
}

fn run_id(name: &str) -> String {
    format!("{name:0>40}")
}

fn node_clock(now: Time) -> NodeNow {
    NodeNow::from_millis(EPOCH_US / 1_000 + now / MS)
}

const MAX_TTL: Duration = Duration::from_secs(30);

/// The longest TTL that the rule allows.
const LONGEST: Duration = Duration::from_secs(25);

/// The time by which both clients have taken the lock a few times.
const WARM: Time = 3_000 * MS;

/// The time by which the clock of a promoted replica is behind that of its predecessor.
const BEHIND: Time = 200 * MS;

/// The origin of the boot clock.
const BOOT: Time = 1_000_000_000_000;

/// Returns the violation in one of the two schedules of this seed, if there is one.
#[cfg(redbolt_mutants)]
pub(crate) fn violation(seed: u64) -> Option<Violation> {
    let plays = |failover| World::new(seed, Rule::Meant, failover).run().violation;
    plays(Failover::Empty).or_else(|| plays(Failover::Replica))
}

/// Plays the schedules of `seeds` seeds and prints a summary. Returns true if there is no
/// violation.
pub(crate) fn is_well(first: u64, seeds: u64) -> bool {
    let seeds = first..first.saturating_add(seeds);
    let all = [Failover::Empty, Failover::Replica]
        .map(|failover| Summary::of(seeds.clone(), Rule::Meant, failover));
    all.iter().all(|summary| summary.wrong.is_empty())
}

/// Totals of many schedules.
#[derive(Debug, Default)]
struct Summary {
    schedules: u64,
    all: Played,
    /// The seeds of the schedules with a violation.
    wrong: Vec<u64>,
}

impl Summary {
    fn of(seeds: impl IntoIterator<Item = u64>, rule: Rule, failover: Failover) -> Self {
        let mut summary = Self::default();
        for seed in seeds {
            let world = World::new(seed, rule, failover);
            let kind = world.kind;
            let played = world.run();
            let all = &mut summary.all;
            summary.schedules += 1;
            all.granted[OLD] += played.granted[OLD];
            all.granted[NEW] += played.granted[NEW];
            all.extended_early += played.extended_early;
            all.changed += played.changed;
            all.stopped += played.stopped;
            all.withheld += played.withheld;
            if let Some(violation) = played.violation {
                println!("VIOLATION, {kind:?}: {violation}: --cut-off 1 --seed {seed}");
                summary.wrong.push(seed);
            }
        }
        println!("{rule:?}, {failover:?}: {summary:?}");
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(seeds: impl IntoIterator<Item = u64>, failover: Failover) -> Summary {
        let summary = Summary::of(seeds, Rule::Meant, failover);
        assert_eq!(summary.wrong, [0; 0]);
        let granted = summary.all.granted;
        assert!(granted.iter().all(|&it| u64::from(it) > summary.schedules), "{granted:?}");
        assert!(u64::from(summary.all.withheld) > summary.schedules, "{summary:?}");
        assert!(u64::from(summary.all.changed) > summary.schedules / 4, "{summary:?}");
        summary
    }

    #[test]
    fn no_two_clients_hold_a_lock_while_an_old_master_is_cut_off() {
        clean((0..70).chain([ONE, DATED]), Failover::Empty);
    }

    /// The holder extends its lock at the new master, which has its key, while the key at the old
    /// one expires.
    #[test]
    fn no_two_clients_hold_a_lock_whose_key_is_on_a_promoted_replica() {
        let summary = clean((0..132).chain([BOOT_ONLY, READS_BEFORE]), Failover::Replica);
        assert!(u64::from(summary.all.extended_early) > summary.schedules, "{summary:?}");
    }

    /// Each broken rule is found by a schedule that is known to find it, or by the first of many.
    #[test]
    fn two_clients_hold_a_lock_if_a_rule_is_broken() {
        use Failover::{Empty, Replica};
        let at_once = Rule::PromotedCountsAtOnce;
        let rules = [
            (Rule::NoLimit, Empty, None, 0),
            (Rule::WordOfOne, Empty, None, ONE),
            (Rule::DatedWhenItComes, Empty, None, DATED),
            (Rule::LongestLocks, Empty, None, 23),
            (at_once, Replica, Some(Kind::Alone), AT_ONCE[0]),
            (at_once, Replica, Some(Kind::Shared), AT_ONCE[1]),
            (at_once, Replica, Some(Kind::Permit), AT_ONCE[2]),
            (Rule::AgedByBootOnly, Replica, None, BOOT_ONLY),
            (Rule::LooksBeforeItReads, Replica, None, READS_BEFORE),
        ];
        for (rule, failover, kind, known) in rules {
            let is_found = |&seed: &u64| {
                let world = World::new(seed, rule, failover);
                let is_meant = kind.is_none_or(|kind| world.kind == kind);
                is_meant && matches!(world.run().violation, Some(Violation::TwoHolders { .. }))
            };
            let found = [known].into_iter().chain(0..MOST).find(is_found);
            println!("{rule:?}, {failover:?}, {kind:?}: found by {found:?}");
            assert!(found.is_some(), "{rule:?}, {failover:?}, {kind:?}");
        }
    }

    // Seeds that find two holders, each if one rule is broken.
    const ONE: u64 = 95;
    const DATED: u64 = 187;
    const BOOT_ONLY: u64 = 145;
    const READS_BEFORE: u64 = 1971;

    /// The seeds for each kind of lock if an extension counts at once on a promoted replica, as do
    /// 45 of the first 3,000.
    const AT_ONCE: [u64; 3] = [131, 29, 81];

    /// The maximum number of schedules that may be needed to find each broken rule.
    const MOST: u64 = 3_000;
}
