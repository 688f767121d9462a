//! Records the replies of a real server to `recorded/commands.txt`.
//!
//! ```text
//! cargo run -p resp-tests --example record
//! ```
//!
//! starts the `redis-server` of the search path, and writes one file for each named line into a
//! folder named after the server's version. It finds the end of a reply without parsing: behind
//! each line it sends a PING with a text that occurs nowhere else, and reads until that is back.

// A program for the tree's own use reports by panicking.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redbolt::resp::command;
use redbolt_proving::Server;
use resp_tests::case::folder;

fn main() {
    let server = Server::start();
    let mut recorder = Recorder::connect(&server);
    let mut other = Recorder::connect(&server);
    let folder = folder("recorded").join(format!("redis-{}", recorder.version()));
    fs::create_dir_all(&folder).unwrap();
    let listing = fs::read_to_string(folder.with_file_name("commands.txt")).unwrap();
    let mut files = 0;
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
            fs::write(folder.join(name).with_extension("resp"), replies).unwrap();
            files += 1;
        }
    }
    println!("{files} files in {}", folder.display());
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

    /// The bytes that the server sends for the commands of a line.
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

    /// Reads until the reply to the PING, in either mode of a connection, and leaves that away.
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

/// Splits at spaces outside of double quotes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
                (word.as_bytes().to_vec(), behind)
            }
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

/// What stands before the closing quote, and the line behind it.
fn unquote(quoted: &str) -> (Vec<u8>, &str) {
    let mut word = Vec::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (word, &quoted[at + 1..]),
            '\\' => match chars.next().unwrap() {
                (_, 'r') => word.push(b'\r'),
                (_, 'n') => word.push(b'\n'),
                (_, 't') => word.push(b'\t'),
                (at, 'x') => {
                    word.push(u8::from_str_radix(&quoted[at + 1..at + 3], 16).unwrap());
                    chars.nth(1);
                }
                (_, other) => word.push(other.try_into().unwrap()),
            },
            char => word.push(char.try_into().unwrap()),
        }
    }
    panic!("no closing quote: {quoted}");
}
