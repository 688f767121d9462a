//! The meaning of a node's reply to a command.

use super::classify::{ServerError, classify};
use super::fence;
use super::lock_kind::Command;
use super::permits::Offer;
use super::restart_guard::Standing;
use super::script::definition::{Grant, Role, Script};
use super::vote::{Cause, Vote};
use crate::resp::Token;

impl Command {
    /// Returns whether a grant in the queue has the form that this command expects outside of it.
    pub(super) fn is_answered_by(self, grant: Answer) -> bool {
        let expected = match self {
            Self::SetIfAbsent => Grant::Ok,
            Self::Run(&Script { role: Role::Ask(expected), .. }) => expected,
            Self::Delete(_) | Self::Move | Self::Run(_) => return true,
        };
        // The parity of a counter separates the tokens of writers from those of readers.
        match (expected, grant) {
            (Grant::ExclusiveCounter, Answer::GrantWith(counter)) => fence::is_exclusive(counter),
            (Grant::SharedCounter, Answer::GrantWith(counter)) => fence::is_shared(counter),
            (Grant::ExclusiveCounter | Grant::SharedCounter, _) => false,
            (Grant::Ok, Answer::GrantWith(_)) => false,
            _ => true,
        }
    }

    /// Returns the meaning of the reply to a request; `None` if it cannot be one.
    #[inline]
    pub(super) fn vote(self, answer: Token<'_>) -> Option<Answer> {
        if self == Self::SetIfAbsent {
            return vote_of_set(answer);
        }
        let script = self.script()?;
        match answer {
            Token::Simple(b"OK") if script.role == Role::Ask(Grant::Ok) => {
                Some(Answer::Vote(Vote::Grant))
            }
            Token::Simple(line) => status(script, line),
            // A PTTL of -1 is a key without end. A denial with -2, no key, would be nonsense.
            Token::Int(remaining_ms @ -1..) => Some(Answer::DenyFor(remaining_ms)),
            Token::Error(text) => Some(Answer::refused(text)),
            // Ends the link: replies are matched by order, so an impossible one belongs to another
            // request.
            _ => None,
        }
    }
}

/// Returns the meaning of the reply to `SET NX`; `None` if it cannot be one.
#[inline]
pub(super) fn vote_of_set(answer: Token<'_>) -> Option<Answer> {
    match answer {
        Token::Simple(b"OK") => Some(Answer::Vote(Vote::Grant)),
        // Only this reply means that the key exists. Every other one is a failure and no denial.
        Token::NilBulk => Some(Answer::Vote(Vote::Deny)),
        Token::Error(text) => Some(Answer::refused(text)),
        _ => None,
    }
}

/// Reads the words that follow the `OK` of a permit: its slot, then the block and its free slots
/// unless the permit was moved, then the counter if the lock is fenced.
pub(super) fn permit(words: &str) -> Option<Answer> {
    let words: [&str; 4] = {
        let mut found = words.split(' ');
        std::array::from_fn(|_| found.next().unwrap_or_default())
    };
    let slot = words[0].parse().ok()?;
    let (part, free, counter) = match words {
        [_, counter, "", ""] => (0, 0, counter),
        [_, part, free, counter] => (part.parse().ok()?, bits(free)?, counter),
    };
    let counter = match counter {
        "" => 0,
        counter => counter.parse().ok().filter(|&counter| fence::is_exclusive(counter))?,
    };
    Some(Answer::GrantSlot { offer: Offer::new(slot, part, free), counter })
}

/// Reads hexadecimal digits, the first of which has the lowest bits.
fn bits(digits: &str) -> Option<u64> {
    let mut bits = 0;
    for (at, digit) in digits.chars().enumerate() {
        bits |= u64::from(digit.to_digit(16)?).checked_shl(4 * at as u32)?;
    }
    Some(bits)
}

fn status(script: &Script, line: &[u8]) -> Option<Answer> {
    let Role::Ask(grant) = script.role else { return None };
    let (word, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let counter = |is_valid: fn(u64) -> bool| {
        let counter = number.parse().ok().filter(|&counter| is_valid(counter));
        Some(Answer::GrantWith(counter?))
    };
    match (word, grant) {
        ("OK", Grant::ExclusiveCounter) => counter(fence::is_exclusive),
        ("OK", Grant::SharedCounter) => counter(fence::is_shared),
        ("OK", Grant::Counter) => counter(|token| (1..=fence::MAX_TOKEN).contains(&token)),
        ("OK", Grant::Slot) => permit(number),
        ("OK", _) | ("CLOCK", Grant::Ok | Grant::Counter) => None,
        ("CLOCK", _) => Some(Answer::Skewed(number.parse().ok()?)),
        // A guard that lets the node vote is not a reason to refuse.
        ("GUARD", _) => {
            let pttl = number.parse().ok().filter(|&pttl| Standing::of(pttl) != Standing::Votes);
            Some(Answer::Guarded(pttl?))
        }
        _ => None,
    }
}

/// The meaning of a reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A denial, with the remaining ms of the lock in the way (-1: without end).
    DenyFor(i64),
    /// A grant, with the value of the fencing counters on this node.
    GrantWith(u64),
    /// A slot of a semaphore, and the value of its fencing counter on this node; 0 if not fenced.
    GrantSlot {
        offer: Offer,
        counter: u64,
    },
    /// The restart guard does not let the node vote, with the guard's PTTL.
    Guarded(i64),
    /// The node does not have the script of this digest.
    NoScript,
    /// The proposed counter is too far from the node's clock, which is this many µs since 1970.
    Skewed(u64),
    Vote(Vote),
}

impl Answer {
    pub(super) fn is_grant(self) -> bool {
        matches!(self, Self::GrantSlot { .. } | Self::GrantWith(_) | Self::Vote(Vote::Grant))
    }

    fn refused(text: &[u8]) -> Self {
        match classify(text) {
            ServerError::NoScript => Self::NoScript,
            ServerError::Cause(cause) => Self::Vote(Vote::Fail(cause)),
        }
    }
}

/// The meaning of a reply to an extension or an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Fail(Cause),
    NoScript,
    /// The number of keys that were undone. For an extension: 1 if it was done, 0 if the key is
    /// missing.
    Of(i64),
}

impl Count {
    /// Turns `NOSCRIPT` into an error like any other if the command was not sent by digest.
    pub(super) fn to_request(self, by_digest: bool) -> Self {
        match self {
            // Sending the text again would get the same reply, without end.
            Self::NoScript if !by_digest => Self::Fail(Cause::ServerError),
            other => other,
        }
    }
}

/// Reads the reply to an extension or an undo; `None` if it cannot be one.
#[inline]
pub(super) fn count(answer: Token<'_>) -> Option<Count> {
    Some(match answer {
        Token::Int(n @ 0..) => Count::Of(n),
        Token::Error(text) => match classify(text) {
            ServerError::NoScript => Count::NoScript,
            ServerError::Cause(cause) => Count::Fail(cause),
        },
        _ => return None,
    })
}
