-- The format of Redisson's RReadWriteLock.
--
-- A lock is a hash. `mode` is `read` or `write`, and each holder has a field with its number of
-- entries, which is 1 for redbolt; a writer's name ends with `:write`. The hash has the longest TTL
-- of its holders. Each entry of a reader has a hold key with a separate TTL:
-- `{NAME}:HOLDER:rwlock_timeout:1`. A holder that leaves gives the hash the longest remaining TTL,
-- or deletes it and publishes to `redisson_rwlock:{NAME}`: `0` as a reader, `1` as a writer.
--
-- A reader whose hold key has expired no longer reads, although its field stays while others read.

-- Names the hold keys of the lock, and the `own` one of ARGV[1].
--@part name_holds
local holds = KEYS[1] .. ':'
if not string.find(KEYS[1], '{', 1, true) then holds = '{' .. KEYS[1] .. '}:' end
local own = holds .. ARGV[1] .. ':rwlock_timeout:1'

-- Notifies Redisson's waiters, if that is allowed: all readers, or one writer.
--@part tell_redisson_rw message
local name = KEYS[1]
if not string.find(name, '{', 1, true) then name = '{' .. name .. '}' end
redis.pcall('PUBLISH', 'redisson_rwlock:' .. name, '$message')

-- Tries the commands of an undo with a holder that cannot exist. The first write needs no memory.
--@part rehearse_undo_redisson_rw
redis.call('HEXISTS', KEYS[1], '')
redis.call('HLEN', KEYS[1])
redis.call('HGETALL', KEYS[1])
redis.call('DEL', own)
redis.call('HDEL', KEYS[1], '')
redis.call('PEXPIRE', own, ARGV[2])

-- Reads whether ARGV[1] followed by `$behind` is a field. Data of another type has no fields.
--@part read_field name behind
local $name = redis.pcall('HEXISTS', KEYS[1], ARGV[1] .. '$behind')
--@use return_if_failed $name

-- Lets ARGV[1] read the lock KEYS[1] for ARGV[2] ms if it is free or read by others. KEYS[2] is the
-- guard, if nodes are guarded. ARGV[3] is the number of nodes: another node's claim of the same
-- request denies, as in deny_twin. The reply is `OK`, or the ms for which others have the lock (-1
-- without end).
--@script acquire_redisson_read
local guard = KEYS[2]
--@use check_restart_guard
--@use name_holds
local t = redis.call('PTTL', KEYS[1])
if t ~= -2 then
  local mode = redis.pcall('HGET', KEYS[1], 'mode')
  if type(mode) == 'table' and not string.find(mode.err, '^WRONGTYPE') then return mode end
  if mode ~= 'read' then return t end
end
--@use rehearse_undo_redisson_rw
--@use deny_twin 3 | redis.call('HEXISTS', KEYS[1], twin) == 1
redis.call('SET', own, 1, 'PX', ARGV[2])
redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1)
if t < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.status_reply('OK')

-- Lets ARGV[1] write the lock KEYS[1] for ARGV[2] ms if it is free. KEYS[2] is the guard, if nodes
-- are guarded. The reply is `OK`, or the ms for which others have the lock (-1 without end).
--@script acquire_redisson_write
local guard = KEYS[2]
--@use check_restart_guard
--@use name_holds
local t = redis.call('PTTL', KEYS[1])
if t ~= -2 then return t end
--@use rehearse_undo_redisson_rw
redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1] .. ':write', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.status_reply('OK')

-- Lets ARGV[1] read or write the lock KEYS[1] for at least ARGV[2] ms, and returns 1; returns 0 if
-- it does neither.
--@script extend_redisson_rw
--@use read_field writes | :write
if writes == 0 then
  --@use read_field reads |
  --@use name_holds
  local left = redis.call('PTTL', own)
  if reads == 0 or left == -2 then return 0 end
  if left < tonumber(ARGV[2]) then redis.call('PEXPIRE', own, ARGV[2]) end
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1

-- Takes the lock KEYS[1] from ARGV[1], notifies waiters if it has no other holder, and returns 1;
-- returns 0 if ARGV[1] does not have it. Of each reader up to 64 entries are checked, the last
-- ones, which as a rule expire last.
--@script undo_redisson_rw
--@use read_field writes | :write
if writes == 1 then
  local is_last = redis.call('HLEN', KEYS[1]) <= 2
  redis.call('HDEL', KEYS[1], ARGV[1] .. ':write')
  if is_last then redis.call('DEL', KEYS[1])
  else redis.call('HSET', KEYS[1], 'mode', 'read')
  end
  --@use tell_redisson_rw 1
  return 1
end
--@use name_holds
--@use read_field reads |
if reads == 0 then return 0 end
redis.call('DEL', own)
redis.call('HDEL', KEYS[1], ARGV[1])
local fields, most = redis.call('HGETALL', KEYS[1]), -2
for i = 1, #fields, 2 do
  if fields[i] == 'mode' and fields[i + 1] == 'write' then return 1 end
  local entries = tonumber(fields[i + 1]) or 0
  for entry = entries, math.max(entries - 63, 1), -1 do
    local left = redis.call('PTTL', holds .. fields[i] .. ':rwlock_timeout:' .. entry)
    if left == -1 then return 1 end
    most = math.max(most, left)
  end
end
if most > 0 then
  redis.call('PEXPIRE', KEYS[1], most)
  return 1
end
redis.call('DEL', KEYS[1])
--@use tell_redisson_rw 0
return 1

-- Removes the holders in the ARGV behind the first that an operator has seen, notifies waiters, and
-- returns their number. If the writer was one of them, the remaining holders are readers. Without
-- holders only the mode is left.
--@script force_unlock_redisson_rw
local n, writes = 0, false
for i = 2, #ARGV do
  local found = redis.pcall('HDEL', KEYS[1], ARGV[i])
  --@use return_if_failed found
  n = n + found
  writes = writes or found == 1 and string.sub(ARGV[i], -6) == ':write'
end
if n > 0 then
  if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
    if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1])
    elseif writes then redis.call('HSET', KEYS[1], 'mode', 'read')
    end
  end
  --@use tell_redisson_rw 1
end
return n
