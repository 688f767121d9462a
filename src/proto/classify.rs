//! The meaning of server errors for a lock: every error prefix of Redis 7.
//!
//! The prefix alone decides, with two exceptions: errors with only the general prefix `ERR`, and
//! errors from inside a script, which old servers and proxies wrap into another error.

use super::vote::Cause;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerError {
    Cause(Cause),
    /// `NOSCRIPT`, which the same attempt fixes by sending the script's text.
    NoScript,
}

impl ServerError {
    /// Returns the cause, for commands that are not scripts or that are sent with their text.
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Cause(cause) => cause,
            // Only a call by digest can be answered so. To another command it is a plain error.
            Self::NoScript => Cause::ServerError,
        }
    }
}

/// Classifies the text of an error, without its leading `-`.
pub(super) fn classify(text: &[u8]) -> ServerError {
    known(text).or_else(|| wrapped(text)).unwrap_or(ServerError::Cause(Cause::ServerError))
}

fn known(text: &[u8]) -> Option<ServerError> {
    let code = text.split(|&b| b == b' ').next().unwrap_or(text);
    // Redis documents the prefixes but changes the texts from version to version.
    let cause = match code {
        b"ASK" | b"CROSSSLOT" | b"MOVED" => Cause::ClusterMode,
        b"BUSY" => Cause::Busy,
        b"CLUSTERDOWN" | b"EXECABORT" | b"TRYAGAIN" | b"UNKILLABLE" => Cause::Unavailable,
        b"DENIED" => Cause::ProtectedMode,
        b"ERR" => return general(&text[code.len()..]),
        b"LOADING" => Cause::Loading,
        b"MASTERDOWN" => Cause::MasterDown,
        b"MISCONF" => Cause::DiskTrouble,
        b"NOAUTH" => Cause::PasswordMissing,
        b"NOPERM" => Cause::NoPermission,
        b"NOPROTO" => Cause::UnknownCommand,
        b"NOREPLICAS" => Cause::NoReplicas,
        b"NOSCRIPT" => return Some(ServerError::NoScript),
        b"OOM" => Cause::OutOfMemory,
        b"READONLY" => Cause::ReadOnly,
        b"WRONGPASS" => Cause::WrongPassword,
        b"WRONGTYPE" => Cause::WrongType,
        _ => return None,
    };
    Some(ServerError::Cause(cause))
}

/// Classifies an error with the prefix `ERR` by the beginning of its text.
fn general(text: &[u8]) -> Option<ServerError> {
    let text = text.trim_ascii_start();
    let cause = [
        (&b"max number of clients"[..], Cause::MaxClients),
        (b"unknown command", Cause::UnknownCommand),
        (b"invalid password", Cause::WrongPassword),
        (b"AUTH <password> called without any password", Cause::NoPasswordSet),
        (b"Client sent AUTH, but no password is set", Cause::NoPasswordSet),
        (b"DB index is out of range", Cause::NoSuchDatabase),
        (b"SELECT is not allowed in cluster mode", Cause::ClusterMode),
        // Errors of a command inside a script: Redis 5.0 to 6.2, 7.0, and 7.2 or later.
        (b"Unknown Redis command called from", Cause::UnknownCommand),
        (b"The user executing the script can't", Cause::NoPermission),
        (b"ACL failure in script", Cause::NoPermission),
    ]
    .into_iter()
    .find_map(|(start, cause)| text.starts_with(start).then_some(cause))?;
    Some(ServerError::Cause(cause))
}

/// Classifies an error that was raised inside a script. Before Redis 7.0 it arrives as `ERR Error
/// running script (call to f_…): @user_script:1: -READONLY …`, or without the words before
/// `@user_script` if the script caught it. Proxies add other wrappers.
fn wrapped(text: &[u8]) -> Option<ServerError> {
    let is_raised = text.starts_with(b"ERR ") && memchr::memmem::find(text, b"script").is_some();
    if !is_raised && !text.starts_with(b"@user_script") {
        return None;
    }
    let prefixed = || memchr::memchr_iter(b'-', text).find_map(|at| known(&text[at + 1..]));
    // An error without a prefix follows the position in the script:
    // `@user_script: 1: Unknown Redis command …`.
    let bare = || memchr::memmem::find_iter(text, b": ").find_map(|at| general(&text[at + 2..]));
    prefixed().or_else(bare)
}

/// Removes the arguments that a server repeats in the error about an unknown command: they may be
/// secret.
pub(crate) fn without_arguments(text: &[u8]) -> &[u8] {
    // A token must not get into a log, because it can release the lock.
    let quoted = memchr::memmem::find(text, b", with args beginning with");
    &text[..quoted.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(text: &str) -> Cause {
        match classify(text.as_bytes()) {
            ServerError::Cause(cause) => cause,
            ServerError::NoScript => panic!("{text}: a cause"),
        }
    }

    /// The texts are those of Redis 7.0.15 (`server.c`, `script.c`, `networking.c`, `acl.c`).
    #[test]
    fn every_error_of_the_table() {
        let table = [
            ("LOADING Redis is loading the dataset in memory", Cause::Loading),
            ("BUSY Redis is busy running a script.", Cause::Busy),
            ("MASTERDOWN Link with MASTER is down", Cause::MasterDown),
            ("MISCONF Redis is configured to save RDB snapshots", Cause::DiskTrouble),
            ("OOM command not allowed when used memory > 'maxmemory'.", Cause::OutOfMemory),
            ("NOREPLICAS Not enough good replicas to write.", Cause::NoReplicas),
            ("READONLY You can't write against a read only replica.", Cause::ReadOnly),
            ("CLUSTERDOWN Hash slot not served", Cause::Unavailable),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Cause::Unavailable),
            ("UNKILLABLE Sorry the script already executed write commands", Cause::Unavailable),
            ("EXECABORT Transaction discarded", Cause::Unavailable),
            ("NOAUTH Authentication required.", Cause::PasswordMissing),
            ("WRONGPASS invalid username-password pair or user is disabled.", Cause::WrongPassword),
            ("ERR invalid password", Cause::WrongPassword),
            (
                "ERR AUTH <password> called without any password configured for the default user.",
                Cause::NoPasswordSet,
            ),
            ("ERR Client sent AUTH, but no password is set", Cause::NoPasswordSet),
            ("NOPERM this user has no permissions to run the 'set' command", Cause::NoPermission),
            ("DENIED Redis is running in protected mode", Cause::ProtectedMode),
            ("MOVED 3999 127.0.0.1:6381", Cause::ClusterMode),
            ("ASK 3999 127.0.0.1:6381", Cause::ClusterMode),
            ("CROSSSLOT Keys in request don't hash to the same slot", Cause::ClusterMode),
            ("ERR SELECT is not allowed in cluster mode", Cause::ClusterMode),
            ("NOPROTO unsupported protocol version", Cause::UnknownCommand),
            ("WRONGTYPE Operation against a key", Cause::WrongType),
            ("ERR unknown command 'EVAL', with args beginning with:", Cause::UnknownCommand),
            ("ERR max number of clients reached", Cause::MaxClients),
            ("ERR DB index is out of range", Cause::NoSuchDatabase),
            ("ERR something new", Cause::ServerError),
            ("", Cause::ServerError),
            ("LOADINGS", Cause::ServerError),
        ];
        for (text, expected) in table {
            assert_eq!(cause(text), expected, "{text}");
        }
        assert_eq!(classify(b"NOSCRIPT No matching script."), ServerError::NoScript);
    }

    #[test]
    fn errors_from_inside_a_script() {
        let old = "ERR Error running script (call to f_0123456789abcdef): @user_script:1: \
            @user_script: 1: -READONLY You can't write against a read only replica.";
        assert_eq!(cause(old), Cause::ReadOnly);
        let caught = "@user_script: 1: -READONLY You can't write against a read only replica.";
        assert_eq!(cause(caught), Cause::ReadOnly);
        let new = "OOM command not allowed when used memory > 'maxmemory'. script: 43f6, on @user_script:1.";
        assert_eq!(cause(new), Cause::OutOfMemory);
        let bare = |words: &str| {
            cause(&format!(
                "ERR Error running script (call to f_0123456789abcdef): @user_script:1: \
                @user_script: 1: {words}"
            ))
        };
        assert_eq!(bare("Unknown Redis command called from Lua script"), Cause::UnknownCommand);
        let may_not = "The user executing the script can't run this command or subcommand";
        assert_eq!(bare(may_not), Cause::NoPermission);
        assert_eq!(cause(&format!("@user_script: 1: {may_not}")), Cause::NoPermission);
        for (words, expected) in [
            ("Unknown Redis command called from script", Cause::UnknownCommand),
            (may_not, Cause::NoPermission),
            (
                "ACL failure in script: User locks has no permissions to run the 'del' command",
                Cause::NoPermission,
            ),
        ] {
            let text = format!("ERR {words} script: 43f6, on @user_script:1.");
            assert_eq!(cause(&text), expected, "{text}");
        }
        assert_eq!(cause("ERR user-script -READONLYish"), Cause::ServerError);
        assert_eq!(cause("ERR no wrapper -OOM here"), Cause::ServerError);
    }
}
