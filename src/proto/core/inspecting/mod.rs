//! Looking at a resource without taking part: who holds it on which node, for how long, and who waits.
//!
//! Nothing is written. Who waits in line is asked first, by a script. The value is read by `GETRANGE`, because a key of that name may be anything, and large. An operator
//! who breaks the lock that was seen goes on from here, see `force_unlock`. Not here: what type and value mean, see
//! `contents`; what the nodes' answers add up to for a user, see the API's inspection.

mod contents;
mod force_unlock;
mod holdings;
mod waiters;

use std::time::Duration;

use self::holdings::FEW;
use super::Core;
use crate::proto::classify::classify;
use crate::proto::config::Config;
use crate::proto::core::claims::Claim;
use crate::proto::core::links::{FIRST_CONTACT, Link, Mistyped, Pending};
use crate::proto::event::Event;
use crate::proto::format::Format;
use crate::proto::key_state::{self, VIEWED, of_type, without_mark};
use crate::proto::line;
use crate::proto::names::{LockId, NodeId, NodeSet, ViewId};
use crate::proto::permits;
use crate::proto::request::{RequestError, check_resource};
use crate::proto::script;
use crate::proto::slab::Slab;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

use self::contents::{Contents, Reader};
pub use self::force_unlock::Fate;
pub(crate) use self::force_unlock::Force;
pub(super) use self::holdings::Holdings;
pub use self::waiters::{Kept, Line, Waiter};
pub use crate::proto::key_state::{DataKind, Foreign, Holder, KeyState, Permits, Sharers};

/// What each node says about a resource.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// In the order of the configuration.
    pub nodes: Vec<NodeView>,
    /// What was looked at.
    pub resource: Vec<u8>,
}

/// What one node says about a resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeView {
    /// The key's state there, or why the node did not tell.
    pub state: Result<KeyState, Cause>,
    /// Who stands in line for it there, or why the node did not tell.
    pub line: Result<Line, Cause>,
    /// From when the last question was sent to when it was answered.
    pub round_trip: Option<Duration>,
    /// What became of what was there, if it was to be broken.
    pub fate: Option<Fate>,
}

#[derive(Default)]
pub(super) struct Viewing {
    view: View,
    until: Timestamp,
    /// What is to be broken of what is seen.
    force: Option<Force>,
    /// What the nodes have answered, in their order.
    seen: Vec<Seen>,
    /// Nodes whose link is not there yet.
    queued: NodeSet,
    /// Nodes that have not answered.
    open: NodeSet,
    complete: bool,
}

impl NodeView {
    fn unknown(cause: Cause) -> Self {
        Self { state: Err(cause), line: Err(cause), round_trip: None, fate: None }
    }
}

impl Viewing {
    /// How many holders a node is to name. Those that are not named are not removed.
    fn most_holders(&self) -> u64 {
        if self.force.is_some() { MOST_BROKEN } else { key_state::MOST_SHOWN as u64 }
    }

    /// Reads replies, with the format that the operator has named first.
    fn reader<'a>(&'a self, config: &'a Config) -> Reader<'a> {
        let named = match self.force {
            Some(Force::LocksOf(profile)) => Some(profile),
            _ => None,
        };
        Reader::new(&config.settings.formats, named, &self.view.resource)
    }

    /// How many nodes have answered all that they were asked.
    fn told(&self) -> usize {
        let done = NodeSet::first(self.view.nodes.len()).without(self.open);
        done.iter().filter(|node| self.view.nodes[node.index()].state.is_ok()).count()
    }
}

/// What a node has answered about a key, as it came: to compare with, not to show.
#[derive(Clone)]
pub(super) struct Seen {
    /// The type's name, or why the node does not tell it.
    kind: Result<Vec<u8>, Cause>,
    /// The beginning of a string, without the mark of those who wait in line.
    value: Vec<u8>,
    /// Whether that is all of it.
    is_whole: bool,
    /// Whether there was a mark.
    is_marked: bool,
    /// The members or fields of the holders, if several can hold it.
    holders: Vec<Vec<u8>>,
    /// The format that has recognised the data, unless that is redbolt's own.
    format: Option<&'static Format>,
    /// The digest of all that is there, or why there is none. Taken before the rest.
    digest: Result<Vec<u8>, Cause>,
}

impl Seen {
    fn nothing() -> Self {
        Self {
            kind: Ok(Vec::new()),
            value: Vec::new(),
            is_whole: false,
            is_marked: false,
            holders: Vec::new(),
            format: None,
            digest: Err(Cause::NoAnswer),
        }
    }
}

impl Core {
    /// Asks all nodes who holds `resource`. The outcome is [`Event::Viewed`].
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long.
    pub fn inspect(&mut self, resource: &[u8], now: ClockReading) -> Result<ViewId, RequestError> {
        check_resource(resource)?;
        Ok(self.begin_view(resource, None, now))
    }

    fn begin_view(&mut self, resource: &[u8], force: Option<Force>, now: ClockReading) -> ViewId {
        let now = self.clamp(now);
        let nobody = NodeView::unknown(Cause::NoAnswer);
        let nodes: Vec<_> = self.config.node_ids().collect();
        let until = now.boot + self.config.settings.connect_timeout;
        let (key, viewing) = self.views.occupy(Viewing::default);
        *viewing = Viewing {
            view: View { nodes: vec![nobody; nodes.len()], resource: resource.to_vec() },
            until,
            force,
            seen: vec![Seen::nothing(); nodes.len()],
            ..Viewing::default()
        };
        for &node in &nodes {
            viewing.open.insert(node);
        }
        let id = ViewId(key);
        self.views.arm(id.0, until);
        self.arm(until);
        for node in nodes {
            self.look(node, id, now);
        }
        self.view_settled(id);
        id
    }

    /// The result of a complete inspection, once.
    pub fn take_view(&mut self, id: ViewId) -> Option<View> {
        let viewing = self.views.find_mut(id.0).filter(|viewing| viewing.complete)?;
        let view = std::mem::take(&mut viewing.view);
        self.views.free(id.0);
        Some(view)
    }

    /// The [fingerprint](crate::proto::Holder::fingerprint) of the lock on `resource` that this core holds now, as a
    /// view shows it. `None` if it holds none.
    #[must_use]
    pub fn held_on(&mut self, resource: &[u8], now: ClockReading) -> Option<u32> {
        let now = ClockReading { boot: self.boot.max(now.boot), ..now };
        let claim = if self.locks.capacity() <= FEW {
            self.locks.ids().find_map(|lock| self.holding(lock, resource, now))
        } else {
            self.know_holdings();
            let mut known = self.holdings.at(self.queues.key(resource));
            known.find_map(|lock| self.holding(LockId(lock), resource, now))
        }?;
        let mut token = Vec::new();
        claim.write_token(&mut token, &self.config);
        let holder = key_state::holder_of(&token[claim.kind().mark.len()..])?;
        Some(holder.fingerprint)
    }

    /// The claim of a lock, if that is on the resource and is held.
    fn holding(&self, lock: LockId, resource: &[u8], now: ClockReading) -> Option<&Claim> {
        if self.locks.mode_change(lock).is_companion() {
            return None;
        }
        let lock = self.locks.find(lock)?;
        let claim = self.claims.find(lock.claim())?;
        let is_held = lock.phase.is_held() && !lock.lease.remaining(now).is_zero();
        (is_held && claim.keys().iter().any(|key| key == resource)).then_some(claim)
    }

    /// Walks through all locks, unless it is known which there are.
    fn know_holdings(&mut self) {
        if self.holdings.is_complete() {
            return;
        }
        let (locks, claims, queues) = (&self.locks, &self.claims, &self.queues);
        let held =
            locks.ids().filter(|&lock| locks.find(lock).is_some_and(|lock| lock.phase.is_held()));
        let places = held.flat_map(|lock| {
            let claim = locks.find(lock).and_then(|lock| claims.find(lock.claim()));
            let keys = claim.into_iter().flat_map(|claim| claim.keys().iter());
            keys.map(move |key| (queues.key(key), lock.0))
        });
        self.holdings.begin(places, locks.capacity());
    }

    /// Notes for inspections that a lock is on its resources.
    pub(super) fn note_holding(&mut self, id: LockId) {
        if !self.holdings.is_complete() {
            return;
        }
        let Some(active) = self.locks.active(id) else { return };
        for key in active.keys.iter() {
            if self.holdings.is_complete() {
                self.holdings.granted(self.queues.key(key), id.0);
            }
        }
    }

    fn look(&mut self, node: NodeId, id: ViewId, now: ClockReading) {
        match self.node(node).link.state() {
            Link::Quarantined { .. } | Link::Ready => self.send_view(node, id, now),
            Link::Opening { .. } | Link::Handshake { .. } => self.queue_view(node, id),
            Link::Down { .. } if self.node(node).link.may_open(now.boot) => {
                let (down, mut env) = self.node_in_env(node, now);
                down.open(&mut env);
                self.queue_view(node, id);
            }
            _ => self.view_failed(id, node, self.node(node).link.cause()),
        }
    }

    fn queue_view(&mut self, node: NodeId, id: ViewId) {
        if let Some(viewing) = self.views.find_mut(id.0) {
            viewing.queued.insert(node);
        }
    }

    fn send_view(&mut self, node_id: NodeId, id: ViewId, now: ClockReading) {
        let Some(viewing) = self.views.find_mut(id.0) else { return };
        viewing.queued.remove(node_id);
        let resource = &viewing.view.resource;
        let pipeline = &mut self.nodes[node_id.index()].pipeline;
        // First, because what changes behind the look must not be taken for what was seen.
        if viewing.force == Some(Force::Anything) {
            pipeline.push(Pending::ViewDigest(id), now.boot, |out| {
                let eval = command(out, 4).arg(b"EVAL").arg(script::VIEW_DIGEST.text.as_bytes());
                let _ = eval.int(1).arg(resource);
            });
        }
        // Ahead of the rest, so that its answer is there when the last one comes.
        pipeline.push(Pending::ViewLine(id), now.boot, |out| {
            let eval = command(out, 8).arg(b"EVAL").arg(script::VIEW_LINE.text.as_bytes()).int(4);
            let eval = eval.arg(resource).prefixed(line::STAMPS_PREFIX, resource);
            let eval = eval.prefixed(line::ENDS_PREFIX, resource);
            let _ = eval.prefixed(line::CALL_PREFIX, resource).int(VIEWED as u64);
        });
        pipeline.push(Pending::ViewType(id), now.boot, |out| {
            let _ = command(out, 2).arg(b"TYPE").arg(resource);
        });
        pipeline.push(Pending::ViewValue(id), now.boot, |out| {
            let range = command(out, 4).arg(b"GETRANGE").arg(resource).int(0);
            let _ = range.int(VIEWED as u64);
        });
        pipeline.push(Pending::ViewTtl(id), now.boot, |out| {
            let _ = command(out, 2).arg(b"PTTL").arg(resource);
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    pub(super) fn send_queued_views(&mut self, node: NodeId, now: ClockReading) {
        for id in self.view_ids() {
            if self.views.find(id.0).is_some_and(|viewing| viewing.queued.contains(node)) {
                self.send_view(node, id, now);
            }
        }
    }

    pub(super) fn fail_queued_views(&mut self, node: NodeId) {
        let cause = self.node(node).link.cause();
        for id in self.view_ids() {
            if self.views.find(id.0).is_some_and(|viewing| viewing.queued.contains(node)) {
                self.view_failed(id, node, cause);
            }
        }
    }

    /// The answer ahead of all others: who waits. A node that does not tell that may tell the rest.
    pub(super) fn view_line(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let line = match token {
            Token::Bulk(text) => Line::read(text).ok_or(Cause::WrongType),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        if let Some(viewing) = self.open_view(id, node) {
            viewing.view.nodes[node.index()].line = line;
        }
        Ok(())
    }

    /// The digest of all that is there, for an operator who deletes other data.
    pub(super) fn view_digest(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let digest = match token {
            Token::Bulk(digest) => Ok(digest.to_vec()),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        if let Some(viewing) = self.open_view(id, node) {
            viewing.seen[node.index()].digest = digest;
        }
        Ok(())
    }

    /// The first answer: of what type the data is.
    pub(super) fn view_type(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let kind = match token {
            Token::Simple(name) => Ok(name.to_vec()),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        if let Some(viewing) = self.open_view(id, node) {
            viewing.seen[node.index()].kind = kind;
        }
        Ok(())
    }

    /// The second answer: what is under the key, if anything.
    pub(super) fn view_value(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let Some(viewing) = open(&mut self.views, id, node) else {
            return matches!(token, Token::Bulk(_) | Token::Error(_)).then_some(()).ok_or(Mistyped);
        };
        let seen = &mut viewing.seen[node.index()];
        viewing.view.nodes[node.index()].state = match token {
            Token::Bulk(value) => {
                seen.kind = Ok(STRING.to_vec());
                let (token, is_marked) = without_mark(value);
                (seen.value, seen.is_marked) = (token.to_vec(), is_marked);
                seen.is_whole = value.len() <= VIEWED;
                let contents = viewing.reader(&self.config).of_string(value);
                let (state, format, _) = contents.into_parts();
                viewing.seen[node.index()].format = format;
                Ok(state)
            }
            Token::Error(text) => match classify(text).cause() {
                Cause::WrongType => {
                    // Who shared it alone has become a member of a set since, or it is another's, as its view will tell.
                    if seen.kind.as_deref() == Ok(STRING) {
                        seen.kind = Ok(SORTED_SET.to_vec());
                    }
                    Ok(of_type(seen.kind.as_deref().unwrap_or_default()))
                }
                cause => Err(cause),
            },
            _ => return Err(Mistyped),
        };
        Ok(())
    }

    /// The third answer: for how long, and by that whether there is a key at all.
    pub(super) fn view_ttl(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
        since: Timestamp,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let left = match token {
            Token::Int(ms) => Ok(ms),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        let Some(viewing) = self.open_view(id, node) else { return Ok(()) };
        let is_marked = viewing.seen[node.index()].is_marked;
        let view = &mut viewing.view.nodes[node.index()];
        view.round_trip = Some(now.boot.since(since));
        let state = std::mem::replace(&mut view.state, Ok(KeyState::Free));
        view.state = match (state, left) {
            (Err(cause), _) | (Ok(_), Err(cause)) => Err(cause),
            (Ok(_), Ok(-2)) => Ok(KeyState::Free),
            // It outlives its holder, whose time is over.
            (Ok(_), Ok(0..=MARKED_FOR)) if is_marked => Ok(KeyState::Free),
            (Ok(state), Ok(ms)) => {
                let ms = if is_marked { ms - MARKED_FOR } else { ms };
                Ok(state.lives_for(u64::try_from(ms).ok().map(Duration::from_millis)))
            }
        };
        if !self.ask_who_shares(id, node, now) && !self.ask_who_has_permits(id, node, now) {
            self.looked(id, node, now);
        }
        Ok(())
    }

    /// Behind a sorted set there is one more question: who is in it. Whether it was asked.
    fn ask_who_shares(&mut self, id: ViewId, node_id: NodeId, now: ClockReading) -> bool {
        let Some(viewing) = self.views.find(id.0) else { return false };
        let state = &viewing.view.nodes[node_id.index()].state;
        let is_sorted_set =
            matches!(state, Ok(KeyState::Foreign(data)) if data.kind == DataKind::SortedSet);
        let node = &mut self.nodes[node_id.index()];
        let is_there = matches!(node.link.state(), Link::Quarantined { .. } | Link::Ready);
        if !is_sorted_set || !is_there {
            return false;
        }
        node.pipeline.push(Pending::ViewShared(id), now.boot, |out| {
            let eval = command(out, 5).arg(b"EVAL").arg(script::VIEW_SHARED.text.as_bytes()).int(1);
            let _ = eval.arg(&viewing.view.resource).int(viewing.most_holders());
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
        true
    }

    /// Behind a hash there is one more question: who has which of its permits. Whether it was asked.
    fn ask_who_has_permits(&mut self, id: ViewId, node_id: NodeId, now: ClockReading) -> bool {
        let Some(viewing) = self.views.find(id.0) else { return false };
        let state = &viewing.view.nodes[node_id.index()].state;
        let is_hash = matches!(state, Ok(KeyState::Foreign(data)) if data.kind == DataKind::Hash);
        let node = &mut self.nodes[node_id.index()];
        let is_there = matches!(node.link.state(), Link::Quarantined { .. } | Link::Ready);
        if !is_hash || !is_there {
            return false;
        }
        node.pipeline.push(Pending::ViewPermits(id), now.boot, |out| {
            let eval =
                command(out, 6).arg(b"EVAL").arg(script::VIEW_PERMITS.text.as_bytes()).int(2);
            let resource = &viewing.view.resource;
            let eval = eval.arg(resource).prefixed(permits::ENDS_PREFIX, resource);
            let _ = eval.int(viewing.most_holders());
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
        true
    }

    /// The fourth answer, of a hash: who has which permit. A node that does not tell has told what it is.
    pub(super) fn view_permits(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let found = match token {
            Token::Bulk(lines) => open(&mut self.views, id, node)
                .and_then(|viewing| viewing.reader(&self.config).of_permits(lines)),
            Token::Error(_) => None,
            _ => return Err(Mistyped),
        };
        self.view_several(id, node, found, now);
        Ok(())
    }

    /// It is known who has the resource together. `None` if that is none of ours.
    fn view_several(
        &mut self,
        id: ViewId,
        node: NodeId,
        found: Option<Contents>,
        now: ClockReading,
    ) {
        let Some(viewing) = self.open_view(id, node) else { return };
        let view = &mut viewing.view.nodes[node.index()];
        let remaining = view.state.as_ref().ok().and_then(KeyState::remaining);
        if let Some(found) = found {
            let (state, format, holders) = found.into_parts();
            view.state = Ok(state.lives_for(remaining));
            let seen = &mut viewing.seen[node.index()];
            (seen.holders, seen.format) = (holders, format);
        }
        self.looked(id, node, now);
    }

    /// The fourth answer, of a sorted set: who shares it. A node that does not tell has told what it is.
    pub(super) fn view_shared(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let sharers = match token {
            Token::Bulk(lines) => open(&mut self.views, id, node)
                .and_then(|viewing| viewing.reader(&self.config).of_sharers(lines)),
            Token::Error(_) => None,
            _ => return Err(Mistyped),
        };
        self.view_several(id, node, sharers, now);
        Ok(())
    }

    /// It is known what is there. An operator may want it gone.
    fn looked(&mut self, id: ViewId, node: NodeId, now: ClockReading) {
        if !self.force(id, node, now) {
            self.view_answered(id, node);
        }
    }

    /// The node has said all that it will be asked.
    fn view_answered(&mut self, id: ViewId, node: NodeId) {
        if let Some(viewing) = self.open_view(id, node) {
            viewing.open.remove(node);
        }
        self.view_settled(id);
    }

    pub(super) fn view_failed(&mut self, id: ViewId, node: NodeId, cause: Cause) {
        let Some(viewing) = self.open_view(id, node) else { return };
        viewing.view.nodes[node.index()] = NodeView::unknown(cause);
        viewing.queued.remove(node);
        viewing.open.remove(node);
        self.view_settled(id);
    }

    pub(super) fn view_due(&mut self, id: ViewId, now: ClockReading) {
        let Some(viewing) = self.views.find(id.0).filter(|viewing| !viewing.complete) else {
            return;
        };
        if now.boot < viewing.until {
            let until = viewing.until;
            self.views.arm(id.0, until);
            return self.arm(until);
        }
        self.view_over(id);
    }

    /// A view is over when no node is left that it waits for. Behind a quorum it does not wait for nodes that seem
    /// to hang. For the others it waits only a moment then, and as long as for an answer where something is to be broken: what
    /// is left on one node is in the way of whoever comes next.
    fn view_settled(&mut self, id: ViewId) {
        let Some(viewing) = self.views.find(id.0).filter(|viewing| !viewing.complete) else {
            return;
        };
        let has_quorum = viewing.told() >= self.config.quorum();
        let hanging = if has_quorum { self.suspected } else { NodeSet::default() };
        let awaited = viewing.open.without(hanging);
        if awaited.is_empty() {
            return self.view_over(id);
        }
        if has_quorum {
            let moment = match viewing.force {
                Some(_) => self.config.settings.response_timeout,
                None => {
                    awaited.iter().map(|node| self.nodes.allowance(node)).max().unwrap_or_default()
                }
            };
            self.shorten_view(id, self.boot + moment.max(FIRST_CONTACT));
        }
    }

    fn shorten_view(&mut self, id: ViewId, until: Timestamp) {
        if let Some(viewing) = self.views.find_mut(id.0)
            && until < viewing.until
        {
            viewing.until = until;
            self.views.arm(id.0, until);
            self.arm(until);
        }
    }

    fn view_over(&mut self, id: ViewId) {
        let Some(viewing) = self.views.find_mut(id.0) else { return };
        viewing.complete = true;
        viewing.queued = NodeSet::default();
        for node in std::mem::take(&mut viewing.open).iter() {
            viewing.view.nodes[node.index()] = NodeView::unknown(Cause::NoAnswer);
            self.metrics.of(node).timeouts += 1;
        }
        self.events.push_back(Event::Viewed(id));
    }

    /// An inspection that still waits for this node.
    fn open_view(&mut self, id: ViewId, node: NodeId) -> Option<&mut Viewing> {
        open(&mut self.views, id, node)
    }

    fn view_ids(&self) -> Vec<ViewId> {
        (0..self.views.capacity()).filter_map(|at| self.views.at(at)).map(ViewId).collect()
    }
}

/// An inspection that still waits for this node.
fn open(views: &mut Slab<Viewing>, id: ViewId, node: NodeId) -> Option<&mut Viewing> {
    views.find_mut(id.0).filter(|viewing| viewing.open.contains(node))
}

/// The most holders that one order breaks on a node. Their lines fit the largest reply that is read, also if each end is the
/// largest number that a sorted set can hold.
const MOST_BROKEN: u64 = 2_048;

/// What `TYPE` says of a string, and of a sorted set.
pub(super) const STRING: &[u8] = b"string";
const SORTED_SET: &[u8] = b"zset";

/// By how many ms a key that is marked for those who wait in line outlives its holder.
const MARKED_FOR: i64 = line::MARKED_FOR.as_millis() as i64;
