//! A model of the read/write lock: readers share it, a writer is exclusive.
//!
//! Each node keeps entries: one claim of a writer, or any number of readers' claims, each with its
//! own end. A client has up to two claims. They are two attempts, one after the other, or the two
//! of an upgrade or a downgrade, which name each other and so do not block each other.
//!
//! Time passes in ticks; every entry and validity begins anywhere between two ticks and ends on
//! one. Messages run at any time or never; a late or lost reply is modelled as a command that ran
//! late or never. A node may lose its memory and is then in quarantine from that moment, because a
//! later quarantine only delays its votes. A writer's first request is two plain commands, the `SET
//! NX` and the check of the restart guard behind it; all others are scripts, which check the guard
//! themselves.
//!
//! The violation is a writer alongside any other holder. Fencing tokens are in `fencing.rs`, the
//! enrolment of the restart guard in `restart_guard.rs`, undos that overtake requests in
//! `ghosts.rs`. The queue and steps and drift of clocks are left out.

use std::fmt;

use crate::search::Model;

/// The clients of a lock on `N` nodes, the faults, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite<const N: usize, const C: usize> {
    /// The plan of each client.
    pub plans: [Plan; C],
    /// The TTL of each client's claims, in ticks.
    pub ttls: [u8; C],
    /// The TTL of the one extension that each client may request; 0 for none.
    pub extensions: [u8; C],
    /// The number of times that a node may lose its memory.
    pub losses: u8,
    /// The quarantine of a node that lost its memory, in ticks; the rule is the largest TTL.
    pub quarantine: u8,
    /// The number of nodes that a reader and a writer need.
    pub quorums: [usize; 2],
    /// How a writer's request runs.
    pub write: WriteAsk,
    /// The TTL of the key after an entry was written.
    pub key_ttl: KeyTtl,
    /// The part of a key that a release removes.
    pub release: Release,
    /// True: the validity counts from before the first byte is sent. False: from the reply that
    /// decides.
    pub from_first_byte: bool,
    /// The replies that count for an extension.
    pub extend: Extend,
    /// How a reader becomes a writer.
    pub upgrade: Upgrade,
    /// How a writer becomes a reader.
    pub downgrade: Downgrade,
    /// True: leaves out what can only make less happen, see [`Model::thin`].
    pub lean: bool,
}

/// The claims that a client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One claim.
    Once(Mode),
    /// Two claims, one after the other.
    Twice(Mode, Mode),
    /// A reader that also requests the write lock.
    Upgrade,
    /// A writer that also requests the read lock.
    Downgrade,
}

/// The sharing mode of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A reader.
    Shared,
    /// A writer.
    Exclusive,
}

/// How a writer's request runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAsk {
    /// In one step: the rule.
    SetIfFree,
    /// The node is inspected, and a later command sets the key.
    LookThenSet,
}

/// The key's TTL after an entry was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTtl {
    /// Up to the end of the last of its entries: the rule.
    Largest,
    /// Up to the end of the entry that was written last.
    Latest,
}

/// The part of a key that a release removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The claim's own entry: the rule.
    Entry,
    /// The whole key, if the claim's entry is in it.
    Key,
}

/// The replies that count for an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Those of nodes whose grant counts and that still have the entry: the rule.
    Counted,
    /// Those of all nodes that have the entry.
    Present,
    /// As the rule, but it sets a missing entry, even if others are there.
    Revives,
    /// As the rule, but a node that counts for one claim of a client counts for its other claim
    /// too.
    OfEither,
}

/// How a reader becomes a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// By a second claim that ignores the reader's, which it names: the rule.
    Claim,
    /// By a claim that ignores every reader.
    IgnoresReaders,
    /// The writer relies on the reader's validity too.
    LentValidity,
    /// Both claims have one token, so the undo of one removes the other's entry.
    OneToken,
    /// The claim also writes its end to the reader's entry, even if that shortens it.
    Shortens,
}

/// How a writer becomes a reader. The read request ignores the writer's claim, which it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// A reader from the first byte on; the writer's claim is released once a quorum of read
    /// requests counts: the rule.
    AtQuorum,
    /// A reader from the first byte on; the writer's claim is released on each node behind the read
    /// request. Until that is answered, the node counts for as long as the writer's claim does.
    BehindEachAsk,
    /// As `BehindEachAsk`, but a writer until a quorum of read requests counts.
    WhenConfirmed,
    /// The release may run before the read request.
    ReleaseFirst,
}

impl<const N: usize, const C: usize> ReadWrite<N, C> {
    const QUORUM: usize = N / 2 + 1;

    /// Returns the library's rules for these plans, with TTLs of 2 ticks.
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

/// The nodes with the messages in flight, the clients, and the losses that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize, const C: usize> {
    nodes: [Node<C>; N],
    clients: [Client; C],
    losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node<const C: usize> {
    /// The ticks of quarantine left.
    quarantine: u8,
    /// The state of each claim on this node.
    calls: [[Call; 2]; C],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The ticks left of the claim's entry; 0 if there is none.
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
    /// The claim does not count and is being undone.
    Out,
    /// The request has not run, and the claim has ended.
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
    /// True if it may still extend.
    extends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Claim {
    phase: Phase,
    /// The ticks left of its validity, once it is held.
    left: u8,
    /// The ticks left of what its extension requests.
    extends: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    Active,
    Over,
}

/// One claim of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of {
    client: usize,
    claim: usize,
}

/// One event. The clients are A, B, C, the nodes `n0`, `n1` …
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

    /// Removes what makes no difference. It hides no violation:
    ///
    /// - a claim without validity has ended, and its messages in flight and its entries can only
    ///   block other clients;
    /// - a refused command might as well not have run yet.
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

    /// Merges states that differ in the names of nodes, and of clients with the same plans.
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

/// The permutations of up to three clients' names.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl<const N: usize, const C: usize> ReadWrite<N, C> {
    /// Returns true if the permutation exchanges only clients with the same plans.
    fn are_alike(&self, order: &[usize; 3]) -> bool {
        let does = |at: usize| (self.plans[at], self.ttls[at], self.extensions[at]);
        let fits = |at: usize| order[at] < C && does(at) == does(order[at]);
        (0..C).all(fits) && (C..3).all(|at| order[at] == at)
    }

    /// Returns the mode of a claim, if the plan has one.
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

    /// Returns the mode in which a client considers itself a holder.
    fn role(&self, state: &State<N, C>, client: usize) -> Option<Mode> {
        let claims = [0, 1].map(|claim| Of { client, claim });
        let held = claims.map(|of| self.is_held(state, of));
        let asked = state.claim(claims[1]).phase != Phase::Idle;
        let by_both = || self.is_held_by_both(state, client);
        self.takes_itself_for(client, held, asked, by_both)
    }

    /// Returns the mode in which a client that holds these of its claims considers itself a holder.
    /// `asked`: it has requested the second claim.
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

    /// Returns true if a quorum counts during a downgrade. A node counts by either claim that
    /// counts there.
    fn is_held_by_both(&self, state: &State<N, C>, client: usize) -> bool {
        let claims = [0, 1].map(|claim| Of { client, claim });
        let counts = |node: &&Node<C>| {
            let by = |of: Of| self.is_alive(state, of) && node.call(of).ask == Asked::Counts;
            claims.into_iter().any(by)
        };
        state.nodes.iter().filter(counts).count() >= self.quorum(Mode::Shared)
    }

    /// Returns true if a claim is valid or may become valid.
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

    /// Returns true if a claim may begin: a second attempt once the first has ended, a partner
    /// while the first claim is held.
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
        // An undo that deletes the whole key can hit other entries, so it must be able to run
        // later.
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

    /// Runs the next command of a request.
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
        // A partner's request has to ignore the client's other claim, which a plain SET NX cannot.
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
            // The later SET overwrites whatever came in between.
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

    /// Applies the effects of a node that newly counts for a claim.
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
            // The client considers itself a writer on this node until it receives the reply.
            Downgrade::WhenConfirmed => state.nodes[at].call_mut(writer).entry = 0,
            Downgrade::AtQuorum | Downgrade::ReleaseFirst => {}
        }
    }

    /// Returns true if no other entry blocks the claim.
    fn is_free(&self, node: &Node<C>, of: Of, mode: Mode) -> bool {
        let ignores_readers = self.upgrade == Upgrade::IgnoresReaders
            && self.plans[of.client] == Plan::Upgrade
            && of.claim == 1;
        let mut others = (0..C).flat_map(|client| [0, 1].map(|claim| Of { client, claim }));
        !others.any(|other| {
            let is_shared = self.mode(other) == Some(Mode::Shared);
            // A claim that the request names does not block it.
            let is_named = self.has_partner(of) && of.claim == 1 && other == of.partner();
            let agrees = is_shared && (mode == Mode::Shared || ignores_readers);
            node.call(other).entry > 0 && other != of && !is_named && !agrees
        })
    }

    /// Writes an entry, which never shortens it.
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

    /// Lets a client extend, and counts an extension on a quorum.
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
            // A node whose grant does not count may lose the entry unnoticed.
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

    /// Returns the number of nodes that count for a claim.
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

/// One node, for comparison with the shipping scripts. `entries` are the ticks left of each claim's
/// entry.
impl<const N: usize, const C: usize> ReadWrite<N, C> {
    fn node(entries: &[[u8; 2]; C]) -> Node<C> {
        let calls = entries.map(|of| of.map(|entry| Call { entry, ..Call::NONE }));
        Node { quarantine: 0, calls }
    }

    /// Returns the entries after a request of this claim, or `None` if the node denies it.
    #[must_use]
    pub fn asked(&self, entries: &[[u8; 2]; C], of: Of) -> Option<[[u8; 2]; C]> {
        let mut node = Self::node(entries);
        if !self.is_free(&node, of, self.mode(of)?) {
            return None;
        }
        self.write(&mut node, of, self.ttls[of.client]);
        Some(node.entries())
    }

    /// Returns the entries after an extension of this claim, or `None` if its entry is missing.
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
    /// Names a client's first claim (0) or its second (1).
    #[must_use]
    pub const fn new(client: usize, claim: usize) -> Self {
        Self { client, claim }
    }

    /// Returns the client's other claim.
    fn partner(self) -> Self {
        Self { claim: 1 - self.claim, ..self }
    }
}
