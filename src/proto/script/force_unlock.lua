-- Scripts for an operator who breaks a lock. They remove what was seen and nothing that came later.
--
-- Between the view and the break, holders release and others acquire. So a lock with several
-- holders is not deleted as a whole: the holders that were seen are removed, and the key is deleted
-- or closed if none is left. Data without holders is deleted only if it is unchanged.
--
-- A format of another library has its own script, with parts of this file.

-- Removes the string ARGV[2], which was seen without a mark, and counts it in `n`. A marked key
-- becomes closed (see fair_queue.lua). A single reader, or a writer that becomes a reader, may have
-- become a member of a set since.
--@part remove_seen_string
local v = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[2] + 17)
if type(v) == 'string' then
  local marked = string.match(v, '^(' .. string.rep('%x', 34) .. '%C*)\n%d+$') == ARGV[2]
  if marked or v == ARGV[2] then n = redis.call('DEL', KEYS[1]) end
  if marked then redis.call('SET', KEYS[1], '\nredbolt', 'PX', 8000) end
else
  if not string.find(v.err, '^WRONGTYPE') then return v end
  ARGV[2] = string.match(ARGV[2], '^r:(.+)') or 'w:' .. ARGV[2]
  --@use remove_members
end

-- Removes the members of a sorted set that were seen and counts them in `n`. `$also` runs if there
-- were some.
--@part remove_members also
for i = 2, #ARGV do
  local found = redis.pcall('ZREM', KEYS[1], ARGV[i])
  --@use return_if_failed found
  n = n + found
end
if n > 0 then
  $also
  --@use live_as_long_as_the_last
end

-- Removes the permits of the holders that were seen.
--@part remove_permits
local is_ours = redis.pcall('HEXISTS', KEYS[1], 'redbolt')
--@use return_if_failed is_ours
if is_ours == 0 then return 0 end
local ends = KEYS[2]
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

-- Removes from KEYS[1] what was seen there and returns how much of it still existed, 0 if nothing.
-- If a hash was seen, KEYS[2] is the sorted set of a semaphore's holders.
--
-- If ARGV[1] is `string`, ARGV[2] is the string that was seen. If it is `zset` or `hash`, the other
-- ARGV are the members or fields of the holders that were seen. If it is `dump`, ARGV[2] is the
-- reply of VIEW_DIGEST.
--@script force_unlock
local n, kind = 0, ARGV[1]
if kind == 'dump' then
  local dump = redis.call('DUMP', KEYS[1])
  if dump and redis.sha1hex(dump) == ARGV[2] then n = redis.call('DEL', KEYS[1]) end
elseif kind == 'string' then
  --@use remove_seen_string
elseif kind == 'zset' then
  --@use remove_members
elseif kind == 'hash' then
  --@use remove_permits
end
return n

-- Returns a digest of all data at KEYS[1], except for its TTL; an empty one if the key does not
-- exist.
--@script view_digest
local dump = redis.call('DUMP', KEYS[1])
return dump and redis.sha1hex(dump) or ''
