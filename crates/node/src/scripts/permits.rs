//! The scripts of semaphores: a resource is a hash of its permits, and a sorted set has the end of
//! each holder. Times are the node's, in ms. A holder has expired at its end; the keys exist
//! through their last millisecond.

use super::common::{
    Argument, BAD_ARGUMENTS, BAD_COUNTER, check_clock, check_restart_guard, lua_number, number,
    span, token_and_ttl,
};
use super::mark::{OUTLIVES_MS, QUEUE_MARK, close};
use super::shared::twins;
use crate::{
    calls::{Answer, CallError, Calls, Stop, caught},
    mutants::mutant,
    reply::decimal,
};

use redbolt::proto::fence::MAX_TOKEN;

/// Gives a token the requested slot or any free one, if the restart guard lets the node vote and
/// the key holds nothing else.
pub(super) fn acquire_permit(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let proposal = argv.get(6).map(|_| number::<u64>(argv.get(6))).transpose()?;
    let behind = if proposal.is_some() { 3 } else { 2 };
    let Some((&[resource, ends, ref counters @ ..], restart_guard)) =
        names.split_at_checked(behind)
    else {
        return Err(BAD_ARGUMENTS);
    };
    let order = Order::new(argv.get(3..).unwrap_or_default())?;
    let mut guard = restart_guard.first();
    if mutant!(HealUnguarded) && order.step == 0 {
        guard = None;
    }
    check_restart_guard(calls, guard)?;
    let (is_there, is_marked) = deny_unless_permits(calls, resource, order.step == 0)?;
    let clock = calls.time()?;
    let now = clock.millis();
    if let Some(proposal) = proposal {
        check_clock(proposal, clock.micros())?;
    }
    let keys = Pair { resource, ends };
    // One key can be lost without the other. What is left must not block a slot.
    if !is_there || calls.zcard(ends)? == 0 {
        calls.del_all(&[resource, ends])?;
    }
    keys.drop_ended(calls, now)?;
    deny_twin(calls, &keys, token, number(argv.get(2))?)?;
    let mine = calls.hget(resource, token)?;
    let (slot, seen) = match (order.step, mine.clone()) {
        (0, mine) => (keys.wanted(calls, argv[4], token, mine.is_some(), now)?, Vec::new()),
        (_, Some(mine)) => (mine, Vec::new()),
        (_, None) => keys.first_free(calls, &order, now)?,
    };
    let fenced = proposal.map(|proposal| (counters[0], proposal, argv.get(7)));
    let text = keys.give(calls, (token, ttl), &slot, fenced, is_marked, now)?;
    // After a move the previous slot is free.
    if let Some(mine) = mine.filter(|mine| *mine != slot) {
        calls.hdel(resource, &[&mine])?;
    }
    Ok(Answer::StatusLine([b"OK ", slot.as_slice(), &seen, &text].concat()))
}

/// Extends a holder's slot to at least this TTL. Never shortens anything.
pub(super) fn extend_permit(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let &[resource, ends] = names else { return Err(BAD_ARGUMENTS) };
    let slot = argv.get(2).ok_or(BAD_ARGUMENTS)?;
    let keys = Pair { resource, ends };
    let mut slot = slot.to_vec();
    if mutant!(ExtensionOfAnySlot) {
        slot = caught(calls.hget(resource, token))?.flatten().unwrap_or(slot);
    }
    let Some((end, now)) = keys.read_mine(calls, token, &slot)? else { return Ok(Answer::Int(0)) };
    let later = now.saturating_add(ttl);
    if later > end {
        calls.zadd(ends, later, token)?;
        keys.live_as_long_as_the_last(calls)?;
    }
    Ok(Answer::Int(1))
}

/// Removes the holder's slot, whichever it is.
pub(super) fn undo_permit(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, ends], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if mutant!(UndoBySlot) {
        return Pair { resource, ends }.undo_by_slot(calls, token);
    }
    let Some(slot) = caught(calls.hget(resource, token))? else { return Ok(Answer::Int(0)) };
    let removed = calls.zrem(ends, token)?;
    let Some(slot) = slot else { return Ok(Answer::Int(i64::from(removed))) };
    let found = calls.hdel(resource, &[token, &slot])?;
    Pair { resource, ends }.live_as_long_as_the_last(calls)?;
    // Each slot has two fields: one named by the token and one by the slot.
    Ok(Answer::Int(found / 2))
}

/// Raises the counter of the holder's slot to at least the given value.
pub(super) fn write_back_permit(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, ends, counters], &[token, least, _, slot]) = (names, argv) else {
        return Err(BAD_ARGUMENTS);
    };
    let (target, life) = (number::<u64>(argv.get(1))?, span(argv.get(2))?);
    let keys = Pair { resource, ends };
    if mutant!(WriteBackUnowned) {
        let now = calls.time()?.millis();
        write_slot_counter(calls, counters, slot, least, now, life)?;
        return Ok(Answer::Int(1));
    }
    let Some((_, now)) = keys.read_mine(calls, token, slot)? else { return Ok(Answer::Int(0)) };
    let count = slot_counter(calls, counters, slot)?.filter(|&count| count <= MAX_TOKEN as f64);
    if count.ok_or(BAD_COUNTER)? < target as f64 {
        write_slot_counter(calls, counters, slot, least, now, life)?;
    }
    Ok(Answer::Int(1))
}

/// Reports the number of holders, and those that end first.
pub(super) fn view_permits(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource, ends] = names else { return Err(BAD_ARGUMENTS) };
    let most = number(argv.first())?;
    let now = calls.time()?.millis();
    match calls.hexists(resource, MARK) {
        Ok(true) => {}
        Ok(false) => return view_other(calls, resource, most),
        Err(error) => return Err(error.answer()),
    }
    let found = calls.zrangebyscore(ends, now)?;
    let mut text = calls.zcount(ends, now)?.to_string().into_bytes();
    for (name, end) in found.into_iter().take(most) {
        let Some(slot) = calls.hget(resource, &name)? else {
            return Ok(Answer::Bulk(Vec::new()));
        };
        // No slot or token is this long, so another program wrote the hash.
        if slot.len() > 5 || name.len() > LONGEST_NAME {
            return Ok(Answer::Bulk(Vec::new()));
        }
        text.push(b'\n');
        decimal(&mut text, (end - now).cast_unsigned());
        text.push(b' ');
        text.extend_from_slice(&slot);
        text.push(b' ');
        text.extend_from_slice(&name);
    }
    Ok(Answer::Bulk(text))
}

/// Reports the content of a hash that is not a semaphore, if it is small.
fn view_other(calls: &mut Calls<'_>, resource: &[u8], most: usize) -> Result<Answer, Stop> {
    if calls.hlen(resource)? > most {
        return Ok(Answer::Bulk(Vec::new()));
    }
    let fields = calls.hgetall(resource)?;
    let is_long = |[name, value]: &[Vec<u8>; 2]| name.len() > 165 || value.len() > 20;
    if fields.iter().any(is_long) {
        return Ok(Answer::Bulk(Vec::new()));
    }
    let line = |[name, value]: [Vec<u8>; 2]| [b"\n", &value[..], b" ", &name].concat();
    let lines = fields.into_iter().flat_map(line);
    Ok(Answer::Bulk(b"hash".iter().copied().chain(lines).collect()))
}

/// The order in which a request searches for a free slot.
pub(super) struct Order {
    pub(super) permits: u64,
    first: u64,
    /// 0 for a request for the first slot and no other.
    step: u64,
}

impl Order {
    pub(super) fn new(words: &[&[u8]]) -> Result<Self, Stop> {
        let (permits, first) = (number(words.first())?, number(words.get(1))?);
        let step = number(words.get(2))?;
        if permits == 0 { Err(BAD_ARGUMENTS) } else { Ok(Self { permits, first, step }) }
    }

    fn slot(&self, place: u64) -> Vec<u8> {
        ((self.first + place * self.step) % self.permits).to_string().into_bytes()
    }
}

/// The two keys of a semaphore.
pub(super) struct Pair<'n> {
    pub(super) resource: &'n [u8],
    pub(super) ends: &'n [u8],
}

/// The hash of the slots' counters, the proposal for one of them, and its lifetime.
pub(super) type SlotCounter<'a> = (&'a [u8], u64, Argument<'a>);

impl Pair<'_> {
    pub(super) fn drop_ended(&self, calls: &mut Calls<'_>, now: i64) -> Result<(), Stop> {
        for token in calls.zrangebyscore_until(self.ends, now)? {
            self.drop_token(calls, &token)?;
        }
        Ok(())
    }

    /// Removes the slots of these holders. Returns the number of holders that had one.
    pub(super) fn remove(&self, calls: &mut Calls<'_>, tokens: &[&[u8]]) -> Result<i64, Stop> {
        let mut count = 0;
        for token in tokens {
            if let Some(slot) = calls.hget(self.resource, token)? {
                count += 1;
                calls.hdel(self.resource, &[token, &slot])?;
            }
            calls.zrem(self.ends, token)?;
        }
        if count > 0 {
            self.live_as_long_as_the_last(calls)?;
        }
        Ok(count)
    }

    fn drop_token(&self, calls: &mut Calls<'_>, token: &[u8]) -> Result<(), CallError> {
        if let Some(slot) = calls.hget(self.resource, token)? {
            calls.hdel(self.resource, &[token, &slot])?;
        }
        calls.zrem(self.ends, token)?;
        Ok(())
    }

    /// Returns the wanted slot. If it is taken, the slot that the token had is freed and the
    /// request is denied.
    fn wanted(
        &self,
        calls: &mut Calls<'_>,
        slot: &[u8],
        token: &[u8],
        has_one: bool,
        now: i64,
    ) -> Result<Vec<u8>, Stop> {
        let Some(taken) = calls.hget(self.resource, slot)?.filter(|taken| taken != token) else {
            return Ok(slot.to_vec());
        };
        if has_one {
            self.drop_token(calls, token)?;
            self.live_as_long_as_the_last(calls)?;
        }
        let end = calls.zscore(self.ends, &taken)?.unwrap_or(now);
        Err(Stop::Answered(Answer::Int((end - now).min(LONGEST_WAIT))))
    }

    /// Returns the first free slot, and the other free ones among the 64 places around it.
    pub(super) fn first_free(
        &self,
        calls: &mut Calls<'_>,
        order: &Order,
        now: i64,
    ) -> Result<(Vec<u8>, Vec<u8>), Stop> {
        if (calls.zcard(self.ends)? as u64) < order.permits {
            for part in 0..order.permits.div_ceil(PART) {
                let places = part * PART..(part * PART + PART).min(order.permits);
                let slots: Vec<_> = places.map(|place| order.slot(place)).collect();
                let taken = calls.hmget(self.resource, &slots)?;
                let Some(first) = taken.iter().position(|taken| !taken) else { continue };
                let mut seen = format!(" {part} ").into_bytes();
                for four in taken.chunks(4) {
                    let bits = four.iter().zip([1, 2, 4, 8]).filter(|(taken, _)| !**taken);
                    let digit: u8 = bits.map(|(_, bit)| bit).sum();
                    seen.extend(format!("{digit:x}").bytes());
                }
                return Ok((slots[first].clone(), seen));
            }
        }
        let first = calls.zrange(self.ends)?.and_then(|all| all.iter().next());
        let left = first.map_or(0, |(_, end)| (end - now).min(LONGEST_WAIT));
        Err(Stop::Answered(Answer::Int(left)))
    }

    /// Removes a slot, for a planted bug: the client names the slot that it was given, and not
    /// itself.
    fn undo_by_slot(&self, calls: &mut Calls<'_>, token: &[u8]) -> Result<Answer, Stop> {
        let named = calls.get(&[b"slot-of:", token].concat())?.map(<[u8]>::to_vec);
        let slot = named.unwrap_or_default();
        let Some(holder) = caught(calls.hget(self.resource, &slot))?.flatten() else {
            return Ok(Answer::Int(0));
        };
        self.drop_token(calls, &holder)?;
        self.live_as_long_as_the_last(calls)?;
        Ok(Answer::Int(1))
    }

    fn rehearse_undo(&self, calls: &mut Calls<'_>, now: i64) -> Result<(), Stop> {
        calls.hdel(self.resource, &[b""])?;
        calls.zrem(self.ends, b"")?;
        calls.hexists(self.resource, QUEUE_MARK)?;
        let last = self.last(calls)?.unwrap_or(now);
        calls.pexpireat(self.ends, last)?;
        calls.pexpireat(self.resource, last)?;
        Ok(())
    }

    /// Gives a slot and returns its counter, if it is fenced.
    pub(super) fn give(
        &self,
        calls: &mut Calls<'_>,
        (token, ttl): (&[u8], i64),
        slot: &[u8],
        fenced: Option<SlotCounter<'_>>,
        marks: bool,
        now: i64,
    ) -> Result<Vec<u8>, Stop> {
        self.rehearse_undo(calls, now)?;
        let mut text = Vec::new();
        if let Some((counters, proposal, life)) = fenced {
            text.push(b' ');
            decimal(&mut text, raise_slot(calls, counters, slot, proposal, life, now)?);
        }
        // A repeated request must not shorten what an extension gave.
        let before = calls.zscore(self.ends, token)?.unwrap_or_default();
        if mutant!(UndoBySlot) {
            calls.set_for(&[b"slot-of:", token].concat(), slot, 60_000)?;
        }
        calls.zadd(self.ends, before.max(now.saturating_add(ttl)), token)?;
        let last = self.last(calls)?.ok_or(BAD_ARGUMENTS)?;
        calls.pexpireat(self.ends, last)?;
        calls.hset(self.resource, &[(MARK, b"1"), (slot, token), (token, slot)])?;
        if marks {
            calls.hset(self.resource, &[(QUEUE_MARK, b"1")])?;
        }
        calls.pexpireat(self.resource, last + if marks { OUTLIVES_MS } else { 0 })?;
        Ok(text)
    }

    fn live_as_long_as_the_last(&self, calls: &mut Calls<'_>) -> Result<(), Stop> {
        let last = self.last(calls)?;
        let is_marked = calls.hexists(self.resource, QUEUE_MARK)?;
        if mutant!(MarkedNotClosed) && last.is_none() {
            return calls.del(self.resource).map(drop).map_err(Stop::from);
        }
        match last {
            Some(last) => {
                calls.pexpireat(self.ends, last)?;
                calls.pexpireat(self.resource, last + if is_marked { OUTLIVES_MS } else { 0 })?;
            }
            None if is_marked => {
                calls.del(self.resource)?;
                close(calls, self.resource)?;
            }
            // This is the last field, so the key ends with it.
            None => drop(calls.hdel(self.resource, &[MARK])?),
        }
        Ok(())
    }

    fn last(&self, calls: &mut Calls<'_>) -> Result<Option<i64>, Stop> {
        Ok(calls.zrange(self.ends)?.and_then(|all| all.iter().next_back()).map(|(_, end)| end))
    }

    /// Returns the end of this slot's holder and the time, or `None` if the token does not have the
    /// slot.
    fn read_mine(
        &self,
        calls: &mut Calls<'_>,
        token: &[u8],
        slot: &[u8],
    ) -> Result<Option<(i64, i64)>, Stop> {
        let found = caught(calls.hget(self.resource, token))?.flatten();
        if found.as_deref() != Some(slot) {
            return Ok(None);
        }
        let now = calls.time()?.millis();
        let end = calls.zscore(self.ends, token)?;
        Ok(end.filter(|&end| end > now).map(|end| (end, now)))
    }
}

/// Returns whether there is a semaphore, and whether it is marked. Any other data denies, and a
/// mark denies requests that are not moves.
fn deny_unless_permits(
    calls: &mut Calls<'_>,
    resource: &[u8],
    moves: bool,
) -> Result<(bool, bool), Stop> {
    let kind = calls.kind(resource)?;
    if kind == "none" {
        return Ok((false, false));
    }
    let left = calls.pttl(resource)?;
    if kind != "hash" || left == -1 || !calls.hexists(resource, MARK)? {
        return Err(Stop::Answered(Answer::Int(left)));
    }
    let is_marked = calls.hexists(resource, QUEUE_MARK)?;
    if mutant!(MarkIgnored) {
        return Ok((true, is_marked));
    }
    if is_marked && !moves {
        return Err(Stop::Answered(Answer::Int(left)));
    }
    Ok((true, is_marked))
}

/// Denies a request of a client that has asked this server as another node.
pub(super) fn deny_twin(
    calls: &mut Calls<'_>,
    keys: &Pair<'_>,
    token: &[u8],
    nodes: u64,
) -> Result<(), Stop> {
    for twin in twins(token, nodes) {
        if twin != token && calls.zscore(keys.ends, &twin)?.is_some() {
            return Err(Stop::Answered(Answer::Int(calls.pttl(keys.resource)?)));
        }
    }
    Ok(())
}

fn raise_slot(
    calls: &mut Calls<'_>,
    counters: &[u8],
    slot: &[u8],
    proposal: u64,
    life: Argument<'_>,
    now: i64,
) -> Result<u64, Stop> {
    let life = span(life)?;
    let count = slot_counter(calls, counters, slot)?;
    let count = count.filter(|&count| count < (MAX_TOKEN - 1) as f64).ok_or(BAD_COUNTER)?;
    let raised = if count >= proposal as f64 { count.floor() + 1.0 } else { proposal as f64 };
    let raised = (raised as u64).next_multiple_of(2);
    write_slot_counter(calls, counters, slot, raised.to_string().as_bytes(), now, life)?;
    Ok(raised)
}

fn slot_counter(calls: &mut Calls<'_>, counters: &[u8], slot: &[u8]) -> Result<Option<f64>, Stop> {
    match calls.hget(counters, slot)? {
        None => Ok(Some(0.0)),
        Some(text) => Ok(lua_number(&text)),
    }
}

fn write_slot_counter(
    calls: &mut Calls<'_>,
    counters: &[u8],
    slot: &[u8],
    value: &[u8],
    now: i64,
    life: i64,
) -> Result<(), Stop> {
    let lives = calls.pttl(counters)? >= life;
    let until = now.saturating_add(life);
    if !lives {
        calls.pexpireat(counters, until)?;
    }
    calls.hset(counters, &[(slot, value)])?;
    if !lives {
        calls.pexpireat(counters, until)?;
    }
    Ok(())
}

/// Returns true if a hash is a semaphore with waiters in its queue.
pub(super) fn is_marked(calls: &mut Calls<'_>, resource: &[u8]) -> Result<bool, Stop> {
    let (is_ours, is_marked) =
        (calls.hexists(resource, MARK)?, calls.hexists(resource, QUEUE_MARK)?);
    Ok(is_ours && is_marked)
}

/// The maximum time that a denial reports, in ms.
const LONGEST_WAIT: i64 = MAX_TOKEN.cast_signed();
/// The field of every semaphore.
pub(super) const MARK: &[u8] = b"redbolt";
const PART: u64 = 64;
/// The length of a token, a colon, and the longest label.
const LONGEST_NAME: usize = 163;
