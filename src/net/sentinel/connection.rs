//! A blocking connection for a query to a sentinel.
//!
//! Invariant: all operations share one deadline, however many pieces the answer comes in, so a
//! sentinel that trickles bytes counts as silent. After the answer it becomes a socket of the loop.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::net::host_port::HostPort;
use crate::net::hosts::LookUps;
use crate::net::socket::Socket;
#[cfg(feature = "tls")]
use crate::net::tls::Session;

pub(super) struct BlockingConnection {
    stream: DeadlineStream,
    #[cfg(feature = "tls")]
    session: Option<Session>,
}

impl BlockingConnection {
    /// Connects to the first address that answers. `patience` limits the look-up and all operations
    /// on the connection together.
    pub(super) fn open(
        place: &HostPort,
        look_ups: &Arc<LookUps>,
        patience: Duration,
    ) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let places = look_ups.find(place, until)?;
        let mut last = io::ErrorKind::NotFound.into();
        for (at, place) in (0..).zip(&places) {
            // An address that is silent leaves time for the others.
            let share = left(until)? / (places.len() as u32 - at);
            match TcpStream::connect_timeout(place, share) {
                Ok(stream) => {
                    return Ok(Self {
                        stream: DeadlineStream { stream, until },
                        #[cfg(feature = "tls")]
                        session: None,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
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
            // The query fits into one record, which the kernel accepts as a whole.
            return session.write(&mut self.stream, bytes).map(drop);
        }
        self.stream.write_all(bytes)
    }

    /// Blocks until data arrives. Returns `WouldBlock` at the deadline.
    pub(super) fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.read(&mut self.stream, space);
        }
        self.stream.read(space)
    }

    /// Makes the connection non-blocking. A sentinel that vanishes is noticed within
    /// `dead_peer_timeout`.
    pub(super) fn into_socket(self, dead_peer_timeout: Duration) -> io::Result<Socket> {
        let stream = self.stream.stream;
        stream.set_nonblocking(true)?;
        let socket = Socket::connected(stream, dead_peer_timeout)?;
        #[cfg(feature = "tls")]
        if let Some(session) = self.session {
            return Ok(socket.over_tls(session));
        }
        Ok(socket)
    }
}

/// A stream that blocks until its deadline, and then returns `WouldBlock`. Signals do not interrupt
/// it.
struct DeadlineStream {
    stream: TcpStream,
    until: Instant,
}

impl DeadlineStream {
    fn retrying<T>(
        &mut self,
        mut step: impl FnMut(&mut TcpStream, Duration) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match step(&mut self.stream, left(self.until)?) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.retrying(|stream, left| {
            // A timeout limits one call only, so it is set to the time left before each.
            stream.set_read_timeout(Some(left))?;
            stream.read(space)
        })
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retrying(|stream, left| {
            stream.set_write_timeout(Some(left))?;
            stream.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the time left until the deadline; an error if it has passed.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(left) }
}
