//! The Lua scripts that run on a node.
//!
//! Compare-and-set needs a script on every server that has no command for it. Each script takes its resources as KEYS
//! and everything else as ARGV, so its text never varies. The texts are public because an operator may have to allow
//! them, and a model of a node must know them. Not here: when each is sent, see `lock_kind`.

/// The node does not vote unless its guard lives for [`BIG_MS`](super::restart_guard::BIG_MS) at the most.
macro_rules! check_restart_guard {
    () => {
        "if guard then \
         local t = redis.call('PTTL', guard) \
         if t < 0 or t > 126144000000 then return redis.status_reply(string.format('GUARD %.0f', t)) end \
         end "
    };
}

/// The longest TTL among the n resources is the denial's answer.
macro_rules! find_longest {
    () => {
        "local most = -2 \
         for i = 1, n do \
         local t = redis.call('PTTL', KEYS[i]) \
         if t == -1 then return -1 end \
         if t > most then most = t end \
         end \
         if most >= 0 then return most end "
    };
}

/// Reads what the i-th of KEYS holds. Data of another type than a string is nobody's token, and no
/// number. Any other error, such as a missing permission, says nothing about the key and is the answer.
macro_rules! read_value {
    () => {
        "local v = redis.pcall('GET', KEYS[i]) \
         if type(v) == 'table' and not string.find(v.err, '^WRONGTYPE') then return v end "
    };
}

/// Ends with 0 unless what was read is the token ARGV\[1\] with a mark behind it, see `line`, and for so many ms more its holder's
/// time is not over, which the key outlives by 8 s.
macro_rules! return_0_unless_marked_mine {
    () => {
        "local token, left \
         if type(v) == 'string' then token, ends = string.match(v, '^(%C+)\\n(%d+)$') end \
         if token ~= ARGV[1] then return 0 end \
         left = redis.call('PTTL', KEYS[i]) - 8000 \
         if left <= 0 then return 0 end "
    };
}

/// Lets the holder of the i-th of KEYS, which is marked, end no earlier than ARGV\[2\] ms from now. A server whose memory is full
/// stops a script at its first write if that may need more; so the first one here is another, which changes nothing.
macro_rules! extend_marked {
    () => {
        "if tonumber(ARGV[2]) > left then \
         redis.call('PEXPIRE', KEYS[i], left + 8000) \
         redis.call('SET', KEYS[i], ARGV[1] .. string.format('\\n%.0f', ends + ARGV[2] - left), 'PX', ARGV[2] + 8000) \
         end "
    };
}

/// Ends whoever holds the i-th of KEYS as ARGV\[1\], and counts it in `n`. What was marked is closed from then on; the first
/// write is one that needs no memory.
macro_rules! undo_value {
    () => {
        "if v == ARGV[1] then n = n + redis.call('DEL', KEYS[i]) \
         elseif type(v) == 'string' and ARGV[1] and string.match(v, '^(%C+)\\n') == ARGV[1] then \
         redis.call('DEL', KEYS[i]) \
         redis.call('SET', KEYS[i], '\\nredbolt', 'PX', 8000) \
         n = n + 1 \
         end "
    };
}

/// Reads the i-th of KEYS, a counter, as a number below a bound.
macro_rules! read_counter {
    ($bound:literal) => {
        concat!(
            read_value!(),
            "v = tonumber(v or 0) \
             if not (v and v ",
            $bound,
            ") then return redis.error_reply('ERR the fencing counter cannot be raised') end "
        )
    };
}

/// Nothing is set that could not be looked at and deleted again. The keys are free, so that this changes nothing:
/// where it is forbidden, the script ends here, before it has written anything.
macro_rules! rehearse_undo {
    () => {
        "redis.call('GET', KEYS[1]) redis.call('DEL', KEYS[1]) "
    };
}

/// Wakes who waits for the lock KEYS\[1\] as Redisson does, if that is allowed.
macro_rules! tell_redisson {
    () => {
        "local name = KEYS[1] \
         if not string.find(name, '{', 1, true) then name = '{' .. name .. '}' end \
         redis.pcall('PUBLISH', 'redisson_lock__channel:' .. name, '0') "
    };
}

/// Wakes who waits for the lock KEYS\[1\] as Spring's registries do, if that is allowed.
macro_rules! tell_spring {
    () => {
        "local from = 1 \
         for _ = 1, 16 do \
         local colon = string.find(KEYS[1], ':', from, true) \
         if not colon then break end \
         redis.pcall('PUBLISH', string.sub(KEYS[1], 1, colon - 1) .. '-channel:' .. KEYS[1], KEYS[1]) \
         from = colon + 1 \
         end "
    };
}

/// Wakes who waits as python-redis-lock does, if that is allowed: by an entry of this list, which nobody keeps that does not end by
/// itself.
macro_rules! tell_python {
    ($signal:literal) => {
        concat!(
            "if type(redis.pcall('LPUSH', ",
            $signal,
            ", 1)) == 'number' and type(redis.pcall('PEXPIRE', ",
            $signal,
            ", 1000)) == 'table' then redis.pcall('DEL', ",
            $signal,
            ") end "
        )
    };
}

/// The node's clock in ms, for the entries of holders who share, which end each at a time of its own.
macro_rules! read_clock_ms {
    () => {
        "local time = redis.call('TIME') \
         local now = time[1] * 1000 + math.floor(time[2] / 1000) "
    };
}

/// The same behind a PTTL. Before 7.2 time goes on while a script runs: what ends so much later than an earlier look at the
/// clock would end too early.
macro_rules! read_clock_again {
    () => {
        "local later = redis.call('TIME') \
         now = later[1] * 1000 + math.floor(later[2] / 1000) "
    };
}

/// Holders who share a resource are the members of a sorted set, by when they end. A writer that stands beside its own
/// reader's claim is one too, under its token behind `w:`. A key that is anything else, or that redbolt cannot
/// have made, is held by another, and never touched.
macro_rules! deny_unless_members {
    () => {
        "local kind = redis.call('TYPE', KEYS[1]).ok \
         if kind ~= 'none' then \
         local t = redis.call('PTTL', KEYS[1]) \
         if kind ~= 'zset' or t == -1 then return t end \
         local found = redis.call('ZRANGE', KEYS[1], 0, 3, 'WITHSCORES') \
         local first = string.gsub(found[1], '^w:', '') \
         if not string.find(first, '^' .. string.rep('%x', 34)) then return t end "
    };
}

/// Denies where a writer lives, unless it is `own`. Who stands beside a writer are no more than its own two claims as a reader,
/// so that it is among the first.
macro_rules! deny_beside_writer {
    () => {
        "for i = 1, #found, 2 do \
         if string.sub(found[i], 1, 2) == 'w:' and tonumber(found[i + 1]) > now \
         and string.sub(found[i], 3, 36) ~= own then return t end \
         end \
         end "
    };
}

/// Nobody is there but others who share, and nobody waits in line for them to go.
macro_rules! deny_unless_shared {
    () => {
        concat!(
            "local own ",
            deny_unless_members!(),
            "if redis.call('ZSCORE', KEYS[1], 'line') then return t end ",
            deny_beside_writer!()
        )
    };
}

/// Nobody is there but the reader whose claim begins with these digits. Another one who lives would be among those who end last.
macro_rules! deny_unless_alone {
    ($digits:literal) => {
        concat!(
            "local own = ARGV[",
            $digits,
            "] .. string.sub(ARGV[1], 35, 36) ",
            make_members!("digits == own", "false"),
            deny_unless_members!(),
            "local latest = redis.call('ZRANGE', KEYS[1], -4, -1, 'WITHSCORES') \
             for i = 1, #latest, 2 do \
             if tonumber(latest[i + 1]) > now and latest[i] ~= 'line' \
             and string.sub(latest[i], 1, 34) ~= own then return t end \
             end \
             end "
        )
    };
}

/// Whoever shares a resource alone is a string, its token behind `r:`, so that it costs no more than a writer does. Where what was
/// read is one that may become a member of a sorted set, it does, with the end that it has: a reader if `$reader`, a
/// writer, as `w:` and the token, if `$writer`. Any other string is in the way. Each command that follows is rehearsed on the
/// string: where one is forbidden, the script ends with its error, and the string stays. A member stays one, whatever comes of the
/// ask.
macro_rules! make_members {
    ($reader:literal, $writer:literal) => {
        concat!(
            "if type(v) == 'string' then \
             local mode, token, ends = string.match(v, '^(r?:?)(%x%C*)\\n?(%d*)$') \
             local digits = string.match(token or '', '^' .. string.rep('%x', 34)) \
             local is_ours = digits and (mode == 'r:' and ",
            $reader,
            " or mode == '' and ",
            $writer,
            ") \
             local t = redis.call('PTTL', KEYS[1]) \
             if not is_ours or t == -1 then return t end ",
            read_clock_again!(),
            "if mode == '' then token = 'w:' .. token end \
             if ends ~= '' then \
             if tonumber(ends) <= now then return t end \
             t = ends - now \
             end \
             for _, command in ipairs({{'ZREM', KEYS[1], ''}, {'ZADD', KEYS[1], 0, ''}, \
             {'ZREMRANGEBYSCORE', KEYS[1], 0, 0}, {'ZRANGE', KEYS[1], 0, 0}, {'ZSCORE', KEYS[1], ''}}) do \
             local answer = redis.pcall(unpack(command)) \
             if not string.find(answer.err, '^WRONGTYPE') then redis.call(unpack(command)) end \
             end \
             redis.call('PEXPIREAT', KEYS[1], now + t) \
             redis.call('DEL', KEYS[1]) \
             redis.call('ZADD', KEYS[1], string.format('%.0f', now + t), token) \
             redis.call('PEXPIREAT', KEYS[1], now + t) \
             if ends ~= '' then \
             redis.call('ZADD', KEYS[1], '+inf', 'line') \
             redis.call('PEXPIREAT', KEYS[1], now + t + 8000) \
             end \
             end "
        )
    };
}

/// Reads until when the key is to live: as long as the last of its holders, and for 8 s more where it is marked, see `line`.
macro_rules! read_last_end {
    () => {
        "local tail = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES') \
         local last = tail[#tail] \
         if tail[#tail - 1] == 'line' then \
         last = tail[3] and string.format('%.0f', tail[2] + 8000) \
         end "
    };
}

/// Lets the key live for as long as the last of its holders. Where only a mark is left, it is closed.
macro_rules! live_as_long_as_the_last {
    () => {
        concat!(
            read_last_end!(),
            "if last then redis.call('PEXPIREAT', KEYS[1], last) \
             elseif tail[1] then \
             redis.call('DEL', KEYS[1]) \
             redis.call('SET', KEYS[1], '\\nredbolt', 'PX', 8000) \
             end "
        )
    };
}

/// Whose time is over is taken away. What an undo of a shared hold needs is rehearsed, with a holder that there
/// cannot be: where it is forbidden, the script ends here, and leaves no key that lives for ever.
macro_rules! rehearse_undo_shared {
    () => {
        concat!(
            "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) \
             redis.call('ZREM', KEYS[1], '') ",
            read_last_end!(),
            "redis.call('PEXPIREAT', KEYS[1], last or now + 8000) "
        )
    };
}

/// A server that is asked twice by one client, under two addresses, grants once: the tokens of one ask differ in the
/// two digits of the node. Exclusive holders need no such look, for the second would be denied as anybody.
macro_rules! deny_twin {
    ($nodes:literal) => {
        deny_twin!($nodes, "redis.call('ZSCORE', KEYS[1], twin)")
    };
    ($nodes:literal, $is_there:literal) => {
        concat!(
            "for i = 0, ARGV[",
            $nodes,
            "] - 1 do \
             local twin = string.sub(ARGV[1], 1, 32) .. string.format('%02x', i) .. string.sub(ARGV[1], 35) \
             if ",
            $is_there,
            " then return redis.call('PTTL', KEYS[1]) end \
             end "
        )
    };
}

/// Lets the holder ARGV\[1\] share the resource for ARGV\[2\] ms.
macro_rules! share {
    () => {
        concat!(
            "redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1]) ",
            live_as_long_as_the_last!()
        )
    };
}

/// Seeing first that it can be undone, lets the holder ARGV\[1\] share the resource for ARGV\[2\] ms beside others, among whom is
/// no twin. `$before` is between the two.
macro_rules! share_with_others {
    ($nodes:literal, $before:literal) => {
        concat!(rehearse_undo_shared!(), deny_twin!($nodes), $before, share!())
    };
}

/// The same where nobody is there.
macro_rules! share_alone {
    ($before:literal) => {
        concat!(
            "redis.call('DEL', KEYS[1]) ",
            $before,
            "redis.call('SET', KEYS[1], 'r:' .. ARGV[1], 'PX', ARGV[2]) "
        )
    };
}

/// Reads until when ARGV\[1\] shares the resource, and returns 0 unless it does. Data of another type has no holders.
macro_rules! read_mine {
    () => {
        concat!(
            "local mine = redis.pcall('ZSCORE', KEYS[1], ARGV[1]) \
             if type(mine) == 'table' then \
             if string.find(mine.err, '^WRONGTYPE') then return 0 end \
             return mine \
             end ",
            read_clock_ms!(),
            "if not mine or tonumber(mine) <= now then return 0 end "
        )
    };
}

/// Permits of a semaphore are slots, numbered from 0: fields of a hash, which has the field `redbolt` and for each slot that
/// is taken two more, from the slot to its holder and back. When each holder ends is in the sorted set `ends`. A
/// key that is anything else, or that redbolt cannot have made, is held by another, and never touched. Where somebody waits in
/// line there is a field `line`: then nobody gets a slot who is new, and who has one elsewhere may be moved.
macro_rules! deny_unless_permits {
    () => {
        "local kind = redis.call('TYPE', KEYS[1]).ok \
         local line = false \
         if kind ~= 'none' then \
         local t = redis.call('PTTL', KEYS[1]) \
         if kind ~= 'hash' or t == -1 or redis.call('HEXISTS', KEYS[1], 'redbolt') == 0 then return t end \
         line = redis.call('HEXISTS', KEYS[1], 'line') == 1 \
         if line and ARGV[6] ~= '0' then return t end \
         end "
    };
}

/// Lets both keys of a semaphore live for as long as the last of its holders, and the hash for 8 s more where it is marked,
/// see `line`. One without holders goes, or is closed.
macro_rules! live_as_long_as_the_last_permit {
    () => {
        "local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2] \
         local line = redis.call('HEXISTS', KEYS[1], 'line') == 1 \
         if last then \
         redis.call('PEXPIREAT', ends, last) \
         redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last + (line and 8000 or 0))) \
         elseif line then \
         redis.call('DEL', KEYS[1]) \
         redis.call('SET', KEYS[1], '\\nredbolt', 'PX', 8000) \
         else redis.call('HDEL', KEYS[1], 'redbolt') end "
    };
}

/// Takes away whose time is over.
macro_rules! drop_permits_that_ended {
    () => {
        "local function drop(token) \
         local slot = redis.call('HGET', KEYS[1], token) \
         if slot then redis.call('HDEL', KEYS[1], token, slot) end \
         redis.call('ZREM', ends, token) \
         end \
         for _, token in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do drop(token) end "
    };
}

/// Rehearses what an undo needs, as for locks that are shared. Not before a denial: this makes the node send
/// notifications of a change.
macro_rules! rehearse_undo_permit {
    () => {
        "redis.call('HDEL', KEYS[1], '') \
         redis.call('ZREM', ends, '') \
         redis.call('HEXISTS', KEYS[1], 'line') \
         local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2] or now \
         redis.call('PEXPIREAT', ends, last) \
         redis.call('PEXPIREAT', KEYS[1], last) "
    };
}

/// For how many ms the holder with this end is still in the way. A score that no lock has made may be without end, which an integer
/// cannot say.
macro_rules! ms_until {
    ($end:literal) => {
        concat!("math.min(", $end, " - now, 9007199254740991) ")
    };
}

/// Finds the first slot that is free of the one in ARGV at `$first` and each after it, in steps of that at `$step`, of `n` in a
/// circle. They are looked at 64 at once, and which of those 64 are free is part of the answer: a hexadecimal digit for each 4.
macro_rules! find_free_slot {
    ($first:literal, $step:literal) => {
        concat!(
            "if redis.call('ZCARD', ends) < n then \
         local part = 0 \
         while not slot and part * 64 < n do \
         local slots = {} \
         for i = part * 64, math.min(part * 64 + 64, n) - 1 do \
         table.insert(slots, string.format('%.0f', (ARGV[",
            $first,
            "] + i * ARGV[",
            $step,
            "]) % n)) \
         end \
         local taken = redis.call('HMGET', KEYS[1], unpack(slots)) \
         local free = {} \
         for i = 1, #slots, 4 do \
         local digit = 0 \
         for j = 0, 3 do \
         if slots[i + j] and not taken[i + j] then \
         digit = digit + 2 ^ j \
         slot = slot or slots[i + j] \
         end \
         end \
         table.insert(free, string.format('%x', digit)) \
         end \
         if slot then seen = string.format(' %.0f ', part) .. table.concat(free) end \
         part = part + 1 \
         end \
         end \
         if not slot then return ",
            ms_until!("redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2]"),
            "end "
        )
    };
}

/// Reads the counter of a slot, in the hash `counters`, as a number below a bound.
macro_rules! read_slot_counter {
    ($bound:literal) => {
        concat!(
            "local v = tonumber(redis.call('HGET', counters, slot) or 0) \
             if not (v and v ",
            $bound,
            ") then return redis.error_reply('ERR the fencing counter cannot be raised') end "
        )
    };
}

/// Sets the counter of a slot, and keeps those of the others. That they may be given a TTL is seen first.
macro_rules! write_slot_counter {
    ($value:literal, $ttl:literal) => {
        concat!(
            "local lives = redis.call('PTTL', counters) >= tonumber(ARGV[",
            $ttl,
            "]) \
             local til = string.format('%.0f', now + ARGV[",
            $ttl,
            "]) \
             if not lives then redis.call('PEXPIREAT', counters, til) end \
             redis.call('HSET', counters, slot, ",
            $value,
            ") \
             if not lives then redis.call('PEXPIREAT', counters, til) end "
        )
    };
}

/// Gives the slot to the token ARGV\[1\] for ARGV\[2\] ms, with the counter that was proposed, and marks the hash again if
/// there is a `line`. The rest of the answer is `text`.
macro_rules! give_slot {
    ($counter_ttl:literal) => {
        concat!(
            rehearse_undo_permit!(),
            "local text = '' \
             if c then ",
            read_slot_counter!("< 9007199254740990"),
            "if v >= c then c = math.floor(v) + 1 end \
             text = string.format('%.0f', c + c % 2) ",
            write_slot_counter!("text", $counter_ttl),
            "text = ' ' .. text \
             end \
             local til = math.max(now + ARGV[2], tonumber(redis.call('ZSCORE', ends, ARGV[1]) or 0)) \
             redis.call('ZADD', ends, string.format('%.0f', til), ARGV[1]) \
             last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2] \
             redis.call('PEXPIREAT', ends, last) \
             redis.call('HSET', KEYS[1], 'redbolt', 1, slot, ARGV[1], ARGV[1], slot) \
             if line then redis.call('HSET', KEYS[1], 'line', 1) end \
             redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last + (line and 8000 or 0))) "
        )
    };
}

/// Reads until when ARGV\[1\] has this slot, and returns 0 unless it does.
macro_rules! read_my_permit {
    ($slot:literal) => {
        concat!(
            "local slot = redis.pcall('HGET', KEYS[1], ARGV[1]) \
             if type(slot) == 'table' then \
             if string.find(slot.err, '^WRONGTYPE') then return 0 end \
             return slot \
             end \
             if slot ~= ARGV[",
            $slot,
            "] then return 0 end ",
            read_clock_ms!(),
            "local mine = redis.call('ZSCORE', ends, ARGV[1]) \
             if not mine or tonumber(mine) <= now then return 0 end "
        )
    };
}

/// Lets the string at KEYS\[1\], which is the holder's, live for ARGV\[2\] ms at the least, and returns 1.
macro_rules! extend_string {
    () => {
        "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then \
         redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
         return 1 "
    };
}

/// Lets the member ARGV\[1\] end no earlier than ARGV\[2\] ms from now, if it has not ended.
macro_rules! extend_member {
    () => {
        concat!(
            read_mine!(),
            "if now + ARGV[2] > tonumber(mine) then \
             redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1]) ",
            live_as_long_as_the_last!(),
            "end \
             return 1"
        )
    };
}

/// Takes the member ARGV\[1\] away.
macro_rules! undo_member {
    () => {
        concat!(
            "local n = redis.pcall('ZREM', KEYS[1], ARGV[1]) \
             if type(n) == 'table' then \
             if string.find(n.err, '^WRONGTYPE') then return 0 end \
             return n \
             end \
             if n == 1 then ",
            live_as_long_as_the_last!(),
            "end \
             return n"
        )
    };
}

/// Grants the resources to the token ARGV\[1\] for ARGV\[2\] ms and returns `OK`, or touches nothing
/// and returns the longest remaining TTL among them, -1 if one has none.
///
/// ARGV\[3\] is the number of resources. A key behind them is the guard: if it does not let the node
/// vote, nothing is touched and the answer is the status line `GUARD` with the guard's PTTL.
pub const ACQUIRE_MANY: &str = concat!(
    "local n = tonumber(ARGV[3]) \
     local guard = KEYS[n + 1] ",
    check_restart_guard!(),
    find_longest!(),
    rehearse_undo!(),
    "for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end \
     return redis.status_reply('OK')"
);

/// As [`ACQUIRE_MANY`], and raises the resources' fencing counters: KEYS are n resources, their n
/// counters, and the guard. ARGV\[4\] is the proposed value, the client's wall clock in µs,
/// ARGV\[5\] how many ms the counters live.
///
/// A grant is the status line `OK` with the new value of all counters: the smallest even number that is
/// no less than the proposal and greater than each of them. (Odd ones are kept for holders who share.) A
/// proposal over 5 s from the node's own clock touches nothing and is answered by `CLOCK` and that
/// clock in µs. A counter that is no number, or that would reach 2^53, where Lua's numbers end, is an
/// error.
pub const ACQUIRE_FENCED: &str = concat!(
    "local n = tonumber(ARGV[3]) \
     local guard = KEYS[2 * n + 1] ",
    check_restart_guard!(),
    find_longest!(),
    "local c = tonumber(ARGV[4]) \
     local time = redis.call('TIME') \
     local now = time[1] * 1000000 + time[2] \
     if math.abs(c - now) > 5000000 then \
     return redis.status_reply(string.format('CLOCK %.0f', now)) end \
     for i = n + 1, 2 * n do ",
    read_counter!("< 9007199254740990"),
    "if v >= c then c = math.floor(v) + 1 end \
     end \
     local text = string.format('%.0f', c + c % 2) ",
    rehearse_undo!(),
    "for i = 1, n do \
     redis.call('SET', KEYS[n + i], text, 'PX', ARGV[5]) \
     redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) \
     end \
     return redis.status_reply('OK ' .. text)"
);

/// Grants the resource KEYS\[1\] to the token ARGV\[1\] for ARGV\[2\] ms, beside others who share it, and returns
/// `OK`, or touches nobody's time and returns the remaining TTL of what is in the way, -1 if that has none.
///
/// Who shares it alone is a string, the token behind `r:`. Several are the members of a sorted set, by the time at which they
/// end, in ms by the node's clock. The key lives for as long as the last of them. KEYS\[2\] is the guard, as for [`ACQUIRE_MANY`]. ARGV\[3\] is
/// the number of nodes that the client asks: to it the resource is taken where it shares it already, as another node.
pub const ACQUIRE_SHARED: &str = concat!(
    "local guard, i = KEYS[2], 1 ",
    check_restart_guard!(),
    read_value!(),
    "if not v then ",
    share_alone!(""),
    "return redis.status_reply('OK') \
     end ",
    read_clock_ms!(),
    make_members!("true", "false"),
    deny_unless_shared!(),
    share_with_others!(3, ""),
    "return redis.status_reply('OK')"
);

/// As [`ACQUIRE_SHARED`], with a fencing token: KEYS are the resource, its counter and the guard, ARGV\[3\] is the
/// proposed value and ARGV\[4\] how many ms the counter lives, as for [`ACQUIRE_FENCED`], and ARGV\[6\] the number of
/// nodes.
///
/// A grant is the status line `OK` with the counter's value, which is odd. If it is odd already, and no less than
/// ARGV\[5\], it stays as it is, so that all who share between two exclusive holders have the same token. Otherwise it
/// becomes the smallest odd number that is no less than the proposal and greater than the counter.
pub const ACQUIRE_SHARED_FENCED: &str = concat!(
    "local guard, i = KEYS[3], 1 ",
    check_restart_guard!(),
    read_clock_ms!(),
    read_value!(),
    "local is_free = not v \
     if not is_free then ",
    make_members!("true", "false"),
    deny_unless_shared!(),
    "end \
     local c = tonumber(ARGV[3]) \
     local us = time[1] * 1000000 + time[2] \
     if math.abs(c - us) > 5000000 then \
     return redis.status_reply(string.format('CLOCK %.0f', us)) end \
     i = 2 ",
    read_counter!("< 9007199254740990"),
    "v = math.floor(v) \
     if v >= tonumber(ARGV[5]) and v % 2 == 1 then c = v \
     else \
     if v >= c then c = v + 1 end \
     if c % 2 == 0 then c = c + 1 end \
     end \
     local text = string.format('%.0f', c) \
     if is_free then ",
    share_alone!("redis.call('SET', KEYS[2], text, 'PX', ARGV[4]) "),
    "else ",
    share_with_others!(6, "redis.call('SET', KEYS[2], text, 'PX', ARGV[4]) "),
    "end \
     return redis.status_reply('OK ' .. text)"
);

/// Lets the token ARGV\[1\] share KEYS\[1\] for at least ARGV\[2\] ms more and returns 1 if it does so now; otherwise
/// returns 0. It never shortens a holder's time and never brings one back.
pub const EXTEND_SHARED: &str = concat!(
    "local i = 1 ",
    read_value!(),
    "if v == 'r:' .. ARGV[1] then ",
    extend_string!(),
    "end ",
    extend_member!()
);

/// Takes the token ARGV\[1\] away from those who share KEYS\[1\], and returns 1 if it was there, 0 otherwise. The
/// key lives for no longer than those who are left.
pub const UNDO_SHARED: &str = concat!(
    "local i = 1 ",
    read_value!(),
    "if v == 'r:' .. ARGV[1] then return redis.call('DEL', KEYS[1]) end ",
    undo_member!()
);

/// Raises the fencing counter KEYS\[2\] to at least ARGV\[2\] and returns 1 if the token ARGV\[1\] shares KEYS\[1\];
/// otherwise returns 0. The counter lives for ARGV\[3\] ms if it is raised.
pub const WRITE_BACK_SHARED: &str = concat!(
    "local i = 1 ",
    read_value!(),
    "if v ~= 'r:' .. ARGV[1] then ",
    read_mine!(),
    "end \
     i = 2 ",
    read_counter!("<= 9007199254740991"),
    "if v < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end \
     return 1"
);

/// Gives the token ARGV\[1\] one of the ARGV\[4\] slots of the semaphore KEYS\[1\] for ARGV\[2\] ms and returns `OK` with
/// its number, or touches nothing of others and returns for how many ms the way is blocked, -1 if without end.
///
/// The slot is the first that is free, beginning with ARGV\[5\] and in steps of ARGV\[6\], which has no divisor in common
/// with ARGV\[4\]. Which others are free follows, among 64: the number of their part, and a hexadecimal digit for
/// each 4, from the lowest bit on. With a step of 0 the token is to have the slot ARGV\[5\] and no other: the one that it
/// had is free from then on, also where it does not get this one.
///
/// KEYS\[2\] is the sorted set of holders by the time at which they end, in ms by the node's clock. ARGV\[3\] is the number of
/// nodes that the client asks, as for [`ACQUIRE_SHARED`]. The last of KEYS is the guard, as for [`ACQUIRE_MANY`]. With
/// ARGV\[7\] and ARGV\[8\] the slot's fencing counter in the hash KEYS\[3\] is raised as by [`ACQUIRE_FENCED`], and is the last
/// word of the answer.
pub const ACQUIRE_PERMIT: &str = concat!(
    "local guard = KEYS[ARGV[7] and 4 or 3] ",
    check_restart_guard!(),
    deny_unless_permits!(),
    read_clock_ms!(),
    "local c = tonumber(ARGV[7]) \
     local us = time[1] * 1000000 + time[2] \
     if c and math.abs(c - us) > 5000000 then \
     return redis.status_reply(string.format('CLOCK %.0f', us)) end \
     local ends, counters = KEYS[2], KEYS[3] \
     if kind == 'none' or redis.call('ZCARD', ends) == 0 then redis.call('DEL', KEYS[1], ends) end ",
    drop_permits_that_ended!(),
    deny_twin!(3, "twin ~= ARGV[1] and redis.call('ZSCORE', ends, twin)"),
    "local n = tonumber(ARGV[4]) \
     local mine = redis.call('HGET', KEYS[1], ARGV[1]) \
     local slot, seen = mine, '' \
     if ARGV[6] == '0' then \
     local taken = redis.call('HGET', KEYS[1], ARGV[5]) \
     if taken and taken ~= ARGV[1] then \
     if mine then \
     drop(ARGV[1]) ",
    live_as_long_as_the_last_permit!(),
    "end \
     return ",
    ms_until!("(redis.call('ZSCORE', ends, taken) or now)"),
    "end \
     slot = ARGV[5] \
     elseif not slot then ",
    find_free_slot!(5, 6),
    "end ",
    give_slot!(8),
    "if mine and mine ~= slot then redis.call('HDEL', KEYS[1], mine) end \
     return redis.status_reply('OK ' .. slot .. seen .. text)"
);

/// Lets the token ARGV\[1\] have the slot ARGV\[3\] of the semaphore KEYS\[1\] for at least ARGV\[2\] ms more and returns 1 if it
/// has that now; otherwise returns 0. It never shortens a holder's time and never brings one back.
pub const EXTEND_PERMIT: &str = concat!(
    "local ends = KEYS[2] ",
    read_my_permit!(3),
    "if now + ARGV[2] > tonumber(mine) then \
     redis.call('ZADD', ends, string.format('%.0f', now + ARGV[2]), ARGV[1]) ",
    live_as_long_as_the_last_permit!(),
    "end \
     return 1"
);

/// Takes whichever slot of the semaphore KEYS\[1\] the token ARGV\[1\] has, and returns 1 if it had one, 0 otherwise. The
/// keys live for no longer than those who are left.
pub const UNDO_PERMIT: &str = concat!(
    "local slot = redis.pcall('HGET', KEYS[1], ARGV[1]) \
     if type(slot) == 'table' then \
     if string.find(slot.err, '^WRONGTYPE') then return 0 end \
     return slot \
     end \
     local ends = KEYS[2] \
     local n = redis.call('ZREM', ends, ARGV[1]) \
     if slot then \
     n = redis.call('HDEL', KEYS[1], ARGV[1], slot) / 2 ",
    live_as_long_as_the_last_permit!(),
    "end \
     return n"
);

/// Raises the fencing counter of the slot ARGV\[4\], in the hash KEYS\[3\], to at least ARGV\[2\] and returns 1 if the token
/// ARGV\[1\] has that slot; otherwise returns 0. The counters live for ARGV\[3\] ms if it is raised.
pub const WRITE_BACK_PERMIT: &str = concat!(
    "local ends, counters = KEYS[2], KEYS[3] ",
    read_my_permit!(4),
    read_slot_counter!("<= 9007199254740991"),
    "if v < tonumber(ARGV[2]) then ",
    write_slot_counter!("ARGV[2]", 3),
    "end \
     return 1"
);

/// Grants the resource KEYS\[1\] alone to a holder who shares it with nobody else, and returns `OK`, or touches nobody's time and
/// returns the remaining TTL of what is in the way, -1 if that has none.
///
/// The writer ARGV\[1\], a token behind `w:`, becomes a member beside the holder's own claim as a reader, which keeps
/// its own end. That claim's token begins with the digits ARGV\[3\], and with those of the same node. KEYS\[2\] is the
/// guard, as for [`ACQUIRE_MANY`].
pub const UPGRADE: &str = concat!(
    "local guard, i = KEYS[2], 1 ",
    check_restart_guard!(),
    read_clock_ms!(),
    read_value!(),
    deny_unless_alone!(3),
    rehearse_undo_shared!(),
    share!(),
    "return redis.status_reply('OK')"
);

/// As [`UPGRADE`], with a fencing token: KEYS are the resource, its counter and the guard, ARGV\[3\] is the proposed value
/// and ARGV\[4\] how many ms the counter lives. The digits of the reader's claim are ARGV\[5\]. The counter becomes an
/// even number as by [`ACQUIRE_FENCED`].
pub const UPGRADE_FENCED: &str = concat!(
    "local guard, i = KEYS[3], 1 ",
    check_restart_guard!(),
    read_clock_ms!(),
    read_value!(),
    deny_unless_alone!(5),
    "local c = tonumber(ARGV[3]) \
     local us = time[1] * 1000000 + time[2] \
     if math.abs(c - us) > 5000000 then \
     return redis.status_reply(string.format('CLOCK %.0f', us)) end \
     i = 2 ",
    read_counter!("< 9007199254740990"),
    "if v >= c then c = math.floor(v) + 1 end \
     local text = string.format('%.0f', c + c % 2) ",
    rehearse_undo_shared!(),
    "redis.call('SET', KEYS[2], text, 'PX', ARGV[4]) ",
    share!(),
    "return redis.status_reply('OK ' .. text)"
);

/// As [`ACQUIRE_SHARED`], for a holder that has the resource alone: its claim as a writer is not in its way. That claim's token
/// begins with the digits ARGV\[4\], and with those of the same node. A string becomes a member of the sorted set, as
/// `w:` and the token, with the end that it has.
pub const DOWNGRADE: &str = concat!(
    "local guard, i = KEYS[2], 1 ",
    check_restart_guard!(),
    read_clock_ms!(),
    read_value!(),
    "local own = ARGV[4] .. string.sub(ARGV[1], 33, 34) ",
    make_members!("true", "digits == own"),
    deny_unless_members!(),
    deny_beside_writer!(),
    share_with_others!(3, ""),
    "return redis.status_reply('OK')"
);

/// As [`EXTEND`], for a writer that has become a reader: where it was asked to share, the token ARGV\[1\] is a member of a
/// sorted set, behind `w:`.
pub const EXTEND_DOWNGRADED: &str = concat!(
    "local i = 1 ",
    read_value!(),
    "if v == ARGV[1] then ",
    extend_string!(),
    "end \
     if type(v) == 'string' then \
     local ends ",
    return_0_unless_marked_mine!(),
    extend_marked!(),
    "return 1 \
     end \
     ARGV[1] = 'w:' .. ARGV[1] ",
    extend_member!()
);

/// As [`UNDO`], for a writer that has become a reader, see [`EXTEND_DOWNGRADED`].
pub const UNDO_DOWNGRADED: &str = concat!(
    "local i, n = 1, 0 ",
    read_value!(),
    undo_value!(),
    "if n > 0 then return n end \
     ARGV[1] = 'w:' .. ARGV[1] ",
    undo_member!()
);

/// Raises fencing counters to at least ARGV\[3\] and returns 1 if all resources hold the token
/// ARGV\[1\]; otherwise returns 0. KEYS are ARGV\[2\] resources and their counters, which live for
/// ARGV\[4\] ms if they are raised. A counter that is no number, or beyond 2^53 - 1, is an error.
pub const WRITE_BACK: &str = concat!(
    "local n = tonumber(ARGV[2]) \
     for i = 1, n do ",
    read_value!(),
    "if v ~= ARGV[1] then \
     local ends ",
    return_0_unless_marked_mine!(),
    "end \
     end \
     for i = n + 1, 2 * n do ",
    read_counter!("<= 9007199254740991"),
    "if v < tonumber(ARGV[3]) then redis.call('SET', KEYS[i], ARGV[3], 'PX', ARGV[4]) end \
     end \
     return 1"
);

/// Gives the guard KEYS\[1\] the value ARGV\[2\] for ARGV\[3\] ms if its value is ARGV\[1\], where
/// an empty one stands for a missing key. Returns 1 if it has the new value now, whoever gave it, and
/// 0 if it has another one. A quarantine does not shorten a longer one that is under way.
pub const ENROL: &str = "\
local v = redis.call('GET', KEYS[1]) or '' \
if v == ARGV[1] then \
local px = tonumber(ARGV[3]) \
local t = redis.call('PTTL', KEYS[1]) \
if px > 126144000000 and t > px then px = t end \
redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', px)) \
return 1 \
end \
if v == ARGV[2] then return 1 end \
return 0";

/// Lets KEYS live for at least ARGV\[2\] ms more and returns 1 if all of them hold the token
/// ARGV\[1\]; otherwise returns 0. It never shortens a TTL and never brings a key back.
pub const EXTEND: &str = concat!(
    "local marked = {} \
     for i = 1, #KEYS do ",
    read_value!(),
    "if v ~= ARGV[1] then \
     local ends ",
    return_0_unless_marked_mine!(),
    "marked[i] = {ends, left} \
     end \
     end \
     for i, k in ipairs(KEYS) do \
     if marked[i] then \
     local ends, left = unpack(marked[i]) ",
    extend_marked!(),
    "elseif redis.call('PTTL', k) < tonumber(ARGV[2]) then redis.call('PEXPIRE', k, ARGV[2]) end \
     end \
     return 1"
);

/// Deletes those of KEYS that hold the token ARGV\[1\] and returns how many.
pub const UNDO: &str = concat!(
    "local n = 0 \
     for i = 1, #KEYS do ",
    read_value!(),
    undo_value!(),
    "end \
     return n"
);

/// Tells who shares KEYS\[1\]: how many, and in further lines up to ARGV\[1\] of them, those first who end first, each with
/// the ms that are left. Where that cannot be redbolt's, it is empty.
pub const VIEW_SHARED: &str = concat!(
    read_clock_ms!(),
    "local after = string.format('(%.0f', now) \
     local found = redis.pcall('ZRANGEBYSCORE', KEYS[1], after, '(+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]) \
     if found.err then return found end \
     local lines = {redis.call('ZCOUNT', KEYS[1], after, '(+inf')} \
     for i = 1, #found, 2 do \
     if #found[i] > 165 then return '' end \
     table.insert(lines, string.format('%.0f %s', found[i + 1] - now, found[i])) \
     end \
     return table.concat(lines, '\\n')"
);

/// Tells who has which slot of the semaphore KEYS\[1\]: how many, and in further lines up to ARGV\[1\] of them, those
/// first who end first, each with the ms that are left and the slot. Another hash of few short fields tells `hash`, and in further lines
/// these, each behind its value. Otherwise it is empty.
pub const VIEW_PERMITS: &str = concat!(
    read_clock_ms!(),
    "local after = string.format('(%.0f', now) \
     local mark = redis.pcall('HEXISTS', KEYS[1], 'redbolt') \
     if type(mark) == 'table' then return mark end \
     if mark == 0 then \
     if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[1]) then return '' end \
     local fields, lines = redis.call('HGETALL', KEYS[1]), {'hash'} \
     for i = 1, #fields, 2 do \
     if #fields[i] > 165 or #fields[i + 1] > 20 then return '' end \
     table.insert(lines, fields[i + 1] .. ' ' .. fields[i]) \
     end \
     return table.concat(lines, '\\n') \
     end \
     local found = redis.call('ZRANGEBYSCORE', KEYS[2], after, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]) \
     local lines = {redis.call('ZCOUNT', KEYS[2], after, '+inf')} \
     for i = 1, #found, 2 do \
     local slot = redis.call('HGET', KEYS[1], found[i]) \
     if not slot or #slot > 5 or #found[i] > 163 then return '' end \
     table.insert(lines, string.format('%.0f %s %s', found[i + 1] - now, slot, found[i])) \
     end \
     return table.concat(lines, '\\n')"
);

/// How many colons of a name are taken for the end of a registry's key, as in `tell_spring!`.
pub(super) const SPRING_COLONS: usize = 16;

mod force_unlock;
mod line;
pub(super) mod python;
pub(super) mod redisson;
mod redisson_rw;
mod spring;
pub(super) mod symfony;
pub(super) mod timed;

pub use self::force_unlock::{FORCE_UNLOCK, VIEW_DIGEST};
pub use self::line::{ACQUIRE_IN_LINE, ACQUIRE_PERMIT_IN_LINE, LEAVE_LINE, VIEW_LINE};
pub use self::python::{ACQUIRE_PYTHON, UNDO_PYTHON};
pub use self::redisson::{
    ACQUIRE_REDISSON, ACQUIRE_REDISSON_FENCED, EXTEND_REDISSON, UNDO_REDISSON, WRITE_BACK_REDISSON,
};
pub use self::redisson_rw::{
    ACQUIRE_REDISSON_READ, ACQUIRE_REDISSON_WRITE, EXTEND_REDISSON_RW, UNDO_REDISSON_RW,
};
pub use self::spring::UNDO_SPRING;
pub use self::symfony::{
    ACQUIRE_SYMFONY_READ, ACQUIRE_SYMFONY_WRITE, EXTEND_SYMFONY_WRITE, UNDO_SYMFONY_WRITE,
};
pub use self::timed::{ACQUIRE_TIMED, EXTEND_TIMED, UNDO_TIMED, token_behind_time};

use super::{fence, permits};

/// A script about a lock's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    AcquireFenced,
    AcquireInLine,
    AcquireMany,
    AcquirePermit,
    AcquirePermitInLine,
    AcquirePython,
    AcquireRedisson,
    AcquireRedissonFenced,
    AcquireRedissonRead,
    AcquireRedissonWrite,
    AcquireShared,
    AcquireSharedFenced,
    AcquireSymfonyRead,
    AcquireSymfonyWrite,
    AcquireTimed,
    Downgrade,
    Extend,
    ExtendDowngraded,
    ExtendPermit,
    ExtendRedisson,
    ExtendRedissonRw,
    ExtendShared,
    ExtendSymfonyWrite,
    ExtendTimed,
    LeaveLine,
    Undo,
    UndoDowngraded,
    UndoPermit,
    UndoPython,
    UndoRedisson,
    UndoRedissonRw,
    UndoShared,
    UndoSpring,
    UndoSymfonyWrite,
    UndoTimed,
    Upgrade,
    UpgradeFenced,
    WriteBack,
    WriteBackPermit,
    WriteBackRedisson,
    WriteBackShared,
}

/// Each script with its text, and the SHA-1 of that, in the order of their numbers.
static SCRIPTS: [(Script, &str, &str); 41] = [
    (Script::AcquireFenced, ACQUIRE_FENCED, "86f9f41e394bd24c8f64789c50a4680d023d088d"),
    (Script::AcquireInLine, ACQUIRE_IN_LINE, "bfccad8c3ce46120d353934e3f565fdcb77bcd1f"),
    (Script::AcquireMany, ACQUIRE_MANY, "b275dfea5a3537917d4db4ed14faff83848fcf19"),
    (Script::AcquirePermit, ACQUIRE_PERMIT, "3e6636714000a40ba7a5c1328892d126ccf6535e"),
    (
        Script::AcquirePermitInLine,
        ACQUIRE_PERMIT_IN_LINE,
        "7b1797c2a9e5bab3c6d26b7116b9c3bb103a1b24",
    ),
    (Script::AcquirePython, ACQUIRE_PYTHON, "64773acc9dc28631e9988b5d6d28e93721b40c92"),
    (Script::AcquireRedisson, ACQUIRE_REDISSON, "e6ff21e274a73d069dbfd6c1515f0a404420d188"),
    (
        Script::AcquireRedissonFenced,
        ACQUIRE_REDISSON_FENCED,
        "8bb847045a428bf667d7055164b2a4fb319e42fb",
    ),
    (
        Script::AcquireRedissonRead,
        ACQUIRE_REDISSON_READ,
        "9058d83f8fdd2dae20223f5077177ea560574864",
    ),
    (
        Script::AcquireRedissonWrite,
        ACQUIRE_REDISSON_WRITE,
        "b5fc7e00d78fd9990faab9a4a59ed8f9f003be8b",
    ),
    (Script::AcquireShared, ACQUIRE_SHARED, "d60c442090780729a37b71bcda63e44924b6fb6f"),
    (
        Script::AcquireSharedFenced,
        ACQUIRE_SHARED_FENCED,
        "561d2d6eb5b80176f8a323453037adb7cc97a741",
    ),
    (Script::AcquireSymfonyRead, ACQUIRE_SYMFONY_READ, "a792f7ed0fdbda8a6053e6035dd95b93d5481112"),
    (
        Script::AcquireSymfonyWrite,
        ACQUIRE_SYMFONY_WRITE,
        "ff458bb66b69acd4fdbc8ba45db4ebc9a2661f32",
    ),
    (Script::AcquireTimed, ACQUIRE_TIMED, "17c11a5f66044f67b0d5b8b9509234bbf1a18301"),
    (Script::Downgrade, DOWNGRADE, "59f3730bdfac2c830ec13e79ec84449e2982396e"),
    (Script::Extend, EXTEND, "07792a2d562f8e8b85444344f856ed0cab1c9863"),
    (Script::ExtendDowngraded, EXTEND_DOWNGRADED, "b2530b8577fce58830c6acbc555ed2507ca038f1"),
    (Script::ExtendPermit, EXTEND_PERMIT, "5c5490f0b43a290d715bb170a0d507e3e287e9e2"),
    (Script::ExtendRedisson, EXTEND_REDISSON, "d5143b9d0e8dbcb95a6ee6edd33fc91b098a225b"),
    (Script::ExtendRedissonRw, EXTEND_REDISSON_RW, "281436ad395971538b1e536bd3db5f6e6312de20"),
    (Script::ExtendShared, EXTEND_SHARED, "30ce6f8e4fbb05993754507331a2fb5d418e7970"),
    (Script::ExtendSymfonyWrite, EXTEND_SYMFONY_WRITE, "3a1488cc8d6e538109c8221030eb4a91159e85f9"),
    (Script::ExtendTimed, EXTEND_TIMED, "9dfbeb363fc9632ca469b24f714d8ad20dba9433"),
    (Script::LeaveLine, LEAVE_LINE, "33968331c10496bd749b9a73a3a36d0d057ab1a5"),
    (Script::Undo, UNDO, "16f873ccd6eb3ca706327d802bd0b80f1d2eca80"),
    (Script::UndoDowngraded, UNDO_DOWNGRADED, "6b99e81048cd256a3fdfdc6e58a65b461de86605"),
    (Script::UndoPermit, UNDO_PERMIT, "9781763056553befc0d7e533306cd8e8089e7e6c"),
    (Script::UndoPython, UNDO_PYTHON, "ad3e2f8f759c6e5ca2df41b9998770991f78d4b1"),
    (Script::UndoRedisson, UNDO_REDISSON, "17cd1274828fed4c8a2a8683c4ec462479594d2d"),
    (Script::UndoRedissonRw, UNDO_REDISSON_RW, "f4c5772dfe7e873f952d82a216125dceff4fccd7"),
    (Script::UndoShared, UNDO_SHARED, "a63c6cebc539d91009a2f928753037f0d4583f89"),
    (Script::UndoSpring, UNDO_SPRING, "1d42caa99544707bb380afc8b080bbd19fc75b51"),
    (Script::UndoSymfonyWrite, UNDO_SYMFONY_WRITE, "2fa62c34eef4e23863327c1997b1ef99dda1232b"),
    (Script::UndoTimed, UNDO_TIMED, "0f54cbea4f74a5747ea0d5bad59131ab8aefc8bd"),
    (Script::Upgrade, UPGRADE, "d0fbdde662a7e5d180afa48b28587a0594b4efdb"),
    (Script::UpgradeFenced, UPGRADE_FENCED, "55e2de54f71d6755cea32c49c97c8c76a3ec1e24"),
    (Script::WriteBack, WRITE_BACK, "435b59118f749cc9a46164cdc6f76cb01f53ee50"),
    (Script::WriteBackPermit, WRITE_BACK_PERMIT, "15e9935c8bdfdfdefe485a839cfd1a1d4c921df6"),
    (Script::WriteBackRedisson, WRITE_BACK_REDISSON, "46406c9d7a02adabd1770d3df9de6d02ea175f08"),
    (Script::WriteBackShared, WRITE_BACK_SHARED, "ff8639589bd3476990681ad618349d59d8ae1e49"),
];

impl Script {
    pub(super) fn text(self) -> &'static str {
        SCRIPTS[self as usize].1
    }

    /// The SHA-1 of its text, by which `EVALSHA` calls it.
    pub(super) fn digest(self) -> &'static str {
        SCRIPTS[self as usize].2
    }

    /// With what the keys begin that stand behind the resources in its KEYS: those of a semaphore, the lease of a lock whose
    /// value is a time, and the fencing counters that it reads or raises. One that gives a permit does so where a counter is proposed.
    pub(super) fn prefixes_behind(self, proposes: bool) -> &'static [&'static [u8]] {
        match self {
            Self::AcquireFenced
            | Self::AcquireSharedFenced
            | Self::UpgradeFenced
            | Self::WriteBack
            | Self::WriteBackShared => &[fence::COUNTER_PREFIX],
            Self::AcquireInLine if proposes => &[fence::COUNTER_PREFIX],
            Self::AcquirePermit | Self::AcquirePermitInLine if proposes => {
                &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX]
            }
            Self::AcquireTimed | Self::ExtendTimed | Self::UndoTimed => &[timed::LEASE_PREFIX],
            Self::WriteBackPermit => &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX],
            Self::AcquirePermit
            | Self::AcquirePermitInLine
            | Self::ExtendPermit
            | Self::UndoPermit => &[permits::ENDS_PREFIX],
            _ => &[],
        }
    }

    /// The key that stands behind the resource in its KEYS, where its name is not the resource's behind a prefix.
    pub(super) fn key_beside(self, resource: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::AcquirePython | Self::UndoPython => Some(python::signal(resource)),
            Self::AcquireRedissonFenced | Self::WriteBackRedisson => {
                Some(redisson::beside(redisson::COUNTER, resource))
            }
            _ => None,
        }
    }

    /// Whether it reads the guard's key, the last of its KEYS.
    pub(super) fn checks_restart_guard(self) -> bool {
        matches!(
            self,
            Self::AcquireFenced
                | Self::AcquireInLine
                | Self::AcquireMany
                | Self::AcquirePermit
                | Self::AcquirePermitInLine
                | Self::AcquirePython
                | Self::AcquireRedisson
                | Self::AcquireRedissonFenced
                | Self::AcquireRedissonRead
                | Self::AcquireRedissonWrite
                | Self::AcquireShared
                | Self::AcquireSharedFenced
                | Self::AcquireSymfonyRead
                | Self::AcquireSymfonyWrite
                | Self::AcquireTimed
                | Self::Downgrade
                | Self::Upgrade
                | Self::UpgradeFenced
        )
    }

    /// Whether it asks in line.
    pub(super) fn asks_in_line(self) -> bool {
        matches!(self, Self::AcquireInLine | Self::AcquirePermitInLine)
    }

    /// Whether it is about a ticket in line.
    pub(super) fn is_in_line(self) -> bool {
        self.asks_in_line() || self == Self::LeaveLine
    }

    /// Whether a grant by it says no more than `OK`.
    pub(super) fn says_only_ok(self) -> bool {
        matches!(
            self,
            Self::AcquireMany
                | Self::AcquirePython
                | Self::AcquireRedisson
                | Self::AcquireRedissonRead
                | Self::AcquireRedissonWrite
                | Self::AcquireShared
                | Self::AcquireSymfonyRead
                | Self::AcquireSymfonyWrite
                | Self::AcquireTimed
                | Self::Downgrade
                | Self::Upgrade
        )
    }

    /// Whether it names the holder's other claim.
    pub(super) fn names_other_claim(self) -> bool {
        matches!(self, Self::Downgrade | Self::Upgrade | Self::UpgradeFenced)
    }
}

/// Which scripts a connection has sent by their text, so that the node knows them by digest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded(u64);

impl Loaded {
    /// Whether it is new.
    pub(super) fn insert(&mut self, script: Script) -> bool {
        let before = self.0;
        self.0 |= 1 << script as u8;
        self.0 != before
    }

    /// The text was not sent after all.
    pub(super) fn forget(&mut self, script: Script) {
        self.0 &= !(1 << script as u8);
    }

    /// The node answered `NOSCRIPT`: it has forgotten all of them.
    pub(super) fn forget_all(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use sha1_smol::Sha1;

    use super::*;

    /// A number in a Lua text cannot be a constant of ours.
    #[test]
    fn the_texts_know_the_bound_of_the_restart_guard() {
        let bound = format!("t > {} ", crate::proto::restart_guard::BIG_MS);
        assert!(ACQUIRE_MANY.contains(&bound) && ACQUIRE_FENCED.contains(&bound));
        assert!(ENROL.contains(&format!("px > {} ", crate::proto::restart_guard::BIG_MS)));
        let far = format!("> {} ", fence::MAX_SKEW.as_micros());
        assert!(ACQUIRE_FENCED.contains(&far));
        assert!(ACQUIRE_FENCED.contains(&format!("v < {})", fence::MAX_TOKEN - 1)));
        assert!(WRITE_BACK.contains(&format!("v <= {})", fence::MAX_TOKEN)));
    }

    #[test]
    fn each_script_has_its_own_digest() {
        for (at, (script, text, _)) in SCRIPTS.into_iter().enumerate() {
            assert_eq!((script as usize, script.text()), (at, text));
            let digest = Sha1::from(text).digest().to_string();
            assert_eq!(script.digest(), digest, "{script:?}");
        }
    }
}
