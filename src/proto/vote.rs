//! Votes and the verdict over them.
//!
//! Three answers, not two: *deny* says that somebody holds the resource, *fail* says that the node
//! is no voter now, and why. Mixing them up is what makes other clients report dead nodes as a
//! held lock. Not here: how a reply becomes a vote, see `kind` and `classify`.

use std::fmt;

use super::mutants::mutant;
use super::names::{MAX_NODES, NodeId, NodeSet};
use crate::resp::messages;

messages! {
    /// Why a node is no voter, or has not answered usefully.
    ///
    /// Ordered by whose move it is: the network's, the server's, the operator's. [`Display`](fmt::Display)
    /// gives the words for an operator.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum Cause {
        /// No bytes within the time that a request has.
        #[default]
        NoAnswer: "no answer in time",
        /// The connection could not be opened in time.
        ConnectTimeout: "no connection in time",
        /// Nothing listens at the address.
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
        /// No bytes for the dead-peer limit while answers were due.
        DeadPeer: "silent for too long",
        /// The encryption of the connection failed; the detail says how.
        Tls: "TLS failed",
        /// The bytes are no RESP2; the detail says where and which rule.
        Violation: "not a Redis server (protocol violation)",
        /// A valid reply that answers nothing we asked, or of a type that it cannot have.
        UnexpectedReply: "not a Redis server (unexpected reply)",
        /// More requests are under way on this link than the limit allows.
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
        /// `READONLY`: the server became a replica.
        ReadOnly: "READONLY: the server is a replica",
        /// `CLUSTERDOWN`, `TRYAGAIN`, `UNKILLABLE`, `EXECABORT`: the server cannot serve this now.
        Unavailable: "the server cannot serve this now",
        /// The server has no room for another client.
        MaxClients: "the server has no room for another client",
        /// An error that redbolt does not know; the detail gives its text.
        ServerError: "unknown server error",
        /// The node may have forgotten locks, and does not vote until all of them are over; the detail
        /// says why and for how long.
        Quarantined: "quarantined",
        /// Its clock is too far from the fencing token that was proposed; the detail says by how much.
        ClockSkew: "its clock is too far from ours",
        /// The node never counted as one that granted this lock, so that its extension does not count.
        NotCounted: "its grant was not counted",

        /// `NOAUTH`: the server wants a password and none is configured.
        PasswordMissing: "NOAUTH: the server wants a password",
        /// `WRONGPASS`, or `AUTH` refused: user or password is wrong.
        WrongPassword: "WRONGPASS: wrong user or password",
        /// A password is configured for a server that has none.
        NoPasswordSet: "a password is configured, but the server has none",
        /// `NOPERM`: the user may not run a command that locks need; the detail names it.
        NoPermission: "NOPERM: the user lacks a permission",
        /// `DENIED`: protected mode.
        ProtectedMode: "DENIED: the server is in protected mode",
        /// The database does not exist.
        NoSuchDatabase: "no such database",
        /// A command that locks need does not exist or has been renamed.
        UnknownCommand: "a needed command is missing or renamed",
        /// The user may not run scripts, or `EVAL` has been renamed, so that what the node grants could not be
        /// undone; the detail gives the server's words.
        ScriptsForbidden: "scripts are forbidden",
        /// The server is older than Redis 5; the detail gives its version.
        TooOld: "the server is too old",
        /// The port expects TLS, and the node's address does not.
        TlsPort: "the port expects TLS (rediss://)",
        /// The node's address expects TLS, and the port does not speak it.
        PlainPort: "the port does not speak TLS (redis:// is without)",
        /// The server's certificate is not accepted; the detail says why.
        Certificate: "the server's certificate is not accepted",
        /// The server refuses a connection over TLS; the detail says why.
        TlsRefused: "the server refuses TLS with us",
        /// `WRONGTYPE`: the key holds data of another kind.
        WrongType: "WRONGTYPE: the key holds other data",
        /// The server is a replica.
        Replica: "a replica, not a master",
        /// The server runs in cluster mode.
        ClusterMode: "in cluster mode",
        /// Another node of the configuration is the same server; the detail says which.
        SameServer: "the same server as another node",
        /// The server may evict keys: `maxmemory` is set with an evicting policy.
        Evicting: "may evict locks: maxmemory is set with an evicting policy",
        /// Its restart guard was set up for another `max_ttl` or number of nodes; the detail says which.
        OtherLimits: "set up for other limits",
        /// Its restart guard's key holds something else, or has no TTL.
        RestartGuardAltered: "its restart guard was altered",
    }
}

impl Cause {
    /// Whether only an operator can mend it, so that waiting and asking again is pointless.
    #[must_use]
    pub fn is_configuration(self) -> bool {
        self as u8 >= Self::PasswordMissing as u8
    }

    /// Whether a command is missing, or the user may not run it.
    pub(super) fn is_forbidden(self) -> bool {
        matches!(self, Self::NoPermission | Self::UnknownCommand)
    }

    /// Whether the server runs and reads, and only takes no writes for now.
    pub(super) fn suspends_writes(self) -> bool {
        matches!(self, Self::DiskTrouble | Self::NoReplicas | Self::OutOfMemory)
    }
}

/// One node's answer in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three answers of a node: the verdict rests on them"
)]
pub enum Vote {
    /// The node keeps the lock for us.
    Grant,
    /// The node says that somebody else holds it.
    Deny,
    /// The node did not answer usefully.
    Fail(Cause),
}

/// What the votes amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what votes can amount to")]
pub enum Verdict {
    /// Votes to come can still change it.
    Undecided,
    /// A quorum granted.
    Granted,
    /// A quorum voted, and too many denied: somebody holds it.
    Contended,
    /// Too many nodes are no voters.
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

    /// How many nodes there are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.into()
    }

    /// How many grants make a lock.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum.into()
    }

    /// The nodes that granted.
    #[must_use]
    pub fn grants(&self) -> NodeSet {
        self.grants
    }

    /// The nodes that denied.
    #[must_use]
    pub fn denies(&self) -> NodeSet {
        self.denies
    }

    /// The nodes that were no voters.
    #[must_use]
    pub fn fails(&self) -> NodeSet {
        self.fails
    }

    /// The nodes that seem to hang: a quorum has answered long ago and they have not. A vote that one
    /// of them cast all the same counts.
    #[must_use]
    pub fn suspected(&self) -> NodeSet {
        self.suspected
    }

    /// What this node said; `None` if it was never heard or not waited for.
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

    /// The one place where votes become a verdict.
    ///
    /// Early in both directions: it is decided as soon as no vote to come can change it. A quorum that
    /// has voted waits for no vote of a suspected node. Where no quorum has voted without them, suspected
    /// nodes are waited for like all others: suspicion is no failure.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let (nodes, quorum, grants) = (self.node_count(), self.quorum(), self.grants.len());
        if grants >= quorum {
            return Verdict::Granted;
        }
        if self.denies.or(self.fails).is_empty() {
            return Verdict::Undecided;
        }
        let (denies, fails) = (self.denies.len(), self.fails.len());
        if fails > nodes - quorum {
            Verdict::NoQuorum
        } else if grants + denies >= quorum && grants + self.awaited().len() < quorum {
            Verdict::Contended
        } else {
            Verdict::Undecided
        }
    }

    /// Whether a quorum has voted, for or against.
    #[inline]
    pub(super) fn has_quorum(&self) -> bool {
        self.grants.or(self.denies).len() >= self.quorum()
    }

    /// The nodes that have not voted and are not suspected.
    pub(super) fn awaited(&self) -> NodeSet {
        self.missing().without(self.suspected)
    }

    /// Whether enough nodes voted to say that somebody holds the resource.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.verdict() == Verdict::Contended
    }

    /// Counts a node's vote. A node has one: a later vote replaces an earlier one.
    pub(super) fn cast(&mut self, node: NodeId, vote: Vote) {
        debug_assert!(node.0 < self.nodes);
        if mutant!(FailIsDeny) && matches!(vote, Vote::Fail(_)) {
            return self.cast(node, Vote::Deny);
        }
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

    /// A node is asked anew: what it has said before counts no longer.
    pub(super) fn retract(&mut self, node: NodeId) {
        self.grants.remove(node);
        self.denies.remove(node);
        self.fails.remove(node);
    }

    /// These nodes seem to hang, and no others.
    #[inline]
    pub(super) fn suspect(&mut self, suspected: NodeSet) {
        if mutant!(SuspicionIgnored) {
            return;
        }
        self.suspected = suspected;
    }

    /// The same ballot, with a grant of every node.
    pub(super) fn granted(self) -> Self {
        Self { grants: NodeSet::first(self.node_count()), ..self }
    }

    /// The nodes that have not voted.
    pub(super) fn missing(&self) -> NodeSet {
        NodeSet::first(self.node_count()).without(self.grants.or(self.denies).or(self.fails))
    }

    /// Whether a node failed for this reason.
    pub(super) fn has_failed_by(&self, cause: Cause) -> bool {
        self.fails.iter().any(|node| self.causes[node.index()] == cause)
    }

    /// Whether an operator has to act before a quorum is possible.
    pub(super) fn is_misconfigured(&self) -> bool {
        let wrong =
            self.fails.iter().filter(|node| self.causes[node.index()].is_configuration()).count();
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

    /// What the verdict must be once everybody has voted, counted the long way.
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

    /// What is known of a node in a ballot.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum BallotSlot {
        Awaited,
        Suspected,
        Cast(Vote),
        /// Suspected before, and it voted all the same.
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

    /// All finals that can still come of a partial ballot, if these slots are yet to be filled.
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

    /// All ballots of up to five nodes, with each choice for each node.
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
    fn a_node_that_may_not_write_differs_from_one_that_cannot_for_now() {
        for cause in [Cause::DiskTrouble, Cause::NoReplicas, Cause::OutOfMemory] {
            assert!(cause.suspends_writes() && !cause.is_forbidden(), "{cause}");
        }
        for cause in [Cause::NoPermission, Cause::UnknownCommand] {
            assert!(cause.is_forbidden() && !cause.suspends_writes(), "{cause}");
        }
    }

    /// Every partial ballot of up to five nodes, and so every order and outcome: the verdict is
    /// decided exactly when all completions agree.
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

    /// Every ballot with any nodes suspected, some of which have voted all the same. Whatever the awaited
    /// nodes say, one that a quorum could vote in without the suspected nodes is decided no later than by
    /// the last of them; and suspicion alone neither grants nor makes a node fail.
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
            // As if those who are suspected never answered.
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
    fn only_an_operator_mends_configuration() {
        assert!(Cause::WrongPassword.is_configuration() && Cause::Evicting.is_configuration());
        assert!(!Cause::ServerError.is_configuration() && !Cause::Loading.is_configuration());
    }
}
