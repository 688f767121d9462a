//! The scripts with which an operator breaks a lock: what was seen is removed, and nothing that came behind it.
//!
//! Between the look and the break holders release and others acquire. So a lock that several can hold is not deleted as a
//! whole: the script removes the holders that were seen, and deletes or closes the key if none is left. Data that has no
//! holders is deleted only if all of it is as it was seen.

/// Ends with 0 if a command found data of another type than was seen, and with any other error of it.
macro_rules! return_if_failed {
    ($found:literal) => {
        concat!(
            "if type(",
            $found,
            ") == 'table' then \
             if string.find(",
            $found,
            ".err, '^WRONGTYPE') then return 0 end \
             return ",
            $found,
            " end "
        )
    };
}

/// Removes the members of a sorted set that were seen. A writer of Symfony's has `__write__` as well: if it
/// was among them, no other holder has that.
macro_rules! remove_members {
    () => {
        concat!(
            "for i = 2, #ARGV do \
             local found = redis.pcall('ZREM', KEYS[1], ARGV[i]) ",
            return_if_failed!("found"),
            "n = n + found \
             end \
             if n > 0 then \
             redis.call('ZREM', KEYS[1], '__write__') ",
            live_as_long_as_the_last!(),
            "end "
        )
    };
}

/// Removes the permits of the holders that were seen.
macro_rules! remove_permits {
    () => {
        concat!(
            "for i = 2, #ARGV do \
             local slot = redis.call('HGET', KEYS[1], ARGV[i]) \
             if slot then \
             n = n + 1 \
             redis.call('HDEL', KEYS[1], ARGV[i], slot) \
             end \
             redis.call('ZREM', ends, ARGV[i]) \
             end \
             if n > 0 then ",
            live_as_long_as_the_last_permit!(),
            "end "
        )
    };
}

/// Removes the holders that were seen of a lock of Redisson's. If its writer was among them, those who are left read. Of a
/// read/write lock without holders only the mode is left.
macro_rules! remove_holders_of_redisson {
    () => {
        "local writes = false \
         for i = 2, #ARGV do \
         if redis.call('HDEL', KEYS[1], ARGV[i]) == 1 then \
         n = n + 1 \
         writes = writes or string.sub(ARGV[i], -6) == ':write' \
         end \
         end \
         if n > 0 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 then \
         if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) \
         elseif writes then redis.call('HSET', KEYS[1], 'mode', 'read') end \
         end "
    };
}

/// Removes from KEYS\[1\] what was seen there, and returns how much of it was still there: 0 if nothing. If a hash was seen,
/// KEYS\[2\] is the sorted set of a semaphore's holders.
///
/// If ARGV\[1\] is `string`, a string was seen, and ARGV\[2\] is all of it but for a mark; a reader who shared it alone may be a
/// member of a set by now, and so may a writer that becomes a reader. If it is `zset` or `hash`, the other ARGV are the members or fields of the holders that were seen. If it
/// is `dump`, ARGV\[2\] is what [`VIEW_DIGEST`] has returned. The lease of a lock whose value is a time ends with it, see `timed`. A key that was marked, and has no holders left, is closed, see
/// `line`.
pub const FORCE_UNLOCK: &str = concat!(
    "local n, ends, kind = 0, KEYS[2], ARGV[1] \
     if kind == 'dump' then \
     kind = redis.call('TYPE', KEYS[1]).ok \
     local dump = redis.call('DUMP', KEYS[1]) \
     if dump and redis.sha1hex(dump) == ARGV[2] then n = redis.call('DEL', KEYS[1]) end \
     elseif kind == 'string' then \
     local v = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[2] + 17) \
     if type(v) == 'string' then \
     local marked = string.match(v, '^(' .. string.rep('%x', 34) .. '%C*)\\n%d+$') == ARGV[2] \
     if marked or v == ARGV[2] then n = redis.call('DEL', KEYS[1]) end \
     if marked then redis.call('SET', KEYS[1], '\\nredbolt', 'PX', 8000) end \
     else \
     if not string.find(v.err, '^WRONGTYPE') then return v end \
     kind = 'zset' \
     ARGV[2] = string.match(ARGV[2], '^r:(.+)') or 'w:' .. ARGV[2] \
     end \
     end \
     if kind == 'zset' and ARGV[1] ~= 'dump' then ",
    remove_members!(),
    "elseif kind == 'hash' and ARGV[1] ~= 'dump' then \
     local is_ours = redis.pcall('HEXISTS', KEYS[1], 'redbolt') ",
    return_if_failed!("is_ours"),
    "if is_ours == 1 then ",
    remove_permits!(),
    "else ",
    remove_holders_of_redisson!(),
    "end end \
     if n > 0 and kind == 'hash' then ",
    tell_redisson!(),
    "redis.pcall('PUBLISH', 'redisson_rwlock:' .. name, '1') \
     elseif n > 0 and kind == 'string' then \
     redis.pcall('DEL', 'redbolt:lease:' .. KEYS[1]) ",
    tell_spring!(),
    "if string.sub(KEYS[1], 1, 5) == 'lock:' then \
     local signal = 'lock-signal:' .. string.sub(KEYS[1], 6) ",
    tell_python!("signal"),
    "end \
     end \
     return n"
);

/// A digest of all that is at KEYS\[1\], but for its TTL. It is empty if nothing is there.
pub const VIEW_DIGEST: &str = "\
local dump = redis.call('DUMP', KEYS[1]) \
return dump and redis.sha1hex(dump) or ''";
