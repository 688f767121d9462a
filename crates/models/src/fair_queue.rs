//! A model of the queue: waiters of a lock on a quorum of nodes, and newcomers that must not pass
//! them.
//!
//! Each node keeps a queue of tickets, ordered by stamp and then by name. A process sends each node
//! its requests separately. A node that cannot grant writes a ticket, and from the stamps of a
//! quorum the process chooses one stamp, *T*, which it sends with every later request. Its *place*
//! is known once a quorum of replies reports T. The promise: no process that began after that gets
//! the lock before it.
//!
//! There is no time. Messages run at any moment after they were sent or never, replies are received
//! at any moment or never, processes give up at any moment, and keys and tickets of dead ones
//! expire at any moment. Commands of one process to one node run in order, so an undo or a leave
//! cancels what was sent before. A grant is received at once: a grant that is not received is
//! modelled as a request that has not run yet, which can only block others.
//!
//! The library's `fair_queue::Standpoint` decides the stamp of each process. A queue with more than
//! one permit on each node is possible here; the shipping semaphore with its slots is in
//! `permit_queue.rs`.
//!
//! The violations are: two holders that do not share the lock; a newcomer that passes; a state from
//! which the waiters can no longer get in, or in which tickets stay for ever. The model leaves out
//! validity, the restart guard and loss of keys (a queue only denies), graces, TTLs and wake-ups.

use std::fmt;

pub use crate::read_write::Mode;
use redbolt::proto::fair_queue::Standpoint;

use crate::search::{Model, Progress};

/// The processes of a lock on `N` nodes, the faults, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct FairQueue<const N: usize, const C: usize> {
    /// The mode that each process wants.
    pub modes: [Mode; C],
    /// The number of holders that a node admits at once: 1 for a lock, more for a semaphore.
    pub permits: u8,
    /// The waiters that a node with several permits admits.
    pub admits: Admits,
    /// The number of times that each process comes.
    pub comes: [u8; C],
    /// The processes that wait; the others try once and leave.
    pub waits: [bool; C],
    /// The stamp that each process's clock proposes.
    pub clocks: [u8; C],
    /// The number of nodes that are down from the beginning.
    pub down: usize,
    /// The faults, each with the number of times it may happen.
    pub faults: Faults,
    /// How a newcomer is kept from passing the waiters.
    pub first_ask: FirstAsk,
    /// How waiters agree on one order.
    pub order: Order,
    /// True: a ticket stays on a node that has granted until the lock is decided. False: it is
    /// removed with the grant.
    pub keeps_ticket: bool,
    /// The effect of a request with T on a ticket.
    pub placing: Placing,
    /// True: a reply that grants reports the ticket's stamp too. False: only one that denies.
    pub grant_reports: bool,
    /// True: a holder leaves the queue when it is granted. False: when it releases.
    pub leaves_at_once: bool,
    /// How a writer that held the lock deletes its key.
    pub deletes: Deletes,
    /// True: the promise is judged. Skips and lost queues may break it.
    pub promises: bool,
}

/// The faults, each with the number of times it may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A process dies.
    pub deaths: u8,
    /// A node stops for good.
    pub stops: u8,
    /// A live head loses its ticket on a node because it did not take its turn.
    pub skips: u8,
    /// A node loses its queue.
    pub losses: u8,
}

/// How a newcomer is kept from passing the waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstAsk {
    /// Not at all: the first request of a writer is a plain `SET NX`.
    Open,
    /// Every request is a script that reads the queue.
    Script,
    /// The first request is plain. If there is a queue, a free key is closed: it exists, and only
    /// the script takes it.
    Closed(Closing),
    /// The first request is plain. A read of the queue runs behind it, and a grant next to other
    /// tickets is undone.
    ReadBehind,
    /// As `ReadBehind`, but the read runs before the request, which is not sent if others wait.
    ReadBefore,
}

/// The events that leave a closed key instead of a free one if there is a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// A release.
    pub release: bool,
    /// The undo of an attempt that was not granted.
    pub undo: bool,
    /// The expiry of a holder's key.
    pub expiry: bool,
    /// A request of a waiter that finds the key free and other waiters before it.
    pub ask: bool,
    /// True: a closed key lives while a live waiter is in the queue. False: it may expire before.
    pub lasts: bool,
}

impl Closing {
    /// All of them.
    pub const ALWAYS: Self =
        Self { release: true, undo: true, expiry: true, ask: true, lasts: true };
}

/// How waiters agree on one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// T is the stamp that a quorum reports alike before any T was sent, and otherwise the largest
    /// stamp seen once a quorum has replied. It is raised until a quorum knows the place, and never
    /// lowered: the rule.
    Agreed,
    /// T is also lowered after it was sent, if a quorum reports the same lower stamp.
    Lowered,
    /// T is also raised once the place is known.
    RaisedWithPlace,
    /// T is the largest stamp seen, even before a quorum has replied.
    BeforeQuorum,
    /// There is no T: each node has its own order.
    EachNode,
    /// The stamp is the process's clock.
    Clocks,
}

/// The waiters that a node with several permits admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// Only the head.
    Head,
    /// Every waiter with fewer waiters before it than permits are free, see
    /// [`crate::permit_queue`].
    WhileFree,
}

/// How a writer that held the lock deletes its key. A key with tickets in its queue is marked: its
/// value is more than the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletes {
    /// By the script, which leaves a closed key if one is needed.
    ByScript,
    /// By the server's compare-and-delete, which does not match a marked key; the script follows if
    /// it has deleted nothing: the rule.
    Natively,
    /// As `Natively`, but the mark is not compared.
    PastTheMark,
    /// As `Natively`, but no script follows.
    Once,
}

/// The effect of a request with T on a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// It sets the ticket to T before the node determines the head: the rule.
    Sets,
    /// It raises the ticket to T, and leaves a ticket behind T where it is.
    Raises,
    /// It raises the ticket, but only if the node does not grant.
    RaisesWhereDenied,
}

impl<const N: usize, const C: usize> FairQueue<N, C> {
    const QUORUM: usize = N / 2 + 1;

    /// The rules of the library, for writers that each come once and wait.
    pub const RULES: Self = Self {
        modes: [Mode::Exclusive; C],
        permits: 1,
        admits: Admits::Head,
        comes: [1; C],
        waits: [true; C],
        clocks: [0; C],
        down: 0,
        faults: Faults { deaths: 0, stops: 0, skips: 0, losses: 0 },
        first_ask: FirstAsk::Script,
        order: Order::Agreed,
        keeps_ticket: true,
        placing: Placing::Sets,
        grant_reports: true,
        leaves_at_once: true,
        deletes: Deletes::ByScript,
        promises: true,
    };
}

/// The nodes, the processes, and the faults that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize, const C: usize> {
    nodes: [Node<C>; N],
    processes: [Process; C],
    faults: Faults,
    passed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node<const C: usize> {
    stopped: bool,
    /// The processes that have the key, one bit each.
    holders: u8,
    /// The key exists, and only the queue can take it.
    closed: bool,
    calls: [Call; C],
}

/// The state of a process on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The stamp of its ticket; 0 if there is none.
    stamp: u8,
    /// The last stamp that it has received; 0 if there was none.
    received: u8,
    mail: Mail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    Nothing,
    /// The first request, which writes no ticket.
    First,
    /// The queue was read and was empty, and the request has not run.
    Read,
    /// The first request was granted, and the queue has not been read.
    Unread,
    /// A request with T, or 0.
    Ask(u8),
    /// The reply that reports the ticket's stamp.
    Stamp(u8),
    Granted,
    /// The compare-and-delete of a holder that has released.
    Deletes,
    /// The command that removes everything of the process is in flight.
    Leaves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    phase: Phase,
    /// The number of times that it may still come.
    comes: u8,
    /// The stamp that it has sent; 0 if none.
    t: u8,
    has_place: bool,
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
    Waits { by: usize },
    Asks { by: usize, node: usize, t: u8 },
    Runs { by: usize, node: usize, what: &'static str },
    Hears { by: usize, node: usize, stamp: u8 },
    Undone { by: usize, node: usize },
    Leaves { by: usize, node: usize },
    Deletes { by: usize, node: usize, what: &'static str },
    Releases { by: usize },
    GivesUp { by: usize },
    Dies { by: usize },
    Expires { by: usize, node: usize, what: &'static str },
    Opens { node: usize },
    Fault { node: usize, what: &'static str },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Comes { by } => write!(f, "{} comes and asks all nodes", name(by)),
            Self::Waits { by } => write!(f, "{} begins to wait", name(by)),
            Self::Asks { by, node, t: 0 } => write!(f, "{} asks n{node}", name(by)),
            Self::Asks { by, node, t } => write!(f, "{} asks n{node} with T = {t}", name(by)),
            Self::Runs { by, node, what } => write!(f, "on n{node} {} {what}", name(by)),
            Self::Hears { by, node, stamp } => {
                write!(f, "{} hears of stamp {stamp} from n{node}", name(by))
            }
            Self::Undone { by, node } => write!(f, "{} is undone on n{node}", name(by)),
            Self::Leaves { by, node } => write!(f, "{} leaves n{node}", name(by)),
            Self::Deletes { by, node, what } => {
                write!(f, "{}'s compare-and-delete on n{node} {what}", name(by))
            }
            Self::Releases { by } => write!(f, "{} releases", name(by)),
            Self::GivesUp { by } => write!(f, "{} gives up", name(by)),
            Self::Dies { by } => write!(f, "{} dies", name(by)),
            Self::Expires { by, node, what } => write!(f, "{}'s {what} on n{node} ends", name(by)),
            Self::Opens { node } => write!(f, "the closed key on n{node} ends"),
            Self::Fault { node, what } => write!(f, "n{node} {what}"),
        }
    }
}

impl<const N: usize, const C: usize> Model for FairQueue<N, C> {
    type State = State<N, C>;
    type Step = Step;

    fn begins(&self) -> Vec<State<N, C>> {
        let node = Node { stopped: false, holders: 0, closed: false, calls: [Call::NONE; C] };
        let process = |at: usize| Process { comes: self.comes[at], ..Process::AWAY };
        let processes = std::array::from_fn(process);
        let mut nodes = [node; N];
        // Nodes are interchangeable, so the last ones stand for any that are down.
        nodes[N - self.down..].iter_mut().for_each(|node| node.stopped = true);
        vec![State { nodes, processes, faults: self.faults, passed: false }]
    }

    fn steps(&self, state: &State<N, C>, found: &mut impl FnMut(Step, State<N, C>)) {
        for by in 0..C {
            self.process_steps(state, by, found);
            for at in 0..N {
                self.ask_steps(state, by, at, found);
                if !state.nodes[at].stopped {
                    self.run_steps(state, by, at, found);
                    self.end_steps(state, by, at, found);
                }
            }
        }
        for at in (0..N).filter(|&at| !state.nodes[at].stopped) {
            self.fault_steps(state, at, found);
        }
    }

    fn wrong(&self, state: &State<N, C>) -> Option<&'static str> {
        let holders = state.all_in(Phase::Holds);
        let is_lock = self.permits == 1;
        let is_alone = |by: usize| self.bears(by, holders & !(1 << by));
        if is_lock && (0..C).any(|by| holders >> by & 1 == 1 && !is_alone(by)) {
            return Some("two holders at once");
        }
        state.passed.then_some("a newcomer passed")
    }

    /// Drops replies to a process whose place is known, because they carry nothing new for it.
    fn thin(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = *state;
        let is_over = |by: usize| state.processes[by].has_place && self.order != Order::Lowered;
        let over: [bool; C] = std::array::from_fn(is_over);
        for by in (0..C).filter(|&by| over[by] && self.order != Order::RaisedWithPlace) {
            for call in state.calls_mut(by) {
                call.received = 0;
                if matches!(call.mail, Mail::Stamp(_)) {
                    call.mail = Mail::Nothing;
                }
            }
        }
        state
    }

    /// Merges states that differ in the names of nodes only.
    fn canonical(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = *state;
        state.nodes.sort_unstable();
        state
    }
}

impl<const N: usize, const C: usize> Progress for FairQueue<N, C> {
    /// Returns true if no process waits or holds, and no running node keeps anything.
    fn is_settled(&self, state: &State<N, C>) -> bool {
        let is_gone = |process: &Process| matches!(process.phase, Phase::Away | Phase::Dead);
        let is_clear = |node: &Node<C>| {
            let no_tickets = node.calls.iter().all(|call| call.stamp == 0);
            node.stopped || (no_tickets && node.holders == 0 && !node.closed)
        };
        state.processes.iter().all(is_gone) && state.nodes.iter().all(is_clear)
    }

    /// Returns true if progress may rely on the step. No process has to come, stop waiting or lose
    /// anything for others to get in.
    fn helps(&self, step: &Step) -> bool {
        match *step {
            Step::GivesUp { by } => !self.waits[by],
            Step::Comes { .. } | Step::Dies { .. } | Step::Fault { .. } => false,
            _ => true,
        }
    }
}

impl<const N: usize, const C: usize> FairQueue<N, C> {
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
                let behind = state.all_with_a_place() & !(1 << by);
                let comes = process.comes - 1;
                let is_in_queue = self.first_ask == FirstAsk::Script && self.waits[by];
                let phase = if is_in_queue { Phase::Waits } else { Phase::First };
                next.processes[by] = Process { phase, comes, behind, ..Process::AWAY };
                for call in next.calls_mut(by).filter(|call| call.mail == Mail::Nothing) {
                    call.mail = if is_in_queue { Mail::Nothing } else { Mail::First };
                }
                found(Step::Comes { by }, next);
            }
            Phase::First if self.waits[by] => {
                next.processes[by].phase = Phase::Waits;
                found(Step::Waits { by }, next);
            }
            Phase::Holds => {
                let is_native = self.deletes != Deletes::ByScript;
                // Only a writer's string can be deleted by the server's command.
                if is_native && self.modes[by] == Mode::Exclusive {
                    next.deletes(by);
                }
                next.end(by, Phase::Away);
                found(Step::Releases { by }, next);
            }
            Phase::Away | Phase::First | Phase::Waits | Phase::Dead => {}
        }
        if matches!(process.phase, Phase::First | Phase::Waits) {
            let mut next = *state;
            next.end(by, Phase::Away);
            found(Step::GivesUp { by }, next);
        }
        if state.faults.deaths > 0 && process.phase != Phase::Dead {
            let mut next = *state;
            next.faults.deaths -= 1;
            next.end(by, Phase::Dead);
            found(Step::Dies { by }, next);
        }
    }

    /// Lets a waiter send T or receive a reply.
    fn ask_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Process { phase: Phase::Waits, t, has_place, .. } = state.processes[by] else { return };
        let mail = state.nodes[at].calls[by].mail;
        let t = self.t_to_send(state, by).max(t);
        let reports = t > 0 && (!has_place || t > state.processes[by].t);
        if matches!(mail, Mail::Nothing | Mail::Stamp(_)) && reports {
            let mut next = *state;
            next.processes[by].t = t;
            next.processes[by].has_place |= next.reports_alike(by, t);
            next.nodes[at].calls[by].mail = Mail::Ask(t);
            found(Step::Asks { by, node: at, t }, next);
        }
        if let Mail::Stamp(stamp) = mail {
            let mut next = *state;
            next.nodes[at].calls[by].mail = Mail::Nothing;
            next.nodes[at].calls[by].received = stamp;
            self.agree(&mut next, by, stamp);
            found(Step::Hears { by, node: at, stamp }, next);
        }
    }

    /// Returns the T that a waiter sends, or 0 to repeat its last one.
    fn t_to_send(&self, state: &State<N, C>, by: usize) -> u8 {
        let received = state.nodes.iter().map(|node| node.calls[by].received);
        let is_quorum = received.clone().filter(|&received| received > 0).count() >= Self::QUORUM;
        let largest = received.max().unwrap_or(0);
        let has_place = state.processes[by].has_place;
        match self.order {
            Order::EachNode => 0,
            Order::BeforeQuorum if !has_place => largest,
            Order::RaisedWithPlace if is_quorum => largest,
            Order::Agreed => {
                state.standpoint(by).before_ask(&state.received(by), Self::QUORUM).stamp() as u8
            }
            _ if is_quorum && !has_place => largest,
            _ => 0,
        }
    }

    /// Receives a stamp, which may become T and may make the place known.
    fn agree(&self, state: &mut State<N, C>, by: usize, stamp: u8) {
        // The rule is the library's code; the variants below break it.
        if self.order == Order::Agreed {
            let received = state.received(by);
            let next = state.standpoint(by).after_reply(stamp.into(), &received, Self::QUORUM);
            let process = &mut state.processes[by];
            (process.t, process.has_place) = (next.stamp() as u8, next.has_place());
            return;
        }
        let is_alike = state.reports_alike(by, stamp);
        let process = &mut state.processes[by];
        let may_be_t = process.t == 0 || self.order == Order::Lowered;
        if is_alike && (process.t == stamp || may_be_t && !process.has_place) {
            process.t = stamp;
            process.has_place = true;
        }
    }

    /// Runs the next command of a process on a node.
    fn run_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        match state.nodes[at].calls[by].mail {
            Mail::First | Mail::Read => self.first_runs(state, by, at, found),
            Mail::Unread => {
                // A ticket found behind the grant may be older, so the grant is undone.
                if state.nodes[at].has_others(by) {
                    let mut next = *state;
                    next.nodes[at].free(by, self.closes_at_undo());
                    next.nodes[at].calls[by].mail = Mail::Nothing;
                    let what = "reads of others in the queue, and gives back";
                    found(Step::Runs { by, node: at, what }, next);
                } else {
                    let next = self.granted(state, by, at);
                    let what = "reads of nobody in the queue";
                    found(Step::Runs { by, node: at, what }, next);
                }
            }
            Mail::Ask(t) => self.ask_runs(state, by, at, t, found),
            Mail::Nothing | Mail::Stamp(_) if state.processes[by].phase == Phase::Waits => {
                self.unsent_runs(state, by, at, found);
            }
            Mail::Deletes => self.delete_runs(state, by, at, found),
            Mail::Leaves => {
                let mut next = *state;
                let Closing { release, .. } = self.closing();
                next.nodes[at].calls[by] = Call::NONE;
                next.nodes[at].free(by, release);
                next.nodes[at].open_if_empty();
                found(Step::Leaves { by, node: at }, next);
            }
            Mail::Nothing | Mail::Stamp(_) | Mail::Granted => {}
        }
        self.undo_steps(state, by, at, found);
    }

    /// Runs the compare-and-delete of a process that released. If it deletes nothing, or a ticket
    /// is left, the script follows.
    fn delete_runs(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let mut next = *state;
        let is_deleted = self.deletes_natively(&mut next.nodes[at], by);
        let call = &mut next.nodes[at].calls[by];
        // Without the script a marked key or a ticket would stay for ever.
        call.mail = match is_deleted || self.deletes == Deletes::Once {
            true if call.stamp == 0 => Mail::Nothing,
            _ => Mail::Leaves,
        };
        let what = if is_deleted { "finds its key" } else { "finds no such key" };
        found(Step::Deletes { by, node: at, what }, next);
    }

    /// Runs the first request, which writes no ticket.
    fn first_runs(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let node = state.nodes[at];
        let is_plain = self.first_ask != FirstAsk::Script && self.modes[by] == Mode::Exclusive;
        let may = self.lets_in_first(&node, by);
        let mut next = *state;
        let reads_first = is_plain && self.first_ask == FirstAsk::ReadBefore;
        if reads_first && node.calls[by].mail == Mail::First && !node.has_others(by) {
            next.nodes[at].calls[by].mail = Mail::Read;
            return found(Step::Runs { by, node: at, what: "reads of nobody in the queue" }, next);
        }
        if !may || reads_first && node.calls[by].mail == Mail::First {
            next.nodes[at].calls[by].mail = Mail::Nothing;
            return found(Step::Runs { by, node: at, what: "is denied" }, next);
        }
        if is_plain && self.first_ask == FirstAsk::ReadBehind {
            // The grant counts only once the queue was read behind it.
            next.nodes[at].holders |= 1 << by;
            next.nodes[at].calls[by].mail = Mail::Unread;
        } else {
            next = self.granted(state, by, at);
        }
        found(Step::Runs { by, node: at, what: "is granted at once" }, next);
    }

    /// Runs requests that carry nothing new. They may have been sent at any time, so they are
    /// always in flight: one without T while none was sent or the node has no ticket, one with T
    /// once the place is known.
    fn unsent_runs(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Process { t, has_place, .. } = state.processes[by];
        if t == 0 || state.nodes[at].calls[by].stamp == 0 {
            self.ask_runs(state, by, at, 0, found);
        }
        if has_place {
            self.ask_runs(state, by, at, t, found);
        }
    }

    /// Runs a waiter's request, which is granted or gets a ticket.
    fn ask_runs(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        t: u8,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let mut next = *state;
        let (is_granted, stamp) = self.answers(&mut next.nodes[at], by, t);
        if is_granted {
            let mut next = self.granted(&next, by, at);
            // Otherwise a waiter that is granted wherever it has a ticket never learns the stamps
            // of a quorum.
            if stamp > 0 && self.grant_reports && next.processes[by].phase == Phase::Waits {
                next.nodes[at].calls[by].received = stamp;
                self.agree(&mut next, by, stamp);
            }
            return found(Step::Runs { by, node: at, what: "is granted" }, next);
        }
        // A dead process receives no reply.
        let is_dead = state.processes[by].phase == Phase::Dead;
        let mail = if is_dead { Mail::Nothing } else { Mail::Stamp(stamp) };
        next.nodes[at].calls[by].mail = mail;
        found(Step::Runs { by, node: at, what: "is given its place" }, next);
    }

    /// Returns true if the compare-and-delete finds a key to delete.
    fn deletes_natively(&self, node: &mut Node<C>, by: usize) -> bool {
        let has_key = node.holders >> by & 1 == 1;
        // A marked value is more than the token, so it does not match.
        let is_marked = node.calls.iter().any(|call| call.stamp > 0);
        let finds = has_key && (!is_marked || self.deletes == Deletes::PastTheMark);
        if finds {
            node.holders &= !(1 << by);
        }
        finds
    }

    /// Returns true if a node grants a request that writes no ticket. If first requests are plain,
    /// a shared request is denied by any sign of a queue.
    fn lets_in_first(&self, node: &Node<C>, by: usize) -> bool {
        let is_free = node.holders == 0 && !node.closed;
        match (self.first_ask, self.modes[by]) {
            (FirstAsk::Script, _) | (FirstAsk::ReadBehind | FirstAsk::ReadBefore, Mode::Shared) => {
                self.fits(by, node.holders) && !self.is_blocked(node, by, node.calls[by].stamp)
            }
            (FirstAsk::Open | FirstAsk::Closed(_), Mode::Shared) => {
                self.fits(by, node.holders) && !node.closed && !node.has_others(by)
            }
            (_, Mode::Exclusive) => is_free,
        }
    }

    /// Runs a waiter's request on a node. Returns whether it is granted, and the stamp of its
    /// ticket, 0 for none.
    fn answers(&self, node: &mut Node<C>, by: usize, t: u8) -> (bool, u8) {
        // The ticket is placed before the head is determined: a head on a free node would otherwise
        // never learn that its place changes.
        let placed = match (node.calls[by].stamp, self.placing) {
            (stamp, _) if t == 0 => stamp,
            (0, _) | (_, Placing::Sets) => t,
            (stamp, Placing::Raises) => stamp.max(t),
            (stamp, Placing::RaisesWhereDenied) => stamp,
        };
        let last = node.calls.iter().map(|call| call.stamp).max().unwrap_or(0);
        let new = match self.order {
            Order::Clocks => self.clocks[by],
            _ => self.clocks[by].max(last + 1),
        };
        let stands_at = |stamp| if stamp == 0 { new } else { stamp };
        if self.fits(by, node.holders) && !self.is_blocked(node, by, placed) {
            let stamp = if self.keeps_ticket { stands_at(placed) } else { 0 };
            node.calls[by].stamp = stamp;
            (node.holders, node.closed) = (node.holders | 1 << by, false);
            return (true, stamp);
        }
        let raises = self.placing == Placing::RaisesWhereDenied;
        let stamp = stands_at(if raises { placed.max(t) } else { placed });
        node.calls[by].stamp = stamp;
        // A free key with a queue must be closed, or a newcomer's plain request would take it.
        node.closed |= node.holders == 0 && self.closing().ask;
        (false, stamp)
    }

    /// Counts the node for the process, which may have a quorum now.
    fn granted(&self, state: &State<N, C>, by: usize, at: usize) -> State<N, C> {
        let mut next = *state;
        next.nodes[at].holders |= 1 << by;
        next.nodes[at].closed = false;
        let is_dead = next.processes[by].phase == Phase::Dead;
        next.nodes[at].calls[by].mail = if is_dead { Mail::Nothing } else { Mail::Granted };
        let count = next.nodes.iter().filter(|node| node.calls[by].mail == Mail::Granted).count();
        // A dead process cannot hold the lock; its grants only block others.
        if count >= Self::QUORUM && !is_dead {
            let others = next.processes[by].behind;
            next.passed |= self.promises && !self.bears(by, others);
            next.holds(by, self.leaves_at_once);
        }
        next
    }

    /// Undoes the grants of a process without the lock, and removes a holder's ticket.
    fn undo_steps(
        &self,
        state: &State<N, C>,
        by: usize,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Call { stamp, mail, .. } = state.nodes[at].calls[by];
        let mut next = *state;
        match state.processes[by].phase {
            Phase::First | Phase::Waits if matches!(mail, Mail::Granted | Mail::Unread) => {
                next.nodes[at].free(by, self.closes_at_undo());
                next.nodes[at].calls[by].mail = Mail::Nothing;
                found(Step::Undone { by, node: at }, next);
            }
            Phase::Holds if self.leaves_at_once && mail == Mail::Granted && stamp > 0 => {
                next.nodes[at].calls[by].stamp = 0;
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
        if state.processes[by].phase != Phase::Dead {
            return;
        }
        if state.nodes[at].holders >> by & 1 == 1 {
            let mut next = *state;
            next.nodes[at].free(by, self.closing().expiry);
            found(Step::Expires { by, node: at, what: "key" }, next);
        }
        if state.nodes[at].calls[by].stamp > 0 {
            let mut next = *state;
            next.nodes[at].calls[by].stamp = 0;
            found(Step::Expires { by, node: at, what: "ticket" }, next);
        }
    }

    fn fault_steps(
        &self,
        state: &State<N, C>,
        at: usize,
        found: &mut impl FnMut(Step, State<N, C>),
    ) {
        let Faults { stops, skips, losses, .. } = state.faults;
        let node = state.nodes[at];
        // A closed key lives as long as a live waiter keeps it alive.
        let stays = self.closing().lasts && node.living(state) > 0;
        if node.closed && !stays {
            let mut next = *state;
            next.nodes[at].closed = false;
            found(Step::Opens { node: at }, next);
        }
        if stops > 0 {
            let mut next = *state;
            next.faults.stops -= 1;
            next.nodes[at].stopped = true;
            found(Step::Fault { node: at, what: "stops" }, next);
        }
        if losses > 0 && node.calls.iter().any(|call| call.stamp > 0) {
            let mut next = *state;
            next.faults.losses -= 1;
            next.nodes[at].calls.iter_mut().for_each(|call| call.stamp = 0);
            found(Step::Fault { node: at, what: "loses its queue" }, next);
        }
        let head = (0..C).filter(|&by| node.calls[by].stamp > 0).min_by_key(|&by| node.place(by));
        if let Some(head) = head
            && skips > 0
            && node.holders == 0
            && node.has_others(head)
        {
            let mut next = *state;
            next.faults.skips -= 1;
            next.nodes[at].calls[head].stamp = 0;
            found(Step::Fault { node: at, what: "skips its head" }, next);
        }
    }

    /// Returns true if a process may hold together with all of `others`.
    fn bears(&self, by: usize, others: u8) -> bool {
        let is_shared = |at: usize| self.modes[at] == Mode::Shared;
        let all_shared = (0..C).filter(|&at| others >> at & 1 == 1).all(is_shared);
        others == 0 || is_shared(by) && all_shared
    }

    /// Returns true if a node has room for a process.
    fn fits(&self, by: usize, holders: u8) -> bool {
        if self.permits == 1 {
            return self.bears(by, holders);
        }
        holders.count_ones() < self.permits.into()
    }

    /// Returns true if a waiter before it has an incompatible mode or, with several permits, none
    /// is left for it. If `placed` is 0, every waiter is before it.
    fn is_blocked(&self, node: &Node<C>, by: usize, placed: u8) -> bool {
        let stands = |&other: &usize| other != by && node.calls[other].stamp > 0;
        let is_before = |&other: &usize| placed == 0 || node.place(other) < (placed, by);
        let mut before = (0..C).filter(stands).filter(is_before);
        match self.admits {
            Admits::Head => before.any(|other| !self.bears(by, 1 << other)),
            Admits::WhileFree => {
                before.count() + node.holders.count_ones() as usize >= self.permits.into()
            }
        }
    }

    fn closing(&self) -> Closing {
        let never = Closing { release: false, undo: false, expiry: false, ask: false, lasts: true };
        if let FirstAsk::Closed(closing) = self.first_ask { closing } else { never }
    }

    fn closes_at_undo(&self) -> bool {
        self.closing().undo
    }
}

/// One node, for comparison with the shipping scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone<const C: usize>(Node<C>);

/// The actions of one node, independent of messages in flight.
impl<const N: usize, const C: usize> FairQueue<N, C> {
    /// Returns a node without entries.
    #[must_use]
    pub fn alone(&self) -> Alone<C> {
        Alone(Node { stopped: false, holders: 0, closed: false, calls: [Call::NONE; C] })
    }

    /// Runs the first request, which writes no ticket, and returns true if it is granted.
    pub fn first(&self, node: &mut Alone<C>, by: usize) -> bool {
        let may = self.lets_in_first(&node.0, by);
        if may {
            node.0.holders |= 1 << by;
        }
        may
    }

    /// Runs a request in the queue, with T or 0. Returns whether it is granted, and the ticket's
    /// stamp.
    pub fn ask(&self, node: &mut Alone<C>, by: usize, t: u8) -> (bool, u8) {
        self.answers(&mut node.0, by, t)
    }

    /// Undoes the grant of a process.
    pub fn undo(&self, node: &mut Alone<C>, by: usize) {
        node.0.free(by, self.closes_at_undo());
    }

    /// Runs the compare-and-delete of a process that held the node and returns true if it deletes
    /// the key.
    pub fn delete(&self, node: &mut Alone<C>, by: usize) -> bool {
        self.deletes_natively(&mut node.0, by)
    }

    /// Removes the ticket of a process.
    pub fn leave(&self, node: &mut Alone<C>, by: usize) {
        node.0.calls[by] = Call::NONE;
        node.0.open_if_empty();
    }

    /// Expires the keys of all holders.
    pub fn expire(&self, node: &mut Alone<C>) {
        for by in 0..C {
            node.0.free(by, self.closing().expiry);
        }
    }

    /// Expires a closed key.
    pub fn open(&self, node: &mut Alone<C>) {
        node.0.closed = false;
    }

    /// Skips the head, which did not take its turn: the next request passes it.
    pub fn skip(&self, node: &mut Alone<C>) {
        let stands = |&by: &usize| node.0.calls[by].stamp > 0;
        if let Some(head) = (0..C).filter(stands).min_by_key(|&by| node.0.place(by)) {
            node.0.calls[head].stamp = 0;
        }
    }
}

impl<const C: usize> Alone<C> {
    /// Returns true if a process has the key.
    #[must_use]
    pub fn holds(&self, by: usize) -> bool {
        self.0.holders >> by & 1 == 1
    }

    /// Returns true if the key exists and only the queue can take it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.closed
    }

    /// Returns the stamp of each process's ticket; 0 if it has none.
    #[must_use]
    pub fn stamps(&self) -> [u8; C] {
        self.0.calls.map(|call| call.stamp)
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    fn calls_mut(&mut self, by: usize) -> impl Iterator<Item = &mut Call> {
        self.nodes.iter_mut().map(move |node| &mut node.calls[by])
    }

    fn all_in(&self, phase: Phase) -> u8 {
        let in_phase = (0..C).filter(|&by| self.processes[by].phase == phase);
        in_phase.map(|by| 1 << by).sum()
    }

    /// Returns the waiters whose place is known.
    fn all_with_a_place(&self) -> u8 {
        let have = (0..C).filter(|&by| self.processes[by].has_place);
        have.map(|by| 1 << by).sum::<u8>() & self.all_in(Phase::Waits)
    }

    fn standpoint(&self, by: usize) -> Standpoint {
        let Process { t, has_place, .. } = self.processes[by];
        Standpoint::new(t.into(), has_place)
    }

    /// Returns the last stamp that each node has reported to a process.
    fn received(&self, by: usize) -> [u64; N] {
        self.nodes.map(|node| node.calls[by].received.into())
    }

    /// Returns true if a quorum of replies reports this stamp.
    fn reports_alike(&self, by: usize, stamp: u8) -> bool {
        let says = |node: &&Node<C>| node.calls[by].received == stamp;
        stamp > 0 && self.nodes.iter().filter(says).count() > N / 2
    }

    /// Makes a process the holder. Its messages in flight to other nodes are undone.
    fn holds(&mut self, by: usize, leaves_at_once: bool) {
        let comes = self.processes[by].comes;
        self.processes[by] = Process { phase: Phase::Holds, comes, ..Process::AWAY };
        for call in self.calls_mut(by) {
            call.received = 0;
            if call.mail != Mail::Granted && (leaves_at_once || call.mail != Mail::Nothing) {
                call.mail = Mail::Leaves;
            }
        }
        self.nobody_is_behind(by);
    }

    /// Releases a holder: its first undo on each node that granted is the compare-and-delete.
    fn deletes(&mut self, by: usize) {
        for call in self.calls_mut(by).filter(|call| call.mail == Mail::Granted) {
            call.mail = Mail::Deletes;
        }
    }

    /// Ends a process, and with it what it has on the nodes.
    fn end(&mut self, by: usize, phase: Phase) {
        let comes = if phase == Phase::Dead { 0 } else { self.processes[by].comes };
        self.processes[by] = Process { phase, comes, ..Process::AWAY };
        for node in &mut self.nodes {
            let has_key = node.holders >> by & 1 == 1;
            let call = &mut node.calls[by];
            call.received = 0;
            let is_under_way = matches!(call.mail, Mail::First | Mail::Ask(_));
            call.mail = match phase {
                // Commands that a dead process has sent may still run.
                Phase::Dead if is_under_way => call.mail,
                Phase::Dead => Mail::Nothing,
                _ if call.mail == Mail::Deletes => Mail::Deletes,
                _ if has_key || call.stamp > 0 => Mail::Leaves,
                // The cancellation runs behind the commands sent, which might as well not have run.
                _ => Mail::Nothing,
            };
        }
        self.nobody_is_behind(by);
    }

    fn nobody_is_behind(&mut self, by: usize) {
        for process in &mut self.processes {
            process.behind &= !(1 << by);
        }
    }
}

impl<const C: usize> Node<C> {
    /// Returns the position of a ticket in the queue.
    fn place(&self, by: usize) -> (u8, usize) {
        (self.calls[by].stamp, by)
    }

    fn has_others(&self, by: usize) -> bool {
        (0..C).any(|other| other != by && self.calls[other].stamp > 0)
    }

    /// Returns the number of tickets of live processes.
    fn living<const N: usize>(&self, state: &State<N, C>) -> usize {
        let lives = |&by: &usize| state.processes[by].phase != Phase::Dead;
        (0..C).filter(|&by| self.calls[by].stamp > 0).filter(lives).count()
    }

    /// Removes a process's key. If there is a queue, a closed key may be left.
    fn free(&mut self, by: usize, closes: bool) {
        let had = self.holders >> by & 1 == 1;
        self.holders &= !(1 << by);
        let has_queue = self.calls.iter().any(|call| call.stamp > 0);
        self.closed |= had && closes && self.holders == 0 && has_queue;
    }

    fn open_if_empty(&mut self) {
        self.closed &= self.calls.iter().any(|call| call.stamp > 0);
    }
}

impl Call {
    const NONE: Self = Self { stamp: 0, received: 0, mail: Mail::Nothing };
}

impl Process {
    const AWAY: Self = Self { phase: Phase::Away, comes: 0, t: 0, has_place: false, behind: 0 };
}
