//! TLS over a caller's stream, which may block, for tools that query a node directly.
//!
//! The connections of locks, which never block, are in `sockets`.

use std::fmt;
use std::io::{self, Read, Write};

use super::session::Session;
use super::trust::Connector;
use crate::net::address::Address;

/// A stream with TLS, under the same options as the connections of locks. Created by
/// [`Config::over_tls`](crate::Config::over_tls).
pub struct TlsStream<S> {
    session: Session,
    stream: S,
}

impl<S: Read + Write> TlsStream<S> {
    pub(crate) fn new(connector: &Connector, address: &Address, mut stream: S) -> io::Result<Self> {
        let mut session = connector.session(address).map_err(io::Error::other)?;
        match session.shake_hands(&mut stream)? {
            true => Ok(Self { session, stream }),
            // The stream's own time limit has passed.
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.session.read(&mut self.stream, space)
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.session.write(&mut self.stream, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // An empty write sends the records that the stream has not accepted yet.
        self.session.write(&mut self.stream, &[])?;
        self.stream.flush()
    }
}

impl<S> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").finish_non_exhaustive()
    }
}
