//! A host and a port, which identify a server.

use crate::proto::printable;

/// A host name or IP address, and a port.
pub(super) type HostPort = (String, u16);

/// Formats a host and a port for display. The host is escaped, because a sentinel may name a host
/// with any characters.
pub(super) fn shown((host, port): &HostPort) -> String {
    let host = printable(host);
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
