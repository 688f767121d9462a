//! The scripts of Redisson's locks, as its members find them: `RLock`, and `RFencedLock` with its counter.
//!
//! A lock is a hash of one field, its holder, whose value is how often that has entered it: ours is 1, for re-entry is counted
//! in the client. The hash has a TTL. Whoever waits is told by a message on `redisson_lock__channel:{NAME}`, or without braces
//! where the name has one already; `0` wakes one waiter of each of Redisson's processes. It is sent by the script that
//! deletes the lock, so that no release is without it. Where publishing is forbidden the release stands all the same, and
//! Redisson's waiters sleep until the TTL that they have read.
//!
//! Not here: the keys with which Redisson remembers its own unlocks (`redisson_unlock_latch:`), since an undo that is sent again
//! finds no field; and fair locks, whose queue an ask of this kind passes by.

/// Anything at the key is held by another, whatever it is. What an undo needs is rehearsed, which changes nothing; the first write
/// is one that needs no memory.
macro_rules! deny_unless_free {
    () => {
        "local t = redis.call('PTTL', KEYS[1]) \
         if t ~= -2 then return t end \
         redis.call('HEXISTS', KEYS[1], ARGV[1]) \
         redis.call('HLEN', KEYS[1]) \
         redis.call('PEXPIRE', KEYS[1], ARGV[2]) \
         redis.call('HDEL', KEYS[1], ARGV[1]) "
    };
}

/// Lets the holder ARGV\[1\] have the lock for ARGV\[2\] ms.
macro_rules! hold {
    () => {
        "redis.call('HSET', KEYS[1], ARGV[1], 1) \
         redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
    };
}

/// Ends with 0 unless ARGV\[1\] has the lock. Data of another type has no holder.
macro_rules! return_0_unless_mine {
    () => {
        "local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1]) \
         if type(mine) == 'table' then \
         if string.find(mine.err, '^WRONGTYPE') then return 0 end \
         return mine \
         end \
         if mine == 0 then return 0 end "
    };
}

/// Gives the free lock KEYS\[1\] to ARGV\[1\] for ARGV\[2\] ms. The guard is KEYS\[2\], if nodes are guarded. The answer is `OK`,
/// or for how many ms it is held (-1: without end).
pub const ACQUIRE_REDISSON: &str = concat!(
    "local guard = KEYS[2] ",
    check_restart_guard!(),
    deny_unless_free!(),
    hold!(),
    "return redis.status_reply('OK')"
);

/// As [`ACQUIRE_REDISSON`], and counts in KEYS\[2\]. It is an error if that holds no number, or one that is negative or has no
/// successor below 2^53. The guard is KEYS\[3\]. The answer is `OK` and the counter.
pub const ACQUIRE_REDISSON_FENCED: &str = concat!(
    "local guard = KEYS[3] ",
    check_restart_guard!(),
    deny_unless_free!(),
    "local i = 2 ",
    read_counter!(">= 0 and v < 9007199254740991"),
    "local token = redis.call('INCR', KEYS[2]) ",
    hold!(),
    "return redis.status_reply(string.format('OK %.0f', token))"
);

/// Lets the lock KEYS\[1\] of ARGV\[1\] live for at least ARGV\[2\] ms more, and returns 1; 0 if it is not its lock.
pub const EXTEND_REDISSON: &str = concat!(
    return_0_unless_mine!(),
    "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
     return 1"
);

/// Takes the lock KEYS\[1\] from ARGV\[1\], tells those who wait, and returns 1; 0 if it is not its lock.
pub const UNDO_REDISSON: &str = concat!(
    return_0_unless_mine!(),
    "local was_alone = redis.call('HLEN', KEYS[1]) == 1 \
     redis.call('HDEL', KEYS[1], ARGV[1]) \
     if was_alone then ",
    tell_redisson!(),
    "end \
     return 1"
);

/// Raises the counter KEYS\[2\] to at least ARGV\[2\] and returns 1 if the lock KEYS\[1\] is of ARGV\[1\]; otherwise returns 0.
/// As with Redisson it has no TTL.
pub const WRITE_BACK_REDISSON: &str = concat!(
    return_0_unless_mine!(),
    "local i = 2 ",
    read_counter!("<= 9007199254740991"),
    "if v < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end \
     return 1"
);

/// The name of what Redisson keeps beside a lock: both have to be in one slot of a cluster.
pub(crate) fn beside(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    match name.contains(&b'{') {
        true => [prefix, b":", name].concat(),
        false => [prefix, b":{", name, b"}"].concat(),
    }
}

/// How the names of the channels begin on which releases are told, of locks and of read/write locks.
pub(crate) const CHANNEL: &[u8] = b"redisson_lock__channel";
pub(crate) const RW_CHANNEL: &[u8] = b"redisson_rwlock";

/// How the name of a lock's counter begins.
pub(crate) const COUNTER: &[u8] = b"redisson_lock_token";

/// The prefixes of all keys that Redisson keeps with its locks, up to a colon.
pub(crate) const BESIDE: [&[u8]; 4] =
    [COUNTER, b"redisson_unlock_latch", b"redisson_lock_queue", b"redisson_lock_timeout"];

/// The part of the name of a reader's hold key that stands before the number of its entry.
pub(crate) const HOLD: &[u8] = b":rwlock_timeout:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_braces_gets_no_others() {
        assert_eq!(beside(COUNTER, b"job"), b"redisson_lock_token:{job}");
        assert_eq!(beside(COUNTER, b"{a}:job"), b"redisson_lock_token:{a}:job");
    }
}
