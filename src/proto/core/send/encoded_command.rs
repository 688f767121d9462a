//! A command's bytes, made for the first node and copied for the others.
//!
//! The commands of one claim to its nodes differ in two digits, those of the token that name the node. So a command
//! is encoded once and then copied. Not here: its arguments, see `lock_kind`, and which nodes it goes to.

use crate::proto::core::claims::hex;
use crate::proto::key_state::{RANDOM_DIGITS, TOKEN_DIGITS};
use crate::proto::lock_kind::Command;
use crate::proto::names::{ClaimId, NodeId};

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
pub(crate) struct Subject {
    pub(crate) claim: ClaimId,
    pub(crate) command: Command,
    pub(crate) by_digest: bool,
    pub(crate) ttl_ms: u64,
    pub(crate) counter: u64,
}

impl EncodedCommand {
    /// The bytes for one node. If the last command had another subject, `encode` writes them: it gets a buffer for the
    /// token and one for the command, and returns the token's offset; `None` if there is no such claim.
    #[inline]
    pub(super) fn for_node(
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
