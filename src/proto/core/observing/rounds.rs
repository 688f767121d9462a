//! The rounds of readings, and what is announced to observers.

use std::time::Duration;

use super::sight::{self, LeaderVerdict, LeaderView, NodeSight};
use super::{Observation, Observers, PendingRead, Read, Sight};
use crate::proto::core::links::{Ability, Link, Mistyped, Node, Nodes, Pending};
use crate::proto::core::{Core, Env, claims::Claims};
use crate::proto::key_state::{KeyState, VIEWED, of_type};
use crate::proto::names::{ClaimId, NodeId, NodeSet, ObserverId};
use crate::proto::{
    classify::classify, event::Event, fence::COUNTER_PREFIX, format::plain, time::Timestamp,
    vote::Cause,
};
use crate::resp::{Token, command};

impl Observers {
    /// Applies a change to an observer, and schedules its next work. An id that has ended is
    /// ignored.
    fn change(
        &mut self,
        id: ObserverId,
        env: &mut Env<'_>,
        change: impl FnOnce(&mut Observation, &mut Env<'_>) -> Timestamp,
    ) {
        if let Some(observer) = self.slots.find_mut(id) {
            let due = change(observer, env);
            self.slots.arm(id, due);
            // Work that is due now is armed already, or is done by this timeout.
            if due > env.now.boot {
                env.arm(due);
            }
        }
    }

    pub(crate) fn begin(
        &mut self,
        resource: &[u8],
        nodes: &mut Nodes,
        env: &mut Env<'_>,
    ) -> ObserverId {
        let (id, observer) = self.slots.occupy(Observation::default);
        *observer = Observation {
            resource: resource.to_vec(),
            sights: vec![Sight::default(); nodes.len()],
            ..Observation::default()
        };
        self.by_resource.entry(resource.to_vec()).or_default().insert(id.into());
        self.change(id, env, |observer, env| observer.begin_round(id, nodes, env));
        id
    }

    fn end(&mut self, id: ObserverId) {
        let Some(observer) = self.slots.find_mut(id) else { return };
        let resource = std::mem::take(observer).resource;
        if let Some(keys) = self.by_resource.get_mut(&resource) {
            keys.remove(&id.into());
            if keys.is_empty() {
                self.by_resource.remove(&resource);
            }
        }
        self.slots.free(id);
    }

    pub(crate) fn check_timers(&mut self, nodes: &mut Nodes, env: &mut Env<'_>) {
        let mut at = 0;
        while let Some(id) = self.slots.next_due(&mut at, env.now.boot) {
            self.change(id, env, |observer, env| observer.check_timer(id, nodes, env));
        }
    }

    /// Starts the next round because the resource may have changed, at least [`APART`] after the
    /// last.
    pub(crate) fn wake(&mut self, id: ObserverId, nodes: &mut Nodes, env: &mut Env<'_>) {
        self.change(id, env, |observer, env| observer.wake(id, nodes, env));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Wakes the observers of a claim's resources, because we have changed keys of the claim.
    pub(crate) fn claim_changed(
        &mut self,
        id: ClaimId,
        claims: &Claims,
        nodes: &mut Nodes,
        env: &mut Env<'_>,
    ) {
        // No node reports our own changes to us.
        let keys = claims.find(id).into_iter().flat_map(|claim| claim.keys().iter());
        let observers: Vec<_> = keys.flat_map(|key| self.of(key)).collect();
        observers.into_iter().for_each(|observer| self.wake(observer, nodes, env));
    }

    /// Reads a node that takes reads again, or may have changed without a report.
    pub(crate) fn refresh(&mut self, node: NodeId, nodes: &mut Nodes, env: &mut Env<'_>) {
        self.change_all(nodes, env, |id, observer, nodes, env| {
            observer.refresh(id, &mut nodes[node.index()], env)
        });
    }

    /// Forgets the readings of a node whose link is lost.
    pub(crate) fn lose(&mut self, node: NodeId, nodes: &mut Nodes, env: &mut Env<'_>) {
        self.change_all(nodes, env, |id, observer, nodes, env| {
            let cause = nodes[node.index()].link.cause();
            observer.sights[node.index()] = Sight { last: Some(Err(cause)), ..Sight::default() };
            observer.announce(id, env)
        });
    }

    fn change_all(
        &mut self,
        nodes: &mut Nodes,
        env: &mut Env<'_>,
        change: impl Fn(ObserverId, &mut Observation, &mut Nodes, &mut Env<'_>) -> Timestamp,
    ) {
        let ids: Vec<_> = self.ids().collect();
        // Another node may have to report in its place.
        if !ids.is_empty() {
            nodes.ask_for_reports(env);
        }
        ids.iter().for_each(|&id| self.change(id, env, |it, env| change(id, it, nodes, env)));
    }

    pub(crate) fn answered(
        &mut self,
        (id, read): (ObserverId, Read),
        token: Token<'_>,
        node: &mut Node,
        env: &mut Env<'_>,
    ) -> Result<(), Mistyped> {
        let value = match token {
            Token::Bulk(value) => Ok(value),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        self.change(id, env, |observer, env| observer.take_read((id, read), value, node, env));
        Ok(())
    }
}

impl Core {
    /// Returns the last announced verdict and the last reading of each node, or `None` before the
    /// first [`Event::Observed`].
    #[must_use]
    pub fn observation(&self, id: ObserverId) -> Option<LeaderView> {
        let observer = self.observers.slots.find(id)?;
        let nodes = observer.sights.iter().map(|sight| sight.last.clone()).collect();
        Some(LeaderView { verdict: observer.announced.clone()?, nodes })
    }

    /// Stops an observer. No event about it follows. An unknown id is ignored.
    pub fn unobserve(&mut self, id: ObserverId) {
        self.observers.end(id);
    }
}

/// The rounds. Each transition returns when something is due for the observer.
impl Observation {
    fn verdict(&self, quorum: usize) -> LeaderVerdict {
        let last =
            self.sights.iter().map(|sight| sight.last.as_ref().and_then(|it| it.as_ref().ok()));
        sight::verdict(last, quorum)
    }

    /// Returns whether an answer in progress may change the verdict. A node that seems to hang, or
    /// is late, is not waited for.
    fn awaits(&self, verdict: &LeaderVerdict, hanging: NodeSet) -> bool {
        NodeSet::first(self.sights.len()).without(hanging).iter().any(|node| {
            let sight = &self.sights[node.index()];
            match (&sight.pending, &sight.last) {
                (Some(_), None | Some(Ok(_))) => true,
                (None, None) => *verdict == LeaderVerdict::Unknown,
                _ => false,
            }
        })
    }

    /// Returns when the first reading in progress is late.
    fn late_at(&self, patience: Duration) -> Timestamp {
        let open = self.sights.iter().filter(|sight| !matches!(sight.last, Some(Err(_))));
        let since = open.filter_map(|sight| Some(sight.pending.as_ref()?.since + patience));
        since.min().unwrap_or(Timestamp::NEVER)
    }

    fn check_timer(&mut self, id: ObserverId, nodes: &mut Nodes, env: &mut Env<'_>) -> Timestamp {
        let (now, patience) = (env.now.boot, env.settings().response_timeout);
        for sight in &mut self.sights {
            if sight.pending.as_ref().is_some_and(|pending| now >= pending.since + patience) {
                sight.last = Some(Err(Cause::NoAnswer));
            }
        }
        if now >= self.next_at { self.begin_round(id, nodes, env) } else { self.announce(id, env) }
    }

    fn wake(&mut self, id: ObserverId, nodes: &mut Nodes, env: &mut Env<'_>) -> Timestamp {
        // A resource that changes hands often must not cost a round each time.
        let at = env.now.boot.max(self.read_at + APART);
        self.next_at = self.next_at.min(at);
        if at == env.now.boot { self.begin_round(id, nodes, env) } else { at }
    }

    fn begin_round(&mut self, id: ObserverId, nodes: &mut Nodes, env: &mut Env<'_>) -> Timestamp {
        let (now, early) = (env.now.boot, env.random_below(PERIOD / 4));
        self.read_at = now;
        self.next_at = now + (PERIOD - early);
        nodes.ask_for_reports(env);
        let late = nodes.iter_mut().map(|node| self.refresh(id, node, env)).min();
        self.announce(id, env).min(late.unwrap_or(Timestamp::NEVER))
    }

    /// Starts a reading of a node. One at a time: a change during a reading is seen by the next.
    fn refresh(&mut self, id: ObserverId, node: &mut Node, env: &mut Env<'_>) -> Timestamp {
        let (now, sight) = (env.now.boot, &mut self.sights[node.id().index()]);
        if sight.pending.is_some() {
            sight.is_stale = true;
            return Timestamp::NEVER;
        }
        if !node.link.takes_reads() {
            if matches!(node.link.state(), Link::Down { .. } | Link::Leaving { .. })
                && node.link.was_tried()
            {
                sight.last = Some(Err(node.link.cause()));
            }
            return Timestamp::NEVER;
        }
        let counter = [COUNTER_PREFIX, &self.resource].concat();
        for read in [Read::CounterBefore, Read::Key, Read::CounterBehind] {
            let (key, last) = match read {
                Read::Key => (&self.resource, VIEWED),
                Read::CounterBefore | Read::CounterBehind => (&counter, DIGITS),
            };
            // Every change of holder changes the key, so its report is enough.
            if read == Read::Key {
                node.track_next(now);
            }
            node.pipeline.push(Pending::Observe(id, read), now, |out| {
                let _ = command(out, 4).arg(b"GETRANGE").arg(key).int(0).int(last as u64);
            });
        }
        sight.is_stale = false;
        sight.pending = Some(PendingRead { since: now, counter: None, key: Ok(KeyState::Free) });
        env.arm(now + env.settings().dead_peer_timeout);
        now + env.settings().response_timeout
    }

    fn take_read(
        &mut self,
        (id, read): (ObserverId, Read),
        value: Result<&[u8], Cause>,
        node: &mut Node,
        env: &mut Env<'_>,
    ) -> Timestamp {
        let sight = &mut self.sights[node.id().index()];
        // The connection of this reading was lost, or the id belongs to a new observer.
        let Some(pending) = &mut sight.pending else { return Timestamp::NEVER };
        match read {
            Read::CounterBefore => pending.counter = number(value),
            Read::Key => pending.key = state(value),
            Read::CounterBehind => {
                // Between two equal counters there was one holder, so the counter is that holder's
                // term.
                let counter = pending.counter.filter(|&before| number(value) == Some(before));
                sight.last = Some(pending.key.clone().map(|state| NodeSight { state, counter }));
                sight.pending = None;
                let is_stale = sight.is_stale;
                let late = if is_stale { self.refresh(id, node, env) } else { Timestamp::NEVER };
                return self.announce(id, env).min(late);
            }
        }
        Timestamp::NEVER
    }

    /// Announces a new verdict after a reading, or after the loss of one.
    fn announce(&mut self, id: ObserverId, env: &mut Env<'_>) -> Timestamp {
        let verdict = self.verdict(env.config.quorum());
        // Other verdicts may change in a moment, when all nodes have answered.
        let is_settled = verdict.is_whole() || !self.awaits(&verdict, env.suspected);
        if is_settled && self.announced.as_ref() != Some(&verdict) {
            self.announced = Some(verdict);
            env.report(Event::Observed(id));
        }
        self.next_at.min(self.late_at(env.settings().response_timeout))
    }
}

impl Nodes {
    fn ask_for_reports(&mut self, env: &mut Env<'_>) {
        // In each round, because a push link that is not wanted for a few rounds is closed.
        let reporting = self.best_reporting(env.suspected, env.config.quorum());
        self.want_push(reporting, env);
    }

    /// Returns a quorum of the nodes that vote: first those that report, last those that cannot.
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

/// Returns the state of a key from the beginning of its value.
fn state(value: Result<&[u8], Cause>) -> Result<KeyState, Cause> {
    match value {
        Ok(b"") => Ok(KeyState::Free),
        Ok(value) => Ok(plain::recognise(value)),
        Err(Cause::WrongType) => Ok(of_type(b"")),
        Err(cause) => Err(cause),
    }
}

/// Returns the value of a counter, 0 if it does not exist, and `None` if it is not a number.
fn number(value: Result<&[u8], Cause>) -> Option<u64> {
    match value {
        Ok(b"") => Some(0),
        Ok(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        Err(_) => None,
    }
}

/// The interval of rounds without reports.
const PERIOD: Duration = Duration::from_secs(2);

/// The shortest time between two rounds, however often a resource changes hands.
const APART: Duration = Duration::from_millis(5);

/// The offset of the last digit that a counter can have, and one more.
const DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redbolt_testkit::Random;

    use super::*;
    use crate::proto::config::{Config, NodeSettings, Settings};
    use crate::proto::time::ClockReading;

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
