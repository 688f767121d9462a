//! F13: every error reply that the core distinguishes, in the wording of Redis 7.0.

/// An error reply, and the requests that it may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) text: &'static str,
    pub(crate) fits: Fits,
}

/// The requests that a server could answer with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    Any,
    /// Sent to a new connection, which is then closed.
    Accept,
    /// Commands that run a script by its digest.
    Digest,
    /// Commands that write.
    Write,
    /// Any command. It may have run all the same, because a proxy between client and server
    /// answers.
    Unknown,
    /// Commands on a key. No script of the library answers with this error, but a proxy might.
    Typed,
    /// The handshake.
    Handshake,
}

impl Prefix {
    /// Returns the first words of the text.
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

/// The errors of `src/proto/classify.rs`.
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
