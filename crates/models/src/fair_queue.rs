//! The queue: waiters of a lock on a quorum of nodes, and newcomers who must not pass them.
//!
//! Each node keeps a queue of tickets, ordered by stamp and then by name. A process asks each node on
//! its own; where it cannot be granted it is given a ticket, and from the stamps of a quorum it takes
//! one for itself, *T*, which it sends with every later ask. A quorum knows its
//! *place* when a quorum of answers says T. The promise: no process that began after that gets the lock before it.
//!
//! There is no time. Messages run at any moment after they were sent or never, answers are heard at any
//! moment or never, processes give up at any moment, dead ones leave keys and tickets that end at any moment.
//! Commands of one process to one node run in order, so an undo or a leave cancels what was sent before.
//! A grant is heard at once: one that is not heard is an ask that has not run yet, and in others' way.
//!
//! A semaphore's queue could be the same with more than one permit on each node. What it is, with its slots, is in
//! `permit_queue.rs`. By which stamp a process goes is decided by the library's
//! `fair_queue::Standpoint`.
//!
//! What may not happen: two holders who do not bear each other; a newcomer who passes; a state from which
//! the waiters get no further, or in which tickets stay for ever. Not here: validity, the restart guard
//! and loss of keys (a queue only denies), graces and TTLs, who is woken when.

use std::fmt;

pub use crate::read_write::Mode;
use redbolt::proto::fair_queue::Standpoint;

use crate::search::{Model, Progress};

/// Who comes to a lock on `N` nodes, what may happen, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct FairQueue<const N: usize, const C: usize> {
    /// What each process wants.
    pub modes: [Mode; C],
    /// How many a node lets in at once: 1 for a lock, more for a semaphore.
    pub permits: u8,
    /// Whom a node with several permits lets in.
    pub admits: Admits,
    /// How often each comes.
    pub comes: [u8; C],
    /// Which of them wait; the others try once and go.
    pub waits: [bool; C],
    /// What each process's clock proposes as a stamp.
    pub clocks: [u8; C],
    /// How many nodes are down from the beginning.
    pub down: usize,
    /// What may go wrong, and how often.
    pub faults: Faults,
    /// How a newcomer is kept from passing those who wait in the queue.
    pub first_ask: FirstAsk,
    /// How waiters agree on one order.
    pub order: Order,
    /// A ticket stays where the node has granted, until the lock is decided; otherwise it goes.
    pub keeps_ticket: bool,
    /// What an ask with T does to a ticket.
    pub placing: Placing,
    /// The answer that grants names the ticket's stamp too; otherwise only the one that denies.
    pub grant_reports: bool,
    /// A holder leaves the queue when it is granted; otherwise when it releases.
    pub leaves_at_once: bool,
    /// How a writer that held the lock deletes its key.
    pub deletes: Deletes,
    /// Whether the promise is judged, which skips and lost queues may break.
    pub promises: bool,
}

/// What may go wrong, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A process dies.
    pub deaths: u8,
    /// A node stops for good.
    pub stops: u8,
    /// A living head loses its ticket on a node, since it did not take its turn.
    pub skips: u8,
    /// A node loses its queue.
    pub losses: u8,
}

/// How a newcomer is kept from passing those who wait in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstAsk {
    /// Not at all: the first ask of a writer is a plain `SET NX`.
    Open,
    /// Every ask is a script that reads the queue.
    Script,
    /// The first ask is plain. Where there is a queue, a free key is closed: it is there, and only the
    /// script takes it.
    Closed(Closing),
    /// The first ask is plain. A read of the queue runs behind it, and what was granted beside others'
    /// tickets is given back.
    ReadBehind,
    /// The same, but the read runs before the ask, which is not sent where others stand.
    ReadBefore,
}

/// What leaves a closed key instead of a free one where there is a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// A release.
    pub release: bool,
    /// An undo of an attempt that was not granted.
    pub undo: bool,
    /// The end of a holder's TTL.
    pub expiry: bool,
    /// A waiter's ask that finds the key free, and others before it.
    pub ask: bool,
    /// A closed key lives for as long as somebody alive waits in the queue; otherwise it may end before.
    pub lasts: bool,
}

impl Closing {
    /// All of it.
    pub const ALWAYS: Self =
        Self { release: true, undo: true, expiry: true, ask: true, lasts: true };
}

/// How waiters agree on one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// T is what a quorum says alike before anything was sent, and otherwise the largest that was
    /// seen once a quorum was seen. It is raised until a quorum knows the place, and never lowered: the rule.
    Agreed,
    /// T is lowered by a quorum that says alike what is less, also after it was sent.
    Lowered,
    /// T is raised once the place is known too.
    RaisedWithPlace,
    /// T is the largest that was seen, whether of a quorum or not.
    BeforeQuorum,
    /// There is no T: each node has its own order.
    EachNode,
    /// The stamp is the process's clock.
    Clocks,
}

/// Whom a node with several permits lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// The head alone.
    Head,
    /// Everybody before whom fewer stand than permits are free, see [`crate::permit_queue`].
    WhileFree,
}

/// How a writer that held the lock deletes its key. A key beside which a ticket stands is marked: its value is more than the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletes {
    /// By the script, which leaves what is to be left.
    ByScript,
    /// By the server's compare-and-delete, which finds no marked key; the script follows where it has found none: the rule.
    Natively,
    /// The same, but the mark is not compared.
    PastTheMark,
    /// The same, but no script follows.
    Once,
}

/// What an ask with T does to a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// It puts it at T, before the node looks who stands first: the rule.
    Sets,
    /// It raises it to T, and leaves one that is behind T where it is.
    Raises,
    /// It raises it, but only where the node does not grant.
    RaisesWhereDenied,
}

impl<const N: usize, const C: usize> FairQueue<N, C> {
    const QUORUM: usize = N / 2 + 1;

    /// The rules as they are meant, for writers who each come once and wait.
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
    /// The key is there, and free for the queue only.
    closed: bool,
    calls: [Call; C],
}

/// What is between a process and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    /// The stamp of its ticket; 0 if there is none.
    stamp: u8,
    /// The last stamp that it has heard; 0 if there was none.
    received: u8,
    mail: Mail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    Nothing,
    /// The first ask, which writes no ticket.
    First,
    /// The queue was read and nobody stood there, and the ask has not run.
    Read,
    /// The first ask was granted, and the queue has not been read.
    Unread,
    /// An ask with T, or 0.
    Ask(u8),
    /// The answer that names the ticket's stamp.
    Stamp(u8),
    Granted,
    /// The compare-and-delete of a holder that has released.
    Deletes,
    /// Whatever there is of it goes.
    Leaves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    phase: Phase,
    /// How often it may still come.
    comes: u8,
    /// What it has sent; 0 if nothing.
    t: u8,
    has_place: bool,
    /// The waiters whose place was known when it came, one bit each.
    behind: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Away,
    /// Its first ask is under way.
    First,
    Waits,
    Holds,
    Dead,
}

/// One thing that happens. The processes are A, B, C, the nodes `n0`, `n1` …
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

    /// Once the place is known, answers tell nothing more.
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

    /// Nodes are alike.
    fn canonical(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = *state;
        state.nodes.sort_unstable();
        state
    }
}

impl<const N: usize, const C: usize> Progress for FairQueue<N, C> {
    /// Nobody waits or holds, and no node that runs keeps anything.
    fn is_settled(&self, state: &State<N, C>) -> bool {
        let is_gone = |process: &Process| matches!(process.phase, Phase::Away | Phase::Dead);
        let is_clear = |node: &Node<C>| {
            let no_tickets = node.calls.iter().all(|call| call.stamp == 0);
            node.stopped || (no_tickets && node.holders == 0 && !node.closed)
        };
        state.processes.iter().all(is_gone) && state.nodes.iter().all(is_clear)
    }

    /// Nobody has to come, to stop waiting or to lose anything for others to get further.
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

    /// A waiter sends T, or hears an answer.
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

    /// What a waiter sends, or 0 for what it has sent before.
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

    /// A stamp was heard: it may be T, and the place may be known then.
    fn agree(&self, state: &mut State<N, C>, by: usize, stamp: u8) {
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

    /// The next command of a process runs on a node.
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

    /// Whoever released deletes its key, if nobody is in the queue; and if that was not all, the script follows.
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
        call.mail = match is_deleted || self.deletes == Deletes::Once {
            true if call.stamp == 0 => Mail::Nothing,
            _ => Mail::Leaves,
        };
        let what = if is_deleted { "finds its key" } else { "finds no such key" };
        found(Step::Deletes { by, node: at, what }, next);
    }

    /// The first ask writes no ticket.
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
            next.nodes[at].holders |= 1 << by;
            next.nodes[at].calls[by].mail = Mail::Unread;
        } else {
            next = self.granted(state, by, at);
        }
        found(Step::Runs { by, node: at, what: "is granted at once" }, next);
    }

    /// An ask that says nothing new may have been sent at any time, so it is under way all the time:
    /// one without T as long as none was sent or the node knows of none, one with T once the place is known.
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

    /// A waiter's ask: granted, or a ticket.
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
            if stamp > 0 && self.grant_reports && next.processes[by].phase == Phase::Waits {
                next.nodes[at].calls[by].received = stamp;
                self.agree(&mut next, by, stamp);
            }
            return found(Step::Runs { by, node: at, what: "is granted" }, next);
        }
        let is_dead = state.processes[by].phase == Phase::Dead;
        let mail = if is_dead { Mail::Nothing } else { Mail::Stamp(stamp) };
        next.nodes[at].calls[by].mail = mail;
        found(Step::Runs { by, node: at, what: "is given its place" }, next);
    }

    /// Whether the compare-and-delete finds what it deletes.
    fn deletes_natively(&self, node: &mut Node<C>, by: usize) -> bool {
        let has_key = node.holders >> by & 1 == 1;
        let is_marked = node.calls.iter().any(|call| call.stamp > 0);
        let finds = has_key && (!is_marked || self.deletes == Deletes::PastTheMark);
        if finds {
            node.holders &= !(1 << by);
        }
        finds
    }

    /// Whether a node grants an ask that writes no ticket. Where the first ask is plain, one that shares is denied by what
    /// tells of a queue.
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

    /// What a node does with a waiter's ask: whether it grants, and at which stamp the ticket stands, 0 for none.
    fn answers(&self, node: &mut Node<C>, by: usize, t: u8) -> (bool, u8) {
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
        node.closed |= node.holders == 0 && self.closing().ask;
        (false, stamp)
    }

    /// The node counts for the process, which may have a quorum now.
    fn granted(&self, state: &State<N, C>, by: usize, at: usize) -> State<N, C> {
        let mut next = *state;
        next.nodes[at].holders |= 1 << by;
        next.nodes[at].closed = false;
        let is_dead = next.processes[by].phase == Phase::Dead;
        next.nodes[at].calls[by].mail = if is_dead { Mail::Nothing } else { Mail::Granted };
        let count = next.nodes.iter().filter(|node| node.calls[by].mail == Mail::Granted).count();
        if count >= Self::QUORUM && !is_dead {
            let others = next.processes[by].behind;
            next.passed |= self.promises && !self.bears(by, others);
            next.holds(by, self.leaves_at_once);
        }
        next
    }

    /// A process without the lock gives a node back; a holder leaves its queue.
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

    /// What a dead process has left ends.
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

    /// Whether a process may hold beside all of these.
    fn bears(&self, by: usize, others: u8) -> bool {
        let is_shared = |at: usize| self.modes[at] == Mode::Shared;
        let all_shared = (0..C).filter(|&at| others >> at & 1 == 1).all(is_shared);
        others == 0 || is_shared(by) && all_shared
    }

    /// Whether a node has room for a process.
    fn fits(&self, by: usize, holders: u8) -> bool {
        if self.permits == 1 {
            return self.bears(by, holders);
        }
        holders.count_ones() < self.permits.into()
    }

    /// Whether somebody stands before it who does not bear it. Without a place all do.
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

/// A node by itself, for whoever compares it with one that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone<const C: usize>(Node<C>);

/// What a node does, whatever is under way.
impl<const N: usize, const C: usize> FairQueue<N, C> {
    /// Nobody has been there.
    #[must_use]
    pub fn alone(&self) -> Alone<C> {
        Alone(Node { stopped: false, holders: 0, closed: false, calls: [Call::NONE; C] })
    }

    /// The first ask, which writes no ticket: whether it is granted.
    pub fn first(&self, node: &mut Alone<C>, by: usize) -> bool {
        let may = self.lets_in_first(&node.0, by);
        if may {
            node.0.holders |= 1 << by;
        }
        may
    }

    /// An ask in the queue, with T or 0: whether it is granted, and the ticket's stamp.
    pub fn ask(&self, node: &mut Alone<C>, by: usize, t: u8) -> (bool, u8) {
        self.answers(&mut node.0, by, t)
    }

    /// A process gives a node back.
    pub fn undo(&self, node: &mut Alone<C>, by: usize) {
        node.0.free(by, self.closes_at_undo());
    }

    /// A process that held the node deletes its key natively: whether it finds it.
    pub fn delete(&self, node: &mut Alone<C>, by: usize) -> bool {
        self.deletes_natively(&mut node.0, by)
    }

    /// A process takes its ticket away.
    pub fn leave(&self, node: &mut Alone<C>, by: usize) {
        node.0.calls[by] = Call::NONE;
        node.0.open_if_empty();
    }

    /// The time of all who hold the node is over.
    pub fn expire(&self, node: &mut Alone<C>) {
        for by in 0..C {
            node.0.free(by, self.closing().expiry);
        }
    }

    /// A closed key ends.
    pub fn open(&self, node: &mut Alone<C>) {
        node.0.closed = false;
    }

    /// The first in the queue has not taken its turn, and is passed by whoever asks next.
    pub fn skip(&self, node: &mut Alone<C>) {
        let stands = |&by: &usize| node.0.calls[by].stamp > 0;
        if let Some(head) = (0..C).filter(stands).min_by_key(|&by| node.0.place(by)) {
            node.0.calls[head].stamp = 0;
        }
    }
}

impl<const C: usize> Alone<C> {
    /// Whether a process has the key.
    #[must_use]
    pub fn holds(&self, by: usize) -> bool {
        self.0.holders >> by & 1 == 1
    }

    /// Whether the key is there, and free for the queue only.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.closed
    }

    /// The stamp of each process's ticket; 0 if it has none.
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

    /// The waiters whose place is known.
    fn all_with_a_place(&self) -> u8 {
        let have = (0..C).filter(|&by| self.processes[by].has_place);
        have.map(|by| 1 << by).sum::<u8>() & self.all_in(Phase::Waits)
    }

    fn standpoint(&self, by: usize) -> Standpoint {
        let Process { t, has_place, .. } = self.processes[by];
        Standpoint::new(t.into(), has_place)
    }

    /// What the nodes have told a process last.
    fn received(&self, by: usize) -> [u64; N] {
        self.nodes.map(|node| node.calls[by].received.into())
    }

    /// Whether a quorum of answers says this.
    fn reports_alike(&self, by: usize, stamp: u8) -> bool {
        let says = |node: &&Node<C>| node.calls[by].received == stamp;
        stamp > 0 && self.nodes.iter().filter(says).count() > N / 2
    }

    /// A process has the lock. What is under way elsewhere is undone.
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

    /// A holder lets go: where it was granted, its first undo is the compare-and-delete.
    fn deletes(&mut self, by: usize) {
        for call in self.calls_mut(by).filter(|call| call.mail == Mail::Granted) {
            call.mail = Mail::Deletes;
        }
    }

    /// A process has gone, and so does what it has on the nodes.
    fn end(&mut self, by: usize, phase: Phase) {
        let comes = if phase == Phase::Dead { 0 } else { self.processes[by].comes };
        self.processes[by] = Process { phase, comes, ..Process::AWAY };
        for node in &mut self.nodes {
            let has_key = node.holders >> by & 1 == 1;
            let call = &mut node.calls[by];
            call.received = 0;
            let is_under_way = matches!(call.mail, Mail::First | Mail::Ask(_));
            call.mail = match phase {
                // What a dead process has sent may still run.
                Phase::Dead if is_under_way => call.mail,
                Phase::Dead => Mail::Nothing,
                _ if call.mail == Mail::Deletes => Mail::Deletes,
                _ if has_key || call.stamp > 0 => Mail::Leaves,
                // Cancelled behind what was sent, which might as well not have run.
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
    /// Where a ticket stands.
    fn place(&self, by: usize) -> (u8, usize) {
        (self.calls[by].stamp, by)
    }

    fn has_others(&self, by: usize) -> bool {
        (0..C).any(|other| other != by && self.calls[other].stamp > 0)
    }

    /// How many tickets are of the living.
    fn living<const N: usize>(&self, state: &State<N, C>) -> usize {
        let lives = |&by: &usize| state.processes[by].phase != Phase::Dead;
        (0..C).filter(|&by| self.calls[by].stamp > 0).filter(lives).count()
    }

    /// Takes a process's key away; where there is a queue, a closed one may be left.
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
