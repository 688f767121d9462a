//! A kind of lock, as data: which commands ask for it, extend it and undo it, and what the answers mean.
//!
//! Another kind (read/write, a foreign format) is another value of [`LockKind`], not more code in the core. Not here:
//! when a command is sent, and to which node.

use std::time::Duration;

use crate::resp::{CommandEncoder, Token, command};

use super::classify::{ServerError, classify};
use super::fence;
use super::keys::Keys;
use super::line::{self, InLine, TicketName};
use super::permits::{self, Offer, SlotOrder};
use super::restart_guard::Standing;
use super::script::{Loaded, Script};
use super::vote::{Cause, Vote};

/// The commands of a kind of lock.
#[derive(Debug)]
pub(super) struct LockKind {
    pub(super) ask: Command,
    pub(super) extend: Command,
    pub(super) undo: Command,
    /// Raises fencing counters, where they are used.
    pub(super) write_back: Command,
    /// What a token of it begins with.
    pub(super) mark: &'static [u8],
}

/// One resource: `SET NX PX`, and the restart guard's `PTTL` behind it.
pub(super) const PLAIN: LockKind = LockKind {
    ask: Command::SetIfAbsent,
    extend: Command::Run(Script::Extend),
    undo: Command::Run(Script::Undo),
    write_back: Command::Run(Script::WriteBack),
    mark: b"",
};

/// Several resources, all or nothing.
pub(super) const MANY: LockKind = LockKind { ask: Command::Run(Script::AcquireMany), ..PLAIN };

/// One resource or several, with a fencing token.
pub(super) const FENCED: LockKind = LockKind { ask: Command::Run(Script::AcquireFenced), ..PLAIN };

/// One resource, beside others who share it.
pub(super) const SHARED: LockKind = LockKind {
    ask: Command::Run(Script::AcquireShared),
    extend: Command::Run(Script::ExtendShared),
    undo: Command::Run(Script::UndoShared),
    write_back: Command::Run(Script::WriteBackShared),
    mark: b"",
};

/// The same with a fencing token.
pub(super) const SHARED_FENCED: LockKind =
    LockKind { ask: Command::Run(Script::AcquireSharedFenced), ..SHARED };

/// One of a semaphore's permits.
pub(super) const PERMIT: LockKind = LockKind {
    ask: Command::Run(Script::AcquirePermit),
    extend: Command::Run(Script::ExtendPermit),
    undo: Command::Run(Script::UndoPermit),
    write_back: Command::Run(Script::WriteBackPermit),
    mark: b"",
};

/// One resource alone, beside the holder's own claim as a reader: it is among those who share, with a mark.
pub(super) const UPGRADE: LockKind =
    LockKind { ask: Command::Run(Script::Upgrade), mark: b"w:", ..SHARED };

/// The same with a fencing token.
pub(super) const UPGRADE_FENCED: LockKind =
    LockKind { ask: Command::Run(Script::UpgradeFenced), ..UPGRADE };

/// One resource, beside others who share it, and beside the holder's own claim as a writer.
pub(super) const DOWNGRADE: LockKind = LockKind { ask: Command::Run(Script::Downgrade), ..SHARED };

/// That claim, from then on. Where its holder was asked to share, it is among those who share.
pub(super) const DOWNGRADED: LockKind = LockKind {
    extend: Command::Run(Script::ExtendDowngraded),
    undo: Command::Run(Script::UndoDowngraded),
    ..PLAIN
};

/// A waiter's ticket in the line of a resource that it wants alone. It is asked for by the asks of its lock, and ends by itself.
pub(super) const TICKET: LockKind =
    LockKind { undo: Command::Run(Script::LeaveLine), mark: b"x", ..PLAIN };

/// The same of a resource that it would share.
pub(super) const TICKET_SHARED: LockKind = LockKind { mark: b"s", ..TICKET };

/// A command about keys that carry a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The ask for a permit, for one slot and no other.
    Move,
    Run(Script),
    SetIfAbsent,
}

/// The arguments of a [`Command`].
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) keys: &'a Keys,
    pub(super) token: &'a [u8],
    /// Zero for a command that gives no TTL.
    pub(super) ttl_ms: u64,
    /// The restart guard's key, where nodes are guarded.
    pub(super) restart_guard: Option<&'a [u8]>,
    /// The proposed or written value of the fencing counters.
    pub(super) counter: u64,
    pub(super) fencing_counter_ttl_ms: u64,
    pub(super) max_ttl: Duration,
    /// How many nodes are asked.
    pub(super) nodes: u64,
    /// The order in which a permit's slot is looked for.
    pub(super) slots: SlotOrder,
    /// The slot of a permit, once there is one.
    pub(super) slot: u64,
    /// What the token of the holder's other claim begins with, for a command that names it.
    pub(super) other_claim: Option<&'a [u8]>,
    /// How it stands in line, for a command that asks there.
    pub(super) in_line: Option<&'a InLine>,
}

impl Command {
    /// Encodes the command, and returns where in `out` its token is.
    pub(super) fn encode(self, out: &mut Vec<u8>, args: &Arguments<'_>, by_digest: bool) -> usize {
        match self {
            Self::SetIfAbsent => {
                let set = command(out, 6).arg(b"SET").arg(args.keys.first()).arg(args.token);
                let token = set.last(args.token);
                let _ = set.arg(b"NX").arg(b"PX").int(args.ttl_ms);
                if let Some(restart_guard) = args.restart_guard {
                    let _ = command(out, 2).arg(b"PTTL").arg(restart_guard);
                }
                token
            }
            Self::Run(script) => run(script, out, args, by_digest, false),
            Self::Move => run(Script::AcquirePermit, out, args, by_digest, true),
        }
    }

    /// Whether the command is sent as a script's digest. The first time on a connection its text is sent.
    #[inline]
    pub(super) fn goes_by_digest(self, loaded: &mut Loaded) -> bool {
        match self {
            Self::Run(script) => !loaded.insert(script),
            Self::Move => !loaded.insert(Script::AcquirePermit),
            Self::SetIfAbsent => false,
        }
    }

    /// The same ask as a script, for a node that may refuse to run the undo, which is a script too. If the node forbids
    /// scripts or their commands, this ask leaves nothing behind.
    pub(super) fn as_script(self) -> Self {
        match self {
            Self::SetIfAbsent => Self::Run(Script::AcquireMany),
            Self::Move | Self::Run(_) => self,
        }
    }

    /// Whether a second command reads the restart guard, so that a second answer follows.
    pub(super) fn is_checked_behind(self) -> bool {
        self == Self::SetIfAbsent
    }

    /// What the answer to an ask means; `None` if it is no answer to it.
    #[inline]
    pub(super) fn vote(self, answer: Token<'_>) -> Option<Answer> {
        Some(match (self, answer) {
            (
                Self::SetIfAbsent
                | Self::Run(
                    Script::AcquireMany
                    | Script::AcquireShared
                    | Script::Downgrade
                    | Script::Upgrade,
                ),
                Token::Simple(b"OK"),
            ) => Answer::Vote(Vote::Grant),
            (Self::SetIfAbsent, Token::NilBulk) => Answer::Vote(Vote::Deny),
            (Self::Move | Self::Run(_), Token::Int(remaining_ms @ -1..)) => {
                Answer::DenyFor(remaining_ms)
            }
            (Self::Move, Token::Simple(line)) => status(Script::AcquirePermit, line)?,
            (Self::Run(script), Token::Simple(line)) => status(script, line)?,
            (_, Token::Error(text)) => match classify(text) {
                ServerError::NoScript => Answer::NoScript,
                ServerError::Cause(cause) => Answer::Vote(Vote::Fail(cause)),
            },
            _ => return None,
        })
    }
}

fn run(
    script: Script,
    out: &mut Vec<u8>,
    args: &Arguments<'_>,
    by_digest: bool,
    moves: bool,
) -> usize {
    let (numbers, count) = numbers(script, args, moves);
    let numbers = &numbers[..count];
    if script.is_in_line() {
        return run_in_line(script, out, args, by_digest);
    }
    let counted = script.reads_counters(args.counter > 0);
    let behind: &[&[u8]] = match (script.is_of_permit(), counted) {
        (true, true) => &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX],
        (true, false) => &[permits::ENDS_PREFIX],
        (false, true) => &[fence::COUNTER_PREFIX],
        (false, false) => &[],
    };
    let restart_guard = args.restart_guard.filter(|_| script.checks_restart_guard());
    let keys = args.keys.len() * (1 + behind.len()) + usize::from(restart_guard.is_some());
    let other_claim = args.other_claim.filter(|_| script.names_other_claim());
    let arguments = 1 + numbers.len() + usize::from(other_claim.is_some());
    let mut eval = eval(script, out, keys, arguments, by_digest);
    eval = args.keys.iter().fold(eval, CommandEncoder::arg);
    for prefix in behind {
        eval = args.keys.iter().fold(eval, |eval, key| eval.prefixed(prefix, key));
    }
    eval = restart_guard.into_iter().fold(eval, CommandEncoder::arg).arg(args.token);
    let token = eval.last(args.token);
    eval = numbers.iter().copied().fold(eval, CommandEncoder::int);
    let _ = other_claim.into_iter().fold(eval, CommandEncoder::arg);
    token
}

/// Begins a script's call with so many keys and arguments.
fn eval(
    script: Script,
    out: &mut Vec<u8>,
    keys: usize,
    arguments: usize,
    by_digest: bool,
) -> CommandEncoder<'_, Vec<u8>> {
    let eval = command(out, 3 + keys + arguments);
    match by_digest {
        true => eval.arg(b"EVALSHA").arg(script.digest().as_bytes()),
        false => eval.arg(b"EVAL").arg(script.text().as_bytes()),
    }
    .int(keys as u64)
}

/// The same for a script of the line. The token of a ticket is its name.
fn run_in_line(script: Script, out: &mut Vec<u8>, args: &Arguments<'_>, by_digest: bool) -> usize {
    let (resource, asks) = (args.keys.first(), script == Script::AcquireInLine);
    let counter = Some(resource).filter(|_| asks && args.counter > 0);
    let restart_guard = args.restart_guard.filter(|_| asks);
    let in_line = args.in_line.filter(|_| asks);
    let name = in_line.map_or_else(|| TicketName::of(args.token), |it| it.ticket);
    let (numbers, count) = numbers(script, args, false);
    let keys = 5 + usize::from(counter.is_some()) + usize::from(restart_guard.is_some());
    let arguments = 1 + count + usize::from(in_line.is_some());
    let mut eval = eval(script, out, keys, arguments, by_digest).arg(resource);
    eval = eval.prefixed(line::STAMPS_PREFIX, resource).prefixed(line::ENDS_PREFIX, resource);
    eval = eval.prefixed(line::TICKET_PREFIX, &name.0).prefixed(line::CALL_PREFIX, resource);
    eval = counter.into_iter().fold(eval, |eval, key| eval.prefixed(fence::COUNTER_PREFIX, key));
    eval = restart_guard.into_iter().fold(eval, CommandEncoder::arg).arg(args.token);
    let token = eval.last(args.token);
    eval = numbers[..count].iter().copied().fold(eval, CommandEncoder::int);
    let _ = in_line.into_iter().fold(eval, |eval, it| eval.arg(&it.ticket.0));
    token
}

/// What a script is told behind the token: so many of these numbers.
fn numbers(script: Script, args: &Arguments<'_>, moves: bool) -> ([u64; MOST_NUMBERS], usize) {
    let &Arguments { ttl_ms, counter, fencing_counter_ttl_ms: counter_ttl, slots, slot, .. } = args;
    let (n, nodes) = (args.keys.len() as u64, args.nodes);
    let numbers = match script {
        Script::AcquireFenced => &[ttl_ms, n, counter, counter_ttl][..],
        Script::AcquireInLine => return numbers_in_line(args),
        Script::AcquireMany => &[ttl_ms, n],
        Script::AcquirePermit => {
            let (permits, own) = (slots.permits().into(), (slots.first(), slots.step()));
            let (first, step) = if moves { (slot, 0) } else { (own.0.into(), own.1.into()) };
            let all = [ttl_ms, nodes, permits, first, step, counter, counter_ttl, 0];
            return (all, if counter > 0 { 7 } else { 5 });
        }
        Script::AcquireShared | Script::Downgrade => &[ttl_ms, nodes],
        Script::AcquireSharedFenced => {
            let least = fence::least_kept(counter, args.max_ttl);
            &[ttl_ms, counter, counter_ttl, least, nodes]
        }
        Script::Extend | Script::ExtendDowngraded | Script::ExtendShared | Script::Upgrade => {
            &[ttl_ms]
        }
        Script::UpgradeFenced => &[ttl_ms, counter, counter_ttl],
        Script::ExtendPermit => &[ttl_ms, slot],
        Script::WriteBack => &[n, counter, counter_ttl],
        Script::WriteBackPermit => &[counter, counter_ttl, slot],
        Script::WriteBackShared => &[counter, counter_ttl],
        Script::LeaveLine
        | Script::Undo
        | Script::UndoDowngraded
        | Script::UndoPermit
        | Script::UndoShared => &[],
    };
    let mut all = [0; MOST_NUMBERS];
    all[..numbers.len()].copy_from_slice(numbers);
    (all, numbers.len())
}

/// The same of an ask in line. One that is not fenced proposes no counter.
fn numbers_in_line(args: &Arguments<'_>) -> ([u64; MOST_NUMBERS], usize) {
    let &Arguments { ttl_ms, nodes, counter, fencing_counter_ttl_ms: counter_ttl, .. } = args;
    let (stamp, proposal, grace) =
        args.in_line.map_or((0, 0, 0), |it| (it.stamp, it.proposal, it.grace_ms));
    let least = fence::least_kept(counter, args.max_ttl);
    let all = [ttl_ms, nodes, stamp, proposal, grace, counter, counter_ttl, least];
    (all, if counter > 0 { MOST_NUMBERS } else { MOST_NUMBERS - 3 })
}

const MOST_NUMBERS: usize = 8;

/// Reads the words behind the `OK` of a permit: its slot; the part and the free slots in it, unless it was moved; and the
/// counter, if it is fenced.
fn permit(words: &str) -> Option<Answer> {
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

/// Reads hexadecimal digits, of which the first is for the lowest bits.
fn bits(digits: &str) -> Option<u64> {
    let mut bits = 0;
    for (at, digit) in digits.chars().enumerate() {
        bits |= u64::from(digit.to_digit(16)?).checked_shl(4 * at as u32)?;
    }
    Some(bits)
}

/// Reads a script's status line: a word and a number.
fn status(script: Script, line: &[u8]) -> Option<Answer> {
    let (word, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    match (script, word) {
        (Script::AcquireFenced | Script::UpgradeFenced, "OK") => {
            let counter = number.parse().ok().filter(|&counter| fence::is_exclusive(counter));
            Some(Answer::GrantWith(counter?))
        }
        (Script::AcquirePermit, "OK") => permit(number),
        (Script::AcquireSharedFenced, "OK") => {
            let counter = number.parse().ok().filter(|&counter| fence::is_shared(counter));
            Some(Answer::GrantWith(counter?))
        }
        (
            Script::AcquireFenced
            | Script::AcquireInLine
            | Script::AcquirePermit
            | Script::AcquireSharedFenced
            | Script::UpgradeFenced,
            "CLOCK",
        ) => Some(Answer::Skewed(number.parse().ok()?)),
        (asks, "GUARD") if asks.checks_restart_guard() => {
            let pttl = number.parse().ok().filter(|&pttl| Standing::of(pttl) != Standing::Votes);
            Some(Answer::Guarded(pttl?))
        }
        _ => None,
    }
}

/// What a node's answer to an ask means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A denial, with the ms for which the lock is still held (-1: without end).
    DenyFor(i64),
    /// A grant, and the value of the fencing counters there.
    GrantWith(u64),
    /// A slot of a semaphore, and the value of its fencing counter there; zero if it is not fenced.
    GrantSlot {
        offer: Offer,
        counter: u64,
    },
    /// The restart guard does not let the node vote: its PTTL.
    Guarded(i64),
    /// The node does not know the script by its digest.
    NoScript,
    /// The proposed counter is too far from the node's clock, which shows this many µs.
    Skewed(u64),
    Vote(Vote),
}

/// What a node's answer to an extension or an undo means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Fail(Cause),
    NoScript,
    /// How many keys, or for an extension: 1 for done, 0 for gone.
    Of(i64),
}

impl Count {
    /// `NOSCRIPT` to anything but a digest is a server's error like any other.
    pub(super) fn to_request(self, by_digest: bool) -> Self {
        match self {
            Self::NoScript if !by_digest => Self::Fail(Cause::ServerError),
            other => other,
        }
    }
}

/// Reads the answer to an extension or an undo; `None` if it is no answer to either.
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
