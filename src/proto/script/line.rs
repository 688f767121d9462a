//! The scripts of the line: those who wait for a resource stand in it, on each node.
//!
//! A ticket is a member of two sorted sets, by its stamp in `redbolt:line:` and by when it ends in `redbolt:line-until:`. Its
//! name is the mode of the lock, `x` for exclusive, `s` for shared and `p` for a permit, 32 random digits and the two of the
//! node, as in a token, behind a colon its grace in ms, and behind another the label of its owner's token, if that has one. A key of its own, `redbolt:line-wait:` and the name up to the node's
//! digits, holds its stamp and goes when it goes, which tells those behind it when it is not before them any longer.
//!
//! Whoever is not in line must not pass those who are, and asks with `SET NX`. So what lies at a resource for which
//! somebody waits is *marked*: a token is followed by a line feed and the ms at which its holder ends, and among those who
//! share is the member `line`, as is the field among those who have permits. Whoever shares alone is made a set first. What is marked outlives its holders by 8 s, and what ends them leaves a *closed* key,
//! which holds `redbolt` behind a line feed: it is nobody's, denies every `SET NX`, and is taken by the first in line
//! alone. Where nobody is left in line, what is marked is not any longer, and a closed key goes.
//!
//! Those who share come in together, and of those who want permits as many as there are free slots.
//!
//! A line only denies. So it may be lost or wrong without harm to exclusion. Not here: how waiters agree on one order, see
//! `proto::line`.

/// Checks the restart guard, which is at one of the two places `$guard` of KEYS, and the counter `c` that ARGV proposes at
/// `$counter`. It does, and the guard is at the first place, where ARGV has the TTL of counters at `$ttl`. From then on `me` is the
/// ticket.
macro_rules! begin_in_line {
    ($guard:literal, $counter:literal, $ttl:literal) => {
        concat!(
            "local guard = KEYS[ARGV[",
            $ttl,
            "] and ",
            $guard,
            "] ",
            check_restart_guard!(),
            read_clock_ms!(),
            "local us = time[1] * 1000000 + time[2] \
             local c = ARGV[",
            $ttl,
            "] and tonumber(ARGV[",
            $counter,
            "]) \
             if c and math.abs(c - us) > 5000000 then \
             return redis.status_reply(string.format('CLOCK %.0f', us)) end \
             local me = ARGV[#ARGV] .. string.sub(ARGV[1], 33, 34) .. ':' .. ARGV[6] .. string.sub(ARGV[1], 35) "
        )
    };
}

/// Removes the ticket `$of` with its own key, which notifies the two waiters behind it.
macro_rules! remove_ticket {
    ($of:literal) => {
        concat!(
            "redis.call('ZREM', KEYS[2], ",
            $of,
            ") redis.call('ZREM', KEYS[3], ",
            $of,
            ") redis.call('DEL', string.sub(KEYS[4], 1, -34) .. string.sub(",
            $of,
            ", 1, 33)) "
        )
    };
}

/// Removes expired tickets. A ticket that has expired in one of the two sets has expired.
macro_rules! drop_dead_tickets {
    () => {
        concat!(
            "for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 64)) do ",
            remove_ticket!("dead"),
            "end "
        )
    };
}

/// Goes on unless the ticket stands first at the stamp ARGV\[4\] and the resource is closed, as it is where a release has
/// called whoever is first: nothing else need be looked at then. Were its time over, it would be put back there.
macro_rules! unless_its_turn_has_come {
    () => {
        "local state, stamp = 'free', ARGV[4] \
         local head = stamp ~= '0' and redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES') or {} \
         if head[1] ~= me or head[2] ~= stamp or redis.pcall('GET', KEYS[1]) ~= '\\nredbolt' then "
    };
}

/// Puts the ticket `me` at its place, before anything else is looked at: where the waiter says, and otherwise where it
/// stands or behind all others. That a set may be given an end is seen first, or it would have none. Whether `others` stand
/// there, as far as is known.
macro_rules! stand_in_line {
    () => {
        concat!(
            "local live = string.format('%.0f', now + 6000) \
             local others = redis.call('PEXPIREAT', KEYS[2], live) == 1 \
             if others then ",
            drop_dead_tickets!(),
            "end \
             stamp = tonumber(stamp) \
             if stamp == 0 and others then stamp = tonumber(redis.call('ZSCORE', KEYS[2], me) or 0) end \
             if stamp == 0 then \
             local last = others and redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0 \
             stamp = math.max(last + 1, math.min(tonumber(ARGV[5]), us + 5000000)) \
             end \
             stamp = string.format('%.0f', stamp) \
             local has_moved = redis.call('ZADD', KEYS[2], 'CH', stamp, me) == 1 \
             redis.call('ZADD', KEYS[3], live, me) \
             redis.call('PEXPIREAT', KEYS[2], live) \
             redis.call('PEXPIREAT', KEYS[3], live) \
             if has_moved or redis.call('PTTL', KEYS[4]) < 8000 then redis.call('SET', KEYS[4], stamp, 'PX', 12000) end "
        )
    };
}

/// Goes on where the sorted set at the resource is one of those who share it, and not another's.
macro_rules! if_it_is_a_set_of_ours {
    () => {
        "local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES') \
         local name = string.gsub(first[1], '^w:', '') \
         if string.find(name, '^' .. string.rep('%x', 34)) or name == 'line' and first[2] == 'inf' then "
    };
}

/// What lies at the resource, as `state`: `free` for those in line, a `token` of ours, a `set` of those who share, a hash of
/// `permits`, any of them `marked`, or `other` data. For how many ms it is in the way of who wants the resource `alone`, and of who wants it
/// `beside` those who share: 0 for not at all, -1 without end.
macro_rules! look_at_the_way {
    () => {
        concat!(
            "local v = redis.pcall('GET', KEYS[1]) \
             local t = v and redis.call('PTTL', KEYS[1]) or -2 \
             if t == 0 then t = 1 end \
             if t > 0 and type(v) == 'string' and string.find(v, '^r:' .. string.rep('%x', 34) .. '%C*$') then ",
            make_members!("true", "false"),
            "v = redis.pcall('GET', KEYS[1]) \
             end \
             local digits = '^' .. string.rep('%x', 34) \
             local alone, beside, kind = 0, 0, nil \
             if type(v) == 'table' then \
             if not string.find(v.err, '^WRONGTYPE') then return v end \
             state, alone, beside = 'other', t, t \
             kind = t > 0 and redis.call('TYPE', KEYS[1]).ok \
             if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'redbolt') == 1 then \
             state = 'permits' \
             if redis.call('HEXISTS', KEYS[1], 'line') == 1 then state, alone = 'marked', math.max(t - 8000, 0) end \
             if alone == 0 then state = 'free' end \
             beside = alone \
             elseif kind == 'zset' then ",
            if_it_is_a_set_of_ours!(),
            "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) \
             local tail = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES') \
             local last = tail[#tail] \
             state, beside = 'set', 0 \
             if tail[#tail - 1] == 'line' then state, last = 'marked', tail[3] and tail[2] end \
             if last then alone = last - now else state, alone = 'free', 0 end \
             for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, 3)) do \
             if string.sub(member, 1, 2) == 'w:' then beside = alone end \
             end \
             end \
             end \
             elseif v and v ~= '\\nredbolt' then \
             local ends = string.match(v, digits .. '%C*\\n(%d+)$') \
             if ends then \
             alone = math.max(ends - now, 0) \
             if alone > 0 then state = 'marked' end \
             else \
             alone = t \
             local is_token = string.find(v, digits .. '$') or string.find(v, digits .. ':%C+$') \
             state = t > 0 and is_token and 'token' or 'other' \
             end \
             beside = alone \
             end "
        )
    };
}

/// Reads the `$back` tickets before `me`, or all if there are fewer, as `all`. Counts as `before` those that the lock cannot be held
/// alongside, which is the expression `$excludes` of the ticket's `mode`, with the nearest two as `last` and `last_but_one`.
///
/// The request of a reader or for a permit must not cost a node time in proportion to its place, so tickets farther ahead are
/// not read. They count as in the way: the waiter is told to wait for the farthest ticket that was read.
macro_rules! look_back {
    ($back:literal, $excludes:literal) => {
        concat!(
            "before, last, last_but_one = 0, '-', '-' \
             local rank = redis.call('ZRANK', KEYS[2], me) \
             local from = math.max(rank - ",
            $back,
            ", 0) \
             local all = rank > 0 and redis.call('ZRANGE', KEYS[2], from, rank - 1) or {} \
             for i, other in ipairs(all) do \
             local mode = string.sub(other, 1, 1) \
             if from > 0 and i == 1 or ",
            $excludes,
            " then before, last, last_but_one = before + 1, other, last end \
             end \
             if before > 0 then before = before + from end "
        )
    };
}

/// Tickets in the way of a reader are those of other modes, and in the way of a writer all.
macro_rules! look_who_stands_before {
    () => {
        look_back!("(shares and 128 or 2)", "not shares or mode ~= 's'")
    };
}

/// Tickets in the way of a permit are those of other modes, and otherwise as many permits as there is no `room` for.
macro_rules! look_for_room {
    () => {
        concat!(
            look_back!("128", "mode ~= 'p'"),
            "left = before > 0 and alone or open \
             if before == 0 and rank >= room then \
             before, last, last_but_one = rank - room + 1, all[rank], all[rank - 1] or '-' \
             end "
        )
    };
}

/// Whoever is first and finds nobody in its way is called, and has the `rest` of its grace. Who was called for longer than that
/// loses its place.
/// Whoever asks while it is called takes its turn, and who finds the lock held ends the call. For how long the `$called` and
/// the `$head` find somebody in their way are expressions. A call from the future was made before the node's clock was set
/// back, and begins anew.
///
/// If holders are in the way of the first, but not of the asker, which is the expression `$mine`, the last ticket before the
/// asker is the only obstacle. It is `pinged`, unless it has asked within the last 500 ms: it expires after its grace unless it
/// asks again.
macro_rules! call_the_first {
    ($look:ident, $called:literal, $head:literal, $mine:literal) => {
        concat!(
            "local before, last, last_but_one, rest, pinged = 0, '-', '-', nil, nil \
             local called, whom = string.match(others and redis.call('GET', KEYS[5]) or '', '^(%d+) (.+)$') \
             if called and (",
            $called,
            " ~= 0 or whom == me) then \
             redis.call('DEL', KEYS[5]) \
             called, whom = nil, nil \
             end \
             for _ = 1, others and 64 or 0 do ",
            $look!(),
            "local head = before > 0 and redis.call('ZRANGE', KEYS[2], 0, 0)[1] \
             if not head then break end \
             if ",
            $head,
            " ~= 0 then \
             if ",
            $mine,
            " then \
             local grace = tonumber(string.match(last, '^%-?%d+', 37) or 0) \
             local left = (redis.call('ZSCORE', KEYS[3], last) or now + 9000) - now \
             if left > 6000 or left <= 5500 and left > grace then \
             redis.call('ZADD', KEYS[3], string.format('%.0f', now + grace), last) \
             pinged = grace \
             end \
             end \
             break \
             end \
             local grace = tonumber(string.match(head, '^%-?%d+', 37) or 0) \
             if whom ~= head or now - called < 0 then \
             redis.call('SET', KEYS[5], string.format('%.0f ', now) .. head, 'PX', 8000) \
             rest = grace \
             break \
             end \
             if now - called <= grace then \
             rest = grace - (now - called) \
             break \
             end \
             ",
            remove_ticket!("head"),
            "end "
        )
    };
}

/// Marks what lies at the resource. What is free is closed.
macro_rules! mark_the_way {
    () => {
        concat!(
            "if state == 'token' then \
             t = redis.call('PTTL', KEYS[1]) ",
            read_clock_again!(),
            "redis.call('SET', KEYS[1], v .. string.format('\\n%.0f', now + t), 'PX', t + 8000) \
             elseif state == 'set' then \
             redis.call('ZADD', KEYS[1], '+inf', 'line') \
             redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + alone + 8000)) \
             elseif state == 'permits' then \
             redis.call('HSET', KEYS[1], 'line', 1) \
             redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + alone + 8000)) \
             elseif state == 'free' and (v ~= '\\nredbolt' or t < 6000) then \
             redis.call('SET', KEYS[1], '\\nredbolt', 'PX', 8000) \
             end "
        )
    };
}

/// Whoever stands behind others, or finds somebody in its way, waits. Of who stands before it the label is not told; with the last
/// of them is the rest of a call, if one is on, in place of its own grace. The owner of a `pinged` ticket is notified: it
/// listens to the resource, whose TTL is set to what it is.
macro_rules! wait_unless_first {
    () => {
        concat!(
            "if before > 0 or left ~= 0 then ",
            mark_the_way!(),
            "local function known(name) return string.match(name, '^[^:]*:?%-?%d*') end \
             last = known(last) \
             if rest then last = string.match(last, '^[^:]*') .. string.format(':%.0f', rest) end \
             if pinged then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + alone + 8000)) end \
             return redis.status_reply(string.format('WAIT %.0f %s %.0f %s %s', \
             left, stamp, before, last, known(last_but_one)) .. (pinged and string.format(' %.0f', pinged) or '')) \
             end "
        )
    };
}

/// Raises the fencing counter, for a lock of either mode, if one is proposed.
macro_rules! raise_counter_in_line {
    () => {
        concat!(
            "local told = '' \
             if c then \
             local i = 6 ",
            read_counter!("< 9007199254740990"),
            "v = math.floor(v) \
             if shares and v >= tonumber(ARGV[9]) and v % 2 == 1 then c = v \
             else \
             if v >= c then c = v + 1 end \
             if c % 2 == (shares and 0 or 1) then c = c + 1 end \
             end \
             told = string.format(' %.0f', c) \
             end "
        )
    };
}

/// Gives the resource KEYS\[1\] to the token ARGV\[1\] for ARGV\[2\] ms if its ticket is the first in line for it, and answers
/// with the status line `OK`, the ticket's stamp and, if it is fenced, the counter. Otherwise the answer is `WAIT`, for
/// how many ms the holders are in the way (0 for not at all, -1 for without end), the stamp, how many stand before it,
/// and the last two of these or `-`. Behind the name of the last is its grace, or if nobody is in the way for how many ms whoever
/// is first may still come. If the last was pinged, its grace follows once more, as a word of its own.
///
/// The ticket's name, up to the node's digits, is the last of ARGV, and ARGV\[6\] its grace. It is put at the stamp
/// ARGV\[4\], and if that is 0 and it has none, behind all others, at the proposal ARGV\[5\] or later, in µs. KEYS are the
/// resource, the two sets of the line, the ticket's own key, the key that says who was called, with ARGV\[7\] to
/// ARGV\[9\] the fencing counter, and the guard, as for [`ACQUIRE_MANY`]. Those three are the proposed value, how many ms
/// the counter lives, and from where on an odd one stays as it is, see [`ACQUIRE_SHARED_FENCED`]. ARGV\[3\] is the number of
/// nodes, as for [`ACQUIRE_SHARED`].
///
/// [`ACQUIRE_MANY`]: super::ACQUIRE_MANY
/// [`ACQUIRE_SHARED`]: super::ACQUIRE_SHARED
/// [`ACQUIRE_SHARED_FENCED`]: super::ACQUIRE_SHARED_FENCED
pub const ACQUIRE_IN_LINE: &str = concat!(
    begin_in_line!("7 or 6", 7, 8),
    "local shares = string.sub(me, 1, 1) == 's' ",
    unless_its_turn_has_come!(),
    stand_in_line!(),
    look_at_the_way!(),
    call_the_first!(look_who_stands_before, "alone", "alone", "shares and beside == 0"),
    "local left = alone \
     if shares and before == 0 then left = beside end ",
    wait_unless_first!(),
    "end ",
    raise_counter_in_line!(),
    "if shares then \
     local gone = KEYS[state == 'free' and 1 or 5] \
     redis.call('DEL', gone) \
     redis.call('SET', gone, '', 'XX', 'PX', 1) ",
    rehearse_undo_shared!(),
    deny_twin!(3),
    "if c then redis.call('SET', KEYS[6], string.sub(told, 2), 'PX', ARGV[8]) end \
     redis.call('ZADD', KEYS[1], '+inf', 'line') ",
    share!(),
    "else \
     redis.call('DEL', KEYS[1]) \
     if c then redis.call('SET', KEYS[6], string.sub(told, 2), 'PX', ARGV[8]) end \
     redis.call('SET', KEYS[1], ARGV[1] .. string.format('\\n%.0f', now + ARGV[2]), 'PX', ARGV[2] + 8000) \
     end \
     return redis.status_reply('OK ' .. stamp .. told)"
);

/// Which slots of the semaphore are free: for how long none is as `open`, and for how many there is `room` once whatever is in
/// the way is gone, of those with the same `n`. Whose time is over is taken away.
macro_rules! look_at_the_slots {
    () => {
        concat!(
            "local open, room, left = alone, n, 0 \
             if kind == 'hash' and (state == 'permits' or state == 'marked') then ",
            drop_permits_that_ended!(),
            "local held = redis.call('ZCARD', ends) \
             if held == 0 then state, alone, open = 'free', 0, 0 \
             elseif held < n then open, room = 0, n - held \
             else open, room = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2] - now, 1 end \
             end \
             left = open "
        )
    };
}

/// Gives the token ARGV\[1\] one of the ARGV\[7\] slots of the semaphore KEYS\[1\] for ARGV\[2\] ms if more are free than
/// stand before it in line, and nobody but for a permit does. The answer is the status line `OK`, the ticket's stamp, and
/// what [`ACQUIRE_PERMIT`] says of the slot; or `WAIT`, as by [`ACQUIRE_IN_LINE`], where of those who stand before it the ones
/// count that have to come in first.
///
/// KEYS are the resource, the two sets of the line, the ticket's own key, the key that says who was called, the sorted set
/// of those who have permits, with ARGV\[10\] and ARGV\[11\] the hash of the slots' counters, and the guard. Up to ARGV\[6\]
/// and in the last of them ARGV are those of [`ACQUIRE_IN_LINE`]; from ARGV\[7\] on they are those of [`ACQUIRE_PERMIT`] from
/// ARGV\[4\] on.
///
/// [`ACQUIRE_PERMIT`]: super::ACQUIRE_PERMIT
pub const ACQUIRE_PERMIT_IN_LINE: &str = concat!(
    begin_in_line!("8 or 7", 10, 11),
    "local ends, counters, n = KEYS[6], KEYS[7], tonumber(ARGV[7]) ",
    unless_its_turn_has_come!(),
    stand_in_line!(),
    look_at_the_way!(),
    look_at_the_slots!(),
    call_the_first!(
        look_for_room,
        "(string.sub(whom, 1, 1) == 'p' and open or alone)",
        "(string.sub(head, 1, 1) == 'p' and open or alone)",
        "open == 0 and string.sub(last, 1, 1) ~= 'p'"
    ),
    wait_unless_first!(),
    "end \
     local gone = KEYS[state == 'free' and 1 or 5] \
     redis.call('DEL', gone) \
     redis.call('SET', gone, '', 'XX', 'PX', 1) \
     if state == 'free' then redis.call('DEL', ends) end ",
    deny_twin!(3, "twin ~= ARGV[1] and redis.call('ZSCORE', ends, twin)"),
    "local line, slot, seen = true, redis.call('HGET', KEYS[1], ARGV[1]), '' \
     if not slot then ",
    find_free_slot!(8, 9),
    "end ",
    give_slot!(11),
    "return redis.status_reply('OK ' .. stamp .. ' ' .. slot .. seen .. text)"
);

/// Takes the ticket ARGV\[1\] out of the line, and returns 1 if it was there, 0 otherwise. KEYS are the resource, the two sets of
/// the line, the ticket's own key, and the key that says who was called.
///
/// If nobody is left in line, what lies at the resource is marked no longer, and a closed key goes.
pub const LEAVE_LINE: &str = concat!(
    read_clock_ms!(),
    "local found = redis.call('ZREM', KEYS[2], ARGV[1]) \
     if redis.call('ZCARD', KEYS[2]) > 0 then \
     redis.call('ZREM', KEYS[3], ARGV[1]) \
     redis.call('DEL', KEYS[4]) ",
    drop_dead_tickets!(),
    "if redis.call('ZCARD', KEYS[2]) > 0 then return found end \
     end \
     redis.call('DEL', KEYS[3], KEYS[4], KEYS[5]) \
     local v = redis.pcall('GET', KEYS[1]) \
     if type(v) == 'table' then \
     if not string.find(v.err, '^WRONGTYPE') then return v end \
     local kind, t = redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]) \
     if t == -1 then return found end \
     if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'redbolt') + redis.call('HEXISTS', KEYS[1], 'line') == 2 then \
     redis.call('PEXPIRE', KEYS[1], t - 8000) \
     redis.call('HDEL', KEYS[1], 'line') \
     elseif kind == 'zset' then ",
    if_it_is_a_set_of_ours!(),
    "if redis.call('ZSCORE', KEYS[1], 'line') == 'inf' then \
     redis.call('ZREM', KEYS[1], 'line') ",
    live_as_long_as_the_last!(),
    "end \
     end \
     end \
     elseif v then \
     local token, ends = string.match(v, '^(' .. string.rep('%x', 34) .. '%C*)\\n(%d+)$') \
     if token and ends - now > 0 then redis.call('SET', KEYS[1], token, 'PX', string.format('%.0f', ends - now)) \
     elseif token or v == '\\nredbolt' then redis.call('DEL', KEYS[1]) end \
     end \
     return found"
);

/// Tells who stands in line for the resource KEYS\[1\]: how many, what keeps the resource for them, and for how many ms the
/// first of them has been called, -1 if it is not. In further lines up to 16 of them, in their order, each with its name, label
/// included, its stamp, for how many ms it has waited by that, and for how many ms its ticket lives. It writes nothing.
///
/// KEYS\[2\] and KEYS\[3\] are the two sets of the line, KEYS\[4\] is the key that says who was called. A resource is kept
/// by nothing (`open`), `marked` beside its holders, or `closed`. Of its value the bytes up to the ARGV\[1\]-th, from zero,
/// are looked at. Where the sets cannot be redbolt's, the answer is empty.
pub const VIEW_LINE: &str = concat!(
    read_clock_ms!(),
    "local us = time[1] * 1000000 + time[2] \
     local after = string.format('(%.0f', now) \
     local found = redis.pcall('ZRANGE', KEYS[2], 0, 79, 'WITHSCORES') \
     if found.err then return found end \
     local lines, first = {''}, nil \
     for i = 1, #found, 2 do \
     local left = (tonumber(redis.call('ZSCORE', KEYS[3], found[i])) or 0) - now \
     if left > 0 and #lines <= 16 then \
     if #found[i] > 200 then return '' end \
     first = first or found[i] \
     local waits = math.floor(math.max(us - found[i + 1], 0) / 1000) \
     table.insert(lines, string.format('%s %.0f %.0f %.0f', found[i], found[i + 1], waits, left)) \
     end \
     end \
     local called, whom = string.match(redis.call('GET', KEYS[4]) or '', '^(%d+) (.+)$') \
     local since = called and whom == first and math.max(now - called, 0) or -1 \
     local kept = 'open' \
     local v = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[1]) \
     if type(v) == 'table' then \
     if not string.find(v.err, '^WRONGTYPE') then return v end \
     local kind = redis.call('TYPE', KEYS[1]).ok \
     if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'redbolt') + redis.call('HEXISTS', KEYS[1], 'line') == 2 then \
     kept = redis.call('PTTL', KEYS[1]) > 8000 and 'marked' or 'closed' \
     elseif kind == 'zset' and redis.call('ZSCORE', KEYS[1], 'line') == 'inf' then \
     kept = redis.call('ZCOUNT', KEYS[1], after, '(+inf') > 0 and 'marked' or 'closed' \
     end \
     else \
     local ends = string.match(v, '^' .. string.rep('%x', 34) .. '%C*\\n(%d+)$') \
     if v == '\\nredbolt' or ends and ends - now <= 0 then kept = 'closed' elseif ends then kept = 'marked' end \
     end \
     lines[1] = string.format('%.0f %s %.0f', redis.call('ZCOUNT', KEYS[3], after, '+inf'), kept, since) \
     return table.concat(lines, '\\n')"
);
