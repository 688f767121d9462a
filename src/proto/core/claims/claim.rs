//! What the nodes may hold for one attempt, until it is known that they do not.
//!
//! A claim has its own token and outlives its attempt: undo and release are owed to every node that may have seen the
//! ask, until each has confirmed or the TTL is over. Here is what each step of that says about a node. Not here: when
//! which command is sent.

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
    /// What makes its token one that nobody can guess.
    random: [u8; 16],
    /// What hardly any claim has, in one place: a program may hold very many locks.
    rare: Option<Box<Rare>>,
    ttl_ms: u64,
    /// The value that is proposed for its fencing counters.
    counter: u64,
    /// Of so many permits; 0 for a lock that is none.
    permits: u16,
    /// The slot of a permit on which the nodes agree, or are to agree; [`NO_SLOT`] before.
    slot: u16,
    /// Nodes whose ask waits for their link.
    queued: NodeSet,
    /// Nodes that may hold the keys.
    seen: NodeSet,
    /// Nodes whose grant counted: the restart guard let them vote. Only these can extend.
    counted: NodeSet,
    /// Nodes that owe the confirmation of an undo.
    owed: NodeSet,
    /// Nodes that answered the ask with an error which says that it did not run.
    refused: NodeSet,
    /// Nodes to which an undo is under way on their present connection.
    undoing: NodeSet,
    /// Nodes to which an undo was ever sent: for the metrics.
    undone: NodeSet,
    /// Nodes where the ask was in a connection that died: it may yet run, behind an undo on a
    /// newer connection.
    ghosts: NodeSet,
    /// When an undo that a ghost may have overtaken is sent once more.
    again_at: Timestamp,
    /// When no node can hold the keys any longer.
    forget_at: Timestamp,
}

#[derive(Default)]
struct Rare {
    /// What the token of the holder's other claim begins with, which is not in its way.
    other_claim: Option<[u8; RANDOM_DIGITS]>,
    /// The label of its token, if that is not the configuration's.
    label: Option<Box<[u8]>>,
    /// The ticket of its lock, and how its ask waits in the queue.
    in_queue: Option<(ClaimId, InQueue)>,
}

/// Whom what comes of a claim concerns.
#[derive(Clone, Copy)]
enum ClaimUser {
    /// A lock that waits in the queue with it.
    Ticket,
    /// The lock whose attempt it is.
    Lock(LockId),
    Nobody,
    /// The lock that waits since the attempt was refused, and its round then.
    Waiter(LockId, u32),
}

/// What it is, and whose.
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

    /// Makes a used slot a new claim, with a token that nobody has seen. A fenced one proposes a counter.
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
        // The slot is reused only when no node owes anything for its last claim.
        (self.queued, self.seen, self.counted, self.owed) = (none, none, none, none);
        (self.refused, self.undoing, self.undone, self.ghosts) = (none, none, none, none);
        self.again_at = Timestamp::NEVER;
        self.forget_at = Timestamp::default();
    }

    /// It is one of another library's locks.
    pub(crate) fn set_kind(&mut self, kind: &'static LockKind) {
        // A format whose request is redbolt's own.
        if mutant!(TokenOfRegistry) && kind.ask == Command::SetIfAbsent {
            self.random = [0xa7; 16];
        }
        self.kind = kind;
    }

    /// Makes a used slot a ticket in the queue of a lock's resource, with a name that nobody has seen. The label is that of the
    /// lock's own token.
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

    /// Whether it is a ticket in the queue, and no claim to a lock.
    pub(crate) fn is_ticket(&self) -> bool {
        self.kind.undo == TICKET.undo
    }

    /// Its asks wait in the queue, with this ticket.
    pub(crate) fn asks_in_queue(&mut self, ticket: ClaimId, in_queue: InQueue) {
        self.rare.get_or_insert_default().in_queue = Some((ticket, in_queue));
    }

    /// The ticket with which its asks wait in the queue.
    pub(crate) fn ticket(&self) -> Option<ClaimId> {
        Some(self.rare.as_ref()?.in_queue.as_ref()?.0)
    }

    /// The name of a ticket, up to the node's digits.
    pub(crate) fn ticket_name(&self) -> TicketName {
        let mut name = Vec::with_capacity(1 + RANDOM_DIGITS);
        name.extend_from_slice(self.kind.mark);
        name.extend_from_slice(&digits::<RANDOM_DIGITS>(self.random));
        TicketName::of(&name)
    }

    /// It is the second claim of a holder whose first one was made of these bytes, and who changes its mode.
    pub(crate) fn set_other_claim(&mut self, other_claim: [u8; 16]) {
        self.rare.get_or_insert_default().other_claim = Some(digits(other_claim));
        self.kind = match self.kind.ask {
            Command::SetIfAbsent => &UPGRADE,
            Command::Run(script) if *script == ACQUIRE_FENCED => &UPGRADE_FENCED,
            Command::Delete(_) | Command::Move | Command::Run(_) => &DOWNGRADE,
        };
    }

    /// It was an exclusive holder's, who shares from now on. Its nodes are about to be asked for that.
    pub(crate) fn downgrade(&mut self) {
        // From now on its undo removes the reader, which it has become or becomes at each node.
        self.kind = &DOWNGRADED;
        // A node that is reached later is only asked to share. An ask for the resource alone would exclude
        // other readers there on behalf of a reader.
        self.unqueue_all();
    }

    /// Whether it is one of a holder who shares, by a claim that excludes.
    pub(crate) fn is_downgraded(&self) -> bool {
        self.kind.undo == DOWNGRADED.undo
    }

    /// It is a writer's beside its own claim as a reader.
    pub(crate) fn upgrade(&mut self) {
        self.kind = &UPGRADE;
    }

    /// Whether it is a writer's beside its own claim as a reader.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.kind.mark == UPGRADE.mark
    }

    /// What it is for has become another lock's.
    pub(crate) fn passes_to(&mut self, lock: LockId) {
        self.user = ClaimUser::Lock(lock);
    }

    /// It comes from another process, which asked the nodes in `seen`, some of them on connections that are gone.
    pub(crate) fn attached(&mut self, counted: NodeSet, seen: NodeSet, ghosts: NodeSet) {
        (self.counted, self.seen, self.ghosts) = (counted, seen, ghosts);
    }

    /// The lock whose attempt this is; `None` once that has ended.
    #[inline]
    pub(crate) fn lock(&self) -> Option<LockId> {
        match self.user {
            ClaimUser::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// Whether a lock still has a use for it.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(self.user, ClaimUser::Lock(_) | ClaimUser::Ticket)
    }

    /// Its attempt is over.
    pub(super) fn part_from_lock(&mut self) {
        self.user = ClaimUser::Nobody;
    }

    /// Its attempt was refused in this round of a lock that waits from then on, and hears late votes.
    pub(crate) fn report_late_to(&mut self, lock: LockId, round: u32) {
        self.user = ClaimUser::Waiter(lock, round);
    }

    /// The lock whose attempt it is; or the one that hears late votes, and the round in which it was refused.
    pub(crate) fn listener(&self) -> Option<(LockId, Option<u32>)> {
        let asking = self.lock().map(|lock| (lock, None));
        asking.or_else(|| self.waiter().map(|(lock, round)| (lock, Some(round))))
    }

    /// The lock that hears late votes, and the round in which it was refused.
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

    /// The value that is proposed for its fencing counters; zero if it is not fenced.
    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    /// Whether only its ask can say what is in its way: several keys, a permit, or what has a time of its own.
    pub(crate) fn is_read_by_its_ask(&self) -> bool {
        self.permits > 0 || self.keys.len() > 1 || self.kind.is_read_by_ask
    }

    /// Whether its undo does no more than to delete one key that holds its token, unless somebody else has marked that. What
    /// was granted in the queue is marked from the beginning.
    pub(super) fn is_one_token(&self) -> bool {
        self.kind.undo == PLAIN.undo && self.keys.len() == 1 && self.ticket().is_none()
    }

    /// In which order a permit's slot is looked for.
    pub(crate) fn slots(&self) -> SlotOrder {
        match self.permits {
            0 => SlotOrder::NONE,
            permits => SlotOrder::new(permits, self.random),
        }
    }

    /// The slot of a permit on which the nodes agree, or are to agree.
    pub(crate) fn slot(&self) -> Option<u16> {
        (self.slot != NO_SLOT).then_some(self.slot)
    }

    /// The nodes agree on a slot, or are to agree on it from now on.
    pub(crate) fn takes_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    /// What a command about this claim carries, for whichever node. Whatever gives no TTL and raises no
    /// counter has zero for them.
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

    /// Gives it the label of another configuration.
    pub(crate) fn set_label(&mut self, label: &[u8], config: &Config) {
        if *label != *config.settings().label {
            self.rare.get_or_insert_default().label = Some(label.into());
        }
    }

    pub(crate) fn label<'a>(&'a self, config: &'a Config) -> &'a [u8] {
        let own = self.rare.as_ref().and_then(|it| it.label.as_deref());
        own.unwrap_or(&config.settings().label)
    }

    /// Writes the owner value: what marks its kind, 32 random hexadecimal digits, two zeros where the node's number goes, and the
    /// label.
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

/// The ask: from the wait for a link to the grant that counts.
impl Claim {
    /// The ask waits for this node's link.
    pub(crate) fn queue(&mut self, node: NodeId) {
        self.queued.insert(node);
    }

    pub(crate) fn is_queued(&self, node: NodeId) -> bool {
        self.queued.contains(node)
    }

    /// The link will not come. Whether the ask waited for it.
    pub(crate) fn unqueue(&mut self, node: NodeId) -> bool {
        self.queued.take(node)
    }

    /// Nothing more is to be asked.
    pub(crate) fn unqueue_all(&mut self) {
        self.queued = NodeSet::default();
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// The ask is on its way.
    pub(crate) fn sent(&mut self, node: NodeId, lives_until: Timestamp) {
        // Marked before the first byte leaves: if the connection ends now, an undo is owed.
        self.queued.remove(node);
        self.seen.insert(node);
        self.lives_until(lives_until);
    }

    /// The keys can live until then on some node.
    pub(crate) fn lives_until(&mut self, end: Timestamp) {
        // It only grows: an earlier command with a longer TTL may arrive later.
        self.forget_at = self.forget_at.max(end);
    }

    /// The ask never left, or never ran.
    pub(super) fn never_ran(&mut self, node: NodeId) {
        self.seen.remove(node);
    }

    /// The node has told that its ask has to wait in the queue, and so that it keeps no key for it.
    ///
    /// An ask that is answered is not in a dead connection as well, because each node is asked once for a
    /// claim: there is no ghost to keep, which [`check`](Self::check) asserts.
    pub(crate) fn mark_waiting(&mut self, node: NodeId) {
        if !self.is_owed(node) {
            self.never_ran(node);
        }
    }

    /// The connection with the ask in it is gone. Unless that was untouched, it may yet run.
    pub(crate) fn connection_lost(&mut self, node: NodeId, untouched: bool) {
        // No byte of the ask was written, so the node cannot have run it. After a single byte it
        // may have.
        if untouched {
            self.seen.remove(node);
        } else {
            self.seen.insert(node);
            self.ghosts.insert(node);
        }
    }

    /// Nodes that may hold the keys.
    pub(crate) fn seen(&self) -> NodeSet {
        self.seen
    }

    /// The ask was answered with an error which says that it did not run.
    pub(crate) fn refused(&mut self, node: NodeId) {
        self.refused.insert(node);
    }

    pub(super) fn is_refused(&self, node: NodeId) -> bool {
        self.refused.contains(node)
    }

    /// The node's grant counts.
    pub(crate) fn granted(&mut self, node: NodeId) {
        self.counted.insert(node);
    }

    /// The node has lost the keys, so that its grant counts no longer.
    pub(crate) fn gone(&mut self, node: NodeId) {
        self.counted.remove(node);
    }

    /// Nodes whose grant counts. Only these can extend.
    pub(crate) fn counted(&self) -> NodeSet {
        self.counted
    }
}

/// The undo: from when it is owed until nothing is left.
impl Claim {
    /// The node is to confirm that it keeps no key. Whether that is new.
    pub(super) fn owe(&mut self, node: NodeId) -> bool {
        let is_new = !self.owed.contains(node);
        self.owed.insert(node);
        is_new
    }

    /// Whether it was owed.
    pub(super) fn owe_no_more(&mut self, node: NodeId) -> bool {
        self.owed.take(node)
    }

    /// Nodes that owe the confirmation.
    pub(crate) fn owed(&self) -> NodeSet {
        self.owed
    }

    pub(crate) fn is_owed(&self, node: NodeId) -> bool {
        self.owed.contains(node)
    }

    /// The undo is on its way. Whether it was before.
    pub(super) fn undo_sent(&mut self, node: NodeId) -> bool {
        let again = self.undone.contains(node);
        self.undoing.insert(node);
        self.undone.insert(node);
        again
    }

    /// The undo was answered, or its connection is gone. Whether one was on its way.
    pub(crate) fn undo_over(&mut self, node: NodeId) -> bool {
        self.undoing.take(node)
    }

    /// Nodes to which an undo is on its way.
    pub(crate) fn undoing(&self) -> NodeSet {
        self.undoing
    }

    /// Nodes to which the undo has to be sent.
    pub(super) fn to_undo(&self) -> NodeSet {
        self.owed.without(self.undoing)
    }

    /// The undo was confirmed. Where a ghost of the ask may follow it, that is not the last word: it is to be sent
    /// once more when half of the TTL is over, and this is when.
    pub(super) fn confirmed(&mut self, node: NodeId, now: Timestamp) -> Option<Timestamp> {
        // Ask and undo went over one connection, in this order: the key is gone for good.
        if !self.has_ghost(node) {
            self.seen.remove(node);
            return None;
        }
        self.ghosts.remove(node);
        // The ask may still wait in the dead connection, and run behind this undo.
        self.again_at = self.again_at.min(now + self.forget_at.since(now) / 2);
        Some(self.again_at)
    }

    pub(super) fn again_at(&self) -> Timestamp {
        self.again_at
    }

    /// The undo is sent once more.
    pub(super) fn undoes_again(&mut self) {
        self.again_at = Timestamp::NEVER;
    }

    /// Whether the ask may yet run out of a connection that died.
    pub(crate) fn has_ghost(&self, node: NodeId) -> bool {
        self.ghosts.contains(node)
    }

    /// What was in that connection will never run.
    pub(super) fn lay_ghost(&mut self, node: NodeId) {
        self.ghosts.remove(node);
    }

    /// Nobody waits for it, and nothing is owed.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_in_use() && self.owed.is_empty()
    }

    /// When no node can hold the keys any longer.
    pub(crate) fn forget_at(&self) -> Timestamp {
        self.forget_at
    }

    /// When something is to be done about it that no lock does.
    pub(crate) fn due(&self) -> Timestamp {
        self.forget_at.min(self.again_at)
    }

    /// Asserts what holds of it at every moment.
    pub(crate) fn check(&self) {
        // Forgetting a node that may hold the key would leave that key until its TTL ends.
        let lost = self.owed.or(self.ghosts).without(self.seen);
        assert!(lost.is_empty(), "an undo is owed only by a node that may have seen the ask");
        assert!(self.lock().is_some() || self.queued.is_empty(), "an ask has a lock");
    }
}

/// More than any slot.
const NO_SLOT: u16 = u16::MAX;

/// Two digits, in lower case.
#[inline]
pub(crate) fn hex(byte: u8) -> [u8; 2] {
    [b"0123456789abcdef"[usize::from(byte >> 4)], b"0123456789abcdef"[usize::from(byte & 15)]]
}

/// The digits of all bytes, and zeros behind them.
#[inline]
fn digits<const N: usize>(bytes: [u8; RANDOM_DIGITS / 2]) -> [u8; N] {
    let mut digits = [b'0'; N];
    for (eight, four) in digits.chunks_exact_mut(8).zip(bytes.as_chunks().0) {
        eight.copy_from_slice(&eight_digits(*four));
    }
    digits
}

/// The same of four bytes, side by side in one word: a table of pairs would be fetched anew for each lock.
#[inline]
fn eight_digits(bytes: [u8; 4]) -> [u8; 8] {
    let each = |byte: u64| byte * 0x0101_0101_0101_0101;
    let spread = u64::from(u32::from_le_bytes(bytes));
    let spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    let halves = (spread >> 4 | spread << 8) & each(0x0f);
    // Six more carry into the higher half of a byte if it is a letter.
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

    /// Each byte in each place, beside each other byte.
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
