//! One view of a resource: the questions to its nodes, and their answers.
//!
//! Invariant: only a force-unlock writes. Further questions are sent to a node only while the view
//! waits for it.

use std::time::Duration;

use bytes::BytesMut;

use super::contents::{Contents, Reader};
use super::{DataKind, FairQueue, KeyState, NodeView, Question, Seen, UnlockScope, View, Viewing};
use crate::proto::core::Env;
use crate::proto::core::links::{FIRST_CONTACT, Link, Node, Nodes, Pending};
use crate::proto::key_state::{MOST_SHOWN, VIEWED, of_type, without_mark};
use crate::proto::names::{NodeId, NodeSet, ViewId};
use crate::proto::{
    config::Config, event::Event, fair_queue, permits, script, time::Timestamp, vote::Cause,
};
use crate::resp::command;

/// An answer as text and as a number, or the reason why there is none.
pub(super) type Answer<'a> = (Result<&'a [u8], Cause>, Result<i64, Cause>);

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

impl Viewing {
    pub(super) fn new(
        resource: &[u8],
        force: Option<UnlockScope>,
        nodes: NodeSet,
        until: Timestamp,
    ) -> Self {
        let nobody = NodeView::unknown(Cause::NoAnswer);
        Self {
            view: View { nodes: vec![nobody; nodes.len()], resource: resource.to_vec() },
            until,
            force,
            seen: vec![Seen::nothing(); nodes.len()],
            open: nodes,
            ..Self::default()
        }
    }

    pub(super) fn ask(&mut self, id: ViewId, node: &mut Node, env: &mut Env<'_>) {
        match node.link.state() {
            // The keys of a node that does not vote can be read.
            Link::Quarantined { .. } | Link::Ready => self.send(id, node, env),
            Link::Opening { .. } | Link::Handshake { .. } => self.queued.insert(node.id()),
            Link::Down { .. } if node.link.may_open(env.now.boot) => {
                node.open(env);
                self.queued.insert(node.id());
            }
            _ => self.fail(node.id(), node.link.cause()),
        }
    }

    pub(super) fn is_queued_at(&self, node: NodeId) -> bool {
        self.queued.contains(node)
    }

    /// Sends all questions that do not depend on other answers.
    pub(super) fn send(&mut self, id: ViewId, node: &mut Node, env: &mut Env<'_>) {
        self.queued.remove(node.id());
        let resource = &self.view.resource;
        // First: data that changes after the other reads must not be taken for what was seen.
        if self.force == Some(UnlockScope::Anything) {
            push(Question::Digest, id, node, env, |out| {
                let eval = command(out, 4).arg(b"EVAL").arg(script::VIEW_DIGEST.text.as_bytes());
                let _ = eval.int(1).arg(resource);
            });
        }
        // Before the rest, so that its answer is there when the last one arrives.
        push(Question::Queue, id, node, env, |out| {
            let eval = command(out, 8).arg(b"EVAL").arg(script::VIEW_QUEUE.text.as_bytes()).int(4);
            let eval = eval.arg(resource).prefixed(fair_queue::STAMPS_PREFIX, resource);
            let eval = eval.prefixed(fair_queue::ENDS_PREFIX, resource);
            let _ = eval.prefixed(fair_queue::CALL_PREFIX, resource).int(VIEWED as u64);
        });
        push(Question::Type, id, node, env, |out| {
            let _ = command(out, 2).arg(b"TYPE").arg(resource);
        });
        // Only the beginning: any program may have written it, and much of it.
        push(Question::Value, id, node, env, |out| {
            let range = command(out, 4).arg(b"GETRANGE").arg(resource).int(0);
            let _ = range.int(VIEWED as u64);
        });
        push(Question::Ttl, id, node, env, |out| {
            let _ = command(out, 2).arg(b"PTTL").arg(resource);
        });
    }

    /// Asks who is in a sorted set or a hash. Returns whether that was asked.
    fn ask_for_holders(&self, id: ViewId, node: &mut Node, env: &mut Env<'_>) -> bool {
        let resource = &self.view.resource;
        match &self.view.nodes[node.id().index()].state {
            _ if !node.link.takes_reads() => return false,
            Ok(KeyState::Foreign(data)) if data.kind == DataKind::SortedSet => {
                push(Question::Sharers, id, node, env, |out| {
                    let eval = command(out, 5).arg(b"EVAL");
                    let eval = eval.arg(script::VIEW_SHARED.text.as_bytes()).int(1);
                    let _ = eval.arg(resource).int(self.most_holders());
                });
            }
            Ok(KeyState::Foreign(data)) if data.kind == DataKind::Hash => {
                push(Question::Permits, id, node, env, |out| {
                    let eval = command(out, 6).arg(b"EVAL");
                    let eval = eval.arg(script::VIEW_PERMITS.text.as_bytes()).int(2);
                    let eval = eval.arg(resource).prefixed(permits::ENDS_PREFIX, resource);
                    let _ = eval.int(self.most_holders());
                });
            }
            _ => return false,
        }
        true
    }

    /// Returns how many holders a node lists. Others are not removed.
    fn most_holders(&self) -> u64 {
        if self.force.is_some() { MOST_BROKEN } else { MOST_SHOWN as u64 }
    }
}

pub(super) fn push(
    question: Question,
    view: ViewId,
    node: &mut Node,
    env: &mut Env<'_>,
    encode: impl FnOnce(&mut BytesMut),
) {
    let now = env.now.boot;
    node.pipeline.push(Pending::View(view, question), now, encode);
    env.arm(now + env.settings().dead_peer_timeout);
}

impl Viewing {
    pub(super) fn awaits(&self, node: NodeId) -> bool {
        self.open.contains(node)
    }

    /// Takes an answer, or why there is none. Returns whether the node has answered everything.
    pub(super) fn take(
        &mut self,
        (id, question): (ViewId, Question),
        since: Timestamp,
        node: &mut Node,
        answer: Answer<'_>,
        env: &mut Env<'_>,
    ) -> bool {
        self.record(question, since, node.id().index(), answer, env);
        let is_done = match question {
            Question::ForceUnlock => true,
            Question::Ttl if self.ask_for_holders(id, node, env) => false,
            // The data is known, and an operator may want it deleted.
            Question::Ttl | Question::Permits | Question::Sharers => {
                !self.force_unlock(id, node, env)
            }
            _ => false,
        };
        if is_done {
            self.open.remove(node.id());
        }
        is_done
    }

    fn record(
        &mut self,
        question: Question,
        since: Timestamp,
        at: usize,
        (text, number): Answer<'_>,
        env: &Env<'_>,
    ) {
        let config = env.config;
        let (seen, view) = (&mut self.seen[at], &mut self.view.nodes[at]);
        match question {
            Question::Digest => seen.digest = text.map(<[u8]>::to_vec),
            Question::Queue => {
                view.queue = text.and_then(|text| FairQueue::read(text).ok_or(Cause::WrongType));
            }
            Question::Type => seen.kind = text.map(<[u8]>::to_vec),
            Question::Value => self.take_value(at, text, config),
            Question::Ttl => {
                view.round_trip = Some(env.now.boot.since(since));
                self.take_ttl(at, number);
            }
            Question::Permits => {
                let found = text.ok().and_then(|text| self.reader(config).of_permits(text));
                self.take_holders(at, found);
            }
            Question::Sharers => {
                let found = text.ok().and_then(|text| self.reader(config).of_sharers(text));
                self.take_holders(at, found);
            }
            Question::ForceUnlock => self.take_fate(at, number),
        }
    }

    fn take_value(&mut self, at: usize, value: Result<&[u8], Cause>, config: &Config) {
        let seen = &mut self.seen[at];
        self.view.nodes[at].state = match value {
            Ok(value) => {
                seen.kind = Ok(STRING.to_vec());
                let (token, is_marked) = without_mark(value);
                (seen.value, seen.is_marked) = (token.to_vec(), is_marked);
                seen.is_whole = value.len() <= VIEWED;
                let (state, format, _) = self.reader(config).of_string(value).into_parts();
                self.seen[at].format = format;
                Ok(state)
            }
            Err(Cause::WrongType) => {
                // A single reader has become a member of a set since, or the data is foreign: the
                // next question finds out.
                if seen.kind.as_deref() == Ok(STRING) {
                    seen.kind = Ok(SORTED_SET.to_vec());
                }
                Ok(of_type(seen.kind.as_deref().unwrap_or_default()))
            }
            Err(cause) => Err(cause),
        };
    }

    fn take_ttl(&mut self, at: usize, left: Result<i64, Cause>) {
        let is_marked = self.seen[at].is_marked;
        let state = &mut self.view.nodes[at].state;
        *state = match (std::mem::replace(state, Ok(KeyState::Free)), left) {
            (Err(cause), _) | (Ok(_), Err(cause)) => Err(cause),
            // There is no key.
            (Ok(_), Ok(-2)) => Ok(KeyState::Free),
            // The marked key outlives its holder, which has expired.
            (Ok(_), Ok(0..=MARKED_FOR)) if is_marked => Ok(KeyState::Free),
            (Ok(state), Ok(ms)) => {
                let ms = if is_marked { ms - MARKED_FOR } else { ms };
                Ok(state.lives_for(u64::try_from(ms).ok().map(Duration::from_millis)))
            }
        };
    }

    /// Takes the holders of a shared resource, if a format recognises them.
    fn take_holders(&mut self, at: usize, found: Option<Contents>) {
        if let Some(found) = found {
            let (state, format, holders) = found.into_parts();
            let before = &mut self.view.nodes[at].state;
            let remaining = before.as_ref().ok().and_then(KeyState::remaining);
            *before = Ok(state.lives_for(remaining));
            (self.seen[at].holders, self.seen[at].format) = (holders, format);
        }
    }

    /// Returns a reader that tries the format named by the operator first.
    fn reader<'a>(&'a self, config: &'a Config) -> Reader<'a> {
        let named = match self.force {
            Some(UnlockScope::LocksOf(profile)) => Some(profile),
            _ => None,
        };
        Reader::new(&config.settings.formats, named, &self.view.resource)
    }
}

impl Viewing {
    pub(super) fn fail(&mut self, node: NodeId, cause: Cause) {
        self.view.nodes[node.index()] = NodeView::unknown(cause);
        self.queued.remove(node);
        self.open.remove(node);
    }

    /// Completes the view when no awaited node remains. After a quorum has answered, suspected
    /// nodes are not awaited, and the others only briefly. Returns when the view completes, if that
    /// is earlier than before.
    pub(super) fn settle(
        &mut self,
        id: ViewId,
        nodes: &Nodes,
        env: &mut Env<'_>,
    ) -> Option<Timestamp> {
        let has_quorum = self.told() >= env.config.quorum();
        let hanging = if has_quorum { env.suspected } else { NodeSet::default() };
        let awaited = self.open.without(hanging);
        if awaited.is_empty() {
            self.complete(id, env);
            return None;
        }
        let moment = match self.force {
            _ if !has_quorum => return None,
            // Data that is left on one node is in the way of the next client.
            Some(_) => env.settings().response_timeout,
            None => awaited.iter().map(|node| nodes.allowance(node)).max().unwrap_or_default(),
        };
        let until = env.now.boot + moment.max(FIRST_CONTACT);
        let is_earlier = until < self.until;
        self.until = self.until.min(until);
        is_earlier.then_some(until)
    }

    /// Completes the view if its time is up. Otherwise returns when that is.
    pub(super) fn check_timer(&mut self, id: ViewId, env: &mut Env<'_>) -> Option<Timestamp> {
        if env.now.boot < self.until {
            return Some(self.until);
        }
        self.complete(id, env);
        None
    }

    fn complete(&mut self, id: ViewId, env: &mut Env<'_>) {
        self.complete = true;
        self.queued = NodeSet::default();
        for node in std::mem::take(&mut self.open).iter() {
            self.view.nodes[node.index()] = NodeView::unknown(Cause::NoAnswer);
            env.metrics.of(node).timeouts += 1;
        }
        env.report(Event::Viewed(id));
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns how many nodes have answered everything.
    fn told(&self) -> usize {
        let done = NodeSet::first(self.view.nodes.len()).without(self.open);
        done.iter().filter(|node| self.view.nodes[node.index()].state.is_ok()).count()
    }
}

/// The most holders that one force-unlock removes on a node. Their lines fit into the largest reply
/// that is read, even with the largest numbers that a sorted set can hold.
const MOST_BROKEN: u64 = 2_048;

/// The reply of `TYPE` for a string.
pub(super) const STRING: &[u8] = b"string";
const SORTED_SET: &[u8] = b"zset";

/// The ms by which a key that is marked for waiters outlives its holder.
const MARKED_FOR: i64 = fair_queue::MARKED_FOR.as_millis() as i64;
