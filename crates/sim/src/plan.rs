//! A schedule as data: jobs, nodes, network and faults. It is drawn from a seed, so that it can be
//! repeated, and consists of elements that can be left out, so that it can shrink.

use std::fmt;
use std::str::FromStr;

use redbolt::proto::{Profile, WakeStrategy};

use crate::fault::{Fault, What};
use crate::world::queue::Time;

/// A class of schedules: the faults that occur, and the expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Everything that the algorithm and the restart guard must survive: no violation at all.
    Safe,
    /// The clocks of a voting quorum step forward. Exclusion fails; fencing contains it.
    ClockStep,
    /// Nodes lose their memory with the restart guard off. Exclusion fails.
    MemoryLossUnguarded,
    /// Many jobs wait for one resource, and few faults occur except lost notifications: no job
    /// sleeps for long while its resource is free.
    Waiting,
    /// As [`Class::Safe`], and many of the jobs share their resource with others.
    Shared,
    /// As [`Class::Safe`], and many of the jobs want one of their resource's permits, some share
    /// it, and others want it exclusively.
    Permits,
    /// As [`Class::Safe`], and many of the jobs lock as members of other libraries do.
    Profiles,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 7] = [
        Self::Safe,
        Self::ClockStep,
        Self::MemoryLossUnguarded,
        Self::Waiting,
        Self::Shared,
        Self::Permits,
        Self::Profiles,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::ClockStep => "clock-step",
            Self::MemoryLossUnguarded => "memory-loss-unguarded",
            Self::Waiting => "waiting",
            Self::Shared => "shared",
            Self::Permits => "permits",
            Self::Profiles => "profiles",
        }
    }

    /// Returns true if any fault that the promises allow may happen, and no promise may break.
    #[must_use]
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Safe | Self::Shared | Self::Permits | Self::Profiles)
    }

    /// Returns true if exclusion must break now and then; if it never does, the checker is blind.
    #[must_use]
    pub fn breaks_exclusion(self) -> bool {
        matches!(self, Self::ClockStep | Self::MemoryLossUnguarded)
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let class = Self::ALL.into_iter().find(|class| class.name() == name);
        class.ok_or_else(|| format!("no such class: {name}"))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) class: Class,
    /// The source of everything that is not part of the plan, such as each delay.
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) keys: usize,
    pub(crate) setup: Setup,
    pub(crate) net: Net,
    pub(crate) clients: Vec<ClientPlan>,
    /// Each node's clock: microseconds ahead, and parts per million too fast.
    pub(crate) node_clocks: [(i64, i64); MAX_NODES],
    /// The nodes whose clocks are wild, as a bit set.
    pub(crate) wild: u8,
    /// The fencing counter that each node has from before; 0: none.
    pub(crate) counters: [u64; MAX_NODES],
    pub(crate) jobs: Vec<Job>,
    /// The members of other libraries.
    pub(crate) members: Vec<Member>,
    pub(crate) faults: Vec<Fault>,
    /// All other faults have ended by then.
    pub(crate) heal_at: Time,
    /// The maximum sleep of a waiter while its resource is free, in the class `Waiting`.
    pub(crate) longest_sleep: Time,
}

/// The configuration of all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) max_ttl_ms: u64,
    /// The `max_ttl` of clients with other limits.
    pub(crate) other_ttl_ms: u64,
    pub(crate) restart_guard: bool,
    pub(crate) start: Start,
    /// Nodes sync every write, so that their restart guards survive restarts.
    pub(crate) durable: bool,
    /// The nodes need a password, and the locks are in another database.
    pub(crate) proven: bool,
    /// Tokens carry a label.
    pub(crate) labelled: bool,
    /// The wake strategy.
    pub(crate) wake: WakeStrategy,
    /// The response timeout.
    pub(crate) answer_ms: u64,
    /// The commands for compare-and-delete that each server has.
    pub(crate) natives: [Natives; MAX_NODES],
}

/// The commands that a server has in addition to those of Redis 7.0.
pub(crate) type Natives = &'static [&'static str];

/// The nodes' restart guards at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The nodes were set up long ago.
    Ready,
    /// The nodes are new, and the clients know it.
    New,
    /// The nodes are new, and the first client enrols them.
    Bare,
    /// An operator changes the limits of nodes that were set up long ago.
    Changed,
}

/// The network without faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Net {
    /// The one-way delay.
    pub(crate) delay: Time,
    pub(crate) jitter: Time,
    /// F1: the number of writes in a thousand that take up to `tail` longer.
    pub(crate) tail_per_mille: u64,
    pub(crate) tail: Time,
    /// F2: the number of writes in a thousand that are retransmitted after a while.
    pub(crate) loss_per_mille: u64,
    /// F3: the maximum number of pieces into which a write is cut.
    pub(crate) pieces: usize,
    /// F3: the maximum number of bytes that a read returns.
    pub(crate) read: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPlan {
    /// Parts per million by which its clocks are too fast.
    pub(crate) ppm: i64,
    /// Microseconds by which its wall clock is ahead.
    pub(crate) wall_ahead: i64,
    /// The delay of its timers.
    pub(crate) late: Time,
    /// The extra one-way delay of its messages.
    pub(crate) far: Time,
    /// The time from which this delay applies.
    pub(crate) far_from: Time,
}

/// One acquisition, and what its holder does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) at: Time,
    pub(crate) client: u8,
    /// The resources, as a bit set.
    pub(crate) keys: u8,
    /// The TTL, different for each job of a schedule: it identifies the job in requests.
    pub(crate) ttl_ms: u64,
    pub(crate) kind: Kind,
    /// The wait timeout; zero: one attempt.
    pub(crate) patience: Time,
    pub(crate) work: Time,
    pub(crate) fenced: bool,
    pub(crate) shared: bool,
    /// The number of permits of which the job wants one; 0: none.
    pub(crate) permits: u16,
    /// The format of its lock.
    pub(crate) profile: Profile,
    /// The times after its grant at which it changes its mode; zero: never.
    pub(crate) changes: [Time; 2],
    /// While the job works, its lock moves to another process, or is detached for a while.
    pub(crate) hand_on: Option<HandOn>,
}

/// A lock is detached from one client and attached to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOn {
    /// The time from its grant until it is detached.
    pub(crate) after: Time,
    /// The time for which it stays detached.
    pub(crate) gap: Time,
    /// The client that attaches it.
    pub(crate) to: u8,
}

impl Job {
    /// Returns the latest time at which it ends, without faults.
    pub(crate) fn end(&self) -> Time {
        let fades = if self.kind == Kind::Fade { self.ttl_ms * MS } else { 0 };
        self.at + self.patience + self.work + fades
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Acquires, works, releases.
    Hold,
    /// Extends at a third of the TTL, as long as the work lasts.
    AutoExtend,
    /// Never releases.
    Forget,
    /// Extends once, at the end of the work, and never releases.
    Fade,
    /// Releases at some time, with or without the lock.
    Cancel { after: Time },
    /// Acquires as soon as the job before it has released, works, releases.
    Again,
    /// Comes after all faults have ended.
    Probe,
}

impl Kind {
    /// Returns true if the holder works for a while and then ends by itself.
    pub(crate) fn works(self) -> bool {
        matches!(self, Self::Hold | Self::AutoExtend | Self::Forget | Self::Fade)
    }
}

/// A member of another library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) at: Time,
    /// Microseconds by which its clock is ahead.
    pub(crate) ahead: i64,
    pub(crate) format: Format,
    /// The timeout of its lock, in seconds.
    pub(crate) timeout: u64,
    /// The time for which it tries.
    pub(crate) patience: Time,
    pub(crate) work: Time,
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A whole second.
    Setnx,
    /// A second with a fraction, as redis-objects up to 1.4.0 writes it.
    Timed,
    /// An empty string with a TTL, as later versions of redis-objects write it.
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Releases,
    /// Its value stays.
    Dies,
    /// It has died before, and left this second.
    Left(u64),
}

impl Member {
    /// Returns the latest time at which it ends.
    pub(crate) fn end(&self) -> Time {
        self.at + self.patience + self.work
    }
}

pub(crate) const MAX_NODES: usize = 5;
/// Command links first, then push links.
pub(crate) const MAX_LINKS: usize = 2 * MAX_NODES;
pub(crate) const KEYS: [&[u8]; 3] = [b"lock:job", b"lock:other", b"lock:third"];

pub(crate) const US: Time = 1_000;
pub(crate) const MS: Time = 1_000_000;

impl Setup {
    pub(crate) fn unguarded(max_ttl_ms: u64) -> Self {
        Self {
            max_ttl_ms,
            other_ttl_ms: max_ttl_ms,
            restart_guard: false,
            start: Start::Ready,
            durable: false,
            proven: false,
            labelled: false,
            wake: WakeStrategy::Lead,
            answer_ms: ANSWER_MS,
            natives: [NATIVES[0]; MAX_NODES],
        }
    }
}

impl Plan {
    pub(crate) fn empty(class: Class) -> Self {
        Self {
            class,
            seed: 0,
            nodes: 3,
            keys: 1,
            setup: Setup::unguarded(30_000),
            net: Net {
                delay: MS,
                jitter: 0,
                tail_per_mille: 0,
                tail: 0,
                loss_per_mille: 0,
                pieces: 1,
                read: usize::MAX,
            },
            clients: Vec::new(),
            node_clocks: [(0, 0); MAX_NODES],
            wild: 0,
            counters: [0; MAX_NODES],
            jobs: Vec::new(),
            members: Vec::new(),
            faults: Vec::new(),
            heal_at: 0,
            longest_sleep: 0,
        }
    }

    /// Returns true if nodes may lose their memory, because the restart guard covers it. It does
    /// not while the limits are changed (docs/use/restart-guard.md).
    pub(crate) fn may_forget(&self) -> bool {
        let is_changed = self.faults.iter().any(|it| it.what == What::Change);
        let is_covered = self.setup.restart_guard && self.setup.start != Start::New;
        is_covered && !is_changed && !self.setup.durable
    }

    pub(crate) fn can_fence(&self) -> bool {
        self.setup.restart_guard && self.setup.max_ttl_ms >= 11_000
    }

    /// Leaves out the elements of `cut`.
    #[must_use]
    pub fn without(mut self, cut: &Cut) -> Self {
        let keep = |list: &[u16], at: usize| !list.contains(&(at as u16));
        let mut at = 0..;
        self.faults.retain(|_| keep(&cut.faults, at.next().unwrap_or_default()));
        let mut at = 0..;
        self.jobs.retain(|job| {
            let at = at.next().unwrap_or_default();
            let client = keep(&cut.clients, job.client.into());
            // The final checks need the newcomers.
            keep(&cut.jobs, at) && (client || job.kind == Kind::Probe)
        });
        let mut at = 0..;
        self.members.retain(|_| keep(&cut.members, at.next().unwrap_or_default()));
        if let Some(nodes) = cut.nodes {
            self.nodes = nodes.min(self.nodes);
        }
        if cut.calm {
            let delay = self.net.delay;
            self.net = Self::empty(self.class).net;
            self.net.delay = delay;
        }
        self
    }

    pub(crate) fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }
}

impl fmt::Display for Plan {
    /// Writes one line for each element, under the name by which it can be left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} nodes, {} keys, {:?}, {:?}", self.nodes, self.keys, self.setup, self.net)?;
        writeln!(f, "node clocks {:?}", &self.node_clocks[..self.nodes])?;
        for (at, client) in self.clients.iter().enumerate() {
            writeln!(f, "c{at} {client:?}")?;
        }
        for (at, job) in self.jobs.iter().enumerate() {
            writeln!(f, "j{at} {job:?}")?;
        }
        for (at, member) in self.members.iter().enumerate() {
            writeln!(f, "m{at} {member:?}")?;
        }
        for (at, fault) in self.faults.iter().enumerate() {
            writeln!(f, "f{at} {fault:?}")?;
        }
        write!(f, "healed at {} ms", self.heal_at / MS)
    }
}

/// The elements to leave out of a schedule: `f0,f3,j1,c2,m0`, `n3` for three nodes, `calm` for a
/// quiet network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub(crate) faults: Vec<u16>,
    pub(crate) jobs: Vec<u16>,
    pub(crate) members: Vec<u16>,
    pub(crate) clients: Vec<u16>,
    pub(crate) nodes: Option<usize>,
    pub(crate) calm: bool,
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cut = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            if part == "calm" {
                cut.calm = true;
                continue;
            }
            let bad = || format!("not a part of a schedule: {part}");
            let (kind, number) = part.split_at_checked(1).ok_or_else(bad)?;
            let number: u16 = number.parse().map_err(|_| bad())?;
            match kind {
                "f" => cut.faults.push(number),
                "j" => cut.jobs.push(number),
                "c" => cut.clients.push(number),
                "m" => cut.members.push(number),
                "n" if matches!(number, 1 | 3 | 5) => cut.nodes = Some(number.into()),
                _ => return Err(bad()),
            }
        }
        Ok(cut)
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        let lists =
            [("c", &self.clients), ("j", &self.jobs), ("m", &self.members), ("f", &self.faults)];
        for (kind, list) in lists {
            parts.extend(list.iter().map(|number| format!("{kind}{number}")));
        }
        parts.extend(self.nodes.map(|nodes| format!("n{nodes}")));
        parts.extend(self.calm.then(|| "calm".to_owned()));
        f.write_str(&parts.join(","))
    }
}

/// The maximum number of permits of a resource.
pub(crate) const MAX_PERMITS: usize = 4;

/// The number of lanes: fencing tokens are compared by resource, and those of permits by resource
/// and slot.
pub(crate) const LANES: usize = KEYS.len() * (1 + MAX_PERMITS);

/// The native commands of Redis 7.0, Redis 8.4, Valkey 9.0 and Valkey 9.2.
pub(crate) const NATIVES: [Natives; 4] = [&[], &["delex"], &["delifeq"], &["delex", "delifeq"]];

/// The default response timeout: short, so that faults outlast it.
pub(crate) const ANSWER_MS: u64 = 50;
