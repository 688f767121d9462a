//! A host and a port, by which servers are named.

use crate::proto::printable;

/// A host, which may be a name, and a port.
pub(super) type HostPort = (String, u16);

/// A host and a port as people read them. Sentinels name hosts of any characters.
pub(super) fn shown((host, port): &HostPort) -> String {
    let host = printable(host);
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
