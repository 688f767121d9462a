//! Fencing tokens from a few nodes, without any assumption about time.
//!
//! A key may expire at any moment: that covers releases, undos, evictions and clocks gone mad.
//! Messages run at any time after they were sent, also long after their attempt has ended; one that
//! is lost is one that never runs, and so is an answer. Not here: the clock that proposes a counter
//! (it only makes counters grow faster), validity, and the restart guard.
//!
//! A token is judged when it is committed. That of an attempt which holds the resource alone must be
//! above all that were committed before the attempt began, and nobody else may have committed the
//! same. That of one which shares it must be above those of whoever held it alone before: that is what
//! a store can check, which refuses a write below the largest token it has seen and a read below
//! the largest even one.

use std::fmt;

use redbolt::proto::fence::{Agreement, agreement};

use crate::search::Model;

/// How tokens are made on `N` nodes, and what may happen. The clients share `A` attempts evenly.
#[derive(Clone, Copy, Debug)]
pub struct Fencing<const N: usize, const A: usize> {
    /// How many clients there are, 1 to 3.
    pub clients: usize,
    /// The counters may begin at anything from 0 to this, each node for itself.
    pub most_at_first: u8,
    /// How a token is agreed on where the grants differ.
    pub write_back: WriteBack,
    /// Which grants count that come while the write-back is under way.
    pub late: Late,
    /// How often a node may lose its memory and go on voting.
    pub wipes: u8,
    /// What a node has that lost its memory.
    pub wiped: Wiped,
    /// A denial raises the counter too.
    pub bump_on_deny: bool,
    /// A grant raises the counter to the next even number, not by one.
    pub even: bool,
    /// The attempts that share the resource with each other, one bit each.
    pub shared: u8,
    /// Those among them that want no token, and touch no counter.
    pub without_token: u8,
    /// What a grant to one that shares does to the counter.
    pub odd: Odd,
    /// A write-back may be confirmed by a replica of a node, which has been promoted while the node votes on.
    pub replica_confirms: bool,
    /// Leaves out what can only make less happen: see [`Model::thin`].
    pub lean: bool,
}

/// How a token is agreed on where the grants of a quorum differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// The highest is raised on the granted nodes that are behind, if they are still ours.
    Checked,
    /// The same, without looking whose they are.
    Unconditional,
    /// Not at all: the highest is the token.
    None,
}

/// Which grants count towards a token that is being written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Those with the same counter.
    Equal,
    /// Those with at least that counter.
    AtLeast,
    /// All.
    Any,
}

/// What a node has that lost its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiped {
    /// No counter, and it begins anew.
    Nothing,
    /// No counter, and what is proposed to it is above every counter and token there is, as clocks see to that agree: the rule.
    Overtaken,
    /// A counter of long ago. What is proposed is above all as well.
    AnEarlierOne,
}

/// What a grant to one that shares does to the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// An odd one stays, unless it is of long ago; any other goes up to the next odd number: the rule.
    KeptIfYoung,
    /// An odd one stays, whatever it is: the design's rule.
    Kept,
    /// It goes up to the next odd number.
    Raised,
    /// An odd one stays, and an even one goes up only where nobody else is present.
    RaisedByFirst,
    /// Nothing.
    Untouched,
}

impl<const N: usize, const A: usize> Fencing<N, A> {
    const QUORUM: usize = N / 2 + 1;

    /// The rules as they are meant.
    pub const RULES: Self = Self {
        clients: 2,
        most_at_first: 0,
        write_back: WriteBack::Checked,
        late: Late::Equal,
        wipes: 0,
        wiped: Wiped::Nothing,
        bump_on_deny: false,
        even: true,
        shared: 0,
        without_token: 0,
        odd: Odd::KeptIfYoung,
        replica_confirms: false,
        lean: true,
    };
}

/// The nodes with what is under way, and the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize, const A: usize> {
    nodes: [Node<A>; N],
    attempts: [Attempt; A],
    wipes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node<const A: usize> {
    counter: u8,
    /// What is proposed to it is at least this, and a counter below is of long ago.
    proposed: u8,
    /// The attempts that have the key, one bit each.
    holders: u8,
    /// What is under way between each attempt and this node.
    mail: [Mail; A],
}

/// The ways to name three clients.
const ORDERS: [[usize; 3]; 6] = [SAME_ORDER, [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
const SAME_ORDER: [usize; 3] = [0, 1, 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    Nothing,
    Ask,
    /// The ask was granted with this counter, and the answer is under way.
    Grant(u8),
    /// The client has heard of the grant.
    Granted(u8),
    WriteBack,
    WrittenBack,
    /// The client has heard that the counter was raised while the key was ours.
    Confirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Attempt {
    phase: Phase,
    /// What is being written back, or was committed.
    token: u8,
    /// The highest token that was committed before this attempt began, plus one.
    floor: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    Asking,
    Writing,
    GaveUp,
    Committed,
}

impl Phase {
    fn has_ended(self) -> bool {
        matches!(self, Self::GaveUp | Self::Committed)
    }
}

/// One thing that happens. `A`, `B` … are the attempts, `n0` … the nodes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Begins { by: usize },
    Runs { by: usize, node: usize, counter: Option<u8> },
    Heard { by: usize, node: usize, counter: u8 },
    Proposes { by: usize, token: u8 },
    SentLater { by: usize, node: usize },
    WriteBackRuns { by: usize, node: usize, done: bool },
    RunsOnReplica { by: usize, node: usize },
    Confirmed { by: usize, node: usize },
    Commits { by: usize, token: u8 },
    Expires { node: usize },
    Wiped { node: usize, counter: u8 },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Begins { by } => write!(f, "{} asks all nodes", name(by)),
            Self::Runs { by, node, counter: Some(c) } => {
                write!(f, "n{node} grants {} with {c}", name(by))
            }
            Self::Runs { by, node, counter: None } => write!(f, "n{node} denies {}", name(by)),
            Self::Heard { by, node, counter } => {
                write!(f, "{} hears that n{node} granted with {counter}", name(by))
            }
            Self::Proposes { by, token } => write!(f, "{} writes {token} back", name(by)),
            Self::SentLater { by, node } => {
                write!(f, "{} writes back to n{node} too, which granted late", name(by))
            }
            Self::WriteBackRuns { by, node, done } => {
                let done = if done { "runs" } else { "is refused" };
                write!(f, "the write-back of {} {done} on n{node}", name(by))
            }
            Self::RunsOnReplica { by, node } => {
                write!(f, "the write-back of {} runs on a replica of n{node}", name(by))
            }
            Self::Confirmed { by, node } => {
                write!(f, "{} hears that n{node} wrote back", name(by))
            }
            Self::Commits { by, token } => write!(f, "{} holds token {token}", name(by)),
            Self::Expires { node } => write!(f, "the key on n{node} is gone"),
            Self::Wiped { node, counter: 0 } => write!(f, "n{node} loses its memory"),
            Self::Wiped { node, counter } => write!(f, "n{node} comes back with {counter}"),
        }
    }
}

impl<const N: usize, const A: usize> Model for Fencing<N, A> {
    type State = State<N, A>;
    type Step = Step;

    fn begins(&self) -> Vec<State<N, A>> {
        let node = |counter| Node { counter, proposed: 0, holders: 0, mail: [Mail::Nothing; A] };
        let attempts = [Attempt { phase: Phase::Idle, token: 0, floor: 0 }; A];
        let values = usize::from(self.most_at_first) + 1;
        let begins = (0..values.pow(N as u32)).map(|code| {
            let digit = |at| code / values.pow(at as u32) % values;
            let nodes = std::array::from_fn(|at| node(digit(at) as u8));
            State { nodes, attempts, wipes: self.wipes }
        });
        begins.collect()
    }

    fn steps(&self, state: &State<N, A>, found: &mut impl FnMut(Step, State<N, A>)) {
        if self.lean
            && let Some(by) = (0..A).find(|&by| self.is_confirmed(state, by))
        {
            // Later it would only be bound to less.
            return self.finish(state, by, found);
        }
        for by in 0..A {
            self.client_steps(state, by, found);
            for node in 0..N {
                self.node_steps(state, by, node, found);
            }
        }
        for node in 0..N {
            for by in (0..A).filter(|&by| state.nodes[node].has(by)) {
                let mut next = *state;
                next.nodes[node].disown(by);
                found(Step::Expires { node }, next);
            }
            if state.wipes > 0 {
                let mut next = *state;
                next.wipes -= 1;
                let above_all = state.highest() + 1;
                let most = match self.wiped {
                    Wiped::AnEarlierOne => state.nodes[node].counter,
                    Wiped::Nothing | Wiped::Overtaken => 0,
                };
                let is_overtaken = self.wiped != Wiped::Nothing;
                next.nodes[node].holders = 0;
                next.nodes[node].proposed = if is_overtaken { above_all } else { 0 };
                for counter in 0..=most {
                    next.nodes[node].counter = counter;
                    found(Step::Wiped { node, counter }, next);
                }
            }
        }
    }

    fn wrong(&self, state: &State<N, A>) -> Option<&'static str> {
        let committed = |a: &Attempt| a.phase == Phase::Committed;
        for (at, attempt) in state.attempts.iter().enumerate().filter(|(_, a)| committed(a)) {
            if !self.shares(at) && !attempt.token.is_multiple_of(2) {
                return Some("the token of one who holds it alone is odd");
            }
            if attempt.token < attempt.floor {
                return Some("a token is not above one that was held before it was asked for");
            }
            let others = (at + 1..A).filter(|&by| committed(&state.attempts[by]));
            let mut others = others.filter(|&by| !(self.shares(at) && self.shares(by)));
            if others.any(|by| state.attempts[by].token == attempt.token) {
                return Some("two holders have the same token");
            }
        }
        None
    }

    /// Takes out what is of no consequence, so that more attempts fit. Nothing wrong is lost by it:
    ///
    /// - a message that is refused might as well not have run yet, and an answer that is there might
    ///   as well not have been heard;
    /// - a key of which nothing more depends may go, for while it stays it only makes less happen;
    /// - a write-back may be sent as early as it can be, since it runs whenever it likes;
    /// - of an attempt that has ended only what may still run matters, and an ask that runs then
    ///   raises the counter, whosever it is;
    /// - a token that all others will be above is in nobody's way.
    fn thin(&self, state: &State<N, A>) -> State<N, A> {
        let mut state = *state;
        if !self.lean || self.wrong(&state).is_some() {
            return state;
        }
        for by in 0..A {
            match state.attempts[by].phase {
                Phase::Idle | Phase::Asking => {}
                Phase::Writing => self.thin_writing(&mut state, by),
                Phase::GaveUp | Phase::Committed => self.thin_ended(&mut state, by),
            }
        }
        for kind in [self.without_token, self.shared & !self.without_token, !self.shared] {
            state.gather_ghosts(kind);
        }
        // A counter that may yet begin at 0 again is not one of those that only grow.
        if state.wipes == 0 {
            state.forget_low_tokens(u8::from(self.shared == 0));
        }
        state
    }

    /// Nodes are alike, and so are the clients; of counters only the differences matter, and which are even.
    fn canonical(&self, state: &State<N, A>) -> State<N, A> {
        let mut state = *state;
        if state.wipes == 0 {
            state.lower();
        }
        let orders = ORDERS.iter().filter(|order| {
            let of_clients = order[self.clients..] == SAME_ORDER[self.clients..];
            let kind = |by: usize| (self.shares(by), self.wants_token(by));
            of_clients && (0..A).all(|by| kind(by) == kind(self.named(by, order)))
        });
        let renamed = orders.map(|order| {
            let mut renamed = self.renamed(&state, order);
            renamed.nodes.sort_unstable();
            renamed
        });
        renamed.min().unwrap_or(state)
    }
}

impl<const N: usize, const A: usize> Fencing<N, A> {
    fn client_steps(
        &self,
        state: &State<N, A>,
        by: usize,
        found: &mut impl FnMut(Step, State<N, A>),
    ) {
        match state.attempts[by].phase {
            Phase::Idle => self.begin(state, by, found),
            Phase::Asking => self.agree(state, by, found),
            Phase::Writing => self.finish(state, by, found),
            Phase::GaveUp | Phase::Committed => {}
        }
    }

    /// A client has one attempt at a time, and gives one up when it begins the next.
    fn begin(&self, state: &State<N, A>, by: usize, found: &mut impl FnMut(Step, State<N, A>)) {
        let mut next = *state;
        if !by.is_multiple_of(self.per_client()) {
            match state.attempts[by - 1].phase {
                Phase::Idle => return,
                Phase::Asking | Phase::Writing => next.attempts[by - 1].phase = Phase::GaveUp,
                Phase::GaveUp | Phase::Committed => {}
            }
        }
        let bind = |other: &usize| !self.shares(by) || !self.shares(*other);
        let others = (0..A).filter(bind).map(|other| state.attempts[other]);
        let held = others.filter(|a| a.phase == Phase::Committed);
        next.attempts[by].floor = held.map(|a| a.token + 1).max().unwrap_or(0);
        next.attempts[by].phase = Phase::Asking;
        next.nodes.iter_mut().for_each(|node| node.mail[by] = Mail::Ask);
        found(Step::Begins { by }, next);
    }

    /// What has come may still be on its way, so a quorum of it may be all that the client knows.
    fn agree(&self, state: &State<N, A>, by: usize, found: &mut impl FnMut(Step, State<N, A>)) {
        let granted = |node: usize| match state.nodes[node].mail[by] {
            Mail::Granted(counter) => Some(counter),
            _ => None,
        };
        for subset in 0..1u32 << N {
            let known = |node: usize| granted(node).filter(|_| subset >> node & 1 == 1);
            let mut counters = [0; N];
            let mut count = 0;
            for counter in (0..N).filter_map(known) {
                counters[count] = counter.into();
                count += 1;
            }
            let counters = &counters[..count];
            if count < Self::QUORUM || subset.count_ones() as usize != count {
                continue;
            }
            let (token, agreed) = match agreement(counters, Self::QUORUM) {
                Agreement::Reached(token) => (token as u8, true),
                Agreement::Behind(token) => (token as u8, self.write_back == WriteBack::None),
            };
            let mut next = state.commit(by, token);
            if agreed {
                found(Step::Commits { by, token }, next);
                continue;
            }
            next.attempts[by].phase = Phase::Writing;
            for node in (0..N).filter(|&node| known(node).is_some_and(|c| c < token)) {
                next.nodes[node].mail[by] = Mail::WriteBack;
            }
            found(Step::Proposes { by, token }, next);
        }
    }

    fn finish(&self, state: &State<N, A>, by: usize, found: &mut impl FnMut(Step, State<N, A>)) {
        if self.is_confirmed(state, by) {
            let token = state.attempts[by].token;
            found(Step::Commits { by, token }, state.commit(by, token));
        }
        let token = state.attempts[by].token;
        for node in 0..N {
            if matches!(state.nodes[node].mail[by], Mail::Granted(counter) if counter < token) {
                let next = state.with_mail(by, node, Mail::WriteBack);
                found(Step::SentLater { by, node }, next);
            }
        }
    }

    fn is_confirmed(&self, state: &State<N, A>, by: usize) -> bool {
        let Attempt { phase: Phase::Writing, token, .. } = state.attempts[by] else { return false };
        let counts = |node: &&Node<A>| match node.mail[by] {
            Mail::Granted(counter) => self.counts(counter, token),
            mail => mail == Mail::Confirmed,
        };
        state.nodes.iter().filter(counts).count() >= Self::QUORUM
    }

    /// Whether a grant counts towards a token that is being written back.
    #[must_use]
    pub fn counts(&self, counter: u8, token: u8) -> bool {
        match self.late {
            Late::Equal => counter == token,
            Late::AtLeast => counter >= token,
            Late::Any => true,
        }
    }

    fn shares(&self, by: usize) -> bool {
        self.shared >> by & 1 == 1
    }

    fn wants_token(&self, by: usize) -> bool {
        self.without_token >> by & 1 == 0
    }

    /// The counter after a grant.
    fn raised(&self, node: &Node<A>, by: usize) -> u8 {
        let Node { counter, proposed, holders, .. } = *node;
        match self.odd {
            _ if self.shares(by) && !self.wants_token(by) => counter,
            Odd::RaisedByFirst if self.shares(by) && holders > 0 => counter,
            _ => self.granted(self.shares(by), counter, proposed, proposed),
        }
    }

    /// The same, of a grant to one that shares or does not, where an odd counter may stay that is no less than `kept_from`, and so
    /// much is proposed.
    #[must_use]
    pub fn granted(&self, shares: bool, counter: u8, kept_from: u8, proposed: u8) -> u8 {
        let more = (counter + 1).max(proposed);
        let is_odd = counter % 2 == 1;
        match self.odd {
            _ if !shares && self.even => more.next_multiple_of(2),
            _ if !shares => more,
            Odd::KeptIfYoung if is_odd && counter >= kept_from => counter,
            Odd::Kept | Odd::RaisedByFirst if is_odd => counter,
            Odd::KeptIfYoung | Odd::Kept | Odd::RaisedByFirst | Odd::Raised => more | 1,
            Odd::Untouched => counter,
        }
    }

    /// The counter after a write-back of a token by one that has the key, or has not.
    #[must_use]
    pub fn written_back(&self, has_key: bool, counter: u8, token: u8) -> Option<u8> {
        let runs = has_key || self.write_back != WriteBack::Checked;
        runs.then(|| counter.max(token))
    }

    fn is_free(&self, node: &Node<A>, by: usize) -> bool {
        node.holders == 0 || self.shares(by) && node.holders & !self.shared == 0
    }

    fn node_steps(
        &self,
        state: &State<N, A>,
        by: usize,
        node: usize,
        found: &mut impl FnMut(Step, State<N, A>),
    ) {
        let Node { counter, mail, .. } = state.nodes[node];
        let present = state.nodes[node];
        let ended = state.attempts[by].phase.has_ended();
        match mail[by] {
            Mail::Ask if self.is_free(&present, by) => {
                let counter = self.raised(&present, by);
                let answer = match self.wants_token(by) {
                    true if self.lean => Mail::Granted(counter),
                    true => Mail::Grant(counter),
                    false => Mail::Nothing,
                };
                let mut next = state.with_mail(by, node, answer);
                next.nodes[node].counts(counter);
                next.nodes[node].holders |= 1 << by;
                found(Step::Runs { by, node, counter: Some(counter) }, next);
            }
            Mail::Ask if !self.lean || self.bump_on_deny => {
                let mut next = state.with_mail(by, node, Mail::Nothing);
                next.nodes[node].counter += u8::from(self.bump_on_deny);
                found(Step::Runs { by, node, counter: None }, next);
            }
            Mail::Grant(counter) if !ended => {
                let next = state.with_mail(by, node, Mail::Granted(counter));
                found(Step::Heard { by, node, counter }, next);
            }
            Mail::WriteBack => {
                let token = state.attempts[by].token;
                if self.replica_confirms {
                    let next = state.with_mail(by, node, Mail::Confirmed);
                    found(Step::RunsOnReplica { by, node }, next);
                }
                if let Some(counter) = self.written_back(present.has(by), counter, token) {
                    let answer = if self.lean { Mail::Confirmed } else { Mail::WrittenBack };
                    let mut next = state.with_mail(by, node, answer);
                    next.nodes[node].counts(counter);
                    found(Step::WriteBackRuns { by, node, done: true }, next);
                } else if !self.lean {
                    let next = state.with_mail(by, node, Mail::Nothing);
                    found(Step::WriteBackRuns { by, node, done: false }, next);
                }
            }
            Mail::WrittenBack if !ended => {
                let next = state.with_mail(by, node, Mail::Confirmed);
                found(Step::Confirmed { by, node }, next);
            }
            _ => {}
        }
    }

    fn thin_writing(&self, state: &mut State<N, A>, by: usize) {
        let token = state.attempts[by].token;
        for node in &mut state.nodes {
            match node.mail[by] {
                Mail::Granted(counter) if self.counts(counter, token) => {
                    node.mail[by] = Mail::Confirmed;
                }
                Mail::Granted(counter) if counter < token => node.mail[by] = Mail::WriteBack,
                Mail::Granted(_) => node.mail[by] = Mail::Nothing,
                _ => {}
            }
            if !self.may_write(node, by) {
                node.disown(by);
            }
        }
    }

    fn thin_ended(&self, state: &mut State<N, A>, by: usize) {
        let token = state.attempts[by].token;
        let mut writes = false;
        for node in &mut state.nodes {
            if self.may_write(node, by) && node.counter < token {
                writes = true;
            } else if node.mail[by] != Mail::Ask {
                node.mail[by] = Mail::Nothing;
                node.disown(by);
            }
        }
        if state.attempts[by].phase == Phase::GaveUp {
            state.attempts[by].floor = 0;
            if !writes {
                state.attempts[by].token = 0;
            }
        }
    }

    /// Whether a write-back is under way that may still run.
    fn may_write(&self, node: &Node<A>, by: usize) -> bool {
        let runs = node.has(by) || self.write_back == WriteBack::Unconditional;
        node.mail[by] == Mail::WriteBack && runs
    }

    /// The same with other names for the clients.
    fn renamed(&self, state: &State<N, A>, order: &[usize; 3]) -> State<N, A> {
        let mut renamed = *state;
        renamed.nodes.iter_mut().for_each(|node| node.holders = 0);
        for by in 0..A {
            let new = self.named(by, order);
            renamed.attempts[new] = state.attempts[by];
            for (to, from) in renamed.nodes.iter_mut().zip(&state.nodes) {
                to.mail[new] = from.mail[by];
                to.holders |= u8::from(from.has(by)) << new;
            }
        }
        renamed
    }

    fn named(&self, by: usize, order: &[usize; 3]) -> usize {
        order[by / self.per_client()] * self.per_client() + by % self.per_client()
    }

    fn per_client(&self) -> usize {
        A / self.clients
    }
}

impl<const A: usize> Node<A> {
    fn has(&self, by: usize) -> bool {
        self.holders >> by & 1 == 1
    }

    /// The counter is this, and what was proposed to it is of no consequence once it is no more.
    fn counts(&mut self, counter: u8) {
        self.counter = counter;
        if counter >= self.proposed {
            self.proposed = 0;
        }
    }

    fn disown(&mut self, by: usize) {
        self.holders &= !(1 << by);
    }
}

impl<const N: usize, const A: usize> State<N, A> {
    fn with_mail(&self, by: usize, node: usize, mail: Mail) -> Self {
        let mut next = *self;
        next.nodes[node].mail[by] = mail;
        next
    }

    fn commit(&self, by: usize, token: u8) -> Self {
        let mut next = *self;
        next.attempts[by].phase = Phase::Committed;
        next.attempts[by].token = token;
        next
    }

    /// Forgets tokens and floors that no token to come can be at or below. The next one of a node
    /// is above its counter by this.
    fn forget_low_tokens(&mut self, next: u8) {
        let counters = self.nodes.iter().map(|node| (node.counter + next).max(node.proposed));
        let written = self.attempts.iter().filter(|a| a.phase == Phase::Writing).map(|a| a.token);
        let lowest = counters.chain(self.grants()).chain(written).min().unwrap_or(0);
        for attempt in &mut self.attempts {
            if attempt.phase == Phase::Committed || attempt.floor <= lowest {
                attempt.floor = 0;
            }
            if attempt.phase == Phase::Committed && attempt.token < lowest {
                *attempt = Attempt { phase: Phase::GaveUp, token: 0, floor: 0 };
            }
        }
    }

    /// Asks of attempts that have ended are alike, if the attempts are of one kind.
    fn gather_ghosts(&mut self, kind: u8) {
        let is_of_kind = |by: usize| kind >> by & 1 == 1 && self.attempts[by].phase.has_ended();
        let ended: [bool; A] = std::array::from_fn(is_of_kind);
        for node in &mut self.nodes {
            let is_ghost = |by: &usize, mail: Mail| ended[*by] && mail == Mail::Ask;
            let mut ghosts = (0..A).filter(|by| is_ghost(by, node.mail[*by])).count();
            for by in (0..A).filter(|&by| ended[by]) {
                if matches!(node.mail[by], Mail::Ask | Mail::Nothing) {
                    node.mail[by] = if ghosts > 0 { Mail::Ask } else { Mail::Nothing };
                    ghosts = ghosts.saturating_sub(1);
                }
            }
        }
    }

    /// Takes the same from all counters and tokens; none of these is 0 where there is one.
    fn lower(&mut self) {
        let counters = self.nodes.iter().map(|node| node.counter);
        let tokens = self.attempts.iter().flat_map(|attempt| [attempt.token, attempt.floor]);
        let tokens = tokens.chain(self.nodes.iter().map(|node| node.proposed));
        let tokens = tokens.filter(|&token| token > 0).chain(self.grants());
        let tokens = tokens.map(|token| token.saturating_sub(1));
        let by = counters.chain(tokens).min().unwrap_or(0) & !1;
        for node in &mut self.nodes {
            node.counter -= by;
            node.proposed = node.proposed.saturating_sub(by);
            for mail in &mut node.mail {
                if let Mail::Grant(counter) | Mail::Granted(counter) = mail {
                    *counter -= by;
                }
            }
        }
        for attempt in &mut self.attempts {
            attempt.token = attempt.token.saturating_sub(by);
            attempt.floor = attempt.floor.saturating_sub(by);
        }
    }

    fn grants(&self) -> impl Iterator<Item = u8> {
        self.nodes.iter().flat_map(|node| &node.mail).filter_map(|mail| match mail {
            Mail::Grant(counter) | Mail::Granted(counter) => Some(*counter),
            _ => None,
        })
    }

    /// At least every counter and token that there is.
    fn highest(&self) -> u8 {
        let counters = self.nodes.iter().map(|node| node.counter);
        let tokens = self.attempts.iter().map(|attempt| attempt.token);
        counters.chain(self.grants()).chain(tokens).max().unwrap_or(0)
    }
}
