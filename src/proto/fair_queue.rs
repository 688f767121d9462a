//! The queue of waiters for a resource on the nodes: the place of a waiter, and what it concludes
//! from the nodes' replies.
//!
//! Each node keeps a queue of tickets, ordered by stamp and then by name, as for Redisson's fair
//! lock. From the stamps of a quorum a waiter chooses one, T, and sends it with every later
//! request, so that it has the same place on every node.
//!
//! Invariant: once a quorum of replies names T, the waiter has its *place*, and no later waiter
//! gets the lock before it. The model in `crates/models/src/fair_queue.rs` runs this code. The
//! names of the keys, `redbolt:line...`, are part of the wire format.
//!
//! A node treats a ticket as in [`script::ACQUIRE_IN_QUEUE`](super::script::ACQUIRE_IN_QUEUE).

use std::time::Duration;

use super::answer::{Answer, permit};
use super::mutants::mutant;
use super::names::{MAX_NODES, NodeId, TicketName};
use super::vote::Vote;
use crate::resp::Token;

/// The prefix of all keys that a queue keeps.
pub(super) const PREFIX: &[u8] = b"redbolt:line";

/// The prefix of the sorted set of a resource's tickets by stamp.
pub(super) const STAMPS_PREFIX: &[u8] = b"redbolt:line:";

/// The prefix of the sorted set of a resource's tickets by expiry.
pub(super) const ENDS_PREFIX: &[u8] = b"redbolt:line-until:";

/// The prefix of the key of one ticket.
pub(super) const TICKET_PREFIX: &[u8] = b"redbolt:line-wait:";

/// The prefix of the key that names the ticket which was called.
pub(super) const CALL_PREFIX: &[u8] = b"redbolt:line-call:";

pub(super) const CLOSED: &[u8] = b"\nredbolt";

/// How long a marked or closed key outlives the holders of the resource.
pub(super) const MARKED_FOR: Duration = Duration::from_secs(8);

/// How long the traces of a ticket can stay on a node after its owner's last request there.
pub(super) const TICKET_TTL: Duration = Duration::from_secs(12);

/// The stamp T of a waiter, and whether a quorum has recorded its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standpoint {
    stamp: u64,
    has_place: bool,
}

impl Standpoint {
    /// Returns a standpoint with this stamp, 0 for none.
    #[must_use]
    pub fn new(stamp: u64, has_place: bool) -> Self {
        Self { stamp, has_place }
    }

    /// Returns T, or 0 if none was sent yet and no quorum has named the same.
    #[must_use]
    pub fn stamp(self) -> u64 {
        self.stamp
    }

    /// Returns whether a quorum of replies has named T.
    #[must_use]
    pub fn has_place(self) -> bool {
        self.has_place
    }

    /// Returns the standpoint after a node has named `stamp`. `stamps` has the last stamp that each
    /// node has named, 0 for none, including this one. If nothing was sent yet, T is the stamp that
    /// a quorum names.
    #[must_use]
    pub fn after_reply(self, stamp: u64, stamps: &[u64], quorum: usize) -> Self {
        let is_alike = are_alike(stamps, stamp, quorum);
        // A stamp that differs from the one that was sent is not T, even if a quorum names it.
        let may_be_ours = self.stamp == stamp || self.stamp == 0;
        match may_be_ours && !self.has_place && is_alike {
            true => Self { stamp, has_place: true },
            false => self,
        }
    }

    /// Returns the standpoint of the next request, which sends T: the largest stamp that was named,
    /// once a quorum has named any. T never decreases, and no longer changes once the place is
    /// known.
    #[must_use]
    pub fn before_ask(self, stamps: &[u64], quorum: usize) -> Self {
        let is_known = is_known(stamps, quorum);
        if mutant!(StampOfEachNode) {
            return Self { stamp: 0, has_place: self.has_place || is_known };
        }
        if mutant!(StampRaisedWithPlace) && is_known {
            let stamp = stamps.iter().copied().max().unwrap_or_default() + 1;
            return Self { stamp, has_place: self.has_place };
        }
        if mutant!(StampSentEarly) && !self.has_place {
            let stamp = stamps.iter().copied().max().unwrap_or_default().max(self.stamp);
            return Self { stamp, has_place: are_alike(stamps, stamp, quorum) };
        }
        // Raising T after a quorum recorded it would give up the place to later waiters.
        if self.has_place || !is_known {
            return self;
        }
        // Lowering a T that was sent would leave nodes with two different places.
        let stamp = stamps.iter().copied().max().unwrap_or_default().max(self.stamp);
        Self { stamp, has_place: are_alike(stamps, stamp, quorum) }
    }
}

fn are_alike(stamps: &[u64], stamp: u64, quorum: usize) -> bool {
    // Zero is the absence of a stamp, on which nodes must not agree.
    stamp > 0 && stamps.iter().filter(|&&other| other == stamp).count() >= quorum
}

fn is_known(stamps: &[u64], quorum: usize) -> bool {
    stamps.iter().filter(|&&stamp| stamp > 0).count() >= quorum
}

/// The stamps that the nodes have named for a ticket, and what its owner concludes from them.
#[derive(Clone, Debug)]
pub(super) struct StampAgreement {
    stamps: [u64; MAX_NODES],
    quorum: usize,
    standpoint: Standpoint,
}

impl StampAgreement {
    /// Creates the agreement of a ticket that no node has named a stamp for.
    pub(super) fn new(quorum: usize) -> Self {
        Self { stamps: [0; MAX_NODES], quorum, standpoint: Standpoint::default() }
    }

    pub(super) fn record(&mut self, node: NodeId, stamp: u64) {
        // A node has one stamp: an earlier one of the same node must not count twice for a quorum.
        self.stamps[node.index()] = stamp;
        self.standpoint = self.standpoint.after_reply(stamp, &self.stamps, self.quorum);
    }

    /// Returns T for the next request; 0 if there is none yet.
    pub(super) fn stamp_for_ask(&mut self) -> u64 {
        self.standpoint = self.standpoint.before_ask(&self.stamps, self.quorum);
        self.standpoint.stamp
    }

    /// Returns whether a quorum has recorded the place, so that no later waiter gets the lock
    /// before this one.
    pub(super) fn has_place(&self) -> bool {
        self.standpoint.has_place
    }

    /// Returns whether a quorum has named stamps, equal or not.
    pub(super) fn is_known(&self) -> bool {
        is_known(&self.stamps, self.quorum)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InQueue {
    pub(super) ticket: TicketName,
    /// T, or 0 if it is not known yet.
    pub(super) stamp: u64,
    /// The stamp for a ticket that is new, in µs.
    pub(super) proposal: u64,
    /// The maximum time in ms that its owner needs to take its turn.
    pub(super) grace_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePlace {
    pub(super) stamp: u64,
    /// How long holders are in the way, in ms; 0 for not at all, -1 for without end.
    pub(super) left_ms: i64,
    pub(super) before: u32,
    /// The last ticket before this one, and the one before that.
    pub(super) predecessors: [Option<TicketName>; 2],
    /// The time in ms that the first ticket still has to take its turn, if no holder is in the way.
    /// Another waiter may have called it before.
    pub(super) grace_ms: u32,
    /// See [`pinged_ms`](Self::pinged_ms).
    pinged_ms: Option<u32>,
}

impl QueuePlace {
    /// Returns after how many ms the last ticket before this one expires unless its owner asks, if
    /// this request has pinged it.
    pub(super) fn pinged_ms(&self) -> Option<u32> {
        self.pinged_ms
    }

    /// Returns after how many ms no holder is in the way, as far as the node can tell.
    pub(super) fn ends_in_ms(&self) -> u64 {
        u64::try_from(self.left_ms).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueReply {
    /// The node grants.
    Granted { stamp: u64, grant: Answer },
    /// The node does not grant yet.
    Waits(QueuePlace),
}

impl QueueReply {
    /// Reads a reply about a lock or a permit; `None` if it is neither of the two replies.
    pub(super) fn read(answer: Token<'_>, of_permit: bool) -> Option<Self> {
        // Read strictly: a reply to another request must not be taken for this one.
        let Token::Simple(line) = answer else { return None };
        let (word, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let mut words = rest.split(' ');
        let reply = match word {
            "OK" if of_permit => {
                let (stamp, slot) = rest.split_once(' ')?;
                let grant = permit(slot)?;
                return Some(Self::Granted { stamp: stamp.parse().ok()?, grant });
            }
            "OK" => {
                let stamp = words.next()?.parse().ok()?;
                let counter = words.next().map(|word| word.parse().ok().map(Answer::GrantWith));
                Self::Granted { stamp, grant: counter.unwrap_or(Some(Answer::Vote(Vote::Grant)))? }
            }
            "WAIT" => {
                let left_ms = words.next()?.parse().ok().filter(|&ms| ms >= -1)?;
                let (stamp, before) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let (last, last_but_one) = (words.next()?, words.next()?);
                let grace_ms = last.split_once(':').map_or(Some(0), |(_, ms)| ms.parse().ok())?;
                let predecessors = [ticket(last)?, ticket(last_but_one)?];
                let pinged_ms = words.next().map(str::parse).transpose().ok()?;
                let place =
                    QueuePlace { stamp, left_ms, before, predecessors, grace_ms, pinged_ms };
                Self::Waits(place)
            }
            _ => return None,
        };
        words.next().is_none().then_some(reply)
    }
}

/// Reads a ticket's name, or `-` for none.
fn ticket(word: &str) -> Option<Option<TicketName>> {
    match word.as_bytes() {
        b"-" => Some(None),
        // The grace follows the name.
        name if name.len() > TicketName::LEN => Some(Some(TicketName::of(name))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::permits::Offer;

    fn node(at: u8) -> NodeId {
        NodeId(at)
    }

    #[test]
    fn the_stamp_that_a_quorum_names_first_is_chosen() {
        let mut queue = StampAgreement::new(2);
        queue.record(node(0), 7);
        assert_eq!((queue.stamp_for_ask(), queue.has_place(), queue.is_known()), (0, false, false));
        queue.record(node(1), 7);
        queue.record(node(2), 9);
        assert_eq!((queue.stamp_for_ask(), queue.has_place(), queue.is_known()), (7, true, true));
    }

    #[test]
    fn a_stamp_that_was_sent_is_not_lowered_nor_raised_once_the_place_is_known() {
        let mut queue = StampAgreement::new(2);
        queue.record(node(0), 7);
        queue.record(node(1), 5);
        assert_eq!((queue.stamp_for_ask(), queue.has_place()), (7, false));
        queue.record(node(2), 5);
        assert_eq!((queue.stamp_for_ask(), queue.has_place()), (7, false), "two say 5, too late");
        queue.record(node(1), 7);
        assert!(queue.has_place());
        queue.record(node(2), 11);
        queue.record(node(1), 11);
        assert_eq!(queue.stamp_for_ask(), 7);
    }

    #[test]
    fn answers_are_read() {
        let name = format!("x{}", "ab".repeat(16));
        let place = |text: &str| QueueReply::read(Token::Simple(text.as_bytes()), false);
        let permit = |text: &str| QueueReply::read(Token::Simple(text.as_bytes()), true);
        let waits = place(&format!("WAIT 250 17 2 {name}01:35 -"));
        let predecessors = [Some(TicketName::of(name.as_bytes())), None];
        let (grace_ms, pinged_ms) = (35, None);
        let expected =
            QueuePlace { stamp: 17, left_ms: 250, before: 2, predecessors, grace_ms, pinged_ms };
        assert_eq!(waits, Some(QueueReply::Waits(expected)));
        let waits = place(&format!("WAIT 250 17 2 {name}01:35 - 35"));
        let expected = QueuePlace { pinged_ms: Some(35), ..expected };
        assert_eq!(waits, Some(QueueReply::Waits(expected)));
        let granted = |grant| Some(QueueReply::Granted { stamp: 17, grant });
        assert_eq!(place("OK 17"), granted(Answer::Vote(Vote::Grant)));
        assert_eq!(place("OK 17 40"), granted(Answer::GrantWith(40)));
        let slot = |counter| Answer::GrantSlot { offer: Offer::new(3, 0, 0xc), counter };
        assert_eq!(permit("OK 17 3 0 c"), granted(slot(0)));
        assert_eq!(permit("OK 17 3 0 c 40"), granted(slot(40)));
        assert_eq!(permit("WAIT 0 1 1 a -"), None);
        assert_eq!(permit("OK 17"), None);
        for nonsense in [
            "OK",
            "OK x",
            "OK 1 2 3",
            "WAIT 1 2 3 -",
            "WAIT -2 1 0 - -",
            "WAIT 1 1 1 a -",
            "WAIT 1 1 0 - - x",
            "WAIT 1 1 0 - - 1 2",
            "GUARD 5",
        ] {
            assert_eq!(place(nonsense), None, "{nonsense}");
        }
        assert_eq!(QueueReply::read(Token::Int(5), false), None);
    }
}
