//! The read/write lock: readers beside each other, a writer beside nobody.
//!
//! Each node keeps entries: one claim of a writer, or any number of readers' claims, each with an end
//! of its own. A client has up to two claims. They are two attempts, one after the other, or the two
//! of an upgrade or a downgrade, which name each other and so do not stand in each other's way.
//!
//! Time passes in ticks, and everything that lives begins anywhere between two of them and ends on
//! one. Messages run at any time or never; an answer that is late or lost is one whose command ran
//! late or never. A node may lose its memory, and is then in quarantine: as early as it could be, since
//! a later quarantine votes later. A writer's first ask is two plain commands, the `SET NX` and the
//! look at the restart guard behind it; all others are scripts, which look at the guard themselves.
//!
//! What may not happen: a writer beside any other holder. Not here: tokens for fencing (see
//! `fencing.rs`), the queue, how the restart guard is enrolled (see `restart_guard.rs`), steps and drift of clocks, undos
//! that overtake asks (see `ghosts.rs`).

use std::fmt;

use crate::search::Model;

/// What the clients of a lock on `N` nodes want, what may happen, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite<const N: usize, const C: usize> {
    /// What each client does.
    pub plans: [Plan; C],
    /// The TTL of each client's claims, in ticks.
    pub ttls: [u8; C],
    /// The TTL of the extension that each client may ask for once; 0 for none.
    pub extensions: [u8; C],
    /// How often a node may lose its memory.
    pub losses: u8,
    /// The quarantine of a node that lost its memory, in ticks; the rule is the longest TTL.
    pub quarantine: u8,
    /// How many nodes a reader and a writer need.
    pub quorums: [usize; 2],
    /// How a writer's ask runs.
    pub write: WriteAsk,
    /// What the end of an entry does to the key that it shares with others.
    pub key_ttl: KeyTtl,
    /// What a release takes away.
    pub release: Release,
    /// Validity is counted from before the first byte; otherwise from the answer that decides.
    pub from_first_byte: bool,
    /// Which answers count for an extension.
    pub extend: Extend,
    /// How a reader becomes a writer.
    pub upgrade: Upgrade,
    /// How a writer becomes a reader.
    pub downgrade: Downgrade,
    /// Leaves out what can only make less happen: see [`Model::thin`].
    pub lean: bool,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One claim.
    Once(Mode),
    /// Two, one after the other.
    Twice(Mode, Mode),
    /// A reader that asks for the write lock beside its own.
    Upgrade,
    /// A writer that asks for the read lock beside its own.
    Downgrade,
}

/// Whether a claim bears others beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A reader.
    Shared,
    /// A writer.
    Exclusive,
}

/// How a writer's ask runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAsk {
    /// At once: the rule.
    SetIfFree,
    /// It looks, and a later command sets.
    LookThenSet,
}

/// What the key's own TTL is after an entry was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTtl {
    /// Up to the end of the last of its entries: the rule.
    Largest,
    /// Up to the end of the entry that was written last.
    Latest,
}

/// What a release takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The claim's own entry: the rule.
    Entry,
    /// The key, if the claim's entry is in it.
    Key,
}

/// Which answers count for an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Of nodes whose grant counts and that still have the entry: the rule.
    Counted,
    /// Of all nodes that have the entry.
    Present,
    /// As the rule, but it sets the entry where it is gone, whatever else is there.
    Revives,
    /// As the rule, but what holds for one claim of a client holds for its other one too.
    OfEither,
}

/// How a reader becomes a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// By a claim of its own that ignores the reader's, which it names: the rule.
    Claim,
    /// The claim ignores every reader.
    IgnoresReaders,
    /// The writer counts on the reader's validity too.
    LentValidity,
    /// Both claims have one token, so that the undo of one takes the other's entry.
    OneToken,
    /// The claim writes its end to the reader's entry as well, also to less.
    Shortens,
}

/// How a writer becomes a reader. The read ask ignores the writer's claim, which it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// A reader from the first byte on, and the writer's claim is released once a quorum of read
    /// asks counts: the rule.
    AtQuorum,
    /// A reader from the first byte on, and the writer's claim is released on each node behind the
    /// read ask. Until that has been answered, the node counts for as long as the writer's claim does.
    BehindEachAsk,
    /// The same, but a writer until a quorum of read asks counts.
    WhenConfirmed,
    /// The release may run before the read ask.
    ReleaseFirst,
}

impl<const N: usize, const C: usize> ReadWrite<N, C> {
    const QUORUM: usize = N / 2 + 1;

    /// The rules as they are meant, for clients who do all that at once with TTLs of 2 ticks.
    #[must_use]
    pub const fn rules(plans: [Plan; C]) -> Self {
        Self {
            plans,
            ttls: [2; C],
            extensions: [0; C],
            losses: 0,
            quarantine: 2,
            quorums: [Self::QUORUM; 2],
            write: WriteAsk::SetIfFree,
            key_ttl: KeyTtl::Largest,
            release: Release::Entry,
            from_first_byte: true,
            extend: Extend::Counted,
            upgrade: Upgrade::Claim,
            downgrade: Downgrade::AtQuorum,
            lean: true,
        }
    }
}

/// The nodes with what is under way, the clients, and the losses that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize, const C: usize> {
    nodes: [Node<C>; N],
    clients: [Client; C],
    losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node<const C: usize> {
    /// Ticks of quarantine left.
    quarantine: u8,
    /// What is between each claim and this node.
    calls: [[Call; 2]; C],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// Ticks left of the claim's entry; 0 if there is none.
    entry: u8,
    ask: Asked,
    extension: Extension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Asked {
    No,
    UnderWay,
    /// The first of two commands has run.
    Half,
    /// The claim counts on the node.
    Counts,
    /// It does not, and is being undone.
    Out,
    /// It has not run, and the claim is over.
    Ghost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Extension {
    No,
    UnderWay,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    claims: [Claim; 2],
    /// Whether it may still extend.
    extends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Claim {
    phase: Phase,
    /// Ticks left of its validity, once it is held.
    left: u8,
    /// Ticks left of what its extension asks for.
    extends: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    Active,
    Over,
}

/// A client's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of {
    client: usize,
    claim: usize,
}

/// One thing that happens. The clients are A, B, C, the nodes `n0`, `n1` …
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Asks { of: Of, mode: Mode },
    Runs { of: Of, node: usize, what: &'static str },
    Over { of: Of },
    Undone { of: Of, node: usize },
    Extends { of: Of },
    ExtendRuns { of: Of, node: usize },
    ExtendCounts { of: Of },
    Lost { node: usize },
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", char::from(b'A' + self.client as u8), self.claim + 1)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Asks { of, mode: Mode::Shared } => write!(f, "{of} asks all nodes to read"),
            Self::Asks { of, mode: Mode::Exclusive } => write!(f, "{of} asks all nodes to write"),
            Self::Runs { of, node, what } => write!(f, "on n{node} {of}'s {what}"),
            Self::Over { of } => write!(f, "{of} is released or given up"),
            Self::Undone { of, node } => write!(f, "{of} is undone on n{node}"),
            Self::Extends { of } => write!(f, "{of} extends"),
            Self::ExtendRuns { of, node } => write!(f, "n{node} extends for {of}"),
            Self::ExtendCounts { of } => write!(f, "{of} is extended"),
            Self::Lost { node } => write!(f, "n{node} loses its memory"),
        }
    }
}

impl<const N: usize, const C: usize> Model for ReadWrite<N, C> {
    type State = State<N, C>;
    type Step = Step;

    fn begins(&self) -> Vec<State<N, C>> {
        let nodes = [Node { quarantine: 0, calls: [[Call::NONE; 2]; C] }; N];
        let claim = Claim { phase: Phase::Idle, left: 0, extends: 0 };
        let client = |at: usize| Client { claims: [claim; 2], extends: self.extensions[at] > 0 };
        vec![State { nodes, clients: std::array::from_fn(client), losses: self.losses }]
    }

    fn steps(&self, state: &State<N, C>, found: &mut impl FnMut(Step, State<N, C>)) {
        found(Step::Tick, state.tick());
        for client in 0..C {
            for claim in 0..2 {
                let of = Of { client, claim };
                self.claim_steps(state, of, found);
                for node in 0..N {
                    self.ask_steps(state, of, node, found);
                    self.undo_steps(state, of, node, found);
                    self.extension_steps(state, of, node, found);
                }
            }
        }
        for node in (0..N).filter(|_| state.losses > 0) {
            let mut next = *state;
            next.losses -= 1;
            next.nodes[node].quarantine = self.quarantine;
            next.nodes[node].each_call(|call| call.entry = 0);
            found(Step::Lost { node }, next);
        }
    }

    fn wrong(&self, state: &State<N, C>) -> Option<&'static str> {
        let writes = |at: usize| self.role(state, at) == Some(Mode::Exclusive);
        let holds = |at: usize| self.role(state, at).is_some();
        let beside = |writer: usize| (0..C).any(|other| other != writer && holds(other));
        (0..C).any(|at| writes(at) && beside(at)).then_some("a writer beside another holder")
    }

    /// Takes out what is of no consequence. Nothing wrong is lost by it:
    ///
    /// - a claim without validity is over, and what is still under way for it can only be in others' way,
    ///   and so can its entries;
    /// - a command that is refused might as well not have run yet.
    fn thin(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = *state;
        for client in 0..C {
            for claim in 0..2 {
                let of = Of { client, claim };
                if state.claim(of).phase == Phase::Active && !self.is_alive(&state, of) {
                    self.end(&mut state, of);
                }
                if state.claim(of).extends == 0 {
                    state.each_call_of(of, |call| call.extension = Extension::No);
                }
            }
        }
        state
    }

    /// Nodes are alike, and so are clients that do the same.
    fn canonical(&self, state: &State<N, C>) -> State<N, C> {
        let orders = ORDERS.iter().filter(|order| self.are_alike(order));
        let renamed = orders.map(|order| {
            let mut renamed = *state;
            for (client, &new) in order.iter().enumerate().take(C) {
                renamed.clients[new] = state.clients[client];
                for (to, from) in renamed.nodes.iter_mut().zip(&state.nodes) {
                    to.calls[new] = from.calls[client];
                }
            }
            renamed.nodes.sort_unstable();
            renamed
        });
        renamed.min().unwrap_or(*state)
    }
}

/// The ways to name up to three clients.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl<const N: usize, const C: usize> ReadWrite<N, C> {
    /// Whether these names exchange only clients that do the same.
    fn are_alike(&self, order: &[usize; 3]) -> bool {
        let does = |at: usize| (self.plans[at], self.ttls[at], self.extensions[at]);
        let fits = |at: usize| order[at] < C && does(at) == does(order[at]);
        (0..C).all(fits) && (C..3).all(|at| order[at] == at)
    }

    /// What a claim is to be, if there is one.
    fn mode(&self, of: Of) -> Option<Mode> {
        let [first, second] = match self.plans[of.client] {
            Plan::Once(mode) => [Some(mode), None],
            Plan::Twice(first, second) => [Some(first), Some(second)],
            Plan::Upgrade => [Some(Mode::Shared), Some(Mode::Exclusive)],
            Plan::Downgrade => [Some(Mode::Exclusive), Some(Mode::Shared)],
        };
        [first, second][of.claim]
    }

    fn has_partner(&self, of: Of) -> bool {
        matches!(self.plans[of.client], Plan::Upgrade | Plan::Downgrade)
    }

    fn quorum(&self, mode: Mode) -> usize {
        self.quorums[usize::from(mode == Mode::Exclusive)]
    }

    /// What a client takes itself for.
    fn role(&self, state: &State<N, C>, client: usize) -> Option<Mode> {
        let claims = [0, 1].map(|claim| Of { client, claim });
        let held = claims.map(|of| self.is_held(state, of));
        let asked = state.claim(claims[1]).phase != Phase::Idle;
        let by_both = || self.is_held_by_both(state, client);
        self.takes_itself_for(client, held, asked, by_both)
    }

    /// The same of one that holds these of its claims, and has asked for the second one.
    pub fn takes_itself_for(
        &self,
        client: usize,
        held: [bool; 2],
        asked: bool,
        by_both: impl FnOnce() -> bool,
    ) -> Option<Mode> {
        let claims = [0, 1].map(|claim| Of { client, claim });
        match self.plans[client] {
            Plan::Downgrade => {
                let [writes, reads] = held;
                let has_changed = match self.downgrade {
                    Downgrade::WhenConfirmed => reads,
                    _ => asked,
                };
                if writes && !has_changed {
                    return Some(Mode::Exclusive);
                }
                (writes || reads || by_both()).then_some(Mode::Shared)
            }
            _ if held[1] => self.mode(claims[1]),
            _ if held[0] => self.mode(claims[0]),
            _ => None,
        }
    }

    fn is_held(&self, state: &State<N, C>, of: Of) -> bool {
        let Some(mode) = self.mode(of) else { return false };
        self.is_alive(state, of) && state.count(of) >= self.quorum(mode)
    }

    /// During a downgrade, a node counts by whichever of the two claims counts there.
    fn is_held_by_both(&self, state: &State<N, C>, client: usize) -> bool {
        let claims = [0, 1].map(|claim| Of { client, claim });
        let counts = |node: &&Node<C>| {
            let by = |of: Of| self.is_alive(state, of) && node.call(of).ask == Asked::Counts;
            claims.into_iter().any(by)
        };
        state.nodes.iter().filter(counts).count() >= self.quorum(Mode::Shared)
    }

    /// Whether a claim may be, or become, a valid one.
    fn is_alive(&self, state: &State<N, C>, of: Of) -> bool {
        let claim = state.claim(of);
        let is_lent = self.upgrade == Upgrade::LentValidity
            && self.plans[of.client] == Plan::Upgrade
            && of.claim == 1;
        let lent = if is_lent { state.claim(of.partner()).left } else { 0 };
        claim.phase == Phase::Active && claim.left.max(lent) > 0
    }

    fn claim_steps(&self, state: &State<N, C>, of: Of, found: &mut impl FnMut(Step, State<N, C>)) {
        let Some(mode) = self.mode(of) else { return };
        match state.claim(of).phase {
            Phase::Idle if self.may_begin(state, of) => {
                let mut next = *state;
                let claim = next.claim_mut(of);
                (claim.phase, claim.left) = (Phase::Active, self.ttls[of.client]);
                next.each_call_of(of, |call| call.ask = Asked::UnderWay);
                found(Step::Asks { of, mode }, next);
            }
            Phase::Active => {
                let mut next = *state;
                self.end(&mut next, of);
                found(Step::Over { of }, next);
                self.extend_steps(state, of, found);
            }
            Phase::Idle | Phase::Over => {}
        }
    }

    /// A second attempt when the first is over; a partner while the first claim is held.
    fn may_begin(&self, state: &State<N, C>, of: Of) -> bool {
        let first = Of { claim: 0, ..of };
        match of.claim {
            0 => true,
            _ if self.has_partner(of) => self.is_held(state, first),
            _ => state.claim(first).phase == Phase::Over,
        }
    }

    fn end(&self, state: &mut State<N, C>, of: Of) {
        *state.claim_mut(of) = Claim { phase: Phase::Over, left: 0, extends: 0 };
        if self.upgrade == Upgrade::OneToken && self.has_partner(of) && of.claim == 1 {
            state.each_call_of(of.partner(), |call| call.entry = 0);
        }
        let undone_later = self.release == Release::Key || !self.lean;
        state.each_call_of(of, |call| {
            call.extension = Extension::No;
            call.ask = match call.ask {
                Asked::UnderWay if !self.lean => Asked::Ghost,
                _ if undone_later && call.entry > 0 => Asked::Out,
                _ => Asked::No,
            };
            if call.ask != Asked::Out {
                call.entry = 0;
            }
        });
    }

    /// The next command of an ask runs, and does what it is for.
    fn ask_steps(
        &self,
        state: &State<N, C>,
        of: Of,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Some(mode) = self.mode(of) else { return };
        let node = &state.nodes[at];
        let votes = node.quarantine == 0;
        let is_plain = mode == Mode::Exclusive && !(self.has_partner(of) && of.claim == 1);
        let looks = is_plain && self.write == WriteAsk::LookThenSet;
        let free = self.is_free(node, of, mode);
        let (what, then, writes) = match node.call(of).ask {
            Asked::UnderWay if looks && free => ("look finds it free", Asked::Half, false),
            Asked::Half if looks && votes => ("SET", Asked::Counts, true),
            Asked::UnderWay if is_plain && !looks && free => ("SET NX", Asked::Half, true),
            Asked::Half if !looks && votes => ("look at the guard", Asked::Counts, false),
            Asked::UnderWay if !is_plain && free && votes => ("ask", Asked::Counts, true),
            Asked::Ghost if free && (is_plain || votes) => ("late ask", Asked::Out, true),
            _ => return,
        };
        let mut next = *state;
        next.nodes[at].call_mut(of).ask = then;
        if writes {
            if looks {
                next.nodes[at].each_call(|call| call.entry = 0);
            }
            self.write(&mut next.nodes[at], of, self.ttls[of.client]);
            let upgrades = self.plans[of.client] == Plan::Upgrade && of.claim == 1;
            if upgrades && self.upgrade == Upgrade::Shortens {
                let reader = next.nodes[at].call_mut(of.partner());
                reader.entry = reader.entry.min(self.ttls[of.client]);
            }
        }
        if then == Asked::Counts {
            self.counted(&mut next, of, at, mode);
        }
        found(Step::Runs { of, node: at, what }, next);
    }

    /// What follows when a node counts for a claim.
    fn counted(&self, state: &mut State<N, C>, of: Of, at: usize, mode: Mode) {
        let count = state.count(of);
        if !self.from_first_byte && count == self.quorum(mode) {
            state.claim_mut(of).left = self.ttls[of.client];
        }
        if self.plans[of.client] != Plan::Downgrade || of.claim != 1 {
            return;
        }
        let writer = of.partner();
        match self.downgrade {
            Downgrade::AtQuorum if count >= self.quorum(mode) => self.end(state, writer),
            Downgrade::BehindEachAsk => *state.nodes[at].call_mut(writer) = Call::NONE,
            // It takes itself for a writer here until it has heard.
            Downgrade::WhenConfirmed => state.nodes[at].call_mut(writer).entry = 0,
            Downgrade::AtQuorum | Downgrade::ReleaseFirst => {}
        }
    }

    /// Whether nobody else's entry stands in the way.
    fn is_free(&self, node: &Node<C>, of: Of, mode: Mode) -> bool {
        let ignores_readers = self.upgrade == Upgrade::IgnoresReaders
            && self.plans[of.client] == Plan::Upgrade
            && of.claim == 1;
        let mut others = (0..C).flat_map(|client| [0, 1].map(|claim| Of { client, claim }));
        !others.any(|other| {
            let is_shared = self.mode(other) == Some(Mode::Shared);
            let is_named = self.has_partner(of) && of.claim == 1 && other == of.partner();
            let agrees = is_shared && (mode == Mode::Shared || ignores_readers);
            node.call(other).entry > 0 && other != of && !is_named && !agrees
        })
    }

    /// An entry is never shortened by the command that writes it.
    fn write(&self, node: &mut Node<C>, of: Of, ticks: u8) {
        if self.key_ttl == KeyTtl::Latest {
            node.each_call(|call| call.entry = call.entry.min(ticks));
        }
        let call = node.call_mut(of);
        call.entry = call.entry.max(ticks);
    }

    fn undo_steps(
        &self,
        state: &State<N, C>,
        of: Of,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let call = state.nodes[at].call(of);
        let mut next = *state;
        if call.ask == Asked::Out {
            if self.release == Release::Key && call.entry > 0 {
                next.nodes[at].each_call(|call| call.entry = 0);
            }
            *next.nodes[at].call_mut(of) = Call::NONE;
            return found(Step::Undone { of, node: at }, next);
        }
        let has_asked = state.claim(of.partner()).phase == Phase::Active;
        let goes_first = self.downgrade == Downgrade::ReleaseFirst
            && self.plans[of.client] == Plan::Downgrade
            && of.claim == 0;
        if goes_first && has_asked && call.entry > 0 {
            next.nodes[at].call_mut(of).entry = 0;
            found(Step::Undone { of, node: at }, next);
        }
    }

    /// A client extends, and hears that it is extended.
    fn extend_steps(&self, state: &State<N, C>, of: Of, found: &mut impl FnMut(Step, State<N, C>)) {
        let Claim { left, extends, .. } = *state.claim(of);
        if state.clients[of.client].extends && self.is_held(state, of) {
            let mut next = *state;
            next.clients[of.client].extends = false;
            next.claim_mut(of).extends = self.extensions[of.client];
            next.each_call_of(of, |call| call.extension = Extension::UnderWay);
            found(Step::Extends { of }, next);
        }
        let counts = |node: &&Node<C>| {
            let call = node.call(of);
            let granted = call.ask == Asked::Counts || self.extend == Extend::Present;
            call.extension == Extension::Done && granted
        };
        let mode = self.mode(of).expect("a claim that extends has a mode");
        let count = state.nodes.iter().filter(counts).count();
        if extends > left && left > 0 && count >= self.quorum(mode) {
            let mut next = *state;
            let claim = next.claim_mut(of);
            (claim.left, claim.extends) = (extends, 0);
            if self.extend == Extend::OfEither && state.claim(of.partner()).left > 0 {
                let other = next.claim_mut(of.partner());
                other.left = other.left.max(extends);
            }
            found(Step::ExtendCounts { of }, next);
        }
    }

    fn extension_steps(
        &self,
        state: &State<N, C>,
        of: Of,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let call = state.nodes[at].call(of);
        let runs = call.entry > 0 || self.extend == Extend::Revives;
        if call.extension == Extension::UnderWay && runs {
            let mut next = *state;
            if call.entry == 0 {
                next.nodes[at].each_call(|call| call.entry = 0);
            }
            self.write(&mut next.nodes[at], of, self.extensions[of.client]);
            next.nodes[at].call_mut(of).extension = Extension::Done;
            found(Step::ExtendRuns { of, node: at }, next);
        }
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    fn claim(&self, of: Of) -> &Claim {
        &self.clients[of.client].claims[of.claim]
    }

    fn claim_mut(&mut self, of: Of) -> &mut Claim {
        &mut self.clients[of.client].claims[of.claim]
    }

    fn each_call_of(&mut self, of: Of, mut change: impl FnMut(&mut Call)) {
        self.nodes.iter_mut().for_each(|node| change(node.call_mut(of)));
    }

    /// How many nodes count for a claim.
    fn count(&self, of: Of) -> usize {
        self.nodes.iter().filter(|node| node.call(of).ask == Asked::Counts).count()
    }

    fn tick(&self) -> Self {
        let mut next = *self;
        for node in &mut next.nodes {
            node.quarantine = node.quarantine.saturating_sub(1);
            node.each_call(|call| call.entry = call.entry.saturating_sub(1));
        }
        for claim in next.clients.iter_mut().flat_map(|client| &mut client.claims) {
            claim.left = claim.left.saturating_sub(1);
            claim.extends = claim.extends.saturating_sub(1);
        }
        next
    }
}

/// One node by itself, for whoever compares it with the scripts: the ticks that each claim's entry lives.
impl<const N: usize, const C: usize> ReadWrite<N, C> {
    fn node(entries: &[[u8; 2]; C]) -> Node<C> {
        let calls = entries.map(|of| of.map(|entry| Call { entry, ..Call::NONE }));
        Node { quarantine: 0, calls }
    }

    /// What an ask of this claim leaves there, if the node grants it.
    #[must_use]
    pub fn asked(&self, entries: &[[u8; 2]; C], of: Of) -> Option<[[u8; 2]; C]> {
        let mut node = Self::node(entries);
        if !self.is_free(&node, of, self.mode(of)?) {
            return None;
        }
        self.write(&mut node, of, self.ttls[of.client]);
        Some(node.entries())
    }

    /// What an extension of this claim leaves there, if its entry is there.
    #[must_use]
    pub fn extended(&self, entries: &[[u8; 2]; C], of: Of) -> Option<[[u8; 2]; C]> {
        let mut node = Self::node(entries);
        if node.call(of).entry == 0 {
            return None;
        }
        self.write(&mut node, of, self.extensions[of.client]);
        Some(node.entries())
    }
}

impl<const C: usize> Node<C> {
    fn entries(&self) -> [[u8; 2]; C] {
        self.calls.map(|of| of.map(|call| call.entry))
    }

    fn call(&self, of: Of) -> &Call {
        &self.calls[of.client][of.claim]
    }

    fn call_mut(&mut self, of: Of) -> &mut Call {
        &mut self.calls[of.client][of.claim]
    }

    fn each_call(&mut self, change: impl FnMut(&mut Call)) {
        self.calls.as_flattened_mut().iter_mut().for_each(change);
    }
}

impl Call {
    const NONE: Self = Self { entry: 0, ask: Asked::No, extension: Extension::No };
}

impl Of {
    /// A client's first claim, or its second one.
    #[must_use]
    pub const fn new(client: usize, claim: usize) -> Self {
        Self { client, claim }
    }

    /// The client's other claim.
    fn partner(self) -> Self {
        Self { claim: 1 - self.claim, ..self }
    }
}
