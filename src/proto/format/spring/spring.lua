-- The format of Spring Integration's Redis lock registry.
--
-- A lock is a string, the holder's token, with a TTL, at the registry's key, a colon and the lock's
-- name. That is redbolt's own format, so requests and extensions use its scripts. A registry that
-- listens is notified with the lock's name on `REGISTRY-channel:NAME`. The key of a registry may
-- contain colons, so each of the first 16 colons is taken for its end; no client listens to the
-- other channels.

-- Notifies the waiters of Spring's registries for the lock KEYS[1], if that is allowed.
--@part tell_spring
local from = 1
for _ = 1, 16 do
  local colon = string.find(KEYS[1], ':', from, true)
  if not colon then break end
  redis.pcall('PUBLISH', string.sub(KEYS[1], 1, colon - 1) .. '-channel:' .. KEYS[1], KEYS[1])
  from = colon + 1
end

-- Takes the lock KEYS[1] from ARGV[1], notifies waiters, and returns 1; returns 0 if it is not its
-- lock.
--@script undo_spring
local i, n = 1, 0
--@use read_value
--@use undo_value
if n > 0 then
  --@use tell_spring
end
return n

-- Removes the token ARGV[2] that an operator has seen, notifies waiters, and returns 1; returns 0
-- if it is not there any more. See force_unlock.lua.
--@script force_unlock_spring
local n = 0
--@use remove_seen_string
if n > 0 then
  --@use tell_spring
end
return n
