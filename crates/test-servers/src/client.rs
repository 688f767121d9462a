//! A small blocking RESP2 client.
//!
//! It shares no line with the codec under test, on purpose: two parsers with the same mistake would
//! agree. Its code is the simplest that is correct. Recursion is safe, because the replies come
//! from servers that the tests have started.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// A decoded reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A nil bulk string or a nil array.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple string such as `OK`.
    Status(String),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// An error, without the leading `-`.
    Error(String),
    /// An array of replies.
    Array(Vec<Self>),
}

/// A connection to a server. Reads and writes are bounded by thirty seconds.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects to a TCP address.
    ///
    /// # Panics
    /// If the connection fails.
    pub fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream.set_nodelay(true).unwrap();
        Self::over(Stream::Tcp(stream)).unwrap()
    }

    /// Connects to a Unix socket.
    pub fn open_unix(path: &Path) -> io::Result<Self> {
        Self::over(Stream::Unix(UnixStream::connect(path)?))
    }

    /// Sends one command and returns the reply.
    ///
    /// # Panics
    /// If no well-formed reply arrives in time.
    pub fn run(&mut self, args: &[&[u8]]) -> Reply {
        self.try_run(args).unwrap_or_else(|error| panic!("no reply to a command: {error}"))
    }

    /// Does the same as [`run`](Self::run), with the arguments in `line`, split at spaces.
    pub fn cmd(&mut self, line: &str) -> Reply {
        let args: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.run(&args)
    }

    /// Does the same as [`run`](Self::run), for a peer that may have disconnected.
    pub fn try_run(&mut self, args: &[&[u8]]) -> io::Result<Reply> {
        self.stream.get_mut().write_all(&encode(args))?;
        self.try_reply()
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the peer does not accept them.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Reads one reply.
    ///
    /// # Panics
    /// If none arrives in time, or it is malformed.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().unwrap_or_else(|error| panic!("no reply: {error}"))
    }

    /// Does the same as [`reply`](Self::reply), for a peer that may have disconnected.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.stream)
    }

    /// Reads everything up to the end of the stream.
    ///
    /// # Panics
    /// If the peer does not close in time.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Waits for `span`, and returns `true` if neither a byte nor the end of the stream arrived.
    pub fn is_silent_for(&mut self, span: Duration) -> bool {
        self.stream.get_ref().set_read_timeout(span).unwrap();
        let waited = self.stream.fill_buf().map(|_| ());
        self.stream.get_ref().set_read_timeout(TIMEOUT).unwrap();
        waited.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn over(stream: Stream) -> io::Result<Self> {
        stream.set_read_timeout(TIMEOUT)?;
        stream.set_write_timeout(TIMEOUT)?;
        Ok(Self { stream: BufReader::new(stream) })
    }
}

/// A TCP or a Unix socket.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_read_timeout(&self, span: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(span)),
            Self::Unix(stream) => stream.set_read_timeout(Some(span)),
        }
    }

    fn set_write_timeout(&self, span: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(span)),
            Self::Unix(stream) => stream.set_write_timeout(Some(span)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn read_reply(source: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(source)?;
    let Some(kind) = line.chars().next().filter(char::is_ascii) else {
        return Err(malformed(&line));
    };
    let rest = &line[1..];
    match kind {
        '+' => Ok(Reply::Status(rest.into())),
        '-' => Ok(Reply::Error(rest.into())),
        ':' => Ok(Reply::Int(number(rest)?)),
        '$' => match number(rest)? {
            -1 => Ok(Reply::Nil),
            length => Ok(Reply::Bulk(read_bulk(source, length)?)),
        },
        '*' => match number(rest)? {
            -1 => Ok(Reply::Nil),
            length => {
                (0..length).map(|_| read_reply(source)).collect::<Result<_, _>>().map(Reply::Array)
            }
        },
        _ => Err(malformed(&line)),
    }
}

/// Reads a line, and removes its CR LF, which must exist.
pub(crate) fn read_line(source: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    source.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(text) => Ok(text.into()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(malformed(&line)),
    }
}

/// Reads a payload of `length` bytes and its CR LF.
pub(crate) fn read_bulk(source: &mut impl BufRead, length: i64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| malformed("negative length"))?;
    let mut bytes = vec![0; length + 2];
    source.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(malformed("no CR LF behind a bulk string"));
    }
    bytes.truncate(length);
    Ok(bytes)
}

pub(crate) fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| malformed(text))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {what:?}"))
}

const TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> io::Result<Reply> {
        let reply = read_reply(&mut bytes)?;
        assert!(bytes.is_empty(), "left over: {bytes:?}");
        Ok(reply)
    }

    #[test]
    fn reads_every_kind_of_reply() {
        assert_eq!(read(b"+OK\r\n").unwrap(), Reply::Status("OK".into()));
        assert_eq!(read(b"-ERR x\r\n").unwrap(), Reply::Error("ERR x".into()));
        assert_eq!(read(b":-2\r\n").unwrap(), Reply::Int(-2));
        assert_eq!(read(b"$-1\r\n").unwrap(), Reply::Nil);
        assert_eq!(read(b"*-1\r\n").unwrap(), Reply::Nil);
        assert_eq!(read(b"$4\r\n\r\n\0x\r\n").unwrap(), Reply::Bulk(b"\r\n\0x".to_vec()));
        assert_eq!(
            read(b"*2\r\n*0\r\n:1\r\n").unwrap(),
            Reply::Array(vec![Reply::Array(vec![]), Reply::Int(1)])
        );
    }

    #[test]
    fn refuses_what_is_not_resp() {
        for bytes in [&b"?\r\n"[..], b"\r\n", b"+OK\n", b":x\r\n", b"$2\r\nabc\r\n", b"$-2\r\n"] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(read(b"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
