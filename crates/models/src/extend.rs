//! Extension: three nodes, a holder that extends twice, and a rival.
//!
//! Every message runs at its own time or never, whatever was sent before it: connections come and go.
//! Nodes lose nothing here but what expires, and what somebody deletes if `deletions` says so. Then nobody
//! can keep the rival out before the holder has heard of it; what is wrong is a holder that relies on nodes
//! of which it has heard that they are no quorum. The second round begins when the first has counted or was
//! given up. Not here: which nodes may count after a loss of memory, see [`crate::restart_guard`].

use std::fmt;

use crate::search::Model;

const NODES: usize = 3;
const QUORUM: usize = 2;

/// The TTL that both ask for, in ticks.
const TTL: u8 = 2;

/// How extensions run and count.
#[derive(Clone, Copy, Debug)]
pub struct Extending {
    /// The TTLs of the two extensions, in ticks.
    pub rounds: [u8; 2],
    /// What runs on a node.
    pub script: Script,
    /// The validity is counted from before the first byte; otherwise from the answer.
    pub from_first_byte: bool,
    /// The validity afterwards is the larger of the old and the new one; otherwise the new one.
    pub larger_of_both: bool,
    /// Nothing counts once the validity is over.
    pub within_validity: bool,
    /// An answer counts for its own round only.
    pub own_round: bool,
    /// When a node that says that the key is gone ends what was counted on it.
    pub heeds: Heeds,
    /// How often somebody may delete the holder's key on a node.
    pub deletions: u8,
    /// How often the clock of a node may be set forward, past the end of what it keeps.
    pub steps: u8,
}

/// Which answers of nodes that have lost the key are heeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heeds {
    /// All of them.
    All,
    /// Those to an extension that is under way.
    OfTheRound,
    /// None: the larger of the old and the new validity stands.
    None,
}

/// What an extension does on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Sets a longer TTL where the key is ours.
    Longer,
    /// Sets the TTL where the key is ours.
    Pexpire,
    /// Sets the key.
    Set,
}

impl Extending {
    /// The rules as they are meant.
    pub const RULES: Self = Self {
        rounds: [3, 1],
        script: Script::Longer,
        from_first_byte: true,
        larger_of_both: true,
        within_validity: true,
        own_round: true,
        heeds: Heeds::All,
        deletions: 0,
        steps: 0,
    };
}

/// The nodes with what is under way, and the two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    nodes: [Node; NODES],
    /// Ticks that each client's lease has left; 0 also before it asks.
    left: [u8; 2],
    asked: [bool; 2],
    /// Extensions that have begun.
    round: u8,
    /// Ticks left of what the present one asks for; 0 if there is none.
    extends: u8,
    /// The same of the one that was the last, whatever has come of it.
    asked_for: u8,
    deletions: u8,
    steps: u8,
    shortened: bool,
    revived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node {
    /// Which client has the key, and for how many ticks.
    owner: Option<bool>,
    ttl: u8,
    /// Ticks that the holder knows of.
    known: u8,
    /// Ticks that a key would have that somebody has deleted.
    lost: u8,
    /// The holder has heard that its key is gone.
    gone: bool,
    asks: [Asked; 2],
    extensions: [Extension; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Asked {
    No,
    UnderWay,
    Granted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Extension {
    No,
    UnderWay,
    Done,
}

/// One thing that happens. The holder is A, the rival B, the nodes are `n0` to `n2`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Asks { by: usize },
    Granted { by: usize, node: usize },
    Extends { ticks: u8 },
    Runs { round: usize, node: usize },
    Deleted { node: usize },
    Stepped { node: usize },
    Gone { round: usize, node: usize },
    Counts,
    GivenUp,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Asks { by } => write!(f, "{} asks all nodes", name(by)),
            Self::Granted { by, node } => write!(f, "n{node} grants {}", name(by)),
            Self::Extends { ticks } => write!(f, "A extends by {ticks}"),
            Self::Runs { round, node } => write!(f, "on n{node} runs extension {}", round + 1),
            Self::Deleted { node } => write!(f, "somebody deletes A's key on n{node}"),
            Self::Stepped { node } => write!(f, "the clock of n{node} is set forward"),
            Self::Gone { round, node } => {
                write!(f, "n{node} answers extension {}: A's key is gone", round + 1)
            }
            Self::Counts => f.write_str("A is extended"),
            Self::GivenUp => f.write_str("A gives the extension up"),
        }
    }
}

impl Model for Extending {
    type State = State;
    type Step = Step;

    fn begins(&self) -> Vec<State> {
        let node = Node {
            owner: None,
            ttl: 0,
            known: 0,
            lost: 0,
            gone: false,
            asks: [Asked::No; 2],
            extensions: [Extension::No; 2],
        };
        vec![State {
            nodes: [node; NODES],
            left: [0; 2],
            asked: [false; 2],
            round: 0,
            extends: 0,
            asked_for: 0,
            deletions: self.deletions,
            steps: self.steps,
            shortened: false,
            revived: false,
        }]
    }

    fn steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        found(Step::Tick, state.tick());
        for by in (0..2).filter(|&by| !state.asked[by]) {
            let mut next = *state;
            (next.asked[by], next.left[by]) = (true, TTL);
            next.nodes.iter_mut().for_each(|node| node.asks[by] = Asked::UnderWay);
            found(Step::Asks { by }, next);
        }
        self.extension_steps(state, found);
        for node in 0..NODES {
            self.node_steps(state, node, found);
        }
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        if self.deletions > 0 {
            let misled = state.holds(0) && state.supporters() < QUORUM;
            misled.then_some("a holder relies on nodes that have said no")
        } else if state.holds(0) && state.holds(1) {
            Some("two holders at once")
        } else if state.revived {
            Some("a lock that had ended is held again")
        } else {
            state.shortened.then_some("an extension has shortened the validity")
        }
    }

    /// Nodes are alike.
    fn canonical(&self, state: &State) -> State {
        let mut state = *state;
        state.nodes.sort_unstable();
        state
    }
}

impl Extending {
    fn extension_steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let round = usize::from(state.round);
        if state.holds(0) && state.extends == 0 && round < 2 {
            let mut next = *state;
            next.round += 1;
            next.extends = self.rounds[round];
            next.asked_for = next.extends;
            for node in &mut next.nodes {
                node.extensions[round] = Extension::UnderWay;
            }
            found(Step::Extends { ticks: self.rounds[round] }, next);
        }
        if state.extends == 0 {
            return;
        }
        let mut next = *state;
        next.extends = 0;
        found(Step::GivenUp, next);
        let done = |node: &&Node| {
            let rounds = if self.own_round { round - 1..round } else { 0..round };
            let done = node.extensions[rounds].contains(&Extension::Done);
            done && node.asks[0] == Asked::Granted && !node.gone
        };
        let valid = state.left[0] > 0 || !self.within_validity;
        if valid && state.nodes.iter().filter(done).count() >= QUORUM {
            let new = if self.from_first_byte { state.extends } else { self.rounds[round - 1] };
            // What was known of a node before stays known.
            let old = state.left[0].max(state.supported());
            let old = if self.larger_of_both { old } else { 0 };
            next.left[0] = new.max(old);
            next.shortened = next.left[0] < state.left[0];
            next.revived = state.left[0] == 0;
            found(Step::Counts, next);
        }
    }

    fn node_steps(&self, state: &State, at: usize, found: &mut impl FnMut(Step, State)) {
        let node = state.nodes[at];
        for by in (0..2).filter(|&by| node.asks[by] == Asked::UnderWay && node.owner.is_none()) {
            let mut next = *state;
            let node = &mut next.nodes[at];
            (node.owner, node.ttl) = (Some(by == 1), TTL);
            node.asks[by] = Asked::Granted;
            if by == 0 && state.round == 0 {
                node.known = state.left[0];
            }
            found(Step::Granted { by, node: at }, next);
        }
        for round in (0..2).filter(|&round| node.extensions[round] == Extension::UnderWay) {
            let ours = node.owner == Some(false);
            if !ours && self.script != Script::Set {
                if self.deletions > 0 && node.asks[0] == Asked::Granted {
                    found(Step::Gone { round, node: at }, self.received(state, round, at));
                }
                continue;
            }
            let mut next = *state;
            let present = round + 1 == usize::from(state.round);
            let node = &mut next.nodes[at];
            let longer = self.script == Script::Longer;
            node.ttl = if longer { node.ttl.max(self.rounds[round]) } else { self.rounds[round] };
            node.owner = Some(false);
            node.extensions[round] = Extension::Done;
            if present {
                node.known = node.known.max(state.asked_for);
            }
            found(Step::Runs { round, node: at }, next);
        }
        if state.steps > 0 && node.owner.is_some() {
            let mut next = *state;
            next.steps -= 1;
            (next.nodes[at].owner, next.nodes[at].ttl) = (None, 0);
            found(Step::Stepped { node: at }, next);
        }
        if state.deletions > 0 && node.owner == Some(false) {
            let mut next = *state;
            next.deletions -= 1;
            let node = &mut next.nodes[at];
            (node.owner, node.lost, node.ttl) = (None, node.ttl, 0);
            found(Step::Deleted { node: at }, next);
        }
    }

    /// The holder hears that its key is gone on a node.
    fn received(&self, state: &State, round: usize, at: usize) -> State {
        let mut next = *state;
        let node = &mut next.nodes[at];
        (node.extensions[round], node.gone) = (Extension::Done, true);
        let is_of_round = round + 1 == usize::from(state.round) && state.extends > 0;
        let heeded = match self.heeds {
            Heeds::All => true,
            Heeds::OfTheRound => is_of_round,
            Heeds::None => false,
        };
        if heeded {
            node.known = 0;
            next.left[0] = next.left[0].min(next.supported());
        }
        next
    }
}

impl State {
    fn holds(&self, by: usize) -> bool {
        let granted = self.nodes.iter().filter(|node| node.asks[by] == Asked::Granted);
        self.left[by] > 0 && granted.count() >= QUORUM
    }

    /// For how many ticks a quorum keeps the holder's key, as far as it knows.
    fn supported(&self) -> u8 {
        let mut known = self.nodes.map(|node| node.known);
        known.sort_unstable();
        known[NODES - QUORUM]
    }

    /// The nodes that keep the holder's key, or would if somebody had not deleted it unheard.
    fn supporters(&self) -> usize {
        let is = |node: &&Node| node.owner == Some(false) || node.lost > 0 && !node.gone;
        self.nodes.iter().filter(is).count()
    }

    fn tick(&self) -> Self {
        let mut next = *self;
        for node in &mut next.nodes {
            node.ttl = node.ttl.saturating_sub(1);
            node.known = node.known.saturating_sub(1);
            node.lost = node.lost.saturating_sub(1);
            if node.ttl == 0 {
                node.owner = None;
            }
        }
        next.left = next.left.map(|left| left.saturating_sub(1));
        next.extends = next.extends.saturating_sub(1);
        next.asked_for = next.asked_for.saturating_sub(1);
        next
    }
}
