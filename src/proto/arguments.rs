//! The arguments of commands, and the encoding of commands with them.

use super::config::Config;
use super::fair_queue::{CALL_PREFIX, ENDS_PREFIX, InQueue, STAMPS_PREFIX, TICKET_PREFIX};
use super::keys::Keys;
use super::lock_kind::{Command, CompareAndDelete};
use super::names::TicketName;
use super::permits::SlotOrder;
use super::script::definition::{Argument, Script};
use super::script::own::{ACQUIRE_PERMIT, UNDO};
use super::{fence, time};
use crate::resp::{CommandEncoder, command};

#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) keys: &'a Keys,
    pub(super) token: &'a [u8],
    /// The TTL in ms, or 0 for a command without one.
    pub(super) ttl_ms: u64,
    /// The value of the fencing counters that is proposed or written; 0 without a fencing token.
    pub(super) counter: u64,
    /// The configuration: the number of nodes, and the restart guard's key, if there is one.
    pub(super) config: &'a Config,
    pub(super) slots: SlotOrder,
    pub(super) slot: u64,
    /// The beginning of the token of the holder's other claim, for a command that names it.
    pub(super) other_claim: Option<&'a [u8]>,
    pub(super) in_queue: Option<&'a InQueue>,
}

impl Arguments<'_> {
    /// Returns the value of a number in ARGV. `moves`: the permit is moved to another slot.
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
    /// Encodes the command, and returns the position of its token in `out`.
    pub(super) fn encode(self, out: &mut Vec<u8>, args: &Arguments<'_>, by_digest: bool) -> usize {
        match self {
            Self::SetIfAbsent => {
                let set = command(out, 6).encoded(b"\r\n$3\r\nSET", 1);
                let set = set.arg(args.keys.first()).arg(args.token);
                let token = set.last(args.token);
                let _ = set.encoded(b"\r\n$2\r\nNX\r\n$2\r\nPX", 2).int(args.ttl_ms);
                // After the request: a read before it would miss a FLUSHALL between the two
                // (docs/how-it-works/guard.md).
                if let Some(restart_guard) = args.config.restart_guard_key() {
                    let _ = command(out, 2).encoded(b"\r\n$4\r\nPTTL", 1).arg(restart_guard);
                }
                token
            }
            // The undo of a plain lock is frequent, so it has a shorter path.
            Self::Run(script) if by_digest && *script == UNDO && args.keys.len() == 1 => {
                eval(script, out, 1, 1, by_digest)
                    .arg(args.keys.first())
                    .arg(args.token)
                    .last(args.token)
            }
            Self::Run(script) if script.is_in_queue() => eval_ticket(script, out, args, by_digest),
            Self::Run(script) => run(script, out, args, by_digest, false),
            Self::Move => run(&ACQUIRE_PERMIT, out, args, by_digest, true),
            Self::Delete(how) => how.encode(out, args.keys.first(), args.token),
        }
    }
}

impl CompareAndDelete {
    /// Encodes the command, and returns the position of the value in `out`.
    fn encode(self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> usize {
        let delete = match self {
            Self::DelEx => command(out, 4).arg(b"DELEX").arg(key).arg(b"IFEQ"),
            Self::DelIfEq => command(out, 3).arg(b"DELIFEQ").arg(key),
        };
        delete.arg(value).last(value)
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
    // KEYS: resources, their other keys, one more key, guard. ARGV: token, numbers, other claim.
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

/// Begins a script's call with these numbers of keys and arguments.
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

/// Encodes the call of a script of the queue. The token of a ticket is its name.
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
    // The order of KEYS and ARGV is that of ACQUIRE_IN_QUEUE in fair_queue.lua.
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
    /// Returns the prefixes of the keys that follow the resources. `is_fenced`: a counter is
    /// proposed.
    fn keys_behind(&self, is_fenced: bool) -> impl Iterator<Item = &'static [u8]> + Clone {
        let fenced: &[_] = if is_fenced { self.fenced_keys } else { &[] };
        self.keys.iter().chain(fenced).copied()
    }

    /// Returns the arguments that follow the token in ARGV. `is_fenced`: a counter is proposed.
    fn numbers(&self, is_fenced: bool) -> impl Iterator<Item = Argument> + Clone {
        let fenced: &[_] = if is_fenced { self.fenced_arguments } else { &[] };
        self.arguments.iter().chain(fenced).copied()
    }
}
