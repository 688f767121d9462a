//! A server: a model store with a separate clock, and its current faults.

use redbolt::proto::restart_guard::BIG_MS;
use redbolt::proto::script::token_behind_time;
use redbolt_node::{
    Memory,
    model::{ClockReading, ConnId, Denial, Snapshot, Store},
};
use redbolt_testkit::GUARD;

use super::queue::Time;
use crate::fault::Loss;
use crate::plan::{KEYS, Setup, Start};

pub(crate) struct Node {
    pub(crate) store: Store,
    /// A connection of the simulator, for reading keys.
    observer: ConnId,
    /// The number of processes that have run here so far.
    run: usize,
    /// Microseconds by which its clock is ahead of true time, steps included.
    ahead: i64,
    /// Parts per million by which its clock is too fast.
    ppm: i64,
    pub(crate) is_up: bool,
    pub(crate) paused_until: Time,
    /// The time until which connection attempts are not answered.
    pub(crate) silent_until: Time,
    /// The time until which connections are refused.
    pub(crate) refuses_until: Time,
    pub(crate) loading_until: Time,
    /// The error with which it answers, and until when.
    pub(crate) errors: (u8, Time),
    pub(crate) flush_behind_set: bool,
    /// The time until which it is a replica.
    pub(crate) follows_until: Time,
    /// The number of promotions.
    promotions: usize,
    /// True if it reports its replication ID.
    is_notified: bool,
    /// The time until which clients may not subscribe.
    pub(crate) no_subscribing_until: Time,
    /// The time until which clients may not track.
    pub(crate) no_tracking_until: Time,
    /// The commands that were taken away, if any, and since when.
    denied: Option<(&'static [&'static str], Time)>,
    /// An expiry cycle is scheduled.
    pub(crate) is_expiring: bool,
    /// The largest backward step so far, in microseconds: keys live longer by this much.
    pub(crate) stepped_back: u64,
    in_database: bool,
    snapshot: Option<Snapshot>,
    /// True if it came back with keys of an earlier time.
    pub(crate) is_stale: bool,
    scratch: Vec<u8>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let mut store = Store::new(RUNS[0][0], ClockReading::from_micros(0));
        let observer = store.connect();
        Self {
            store,
            observer,
            run: 0,
            ahead: 0,
            ppm: 0,
            is_up: true,
            paused_until: 0,
            silent_until: 0,
            refuses_until: 0,
            loading_until: 0,
            errors: (0, 0),
            flush_behind_set: false,
            follows_until: 0,
            promotions: 0,
            is_notified: false,
            no_subscribing_until: 0,
            no_tracking_until: 0,
            denied: None,
            is_expiring: false,
            stepped_back: 0,
            in_database: false,
            snapshot: None,
            is_stale: false,
            scratch: Vec::new(),
        }
    }

    /// Resets it for a new schedule.
    pub(crate) fn reset(
        &mut self,
        name: usize,
        nodes: usize,
        setup: &Setup,
        (ahead, ppm): (i64, i64),
        is_notified: bool,
    ) {
        (self.run, self.ahead, self.ppm, self.is_up) = (0, ahead, ppm, true);
        (self.paused_until, self.silent_until, self.refuses_until) = (0, 0, 0);
        (self.loading_until, self.errors, self.stepped_back) = (0, (0, 0), 0);
        (self.flush_behind_set, self.is_expiring) = (false, false);
        (self.follows_until, self.promotions, self.is_notified) = (0, 0, is_notified);
        (self.no_subscribing_until, self.no_tracking_until) = (0, 0);
        self.allow();
        self.in_database = setup.proven;
        self.store.require_password(if setup.proven { PASSWORD } else { "" });
        self.store.offer(setup.natives[name]);
        self.snapshot = None;
        self.is_stale = false;
        self.begin(name, Memory::Lost, 0);
        if setup.restart_guard && setup.start == Start::Ready {
            self.restart_guard(RUNS[name][0], nodes, setup, 0);
        }
    }

    /// Writes the restart guard of a node that was set up long ago, in this run.
    fn restart_guard(&mut self, run: &str, nodes: usize, setup: &Setup, now: Time) {
        let max_ttl = setup.max_ttl_ms;
        let database = if setup.proven { DATABASE } else { 0 };
        let history = if self.is_notified { format!(".{}", history(0)) } else { String::new() };
        let value = format!("{run}{history}:{max_ttl}:{nodes}:{database}");
        let big = BIG_MS.to_string();
        self.observe(&[b"SET", GUARD, value.as_bytes(), b"PX", big.as_bytes()], now);
    }

    /// Takes a set of commands away from all users, as an operator does. Returns false if one is
    /// away already.
    pub(crate) fn deny(&mut self, amount: u64, now: Time) -> bool {
        if self.denied.is_some() {
            return false;
        }
        let commands = DENIALS[amount as usize % DENIALS.len()];
        // An ACL is not used for this, because only an undo discovers that an ACL forbids DEL
        // alone.
        let is_forbidden = amount >> 8 & 1 == 1 && commands != ["del"];
        let denial = if is_forbidden { Denial::Forbidden } else { Denial::RenamedAway };
        commands.iter().for_each(|command| self.store.deny(command, Some(denial)));
        self.denied = Some((commands, now));
        true
    }

    pub(crate) fn allow(&mut self) {
        let (commands, _) = self.denied.take().unwrap_or_default();
        commands.iter().for_each(|command| self.store.deny(command, None));
    }

    /// Returns true if undos have been impossible here since before a client connected at `at`, so
    /// that it knew. Only a string is undone by DEL.
    pub(crate) fn cannot_undo(&mut self, key: &[u8], at: Time, now: Time) -> bool {
        let Some((commands, _)) = self.denied.filter(|(_, since)| *since <= at) else {
            return false;
        };
        let database = if self.in_database { DATABASE as usize } else { 0 };
        let is_string = self.store.string(database, key, self.clock(now)).is_some();
        commands.iter().any(|command| *command == "eval" || *command == "del" && is_string)
    }

    /// Sets the fencing counters to this earlier value.
    pub(crate) fn count_from(&mut self, counter: u64) {
        let digits = counter.to_string();
        for key in KEYS.iter().filter(|_| counter > 0) {
            let counter = [&b"redbolt:fence:"[..], key].concat();
            self.observe(&[b"SET", &counter, digits.as_bytes()], 0);
        }
    }

    /// Saves the memory that a restart with stale memory brings back.
    pub(crate) fn take_snapshot(&mut self) {
        self.snapshot = Some(self.store.snapshot());
    }

    /// Starts another process of the same server.
    pub(crate) fn restart(&mut self, name: usize, loss: Loss, now: Time) {
        self.run += 1;
        self.is_stale |= loss == Loss::Stale;
        self.is_up = true;
        let memory = match loss {
            Loss::Kept => Memory::Kept,
            Loss::Lost => Memory::Lost,
            Loss::Stale => self.snapshot.clone().map_or(Memory::Lost, Memory::Stale),
        };
        self.begin(name, memory, now);
    }

    /// Promotes it after it was a replica, of a node of another set or of its former replica.
    pub(crate) fn was_replica(&mut self, of_its_own: bool, nodes: usize, setup: &Setup, now: Time) {
        let snapshot = self.snapshot.clone().filter(|_| of_its_own);
        let is_of_another = snapshot.is_none();
        self.is_stale |= !is_of_another;
        self.promotions += 1;
        let clock = self.clock(now);
        let memory = snapshot.map_or(Memory::Lost, Memory::Stale);
        self.store.was_replica(memory, &history(self.promotions), clock);
        if is_of_another {
            self.restart_guard(&"f".repeat(40), nodes, setup, now);
        }
    }

    fn begin(&mut self, name: usize, memory: Memory, now: Time) {
        self.follows_until = 0;
        let reported = self.is_notified.then(|| history(self.promotions));
        self.store.report_replication_id(reported.as_deref());
        let clock = self.clock(now);
        self.store.restart(memory, RUNS[name][self.run % RUNS[name].len()], clock);
        self.observe_anew(now);
    }

    /// Reconnects the observer if its connection was the one killed.
    pub(crate) fn reconnect(&mut self, killed: ConnId, now: Time) -> bool {
        let is_it = killed == self.observer;
        if is_it {
            self.observe_anew(now);
        }
        is_it
    }

    fn observe_anew(&mut self, now: Time) {
        self.observer = self.store.connect();
        if self.in_database {
            self.observe(&[b"AUTH", PASSWORD.as_bytes()], now);
            self.observe(&[b"SELECT", DATABASE_TEXT], now);
        }
    }

    pub(crate) fn clock(&self, now: Time) -> ClockReading {
        let micros = (EPOCH_US + now / 1_000).cast_signed();
        let drift = (now / 1_000).cast_signed() * self.ppm / 1_000_000;
        ClockReading::from_micros((micros + drift + self.ahead).cast_unsigned())
    }

    pub(crate) fn step(&mut self, micros: i64) {
        self.ahead += micros;
        self.stepped_back += (-micros).max(0).cast_unsigned();
    }

    /// Runs a command of the simulator and returns the reply.
    pub(crate) fn observe(&mut self, args: &[&[u8]], now: Time) -> &[u8] {
        let clock = self.clock(now);
        self.scratch.clear();
        self.store.command(self.observer, args, clock, &mut self.scratch);
        &self.scratch
    }

    /// Returns true if it answers new connections.
    pub(crate) fn serves(&self, now: Time) -> bool {
        self.is_up && self.paused_until.max(self.loading_until) <= now
    }

    /// Returns the string under a key, without a lookup that the server would notice.
    pub(crate) fn value(&self, key: &[u8], now: Time) -> Option<&[u8]> {
        let database = if self.in_database { DATABASE as usize } else { 0 };
        self.store.string(database, key, self.clock(now))
    }

    /// Returns true if a key exists, without a lookup that the server would notice.
    pub(crate) fn holds(&self, key: &[u8], now: Time) -> bool {
        let database = if self.in_database { DATABASE as usize } else { 0 };
        self.store.holds(database, key, self.clock(now))
    }

    /// Returns how a key is held. A closed key, or one whose holders have expired, is kept for the
    /// queue. In the class `Waiting` a set belongs to readers.
    pub(crate) fn taken(&mut self, key: &[u8], now: Time) -> Taken {
        let database = if self.in_database { DATABASE as usize } else { 0 };
        let clock = self.clock(now);
        if let Some(value) = self.store.string(database, key, clock) {
            return match value {
                value if is_free_in_queue(value, clock.micros() / 1_000) => Taken::Not,
                value if value.starts_with(b"r:") => Taken::Shared,
                _ => Taken::Alone,
            };
        }
        let is_there = self.store.holds(database, key, clock);
        if is_there && !self.owners(key, now).is_empty() { Taken::Shared } else { Taken::Not }
    }

    /// Returns true if a key is closed and its queue is empty.
    pub(crate) fn is_closed(&mut self, key: &[u8], now: Time) -> bool {
        self.has_closed(key, now) && !self.has_queue(key, now)
    }

    /// Returns true if a key is closed.
    pub(crate) fn has_closed(&self, key: &[u8], now: Time) -> bool {
        let database = if self.in_database { DATABASE as usize } else { 0 };
        self.store.string(database, key, self.clock(now)) == Some(b"\nredbolt")
    }

    /// Returns the tickets of a queue, in order.
    pub(crate) fn tickets(&mut self, queue: &[u8], now: Time) -> Vec<Vec<u8>> {
        let reply = self.observe(&[b"ZRANGE", queue, b"0", b"-1", b"WITHSCORES"], now);
        bulks(reply).step_by(2).map(<[u8]>::to_vec).collect()
    }

    /// Returns the called ticket, and since when on the node's clock, in ms.
    pub(crate) fn called(&mut self, call: &[u8], now: Time) -> Option<(u64, Vec<u8>)> {
        let reply = self.observe(&[b"GET", call], now);
        let value = bulks(reply).next()?;
        let at = value.iter().position(|&byte| byte == b' ')?;
        Some((decimal(&value[..at])?, value[at + 1..].to_vec()))
    }

    /// Returns true if a ticket has not expired, by the node's clock.
    pub(crate) fn is_in_time(&mut self, ends: &[u8], ticket: &[u8], now: Time) -> bool {
        let clock = self.clock(now).micros() / 1_000;
        let reply = self.observe(&[b"ZSCORE", ends, ticket], now);
        bulks(reply).next().and_then(decimal).is_some_and(|ends| ends > clock)
    }

    /// Returns true if there is any ticket.
    pub(crate) fn has_queue(&mut self, key: &[u8], now: Time) -> bool {
        let queue = [&b"redbolt:line:"[..], key].concat();
        self.holds(&queue, now)
    }

    /// Returns the number under a key; 0 if there is none.
    pub(crate) fn number(&mut self, key: &[u8], now: Time) -> u64 {
        let reply = std::str::from_utf8(self.observe(&[b"GET", key], now)).unwrap_or_default();
        let digits = reply.split("\r\n").nth(1).unwrap_or_default();
        digits.parse().unwrap_or_default()
    }

    /// Returns the first halves of the tokens that hold a key, exclusively or shared, and have not
    /// expired.
    pub(crate) fn owners(&mut self, key: &[u8], now: Time) -> Vec<u128> {
        let now_ms = self.clock(now).micros() / 1_000;
        let reply = self.observe(&[b"GET", key], now);
        if !reply.starts_with(b"-WRONGTYPE") {
            let value = reply.splitn(2, |&byte| byte == b'\n').nth(1).unwrap_or_default();
            let value = value.strip_suffix(b"\r\n").unwrap_or(value);
            return Some(value)
                .filter(|it| !is_free_in_queue(it, now_ms))
                .and_then(|it| token_behind_time(it).map_or_else(|| tag(it), |token| tag(&token)))
                .into_iter()
                .collect();
        }
        let ends = [&b"redbolt:until:"[..], key].concat();
        let is_hash = self.observe(&[b"TYPE", key], now) == b"+hash\r\n";
        // Each permit ends at its own time, and another library's holders with the key.
        let fields = self.observe(&[b"HKEYS", key], now);
        if is_hash && !bulks(fields).any(|field| field == b"redbolt") {
            return bulks(fields).filter_map(tag).collect();
        }
        let key = if is_hash { &ends } else { key };
        let reply = self.observe(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"], now);
        let words: Vec<_> = bulks(reply).collect();
        let lives = |ends: &[u8]| decimal(ends).is_some_and(|ends| ends > now_ms);
        words.chunks_exact(2).filter(|it| lives(it[1])).filter_map(|it| tag(it[0])).collect()
    }
}

impl Node {
    /// Returns true if a token has this permit and has not expired.
    pub(crate) fn has_permit(&mut self, key: &[u8], slot: u16, of: u128, now: Time) -> bool {
        let reply = self.observe(&[b"HGET", key, slot.to_string().as_bytes()], now);
        let has_it = bulks(reply).filter_map(tag).any(|tag| tag == of);
        has_it && self.owners(key, now).contains(&of)
    }
}

/// Returns the replication ID after this many promotions. It is meaningful only together with the
/// run.
fn history(promotions: usize) -> String {
    format!("{promotions:040}")
}

/// The way in which a key is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Not,
    Alone,
    Shared,
}

/// Returns the time that the owner of a ticket has to take its turn, from the ticket's name.
pub(crate) fn grace_ms(ticket: &[u8]) -> u64 {
    ticket.split(|&byte| byte == b':').nth(1).and_then(decimal).unwrap_or_default()
}

/// Returns the bulk strings of a reply, which hold no line breaks here.
fn bulks(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines =
        reply.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut is_next = false;
    lines.filter(move |line| {
        let is_bulk = is_next;
        is_next = !is_bulk && line.starts_with(b"$");
        is_bulk
    })
}

/// Returns true if a string belongs to no holder that has not expired.
fn is_free_in_queue(value: &[u8], now_ms: u64) -> bool {
    let mark = value.iter().position(|&byte| byte == b'\n').map(|at| &value[at + 1..]);
    mark.is_some_and(|mark| decimal(mark).is_none_or(|ends| ends <= now_ms))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the first half of a token, which identifies its attempt.
#[inline]
pub(crate) fn tag(token: &[u8]) -> Option<u128> {
    let marks: [&[u8]; 3] = [b"r:", b"s:", b"w:"];
    let token = marks.iter().find_map(|mark| token.strip_prefix(*mark)).unwrap_or(token);
    token.get(..16)?.try_into().ok().map(u128::from_le_bytes)
}

pub(crate) const EPOCH_US: u64 = 1_700_000_000_000_000;
pub(crate) const PASSWORD: &str = "open-sesame-4711";
pub(crate) const DATABASE: u32 = 3;
const DATABASE_TEXT: &[u8] = b"3";

/// The run ids of each server's processes.
const RUNS: [[&str; 6]; 5] = [
    [
        "00000000000000000000000000000000000000a0",
        "00000000000000000000000000000000000000a1",
        "00000000000000000000000000000000000000a2",
        "00000000000000000000000000000000000000a3",
        "00000000000000000000000000000000000000a4",
        "00000000000000000000000000000000000000a5",
    ],
    [
        "00000000000000000000000000000000000000b0",
        "00000000000000000000000000000000000000b1",
        "00000000000000000000000000000000000000b2",
        "00000000000000000000000000000000000000b3",
        "00000000000000000000000000000000000000b4",
        "00000000000000000000000000000000000000b5",
    ],
    [
        "00000000000000000000000000000000000000c0",
        "00000000000000000000000000000000000000c1",
        "00000000000000000000000000000000000000c2",
        "00000000000000000000000000000000000000c3",
        "00000000000000000000000000000000000000c4",
        "00000000000000000000000000000000000000c5",
    ],
    [
        "00000000000000000000000000000000000000d0",
        "00000000000000000000000000000000000000d1",
        "00000000000000000000000000000000000000d2",
        "00000000000000000000000000000000000000d3",
        "00000000000000000000000000000000000000d4",
        "00000000000000000000000000000000000000d5",
    ],
    [
        "00000000000000000000000000000000000000e0",
        "00000000000000000000000000000000000000e1",
        "00000000000000000000000000000000000000e2",
        "00000000000000000000000000000000000000e3",
        "00000000000000000000000000000000000000e4",
        "00000000000000000000000000000000000000e5",
    ],
];

/// The sets of commands that an operator may take away.
const DENIALS: [&[&str]; 6] =
    [&["eval", "evalsha"], &["eval"], &["evalsha"], &["set"], &["del"], &["delex", "delifeq"]];
