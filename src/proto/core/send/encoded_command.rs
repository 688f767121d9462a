//! The bytes of a command, encoded for the first node and copied for the others.
//!
//! The commands of one claim differ only in the two digits of the token that name the node.

use crate::proto::config::Config;
use crate::proto::core::claims::{Claim, hex};
use crate::proto::core::links::{Node, Pending};
use crate::proto::key_state::{RANDOM_DIGITS, TOKEN_DIGITS};
use crate::proto::lock_kind::Command;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::time::ClockReading;

/// The last command that was encoded.
#[derive(Default)]
pub(crate) struct EncodedCommand {
    of: Option<Subject>,
    bytes: Vec<u8>,
    token: Vec<u8>,
    /// The offset of the digits that name the node.
    at: usize,
}

/// The subject of a command: everything in its bytes but the node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Subject {
    claim: ClaimId,
    command: Command,
    by_digest: bool,
    ttl_ms: u64,
    counter: u64,
}

impl EncodedCommand {
    /// Sends a command of a claim to a node. `claim` is called only if the command is not encoded
    /// yet.
    #[inline]
    pub(in crate::proto::core) fn send<'c>(
        &mut self,
        node: &mut Node,
        (id, claim): (ClaimId, impl FnOnce() -> Option<&'c Claim>),
        (command, (ttl_ms, counter)): (Command, (u64, u64)),
        config: &Config,
        now: ClockReading,
        pending: impl FnOnce(bool) -> Pending,
    ) {
        let by_digest = node.goes_by_digest(command);
        let subject = Subject { claim: id, command, by_digest, ttl_ms, counter };
        let bytes = self.for_node(node.id(), subject, |token, out| {
            let claim = claim()?;
            claim.write_token(token, config);
            let arguments = claim.arguments(config, token, ttl_ms, counter);
            Some(command.encode(out, &arguments, by_digest) + claim.kind().mark.len())
        });
        let Some(bytes) = bytes else { return };
        node.pipeline.push(pending(by_digest), now.boot, |out| out.extend_from_slice(bytes));
    }

    /// Returns the bytes for one node. If the last command had another subject, `encode` writes the
    /// token and the command to the two buffers and returns the token's offset, or `None` without
    /// such a claim.
    #[inline]
    fn for_node(
        &mut self,
        node: NodeId,
        subject: Subject,
        encode: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>) -> Option<usize>,
    ) -> Option<&[u8]> {
        if self.of != Some(subject) {
            // Otherwise an `encode` that fails would leave a subject with other bytes.
            self.of = None;
            self.bytes.clear();
            self.at = encode(&mut self.token, &mut self.bytes)? + RANDOM_DIGITS;
            self.of = Some(subject);
        }
        self.bytes[self.at..self.at + TOKEN_DIGITS - RANDOM_DIGITS].copy_from_slice(&hex(node.0));
        Some(&self.bytes)
    }
}
