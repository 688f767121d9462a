//! A question to one node, apart from the library, which asks only what locks need.
//!
//! It takes a blocking connection, a few commands in one write, and their replies. The codec is the library's. Not
//! here: what is asked, and what the answer means.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redbolt::Config;
use redbolt::net::Address;
use redbolt::resp::{Decoder, Limits, Token, command};

use crate::say::printable;

/// A reply that is one token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A bulk string.
    Bulk(Vec<u8>),
    /// An error's text.
    Error(String),
    /// A number.
    Int(i64),
    /// Everything else.
    Other,
}

/// A user, if one was named, and a password.
#[derive(PartialEq, Eq)]
pub(super) struct Login {
    user: Option<Vec<u8>>,
    password: Vec<u8>,
}

impl Login {
    /// Read from an address that the library has accepted, since the library does not hand out passwords. `shared` is the password
    /// where the address has none.
    pub(super) fn of(address: &str, shared: Option<&[u8]>) -> Option<Self> {
        let info = address
            .split_once("://")
            .filter(|(scheme, _)| *scheme != "unix")
            .and_then(|(_, rest)| rest.rsplit_once('@'))
            .map(|(info, _)| info);
        let (user, password) = match info.map(|info| info.split_once(':').ok_or(info)) {
            None => (Vec::new(), shared?.to_vec()),
            Some(Err(user)) => (decoded(user), shared?.to_vec()),
            Some(Ok((user, password))) => (decoded(user), decoded(password)),
        };
        Some(Self { user: Some(user).filter(|user| !user.is_empty()), password })
    }

    /// The command that it is sent with.
    pub(super) fn words(&self) -> Vec<&[u8]> {
        let user = self.user.as_deref();
        [&b"AUTH"[..]].into_iter().chain(user).chain([&self.password[..]]).collect()
    }
}

/// Sends `commands` together, and returns a reply for each.
pub(super) fn ask(
    config: &Config,
    address: &Address,
    commands: &[Vec<&[u8]>],
    within: Duration,
) -> io::Result<Vec<Reply>> {
    let until = Instant::now() + within;
    let mut bytes = Vec::new();
    for words in commands {
        let encoder = command(&mut bytes, words.len());
        drop(words.iter().fold(encoder, |encoder, word| encoder.arg(word)));
    }
    // Sentinels know where their master is now.
    let address = &config.locate(address)?;
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            let pace = |left| {
                stream.set_write_timeout(Some(left))?;
                stream.set_read_timeout(Some(left))
            };
            converse(&stream, pace, &bytes, commands.len(), until)
        }
        Address::Name(host, port) | Address::TlsName(host, port) => {
            let stream = dial((host.as_str(), *port).to_socket_addrs()?, until)?;
            over_tcp(config, address, &stream, &bytes, commands.len(), until)
        }
        Address::Ip(ip, port) | Address::TlsIp(ip, port) => {
            let stream = dial([SocketAddr::from((*ip, *port))].into_iter(), until)?;
            over_tcp(config, address, &stream, &bytes, commands.len(), until)
        }
        other => Err(io::Error::new(ErrorKind::Unsupported, format!("no way to {other}"))),
    }
}

fn dial(places: impl Iterator<Item = SocketAddr>, until: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
    for place in places {
        match TcpStream::connect_timeout(&place, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn over_tcp(
    config: &Config,
    address: &Address,
    stream: &TcpStream,
    bytes: &[u8],
    count: usize,
    until: Instant,
) -> io::Result<Vec<Reply>> {
    let pace = |left| {
        stream.set_write_timeout(Some(left))?;
        stream.set_read_timeout(Some(left))
    };
    if !address.is_tls() {
        return converse(stream, pace, bytes, count, until);
    }
    pace(left(until)?)?;
    converse(config.over_tls(address, stream)?, pace, bytes, count, until)
}

/// Writes, and reads until there are `count` replies. `pace` sets how long one call may take.
fn converse(
    mut stream: impl Read + Write,
    pace: impl Fn(Duration) -> io::Result<()>,
    bytes: &[u8],
    count: usize,
    until: Instant,
) -> io::Result<Vec<Reply>> {
    pace(left(until)?)?;
    stream.write_all(bytes)?;
    let mut decoder = Decoder::new(Limits::default());
    let (mut replies, mut heard, mut chunk) = (Vec::new(), Vec::new(), [0; 8192]);
    loop {
        while let Some((token, length)) = decoder.next(&heard).map_err(io::Error::other)? {
            replies.push(reply(token));
            heard.drain(..length);
            if replies.len() == count {
                return Ok(replies);
            }
        }
        pace(left(until)?)?;
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => heard.extend_from_slice(&chunk[..length]),
        }
    }
}

fn reply(token: Token<'_>) -> Reply {
    match token {
        Token::Bulk(bytes) => Reply::Bulk(bytes.to_vec()),
        Token::Error(text) => Reply::Error(printable(&String::from_utf8_lossy(text))),
        Token::Int(number) => Reply::Int(number),
        _ => Reply::Other,
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Percent-encoding undone, of a text in which every % is followed by two digits.
fn decoded(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let code = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let (meant, tail) = match code.filter(|_| byte == b'%') {
            Some(code) => (code, &tail[2..]),
            None => (byte, tail),
        };
        out.push(meant);
        rest = tail;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_what_stands_before_the_last_at() {
        let words = |address: &str| {
            let login = Login::of(address, None)?;
            Some(login.words().iter().map(|word| word.to_vec()).collect::<Vec<_>>())
        };
        let expected = |words: &[&str]| Some(words.iter().map(|w| w.as_bytes().to_vec()).collect());
        assert_eq!(words("redis://:pa@ss@host"), expected(&["AUTH", "pa@ss"]));
        assert_eq!(words("valkey://me:a%3Ab%25@host:1/2"), expected(&["AUTH", "me", "a:b%"]));
        assert_eq!(words("redis://host"), None);
        assert_eq!(words("host:6379"), None);
        assert_eq!(words("unix:///run/a:b@c"), None);
        let words = |address: &str| {
            let login = Login::of(address, Some(b"pw")).unwrap();
            login.words().iter().map(|word| word.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(words("redis://me@host"), [&b"AUTH"[..], b"me", b"pw"]);
        for address in ["host", "redis://host", "unix:///run/a:b@c"] {
            assert_eq!(words(address), [&b"AUTH"[..], b"pw"]);
        }
        assert_eq!(words("redis://:own@host"), [&b"AUTH"[..], b"own"]);
    }

    #[test]
    fn an_error_of_a_node_does_not_erase_the_screen() {
        let error = reply(Token::Error(b"ERR a\x1b[2J\xc2\x9bb"));
        assert_eq!(error, Reply::Error(r"ERR a\u{1b}[2J\u{9b}b".to_owned()));
    }

    #[test]
    fn the_clock_stops_a_conversation() {
        let silent = UnixStream::pair().unwrap();
        let pace = |left| silent.0.set_read_timeout(Some(left));
        let until = Instant::now() + Duration::from_millis(20);
        let error = converse(&silent.0, pace, b"", 1, until).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
}
