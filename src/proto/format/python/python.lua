-- The format of python-redis-lock.
--
-- A lock is a string, the holder's token, at `lock:NAME`, with or without a TTL. That is also
-- redbolt's own format, so extensions use its script. Waiters sleep on the list `lock-signal:NAME`.
-- A release pushes one entry, which wakes one waiter and expires after 1 s so that it wakes no
-- later one. An entry that is already there is deleted.

-- Wakes one of the waiters on the list `$signal`, if that is allowed. An entry that cannot be given
-- an expiry is deleted.
--@part tell_python signal
if type(redis.pcall('LPUSH', $signal, 1)) == 'number' and type(redis.pcall('PEXPIRE', $signal, 1000)) == 'table' then redis.pcall('DEL', $signal) end

-- Gives the free lock KEYS[1] to ARGV[1] for ARGV[2] ms. KEYS[2] is the list of waiters, KEYS[3]
-- the guard, if nodes are guarded. The reply is `OK`, or the ms for which the lock is held (-1
-- without end).
--
-- The commands of an undo on the list are tried first. They may delete it, because an entry from
-- before the grant has no meaning, and an entry that is deleted in the same script wakes no waiter.
-- LPUSH is the first command: it fails if the key is not a list, which is then left unchanged
-- because it may be another client's lock.
--@script acquire_python
local guard = KEYS[3]
--@use check_restart_guard
local t = redis.call('PTTL', KEYS[1])
if t ~= -2 then return t end
--@use rehearse_undo
redis.call('LPUSH', KEYS[2], 1)
local may_end = redis.pcall('PEXPIRE', KEYS[2], 1000)
redis.call('DEL', KEYS[2])
if type(may_end) == 'table' then return may_end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.status_reply('OK')

-- Takes the lock KEYS[1] from ARGV[1], wakes one of the waiters on the list KEYS[2], and returns 1;
-- returns 0 if it is not its lock. A key that is not a list is left unchanged.
--@script undo_python
local i, n = 1, 0
--@use read_value
--@use undo_value
if n > 0 and type(redis.pcall('LPUSH', KEYS[2], 1)) == 'number' then
  redis.pcall('DEL', KEYS[2])
  --@use tell_python KEYS[2]
end
return n

-- Removes the token ARGV[2] that an operator has seen, wakes one of the waiters, and returns 1;
-- returns 0 if it is not there any more. See force_unlock.lua.
--@script force_unlock_python
local n = 0
--@use remove_seen_string
if n > 0 and string.sub(KEYS[1], 1, 5) == 'lock:' then
  local signal = 'lock-signal:' .. string.sub(KEYS[1], 6)
  --@use tell_python signal
end
return n
