//! Looking at a resource without taking part: who holds it on which node, and for how long.
//!
//! Nothing is written. The value is read by `GETRANGE`, because a key of that name may be anything,
//! and large. Not here: what the nodes' answers add up to for a user, see the front's inspection; an
//! operator who breaks a lock, see `forced`, which uses the same slots.

use std::fmt;
use std::time::Duration;

use sha1_smol::Sha1;

use super::Core;
use crate::proto::ask::{InputError, check_resource};
use crate::proto::claim::{RANDOM_DIGITS, TOKEN_DIGITS};
use crate::proto::classify::{ServerError, classify};
use crate::proto::config::MAX_LABEL;
use crate::proto::event::Event;
use crate::proto::greeting::Mistyped;
use crate::proto::names::{NodeId, NodeSet, ViewId};
use crate::proto::node::{Link, Request};
use crate::proto::time::{Nanos, Now};
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

/// What each node says about a resource.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// In the order of the configuration.
    pub nodes: Vec<NodeView>,
    /// What was looked at.
    pub resource: Vec<u8>,
}

/// What one node says about a resource.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The key's state there, or why the node did not tell.
    pub state: Result<KeyState, Cause>,
    /// From when the question was sent to when it was answered.
    pub round_trip: Option<Duration>,
}

/// A key's state on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// There is no such key.
    Free,
    /// The key is there.
    Held(Holder),
}

/// Who holds a key, as far as may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The label behind the token, if it has one; printable.
    pub label: Option<String>,
    /// The first 4 bytes of a SHA-1 of the value, without the node's number in it: equal on all nodes for
    /// one holder, and no help to whoever would like to release the lock.
    pub fingerprint: u32,
    /// For how long the node will keep the key; `None` if without end.
    pub remaining: Option<Duration>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => f.write_str(label),
            None => write!(f, "unlabelled #{:08x}", self.fingerprint),
        }
    }
}

#[derive(Default)]
pub(super) struct Viewing {
    pub(super) view: View,
    until: Nanos,
    /// The lock is to be broken, not only looked at.
    is_break: bool,
    /// Nodes whose link is not there yet.
    pub(super) queued: NodeSet,
    /// Nodes that have not answered.
    pub(super) open: NodeSet,
    complete: bool,
}

impl Core {
    /// Asks all nodes who holds `resource`. The outcome is [`Event::Viewed`].
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long.
    pub fn inspect(&mut self, resource: &[u8], now: Now) -> Result<ViewId, InputError> {
        check_resource(resource)?;
        Ok(self.begin_view(resource, false, now))
    }

    pub(super) fn begin_view(&mut self, resource: &[u8], is_break: bool, now: Now) -> ViewId {
        let now = self.clamp(now);
        let nobody = NodeView { state: Err(Cause::NoAnswer), round_trip: None };
        let nodes: Vec<_> = self.config.node_ids().collect();
        let until = now.boot + self.config.settings.connect_within;
        let (key, viewing) = self.views.occupy(Viewing::default);
        *viewing = Viewing {
            view: View { nodes: vec![nobody; nodes.len()], resource: resource.to_vec() },
            until,
            is_break,
            ..Viewing::default()
        };
        for &node in &nodes {
            viewing.open.insert(node);
        }
        let id = ViewId(key);
        self.arm_view(id, until);
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

    /// The [fingerprint](Holder::fingerprint) of the lock on `resource` that this core holds now, as a
    /// view shows it. `None` if it holds none.
    #[must_use]
    pub fn held_on(&self, resource: &[u8], now: Now) -> Option<u32> {
        let now = Now { boot: self.boot.max(now.boot), ..now };
        let mut locks =
            (0..self.locks.capacity()).filter_map(|at| self.locks.find(self.locks.at(at)?));
        let claim = locks.find_map(|lock| {
            let claim = self.claims.find(lock.claim.0)?;
            let is_on_it = claim.keys.iter().any(|key| key == resource);
            let is_held = lock.phase.is_held() && !lock.lease.remaining(now).is_zero();
            (is_on_it && is_held).then_some(claim)
        })?;
        let mut token = Vec::new();
        claim.write_token(&mut token, &self.config);
        Some(holder(&token).fingerprint)
    }

    fn look(&mut self, node: NodeId, id: ViewId, now: Now) {
        match self.node(node).link {
            Link::Quarantined { .. } | Link::Ready => self.send_view(node, id, now),
            Link::Opening { .. } | Link::Greeting { .. } => self.queue_view(node, id),
            Link::Down { .. } if now.boot >= self.node(node).probe_at => {
                self.open(node, now);
                self.queue_view(node, id);
            }
            _ => self.view_failed(id, node, self.node(node).cause),
        }
    }

    fn queue_view(&mut self, node: NodeId, id: ViewId) {
        if let Some(viewing) = self.views.find_mut(id.0) {
            viewing.queued.insert(node);
        }
    }

    fn send_view(&mut self, node_id: NodeId, id: ViewId, now: Now) {
        let Some(viewing) = self.views.find_mut(id.0) else { return };
        viewing.queued.remove(node_id);
        if viewing.is_break {
            return self.send_break(node_id, id, now);
        }
        let pipeline = &mut self.nodes[node_id.index()].pipeline;
        pipeline.push(Request::ViewValue(id), now.boot, |out| {
            let range = command(out, 4).arg(b"GETRANGE").arg(&viewing.view.resource).int(0);
            let _ = range.int(LONGEST_VALUE);
        });
        pipeline.push(Request::ViewTtl(id), now.boot, |out| {
            let _ = command(out, 2).arg(b"PTTL").arg(&viewing.view.resource);
        });
        self.arm(now.boot + self.config.settings.dead_after);
    }

    pub(super) fn send_queued_views(&mut self, node: NodeId, now: Now) {
        for id in self.view_ids() {
            if self.views.find(id.0).is_some_and(|viewing| viewing.queued.contains(node)) {
                self.send_view(node, id, now);
            }
        }
    }

    pub(super) fn fail_queued_views(&mut self, node: NodeId) {
        let cause = self.node(node).cause;
        for id in self.view_ids() {
            if self.views.find(id.0).is_some_and(|viewing| viewing.queued.contains(node)) {
                self.view_failed(id, node, cause);
            }
        }
    }

    /// The first answer: what is under the key, if anything.
    pub(super) fn view_value(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let holder = match token {
            Token::Bulk(value) => holder(value),
            Token::Error(_) => Holder { label: None, fingerprint: 0, remaining: None },
            _ => return Err(Mistyped),
        };
        if let Some(viewing) = self.open_view(id, node) {
            viewing.view.nodes[node.index()].state = match refused(token) {
                Some(cause) => Err(cause),
                None => Ok(KeyState::Held(holder)),
            };
        }
        Ok(())
    }

    /// The second answer: for how long, and by that whether there is a key at all.
    pub(super) fn view_ttl(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
        since: Nanos,
        now: Now,
    ) -> Result<(), Mistyped> {
        let refused = refused(token);
        let ms = match token {
            Token::Int(ms) => ms,
            Token::Error(_) => 0,
            _ => return Err(Mistyped),
        };
        let Some(viewing) = self.open_view(id, node) else { return Ok(()) };
        let view = &mut viewing.view.nodes[node.index()];
        view.round_trip = Some(now.boot.since(since));
        match (&mut view.state, refused, ms) {
            (Err(_), _, _) => {}
            (state, Some(cause), _) => *state = Err(cause),
            (state, None, -2) => *state = Ok(KeyState::Free),
            (Ok(KeyState::Held(holder)), None, ms) => {
                holder.remaining = u64::try_from(ms).ok().map(Duration::from_millis);
            }
            (Ok(KeyState::Free), None, _) => {}
        }
        viewing.open.remove(node);
        self.view_settled(id);
        Ok(())
    }

    pub(super) fn view_failed(&mut self, id: ViewId, node: NodeId, cause: Cause) {
        let Some(viewing) = self.open_view(id, node) else { return };
        viewing.view.nodes[node.index()] = NodeView { state: Err(cause), round_trip: None };
        viewing.queued.remove(node);
        viewing.open.remove(node);
        self.view_settled(id);
    }

    pub(super) fn view_due(&mut self, id: ViewId, now: Now) {
        let Some(viewing) = self.views.find(id.0).filter(|viewing| !viewing.complete) else {
            return;
        };
        if now.boot < viewing.until {
            let until = viewing.until;
            return self.arm_view(id, until);
        }
        for node in viewing.open.iter() {
            self.metrics.of(node).timeouts += 1;
            self.view_failed(id, node, Cause::NoAnswer);
        }
    }

    pub(super) fn view_settled(&mut self, id: ViewId) {
        if let Some(viewing) = self.views.find_mut(id.0)
            && viewing.open.is_empty()
            && !viewing.complete
        {
            viewing.complete = true;
            self.events.push_back(Event::Viewed(id));
        }
    }

    /// An inspection that still waits for this node.
    pub(super) fn open_view(&mut self, id: ViewId, node: NodeId) -> Option<&mut Viewing> {
        self.views.find_mut(id.0).filter(|viewing| viewing.open.contains(node))
    }

    fn view_ids(&self) -> Vec<ViewId> {
        (0..self.views.capacity()).filter_map(|at| self.views.at(at)).map(ViewId).collect()
    }
}

/// Why a node does not tell; data of another kind under the key is no reason, it is a holder.
fn refused(token: Token<'_>) -> Option<Cause> {
    let Token::Error(text) = token else { return None };
    match classify(text) {
        ServerError::Cause(Cause::WrongType) => None,
        ServerError::Cause(cause) => Some(cause),
        ServerError::NoScript => Some(Cause::ServerError),
    }
}

/// Who put this value there.
pub(super) fn holder(value: &[u8]) -> Holder {
    let ours = value.split_at_checked(TOKEN_DIGITS);
    let ours = ours.filter(|(digits, _)| digits.iter().all(u8::is_ascii_hexdigit));
    let mut sha1 = Sha1::new();
    match ours {
        // The same on all nodes but for the node's number.
        Some((digits, rest)) => {
            sha1.update(&digits[..RANDOM_DIGITS]);
            sha1.update(rest);
        }
        None => sha1.update(value),
    }
    let digest = sha1.digest().bytes();
    let fingerprint = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    let label = ours.and_then(|(_, rest)| rest.strip_prefix(b":"));
    let label = label.map(|label| String::from_utf8_lossy(label).replace(char::is_control, "?"));
    Holder { label, fingerprint, remaining: None }
}

/// Of a value no more is read than a token has, and one byte.
pub(super) const LONGEST_VALUE: u64 = (TOKEN_DIGITS + 1 + MAX_LABEL) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_tokens_have_labels() {
        let ours = holder(b"00112233445566778899aabbccddeeff00:web-1:77\n");
        assert_eq!(ours.label.as_deref(), Some("web-1:77?"));
        let elsewhere = holder(b"00112233445566778899aabbccddeeff1f:web-1:77\n");
        assert_eq!(ours.fingerprint, elsewhere.fingerprint, "on another node");
        let another = holder(b"10112233445566778899aabbccddeeff00:web-1:77\n");
        assert_ne!(ours.fingerprint, another.fingerprint);
        assert_eq!(holder(b"00112233445566778899aabbccddeeff00").label, None);
        assert_eq!(holder(b"zz112233445566778899aabbccddeeff00:x").label, None);
        assert_eq!(holder(b"").label, None);
        assert!(!format!("{ours:?}").contains("0011"));
    }
}
