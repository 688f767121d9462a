//! Peers that are not usable Redis servers: each behaves in one way, on every connection.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
};

use crate::{
    acceptor::Acceptor,
    client::{number, read_bulk, read_line},
};

/// The behaviour of an [`Impostor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// It accepts, reads and never answers.
    Silent,
    /// It accepts and closes at once.
    Close,
    /// It answers the first bytes as an HTTP server would, and closes.
    Http,
    /// It sends bytes that are not RESP as soon as it accepts.
    Garbage,
    /// It refuses the client as a server in protected mode does, and closes.
    Denied,
    /// It answers the first bytes as a TLS server answers bytes that are not a TLS handshake, and
    /// closes.
    Tls,
    /// It answers a handshake as Redis 4.0.14 does, up to the version check.
    Redis4,
    /// It answers every command with this line (`-LOADING …`, `-OOM …`), given without its CR LF.
    Always(String),
}

/// A hostile or unusable peer on a loopback port. Dropping it ends its connections and threads.
#[derive(Debug)]
pub struct Impostor {
    acceptor: Acceptor,
}

impl Impostor {
    /// Starts an impostor.
    pub fn start(act: Act) -> Self {
        // An error only means that the client has disconnected.
        Self { acceptor: Acceptor::start(move |client, _| drop(play(&act, client))) }
    }

    /// Returns the address to connect to, as `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.acceptor.address()
    }
}

fn play(act: &Act, mut client: &TcpStream) -> io::Result<()> {
    match act {
        Act::Silent => listen_to_the_end(client),
        Act::Close => Ok(()),
        Act::Http => {
            BufReader::new(client).fill_buf()?;
            farewell(client, HTTP.as_bytes())
        }
        Act::Garbage => {
            client.write_all(GARBAGE)?;
            listen_to_the_end(client)
        }
        Act::Denied => farewell(client, DENIED.as_bytes()),
        Act::Tls => {
            BufReader::new(client).fill_buf()?;
            farewell(client, ALERT)
        }
        Act::Redis4 => answer_as(client, |words| match words {
            [_, second, ..] if second == b"SETNAME" => "+OK\r\n".to_owned(),
            [_, second, ..] if second == b"ID" => format!("-ERR {CLIENT_HELP}\r\n"),
            [info, ..] if info == b"INFO" => format!("${}\r\n{INFO}\r\n", INFO.len()),
            [eval, ..] if eval.starts_with(b"EVAL") => ":0\r\n".to_owned(),
            [get, ..] if get == b"GET" => "$-1\r\n".to_owned(),
            [pttl, ..] if pttl == b"PTTL" => ":-2\r\n".to_owned(),
            _ => "-ERR syntax error\r\n".to_owned(),
        }),
        Act::Always(line) => answer_all(client, line),
    }
}

/// Sends the last bytes, and reads on until the client closes as well, because closing a socket
/// with unread bytes would send a reset, which could lose them.
fn farewell(mut client: &TcpStream, word: &[u8]) -> io::Result<()> {
    client.write_all(word)?;
    client.shutdown(Shutdown::Write)?;
    listen_to_the_end(client)
}

fn listen_to_the_end(mut client: &TcpStream) -> io::Result<()> {
    io::copy(&mut client, &mut io::sink()).map(drop)
}

fn answer_all(client: &TcpStream, line: &str) -> io::Result<()> {
    answer_as(client, |_| format!("{line}\r\n"))
}

/// Answers every command with `answer`, until the client disconnects.
fn answer_as(mut client: &TcpStream, answer: impl Fn(&[Vec<u8>]) -> String) -> io::Result<()> {
    let mut requests = BufReader::new(client);
    loop {
        let words = read_request(&mut requests)?;
        client.write_all(answer(&words).as_bytes())?;
    }
}

fn read_request(source: &mut BufReader<&TcpStream>) -> io::Result<Vec<Vec<u8>>> {
    let words = number(read_line(source)?.trim_start_matches('*'))?;
    let mut word = || {
        let length = number(read_line(source)?.trim_start_matches('$'))?;
        read_bulk(source, length)
    };
    (0..words).map(|_| word()).collect()
}

const HTTP: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
                    Connection: close\r\n\r\n400 Bad Request";
const GARBAGE: &[u8] = b"\x00\xff\x17garbage\r\n\x80\x81$12*\r\n";
/// The alert `protocol_version`, as OpenSSL answers bytes that are not TLS.
const ALERT: &[u8] = b"\x15\x03\x01\x00\x02\x02\x46";
const INFO: &str = "# Server\r\nredis_version:4.0.14\r\nredis_mode:standalone\r\n\
                    run_id:0123456789012345678901234567890123456789\r\n\
                    # Replication\r\nrole:master\r\n# Memory\r\nmaxmemory:0\r\n";
const CLIENT_HELP: &str =
    "Syntax error, try CLIENT (LIST | KILL | GETNAME | SETNAME | PAUSE | REPLY)";
const DENIED: &str = "-DENIED Redis is running in protected mode because protected mode is \
                      enabled and no password is set for the default user.\r\n";
