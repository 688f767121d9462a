-- Locks that several holders share. A single reader is a string, its token behind `r:`, so that it
-- costs no more than a writer. Several are the members of a sorted set, scored by the ms at which
-- they expire by the node's clock. A writer next to its own claim as a reader is a member too: its
-- token behind `w:`. The key lives as long as its last holder.

-- Denies unless KEYS[1] is free or a sorted set of redbolt holders. Other data belongs to another
-- program and is never changed. Opens a block, for a key that exists, which deny_beside_writer
-- closes.
--@part deny_unless_members
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' then
  local t = redis.call('PTTL', KEYS[1])
  if kind ~= 'zset' or t == -1 then return t end
  local found = redis.call('ZRANGE', KEYS[1], 0, 3, 'WITHSCORES')
  local first = string.gsub(found[1], '^w:', '')
  if not string.find(first, '^' .. string.rep('%x', 34)) then return t end

-- Denies if a writer is alive, unless it is `own`. At most two readers can be next to a writer, its
-- own two claims, so it is among the first four members. Closes the block.
--@part deny_beside_writer
  for i = 1, #found, 2 do
    if string.sub(found[i], 1, 2) == 'w:' and tonumber(found[i + 1]) > now
      and string.sub(found[i], 3, 36) ~= own then return t
    end
  end
end

-- Denies unless the holders are readers and the queue is empty.
--@part deny_unless_shared
local own
--@use deny_unless_members
  if redis.call('ZSCORE', KEYS[1], 'line') then return t end
  --@use deny_beside_writer

-- Denies unless the only holder is the reader whose claim begins with these digits. Another live
-- holder would be among the last four members to expire.
--@part deny_unless_alone digits
local own = ARGV[$digits] .. string.sub(ARGV[1], 35, 36)
--@use make_members digits == own | false
--@use deny_unless_members
  local latest = redis.call('ZRANGE', KEYS[1], -4, -1, 'WITHSCORES')
  for i = 1, #latest, 2 do
    if tonumber(latest[i + 1]) > now and latest[i] ~= 'line'
      and string.sub(latest[i], 1, 34) ~= own then return t
    end
  end
end

-- Turns a single holder's string into a sorted set with the same expiry: a reader's if `$reader`,
-- and a writer's, as `w:` and the token, if `$writer`. Other strings deny. The commands that follow
-- are first tried on the string: if one is forbidden, the script ends with its error and the string
-- stays. The holder stays a member even if the request is then denied.
--@part make_members reader writer
if type(v) == 'string' then
  local mode, token, ends = string.match(v, '^(r?:?)(%x%C*)\n?(%d*)$')
  local digits = string.match(token or '', '^' .. string.rep('%x', 34))
  local is_ours = digits and (mode == 'r:' and $reader or mode == '' and $writer)
  local t = redis.call('PTTL', KEYS[1])
  if not is_ours or t == -1 then return t end
  --@use read_clock_again
  if mode == '' then token = 'w:' .. token end
  if ends ~= '' then
    if tonumber(ends) <= now then return t end
    t = ends - now
  end
  for _, command in ipairs({{'ZREM', KEYS[1], ''}, {'ZADD', KEYS[1], 0, ''},
    {'ZREMRANGEBYSCORE', KEYS[1], 0, 0}, {'ZRANGE', KEYS[1], 0, 0}, {'ZSCORE', KEYS[1], ''}}) do
    local answer = redis.pcall(unpack(command))
    if not string.find(answer.err, '^WRONGTYPE') then redis.call(unpack(command)) end
  end
  redis.call('PEXPIREAT', KEYS[1], now + t)
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + t), token)
  redis.call('PEXPIREAT', KEYS[1], now + t)
  if ends ~= '' then
    redis.call('ZADD', KEYS[1], '+inf', 'line')
    redis.call('PEXPIREAT', KEYS[1], now + t + 8000)
  end
end

-- Reads the time at which the key is to expire: with its last holder, and 8 s later if it is marked
-- (see fair_queue.lua).
--@part read_last_end
local tail = redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
local last = tail[#tail]
if tail[#tail - 1] == 'line' then
  last = tail[3] and string.format('%.0f', tail[2] + 8000)
end

-- Lets the key expire with its last holder. If only the mark is left, the key becomes closed.
--@part live_as_long_as_the_last
--@use read_last_end
if last then redis.call('PEXPIREAT', KEYS[1], last)
elseif tail[1] then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[1], '\nredbolt', 'PX', 8000)
end

-- Removes expired holders, and tries the commands of an undo with a holder that cannot exist. If
-- one is forbidden, the script ends here and leaves no key without expiry.
--@part rehearse_undo_shared
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREM', KEYS[1], '')
--@use read_last_end
redis.call('PEXPIREAT', KEYS[1], last or now + 8000)

-- Denies a client that reaches this server under two addresses and already shares the resource: the
-- tokens of one request differ only in the two digits of the node. Exclusive holders need no such
-- check because the second request is denied like any other.
--@part deny_twin nodes is_there
for i = 0, ARGV[$nodes] - 1 do
  local twin = string.sub(ARGV[1], 1, 32) .. string.format('%02x', i) .. string.sub(ARGV[1], 35)
  if $is_there then return redis.call('PTTL', KEYS[1]) end
end

-- Lets the holder ARGV[1] share the resource for ARGV[2] ms.
--@part share
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
--@use live_as_long_as_the_last

-- Shares the resource with other holders, after a rehearsal of the undo. `$before` runs just before
-- the grant.
--@part share_with_others nodes before
--@use rehearse_undo_shared
--@use deny_twin $nodes | redis.call('ZSCORE', KEYS[1], twin)
$before
--@use share

-- Shares a free resource. `$before` runs just before the grant.
--@part share_alone before
redis.call('DEL', KEYS[1])
$before
redis.call('SET', KEYS[1], 'r:' .. ARGV[1], 'PX', ARGV[2])

-- Reads the proposed counter ARGV[3] as `c`, and replies with the node's clock in µs if it is more
-- than 5 s from it.
--@part read_proposal
local c = tonumber(ARGV[3])
local us = time[1] * 1000000 + time[2]
--@use check_clock math.abs(c - us) | us

-- Reads the time at which the member ARGV[1] expires, as `mine`, and returns 0 if it is not a live
-- member. Data of another type has no members.
--@part read_mine
local mine = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
--@use return_if_failed mine
--@use read_clock_ms
if not mine or tonumber(mine) <= now then return 0 end

-- Lets the holder's string at KEYS[1] live for at least ARGV[2] ms, and returns 1.
--@part extend_string
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1

-- Lets the member ARGV[1] expire no earlier than in ARGV[2] ms, if it has not expired.
--@part extend_member
--@use read_mine
if now + ARGV[2] > tonumber(mine) then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
  --@use live_as_long_as_the_last
end
return 1

-- Removes the member ARGV[1]. `$also` runs if it was there.
--@part undo_member also
local n = redis.pcall('ZREM', KEYS[1], ARGV[1])
--@use return_if_failed n
if n == 1 then
  $also
  --@use live_as_long_as_the_last
end
return n

-- Grants the resource KEYS[1] to the token ARGV[1] for ARGV[2] ms, shared with other readers, and
-- returns `OK`. Otherwise it changes no holder's expiry and returns the remaining TTL of the key,
-- or -1 if it has none. KEYS[2] is the guard, as in ACQUIRE_MANY. ARGV[3] is the number of nodes
-- that the client asks, see deny_twin.
--@script acquire_shared
local guard, i = KEYS[2], 1
--@use check_restart_guard
--@use read_value
if not v then
  --@use share_alone
  return redis.status_reply('OK')
end
--@use read_clock_ms
--@use make_members true | false
--@use deny_unless_shared
--@use share_with_others 3 |
return redis.status_reply('OK')

-- Like ACQUIRE_SHARED, with a fencing token. KEYS are the resource, its counter and the guard.
-- ARGV[3] is the proposed value and ARGV[4] the counter's TTL in ms, as in ACQUIRE_FENCED; ARGV[6]
-- is the number of nodes.
--
-- A grant is the status `OK` with the counter's value, which is odd. If it is odd already and at
-- least ARGV[5], it stays unchanged, so that all readers between two writers have the same token.
-- Otherwise it becomes the smallest odd number that is at least the proposal and greater than the
-- counter.
--@script acquire_shared_fenced
local guard, i = KEYS[3], 1
--@use check_restart_guard
--@use read_clock_ms
--@use read_value
local is_free = not v
if not is_free then
  --@use make_members true | false
  --@use deny_unless_shared
end
--@use read_proposal
i = 2
--@use read_counter < 9007199254740990
v = math.floor(v)
if v >= tonumber(ARGV[5]) and v % 2 == 1 then c = v
else
  if v >= c then c = v + 1 end
  if c % 2 == 0 then c = c + 1 end
end
local text = string.format('%.0f', c)
if is_free then
  --@use share_alone redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
else
  --@use share_with_others 6 | redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
end
return redis.status_reply('OK ' .. text)

-- Lets the token ARGV[1] share KEYS[1] for at least ARGV[2] ms and returns 1 if it shares it now;
-- returns 0 otherwise. It never shortens a holder's time and never revives one.
--@script extend_shared
local i = 1
--@use read_value
if v == 'r:' .. ARGV[1] then
  --@use extend_string
end
--@use extend_member

-- Removes the token ARGV[1] from the holders of KEYS[1]. Returns 1 if it was one of them and 0
-- otherwise. The key lives no longer than the remaining holders.
--@script undo_shared
local i = 1
--@use read_value
if v == 'r:' .. ARGV[1] then return redis.call('DEL', KEYS[1]) end
--@use undo_member

-- Raises the fencing counter KEYS[2] to at least ARGV[2] and returns 1 if the token ARGV[1] shares
-- KEYS[1]; returns 0 otherwise. The counter lives for ARGV[3] ms if it is raised.
--@script write_back_shared
local i = 1
--@use read_value
if v ~= 'r:' .. ARGV[1] then
  --@use read_mine
end
i = 2
--@use read_counter <= 9007199254740991
if v < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return 1

-- Makes a reader that is alone the writer of KEYS[1] and returns `OK`. Otherwise it changes no
-- holder's expiry and returns the remaining TTL of the key, or -1 if it has none.
--
-- The writer ARGV[1], a token behind `w:`, becomes a member next to the holder's own claim as a
-- reader, which keeps its expiry. That claim's token begins with the digits ARGV[3] and those of
-- the same node. KEYS[2] is the guard, as in ACQUIRE_MANY.
--@script upgrade
local guard, i = KEYS[2], 1
--@use check_restart_guard
--@use read_clock_ms
--@use read_value
--@use deny_unless_alone 3
--@use rehearse_undo_shared
--@use share
return redis.status_reply('OK')

-- Like UPGRADE, with a fencing token. KEYS are the resource, its counter and the guard. ARGV[3] is
-- the proposed value, ARGV[4] the counter's TTL in ms and ARGV[5] the digits of the reader's claim.
-- The counter becomes even, as in ACQUIRE_FENCED.
--@script upgrade_fenced
local guard, i = KEYS[3], 1
--@use check_restart_guard
--@use read_clock_ms
--@use read_value
--@use deny_unless_alone 5
--@use read_proposal
i = 2
--@use read_counter < 9007199254740990
if v >= c then c = math.floor(v) + 1 end
local text = string.format('%.0f', c + c % 2)
--@use rehearse_undo_shared
redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
--@use share
return redis.status_reply('OK ' .. text)

-- Like ACQUIRE_SHARED, for the writer of the resource, whose own claim does not deny. That claim's
-- token begins with the digits ARGV[4] and those of the same node. A string becomes a member of the
-- sorted set, as `w:` and the token, with the same expiry.
--@script downgrade
local guard, i = KEYS[2], 1
--@use check_restart_guard
--@use read_clock_ms
--@use read_value
local own = ARGV[4] .. string.sub(ARGV[1], 33, 34)
--@use make_members true | digits == own
--@use deny_unless_members
  --@use deny_beside_writer
--@use share_with_others 3 |
return redis.status_reply('OK')

-- Like EXTEND, for a writer that has become a reader: on nodes that were asked to share, the token
-- ARGV[1] is a member behind `w:`.
--@script extend_downgraded
local i = 1
--@use read_value
if v == ARGV[1] then
  --@use extend_string
end
if type(v) == 'string' then
  local ends
  --@use return_0_unless_marked_mine
  --@use extend_marked
  return 1
end
ARGV[1] = 'w:' .. ARGV[1]
--@use extend_member

-- Like UNDO, for a writer that has become a reader, see EXTEND_DOWNGRADED.
--@script undo_downgraded
local i, n = 1, 0
--@use read_value
--@use undo_value
if n > 0 then return n end
ARGV[1] = 'w:' .. ARGV[1]
--@use undo_member

-- Returns the number of holders that share KEYS[1] and, in further lines, up to ARGV[1] of them in
-- order of expiry: the remaining ms and the token. The reply is empty if the set cannot be
-- redbolt's.
--@script view_shared
--@use read_clock_ms
local after = string.format('(%.0f', now)
local found = redis.pcall('ZRANGEBYSCORE', KEYS[1], after, '(+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
if found.err then return found end
local lines = {redis.call('ZCOUNT', KEYS[1], after, '(+inf')}
for i = 1, #found, 2 do
  if #found[i] > 165 then return '' end
  table.insert(lines, string.format('%.0f %s', found[i + 1] - now, found[i]))
end
return table.concat(lines, '\n')
