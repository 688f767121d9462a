//! What the nodes say about a resource, added up: who holds it, or whose lock an operator has broken.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::config::Config;
use super::report::{explain, unanswered};
use crate::net::Address;
use crate::proto::{
    Cause, Core, FairQueue, Fate, Foreign, Holder, Kept, KeyState, Permits, Profile, Sharers, View,
    Waiter, format, messages,
};

/// Who holds a resource, by every node.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// All nodes, in order.
    pub nodes: Vec<NodeInspection>,
    /// What they add up to.
    pub verdict: InspectionVerdict,
    /// Who waits in the queue for it, by what a quorum of the nodes tells; `None` if fewer nodes do. Who has come just now may not be
    /// known to a quorum yet.
    pub queue: Option<FairQueue>,
    /// The fingerprint of the lock that this client holds there.
    mine: Option<u32>,
}

/// Whose lock it is, to the client that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// A lock of this client holds the resource now, by its own clock too. One that was detached
    /// is no longer this client's.
    Mine,
    /// Somebody else holds it, or it is taken by something that is no lock of redbolt.
    Other,
    /// The nodes that answered do not say.
    Unknown,
}

/// What one node says about a resource.
#[derive(Clone, Debug)]
pub struct NodeInspection {
    /// The node's number, from one.
    pub number: usize,
    /// Where it listens.
    pub address: Address,
    /// The key's state there, or why the node did not tell.
    pub state: Result<KeyState, Cause>,
    /// Who waits in the queue for it there, or why the node did not tell.
    pub queue: Result<FairQueue, Cause>,
    /// From when the question was sent to when it was answered.
    pub round_trip: Option<Duration>,
    /// What became of what was there, where an operator [breaks](super::Client::force_unlock) it.
    pub fate: Option<Fate>,
    words: String,
    no_queue: Option<String>,
}

impl NodeInspection {
    /// Why the node did not tell who waits in the queue, in its words; `None` if it did.
    #[must_use]
    pub fn no_queue(&self) -> Option<&str> {
        self.no_queue.as_deref()
    }
}

messages! {
    /// What the nodes add up to.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum InspectionVerdict {
        /// So many nodes are free that a quorum could grant.
        Free: "free",
        /// One holder has a quorum. Its remaining TTL is that of the node which ends the quorum.
        Held(holder: Holder): "held by {holder}",
        /// These hold permits: each has a quorum, and a remaining TTL that is that of the node which ends its quorum.
        Permits(permits: Permits): "permits of {permits}",
        /// These share it: each has a quorum, and a remaining TTL that is that of the node which ends its quorum.
        Shared(sharers: Sharers): "shared by {sharers}",
        /// A quorum of the nodes keeps something under that name that is no lock of redbolt, and nobody can
        /// lock it. Not the same thing, perhaps: this is the one that ends the quorum.
        Foreign(data: Foreign): "{data}",
        /// None of these: nodes that do not answer, or holders without a quorum.
        Undecided: "undecided",
    }
}

impl Inspection {
    /// `mine` is the lock that this client holds on it.
    pub(super) fn new(config: &Config, core: &Core, view: View, mine: Option<u32>) -> Self {
        let (verdict, queue) = (verdict(config.quorum(), &view), queue(config.quorum(), &view));
        let nodes = nodes(config, core, view, |state, _| {
            let what = match state {
                KeyState::Free => return "free".to_owned(),
                KeyState::Held(holder) => format!("held by {holder}"),
                KeyState::Permits(permits) => format!("permits of {permits}"),
                KeyState::Shared(sharers) => format!("shared by {sharers}"),
                KeyState::Foreign(data) => data.to_string(),
            };
            match state.remaining() {
                Some(remaining) => format!("{what} for {remaining:?} more"),
                None => format!("{what} without end"),
            }
        });
        Self { nodes, verdict, queue, mine }
    }

    /// Whether a quorum keeps the resource from whoever wants it alone: somebody holds it, shares it or has a permit, or there is
    /// something that is no lock of redbolt. `false` is no promise that nobody does: nodes that do not answer may
    /// keep keys, see the [verdict](Self::verdict).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        use InspectionVerdict::{Foreign, Held, Permits, Shared};
        matches!(self.verdict, Held(_) | Permits(_) | Shared(_) | Foreign(_))
    }

    /// Whose lock it is; `None` if so many nodes are free that nobody holds it.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        let is_mine = |holder: &Holder| self.mine == Some(holder.fingerprint);
        let has_mine = match &self.verdict {
            InspectionVerdict::Free => return None,
            InspectionVerdict::Undecided => return Some(Owner::Unknown),
            InspectionVerdict::Held(holder) => is_mine(holder),
            InspectionVerdict::Shared(sharers) => sharers.holders.iter().any(is_mine),
            InspectionVerdict::Permits(permits) => {
                permits.holders.iter().any(|(_, it)| is_mine(it))
            }
            InspectionVerdict::Foreign(_) => false,
        };
        Some(if has_mine { Owner::Mine } else { Owner::Other })
    }

    /// For how long the lock keeps its quorum if nobody extends it, by the nodes' word when they answered; of those
    /// who share it, the last to end. `None` if nobody has a quorum, or has it without end.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match &self.verdict {
            InspectionVerdict::Held(holder) => holder.remaining,
            InspectionVerdict::Permits(permits) => permits.remaining,
            InspectionVerdict::Shared(sharers) => sharers.remaining,
            InspectionVerdict::Foreign(data) => data.remaining,
            InspectionVerdict::Free | InspectionVerdict::Undecided => None,
        }
    }
}

/// What became of a lock that was broken.
#[derive(Clone, Debug)]
pub struct ForceUnlockReport {
    /// All nodes, in order, each with what was there before and what became of it.
    pub nodes: Vec<NodeInspection>,
    /// Whose lock it was, or what else, added up.
    pub was: InspectionVerdict,
    /// Who waited in the queue for it, as in an [`Inspection`]. The resource is kept for them.
    pub queue: Option<FairQueue>,
    quorum: usize,
    formats: Vec<Profile>,
}

impl ForceUnlockReport {
    pub(super) fn new(config: &Config, core: &Core, view: View) -> Self {
        let quorum = config.quorum();
        let (was, queue) = (verdict(quorum, &view), queue(quorum, &view));
        let nodes = nodes(config, core, view, what_became);
        Self { nodes, was, queue, quorum, formats: config.settings().formats.clone() }
    }

    /// Whether a quorum of the nodes has confirmed that what was there is not there any more: that nobody
    /// has the lock by what was there before.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.gone() >= self.quorum
    }

    /// On how many nodes nothing was there, or it is not there any more.
    #[must_use]
    pub fn gone(&self) -> usize {
        let is_gone = |node: &&NodeInspection| match node.fate {
            Some(fate) => fate != Fate::Kept,
            None => node.state == Ok(KeyState::Free),
        };
        self.nodes.iter().filter(is_gone).count()
    }

    /// On how many nodes a key was deleted.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.with(Fate::Deleted)
    }

    /// On how many nodes it was left alone, because it is no lock of redbolt.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.with(Fate::Kept)
    }

    /// The names of the profiles that may know what was left alone, but are not
    /// [configured](crate::ConfigBuilder::formats); as far as the type of the key tells.
    fn missing_formats(&self) -> Vec<&'static str> {
        let left_alone = self.nodes.iter().filter(|node| node.fate == Some(Fate::Kept));
        let unknown = left_alone.filter_map(|node| match &node.state {
            Ok(KeyState::Foreign(data)) if data.profiles.is_empty() => Some(&data.kind),
            _ => None,
        });
        let is_missing = |name: &&str| self.formats.iter().all(|profile| profile.name() != *name);
        let names = unknown.take(1).flat_map(format::names_for).copied();
        names.filter(is_missing).collect()
    }

    fn with(&self, fate: Fate) -> usize {
        self.nodes.iter().filter(|node| node.fate == Some(fate)).count()
    }
}

impl fmt::Display for ForceUnlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gone, nodes) = (self.gone(), self.nodes.len());
        write!(f, "gone on {gone} of {nodes} nodes, {} needed", self.quorum)?;
        self.nodes.iter().try_for_each(|node| write!(f, "; {node}"))?;
        match &self.missing_formats()[..] {
            [] => Ok(()),
            names => {
                write!(f, "; it may be of a format that is not configured: {}", names.join(" or "))
            }
        }
    }
}

/// What became of what was there, in words.
fn what_became(state: &KeyState, fate: Option<Fate>) -> String {
    match (state, fate) {
        (KeyState::Free, _) => "nothing was there".to_owned(),
        (KeyState::Held(holder), Some(Fate::Deleted)) => {
            format!("broke the lock of {}", in_full(holder))
        }
        (KeyState::Held(holder), _) => {
            format!("the lock of {} was gone before it could be broken", in_full(holder))
        }
        (KeyState::Permits(permits), Some(Fate::Deleted)) => {
            format!("broke the permits of {permits}")
        }
        (KeyState::Permits(permits), _) => {
            format!("the permits of {permits} were gone before they could be broken")
        }
        (KeyState::Shared(sharers), Some(Fate::Deleted)) => {
            format!("broke the lock that is shared by {sharers}")
        }
        (KeyState::Shared(sharers), _) => {
            format!("the lock that was shared by {sharers} was gone before it could be broken")
        }
        (KeyState::Foreign(data), Some(Fate::Deleted)) => format!("deleted {data}"),
        (KeyState::Foreign(data), Some(Fate::Gone)) => {
            format!("{data}: it changed before it could be deleted")
        }
        (KeyState::Foreign(data), _) => format!("{data}: left alone, it is no lock of redbolt"),
    }
}

/// A holder with its label and its hash: labels repeat, hashes are looked up.
fn in_full(holder: &Holder) -> String {
    match &holder.label {
        Some(label) => format!("{label} #{:08x}", holder.fingerprint),
        None => holder.to_string(),
    }
}

fn nodes(
    config: &Config,
    core: &Core,
    view: View,
    in_words: impl Fn(&KeyState, Option<Fate>) -> String,
) -> Vec<NodeInspection> {
    let nodes = config.node_ids().zip(view.nodes).map(|(node, view)| {
        let explain = |cause| match cause {
            Cause::NoAnswer => unanswered(config.addresses(), core, node),
            cause => explain(core, node, cause),
        };
        let mut words = match &view.state {
            Ok(state) => in_words(state, view.fate),
            Err(cause) => explain(*cause),
        };
        let no_queue = view.queue.as_ref().err().map(|&cause| explain(cause));
        if view.state.is_ok() {
            words += &match &view.queue {
                Ok(queue) => queue_in_words(queue),
                Err(_) => ", does not tell who waits".to_owned(),
            };
        }
        NodeInspection {
            number: node.index() + 1,
            address: config.address(node).clone(),
            state: view.state,
            queue: view.queue,
            round_trip: view.round_trip,
            fate: view.fate,
            words,
            no_queue,
        }
    });
    nodes.collect()
}

/// Behind the state of the key.
fn queue_in_words(queue: &FairQueue) -> String {
    let kept = if queue.kept == Kept::Closed { ", kept for who waits" } else { "" };
    match queue.count {
        0 => kept.to_owned(),
        count => format!("{kept}, {count} in the queue"),
    }
}

impl fmt::Display for NodeInspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)
    }
}

fn verdict(quorum: usize, view: &View) -> InspectionVerdict {
    let states = || view.nodes.iter().filter_map(|node| node.state.as_ref().ok());
    if states().filter(|state| **state == KeyState::Free).count() >= quorum {
        return InspectionVerdict::Free;
    }
    let mut exclusive: HashMap<u32, Vec<&Holder>> = HashMap::new();
    let mut shared: HashMap<u32, Vec<&Holder>> = HashMap::new();
    let mut foreign = Vec::new();
    for state in states() {
        match state {
            KeyState::Free | KeyState::Permits(_) => {}
            KeyState::Held(holder) => exclusive.entry(holder.fingerprint).or_default().push(holder),
            KeyState::Shared(sharers) => sharers
                .holders
                .iter()
                .for_each(|holder| shared.entry(holder.fingerprint).or_default().push(holder)),
            KeyState::Foreign(data) => foreign.push(data),
        }
    }
    let with_quorum = |holders: HashMap<u32, Vec<&Holder>>| -> Vec<Holder> {
        let ended =
            holders.into_values().filter_map(|on| last_of_quorum(quorum, on, |it| it.remaining));
        ended.cloned().collect()
    };
    if let Some(holder) = with_quorum(exclusive).pop() {
        return InspectionVerdict::Held(holder);
    }
    let mut sharers = with_quorum(shared);
    if !sharers.is_empty() {
        sharers.sort_by_key(|holder| (ends(holder.remaining), holder.fingerprint));
        let (count, last) = (sharers.len(), sharers.last().and_then(|last| last.remaining));
        return InspectionVerdict::Shared(Sharers::new(sharers, count, last));
    }
    let data = || Some(last_of_quorum(quorum, foreign, |it| it.remaining)?.clone());
    let permits = permits(quorum, view).map(InspectionVerdict::Permits);
    let other = permits.or_else(|| data().map(InspectionVerdict::Foreign));
    other.unwrap_or(InspectionVerdict::Undecided)
}

/// The waiters in the queue on a quorum of nodes. `None` if fewer nodes report them.
fn queue(quorum: usize, view: &View) -> Option<FairQueue> {
    let known: Vec<_> = view.nodes.iter().filter_map(|node| node.queue.as_ref().ok()).collect();
    let mut tickets: HashMap<u32, Vec<&Waiter>> = HashMap::new();
    for waiter in known.iter().flat_map(|queue| &queue.waiters) {
        tickets.entry(waiter.fingerprint).or_default().push(waiter);
    }
    let waiters = tickets.into_values().filter_map(|on| nth_largest(quorum, on, |it| it.age));
    let mut waiters: Vec<Waiter> = waiters.cloned().collect();
    waiters.sort_by_key(|waiter| (waiter.stamp, waiter.fingerprint));
    let count = nth_largest(quorum, known.clone(), |queue| queue.count)?.count.max(waiters.len());
    let kept = nth_largest(quorum, known.clone(), |queue| queue.kept)?.kept;
    let called = nth_largest(quorum, known, |queue| queue.called)?.called;
    Some(FairQueue::new(waiters, count, kept, called))
}

/// The holders of permits on a quorum of nodes. `None` if there are none.
fn permits(quorum: usize, view: &View) -> Option<Permits> {
    let mut holders: HashMap<(u16, u32), Vec<&Holder>> = HashMap::new();
    let mut counts = Vec::new();
    for node in &view.nodes {
        if let Ok(KeyState::Permits(permits)) = &node.state {
            counts.push(permits.count);
            for (slot, holder) in &permits.holders {
                holders.entry((*slot, holder.fingerprint)).or_default().push(holder);
            }
        }
    }
    let ended = holders.into_iter().filter_map(|((slot, _), on)| {
        Some((slot, last_of_quorum(quorum, on, |it| it.remaining)?.clone()))
    });
    let mut ended: Vec<(u16, Holder)> = ended.collect();
    ended.sort_by_key(|(slot, _)| *slot);
    // A node names 16 at the most.
    counts.sort_by_key(|&count| Reverse(count));
    let named = ended.len();
    let count = counts.get(quorum - 1).filter(|_| named >= 16).map_or(named, |&of| of.max(named));
    let last = ended.iter().map(|(_, holder)| ends(holder.remaining)).max()?;
    Some(Permits::new(ended, count, Some(last)))
}

/// Of keys on a quorum of nodes, the one that ends it: it lasts until all but quorum - 1 of them have expired.
fn last_of_quorum<T>(
    quorum: usize,
    keys: Vec<&T>,
    remaining: impl Fn(&T) -> Option<Duration>,
) -> Option<&T> {
    nth_largest(quorum, keys, |key| ends(remaining(key)))
}

/// What so many are not below.
fn nth_largest<T, K: Ord>(nth: usize, mut of: Vec<&T>, by: impl Fn(&T) -> K) -> Option<&T> {
    of.sort_by_key(|it| Reverse(by(it)));
    of.get(nth - 1).copied()
}

fn ends(remaining: Option<Duration>) -> Duration {
    remaining.unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{DataKind, NodeView};

    fn view(states: &[Result<KeyState, Cause>]) -> View {
        let nodes = states.iter().map(|state| NodeView {
            state: state.clone(),
            queue: Ok(FairQueue::default()),
            round_trip: None,
            fate: None,
        });
        View { nodes: nodes.collect(), resource: Vec::new() }
    }

    fn held(fingerprint: u32, seconds: u64) -> Result<KeyState, Cause> {
        let remaining = Some(Duration::from_secs(seconds));
        Ok(KeyState::Held(Holder { label: None, fingerprint, remaining }))
    }

    #[test]
    fn one_holder_needs_a_quorum() {
        let free = Ok(KeyState::Free);
        let dead = || Err(Cause::NoAnswer);
        let told = |states: &[Result<KeyState, Cause>]| verdict(2, &view(states));
        assert_eq!(told(&[free.clone(), free.clone(), dead()]), InspectionVerdict::Free);
        assert_eq!(told(&[free, held(1, 3), dead()]), InspectionVerdict::Undecided);
        assert_eq!(told(&[held(1, 3), held(2, 3), dead()]), InspectionVerdict::Undecided);
        match told(&[held(1, 9), held(1, 4), held(1, 2)]) {
            InspectionVerdict::Held(h) => assert_eq!(h.remaining, Some(Duration::from_secs(4))),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_data_on_a_quorum_is_in_everybody_s_way() {
        let data = |kind, seconds| {
            let remaining = Some(Duration::from_secs(seconds));
            Ok(KeyState::Foreign(Foreign::new(kind, remaining)))
        };
        let told = |states: &[Result<KeyState, Cause>]| verdict(2, &view(states));
        let mixed = [data(DataKind::Hash, 9), data(DataKind::List, 5), held(1, 3)];
        match told(&mixed) {
            InspectionVerdict::Foreign(data) => assert_eq!(data.kind, DataKind::List),
            other => panic!("{other:?}"),
        }
        let one = [data(DataKind::Hash, 9), held(1, 3), Err(Cause::NoAnswer)];
        assert_eq!(told(&one), InspectionVerdict::Undecided);
    }
}
