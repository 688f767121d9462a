//! The scripts of Redisson's read/write locks, as its members find them.
//!
//! A lock is a hash: `mode` is `read` or `write`, and each holder has a field with how often it has entered, a writer's with `:write`
//! behind its name. Ours is 1. The hash has the longest TTL of its holders. Each entry of a reader has a key besides, its hold
//! key, with a TTL of its own: `{NAME}:HOLDER:rwlock_timeout:1`. Whoever leaves gives the hash the longest of those that are left,
//! or deletes it, which is told on `redisson_rwlock:{NAME}`: `0` by a reader, `1` by a writer.
//!
//! A reader whose hold key is over is none any longer, although its field is there as long as others are. Not here: a writer that
//! reads as well. What Redisson leaves untold, that a writer has become a reader, is seen by who waits, since it asks at each change.

/// How the names of hold keys begin.
macro_rules! name_holds {
    () => {
        "local holds = KEYS[1] .. ':' \
         if not string.find(KEYS[1], '{', 1, true) then holds = '{' .. KEYS[1] .. '}:' end \
         local own = holds .. ARGV[1] .. ':rwlock_timeout:1' "
    };
}

/// Wakes those who wait as Redisson does, if that is allowed: all who read, or one who writes.
macro_rules! tell_redisson_rw {
    ($message:literal) => {
        concat!(
            "local name = KEYS[1] \
             if not string.find(name, '{', 1, true) then name = '{' .. name .. '}' end \
             redis.pcall('PUBLISH', 'redisson_rwlock:' .. name, '",
            $message,
            "') "
        )
    };
}

/// What an undo needs is rehearsed, with a holder that there cannot be. The first write is one that needs no memory.
macro_rules! rehearse_undo_redisson_rw {
    () => {
        "redis.call('HEXISTS', KEYS[1], '') \
         redis.call('HLEN', KEYS[1]) \
         redis.call('HGETALL', KEYS[1]) \
         redis.call('DEL', own) \
         redis.call('HDEL', KEYS[1], '') \
         redis.call('PEXPIRE', own, ARGV[2]) "
    };
}

/// Reads whether ARGV\[1\] with this behind it has a field. Data of another type has no holder.
macro_rules! read_field {
    ($name:literal, $behind:literal) => {
        concat!(
            "local ",
            $name,
            " = redis.pcall('HEXISTS', KEYS[1], ARGV[1] .. '",
            $behind,
            "') \
             if type(",
            $name,
            ") == 'table' then \
             if string.find(",
            $name,
            ".err, '^WRONGTYPE') then return 0 end \
             return ",
            $name,
            " \
             end "
        )
    };
}

/// Lets ARGV\[1\] read the lock KEYS\[1\] for ARGV\[2\] ms if it is free, or read by others. The guard is KEYS\[2\], if nodes are guarded.
/// ARGV\[3\] is the number of nodes that the client asks, as for [`ACQUIRE_SHARED`](super::ACQUIRE_SHARED). The answer is `OK`, or for
/// how many ms others have it (-1: without end).
pub const ACQUIRE_REDISSON_READ: &str = concat!(
    "local guard = KEYS[2] ",
    check_restart_guard!(),
    name_holds!(),
    "local t = redis.call('PTTL', KEYS[1]) \
     if t ~= -2 then \
     local mode = redis.pcall('HGET', KEYS[1], 'mode') \
     if type(mode) == 'table' and not string.find(mode.err, '^WRONGTYPE') then return mode end \
     if mode ~= 'read' then return t end \
     end ",
    rehearse_undo_redisson_rw!(),
    deny_twin!(3, "redis.call('HEXISTS', KEYS[1], twin) == 1"),
    "redis.call('SET', own, 1, 'PX', ARGV[2]) \
     redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1) \
     if t < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
     return redis.status_reply('OK')"
);

/// Lets ARGV\[1\] write the lock KEYS\[1\] for ARGV\[2\] ms if it is free. The guard is KEYS\[2\], if nodes are guarded. The answer is
/// `OK`, or for how many ms others have it (-1: without end).
pub const ACQUIRE_REDISSON_WRITE: &str = concat!(
    "local guard = KEYS[2] ",
    check_restart_guard!(),
    name_holds!(),
    "local t = redis.call('PTTL', KEYS[1]) \
     if t ~= -2 then return t end ",
    rehearse_undo_redisson_rw!(),
    "redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1] .. ':write', 1) \
     redis.call('PEXPIRE', KEYS[1], ARGV[2]) \
     return redis.status_reply('OK')"
);

/// Lets ARGV\[1\] read or write the lock KEYS\[1\] for at least ARGV\[2\] ms more, and returns 1; 0 if it does neither.
pub const EXTEND_REDISSON_RW: &str = concat!(
    read_field!("writes", ":write"),
    "if writes == 0 then ",
    read_field!("reads", ""),
    name_holds!(),
    "local left = redis.call('PTTL', own) \
     if reads == 0 or left == -2 then return 0 end \
     if left < tonumber(ARGV[2]) then redis.call('PEXPIRE', own, ARGV[2]) end \
     end \
     if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
     return 1"
);

/// Takes the lock KEYS\[1\] from ARGV\[1\], tells those who wait if nobody else has it, and returns 1; 0 if ARGV\[1\] does not have it.
/// Of a reader that has entered very often the last 64 entries are looked at, which end last as a rule.
pub const UNDO_REDISSON_RW: &str = concat!(
    read_field!("writes", ":write"),
    "if writes == 1 then \
     local is_last = redis.call('HLEN', KEYS[1]) <= 2 \
     redis.call('HDEL', KEYS[1], ARGV[1] .. ':write') \
     if is_last then redis.call('DEL', KEYS[1]) \
     else redis.call('HSET', KEYS[1], 'mode', 'read') end ",
    tell_redisson_rw!(1),
    "return 1 \
     end ",
    name_holds!(),
    read_field!("reads", ""),
    "if reads == 0 then return 0 end \
     redis.call('DEL', own) \
     redis.call('HDEL', KEYS[1], ARGV[1]) \
     local fields, most = redis.call('HGETALL', KEYS[1]), -2 \
     for i = 1, #fields, 2 do \
     if fields[i] == 'mode' and fields[i + 1] == 'write' then return 1 end \
     local entries = tonumber(fields[i + 1]) or 0 \
     for entry = entries, math.max(entries - 63, 1), -1 do \
     local left = redis.call('PTTL', holds .. fields[i] .. ':rwlock_timeout:' .. entry) \
     if left == -1 then return 1 end \
     most = math.max(most, left) \
     end \
     end \
     if most > 0 then \
     redis.call('PEXPIRE', KEYS[1], most) \
     return 1 \
     end \
     redis.call('DEL', KEYS[1]) ",
    tell_redisson_rw!(0),
    "return 1"
);
