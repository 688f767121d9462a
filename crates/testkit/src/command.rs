//! Classifies requests by their arguments alone, for the protocol. This is the one table of
//! commands and scripts for all tests. Whether a request may be sent at that point, and the meaning
//! of its reply, is up to each test.

use redbolt::proto::script::{self, ACQUIRE_PERMIT, Role, Script, VIEW_QUEUE, WRITE_BACK};

/// The key of the restart guard, unless a configuration names another.
pub const GUARD: &[u8] = b"redbolt:guard";

/// Returns the script with this text.
#[must_use]
pub fn script_of_text(text: &[u8]) -> Option<&'static Script> {
    script::all().find(|script| script.text.as_bytes() == text)
}

/// Returns the script with this digest, as given to `EVALSHA`.
#[must_use]
pub fn script_of_digest(digest: &[u8]) -> Option<&'static Script> {
    script::all().find(|script| script.digest.as_bytes() == digest)
}

/// The kind of a request in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests a lock.
    Ask,
    /// Authenticates.
    Auth,
    /// Reads the restart guard's TTL, behind a lock request or in a handshake.
    Check,
    /// Another subcommand of `CLIENT`.
    Client,
    /// Undoes a lock request by the server's native command.
    Delete,
    /// Writes a restart guard.
    Enrol,
    /// Extends a lock.
    Extend,
    /// Force-unlocks a resource, for an operator.
    ForceUnlock,
    /// Reads the value of a key, for an inspection.
    Getrange,
    /// Reads sections of `INFO`.
    Info,
    /// Kills a dead connection of the same client.
    Kill,
    /// Kills all other connections.
    KillOthers,
    /// Leaves the queue.
    Leave,
    /// Reads the queue, for an inspection.
    Queue,
    /// Reads the restart guard's value.
    Look,
    /// Requests a permit in one slot.
    Move,
    /// Calls a script command without a script: tests whether scripts could be called.
    ProbeCall,
    /// Writes without effect: tests whether writes would succeed.
    ProbeWrite,
    /// Reads the TTL of a key.
    Pttl,
    /// Selects the database.
    Select,
    /// Reads the readers of a resource, for an inspection.
    Sharers,
    /// Subscribes to a channel of another library.
    Hear,
    /// Unsubscribes from such a channel.
    NoLongerHear,
    /// Subscribes to invalidation messages.
    Subscribe,
    /// Turns tracking on.
    Track,
    /// Reads the type of a key, for an inspection.
    Type,
    /// Undoes a lock request.
    Undo,
    /// Not a request of the library.
    Unknown,
    /// Turns tracking off.
    Untrack,
    /// Raises counters to a token.
    WriteBack,
}

impl Kind {
    fn of_script(script: &Script) -> Self {
        match script.role {
            Role::Ask(_) => Self::Ask,
            Role::Enrol => Self::Enrol,
            Role::Extend => Self::Extend,
            Role::ForceUnlock => Self::ForceUnlock,
            Role::LeaveQueue => Self::Leave,
            Role::Undo => Self::Undo,
            Role::View if *script == VIEW_QUEUE => Self::Queue,
            Role::View => Self::Sharers,
            Role::WriteBack => Self::WriteBack,
            _ => Self::Unknown,
        }
    }

    /// Returns its name in tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// Returns its name, and its name if a script is called by digest.
    fn names(self) -> (&'static str, &'static str) {
        let one = |name| (name, name);
        match self {
            Self::Ask => ("ask", "ask sha"),
            Self::Auth => one("auth"),
            Self::Check => one("check"),
            Self::Client => one("client"),
            Self::Delete => one("delete"),
            Self::Enrol => ("enrol", "enrol sha"),
            Self::Extend => ("extend", "extend sha"),
            Self::ForceUnlock => ("force unlock", "force unlock sha"),
            Self::Getrange => one("getrange"),
            Self::Info => one("info"),
            Self::Kill => one("kill"),
            Self::KillOthers => one("kill others"),
            Self::Leave => ("leave", "leave sha"),
            Self::Queue => ("queue", "queue sha"),
            Self::Look => one("look"),
            Self::Move => ("move", "move sha"),
            Self::ProbeCall | Self::ProbeWrite => one("probe"),
            Self::Pttl => one("pttl"),
            Self::Select => one("select"),
            Self::Sharers => ("sharers", "sharers sha"),
            Self::Hear => one("hear"),
            Self::NoLongerHear => one("no longer hear"),
            Self::Subscribe => one("subscribe"),
            Self::Track => one("track"),
            Self::Type => one("type"),
            Self::Undo => ("undo", "undo sha"),
            Self::Unknown => one("unknown"),
            Self::Untrack => one("untrack"),
            Self::WriteBack => ("write back", "write back sha"),
        }
    }
}

/// A classified request.
#[derive(Clone, Copy, Debug)]
pub struct Command<'w> {
    /// Its kind.
    pub kind: Kind,
    /// The script that it calls, if any.
    pub script: Option<&'static Script>,
    /// True if it calls the script by digest.
    pub by_digest: bool,
    /// The token of its lock; empty if there is none.
    pub token: &'w [u8],
    /// The TTL of a lock request or an extension in ms, or the counter of a write-back; 0 for
    /// others.
    pub number: u64,
}

impl<'w> Command<'w> {
    /// Classifies a request.
    #[inline]
    #[must_use]
    pub fn new<W: AsRef<[u8]>>(words: &'w [W]) -> Self {
        let word = |at: usize| words.get(at).map_or(&[][..], AsRef::as_ref);
        let kind = match word(0) {
            b"SET" if word(1) == GUARD => Kind::ProbeWrite,
            b"SET" => return Self::plain(Kind::Ask, word(2), number(word(5))),
            // Each of the library's scripts has keys.
            b"EVAL" | b"EVALSHA" if word(2) == b"0" => Kind::ProbeCall,
            b"EVAL" => return Self::call(script_of_text(word(1)), false, words),
            b"EVALSHA" => return Self::call(script_of_digest(word(1)), true, words),
            b"PTTL" if word(1) == GUARD => Kind::Check,
            b"PTTL" => Kind::Pttl,
            b"GET" if word(1) == GUARD => Kind::Look,
            b"DEL" if words.len() == 1 => Kind::ProbeCall,
            b"DELEX" | b"DELIFEQ" if word(1) == GUARD => Kind::ProbeCall,
            b"DELEX" => return Self::plain(Kind::Delete, word(3), 0),
            b"DELIFEQ" => return Self::plain(Kind::Delete, word(2), 0),
            b"AUTH" => Kind::Auth,
            b"SELECT" => Kind::Select,
            b"CLIENT" => of_client(word(1), word(2)),
            b"INFO" => Kind::Info,
            b"GETRANGE" => Kind::Getrange,
            b"TYPE" => Kind::Type,
            b"SUBSCRIBE" if word(1) == b"__redis__:invalidate" => Kind::Subscribe,
            b"SUBSCRIBE" => Kind::Hear,
            b"UNSUBSCRIBE" => Kind::NoLongerHear,
            _ => Kind::Unknown,
        };
        Self::plain(kind, b"", 0)
    }

    fn plain(kind: Kind, token: &'w [u8], number: u64) -> Self {
        Self { kind, script: None, by_digest: false, token, number }
    }

    /// Classifies a script call. The text or the digest is followed by the number of keys, the
    /// keys, and for a lock's script the token.
    fn call<W: AsRef<[u8]>>(
        script: Option<&'static Script>,
        by_digest: bool,
        words: &'w [W],
    ) -> Self {
        let word = |at: usize| words.get(at).map_or(&[][..], AsRef::as_ref);
        let kind = script.map_or(Kind::Unknown, Kind::of_script);
        // Offsets of at most 8 are added to it.
        let keys = usize::try_from(number(word(2))).unwrap_or(usize::MAX - 8);
        // A step of 0 means the first slot and no other.
        let is_move = script == Some(&ACQUIRE_PERMIT) && word(keys + 8) == b"0";
        let kind = if is_move { Kind::Move } else { kind };
        let (token, number) = match kind {
            Kind::Ask | Kind::Extend | Kind::Move => (word(keys + 3), number(word(keys + 4))),
            Kind::WriteBack if script != Some(&WRITE_BACK) => {
                (word(keys + 3), number(word(keys + 4)))
            }
            Kind::WriteBack => (word(keys + 3), number(word(keys + 5))),
            Kind::Leave | Kind::Undo => (word(keys + 3), 0),
            _ => (&[][..], 0),
        };
        Self { kind, script, by_digest, token, number }
    }

    /// Returns its name in tests, which shows how it calls its script.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let (by_text, by_digest) = self.kind.names();
        if self.by_digest { by_digest } else { by_text }
    }
}

fn of_client(what: &[u8], how: &[u8]) -> Kind {
    match (what, how) {
        (b"KILL", b"TYPE") => Kind::KillOthers,
        (b"KILL", _) => Kind::Kill,
        (b"TRACKING", b"ON") => Kind::Track,
        (b"TRACKING", _) => Kind::Untrack,
        _ => Kind::Client,
    }
}

/// Parses a decimal number of any length.
#[must_use]
pub fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number: u64, digit| {
        number.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
    })
}

#[cfg(test)]
mod tests {
    use redbolt::proto::script::{ACQUIRE_MANY, ENROL};

    use super::*;

    fn understood(words: &[&'static str]) -> (&'static str, String, u64) {
        let command = Command::new(words);
        (command.name(), String::from_utf8_lossy(command.token).into_owned(), command.number)
    }

    #[test]
    fn a_command_is_known_by_its_words() {
        let reported = |name, token: &str, number| (name, token.to_owned(), number);
        let set = ["SET", "job", "token", "NX", "PX", "700"];
        assert_eq!(understood(&set), reported("ask", "token", 700));
        assert_eq!(understood(&["SET", "redbolt:guard", "", "NX", "XX"]), reported("probe", "", 0));
        let many = ["EVAL", ACQUIRE_MANY.text, "3", "a", "b", "redbolt:guard", "token", "700", "2"];
        assert_eq!(understood(&many), reported("ask", "token", 700));
        assert_eq!(understood(&["DELIFEQ", "job", "token"]), reported("delete", "token", 0));
        assert_eq!(understood(&["DELEX", "job", "IFEQ", "token"]), reported("delete", "token", 0));
        assert_eq!(understood(&["DELIFEQ", "redbolt:guard", "token"]), reported("probe", "", 0));
        let write = ["EVAL", WRITE_BACK.text, "2", "a", "counter", "token", "1", "42", "60000"];
        assert_eq!(understood(&write), reported("write back", "token", 42));
        let enrol = ["EVAL", ENROL.text, "1", "redbolt:guard", "seen", "ours", "9"];
        assert_eq!(understood(&enrol), reported("enrol", "", 0));
        assert_eq!(understood(&["EVAL", "return 0", "0"]), reported("probe", "", 0));
        assert_eq!(understood(&["EVAL", "return 0", "1", "a"]), reported("unknown", "", 0));
        assert_eq!(understood(&["CLIENT", "KILL", "ID", "7"]).0, "kill");
        assert_eq!(understood(&["CLIENT", "TRACKING", "OFF"]).0, "untrack");
        assert_eq!(understood(&["FLUSHALL"]).0, "unknown");
        assert_eq!(understood(&["SUBSCRIBE", "__redis__:invalidate"]).0, "subscribe");
        assert_eq!(understood(&["SUBSCRIBE", "redisson_lock__channel:{job}"]).0, "hear");
        assert_eq!(understood(&["UNSUBSCRIBE", "other"]).0, "no longer hear");
    }

    #[test]
    fn a_script_is_the_same_by_its_digest() {
        for script in script::all() {
            assert_eq!(script_of_text(script.text.as_bytes()), Some(script));
            let digest = script.digest;
            assert_eq!(script_of_digest(digest.as_bytes()), Some(script));
            let words = [b"EVALSHA", digest.as_bytes(), b"1", b"job", b"token", b"9"];
            let command = Command::new(&words);
            assert_eq!((command.kind, command.script), (Kind::of_script(script), Some(script)));
            assert!(command.name().ends_with(" sha"));
        }
    }
}
