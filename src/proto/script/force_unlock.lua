-- Scripts for an operator who breaks a lock. They remove what was seen and nothing that came later.
--
-- Between the look and the break, holders release and others acquire. So a lock with several
-- holders is not deleted as a whole: the holders that were seen are removed, and the key is deleted
-- or closed if none is left. Data without holders is deleted only if it is unchanged.

-- Returns 0 if a command found data of another type than was seen, and any other error as it is.
--@part return_if_failed found
if type($found) == 'table' then
  if string.find($found.err, '^WRONGTYPE') then return 0 end
  return $found
end

-- Removes the members of a sorted set that were seen. A Symfony writer also has the member
-- `__write__`: if the writer was seen, no other holder has that member.
--@part remove_members
for i = 2, #ARGV do
  local found = redis.pcall('ZREM', KEYS[1], ARGV[i])
  --@use return_if_failed found
  n = n + found
end
if n > 0 then
  redis.call('ZREM', KEYS[1], '__write__')
  --@use live_as_long_as_the_last
end

-- Removes the permits of the holders that were seen.
--@part remove_permits
for i = 2, #ARGV do
  local slot = redis.call('HGET', KEYS[1], ARGV[i])
  if slot then
    n = n + 1
    redis.call('HDEL', KEYS[1], ARGV[i], slot)
  end
  redis.call('ZREM', ends, ARGV[i])
end
if n > 0 then
  --@use live_as_long_as_the_last_permit
end

-- Removes the seen holders of a Redisson lock. If the writer was one of them, the remaining holders
-- are readers. A read/write lock without holders has only its mode left.
--@part remove_holders_of_redisson
local writes = false
for i = 2, #ARGV do
  if redis.call('HDEL', KEYS[1], ARGV[i]) == 1 then
    n = n + 1
    writes = writes or string.sub(ARGV[i], -6) == ':write'
  end
end
if n > 0 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1])
  elseif writes then redis.call('HSET', KEYS[1], 'mode', 'read')
  end
end

-- Removes from KEYS[1] what was seen there and returns how much of it still existed, 0 if nothing.
-- If a hash was seen, KEYS[2] is the sorted set of a semaphore's holders.
--
-- If ARGV[1] is `string`, a string was seen, and ARGV[2] is its value without a mark; a single
-- reader, or a writer that becomes a reader, may be a member of a set by now. If it is `zset` or
-- `hash`, the other ARGV are the members or fields of the holders that were seen. If it is `dump`,
-- ARGV[2] is the reply of VIEW_DIGEST. The lease of a lock whose value is a time ends with it (see
-- timed.lua). A marked key without holders becomes closed (see line.lua).
--@script force_unlock
local n, ends, kind = 0, KEYS[2], ARGV[1]
if kind == 'dump' then
  kind = redis.call('TYPE', KEYS[1]).ok
  local dump = redis.call('DUMP', KEYS[1])
  if dump and redis.sha1hex(dump) == ARGV[2] then n = redis.call('DEL', KEYS[1]) end
elseif kind == 'string' then
  local v = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[2] + 17)
  if type(v) == 'string' then
    local marked = string.match(v, '^(' .. string.rep('%x', 34) .. '%C*)\n%d+$') == ARGV[2]
    if marked or v == ARGV[2] then n = redis.call('DEL', KEYS[1]) end
    if marked then redis.call('SET', KEYS[1], '\nredbolt', 'PX', 8000) end
  else
    if not string.find(v.err, '^WRONGTYPE') then return v end
    kind = 'zset'
    ARGV[2] = string.match(ARGV[2], '^r:(.+)') or 'w:' .. ARGV[2]
  end
end
if kind == 'zset' and ARGV[1] ~= 'dump' then
  --@use remove_members
elseif kind == 'hash' and ARGV[1] ~= 'dump' then
  local is_ours = redis.pcall('HEXISTS', KEYS[1], 'redbolt')
  --@use return_if_failed is_ours
  if is_ours == 1 then
    --@use remove_permits
  else
    --@use remove_holders_of_redisson
  end
end
if n > 0 and kind == 'hash' then
  --@use tell_redisson
  redis.pcall('PUBLISH', 'redisson_rwlock:' .. name, '1')
elseif n > 0 and kind == 'string' then
  redis.pcall('DEL', 'redbolt:lease:' .. KEYS[1])
  --@use tell_spring
  if string.sub(KEYS[1], 1, 5) == 'lock:' then
    local signal = 'lock-signal:' .. string.sub(KEYS[1], 6)
    --@use tell_python signal
  end
end
return n

-- Returns a digest of all data at KEYS[1], except for its TTL; an empty one if the key does not
-- exist.
--@script view_digest
local dump = redis.call('DUMP', KEYS[1])
return dump and redis.sha1hex(dump) or ''
