//! The scripts of Symfony's locks in Redis, as its members find them.
//!
//! A lock is a sorted set of its holders, by the time at which each ends, in ms by the node's clock. Who has it alone has the member
//! `__write__` beside its own, with the same end. The key has the end of the last. A string is in the way, since Symfony's locks were
//! strings once; so is anything else that no member can have made, redbolt's own shared locks among it, and it is never touched.
//!
//! A member's name is 32 bytes in base64. A holder of ours is a token behind `s:`, so that redbolt's own shared locks take the set for
//! another's. Nobody tells of a release: members ask every 100 ms.
//!
//! Not here: those who extend or leave a lock that they share, which are as in redbolt's own format; and a member that has the lock alone
//! and comes to share it, which is seen by who waits since it asks at each change.

/// A set of members of Symfony's, or nothing, is at the key. Else it is denied for as long as that lives.
macro_rules! deny_unless_symfony {
    () => {
        "local kind, t = redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]) \
         if kind ~= 'none' then \
         if kind ~= 'zset' or t == -1 then return t end \
         local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1] \
         if first ~= '__write__' and not string.find(first, '^s:' .. string.rep('%x', 34)) \
         and not (#first == 44 and string.find(first, '^[%w+/]+=$')) then return t end \
         end "
    };
}

/// Lets ARGV\[1\] share the lock KEYS\[1\] for ARGV\[2\] ms if nobody has it alone. The guard is KEYS\[2\], if nodes are guarded.
/// ARGV\[3\] is the number of nodes that the client asks, as for [`ACQUIRE_SHARED`](super::ACQUIRE_SHARED). The answer is `OK`, or for
/// how many ms others have it (-1: without end).
pub const ACQUIRE_SYMFONY_READ: &str = concat!(
    "local guard = KEYS[2] ",
    check_restart_guard!(),
    read_clock_ms!(),
    // Its undo is that of those who share in redbolt's own format, which looks first.
    "local i = 1 ",
    read_value!(),
    deny_unless_symfony!(),
    "if kind ~= 'none' then \
     local alone = redis.call('ZSCORE', KEYS[1], '__write__') \
     if alone and tonumber(alone) > now then return t end \
     for i = 0, ARGV[3] - 1 do \
     local twin = string.sub(ARGV[1], 1, 34) .. string.format('%02x', i) .. string.sub(ARGV[1], 37) \
     if redis.call('ZSCORE', KEYS[1], twin) then return t end \
     end \
     end ",
    rehearse_undo_shared!(),
    share!(),
    "return redis.status_reply('OK')"
);

/// Lets ARGV\[1\] have the lock KEYS\[1\] alone for ARGV\[2\] ms if nobody has it. The guard is KEYS\[2\], if nodes are guarded. The
/// answer is `OK`, or for how many ms others have it (-1: without end).
pub const ACQUIRE_SYMFONY_WRITE: &str = concat!(
    "local guard = KEYS[2] ",
    check_restart_guard!(),
    read_clock_ms!(),
    deny_unless_symfony!(),
    "if kind ~= 'none' \
     and tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]) > now then return t end ",
    rehearse_undo_shared!(),
    "local til = string.format('%.0f', now + ARGV[2]) \
     redis.call('ZADD', KEYS[1], til, ARGV[1]) \
     redis.call('ZADD', KEYS[1], til, '__write__') \
     redis.call('PEXPIREAT', KEYS[1], til) \
     return redis.status_reply('OK')"
);

/// Lets the lock KEYS\[1\] that ARGV\[1\] has alone live for at least ARGV\[2\] ms more, and returns 1; 0 if it has not. The first write
/// is one that needs no memory.
pub const EXTEND_SYMFONY_WRITE: &str = concat!(
    read_mine!(),
    "if not redis.call('ZSCORE', KEYS[1], '__write__') then return 0 end \
     if now + ARGV[2] > tonumber(mine) then \
     local til = string.format('%.0f', now + ARGV[2]) \
     redis.call('PEXPIREAT', KEYS[1], til) \
     redis.call('ZADD', KEYS[1], til, ARGV[1]) \
     redis.call('ZADD', KEYS[1], til, '__write__') \
     end \
     return 1"
);

/// Takes the lock KEYS\[1\] from ARGV\[1\], which had it alone, and returns 1; 0 if it is not its lock.
pub const UNDO_SYMFONY_WRITE: &str = concat!(
    "local n = redis.pcall('ZREM', KEYS[1], ARGV[1]) \
     if type(n) == 'table' then \
     if string.find(n.err, '^WRONGTYPE') then return 0 end \
     return n \
     end \
     if n == 1 then \
     redis.call('ZREM', KEYS[1], '__write__') ",
    live_as_long_as_the_last!(),
    "end \
     return n"
);

/// What our holders' names begin with, and who has the lock alone beside.
pub(crate) const MARK: &[u8] = b"s:";
pub(crate) const ALONE: &str = "__write__";
