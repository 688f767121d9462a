//! What the nodes may hold for one attempt, until it is known that they do not.
//!
//! A claim has its own token and outlives its attempt: undo and release are owed to every node
//! that may have seen the ask, until each has confirmed or the TTL is over. Not here: when it is
//! sent, see `core`.

use std::time::Duration;

use super::config::Config;
use super::keys::Keys;
use super::names::{LockId, NodeSet};
use super::recipe::{Arguments, FENCED, MANY, PLAIN, Recipe};
use super::time::{self, Nanos};

pub(super) struct Claim {
    /// The lock whose attempt this is; `None` once that has ended.
    pub(super) lock: Option<LockId>,
    /// The lock that waits since this attempt was refused, and its round.
    pub(super) waiter: Option<(LockId, u32)>,
    pub(super) recipe: &'static Recipe,
    pub(super) keys: Keys,
    /// The owner value: 32 random hexadecimal digits, two zeros where the node's number goes, and the
    /// label.
    token: Vec<u8>,
    pub(super) ttl: Duration,
    /// The value that is proposed for its fencing counters.
    pub(super) counter: u64,
    /// Nodes whose ask waits for their link.
    pub(super) queued: NodeSet,
    /// Nodes that may hold the keys.
    pub(super) seen: NodeSet,
    /// Nodes whose grant counted: the guard let them vote. Only these can extend.
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
    pub(super) again_at: Nanos,
    /// When no node can hold the keys any longer.
    pub(super) forget_at: Nanos,
}

impl Claim {
    pub(super) fn new() -> Self {
        let none = NodeSet::default();
        Self {
            lock: None,
            waiter: None,
            recipe: &PLAIN,
            keys: Keys::default(),
            token: Vec::new(),
            ttl: Duration::ZERO,
            counter: 0,
            queued: none,
            seen: none,
            counted: none,
            owed: none,
            refused: none,
            undoing: none,
            undone: none,
            ghosts: none,
            again_at: Nanos::NEVER,
            forget_at: Nanos::default(),
        }
    }

    /// Makes a used slot a new claim, with a token that nobody has seen.
    pub(super) fn begin(
        &mut self,
        lock: LockId,
        keys: &Keys,
        fenced: bool,
        ttl: Duration,
        random: [u8; 16],
        label: &[u8],
    ) {
        let none = NodeSet::default();
        self.lock = Some(lock);
        self.waiter = None;
        self.recipe = match (fenced, keys.len()) {
            (true, _) => &FENCED,
            (false, 1) => &PLAIN,
            (false, _) => &MANY,
        };
        self.keys.copy_from(keys);
        self.set_token(random, label);
        self.ttl = ttl;
        (self.queued, self.seen, self.counted, self.owed) = (none, none, none, none);
        (self.refused, self.undoing, self.undone, self.ghosts) = (none, none, none, none);
        self.again_at = Nanos::NEVER;
        self.forget_at = Nanos::default();
    }

    /// What a command about this claim carries, for whichever node. Whatever gives no TTL and raises no
    /// counter has zero for them.
    pub(super) fn arguments<'a>(
        &'a self,
        config: &'a Config,
        ttl_ms: u64,
        counter: u64,
    ) -> Arguments<'a> {
        Arguments {
            keys: &self.keys,
            token: &self.token,
            ttl_ms,
            guard: config.guard_key(),
            counter,
            counter_life_ms: time::ttl_ms(config.settings().counter_life),
        }
    }

    /// The keys can live until a TTL after `now`.
    pub(super) fn lives_until(&mut self, end: Nanos) {
        self.forget_at = self.forget_at.max(end);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.lock.is_none() && self.owed.is_empty()
    }

    /// The owner value, with zero for the number of the node.
    pub(super) fn token(&self) -> &[u8] {
        &self.token
    }

    fn set_token(&mut self, random: [u8; 16], label: &[u8]) {
        self.token.clear();
        self.token.extend(random.into_iter().flat_map(hex));
        self.token.extend_from_slice(&hex(0));
        if !label.is_empty() {
            self.token.push(b':');
            self.token.extend_from_slice(label);
        }
    }
}

/// Two digits, in lower case.
pub(super) fn hex(byte: u8) -> [u8; 2] {
    [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// Hexadecimal digits of a token that are random.
pub(super) const RANDOM_DIGITS: usize = 32;

/// Hexadecimal digits of a token, before its label. The last two are the node's number: what is undone
/// or extended on another node's server, to which an address may lead one day, finds nothing of ours.
pub(super) const TOKEN_DIGITS: usize = RANDOM_DIGITS + 2;

const HEX: &[u8; 16] = b"0123456789abcdef";
