//! F13: every error reply that the core tells apart, in the words of redis 7.0.

/// An error reply, and what may be answered with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) text: &'static str,
    pub(crate) fits: Fits,
}

/// Which requests a server could answer with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    Any,
    /// Said at once to whoever connects, before the connection is closed.
    Accept,
    /// What runs a script by its digest.
    Digest,
    /// What writes.
    Write,
    /// Anything, and it may have run all the same: something between us and the server answers.
    Unknown,
    /// What is about a key. No script of ours answers with it, but a proxy might: an error as any other.
    Typed,
    /// The handshake.
    Handshake,
}

impl Prefix {
    /// Its first words.
    pub(crate) fn name(&self) -> &'static str {
        if self.text.is_empty() {
            return "(empty)";
        }
        let general = self.text.starts_with("ERR ");
        let words = if general { 3 } else { 1 };
        let end = self.text.match_indices(' ').nth(words - 1);
        end.map_or(self.text, |(at, _)| &self.text[..at])
    }
}

const fn prefix(text: &'static str, fits: Fits) -> Prefix {
    Prefix { text, fits }
}

/// As `src/proto/classify.rs` has them.
pub(crate) const PREFIXES: [Prefix; 32] = [
    prefix("LOADING Redis is loading the dataset in memory", Fits::Any),
    prefix("BUSY Redis is busy running a script.", Fits::Any),
    prefix("MASTERDOWN Link with MASTER is down", Fits::Any),
    prefix("MISCONF Redis is configured to save RDB snapshots", Fits::Write),
    prefix("OOM command not allowed when used memory > 'maxmemory'.", Fits::Write),
    prefix("NOREPLICAS Not enough good replicas to write.", Fits::Write),
    prefix("READONLY You can't write against a read only replica.", Fits::Write),
    prefix("CLUSTERDOWN Hash slot not served", Fits::Write),
    prefix("TRYAGAIN Multiple keys request during rehashing of slot", Fits::Write),
    prefix("UNKILLABLE Sorry the script already executed write commands", Fits::Any),
    prefix("EXECABORT Transaction discarded", Fits::Any),
    prefix("NOAUTH Authentication required.", Fits::Any),
    prefix("WRONGPASS invalid username-password pair or user is disabled.", Fits::Handshake),
    prefix("ERR invalid password", Fits::Handshake),
    prefix(
        "ERR AUTH <password> called without any password configured for the default user.",
        Fits::Handshake,
    ),
    prefix("ERR Client sent AUTH, but no password is set", Fits::Handshake),
    prefix("NOPERM this user has no permissions to run the command", Fits::Any),
    prefix("DENIED Redis is running in protected mode", Fits::Accept),
    prefix("MOVED 3999 127.0.0.1:6381", Fits::Write),
    prefix("ASK 3999 127.0.0.1:6381", Fits::Write),
    prefix("CROSSSLOT Keys in request don't hash to the same slot", Fits::Write),
    prefix("ERR SELECT is not allowed in cluster mode", Fits::Handshake),
    prefix("NOPROTO unsupported protocol version", Fits::Handshake),
    prefix("WRONGTYPE Operation against a key", Fits::Typed),
    prefix("ERR unknown command 'EVAL', with args beginning with:", Fits::Any),
    prefix("ERR max number of clients reached", Fits::Accept),
    prefix("ERR DB index is out of range", Fits::Handshake),
    prefix("ERR something new", Fits::Unknown),
    prefix("NOSCRIPT No matching script. Please use EVAL.", Fits::Digest),
    prefix(
        "ERR Error running script (call to f_0123456789abcdef): @user_script:1: \
         @user_script: 1: -READONLY You can't write against a read only replica.",
        Fits::Write,
    ),
    prefix("LOADINGS of something else", Fits::Unknown),
    prefix("", Fits::Unknown),
];
