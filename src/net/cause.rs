//! What an error of the operating system means for a link.

use std::io;

use crate::proto::Cause;

/// The cause, and the system's message where the cause alone says too little.
pub(super) fn of(error: &io::Error) -> (Cause, Option<String>) {
    use io::ErrorKind as Kind;
    let cause = match error.kind() {
        Kind::ConnectionRefused => Cause::ConnectionRefused,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
            Cause::ConnectionReset
        }
        Kind::HostUnreachable | Kind::NetworkUnreachable => Cause::Unreachable,
        Kind::TimedOut => Cause::DeadPeer,
        _ => return (Cause::Io, Some(error.to_string())),
    };
    (cause, None)
}
