//! The scripts of the queue of waiters for a resource.
//!
//! As in the Lua text, a ticket is written first, whether or not the request is granted. Times are
//! the node's: stamps in µs, all others in ms.

use super::common::{
    BAD_ARGUMENTS, check_clock, check_restart_guard, counter_to_raise, number, span, token_and_ttl,
};
use super::mark::{CLOSED, NEVER, OUTLIVES_MS, QUEUE_MARK, close, marked, with_mark};
use super::permits::{self, Order, Pair, deny_twin as deny_twin_permit};
use super::shared::{
    Found, MAX_VIEWED, Mode, READER, TOKEN_DIGITS, WRITER, begins_as_a_token, begins_with_digits,
    deny_twin, live_as_long_as_the_last, make_members, odd_from, rehearse_undo, share,
};
use crate::{
    calls::{Answer, CallError, Calls, Stop, caught},
    clock::ClockReading,
    mutants::mutant,
    sharers::Sharers,
};

/// Gives the resource to the head of its queue. Any other request waits.
pub(super) fn acquire_in_queue(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let ask = Ask::read(names, argv)?;
    let (time, stamp, state) = its_turn(calls, &ask)?;
    let counter = raised_counter(calls, &ask)?;
    match ask.shares {
        true => share_in_queue(calls, &ask, state, time.millis(), counter)?,
        false => take_in_queue(calls, &ask, time.millis(), counter)?,
    }
    if mutant!(GrantDropsTicket) {
        calls.zrem(ask.stamps, &ask.me)?;
        calls.zrem(ask.ends, &ask.me)?;
    }
    let reported = counter.map_or(String::new(), |counter| format!(" {counter}"));
    Ok(Answer::StatusLine(format!("OK {stamp}{reported}").into_bytes()))
}

/// Gives a slot to a waiter that is so far in front that there is one for it. Any other request
/// waits.
pub(super) fn acquire_permit_in_queue(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let ask = Ask::read_of_permit(names, argv)?;
    let (time, stamp, state) = its_turn(calls, &ask)?;
    let (keys, order) = ask.slots.as_ref().ok_or(BAD_ARGUMENTS)?;
    let now = time.millis();
    clear_blockers(calls, &ask, state)?;
    if state == State::Free {
        calls.del(keys.ends)?;
    }
    deny_twin_permit(calls, keys, ask.token, number(ask.nodes)?)?;
    let (slot, seen) = match calls.hget(ask.resource, ask.token)? {
        Some(mine) => (mine, Vec::new()),
        None => keys.first_free(calls, order, now)?,
    };
    let fenced = ask.fenced.as_ref().map(|it| (it.counter, it.proposal, it.life_argument));
    let text = keys.give(calls, (ask.token, ask.ttl), &slot, fenced, true, now)?;
    let words = [format!("OK {stamp} ").as_bytes(), &slot, &seen, &text].concat();
    Ok(Answer::StatusLine(words))
}

/// Returns the time, the stamp of the ticket, and the state of the resource, if it is the ticket's
/// turn.
fn its_turn(calls: &mut Calls<'_>, ask: &Ask<'_>) -> Result<(ClockReading, i64, State), Stop> {
    check_restart_guard(calls, ask.restart_guard)?;
    let time = calls.time()?;
    if let Some(fenced) = &ask.fenced {
        check_clock(fenced.proposal, time.micros())?;
    }
    // Nothing else needs to be checked then: an expired ticket would get the same place again.
    let (stamp, state) = match has_its_turn(calls, ask)? {
        true => (ask.stamp, State::Free),
        false => wait_in_queue(calls, ask, time)?,
    };
    Ok((time, stamp, state))
}

/// Returns true if the ticket is at its place and the head, and the resource is closed.
fn has_its_turn(calls: &mut Calls<'_>, ask: &Ask<'_>) -> Result<bool, Stop> {
    if ask.stamp == 0 {
        return Ok(false);
    }
    let first = calls.zrange(ask.stamps)?.and_then(|members| members.iter().next());
    if mutant!(ClosedIsAnybodys) && first.is_some() {
        return Ok(matches!(calls.get(ask.resource), Ok(Some(value)) if value == CLOSED));
    }
    if first != Some((&ask.me, ask.stamp)) {
        return Ok(false);
    }
    Ok(matches!(calls.get(ask.resource), Ok(Some(value)) if value == CLOSED))
}

/// Writes the ticket. Unless it is the head and nothing blocks it, the script ends with the reply
/// to wait.
fn wait_in_queue(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    time: ClockReading,
) -> Result<(i64, State), Stop> {
    let (stamp, others) = join_queue(calls, ask, time)?;
    let mut way = read_blockers(calls, ask.resource, time.millis())?;
    if let Some((keys, order)) = &ask.slots {
        read_slots(calls, keys, order.permits, &mut way, time.millis())?;
    }
    let before = match others {
        true => call_the_first(calls, ask, &way, time.millis())?,
        false => Before::default(),
    };
    // A waiter in front of a reader waits for the readers to leave.
    let left = match ask.mode {
        b's' if before.count == 0 => way.beside,
        b'p' if !before.has_other => way.open,
        _ => way.alone,
    };
    if before.count == 0 && left == 0 {
        return Ok((stamp, way.state));
    }
    mark_blockers(calls, ask.resource, &way, time.millis())?;
    let line = format!("WAIT {left} {stamp} {}", before.count);
    let nearest = before.nearest();
    let pinged = before.pinged.map(|grace| grace.to_string());
    if pinged.is_some() {
        calls.pexpireat(ask.resource, time.millis() + way.alone + OUTLIVES_MS)?;
    }
    let words = [line.as_bytes(), &nearest, before.last(1)];
    let words = words.into_iter().chain(pinged.as_ref().map(|grace| grace.as_bytes()));
    Err(Stop::Answered(Answer::StatusLine(words.collect::<Vec<_>>().join(&b' '))))
}

/// Removes a ticket from the queue. If the queue is empty then, the resource is as if there had
/// been none.
pub(super) fn leave_queue(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, stamps, ends, ticket, call], &[name]) = (names, argv) else {
        return Err(BAD_ARGUMENTS);
    };
    let now = calls.time()?.millis();
    let found = Answer::Int(calls.zrem(stamps, name)?.into());
    if calls.zcard(stamps)? > 0 {
        calls.zrem(ends, name)?;
        calls.del(ticket)?;
        // Expired tickets must not keep the resource marked.
        drop_dead_tickets(calls, [stamps, ends, ticket], now)?;
        if calls.zcard(stamps)? > 0 {
            return Ok(found);
        }
    }
    calls.del_all(&[ends, ticket, call])?;
    let value = caught(calls.get(resource).map(|value| value.map(<[u8]>::to_vec)))?;
    match value {
        None => unmark(calls, resource)?,
        Some(Some(value)) if value == CLOSED => drop(calls.del(resource)?),
        Some(Some(value)) if begins_with_digits(&value) => match marked(&value) {
            // A valid holder gets back its TTL, without the additional time of the mark.
            Some((token, ends)) if ends > now => calls.set_for(resource, token, ends - now)?,
            Some(_) => drop(calls.del(resource)?),
            None => {}
        },
        Some(_) => {}
    }
    Ok(found)
}

/// Reports the queue, in lines: the number of tickets, the way in which the resource is kept for
/// them, the time for which the head has been called, and the first tickets.
pub(super) fn view_queue(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource, stamps, ends, call] = names else { return Err(BAD_ARGUMENTS) };
    let time = calls.time()?;
    let now = time.millis();
    let found = calls.zrange(stamps).map_err(CallError::answer)?;
    let found = found.into_iter().flat_map(Sharers::iter).take(MOST_READ);
    let found: Vec<_> = found.map(|(name, stamp)| (name.to_vec(), stamp)).collect();
    let (mut shown, mut lines) = (Vec::new(), Vec::new());
    for (name, stamp) in found {
        let left = calls.zscore(ends, &name)?.unwrap_or(0) - now;
        if left <= 0 || shown.len() == MAX_VIEWED {
            continue;
        }
        // No ticket is this long, so another program wrote the set.
        if name.len() > LONGEST_TICKET {
            return Ok(Answer::Bulk(Vec::new()));
        }
        let waits = (time.micros().cast_signed() - stamp).max(0) / 1_000;
        lines.push(b'\n');
        lines.extend_from_slice(&name);
        lines.extend_from_slice(format!(" {stamp} {waits} {left}").as_bytes());
        shown.push(name);
    }
    let called = calls.get(call)?.and_then(read_call);
    let called = called.filter(|(_, whom)| shown.first() == Some(whom));
    let since = called.map_or(-1, |(since, _)| (now - since).max(0));
    let kept = kept(calls, resource, number(argv.first())?, now)?;
    let count = calls.zcount(ends, now)?;
    let head = format!("{count} {kept} {since}").into_bytes();
    Ok(Answer::Bulk([head, lines].concat()))
}

/// Returns the way in which a resource is kept for the queue.
fn kept(
    calls: &mut Calls<'_>,
    resource: &[u8],
    last: usize,
    now: i64,
) -> Result<&'static str, Stop> {
    let value = calls.getrange(resource, last).map(<[u8]>::to_vec);
    let Some(value) = caught(value)? else {
        let kind = calls.kind(resource)?;
        if kind == "hash" && permits::is_marked(calls, resource)? {
            let is_held = calls.pttl(resource)? > OUTLIVES_MS;
            return Ok(if is_held { "marked" } else { "closed" });
        }
        if kind != "zset" || calls.zscore(resource, QUEUE_MARK)? != Some(NEVER) {
            return Ok("open");
        }
        return Ok(if calls.zcount(resource, now)? > 0 { "marked" } else { "closed" });
    };
    if value == CLOSED {
        return Ok("closed");
    }
    Ok(match marked(&value).filter(|_| begins_with_digits(&value)) {
        Some((_, ends)) if ends > now => "marked",
        Some(_) => "closed",
        None => "open",
    })
}

fn unmark(calls: &mut Calls<'_>, resource: &[u8]) -> Result<(), Stop> {
    let (kind, left) = (calls.kind(resource)?, calls.pttl(resource)?);
    // No script of the queue writes a resource without a TTL.
    if left == -1 {
        return Ok(());
    }
    if mutant!(MarkStays) && kind == "hash" {
        return Ok(());
    }
    if mutant!(MarkOutlives) && kind == "hash" {
        return calls.hdel(resource, &[QUEUE_MARK]).map(drop).map_err(Stop::from);
    }
    if kind == "hash" && permits::is_marked(calls, resource)? {
        calls.pexpire(resource, left - OUTLIVES_MS)?;
        calls.hdel(resource, &[QUEUE_MARK])?;
        return Ok(());
    }
    if kind == "zset"
        && is_ours(calls, resource)?
        && calls.zscore(resource, QUEUE_MARK)? == Some(NEVER)
    {
        calls.zrem(resource, QUEUE_MARK)?;
        live_as_long_as_the_last(calls, resource)?;
    }
    Ok(())
}

/// Returns true if the members of a sorted set are holders.
fn is_ours(calls: &mut Calls<'_>, resource: &[u8]) -> Result<bool, Stop> {
    let first = calls.zrange(resource)?.and_then(|members| members.iter().next());
    Ok(first
        .is_some_and(|(name, end)| begins_as_a_token(name) || (name, end) == (QUEUE_MARK, NEVER)))
}

/// A request in the queue, parsed from its words.
struct Ask<'a> {
    resource: &'a [u8],
    stamps: &'a [u8],
    ends: &'a [u8],
    ticket: &'a [u8],
    call: &'a [u8],
    restart_guard: Option<&'a &'a [u8]>,
    token: &'a [u8],
    ttl: i64,
    nodes: Option<&'a &'a [u8]>,
    stamp: i64,
    proposal: i64,
    fenced: Option<Fenced<'a>>,
    /// The ticket's name on this node.
    me: Vec<u8>,
    mode: u8,
    shares: bool,
    /// The semaphore's keys and the order in which its slots are searched, for a permit.
    slots: Option<(Pair<'a>, Order)>,
}

struct Fenced<'a> {
    counter: &'a [u8],
    proposal: u64,
    life: i64,
    life_argument: Option<&'a &'a [u8]>,
    least_kept: u64,
}

impl<'a> Ask<'a> {
    fn read(names: &'a [&'a [u8]], argv: &'a [&'a [u8]]) -> Result<Self, Stop> {
        let rest = names.get(5..).unwrap_or_default();
        let (fenced, restart_guard) = match (argv.len(), rest) {
            (WORDS, rest) => (None, rest.first()),
            (FENCED_WORDS, &[counter, ref rest @ ..]) => {
                let (proposal, life) = (number(argv.get(6))?, span(argv.get(7))?);
                let (life_argument, least_kept) = (argv.get(7), number(argv.get(8))?);
                (Some(Fenced { counter, proposal, life, life_argument, least_kept }), rest.first())
            }
            _ => return Err(BAD_ARGUMENTS),
        };
        Ok(Self { fenced, restart_guard, ..Self::common(names, argv)? })
    }

    /// Parses the words that every kind of request has.
    fn common(names: &'a [&'a [u8]], argv: &'a [&'a [u8]]) -> Result<Self, Stop> {
        let &[resource, stamps, ends, ticket, call, ..] = names else {
            return Err(BAD_ARGUMENTS);
        };
        let (token, ttl) = token_and_ttl(argv)?;
        // As a token, a ticket has another name on each node.
        let node = token.get(TOKEN_DIGITS - 2..TOKEN_DIGITS).unwrap_or_default();
        let name = argv[argv.len() - 1];
        let label = token.get(TOKEN_DIGITS..).unwrap_or_default();
        let me = [name, node, b":", argv[5], label].concat();
        Ok(Self {
            resource,
            stamps,
            ends,
            ticket,
            call,
            restart_guard: None,
            token,
            ttl,
            nodes: argv.get(2),
            stamp: number(argv.get(3))?,
            proposal: number(argv.get(4))?,
            fenced: None,
            mode: me.first().copied().unwrap_or_default(),
            shares: me.first() == Some(&b's'),
            me,
            slots: None,
        })
    }

    /// Parses a request for a permit, which has additional keys and arguments in between.
    fn read_of_permit(names: &'a [&'a [u8]], argv: &'a [&'a [u8]]) -> Result<Self, Stop> {
        let &[resource, _, _, _, _, ends, ref rest @ ..] = names else { return Err(BAD_ARGUMENTS) };
        let (fenced, restart_guard) = match (argv.len(), rest) {
            (PERMIT_WORDS, rest) => (None, rest.first()),
            (FENCED_PERMIT_WORDS, &[counter, ref rest @ ..]) => {
                let (proposal, life_argument) = (number(argv.get(9))?, argv.get(10));
                let life = span(life_argument)?;
                (
                    Some(Fenced { counter, proposal, life, life_argument, least_kept: 0 }),
                    rest.first(),
                )
            }
            _ => return Err(BAD_ARGUMENTS),
        };
        let order = Order::new(&argv[6..9])?;
        let slots = Some((Pair { resource, ends }, order));
        Ok(Self { fenced, restart_guard, slots, ..Self::common(names, argv)? })
    }
}

/// Removes expired tickets. The last of `keys` is the requester's ticket.
fn drop_dead_tickets(calls: &mut Calls<'_>, keys: [&[u8]; 3], now: i64) -> Result<(), Stop> {
    for dead in calls.zrangebyscore_until(keys[1], now)?.into_iter().take(MOST_AT_ONCE) {
        remove_ticket(calls, keys, &dead)?;
    }
    Ok(())
}

/// Removes a ticket with its own key, which notifies the two waiters behind it.
fn remove_ticket(
    calls: &mut Calls<'_>,
    [stamps, ends, ticket]: [&[u8]; 3],
    of: &[u8],
) -> Result<(), Stop> {
    calls.zrem(stamps, of)?;
    calls.zrem(ends, of)?;
    let prefix = &ticket[..ticket.len().saturating_sub(NAME_DIGITS)];
    let name = &of[..of.len().min(NAME_DIGITS)];
    calls.del(&[prefix, name].concat())?;
    Ok(())
}

/// Writes the ticket at its place. Returns its stamp, and whether there may be other tickets.
fn join_queue(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    time: ClockReading,
) -> Result<(i64, bool), Stop> {
    let live = time.millis() + TICKET_MS;
    // This is called first, or the set could be left without a TTL. It succeeds only if there are
    // tickets already.
    let others = calls.pexpireat(ask.stamps, live)?;
    if others {
        drop_dead_tickets(calls, [ask.stamps, ask.ends, ask.ticket], time.millis())?;
    }
    let stands_at = match (ask.stamp, others) {
        (0, true) => calls.zscore(ask.stamps, &ask.me)?.unwrap_or(0),
        (stamp, _) => stamp,
    };
    let is_new = stands_at == 0;
    let stamp = if is_new { behind_all(calls, ask, others, time)? } else { stands_at };
    let has_moved = calls.zadd(ask.stamps, stamp, &ask.me)?;
    calls.zadd(ask.ends, live, &ask.me)?;
    calls.pexpireat(ask.stamps, live)?;
    calls.pexpireat(ask.ends, live)?;
    // The waiters behind this one watch the key, so it must not expire before the ticket.
    if has_moved || calls.pttl(ask.ticket)? < OUTLIVES_MS {
        calls.set_for(ask.ticket, stamp.to_string().as_bytes(), 2 * TICKET_MS)?;
    }
    Ok((stamp, others))
}

/// Returns the stamp of a new ticket.
fn behind_all(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    others: bool,
    time: ClockReading,
) -> Result<i64, Stop> {
    if mutant!(StampOfClientsClock) {
        return Ok(ask.proposal);
    }
    let members = if others { calls.zrange(ask.stamps)? } else { None };
    let last = members.and_then(|members| members.iter().next_back()).map_or(0, |(_, at)| at);
    // A client whose clock is far ahead must not push later stamps into the future.
    let latest = time.micros().cast_signed() + FARTHEST_AHEAD_US;
    Ok(ask.proposal.min(latest).max(last + 1))
}

/// The state of a resource, for waiters in the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Token,
    Set,
    Permits,
    Marked,
    Other,
}

/// The times for which a resource blocks an exclusive waiter (`alone`) and a reader, in ms: 0 for
/// not at all, -1 without end.
struct Way {
    state: State,
    value: Option<Vec<u8>>,
    left: i64,
    alone: i64,
    beside: i64,
    /// The time for which it blocks a waiter for a permit that has only such waiters in front, and
    /// the number of waiters for which there is room.
    open: i64,
    room: usize,
    is_semaphore: bool,
}

impl Way {
    fn of(state: State, left: i64, alone: i64) -> Self {
        Self {
            state,
            value: None,
            left,
            alone,
            beside: alone,
            open: alone,
            room: 1,
            is_semaphore: false,
        }
    }
}

fn read_blockers(calls: &mut Calls<'_>, resource: &[u8], now: i64) -> Result<Way, Stop> {
    let value = calls.get(resource).map(|value| value.map(<[u8]>::to_vec));
    let left = match value {
        Ok(None) => NO_KEY,
        _ => calls.pttl(resource)?,
    };
    // The key still exists in its last millisecond, but a wait of 0 ms would mean that nothing
    // blocks.
    let left = if left == 0 { 1 } else { left };
    let mut value = caught(value)?;
    if let Some(Some(bytes)) = &mut value
        && left > 0
        && bytes.strip_prefix(READER).is_some_and(begins_with_digits)
        && !bytes.iter().any(u8::is_ascii_control)
    {
        // Other readers can join a set, but not a string.
        let lone = Found::String(std::mem::take(bytes));
        make_members(calls, resource, &lone, |mode, _| mode == Mode::Reader)?;
        value = caught(calls.get(resource).map(|value| value.map(<[u8]>::to_vec)))?;
    }
    let way = |state, alone| Way::of(state, left, alone);
    let Some(value) = value else {
        let kind = if left > 0 { calls.kind(resource)? } else { "" };
        return match kind {
            "hash" if calls.hexists(resource, permits::MARK)? => {
                let is_marked = calls.hexists(resource, QUEUE_MARK)?;
                let alone = if is_marked { (left - OUTLIVES_MS).max(0) } else { left };
                let state = match (is_marked, alone) {
                    (_, 0) => State::Free,
                    (true, _) => State::Marked,
                    (false, _) => State::Permits,
                };
                Ok(Way { is_semaphore: true, ..way(state, alone) })
            }
            "zset" if is_ours(calls, resource)? => read_set(calls, resource, now, left),
            _ => Ok(way(State::Other, left)),
        };
    };
    let Some(value) = value.filter(|value| value != CLOSED) else {
        // The value of a closed key is the only one that stays unchanged.
        let value = (left != NO_KEY).then(|| CLOSED.to_vec());
        return Ok(Way { value, ..way(State::Free, 0) });
    };
    let ends = marked(&value).filter(|_| begins_with_digits(&value)).map(|(_, ends)| ends);
    let found = match ends {
        Some(ends) if ends > now => way(State::Marked, ends - now),
        Some(_) => way(State::Free, 0),
        None if left > 0 && is_token(&value) => way(State::Token, left),
        None => way(State::Other, left),
    };
    Ok(Way { value: Some(value), ..found })
}

fn read_set(calls: &mut Calls<'_>, resource: &[u8], now: i64, left: i64) -> Result<Way, Stop> {
    // Expired readers must not count as blockers.
    calls.zremrangebyscore(resource, now)?;
    let found = calls.zrange(resource)?;
    let members: Vec<_> = found.into_iter().flat_map(|members| members.iter()).collect();
    let (is_marked, holders) = match members.split_last() {
        Some((&(QUEUE_MARK, _), holders)) => (true, holders),
        _ => (false, &members[..]),
    };
    let (state, alone) = match holders.last() {
        Some((_, end)) => (if is_marked { State::Marked } else { State::Set }, end - now),
        None => (State::Free, 0),
    };
    // At most its own two claims can be next to a writer, so it is among the first members.
    let has_writer = members.iter().take(4).any(|(name, _)| name.starts_with(WRITER));
    Ok(Way { beside: if has_writer { alone } else { 0 }, ..Way::of(state, left, alone) })
}

/// Reads which slots are free, and removes expired holders.
fn read_slots(
    calls: &mut Calls<'_>,
    keys: &Pair<'_>,
    permits: u64,
    way: &mut Way,
    now: i64,
) -> Result<(), Stop> {
    (way.open, way.room) = (way.alone, permits as usize);
    if !way.is_semaphore || way.alone == 0 {
        return Ok(());
    }
    if mutant!(EndedPermitCounts) && calls.zcard(keys.ends)? >= way.room {
        way.room = 1;
        return Ok(());
    }
    keys.drop_ended(calls, now)?;
    let held = calls.zcard(keys.ends)?;
    if held == 0 {
        (way.state, way.alone, way.open) = (State::Free, 0, 0);
    } else if held < way.room {
        (way.open, way.room) = (0, way.room - held);
    } else {
        // The holder that ends first makes room for one waiter.
        let first = calls.zrange(keys.ends)?.and_then(|all| all.iter().next());
        (way.open, way.room) = (first.map_or(0, |(_, end)| end - now), 1);
    }
    Ok(())
}

/// Returns true if a value consists of digits, and perhaps a label behind a colon.
fn is_token(value: &[u8]) -> bool {
    let label = value.get(TOKEN_DIGITS..).unwrap_or_default();
    let is_label = label.len() > 1 && label[0] == b':' && !label.iter().any(u8::is_ascii_control);
    begins_with_digits(value) && (label.is_empty() || is_label)
}

/// The tickets before a ticket with which it cannot share the resource.
#[derive(Default)]
struct Before {
    count: usize,
    /// At most the last two, the nearest first.
    nearest: Vec<Vec<u8>>,
    /// True if one of them does not want a permit.
    has_other: bool,
    /// The ms for which the head, if called, may still come.
    rest: Option<i64>,
    /// The ms for which the nearest may still send a request, if this request has pinged it.
    pinged: Option<i64>,
}

impl Before {
    /// Returns the nearest ticket without its label, with the rest of a call in place of its grace.
    fn nearest(&self) -> Vec<u8> {
        let last = self.last(0);
        let name = last.split(|&byte| byte == b':').next().unwrap_or_default();
        match self.rest {
            Some(rest) => [name, format!(":{rest}").as_bytes()].concat(),
            None => last.to_vec(),
        }
    }

    /// Returns a ticket without its label.
    fn last(&self, at: usize) -> &[u8] {
        let Some(name) = self.nearest.get(at) else { return b"-" };
        let mut colons = name.iter().enumerate().filter(|(_, byte)| **byte == b':');
        colons.nth(1).map_or(name, |(end, _)| &name[..end])
    }
}

fn who_stands_before(calls: &mut Calls<'_>, ask: &Ask<'_>, room: usize) -> Result<Before, Stop> {
    let rank = calls.zrank(ask.stamps, &ask.me)?.unwrap_or(0);
    if rank == 0 {
        return Ok(Before::default());
    }
    let members = calls.zrange(ask.stamps)?.into_iter().flat_map(|members| members.iter());
    let from = rank.saturating_sub(if ask.mode == b'x' { 2 } else { FARTHEST_READ_BACK });
    let all: Vec<_> = members.map(|(name, _)| name).take(rank).skip(from).collect();
    // The farthest ticket that is read stands for those before it, which are not read.
    let excludes = |&(at, name): &(usize, &[u8])| {
        from > 0 && at == 0 || ask.mode == b'x' || name.first() != Some(&ask.mode)
    };
    let others = all.iter().copied().enumerate().filter(excludes).map(|(_, name)| name);
    let others: Vec<_> = others.collect();
    let has_other = !others.is_empty();
    if mutant!(PermitPassesPermits) && ask.mode == b'p' && !has_other {
        return Ok(Before::default());
    }
    if mutant!(PermitPassesOthers) && ask.mode == b'p' && rank < room {
        return Ok(Before::default());
    }
    let are_permits = others.iter().all(|name| name.starts_with(b"p"));
    if mutant!(PermitsArePassed) && are_permits && ask.mode != b'p' {
        return Ok(Before::default());
    }
    let (count, who) = match ask.mode {
        b'p' if !has_other && rank >= room => (rank - room + 1, all),
        _ if has_other => (from + others.len(), others),
        _ => (0, others),
    };
    let nearest = who.iter().rev().take(2).map(|name| name.to_vec()).collect();
    Ok(Before { count, nearest, has_other, ..Before::default() })
}

/// Calls the head if nothing blocks it, and removes it if it does not come.
fn call_the_first(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    way: &Way,
    now: i64,
) -> Result<Before, Stop> {
    let mut called = calls.get(ask.call)?.and_then(read_call);
    let is_blocked = |whom: &[u8]| match ask.mode == b'p' && whom.starts_with(b"p") {
        true => way.open != 0,
        false => way.alone != 0,
    };
    // A call ends when the called waiter asks, or when it is blocked again.
    let mut is_over = called.as_ref().is_some_and(|(_, whom)| is_blocked(whom) || *whom == ask.me);
    if mutant!(CallsStay) {
        is_over = false;
    }
    if is_over {
        calls.del(ask.call)?;
        called = None;
    }
    let mut before = Before::default();
    // One request can remove several heads that do not come.
    for _ in 0..MOST_AT_ONCE {
        before = who_stands_before(calls, ask, way.room)?;
        if before.count == 0 {
            break;
        }
        let first = calls.zrange(ask.stamps)?.and_then(|members| members.iter().next());
        let head = first.map(|(name, _)| name.to_vec()).unwrap_or_default();
        if mutant!(CalledOnlyAlone) && way.alone != 0 {
            break;
        }
        if is_blocked(&head) {
            let is_only_obstacle = match ask.mode {
                b's' => way.beside == 0,
                b'p' => way.open == 0 && before.has_other,
                _ => false,
            };
            // Only the waiter in front blocks the requester, so it has to show that it is alive.
            if is_only_obstacle {
                before.pinged = ping(calls, ask, &before, now)?;
            }
            break;
        }
        // A call from the future was made before the node's clock was set back.
        let is_valid = |(since, whom): &&(i64, Vec<u8>)| *whom == head && *since <= now;
        let mut since = called.as_ref().filter(is_valid).map(|(since, _)| *since);
        if mutant!(CallFromFuture) {
            since = called.as_ref().filter(|(_, whom)| *whom == head).map(|(since, _)| *since);
        }
        let mut grace = grace_of(&head);
        if mutant!(GraceOfAsker) {
            grace = grace_of(&ask.me);
        }
        let Some(since) = since else {
            let text = [format!("{now} ").as_bytes(), &head].concat();
            calls.set_for(ask.call, &text, OUTLIVES_MS)?;
            before.rest = Some(grace);
            break;
        };
        if now - since <= grace {
            before.rest = Some(grace - (now - since));
            break;
        }
        remove_ticket(calls, [ask.stamps, ask.ends, ask.ticket], &head)?;
    }
    Ok(before)
}

/// Lets the nearest ticket in front of the requester expire after its grace, unless its owner sends
/// a request by then or has sent one within the last 500 ms. Returns the grace if this request has
/// done so.
fn ping(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    before: &Before,
    now: i64,
) -> Result<Option<i64>, Stop> {
    let Some(nearest) = before.nearest.first() else { return Ok(None) };
    if mutant!(NobodyPings) {
        return Ok(None);
    }
    let grace = grace_of(nearest);
    let left = calls.zscore(ask.ends, nearest)?.map_or(i64::MAX, |ends| ends - now);
    // An end too far ahead was written before the node's clock was set back. A near one needs no
    // ping.
    let is_due = left > TICKET_MS || left <= TICKET_MS - PINGED_AFTER_MS && left > grace;
    if is_due {
        calls.zadd(ask.ends, now + grace, nearest)?;
    }
    Ok(is_due.then_some(grace))
}

/// Reads a call: its time, and the called ticket.
fn read_call(value: &[u8]) -> Option<(i64, Vec<u8>)> {
    let at = value.iter().position(|&byte| byte == b' ')?;
    let (digits, whom) = (&value[..at], &value[at + 1..]);
    let is_call = digits.iter().all(u8::is_ascii_digit) && !whom.is_empty();
    let since = str::from_utf8(digits).ok().filter(|_| is_call)?.parse().ok()?;
    Some((since, whom.to_vec()))
}

/// Returns the grace in a ticket's name, which is between two colons, or behind the only one.
fn grace_of(ticket: &[u8]) -> i64 {
    let rest = ticket.get(TICKET_DIGITS..).unwrap_or_default();
    let digits = rest.split(|&byte| byte == b':').next();
    let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Marks a held resource, so that clients outside the queue see that there is one. Existing marks
/// stay unchanged.
fn mark_blockers(calls: &mut Calls<'_>, resource: &[u8], way: &Way, now: i64) -> Result<(), Stop> {
    let value = way.value.as_deref().unwrap_or_default();
    if mutant!(HoldersUnmarked) && matches!(way.state, State::Token | State::Set) {
        return Ok(());
    }
    if mutant!(AskLeavesFree) && way.state == State::Free {
        return Ok(());
    }
    if mutant!(ExpiryLeavesFree) && way.state == State::Token {
        let left = calls.pttl(resource)?;
        let text = with_mark(value, calls.time()?.millis() + left);
        return Ok(calls.set_for(resource, &text, left)?);
    }
    if mutant!(PermitsUnmarked) && way.state == State::Permits {
        return Ok(());
    }
    match way.state {
        State::Token => {
            let left = calls.pttl(resource)?;
            let text = with_mark(value, calls.time()?.millis() + left);
            calls.set_for(resource, &text, left + OUTLIVES_MS)?;
        }
        State::Set => {
            calls.zadd(resource, NEVER, QUEUE_MARK)?;
            calls.pexpireat(resource, now + way.alone + OUTLIVES_MS)?;
        }
        State::Permits => {
            calls.hset(resource, &[(QUEUE_MARK, b"1")])?;
            calls.pexpireat(resource, now + way.alone + OUTLIVES_MS)?;
        }
        // A closed key is written again only if it would expire before the ticket.
        State::Free if value != CLOSED || way.left < TICKET_MS => close(calls, resource)?,
        State::Free | State::Marked | State::Other => {}
    }
    Ok(())
}

/// Returns the value that the fencing counter will have.
fn raised_counter(calls: &mut Calls<'_>, ask: &Ask<'_>) -> Result<Option<u64>, Stop> {
    let Some(fenced) = &ask.fenced else { return Ok(None) };
    let count = counter_to_raise(calls, fenced.counter)?.floor();
    if ask.shares {
        return Ok(Some(odd_from(count, fenced.proposal, fenced.least_kept)));
    }
    let next = match count >= fenced.proposal as f64 {
        true => count as u64 + 1,
        false => fenced.proposal,
    };
    // Odd numbers are the readers'.
    Ok(Some(next.next_multiple_of(2)))
}

fn set_counter(calls: &mut Calls<'_>, ask: &Ask<'_>, counter: Option<u64>) -> Result<(), Stop> {
    if let (Some(fenced), Some(counter)) = (&ask.fenced, counter) {
        calls.set_for(fenced.counter, counter.to_string().as_bytes(), fenced.life)?;
    }
    Ok(())
}

/// Deletes a closed key. The commands that an undo needs are called before anything is written, on
/// a key that does not exist.
fn clear_blockers(calls: &mut Calls<'_>, ask: &Ask<'_>, state: State) -> Result<(), Stop> {
    let gone = if state == State::Free { ask.resource } else { ask.call };
    calls.del(gone)?;
    Ok(calls.set_if_there(gone, b"", 1).map(drop)?)
}

fn share_in_queue(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    state: State,
    now: i64,
    counter: Option<u64>,
) -> Result<(), Stop> {
    clear_blockers(calls, ask, state)?;
    rehearse_undo(calls, ask.resource, now)?;
    deny_twin(calls, ask.resource, ask.token, ask.nodes)?;
    set_counter(calls, ask, counter)?;
    // The ticket stays until the waiter leaves the queue, so the resource is marked at once.
    calls.zadd(ask.resource, NEVER, QUEUE_MARK)?;
    share(calls, ask.resource, ask.token, now, ask.ttl)
}

fn take_in_queue(
    calls: &mut Calls<'_>,
    ask: &Ask<'_>,
    now: i64,
    counter: Option<u64>,
) -> Result<(), Stop> {
    calls.del(ask.resource)?;
    set_counter(calls, ask, counter)?;
    let text = with_mark(ask.token, now + ask.ttl);
    Ok(calls.set_for(ask.resource, &text, ask.ttl + OUTLIVES_MS)?)
}

/// The lifetime of a ticket after its last request.
const TICKET_MS: i64 = 6_000;
/// The maximum time by which a proposed stamp may be ahead of the node's clock.
const FARTHEST_AHEAD_US: i64 = 5_000_000;
/// The maximum number of expired tickets that are removed at once.
const MOST_AT_ONCE: usize = 64;
/// The maximum number of tickets that are read for a view.
const MOST_READ: usize = 80;
/// The number of tickets before its own that a reader or a waiter for a permit has read.
const FARTHEST_READ_BACK: usize = 128;
/// The maximum length of a ticket, in bytes.
const LONGEST_TICKET: usize = 200;
/// The length of a ticket's name before its grace: the mode, 34 digits and a colon.
const TICKET_DIGITS: usize = 36;
/// The length of the part that the name of the ticket's key has: the mode and 32 digits.
const NAME_DIGITS: usize = 33;
/// A ticket whose owner has asked within this time is not pinged.
const PINGED_AFTER_MS: i64 = 500;
/// The PTTL of a key that does not exist.
const NO_KEY: i64 = -2;
/// The number of words of a request, its token first, without and with a fencing counter.
const WORDS: usize = 7;
const FENCED_WORDS: usize = 10;
/// The numbers of words of a request for a permit.
const PERMIT_WORDS: usize = 10;
const FENCED_PERMIT_WORDS: usize = 12;

#[cfg(test)]
mod tests {
    use super::super::{exclusive, mode_change, shared};
    use super::*;
    use crate::{
        denial::Denials,
        keys::{Entries, Keys},
        script::Model,
    };

    /// A resource and its queue, at a time that only the test moves.
    #[derive(Default)]
    struct Bench {
        entries: Entries,
        ms: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { ms: START, ..Self::default() }
        }

        fn keys(&mut self) -> Keys<'_> {
            Keys::new(&mut self.entries, ClockReading::from_millis(self.ms))
        }

        fn at(&mut self, after_ms: u64) -> &mut Self {
            self.ms = START + after_ms;
            self
        }

        fn run(&mut self, script: Model, names: &[&[u8]], argv: &[&str]) -> String {
            let argv: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
            match script(&mut Calls::new(self.keys(), &Denials::default()), names, &argv) {
                Ok(Answer::StatusLine(line)) | Err(Stop::Answered(Answer::StatusLine(line))) => {
                    String::from_utf8(line).unwrap()
                }
                Ok(Answer::Int(number)) | Err(Stop::Answered(Answer::Int(number))) => {
                    number.to_string()
                }
                Ok(Answer::Status(word)) => word.to_owned(),
                other => panic!("{other:?}"),
            }
        }

        /// Sends a request for the ticket, for 10 ms and with a grace of 3 ms.
        fn ask(&mut self, ticket: &str) -> String {
            let (mode, name) = ticket.split_at(1);
            let digits = name.repeat(32);
            let argv = [&token(name), "10", "3", "0", "7", "3", &format!("{mode}{digits}")]
                .map(str::to_owned);
            self.run(acquire_in_queue, &NAMES, &argv.each_ref().map(String::as_str))
        }

        fn leave(&mut self, ticket: &str) -> String {
            self.run(leave_queue, &NAMES, &[&member(ticket)])
        }

        fn undo(&mut self, name: &str) -> String {
            self.run(exclusive::undo, &NAMES[..1], &[&token(name)])
        }

        /// Returns the value of the resource, and its TTL in ms.
        fn value(&mut self) -> (String, i64) {
            let left = self.keys().pttl(b"r");
            let mut keys = self.keys();
            let value = keys.bytes(b"r").map(|value| value.unwrap_or(b"-").to_vec());
            let value = value.unwrap_or_else(|_| b"set".to_vec());
            (String::from_utf8(value).unwrap(), left)
        }

        fn ticket_ends(&mut self) -> i64 {
            [b"l", b"e"].map(|key| self.keys().pttl(key)).into_iter().max().unwrap()
        }
    }

    fn token(name: &str) -> String {
        format!("{}00", name.repeat(32))
    }

    fn member(ticket: &str) -> String {
        format!("{}{}00:3", &ticket[..1], ticket[1..].repeat(32))
    }

    fn marked_until(name: &str, after_ms: u64) -> String {
        format!("{}\n{}", token(name), START + after_ms)
    }

    #[test]
    fn expired_holders_block_all_but_the_first_in_the_queue() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("xa"), "OK 7");
        assert_eq!(bench.value(), (marked_until("a", 10), 8_010));
        assert_eq!(bench.at(9).ask("xb"), format!("WAIT 1 8 1 {} -", member("xa")));
        assert_eq!(bench.leave("xa"), "1");
        assert_eq!(bench.value(), (marked_until("a", 10), 8_001), "b waits");
        let extend = [&token("a"), "50"];
        let names = &NAMES[..1];
        bench.at(10);
        assert_eq!(bench.run(exclusive::extend, names, &extend), "0");
        assert_eq!(bench.run(mode_change::extend_downgraded, names, &extend), "0");
        let ask = [&token("c"), "50", "3"];
        assert_eq!(bench.run(shared::acquire_shared, names, &ask), "8000");
        let downgrade = [&token("c"), "50", "3", &"a".repeat(32)];
        assert_eq!(bench.run(mode_change::downgrade, names, &downgrade), "8000");
        assert_eq!(bench.value().0, marked_until("a", 10), "it is as it was");
        assert_eq!(bench.ask("xc"), format!("WAIT 0 9 1 {} -", member("xb")));
        assert_eq!(bench.value(), ("\nredbolt".into(), 8_000), "it is closed");
        assert_eq!(bench.ask("xb"), "OK 8");
    }

    #[test]
    fn the_last_ticket_removes_the_mark_and_restores_the_ttl() {
        let mut bench = Bench::new();
        bench.keys().set_for(b"r", token("a").as_bytes(), 50);
        assert_eq!(bench.ask("xb"), "WAIT 50 7 0 - -");
        assert_eq!(bench.value(), (marked_until("a", 50), 8_050));
        assert_eq!(bench.at(20).leave("xb"), "1");
        assert_eq!(bench.value(), (token("a"), 30));
        assert_eq!(bench.ask("sb"), "WAIT 30 7 0 - -");
        assert_eq!(bench.undo("a"), "1");
        assert_eq!(bench.value(), ("\nredbolt".into(), 8_000));
        assert_eq!(bench.leave("sb"), "1");
        assert_eq!(bench.value(), ("-".into(), -2));
        assert_eq!(bench.ticket_ends(), -2);
    }

    #[test]
    fn a_marked_set_outlives_its_last_reader_by_8_s() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("sa"), "OK 7");
        assert_eq!(bench.at(5).ask("sb"), "OK 8");
        assert_eq!(bench.value(), ("set".into(), 8_010));
        let undo =
            |bench: &mut Bench, name| bench.run(shared::undo_shared, &NAMES[..1], &[&token(name)]);
        assert_eq!(undo(&mut bench, "b"), "1");
        assert_eq!(bench.value(), ("set".into(), 8_005));
        assert_eq!(bench.ask("xc"), "WAIT 5 9 2 ".to_owned() + &member("sb") + " " + &member("sa"));
        assert_eq!(undo(&mut bench, "a"), "1");
        assert_eq!(bench.value(), ("\nredbolt".into(), 8_000));
    }

    #[test]
    fn a_closed_key_is_written_again_only_if_it_would_expire() {
        let mut bench = Bench::new();
        bench.ask("xa");
        bench.undo("a");
        for (after, left, rest) in [(2_000, 6_000, 3), (2_001, 8_000, 2)] {
            let waits = format!("WAIT 0 8 1 x{}00:{rest} -", "a".repeat(32));
            assert_eq!(bench.at(after).ask("xb"), waits);
            assert_eq!(bench.value(), ("\nredbolt".into(), left));
        }
    }

    #[test]
    fn a_called_head_that_does_not_come_loses_its_place_after_its_grace() {
        let mut bench = Bench::new();
        bench.ask("xa");
        bench.undo("a");
        let waits = |rest: u32| format!("WAIT 0 8 1 x{}00:{rest} -", "a".repeat(32));
        assert_eq!(bench.ask("xb"), waits(3), "it is called");
        assert_eq!(bench.at(2).ask("xb"), waits(1), "1 ms of 3 is left");
        assert_eq!(bench.at(3).ask("xb"), waits(0), "it has 3 ms");
        assert_eq!(bench.at(4).ask("xb"), "OK 8");
        assert_eq!(bench.ask("xa"), format!("WAIT 10 9 1 {} -", member("xb")), "behind all others");
    }

    #[test]
    fn a_call_or_request_from_the_future_precedes_a_clock_that_was_set_back() {
        let mut bench = Bench::new();
        bench.at(60_000).ask("xa");
        bench.undo("a");
        let waits = |rest: u32| format!("WAIT 0 8 1 x{}00:{rest} -", "a".repeat(32));
        assert_eq!(bench.ask("xb"), waits(3), "it is called");
        assert_eq!(bench.at(10).ask("xb"), waits(3), "it is called again");
        assert_eq!(bench.at(14).ask("xb"), "OK 8");

        let mut bench = Bench::new();
        bench.at(60_000).ask("sa");
        bench.ask("xb");
        let rest = bench.at(10).ask("sc");
        assert!(rest.ends_with(&format!(" 9 1 {} - 3", member("xb"))), "it is pinged: {rest}");
        assert_eq!(bench.at(13).ask("sc"), "OK 9");
    }

    #[test]
    fn a_writer_that_waits_for_readers_has_to_answer_a_ping_within_its_grace() {
        let mut bench = Bench::new();
        bench.ask("sa");
        bench.ask("xb");
        let share = |bench: &mut Bench| {
            let argv = [&token("a"), "9000", "3"];
            bench.run(shared::extend_shared, &NAMES[..1], &argv[..2]);
            bench.ask("sc")
        };
        assert!(!share(bench.at(5)).ends_with(" - 3"), "it has asked");
        assert!(share(bench.at(500)).ends_with(" - 3"), "it is pinged");
        assert!(!share(bench.at(501)).ends_with(" - 3"), "it is pinged once");
        bench.at(502).ask("xb");
        assert!(share(bench.at(504)).starts_with("WAIT "), "it has answered");
        assert!(share(bench.at(1_002)).ends_with(" - 3"), "it is pinged again");
        assert_eq!(share(bench.at(1_005)), "OK 9", "it has not answered");
    }

    #[test]
    fn a_ticket_expires_6_s_after_its_last_request() {
        let mut bench = Bench::new();
        bench.ask("xa");
        bench.undo("a");
        bench.at(3_000).ask("xb");
        assert_eq!(bench.ticket_ends(), 6_000);
        assert_eq!(bench.at(5_999).leave("xc"), "0");
        assert_eq!(bench.keys().sharers(b"l").unwrap().unwrap().len(), 2);
        assert_eq!(bench.at(6_000).ask("xb"), "OK 8", "the other is dead");
    }

    #[test]
    fn a_value_that_is_not_a_token_is_foreign() {
        let digits = token("a");
        for (value, is_ours) in [
            (digits.clone(), true),
            (format!("{digits}:web-1"), true),
            (format!("{digits}x"), false),
            (format!("{digits}:"), false),
            (format!("{digits}:a\tb"), false),
            (digits[1..].to_owned(), false),
            (format!("{}g0", &digits[2..]), false),
        ] {
            let mut bench = Bench::new();
            bench.keys().set_for(b"r", value.as_bytes(), 50);
            assert_eq!(bench.ask("xb"), "WAIT 50 7 0 - -");
            assert_eq!(bench.value().0 != value, is_ours, "{value:?}");
        }
    }

    const NAMES: [&[u8]; 5] = [b"r", b"l", b"e", b"w", b"n"];
    /// The start of each test, in Unix ms.
    const START: u64 = 1_767_225_600_000;
}
