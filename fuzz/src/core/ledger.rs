//! Every lock that was asked for: where its life stands by what the core told, and which votes its
//! nodes really gave.
//!
//! Votes are those of delivered answers, so they may be ahead of what the core counts and never
//! behind: each check is that the core claims no more than this.

use std::time::Duration;

use redbolt::proto::fence::is_exclusive;
use redbolt::proto::{
    ClockReading, Confirmed, Core, Lease, LockId, LossCause, NodeSet, Refusal, RefusalReason,
    Timestamp, Verdict,
};

use super::wire::Received;

/// All locks, in the order in which they were asked for.
pub(super) struct Ledger {
    pub(super) locks: Vec<Lock>,
    /// The places of those that have not ended, as far as [`check`](Self::check) has looked.
    live: Vec<usize>,
    /// The time that the core has seen.
    pub(super) now: ClockReading,
    nodes: usize,
    quorum: usize,
}

/// One lock.
pub(super) struct Lock {
    pub(super) id: LockId,
    pub(super) phase: Phase,
    ttl: Duration,
    fenced: bool,
    /// What the newest attempt proposes, what its nodes have counted, and what was written back.
    proposed: Option<u64>,
    counters: Vec<(usize, u64)>,
    asked: ClockReading,
    /// When the present phase is over at the latest.
    due: Option<Timestamp>,
    /// When the round of its extension may be over, at the soonest.
    over_from: Timestamp,
    deadline: Option<Timestamp>,
    /// Of all attempts, the newest last.
    tokens: Vec<Vec<u8>>,
    /// When the newest token was first seen.
    attempted: Timestamp,
    /// What nodes said to the newest attempt, and to any.
    granted: u32,
    denied: u32,
    ever_granted: u32,
    ever_denied: u32,
    /// Nodes that were told to undo the newest attempt, and those that did.
    undone: u32,
    confirmed: u32,
    /// The present extension, and what nodes said to it.
    /// Extensions without an outcome.
    extensions: u32,
    round: usize,
    extend_ttl: Duration,
    extend_asked: Timestamp,
    extended: u32,
    gone: u32,
    /// A node has said so at any time: what it had granted counts no more, and the lease may get shorter.
    is_gone: bool,
    lease: Option<Lease>,
    let_go: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Asking,
    Held,
    Extending,
    Releasing,
    Ended,
}

/// What the core sends.
impl Ledger {
    pub(super) fn new(nodes: usize, quorum: usize) -> Self {
        Self { locks: Vec::new(), live: Vec::new(), now: ClockReading::default(), nodes, quorum }
    }

    /// An ask: of the lock's newest attempt, or the first of a new one.
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
        if lock.tokens.last().is_none_or(|newest| newest != token) {
            assert!(lock.tokens.iter().all(|old| old != token), "a token was used again");
            assert_eq!(lock.phase, Phase::Asking, "an attempt for a lock that is not asked for");
            lock.tokens.push(token.to_vec());
            lock.attempted = now;
            lock.proposed = proposed;
            lock.counters.clear();
            (lock.granted, lock.denied, lock.undone, lock.confirmed) = (0, 0, 0, 0);
        }
        assert_eq!((lock.proposed, lock.fenced), (proposed, proposed.is_some()), "one proposal");
        let asks = matches!(lock.phase, Phase::Asking | Phase::Held | Phase::Extending);
        assert!(asks, "an ask for a lock that is {:?}", lock.phase);
        (at, lock.tokens.len() - 1)
    }

    pub(super) fn extends(&mut self, keys: &[&[u8]], token: &[u8], ttl: u64) -> (usize, usize) {
        let at = place(keys);
        let lock = &self.locks[at];
        // Where a quorum has been faster than a link, the rest is extended all the same.
        let extends = matches!(lock.phase, Phase::Extending | Phase::Held);
        assert!(extends, "an extension that nobody asked for");
        assert_eq!(ttl, lock.extend_ttl.as_millis() as u64, "the TTL of an extension");
        assert_eq!(lock.attempt_of(token), lock.tokens.len() - 1, "the attempt that is extended");
        (at, lock.round)
    }

    pub(super) fn undoes(&mut self, keys: &[&[u8]], token: &[u8], node: usize) -> (usize, usize) {
        let at = place(keys);
        let lock = &mut self.locks[at];
        let attempt = lock.attempt_of(token);
        if attempt == lock.tokens.len() - 1 {
            lock.undone |= 1 << node;
        }
        (at, attempt)
    }
}

/// What the core writes back.
impl Ledger {
    /// Only nodes that granted this attempt and are behind are told, and of nothing that none has.
    pub(super) fn writes_back(
        &mut self,
        keys: &[&[u8]],
        token: &[u8],
        node: usize,
        target: u64,
    ) -> (usize, usize) {
        let at = place(keys);
        let lock = &self.locks[at];
        let attempt = lock.attempt_of(token);
        assert_eq!((lock.phase, attempt), (Phase::Asking, lock.tokens.len() - 1));
        let counter = |of| lock.counters.iter().find(|(node, _)| *node == of).map(|(_, c)| *c);
        assert!(counter(node).is_some_and(|counter| counter < target), "behind {target}");
        assert!(lock.counters.iter().any(|&(_, counter)| counter == target), "whose is {target}?");
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
        if attempt + 1 == lock.tokens.len() {
            match token {
                // The lock is somebody else's there by now.
                Received::Int(0) => lock.denied |= 1 << node,
                Received::Int(_) => lock.counters.push((node, target)),
                _ => {}
            }
            lock.ever_denied |= lock.denied;
        }
    }
}

/// What nodes answer.
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

    pub(super) fn extend_answered(
        &mut self,
        lock: usize,
        round: usize,
        node: usize,
        token: Received,
    ) {
        let lock = &mut self.locks[lock];
        lock.is_gone |= token == Received::Int(0);
        if round == lock.round {
            match token {
                Received::Int(0) => lock.gone |= 1 << node,
                // A key that came with a grant which did not count is no part of the lock.
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
        if attempt + 1 == lock.tokens.len() && matches!(token, Received::Int(_)) {
            lock.confirmed |= 1 << node;
        }
    }
}

/// What the caller asks for.
impl Ledger {
    pub(super) fn acquired(
        &mut self,
        id: LockId,
        (ttl, fenced): (Duration, bool),
        due: Option<Timestamp>,
        wait: bool,
    ) {
        assert!(self.locks.iter().all(|lock| lock.id != id), "a lock's name was used again");
        self.live.push(self.locks.len());
        self.locks.push(Lock {
            id,
            phase: Phase::Asking,
            ttl: Duration::from_millis(ttl.as_millis() as u64),
            fenced,
            proposed: None,
            counters: Vec::new(),
            asked: self.now,
            due,
            deadline: due.filter(|_| wait),
            tokens: Vec::new(),
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
            extended: 0,
            gone: 0,
            is_gone: false,
            lease: None,
            let_go: false,
        });
    }

    /// An extension was accepted at the door.
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
        (lock.extended, lock.gone) = (0, 0);
    }

    /// It is the same lock under another name. Whatever was under way about it counts no more.
    pub(super) fn handed_on(&mut self, at: usize, id: LockId) {
        let lock = &mut self.locks[at];
        assert!(matches!(lock.phase, Phase::Held | Phase::Extending), "{:?} and out", lock.phase);
        (lock.id, lock.phase, lock.due) = (id, Phase::Held, None);
        (lock.extensions, lock.extended, lock.gone) = (0, 0, 0);
        lock.round += 1;
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

/// What the core tells.
impl Ledger {
    pub(super) fn granted(&mut self, id: LockId, core: &Core) {
        let (now, quorum) = (self.now, self.quorum);
        let lock = self.told(id);
        assert_eq!(lock.phase, Phase::Asking, "what was granted");
        assert!(count(lock.granted) >= quorum, "granted by {:b}", lock.granted);
        lock.check_token(core, quorum);
        let votes = core.votes(id);
        assert_eq!(votes.verdict(), Verdict::Granted);
        assert_eq!(mask(votes.grants()) & !lock.granted, 0, "a grant that no node gave");
        assert_eq!(mask(votes.denies()) & !lock.denied, 0, "a denial that no node gave");
        let lease = *core.lease(id).expect("a lock that was just granted has a lease");
        assert!(!lease.remaining(now).is_zero(), "granted, and over");
        let spent = now.boot.since(lock.attempted) + lease.remaining(now);
        assert!(spent < lock.ttl, "a validity of {spent:?} out of {:?}", lock.ttl);
        lock.phase = Phase::Held;
        lock.lease = Some(lease);
        lock.due = None;
    }

    pub(super) fn refused(&mut self, id: LockId, refusal: &Refusal) {
        let now = self.now;
        let lock = self.told(id);
        assert_eq!(lock.phase, Phase::Asking, "what was refused");
        // An attempt that was cut short gives way to the one before.
        let (granted, denied) = (lock.ever_granted, lock.ever_denied);
        assert_eq!(mask(refusal.votes.grants()) & !granted, 0, "a grant that no node gave");
        assert_eq!(mask(refusal.votes.denies()) & !denied, 0, "a denial that no node gave");
        match refusal.reason {
            RefusalReason::Cancelled => assert!(lock.let_go, "cancelled by nobody"),
            RefusalReason::Contended => assert!(refusal.votes.is_contended()),
            RefusalReason::NoQuorum => assert_eq!(refusal.votes.verdict(), Verdict::NoQuorum),
            RefusalReason::OutOfTime => {
                assert!(lock.deadline.is_some_and(|deadline| deadline <= now.boot))
            }
            RefusalReason::Expired => assert_ne!(now, lock.asked, "over before it began"),
            _ => panic!("an unknown reason"),
        }
        lock.phase = Phase::Ended;
    }

    pub(super) fn extended(&mut self, id: LockId, core: &Core) {
        let (now, quorum) = (self.now, self.quorum);
        let lock = self.told(id);
        assert_eq!((lock.phase, lock.extensions), (Phase::Extending, 1), "what was extended");
        assert!(count(lock.extended) >= quorum, "extended by {:b}", lock.extended);
        lock.phase = Phase::Held;
        lock.extensions = 0;
        lock.due = None;
        let Some(&lease) = core.lease(id) else { return };
        let before = lock.lease.replace(lease).expect("held before");
        let is_longer = lease.remaining(now) >= before.remaining(now);
        assert!(is_longer || lock.is_gone, "an extension that shortens");
        let spent = now.boot.since(lock.extend_asked) + lease.remaining(now);
        assert!(lease == before || spent < lock.extend_ttl, "{spent:?} of {:?}", lock.extend_ttl);
    }

    /// An extension that is found over by the next command ends before that begins.
    pub(super) fn not_extended(&mut self, id: LockId) {
        let lock = self.told(id);
        let left = lock.extensions.checked_sub(1);
        lock.extensions = left.expect("an extension without an outcome");
        if lock.phase == Phase::Extending && lock.extensions == 0 {
            lock.phase = Phase::Held;
            lock.due = None;
        }
    }

    /// A lock that is found over when its holder lets go is lost, too.
    pub(super) fn lost(&mut self, id: LockId, cause: LossCause) {
        let (now, most) = (self.now, self.nodes - self.quorum);
        let lock = self.told(id);
        let held = matches!(lock.phase, Phase::Held | Phase::Extending | Phase::Releasing);
        assert!(held, "{:?}, and lost", lock.phase);
        match cause {
            LossCause::Expired => {
                let lease = lock.lease.expect("held before");
                let is_over = lease.remaining(now).is_zero();
                // The end of a record that is attached is beyond what this clock can show.
                let is_beyond = now.wall.0 > u64::MAX / 2;
                assert!(is_over || lock.is_gone || is_beyond, "lost ahead of its time");
            }
            LossCause::Gone => assert!(count(lock.gone) > most, "gone from {:b}", lock.gone),
            _ => panic!("an unknown cause"),
        }
        lock.phase = Phase::Ended;
    }

    pub(super) fn released(&mut self, id: LockId, confirmed: Confirmed) {
        let nodes = self.nodes;
        let lock = self.told(id);
        assert_eq!(lock.phase, Phase::Releasing, "what was released");
        assert_eq!(confirmed.of as usize, nodes);
        assert!(confirmed.nodes as usize <= count(lock.confirmed), "{confirmed}");
        lock.phase = Phase::Ended;
    }

    fn told(&mut self, id: LockId) -> &mut Lock {
        let lock = self.locks.iter_mut().rev().find(|lock| lock.id == id);
        lock.expect("an event of a lock that nobody asked for")
    }
}

/// What has to be true at all times.
impl Ledger {
    pub(super) fn check(&mut self, core: &Core) {
        let Self { locks, live, .. } = self;
        let now = self.now;
        live.retain(|&at| {
            let lock = &mut locks[at];
            let lease = core.lease(lock.id).copied();
            if let (Some(before), Some(lease), true) = (lock.lease, lease, lock.is_gone) {
                assert!(lease.remaining(now) <= before.remaining(now), "longer without a word");
                lock.lease = Some(lease);
            }
            match lock.phase {
                Phase::Held | Phase::Extending => {
                    assert_eq!(lease, lock.lease, "a validity changed without a word");
                }
                _ => assert_eq!(lease, None, "a lease of a lock that is {:?}", lock.phase),
            }
            if lock.phase == Phase::Held {
                let votes = core.votes(lock.id);
                // A node that has confirmed the undo and grants all the same is beyond help.
                let undone = lock.undone & !lock.confirmed;
                assert_eq!(mask(votes.grants()) & undone, 0, "held by a node told to undo it");
            }
            lock.phase != Phase::Ended
        });
    }

    /// After a timeout, everything whose time is over is over.
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
    /// A token is what a quorum has counted, or has confirmed since.
    fn check_token(&self, core: &Core, quorum: usize) {
        let token = core.fencing_token(self.id).map(|token| token.get());
        assert_eq!(token.is_some(), self.fenced, "a token for those who asked for it");
        if let Some(token) = token {
            let has = |node| self.counters.contains(&(node, token));
            let nodes = (0..32).filter(|&node| has(node)).count();
            assert!(nodes >= quorum, "{token} is the token of {nodes} nodes");
            assert!(is_exclusive(token), "{token} is no token of one who holds it alone");
        }
    }

    fn attempt_of(&self, token: &[u8]) -> usize {
        let attempt = self.tokens.iter().rposition(|known| known == token);
        attempt.expect("a token that was asked with")
    }
}

/// Which lock a command is for: the first key is its name.
fn place(keys: &[&[u8]]) -> usize {
    let digits = keys[0].strip_prefix(b"k").expect("a lock's key");
    usize::try_from(super::wire::integer(digits)).expect("a lock's number")
}

fn mask(nodes: NodeSet) -> u32 {
    nodes.iter().fold(0, |mask, node| mask | 1 << node.index())
}

fn count(mask: u32) -> usize {
    mask.count_ones() as usize
}
