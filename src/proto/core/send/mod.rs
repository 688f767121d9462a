//! One command about a claim, to one node.
//!
//! Apart from whoever asks, extends, undoes or writes back, because it is the same for all of them. Not here: what
//! is in a command, see `lock_kind`, and whether the node may have it.

mod encoded_command;

use self::encoded_command::Subject;
use super::Core;
use crate::proto::core::links::Pending;
use crate::proto::lock_kind::Command;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::time::ClockReading;

pub(super) use self::encoded_command::EncodedCommand;

impl Core {
    /// Sends a command about a claim to one node; `numbers` are the TTL in ms and the counter that it gives,
    /// or zero. `pending` makes what the answer belongs to, given whether the command goes by digest.
    #[inline]
    pub(super) fn send(
        &mut self,
        to: NodeId,
        id: ClaimId,
        command: Command,
        (ttl_ms, counter): (u64, u64),
        now: ClockReading,
        pending: impl FnOnce(bool) -> Pending,
    ) {
        let node = &mut self.nodes[to.index()];
        let by_digest = node.goes_by_digest(command);
        let subject = Subject { claim: id, command, by_digest, ttl_ms, counter };
        let bytes = self.encoded.for_node(to, subject, |token, out| {
            let claim = self.claims.find(id)?;
            claim.write_token(token, &self.config);
            let arguments = claim.arguments(&self.config, token, ttl_ms, counter);
            Some(command.encode(out, &arguments, by_digest) + claim.kind().mark.len())
        });
        let Some(bytes) = bytes else { return };
        node.pipeline.push(pending(by_digest), now.boot, |out| out.extend_from_slice(bytes));
        if node.push.notifies() {
            self.look_behind(id, to, now);
        }
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }
}
