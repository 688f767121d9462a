//! The semaphore: at most k permits at once, each of them a slot that a quorum records.
//!
//! Two permits conflict if they have the same slot, so each slot is a lock of its own. What is new is that the nodes
//! choose the slots: each gives whichever is free there, and a client whose answers differ *moves* its
//! entries to one slot, once per attempt (it *settles*). Once it holds, it *heals*: nodes that gave another slot, or
//! none, are told its slot, and count from then on.
//!
//! Time, messages, loss of memory and quarantine are those of `read_write.rs`; every command is a script
//! that looks at the restart guard itself. Which free slot a node gives, which slot a client settles on and when is left to chance,
//! which covers every rule for choosing. An answer is heard at once: a late one is one whose command ran late.
//!
//! What may not happen: two permits with one slot, or more permits than slots. Not here: the queue, fencing,
//! a change of k, several permits at once, clocks.

use std::fmt;

use crate::search::Model;

/// Who wants a permit on `N` nodes, what may happen, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore<const N: usize, const C: usize> {
    /// How many slots there are.
    pub slots: u8,
    /// How many attempts each client makes.
    pub attempts: [u8; C],
    /// The TTL of each client's permit, in ticks.
    pub ttls: [u8; C],
    /// The TTL of the extension that each client may ask for once; 0 for none.
    pub extensions: [u8; C],
    /// How often a node may lose its memory.
    pub losses: u8,
    /// The quarantine of a node that lost its memory, in ticks; the rule is the longest TTL.
    pub quarantine: u8,
    /// How many nodes a permit needs.
    pub quorum: usize,
    /// What makes a permit.
    pub permit: Permit,
    /// Where an extension counts.
    pub extend: Extend,
    /// What a move does to the answer that the node gave before.
    pub moves: Moves,
    /// Whose entry an undo takes.
    pub undo: Undo,
    /// Whether and how a holder heals.
    pub heal: Heal,
}

/// What makes a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// A quorum with the same slot: the rule.
    SameSlot,
    /// A quorum, whatever the slots: nodes that each count to k.
    AnySlots,
}

/// Where an extension counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Where the client has the slot that it holds: the rule.
    ThisSlot,
    /// Where it has any slot.
    AnySlot,
}

/// What a move does to the answer that the node gave before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// It no longer counts once the move is sent: the rule.
    EndAnswer,
    /// It counts until the move is answered.
    KeepAnswer,
}

/// Whose entry an undo takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// The client's own: the rule.
    Token,
    /// Whoever's is in the slot that the node gave it.
    Slot,
}

/// Whether and how a holder heals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heal {
    /// Not.
    No,
    /// By a move with all that belongs to it: the rule.
    Guarded,
    /// By one that does not look at the restart guard.
    Unguarded,
    /// By one that sets the TTL, also to less.
    Shortens,
}

impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// The rules as they are meant, without extensions and heals.
    pub const RULES: Self = Self {
        slots: 2,
        attempts: [1; C],
        ttls: [2; C],
        extensions: [0; C],
        losses: 0,
        quarantine: 2,
        quorum: N / 2 + 1,
        permit: Permit::SameSlot,
        extend: Extend::ThisSlot,
        moves: Moves::EndAnswer,
        undo: Undo::Token,
        heal: Heal::No,
    };
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
    calls: [Call; C],
}

/// What is between a client and a node. Slots count from 1; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The slot that the client has on the node, and for how many ticks.
    slot: u8,
    ttl: u8,
    mail: Mail,
    /// A heal is under way.
    heals: bool,
    extension: Extension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    Nothing,
    Ask,
    /// The node counts for this slot.
    Counts(u8),
    /// An ask is under way, and a move behind it.
    AskAndMove,
    /// A move is under way; the slot of the answer before it, if that still counts.
    Move(u8),
    /// The undo of this slot is under way.
    Undo(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Extension {
    No,
    UnderWay,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    /// Attempts that it may still begin.
    attempts: u8,
    /// Ticks left of the attempt's validity; 0 without one.
    left: u8,
    /// Ticks left of what its extension asks for.
    extends: u8,
    may_extend: bool,
    may_heal: bool,
    /// The slot that it settles on; 0 before it does.
    settles: u8,
}

/// One thing that happens. The clients are A, B, C, D, the nodes `n0`, `n1` …
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Asks { by: usize },
    Gives { by: usize, node: usize, slot: u8 },
    Settles { by: usize, slot: u8 },
    Moved { by: usize, node: usize, slot: u8 },
    NotMoved { by: usize, node: usize },
    Heals { by: usize },
    Healed { by: usize, node: usize, slot: u8 },
    Extends { by: usize },
    ExtendRuns { by: usize, node: usize },
    ExtendCounts { by: usize },
    Over { by: usize },
    Undone { by: usize, node: usize, slot: u8 },
    Lost { node: usize },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Asks { by } => write!(f, "{} asks all nodes", name(by)),
            Self::Gives { by, node, slot } => write!(f, "n{node} gives {} slot {slot}", name(by)),
            Self::Settles { by, slot } => {
                write!(f, "{} settles on slot {slot} and moves the others there", name(by))
            }
            Self::Moved { by, node, slot } => {
                write!(f, "n{node} moves {} to slot {slot}", name(by))
            }
            Self::NotMoved { by, node } => {
                write!(f, "n{node} takes {}'s slot and has not the other", name(by))
            }
            Self::Heals { by } => write!(f, "{} heals", name(by)),
            Self::Healed { by, node, slot } => {
                write!(f, "n{node} is healed for {} with slot {slot}", name(by))
            }
            Self::Extends { by } => write!(f, "{} extends", name(by)),
            Self::ExtendRuns { by, node } => write!(f, "n{node} extends for {}", name(by)),
            Self::ExtendCounts { by } => write!(f, "{} is extended", name(by)),
            Self::Over { by } => write!(f, "{} releases or gives up", name(by)),
            Self::Undone { by, node, slot } => {
                write!(f, "on n{node} runs {}'s undo of slot {slot}", name(by))
            }
            Self::Lost { node } => write!(f, "n{node} loses its memory"),
        }
    }
}

impl<const N: usize, const C: usize> Model for Semaphore<N, C> {
    type State = State<N, C>;
    type Step = Step;

    fn begins(&self) -> Vec<State<N, C>> {
        let client = |by: usize| Client {
            attempts: self.attempts[by],
            left: 0,
            extends: 0,
            may_extend: self.extensions[by] > 0,
            may_heal: false,
            settles: 0,
        };
        let nodes = [Node { quarantine: 0, calls: [Call::NONE; C] }; N];
        vec![State { nodes, clients: std::array::from_fn(client), losses: self.losses }]
    }

    fn steps(&self, state: &State<N, C>, found: &mut impl FnMut(Step, State<N, C>)) {
        found(Step::Tick, state.tick());
        for by in 0..C {
            self.attempt_steps(state, by, found);
            self.permit_steps(state, by, found);
            for at in 0..N {
                self.command_steps(state, by, at, found);
                self.holder_steps(state, by, at, found);
            }
        }
        for node in (0..N).filter(|_| state.losses > 0) {
            let mut next = *state;
            next.losses -= 1;
            next.nodes[node].quarantine = self.quarantine;
            for call in &mut next.nodes[node].calls {
                (call.slot, call.ttl) = (0, 0);
            }
            found(Step::Lost { node }, next);
        }
    }

    fn wrong(&self, state: &State<N, C>) -> Option<&'static str> {
        let held = (0..C).filter_map(|by| self.held(state, by));
        let all = held.clone().fold(0_u16, |all, slot| all | 1 << slot);
        let count = held.count();
        if self.permit == Permit::SameSlot && all.count_ones() as usize != count {
            return Some("two permits with one slot");
        }
        (count > self.slots.into()).then_some("more permits than slots")
    }

    /// Takes out what is of no consequence: an attempt without validity is over, and then all that is
    /// left of it can only be in others' way; so is an entry that no longer counts.
    fn thin(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = *state;
        for by in 0..C {
            if state.clients[by].left == 0 {
                self.end(&mut state, by);
            }
            if state.clients[by].extends == 0 {
                state.calls_mut(by).for_each(|call| call.extension = Extension::No);
            }
        }
        state
    }

    /// Nodes are alike, so are slots, and so are clients that do the same.
    fn canonical(&self, state: &State<N, C>) -> State<N, C> {
        let clients = ORDERS.iter().filter(|order| self.are_alike(order));
        let slots = || ORDERS.iter().filter(|order| self.are_slots(order));
        let names = clients.flat_map(|clients| slots().map(move |slots| (clients, slots)));
        names.map(|(clients, slots)| state.renamed(clients, slots)).min().unwrap_or(*state)
    }
}

/// The ways to name up to three clients or slots.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// Whether these names exchange only clients that do the same.
    fn are_alike(&self, order: &[usize; 3]) -> bool {
        let does = |at: usize| (self.attempts[at], self.ttls[at], self.extensions[at]);
        let most = C.min(3);
        let fits = |at: usize| order[at] < most && does(at) == does(order[at]);
        (0..most).all(fits) && (most..3).all(|at| order[at] == at)
    }

    fn are_slots(&self, order: &[usize; 3]) -> bool {
        (usize::from(self.slots)..3).all(|at| order[at] == at)
    }

    /// The slot of a client's permit.
    fn held(&self, state: &State<N, C>, by: usize) -> Option<u8> {
        let counts = |slot: u8| move |node: &&Node<C>| node.calls[by].counts_for() == Some(slot);
        let is_held = |slot: &u8| match self.permit {
            Permit::SameSlot => state.nodes.iter().filter(counts(*slot)).count() >= self.quorum,
            Permit::AnySlots => {
                let all = state.nodes.iter().filter_map(|node| node.calls[by].counts_for());
                all.count() >= self.quorum
            }
        };
        (1..=self.slots).find(is_held).filter(|_| state.clients[by].left > 0)
    }

    /// An attempt begins, settles and ends.
    fn attempt_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Client { attempts, left, settles, .. } = state.clients[by];
        if left == 0 {
            if attempts > 0 {
                let mut next = *state;
                let client = &mut next.clients[by];
                (client.attempts, client.left) = (attempts - 1, self.ttls[by]);
                client.may_heal = self.heal != Heal::No;
                for call in next.calls_mut(by).filter(|call| call.mail == Mail::Nothing) {
                    call.mail = Mail::Ask;
                }
                found(Step::Asks { by }, next);
            }
            return;
        }
        let mut next = *state;
        self.end(&mut next, by);
        found(Step::Over { by }, next);
        if settles > 0 || self.permit == Permit::AnySlots || self.held(state, by).is_some() {
            return;
        }
        let has_answer = |node: &Node<C>| node.calls[by].counts_for().is_some();
        for slot in (1..=self.slots).filter(|_| state.nodes.iter().any(has_answer)) {
            let mut next = *state;
            self.settle(&mut next, by, slot);
            found(Step::Settles { by, slot }, next);
        }
    }

    /// A client moves to this slot wherever no answer says that it has it.
    fn settle(&self, state: &mut State<N, C>, by: usize, slot: u8) {
        state.clients[by].settles = slot;
        for call in state.calls_mut(by).filter(|call| call.counts_for() != Some(slot)) {
            call.mail = match (call.mail, self.moves) {
                (Mail::Undo(slot), _) => Mail::Undo(slot),
                (_, Moves::EndAnswer) => Mail::Move(0),
                (Mail::Ask, Moves::KeepAnswer) => Mail::AskAndMove,
                (_, Moves::KeepAnswer) => Mail::Move(call.counts_for().unwrap_or(0)),
            };
        }
    }

    /// A holder heals, extends, and hears that it is extended.
    fn permit_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Some(slot) = self.held(state, by) else { return };
        let Client { left, extends, may_extend, may_heal, .. } = state.clients[by];
        if may_heal {
            let mut next = *state;
            next.clients[by].may_heal = false;
            next.calls_mut(by).for_each(|call| call.heals = true);
            found(Step::Heals { by }, next);
        }
        if may_extend {
            let mut next = *state;
            next.clients[by].may_extend = false;
            next.clients[by].extends = self.extensions[by];
            next.calls_mut(by).for_each(|call| call.extension = Extension::UnderWay);
            found(Step::Extends { by }, next);
        }
        let counts = |node: &&Node<C>| {
            let call = &node.calls[by];
            let is_of_slot = call.counts_for() == Some(slot) || self.extend == Extend::AnySlot;
            call.extension == Extension::Done && is_of_slot
        };
        if extends > left && state.nodes.iter().filter(counts).count() >= self.quorum {
            let mut next = *state;
            (next.clients[by].left, next.clients[by].extends) = (extends, 0);
            found(Step::ExtendCounts { by }, next);
        }
    }

    /// An ask, a move or an undo runs on a node.
    fn command_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let node = &state.nodes[at];
        let votes = node.quarantine == 0;
        match node.calls[by].mail {
            Mail::Ask | Mail::AskAndMove if votes => {
                for slot in (1..=self.slots).filter(|&slot| node.is_free(slot, by)) {
                    let mut next = *state;
                    let call = &mut next.nodes[at].calls[by];
                    let is_moved = call.mail == Mail::AskAndMove;
                    call.take(slot, self.ttls[by]);
                    call.mail = if is_moved { Mail::Move(slot) } else { Mail::Counts(slot) };
                    found(Step::Gives { by, node: at, slot }, next);
                }
            }
            Mail::Move(_) if votes => {
                let slot = state.clients[by].settles;
                let mut next = *state;
                let is_moved = self.moves_to(&mut next.nodes[at], by, slot);
                if is_moved {
                    let before = node.calls[by].mail;
                    found(Step::Moved { by, node: at, slot }, next);
                    if self.moves == Moves::KeepAnswer {
                        // Its answer is not heard for a while.
                        next.nodes[at].calls[by].mail = before;
                        found(Step::Moved { by, node: at, slot }, next);
                    }
                } else {
                    found(Step::NotMoved { by, node: at }, next);
                }
            }
            Mail::Undo(slot) => {
                let mut next = *state;
                for call in next.nodes[at].calls.iter_mut().filter(|call| call.slot == slot) {
                    (call.slot, call.ttl) = (0, 0);
                }
                next.nodes[at].calls[by].mail = Mail::Nothing;
                found(Step::Undone { by, node: at, slot }, next);
            }
            _ => {}
        }
    }

    /// A heal or an extension runs on a node.
    fn holder_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let node = &state.nodes[at];
        let call = node.calls[by];
        // What it holds does not change; the client says it with each command.
        let Some(slot) = self.held(state, by) else { return };
        let votes = node.quarantine == 0 || self.heal == Heal::Unguarded;
        if call.heals && votes && node.is_free(slot, by) {
            let mut next = *state;
            let call = &mut next.nodes[at].calls[by];
            call.heals = false;
            call.take(slot, self.ttls[by]);
            if self.heal == Heal::Shortens {
                call.ttl = self.ttls[by];
            }
            found(Step::Healed { by, node: at, slot }, next);
        }
        let mut next = *state;
        if call.extension == Extension::UnderWay && self.extends(&mut next.nodes[at], by, slot) {
            next.nodes[at].calls[by].extension = Extension::Done;
            found(Step::ExtendRuns { by, node: at }, next);
        }
    }

    /// A move runs: whether the client has the slot now. If not, it has none.
    fn moves_to(&self, node: &mut Node<C>, by: usize, slot: u8) -> bool {
        let is_free = node.is_free(slot, by);
        let call = &mut node.calls[by];
        match is_free {
            true => call.take(slot, self.ttls[by]),
            false => *call = Call { extension: call.extension, heals: call.heals, ..Call::NONE },
        }
        is_free
    }

    /// An extension runs: whether it finds what it is for.
    fn extends(&self, node: &mut Node<C>, by: usize, slot: u8) -> bool {
        let call = &mut node.calls[by];
        let has_slot = call.slot == slot || self.extend == Extend::AnySlot;
        let finds = call.slot > 0 && has_slot;
        if finds {
            call.ttl = call.ttl.max(self.extensions[by]);
        }
        finds
    }

    fn end(&self, state: &mut State<N, C>, by: usize) {
        let Client { attempts, may_extend, .. } = state.clients[by];
        state.clients[by] =
            Client { attempts, left: 0, extends: 0, may_extend, may_heal: false, settles: 0 };
        for call in state.calls_mut(by) {
            let undo = match call.mail {
                Mail::Undo(slot) | Mail::Counts(slot) if self.undo == Undo::Slot => Some(slot),
                _ => None,
            };
            let kept = if undo.is_some() { *call } else { Call::NONE };
            *call = Call { slot: kept.slot, ttl: kept.ttl, ..Call::NONE };
            call.mail = undo.map_or(Mail::Nothing, Mail::Undo);
        }
        if attempts == 0 {
            state.clients[by].may_extend = false;
        }
    }
}

/// A node by itself, for whoever compares it with one that ships. Slots count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone<const C: usize>(Node<C>);

/// What a node does, whatever is under way.
impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// Nobody has been there.
    #[must_use]
    pub fn alone(&self) -> Alone<C> {
        Alone(Node { quarantine: 0, calls: [Call::NONE; C] })
    }

    /// Whether an ask may be given this slot.
    #[must_use]
    pub fn may_give(&self, node: &Alone<C>, by: usize, slot: u8) -> bool {
        (1..=self.slots).contains(&slot) && node.0.is_free(slot, by)
    }

    /// An ask is given this slot.
    pub fn give(&self, node: &mut Alone<C>, by: usize, slot: u8) {
        node.0.calls[by].take(slot, self.ttls[by]);
    }

    /// A move, or a heal: whether the client has the slot now.
    pub fn moved(&self, node: &mut Alone<C>, by: usize, slot: u8) -> bool {
        self.moves_to(&mut node.0, by, slot)
    }

    /// An extension: whether it finds what it is for.
    pub fn extended(&self, node: &mut Alone<C>, by: usize, slot: u8) -> bool {
        self.extends(&mut node.0, by, slot)
    }

    /// An undo: whether there was anything.
    pub fn undone(&self, node: &mut Alone<C>, by: usize) -> bool {
        std::mem::replace(&mut node.0.calls[by], Call::NONE).slot > 0
    }
}

impl<const C: usize> Alone<C> {
    /// A tick passes.
    pub fn tick(&mut self) {
        self.0.tick();
    }

    /// The slot of each client, 0 for none, and for how many ticks.
    #[must_use]
    pub fn entries(&self) -> [(u8, u8); C] {
        self.0.calls.map(|call| (call.slot, call.ttl))
    }
}

/// What the first client has heard in its attempt, for whoever compares it with one that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<const N: usize, const C: usize>(State<N, C>);

/// What a client makes of what it hears.
impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// It has asked all nodes.
    #[must_use]
    pub fn attempt(&self) -> Attempt<N, C> {
        let mut state = self.begins()[0];
        state.clients[0].left = self.ttls[0];
        state.calls_mut(0).for_each(|call| call.mail = Mail::Ask);
        Attempt(state)
    }

    /// A node has given this slot, or has moved the client there.
    pub fn gives(&self, attempt: &mut Attempt<N, C>, node: usize, slot: u8) {
        attempt.0.nodes[node].calls[0].take(slot, self.ttls[0]);
    }

    /// The client settles on a slot: which nodes it tells to move.
    pub fn settles(&self, attempt: &mut Attempt<N, C>, slot: u8) -> [bool; N] {
        self.settle(&mut attempt.0, 0, slot);
        attempt.0.nodes.map(|node| matches!(node.calls[0].mail, Mail::Move(_)))
    }

    /// A node has not moved it.
    pub fn has_not_moved(&self, attempt: &mut Attempt<N, C>, node: usize) {
        attempt.0.nodes[node].calls[0] = Call::NONE;
    }

    /// The slot of the permit that it has.
    #[must_use]
    pub fn has(&self, attempt: &Attempt<N, C>) -> Option<u8> {
        self.held(&attempt.0, 0)
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    fn calls_mut(&mut self, by: usize) -> impl Iterator<Item = &mut Call> {
        self.nodes.iter_mut().map(move |node| &mut node.calls[by])
    }

    fn tick(&self) -> Self {
        let mut next = *self;
        next.nodes.iter_mut().for_each(Node::tick);
        for client in &mut next.clients {
            client.left = client.left.saturating_sub(1);
            client.extends = client.extends.saturating_sub(1);
        }
        next
    }

    /// The same with other names for clients and slots.
    fn renamed(&self, clients: &[usize; 3], slots: &[usize; 3]) -> Self {
        let named = |slot: u8| match slot {
            0 => 0,
            slot => slots.get(usize::from(slot) - 1).map_or(slot, |&new| new as u8 + 1),
        };
        let new_name = |by: usize| clients.get(by).copied().unwrap_or(by);
        let mut renamed = *self;
        for by in 0..C {
            let client = self.clients[by];
            renamed.clients[new_name(by)] = Client { settles: named(client.settles), ..client };
            for (to, from) in renamed.nodes.iter_mut().zip(&self.nodes) {
                let call = from.calls[by];
                let mail = match call.mail {
                    Mail::Counts(slot) => Mail::Counts(named(slot)),
                    Mail::Move(slot) => Mail::Move(named(slot)),
                    Mail::Undo(slot) => Mail::Undo(named(slot)),
                    mail => mail,
                };
                to.calls[new_name(by)] = Call { slot: named(call.slot), mail, ..call };
            }
        }
        renamed.nodes.sort_unstable();
        renamed
    }
}

impl<const C: usize> Node<C> {
    fn tick(&mut self) {
        self.quarantine = self.quarantine.saturating_sub(1);
        for call in &mut self.calls {
            call.ttl = call.ttl.saturating_sub(1);
            if call.ttl == 0 {
                call.slot = 0;
            }
        }
    }

    /// Whether nobody else has the slot.
    fn is_free(&self, slot: u8, by: usize) -> bool {
        !(0..C).any(|other| other != by && self.calls[other].slot == slot)
    }
}

impl Call {
    const NONE: Self =
        Self { slot: 0, ttl: 0, mail: Mail::Nothing, heals: false, extension: Extension::No };

    /// The slot for which the node counts.
    fn counts_for(&self) -> Option<u8> {
        match self.mail {
            Mail::Counts(slot) | Mail::Move(slot) if slot > 0 => Some(slot),
            _ => None,
        }
    }

    /// The entry is the client's, for at least so long.
    fn take(&mut self, slot: u8, ticks: u8) {
        self.ttl = if self.slot == 0 { ticks } else { self.ttl.max(ticks) };
        self.slot = slot;
        self.mail = Mail::Counts(slot);
    }
}
