//! A kind of lock, as data: which commands ask for it, extend it and undo it, and what the answers mean.
//!
//! Another kind (read/write, a foreign format) is another value of [`LockKind`], not more code in the core. Not here:
//! when a command is sent, and to which node.

use crate::resp::{CommandEncoder, Token, command};

use super::classify::{ServerError, classify};
use super::config::Config;
use super::fence;
use super::keys::Keys;
use super::line::{self, InLine, TicketName};
use super::permits::{Offer, SlotOrder};
use super::profile::Profile;
use super::restart_guard::Standing;
use super::script::{Loaded, Script, symfony};
use super::time;
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
    /// Whether only its ask can say for how long what is in its way lives, and not the TTL of the key.
    pub(super) is_told_by_ask: bool,
    /// Whose locks it is one of.
    profile: Profile,
}

impl LockKind {
    /// Whose locks it is one of.
    pub(super) fn profile(&self) -> Profile {
        self.profile
    }
}

/// One resource: `SET NX PX`, and the restart guard's `PTTL` behind it.
pub(super) const PLAIN: LockKind = LockKind {
    ask: Command::SetIfAbsent,
    extend: Command::Run(Script::Extend),
    undo: Command::Run(Script::Undo),
    write_back: Command::Run(Script::WriteBack),
    mark: b"",
    is_told_by_ask: false,
    profile: Profile::Plain,
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
    ..PLAIN
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
    ..PLAIN
};

/// One resource, as Redisson locks it.
pub(super) const REDISSON: LockKind = LockKind {
    ask: Command::Run(Script::AcquireRedisson),
    extend: Command::Run(Script::ExtendRedisson),
    undo: Command::Run(Script::UndoRedisson),
    write_back: Command::Run(Script::WriteBackRedisson),
    profile: Profile::Redisson,
    ..PLAIN
};

/// The same with a fencing token.
pub(super) const REDISSON_FENCED: LockKind =
    LockKind { ask: Command::Run(Script::AcquireRedissonFenced), ..REDISSON };

/// One resource, as a writer of Redisson's has it.
pub(super) const REDISSON_WRITE: LockKind = LockKind {
    ask: Command::Run(Script::AcquireRedissonWrite),
    extend: Command::Run(Script::ExtendRedissonRw),
    undo: Command::Run(Script::UndoRedissonRw),
    profile: Profile::RedissonRw,
    ..PLAIN
};

/// The same beside others who read. That a writer has become a reader is not to be seen by the key's TTL.
pub(super) const REDISSON_READ: LockKind = LockKind {
    ask: Command::Run(Script::AcquireRedissonRead),
    is_told_by_ask: true,
    ..REDISSON_WRITE
};

/// One resource, as python-redis-lock locks it.
pub(super) const PYTHON_REDIS_LOCK: LockKind = LockKind {
    ask: Command::Run(Script::AcquirePython),
    undo: Command::Run(Script::UndoPython),
    profile: Profile::PythonRedisLock,
    ..PLAIN
};

/// One resource, as a lock registry of Spring locks it.
pub(super) const SPRING: LockKind =
    LockKind { undo: Command::Run(Script::UndoSpring), profile: Profile::Spring, ..PLAIN };

/// One resource, as Symfony locks it.
pub(super) const SYMFONY_WRITE: LockKind = LockKind {
    ask: Command::Run(Script::AcquireSymfonyWrite),
    extend: Command::Run(Script::ExtendSymfonyWrite),
    undo: Command::Run(Script::UndoSymfonyWrite),
    mark: symfony::MARK,
    profile: Profile::Symfony,
    ..PLAIN
};

/// The same beside others who read. That a writer has become a reader is not to be seen by the key's TTL.
pub(super) const SYMFONY_READ: LockKind = LockKind {
    ask: Command::Run(Script::AcquireSymfonyRead),
    extend: Command::Run(Script::ExtendShared),
    undo: Command::Run(Script::UndoShared),
    is_told_by_ask: true,
    ..SYMFONY_WRITE
};

/// One resource, with a value that tells when it is over.
pub(super) const SETNX: LockKind = LockKind {
    ask: Command::Run(Script::AcquireTimed),
    extend: Command::Run(Script::ExtendTimed),
    undo: Command::Run(Script::UndoTimed),
    is_told_by_ask: true,
    profile: Profile::Setnx,
    ..PLAIN
};

/// The same, as redis-objects locks it.
pub(super) const REDIS_OBJECTS: LockKind = LockKind { profile: Profile::RedisObjects, ..SETNX };

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

/// A waiter's ticket in the line of a resource that it wants alone. The asks of its lock ask for it, and it ends by itself.
pub(super) const TICKET: LockKind = LockKind {
    ask: Command::Run(Script::AcquireInLine),
    undo: Command::Run(Script::LeaveLine),
    mark: b"x",
    ..PLAIN
};

/// The same of a resource that it would share.
pub(super) const TICKET_SHARED: LockKind = LockKind { mark: b"s", ..TICKET };

/// The same of one that wants a permit of it.
pub(super) const TICKET_PERMIT: LockKind =
    LockKind { ask: Command::Run(Script::AcquirePermitInLine), mark: b"p", ..TICKET };

/// A command about keys that carry a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The undo of a lock on one resource, by the server's own command.
    Delete(CompareAndDelete),
    /// The ask for a permit, for one slot and no other.
    Move,
    Run(Script),
    SetIfAbsent,
}

/// A command that deletes one key if it holds what it should, which some servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareAndDelete {
    /// `DELEX key IFEQ value`, since Redis 8.4.
    DelEx,
    /// `DELIFEQ key value`, since Valkey 9.0.
    DelIfEq,
}

impl CompareAndDelete {
    /// Encodes the command, and returns where in `out` the value is.
    fn encode(self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> usize {
        let delete = match self {
            Self::DelEx => command(out, 4).arg(b"DELEX").arg(key).arg(b"IFEQ"),
            Self::DelIfEq => command(out, 3).arg(b"DELIFEQ").arg(key),
        };
        delete.arg(value).last(value)
    }
}

/// The arguments of a [`Command`].
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) keys: &'a Keys,
    pub(super) token: &'a [u8],
    /// Zero for a command that gives no TTL.
    pub(super) ttl_ms: u64,
    /// The proposed or written value of the fencing counters.
    pub(super) counter: u64,
    /// How many nodes are asked, and the restart guard's key, if there is one.
    pub(super) config: &'a Config,
    /// The order in which a permit's slot is looked for.
    pub(super) slots: SlotOrder,
    /// The slot of a permit, once there is one.
    pub(super) slot: u64,
    /// What the token of the holder's other claim begins with, for a command that names it.
    pub(super) other_claim: Option<&'a [u8]>,
    /// How it stands in line, for a command that asks there.
    pub(super) in_line: Option<&'a InLine>,
}

impl Arguments<'_> {
    /// For how long fencing counters live.
    fn counter_ttl_ms(&self) -> u64 {
        time::ttl_ms(self.config.settings().fencing_counter_ttl)
    }

    /// The least counter that a holder who shares leaves as it is.
    fn least_kept(&self) -> u64 {
        fence::least_kept(self.counter, self.config.settings().max_ttl)
    }
}

impl Command {
    /// Encodes the command, and returns where in `out` its token is.
    pub(super) fn encode(self, out: &mut Vec<u8>, args: &Arguments<'_>, by_digest: bool) -> usize {
        match self {
            Self::SetIfAbsent => {
                let set = command(out, 6).encoded(b"\r\n$3\r\nSET", 1);
                let set = set.arg(args.keys.first()).arg(args.token);
                let token = set.last(args.token);
                let _ = set.encoded(b"\r\n$2\r\nNX\r\n$2\r\nPX", 2).int(args.ttl_ms);
                if let Some(restart_guard) = args.config.restart_guard_key() {
                    let _ = command(out, 2).encoded(b"\r\n$4\r\nPTTL", 1).arg(restart_guard);
                }
                token
            }
            Self::Run(script @ Script::Undo) if by_digest && args.keys.len() == 1 => {
                eval(script, out, 1, 1, by_digest)
                    .arg(args.keys.first())
                    .arg(args.token)
                    .last(args.token)
            }
            Self::Run(script) if script.is_in_line() => run_in_line(script, out, args, by_digest),
            Self::Run(script) => run(script, out, args, by_digest, false),
            Self::Move => run(Script::AcquirePermit, out, args, by_digest, true),
            Self::Delete(how) => how.encode(out, args.keys.first(), args.token),
        }
    }

    /// Whether the command is sent as a script's digest. The first time on a connection its text is sent.
    #[inline]
    pub(super) fn goes_by_digest(self, loaded: &mut Loaded) -> bool {
        let script = match self {
            Self::Run(script) => script,
            Self::Move => Script::AcquirePermit,
            Self::Delete(_) | Self::SetIfAbsent => return false,
        };
        !loaded.insert(script)
    }

    /// The same ask as a script, for a node that may refuse to run the undo, which is a script too. If the node forbids
    /// scripts or their commands, this ask leaves nothing behind.
    pub(super) fn as_script(self) -> Self {
        match self {
            Self::SetIfAbsent => Self::Run(Script::AcquireMany),
            Self::Delete(_) | Self::Move | Self::Run(_) => self,
        }
    }

    /// Whether it asks in line.
    pub(super) fn asks_in_line(self) -> bool {
        matches!(self, Self::Run(script) if script.asks_in_line())
    }

    /// Whether it asks for a permit, whichever slot that has.
    pub(super) fn is_for_permit(self) -> bool {
        matches!(self, Self::Run(Script::AcquirePermit | Script::AcquirePermitInLine))
    }

    /// Whether a lock that asks so without a line can be granted like this in line.
    pub(super) fn is_answered_by(self, grant: Answer) -> bool {
        match (self, grant) {
            (Self::Run(Script::AcquireFenced), Answer::GrantWith(counter)) => {
                fence::is_exclusive(counter)
            }
            (Self::Run(Script::AcquireSharedFenced), Answer::GrantWith(counter)) => {
                fence::is_shared(counter)
            }
            (Self::Run(Script::AcquireFenced | Script::AcquireSharedFenced), _) => false,
            (Self::Run(Script::AcquireShared) | Self::SetIfAbsent, Answer::GrantWith(_)) => false,
            _ => true,
        }
    }

    /// Whether a second command reads the restart guard, so that a second answer follows.
    pub(super) fn is_checked_behind(self) -> bool {
        self == Self::SetIfAbsent
    }

    /// What the answer to an ask means; `None` if it is no answer to it.
    #[inline]
    pub(super) fn vote(self, answer: Token<'_>) -> Option<Answer> {
        let script = match self {
            Self::Run(script) => script,
            Self::Move => Script::AcquirePermit,
            Self::SetIfAbsent => return vote_of_set(answer),
            Self::Delete(_) => return None,
        };
        match answer {
            Token::Simple(b"OK") if script.says_only_ok() => Some(Answer::Vote(Vote::Grant)),
            Token::Simple(line) => status(script, line),
            Token::Int(remaining_ms @ -1..) => Some(Answer::DenyFor(remaining_ms)),
            Token::Error(text) => Some(Answer::refused(text)),
            _ => None,
        }
    }
}

/// What the answer to `SET NX` means.
#[inline]
pub(super) fn vote_of_set(answer: Token<'_>) -> Option<Answer> {
    match answer {
        Token::Simple(b"OK") => Some(Answer::Vote(Vote::Grant)),
        Token::NilBulk => Some(Answer::Vote(Vote::Deny)),
        Token::Error(text) => Some(Answer::refused(text)),
        _ => None,
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
    let behind = script.prefixes_behind(args.counter > 0);
    let beside = script.key_beside(args.keys.first());
    let checks_restart_guard = script.checks_restart_guard();
    let restart_guard = args.config.restart_guard_key().filter(|_| checks_restart_guard);
    let others = usize::from(beside.is_some()) + usize::from(restart_guard.is_some());
    let keys = args.keys.len() * (1 + behind.len()) + others;
    let other_claim = args.other_claim.filter(|_| script.names_other_claim());
    let arguments = 1 + numbers.len() + usize::from(other_claim.is_some());
    let mut eval = eval(script, out, keys, arguments, by_digest);
    eval = args.keys.iter().fold(eval, CommandEncoder::arg);
    for prefix in behind {
        eval = args.keys.iter().fold(eval, |eval, key| eval.prefixed(prefix, key));
    }
    eval = beside.iter().fold(eval, |eval, key| eval.arg(key));
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
        true => eval.encoded(b"\r\n$7\r\nEVALSHA", 1).arg(script.digest().as_bytes()),
        false => eval.arg(b"EVAL").arg(script.text().as_bytes()),
    }
    .int(keys as u64)
}

/// The same for a script of the line. The token of a ticket is its name.
fn run_in_line(script: Script, out: &mut Vec<u8>, args: &Arguments<'_>, by_digest: bool) -> usize {
    let (resource, asks) = (args.keys.first(), script.asks_in_line());
    let behind = script.prefixes_behind(args.counter > 0);
    let restart_guard = args.config.restart_guard_key().filter(|_| asks);
    let in_line = args.in_line.filter(|_| asks);
    let name = in_line.map_or_else(|| TicketName::of(args.token), |it| it.ticket);
    let (numbers, count) = numbers(script, args, false);
    let keys = 5 + behind.len() + usize::from(restart_guard.is_some());
    let arguments = 1 + count + usize::from(in_line.is_some());
    let mut eval = eval(script, out, keys, arguments, by_digest).arg(resource);
    eval = eval.prefixed(line::STAMPS_PREFIX, resource).prefixed(line::ENDS_PREFIX, resource);
    eval = eval.prefixed(line::TICKET_PREFIX, &name.0).prefixed(line::CALL_PREFIX, resource);
    eval = behind.iter().fold(eval, |eval, prefix| eval.prefixed(prefix, resource));
    eval = restart_guard.into_iter().fold(eval, CommandEncoder::arg).arg(args.token);
    let token = eval.last(args.token);
    eval = numbers[..count].iter().copied().fold(eval, CommandEncoder::int);
    let _ = in_line.into_iter().fold(eval, |eval, it| eval.arg(&it.ticket.0));
    token
}

/// What a script is told behind the token: so many of these numbers.
fn numbers(script: Script, args: &Arguments<'_>, moves: bool) -> ([u64; MOST_NUMBERS], usize) {
    let &Arguments { ttl_ms, counter, slots, slot, .. } = args;
    let (n, nodes) = (args.keys.len() as u64, args.config.node_count() as u64);
    let counter_ttl = || args.counter_ttl_ms();
    match script {
        Script::AcquireFenced => few([ttl_ms, n, counter, counter_ttl()]),
        Script::AcquireInLine => numbers_in_line(args),
        Script::AcquirePermitInLine => numbers_of_permit_in_line(args),
        Script::AcquireMany => few([ttl_ms, n]),
        Script::AcquirePermit => {
            let (permits, own) = (slots.permits().into(), (slots.first(), slots.step()));
            let (first, step) = if moves { (slot, 0) } else { (own.0.into(), own.1.into()) };
            let (all, most) = few([ttl_ms, nodes, permits, first, step, counter, counter_ttl()]);
            (all, if counter > 0 { most } else { most - 2 })
        }
        Script::AcquireShared | Script::Downgrade => few([ttl_ms, nodes]),
        Script::AcquireSharedFenced => {
            let least = args.least_kept();
            few([ttl_ms, counter, counter_ttl(), least, nodes])
        }
        Script::Extend | Script::ExtendDowngraded | Script::ExtendShared | Script::Upgrade => {
            few([ttl_ms])
        }
        Script::UpgradeFenced => few([ttl_ms, counter, counter_ttl()]),
        Script::ExtendPermit => few([ttl_ms, slot]),
        Script::WriteBack => few([n, counter, counter_ttl()]),
        Script::WriteBackPermit => few([counter, counter_ttl(), slot]),
        Script::WriteBackShared => few([counter, counter_ttl()]),
        Script::LeaveLine
        | Script::Undo
        | Script::UndoDowngraded
        | Script::UndoPermit
        | Script::UndoShared => few([]),
        _ => numbers_of_foreign(script, args),
    }
}

/// These numbers, and how many they are.
#[inline]
fn few<const N: usize>(numbers: [u64; N]) -> ([u64; MOST_NUMBERS], usize) {
    let mut all = [0; MOST_NUMBERS];
    all[..N].copy_from_slice(&numbers);
    (all, N)
}

/// The same of a script about locks of another library.
fn numbers_of_foreign(script: Script, args: &Arguments<'_>) -> ([u64; MOST_NUMBERS], usize) {
    match script {
        Script::AcquireRedissonRead | Script::AcquireSymfonyRead => {
            few([args.ttl_ms, args.config.node_count() as u64])
        }
        Script::UndoPython
        | Script::UndoRedisson
        | Script::UndoRedissonRw
        | Script::UndoSpring
        | Script::UndoSymfonyWrite
        | Script::UndoTimed => few([]),
        Script::WriteBackRedisson => few([args.counter]),
        _ => few([args.ttl_ms]),
    }
}

/// The same of an ask in line. One that is not fenced proposes no counter.
fn numbers_in_line(args: &Arguments<'_>) -> ([u64; MOST_NUMBERS], usize) {
    let &Arguments { ttl_ms, counter, .. } = args;
    let (nodes, counter_ttl) = (args.config.node_count() as u64, args.counter_ttl_ms());
    let (stamp, proposal, grace) =
        args.in_line.map_or((0, 0, 0), |it| (it.stamp, it.proposal, it.grace_ms));
    let all = [ttl_ms, nodes, stamp, proposal, grace, counter, counter_ttl, args.least_kept()];
    let (all, most) = few(all);
    (all, if counter > 0 { most } else { NUMBERS_IN_LINE })
}

/// The same of one for a permit.
fn numbers_of_permit_in_line(args: &Arguments<'_>) -> ([u64; MOST_NUMBERS], usize) {
    let (mut all, _) = numbers_in_line(args);
    let (order, count) = numbers(Script::AcquirePermit, args, false);
    all[NUMBERS_IN_LINE..].copy_from_slice(&order[2..2 + MOST_NUMBERS - NUMBERS_IN_LINE]);
    (all, count + NUMBERS_IN_LINE - 2)
}

/// The numbers of any ask in line. Those that follow are the lock's.
const NUMBERS_IN_LINE: usize = 5;

const MOST_NUMBERS: usize = 10;

/// Reads the words behind the `OK` of a permit: its slot; the part and the free slots in it, unless it was moved; and the
/// counter, if it is fenced.
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
        (Script::AcquireRedissonFenced, "OK") => {
            let counter =
                number.parse().ok().filter(|token| (1..=fence::MAX_TOKEN).contains(token));
            Some(Answer::GrantWith(counter?))
        }
        (Script::AcquireSharedFenced, "OK") => {
            let counter = number.parse().ok().filter(|&counter| fence::is_shared(counter));
            Some(Answer::GrantWith(counter?))
        }
        (
            Script::AcquireFenced
            | Script::AcquireInLine
            | Script::AcquirePermit
            | Script::AcquirePermitInLine
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

impl Answer {
    /// Whether the node has granted what it was asked for.
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
