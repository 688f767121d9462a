//! What the nodes may hold for one attempt, until it is known that they do not.
//!
//! A claim has its own token and outlives its attempt: undo and release are owed to every node
//! that may have seen the ask, until each has confirmed or the TTL is over. Not here: when it is
//! sent, see `core`.

use super::config::Config;
use super::keys::Keys;
use super::lock_kind::{Arguments, FENCED, LockKind, MANY, PLAIN};
use super::names::{LockId, NodeSet};
use super::time::{self, Timestamp};

pub(super) struct Claim {
    pub(super) user: ClaimUser,
    pub(super) kind: &'static LockKind,
    pub(super) keys: Keys,
    /// What makes its token one that nobody can guess.
    pub(super) random: [u8; 16],
    /// The label of its token, if that is not the configuration's.
    label: Option<Box<[u8]>>,
    pub(super) ttl_ms: u64,
    /// The value that is proposed for its fencing counters.
    pub(super) counter: u64,
    /// Nodes whose ask waits for their link.
    pub(super) queued: NodeSet,
    /// Nodes that may hold the keys.
    pub(super) seen: NodeSet,
    /// Nodes whose grant counted: the restart guard let them vote. Only these can extend.
    pub(super) counted: NodeSet,
    /// Nodes that owe the confirmation of an undo.
    pub(super) owed: NodeSet,
    /// Nodes that answered the ask with an error which says that it did not run.
    pub(super) refused: NodeSet,
    /// Nodes to which an undo is under way on their present connection.
    pub(super) undoing: NodeSet,
    /// Nodes to which an undo was ever sent: for the metrics.
    pub(super) undone: NodeSet,
    /// Nodes where the ask was in a connection that died: it may yet run, behind an undo on a
    /// newer connection.
    pub(super) ghosts: NodeSet,
    /// When an undo that a ghost may have overtaken is sent once more.
    pub(super) again_at: Timestamp,
    /// When no node can hold the keys any longer.
    pub(super) forget_at: Timestamp,
}

impl Claim {
    pub(super) fn new() -> Self {
        let none = NodeSet::default();
        Self {
            user: ClaimUser::Nobody,
            kind: &PLAIN,
            keys: Keys::default(),
            random: [0; 16],
            label: None,
            ttl_ms: 0,
            counter: 0,
            queued: none,
            seen: none,
            counted: none,
            owed: none,
            refused: none,
            undoing: none,
            undone: none,
            ghosts: none,
            again_at: Timestamp::NEVER,
            forget_at: Timestamp::default(),
        }
    }

    /// Makes a used slot a new claim, with a token that nobody has seen.
    pub(super) fn begin(
        &mut self,
        lock: LockId,
        keys: &Keys,
        fenced: bool,
        ttl_ms: u64,
        random: [u8; 16],
    ) {
        let none = NodeSet::default();
        self.user = ClaimUser::Lock(lock);
        self.kind = match (fenced, keys.len()) {
            (true, _) => &FENCED,
            (false, 1) => &PLAIN,
            (false, _) => &MANY,
        };
        self.keys.copy_from(keys);
        self.random = random;
        self.label = None;
        self.ttl_ms = ttl_ms;
        (self.queued, self.seen, self.counted, self.owed) = (none, none, none, none);
        (self.refused, self.undoing, self.undone, self.ghosts) = (none, none, none, none);
        self.again_at = Timestamp::NEVER;
        self.forget_at = Timestamp::default();
    }

    /// What a command about this claim carries, for whichever node. Whatever gives no TTL and raises no
    /// counter has zero for them.
    pub(super) fn arguments<'a>(
        &'a self,
        config: &'a Config,
        token: &'a [u8],
        ttl_ms: u64,
        counter: u64,
    ) -> Arguments<'a> {
        Arguments {
            keys: &self.keys,
            token,
            ttl_ms,
            restart_guard: config.restart_guard_key(),
            counter,
            fencing_counter_ttl_ms: time::ttl_ms(config.settings().fencing_counter_ttl),
        }
    }

    /// The keys can live until a TTL after `now`.
    pub(super) fn lives_until(&mut self, end: Timestamp) {
        self.forget_at = self.forget_at.max(end);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.lock().is_none() && self.owed.is_empty()
    }

    /// The lock whose attempt this is; `None` once that has ended.
    #[inline]
    pub(super) fn lock(&self) -> Option<LockId> {
        match self.user {
            ClaimUser::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// Gives it the label of another configuration.
    pub(super) fn set_label(&mut self, label: &[u8], config: &Config) {
        self.label = (*label != *config.settings().label).then(|| label.into());
    }

    pub(super) fn label<'a>(&'a self, config: &'a Config) -> &'a [u8] {
        self.label.as_deref().unwrap_or(&config.settings().label)
    }

    /// Writes the owner value: 32 random hexadecimal digits, two zeros where the node's number goes, and the
    /// label.
    pub(super) fn write_token(&self, token: &mut Vec<u8>, config: &Config) {
        token.clear();
        token.extend_from_slice(self.random.map(hex).as_flattened());
        token.extend_from_slice(&hex(0));
        let label = self.label(config);
        if !label.is_empty() {
            token.push(b':');
            token.extend_from_slice(label);
        }
    }
}

/// Whom what comes of a claim concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimUser {
    /// The lock whose attempt it is.
    Lock(LockId),
    Nobody,
    /// The lock that waits since the attempt was refused, and its round then.
    Waiter(LockId, u32),
}

/// Two digits, in lower case.
#[inline]
pub(super) fn hex(byte: u8) -> [u8; 2] {
    PAIRS[usize::from(byte)]
}

/// Hexadecimal digits of a token that are random.
pub(super) const RANDOM_DIGITS: usize = 32;

/// Hexadecimal digits of a token, before its label. The last two are the node's number: what is undone
/// or extended on another node's server, to which an address may lead one day, finds nothing of ours.
pub(super) const TOKEN_DIGITS: usize = RANDOM_DIGITS + 2;

const PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};
