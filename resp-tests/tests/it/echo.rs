//! A real server accepts everything that the encoder writes, and returns it byte for byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redbolt::resp::{Decoder, Limits, Token, command};
use redbolt_test_servers::Server;

use crate::report;

#[test]
fn a_real_server_returns_every_argument() {
    let server = Server::start();
    let mut peer = Peer::connect(&server);
    let keys = awkward_keys();
    for key in &keys {
        assert_eq!(peer.ask(&[b"ECHO", key]), [bulk(key)], "as a value");
        assert_eq!(peer.ask(&[b"SET", key, key]), ["Simple(\"OK\")"], "as a key");
        assert_eq!(peer.ask(&[b"GET", key]), [bulk(key)]);
        assert_eq!(peer.ask(&[b"RANDOMKEY"]), [bulk(key)], "the key that the server has");
        assert_eq!(peer.ask(&[b"DEL", key]), ["Int(1)"]);
    }
    report(&format!("{} awkward keys through a real server", keys.len()));
}

#[test]
fn a_pipeline_of_awkward_keys_stays_in_step() {
    let server = Server::start();
    let mut peer = Peer::connect(&server);
    let keys = awkward_keys();
    let (mut out, mut expected) = (Vec::new(), Vec::new());
    for (number, key) in (0..).zip(&keys) {
        drop(command(&mut out, 3).arg(b"SET").arg(key).int(number));
        drop(command(&mut out, 2).arg(b"INCR").arg(key));
        expected.extend(["Simple(\"OK\")".to_owned(), format!("Int({})", number + 1)]);
    }
    assert_eq!(peer.send(&out, expected.len()), expected);
}

fn awkward_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        b"".as_slice(),
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"a\r\nb",
        b"\r\n$3\r\nfoo\r\n",
        b"*1\r\n$8\r\nFLUSHALL\r\n",
        b" ",
        b"\"quoted\"",
        b"-1",
    ]
    .map(<[u8]>::to_vec)
    .into();
    keys.push((0..=255).collect());
    keys.push(vec![b'k'; 512 << 10]);
    keys.push((0..512u32 << 10).map(|at| (at * 31) as u8).collect());
    keys
}

fn bulk(payload: &[u8]) -> String {
    show(&Token::Bulk(payload))
}

fn show(token: &Token<'_>) -> String {
    match token {
        Token::Simple(text) => format!("Simple({:?})", String::from_utf8_lossy(text)),
        Token::Bulk(payload) => format!("Bulk({})", payload.escape_ascii()),
        other => format!("{other:?}"),
    }
}

struct Peer {
    stream: TcpStream,
    decoder: Decoder,
}

impl Peer {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream, decoder: Decoder::new(Limits::default()) }
    }

    fn ask(&mut self, args: &[&[u8]]) -> Vec<String> {
        let mut out = Vec::new();
        drop(args.iter().fold(command(&mut out, args.len()), |encoder, arg| encoder.arg(arg)));
        self.send(&out, 1)
    }

    /// Sends the commands and reads as many tokens.
    fn send(&mut self, commands: &[u8], expected: usize) -> Vec<String> {
        let mut writer = self.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(commands).unwrap());
            self.read(expected)
        })
    }

    fn read(&mut self, expected: usize) -> Vec<String> {
        let (mut tokens, mut buffer, mut chunk) = (Vec::new(), Vec::new(), [0; 1 << 16]);
        while tokens.len() < expected {
            match self.decoder.next(&buffer).unwrap() {
                Some((token, len)) => {
                    tokens.push(show(&token));
                    buffer.drain(..len);
                }
                None => {
                    let read = self.stream.read(&mut chunk).expect("a reply within ten seconds");
                    assert!(read > 0, "the server closed the connection");
                    buffer.extend_from_slice(&chunk[..read]);
                }
            }
        }
        assert_eq!(buffer, [], "the server sent more than the expected replies");
        tokens
    }
}
