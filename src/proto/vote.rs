//! The votes of the nodes and the verdict on them.
//!
//! A node has three answers, not two: *deny* means that another client holds the resource, *fail*
//! that the node does not vote, with the cause. A client that confuses them reports dead nodes as a
//! held lock. Replies become votes in `answer.rs` and `classify.rs`.

use std::fmt;

use super::mutants::mutant;
use super::names::{MAX_NODES, NodeId, NodeSet};
use crate::resp::messages;

messages! {
    /// The cause why a node does not vote or did not answer usefully.
    ///
    /// The order is that of responsibility: the network, the server, the operator.
    /// [`Display`](fmt::Display) writes a text for an operator.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum Cause {
        /// The node did not answer within the timeout of the request.
        #[default]
        NoAnswer: "no answer in time",
        /// The connection could not be opened in time.
        ConnectTimeout: "no connection in time",
        /// The connection was refused: nothing listens at the address.
        ConnectionRefused: "connection refused",
        /// The connection was reset.
        ConnectionReset: "connection reset",
        /// The server closed the connection.
        ConnectionClosed: "connection closed by the server",
        /// The address cannot be reached from here.
        Unreachable: "unreachable",
        /// The host name could not be resolved.
        NameLookup: "host name not found",
        /// Another error of the operating system; the detail names it.
        Io: "input/output error",
        /// The server sent nothing for `dead_peer_timeout` while answers were due.
        DeadPeer: "silent for too long",
        /// TLS failed; the detail says how.
        Tls: "TLS failed",
        /// The server violated RESP2; the detail says where, and which rule.
        Violation: "not a Redis server (protocol violation)",
        /// The server sent a valid reply without a request, or of a type that the request cannot
        /// have.
        UnexpectedReply: "not a Redis server (unexpected reply)",
        /// The link has as many pending requests as its limit allows.
        Backlog: "too many requests under way",

        /// `LOADING`: the server reads its data from disk.
        Loading: "LOADING: the server is still reading its data",
        /// `BUSY`: a script blocks the server.
        Busy: "BUSY: a script blocks the server",
        /// `MASTERDOWN`: a replica without its master.
        MasterDown: "MASTERDOWN: a replica without its master",
        /// `MISCONF`: the server cannot write to its disk.
        DiskTrouble: "MISCONF: the server cannot save to disk",
        /// `OOM`: the server's memory is full.
        OutOfMemory: "OOM: the server's memory is full",
        /// `NOREPLICAS`: too few replicas to accept writes.
        NoReplicas: "NOREPLICAS: too few replicas to accept writes",
        /// `READONLY`: the server has become a replica.
        ReadOnly: "READONLY: the server is a replica",
        /// `CLUSTERDOWN`, `TRYAGAIN`, `UNKILLABLE`, `EXECABORT`: the server cannot serve this now.
        Unavailable: "the server cannot serve this now",
        /// The server's limit of clients is reached.
        MaxClients: "the server has no room for another client",
        /// The server replied with an error unknown to redbolt; the detail has its text.
        ServerError: "unknown server error",
        /// The node may have lost locks, and does not vote until all of them have expired; the
        /// detail has the reason and the remaining time.
        Quarantined: "quarantined",
        /// The node's clock is too far from the proposed fencing token; the detail says how far.
        ClockSkew: "its clock is too far from ours",
        /// The node's grant of this lock was never counted, so its extension does not count either.
        NotCounted: "its grant was not counted",

        // `Cause::is_configuration` holds for this variant and all that follow.
        /// `NOAUTH`: the server requires a password, and none is configured.
        PasswordMissing: "NOAUTH: the server wants a password",
        /// `WRONGPASS`, or a refused `AUTH`: user or password is wrong.
        WrongPassword: "WRONGPASS: wrong user or password",
        /// A password is configured, but the server has none.
        NoPasswordSet: "a password is configured, but the server has none",
        /// `NOPERM`: the user may not run a command that locks need; the detail names it.
        NoPermission: "NOPERM: the user lacks a permission",
        /// `DENIED`: protected mode.
        ProtectedMode: "DENIED: the server is in protected mode",
        /// The database does not exist.
        NoSuchDatabase: "no such database",
        /// A command that locks need does not exist or has been renamed.
        UnknownCommand: "a needed command is missing or renamed",
        /// The user may not run scripts, or `EVAL` was renamed. The node could not undo what it
        /// grants, so it is not asked. The detail has the server's error.
        ScriptsForbidden: "scripts are forbidden",
        /// The server is older than Redis 5; the detail gives its version.
        TooOld: "the server is too old",
        /// The port expects TLS, but the node's address is without.
        TlsPort: "the port expects TLS (rediss://)",
        /// The node's address is with TLS, but the port does not speak it.
        PlainPort: "the port does not speak TLS (redis:// is without)",
        /// The server's certificate was rejected; the detail says why.
        Certificate: "the server's certificate is not accepted",
        /// The server rejects the TLS connection; the detail says why.
        TlsRefused: "the server refuses TLS with us",
        /// `WRONGTYPE`: the key holds data of another type.
        WrongType: "WRONGTYPE: the key holds other data",
        /// The server is a replica.
        Replica: "a replica, not a master",
        /// The server runs in cluster mode.
        ClusterMode: "in cluster mode",
        /// Another configured node is the same server; the detail says which.
        SameServer: "the same server as another node",
        /// The server may evict keys: `maxmemory` is set with an evicting policy.
        Evicting: "may evict locks: maxmemory is set with an evicting policy",
        /// The node's restart guard was set up for another `max_ttl` or number of nodes; the detail
        /// says which.
        OtherLimits: "set up for other limits",
        /// The restart guard's key holds other data, or has no TTL.
        RestartGuardAltered: "its restart guard was altered",
    }
}

impl Cause {
    /// Returns whether only an operator can fix the cause, so that retrying is pointless.
    #[must_use]
    pub fn is_configuration(self) -> bool {
        // Variants are in the order of responsibility, the operator's last.
        self as u8 >= Self::PasswordMissing as u8
    }

    /// Returns whether a command is missing or the user may not run it.
    pub(super) fn is_forbidden(self) -> bool {
        matches!(self, Self::NoPermission | Self::UnknownCommand)
    }

    /// Returns whether the server runs and answers reads, but accepts no writes for now.
    pub(super) fn suspends_writes(self) -> bool {
        matches!(self, Self::DiskTrouble | Self::NoReplicas | Self::OutOfMemory)
    }
}

/// The answer of one node in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three answers of a node: the verdict rests on them"
)]
pub enum Vote {
    /// The node keeps the lock for this client.
    Grant,
    /// The node reports that another client holds the lock.
    Deny,
    /// The node did not answer usefully.
    Fail(Cause),
}

/// The outcome of an attempt, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what votes can amount to")]
pub enum Verdict {
    /// Later votes can still change the outcome.
    Undecided,
    /// A quorum granted.
    Granted,
    /// A quorum voted, and denials leave too few awaited nodes for a grant: another client holds
    /// the resource.
    Contended,
    /// Too many nodes failed for a quorum to vote.
    NoQuorum,
}

/// The votes of one attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Votes {
    nodes: u8,
    quorum: u8,
    grants: NodeSet,
    denies: NodeSet,
    fails: NodeSet,
    suspected: NodeSet,
    causes: [Cause; MAX_NODES],
}

impl Votes {
    pub(super) const fn new(nodes: u8, quorum: u8) -> Self {
        debug_assert!(nodes as usize <= MAX_NODES && quorum > nodes / 2 && quorum <= nodes);
        let none = NodeSet::EMPTY;
        let causes = [Cause::NoAnswer; MAX_NODES];
        Self { nodes, quorum, grants: none, denies: none, fails: none, suspected: none, causes }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.into()
    }

    /// Returns the number of grants that make a lock.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum.into()
    }

    /// Returns the nodes that granted.
    #[must_use]
    pub fn grants(&self) -> NodeSet {
        self.grants
    }

    /// Returns the nodes that denied.
    #[must_use]
    pub fn denies(&self) -> NodeSet {
        self.denies
    }

    /// Returns the nodes that failed.
    #[must_use]
    pub fn fails(&self) -> NodeSet {
        self.fails
    }

    /// Returns the nodes that seem to hang: a quorum answered long before, and they have not. A
    /// vote of a suspected node counts.
    #[must_use]
    pub fn suspected(&self) -> NodeSet {
        self.suspected
    }

    /// Returns the vote of a node, or `None` if it has none yet or was not awaited.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<Vote> {
        if self.grants.contains(node) {
            Some(Vote::Grant)
        } else if self.denies.contains(node) {
            Some(Vote::Deny)
        } else if self.fails.contains(node) {
            Some(Vote::Fail(self.causes[node.index()]))
        } else {
            None
        }
    }

    /// Returns the verdict. No other code turns votes into one.
    ///
    /// The verdict is decided as soon as no later vote can change it. Once a quorum has voted,
    /// suspected nodes are not awaited. If no quorum has voted without them, they are awaited like
    /// all nodes, because a suspected node has not failed.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let (nodes, quorum, grants) = (self.node_count(), self.quorum(), self.grants.len());
        if grants >= quorum {
            return Verdict::Granted;
        }
        // Without a denial or a failure the other nodes can still grant: suspicion decides nothing.
        if self.denies.or(self.fails).is_empty() {
            return Verdict::Undecided;
        }
        let (denies, fails) = (self.denies.len(), self.fails.len());
        // A failed node has not voted, so it never counts as a denial: deny is not fail.
        if fails > nodes - quorum {
            Verdict::NoQuorum
        } else if grants + denies >= quorum && grants + self.awaited().len() < quorum {
            // Suspected nodes are not awaited, because a quorum has voted without them.
            Verdict::Contended
        } else {
            Verdict::Undecided
        }
    }

    #[inline]
    pub(super) fn has_quorum(&self) -> bool {
        self.grants.or(self.denies).len() >= self.quorum()
    }

    /// Returns the nodes that have not voted and are not suspected.
    pub(super) fn awaited(&self) -> NodeSet {
        // A suspected node is still asked, and its vote counts, but no verdict waits for it.
        self.missing().without(self.suspected)
    }

    /// Returns whether the votes prove that another client holds the resource.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.verdict() == Verdict::Contended
    }

    /// Records the vote of a node. It replaces an earlier one, because a node has one vote.
    pub(super) fn cast(&mut self, node: NodeId, vote: Vote) {
        debug_assert!(node.0 < self.nodes);
        if mutant!(FailIsDeny) && matches!(vote, Vote::Fail(_)) {
            return self.cast(node, Vote::Deny);
        }
        // A node that is in two sets would vote twice.
        self.retract(node);
        match vote {
            Vote::Grant => self.grants.insert(node),
            Vote::Deny => self.denies.insert(node),
            Vote::Fail(cause) => {
                self.fails.insert(node);
                self.causes[node.index()] = cause;
            }
        }
    }

    /// Removes the vote of a node that is asked again.
    pub(super) fn retract(&mut self, node: NodeId) {
        self.grants.remove(node);
        self.denies.remove(node);
        self.fails.remove(node);
    }

    #[inline]
    pub(super) fn suspect(&mut self, suspected: NodeSet) {
        if mutant!(SuspicionIgnored) {
            return;
        }
        self.suspected = suspected;
    }

    /// Returns the same votes, but with a grant of every node.
    pub(super) fn granted(self) -> Self {
        Self { grants: NodeSet::first(self.node_count()), ..self }
    }

    pub(super) fn missing(&self) -> NodeSet {
        NodeSet::first(self.node_count()).without(self.grants.or(self.denies).or(self.fails))
    }

    pub(super) fn has_failed_by(&self, cause: Cause) -> bool {
        self.fails.iter().any(|node| self.causes[node.index()] == cause)
    }

    /// Returns whether no quorum is possible until an operator has fixed a node.
    pub(super) fn is_misconfigured(&self) -> bool {
        let wrong =
            self.fails.iter().filter(|node| self.causes[node.index()].is_configuration()).count();
        // With fewer, the other nodes may still make a quorum, so waiting is not pointless.
        wrong > self.node_count() - self.quorum()
    }
}

impl fmt::Debug for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = (0..self.nodes).map(NodeId);
        f.debug_map().entries(all.map(|node| (node, self.of(node)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict once every node has voted, by simple counting.
    fn final_verdict(quorum: usize, votes: &[Option<Vote>]) -> Verdict {
        let count =
            |wanted: fn(&Vote) -> bool| votes.iter().flatten().filter(|vote| wanted(vote)).count();
        let grants = count(|v| *v == Vote::Grant);
        let denies = count(|v| *v == Vote::Deny);
        match (grants >= quorum, grants + denies >= quorum) {
            (true, _) => Verdict::Granted,
            (_, true) => Verdict::Contended,
            _ => Verdict::NoQuorum,
        }
    }

    /// The state of a node in a ballot.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum BallotSlot {
        Awaited,
        Suspected,
        Cast(Vote),
        /// Suspected, but voted nevertheless.
        Late(Vote),
    }

    impl BallotSlot {
        fn vote(self) -> Option<Vote> {
            match self {
                Self::Awaited | Self::Suspected => None,
                Self::Cast(vote) | Self::Late(vote) => Some(vote),
            }
        }
    }

    fn tally(quorum: u8, slots: &[BallotSlot]) -> Votes {
        let mut votes = Votes::new(slots.len() as u8, quorum);
        let mut suspected = NodeSet::default();
        for (node, slot) in (0..).map(NodeId).zip(slots) {
            slot.vote().into_iter().for_each(|vote| votes.cast(node, vote));
            if matches!(slot, BallotSlot::Suspected | BallotSlot::Late(_)) {
                suspected.insert(node);
            }
        }
        votes.suspect(suspected);
        votes
    }

    /// Returns all final verdicts that a partial ballot can still reach if the open slots are
    /// filled.
    fn reachable(quorum: u8, slots: &[BallotSlot], open: fn(BallotSlot) -> bool) -> Vec<Verdict> {
        let Some(at) = slots.iter().position(|&slot| open(slot)) else {
            let votes: Vec<_> = slots.iter().map(|slot| slot.vote()).collect();
            return vec![final_verdict(quorum.into(), &votes)];
        };
        let mut found = Vec::new();
        for vote in [Vote::Grant, Vote::Deny, Vote::Fail(Cause::Loading)] {
            let mut slots = slots.to_vec();
            slots[at] = BallotSlot::Cast(vote);
            found.extend(reachable(quorum, &slots, open));
        }
        found.dedup();
        found
    }

    /// Checks all ballots of up to five nodes, with each choice for each node.
    fn for_all_ballots(choices: &[BallotSlot], mut check: impl FnMut(u8, &[BallotSlot])) -> usize {
        let mut ballots = 0;
        for nodes in 1..=5u8 {
            for quorum in nodes / 2 + 1..=nodes {
                for code in 0..choices.len().pow(nodes.into()) {
                    let slots: Vec<_> = (0..u32::from(nodes))
                        .map(|node| choices[code / choices.len().pow(node) % choices.len()])
                        .collect();
                    check(quorum, &slots);
                    ballots += 1;
                }
            }
        }
        ballots
    }

    const CAST: [BallotSlot; 3] = [
        BallotSlot::Cast(Vote::Grant),
        BallotSlot::Cast(Vote::Deny),
        BallotSlot::Cast(Vote::Fail(Cause::Loading)),
    ];

    #[test]
    fn forbidden_writes_differ_from_suspended_writes() {
        for cause in [Cause::DiskTrouble, Cause::NoReplicas, Cause::OutOfMemory] {
            assert!(cause.suspends_writes() && !cause.is_forbidden(), "{cause}");
        }
        for cause in [Cause::NoPermission, Cause::UnknownCommand] {
            assert!(cause.is_forbidden() && !cause.suspends_writes(), "{cause}");
        }
    }

    /// Every partial ballot of up to five nodes, and with it every order and outcome: the verdict
    /// is decided exactly if all completions agree.
    #[test]
    fn verdicts_exhaustively() {
        let choices = [&[BallotSlot::Awaited], &CAST[..]].concat();
        let ballots = for_all_ballots(&choices, |quorum, slots| {
            let votes = tally(quorum, slots);
            let verdict = votes.verdict();
            assert_eq!(votes.is_contended(), verdict == Verdict::Contended, "{slots:?}");
            let mut finals = reachable(quorum, slots, |slot| slot == BallotSlot::Awaited);
            finals.sort_by_key(|verdict| *verdict as u8);
            finals.dedup();
            match finals[..] {
                [only] => assert_eq!(verdict, only, "{slots:?}"),
                _ => assert_eq!(verdict, Verdict::Undecided, "{slots:?} -> {finals:?}"),
            }
        });
        assert_eq!(ballots, 4 + 16 + 2 * 64 + 2 * 256 + 3 * 1024);
    }

    /// Every ballot with any nodes suspected, of which some have voted. If a quorum has voted
    /// without the suspected nodes, the verdict comes with the last awaited vote or before.
    /// Suspicion alone neither grants nor makes a node fail.
    #[test]
    fn suspected_nodes_decide_nothing_and_are_not_waited_for() {
        let mut choices = [&[BallotSlot::Awaited, BallotSlot::Suspected], &CAST[..]].concat();
        choices.push(BallotSlot::Late(Vote::Grant));
        for_all_ballots(&choices, |quorum, slots| {
            let verdict = tally(quorum, slots).verdict();
            let trusting: Vec<_> = slots
                .iter()
                .map(|&slot| match slot {
                    BallotSlot::Suspected => BallotSlot::Awaited,
                    BallotSlot::Late(vote) => BallotSlot::Cast(vote),
                    slot => slot,
                })
                .collect();
            let before = tally(quorum, &trusting).verdict();
            if before != Verdict::Undecided {
                return assert_eq!(verdict, before, "suspicion changes nothing: {slots:?}");
            }
            // As if the suspected nodes never answered.
            let finals = reachable(quorum, slots, |slot| slot == BallotSlot::Awaited);
            let has_voted =
                |slot: &&BallotSlot| matches!(slot.vote(), Some(Vote::Grant | Vote::Deny));
            let voted = slots.iter().filter(has_voted).count();
            let is_split = finals.iter().all(|&last| last == Verdict::Contended);
            let expected = match voted >= quorum.into() && is_split {
                true => Verdict::Contended,
                false => Verdict::Undecided,
            };
            assert_eq!(verdict, expected, "{slots:?} -> {finals:?}");
            let is_denied = slots.iter().any(|slot| slot.vote() == Some(Vote::Deny));
            assert!(verdict == Verdict::Undecided || is_denied, "somebody has it: {slots:?}");
            if voted >= quorum.into() && !slots.contains(&BallotSlot::Awaited) {
                assert_eq!(verdict, Verdict::Contended, "nobody is waited for: {slots:?}");
            }
        });
    }

    #[test]
    fn a_node_votes_once() {
        let mut votes = Votes::new(3, 2);
        for _ in 0..5 {
            votes.cast(NodeId(0), Vote::Grant);
        }
        assert_eq!(votes.verdict(), Verdict::Undecided);
        votes.cast(NodeId(0), Vote::Fail(Cause::NoAnswer));
        assert_eq!((votes.grants().len(), votes.fails().len()), (0, 1));
        assert!(votes.has_failed_by(Cause::NoAnswer) && !votes.has_failed_by(Cause::ClockSkew));
    }

    #[test]
    fn only_an_operator_fixes_configuration() {
        assert!(Cause::WrongPassword.is_configuration() && Cause::Evicting.is_configuration());
        assert!(!Cause::ServerError.is_configuration() && !Cause::Loading.is_configuration());
    }
}
