//! The script of Spring Integration's lock registry, as its members find it.
//!
//! A lock is a string, its holder's token, with a TTL, under the registry's key, a colon and its own. That is redbolt's own format,
//! so that it is asked for and extended in the same way. Whoever waits, in a registry that was told to listen, is told by a
//! message with the name of the lock on `{REGISTRY}-channel:{NAME}`, which this script sends together with the deletion.
//! A registry's key may have colons of its own: so each of the first sixteen is taken for its end, and nobody listens to the other channels.

/// Takes the lock KEYS\[1\] from ARGV\[1\], tells those who wait, and returns 1; 0 if it is not its lock.
pub const UNDO_SPRING: &str = concat!(
    "local i, n = 1, 0 ",
    read_value!(),
    undo_value!(),
    "if n > 0 then ",
    tell_spring!(),
    "end \
     return n"
);
