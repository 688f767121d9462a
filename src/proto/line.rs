//! The line of those who wait for a resource: what one waiter makes of what the nodes tell of its place.
//!
//! Each node keeps a line of its own, ordered by stamp and then by name. From the stamps of a quorum a waiter takes one for
//! itself, T, and sends it with every later ask, so that it stands at the same place everywhere. Its *door* is passed when a
//! quorum of answers says T: who begins to wait after that does not get the lock before it. The rules are those of
//! `crates/models/src/line.rs`, which decides with the code that is here.
//!
//! Not here: what a node does with a ticket, see [`script::ACQUIRE_IN_LINE`](super::script::ACQUIRE_IN_LINE), and when a
//! waiter asks.

use std::time::Duration;

use super::lock_kind::{Answer, permit};
use super::mutants::mutant;
use super::names::{MAX_NODES, NodeId, TicketName};
use super::vote::Vote;
use crate::resp::Token;

/// How the names begin of what is kept for those who wait.
pub(super) const PREFIX: &[u8] = b"redbolt:line";

/// Of the sorted set of a resource's tickets, by their stamps.
pub(super) const STAMPS_PREFIX: &[u8] = b"redbolt:line:";

/// Of the sorted set of a resource's tickets, by when they end.
pub(super) const ENDS_PREFIX: &[u8] = b"redbolt:line-until:";

/// Of the key of one ticket.
pub(super) const TICKET_PREFIX: &[u8] = b"redbolt:line-wait:";

/// Of the key that says which ticket was called.
pub(super) const CALL_PREFIX: &[u8] = b"redbolt:line-call:";

/// What a closed key holds.
pub(super) const CLOSED: &[u8] = b"\nredbolt";

/// What is marked for those who wait outlives its holder by so much.
pub(super) const MARKED_FOR: Duration = Duration::from_secs(8);

/// How long a ticket can leave something on a node that its owner has not asked since.
pub(super) const TICKET_TTL: Duration = Duration::from_secs(12);

/// The stamp that a waiter goes by, T, and whether it has passed its door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standpoint {
    stamp: u64,
    has_door: bool,
}

impl Standpoint {
    /// One that goes by this stamp, 0 for none.
    #[must_use]
    pub fn new(stamp: u64, has_door: bool) -> Self {
        Self { stamp, has_door }
    }

    /// T; 0 as long as none was sent, or said alike by a quorum.
    #[must_use]
    pub fn stamp(self) -> u64 {
        self.stamp
    }

    /// Whether a quorum of answers has said it.
    #[must_use]
    pub fn has_door(self) -> bool {
        self.has_door
    }

    /// A node has said `stamp`, which is among what all have said last, with 0 for those who have said nothing. What a
    /// quorum says alike before anything was sent is T.
    #[must_use]
    pub fn hears(self, stamp: u64, heard: &[u64], quorum: usize) -> Self {
        let is_alike = says_alike(heard, stamp, quorum);
        let may_be_ours = self.stamp == stamp || self.stamp == 0;
        match may_be_ours && !self.has_door && is_alike {
            true => Self { stamp, has_door: true },
            false => self,
        }
    }

    /// The waiter asks, and sends T: the largest that was said, once a quorum has said anything. It never gets less, and
    /// behind the door it does not change.
    #[must_use]
    pub fn asks(self, heard: &[u64], quorum: usize) -> Self {
        let has_heard = has_heard(heard, quorum);
        if mutant!(StampOfEachNode) {
            return Self { stamp: 0, has_door: self.has_door || has_heard };
        }
        if mutant!(StampRaisedBehindDoor) && has_heard {
            let stamp = heard.iter().copied().max().unwrap_or_default() + 1;
            return Self { stamp, has_door: self.has_door };
        }
        if mutant!(StampSentEarly) && !self.has_door {
            let stamp = heard.iter().copied().max().unwrap_or_default().max(self.stamp);
            return Self { stamp, has_door: says_alike(heard, stamp, quorum) };
        }
        if self.has_door || !has_heard {
            return self;
        }
        let stamp = heard.iter().copied().max().unwrap_or_default().max(self.stamp);
        Self { stamp, has_door: says_alike(heard, stamp, quorum) }
    }
}

fn says_alike(heard: &[u64], stamp: u64, quorum: usize) -> bool {
    stamp > 0 && heard.iter().filter(|&&heard| heard == stamp).count() >= quorum
}

fn has_heard(heard: &[u64], quorum: usize) -> bool {
    heard.iter().filter(|&&stamp| stamp > 0).count() >= quorum
}

/// What the nodes have told a waiter of its place, and what it makes of it.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    heard: [u64; MAX_NODES],
    quorum: usize,
    standpoint: Standpoint,
}

impl Agreement {
    /// Of a waiter that has heard nothing.
    pub(super) fn new(quorum: usize) -> Self {
        Self { heard: [0; MAX_NODES], quorum, standpoint: Standpoint::default() }
    }

    /// A node says at which stamp the ticket stands there.
    pub(super) fn hears(&mut self, node: NodeId, stamp: u64) {
        self.heard[node.index()] = stamp;
        self.standpoint = self.standpoint.hears(stamp, &self.heard, self.quorum);
    }

    /// T for the next ask; 0 as long as there is none.
    pub(super) fn asks(&mut self) -> u64 {
        self.standpoint = self.standpoint.asks(&self.heard, self.quorum);
        self.standpoint.stamp
    }

    /// Whether whoever begins to wait from now on does not get the lock before this waiter.
    pub(super) fn has_door(&self) -> bool {
        self.standpoint.has_door
    }

    /// Whether a quorum has told where the ticket stands.
    pub(super) fn has_heard(&self) -> bool {
        has_heard(&self.heard, self.quorum)
    }
}

/// How an ask stands in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct InLine {
    pub(super) ticket: TicketName,
    /// T; 0 before it is known.
    pub(super) stamp: u64,
    /// Where a ticket is put that is new, in µs.
    pub(super) proposal: u64,
    /// How long its owner takes at the most to take its turn.
    pub(super) grace_ms: u64,
}

/// Where a ticket stands on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stamp: u64,
    /// For how many ms holders are in the way; 0 for not at all, -1 for without end.
    pub(super) left_ms: i64,
    /// How many stand before it.
    pub(super) before: u32,
    /// The last of these, and the last but one.
    pub(super) predecessors: [Option<TicketName>; 2],
    /// If no holder is in the way, for how many ms whoever is first may still come. Somebody may have called it before.
    pub(super) grace_ms: u32,
    /// See [`pinged_ms`](Self::pinged_ms).
    pinged_ms: Option<u32>,
}

impl Place {
    /// Returns after how many ms the last ticket before this one expires unless its owner asks, if this ask has pinged it.
    pub(super) fn pinged_ms(&self) -> Option<u32> {
        self.pinged_ms
    }

    /// Returns after how many ms no holder is in the way, as far as the node knows.
    pub(super) fn ends_in_ms(&self) -> u64 {
        u64::try_from(self.left_ms).unwrap_or(u64::MAX)
    }
}

/// What the answer to an ask in line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The node grants.
    Granted { stamp: u64, grant: Answer },
    /// It does not yet.
    Waits(Place),
}

impl Told {
    /// Reads an answer to a lock, or to a permit; `None` if it is another one than these two.
    pub(super) fn read(answer: Token<'_>, of_permit: bool) -> Option<Self> {
        let Token::Simple(line) = answer else { return None };
        let (word, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let mut words = rest.split(' ');
        let told = match word {
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
                let pinged_ms = match words.next() {
                    Some(word) => Some(word.parse().ok()?),
                    None => None,
                };
                Self::Waits(Place { stamp, left_ms, before, predecessors, grace_ms, pinged_ms })
            }
            _ => return None,
        };
        words.next().is_none().then_some(told)
    }
}

/// Reads a ticket's name, or that there is none.
fn ticket(word: &str) -> Option<Option<TicketName>> {
    match word.as_bytes() {
        b"-" => Some(None),
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
    fn what_a_quorum_says_alike_at_first_is_the_stamp() {
        let mut line = Agreement::new(2);
        line.hears(node(0), 7);
        assert_eq!((line.asks(), line.has_door(), line.has_heard()), (0, false, false));
        line.hears(node(1), 7);
        line.hears(node(2), 9);
        assert_eq!((line.asks(), line.has_door(), line.has_heard()), (7, true, true));
    }

    #[test]
    fn what_was_sent_is_not_lowered_and_behind_the_door_not_raised() {
        let mut line = Agreement::new(2);
        line.hears(node(0), 7);
        line.hears(node(1), 5);
        assert_eq!((line.asks(), line.has_door()), (7, false));
        line.hears(node(2), 5);
        assert_eq!((line.asks(), line.has_door()), (7, false), "two say 5, too late");
        line.hears(node(1), 7);
        assert!(line.has_door());
        line.hears(node(2), 11);
        line.hears(node(1), 11);
        assert_eq!(line.asks(), 7);
    }

    #[test]
    fn answers_are_read() {
        let name = format!("x{}", "ab".repeat(16));
        let place = |text: &str| Told::read(Token::Simple(text.as_bytes()), false);
        let permit = |text: &str| Told::read(Token::Simple(text.as_bytes()), true);
        let waits = place(&format!("WAIT 250 17 2 {name}01:35 -"));
        let predecessors = [Some(TicketName::of(name.as_bytes())), None];
        let (grace_ms, pinged_ms) = (35, None);
        let expected =
            Place { stamp: 17, left_ms: 250, before: 2, predecessors, grace_ms, pinged_ms };
        assert_eq!(waits, Some(Told::Waits(expected)));
        let waits = place(&format!("WAIT 250 17 2 {name}01:35 - 35"));
        let expected = Place { pinged_ms: Some(35), ..expected };
        assert_eq!(waits, Some(Told::Waits(expected)));
        let granted = |grant| Some(Told::Granted { stamp: 17, grant });
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
        assert_eq!(Told::read(Token::Int(5), false), None);
    }
}
