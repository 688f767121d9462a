//! A non-blocking stream over TCP, with or without TLS, or over a Unix socket.
//!
//! Options are set on each connect: `TCP_NODELAY`, because a lock is one small write; keepalive and
//! `TCP_USER_TIMEOUT`, because a half-open connection otherwise lasts about 15 min.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry};
use socket2::{SockRef, TcpKeepalive};

#[cfg(feature = "tls")]
use super::tls::Session;

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<(TcpStream, Session)>),
}

impl Socket {
    /// Begins to connect. The stream becomes writable once it has connected or failed.
    pub(super) fn tcp(address: SocketAddr, dead_peer_timeout: Duration) -> io::Result<Self> {
        Self::with_options(TcpStream::connect(address)?, dead_peer_timeout)
    }

    /// Wraps a connected, non-blocking stream.
    pub(super) fn connected(
        stream: std::net::TcpStream,
        dead_peer_timeout: Duration,
    ) -> io::Result<Self> {
        Self::with_options(TcpStream::from_std(stream), dead_peer_timeout)
    }

    fn with_options(stream: TcpStream, dead_peer_timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let options = SockRef::from(&stream);
        options.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3),
        )?;
        #[cfg(target_os = "linux")]
        options.set_tcp_user_timeout(Some(dead_peer_timeout))?;
        #[cfg(not(target_os = "linux"))]
        let _ = dead_peer_timeout;
        Ok(Self::Tcp(stream))
    }

    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self::Unix).map_err(|error| match error.kind() {
            // A full backlog of the listener is reported as `WouldBlock`.
            io::ErrorKind::WouldBlock => io::ErrorKind::ConnectionRefused.into(),
            _ => error,
        })
    }

    /// Adds TLS to a TCP stream, so that all data is encrypted.
    #[cfg(feature = "tls")]
    pub(super) fn over_tls(self, session: Session) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tls(Box::new((stream, session))),
            other => other,
        }
    }

    /// Watches for the completion of the connect, and for bytes that arrive with it.
    pub(super) fn register(&mut self, registry: &Registry, token: mio::Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches for replies, and for room to write only if the send buffer is `full`: a Unix socket
    /// reports room, and would wake the loop, whenever its peer has read.
    pub(super) fn watch(
        &mut self,
        registry: &Registry,
        token: mio::Token,
        full: bool,
    ) -> io::Result<()> {
        let answers = Interest::READABLE;
        let interest = if full { answers | Interest::WRITABLE } else { answers };
        registry.reregister(self.source(), token, interest)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => &mut tls.0,
        }
    }

    /// Continues connecting as far as possible now. Returns whether it has connected.
    pub(super) fn continue_connecting(&mut self) -> io::Result<bool> {
        let (error, peer) = match self {
            Self::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Self::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            // The server may have sent its reason before it ended the connection, so it is read
            // first.
            #[cfg(feature = "tls")]
            Self::Tls(tls) if tls.1.has_begun() => return tls.1.shake_hands(&mut tls.0),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => (tls.0.take_error()?, tls.0.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => self.shake_hands(),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    fn shake_hands(&mut self) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if let Self::Tls(tls) = self {
            return tls.1.shake_hands(&mut tls.0);
        }
        Ok(true)
    }

    /// Returns the step of TLS that an unfinished connection is waiting for.
    #[cfg(feature = "tls")]
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        match self {
            Self::Tls(tls) => Some(tls.1.unfinished()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    #[inline]
    pub(super) fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(space),
            Self::Unix(stream) => stream.read(space),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.1.read(&mut tls.0, space),
        }
    }

    /// Returns whether a read that did not fill its buffer was the last one; the poller reports
    /// later data.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Self::Tls(tls) = self {
            return tls.1.is_drained();
        }
        true
    }

    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.try_io(|| send(SockRef::from(&*stream), bytes)),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.1.write(&mut tls.0, bytes),
        }
    }

    /// Returns whether accepted bytes, or messages of TLS, still wait for room.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Self::Tls(tls) = self {
            return tls.1.has_unsent();
        }
        false
    }

    /// Closes the stream, over TLS with a closing alert.
    pub(super) fn close_in(mut self, registry: &Registry) {
        #[cfg(feature = "tls")]
        if let Self::Tls(tls) = &mut self {
            tls.1.close(&mut tls.0);
        }
        // The close that follows also removes the stream from any poll.
        let _ = registry.deregister(self.source());
    }
}

/// Writes to a Unix socket whose peer may have closed it. SIGPIPE would end a program whose `main`
/// is not in Rust, and not every supported version of the standard library suppresses it here.
#[inline]
pub(super) fn send(socket: SockRef<'_>, bytes: &[u8]) -> io::Result<usize> {
    // Apple systems suppress the signal by an option that is set when a socket is created.
    #[cfg(target_vendor = "apple")]
    let flags = 0;
    #[cfg(not(target_vendor = "apple"))]
    let flags = libc::MSG_NOSIGNAL;
    socket.send_with_flags(bytes, flags)
}

const KEEPALIVE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Checks the options that the kernel reports.
    #[test]
    fn a_connection_that_is_half_open_is_not_kept_for_a_quarter_of_an_hour() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silence = Duration::from_millis(1_234);
        let Socket::Tcp(stream) = Socket::tcp(listener.local_addr().unwrap(), silence).unwrap()
        else {
            panic!("it is TCP");
        };
        let options = SockRef::from(&stream);
        assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(options.tcp_keepalive_interval().unwrap(), KEEPALIVE / 3);
        #[cfg(target_os = "linux")]
        assert_eq!(options.tcp_user_timeout().unwrap(), Some(silence));
    }
}
