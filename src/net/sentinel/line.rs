//! A connection to a sentinel that blocks, for as long as it is asked.
//!
//! It becomes a socket of the loop when the sentinel has answered. Not here: what is said on it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::Place;
use crate::net::socket::Socket;
#[cfg(feature = "tls")]
use crate::net::tls::Session;

pub(super) struct Line {
    stream: TcpStream,
    #[cfg(feature = "tls")]
    session: Option<Session>,
}

impl Line {
    /// Connects to the first address of the place that answers. Each step may take so long.
    pub(super) fn open((host, port): &Place, patience: Duration) -> io::Result<Self> {
        let mut last = io::ErrorKind::NotFound.into();
        for place in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&place, patience) {
                Ok(stream) => return Self::over(stream, patience),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self {
            stream,
            #[cfg(feature = "tls")]
            session: None,
        })
    }

    #[cfg(feature = "tls")]
    pub(super) fn over_tls(mut self, mut session: Session) -> io::Result<Self> {
        match session.shake_hands(&mut self.stream)? {
            true => Ok(Self { session: Some(session), ..self }),
            false => Err(io::Error::new(io::ErrorKind::TimedOut, session.unfinished())),
        }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            // What a sentinel is asked fits into one record, which the kernel takes as a whole.
            return session.write(&mut self.stream, bytes).map(drop);
        }
        self.stream.write_all(bytes)
    }

    pub(super) fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.read(&mut self.stream, space);
        }
        self.stream.read(space)
    }

    /// The same connection, which does not block any more. A sentinel that goes away without a word is noticed within the limit.
    pub(super) fn into_socket(self, dead_peer_timeout: Duration) -> io::Result<Socket> {
        self.stream.set_nonblocking(true)?;
        let socket = Socket::connected(self.stream, dead_peer_timeout)?;
        #[cfg(feature = "tls")]
        if let Some(session) = self.session {
            return Ok(socket.over_tls(session));
        }
        Ok(socket)
    }
}
