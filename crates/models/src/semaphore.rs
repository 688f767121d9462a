//! A model of the semaphore: at most k permits at once, each a slot that a quorum has recorded.
//!
//! Two permits conflict if they have the same slot, so each slot is a separate lock. The difference
//! from a lock is that the nodes choose: each gives any slot that is free there, and a client with
//! differing replies *moves* its entries to one slot, once per attempt (it *settles*). Once it
//! holds a permit it *heals*: nodes that gave another slot, or none, are sent its slot and count
//! from then on.
//!
//! Time, messages, loss of memory and quarantine are those of `read_write.rs`; every command is a
//! script that checks the restart guard itself. Which free slot a node gives, and on which slot and
//! when a client settles, is arbitrary, which covers every rule for choosing. Replies are received
//! at once: a late reply is modelled as a command that ran late.
//!
//! The violation is two permits with one slot, or more permits than slots. The model leaves out the
//! queue, fencing, changes of k, several permits at once, and clocks.

use std::fmt;

use crate::search::Model;

/// The clients of a semaphore on `N` nodes, the faults, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore<const N: usize, const C: usize> {
    /// The number of slots.
    pub slots: u8,
    /// The number of attempts of each client.
    pub attempts: [u8; C],
    /// The TTL of each client's permit, in ticks.
    pub ttls: [u8; C],
    /// The TTL of the one extension that each client may request; 0 for none.
    pub extensions: [u8; C],
    /// The number of times that a node may lose its memory.
    pub losses: u8,
    /// The quarantine of a node that lost its memory, in ticks; the rule is the largest TTL.
    pub quarantine: u8,
    /// The number of nodes that a permit needs.
    pub quorum: usize,
    /// The replies that make a permit.
    pub permit: Permit,
    /// The nodes that count for an extension.
    pub extend: Extend,
    /// The effect of a move on the node's previous reply.
    pub moves: Moves,
    /// Whose entry an undo removes.
    pub undo: Undo,
    /// Whether and how a holder heals.
    pub heal: Heal,
}

/// What makes a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// A quorum with the same slot: the rule.
    SameSlot,
    /// A quorum with any slots, as if each node counted to k by itself.
    AnySlots,
}

/// The nodes that count for an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Those with the slot that the client holds: the rule.
    ThisSlot,
    /// Those on which the client has any slot.
    AnySlot,
}

/// The effect of a move on the node's previous reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// The reply no longer counts once the move is sent: the rule.
    EndAnswer,
    /// The reply counts until the move is answered.
    KeepAnswer,
}

/// Whose entry an undo removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// The client's own: the rule.
    Token,
    /// The entry in the slot that the node gave the client, even if another client owns it now.
    Slot,
}

/// Whether and how a holder heals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heal {
    /// No healing.
    No,
    /// By a move with all its checks: the rule.
    Guarded,
    /// By a move that does not check the restart guard.
    Unguarded,
    /// By a move that sets the TTL, even if that shortens it.
    Shortens,
}

impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// The rules of the library, without extensions and heals.
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
    calls: [Call; C],
}

/// The state of a client on a node. Slots count from 1; 0 stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The slot that the client has on the node, and the ticks left.
    slot: u8,
    ttl: u8,
    mail: Mail,
    /// A heal is in flight.
    heals: bool,
    extension: Extension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    Nothing,
    Ask,
    /// The node counts for this slot.
    Counts(u8),
    /// A request is in flight, and a move behind it.
    AskAndMove,
    /// A move is in flight; the slot of the previous reply if that still counts, or 0.
    Move(u8),
    /// The undo of this slot is in flight.
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
    /// The attempts that it may still begin.
    attempts: u8,
    /// The ticks left of the attempt's validity; 0 without an attempt.
    left: u8,
    /// The ticks left of what its extension requests.
    extends: u8,
    may_extend: bool,
    may_heal: bool,
    /// The slot on which it has settled; 0 before it does.
    settles: u8,
}

/// One event. The clients are A, B, C, D, the nodes `n0`, `n1` …
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
            // A node is quarantined at once, because a later quarantine would only delay its votes.
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

    /// Removes what makes no difference. An attempt without validity has ended, and what remains of
    /// it, like an entry that no longer counts, can only block other clients.
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

    /// Merges states that differ in the names of nodes, of slots, and of clients that do the same.
    fn canonical(&self, state: &State<N, C>) -> State<N, C> {
        let clients = ORDERS.iter().filter(|order| self.are_alike(order));
        let slots = || ORDERS.iter().filter(|order| self.are_slots(order));
        let names = clients.flat_map(|clients| slots().map(move |slots| (clients, slots)));
        names.map(|(clients, slots)| state.renamed(clients, slots)).min().unwrap_or(*state)
    }
}

/// The permutations of up to three names of clients or slots.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// Returns true if the permutation exchanges only clients that do the same.
    fn are_alike(&self, order: &[usize; 3]) -> bool {
        let does = |at: usize| (self.attempts[at], self.ttls[at], self.extensions[at]);
        let most = C.min(3);
        let fits = |at: usize| order[at] < most && does(at) == does(order[at]);
        (0..most).all(fits) && (most..3).all(|at| order[at] == at)
    }

    fn are_slots(&self, order: &[usize; 3]) -> bool {
        (usize::from(self.slots)..3).all(|at| order[at] == at)
    }

    /// Returns the slot of a client's permit.
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

    /// Begins, settles and ends attempts.
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

    /// Moves a client to this slot on every node whose reply did not give it the slot.
    fn settle(&self, state: &mut State<N, C>, by: usize, slot: u8) {
        state.clients[by].settles = slot;
        for call in state.calls_mut(by).filter(|call| call.counts_for() != Some(slot)) {
            call.mail = match (call.mail, self.moves) {
                // A node that owes an undo is not moved.
                (Mail::Undo(slot), _) => Mail::Undo(slot),
                (_, Moves::EndAnswer) => Mail::Move(0),
                (Mail::Ask, Moves::KeepAnswer) => Mail::AskAndMove,
                (_, Moves::KeepAnswer) => Mail::Move(call.counts_for().unwrap_or(0)),
            };
        }
    }

    /// Lets a holder heal and extend, and counts an extension on a quorum.
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
        // An entry in another slot does not support this permit.
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

    /// Runs a request, a move or an undo on a node.
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
                        // The reply to the move may take a while.
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

    /// Runs a heal or an extension on a node.
    fn holder_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let node = &state.nodes[at];
        let call = node.calls[by];
        // A permit's slot does not change, and each command names it.
        let Some(slot) = self.held(state, by) else { return };
        // A quarantined node may have lost another client's entry for the slot.
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

    /// Runs a move and returns true if the client has the slot now. Otherwise it has no slot.
    fn moves_to(&self, node: &mut Node<C>, by: usize, slot: u8) -> bool {
        let is_free = node.is_free(slot, by);
        let call = &mut node.calls[by];
        match is_free {
            true => call.take(slot, self.ttls[by]),
            false => *call = Call { extension: call.extension, heals: call.heals, ..Call::NONE },
        }
        is_free
    }

    /// Runs an extension and returns true if it finds the entry.
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

/// One node, for comparison with the shipping scripts. Slots count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone<const C: usize>(Node<C>);

/// The actions of one node, independent of messages in flight.
impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// Returns a node without entries.
    #[must_use]
    pub fn alone(&self) -> Alone<C> {
        Alone(Node { quarantine: 0, calls: [Call::NONE; C] })
    }

    /// Returns true if a request may be given this slot.
    #[must_use]
    pub fn may_give(&self, node: &Alone<C>, by: usize, slot: u8) -> bool {
        (1..=self.slots).contains(&slot) && node.0.is_free(slot, by)
    }

    /// Gives this slot to a request.
    pub fn give(&self, node: &mut Alone<C>, by: usize, slot: u8) {
        node.0.calls[by].take(slot, self.ttls[by]);
    }

    /// Runs a move or a heal and returns true if the client has the slot now.
    pub fn moved(&self, node: &mut Alone<C>, by: usize, slot: u8) -> bool {
        self.moves_to(&mut node.0, by, slot)
    }

    /// Runs an extension and returns true if it finds the entry.
    pub fn extended(&self, node: &mut Alone<C>, by: usize, slot: u8) -> bool {
        self.extends(&mut node.0, by, slot)
    }

    /// Runs an undo and returns true if there was an entry.
    pub fn undone(&self, node: &mut Alone<C>, by: usize) -> bool {
        std::mem::replace(&mut node.0.calls[by], Call::NONE).slot > 0
    }
}

impl<const C: usize> Alone<C> {
    /// Passes a tick.
    pub fn tick(&mut self) {
        self.0.tick();
    }

    /// Returns the slot of each client, 0 for none, with the ticks left.
    #[must_use]
    pub fn entries(&self) -> [(u8, u8); C] {
        self.0.calls.map(|call| (call.slot, call.ttl))
    }
}

/// The replies to the first client in its attempt, for comparison with the shipping core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<const N: usize, const C: usize>(State<N, C>);

/// The decisions of a client about its replies.
impl<const N: usize, const C: usize> Semaphore<N, C> {
    /// Returns an attempt that has sent a request to all nodes.
    #[must_use]
    pub fn attempt(&self) -> Attempt<N, C> {
        let mut state = self.begins()[0];
        state.clients[0].left = self.ttls[0];
        state.calls_mut(0).for_each(|call| call.mail = Mail::Ask);
        Attempt(state)
    }

    /// Records that a node has given this slot, or has moved the client to it.
    pub fn gives(&self, attempt: &mut Attempt<N, C>, node: usize, slot: u8) {
        attempt.0.nodes[node].calls[0].take(slot, self.ttls[0]);
    }

    /// Settles the client on a slot and returns the nodes to which it sends a move.
    pub fn settles(&self, attempt: &mut Attempt<N, C>, slot: u8) -> [bool; N] {
        self.settle(&mut attempt.0, 0, slot);
        attempt.0.nodes.map(|node| matches!(node.calls[0].mail, Mail::Move(_)))
    }

    /// Records that a node has refused the move.
    pub fn has_not_moved(&self, attempt: &mut Attempt<N, C>, node: usize) {
        attempt.0.nodes[node].calls[0] = Call::NONE;
    }

    /// Returns the slot of the client's permit.
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

    /// Returns the state with other names for clients and slots.
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

    /// Returns true if no other client has the slot.
    fn is_free(&self, slot: u8, by: usize) -> bool {
        !(0..C).any(|other| other != by && self.calls[other].slot == slot)
    }
}

impl Call {
    const NONE: Self =
        Self { slot: 0, ttl: 0, mail: Mail::Nothing, heals: false, extension: Extension::No };

    /// Returns the slot for which the node counts.
    fn counts_for(&self) -> Option<u8> {
        match self.mail {
            Mail::Counts(slot) | Mail::Move(slot) if slot > 0 => Some(slot),
            _ => None,
        }
    }

    /// Gives the slot to the client for at least this many ticks.
    fn take(&mut self, slot: u8, ticks: u8) {
        self.ttl = if self.slot == 0 { ticks } else { self.ttl.max(ticks) };
        self.slot = slot;
        self.mail = Mail::Counts(slot);
    }
}
