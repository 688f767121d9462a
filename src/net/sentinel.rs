//! Where a master is that sentinels know: what they are asked, and what their answers amount to.
//!
//! A master is believed that more than half of the sentinels name: as many must agree on a failover, so that one which is
//! cut off, lies, or has not heard of it yet is outvoted. They are asked before every connection. Whether the server there is a
//! master is found by the handshake, and what it remembers by its restart guard: a promoted replica is another run.
//!
//! Apart from `resolve`, in whose short-lived threads this runs, and which knows nothing of sentinels. Not here: hearing of a
//! failover without a lost connection. Sentinels end the connections of a master that they demote, and one that is dead ends
//! them itself.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::proto::Credentials;
use crate::resp::{BytesMut, Frame, FrameDecoder, Limits, command};

/// A master, by the name that its sentinels know it by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sentinels {
    /// Hosts and ports, in the order given.
    pub(super) places: Vec<Place>,
    pub(super) master: String,
}

/// A host, which may be a name, and a port.
pub(super) type Place = (String, u16);

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redis+sentinel://")?;
        for (at, place) in self.places.iter().enumerate() {
            let plus = if at > 0 { "+" } else { "" };
            write!(f, "{plus}{}", shown(place))?;
        }
        write!(f, "/{}", self.master)
    }
}

/// What every sentinel is asked.
pub(super) struct Question {
    pub(super) sentinels: Sentinels,
    /// Those of the sentinels, which are not the nodes'.
    pub(super) credentials: Option<Credentials>,
    /// How long one may take to connect, and to answer.
    pub(super) patience: Duration,
}

impl Question {
    /// Asks all sentinels at once, and waits until enough agree or none is left.
    pub(super) fn ask(self) -> io::Result<Vec<SocketAddr>> {
        let this = Arc::new(self);
        let (sender, answers) = channel();
        for at in 0..this.sentinels.places.len() {
            let (this, sender) = (Arc::clone(&this), sender.clone());
            let ask = move || {
                // Sending fails if the others have agreed already.
                let _ = sender.send((at, this.ask_one(at)));
            };
            thread::Builder::new().name("redbolt-sentinel".to_owned()).spawn(ask)?;
        }
        drop(sender);
        let mut ballot = Ballot::new(&this.sentinels);
        while let Ok((at, answer)) = answers.recv() {
            if let Some((host, port)) = ballot.told(at, answer.map_err(|error| error.to_string())) {
                return Ok((host.as_str(), port).to_socket_addrs()?.collect());
            }
        }
        Err(io::Error::other(ballot.to_string()))
    }

    fn ask_one(&self, at: usize) -> io::Result<Place> {
        let (host, port) = &self.sentinels.places[at];
        let mut last = io::ErrorKind::NotFound.into();
        for place in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&place, self.patience) {
                Ok(stream) => return self.ask_over(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn ask_over(&self, mut stream: TcpStream) -> io::Result<Place> {
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        stream.write_all(&self.encoded())?;
        let mut decoder = FrameDecoder::new(LIMITS);
        let (mut buffer, mut chunk) = (BytesMut::new(), [0; 512]);
        let mut skips = usize::from(self.credentials.is_some());
        // A sentinel that sends its answer byte by byte is as good as none.
        for _ in 0..READS {
            while let Some(frame) = decoder.next(&mut buffer).map_err(io::Error::other)? {
                if let Frame::Error(text) = &frame {
                    return Err(io::Error::other(String::from_utf8_lossy(text).into_owned()));
                }
                if skips == 0 {
                    return place_in(&frame).ok_or_else(|| io::Error::other(UNKNOWN));
                }
                skips -= 1;
            }
            match stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => buffer.extend_from_slice(&chunk[..read]),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(credentials) = &self.credentials {
            credentials.encode_auth(&mut out);
        }
        let ask = command(&mut out, 3).arg(b"SENTINEL").arg(b"get-master-addr-by-name");
        let _ = ask.arg(self.sentinels.master.as_bytes());
        out
    }
}

/// The place in an answer; `None` if the sentinel does not know the master.
fn place_in(frame: &Frame) -> Option<Place> {
    let Frame::Array(parts) = frame else { return None };
    let [Frame::Bulk(host), Frame::Bulk(port)] = &parts[..] else { return None };
    let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
    let port = std::str::from_utf8(port).ok()?.parse().ok().filter(|&port| port != 0)?;
    Some((host.to_owned(), port))
}

/// What the sentinels have said so far.
#[derive(Debug)]
struct Ballot<'s> {
    sentinels: &'s Sentinels,
    told: Vec<(usize, Result<Place, String>)>,
}

impl<'s> Ballot<'s> {
    fn new(sentinels: &'s Sentinels) -> Self {
        Self { sentinels, told: Vec::new() }
    }

    /// Takes an answer. Where the master is, if enough have named that place now.
    fn told(&mut self, by: usize, answer: Result<Place, String>) -> Option<Place> {
        self.told.push((by, answer));
        let (_, last) = self.told.last()?;
        let place = last.as_ref().ok()?;
        let named = self.told.iter().filter(|(_, told)| told.as_ref() == Ok(place)).count();
        (named >= self.needed()).then(|| place.clone())
    }

    fn needed(&self) -> usize {
        self.sentinels.places.len() / 2 + 1
    }
}

/// Why there is no master to connect to.
impl fmt::Display for Ballot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, all) = (self.needed(), self.sentinels.places.len());
        let master = self.sentinels.master.escape_debug();
        write!(f, "{needed} of {all} sentinels must name the same master `{master}`")?;
        for (by, told) in &self.told {
            let sentinel = shown(&self.sentinels.places[*by]);
            match told {
                Ok(place) => write!(f, "; {sentinel} says {}", shown(place).escape_debug())?,
                Err(words) => write!(f, "; {sentinel}: {}", words.escape_debug())?,
            }
        }
        Ok(())
    }
}

fn shown((host, port): &Place) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// A host, a port, an error.
const LIMITS: Limits = Limits { bulk: 1 << 9, depth: 1, elements: 2, line: 1 << 9, reply: 1 << 11 };

const READS: usize = 16;

const UNKNOWN: &str = "it does not know that master";

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinels() -> Sentinels {
        let places = ["a", "b", "c"].map(|host| (host.to_owned(), 26_379)).into();
        Sentinels { places, master: "jobs".to_owned() }
    }

    fn at(host: &str) -> Result<Place, String> {
        Ok((host.to_owned(), 6_379))
    }

    #[test]
    fn a_master_is_believed_that_more_than_half_name() {
        let known = sentinels();
        let mut ballot = Ballot::new(&known);
        assert_eq!(ballot.told(0, at("old")), None);
        assert_eq!(ballot.told(2, at("new")), None);
        assert_eq!(ballot.told(1, at("new")), at("new").ok());
        let mut ballot = Ballot::new(&known);
        assert_eq!(ballot.told(0, at("old")), None);
        assert_eq!(ballot.told(1, Err("refused".to_owned())), None);
        assert_eq!(ballot.told(2, at("\x1bnew")), None);
        assert_eq!(
            ballot.to_string(),
            "2 of 3 sentinels must name the same master `jobs`; a:26379 says old:6379; b:26379: refused; \
             c:26379 says \\u{1b}new:6379"
        );
    }

    #[test]
    fn what_is_no_place_is_none() {
        let bulk = |text: &'static str| Frame::Bulk(text.into());
        let array =
            |parts: &[&'static str]| Frame::Array(parts.iter().map(|it| bulk(it)).collect());
        assert_eq!(place_in(&array(&["10.0.0.1", "7000"])), Some(("10.0.0.1".to_owned(), 7_000)));
        for frame in [
            Frame::NilArray,
            Frame::Int(1),
            array(&["10.0.0.1"]),
            array(&["10.0.0.1", "0"]),
            array(&["10.0.0.1", "65536"]),
            array(&["", "1"]),
        ] {
            assert_eq!(place_in(&frame), None, "{frame:?}");
        }
    }

    /// One that lies and one that is down are outvoted, and two that lie are not believed alone.
    #[test]
    fn all_are_asked_and_the_majority_is_believed() {
        let true_answer = "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n";
        let [lie, other_lie] = ["7002", "7003"].map(|port| true_answer.replace("7001", port));
        let found = |answers: &[&str]| {
            let places = answers.iter().map(|answer| sentinel(answer)).collect();
            let sentinels = Sentinels { places, master: "jobs".to_owned() };
            Question { sentinels, credentials: None, patience: Duration::from_secs(10) }.ask()
        };
        let there = found(&[&lie, true_answer, true_answer]).unwrap();
        assert_eq!(there, ["127.0.0.1:7001".parse().unwrap()]);
        assert!(found(&["", true_answer, true_answer]).is_ok());
        let error = found(&[&lie, &other_lie, true_answer]).unwrap_err().to_string();
        assert!(
            error.starts_with("2 of 3 sentinels must name the same master `jobs`; "),
            "{error}"
        );
        let error = found(&["*-1\r\n"]).unwrap_err().to_string();
        assert!(error.ends_with(UNKNOWN), "{error}");
    }

    /// Answers one client so, or closes the connection where there is nothing to say.
    fn sentinel(answer: &str) -> Place {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, answer) = (listener.local_addr().unwrap().port(), answer.to_owned());
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _ = client.read(&mut request);
            let _ = client.write_all(answer.as_bytes());
        });
        ("127.0.0.1".to_owned(), port)
    }

    #[test]
    fn the_sentinels_have_credentials_of_their_own() {
        let question = |credentials| Question {
            sentinels: sentinels(),
            credentials,
            patience: Duration::from_secs(1),
        };
        let ask = b"*3\r\n$8\r\nSENTINEL\r\n$23\r\nget-master-addr-by-name\r\n$4\r\njobs\r\n";
        assert_eq!(question(None).encoded(), ask);
        let secret = crate::proto::Secret::new(b"pw".to_vec());
        let encoded = question(Some(Credentials::new(Some(b"me".to_vec()), secret))).encoded();
        assert_eq!(encoded, [b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n", &ask[..]].concat());
    }
}
