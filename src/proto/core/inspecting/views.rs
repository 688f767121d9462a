//! The views of a core, and the calls that start and take them.
//!
//! Invariant: each view completes once, and nothing changes a complete one.

use super::holdings::FEW;
use super::{Question, UnlockScope, View, Viewing, Views};
use crate::proto::core::claims::{Claim, Claims};
use crate::proto::core::links::{Mistyped, Node, Nodes};
use crate::proto::core::{Core, Env, locks::Locks};
use crate::proto::names::{LockId, NodeId, ViewId};
use crate::proto::request::{RequestError, check_resource};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::{classify::classify, key_state, slab::Slab, vote::Cause};
use crate::resp::Token;

impl Views {
    pub(crate) fn new() -> Self {
        Self(Slab::new())
    }

    pub(super) fn begin(
        &mut self,
        resource: &[u8],
        force: Option<UnlockScope>,
        nodes: &mut Nodes,
        env: &mut Env<'_>,
    ) -> ViewId {
        // Long enough to connect to a node first.
        let until = env.now.boot + env.settings().connect_timeout;
        let (id, viewing) = self.0.occupy(Viewing::default);
        *viewing = Viewing::new(resource, force, nodes.all(), until);
        nodes.iter_mut().for_each(|node| viewing.ask(id, node, env));
        self.arm(id, until, env);
        self.settle(id, nodes, env);
        id
    }

    /// Removes and returns a view that is complete.
    pub(super) fn take(&mut self, id: ViewId) -> Option<View> {
        let viewing = self.0.find_mut(id).filter(|viewing| viewing.is_complete())?;
        let view = std::mem::take(&mut viewing.view);
        self.0.free(id);
        Some(view)
    }

    pub(crate) fn send_queued(&mut self, node: &mut Node, env: &mut Env<'_>) {
        for id in self.queued_at(node.id()) {
            if let Some(viewing) = self.0.find_mut(id) {
                viewing.send(id, node, env);
            }
        }
    }

    pub(crate) fn fail_queued(&mut self, node: NodeId, nodes: &Nodes, env: &mut Env<'_>) {
        let cause = nodes[node.index()].link.cause();
        for id in self.queued_at(node) {
            self.fail(id, node, cause, nodes, env);
        }
    }

    fn queued_at(&self, node: NodeId) -> Vec<ViewId> {
        let is_queued = |viewing: &Viewing| viewing.is_queued_at(node);
        self.0.ids().filter(|&id| self.0.find(id).is_some_and(is_queued)).collect()
    }

    /// Takes a node's answer. It changes nothing in a view that was completed without it.
    pub(crate) fn answered(
        &mut self,
        (id, question): (ViewId, Question),
        since: Timestamp,
        (node, token): (NodeId, Token<'_>),
        nodes: &mut Nodes,
        env: &mut Env<'_>,
    ) -> Result<(), Mistyped> {
        let answer = match (question, token) {
            (_, Token::Error(text)) => {
                let cause = classify(text).cause();
                (Err(cause), Err(cause))
            }
            (Question::ForceUnlock | Question::Ttl, Token::Int(number)) => {
                (Ok(&b""[..]), Ok(number))
            }
            (Question::Type, Token::Simple(text)) => (Ok(text), Ok(0)),
            (Question::ForceUnlock | Question::Ttl | Question::Type, _) => return Err(Mistyped),
            (_, Token::Bulk(text)) => (Ok(text), Ok(0)),
            _ => return Err(Mistyped),
        };
        let viewing = self.0.find_mut(id).filter(|viewing| viewing.awaits(node));
        if viewing
            .is_some_and(|it| it.take((id, question), since, &mut nodes[node.index()], answer, env))
        {
            self.settle(id, nodes, env);
        }
        Ok(())
    }

    pub(crate) fn fail(
        &mut self,
        id: ViewId,
        node: NodeId,
        cause: Cause,
        nodes: &Nodes,
        env: &mut Env<'_>,
    ) {
        let viewing = self.0.find_mut(id);
        if let Some(viewing) = viewing.filter(|viewing| viewing.awaits(node)) {
            viewing.fail(node, cause);
            self.settle(id, nodes, env);
        }
    }

    fn settle(&mut self, id: ViewId, nodes: &Nodes, env: &mut Env<'_>) {
        let viewing = self.0.find_mut(id).filter(|viewing| !viewing.is_complete());
        if let Some(until) = viewing.and_then(|viewing| viewing.settle(id, nodes, env)) {
            self.arm(id, until, env);
        }
    }

    fn arm(&mut self, id: ViewId, at: Timestamp, env: &mut Env<'_>) {
        self.0.arm(id, at);
        env.arm(at);
    }

    pub(crate) fn due(&self) -> Timestamp {
        self.0.due()
    }

    pub(crate) fn check_timers(&mut self, env: &mut Env<'_>) {
        let mut at = 0;
        while let Some(id) = self.0.next_due(&mut at, env.now.boot) {
            let viewing = self.0.find_mut(id).filter(|viewing| !viewing.is_complete());
            if let Some(until) = viewing.and_then(|viewing| viewing.check_timer(id, env)) {
                self.arm(id, until, env);
            }
        }
    }
}

impl Core {
    /// Asks all nodes for the holders of `resource`. The outcome is
    /// [`Event::Viewed`](crate::proto::Event::Viewed).
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long.
    pub fn inspect(&mut self, resource: &[u8], now: ClockReading) -> Result<ViewId, RequestError> {
        check_resource(resource)?;
        Ok(self.begin_view(resource, None, now))
    }

    pub(super) fn begin_view(
        &mut self,
        resource: &[u8],
        force: Option<UnlockScope>,
        now: ClockReading,
    ) -> ViewId {
        let now = self.clamp(now);
        self.views.begin(resource, force, &mut self.nodes, &mut env!(self, now))
    }

    /// Returns the result of a complete inspection, once.
    pub fn take_view(&mut self, id: ViewId) -> Option<View> {
        self.views.take(id)
    }

    /// Returns the [fingerprint](crate::proto::Holder::fingerprint) of the lock on `resource` that
    /// this core holds now; `None` if it holds none.
    #[must_use]
    pub fn held_on(&mut self, resource: &[u8], now: ClockReading) -> Option<u32> {
        let now = ClockReading { boot: self.boot.max(now.boot), ..now };
        let (locks, claims) = (&self.locks, &self.claims);
        let is_on = |claim: &&Claim| claim.keys().iter().any(|key| key == resource);
        let held = |lock| held_claim(lock, locks, claims, now).filter(is_on);
        let claim = if locks.capacity() <= FEW {
            locks.ids().find_map(held)
        } else {
            self.holdings.learn(locks, claims, &self.queues);
            self.holdings.at(self.queues.key(resource)).find_map(|lock| held(LockId(lock)))
        }?;
        let mut token = Vec::new();
        claim.write_token(&mut token, &self.config);
        let holder = key_state::holder_of(&token[claim.kind().mark.len()..])?;
        Some(holder.fingerprint)
    }
}

fn held_claim<'c>(
    id: LockId,
    locks: &Locks,
    claims: &'c Claims,
    now: ClockReading,
) -> Option<&'c Claim> {
    // Callers do not see a companion.
    if locks.mode_change(id).is_companion() {
        return None;
    }
    let lock = locks.find(id)?;
    // The end of the lease may not have been reported yet.
    let is_held = lock.phase.is_held() && !lock.lease.remaining(now).is_zero();
    claims.find(lock.claim()).filter(|_| is_held)
}
