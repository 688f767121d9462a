//! A model of extension: three nodes, a holder that extends twice, and a rival.
//!
//! Connections come and go, so every message runs independently of what was sent before it, or
//! never. A node loses a key only by expiry, or by a deletion if `deletions` allows one. A deletion
//! can admit the rival before the holder learns of it, so that alone is not a violation: the
//! violation is a holder that relies on nodes whose replies have already shown that they are not a
//! quorum. The second extension begins once the first has counted or was given up.

use std::fmt;

use crate::search::Model;

const NODES: usize = 3;
const QUORUM: usize = 2;

/// The TTL that both clients request, in ticks.
const TTL: u8 = 2;

/// The rules of extensions.
#[derive(Clone, Copy, Debug)]
pub struct Extending {
    /// The TTLs of the two extensions, in ticks.
    pub rounds: [u8; 2],
    /// The command that runs on a node.
    pub script: Script,
    /// True: the validity counts from before the first byte is sent. False: from the reply.
    pub from_first_byte: bool,
    /// True: the new validity is the larger of the old and the new one. False: the new one.
    pub larger_of_both: bool,
    /// True: no reply counts after the validity has expired.
    pub within_validity: bool,
    /// True: a reply counts for its own extension only.
    pub own_round: bool,
    /// Which reports of a missing key end the reliance on that node.
    pub heeds: Heeds,
    /// The number of times that the holder's key may be deleted on a node.
    pub deletions: u8,
    /// The number of times that the clock of a node may be set forward, past the end of its keys.
    pub steps: u8,
}

/// The reports of a missing key that the holder heeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heeds {
    /// All of them.
    All,
    /// Reports in reply to the extension in flight.
    OfTheRound,
    /// None: the larger of the old and the new validity stands.
    None,
}

/// The effect of an extension on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Sets a longer TTL if the key is the holder's.
    Longer,
    /// Sets the TTL if the key is the holder's.
    Pexpire,
    /// Sets the key.
    Set,
}

impl Extending {
    /// The rules of the library.
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

/// The nodes with the messages in flight, and the two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    nodes: [Node; NODES],
    /// The ticks left of each client's lease; 0 also before it requests the lock.
    left: [u8; 2],
    asked: [bool; 2],
    /// The number of extensions begun.
    round: u8,
    /// The ticks left of what the current extension requests; 0 if there is none.
    extends: u8,
    /// The ticks left of what the last extension requested, successful or not.
    asked_for: u8,
    deletions: u8,
    steps: u8,
    shortened: bool,
    revived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node {
    /// The client that has the key, and the ticks left.
    owner: Option<bool>,
    ttl: u8,
    /// The ticks for which the holder knows of its key.
    known: u8,
    /// The ticks that a deleted key would still have.
    lost: u8,
    /// The node has reported the holder's key missing.
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

/// One event. The holder is A, the rival B, the nodes are `n0` to `n2`.
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
        // A deletion can admit the rival before the holder can learn of it, so two holders are no
        // violation then.
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

    /// Merges states that differ in the names of nodes only.
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
        // A node counts only if its grant counted and it has not reported the key missing.
        let done = |node: &&Node| {
            let rounds = if self.own_round { round - 1..round } else { 0..round };
            let done = node.extensions[rounds].contains(&Extension::Done);
            done && node.asks[0] == Asked::Granted && !node.gone
        };
        let valid = state.left[0] > 0 || !self.within_validity;
        if valid && state.nodes.iter().filter(done).count() >= QUORUM {
            let new = if self.from_first_byte { state.extends } else { self.rounds[round - 1] };
            // An extension does not end what the holder already relies on.
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
            // A late reply to an earlier extension must not lengthen what the holder relies on.
            if present {
                node.known = node.known.max(state.asked_for);
            }
            found(Step::Runs { round, node: at }, next);
        }
        if state.steps > 0 && node.owner.is_some() {
            let mut next = *state;
            next.steps -= 1;
            // The key ends by the node's clock, which the holder cannot notice.
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

    /// Handles a reply to the holder that its key is missing on a node.
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

    /// Returns the ticks for which a quorum keeps the holder's key, as far as the holder knows.
    fn supported(&self) -> u8 {
        let mut known = self.nodes.map(|node| node.known);
        known.sort_unstable();
        known[NODES - QUORUM]
    }

    /// Counts the nodes that keep the holder's key, or would if it had not been deleted without the
    /// holder's knowledge.
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
