-- The format of Redisson's RLock, and of RFencedLock with its counter.
--
-- A lock is a hash with a TTL and one field: the holder, with its number of entries. redbolt's is 1
-- because re-entry is counted in the client. Waiters are notified on
-- `redisson_lock__channel:{NAME}`, without braces if the name has some; the message `0` wakes one
-- waiter of each Redisson process. The script that deletes the lock publishes it. If publishing is
-- forbidden, the release stands, and Redisson's waiters sleep until the TTL that they have read.

-- Notifies Redisson's waiters for the lock KEYS[1], if that is allowed.
--@part tell_redisson
local name = KEYS[1]
if not string.find(name, '{', 1, true) then name = '{' .. name .. '}' end
redis.pcall('PUBLISH', 'redisson_lock__channel:' .. name, '0')

-- Denies if the key exists, with data of any type. Otherwise tries the commands of an undo, which
-- change nothing. The first write needs no memory.
--@part deny_unless_free
local t = redis.call('PTTL', KEYS[1])
if t ~= -2 then return t end
redis.call('HEXISTS', KEYS[1], ARGV[1])
redis.call('HLEN', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[1], ARGV[1])

-- Gives the lock to ARGV[1] for ARGV[2] ms.
--@part hold
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])

-- Returns 0 unless ARGV[1] has the lock. Data of another type has no holder.
--@part return_0_unless_mine
local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
--@use return_if_failed mine
if mine == 0 then return 0 end

-- Gives the free lock KEYS[1] to ARGV[1] for ARGV[2] ms. KEYS[2] is the guard, if nodes are
-- guarded. The reply is `OK`, or the ms for which the lock is held (-1 without end).
--@script acquire_redisson
local guard = KEYS[2]
--@use check_restart_guard
--@use deny_unless_free
--@use hold
return redis.status_reply('OK')

-- Like ACQUIRE_REDISSON, and increments the counter KEYS[2]. A counter that is not a number, is
-- negative or has no successor below 2^53 is an error. KEYS[3] is the guard. The reply is `OK` and
-- the counter.
--@script acquire_redisson_fenced
local guard = KEYS[3]
--@use check_restart_guard
--@use deny_unless_free
local i = 2
--@use read_counter >= 0 and v < 9007199254740991
local token = redis.call('INCR', KEYS[2])
--@use hold
return redis.status_reply(string.format('OK %.0f', token))

-- Lets the lock KEYS[1] of ARGV[1] live for at least ARGV[2] ms, and returns 1; returns 0 if it is
-- not its lock.
--@script extend_redisson
--@use return_0_unless_mine
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1

-- Takes the lock KEYS[1] from ARGV[1], notifies waiters, and returns 1; returns 0 if it is not its
-- lock.
--@script undo_redisson
--@use return_0_unless_mine
local was_alone = redis.call('HLEN', KEYS[1]) == 1
redis.call('HDEL', KEYS[1], ARGV[1])
if was_alone then
  --@use tell_redisson
end
return 1

-- Raises the counter KEYS[2] to at least ARGV[2] and returns 1 if the lock KEYS[1] is of ARGV[1];
-- returns 0 otherwise. As in Redisson, the counter has no TTL.
--@script write_back_redisson
--@use return_0_unless_mine
local i = 2
--@use read_counter <= 9007199254740991
if v < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return 1

-- Removes the holders in the ARGV behind the first that an operator has seen, notifies waiters, and
-- returns their number.
--@script force_unlock_redisson
local n = 0
for i = 2, #ARGV do
  local found = redis.pcall('HDEL', KEYS[1], ARGV[i])
  --@use return_if_failed found
  n = n + found
end
if n > 0 then
  --@use tell_redisson
end
return n
