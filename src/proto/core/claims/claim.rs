//! A claim: what each node may hold for one attempt.
//!
//! Invariant: a claim has its own token and outlives its attempt, until no node owes an undo or the
//! TTL has passed.

use crate::proto::arguments::Arguments;
use crate::proto::config::Config;
use crate::proto::fair_queue::InQueue;
use crate::proto::key_state::{RANDOM_DIGITS, TOKEN_DIGITS};
use crate::proto::keys::Keys;
use crate::proto::lock_kind::{
    Command, DOWNGRADE, DOWNGRADED, FENCED, LockKind, MANY, PERMIT, PLAIN, SHARED, SHARED_FENCED,
    TICKET, TICKET_PERMIT, TICKET_SHARED, UPGRADE, UPGRADE_FENCED,
};
use crate::proto::lock_mode::LockMode;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet, TicketName};
use crate::proto::permits::SlotOrder;
use crate::proto::script::ACQUIRE_FENCED;
use crate::proto::time::Timestamp;

pub(crate) struct Claim {
    user: ClaimUser,
    kind: &'static LockKind,
    keys: Keys,
    /// The part of the token that no client can guess.
    random: [u8; 16],
    /// The parts that few claims have, boxed because a program may hold very many locks.
    rare: Option<Box<Rare>>,
    ttl_ms: u64,
    /// The proposal for the fencing counters; zero without a fencing token.
    counter: u64,
    /// The number of permits of a semaphore; 0 for other locks.
    permits: u16,
    /// The slot on which the nodes agree or are to agree; [`NO_SLOT`] before.
    slot: u16,
    /// The nodes whose request waits for their link.
    queued: NodeSet,
    /// The nodes that may hold the keys.
    seen: NodeSet,
    /// The nodes whose grant counted because the restart guard let them vote. Only these can
    /// extend.
    counted: NodeSet,
    /// The nodes that have not confirmed an undo.
    owed: NodeSet,
    /// The nodes that answered with an error which proves that the request did not run.
    refused: NodeSet,
    /// The nodes with an undo in flight on their present connection.
    undoing: NodeSet,
    /// The nodes to which an undo was ever sent, for the metrics.
    undone: NodeSet,
    /// The nodes whose request was on a connection that died. It may still run, behind an undo on a
    /// newer connection.
    ghosts: NodeSet,
    /// When an undo that a ghost may follow is sent again.
    again_at: Timestamp,
    /// When no node can hold the keys any longer.
    forget_at: Timestamp,
}

#[derive(Default)]
struct Rare {
    /// The beginning of the token of the holder's other claim, which does not exclude this one.
    other_claim: Option<[u8; RANDOM_DIGITS]>,
    /// The label of the token, if it is not the configured one.
    label: Option<Box<[u8]>>,
    /// The ticket of the lock, and how its request waits in the queue.
    in_queue: Option<(ClaimId, InQueue)>,
}

/// The owner of a claim.
#[derive(Clone, Copy)]
enum ClaimUser {
    /// A lock that waits in the queue with this claim as its ticket.
    Ticket,
    /// The lock whose attempt this is.
    Lock(LockId),
    Nobody,
    /// The lock that has waited since this attempt was refused, and its round at that time.
    Waiter(LockId, u32),
}

impl Claim {
    pub(crate) fn new() -> Self {
        let none = NodeSet::default();
        Self {
            user: ClaimUser::Nobody,
            kind: &PLAIN,
            keys: Keys::default(),
            random: [0; 16],
            rare: None,
            ttl_ms: 0,
            counter: 0,
            permits: 0,
            slot: NO_SLOT,
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

    /// Makes this entry a new claim. `fenced` is the counter to propose.
    pub(crate) fn begin(
        &mut self,
        lock: LockId,
        keys: &Keys,
        mode: LockMode,
        fenced: Option<u64>,
        ttl_ms: u64,
        random: [u8; 16],
    ) {
        let none = NodeSet::default();
        self.user = ClaimUser::Lock(lock);
        self.kind = match (mode, fenced, keys.len()) {
            (LockMode::Permit { .. }, ..) => &PERMIT,
            (LockMode::Shared, None, _) => &SHARED,
            (LockMode::Shared, Some(_), _) => &SHARED_FENCED,
            (LockMode::Exclusive, Some(_), _) => &FENCED,
            (LockMode::Exclusive, None, 1) => &PLAIN,
            (LockMode::Exclusive, None, _) => &MANY,
        };
        self.keys.copy_from(keys);
        // Never the bytes of an earlier claim: a late undo of that one would delete this one's key.
        self.random = random;
        self.permits = if let LockMode::Permit { of } = mode { of } else { 0 };
        self.slot = NO_SLOT;
        self.rare = None;
        self.ttl_ms = ttl_ms;
        self.counter = fenced.unwrap_or_default();
        // The entry is reused only when no node owes anything for its last claim.
        (self.queued, self.seen, self.counted, self.owed) = (none, none, none, none);
        (self.refused, self.undoing, self.undone, self.ghosts) = (none, none, none, none);
        self.again_at = Timestamp::NEVER;
        self.forget_at = Timestamp::default();
    }

    /// Makes it a claim to a lock of another library.
    pub(crate) fn set_kind(&mut self, kind: &'static LockKind) {
        // A format that requests with SET NX, as redbolt does.
        if mutant!(TokenOfRegistry) && kind.ask == Command::SetIfAbsent {
            self.random = [0xa7; 16];
        }
        self.kind = kind;
    }

    /// Makes this entry a ticket in the queue of a resource, with the label of the lock's own
    /// token.
    pub(crate) fn begin_ticket(
        &mut self,
        lock: LockId,
        keys: &Keys,
        mode: LockMode,
        (grace_ms, label): (u64, &[u8]),
        random: [u8; 16],
    ) {
        self.begin(lock, keys, LockMode::Exclusive, None, 0, random);
        self.user = ClaimUser::Ticket;
        self.kind = match mode {
            LockMode::Exclusive => &TICKET,
            LockMode::Permit { .. } => &TICKET_PERMIT,
            LockMode::Shared => &TICKET_SHARED,
        };
        let mut words = grace_ms.to_string().into_bytes();
        if !label.is_empty() {
            words.push(b':');
            words.extend_from_slice(label);
        }
        self.rare.get_or_insert_default().label = Some(words.into_boxed_slice());
    }

    pub(crate) fn is_ticket(&self) -> bool {
        self.kind.undo == TICKET.undo
    }

    pub(crate) fn asks_in_queue(&mut self, ticket: ClaimId, in_queue: InQueue) {
        self.rare.get_or_insert_default().in_queue = Some((ticket, in_queue));
    }

    pub(crate) fn ticket(&self) -> Option<ClaimId> {
        Some(self.rare.as_ref()?.in_queue.as_ref()?.0)
    }

    /// Returns the name of a ticket, up to the digits of the node.
    pub(crate) fn ticket_name(&self) -> TicketName {
        let mut name = Vec::with_capacity(1 + RANDOM_DIGITS);
        name.extend_from_slice(self.kind.mark);
        name.extend_from_slice(&digits::<RANDOM_DIGITS>(self.random));
        TicketName::of(&name)
    }

    /// Makes it the second claim of a holder that changes its mode; `other_claim` are the random
    /// bytes of the first.
    pub(crate) fn set_other_claim(&mut self, other_claim: [u8; 16]) {
        self.rare.get_or_insert_default().other_claim = Some(digits(other_claim));
        self.kind = match self.kind.ask {
            Command::SetIfAbsent => &UPGRADE,
            Command::Run(script) if *script == ACQUIRE_FENCED => &UPGRADE_FENCED,
            Command::Delete(_) | Command::Move | Command::Run(_) => &DOWNGRADE,
        };
    }

    /// Makes an exclusive holder's claim one of a reader, before the nodes are asked to share.
    pub(crate) fn downgrade(&mut self) {
        // From now on its undo removes the reader that the holder is or becomes on each node.
        self.kind = &DOWNGRADED;
        // A node that is reached later is only asked to share: an exclusive request there would
        // keep out other readers.
        self.unqueue_all();
    }

    /// Returns whether it was an exclusive holder's that shares now.
    pub(crate) fn is_downgraded(&self) -> bool {
        self.kind.undo == DOWNGRADED.undo
    }

    /// Makes it the claim of a writer that also has its claim as a reader.
    pub(crate) fn upgrade(&mut self) {
        self.kind = &UPGRADE;
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.kind.mark == UPGRADE.mark
    }

    pub(crate) fn passes_to(&mut self, lock: LockId) {
        self.user = ClaimUser::Lock(lock);
    }

    /// Takes over a claim from another process. The requests to `ghosts` were still open there.
    pub(crate) fn attached(&mut self, counted: NodeSet, seen: NodeSet, ghosts: NodeSet) {
        (self.counted, self.seen, self.ghosts) = (counted, seen, ghosts);
    }

    /// Returns the lock whose attempt this is; `None` once that has ended.
    #[inline]
    pub(crate) fn lock(&self) -> Option<LockId> {
        match self.user {
            ClaimUser::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        matches!(self.user, ClaimUser::Lock(_) | ClaimUser::Ticket)
    }

    pub(super) fn part_from_lock(&mut self) {
        self.user = ClaimUser::Nobody;
    }

    /// Reports late votes to a lock that waits because this attempt was refused in `round`.
    pub(crate) fn report_late_to(&mut self, lock: LockId, round: u32) {
        self.user = ClaimUser::Waiter(lock, round);
    }

    /// Returns the lock whose attempt it is, or the waiter for late votes and the round in which
    /// that was refused.
    pub(crate) fn listener(&self) -> Option<(LockId, Option<u32>)> {
        let asking = self.lock().map(|lock| (lock, None));
        asking.or_else(|| self.waiter().map(|(lock, round)| (lock, Some(round))))
    }

    pub(crate) fn waiter(&self) -> Option<(LockId, u32)> {
        match self.user {
            ClaimUser::Waiter(lock, round) => Some((lock, round)),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> &'static LockKind {
        self.kind
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn random(&self) -> [u8; 16] {
        self.random
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    /// Returns whether only its request shows how long the resource is held, not the TTL of one
    /// key.
    pub(crate) fn is_read_by_its_ask(&self) -> bool {
        self.permits > 0 || self.keys.len() > 1 || self.kind.is_read_by_ask
    }

    /// Returns whether its undo only deletes one key that holds its token, unless a waiter has
    /// marked that. A key granted in the queue is marked from the start.
    pub(super) fn is_one_token(&self) -> bool {
        self.kind.undo == PLAIN.undo && self.keys.len() == 1 && self.ticket().is_none()
    }

    pub(crate) fn slots(&self) -> SlotOrder {
        match self.permits {
            0 => SlotOrder::NONE,
            permits => SlotOrder::new(permits, self.random),
        }
    }

    pub(crate) fn slot(&self) -> Option<u16> {
        (self.slot != NO_SLOT).then_some(self.slot)
    }

    pub(crate) fn takes_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    /// Returns the arguments of a command, for any node. TTL and counter are zero if unused.
    pub(crate) fn arguments<'a>(
        &'a self,
        config: &'a Config,
        token: &'a [u8],
        ttl_ms: u64,
        counter: u64,
    ) -> Arguments<'a> {
        let (other_claim, in_queue) = match &self.rare {
            None => (None, None),
            Some(rare) => (rare.other_claim.as_ref(), rare.in_queue.as_ref()),
        };
        Arguments {
            keys: &self.keys,
            token,
            ttl_ms,
            counter,
            config,
            slots: self.slots(),
            slot: self.slot.into(),
            other_claim: other_claim.map(<[u8; RANDOM_DIGITS]>::as_slice),
            in_queue: in_queue.map(|(_, in_queue)| in_queue),
        }
    }

    pub(crate) fn set_label(&mut self, label: &[u8], config: &Config) {
        if *label != *config.settings().label {
            self.rare.get_or_insert_default().label = Some(label.into());
        }
    }

    pub(crate) fn label<'a>(&'a self, config: &'a Config) -> &'a [u8] {
        let own = self.rare.as_ref().and_then(|it| it.label.as_deref());
        own.unwrap_or(&config.settings().label)
    }

    /// Writes the token: the kind's mark, 32 random digits, two zeros for the node's number, and
    /// the label.
    pub(crate) fn write_token(&self, token: &mut Vec<u8>, config: &Config) {
        token.clear();
        token.extend_from_slice(self.kind.mark);
        token.extend_from_slice(&digits::<TOKEN_DIGITS>(self.random));
        let label = self.label(config);
        if !label.is_empty() {
            token.push(b':');
            token.extend_from_slice(label);
        }
    }
}

/// The request.
impl Claim {
    pub(crate) fn queue(&mut self, node: NodeId) {
        self.queued.insert(node);
    }

    pub(crate) fn is_queued(&self, node: NodeId) -> bool {
        self.queued.contains(node)
    }

    /// Withdraws the request from a link that will not open. Returns whether it waited.
    pub(crate) fn unqueue(&mut self, node: NodeId) -> bool {
        self.queued.take(node)
    }

    pub(crate) fn unqueue_all(&mut self) {
        self.queued = NodeSet::default();
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Records that a node is sent the request, which can keep keys there until `lives_until`.
    pub(crate) fn sent(&mut self, node: NodeId, lives_until: Timestamp) {
        // Recorded before the first byte leaves: if the connection ends now, an undo is owed.
        self.queued.remove(node);
        self.seen.insert(node);
        self.lives_until(lives_until);
    }

    pub(crate) fn lives_until(&mut self, end: Timestamp) {
        // It only grows: an earlier command with a longer TTL may arrive later.
        self.forget_at = self.forget_at.max(end);
    }

    pub(super) fn never_ran(&mut self, node: NodeId) {
        self.seen.remove(node);
    }

    /// Records that the request waits in a node's queue, so that the node keeps no key for it.
    ///
    /// No ghost is lost: each node is asked once for a claim, so an answered request is not also in
    /// a dead connection. [`check`](Self::check) asserts it.
    pub(crate) fn mark_waiting(&mut self, node: NodeId) {
        if !self.is_owed(node) {
            self.never_ran(node);
        }
    }

    pub(crate) fn connection_lost(&mut self, node: NodeId, untouched: bool) {
        // Without a byte written, the node cannot have run it. After a single byte it may.
        if untouched {
            self.seen.remove(node);
        } else {
            self.seen.insert(node);
            self.ghosts.insert(node);
        }
    }

    pub(crate) fn seen(&self) -> NodeSet {
        self.seen
    }

    pub(crate) fn refused(&mut self, node: NodeId) {
        self.refused.insert(node);
    }

    pub(super) fn is_refused(&self, node: NodeId) -> bool {
        self.refused.contains(node)
    }

    pub(crate) fn granted(&mut self, node: NodeId) {
        self.counted.insert(node);
    }

    /// Stops counting the grant of a node that has lost the keys.
    pub(crate) fn gone(&mut self, node: NodeId) {
        self.counted.remove(node);
    }

    pub(crate) fn counted(&self) -> NodeSet {
        self.counted
    }
}

/// The undo.
impl Claim {
    /// Records that the node owes an undo. Returns whether that is new.
    pub(super) fn owe(&mut self, node: NodeId) -> bool {
        let is_new = !self.owed.contains(node);
        self.owed.insert(node);
        is_new
    }

    /// Returns whether the node owed an undo.
    pub(super) fn owe_no_more(&mut self, node: NodeId) -> bool {
        self.owed.take(node)
    }

    pub(crate) fn owed(&self) -> NodeSet {
        self.owed
    }

    pub(crate) fn is_owed(&self, node: NodeId) -> bool {
        self.owed.contains(node)
    }

    /// Returns whether an undo was sent to this node before.
    pub(super) fn undo_sent(&mut self, node: NodeId) -> bool {
        let again = self.undone.contains(node);
        self.undoing.insert(node);
        self.undone.insert(node);
        again
    }

    /// Records an answer to the undo, or its loss. Returns whether one was in flight.
    pub(crate) fn undo_over(&mut self, node: NodeId) -> bool {
        self.undoing.take(node)
    }

    pub(crate) fn undoing(&self) -> NodeSet {
        self.undoing
    }

    pub(super) fn to_undo(&self) -> NodeSet {
        self.owed.without(self.undoing)
    }

    /// Records a confirmation. If a ghost of the request may follow, the undo is sent again at half
    /// of the remaining TTL; returns when.
    pub(super) fn confirmed(&mut self, node: NodeId, now: Timestamp) -> Option<Timestamp> {
        // Request and undo were on one connection, in this order: the key is deleted for good.
        if !self.has_ghost(node) {
            self.seen.remove(node);
            return None;
        }
        self.ghosts.remove(node);
        // The request may still wait in the dead connection, and run after this undo.
        self.again_at = self.again_at.min(now + self.forget_at.since(now) / 2);
        Some(self.again_at)
    }

    pub(super) fn again_at(&self) -> Timestamp {
        self.again_at
    }

    pub(super) fn undoes_again(&mut self) {
        self.again_at = Timestamp::NEVER;
    }

    pub(crate) fn has_ghost(&self, node: NodeId) -> bool {
        self.ghosts.contains(node)
    }

    /// Records that the request in the dead connection will never run.
    pub(super) fn lay_ghost(&mut self, node: NodeId) {
        self.ghosts.remove(node);
    }

    pub(crate) fn is_settled(&self) -> bool {
        !self.is_in_use() && self.owed.is_empty()
    }

    pub(crate) fn forget_at(&self) -> Timestamp {
        self.forget_at
    }

    /// Returns when the claim itself is due, apart from its lock.
    pub(crate) fn due(&self) -> Timestamp {
        self.forget_at.min(self.again_at)
    }

    pub(crate) fn check(&self) {
        // Forgetting a node that may hold the key would leave that key until its TTL ends.
        let lost = self.owed.or(self.ghosts).without(self.seen);
        assert!(lost.is_empty(), "an undo is owed only by a node that may have seen the ask");
        assert!(self.lock().is_some() || self.queued.is_empty(), "an ask has a lock");
    }
}

const NO_SLOT: u16 = u16::MAX;

#[inline]
pub(crate) fn hex(byte: u8) -> [u8; 2] {
    [b"0123456789abcdef"[usize::from(byte >> 4)], b"0123456789abcdef"[usize::from(byte & 15)]]
}

/// Returns the digits of all bytes, followed by zeros.
#[inline]
fn digits<const N: usize>(bytes: [u8; RANDOM_DIGITS / 2]) -> [u8; N] {
    let mut digits = [b'0'; N];
    for (eight, four) in digits.chunks_exact_mut(8).zip(bytes.as_chunks().0) {
        eight.copy_from_slice(&eight_digits(*four));
    }
    digits
}

/// Computes four bytes in one word: a table of pairs would have to be fetched for each lock.
#[inline]
fn eight_digits(bytes: [u8; 4]) -> [u8; 8] {
    let each = |byte: u64| byte * 0x0101_0101_0101_0101;
    let spread = u64::from(u32::from_le_bytes(bytes));
    let spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    let halves = (spread >> 4 | spread << 8) & each(0x0f);
    // Adding six carries into the high half of a byte if the digit is a letter.
    let letters = (halves + each(6)) >> 4 & each(1);
    (halves + each(b'0'.into()) + letters * u64::from(b'a' - b'9' - 1)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::slab::Key;

    const NODE: NodeId = NodeId(1);

    fn asked() -> Claim {
        let mut claim = Claim::new();
        let mut keys = Keys::default();
        keys.set([&b"job"[..]].into_iter());
        claim.begin(LockId(Key::FIRST), &keys, LockMode::Exclusive, None, 1_000, [7; 16]);
        claim.queue(NODE);
        claim.sent(NODE, Timestamp(1_000));
        claim
    }

    #[test]
    fn a_confirmation_settles_what_is_owed() {
        let mut claim = asked();
        assert!(claim.owe(NODE) && !claim.owe(NODE), "owed only once");
        assert_eq!((claim.undo_sent(NODE), claim.to_undo()), (false, NodeSet::default()));
        claim.part_from_lock();
        claim.check();
        assert!(!claim.is_settled());
        assert!(claim.undo_over(NODE) && !claim.undo_over(NODE));
        assert_eq!(claim.confirmed(NODE, Timestamp(10)), None);
        assert!(claim.owe_no_more(NODE) && !claim.owe_no_more(NODE));
        assert!(claim.is_settled() && claim.seen().is_empty());
        claim.check();
    }

    #[test]
    fn a_request_in_a_dead_connection_is_undone_twice() {
        let mut claim = asked();
        claim.connection_lost(NODE, false);
        claim.owe(NODE);
        claim.undo_sent(NODE);
        claim.undo_over(NODE);
        assert_eq!(claim.confirmed(NODE, Timestamp(200)), Some(Timestamp(600)));
        assert_eq!((claim.seen(), claim.due()), (NODE.into(), Timestamp(600)));
        claim.undoes_again();
        assert_eq!((claim.to_undo(), claim.undo_sent(NODE)), (NODE.into(), true));
        claim.undo_over(NODE);
        assert_eq!(claim.confirmed(NODE, Timestamp(700)), None, "a ghost is undone twice only");
        claim.owe_no_more(NODE);
        claim.check();
    }

    /// Covers each byte at each position, next to each other byte.
    #[test]
    fn digits_are_those_of_each_byte() {
        for byte in 0..=u8::MAX {
            let bytes = std::array::from_fn(|at| byte.wrapping_add(17 * at as u8));
            let expected = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let found = digits::<TOKEN_DIGITS>(bytes);
            assert_eq!(String::from_utf8(found.to_vec()).unwrap(), expected + "00");
            assert_eq!(hex(byte), format!("{byte:02x}").as_bytes());
        }
    }

    #[test]
    fn a_request_that_was_not_sent_leaves_nothing() {
        let mut claim = asked();
        claim.connection_lost(NODE, true);
        assert!(claim.seen().is_empty() && !claim.has_ghost(NODE));
        claim.check();
    }
}
