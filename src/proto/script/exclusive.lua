-- Locks that one holder has alone: a string, the holder's token, with a TTL.

-- Denies with the longest TTL among the `n` resources, or -1 if one of them has none.
--@part find_longest
local most = -2
for i = 1, n do
  local t = redis.call('PTTL', KEYS[i])
  if t == -1 then return -1 end
  if t > most then most = t end
end
if most >= 0 then return most end

-- Reads the value `v` of the i-th of KEYS. Data of another type is not a token or a number. Any
-- other error, such as a missing permission, says nothing about the key and is returned.
--@part read_value
local v = redis.pcall('GET', KEYS[i])
if type(v) == 'table' and not string.find(v.err, '^WRONGTYPE') then return v end

-- Returns 0 if a command failed because the data are of another type, and any other error as it is.
--@part return_if_failed found
if type($found) == 'table' then
  if string.find($found.err, '^WRONGTYPE') then return 0 end
  return $found
end

-- Returns 0 unless the value read is the token ARGV[1] with a mark (see fair_queue.lua) and its
-- holder has not expired. `left` is the ms until then; the key outlives the holder by 8 s.
--@part return_0_unless_marked_mine
local token, left
if type(v) == 'string' then token, ends = string.match(v, '^(%C+)\n(%d+)$') end
if token ~= ARGV[1] then return 0 end
left = redis.call('PTTL', KEYS[i]) - 8000
if left <= 0 then return 0 end

-- Lets the marked holder of the i-th of KEYS expire no earlier than in ARGV[2] ms. A server whose
-- memory is full stops a script at its first write that may need memory, so the first write here
-- needs none and changes nothing.
--@part extend_marked
if tonumber(ARGV[2]) > left then
  redis.call('PEXPIRE', KEYS[i], left + 8000)
  redis.call('SET', KEYS[i], ARGV[1] .. string.format('\n%.0f', ends + ARGV[2] - left), 'PX', ARGV[2] + 8000)
end

-- Removes the holder ARGV[1] from the i-th of KEYS and counts it in `n`. A marked key becomes
-- closed. The first write needs no memory.
--@part undo_value
if v == ARGV[1] then n = n + redis.call('DEL', KEYS[i])
elseif type(v) == 'string' and ARGV[1] and string.match(v, '^(%C+)\n') == ARGV[1] then
  redis.call('DEL', KEYS[i])
  redis.call('SET', KEYS[i], '\nredbolt', 'PX', 8000)
  n = n + 1
end

-- Reads the i-th of KEYS, a counter, as a number `v` within the bound.
--@part read_counter bound
--@use read_value
v = tonumber(v or 0)
if not (v and v $bound) then return redis.error_reply('ERR the fencing counter cannot be raised') end

-- Runs the commands of an undo before the first write. The keys are free, so this changes nothing.
-- If one of the commands is forbidden, the script ends here, and nothing is set that could not be
-- deleted again.
--@part rehearse_undo
redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])

-- Reads the node's clock in ms as `now`. Holders who share a key each have their own expiry.
--@part read_clock_ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Reads the clock again after a PTTL. Before Redis 7.2 time passes while a script runs, so adding a
-- later TTL to an earlier time would expire too early.
--@part read_clock_again
local later = redis.call('TIME')
now = later[1] * 1000 + math.floor(later[2] / 1000)

-- Replies with the node's clock, `$us`, if the proposed counter is more than 5 s from it: `$skew`,
-- in µs.
--@part check_clock skew us
if $skew > 5000000 then
  return redis.status_reply(string.format('CLOCK %.0f', $us))
end

-- Grants the ARGV[3] resources KEYS to the token ARGV[1] for ARGV[2] ms and returns `OK`. Otherwise
-- it changes nothing and returns the longest remaining TTL among them, or -1 if one has none.
--
-- The key behind the resources is the restart guard: if it does not let the node vote, nothing is
-- changed and the reply is the status `GUARD` with the guard's PTTL.
--@script acquire_many
local n = tonumber(ARGV[3])
local guard = KEYS[n + 1]
--@use check_restart_guard
--@use find_longest
--@use rehearse_undo
for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end
return redis.status_reply('OK')

-- Like ACQUIRE_MANY, and raises the fencing counters of the resources. KEYS are n resources, their
-- n counters and the guard. ARGV[4] is the proposed value, the client's wall clock in µs; ARGV[5]
-- is the counters' TTL in ms.
--
-- A grant is the status `OK` with the new value of all counters: the smallest even number that is
-- at least the proposal and greater than each counter. (Odd values are for readers.) A proposal
-- more than 5 s from the node's clock changes nothing; the reply is `CLOCK` with that clock in µs.
-- A counter that is not a number, or that would reach 2^53, below which Lua's integers are exact,
-- is an error.
--@script acquire_fenced
local n = tonumber(ARGV[3])
local guard = KEYS[2 * n + 1]
--@use check_restart_guard
--@use find_longest
local c = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--@use check_clock math.abs(c - now) | now
for i = n + 1, 2 * n do
  --@use read_counter < 9007199254740990
  if v >= c then c = math.floor(v) + 1 end
end
local text = string.format('%.0f', c + c % 2)
--@use rehearse_undo
for i = 1, n do
  redis.call('SET', KEYS[n + i], text, 'PX', ARGV[5])
  redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
end
return redis.status_reply('OK ' .. text)

-- Lets KEYS live for at least ARGV[2] ms and returns 1 if all of them hold the token ARGV[1];
-- returns 0 otherwise. It never shortens a TTL and never creates a key.
--@script extend
local marked = {}
for i = 1, #KEYS do
  --@use read_value
  if v ~= ARGV[1] then
    local ends
    --@use return_0_unless_marked_mine
    marked[i] = {ends, left}
  end
end
for i, k in ipairs(KEYS) do
  if marked[i] then
    local ends, left = unpack(marked[i])
    --@use extend_marked
  elseif redis.call('PTTL', k) < tonumber(ARGV[2]) then redis.call('PEXPIRE', k, ARGV[2])
  end
end
return 1

-- Deletes those of KEYS that hold the token ARGV[1] and returns their number.
--@script undo
local n = 0
for i = 1, #KEYS do
  --@use read_value
  --@use undo_value
end
return n

-- Raises fencing counters to at least ARGV[3] and returns 1 if all resources hold the token
-- ARGV[1]; returns 0 otherwise. KEYS are ARGV[2] resources and their counters, which live for
-- ARGV[4] ms if they are raised. A counter that is not a number, or is above 2^53 - 1, is an error.
--@script write_back
local n = tonumber(ARGV[2])
for i = 1, n do
  --@use read_value
  if v ~= ARGV[1] then
    local ends
    --@use return_0_unless_marked_mine
  end
end
for i = n + 1, 2 * n do
  --@use read_counter <= 9007199254740991
  if v < tonumber(ARGV[3]) then redis.call('SET', KEYS[i], ARGV[3], 'PX', ARGV[4]) end
end
return 1
