//! A model of permits in the queue: waiters for one of k permits and waiters for the exclusive
//! resource share one queue.
//!
//! `semaphore.rs` has slots without a queue, and `fair_queue.rs` a queue with one order for all
//! waiters. Here both meet. A node lets in a waiter that has fewer waiters before it than slots are
//! free there, if none of them wants the resource exclusively. The node chooses the slot, and a
//! quorum has to give the same one, to which a client may move its entries once per attempt. A
//! holder leaves the queue, and heals.
//!
//! There is no time. Commands run at any moment or never, an attempt is undone at any moment,
//! processes give up at any moment, and the entries of dead ones expire at any moment. How waiters
//! agree on a stamp is in `fair_queue.rs`: here a waiter has one as soon as it joins the queue, at
//! any place behind all known places. A place is known once a quorum has the ticket.
//!
//! The violations are: two permits with one slot, or more permits than slots; an exclusive holder
//! alongside another; a newcomer that passes a waiter against the promise (with several permits a
//! waiter that joined later may be granted one first); waiters that can no longer get in; and, with
//! holders that never release, a waiter that cannot get in while permits are free. The model leaves
//! out restart guards, extensions and fencing; graces and wake-ups are in `turns.rs`.

use std::fmt;

pub use crate::semaphore::{Moves, Permit};

use crate::search::{Model, Progress};

/// The processes of a semaphore on `N` running nodes, the faults, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct PermitQueue<const N: usize, const C: usize> {
    /// The number of permits.
    pub permits: u8,
    /// The number of nodes that a permit needs. Two running nodes with a quorum of two stand for
    /// three nodes of which one is down.
    pub quorum: usize,
    /// The processes that want the resource exclusively instead of a permit.
    pub alone: [bool; C],
    /// The processes that wait; the others try once and leave.
    pub waits: [bool; C],
    /// The number of times that each process comes.
    pub comes: [u8; C],
    /// The number of processes that may die.
    pub deaths: u8,
    /// The waiters that a node lets in.
    pub admits: Admits,
    /// How a node keeps out processes that are not in the queue.
    pub keeps: Keeps,
    /// The replies that make a permit.
    pub permit: Permit,
    /// The effect of a move on the node's previous reply.
    pub moves: Moves,
    /// True: a holder leaves the queue when it is granted. False: when it releases.
    pub leaves_at_once: bool,
    /// True: the grants of an unsuccessful attempt are undone.
    pub undoes: bool,
    /// True: the nodes that gave a holder another slot, or none, are asked for its slot.
    pub heals: bool,
    /// The newcomers to which the promise applies.
    pub promise: Promise,
    /// True: progress may rely on releases. False: a waiter has to get in as long as there are free
    /// permits.
    pub releases: bool,
}

/// The waiters for a permit that a node lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// Every waiter that has fewer waiters before it than slots are free, none of them exclusive:
    /// the rule.
    WhereRoom,
    /// As `WhereRoom`, but exclusive waiters before it count like waiters for a permit.
    BehindAnybody,
    /// Every waiter that finds a slot free.
    Anybody,
}

/// How a node keeps out processes that are not in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// A held resource is marked, and closed when its last holder leaves: the rule.
    Always,
    /// A held resource is not marked.
    OnceClosed,
    /// The resource is not closed when its last holder leaves.
    WhileHeld,
}

/// The newcomers to which the promise applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All except those that wait in the queue for one of several permits, like the waiters they
    /// pass.
    OfPermits,
    /// All.
    OfLock,
}

impl<const N: usize, const C: usize> PermitQueue<N, C> {
    /// The rules of the library, for waiters for one of two permits that each come once.
    pub const RULES: Self = Self {
        permits: 2,
        quorum: 2,
        alone: [false; C],
        waits: [true; C],
        comes: [1; C],
        deaths: 0,
        admits: Admits::WhereRoom,
        keeps: Keeps::Always,
        permit: Permit::SameSlot,
        moves: Moves::EndAnswer,
        leaves_at_once: true,
        undoes: true,
        heals: false,
        promise: Promise::OfPermits,
        releases: true,
    };
}

/// The nodes with the messages in flight, the processes, and the deaths that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize, const C: usize> {
    nodes: [Node<C>; N],
    processes: [Process; C],
    deaths: u8,
    passed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node<const C: usize> {
    /// True: processes that are not in the queue are denied.
    kept: bool,
    calls: [Call; C],
}

/// The state of a process on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The slot that the process has there, or [`ALL`]; 0 if none.
    slot: u8,
    /// The stamp of its ticket; 0 if there is none.
    stamp: u8,
    mail: Mail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    /// Nothing in particular; for a waiter, a request in the queue is always in flight.
    Nothing,
    /// The first request, which writes no ticket.
    First,
    /// The node counts for this slot.
    Counts(u8),
    /// A move is in flight; the slot for which the previous reply still counts, or 0.
    Move(u8),
    /// The command that removes everything of the process is in flight.
    Leaves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    phase: Phase,
    comes: u8,
    /// The stamp with which it waits in the queue; 0 before it does.
    stamp: u8,
    has_place: bool,
    /// The slot that it holds or has settled on; 0 before it does.
    slot: u8,
    /// The waiters whose place was known when it came, one bit each.
    behind: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Away,
    /// Its first request is in flight.
    First,
    Waits,
    Holds,
    Dead,
}

/// One event. The processes are A, B, C, the nodes `n0`, `n1` …
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Comes { by: usize },
    Waits { by: usize, stamp: u8 },
    Granted { by: usize, node: usize, slot: u8 },
    Denied { by: usize, node: usize },
    Settles { by: usize, slot: u8 },
    Moved { by: usize, node: usize },
    NotMoved { by: usize, node: usize },
    Healed { by: usize, node: usize },
    Undone { by: usize, node: usize },
    Leaves { by: usize, node: usize },
    Releases { by: usize },
    GivesUp { by: usize },
    Dies { by: usize },
    Expires { by: usize, node: usize, what: &'static str },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Comes { by } => write!(f, "{} comes and asks all nodes", name(by)),
            Self::Waits { by, stamp } => write!(f, "{} begins to wait, at {stamp}", name(by)),
            Self::Granted { by, node, slot: ALL } => write!(f, "n{node} is {}'s alone", name(by)),
            Self::Granted { by, node, slot } => write!(f, "n{node} gives {} slot {slot}", name(by)),
            Self::Denied { by, node } => write!(f, "n{node} lets {} wait", name(by)),
            Self::Settles { by, slot } => write!(f, "{} settles on slot {slot}", name(by)),
            Self::Moved { by, node } => write!(f, "n{node} moves {}", name(by)),
            Self::NotMoved { by, node } => write!(f, "n{node} takes {}'s slot", name(by)),
            Self::Healed { by, node } => write!(f, "n{node} is healed for {}", name(by)),
            Self::Undone { by, node } => write!(f, "{} is undone on n{node}", name(by)),
            Self::Leaves { by, node } => write!(f, "{} leaves n{node}", name(by)),
            Self::Releases { by } => write!(f, "{} releases", name(by)),
            Self::GivesUp { by } => write!(f, "{} gives up", name(by)),
            Self::Dies { by } => write!(f, "{} dies", name(by)),
            Self::Expires { by, node, what } => write!(f, "{}'s {what} on n{node} ends", name(by)),
        }
    }
}

impl<const N: usize, const C: usize> Model for PermitQueue<N, C> {
    type State = State<N, C>;
    type Step = Step;

    fn begins(&self) -> Vec<State<N, C>> {
        let process = |at: usize| Process { comes: self.comes[at], ..Process::AWAY };
        let processes = std::array::from_fn(process);
        vec![State { nodes: [Node::EMPTY; N], processes, deaths: self.deaths, passed: false }]
    }

    fn steps(&self, state: &State<N, C>, found: &mut impl FnMut(Step, State<N, C>)) {
        for by in 0..C {
            self.process_steps(state, by, found);
            self.wait_steps(state, by, found);
            for at in 0..N {
                self.command_steps(state, by, at, found);
                self.end_steps(state, by, at, found);
            }
        }
    }

    fn wrong(&self, state: &State<N, C>) -> Option<&'static str> {
        let holders = state.processes.iter().filter(|it| it.phase == Phase::Holds);
        let (mut slots, mut count) = (0_u32, 0);
        for process in holders {
            if self.permit == Permit::SameSlot && slots >> process.slot & 1 == 1 {
                return Some("two permits with one slot");
            }
            (slots, count) = (slots | 1 << process.slot, count + 1);
        }
        if slots >> ALL & 1 == 1 && count > 1 {
            return Some("a permit beside somebody alone");
        }
        if count > self.permits.into() {
            return Some("more permits than slots");
        }
        state.passed.then_some("a newcomer passed")
    }

    /// Renumbers the stamps, because only their order matters.
    fn thin(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = *state;
        let mut used = [false; 64];
        state.stamps_mut(|stamp| used[usize::from(*stamp)] = true);
        let mut names = [0; 64];
        for (at, _) in used.iter().enumerate().filter(|&(at, used)| at > 0 && *used) {
            names[at] = 1 + names.iter().max().copied().unwrap_or(0);
        }
        state.stamps_mut(|stamp| *stamp = names[usize::from(*stamp)]);
        state
    }

    /// Merges states that differ in the names of nodes, of slots, and of processes that do the
    /// same.
    fn canonical(&self, state: &State<N, C>) -> State<N, C> {
        let processes = ORDERS.iter().filter(|order| self.are_alike(order));
        let are_slots = |order: &&[usize; 3]| (self.permits.into()..3).all(|at| order[at] == at);
        let slots = || ORDERS.iter().filter(are_slots);
        let names = processes.flat_map(|processes| slots().map(move |slots| (processes, slots)));
        names.map(|(processes, slots)| state.renamed(processes, slots)).min().unwrap_or(*state)
    }
}

/// The permutations of up to three names of processes or slots.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The slot that stands for the exclusive resource.
const ALL: u8 = 15;

impl<const N: usize, const C: usize> Progress for PermitQueue<N, C> {
    /// Returns true if no process waits or holds and the nodes are empty; or, if holders stay, if
    /// no waiter is left or every permit is held.
    fn is_settled(&self, state: &State<N, C>) -> bool {
        let are_in = |phase: Phase| state.processes.iter().filter(move |it| it.phase == phase);
        let nobody_waits = are_in(Phase::First).chain(are_in(Phase::Waits)).count() == 0;
        let holders = are_in(Phase::Holds).count();
        if !self.releases {
            return nobody_waits || holders == self.permits.into();
        }
        nobody_waits && holders == 0 && state.nodes.iter().all(|node| *node == Node::EMPTY)
    }

    /// Returns true if progress may rely on the step. No process has to come, stop waiting or die
    /// for others to get in.
    fn helps(&self, step: &Step) -> bool {
        match *step {
            Step::GivesUp { by } => !self.waits[by],
            Step::Releases { .. } => self.releases,
            Step::Comes { .. } | Step::Dies { .. } => false,
            _ => true,
        }
    }
}

impl<const N: usize, const C: usize> PermitQueue<N, C> {
    /// Returns true if the permutation exchanges only processes that do the same.
    fn are_alike(&self, order: &[usize; 3]) -> bool {
        let does = |at: usize| (self.alone[at], self.waits[at], self.comes[at]);
        let most = C.min(3);
        let fits = |at: usize| order[at] < most && does(at) == does(order[at]);
        (0..most).all(fits) && (most..3).all(|at| order[at] == at)
    }

    /// Lets a process come, release, give up or die.
    fn process_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let process = state.processes[by];
        let mut next = *state;
        match process.phase {
            Phase::Away if process.comes > 0 => {
                // The promise concerns only waiters whose place was known when this process came.
                let has_place = |&at: &usize| at != by && state.processes[at].has_place;
                let behind = (0..C).filter(has_place).map(|at| 1 << at).sum();
                let comes = process.comes - 1;
                next.processes[by] =
                    Process { phase: Phase::First, comes, behind, ..Process::AWAY };
                let idle = next.calls_mut(by).filter(|call| call.mail == Mail::Nothing);
                idle.for_each(|call| call.mail = Mail::First);
                found(Step::Comes { by }, next);
            }
            Phase::Holds => {
                next.end(by, Phase::Away);
                found(Step::Releases { by }, next);
            }
            Phase::First | Phase::Waits => {
                next.end(by, Phase::Away);
                found(Step::GivesUp { by }, next);
            }
            Phase::Away | Phase::Dead => {}
        }
        if state.deaths > 0 && !matches!(process.phase, Phase::Away | Phase::Dead) {
            let mut next = *state;
            next.deaths -= 1;
            next.end(by, Phase::Dead);
            found(Step::Dies { by }, next);
        }
    }

    /// Lets a denied process begin to wait, and one whose nodes gave different slots settle on one.
    fn wait_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let process = state.processes[by];
        if process.phase == Phase::First && self.waits[by] {
            let has_place = state.processes.iter().filter(|it| it.has_place);
            let first = has_place.map(|it| it.stamp).max().unwrap_or(0);
            let mut last = 0;
            state.clone().stamps_mut(|stamp| last = last.max(*stamp));
            for place in first..=last {
                let mut next = *state;
                // Makes room for a new stamp behind `place`.
                next.stamps_mut(|stamp| *stamp += u8::from(*stamp > place));
                let stamp = place + 1;
                next.processes[by] = Process { phase: Phase::Waits, stamp, ..next.processes[by] };
                found(Step::Waits { by, stamp }, next);
            }
        }
        let can_settle = process.slot == 0 && !self.alone[by] && self.permit == Permit::SameSlot;
        let counts = state.nodes.iter().any(|node| node.calls[by].counts_for().is_some());
        if !matches!(process.phase, Phase::First | Phase::Waits) || !can_settle || !counts {
            return;
        }
        for slot in 1..=self.permits {
            let mut next = *state;
            next.processes[by].slot = slot;
            for call in next.calls_mut(by) {
                call.mail = match (call.counts_for(), self.moves) {
                    // The old reply counts as one for the slot that is requested now.
                    (Some(given), Moves::KeepAnswer) if given != slot => Mail::Move(slot),
                    (Some(given), Moves::EndAnswer) if given != slot => Mail::Move(0),
                    _ => call.mail,
                };
            }
            if self.moves == Moves::KeepAnswer {
                self.may_hold(&mut next, by);
            }
            found(Step::Settles { by, slot }, next);
        }
    }

    /// Runs the next command of a process on a node.
    fn command_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let phase = state.processes[by].phase;
        let call = state.nodes[at].calls[by];
        match call.mail {
            Mail::First => self.ask_runs(state, (by, at), self.first_fits(state, by, at), found),
            Mail::Nothing if phase == Phase::Waits && call.slot == 0 => {
                let mut next = *state;
                let fits = self.asks_in_queue(&mut next, by, at);
                self.ask_runs(&next, (by, at), fits, found);
            }
            Mail::Move(_) => self.move_runs(state, by, at, found),
            Mail::Leaves => {
                let mut next = *state;
                next.nodes[at].calls[by] = Call::NONE;
                self.keep(&mut next.nodes[at], false);
                found(Step::Leaves { by, node: at }, next);
                let slot = state.processes[by].slot;
                // A node that gave another slot is asked for the holder's slot.
                if phase == Phase::Holds && self.heals && next.nodes[at].is_free(slot) {
                    next.nodes[at].calls[by] = Call { slot, stamp: 0, mail: Mail::Counts(slot) };
                    found(Step::Healed { by, node: at }, next);
                }
            }
            Mail::Nothing | Mail::Counts(_) => {}
        }
        self.undo_steps(state, by, at, found);
    }

    /// Denies a request, or gives it any of the free slots.
    fn ask_runs(
        &self,
        state: &State<N, C>,
        (by, at): (usize, usize),
        fits: bool,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        if !fits {
            let mut next = *state;
            next.nodes[at].calls[by].mail = Mail::Nothing;
            return found(Step::Denied { by, node: at }, next);
        }
        let slots = if self.alone[by] { ALL..=ALL } else { 1..=self.permits };
        for slot in slots.filter(|&slot| state.nodes[at].is_free(slot)) {
            let mut next = *state;
            let settled = next.processes[by].slot;
            let call = &mut next.nodes[at].calls[by];
            call.slot = slot;
            // Once the process has settled, another slot is a denial.
            let counts = state.is_alive(by) && (settled == 0 || settled == slot);
            call.mail = if counts { Mail::Counts(slot) } else { Mail::Nothing };
            self.keep(&mut next.nodes[at], false);
            self.may_hold(&mut next, by);
            found(Step::Granted { by, node: at, slot }, next);
        }
    }

    fn move_runs(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let slot = state.processes[by].slot;
        let stamp = state.nodes[at].calls[by].stamp;
        let mut next = *state;
        // The move frees the old slot even if the new one is taken.
        next.nodes[at].calls[by].slot = 0;
        if !next.nodes[at].is_free(slot) {
            next.nodes[at].calls[by] = Call { slot: 0, stamp, mail: Mail::Nothing };
            self.keep(&mut next.nodes[at], false);
            return found(Step::NotMoved { by, node: at }, next);
        }
        next.nodes[at].calls[by] = Call { slot, stamp, mail: Mail::Counts(slot) };
        self.may_hold(&mut next, by);
        found(Step::Moved { by, node: at }, next);
    }

    /// Undoes the grants of a process without a permit, and removes a holder's ticket.
    fn undo_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let call = state.nodes[at].calls[by];
        let mut next = *state;
        match state.processes[by].phase {
            Phase::First | Phase::Waits if call.slot > 0 && self.undoes => {
                next.nodes[at].calls[by] = Call { stamp: call.stamp, ..Call::NONE };
                self.keep(&mut next.nodes[at], false);
                if next.calls_mut(by).all(|call| call.slot == 0) {
                    // The attempt has ended.
                    next.processes[by].slot = 0;
                }
                found(Step::Undone { by, node: at }, next);
            }
            Phase::Holds if self.leaves_at_once && call.stamp > 0 && call.mail != Mail::Leaves => {
                next.nodes[at].calls[by].stamp = 0;
                self.keep(&mut next.nodes[at], false);
                found(Step::Leaves { by, node: at }, next);
            }
            _ => {}
        }
    }

    /// Expires what a dead process has left.
    fn end_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let call = state.nodes[at].calls[by];
        if state.processes[by].phase != Phase::Dead || call.mail != Mail::Nothing {
            return;
        }
        for (what, rest) in
            [("slot", Call { slot: 0, ..call }), ("ticket", Call { stamp: 0, ..call })]
        {
            if rest != call {
                let mut next = *state;
                next.nodes[at].calls[by] = rest;
                self.keep(&mut next.nodes[at], false);
                found(Step::Expires { by, node: at, what }, next);
            }
        }
    }

    /// Makes a process a holder if a quorum counts for it.
    fn may_hold(&self, state: &mut State<N, C>, by: usize) {
        let counts_for = state.nodes.map(|node| node.calls[by].counts_for());
        let count = |slot: Option<u8>| match self.permit {
            Permit::SameSlot => counts_for.iter().filter(|&&it| it == slot).count(),
            Permit::AnySlots => counts_for.iter().filter(|it| it.is_some()).count(),
        };
        let held = counts_for.into_iter().flatten().find(|&slot| count(Some(slot)) >= self.quorum);
        let Some(slot) = held.filter(|_| state.is_alive(by)) else { return };
        // A permit by any slots has no slot number.
        let number = if self.permit == Permit::SameSlot { slot } else { 0 };
        let process = state.processes[by];
        let bears = |other: usize| {
            // With several permits a waiter in the queue may pass another one for a permit.
            let are_permits = !self.alone[by] && !self.alone[other] && self.permits > 1;
            let has_stood = process.phase == Phase::Waits;
            self.promise == Promise::OfPermits && are_permits && has_stood
        };
        state.passed |= (0..C).any(|other| process.behind >> other & 1 == 1 && !bears(other));
        let comes = process.comes;
        state.processes[by] = Process { phase: Phase::Holds, comes, slot: number, ..Process::AWAY };
        for call in state.calls_mut(by) {
            let is_counted = call.counts_for() == Some(slot) || self.permit == Permit::AnySlots;
            let is_granted = matches!(call.mail, Mail::Counts(_)) && is_counted;
            call.mail = if is_granted { call.mail } else { Mail::Leaves };
        }
        state.nobody_is_behind(by);
    }

    /// Returns true if a node grants a request that writes no ticket.
    fn first_fits(&self, state: &State<N, C>, by: usize, at: usize) -> bool {
        let node = &state.nodes[at];
        !node.kept && self.has_room(node, by)
    }

    /// Returns true if the current holders leave room.
    fn has_room(&self, node: &Node<C>, by: usize) -> bool {
        let held = node.held();
        let is_alone = node.calls.iter().any(|call| call.slot == ALL);
        held == 0 || !self.alone[by] && !is_alone && held < self.permits.into()
    }

    /// Runs a waiter's request, which writes its ticket and marks a held resource. Returns true if
    /// the waiter fits.
    fn asks_in_queue(&self, state: &mut State<N, C>, by: usize, at: usize) -> bool {
        let stamp = state.processes[by].stamp;
        let node = &mut state.nodes[at];
        node.calls[by].stamp = stamp;
        // The mark precedes the decision, so that newcomers are denied from then on.
        self.keep(node, true);
        let fits = self.fits_in_queue(node, by);
        let stands = state.nodes.iter().filter(|node| node.calls[by].stamp > 0).count();
        state.processes[by].has_place |= stands >= self.quorum;
        fits
    }

    /// Returns true if a node lets the waiter in.
    fn fits_in_queue(&self, node: &Node<C>, by: usize) -> bool {
        let stamp = node.calls[by].stamp;
        let stands = |&other: &usize| (1..stamp).contains(&node.calls[other].stamp);
        let before = || (0..C).filter(stands);
        let room = usize::from(self.permits).saturating_sub(node.held());
        let fits = self.has_room(node, by);
        fits && match self.admits {
            // An exclusive waiter needs the whole resource.
            _ if self.alone[by] => before().count() == 0,
            Admits::WhereRoom => before().count() < room && !before().any(|it| self.alone[it]),
            Admits::BehindAnybody => before().count() < room,
            Admits::Anybody => true,
        }
    }

    /// Updates what keeps newcomers out, behind a command. `asks`: the command is a waiter's
    /// request.
    fn keep(&self, node: &mut Node<C>, asks: bool) {
        let has_queue = node.calls.iter().any(|call| call.stamp > 0);
        let is_held = node.held() > 0;
        node.kept = has_queue
            && match self.keeps {
                Keeps::Always => node.kept || asks,
                Keeps::OnceClosed => !is_held,
                Keeps::WhileHeld => asks || node.kept && is_held,
            };
    }
}

/// One node, for comparison with the shipping scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single<const C: usize>(Node<C>);

/// The actions of one node, independent of messages in flight.
impl<const N: usize, const C: usize> PermitQueue<N, C> {
    /// Returns a node without entries.
    #[must_use]
    pub fn single(&self) -> Single<C> {
        Single(Node::EMPTY)
    }

    /// Returns true if a first request, which writes no ticket, fits.
    #[must_use]
    pub fn first(&self, node: &Single<C>, by: usize) -> bool {
        !node.0.kept && self.has_room(&node.0, by)
    }

    /// Runs a request in the queue at this stamp and returns true if it fits.
    pub fn ask(&self, node: &mut Single<C>, by: usize, stamp: u8) -> bool {
        node.0.calls[by].stamp = stamp;
        self.keep(&mut node.0, true);
        self.fits_in_queue(&node.0, by)
    }

    /// Gives a slot, or the exclusive resource, to a process that fits. Returns true if it was
    /// free.
    pub fn give(&self, node: &mut Single<C>, by: usize, slot: u8) -> bool {
        let slot = if self.alone[by] { ALL } else { slot + 1 };
        let is_free = node.0.is_free(slot) && (slot == ALL || slot <= self.permits);
        node.0.calls[by].slot = slot;
        is_free
    }

    /// Removes a process from its slot.
    pub fn undo(&self, node: &mut Single<C>, by: usize) {
        node.0.calls[by].slot = 0;
        self.keep(&mut node.0, false);
    }

    /// Removes the ticket of a process.
    pub fn leave(&self, node: &mut Single<C>, by: usize) {
        node.0.calls[by].stamp = 0;
        self.keep(&mut node.0, false);
    }
}

impl<const C: usize> Single<C> {
    /// Returns true if a process holds a slot or the resource here.
    #[must_use]
    pub fn holds(&self, by: usize) -> bool {
        self.0.calls[by].slot > 0
    }

    /// Returns true if a process waits in the queue.
    #[must_use]
    pub fn stands(&self, by: usize) -> bool {
        self.0.calls[by].stamp > 0
    }

    /// Returns true if processes that are not in the queue are kept out.
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.0.kept
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    fn calls_mut(&mut self, by: usize) -> impl Iterator<Item = &mut Call> {
        self.nodes.iter_mut().map(move |node| &mut node.calls[by])
    }

    fn is_alive(&self, by: usize) -> bool {
        matches!(self.processes[by].phase, Phase::First | Phase::Waits)
    }

    /// Visits each stamp.
    fn stamps_mut(&mut self, mut each: impl FnMut(&mut u8)) {
        self.processes.iter_mut().for_each(|process| each(&mut process.stamp));
        let calls = self.nodes.iter_mut().flat_map(|node| &mut node.calls);
        calls.for_each(|call| each(&mut call.stamp));
    }

    /// Ends a process, and with it what it has on the nodes.
    fn end(&mut self, by: usize, phase: Phase) {
        let comes = if phase == Phase::Dead { 0 } else { self.processes[by].comes };
        self.processes[by] = Process { phase, comes, ..Process::AWAY };
        for call in self.calls_mut(by) {
            let has_any = call.slot > 0 || call.stamp > 0;
            call.mail = match phase {
                // Commands that a dead process has sent may still run.
                Phase::Dead if call.mail == Mail::First => Mail::First,
                Phase::Dead => Mail::Nothing,
                _ if has_any => Mail::Leaves,
                // The cancellation runs behind the commands sent, which might as well not have run.
                _ => Mail::Nothing,
            };
        }
        self.nobody_is_behind(by);
    }

    fn nobody_is_behind(&mut self, by: usize) {
        self.processes.iter_mut().for_each(|process| process.behind &= !(1 << by));
    }

    /// Returns the state with other names for processes and slots.
    fn renamed(&self, processes: &[usize; 3], slots: &[usize; 3]) -> Self {
        let named = |slot: u8| match slot {
            0 | ALL => slot,
            slot => slots.get(usize::from(slot) - 1).map_or(slot, |&new| new as u8 + 1),
        };
        let new_name = |by: usize| processes.get(by).copied().unwrap_or(by);
        let renamed_set = |set: u8| {
            let members = (0..C).filter(|&by| set >> by & 1 == 1);
            members.map(|by| 1 << new_name(by)).sum()
        };
        let mut renamed = *self;
        for by in 0..C {
            let process = self.processes[by];
            let (slot, behind) = (named(process.slot), renamed_set(process.behind));
            renamed.processes[new_name(by)] = Process { slot, behind, ..process };
            for (to, from) in renamed.nodes.iter_mut().zip(&self.nodes) {
                let call = from.calls[by];
                let mail = match call.mail {
                    Mail::Counts(slot) => Mail::Counts(named(slot)),
                    Mail::Move(slot) => Mail::Move(named(slot)),
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
    const EMPTY: Self = Self { kept: false, calls: [Call::NONE; C] };

    /// Returns the number of holders on the node.
    fn held(&self) -> usize {
        self.calls.iter().filter(|call| call.slot > 0).count()
    }

    /// Returns true if the slot, or the exclusive resource, is free.
    fn is_free(&self, slot: u8) -> bool {
        let is_blocking = |call: &Call| call.slot == slot || call.slot == ALL;
        !self.calls.iter().any(is_blocking) && (slot != ALL || self.held() == 0)
    }
}

impl Call {
    const NONE: Self = Self { slot: 0, stamp: 0, mail: Mail::Nothing };

    /// Returns the slot for which the node counts.
    fn counts_for(&self) -> Option<u8> {
        match self.mail {
            Mail::Counts(slot) | Mail::Move(slot) if slot > 0 => Some(slot),
            _ => None,
        }
    }
}

impl Process {
    const AWAY: Self =
        Self { phase: Phase::Away, comes: 0, stamp: 0, has_place: false, slot: 0, behind: 0 };
}
