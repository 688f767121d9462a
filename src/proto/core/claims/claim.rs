//! A claim: what each node may hold for one attempt.
//!
//! Invariant: a claim has its own token and outlives its attempt. Its undo is owed to every node
//! that may have seen the request, until the node has confirmed it or the TTL has passed.

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
    /// The random part of the token, so that no client can guess it.
    random: [u8; 16],
    /// The parts that few claims have. They are boxed because a program may hold very many locks.
    rare: Option<Box<Rare>>,
    ttl_ms: u64,
    /// The value that is proposed for the fencing counters.
    counter: u64,
    /// The number of permits of a semaphore; 0 for other locks.
    permits: u16,
    /// The slot of a permit on which the nodes agree or are to agree; [`NO_SLOT`] before.
    slot: u16,
    /// The nodes whose request waits for their link.
    queued: NodeSet,
    /// The nodes that may hold the keys.
    seen: NodeSet,
    /// The nodes whose grant counted because the restart guard let them vote. Only these can
    /// extend.
    counted: NodeSet,
    /// The nodes that have not confirmed an undo yet.
    owed: NodeSet,
    /// The nodes that answered the request with an error which proves that it did not run.
    refused: NodeSet,
    /// The nodes to which an undo is in flight on the present connection.
    undoing: NodeSet,
    /// The nodes to which an undo was ever sent, for the metrics.
    undone: NodeSet,
    /// The nodes to which the request was in flight on a connection that died. It may still run,
    /// after an undo on a newer connection.
    ghosts: NodeSet,
    /// The time at which an undo that a ghost may follow is sent again.
    again_at: Timestamp,
    /// The time from which no node can hold the keys.
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

/// The owner of a claim, which its votes and undos concern.
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

/// The contents and the owner of a claim.
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

    /// Makes this entry a new claim with a fresh token. `fenced` is the counter to propose.
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

    /// Makes this entry a ticket in the queue of a lock's resource, with a fresh name and the label
    /// of the lock's own token.
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

    /// Returns whether it is a ticket in the queue and not a claim to a lock.
    pub(crate) fn is_ticket(&self) -> bool {
        self.kind.undo == TICKET.undo
    }

    /// Makes its requests wait in the queue with this ticket.
    pub(crate) fn asks_in_queue(&mut self, ticket: ClaimId, in_queue: InQueue) {
        self.rare.get_or_insert_default().in_queue = Some((ticket, in_queue));
    }

    /// Returns the ticket with which its requests wait in the queue.
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

    /// Makes it the second claim of a holder that changes its mode. The token of the first claim
    /// was made of these bytes.
    pub(crate) fn set_other_claim(&mut self, other_claim: [u8; 16]) {
        self.rare.get_or_insert_default().other_claim = Some(digits(other_claim));
        self.kind = match self.kind.ask {
            Command::SetIfAbsent => &UPGRADE,
            Command::Run(script) if *script == ACQUIRE_FENCED => &UPGRADE_FENCED,
            Command::Delete(_) | Command::Move | Command::Run(_) => &DOWNGRADE,
        };
    }

    /// Makes the claim of an exclusive holder one of a reader, before its nodes are asked to share.
    pub(crate) fn downgrade(&mut self) {
        // From now on its undo removes the reader that the holder is or becomes on each node.
        self.kind = &DOWNGRADED;
        // A node that is reached later is only asked to share: an exclusive request there would
        // keep out other readers.
        self.unqueue_all();
    }

    /// Returns whether its holder shares the lock by an exclusive claim.
    pub(crate) fn is_downgraded(&self) -> bool {
        self.kind.undo == DOWNGRADED.undo
    }

    /// Makes it the claim of a writer that also has its claim as a reader.
    pub(crate) fn upgrade(&mut self) {
        self.kind = &UPGRADE;
    }

    /// Returns whether it is the claim of a writer that also has its claim as a reader.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.kind.mark == UPGRADE.mark
    }

    /// Passes the claim to another lock.
    pub(crate) fn passes_to(&mut self, lock: LockId) {
        self.user = ClaimUser::Lock(lock);
    }

    /// Takes over a claim from another process, which sent requests to the nodes in `seen`; those
    /// to `ghosts` were still open.
    pub(crate) fn attached(&mut self, counted: NodeSet, seen: NodeSet, ghosts: NodeSet) {
        (self.counted, self.seen, self.ghosts) = (counted, seen, ghosts);
    }

    /// Returns the lock whose attempt this is; `None` once the attempt has ended.
    #[inline]
    pub(crate) fn lock(&self) -> Option<LockId> {
        match self.user {
            ClaimUser::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// Returns whether a lock still needs it.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(self.user, ClaimUser::Lock(_) | ClaimUser::Ticket)
    }

    /// Ends its attempt.
    pub(super) fn part_from_lock(&mut self) {
        self.user = ClaimUser::Nobody;
    }

    /// Reports late votes to a lock that waits because this attempt was refused in its round
    /// `round`.
    pub(crate) fn report_late_to(&mut self, lock: LockId, round: u32) {
        self.user = ClaimUser::Waiter(lock, round);
    }

    /// Returns the lock whose attempt it is, or the waiter that receives late votes and the round
    /// in which that was refused.
    pub(crate) fn listener(&self) -> Option<(LockId, Option<u32>)> {
        let asking = self.lock().map(|lock| (lock, None));
        asking.or_else(|| self.waiter().map(|(lock, round)| (lock, Some(round))))
    }

    /// Returns the waiter that receives late votes, and the round in which it was refused.
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

    /// Returns the value that is proposed for the fencing counters; zero without a fencing token.
    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    /// Returns whether only its request, not the TTL of one key, shows for how long the resource is
    /// held: with several keys, a permit, or holders that expire one by one.
    pub(crate) fn is_read_by_its_ask(&self) -> bool {
        self.permits > 0 || self.keys.len() > 1 || self.kind.is_read_by_ask
    }

    /// Returns whether its undo only deletes one key that holds its token, unless a waiter has
    /// marked that. A key that was granted in the queue is marked from the start.
    pub(super) fn is_one_token(&self) -> bool {
        self.kind.undo == PLAIN.undo && self.keys.len() == 1 && self.ticket().is_none()
    }

    /// Returns the order in which slots of a semaphore are tried.
    pub(crate) fn slots(&self) -> SlotOrder {
        match self.permits {
            0 => SlotOrder::NONE,
            permits => SlotOrder::new(permits, self.random),
        }
    }

    /// Returns the slot of a permit on which the nodes agree or are to agree.
    pub(crate) fn slot(&self) -> Option<u16> {
        (self.slot != NO_SLOT).then_some(self.slot)
    }

    /// Sets the slot on which the nodes agree or are to agree.
    pub(crate) fn takes_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    /// Returns the arguments of a command about this claim, for any node. TTL and counter are zero
    /// if the command does not use them.
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

    /// Sets a label that differs from the configured one.
    pub(crate) fn set_label(&mut self, label: &[u8], config: &Config) {
        if *label != *config.settings().label {
            self.rare.get_or_insert_default().label = Some(label.into());
        }
    }

    pub(crate) fn label<'a>(&'a self, config: &'a Config) -> &'a [u8] {
        let own = self.rare.as_ref().and_then(|it| it.label.as_deref());
        own.unwrap_or(&config.settings().label)
    }

    /// Writes the token: the mark of its kind, 32 random hexadecimal digits, two zeros in place of
    /// the node's number, and the label.
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

/// The request, from the wait for a link to the grant that counts.
impl Claim {
    /// Lets the request wait for this node's link.
    pub(crate) fn queue(&mut self, node: NodeId) {
        self.queued.insert(node);
    }

    pub(crate) fn is_queued(&self, node: NodeId) -> bool {
        self.queued.contains(node)
    }

    /// Withdraws the request, because the link will not open. Returns whether it waited.
    pub(crate) fn unqueue(&mut self, node: NodeId) -> bool {
        self.queued.take(node)
    }

    /// Withdraws all requests that wait for a link.
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

    /// Records that a node may hold the keys until `end`.
    pub(crate) fn lives_until(&mut self, end: Timestamp) {
        // It only grows: an earlier command with a longer TTL may arrive later.
        self.forget_at = self.forget_at.max(end);
    }

    /// Records that the request was not sent, or did not run.
    pub(super) fn never_ran(&mut self, node: NodeId) {
        self.seen.remove(node);
    }

    /// Records that the request has to wait in the queue of a node, which therefore keeps no key
    /// for it.
    ///
    /// No ghost is lost here: each node is asked once for a claim, so a request that was answered
    /// is not also in a dead connection. [`check`](Self::check) asserts it.
    pub(crate) fn mark_waiting(&mut self, node: NodeId) {
        if !self.is_owed(node) {
            self.never_ran(node);
        }
    }

    /// Records that the connection with the request was lost. Unless it was `untouched`, the
    /// request may still run.
    pub(crate) fn connection_lost(&mut self, node: NodeId, untouched: bool) {
        // No byte of the request was written, so the node cannot have run it. After a single byte
        // it may have.
        if untouched {
            self.seen.remove(node);
        } else {
            self.seen.insert(node);
            self.ghosts.insert(node);
        }
    }

    /// Returns the nodes that may hold the keys.
    pub(crate) fn seen(&self) -> NodeSet {
        self.seen
    }

    /// Records that the request was answered with an error which proves that it did not run.
    pub(crate) fn refused(&mut self, node: NodeId) {
        self.refused.insert(node);
    }

    pub(super) fn is_refused(&self, node: NodeId) -> bool {
        self.refused.contains(node)
    }

    /// Records that the node's grant counts.
    pub(crate) fn granted(&mut self, node: NodeId) {
        self.counted.insert(node);
    }

    /// Records that the node has lost the keys, so that its grant no longer counts.
    pub(crate) fn gone(&mut self, node: NodeId) {
        self.counted.remove(node);
    }

    /// Returns the nodes whose grant counts. Only these can extend.
    pub(crate) fn counted(&self) -> NodeSet {
        self.counted
    }
}

/// The undo, from when it is owed until nothing is left.
impl Claim {
    /// Records that the node has to confirm that it keeps no key. Returns whether that is new.
    pub(super) fn owe(&mut self, node: NodeId) -> bool {
        let is_new = !self.owed.contains(node);
        self.owed.insert(node);
        is_new
    }

    /// Records that the node owes nothing any more. Returns whether it did.
    pub(super) fn owe_no_more(&mut self, node: NodeId) -> bool {
        self.owed.take(node)
    }

    /// Returns the nodes that have not confirmed the undo.
    pub(crate) fn owed(&self) -> NodeSet {
        self.owed
    }

    pub(crate) fn is_owed(&self, node: NodeId) -> bool {
        self.owed.contains(node)
    }

    /// Records that the undo was sent to a node. Returns whether one was sent there before.
    pub(super) fn undo_sent(&mut self, node: NodeId) -> bool {
        let again = self.undone.contains(node);
        self.undoing.insert(node);
        self.undone.insert(node);
        again
    }

    /// Records that the undo was answered or lost with its connection. Returns whether one was in
    /// flight.
    pub(crate) fn undo_over(&mut self, node: NodeId) -> bool {
        self.undoing.take(node)
    }

    /// Returns the nodes to which an undo is in flight.
    pub(crate) fn undoing(&self) -> NodeSet {
        self.undoing
    }

    /// Returns the nodes to which the undo has to be sent.
    pub(super) fn to_undo(&self) -> NodeSet {
        self.owed.without(self.undoing)
    }

    /// Records that the undo was confirmed. If a ghost of the request may follow it, the undo is
    /// sent again after half of the remaining TTL: returns when.
    pub(super) fn confirmed(&mut self, node: NodeId, now: Timestamp) -> Option<Timestamp> {
        // Request and undo were sent on one connection, in this order, so the key is deleted for
        // good.
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

    /// Records that the undo is sent again.
    pub(super) fn undoes_again(&mut self) {
        self.again_at = Timestamp::NEVER;
    }

    /// Returns whether the request may still run from a connection that died.
    pub(crate) fn has_ghost(&self, node: NodeId) -> bool {
        self.ghosts.contains(node)
    }

    /// Records that the request in the dead connection will never run.
    pub(super) fn lay_ghost(&mut self, node: NodeId) {
        self.ghosts.remove(node);
    }

    /// Returns whether no lock needs the claim and no node owes an undo.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_in_use() && self.owed.is_empty()
    }

    /// Returns the time from which no node can hold the keys.
    pub(crate) fn forget_at(&self) -> Timestamp {
        self.forget_at
    }

    /// Returns when the claim itself has something to do, apart from its lock.
    pub(crate) fn due(&self) -> Timestamp {
        self.forget_at.min(self.again_at)
    }

    /// Asserts the invariants of a claim.
    pub(crate) fn check(&self) {
        // A node that was forgotten while it may hold the key would keep that key until its TTL
        // ends.
        let lost = self.owed.or(self.ghosts).without(self.seen);
        assert!(lost.is_empty(), "an undo is owed only by a node that may have seen the ask");
        assert!(self.lock().is_some() || self.queued.is_empty(), "an ask has a lock");
    }
}

/// A number larger than any slot.
const NO_SLOT: u16 = u16::MAX;

/// Returns the two lower-case hexadecimal digits of a byte.
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

/// Returns the digits of four bytes, computed in one word, because a table of pairs would have to
/// be fetched into the cache for each lock.
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
        assert!(claim.owe(NODE) && !claim.owe(NODE), "once");
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
    fn an_ask_in_a_dead_connection_is_undone_twice() {
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
        assert_eq!(claim.confirmed(NODE, Timestamp(700)), None, "the ghost has had its time");
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
    fn an_ask_that_never_left_is_nowhere() {
        let mut claim = asked();
        claim.connection_lost(NODE, true);
        assert!(claim.seen().is_empty() && !claim.has_ghost(NODE));
        claim.check();
    }
}
