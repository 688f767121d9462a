//! Observing who leads: whoever wants to know is told of each change.
//!
//! Nothing is written. A look reads three things of a node, one behind the other: the fencing counter, the key, and the
//! counter again. Each holder raises the counter, so that between two equal readings there was one holder, and it is known
//! whose term it is. All nodes are looked at in rounds. A timer begins one every other second, and it alone is relied
//! on; a quorum of nodes is asked to report changes, and a report begins a round at once. Any change of leader meets that
//! quorum in a node. Of what we change ourselves no node reports, so that our own grants and releases begin rounds too.
//!
//! Not here: what nodes say adds up to, see `sight`; how a node comes to report, see `push`; taking the lead, which is
//! acquiring a lock.

mod sight;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Core;
use crate::proto::classify::classify;
use crate::proto::core::links::{Ability, Link, Mistyped, Node, Nodes, Pending};
use crate::proto::event::Event;
use crate::proto::fence::COUNTER_PREFIX;
use crate::proto::key_state::{KeyState, VIEWED, of_string, of_type};
use crate::proto::names::{ClaimId, NodeId, NodeSet, ObserverId};
use crate::proto::slab::{Key, Slab};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

pub use self::sight::{Leader, LeaderVerdict, LeaderView, NodeSight};

/// All who observe.
pub(super) struct Observers {
    slots: Slab<Observer>,
    by_resource: BTreeMap<Vec<u8>, BTreeSet<Key>>,
}

/// One who observes who leads.
#[derive(Default)]
struct Observer {
    resource: Vec<u8>,
    /// By node.
    sights: Vec<Sight>,
    /// The verdict that was announced last.
    announced: Option<LeaderVerdict>,
    /// The verdict at the last poll of its event.
    polled: Option<LeaderVerdict>,
    /// When the last round began.
    looked_at: Timestamp,
    /// When the next one begins.
    next_at: Timestamp,
}

/// What is known of one node.
#[derive(Clone, Default)]
struct Sight {
    /// A look that is under way.
    look: Option<Look>,
    /// It may have changed since that look began.
    is_stale: bool,
    /// What it said last, or why it does not say.
    last: Option<Result<NodeSight, Cause>>,
}

/// What a look has brought so far.
#[derive(Clone)]
struct Look {
    since: Timestamp,
    counter: Option<u64>,
    key: Result<KeyState, Cause>,
}

/// One of the reads of a look, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    CounterBefore,
    Key,
    CounterBehind,
}

impl Observers {
    pub(super) fn new() -> Self {
        Self { slots: Slab::new(), by_resource: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Returns whether the verdict has changed since the last poll for it, and notes this poll.
    ///
    /// A verdict that changed and changed back between two polls has left two events in the queue, and
    /// [`unobserve`](Core::unobserve) does not remove those of its observer.
    #[cold]
    pub(super) fn polled(&mut self, id: ObserverId) -> bool {
        let Some(observer) = self.find_mut(id) else { return false };
        let is_news = observer.polled != observer.announced;
        if is_news {
            observer.polled.clone_from(&observer.announced);
        }
        is_news
    }

    /// Those who observe the resource with this key or this fencing counter.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = ObserverId> {
        let resource = key.strip_prefix(COUNTER_PREFIX).unwrap_or(key);
        let keys = self.by_resource.get(resource).into_iter().flatten();
        keys.map(|&key| ObserverId::new(key))
    }

    pub(super) fn arm(&mut self, id: ObserverId, at: Timestamp) {
        self.slots.arm(id.key(), at);
    }

    /// When something is due for any of them.
    pub(super) fn due(&self) -> Timestamp {
        self.slots.due()
    }

    pub(super) fn next_due(&mut self, at: &mut usize, by: Timestamp) -> Option<ObserverId> {
        self.slots.next_due(at, by).map(ObserverId::new)
    }

    fn ids(&self) -> impl Iterator<Item = ObserverId> {
        (0..self.slots.capacity()).filter_map(|at| self.slots.at(at)).map(ObserverId::new)
    }

    fn find(&self, id: ObserverId) -> Option<&Observer> {
        self.slots.find(id.key())
    }

    fn find_mut(&mut self, id: ObserverId) -> Option<&mut Observer> {
        self.slots.find_mut(id.key())
    }

    fn sight(&mut self, id: ObserverId, node: NodeId) -> Option<&mut Sight> {
        self.find_mut(id)?.sights.get_mut(node.index())
    }
}

impl Observer {
    /// What the nodes add up to now.
    fn verdict(&self, quorum: usize) -> LeaderVerdict {
        let told =
            self.sights.iter().map(|sight| sight.last.as_ref().and_then(|it| it.as_ref().ok()));
        sight::verdict(told, quorum)
    }

    /// Whether a node is about to say what may change the verdict. One that seems to hang, or is late, is not waited for.
    fn awaits(&self, verdict: &LeaderVerdict, hanging: NodeSet, nodes: NodeSet) -> bool {
        nodes.without(hanging).iter().any(|node| {
            let sight = &self.sights[node.index()];
            match (&sight.look, &sight.last) {
                (Some(_), None | Some(Ok(_))) => true,
                (None, None) => *verdict == LeaderVerdict::Unknown,
                _ => false,
            }
        })
    }

    /// When the first look that is under way is late.
    fn late_at(&self, patience: Duration) -> Timestamp {
        let open = self.sights.iter().filter(|sight| !matches!(sight.last, Some(Err(_))));
        let since = open.filter_map(|sight| Some(sight.look.as_ref()?.since + patience));
        since.min().unwrap_or(Timestamp::NEVER)
    }
}

/// Commands.
impl Core {
    pub(super) fn begin_observing(&mut self, resource: &[u8], now: ClockReading) -> ObserverId {
        let (key, observer) = self.observers.slots.occupy(Observer::default);
        *observer = Observer {
            resource: resource.to_vec(),
            sights: vec![Sight::default(); self.nodes.len()],
            ..Observer::default()
        };
        self.observers.by_resource.entry(resource.to_vec()).or_default().insert(key);
        let id = ObserverId::new(key);
        self.observe_all(id, now);
        id
    }

    /// What was announced last, and what each node says; `None` before the first [`Event::Observed`].
    #[must_use]
    pub fn observation(&self, id: ObserverId) -> Option<LeaderView> {
        let observer = self.observers.find(id)?;
        let nodes = observer.sights.iter().map(|sight| sight.last.clone()).collect();
        Some(LeaderView { verdict: observer.announced.clone()?, nodes })
    }

    /// Stops observing, and no event about it follows. An unknown id is ignored.
    pub fn unobserve(&mut self, id: ObserverId) {
        let Some(observer) = self.observers.find_mut(id) else { return };
        let resource = std::mem::take(observer).resource;
        if let Some(keys) = self.observers.by_resource.get_mut(&resource) {
            keys.remove(&id.key());
            if keys.is_empty() {
                self.observers.by_resource.remove(&resource);
            }
        }
        self.observers.slots.free(id.key());
    }
}

/// Rounds.
impl Core {
    /// Something may be due for this observer.
    pub(super) fn observer_due(&mut self, id: ObserverId, now: ClockReading) {
        let patience = self.config.settings.response_timeout;
        let Some(observer) = self.observers.find_mut(id) else { return };
        for sight in &mut observer.sights {
            if sight.look.as_ref().is_some_and(|look| now.boot >= look.since + patience) {
                sight.last = Some(Err(Cause::NoAnswer));
            }
        }
        if now.boot >= observer.next_at {
            self.observe_all(id, now);
        } else {
            self.observer_told(id);
        }
    }

    /// What it observes may have changed: the next round begins now, unless the last one has begun only just.
    pub(super) fn observer_wakes(&mut self, id: ObserverId, now: ClockReading) {
        let Some(observer) = self.observers.find_mut(id) else { return };
        let at = now.boot.max(observer.looked_at + APART);
        observer.next_at = observer.next_at.min(at);
        if at == now.boot {
            self.observe_all(id, now);
        } else {
            self.observers.arm(id, at);
            self.arm(at);
        }
    }

    /// We have changed what nodes hold for this claim. No node reports that to us.
    pub(super) fn claim_changed(&mut self, id: ClaimId, now: ClockReading) {
        if self.observers.is_empty() {
            return;
        }
        let keys = self.claims.find(id).into_iter().flat_map(|claim| claim.keys().iter());
        let observers: Vec<_> = keys.flat_map(|key| self.observers.of(key)).collect();
        observers.into_iter().for_each(|observer| self.observer_wakes(observer, now));
    }

    /// This node can be asked, or may have changed unheard.
    pub(super) fn observers_look_at(&mut self, node: NodeId, now: ClockReading) {
        let ids: Vec<_> = self.observers.ids().collect();
        if !ids.is_empty() {
            self.ask_for_reports(now);
        }
        ids.into_iter().for_each(|id| self.look_for_leader(id, node, now));
    }

    /// The link to this node is lost, and the looks that were under way.
    pub(super) fn observers_lose(&mut self, node: NodeId, now: ClockReading) {
        let cause = self.node(node).link.cause();
        let ids: Vec<_> = self.observers.ids().collect();
        if !ids.is_empty() {
            self.ask_for_reports(now);
        }
        for id in ids {
            if let Some(sight) = self.observers.sight(id, node) {
                *sight = Sight { last: Some(Err(cause)), ..Sight::default() };
                self.observer_told(id);
            }
        }
    }

    fn observe_all(&mut self, id: ObserverId, now: ClockReading) {
        let early = self.entropy.below(PERIOD / 4);
        let Some(observer) = self.observers.find_mut(id) else { return };
        observer.looked_at = now.boot;
        observer.next_at = now.boot + (PERIOD - early);
        self.ask_for_reports(now);
        for node in self.config.node_ids() {
            self.look_for_leader(id, node, now);
        }
        self.observer_told(id);
    }

    /// A push link that nobody wants for longer than a few rounds is closed.
    fn ask_for_reports(&mut self, now: ClockReading) {
        let reporting = self.nodes.best_reporting(self.suspected, self.config.quorum());
        reporting.iter().for_each(|node| self.want_push(node, now));
    }

    /// One look at a time: what changes while it is under way is seen by the next.
    fn look_for_leader(&mut self, id: ObserverId, node_id: NodeId, now: ClockReading) {
        let node = &mut self.nodes[node_id.index()];
        let Some(observer) = self.observers.slots.find_mut(id.key()) else { return };
        let sight = &mut observer.sights[node_id.index()];
        if sight.look.is_some() {
            sight.is_stale = true;
            return;
        }
        match node.link.state() {
            Link::Quarantined { .. } | Link::Ready => {}
            Link::Down { .. } | Link::Leaving { .. } if node.link.was_tried() => {
                sight.last = Some(Err(node.link.cause()));
                return;
            }
            _ => return,
        }
        let counter = [COUNTER_PREFIX, &observer.resource].concat();
        for read in [Read::CounterBefore, Read::Key, Read::CounterBehind] {
            let (key, last) = match read {
                Read::Key => (&observer.resource, VIEWED),
                Read::CounterBefore | Read::CounterBehind => (&counter, DIGITS),
            };
            if read == Read::Key {
                node.track_next(now.boot);
            }
            node.pipeline.push(Pending::Observe(id, read), now.boot, |out| {
                let _ = command(out, 4).arg(b"GETRANGE").arg(key).int(0).int(last as u64);
            });
        }
        sight.is_stale = false;
        sight.look = Some(Look { since: now.boot, counter: None, key: Ok(KeyState::Free) });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
        let until = now.boot + self.config.settings.response_timeout;
        self.observers.arm(id, until);
        self.arm(until);
    }

    /// A read of a look was answered.
    pub(super) fn observer_read(
        &mut self,
        id: ObserverId,
        node: NodeId,
        read: Read,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let value = match token {
            Token::Bulk(value) => Ok(value),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        // Nobody observes any longer, or not by this look.
        let Some(sight) = self.observers.sight(id, node) else { return Ok(()) };
        let Some(look) = &mut sight.look else { return Ok(()) };
        match read {
            Read::CounterBefore => look.counter = number(value),
            Read::Key => look.key = state(value),
            Read::CounterBehind => {
                let counter = look.counter.filter(|&before| number(value) == Some(before));
                sight.last = Some(look.key.clone().map(|state| NodeSight { state, counter }));
                sight.look = None;
                if sight.is_stale {
                    self.look_for_leader(id, node, now);
                }
                self.observer_told(id);
            }
        }
        Ok(())
    }

    /// A node has said something, or says nothing any longer. What that changes is announced.
    fn observer_told(&mut self, id: ObserverId) {
        let (quorum, patience) = (self.config.quorum(), self.config.settings.response_timeout);
        let (hanging, nodes) = (self.suspected, self.nodes.all());
        let Some(observer) = self.observers.find_mut(id) else { return };
        let verdict = observer.verdict(quorum);
        let is_settled = verdict.is_whole() || !observer.awaits(&verdict, hanging, nodes);
        let is_news = is_settled && observer.announced.as_ref() != Some(&verdict);
        if is_news {
            observer.announced = Some(verdict);
        }
        let due = observer.next_at.min(observer.late_at(patience));
        if is_news {
            self.events.push_back(Event::Observed(id));
        }
        self.observers.arm(id, due);
        // What is due is armed already, or this timeout comes to it.
        if due > self.boot {
            self.arm(due);
        }
    }
}

impl Nodes {
    /// Returns a quorum of the nodes that vote, those first that do report and those last that will not.
    fn best_reporting(&self, hanging: NodeSet, quorum: usize) -> NodeSet {
        let rank = |node: &&Node| match node.push.ability() {
            _ if node.push.notifies() => 0,
            Ability::Refused(_) => 2,
            _ => 1,
        };
        let can = |node: &&Node| node.link.is_ready() && !hanging.contains(node.id());
        let mut nodes: Vec<_> = self.iter().filter(can).collect();
        nodes.sort_by_key(rank);
        let mut best = NodeSet::default();
        nodes.into_iter().take(quorum).for_each(|node| best.insert(node.id()));
        best
    }
}

/// What a key holds, from its beginning.
fn state(value: Result<&[u8], Cause>) -> Result<KeyState, Cause> {
    match value {
        Ok(b"") => Ok(KeyState::Free),
        Ok(value) => Ok(of_string(value)),
        Err(Cause::WrongType) => Ok(of_type(b"")),
        Err(cause) => Err(cause),
    }
}

/// A counter's value; 0 where there is none. What is no number tells nothing.
fn number(value: Result<&[u8], Cause>) -> Option<u64> {
    match value {
        Ok(b"") => Some(0),
        Ok(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        Err(_) => None,
    }
}

/// Whatever happens, it is looked at so often.
const PERIOD: Duration = Duration::from_secs(2);

/// Rounds are so far apart at least, however often a resource changes hands.
const APART: Duration = Duration::from_millis(5);

/// The place of the last digit that a counter can have, and one more.
const DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redbolt_testkit::Random;

    use super::*;
    use crate::proto::config::{Config, NodeSettings, Settings};

    #[test]
    fn observers_that_stop_leave_nothing_behind() {
        let settings = Settings::new(vec![NodeSettings::default()]);
        let config = Arc::new(Config::new(settings).unwrap());
        let mut core = Core::new(config, Random::new(0).entropy());
        let [first, second] =
            [(); 2].map(|()| core.observe(b"lead", ClockReading::default()).unwrap());
        core.unobserve(first);
        assert_eq!(core.observers.of(b"lead").collect::<Vec<_>>(), [second]);
        core.unobserve(second);
        assert!(core.observers.by_resource.is_empty());
    }
}
