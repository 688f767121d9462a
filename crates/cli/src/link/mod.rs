//! A blocking connection to one node, for questions that the library does not ask.
//!
//! No call waits for longer than the connection's [`Patience`]. Codec, TLS and sentinels are the
//! library's.

mod every_node;
mod login;
mod place;
mod socket;

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use redbolt::Config;
use redbolt::resp::{BytesMut, Frame, FrameDecoder, Limits, command};

pub(crate) use self::every_node::ask_every_node;
pub(crate) use self::place::Place;
use self::socket::{Socket, Stream, left};
use crate::duration::show;
use crate::say::printable;

/// The time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The limit for opening the connection.
    pub(crate) connect: Duration,
    /// The limit for one answer, or one batch of them.
    pub(crate) answer: Duration,
    /// The limit for everything together.
    pub(crate) total: Duration,
}

/// An open connection.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    socket: Socket,
    decoder: FrameDecoder,
    received: BytesMut,
    answer: Duration,
    until: Instant,
}

impl Link {
    /// Connects, logs in and selects the database.
    pub(crate) fn open(config: &Config, place: &Place, patience: Patience) -> io::Result<Self> {
        let until = Instant::now() + patience.total;
        let connected = until.min(Instant::now() + patience.connect);
        // Sentinels name the current master.
        let address = config.locate(&place.address)?;
        let socket = Socket::connect(&address, connected)?;
        let stream = socket.stream(config, &address, connected)?;
        let mut link = Self::over(stream, socket, patience.answer, until);
        if let Some(login) = &place.login
            && let Frame::Error(text) = link.ask(&login.words())?
        {
            return Err(refused("the user or the password", &text));
        }
        if place.database != 0
            && let Frame::Error(text) =
                link.ask(&[b"SELECT", place.database.to_string().as_bytes()])?
        {
            return Err(refused("the database", &text));
        }
        Ok(link)
    }

    fn over(stream: Box<dyn Stream>, socket: Socket, answer: Duration, until: Instant) -> Self {
        let (decoder, received) = (FrameDecoder::new(Limits::default()), BytesMut::new());
        Self { stream, socket, decoder, received, answer, until }
    }

    /// Sends one command, and waits for its reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> io::Result<Frame> {
        let replies = self.ask_all(&[words.to_vec()])?;
        replies.into_iter().next().ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    /// Sends commands in one write, and waits for a reply to each. A reply may be an error of the
    /// server.
    pub(crate) fn ask_all(&mut self, commands: &[Vec<&[u8]>]) -> io::Result<Vec<Frame>> {
        let mut bytes = Vec::new();
        for words in commands {
            let encoder = command(&mut bytes, words.len());
            drop(words.iter().fold(encoder, |encoder, word| encoder.arg(word)));
        }
        let until = self.until.min(Instant::now() + self.answer);
        let answered = self.converse(&bytes, commands.len(), until);
        answered.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                io::Error::new(ErrorKind::TimedOut, format!("no answer in {}", show(self.answer)))
            }
            ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "the server closed the connection")
            }
            _ => error,
        })
    }

    fn converse(&mut self, bytes: &[u8], count: usize, until: Instant) -> io::Result<Vec<Frame>> {
        self.socket.bound(left(until)?)?;
        self.stream.write_all(bytes)?;
        let (mut replies, mut chunk) = (Vec::with_capacity(count), [0; 8192]);
        loop {
            while let Some(frame) =
                self.decoder.next(&mut self.received).map_err(io::Error::other)?
            {
                replies.push(frame);
                if replies.len() == count {
                    return Ok(replies);
                }
            }
            self.socket.bound(left(until)?)?;
            match self.stream.read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => self.received.extend_from_slice(&chunk[..length]),
            }
        }
    }
}

/// Returns an error with the server's error code alone: its text may repeat what was sent,
/// including a password.
fn refused(what: &str, text: &[u8]) -> io::Error {
    let code = text.split(|byte| !byte.is_ascii_uppercase()).next().unwrap_or_default();
    let code = String::from_utf8_lossy(code);
    io::Error::new(ErrorKind::PermissionDenied, format!("the server refuses {what} ({code})"))
}

/// Returns a reply as text, or the text of the server's error. Control characters are escaped.
pub(crate) fn text(reply: &Frame) -> Result<String, String> {
    match reply {
        Frame::Bulk(text) | Frame::Simple(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        Frame::Int(number) => Ok(number.to_string()),
        Frame::Error(text) => Err(printable(&String::from_utf8_lossy(text))),
        _ => Err("an unexpected reply".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn link(socket: UnixStream, answer: Duration) -> Link {
        let stream = Box::new(socket.try_clone().unwrap());
        Link::over(stream, Socket::Unix(socket), answer, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn an_error_of_a_node_does_not_erase_the_screen() {
        let error = text(&Frame::Error("ERR a\x1b[2J\u{9b}b".into()));
        assert_eq!(error, Err(r"ERR a\u{1b}[2J\u{9b}b".to_owned()));
    }

    #[test]
    fn a_refused_login_repeats_no_word_of_the_server() {
        let echo = b"ERR unknown command 'AUTH', with args beginning with: 'hunter2'";
        let words = refused("the user or the password", echo).to_string();
        assert_eq!(words, "the server refuses the user or the password (ERR)");
        assert!(refused("x", b"WRONGPASS invalid").to_string().contains("(WRONGPASS)"));
    }

    #[test]
    fn a_silent_server_is_not_waited_for() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = link(ours, Duration::from_millis(20)).ask(&[b"PING"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no answer in 20.00 ms");
    }

    #[test]
    fn replies_are_whole_and_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"+PONG\r\n*2\r\n:1\r\n$1\r\na\r\n").unwrap();
        let mut link = link(ours, Duration::from_secs(20));
        let replies = link.ask_all(&[vec![b"PING"], vec![b"SLOWLOG", b"GET"]]).unwrap();
        let array = Frame::Array(vec![Frame::Int(1), Frame::Bulk("a".into())]);
        assert_eq!(replies, [Frame::Simple("PONG".into()), array]);
        drop(theirs);
        let closed = link.ask(&[b"PING"]).unwrap_err();
        assert!(
            closed.kind() == ErrorKind::UnexpectedEof || closed.kind() == ErrorKind::BrokenPipe
        );
    }
}
