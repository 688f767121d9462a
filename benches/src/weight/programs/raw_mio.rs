//! Acquires and releases one lock, with as little code as possible over sockets in a mio loop.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

fn main() -> Result<(), Box<dyn Error>> {
    let mut poll = Poll::new()?;
    let mut nodes = Vec::new();
    for (at, address) in std::env::args().skip(1).enumerate() {
        let mut node = TcpStream::connect(address.parse()?)?;
        node.set_nodelay(true)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut node, Token(at), both)?;
        nodes.push(node);
    }
    let quorum = nodes.len() / 2 + 1;
    let set = command(&["SET", RESOURCE, TOKEN, "NX", "PX", "10000"]);
    let granted = ask(&mut poll, &mut nodes, &set, b"+OK\r\n")?;
    println!("held: {}", granted >= quorum);
    let undo = command(&["EVAL", UNDO, "1", RESOURCE, TOKEN]);
    let released = ask(&mut poll, &mut nodes, &undo, b":1\r\n")?;
    if granted < quorum || released < quorum { Err("no majority".into()) } else { Ok(()) }
}

/// Sends the request to all nodes, and returns how many replied yes.
fn ask(
    poll: &mut Poll,
    nodes: &mut [TcpStream],
    request: &[u8],
    yes: &[u8],
) -> Result<usize, Box<dyn Error>> {
    let mut events = Events::with_capacity(nodes.len());
    let (mut said, mut answers) = (vec![false; nodes.len()], vec![Vec::new(); nodes.len()]);
    loop {
        for (at, node) in nodes.iter_mut().enumerate() {
            // The socket is connected once it is writable.
            if !said[at] && node.peer_addr().is_ok() {
                match node.write(request) {
                    Ok(written) if written == request.len() => said[at] = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                    Ok(_) => return Err("the socket is full".into()),
                }
            }
            let mut bytes = [0; 256];
            match node.read(&mut bytes) {
                Ok(0) => return Err("a node has closed its connection".into()),
                Ok(read) => answers[at].extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::NotConnected => {}
                Err(error) => return Err(error.into()),
            }
        }
        if answers.iter().all(|answer| answer.ends_with(b"\r\n")) {
            return Ok(answers.iter().filter(|answer| *answer == yes).count());
        }
        poll.poll(&mut events, Some(Duration::from_secs(5)))?;
        if events.is_empty() {
            return Err("a node does not answer".into());
        }
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

const RESOURCE: &str = "redbolt-weight-0";
const TOKEN: &str = "0123456789abcdef0123456789abcdef00";
const UNDO: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
