//! A command's bytes, made for the first node and copied for the others.
//!
//! The commands of one claim to its nodes differ in two digits, those of the token that name the node. So a command
//! is encoded once and then copied. Not here: its arguments, see `lock_kind`, and which nodes it goes to.

use crate::proto::config::Config;
use crate::proto::core::claims::{Claim, hex};
use crate::proto::core::links::{Node, Pending};
use crate::proto::key_state::{RANDOM_DIGITS, TOKEN_DIGITS};
use crate::proto::lock_kind::Command;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::time::ClockReading;

/// The command that was encoded last.
#[derive(Default)]
pub(crate) struct EncodedCommand {
    of: Option<Subject>,
    bytes: Vec<u8>,
    token: Vec<u8>,
    /// Offset of the digits that name the node.
    at: usize,
}

/// Everything in a command but the node: two commands with the same subject have the same bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Subject {
    claim: ClaimId,
    command: Command,
    by_digest: bool,
    ttl_ms: u64,
    counter: u64,
}

impl EncodedCommand {
    /// Sends a command about a claim to a node. The claim is found only if the command is not encoded yet.
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

    /// The bytes for one node. If the last command had another subject, `encode` writes them: it gets a buffer for the
    /// token and one for the command, and returns the token's offset; `None` if there is no such claim.
    #[inline]
    fn for_node(
        &mut self,
        node: NodeId,
        subject: Subject,
        encode: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>) -> Option<usize>,
    ) -> Option<&[u8]> {
        if self.of != Some(subject) {
            self.of = None;
            self.bytes.clear();
            self.at = encode(&mut self.token, &mut self.bytes)? + RANDOM_DIGITS;
            self.of = Some(subject);
        }
        self.bytes[self.at..self.at + TOKEN_DIGITS - RANDOM_DIGITS].copy_from_slice(&hex(node.0));
        Some(&self.bytes)
    }
}
