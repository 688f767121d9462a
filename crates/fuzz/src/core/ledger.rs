//! Every requested lock: the phase of its life according to the core's events, and the votes that
//! its nodes really gave.
//!
//! Votes are those of delivered replies, so they may be ahead of what the core counts, but never
//! behind: each check is that the core claims no more than this.

use std::time::Duration;

use redbolt::proto::fence::is_exclusive;
use redbolt::proto::{
    ClockReading, Core, Lease, LockId, LockMode, LossCause, NodeSet, Refusal, RefusalReason,
    Released, Timestamp, Verdict,
};

use super::fair_queue::{FairQueue, Stand};
use super::received::Received;
use super::request::integer;

/// The kind of a requested lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Plain,
    Fenced,
    Shared,
    Permit,
}

/// All locks, in the order of their requests.
pub(super) struct Ledger {
    pub(super) locks: Vec<Lock>,
    /// The indices of locks that have not ended, as of the last [`check`](Self::check).
    live: Vec<usize>,
    /// The time that the core has last received.
    pub(super) now: ClockReading,
    /// The number of times that the outputs of the core were read.
    pub(super) turn: u64,
    nodes: usize,
    quorum: usize,
    /// True if the wall clock was set: a lease then ends by the earlier of its clocks.
    pub(super) wall_was_set: bool,
    /// True if a node has answered a request in the queue with an error: waiters there may leave,
    /// and send requests outside the queue.
    queue_failed: bool,
}

pub(super) struct Lock {
    pub(super) id: LockId,
    pub(super) phase: Phase,
    ttl: Duration,
    sort: Sort,
    /// The slots that the nodes have given the newest attempt, and the one that is held.
    slots: Vec<(usize, u16)>,
    slot: Option<u16>,
    /// The newest attempt's proposal, its nodes' counters, and the written-back value.
    proposed: Option<u64>,
    counters: Vec<(usize, u64)>,
    asked: ClockReading,
    /// The time by which the current phase must have ended.
    due: Option<Timestamp>,
    /// The time that each part of a lock that does not wait may take.
    span: Option<Duration>,
    /// The earliest time at which the round of its extension may end.
    over_from: Timestamp,
    deadline: Option<Timestamp>,
    waits: bool,
    /// The tokens of all attempts, the newest last.
    tokens: Vec<Vec<u8>>,
    /// The number of tokens that were known before the core was last called.
    known: usize,
    /// The time at which the newest token was first sent.
    attempted: Timestamp,
    /// The nodes' answers to the newest attempt, and to any attempt.
    granted: u32,
    denied: u32,
    ever_granted: u32,
    ever_denied: u32,
    /// Nodes that were sent the newest attempt's undo, and those that confirmed it.
    undone: u32,
    confirmed: u32,
    /// Extensions without an outcome.
    extensions: u32,
    /// The newest extension, and the nodes' answers to it.
    round: usize,
    extend_ttl: Duration,
    extend_asked: Timestamp,
    /// The ends of all extensions' TTLs, in their order, and the nodes that have granted each.
    rounds: Vec<(Timestamp, u32)>,
    /// The nodes that were healed, and the earliest time at which each may drop the permit.
    healed: Vec<(Timestamp, u32)>,
    extended: u32,
    gone: u32,
    /// True if a node has ever replied that its key is missing: its grant does not count any more,
    /// and the lease may get shorter.
    is_gone: bool,
    /// Whether it was found expired when it was attached, after the wall clock was set: its lease is
    /// reduced first to what a quorum supports on both clocks.
    ends_by_wall: bool,
    lease: Option<Lease>,
    let_go: bool,
    queue: FairQueue,
    /// The change of its mode, if its caller has requested one.
    change: Option<Change>,
    /// All second claims, and the digits of the claim that each named. Granted ones are among
    /// `tokens` as well.
    claims: Vec<Vec<u8>>,
    /// The claim as a reader that a writer has kept.
    kept: Option<Vec<u8>>,
}

/// A change of a lock's mode. A refused downgrade is requested again by another claim.
#[derive(Debug)]
struct Change {
    is_upgrade: bool,
    /// The number of its newest claim, if it has sent a request.
    claim: Option<usize>,
    asked: Timestamp,
    ttl: Duration,
    proposed: Option<u64>,
    granted: u32,
    denied: u32,
    /// The nodes that have refused it because its proposal is too far from their clock.
    skewed: u32,
    counters: Vec<(usize, u64)>,
    /// True if it uses a second claim, because of the clock of the first.
    is_repeated: bool,
    /// The grants and denials of the claim before the newest one, until its refusal is reported.
    refused: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Asking,
    Held,
    Extending,
    Releasing,
    Ended,
}

/// The core's requests.
impl Ledger {
    pub(super) fn new(nodes: usize, quorum: usize) -> Self {
        Self {
            turn: 0,
            locks: Vec::new(),
            live: Vec::new(),
            now: ClockReading::default(),
            nodes,
            quorum,
            wall_was_set: false,
            queue_failed: false,
        }
    }

    /// Records a lock request: one of the lock's newest attempt, or the first of a new attempt.
    pub(super) fn asks(
        &mut self,
        keys: &[&[u8]],
        token: &[u8],
        ttl: u64,
        proposed: Option<u64>,
    ) -> (usize, usize) {
        let at = place(keys);
        let now = self.now.boot;
        let lock = &mut self.locks[at];
        assert_eq!(ttl, lock.ttl.as_millis() as u64, "the TTL of an ask");
        if lock.kept.as_deref() == Some(token) {
            // A node that is reached late also receives the request for the claim as a reader, on
            // which a writer does not rely.
            let is_held = matches!(lock.phase, Phase::Held | Phase::Extending);
            assert!(is_held, "a request for a lock that is {:?}", lock.phase);
            return (at, lock.attempt_of(token));
        }
        // One call can make two attempts, the first of which is not withdrawn from a large outbox.
        // All of a node's requests are read before those of the next one.
        let newest = lock.tokens.len().saturating_sub(1);
        if let Some(earlier) = (lock.known..newest).find(|&earlier| lock.tokens[earlier] == token) {
            return (at, earlier);
        }
        if lock.tokens.last().is_none_or(|newest| newest != token) {
            assert!(lock.tokens.iter().all(|old| old != token), "a token was reused");
            assert_eq!(
                lock.phase,
                Phase::Asking,
                "an attempt of a lock that is not being requested"
            );
            if !lock.tokens.is_empty() {
                let may_repeat = lock.due.is_none() || lock.deadline.is_some();
                assert!(
                    may_repeat || lock.tokens.len() < 2,
                    "it does not wait, and asks for a third time"
                );
                lock.goes_on(now);
            }
            lock.tokens.push(token.to_vec());
            lock.attempted = now;
            lock.proposed = proposed;
            lock.counters.clear();
            lock.slots.clear();
            (lock.granted, lock.denied, lock.undone, lock.confirmed) = (0, 0, 0, 0);
        }
        assert_eq!(
            (lock.proposed, lock.sort == Sort::Fenced),
            (proposed, proposed.is_some()),
            "one proposal"
        );
        let asks = matches!(lock.phase, Phase::Asking | Phase::Held | Phase::Extending);
        assert!(asks, "a request for a lock that is {:?}", lock.phase);
        let is_downgraded = lock.change.as_ref().is_some_and(|it| !it.is_upgrade);
        assert!(!is_downgraded, "a reader asks for its resource alone");
        (at, lock.tokens.len() - 1)
    }

    pub(super) fn extends(&mut self, keys: &[&[u8]], token: &[u8], ttl: u64) -> (usize, usize) {
        let at = place(keys);
        let lock = &self.locks[at];
        if lock.kept.as_deref() == Some(token) {
            // This extends the claim on which a writer does not rely.
            return (at, usize::MAX);
        }
        // A quorum may be faster than a link. The remaining nodes still get their extension.
        let extends = matches!(lock.phase, Phase::Extending | Phase::Held);
        assert!(extends, "an extension without a call");
        assert_eq!(ttl, lock.extend_ttl.as_millis() as u64, "the TTL of an extension");
        assert_eq!(lock.attempt_of(token), lock.tokens.len() - 1, "the attempt that is extended");
        (at, lock.round)
    }

    /// Records a move of a node to one slot: earlier replies of the node count no longer.
    pub(super) fn moves(
        &mut self,
        key: &[u8],
        token: &[u8],
        ttl: u64,
        node: usize,
    ) -> (usize, usize, Timestamp) {
        let (at, now) = (place(&[key]), self.now.boot);
        let lock = &mut self.locks[at];
        let asks = matches!(lock.phase, Phase::Asking | Phase::Held | Phase::Extending);
        assert!(asks, "a move of a lock that is {:?}", lock.phase);
        let attempt = lock.attempt_of(token);
        assert_eq!((lock.sort, ttl), (Sort::Permit, lock.ttl.as_millis() as u64));
        if attempt + 1 < lock.tokens.len() {
            // One call can settle an attempt and make the next one, as for requests.
            assert!(attempt + 1 >= lock.known, "the moved attempt has ended");
            return (at, attempt, now + lock.ttl);
        }
        lock.slots.retain(|&(of, _)| of != node);
        lock.granted &= !(1 << node);
        lock.goes_on(now);
        (at, lock.tokens.len() - 1, now + lock.ttl)
    }

    /// Checks that a permit is extended by its slot.
    pub(super) fn has_slot(&self, key: &[u8], slot: u64) {
        let lock = &self.locks[place(&[key])];
        assert_eq!(lock.slot.map(u64::from), Some(slot), "the slot that is extended");
    }

    pub(super) fn undoes(&mut self, keys: &[&[u8]], token: &[u8], node: usize) -> (usize, usize) {
        let at = place(keys);
        let lock = &mut self.locks[at];
        let Some(attempt) = lock.tokens.iter().rposition(|known| known == token) else {
            assert!(lock.claims.iter().any(|claim| claim == token), "an unknown token is undone");
            return (at, usize::MAX - 1);
        };
        if attempt == lock.tokens.len() - 1 {
            lock.undone |= 1 << node;
        }
        (at, attempt)
    }
}

/// Changes of mode.
impl Ledger {
    /// Records that a change of mode was accepted.
    pub(super) fn changing(&mut self, at: usize, is_upgrade: bool) {
        let lock = &mut self.locks[at];
        let is_held = matches!(lock.phase, Phase::Held | Phase::Extending);
        assert!(is_held, "{:?}, and changes its mode", lock.phase);
        if !is_upgrade {
            lock.kept = None;
        }
        lock.change = Some(Change::new(is_upgrade));
    }

    /// Records a request for a second claim, the newest one or a new one. It names the claim that
    /// the lock has.
    pub(super) fn changes(
        &mut self,
        key: &[u8],
        (token, other): (&[u8], &[u8]),
        ttl: u64,
        is_upgrade: bool,
        proposed: Option<u64>,
    ) -> (usize, usize) {
        let (at, now, quorum) = (place(&[key]), self.now.boot, self.quorum);
        let lock = &mut self.locks[at];
        let asks = matches!(lock.phase, Phase::Held | Phase::Extending);
        let newest = lock.claims.iter().rposition(|claim| claim == token);
        // A quorum may be faster than a link: the other nodes receive the request for a claim that
        // is in force by now, or that a writer has kept since.
        let is_granted =
            lock.tokens.last().is_some_and(|it| it == token) || lock.kept.as_deref() == Some(token);
        if let Some(number) = newest.filter(|_| is_granted) {
            assert!(asks, "a second claim of a lock that is {:?}", lock.phase);
            return (at, number);
        }
        assert!(asks, "a second claim of a lock that is {:?}", lock.phase);
        assert!(lock.tokens.last().is_some_and(|it| it == other), "the claim that is named");
        let change = lock.change.as_mut().expect("a change without a call");
        assert_eq!(change.is_upgrade, is_upgrade, "the mode that is asked for");
        let number = match newest {
            Some(number) => {
                assert_eq!(change.claim, Some(number), "an ended claim sends a request");
                let replied = (Duration::from_millis(ttl), proposed);
                assert_eq!(replied, (change.ttl, change.proposed), "one TTL and one proposal");
                number
            }
            None => {
                assert!(!lock.tokens.iter().any(|old| old == token), "a token was reused");
                let is_repeated = is_upgrade && change.claim.is_some();
                assert!(!is_repeated || change.may_repeat(quorum), "an upgrade is tried once");
                // One read can contain the refusal of a downgrade and the extension behind which
                // the next claim is requested. The requests of that claim are read before the event
                // of the refusal.
                let refused = change.claim.filter(|_| !is_upgrade);
                let refused = refused.map(|_| (change.granted, change.denied));
                *change = Change::new(is_upgrade);
                (change.refused, change.is_repeated) = (refused, is_repeated);
                change.claim = Some(lock.claims.len());
                (change.asked, change.ttl) = (now, Duration::from_millis(ttl));
                change.proposed = proposed;
                lock.claims.push(token.to_vec());
                lock.claims.len() - 1
            }
        };
        (at, number)
    }

    /// Records a node's reply to the request for a second claim.
    pub(super) fn change_answered(
        &mut self,
        lock: usize,
        claim: usize,
        node: usize,
        token: Received,
    ) {
        let lock = &mut self.locks[lock];
        let is_in_force = lock.tokens.last() == lock.claims.get(claim);
        if let (Some(change), Received::Clock) = (&mut lock.change, token)
            && change.claim == Some(claim)
        {
            change.skewed |= 1 << node;
        }
        let (granted, denied, counters) = match &mut lock.change {
            Some(change) if change.claim == Some(claim) => {
                (&mut change.granted, &mut change.denied, &mut change.counters)
            }
            _ if is_in_force => (&mut lock.granted, &mut lock.denied, &mut lock.counters),
            _ => return,
        };
        match token {
            Received::Ok => *granted |= 1 << node,
            Received::OkWith(counter) => {
                *granted |= 1 << node;
                counters.push((node, counter));
            }
            Received::NilBulk | Received::Int(_) => *denied |= 1 << node,
            _ => {}
        }
    }

    /// Records that the second claim is in force, by its own quorum.
    pub(super) fn changed(&mut self, id: LockId, is_upgrade: bool, core: &Core) {
        let (now, quorum) = (self.now, self.quorum);
        let lock = self.reported(id);
        let is_held = matches!(lock.phase, Phase::Held | Phase::Extending);
        assert!(is_held, "{:?}, and has changed its mode", lock.phase);
        let change = lock.change.take().expect("a change without a call");
        assert_eq!(change.is_upgrade, is_upgrade, "what was asked for");
        assert!(count(change.granted) >= quorum, "granted by {:b}", change.granted);
        let claim = change.claim.expect("a claim that was asked for");
        let before = lock.tokens.last().cloned();
        lock.kept = before.filter(|_| is_upgrade);
        lock.tokens.push(lock.claims[claim].clone());
        (lock.granted, lock.denied) = (change.granted, change.denied);
        (lock.undone, lock.confirmed, lock.is_gone) = (0, 0, false);
        (lock.extended, lock.gone) = (0, 0);
        lock.ever_granted |= change.granted;
        lock.ever_denied |= change.denied;
        lock.round += 1;
        lock.rounds.clear();
        if is_upgrade {
            lock.counters = change.counters;
            let token = core.fencing_token(id).map(|token| token.get());
            assert_eq!(token.is_some(), change.proposed.is_some(), "a token for who wants one");
            lock.has_token(token, quorum);
        }
        let mode = if is_upgrade { LockMode::Exclusive } else { LockMode::Shared };
        assert_eq!(core.mode(id), Some(mode), "its mode");
        let Some(&lease) = core.lease(id) else { return };
        let spent = now.boot.since(change.asked) + lease.remaining(now);
        assert!(spent < change.ttl, "a validity of {spent:?} out of {:?}", change.ttl);
        lock.lease = Some(lease);
    }

    /// Records that the second claim was refused. A writer is a reader nevertheless.
    pub(super) fn not_changed(&mut self, id: LockId, is_upgrade: bool, refusal: &Refusal) {
        let lock = self.reported(id);
        let Some(change) = &mut lock.change else { panic!("a change without a call") };
        assert_eq!(change.is_upgrade, is_upgrade, "what was asked for");
        let before = change.refused.take();
        let (granted, denied) = before.unwrap_or((change.granted, change.denied));
        assert_eq!(mask(refusal.votes.grants()) & !granted, 0, "a grant that no node gave");
        assert_eq!(mask(refusal.votes.denies()) & !denied, 0, "a denial that no node gave");
        match is_upgrade {
            true => lock.change = None,
            false if before.is_some() => {}
            false => *change = Change::new(false),
        }
    }
}

impl Change {
    fn new(is_upgrade: bool) -> Self {
        Self {
            is_upgrade,
            claim: None,
            asked: Timestamp::default(),
            ttl: Duration::ZERO,
            proposed: None,
            granted: 0,
            denied: 0,
            skewed: 0,
            counters: Vec::new(),
            is_repeated: false,
            refused: None,
        }
    }

    /// Returns true if a second claim may follow, with a corrected proposal. As with a fenced lock,
    /// a refusal because of the core's clock does not concern the lock, once a quorum has reported
    /// the time.
    fn may_repeat(&self, quorum: usize) -> bool {
        let told = count(self.granted | self.skewed);
        self.proposed.is_some() && !self.is_repeated && self.skewed != 0 && told >= quorum
    }
}

/// The core's tickets in the queue.
impl Ledger {
    /// Records a lock request in the queue, and returns the number of its ticket.
    pub(super) fn stands(
        &mut self,
        (at, attempt): (usize, usize),
        node: usize,
        of: Stand<'_>,
    ) -> usize {
        self.check_ticket(at, of.name);
        let (now, quorum) = (self.now.boot, self.quorum);
        let lock = &mut self.locks[at];
        lock.queue.asks(attempt, of, quorum, self.queue_failed);
        let newest = lock.queue.tickets.len() - 1;
        lock.queue.tickets[newest].asked(node, now);
        newest
    }

    /// Checks that a ticket is of this lock only, which waits, and is not the token of an attempt.
    fn check_ticket(&self, at: usize, name: &[u8]) {
        let is_token = |lock: &Lock| lock.tokens.iter().any(|token| token == &name[1..]);
        assert!(!self.locks.iter().any(is_token), "a token is a ticket as well");
        let others = self.locks.iter().enumerate().filter(|&(other, _)| other != at);
        let mut theirs = others.flat_map(|(_, lock)| &lock.queue.tickets);
        assert!(theirs.all(|ticket| ticket.name != name), "two locks with one ticket");
        let lock = &self.locks[at];
        let mode = match lock.sort {
            Sort::Fenced | Sort::Plain => b'x',
            Sort::Permit => b'p',
            Sort::Shared => b's',
        };
        assert_eq!(name[0], mode, "the mode of a ticket");
        assert!(lock.waits, "a lock in the queue that does not wait");
    }

    /// Records a lock request outside the queue: a waiter in the queue stays there until it leaves.
    pub(super) fn asks_alone(&mut self, (at, attempt): (usize, usize)) {
        self.locks[at].queue.asks_alone(attempt);
    }

    /// Records that a request in the queue has begun to reach the node.
    pub(super) fn is_at(&mut self, lock: usize, ticket: usize, node: usize) {
        self.locks[lock].queue.tickets[ticket].is_at(node);
    }

    /// Records a node's reply to a request in the queue: the place of the ticket, or a failure.
    pub(super) fn place_reported(
        &mut self,
        (lock, ticket): (usize, usize),
        node: usize,
        stamp: Option<u64>,
        token: Received,
    ) {
        self.queue_failed |= token.is_error();
        if let Some(stamp) = stamp {
            self.locks[lock].queue.tickets[ticket].reported(node, stamp);
        }
    }

    /// Records that the core removes a ticket from the queue.
    pub(super) fn leaves(&mut self, key: &[u8], name: &[u8], grace: u64) -> (usize, usize) {
        let at = place(&[key]);
        self.check_ticket(at, name);
        let (quorum, lock) = (self.quorum, &mut self.locks[at]);
        let leaves = (name, grace, self.turn);
        (at, lock.queue.leaves(leaves, lock.tokens.len(), quorum, self.queue_failed))
    }

    pub(super) fn leave_answered(
        &mut self,
        (lock, ticket): (usize, usize),
        node: usize,
        token: Received,
        connection: u32,
    ) {
        self.locks[lock].queue.tickets[ticket].leave_answered(node, token, connection);
    }

    /// Checks that a decided lock leaves the queue on this node if it may have the ticket there.
    /// `is_due` returns true if the core has requested that, by lock and ticket.
    pub(super) fn check_left(
        &self,
        node: usize,
        connection: u32,
        is_due: impl Fn(usize, usize) -> bool,
    ) {
        let now = self.now.boot;
        for (at, lock) in self.locks.iter().enumerate() {
            for (number, ticket) in lock.queue.over(lock.phase != Phase::Asking) {
                let is_owed = ticket.is_owed(node, connection, now);
                assert!(!is_owed || is_due(at, number), "a ticket is left behind");
            }
        }
    }
}

/// The core's write-backs.
impl Ledger {
    /// Records a write-back. Only nodes that granted this attempt with a lower counter get one, and
    /// only of a value that a node has counted.
    pub(super) fn writes_back(
        &mut self,
        keys: &[&[u8]],
        token: &[u8],
        node: usize,
        target: u64,
    ) -> (usize, usize) {
        let at = place(keys);
        let lock = &self.locks[at];
        if let Some(change) = &lock.change
            && let Some(claim) = change.claim
            && lock.claims[claim] == token
        {
            let counter = |of| change.counters.iter().find(|(node, _)| *node == of).map(|it| it.1);
            assert!(counter(node).is_some_and(|counter| counter < target), "behind {target}");
            return (at, WRITTEN_BY_CLAIM + claim);
        }
        let attempt = lock.attempt_of(token);
        assert_eq!((lock.phase, attempt), (Phase::Asking, lock.tokens.len() - 1));
        let counter = |of| lock.counters.iter().find(|(node, _)| *node == of).map(|(_, c)| *c);
        assert!(counter(node).is_some_and(|counter| counter < target), "behind {target}");
        assert!(
            lock.counters.iter().any(|&(_, counter)| counter == target),
            "no node has counted {target}"
        );
        let now = self.now.boot;
        self.locks[at].goes_on(now);
        (at, attempt)
    }

    pub(super) fn write_back_answered(
        &mut self,
        lock: usize,
        attempt: usize,
        node: usize,
        target: u64,
        token: Received,
    ) {
        let lock = &mut self.locks[lock];
        if let Some(claim) = attempt.checked_sub(WRITTEN_BY_CLAIM) {
            if let Some(change) = lock.change.as_mut().filter(|it| it.claim == Some(claim)) {
                match token {
                    Received::Int(0) => change.denied |= 1 << node,
                    Received::Int(_) => change.counters.push((node, target)),
                    _ => {}
                }
            }
            return;
        }
        if attempt + 1 == lock.tokens.len() {
            match token {
                // Another client has the lock there by now.
                Received::Int(0) => {
                    lock.denied |= 1 << node;
                    lock.is_gone = true;
                }
                Received::Int(_) => lock.counters.push((node, target)),
                _ => {}
            }
            lock.ever_denied |= lock.denied;
        }
    }
}

/// The nodes' answers.
impl Ledger {
    pub(super) fn ask_answered(
        &mut self,
        lock: usize,
        attempt: usize,
        node: usize,
        token: Received,
    ) {
        let lock = &mut self.locks[lock];
        if attempt + 1 == lock.tokens.len() {
            match token {
                Received::Ok => lock.granted |= 1 << node,
                Received::Given(slot) if lock.sort == Sort::Permit => {
                    lock.slots.retain(|&(of, _)| of != node);
                    lock.slots.push((node, slot));
                    lock.granted |= 1 << node;
                    // It counts as a denial if a quorum gave another slot.
                    lock.denied |= 1 << node;
                }
                Received::OkWith(counter) => {
                    lock.granted |= 1 << node;
                    lock.counters.push((node, counter));
                }
                Received::NilBulk | Received::Int(_) => lock.denied |= 1 << node,
                _ => {}
            }
            lock.ever_granted |= lock.granted;
            lock.ever_denied |= lock.denied;
        }
    }

    /// Records a node's reply to a move. If it has granted, it keeps the permit until `ends` at
    /// least.
    pub(super) fn move_answered(
        &mut self,
        (at, attempt, ends): (usize, usize, Timestamp),
        node: usize,
        token: Received,
    ) {
        self.ask_answered(at, attempt, node, token);
        let lock = &mut self.locks[at];
        let is_newest = attempt + 1 == lock.tokens.len();
        if is_newest && matches!(token, Received::Given(_)) {
            lock.healed.push((ends, 1 << node));
        }
    }

    pub(super) fn extend_answered(
        &mut self,
        lock: usize,
        round: usize,
        node: usize,
        token: Received,
    ) {
        let lock = &mut self.locks[lock];
        lock.is_gone |= token == Received::Int(0);
        if let (Received::Int(1..), Some((_, nodes))) = (token, lock.rounds.get_mut(round)) {
            *nodes |= lock.granted & (1 << node);
        }
        if round == lock.round {
            match token {
                Received::Int(0) => lock.gone |= 1 << node,
                // A key from a grant that did not count is not part of the lock.
                Received::Int(_) => lock.extended |= lock.granted & (1 << node),
                _ => {}
            }
        }
    }

    pub(super) fn undo_answered(
        &mut self,
        lock: usize,
        attempt: usize,
        node: usize,
        token: Received,
    ) {
        let lock = &mut self.locks[lock];
        if attempt < lock.tokens.len()
            && attempt + 1 == lock.tokens.len()
            && matches!(token, Received::Int(_))
        {
            lock.confirmed |= 1 << node;
        }
    }
}

/// The caller's commands.
impl Ledger {
    pub(super) fn acquired(
        &mut self,
        id: LockId,
        (ttl, sort): (Duration, Sort),
        due: Option<Timestamp>,
        wait: bool,
    ) {
        assert!(self.locks.iter().all(|lock| lock.id != id), "a lock's id was reused");
        self.live.push(self.locks.len());
        self.locks.push(Lock {
            id,
            phase: Phase::Asking,
            ttl: Duration::from_millis(ttl.as_millis() as u64),
            sort,
            slots: Vec::new(),
            slot: None,
            proposed: None,
            counters: Vec::new(),
            asked: self.now,
            due,
            span: None,
            deadline: due.filter(|_| wait),
            waits: wait,
            tokens: Vec::new(),
            known: 0,
            attempted: Timestamp::default(),
            granted: 0,
            denied: 0,
            ever_granted: 0,
            ever_denied: 0,
            undone: 0,
            confirmed: 0,
            extensions: 0,
            round: 0,
            extend_ttl: Duration::ZERO,
            extend_asked: Timestamp::default(),
            over_from: Timestamp::default(),
            rounds: Vec::new(),
            healed: Vec::new(),
            extended: 0,
            gone: 0,
            is_gone: false,
            ends_by_wall: false,
            lease: None,
            let_go: false,
            queue: FairQueue::default(),
            change: None,
            claims: Vec::new(),
            kept: None,
        });
    }

    /// Records that an extension was accepted.
    pub(super) fn extending(&mut self, at: usize, ttl: Duration, longest: Duration) {
        let now = self.now.boot;
        let lock = &mut self.locks[at];
        let over = lock.phase == Phase::Extending && lock.over_from <= now;
        assert!(lock.phase == Phase::Held || over, "{:?}, and extended", lock.phase);
        lock.phase = Phase::Extending;
        lock.extensions += 1;
        lock.round += 1;
        lock.extend_ttl = Duration::from_millis(ttl.as_millis() as u64);
        (lock.extend_asked, lock.due) = (now, Some(now + longest));
        lock.over_from = now + longest.min(ttl / 6);
        lock.rounds.resize(lock.round, (Timestamp::default(), 0));
        lock.rounds.push((now + lock.extend_ttl, 0));
        (lock.extended, lock.gone) = (0, 0);
    }

    /// Records the same lock under another ID. It is not valid for longer: by both clocks as they
    /// are now, of which one may have been set since the grant. Earlier requests about it count no
    /// longer.
    pub(super) fn handed_on(&mut self, at: usize, id: LockId, core: &Core) {
        let now = self.now;
        let lock = &mut self.locks[at];
        assert!(
            matches!(lock.phase, Phase::Held | Phase::Extending),
            "{:?}, and detached",
            lock.phase
        );
        (lock.id, lock.phase, lock.due) = (id, Phase::Held, None);
        // An upgrade is given up; a reader that was a writer continues its change.
        lock.change = lock.change.take().filter(|it| !it.is_upgrade).map(|_| Change::new(false));
        (lock.extensions, lock.extended, lock.gone) = (0, 0, 0);
        lock.round += 1;
        let Some(&lease) = core.lease(id) else {
            lock.ends_by_wall = self.wall_was_set;
            return;
        };
        let before = lock.lease.replace(lease).expect("held before");
        assert!(lease.remaining(now) <= before.remaining(now), "it is valid for longer");
    }

    pub(super) fn releasing(&mut self, at: usize, due: Timestamp) {
        let lock = &mut self.locks[at];
        lock.let_go = true;
        if matches!(lock.phase, Phase::Held | Phase::Extending) {
            lock.phase = Phase::Releasing;
            lock.due = Some(due);
        }
    }
}

/// The core's events.
impl Ledger {
    pub(super) fn granted(&mut self, id: LockId, core: &Core) {
        let (now, quorum) = (self.now, self.quorum);
        let lock = self.reported(id);
        assert_eq!(lock.phase, Phase::Asking, "what was granted");
        let granted = lock.granted_alike(core);
        assert!(count(granted) >= quorum, "granted by {granted:b}");
        lock.check_token(core, quorum);
        let votes = core.votes(id);
        assert_eq!(votes.verdict(), Verdict::Granted);
        assert_eq!(mask(votes.grants()) & !granted, 0, "a grant that no node gave");
        assert_eq!(mask(votes.denies()) & !lock.denied, 0, "a denial that no node gave");
        let lease = *core.lease(id).expect("a lock that was just granted has a lease");
        assert!(!lease.remaining(now).is_zero(), "the lease of a granted lock has expired");
        let spent = now.boot.since(lock.attempted) + lease.remaining(now);
        assert!(spent < lock.ttl, "a validity of {spent:?} out of {:?}", lock.ttl);
        lock.phase = Phase::Held;
        lock.lease = Some(lease);
        lock.due = None;
    }

    pub(super) fn refused(&mut self, id: LockId, refusal: &Refusal) {
        let now = self.now;
        let lock = self.reported(id);
        assert_eq!(lock.phase, Phase::Asking, "what was refused");
        // An attempt that was cut short reports the votes of the previous one.
        let (granted, denied) = (lock.ever_granted, lock.ever_denied);
        assert_eq!(mask(refusal.votes.grants()) & !granted, 0, "a grant that no node gave");
        assert_eq!(mask(refusal.votes.denies()) & !denied, 0, "a denial that no node gave");
        match refusal.reason {
            RefusalReason::Cancelled => assert!(lock.let_go, "cancelled without a release"),
            RefusalReason::Contended => assert!(refusal.votes.is_contended()),
            RefusalReason::NoQuorum => assert_eq!(refusal.votes.verdict(), Verdict::NoQuorum),
            RefusalReason::OutOfTime => {
                assert!(lock.deadline.is_some_and(|deadline| deadline <= now.boot))
            }
            RefusalReason::Expired => assert_ne!(now, lock.asked, "expired at once"),
            _ => panic!("an unknown reason"),
        }
        lock.phase = Phase::Ended;
    }

    pub(super) fn extended(&mut self, id: LockId, core: &Core) {
        let (now, quorum) = (self.now, self.quorum);
        let lock = self.reported(id);
        assert_eq!((lock.phase, lock.extensions), (Phase::Extending, 1), "what was extended");
        lock.phase = Phase::Held;
        lock.extensions = 0;
        lock.due = None;
        // An extension that is requested while a writer becomes a reader is covered by its claim as
        // a reader, which the next event reports, unless the core has read only the extension yet.
        if let Some(change) = lock.change.as_ref().filter(|it| !it.is_upgrade)
            && count(change.granted) >= quorum
        {
            let Some(&lease) = core.lease(id) else { return };
            let before = lock.lease.replace(lease).expect("held before");
            let left = lease.remaining(now);
            let is_covered = now.boot.since(change.asked) + left < change.ttl;
            let is_extended = now.boot.since(lock.extend_asked) + left < lock.extend_ttl;
            let is_backed = is_covered || is_extended && count(lock.extended) >= quorum;
            assert!(is_backed || left <= before.remaining(now), "{left:?} during a change");
            return;
        }
        assert!(count(lock.extended) >= quorum, "extended by {:b}", lock.extended);
        let Some(&lease) = core.lease(id) else { return };
        let before = lock.lease.replace(lease).expect("held before");
        let is_longer = lease.remaining(now) >= before.remaining(now);
        assert!(is_longer || lock.is_gone, "an extension that shortens");
        let spent = now.boot.since(lock.extend_asked) + lease.remaining(now);
        let is_as_before = lease.remaining(now) <= before.remaining(now);
        // A node also keeps the key for an earlier and longer extension that it has granted, or for
        // the TTL of the move that has healed it.
        let end = now.boot + lease.remaining(now);
        let lasting = lock.rounds.iter().chain(&lock.healed).filter(|&&(ends, _)| end < ends);
        let nodes = lasting.fold(0, |nodes, &(_, granted)| nodes | granted);
        let is_backed = spent < lock.extend_ttl || count(nodes) >= quorum;
        assert!(is_as_before || is_backed, "{spent:?} of {:?}", lock.extend_ttl);
    }

    /// Records a failed extension. One that the next command finds ended ends before that command
    /// begins.
    pub(super) fn not_extended(&mut self, id: LockId) {
        let lock = self.reported(id);
        let left = lock.extensions.checked_sub(1);
        lock.extensions = left.expect("an extension without an outcome");
        if lock.phase == Phase::Extending && lock.extensions == 0 {
            lock.phase = Phase::Held;
            lock.due = None;
        }
    }

    /// Records a loss. A lock that is found expired on release is lost, too.
    pub(super) fn lost(&mut self, id: LockId, cause: LossCause) {
        let now = self.now;
        let lock = self.reported(id);
        let held = matches!(lock.phase, Phase::Held | Phase::Extending | Phase::Releasing);
        assert!(held, "{:?}, and lost", lock.phase);
        match cause {
            LossCause::Expired => {
                let lease = lock.lease.expect("held before");
                let is_over = lease.remaining(now).is_zero();
                // The end of a detached lock may be beyond what this clock can show.
                let is_beyond = now.wall.0 > u64::MAX / 2;
                let may_be_over = lock.is_gone || is_beyond || lock.ends_by_wall;
                assert!(is_over || may_be_over, "lost before its lease ended");
            }
            // One node is enough if a bare quorum has granted, or the other nodes' keys have
            // expired.
            LossCause::Gone => assert!(lock.is_gone, "gone, and no node has said so"),
            _ => panic!("an unknown cause"),
        }
        lock.phase = Phase::Ended;
    }

    pub(super) fn released(&mut self, id: LockId, confirmed: Released) {
        let nodes = self.nodes;
        let lock = self.reported(id);
        assert_eq!(lock.phase, Phase::Releasing, "what was released");
        assert_eq!(confirmed.of as usize, nodes);
        assert!(confirmed.nodes as usize <= count(lock.confirmed), "{confirmed}");
        lock.phase = Phase::Ended;
    }

    fn reported(&mut self, id: LockId) -> &mut Lock {
        let lock = self.locks.iter_mut().rev().find(|lock| lock.id == id);
        lock.expect("an event of an unknown lock")
    }
}

/// Invariants at all times.
impl Ledger {
    pub(super) fn check(&mut self, core: &Core) {
        let Self { locks, live, wall_was_set, queue_failed, turn, .. } = self;
        let now = self.now;
        live.retain(|&at| {
            let lock = &mut locks[at];
            lock.known = lock.tokens.len();
            let lease = core.lease(lock.id).copied();
            if let (Some(before), Some(lease), true) =
                (lock.lease, lease, lock.is_gone || *wall_was_set)
            {
                assert!(
                    lease.remaining(now) <= before.remaining(now),
                    "a validity grew without an event"
                );
                lock.lease = Some(lease);
            }
            match lock.phase {
                Phase::Held | Phase::Extending => {
                    assert_eq!(lease, lock.lease, "a validity changed without an event");
                }
                _ => assert_eq!(lease, None, "a lease of a lock that is {:?}", lock.phase),
            }
            if lock.phase == Phase::Held {
                let votes = core.votes(lock.id);
                // A node that has confirmed the undo and then grants nevertheless cannot be
                // handled.
                let undone = lock.undone & !lock.confirmed;
                assert_eq!(
                    mask(votes.grants()) & undone,
                    0,
                    "a node that was sent the undo counts as a grant"
                );
            }
            if lock.phase == Phase::Asking {
                lock.queue.check(lock.id, core, *queue_failed, *turn);
            }
            let is_untold = lock.change.as_ref().is_some_and(|it| it.refused.is_some());
            assert!(!is_untold, "a second claim asks before the first one was refused");
            lock.phase != Phase::Ended
        });
    }

    /// Checks that everything that has expired has ended after a timeout.
    pub(super) fn check_dues(&self) {
        let now = ClockReading { boot: self.now.boot, wall: Timestamp::default() };
        for lock in self.live.iter().map(|&at| &self.locks[at]) {
            let phase = lock.phase;
            assert!(lock.due.is_none_or(|due| now.boot < due), "{phase:?} for too long");
            if matches!(phase, Phase::Held | Phase::Extending) {
                let lease = lock.lease.expect("held");
                assert!(!lease.remaining(now).is_zero(), "{phase:?}, and over");
            }
        }
    }
}

impl Lock {
    /// Returns the nodes that have granted; for a permit, its slot.
    fn granted_alike(&mut self, core: &Core) -> u32 {
        self.slot = core.slot(self.id);
        assert_eq!(self.slot.is_some(), self.sort == Sort::Permit, "exactly permits have a slot");
        let Some(slot) = self.slot else { return self.granted };
        assert!(slot < PERMITS, "slot {slot}");
        let nodes = self.slots.iter().filter(|&&(_, given)| given == slot);
        nodes.fold(0, |nodes, &(node, _)| nodes | 1 << node)
    }

    /// Checks that a quorum has counted the token, or has confirmed it since.
    fn check_token(&self, core: &Core, quorum: usize) {
        let token = core.fencing_token(self.id).map(|token| token.get());
        assert_eq!(token.is_some(), self.sort == Sort::Fenced, "exactly fenced locks have a token");
        self.has_token(token, quorum);
    }

    fn has_token(&self, token: Option<u64>, quorum: usize) {
        if let Some(token) = token {
            let has = |node| self.counters.contains(&(node, token));
            let nodes = (0..32).filter(|&node| has(node)).count();
            assert!(nodes >= quorum, "{token} is the token of {nodes} nodes");
            assert!(is_exclusive(token), "{token} is not the token of an exclusive lock");
        }
    }

    /// Restarts the time limit for an attempt with a corrected clock, a move or a write-back, which
    /// begin when the core learns the time.
    fn goes_on(&mut self, now: Timestamp) {
        if let (Phase::Asking, Some(due), None) = (self.phase, self.due, self.deadline) {
            let span = self.span.get_or_insert_with(|| due.since(self.asked.boot));
            self.due = Some(now + *span);
        }
    }

    fn attempt_of(&self, token: &[u8]) -> usize {
        let attempt = self.tokens.iter().rposition(|known| known == token);
        attempt.expect("a token of an attempt")
    }
}

/// The attempt of a write-back by a second claim: this plus the claim's number.
const WRITTEN_BY_CLAIM: usize = 1 << 32;

/// Returns the lock of a command: the first key is its name.
fn place(keys: &[&[u8]]) -> usize {
    let digits = keys[0].strip_prefix(b"k").expect("a lock's key");
    usize::try_from(integer(digits)).expect("a lock's number")
}

fn mask(nodes: NodeSet) -> u32 {
    nodes.iter().fold(0, |mask, node| mask | 1 << node.index())
}

fn count(mask: u32) -> usize {
    mask.count_ones() as usize
}

/// The number of permits of a semaphore.
pub(super) const PERMITS: u16 = 3;
