-- The format of Symfony's lock component.
--
-- A lock is a sorted set of holders, scored by the ms at which they expire by the node's clock. A
-- writer also has the member `__write__` with the same score. The key expires with its last holder.
-- Any other data denies, including strings (Symfony's locks were strings before 5.2) and redbolt's
-- own shared locks, and is never changed.
--
-- A Symfony holder is 32 bytes in base64. A redbolt holder is a token behind `s:`, so that
-- redbolt's own scripts do not take the set for theirs. A release notifies no waiter: Symfony polls
-- every 100 ms.

-- Denies unless the key is free or a Symfony set.
--@part deny_unless_symfony
local kind, t = redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1])
if kind ~= 'none' then
  if kind ~= 'zset' or t == -1 then return t end
  local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if first ~= '__write__' and not string.find(first, '^s:' .. string.rep('%x', 34))
    and not (#first == 44 and string.find(first, '^[%w+/]+=$')) then return t
  end
end

-- Lets ARGV[1] share the lock KEYS[1] for ARGV[2] ms unless a writer has it. KEYS[2] is the guard,
-- if nodes are guarded. ARGV[3] is the number of nodes that the client asks, as in ACQUIRE_SHARED.
-- The reply is `OK`, or the ms for which others have the lock (-1 without end).
--@script acquire_symfony_read
local guard = KEYS[2]
--@use check_restart_guard
--@use read_clock_ms
-- It is undone by UNDO_SHARED, which reads the key first: if GET is forbidden, the script ends
-- here.
local i = 1
--@use read_value
--@use deny_unless_symfony
if kind ~= 'none' then
  local alone = redis.call('ZSCORE', KEYS[1], '__write__')
  if alone and tonumber(alone) > now then return t end
  for i = 0, ARGV[3] - 1 do
    local twin = string.sub(ARGV[1], 1, 34) .. string.format('%02x', i) .. string.sub(ARGV[1], 37)
    if redis.call('ZSCORE', KEYS[1], twin) then return t end
  end
end
--@use rehearse_undo_shared
--@use share
return redis.status_reply('OK')

-- Gives the free lock KEYS[1] to the writer ARGV[1] for ARGV[2] ms. KEYS[2] is the guard, if nodes
-- are guarded. The reply is `OK`, or the ms for which others have the lock (-1 without end).
--@script acquire_symfony_write
local guard = KEYS[2]
--@use check_restart_guard
--@use read_clock_ms
--@use deny_unless_symfony
if kind ~= 'none'
  and tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]) > now then return t
end
--@use rehearse_undo_shared
local til = string.format('%.0f', now + ARGV[2])
redis.call('ZADD', KEYS[1], til, ARGV[1])
redis.call('ZADD', KEYS[1], til, '__write__')
redis.call('PEXPIREAT', KEYS[1], til)
return redis.status_reply('OK')

-- Lets the writer ARGV[1] keep the lock KEYS[1] for at least ARGV[2] ms, and returns 1; returns 0
-- if it is not its lock. The first write needs no memory.
--@script extend_symfony_write
--@use read_mine
if not redis.call('ZSCORE', KEYS[1], '__write__') then return 0 end
if now + ARGV[2] > tonumber(mine) then
  local til = string.format('%.0f', now + ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], til)
  redis.call('ZADD', KEYS[1], til, ARGV[1])
  redis.call('ZADD', KEYS[1], til, '__write__')
end
return 1

-- Takes the lock KEYS[1] from the writer ARGV[1], and returns 1; returns 0 if it is not its lock.
--@script undo_symfony_write
--@use undo_member redis.call('ZREM', KEYS[1], '__write__')

-- Removes the members of KEYS[1] in the ARGV behind the first that an operator has seen, and
-- returns their number. If a writer was seen, no other holder has the member `__write__`.
--@script force_unlock_symfony
local n = 0
--@use remove_members redis.call('ZREM', KEYS[1], '__write__')
return n
