//! A model of fencing tokens from a few nodes, without any assumption about time.
//!
//! A key may expire at any moment, which covers releases, undos, evictions and wrong clocks.
//! Messages run at any time after they were sent, even long after their attempt has ended; a lost
//! request or reply is one that never runs. The model leaves out the clock that proposes counters
//! (it only makes them grow faster), validity, and the restart guard.
//!
//! A token is judged when it is committed. The token of an exclusive attempt must be larger than
//! all that were committed before the attempt began, and unique. The token of a shared attempt must
//! be larger than those of earlier exclusive holders. That is what a store can check: it rejects a
//! write below the largest token it has seen, and a read below the largest even one.

use std::fmt;

use redbolt::proto::fence::{Agreement, agreement};

use crate::search::Model;

/// The rules of tokens on `N` nodes, and the faults. The clients share `A` attempts evenly.
#[derive(Clone, Copy, Debug)]
pub struct Fencing<const N: usize, const A: usize> {
    /// The number of clients, 1 to 3.
    pub clients: usize,
    /// The largest initial counter; each node's counter begins at any value from 0 to this.
    pub most_at_first: u8,
    /// How a token is agreed on if the grants differ.
    pub write_back: WriteBack,
    /// Which grants count that arrive while the write-back is in flight.
    pub late: Late,
    /// The number of times that a node may lose its memory and go on voting.
    pub wipes: u8,
    /// The counter of a node that lost its memory.
    pub wiped: Wiped,
    /// True: a denial raises the counter too.
    pub bump_on_deny: bool,
    /// True: a grant raises the counter to the next even number. False: by one.
    pub even: bool,
    /// The shared attempts, one bit each.
    pub shared: u8,
    /// The shared attempts that want no token and change no counter.
    pub without_token: u8,
    /// The effect of a shared grant on the counter.
    pub odd: Odd,
    /// True: a write-back may be confirmed by a promoted replica of a node while the node itself
    /// goes on voting.
    pub replica_confirms: bool,
    /// True: leaves out what can only make less happen, see [`Model::thin`].
    pub lean: bool,
}

/// How a token is agreed on if the grants of a quorum differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// The highest is written to the granted nodes with lower counters, if they still have the
    /// client's key.
    Checked,
    /// The highest is written without checking whose key it is.
    Unconditional,
    /// No write-back: the highest is the token.
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

/// The counter of a node that lost its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiped {
    /// No counter; it begins at 0.
    Nothing,
    /// No counter, and the next proposal is larger than every counter and token, as it is when
    /// clocks agree: the rule.
    Overtaken,
    /// An old counter. The next proposal is larger than every counter and token too.
    AnEarlierOne,
}

/// The effect of a shared grant on the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// A recent odd counter stays; any other goes up to the next odd number: the rule.
    KeptIfYoung,
    /// Every odd counter stays, recent or old: the design's rule.
    Kept,
    /// It goes up to the next odd number.
    Raised,
    /// An odd counter stays, and an even one goes up only if there is no other holder.
    RaisedByFirst,
    /// None.
    Untouched,
}

impl<const N: usize, const A: usize> Fencing<N, A> {
    const QUORUM: usize = N / 2 + 1;

    /// The rules of the library.
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

/// The nodes with the messages in flight, and the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State<const N: usize, const A: usize> {
    nodes: [Node<A>; N],
    attempts: [Attempt; A],
    wipes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node<const A: usize> {
    counter: u8,
    /// The lower bound of the next proposal; a counter below it is an old one.
    proposed: u8,
    /// The attempts that have the key, one bit each.
    holders: u8,
    /// The message in flight between each attempt and this node.
    mail: [Mail; A],
}

/// The permutations of three clients' names.
const ORDERS: [[usize; 3]; 6] = [SAME_ORDER, [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
const SAME_ORDER: [usize; 3] = [0, 1, 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mail {
    Nothing,
    Ask,
    /// The request was granted with this counter, and the reply is in flight.
    Grant(u8),
    /// The client has received the grant.
    Granted(u8),
    WriteBack,
    WrittenBack,
    /// The client has received that the counter was raised while the key was its own.
    Confirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Attempt {
    phase: Phase,
    /// The token that is being written back, or was committed.
    token: u8,
    /// The highest token committed before this attempt began, plus one.
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

/// One event. `A`, `B` … are the attempts, `n0` … the nodes.
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
            // Committing later could only loosen the bounds on other tokens.
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
                // Clocks that agree propose a value larger than all earlier counters and tokens.
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
            // Readers may share a token.
            let mut others = others.filter(|&by| !(self.shares(at) && self.shares(by)));
            if others.any(|by| state.attempts[by].token == attempt.token) {
                return Some("two holders have the same token");
            }
        }
        None
    }

    /// Removes what makes no difference, so that more attempts fit. It hides no violation:
    ///
    /// - a refused message might as well not have run yet, and a reply in flight might as well not
    ///   have been received;
    /// - a key on which nothing depends any more may be removed, because it can only prevent
    ///   grants;
    /// - a write-back may be sent as early as possible, because it runs at any later time;
    /// - of an attempt that has ended only the messages that may still run matter, and its request
    ///   raises the counter for any client;
    /// - a token that all later ones will exceed constrains nothing.
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
        // After a wipe a counter may begin at 0 again, so tokens below it still matter.
        if state.wipes == 0 {
            state.forget_low_tokens(u8::from(self.shared == 0));
        }
        state
    }

    /// Merges states that differ in the names of nodes and clients, and in the absolute values of
    /// counters: only their differences and parities matter.
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

    /// Begins an attempt. A client has one attempt at a time and gives up the last one when it
    /// begins the next.
    fn begin(&self, state: &State<N, A>, by: usize, found: &mut impl FnMut(Step, State<N, A>)) {
        let mut next = *state;
        if !by.is_multiple_of(self.per_client()) {
            match state.attempts[by - 1].phase {
                Phase::Idle => return,
                Phase::Asking | Phase::Writing => next.attempts[by - 1].phase = Phase::GaveUp,
                Phase::GaveUp | Phase::Committed => {}
            }
        }
        // Readers do not bound each other's tokens.
        let bind = |other: &usize| !self.shares(by) || !self.shares(*other);
        let others = (0..A).filter(bind).map(|other| state.attempts[other]);
        let held = others.filter(|a| a.phase == Phase::Committed);
        next.attempts[by].floor = held.map(|a| a.token + 1).max().unwrap_or(0);
        next.attempts[by].phase = Phase::Asking;
        next.nodes.iter_mut().for_each(|node| node.mail[by] = Mail::Ask);
        found(Step::Begins { by }, next);
    }

    /// Agrees on a token. Replies may still be in flight, so the client may know any quorum of the
    /// grants.
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
            // Only a subset of granted nodes is a quorum that the client may know.
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
            // Only granted nodes with lower counters need the write-back.
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
        // A grant that arrives during the write-back counts only by the rule for late grants.
        let counts = |node: &&Node<A>| match node.mail[by] {
            Mail::Granted(counter) => self.counts(counter, token),
            mail => mail == Mail::Confirmed,
        };
        state.nodes.iter().filter(counts).count() >= Self::QUORUM
    }

    /// Returns true if a grant counts towards a token that is being written back.
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

    /// Returns the counter after a grant.
    fn raised(&self, node: &Node<A>, by: usize) -> u8 {
        let Node { counter, proposed, holders, .. } = *node;
        match self.odd {
            _ if self.shares(by) && !self.wants_token(by) => counter,
            Odd::RaisedByFirst if self.shares(by) && holders > 0 => counter,
            _ => self.granted(self.shares(by), counter, proposed, proposed),
        }
    }

    /// Returns the counter after a grant to a shared or exclusive request that proposes `proposed`.
    /// An odd counter of at least `kept_from` may stay.
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

    /// Returns the counter after a write-back of `token`, or `None` if the node refuses it.
    #[must_use]
    pub fn written_back(&self, has_key: bool, counter: u8, token: u8) -> Option<u8> {
        // A node without the client's key may have granted the lock to another client.
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
                // The replica has the counter, but the node goes on with its own.
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
            // A key without a write-back that may run can only prevent grants.
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

    /// Returns true if a write-back is in flight that may still run.
    fn may_write(&self, node: &Node<A>, by: usize) -> bool {
        let runs = node.has(by) || self.write_back == WriteBack::Unconditional;
        node.mail[by] == Mail::WriteBack && runs
    }

    /// Returns the state with other names for the clients.
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

    /// Sets the counter. A proposal bound that the counter has reached no longer matters.
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

    /// Forgets tokens and floors that every later token exceeds. A node's next token exceeds its
    /// counter by at least `next`.
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

    /// Merges states that differ in which ended attempt of a kind has a request in flight.
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

    /// Subtracts the same even number from all counters and tokens, without making an existing
    /// token 0.
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

    /// Returns an upper bound of all counters and tokens.
    fn highest(&self) -> u8 {
        let counters = self.nodes.iter().map(|node| node.counter);
        let tokens = self.attempts.iter().map(|attempt| attempt.token);
        counters.chain(self.grants()).chain(tokens).max().unwrap_or(0)
    }
}
