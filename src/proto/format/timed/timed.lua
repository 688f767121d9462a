-- The format of locks whose value is a time: the SETNX recipe, and redis-objects.
--
-- Members read the value as the second since 1970 from which the lock may be taken over; a value
-- that is not a number counts as zero. redbolt's value is a decimal number: before the point a
-- second after its TTL ends, behind it two digits for each digit of the holder's token. An
-- extension writes a later second, so owners are compared by the digits behind the point.
--
-- A member's lock has no TTL. After its second it is taken over by one script that looks and sets,
-- so that the second of two clients overwrites nothing. Any other value holds the lock while it
-- exists: an empty string (newer versions of redis-objects), `1` (older ones, for a lock without
-- expiry), and a number that is not a second of this century.
--
-- A member that finds a lock deleted between its SETNX and its GET overwrites the next holder with
-- GETSET, and notices only then that it has lost. Members release within their lease without a
-- look, so such a value goes. redbolt releases an overwritten lock in the same way: it deletes a
-- member's time during its own lease. A key with the holder's digits, the lease, records that on
-- the node. It expires with the lock, so that a late, repeated or earlier undo deletes only its own
-- value. It is also deleted with the lock, by an extension that finds the lock lost, and by a
-- forced unlock.

-- Sets `own` to the digits behind the point in the value of ARGV[1].
--@part own_digits
local own = string.gsub(string.sub(ARGV[1], 1, 34), '%x',
function(digit) return string.format('%02d', tonumber(digit, 16)) end)

-- Gives the lock and its lease to the holder for ARGV[2] ms. Other clients' clocks may be up to 1 s
-- ahead.
--@part set_with_time
redis.call('SET', KEYS[1],
string.format('%.0f.', math.ceil((now + ARGV[2]) / 1000) + 1) .. own, 'PX', ARGV[2])
redis.call('SET', KEYS[2], own, 'PX', ARGV[2])

-- Reads the lock, and whether it belongs to ARGV[1].
--@part read_own_digits
local i = 1
--@use read_value
--@use own_digits
local is_own = type(v) == 'string' and string.match(v, '^%d+%.(%d+)$') == own

-- Ends the lease of ARGV[1], if it has not expired.
--@part end_own_lease
local has_lease = redis.pcall('GET', KEYS[2]) == own
if has_lease then redis.call('DEL', KEYS[2]) end

-- Reads the second in a value without a TTL: a member's, or redbolt's if it has lost its TTL.
--@part read_second
local t = redis.call('PTTL', KEYS[1])
local ends = t == -1 and type(v) == 'string' and tonumber(string.match(v, '^%d+%.?%d*$'))
if ends and (ends < 1000000000 or ends > 4200000000) then ends = false end

-- Gives the lock KEYS[1] to ARGV[1] for ARGV[2] ms if it is free, or if its member's time has
-- passed. KEYS[2] is its lease. If another holder's lease has not expired, a member has overwritten
-- that holder's lock, which denies. KEYS[3] is the guard, if nodes are guarded. The reply is `OK`,
-- or the ms for which the lock is held (-1 without end).
--@script acquire_timed
local guard = KEYS[3]
--@use check_restart_guard
--@use read_clock_ms
local i = 1
--@use read_value
--@use read_second
if t ~= -2 then
  if not ends then return t end
  local left = math.ceil(ends * 1000) - now
  if left > 0 then return left end
  left = redis.call('PTTL', KEYS[2])
  if left > 0 then return left end
end
redis.call('DEL', KEYS[1], KEYS[2])
--@use own_digits
--@use set_with_time
return redis.status_reply('OK')

-- Lets the lock KEYS[1] of ARGV[1] and its lease KEYS[2] live for at least ARGV[2] ms, and returns
-- 1. Returns 0 if it is not its lock, and ends the lease then. The first write needs no memory.
--
-- It does not restore a value that a member has overwritten inside the lease, although the undo
-- deletes such a value. The value of a member that lost the race equals that of a member that holds
-- the lock: after the bare DEL of a member that was paused, or after the end of a loser's shorter
-- time. Only an extension notices the second kind. If it restored the value, both would hold the
-- lock until the end of their work.
--@script extend_timed
--@use read_own_digits
if not is_own then
  --@use end_own_lease
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  --@use read_clock_ms
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  --@use set_with_time
end
return 1

-- Takes the lock KEYS[1] from ARGV[1], and returns 1; returns 0 if it is not its lock. During its
-- lease KEYS[2], a member's time that has overwritten the lock counts as its lock.
--@script undo_timed
--@use read_own_digits
--@use end_own_lease
--@use read_second
if is_own or has_lease and ends and #v < 60 then return redis.call('DEL', KEYS[1]) end
return 0

-- Removes the value ARGV[2] that an operator has seen, with the lease, and returns 1; returns 0 if
-- it is not there any more.
--@script force_unlock_timed
local v = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[2])
--@use return_if_failed v
local n = v == ARGV[2] and redis.call('DEL', KEYS[1]) or 0
if n > 0 then redis.pcall('DEL', 'redbolt:lease:' .. KEYS[1]) end
return n
