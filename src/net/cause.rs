//! The meaning of a socket's error for a link.

use std::io;

#[cfg(feature = "tls")]
use super::tls::TlsFault;
use crate::proto::Cause;

/// Returns the cause, with the system's message if the cause alone is not specific enough.
pub(super) fn of(error: &io::Error) -> (Cause, Option<String>) {
    use io::ErrorKind as Kind;
    #[cfg(feature = "tls")]
    if let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFault>()) {
        return fault.cause();
    }
    let cause = match error.kind() {
        Kind::ConnectionRefused => Cause::ConnectionRefused,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
            Cause::ConnectionReset
        }
        Kind::HostUnreachable | Kind::NetworkUnreachable => Cause::Unreachable,
        // Keepalive and `TCP_USER_TIMEOUT` end a connection with this error.
        Kind::TimedOut => Cause::DeadPeer,
        _ => return (Cause::Io, Some(error.to_string())),
    };
    (cause, None)
}
