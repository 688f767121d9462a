-- The queue of waiters for a resource, kept on each node.
--
-- A ticket is a member of two sorted sets: scored by its stamp in `redbolt:line:`, and by its
-- expiry in `redbolt:line-until:`. Its name is the mode of the lock (`x` exclusive, `s` shared, `p`
-- permit), 32 random digits, the two digits of the node as in a token, a colon and its grace in ms,
-- and a second colon and the label of its owner's token if there is one. The ticket's own key,
-- `redbolt:line-wait:` and the name up to the node's digits, holds its stamp. Deleting that key
-- notifies the waiters behind the ticket.
--
-- Clients outside the queue ask with SET NX and must not overtake the queue. So the value at a
-- resource with waiters is *marked*: a token is followed by a line feed and the ms at which its
-- holder expires; a set of readers has the member `line`; a hash of permits has the field `line`. A
-- single reader is made a set first. A marked key outlives its holders by 8 s. Ending the last
-- holder leaves a *closed* key, which contains a line feed and `redbolt`: it denies every SET NX,
-- and only the first in the queue may replace it. When the queue is empty, the mark is removed and
-- a closed key is deleted.
--
-- Readers are admitted together, and as many waiters for permits as there are free slots.
--
-- A queue only denies, so losing it or getting it wrong does not harm exclusion.

-- Checks the restart guard and the proposed counter `c`. If ARGV has the counters' TTL at `$ttl`,
-- the counter is at `$counter` and the guard is the first of the two places `$guard` of KEYS;
-- otherwise there is no counter. Sets `me` to the name of the ticket.
--@part begin_in_queue guard counter ttl
local guard = KEYS[ARGV[$ttl] and $guard]
--@use check_restart_guard
--@use read_clock_ms
local us = time[1] * 1000000 + time[2]
local c = ARGV[$ttl] and tonumber(ARGV[$counter])
--@use check_clock c and math.abs(c - us) | us
local me = ARGV[#ARGV] .. string.sub(ARGV[1], 33, 34) .. ':' .. ARGV[6] .. string.sub(ARGV[1], 35)

-- Removes the ticket `$of` with its own key, which notifies the two waiters behind it.
--@part remove_ticket of
redis.call('ZREM', KEYS[2], $of)
redis.call('ZREM', KEYS[3], $of)
redis.call('DEL', string.sub(KEYS[4], 1, -34) .. string.sub($of, 1, 33))

-- Removes expired tickets. A ticket that has expired in one of the two sets has expired.
--@part drop_dead_tickets
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 64)) do
  --@use remove_ticket dead
end

-- Opens a block that is skipped if the ticket is the first, at the stamp ARGV[4], and the resource
-- is closed, as it is after a release has called the first in the queue. Nothing else needs to be
-- checked then: an expired ticket would be put back at the same place. The script closes the block.
--@part unless_its_turn_has_come
local state, stamp = 'free', ARGV[4]
local head = stamp ~= '0' and redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES') or {}
if head[1] ~= me or head[2] ~= stamp or redis.pcall('GET', KEYS[1]) ~= '\nredbolt' then

-- Puts the ticket `me` at its place before anything else is checked: at the waiter's stamp, else
-- where it stands, else behind all others. The expiry of the set is tried first, or the set could
-- be left without one. `others` says whether there were other tickets.
--@part join_queue
local live = string.format('%.0f', now + 6000)
local others = redis.call('PEXPIREAT', KEYS[2], live) == 1
if others then
  --@use drop_dead_tickets
end
stamp = tonumber(stamp)
if stamp == 0 and others then stamp = tonumber(redis.call('ZSCORE', KEYS[2], me) or 0) end
if stamp == 0 then
  local last = others and redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
  stamp = math.max(last + 1, math.min(tonumber(ARGV[5]), us + 5000000))
end
stamp = string.format('%.0f', stamp)
local has_moved = redis.call('ZADD', KEYS[2], 'CH', stamp, me) == 1
redis.call('ZADD', KEYS[3], live, me)
redis.call('PEXPIREAT', KEYS[2], live)
redis.call('PEXPIREAT', KEYS[3], live)
if has_moved or redis.call('PTTL', KEYS[4]) < 8000 then redis.call('SET', KEYS[4], stamp, 'PX', 12000) end

-- Opens a block for a sorted set of redbolt readers. The script closes the block.
--@part if_it_is_a_set_of_ours
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local name = string.gsub(first[1], '^w:', '')
if string.find(name, '^' .. string.rep('%x', 34)) or name == 'line' and first[2] == 'inf' then

-- Reads the resource, as `state`: `free` for the queue, a redbolt `token`, a `set` of readers, a
-- hash of `permits`, any of them `marked`, or `other` data. It is in the way of an exclusive lock
-- for `alone` ms and of a reader for `beside` ms: 0 for not at all, -1 without end.
--@part look_at_the_way
local v = redis.pcall('GET', KEYS[1])
local t = v and redis.call('PTTL', KEYS[1]) or -2
if t == 0 then t = 1 end
if t > 0 and type(v) == 'string' and string.find(v, '^r:' .. string.rep('%x', 34) .. '%C*$') then
  --@use make_members true | false
  v = redis.pcall('GET', KEYS[1])
end
local digits = '^' .. string.rep('%x', 34)
local alone, beside, kind = 0, 0, nil
if type(v) == 'table' then
  if not string.find(v.err, '^WRONGTYPE') then return v end
  state, alone, beside = 'other', t, t
  kind = t > 0 and redis.call('TYPE', KEYS[1]).ok
  if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'redbolt') == 1 then
    state = 'permits'
    if redis.call('HEXISTS', KEYS[1], 'line') == 1 then state, alone = 'marked', math.max(t - 8000, 0) end
    if alone == 0 then state = 'free' end
    beside = alone
  elseif kind == 'zset' then
    --@use if_it_is_a_set_of_ours
      redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
      local tail = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
      local last = tail[#tail]
      state, beside = 'set', 0
      if tail[#tail - 1] == 'line' then state, last = 'marked', tail[3] and tail[2] end
      if last then alone = last - now else state, alone = 'free', 0 end
      for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, 3)) do
        if string.sub(member, 1, 2) == 'w:' then beside = alone end
      end
    end
  end
elseif v and v ~= '\nredbolt' then
  local ends = string.match(v, digits .. '%C*\n(%d+)$')
  if ends then
    alone = math.max(ends - now, 0)
    if alone > 0 then state = 'marked' end
  else
    alone = t
    local is_token = string.find(v, digits .. '$') or string.find(v, digits .. ':%C+$')
    state = t > 0 and is_token and 'token' or 'other'
  end
  beside = alone
end

-- Reads up to `$back` tickets before `me`, as `all`. Counts as `before` those that the lock cannot
-- be held alongside, by the expression `$excludes` of the ticket's `mode`, with the nearest two as
-- `last` and `last_but_one`.
--
-- The request of a reader or for a permit must not cost a node time in proportion to its place, so
-- tickets farther ahead are not read. They count as in the way: the waiter is told to wait for the
-- farthest ticket that was read.
--@part look_back back excludes
before, last, last_but_one = 0, '-', '-'
local rank = redis.call('ZRANK', KEYS[2], me)
local from = math.max(rank - $back, 0)
local all = rank > 0 and redis.call('ZRANGE', KEYS[2], from, rank - 1) or {}
for i, other in ipairs(all) do
  local mode = string.sub(other, 1, 1)
  if from > 0 and i == 1 or $excludes then before, last, last_but_one = before + 1, other, last end
end
if before > 0 then before = before + from end

-- Counts the tickets before a reader that are not readers', and all tickets before a writer.
--@part look_who_stands_before
--@use look_back (shares and 128 or 2) | not shares or mode ~= 's'

-- Counts the tickets before one for a permit: those of other modes, else those for permits beyond
-- the `room` of free slots.
--@part look_for_room
--@use look_back 128 | mode ~= 'p'
left = before > 0 and alone or open
if before == 0 and rank >= room then
  before, last, last_but_one = rank - room + 1, all[rank], all[rank - 1] or '-'
end

-- Calls the first in the queue if nothing is in its way; it has the `rest` of its grace to come. A
-- ticket that was called for longer loses its place. A request by the called ticket, or a holder in
-- its way, ends the call. `$called` and `$head` are expressions for how long the called and the
-- first ticket have holders in their way. A call in the future was made before the node's clock was
-- set back, and begins again.
--
-- If holders are in the way of the first ticket but not of the asker, which is the expression
-- `$mine`, the last ticket before the asker is the only obstacle. It is `pinged` unless it has
-- asked within the last 500 ms: it expires after its grace unless it asks again.
--@part call_the_first look called head mine
local before, last, last_but_one, rest, pinged = 0, '-', '-', nil, nil
local called, whom = string.match(others and redis.call('GET', KEYS[5]) or '', '^(%d+) (.+)$')
if called and ($called ~= 0 or whom == me) then
  redis.call('DEL', KEYS[5])
  called, whom = nil, nil
end
for _ = 1, others and 64 or 0 do
  --@use $look
  local head = before > 0 and redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not head then break end
  if $head ~= 0 then
    if $mine then
      local grace = tonumber(string.match(last, '^%-?%d+', 37) or 0)
      local left = (redis.call('ZSCORE', KEYS[3], last) or now + 9000) - now
      if left > 6000 or left <= 5500 and left > grace then
        redis.call('ZADD', KEYS[3], string.format('%.0f', now + grace), last)
        pinged = grace
      end
    end
    break
  end
  local grace = tonumber(string.match(head, '^%-?%d+', 37) or 0)
  if whom ~= head or now - called < 0 then
    redis.call('SET', KEYS[5], string.format('%.0f ', now) .. head, 'PX', 8000)
    rest = grace
    break
  end
  if now - called <= grace then
    rest = grace - (now - called)
    break
  end
  --@use remove_ticket head
end

-- Marks what is at the resource. A free resource is closed.
--@part mark_the_way
if state == 'token' then
  t = redis.call('PTTL', KEYS[1])
  --@use read_clock_again
  redis.call('SET', KEYS[1], v .. string.format('\n%.0f', now + t), 'PX', t + 8000)
elseif state == 'set' then
  redis.call('ZADD', KEYS[1], '+inf', 'line')
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + alone + 8000))
elseif state == 'permits' then
  redis.call('HSET', KEYS[1], 'line', 1)
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + alone + 8000))
elseif state == 'free' and (v ~= '\nredbolt' or t < 6000) then
  redis.call('SET', KEYS[1], '\nredbolt', 'PX', 8000)
end

-- Replies WAIT to a ticket that has others before it or holders in its way. The tickets before it
-- are named without their labels; the last is followed by the rest of a call, if one is on, instead
-- of its grace. The owner of a `pinged` ticket is notified: it listens to the resource, whose TTL
-- is set to its present value.
--@part wait_unless_first
if before > 0 or left ~= 0 then
  --@use mark_the_way
  local function known(name) return string.match(name, '^[^:]*:?%-?%d*') end
  last = known(last)
  if rest then last = string.match(last, '^[^:]*') .. string.format(':%.0f', rest) end
  if pinged then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + alone + 8000)) end
  return redis.status_reply(string.format('WAIT %.0f %s %.0f %s %s',
  left, stamp, before, last, known(last_but_one)) .. (pinged and string.format(' %.0f', pinged) or ''))
end

-- Raises the fencing counter `c`, for a lock of either mode, if one is proposed.
--@part raise_counter_in_queue
local told = ''
if c then
  local i = 6
  --@use read_counter < 9007199254740990
  v = math.floor(v)
  if shares and v >= tonumber(ARGV[9]) and v % 2 == 1 then c = v
  else
    if v >= c then c = v + 1 end
    if c % 2 == (shares and 0 or 1) then c = c + 1 end
  end
  told = string.format(' %.0f', c)
end

-- Gives the resource KEYS[1] to the token ARGV[1] for ARGV[2] ms if its ticket is the first that
-- may have it. The reply is the status `OK`, the ticket's stamp and, if it is fenced, the counter.
-- Otherwise it is `WAIT`, the ms for which holders are in the way (0 for not at all, -1 without
-- end), the stamp, the number of tickets before it, and the last two of these or `-`. The name of
-- the last is followed by its grace or, if no holder is in the way, by the ms for which the first
-- in the queue may still come. If the last was pinged, its grace follows again, as a separate word.
--
-- The ticket's name, up to the node's digits, is the last of ARGV, and ARGV[6] its grace. It is put
-- at the stamp ARGV[4]; if that is 0 and it has none, behind all others, at the proposal ARGV[5] in
-- µs or later. KEYS are the resource, the two sets of the queue, the ticket's own key, the key of
-- the call, with ARGV[7] to ARGV[9] the fencing counter, and the guard, as in ACQUIRE_MANY. Those
-- three are the proposed value, the counter's TTL in ms, and the least odd value that stays
-- unchanged, see ACQUIRE_SHARED_FENCED. ARGV[3] is the number of nodes, see deny_twin.
--@script acquire_in_queue
--@use begin_in_queue 7 or 6 | 7 | 8
local shares = string.sub(me, 1, 1) == 's'
--@use unless_its_turn_has_come
  --@use join_queue
  --@use look_at_the_way
  --@use call_the_first look_who_stands_before | alone | alone | shares and beside == 0
  local left = alone
  if shares and before == 0 then left = beside end
  --@use wait_unless_first
end
--@use raise_counter_in_queue
if shares then
  local gone = KEYS[state == 'free' and 1 or 5]
  redis.call('DEL', gone)
  redis.call('SET', gone, '', 'XX', 'PX', 1)
  --@use rehearse_undo_shared
  --@use deny_twin 3 | redis.call('ZSCORE', KEYS[1], twin)
  if c then redis.call('SET', KEYS[6], string.sub(told, 2), 'PX', ARGV[8]) end
  redis.call('ZADD', KEYS[1], '+inf', 'line')
  --@use share
else
  redis.call('DEL', KEYS[1])
  if c then redis.call('SET', KEYS[6], string.sub(told, 2), 'PX', ARGV[8]) end
  redis.call('SET', KEYS[1], ARGV[1] .. string.format('\n%.0f', now + ARGV[2]), 'PX', ARGV[2] + 8000)
end
return redis.status_reply('OK ' .. stamp .. told)

-- Reads the slots of the semaphore: none is free for `open` ms. Once everything else is out of the
-- way, `room` of them are free for tickets with the same `n`. Removes expired holders.
--@part look_at_the_slots
local open, room, left = alone, n, 0
if kind == 'hash' and (state == 'permits' or state == 'marked') then
  --@use drop_permits_that_ended
  local held = redis.call('ZCARD', ends)
  if held == 0 then state, alone, open = 'free', 0, 0
  elseif held < n then open, room = 0, n - held
  else open, room = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2] - now, 1
  end
end
left = open

-- Gives the token ARGV[1] one of the ARGV[7] slots of the semaphore KEYS[1] for ARGV[2] ms if more
-- slots are free than tickets for permits are before it, and no other ticket is. The reply is the
-- status `OK`, the ticket's stamp and the rest of the reply of ACQUIRE_PERMIT; or `WAIT` as in
-- ACQUIRE_IN_QUEUE, which counts the tickets that have to be served first.
--
-- KEYS are the resource, the two sets of the queue, the ticket's own key, the key of the call, the
-- sorted set of holders, with ARGV[10] and ARGV[11] the hash of the slots' counters, and the guard.
-- ARGV up to ARGV[6] and the last of ARGV are those of ACQUIRE_IN_QUEUE; from ARGV[7] on they are
-- those of ACQUIRE_PERMIT from ARGV[4] on.
--@script acquire_permit_in_queue
--@use begin_in_queue 8 or 7 | 10 | 11
local ends, counters, n = KEYS[6], KEYS[7], tonumber(ARGV[7])
--@use unless_its_turn_has_come
  --@use join_queue
  --@use look_at_the_way
  --@use look_at_the_slots
  --@use call_the_first look_for_room | (string.sub(whom, 1, 1) == 'p' and open or alone) | (string.sub(head, 1, 1) == 'p' and open or alone) | open == 0 and string.sub(last, 1, 1) ~= 'p'
  --@use wait_unless_first
end
local gone = KEYS[state == 'free' and 1 or 5]
redis.call('DEL', gone)
redis.call('SET', gone, '', 'XX', 'PX', 1)
if state == 'free' then redis.call('DEL', ends) end
--@use deny_twin 3 | twin ~= ARGV[1] and redis.call('ZSCORE', ends, twin)
local line, slot, seen = true, redis.call('HGET', KEYS[1], ARGV[1]), ''
if not slot then
  --@use find_free_slot 8 | 9
end
--@use give_slot 11
return redis.status_reply('OK ' .. stamp .. ' ' .. slot .. seen .. text)

-- Removes the ticket ARGV[1] from the queue. Returns 1 if it was there and 0 otherwise. KEYS are
-- the resource, the two sets of the queue, the ticket's own key and the key of the call.
--
-- If the queue is empty then, the mark at the resource is removed, and a closed key is deleted.
--@script leave_queue
--@use read_clock_ms
local found = redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('ZCARD', KEYS[2]) > 0 then
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('DEL', KEYS[4])
  --@use drop_dead_tickets
  if redis.call('ZCARD', KEYS[2]) > 0 then return found end
end
redis.call('DEL', KEYS[3], KEYS[4], KEYS[5])
local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' then
  if not string.find(v.err, '^WRONGTYPE') then return v end
  local kind, t = redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1])
  if t == -1 then return found end
  if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'redbolt') + redis.call('HEXISTS', KEYS[1], 'line') == 2 then
    redis.call('PEXPIRE', KEYS[1], t - 8000)
    redis.call('HDEL', KEYS[1], 'line')
  elseif kind == 'zset' then
    --@use if_it_is_a_set_of_ours
      if redis.call('ZSCORE', KEYS[1], 'line') == 'inf' then
        redis.call('ZREM', KEYS[1], 'line')
        --@use live_as_long_as_the_last
      end
    end
  end
elseif v then
  local token, ends = string.match(v, '^(' .. string.rep('%x', 34) .. '%C*)\n(%d+)$')
  if token and ends - now > 0 then redis.call('SET', KEYS[1], token, 'PX', string.format('%.0f', ends - now))
  elseif token or v == '\nredbolt' then redis.call('DEL', KEYS[1])
  end
end
return found

-- Returns the queue for the resource KEYS[1]: the number of tickets, what keeps the resource for
-- them, and for how many ms the first has been called, -1 if it is not. Further lines have the
-- first 16 tickets in their order: the name with its label, the stamp, the ms for which it has
-- waited, and the ms for which it lives. It writes nothing.
--
-- KEYS[2] and KEYS[3] are the two sets of the queue, KEYS[4] is the key of the call. The resource
-- is `open` (kept by nothing), `marked` next to its holders, or `closed`. The bytes of its value up
-- to index ARGV[1] are read. If the sets cannot be redbolt's, the reply is empty.
--@script view_queue
--@use read_clock_ms
local us = time[1] * 1000000 + time[2]
local after = string.format('(%.0f', now)
local found = redis.pcall('ZRANGE', KEYS[2], 0, 79, 'WITHSCORES')
if found.err then return found end
local lines, first = {''}, nil
for i = 1, #found, 2 do
  local left = (tonumber(redis.call('ZSCORE', KEYS[3], found[i])) or 0) - now
  if left > 0 and #lines <= 16 then
    if #found[i] > 200 then return '' end
    first = first or found[i]
    local waits = math.floor(math.max(us - found[i + 1], 0) / 1000)
    table.insert(lines, string.format('%s %.0f %.0f %.0f', found[i], found[i + 1], waits, left))
  end
end
local called, whom = string.match(redis.call('GET', KEYS[4]) or '', '^(%d+) (.+)$')
local since = called and whom == first and math.max(now - called, 0) or -1
local kept = 'open'
local v = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[1])
if type(v) == 'table' then
  if not string.find(v.err, '^WRONGTYPE') then return v end
  local kind = redis.call('TYPE', KEYS[1]).ok
  if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'redbolt') + redis.call('HEXISTS', KEYS[1], 'line') == 2 then
    kept = redis.call('PTTL', KEYS[1]) > 8000 and 'marked' or 'closed'
  elseif kind == 'zset' and redis.call('ZSCORE', KEYS[1], 'line') == 'inf' then
    kept = redis.call('ZCOUNT', KEYS[1], after, '(+inf') > 0 and 'marked' or 'closed'
  end
else
  local ends = string.match(v, '^' .. string.rep('%x', 34) .. '%C*\n(%d+)$')
  if v == '\nredbolt' or ends and ends - now <= 0 then kept = 'closed' elseif ends then kept = 'marked' end
end
lines[1] = string.format('%.0f %s %.0f', redis.call('ZCOUNT', KEYS[3], after, '+inf'), kept, since)
return table.concat(lines, '\n')
