//! The queue: the tickets that the core has put on nodes, and the reports of the nodes about them.
//! Whether a waiting lock has to use the queue, and when it sends requests, is not checked.

use std::collections::BTreeSet;
use std::time::Duration;

use redbolt::proto::{Core, LockId, Timestamp};

use super::received::Received;

/// The part of a request in the queue that concerns the ticket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand<'w> {
    /// The mode, and 32 random digits.
    pub(super) name: &'w [u8],
    /// The stamp T; 0 before it is known.
    pub(super) stamp: u64,
    pub(super) grace: u64,
    /// The turn of the world.
    pub(super) turn: u64,
}

/// All tickets of one lock. It waits in the queue with the newest.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    pub(super) tickets: Vec<Ticket>,
    /// It has sent a request outside the queue after one in the queue, and in a later attempt.
    is_passed_over: bool,
}

#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) name: Vec<u8>,
    grace: u64,
    /// The stamp that was sent last, and the first and last attempt in which one was sent.
    stamp: u64,
    attempts: (usize, usize),
    /// All stamps that the nodes have reported, except 0.
    replied: Vec<(usize, u64)>,
    /// Once a quorum knows the place: the last attempt before that, and the stamp that is sent from
    /// then on; 0 before the next attempt.
    agreed: Option<(usize, u64)>,
    /// The turn of the world in which it left.
    left_in: Option<u64>,
    nodes: Vec<Spot>,
}

/// A ticket on one node.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    /// The time of the last request with it.
    asked_at: Timestamp,
    /// Part of a request has reached the socket, so the ticket may be on the node.
    is_there: bool,
    /// The node need not be sent a leave any more: it has confirmed one, or does not permit it.
    is_settled: bool,
    /// The connection on which the node has answered a leave with an error. It is sent again after
    /// a while.
    failed_on: Option<u32>,
}

impl FairQueue {
    /// Records a request in the queue. `may_rejoin`: a node has failed such a request, so the lock
    /// may have left before.
    pub(super) fn asks(&mut self, attempt: usize, of: Stand<'_>, quorum: usize, may_rejoin: bool) {
        if self.tickets.last().is_none_or(|newest| newest.name != of.name) {
            // A lock that left because a node failed comes back without a stamp, and with any grace.
            let is_back = may_rejoin && of.stamp == 0;
            self.begins((attempt, is_back), of.name, of.grace, quorum, may_rejoin);
        }
        let Some(newest) = self.tickets.last_mut() else { return };
        newest.asks(attempt, of, quorum);
    }

    /// Records a new ticket. A lock has one each time it joins, and once its place is known another
    /// one whenever its owner needs another grace.
    fn begins(
        &mut self,
        (attempt, is_back): (usize, bool),
        name: &[u8],
        grace: u64,
        quorum: usize,
        may_rejoin: bool,
    ) {
        assert!(self.tickets.iter().all(|old| old.name != name), "a ticket is back");
        let newest = self.tickets.last().filter(|_| !is_back);
        let former = newest.filter(|newest| newest.may_be_replaced(grace, quorum));
        let is_first = self.tickets.is_empty();
        assert!(is_first || may_rejoin || former.is_some(), "a second ticket of one lock");
        let ticket = former.map_or_else(
            || Ticket::new(attempt, name, grace),
            |former| former.replaced_by(name, grace),
        );
        self.tickets.push(ticket);
    }

    /// Records that the lock leaves with a ticket, and returns its index. The ticket may be
    /// unknown, if its requests were withdrawn at once.
    pub(super) fn leaves(
        &mut self,
        (name, grace, turn): (&[u8], u64, u64),
        attempt: usize,
        quorum: usize,
        may_rejoin: bool,
    ) -> usize {
        let known = self.tickets.iter().rposition(|ticket| ticket.name == name);
        // The ticket that it replaced may have left in the same call.
        let replaces = |newest: &Ticket| newest.grace != grace && newest.is_known_to(quorum);
        let may_begin = may_rejoin || self.tickets.last().is_some_and(replaces);
        let at = known.unwrap_or_else(|| {
            self.begins((attempt, false), name, grace, quorum, may_begin);
            self.tickets.len() - 1
        });
        self.tickets[at].leaves(grace, turn);
        at
    }

    /// Records a request outside the queue.
    pub(super) fn asks_alone(&mut self, attempt: usize) {
        self.is_passed_over |=
            self.tickets.last().is_some_and(|newest| newest.attempts.0 < attempt);
    }

    /// Checks a lock that waits: it was refused before, has not left unless a node failed, and its
    /// place is known to a quorum.
    pub(super) fn check(&mut self, id: LockId, core: &Core, may_leave: bool, turn: u64) {
        let quorum = core.config().quorum();
        let Some(newest) = self.tickets.last() else { return };
        // A lock that leaves sends that only to nodes that its requests have reached. One that
        // joins again does so at another place.
        if newest.agreed.is_some() && !core.has_place(id) {
            self.tickets.iter_mut().for_each(|ticket| ticket.left_in = Some(turn));
        }
        let Some(newest) = self.tickets.last_mut() else { return };
        assert!(core.decided_votes(id).is_some(), "in the queue before it was refused");
        assert!(may_leave || newest.left_in.is_none(), "it has left the queue, and waits");
        assert!(may_leave || !self.is_passed_over, "a lock in the queue asks alone");
        if core.has_place(id) && newest.agreed.is_none() {
            assert!(newest.is_known_to(quorum), "a place that no quorum knows");
            newest.agreed = Some((newest.attempts.1, 0));
        }
    }

    /// Returns the tickets of a lock that is decided, or that has left before.
    pub(super) fn over(&self, is_decided: bool) -> impl Iterator<Item = (usize, &Ticket)> {
        let tickets = self.tickets.iter().enumerate();
        tickets.filter(move |(_, ticket)| is_decided || ticket.left_in.is_some())
    }
}

impl Ticket {
    fn new(attempt: usize, name: &[u8], grace: u64) -> Self {
        Self {
            name: name.to_vec(),
            grace,
            stamp: 0,
            attempts: (attempt, attempt),
            replied: Vec::new(),
            agreed: None,
            left_in: None,
            nodes: vec![Spot::default(); MOST_NODES],
        }
    }

    /// Returns true if its owner may take another ticket with this grace, at the same place.
    fn may_be_replaced(&self, grace: u64, quorum: usize) -> bool {
        self.left_in.is_none() && self.grace != grace && self.is_known_to(quorum)
    }

    /// Returns the ticket that takes its place.
    fn replaced_by(&self, name: &[u8], grace: u64) -> Self {
        let (stamp, attempts, agreed) = (self.stamp, self.attempts, self.agreed);
        let replied = self.replied.clone();
        Self { stamp, attempts, agreed, replied, ..Self::new(attempts.1, name, grace) }
    }

    /// Checks the stamp of a request: T is one that nodes have reported, once a quorum has reported
    /// any; it never gets smaller, and stays the same once the place is known.
    fn asks(&mut self, attempt: usize, of: Stand<'_>, quorum: usize) {
        // One call can make an attempt and end it. Its output is read link by link.
        let may_ask = self.left_in.is_none_or(|turn| turn == of.turn);
        assert!(may_ask, "an ask with a ticket that has left");
        assert_eq!(self.grace, of.grace, "the grace of a ticket");
        assert!((20..=6_000).contains(&of.grace), "a grace of {} ms", of.grace);
        if of.stamp != self.stamp {
            assert!(of.stamp > self.stamp, "{} was sent, and then {}", self.stamp, of.stamp);
            assert!(attempt > self.attempts.1, "two stamps in one attempt");
            assert!(self.alike(of.stamp) > 0, "no node has reported {}", of.stamp);
            let nodes: BTreeSet<_> = self.replied.iter().map(|&(node, _)| node).collect();
            assert!(nodes.len() >= quorum, "a quorum does not know the stamp that was sent");
        }
        if let Some((before, agreed)) = &mut self.agreed
            && attempt > *before
        {
            assert!(
                *agreed == 0 || *agreed == of.stamp,
                "{agreed} once the place is known, and then another"
            );
            *agreed = of.stamp;
            assert!(self.alike(of.stamp) >= quorum, "a place that no quorum knows");
        }
        self.stamp = of.stamp;
        self.attempts.1 = attempt;
    }

    /// Returns true if a quorum has reported one stamp.
    fn is_known_to(&self, quorum: usize) -> bool {
        self.replied.iter().any(|&(_, stamp)| self.alike(stamp) >= quorum)
    }

    /// Returns the number of nodes that have ever reported this stamp.
    fn alike(&self, stamp: u64) -> usize {
        let nodes = self.replied.iter().filter(|&&(_, replied)| replied == stamp);
        nodes.map(|&(node, _)| node).collect::<BTreeSet<_>>().len()
    }

    /// Records the stamp that a node has reported.
    pub(super) fn reported(&mut self, node: usize, stamp: u64) {
        if stamp > 0 && !self.replied.contains(&(node, stamp)) {
            self.replied.push((node, stamp));
        }
    }

    fn leaves(&mut self, grace: u64, turn: u64) {
        assert_eq!(self.grace, grace, "the grace of a ticket that leaves");
        self.left_in.get_or_insert(turn);
    }

    /// Records that the core has a request with it for this node.
    pub(super) fn asked(&mut self, node: usize, now: Timestamp) {
        self.nodes[node].asked_at = now;
    }

    /// Records that part of a request with it has reached the node's socket.
    pub(super) fn is_at(&mut self, node: usize) {
        self.nodes[node].is_there = true;
    }

    /// Records the node's reply to a leave.
    pub(super) fn leave_answered(&mut self, node: usize, token: Received, connection: u32) {
        let spot = &mut self.nodes[node];
        match token {
            Received::NotNow => spot.failed_on = Some(connection),
            _ => spot.is_settled = true,
        }
    }

    /// Returns true if a reachable node has to be sent a leave now: a ticket of a lock that has
    /// left may be there, and may live.
    pub(super) fn is_owed(&self, node: usize, connection: u32, now: Timestamp) -> bool {
        let spot = &self.nodes[node];
        let lives = now < spot.asked_at + LIFE;
        spot.is_there && !spot.is_settled && lives && spot.failed_on != Some(connection)
    }
}

/// The maximum number of nodes of a configuration of the target.
const MOST_NODES: usize = 5;

/// The time for which a node can have data of a ticket.
const LIFE: Duration = Duration::from_secs(12);
