//! A blocking socket to a server, with a time limit for each call.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redbolt::Config;
use redbolt::net::Address;

/// A connection for reading and writing: a socket, or TLS on one.
pub(super) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// The socket below a connection, kept to set time limits.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects before `until`.
    pub(super) fn connect(address: &Address, until: Instant) -> io::Result<Self> {
        match address {
            // The kernel answers at once.
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Address::Name(host, port) | Address::TlsName(host, port) => {
                dial((host.as_str(), *port).to_socket_addrs()?, until).map(Self::Tcp)
            }
            Address::Ip(ip, port) | Address::TlsIp(ip, port) => {
                dial([SocketAddr::from((*ip, *port))].into_iter(), until).map(Self::Tcp)
            }
            other => Err(io::Error::new(ErrorKind::Unsupported, format!("no way to {other}"))),
        }
    }

    /// Returns the stream to use. For an address with TLS, its handshake ends before `until`.
    pub(super) fn stream(
        &self,
        config: &Config,
        address: &Address,
        until: Instant,
    ) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(socket) => Box::new(socket.try_clone()?),
            Self::Tcp(socket) if address.is_tls() => {
                self.bound(left(until)?)?;
                Box::new(config.over_tls(address, socket.try_clone()?)?)
            }
            Self::Tcp(socket) => Box::new(socket.try_clone()?),
        })
    }

    /// Limits the time of each of the next calls.
    pub(super) fn bound(&self, span: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => {
                socket.set_write_timeout(Some(span))?;
                socket.set_read_timeout(Some(span))
            }
            Self::Unix(socket) => {
                socket.set_write_timeout(Some(span))?;
                socket.set_read_timeout(Some(span))
            }
        }
    }
}

fn dial(places: impl Iterator<Item = SocketAddr>, until: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
    for place in places {
        match TcpStream::connect_timeout(&place, left(until)?) {
            Ok(stream) => {
                // The connection is used to measure round trips.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Returns the time until then, or an error if none is left.
pub(super) fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
