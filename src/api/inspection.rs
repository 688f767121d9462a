//! The combined answers of the nodes about a resource: its holder, or the lock that an operator
//! broke.

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

/// The holder of a resource, as reported by each node.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The answers of all nodes, in order.
    pub nodes: Vec<NodeInspection>,
    /// The combined verdict.
    pub verdict: InspectionVerdict,
    /// The waiters in the queue for it, as reported by a quorum of the nodes; `None` if fewer nodes
    /// report them. A waiter that has just come may not be known to a quorum yet.
    pub queue: Option<FairQueue>,
    /// The fingerprint of the lock that this client holds on it.
    mine: Option<u32>,
}

/// The owner of a lock, as seen by the client that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// A lock of this client holds the resource now, also by the client's own clock. A detached
    /// lock no longer belongs to the client.
    Mine,
    /// Another client holds it, or the key is not a lock of redbolt.
    Other,
    /// The nodes that answered do not reveal it.
    Unknown,
}

/// The answer of one node about a resource.
#[derive(Clone, Debug)]
pub struct NodeInspection {
    /// The number of the node, from one.
    pub number: usize,
    /// The address of the node.
    pub address: Address,
    /// The state of the key there, or the reason why the node did not report it.
    pub state: Result<KeyState, Cause>,
    /// The waiters in the queue there, or the reason why the node did not report them.
    pub queue: Result<FairQueue, Cause>,
    /// The time from sending the question to the answer.
    pub round_trip: Option<Duration>,
    /// The fate of what was there, if an operator [breaks](super::Client::force_unlock) it.
    pub fate: Option<Fate>,
    words: String,
    no_queue: Option<String>,
}

impl NodeInspection {
    /// Returns why the node did not report its queue, in words; `None` if it did.
    #[must_use]
    pub fn no_queue(&self) -> Option<&str> {
        self.no_queue.as_deref()
    }
}

messages! {
    /// The verdict that the nodes add up to.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum InspectionVerdict {
        /// A quorum could grant: enough nodes are free.
        Free: "free",
        /// One holder has a quorum. Its remaining TTL is that of the node whose expiry ends the
        /// quorum.
        Held(holder: Holder): "held by {holder}",
        /// These clients hold permits, each on a quorum. The remaining TTL of each is that of the
        /// node whose expiry ends its quorum.
        Permits(permits: Permits): "permits of {permits}",
        /// These clients share it, each on a quorum. The remaining TTL of each is that of the node
        /// whose expiry ends its quorum.
        Shared(sharers: Sharers): "shared by {sharers}",
        /// A quorum of the nodes has a key of that name that is not a lock of redbolt, so no client
        /// can lock it. The keys may differ: this is the one whose expiry ends the quorum.
        Foreign(data: Foreign): "{data}",
        /// None of the others: nodes do not answer, or no holder has a quorum.
        Undecided: "undecided",
    }
}

impl Inspection {
    /// Combines the answers. `mine` is the fingerprint of the lock that this client holds on it.
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

    /// Returns whether a quorum prevents exclusive locks on the resource: it is held or shared, has
    /// permits, or has a key that is not a lock of redbolt. `false` does not prove that it is free:
    /// nodes that do not answer may have keys, see the [verdict](Self::verdict).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        use InspectionVerdict::{Foreign, Held, Permits, Shared};
        matches!(self.verdict, Held(_) | Permits(_) | Shared(_) | Foreign(_))
    }

    /// Returns the owner of the lock; `None` if enough nodes are free that no client can hold it.
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

    /// Returns how long the lock keeps its quorum if it is not extended, by the answers of the
    /// nodes. For a lock held by several clients, it is that of the last to expire. `None` if no
    /// client has a quorum, or has one that never expires.
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

/// The outcome of breaking a lock.
#[derive(Clone, Debug)]
pub struct ForceUnlockReport {
    /// The answers of all nodes, in order, each with what was there before and its fate.
    pub nodes: Vec<NodeInspection>,
    /// The combined verdict about the lock, or other key, that was there before.
    pub was: InspectionVerdict,
    /// The waiters in the queue, as in an [`Inspection`]. The resource is kept for them.
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

    /// Returns whether a quorum of the nodes has confirmed that nothing of what was there remains,
    /// so that no client holds the lock because of it.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.gone() >= self.quorum
    }

    /// Returns on how many nodes nothing was there, or nothing remains of it.
    #[must_use]
    pub fn gone(&self) -> usize {
        let is_gone = |node: &&NodeInspection| match node.fate {
            Some(fate) => fate != Fate::Kept,
            None => node.state == Ok(KeyState::Free),
        };
        self.nodes.iter().filter(is_gone).count()
    }

    /// Returns on how many nodes a key was deleted.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.with(Fate::Deleted)
    }

    /// Returns on how many nodes the key was kept because it is not a lock of redbolt.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.with(Fate::Kept)
    }

    /// Returns the names of the profiles that may recognize a kept key but are not
    /// [configured](crate::ConfigBuilder::formats), as far as the type of the key shows.
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

/// Describes a holder with its label and its hash: labels repeat, and hashes identify a holder.
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

/// Describes the queue, to follow the state of the key.
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

/// Returns the waiters in the queue on a quorum of nodes. `None` if fewer nodes report them.
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

/// Returns the holders of permits on a quorum of nodes. `None` if there are none.
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
    // A node names at most 16 holders, so only counts can show that there are more.
    counts.sort_by_key(|&count| Reverse(count));
    let named = ended.len();
    let count = counts.get(quorum - 1).filter(|_| named >= 16).map_or(named, |&of| of.max(named));
    let last = ended.iter().map(|(_, holder)| ends(holder.remaining)).max()?;
    Some(Permits::new(ended, count, Some(last)))
}

/// Returns the key whose expiry ends the quorum: it lasts until only quorum - 1 keys are left.
fn last_of_quorum<T>(
    quorum: usize,
    keys: Vec<&T>,
    remaining: impl Fn(&T) -> Option<Duration>,
) -> Option<&T> {
    nth_largest(quorum, keys, |key| ends(remaining(key)))
}

/// Returns the item that has rank `nth` in descending order, so that `nth` items are at least as
/// large.
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
