//! Records a real server's replies to `recorded/commands.txt`.
//!
//! ```text
//! cargo run -p resp-tests --example record
//! ```
//!
//! starts the `redis-server` in `PATH`, and replaces the recordings of its version in the packs of
//! `recorded/` by its reply to each named line. It finds the end of a reply without parsing: after
//! each line it sends a PING with a unique text, and reads until that text comes back.

// A program of this repository may report errors by panicking.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redbolt::resp::command;
use redbolt_test_servers::Server;
use resp_tests::case::here;
use resp_tests::recorded;
use resp_tests::text::unquoted;

fn main() {
    let server = Server::start();
    let mut recorder = Recorder::connect(&server);
    let mut other = Recorder::connect(&server);
    let version = format!("redis-{}", recorder.version());
    let listing = fs::read_to_string(here("recorded/commands.txt")).unwrap();
    let mut answers = Vec::new();
    for line in listing.lines().filter(|line| !line.starts_with('#')) {
        let (name, commands) = line.split_once(' ').unwrap();
        let replies = match commands.strip_prefix('<') {
            Some(elsewhere) => {
                other.replies(elsewhere);
                recorder.replies("")
            }
            None => recorder.replies(commands),
        };
        if name != "-" {
            answers.push((name.to_owned(), replies));
        }
    }
    println!("{} replies of {version}", answers.len());
    recorded::replace(&version, answers);
}

struct Recorder {
    stream: TcpStream,
    sent: u32,
}

impl Recorder {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream, sent: 0 }
    }

    fn version(&mut self) -> String {
        let info = self.replies("INFO server");
        let info = String::from_utf8(info).unwrap();
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        version.unwrap().trim().to_owned()
    }

    /// Returns the bytes that the server sends for the commands of a line.
    fn replies(&mut self, commands: &str) -> Vec<u8> {
        self.sent += 1;
        let mark = format!("end of line {} of the recording", self.sent);
        let mut out = Vec::new();
        for words in words(commands).split(|word| word == b";").filter(|words| !words.is_empty()) {
            encode(&mut out, words);
        }
        encode(&mut out, &[b"PING".to_vec(), mark.clone().into_bytes()]);
        self.stream.write_all(&out).unwrap();
        self.read_to(&mark)
    }

    /// Reads up to the reply to the PING, in either mode of a connection, and drops that reply.
    fn read_to(&mut self, mark: &str) -> Vec<u8> {
        let pong = format!("${}\r\n{mark}\r\n", mark.len());
        let subscribed = format!("*2\r\n$4\r\npong\r\n{pong}");
        let (mut bytes, mut chunk) = (Vec::new(), [0; 1 << 16]);
        loop {
            for end in [&subscribed, &pong] {
                if let Some(replies) = bytes.strip_suffix(end.as_bytes()) {
                    return replies.to_vec();
                }
            }
            let read = self.stream.read(&mut chunk).expect("the server answers within ten seconds");
            assert!(read > 0, "the server closed the connection before {mark}");
            bytes.extend_from_slice(&chunk[..read]);
        }
    }
}

fn encode(out: &mut Vec<u8>, words: &[Vec<u8>]) {
    drop(words.iter().fold(command(out, words.len()), |encoder, word| encoder.arg(word)));
}

/// Splits at spaces outside double quotes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, behind) = if rest.starts_with('"') {
            unquoted(rest).unwrap_or_else(|| panic!("no argument: {rest}"))
        } else {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            (word.as_bytes().to_vec(), behind)
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}
