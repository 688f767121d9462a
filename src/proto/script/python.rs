//! The scripts of python-redis-lock, as its members find its locks.
//!
//! A lock is a string, its holder's token, under `lock:` and its name, with a TTL or without. That is redbolt's own format, so that it
//! is extended in the same way. Whoever waits sleeps on the list `lock-signal:NAME`, of which a release makes one entry: it wakes one
//! of them, and is over after a second, so that it wakes nobody who comes later. An entry that is there already says no more, and goes.
//!
//! Not here: to wait on that list. An entry that redbolt took would be missed by a member; redbolt waits as for its own locks.

/// Gives the free lock KEYS\[1\] to ARGV\[1\] for ARGV\[2\] ms. KEYS\[2\] is the list of those who wait, and KEYS\[3\] the guard, if nodes
/// are guarded. The answer is `OK`, or for how many ms it is held (-1: without end).
///
/// What an undo does to the list is rehearsed on it, since an entry from before the grant says nothing any more. An entry that goes
/// again in the same script wakes nobody. `LPUSH` comes first: it fails if the key is not a list, and then the key is left as it is,
/// because it may be another client's lock.
pub const ACQUIRE_PYTHON: &str = concat!(
    "local guard = KEYS[3] ",
    check_restart_guard!(),
    "local t = redis.call('PTTL', KEYS[1]) \
     if t ~= -2 then return t end ",
    rehearse_undo!(),
    "redis.call('LPUSH', KEYS[2], 1) \
     local may_end = redis.pcall('PEXPIRE', KEYS[2], 1000) \
     redis.call('DEL', KEYS[2]) \
     if type(may_end) == 'table' then return may_end end \
     redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) \
     return redis.status_reply('OK')"
);

/// Takes the lock KEYS\[1\] from ARGV\[1\], wakes one of those who wait on the list KEYS\[2\], and returns 1; 0 if it is not its lock.
/// A key that is not a list is left as it is.
pub const UNDO_PYTHON: &str = concat!(
    "local i, n = 1, 0 ",
    read_value!(),
    undo_value!(),
    "if n > 0 and type(redis.pcall('LPUSH', KEYS[2], 1)) == 'number' then \
     redis.pcall('DEL', KEYS[2]) ",
    tell_python!("KEYS[2]"),
    "end \
     return n"
);

/// The list on which those wait who want the lock of this name.
pub(crate) fn signal(name: &[u8]) -> Vec<u8> {
    [SIGNAL, name.strip_prefix(LOCK).unwrap_or(name)].concat()
}

/// How the names of locks begin, and those of their lists.
pub(crate) const LOCK: &[u8] = b"lock:";
pub(crate) const SIGNAL: &[u8] = b"lock-signal:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_s_list_has_its_name() {
        assert_eq!(signal(b"lock:job"), b"lock-signal:job");
        assert_eq!(signal(b"lock:lock:job"), b"lock-signal:lock:job");
    }
}
