//! A kind of lock, as data: which commands ask for it, extend it and undo it, and what the answers mean.
//!
//! Another kind (read/write, a foreign format) is another value of [`LockKind`], not more code in the core. Not here:
//! when a command is sent, and to which node.

use crate::resp::{CommandEncoder, Token, command};

use super::classify::{ServerError, classify};
use super::config::Config;
use super::fair_queue::{CALL_PREFIX, ENDS_PREFIX, InQueue, STAMPS_PREFIX, TICKET_PREFIX};
use super::fence;
use super::keys::Keys;
use super::names::TicketName;
use super::permits::{Offer, SlotOrder};
use super::profile::Profile;
use super::restart_guard::Standing;
use super::script;
use super::script::definition::{Argument, Grant, Loaded, Role, Script};
use super::time;
use super::vote::{Cause, Vote};

/// The commands of a kind of lock.
#[derive(Debug)]
#[non_exhaustive]
pub struct LockKind {
    pub(super) ask: Command,
    pub(super) extend: Command,
    pub(super) undo: Command,
    /// Raises fencing counters, where they are used.
    pub(super) write_back: Command,
    /// What a token of it begins with.
    pub(super) mark: &'static [u8],
    /// Whether only its ask can say for how long what is in its way lives, and not the TTL of the key.
    pub(super) is_read_by_ask: bool,
    /// Whose locks it is one of.
    profile: Profile,
}

impl LockKind {
    /// A kind of another library's locks, with its commands: to ask, to extend and to undo.
    #[must_use]
    pub const fn foreign(profile: Profile, [ask, extend, undo]: [Command; 3]) -> Self {
        Self { ask, extend, undo, profile, ..PLAIN }
    }

    /// The same whose tokens begin with a mark.
    #[must_use]
    pub const fn marked(self, mark: &'static [u8]) -> Self {
        Self { mark, ..self }
    }

    /// The same of which only an ask can say for how long what is in its way lives.
    pub(super) const fn told_by_ask(self) -> Self {
        Self { is_read_by_ask: true, ..self }
    }

    /// The same whose counters another script raises.
    pub(super) const fn written_back_by(self, script: &'static Script) -> Self {
        Self { write_back: Command::Run(script), ..self }
    }

    /// Whose locks it is one of.
    pub(super) fn profile(&self) -> Profile {
        self.profile
    }
}

/// One resource: `SET NX PX`, and the restart guard's `PTTL` behind it.
pub(super) const PLAIN: LockKind = LockKind {
    ask: Command::SetIfAbsent,
    extend: Command::Run(&script::EXTEND),
    undo: Command::Run(&script::UNDO),
    write_back: Command::Run(&script::WRITE_BACK),
    mark: b"",
    is_read_by_ask: false,
    profile: Profile::PLAIN,
};

/// Several resources, all or nothing.
pub(super) const MANY: LockKind = LockKind { ask: Command::Run(&script::ACQUIRE_MANY), ..PLAIN };

/// One resource or several, with a fencing token.
pub(super) const FENCED: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_FENCED), ..PLAIN };

/// One resource, beside others who share it.
pub(super) const SHARED: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_SHARED),
    extend: Command::Run(&script::EXTEND_SHARED),
    undo: Command::Run(&script::UNDO_SHARED),
    write_back: Command::Run(&script::WRITE_BACK_SHARED),
    ..PLAIN
};

/// The same with a fencing token.
pub(super) const SHARED_FENCED: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_SHARED_FENCED), ..SHARED };

/// One of a semaphore's permits.
pub(super) const PERMIT: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_PERMIT),
    extend: Command::Run(&script::EXTEND_PERMIT),
    undo: Command::Run(&script::UNDO_PERMIT),
    write_back: Command::Run(&script::WRITE_BACK_PERMIT),
    ..PLAIN
};

/// One resource alone, beside the holder's own claim as a reader: it is among those who share, with a mark.
pub(super) const UPGRADE: LockKind =
    LockKind { ask: Command::Run(&script::UPGRADE), mark: b"w:", ..SHARED };

/// The same with a fencing token.
pub(super) const UPGRADE_FENCED: LockKind =
    LockKind { ask: Command::Run(&script::UPGRADE_FENCED), ..UPGRADE };

/// One resource, beside others who share it, and beside the holder's own claim as a writer.
pub(super) const DOWNGRADE: LockKind = LockKind { ask: Command::Run(&script::DOWNGRADE), ..SHARED };

/// That claim, from then on. Where its holder was asked to share, it is among those who share.
pub(super) const DOWNGRADED: LockKind = LockKind {
    extend: Command::Run(&script::EXTEND_DOWNGRADED),
    undo: Command::Run(&script::UNDO_DOWNGRADED),
    ..PLAIN
};

/// A waiter's ticket in the queue of a resource that it wants alone. The asks of its lock ask for it, and it ends by itself.
pub(super) const TICKET: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_IN_QUEUE),
    undo: Command::Run(&script::LEAVE_QUEUE),
    mark: b"x",
    ..PLAIN
};

/// The same of a resource that it would share.
pub(super) const TICKET_SHARED: LockKind = LockKind { mark: b"s", ..TICKET };

/// The same of one that wants a permit of it.
pub(super) const TICKET_PERMIT: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_PERMIT_IN_QUEUE), mark: b"p", ..TICKET };

/// A command about keys that carry a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// The undo of a lock on one resource, by the server's own command.
    Delete(CompareAndDelete),
    /// The ask for a permit, for one slot and no other.
    Move,
    /// A script.
    Run(&'static Script),
    /// The ask for one resource, by `SET NX PX`.
    SetIfAbsent,
}

/// A command that deletes one key if it holds what it should, which some servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareAndDelete {
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
    /// How it waits in the queue, for a command that asks there.
    pub(super) in_queue: Option<&'a InQueue>,
}

impl Arguments<'_> {
    /// The value of a number in ARGV. `moves`: a permit is moved to another slot.
    fn number(&self, argument: Argument, moves: bool) -> u64 {
        let settings = self.config.settings();
        let in_queue = |number: fn(&InQueue) -> u64| self.in_queue.map_or(0, number);
        match argument {
            Argument::Counter => self.counter,
            Argument::CounterTtl => time::ttl_ms(settings.fencing_counter_ttl),
            Argument::FirstSlot if moves => self.slot,
            Argument::FirstSlot => self.slots.first().into(),
            Argument::Grace => in_queue(|it| it.grace_ms),
            Argument::Keys => self.keys.len() as u64,
            Argument::LeastKept => fence::least_kept(self.counter, settings.max_ttl),
            Argument::Nodes => self.config.node_count() as u64,
            Argument::Permits => self.slots.permits().into(),
            Argument::Proposal => in_queue(|it| it.proposal),
            Argument::Slot => self.slot,
            Argument::Stamp => in_queue(|it| it.stamp),
            Argument::Step if moves => 0,
            Argument::Step => self.slots.step().into(),
            Argument::Ttl => self.ttl_ms,
        }
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
            Self::Run(script) if by_digest && *script == script::UNDO && args.keys.len() == 1 => {
                eval(script, out, 1, 1, by_digest)
                    .arg(args.keys.first())
                    .arg(args.token)
                    .last(args.token)
            }
            Self::Run(script) if script.is_in_queue() => eval_ticket(script, out, args, by_digest),
            Self::Run(script) => run(script, out, args, by_digest, false),
            Self::Move => run(&script::ACQUIRE_PERMIT, out, args, by_digest, true),
            Self::Delete(how) => how.encode(out, args.keys.first(), args.token),
        }
    }

    /// Whether the command is sent as a script's digest. The first time on a connection its text is sent.
    #[inline]
    pub(super) fn goes_by_digest(self, loaded: &mut Loaded) -> bool {
        let script = match self {
            Self::Run(script) => script,
            Self::Move => &script::ACQUIRE_PERMIT,
            Self::Delete(_) | Self::SetIfAbsent => return false,
        };
        !loaded.insert(script)
    }

    /// The same ask as a script, for a node that may refuse to run the undo, which is a script too. If the node forbids
    /// scripts or their commands, this ask leaves nothing behind.
    pub(super) fn as_script(self) -> Self {
        match self {
            Self::SetIfAbsent => Self::Run(&script::ACQUIRE_MANY),
            Self::Delete(_) | Self::Move | Self::Run(_) => self,
        }
    }

    /// Whether it asks in the queue.
    pub(super) fn asks_in_queue(self) -> bool {
        matches!(self, Self::Run(script) if script.asks_in_queue())
    }

    /// Whether it asks for a permit, whichever slot that has.
    pub(super) fn is_for_permit(self) -> bool {
        matches!(self, Self::Run(script)
            if matches!(script.role, Role::Ask(Grant::Slot | Grant::SlotInQueue)))
    }

    /// Whether a lock that asks so without a queue can be granted like this in the queue.
    pub(super) fn is_answered_by(self, grant: Answer) -> bool {
        let expected = match self {
            Self::SetIfAbsent => Role::Ask(Grant::Ok),
            Self::Run(script) => script.role,
            Self::Delete(_) | Self::Move => return true,
        };
        match (expected, grant) {
            (Role::Ask(Grant::ExclusiveCounter), Answer::GrantWith(counter)) => {
                fence::is_exclusive(counter)
            }
            (Role::Ask(Grant::SharedCounter), Answer::GrantWith(counter)) => {
                fence::is_shared(counter)
            }
            (Role::Ask(Grant::ExclusiveCounter | Grant::SharedCounter), _) => false,
            (Role::Ask(Grant::Ok), Answer::GrantWith(_)) => false,
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
            Self::Move => &script::ACQUIRE_PERMIT,
            Self::SetIfAbsent => return vote_of_set(answer),
            Self::Delete(_) => return None,
        };
        match answer {
            Token::Simple(b"OK") if script.role == Role::Ask(Grant::Ok) => {
                Some(Answer::Vote(Vote::Grant))
            }
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
    script: &Script,
    out: &mut Vec<u8>,
    args: &Arguments<'_>,
    by_digest: bool,
    moves: bool,
) -> usize {
    let is_fenced = args.counter > 0;
    let beside = script.key_beside.map(|name| name(args.keys.first()));
    let checks_restart_guard = script.checks_restart_guard();
    let restart_guard = args.config.restart_guard_key().filter(|_| checks_restart_guard);
    let others = usize::from(beside.is_some()) + usize::from(restart_guard.is_some());
    let keys = args.keys.len() * (1 + script.keys_behind(is_fenced).count()) + others;
    let other_claim = args.other_claim.filter(|_| script.names_other_claim);
    let numbers = script.numbers(is_fenced);
    let arguments = 1 + numbers.clone().count() + usize::from(other_claim.is_some());
    let mut eval = eval(script, out, keys, arguments, by_digest);
    eval = args.keys.iter().fold(eval, CommandEncoder::arg);
    for prefix in script.keys_behind(is_fenced) {
        eval = args.keys.iter().fold(eval, |eval, key| eval.prefixed(prefix, key));
    }
    eval = beside.iter().fold(eval, |eval, key| eval.arg(key));
    eval = restart_guard.into_iter().fold(eval, CommandEncoder::arg).arg(args.token);
    let token = eval.last(args.token);
    eval = numbers.fold(eval, |eval, argument| eval.int(args.number(argument, moves)));
    let _ = other_claim.into_iter().fold(eval, CommandEncoder::arg);
    token
}

/// Begins a script's call with so many keys and arguments.
fn eval<'o>(
    script: &Script,
    out: &'o mut Vec<u8>,
    keys: usize,
    arguments: usize,
    by_digest: bool,
) -> CommandEncoder<'o, Vec<u8>> {
    let eval = command(out, 3 + keys + arguments);
    match by_digest {
        true => eval.encoded(b"\r\n$7\r\nEVALSHA", 1).arg(script.digest.as_bytes()),
        false => eval.arg(b"EVAL").arg(script.text.as_bytes()),
    }
    .int(keys as u64)
}

/// The same for a script of the queue. The token of a ticket is its name.
fn eval_ticket(script: &Script, out: &mut Vec<u8>, args: &Arguments<'_>, by_digest: bool) -> usize {
    let (resource, asks) = (args.keys.first(), script.asks_in_queue());
    let is_fenced = args.counter > 0;
    let behind = script.keys_behind(is_fenced);
    let restart_guard = args.config.restart_guard_key().filter(|_| asks);
    let in_queue = args.in_queue.filter(|_| asks);
    let name = in_queue.map_or_else(|| TicketName::of(args.token), |it| it.ticket);
    let numbers = script.numbers(is_fenced);
    let keys = 5 + behind.clone().count() + usize::from(restart_guard.is_some());
    let arguments = 1 + numbers.clone().count() + usize::from(in_queue.is_some());
    let mut eval = eval(script, out, keys, arguments, by_digest).arg(resource);
    eval = eval.prefixed(STAMPS_PREFIX, resource).prefixed(ENDS_PREFIX, resource);
    eval = eval.prefixed(TICKET_PREFIX, &name.0).prefixed(CALL_PREFIX, resource);
    eval = behind.fold(eval, |eval, prefix| eval.prefixed(prefix, resource));
    eval = restart_guard.into_iter().fold(eval, CommandEncoder::arg).arg(args.token);
    let token = eval.last(args.token);
    eval = numbers.fold(eval, |eval, argument| eval.int(args.number(argument, false)));
    let _ = in_queue.into_iter().fold(eval, |eval, it| eval.arg(&it.ticket.0));
    token
}

impl Script {
    /// The prefixes of the keys behind the resources. `is_fenced`: a counter is proposed.
    fn keys_behind(&self, is_fenced: bool) -> impl Iterator<Item = &'static [u8]> + Clone {
        let fenced: &[_] = if is_fenced { self.fenced_keys } else { &[] };
        self.keys.iter().chain(fenced).copied()
    }

    /// What ARGV has behind the token. `is_fenced`: a counter is proposed.
    fn numbers(&self, is_fenced: bool) -> impl Iterator<Item = Argument> + Clone {
        let fenced: &[_] = if is_fenced { self.fenced_arguments } else { &[] };
        self.arguments.iter().chain(fenced).copied()
    }
}

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
        ("GUARD", _) => {
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
