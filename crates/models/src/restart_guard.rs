//! A model of the restart guard: nodes that lose their memory, a holder and a rival.
//!
//! Time passes in ticks; a lease and the key behind it begin anywhere between two ticks and end on
//! one. Commands of one connection run in order, each at any later time or never; a late reply is
//! modelled as a command that runs late. A node may be enrolled at any moment, which covers every
//! client and every delay: the script decides on what it finds when it runs. Which values are
//! expected and what a TTL means is decided by the library's own code, see [`Decisions`].
//!
//! The violation is two holders at once. The model leaves out drift and steps of clocks (except for
//! uptime), other databases and limits, and how the client learns the state of a node.

use std::fmt;

use redbolt::proto::RestartTrust;
use redbolt::proto::restart_guard::{BIG_MS, Expected, Found, Standing};

use crate::search::Model;

/// The rules for checking grants, and the faults.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// The TTL of all locks, which is the largest TTL allowed.
    pub ttl: u8,
    /// How a grant is checked.
    pub check: Check,
    /// How a node is enrolled.
    pub enrolment: Enrolment,
    /// Whether the client extends once, and the nodes that count for it.
    pub extend: Option<Extend>,
    /// How far a restart guard is trusted.
    pub restart_trust: RestartTrust,
    /// True: the guard's value names the history of the node's data.
    pub names_history: bool,
    /// The number of attempts of the rival.
    pub attempts: u8,
    /// The faults of the nodes.
    pub faults: Faults,
    /// True: leaves out what can only make less happen, see [`Model::thin`].
    pub lean: bool,
}

/// The commands of a request, and what they have to return for a grant to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No check.
    None,
    /// The server's uptime, read behind the SET.
    Uptime,
    /// The restart guard's value and TTL, read when the connection opened.
    Handshake,
    /// The value when the connection opened, the TTL before the SET.
    TtlBefore,
    /// The value when the connection opened, the TTL behind the SET: the rule.
    TtlBehind,
    /// The TTL behind the SET, and never the value.
    TtlAlone,
    /// The TTL before the SET, the value behind it.
    TtlBeforeValueBehind,
    /// The TTL behind the SET, and the value behind that.
    BothBehind,
    /// The rule, with a check before the SET that the node was not a replica since the connection
    /// opened.
    HistoryBefore,
    /// The rule, with that check behind the SET and the TTL: what the library does unless the check
    /// was passed a moment ago.
    HistoryBehind,
}

/// How a node without this client's restart guard gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enrolment {
    /// By one command, with a quarantine of the largest TTL: the rule.
    Quarantined,
    /// By one command, with a quarantine that is a tick too short.
    Short,
    /// By two commands, first the value and then the quarantine.
    ValueFirst,
    /// A missing restart guard means a new node, which needs no quarantine.
    MissingIsNew,
    /// As `MissingIsNew`, only for servers that have been up for longer than any lock lives.
    MissingIsNewIfOld,
    /// The rule, but the nodes are new and a declaration of this is still in flight.
    Init,
}

/// The nodes that count for an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Those whose grant counted: the rule.
    WhereGranted,
    /// All that have the key.
    WhereOurs,
}

/// The number of times that each fault may happen, to any of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A restart that loses the memory.
    pub lost: u8,
    /// A restart that keeps the memory.
    pub kept: u8,
    /// A restart with the memory of the last save.
    pub stale: u8,
    /// Further saves; the first was at the beginning.
    pub saves: u8,
    /// FLUSHALL.
    pub flushes: u8,
    /// The clock of a server that has just started is set forward.
    pub steps: u8,
    /// A client loses a connection whose commands may still run.
    pub cuts: u8,
    /// The node becomes a replica of a node of another set, which votes there, and is promoted
    /// again.
    pub follows: u8,
    /// The node becomes a replica of its replica, which has the memory of the last save, and is
    /// promoted again.
    pub returns: u8,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self {
        lost: 0,
        kept: 0,
        stale: 0,
        saves: 0,
        flushes: 0,
        steps: 0,
        cuts: 0,
        follows: 0,
        returns: 0,
    };
}

impl Guarded {
    /// The rules of the library, without faults.
    pub const RULES: Self = Self {
        ttl: 2,
        check: Check::TtlBehind,
        enrolment: Enrolment::Quarantined,
        extend: None,
        restart_trust: RestartTrust::Strict,
        names_history: true,
        attempts: 1,
        faults: Faults::NONE,
        lean: true,
    };
}

/// The library's decisions about every state of a restart guard in this model.
#[derive(Clone, Copy, Debug)]
pub struct Decisions {
    /// By [`Value`]: the client expects this value.
    ours: [bool; 4],
    /// By [`Value`]: the node has to be enrolled.
    enrols: [bool; 4],
    /// By ticks of quarantine left: the node votes.
    votes: [bool; 8],
    /// True if a node without a restart guard votes.
    votes_if_missing: bool,
}

impl Decisions {
    /// Computes the decisions with the library's code.
    #[must_use]
    pub fn new(restart_trust: RestartTrust, names_history: bool) -> Self {
        let of = |run_id, replication_id| Expected {
            run_id: Some(run_id),
            replication_id: Some(replication_id).filter(|_| names_history),
            max_ttl_ms: 2_000,
            nodes: 3,
            database: 0,
            restart_trust,
        };
        let present = of([b'1'; 40], [b'1'; 40]);
        let [past_value, copied_value, present_value] =
            [of([b'0'; 40], [b'0'; 40]), of([b'1'; 40], [b'0'; 40]), present]
                .map(|expected| expected.value());
        let found = |value: Value| match value {
            Value::Missing => present.judge(None),
            Value::Past => present.judge(Some(&past_value)),
            Value::Copied => present.judge(Some(&copied_value)),
            Value::Present => present.judge(Some(&present_value)),
        };
        let values = [Value::Missing, Value::Past, Value::Copied, Value::Present];
        let votes = |pttl| Standing::of(pttl) == Standing::Votes;
        let big = i64::try_from(BIG_MS).expect("four years in ms are few");
        Self {
            ours: values.map(|value| found(value) == Found::Ours),
            enrols: values.map(|value| found(value).calls_for_enrolment()),
            votes: std::array::from_fn(|ticks| votes(big + 1000 * ticks as i64)),
            votes_if_missing: votes(-2),
        }
    }
}

impl Decisions {
    /// Returns true if a grant counts when the handshake found `value` and the check behind the SET
    /// found no guard (`None`) or one with `quarantine` ticks left.
    #[must_use]
    pub fn counts(&self, value: Value, quarantine: Option<u8>) -> bool {
        let votes = quarantine.map_or(self.votes_if_missing, |left| self.votes[usize::from(left)]);
        self.ours[value as usize] && votes
    }

    /// Returns true if a node with this value is enrolled.
    #[must_use]
    pub fn enrols(&self, value: Value) -> bool {
        self.enrols[value as usize]
    }
}

/// A model of `N` nodes, with the library's decisions at hand.
#[derive(Debug)]
pub struct RestartGuards<const N: usize> {
    rules: Guarded,
    decisions: Decisions,
}

impl<const N: usize> RestartGuards<N> {
    /// Computes the library's decisions once.
    #[must_use]
    pub fn new(rules: Guarded) -> Self {
        let decisions = Decisions::new(rules.restart_trust, rules.names_history);
        Self { rules, decisions }
    }
}

/// The nodes with the messages in flight, the two clients, and the faults that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize> {
    nodes: [Node; N],
    clients: [Client; 2],
    faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node {
    memory: Memory,
    saved: Memory,
    /// The second command of an enrolment by two is in flight, or the declaration that the node is
    /// new.
    half: bool,
    /// The ticks since the server started by its own clock, at most `OLD`.
    uptime: u8,
    calls: [Call; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Memory {
    value: Value,
    /// The ticks of quarantine left.
    quarantine: u8,
    /// The client that has the key, and the ticks left.
    owner: Owner,
    ttl: u8,
}

/// The possible values of a restart guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// There is no restart guard.
    Missing,
    /// The value of an earlier run of the server, or of another server.
    Past,
    /// A value of the current run but of other data: a replica has kept it meanwhile.
    Copied,
    /// The value of the current run and data.
    Present,
}

/// A client, or none.
type Owner = Option<bool>;

/// The messages between a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The handshake on this connection found the restart guard as expected.
    handshake_done: bool,
    /// The node was a replica since then.
    has_followed: bool,
    ask: Asked,
    extend: Extension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Asked {
    Idle,
    /// This many of its commands have run.
    Ran(u8),
    /// The request is in a connection that the client has lost.
    Ghost,
    /// The grant counts.
    Counts,
    /// The grant does not count.
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Extension {
    None,
    UnderWay,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    /// The attempts that it may still begin.
    attempts: u8,
    /// The ticks left of the lease that it has or requests; 0 without an attempt.
    left: u8,
    /// The ticks left of what its extension requests.
    extends: u8,
    extensions: u8,
}

/// The uptime at which every lock from before the start has expired; larger ones make no
/// difference.
const OLD: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Set,
    Ttl,
    Value,
    Uptime,
    History,
}

/// One event. The holder is A, the rival B, the nodes are `n0`, `n1` …
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Begins { by: usize },
    Handshakes { by: usize, node: usize },
    Runs { by: usize, node: usize, what: &'static str },
    Undone { by: usize, node: usize },
    Extends { by: usize },
    ExtendRuns { by: usize, node: usize },
    ExtendCounts { by: usize },
    Enrolled { node: usize },
    SecondHalf { node: usize },
    Init { node: usize },
    Fault { node: usize, what: &'static str },
    Cut { by: usize, node: usize },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Begins { by } => write!(f, "{} asks all nodes", name(by)),
            Self::Handshakes { by, node } => {
                write!(f, "{} finds the restart guard of n{node} good", name(by))
            }
            Self::Runs { by, node, what } => write!(f, "on n{node} {}'s {what}", name(by)),
            Self::Undone { by, node } => write!(f, "{} is undone on n{node}", name(by)),
            Self::Extends { by } => write!(f, "{} extends", name(by)),
            Self::ExtendRuns { by, node } => write!(f, "n{node} extends for {}", name(by)),
            Self::ExtendCounts { by } => write!(f, "{} is extended", name(by)),
            Self::Enrolled { node } => write!(f, "n{node} is enrolled"),
            Self::SecondHalf { node } => write!(f, "the quarantine of n{node} is set"),
            Self::Init { node } => write!(f, "n{node} is told that it is new"),
            Self::Fault { node, what } => write!(f, "n{node} {what}"),
            Self::Cut { by, node } => write!(f, "{} loses its connection to n{node}", name(by)),
        }
    }
}

impl<const N: usize> Model for RestartGuards<N> {
    type State = State<N>;
    type Step = Step;

    fn begins(&self) -> Vec<State<N>> {
        let init = self.rules.enrolment == Enrolment::Init;
        let value = if init { Value::Missing } else { Value::Present };
        let memory = Memory { value, ..Memory::EMPTY };
        let call = Call::new(Asked::Idle, Extension::None);
        let calls = [call; 2];
        let node = Node { memory, saved: memory, half: init, uptime: OLD, calls };
        let extensions = u8::from(self.rules.extend.is_some());
        let holder = Client { attempts: 1, left: 0, extends: 0, extensions };
        let rival = Client { attempts: self.rules.attempts, extensions: 0, ..holder };
        vec![State { nodes: [node; N], clients: [holder, rival], faults: self.rules.faults }]
    }

    fn steps(&self, state: &State<N>, found: &mut impl FnMut(Step, State<N>)) {
        found(Step::Tick, self.tick(state));
        for by in 0..2 {
            self.client_steps(state, by, found);
            for node in 0..N {
                self.command_steps(state, by, node, found);
                self.call_steps(state, by, node, found);
            }
        }
        for node in 0..N {
            self.enrol_steps(state, node, found);
            self.fault_steps(state, node, found);
        }
    }

    fn wrong(&self, state: &State<N>) -> Option<&'static str> {
        (state.holds(0) && state.holds(1)).then_some("two holders at once")
    }

    /// Removes what makes no difference. It hides no second holder:
    ///
    /// - a refused command might as well not have run yet;
    /// - a connection might have read the restart guard at any moment when it was as expected;
    /// - the earlier a node is enrolled, the earlier it votes again;
    /// - a key that does not count can only prevent grants while it stays, so it may be removed,
    ///   and so may everything of an attempt that has ended.
    fn thin(&self, state: &State<N>) -> State<N> {
        let mut state = *state;
        for by in 0..2 {
            if state.clients[by].left == 0 {
                state.end_attempt(by);
            }
        }
        if self.rules.lean {
            for node in 0..N {
                if self.is_better_early() {
                    self.enrol(&mut state, node);
                }
                for by in 0..2 {
                    self.thin_call(&mut state, by, node);
                }
            }
        }
        state
    }

    /// Merges states that differ in the names of nodes, and of clients if both do the same.
    fn canonical(&self, state: &State<N>) -> State<N> {
        let mut state = *state;
        state.nodes.sort_unstable();
        if self.rules.extend.is_some() || self.rules.attempts > 1 {
            return state;
        }
        state.min(state.swapped())
    }
}

impl<const N: usize> RestartGuards<N> {
    fn program(&self) -> &'static [Command] {
        use Command::{History, Set, Ttl, Uptime, Value};
        match self.rules.check {
            Check::None | Check::Handshake => &[Set],
            Check::Uptime => &[Set, Uptime],
            Check::TtlBefore => &[Ttl, Set],
            Check::TtlBehind | Check::TtlAlone => &[Set, Ttl],
            Check::TtlBeforeValueBehind => &[Ttl, Set, Value],
            Check::BothBehind => &[Set, Ttl, Value],
            Check::HistoryBefore => &[History, Set, Ttl],
            Check::HistoryBehind => &[Set, Ttl, History],
        }
    }

    /// Returns true if the values that a connection reads when it opens are as expected.
    fn handshakes(&self, memory: &Memory) -> bool {
        match self.rules.check {
            Check::None | Check::Uptime | Check::TtlAlone => true,
            Check::TtlBeforeValueBehind | Check::BothBehind => true,
            Check::Handshake => self.is_ours(memory) && self.votes(memory),
            Check::TtlBefore | Check::TtlBehind => self.is_ours(memory),
            Check::HistoryBefore | Check::HistoryBehind => self.is_ours(memory),
        }
    }

    fn is_ours(&self, memory: &Memory) -> bool {
        self.decisions.ours[memory.value as usize]
    }

    fn votes(&self, memory: &Memory) -> bool {
        match memory.value {
            Value::Missing => self.decisions.votes_if_missing,
            _ => self.decisions.votes[usize::from(memory.quarantine)],
        }
    }

    fn tick(&self, state: &State<N>) -> State<N> {
        let mut next = *state;
        for node in &mut next.nodes {
            node.memory.tick();
            node.saved.tick();
            node.uptime = OLD.min(node.uptime + 1);
        }
        for client in &mut next.clients {
            client.left = client.left.saturating_sub(1);
            client.extends = client.extends.saturating_sub(1);
        }
        next
    }

    fn client_steps(&self, state: &State<N>, by: usize, found: &mut impl FnMut(Step, State<N>)) {
        let client = state.clients[by];
        if client.left == 0 && client.attempts > 0 {
            let mut next = *state;
            next.clients[by].attempts -= 1;
            next.clients[by].left = self.rules.ttl;
            next.nodes.iter_mut().for_each(|node| node.calls[by].ask = Asked::Ran(0));
            found(Step::Begins { by }, next);
        }
        if state.holds(by) && client.extensions > 0 {
            let mut next = *state;
            next.clients[by].extensions -= 1;
            next.clients[by].extends = self.rules.ttl;
            next.nodes.iter_mut().for_each(|node| node.calls[by].extend = Extension::UnderWay);
            found(Step::Extends { by }, next);
        }
        // A node whose grant did not count may have lost a lock, so its key must not count for an
        // extension.
        let counts = |node: &&Node| {
            let call = node.calls[by];
            let granted = self.rules.extend == Some(Extend::WhereOurs) || call.ask == Asked::Counts;
            call.extend == Extension::Done && granted
        };
        if client.extends > client.left
            && client.left > 0
            && state.nodes.iter().filter(counts).count() >= State::<N>::QUORUM
        {
            let mut next = *state;
            next.clients[by].left = client.extends;
            next.clients[by].extends = 0;
            next.nodes.iter_mut().for_each(|node| node.calls[by].extend = Extension::None);
            found(Step::ExtendCounts { by }, next);
        }
    }

    /// Runs the next command of a request.
    fn command_steps(
        &self,
        state: &State<N>,
        by: usize,
        node: usize,
        found: &mut impl FnMut(Step, State<N>),
    ) {
        let Node { memory, uptime, calls, .. } = state.nodes[node];
        let program = self.program();
        let (command, then) = match calls[by].ask {
            Asked::Ran(ran) if usize::from(ran) + 1 == program.len() => {
                (program[usize::from(ran)], Asked::Counts)
            }
            Asked::Ran(ran) => (program[usize::from(ran)], Asked::Ran(ran + 1)),
            Asked::Ghost => (Command::Set, Asked::Out),
            _ => return,
        };
        let (what, good) = match command {
            Command::Set => ("SET", memory.owner.is_none()),
            Command::Ttl => ("PTTL", self.votes(&memory)),
            Command::Value => ("GET", self.is_ours(&memory)),
            Command::Uptime => ("INFO", uptime >= self.rules.ttl),
            Command::History => ("INFO replication", !calls[by].has_followed),
        };
        let mut next = *state;
        let call = &mut next.nodes[node].calls[by];
        call.ask = if good { then } else { Asked::Out };
        // A grant counts only if the handshake found the guard as expected.
        if call.ask == Asked::Counts && !call.handshake_done {
            call.ask = Asked::Out;
        }
        if good && command == Command::Set {
            next.nodes[node].memory.owner = Some(by == 1);
            next.nodes[node].memory.ttl = self.rules.ttl;
        }
        if good || !self.rules.lean {
            let what = if good { what } else { "ask is refused" };
            found(Step::Runs { by, node, what }, next);
        }
    }

    fn call_steps(
        &self,
        state: &State<N>,
        by: usize,
        node: usize,
        found: &mut impl FnMut(Step, State<N>),
    ) {
        let Node { memory, calls, .. } = state.nodes[node];
        let call = calls[by];
        let mut next = *state;
        let changed = &mut next.nodes[node];
        if matches!(call.ask, Asked::Idle | Asked::Ran(0))
            && (!call.handshake_done || call.has_followed)
            && self.handshakes(&memory)
        {
            changed.calls[by] = Call { handshake_done: true, has_followed: false, ..call };
            found(Step::Handshakes { by, node }, next);
        }
        let mut next = *state;
        let changed = &mut next.nodes[node];
        if call.ask == Asked::Out && memory.owner == Some(by == 1) {
            changed.memory.free();
            found(Step::Undone { by, node }, next);
        }
        let mut next = *state;
        let changed = &mut next.nodes[node];
        if call.extend == Extension::UnderWay {
            let ours = memory.owner == Some(by == 1);
            changed.calls[by].extend = if ours { Extension::Done } else { Extension::None };
            if ours {
                changed.memory.ttl = self.rules.ttl;
            }
            if ours || !self.rules.lean {
                found(Step::ExtendRuns { by, node }, next);
            }
        }
        if let Asked::Ran(ran) = call.ask
            && state.faults.cuts > 0
        {
            let mut next = *state;
            next.faults.cuts -= 1;
            // Commands in the lost connection may still run, but only a SET can do harm.
            let set = self.program()[usize::from(ran)..].contains(&Command::Set);
            let ask = if set { Asked::Ghost } else { Asked::Out };
            next.nodes[node].calls[by] = Call::new(ask, call.extend);
            found(Step::Cut { by, node }, next);
        }
    }

    fn enrol_steps(&self, state: &State<N>, node: usize, found: &mut impl FnMut(Step, State<N>)) {
        let Node { memory, half, .. } = state.nodes[node];
        if self.decisions.enrols[memory.value as usize] {
            let mut next = *state;
            self.enrol(&mut next, node);
            found(Step::Enrolled { node }, next);
        }
        if half {
            let mut next = *state;
            next.nodes[node].half = false;
            let init = self.rules.enrolment == Enrolment::Init;
            let memory = &mut next.nodes[node].memory;
            if init && matches!(memory.value, Value::Missing | Value::Present) {
                // The node was found without a restart guard, or with this client's guard,
                // quarantined by an earlier enrolment.
                (memory.value, memory.quarantine) = (Value::Present, 0);
            } else if !init && memory.value != Value::Missing {
                memory.quarantine = self.rules.ttl;
            }
            let step = if init { Step::Init { node } } else { Step::SecondHalf { node } };
            found(step, next);
        }
    }

    fn enrol(&self, state: &mut State<N>, node: usize) {
        let Node { memory, half, uptime, .. } = &mut state.nodes[node];
        if !self.decisions.enrols[memory.value as usize] {
            return;
        }
        let is_missing = memory.value == Value::Missing;
        let ttl = self.rules.ttl;
        memory.value = Value::Present;
        memory.quarantine = match self.rules.enrolment {
            Enrolment::MissingIsNew if is_missing => 0,
            Enrolment::MissingIsNewIfOld if is_missing && *uptime >= ttl => 0,
            Enrolment::ValueFirst => 0,
            Enrolment::Short => ttl - 1,
            _ => ttl,
        };
        *half |= self.rules.enrolment == Enrolment::ValueFirst;
    }

    /// Returns true if enrolling early loses no violation. It would if a guard from the past, a
    /// guard of other data, or the uptime lets the node vote.
    fn is_better_early(&self) -> bool {
        if self.rules.faults.follows + self.rules.faults.returns > 0 {
            return false;
        }
        let too_early = [Enrolment::ValueFirst, Enrolment::MissingIsNewIfOld, Enrolment::Init];
        self.rules.check != Check::TtlAlone && !too_early.contains(&self.rules.enrolment)
    }

    fn fault_steps(&self, state: &State<N>, node: usize, found: &mut impl FnMut(Step, State<N>)) {
        self.replica_steps(state, node, found);
        let Faults { lost, kept, stale, saves, flushes, steps, .. } = state.faults;
        let Node { memory, saved, uptime, .. } = state.nodes[node];
        if lost > 0 {
            let mut next = state.restarted(node, Memory::EMPTY);
            next.faults.lost -= 1;
            found(Step::Fault { node, what: "restarts without its memory" }, next);
        }
        if kept > 0 {
            let mut next = state.restarted(node, memory);
            next.faults.kept -= 1;
            found(Step::Fault { node, what: "restarts with its memory" }, next);
        }
        if stale > 0 {
            let mut next = state.restarted(node, saved);
            next.faults.stale -= 1;
            found(Step::Fault { node, what: "restarts with what it saved" }, next);
        }
        if saves > 0 && saved != memory {
            let mut next = *state;
            next.faults.saves -= 1;
            next.nodes[node].saved = memory;
            found(Step::Fault { node, what: "saves" }, next);
        }
        if flushes > 0 {
            let mut next = *state;
            next.faults.flushes -= 1;
            next.nodes[node].memory = Memory::EMPTY;
            found(Step::Fault { node, what: "is flushed" }, next);
        }
        if steps > 0 && uptime < OLD && memory.owner.is_none() {
            let mut next = *state;
            next.faults.steps -= 1;
            next.nodes[node].uptime = OLD;
            found(Step::Fault { node, what: "has its clock set forward" }, next);
        }
    }

    /// Replaces the memory and keeps the connections.
    fn replica_steps(&self, state: &State<N>, node: usize, found: &mut impl FnMut(Step, State<N>)) {
        let followed = |memory: Memory| {
            let mut next = *state;
            let it = &mut next.nodes[node];
            it.memory = memory;
            if it.memory.value == Value::Present {
                it.memory.value = Value::Copied;
            }
            // The connections stay open, so only a check of the history reveals it.
            it.calls.iter_mut().for_each(|call| call.has_followed = call.handshake_done);
            next
        };
        if state.faults.follows > 0 {
            let mut next = followed(Memory { value: Value::Past, ..Memory::EMPTY });
            next.faults.follows -= 1;
            found(Step::Fault { node, what: "was a replica of a stranger" }, next);
        }
        if state.faults.returns > 0 {
            let mut next = followed(state.nodes[node].saved);
            next.faults.returns -= 1;
            found(Step::Fault { node, what: "was a replica of its replica" }, next);
        }
    }

    fn thin_call(&self, state: &mut State<N>, by: usize, node: usize) {
        let handshakes = self.handshakes(&state.nodes[node].memory);
        let Node { memory, saved, calls, uptime, .. } = &mut state.nodes[node];
        let call = &mut calls[by];
        match call.ask {
            Asked::Idle | Asked::Ran(0) if handshakes => {
                (call.handshake_done, call.has_followed) = (true, false);
            }
            Asked::Idle | Asked::Ran(0) => {}
            Asked::Ran(_) => {}
            Asked::Ghost | Asked::Counts | Asked::Out => {
                (call.handshake_done, call.has_followed) = (false, false);
            }
        }
        if call.ask == Asked::Out
            && memory.owner == Some(by == 1)
            && self.rules.extend != Some(Extend::WhereOurs)
        {
            memory.free();
        }
        // The saved memory matters only if a fault can bring it back.
        if state.faults.stale + state.faults.returns == 0 {
            *saved = Memory::EMPTY;
        }
        let by_uptime = self.rules.check == Check::Uptime
            || self.rules.enrolment == Enrolment::MissingIsNewIfOld;
        if !by_uptime {
            *uptime = OLD;
        }
    }
}

impl<const N: usize> State<N> {
    const QUORUM: usize = N / 2 + 1;

    /// Returns the state with the names of the clients exchanged.
    fn swapped(&self) -> Self {
        let mut swapped = *self;
        swapped.clients.swap(0, 1);
        for node in &mut swapped.nodes {
            node.calls.swap(0, 1);
            for memory in [&mut node.memory, &mut node.saved] {
                memory.owner = memory.owner.map(|owner| !owner);
            }
        }
        swapped.nodes.sort_unstable();
        swapped
    }

    /// Returns true if a quorum counts and the lease has not expired.
    fn holds(&self, by: usize) -> bool {
        let counts = self.nodes.iter().filter(|node| node.calls[by].ask == Asked::Counts);
        self.clients[by].left > 0 && counts.count() >= Self::QUORUM
    }

    /// Ends an attempt. Its messages in flight are dropped, because they can only block other
    /// clients.
    fn end_attempt(&mut self, by: usize) {
        self.clients[by].extends = 0;
        if self.clients[by].attempts == 0 {
            self.clients[by].extensions = 0;
        }
        for node in &mut self.nodes {
            let call = &mut node.calls[by];
            call.extend = Extension::None;
            if call.ask != Asked::Idle {
                *call = Call::new(Asked::Idle, Extension::None);
            }
            if node.memory.owner == Some(by == 1) {
                node.memory.free();
            }
            if node.saved.owner == Some(by == 1) {
                node.saved.free();
            }
        }
    }

    /// Restarts a node. Its connections end with the process, and its restart guard becomes one of
    /// an earlier run.
    fn restarted(&self, node: usize, memory: Memory) -> Self {
        let mut next = *self;
        let Node { calls, half, uptime, memory: now, .. } = &mut next.nodes[node];
        *now = memory;
        // A restarted process has a new run ID, so the value no longer names it.
        if matches!(now.value, Value::Present | Value::Copied) {
            now.value = Value::Past;
        }
        (*half, *uptime) = (false, 0);
        for call in calls {
            (call.handshake_done, call.has_followed) = (false, false);
            // A request of which nothing has run may as well not have been sent.
            if matches!(call.ask, Asked::Ran(1..) | Asked::Ghost) {
                call.ask = Asked::Out;
            }
            if call.extend == Extension::UnderWay {
                call.extend = Extension::None;
            }
        }
        next
    }
}

impl Call {
    /// Returns a call on a connection that has read nothing yet.
    const fn new(ask: Asked, extend: Extension) -> Self {
        Self { handshake_done: false, has_followed: false, ask, extend }
    }
}

impl Memory {
    const EMPTY: Self = Self { value: Value::Missing, quarantine: 0, owner: None, ttl: 0 };

    fn tick(&mut self) {
        self.quarantine = self.quarantine.saturating_sub(1);
        self.ttl = self.ttl.saturating_sub(1);
        if self.ttl == 0 {
            self.owner = None;
        }
    }

    fn free(&mut self) {
        (self.owner, self.ttl) = (None, 0);
    }
}
