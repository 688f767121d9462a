//! The sending of one command of a claim to one node, for requests, extensions, undos and
//! write-backs.
//!
//! Every command that is sent is followed up: a waiter of this core may have to read the key again.

pub(super) mod encoded_command;

use super::{Core, LockAtWork};
use crate::proto::core::links::Pending;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::{lock_kind::Command, time::ClockReading};

impl LockAtWork<'_> {
    /// Sends a command of the lock's claim, as [`Core::send`] does.
    pub(super) fn send(
        &mut self,
        to: NodeId,
        command: Command,
        numbers: (u64, u64),
        pending: impl FnOnce(bool) -> Pending,
    ) {
        let node = &mut self.nodes[to.index()];
        let claim = (self.lock.claim(), || Some(&*self.claim));
        let (config, now) = (self.env.config, self.env.now);
        self.env.encoded.send(node, claim, (command, numbers), config, now, pending);
        self.sent.insert(to);
    }
}

impl Core {
    /// Sends a command of a claim to one node. `numbers` are the TTL in ms and the counter, or
    /// zero. `pending` creates the request for the answer, given whether the command is sent by
    /// digest.
    #[inline]
    pub(super) fn send(
        &mut self,
        to: NodeId,
        id: ClaimId,
        command: Command,
        numbers: (u64, u64),
        now: ClockReading,
        pending: impl FnOnce(bool) -> Pending,
    ) {
        let node = &mut self.nodes[to.index()];
        let claim = || self.claims.find(id);
        self.common.encoded.send(node, (id, claim), (command, numbers), &self.config, now, pending);
        self.sent(id, std::iter::once(to), now);
    }

    /// Follows up a command of a claim that was sent to these nodes.
    #[inline]
    pub(super) fn sent(
        &mut self,
        id: ClaimId,
        to: impl Iterator<Item = NodeId>,
        now: ClockReading,
    ) {
        for node in to {
            // A node does not report our own changes, and forgets that this connection tracks the
            // key.
            if self.node(node).push.notifies() {
                self.read_behind(id, node, now);
            }
        }
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }
}
