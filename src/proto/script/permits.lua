-- Permits of a semaphore. A permit is a slot, numbered from 0. A hash has the field `redbolt` and
-- two fields for each slot that is taken: slot to holder and holder to slot. The sorted set `ends`
-- has the ms at which each holder expires. If clients wait in the queue, the hash also has the
-- field `line`: no new holder gets a slot then, but a holder may still be moved to another one.

-- Denies unless KEYS[1] is free or a redbolt semaphore. Other data belongs to another program and
-- is never changed. A `line` denies too, except for a move.
--@part deny_unless_permits
local kind = redis.call('TYPE', KEYS[1]).ok
local line = false
if kind ~= 'none' then
  local t = redis.call('PTTL', KEYS[1])
  if kind ~= 'hash' or t == -1 or redis.call('HEXISTS', KEYS[1], 'redbolt') == 0 then return t end
  line = redis.call('HEXISTS', KEYS[1], 'line') == 1
  if line and ARGV[6] ~= '0' then return t end
end

-- Lets both keys of a semaphore expire with its last holder, and a marked hash 8 s later (see
-- fair_queue.lua). Without holders they are deleted, or closed.
--@part live_as_long_as_the_last_permit
local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
local line = redis.call('HEXISTS', KEYS[1], 'line') == 1
if last then
  redis.call('PEXPIREAT', ends, last)
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last + (line and 8000 or 0)))
elseif line then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[1], '\nredbolt', 'PX', 8000)
else redis.call('HDEL', KEYS[1], 'redbolt')
end

-- Removes expired holders.
--@part drop_permits_that_ended
local function drop(token)
  local slot = redis.call('HGET', KEYS[1], token)
  if slot then redis.call('HDEL', KEYS[1], token, slot) end
  redis.call('ZREM', ends, token)
end
for _, token in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do drop(token) end

-- Tries the commands of an undo, as for shared locks. It stands behind all denials because it makes
-- the node send notifications of a change.
--@part rehearse_undo_permit
redis.call('HDEL', KEYS[1], '')
redis.call('ZREM', ends, '')
redis.call('HEXISTS', KEYS[1], 'line')
local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2] or now
redis.call('PEXPIREAT', ends, last)
redis.call('PEXPIREAT', KEYS[1], last)

-- Finds the first free slot: from the one in ARGV at `$first` in steps of that at `$step`, in a
-- circle of `n`. 64 slots are read at a time. Which of those 64 are free is part of the reply, as a
-- hexadecimal digit for each 4. Without a free slot the reply is the ms until the first holder
-- expires; a score that redbolt did not write may be infinite, which an integer reply cannot
-- express.
--@part find_free_slot first step
if redis.call('ZCARD', ends) < n then
  local part = 0
  while not slot and part * 64 < n do
    local slots = {}
    for i = part * 64, math.min(part * 64 + 64, n) - 1 do
      table.insert(slots, string.format('%.0f', (ARGV[$first] + i * ARGV[$step]) % n))
    end
    local taken = redis.call('HMGET', KEYS[1], unpack(slots))
    local free = {}
    for i = 1, #slots, 4 do
      local digit = 0
      for j = 0, 3 do
        if slots[i + j] and not taken[i + j] then
          digit = digit + 2 ^ j
          slot = slot or slots[i + j]
        end
      end
      table.insert(free, string.format('%x', digit))
    end
    if slot then seen = string.format(' %.0f ', part) .. table.concat(free) end
    part = part + 1
  end
end
if not slot then return math.min(redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2] - now, 9007199254740991) end

-- Reads the counter of a slot, in the hash `counters`, as a number `v` within the bound.
--@part read_slot_counter bound
local v = tonumber(redis.call('HGET', counters, slot) or 0)
if not (v and v $bound) then return redis.error_reply('ERR the fencing counter cannot be raised') end

-- Sets the counter of a slot and keeps those of the others. Whether the hash may be given a TTL is
-- tried first.
--@part write_slot_counter value ttl
local lives = redis.call('PTTL', counters) >= tonumber(ARGV[$ttl])
local til = string.format('%.0f', now + ARGV[$ttl])
if not lives then redis.call('PEXPIREAT', counters, til) end
redis.call('HSET', counters, slot, $value)
if not lives then redis.call('PEXPIREAT', counters, til) end

-- Gives the slot to the token ARGV[1] for ARGV[2] ms, with the proposed counter, and marks the hash
-- again if there is a `line`. The rest of the reply is `text`.
--@part give_slot counter_ttl
--@use rehearse_undo_permit
local text = ''
if c then
  --@use read_slot_counter < 9007199254740990
  if v >= c then c = math.floor(v) + 1 end
  text = string.format('%.0f', c + c % 2)
  --@use write_slot_counter text | $counter_ttl
  text = ' ' .. text
end
local til = math.max(now + ARGV[2], tonumber(redis.call('ZSCORE', ends, ARGV[1]) or 0))
redis.call('ZADD', ends, string.format('%.0f', til), ARGV[1])
last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', ends, last)
redis.call('HSET', KEYS[1], 'redbolt', 1, slot, ARGV[1], ARGV[1], slot)
if line then redis.call('HSET', KEYS[1], 'line', 1) end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last + (line and 8000 or 0)))

-- Reads the time at which ARGV[1] expires in the slot of ARGV at `$slot`, and returns 0 if it does
-- not have that slot.
--@part read_my_permit slot
local slot = redis.pcall('HGET', KEYS[1], ARGV[1])
--@use return_if_failed slot
if slot ~= ARGV[$slot] then return 0 end
--@use read_clock_ms
local mine = redis.call('ZSCORE', ends, ARGV[1])
if not mine or tonumber(mine) <= now then return 0 end

-- Gives the token ARGV[1] one of the ARGV[4] slots of the semaphore KEYS[1] for ARGV[2] ms and
-- returns `OK` with its number. Otherwise it changes no other holder and returns the ms until a
-- slot may be free, or -1 if there is no limit.
--
-- The slot is the first free one, beginning with ARGV[5] in steps of ARGV[6], which is coprime to
-- ARGV[4]. The reply goes on with the free slots among 64: the number of that part and a
-- hexadecimal digit for each 4, from the lowest bit. With a step of 0 the token is moved: it gets
-- slot ARGV[5] or none, and the slot that it had becomes free either way.
--
-- KEYS[2] is the sorted set of holders by expiry, in ms by the node's clock. ARGV[3] is the number
-- of nodes, see deny_twin. The last of KEYS is the guard, as in ACQUIRE_MANY. With ARGV[7] and
-- ARGV[8] the slot's fencing counter in the hash KEYS[3] is raised as in ACQUIRE_FENCED, and is the
-- last word of the reply.
--@script acquire_permit
local guard = KEYS[ARGV[7] and 4 or 3]
--@use check_restart_guard
--@use deny_unless_permits
--@use read_clock_ms
local c = tonumber(ARGV[7])
local us = time[1] * 1000000 + time[2]
--@use check_clock c and math.abs(c - us) | us
local ends, counters = KEYS[2], KEYS[3]
if kind == 'none' or redis.call('ZCARD', ends) == 0 then redis.call('DEL', KEYS[1], ends) end
--@use drop_permits_that_ended
--@use deny_twin 3 | twin ~= ARGV[1] and redis.call('ZSCORE', ends, twin)
local n = tonumber(ARGV[4])
local mine = redis.call('HGET', KEYS[1], ARGV[1])
local slot, seen = mine, ''
if ARGV[6] == '0' then
  local taken = redis.call('HGET', KEYS[1], ARGV[5])
  if taken and taken ~= ARGV[1] then
    if mine then
      drop(ARGV[1])
      --@use live_as_long_as_the_last_permit
    end
    return math.min((redis.call('ZSCORE', ends, taken) or now) - now, 9007199254740991)
  end
  slot = ARGV[5]
elseif not slot then
  --@use find_free_slot 5 | 6
end
--@use give_slot 8
if mine and mine ~= slot then redis.call('HDEL', KEYS[1], mine) end
return redis.status_reply('OK ' .. slot .. seen .. text)

-- Lets the token ARGV[1] keep slot ARGV[3] of the semaphore KEYS[1] for at least ARGV[2] ms and
-- returns 1 if it has the slot now; returns 0 otherwise. It never shortens a holder's time and
-- never revives one.
--@script extend_permit
local ends = KEYS[2]
--@use read_my_permit 3
if now + ARGV[2] > tonumber(mine) then
  redis.call('ZADD', ends, string.format('%.0f', now + ARGV[2]), ARGV[1])
  --@use live_as_long_as_the_last_permit
end
return 1

-- Frees whichever slot of the semaphore KEYS[1] the token ARGV[1] has. Returns 1 if it had one and
-- 0 otherwise. The keys live no longer than the remaining holders.
--@script undo_permit
local slot = redis.pcall('HGET', KEYS[1], ARGV[1])
--@use return_if_failed slot
local ends = KEYS[2]
local n = redis.call('ZREM', ends, ARGV[1])
if slot then
  n = redis.call('HDEL', KEYS[1], ARGV[1], slot) / 2
  --@use live_as_long_as_the_last_permit
end
return n

-- Raises the fencing counter of slot ARGV[4], in the hash KEYS[3], to at least ARGV[2] and returns
-- 1 if the token ARGV[1] has that slot; returns 0 otherwise. The counters live for ARGV[3] ms if it
-- is raised.
--@script write_back_permit
local ends, counters = KEYS[2], KEYS[3]
--@use read_my_permit 4
--@use read_slot_counter <= 9007199254740991
if v < tonumber(ARGV[2]) then
  --@use write_slot_counter ARGV[2] | 3
end
return 1

-- Returns the number of holders of the semaphore KEYS[1] and, in further lines, up to ARGV[1] of
-- them in order of expiry: the remaining ms, the slot and the token. For another hash of few short
-- fields it returns `hash` and, in further lines, each value and its field. For any other data the
-- reply is empty.
--@script view_permits
--@use read_clock_ms
local after = string.format('(%.0f', now)
local mark = redis.pcall('HEXISTS', KEYS[1], 'redbolt')
if type(mark) == 'table' then return mark end
if mark == 0 then
  if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[1]) then return '' end
  local fields, lines = redis.call('HGETALL', KEYS[1]), {'hash'}
  for i = 1, #fields, 2 do
    if #fields[i] > 165 or #fields[i + 1] > 20 then return '' end
    table.insert(lines, fields[i + 1] .. ' ' .. fields[i])
  end
  return table.concat(lines, '\n')
end
local found = redis.call('ZRANGEBYSCORE', KEYS[2], after, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local lines = {redis.call('ZCOUNT', KEYS[2], after, '+inf')}
for i = 1, #found, 2 do
  local slot = redis.call('HGET', KEYS[1], found[i])
  if not slot or #slot > 5 or #found[i] > 163 then return '' end
  table.insert(lines, string.format('%.0f %s %s', found[i + 1] - now, slot, found[i]))
end
return table.concat(lines, '\n')
