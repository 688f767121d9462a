//! The scripts of locks whose value is a time, as their members find them: the old recipe of SETNX, and redis-objects.
//!
//! A member reads the value as a number: the second since 1970 from which on others may take the lock over. What is no number it
//! takes for zero, which is long over. So a lock of ours is a decimal number as well: in front of the point such a second,
//! later than the TTL that it has besides, and behind it the digits by which its holder knows it, two for each of the token's. An
//! extension writes a later second, so that owners are compared by what is behind the point.
//!
//! A member's own lock has no TTL. Once its second is over, it is taken over by one script that looks and sets, so that whoever
//! comes second finds the first and overwrites nobody. Anything else at the key is held as long as it is there: an empty string, as newer
//! versions of redis-objects have it, a `1`, as older ones do for a lock without end, and a number that is no second of this century.
//!
//! A member that finds a lock gone between its SETNX and its GET overwrites whoever took it meanwhile, by GETSET, and sees only
//! then that it has lost. Members release without a look inside their own lease, so that such a value goes. A lock of ours
//! that was overwritten is released in the same way: what is there is deleted if it is a member's time. How long our lease lasts
//! is known to the node alone, which has a key for it with the holder's digits. It ends when the lock's key would have
//! ended, so that an undo that comes late, comes twice, or is of an earlier attempt deletes nothing but its own value. The
//! key goes with the lock, and also when an extension finds that the lock is lost, and when an operator breaks the lock.

/// What the key begins with that lasts as long as a holder's lease.
pub(in crate::proto) const LEASE_PREFIX: &[u8] = b"redbolt:lease:";

/// How the value of a lock of ours ends that belongs to ARGV\[1\].
macro_rules! own_digits {
    () => {
        "local own = string.gsub(string.sub(ARGV[1], 1, 34), '%x', \
         function(digit) return string.format('%02d', tonumber(digit, 16)) end) "
    };
}

/// Gives the lock to the holder for ARGV\[2\] ms, and its lease. Others may have clocks that are ahead by a second.
macro_rules! set_with_time {
    () => {
        "redis.call('SET', KEYS[1], \
         string.format('%.0f.', math.ceil((now + ARGV[2]) / 1000) + 1) .. own, 'PX', ARGV[2]) \
         redis.call('SET', KEYS[2], own, 'PX', ARGV[2]) "
    };
}

/// Reads the lock, and whether it is of ARGV\[1\].
macro_rules! read_own_digits {
    () => {
        concat!(
            "local i = 1 ",
            read_value!(),
            own_digits!(),
            "local is_own = type(v) == 'string' and string.match(v, '^%d+%.(%d+)$') == own "
        )
    };
}

/// Ends the lease of ARGV\[1\], if it lasts until now.
macro_rules! end_own_lease {
    () => {
        "local has_lease = redis.pcall('GET', KEYS[2]) == own \
         if has_lease then redis.call('DEL', KEYS[2]) end "
    };
}

/// The second in a value without a TTL, which is a member's or one of ours that has lost its TTL.
macro_rules! read_second {
    () => {
        "local t = redis.call('PTTL', KEYS[1]) \
         local ends = t == -1 and type(v) == 'string' and tonumber(string.match(v, '^%d+%.?%d*$')) \
         if ends and (ends < 1000000000 or ends > 4200000000) then ends = false end "
    };
}

/// Gives the lock KEYS\[1\] to ARGV\[1\] for ARGV\[2\] ms if it is free, or of a member whose time is over. KEYS\[2\] is for its
/// lease. Where another holder's lease lasts, a member has overwritten its lock. The guard is KEYS\[3\], if nodes are guarded. The
/// answer is `OK`, or for how many ms it is held (-1: without end).
pub const ACQUIRE_TIMED: &str = concat!(
    "local guard = KEYS[3] ",
    check_restart_guard!(),
    read_clock_ms!(),
    "local i = 1 ",
    read_value!(),
    read_second!(),
    "if t ~= -2 then \
     if not ends then return t end \
     local left = math.ceil(ends * 1000) - now \
     if left > 0 then return left end \
     left = redis.call('PTTL', KEYS[2]) \
     if left > 0 then return left end \
     end \
     redis.call('DEL', KEYS[1], KEYS[2]) ",
    own_digits!(),
    set_with_time!(),
    "return redis.status_reply('OK')"
);

/// Lets the lock KEYS\[1\] of ARGV\[1\], and its lease KEYS\[2\], live for at least ARGV\[2\] ms more, and returns 1; 0 if it is not
/// its lock, and then the lease ends. The first write is one that needs no memory.
///
/// It does not restore a value that a member has overwritten inside the lease, although the undo deletes such a value. The value
/// of a member that lost the race equals the value of a member that has the lock: after the bare `DEL` of a member that was
/// paused, or after the end of a loser's shorter time. Only an extension notices the second kind. If it restored the value,
/// both would hold the lock until the end of their work.
pub const EXTEND_TIMED: &str = concat!(
    read_own_digits!(),
    "if not is_own then ",
    end_own_lease!(),
    "return 0 \
     end \
     if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then ",
    read_clock_ms!(),
    "redis.call('PEXPIRE', KEYS[1], ARGV[2]) ",
    set_with_time!(),
    "end \
     return 1"
);

/// Takes the lock KEYS\[1\] from ARGV\[1\], and returns 1; 0 if it is not its lock. Within its lease KEYS\[2\] the time of a member
/// that has overwritten it is its lock.
pub const UNDO_TIMED: &str = concat!(
    read_own_digits!(),
    end_own_lease!(),
    read_second!(),
    "if is_own or has_lease and ends and #v < 60 then return redis.call('DEL', KEYS[1]) end \
     return 0"
);

/// The first digits of the token whose lock has this value, if it is one of ours.
#[must_use]
pub fn token_behind_time(value: &[u8]) -> Option<Vec<u8>> {
    let point = value.iter().position(|&byte| byte == b'.')?;
    let (time, digits) = (&value[..point], &value[point + 1..]);
    let is_number = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if time.is_empty() || digits.len() != 2 * TOKEN_DIGITS || !is_number(time) {
        return None;
    }
    let hex = |pair: &[u8]| {
        let number = std::str::from_utf8(pair).ok()?.parse().ok()?;
        char::from_digit(number, 16).map(|digit| digit as u8)
    };
    digits.chunks(2).map(hex).collect()
}

/// So many digits of a token are in a value.
const TOKEN_DIGITS: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_the_digits_of_its_token() {
        let of = |value: &str| token_behind_time(value.as_bytes());
        let digits = "10111213141500010203040506070809".repeat(2) + "0003";
        let token = [&b"abcdef0123456789"[..], b"abcdef0123456789", b"03"].concat();
        assert_eq!(of(&format!("1795327176.{digits}")), Some(token));
        for value in ["1795327176.77", "1795327176", "", "."] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(of(&format!(".{digits}")), None);
        assert_eq!(of(&format!("1795327176.16{}", &digits[2..])), None, "no digit");
    }
}
