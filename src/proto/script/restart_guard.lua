-- The restart guard of a node: a key whose TTL determines whether the node may vote.

-- The node does not vote unless the guard's TTL is between 0 and `restart_guard::BIG_MS`.
--@part check_restart_guard
if guard then
  local t = redis.call('PTTL', guard)
  if t < 0 or t > 126144000000 then return redis.status_reply(string.format('GUARD %.0f', t)) end
end

-- Sets the guard KEYS[1] to ARGV[2] for ARGV[3] ms if its value is ARGV[1]; an empty ARGV[1] means
-- a missing key. Returns 1 if it has the new value afterwards, whichever client set it, and 0
-- otherwise. A quarantine never shortens a longer one that has begun.
--@script enrol
local v = redis.call('GET', KEYS[1]) or ''
if v == ARGV[1] then
  local px = tonumber(ARGV[3])
  local t = redis.call('PTTL', KEYS[1])
  if px > 126144000000 and t > px then px = t end
  redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', px))
  return 1
end
if v == ARGV[2] then return 1 end
return 0
