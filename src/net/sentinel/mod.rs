//! Where a master is that sentinels know: what they are asked, and what their answers amount to.
//!
//! A master is believed that more than half of the sentinels name: as many must agree on a failover, so that one which is
//! cut off, lies, or has not heard of it yet is outvoted. They are asked before every connection. Whether the server there is a
//! master is found by the handshake, and what it remembers by its restart guard: a promoted replica is another run.
//!
//! A sentinel that has answered is listened to from then on (`ears`), so that a failover is followed at once: most connections
//! to a master that hangs, or that has another beside it, do not end by themselves for a while. Who is cut off hears nothing, so
//! what a master says counts only while the word of most sentinels for it is young (`proto::sentinel_word`).
//!
//! Apart from `resolve`, in whose short-lived threads all are asked, and which knows nothing of sentinels. Not here: the links
//! to the master.

mod ears;
mod line;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use self::ears::{Ear, Word};
use self::line::Line;
use super::address::Address;
use super::hosts::{HostResolver, LookUps};
use super::threads;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Connector};
use crate::proto::{
    ClockReading, Credentials, Settings, is_printable, printable, without_arguments,
};
use crate::resp::{BytesMut, Frame, FrameDecoder, Limits, command};

pub(super) use ears::{Ears, Told};

/// A master, by the name that its sentinels know it by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sentinels {
    /// Hosts and ports, in the order given.
    pub(super) places: Vec<Place>,
    pub(super) master: String,
    /// All that is said to the master goes through TLS, and so it does to them unless that was chosen apart.
    pub(super) tls: bool,
}

/// A host, which may be a name, and a port.
pub(super) type Place = (String, u16);

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss+sentinel://" } else { "redis+sentinel://" })?;
        for (at, place) in self.places.iter().enumerate() {
            let plus = if at > 0 { "+" } else { "" };
            write!(f, "{plus}{}", shown(place))?;
        }
        write!(f, "/{}", self.master)
    }
}

/// How sentinels are spoken with.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentinelAccess {
    /// What is said to them first.
    pub(crate) credentials: Option<Credentials>,
    /// Whether that is over TLS, where it is not as with the masters.
    #[cfg(feature = "tls")]
    pub(crate) is_over_tls: Option<bool>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Connector>,
}

impl SentinelAccess {
    /// With what TLS is spoken with these, if it is.
    #[cfg(feature = "tls")]
    pub(super) fn tls_for(&self, sentinels: &Sentinels) -> Option<Connector> {
        self.tls.clone().filter(|_| self.is_over_tls.unwrap_or(sentinels.tls))
    }
}

/// The address of a place over TLS.
#[cfg(feature = "tls")]
pub(super) fn over_tls((host, port): &Place) -> Address {
    match host.parse() {
        Ok(ip) => Address::TlsIp(ip, *port),
        Err(_) => Address::TlsName(host.clone(), *port),
    }
}

/// Where the master is now. Blocks.
pub(crate) fn locate(
    sentinels: &Sentinels,
    access: &SentinelAccess,
    hosts: &HostResolver,
    settings: &Settings,
) -> io::Result<Address> {
    let asking = Asking::new(&Arc::new(LookUps::new(hosts.clone())));
    let question =
        Question::new(sentinels.clone(), access, asking, settings, ClockReading::default());
    let Master { place, .. } = question.ask(|_| {})?;
    if !place.0.chars().all(is_printable) {
        // An address is shown as it is.
        return Err(io::Error::other(format!("its sentinels name {}", shown(&place))));
    }
    #[cfg(feature = "tls")]
    if sentinels.tls {
        return Ok(over_tls(&place));
    }
    let (host, port) = place;
    Ok(host.parse().map_or_else(|_| Address::Name(host, port), |ip| Address::Ip(ip, port)))
}

/// The sentinels that are being asked for one link, by all its questions.
#[derive(Clone)]
pub(super) struct Asking {
    look_ups: Arc<LookUps>,
    /// A bit for each sentinel that has a thread which has not ended.
    busy: Arc<AtomicU32>,
}

impl Asking {
    pub(super) fn new(look_ups: &Arc<LookUps>) -> Self {
        Self { look_ups: Arc::clone(look_ups), busy: Arc::default() }
    }

    /// Marks a sentinel as busy; `None` if it has not answered an earlier question yet.
    fn begin(&self, by: usize) -> Option<Busy> {
        let bit = 1 << by;
        let is_busy = self.busy.fetch_or(bit, Ordering::AcqRel) & bit != 0;
        (!is_busy).then(|| Busy { all: Arc::clone(&self.busy), bit })
    }
}

/// A sentinel is being asked until this is dropped.
struct Busy {
    all: Arc<AtomicU32>,
    bit: u32,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.all.fetch_and(!self.bit, Ordering::AcqRel);
    }
}

/// What every sentinel is asked.
pub(super) struct Question {
    pub(super) sentinels: Sentinels,
    asking: Asking,
    /// Those of the sentinels, which are not the nodes'.
    pub(super) credentials: Option<Credentials>,
    /// With what TLS is spoken, if it is.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Connector>,
    /// The contents of its files when the question was begun.
    #[cfg(feature = "tls")]
    certificates: Option<Certificates>,
    /// How long one may take to be looked up, to connect, to shake hands and to answer, all in all.
    pub(super) patience: Duration,
    /// The silence after which a connection that is listened to is given up.
    pub(super) dead_peer_timeout: Duration,
    pub(super) asked_at: ClockReading,
}

/// Where a master is.
pub(super) struct Master {
    /// As its sentinels say.
    pub(super) place: Place,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Question {
    pub(super) fn new(
        sentinels: Sentinels,
        access: &SentinelAccess,
        asking: Asking,
        settings: &Settings,
        asked_at: ClockReading,
    ) -> Self {
        Self {
            #[cfg(feature = "tls")]
            tls: access.tls_for(&sentinels),
            #[cfg(feature = "tls")]
            certificates: None,
            sentinels,
            asking,
            credentials: access.credentials.clone(),
            // To connect, to shake hands, and to answer.
            patience: settings.response_timeout.saturating_mul(3).min(settings.connect_timeout),
            dead_peer_timeout: settings.dead_peer_timeout,
            asked_at,
        }
    }

    /// Asks all sentinels at once, and waits until enough agree or none is left. `keep` is given each that has answered, before
    /// its answer counts.
    pub(super) fn ask(
        #[cfg_attr(not(feature = "tls"), expect(unused_mut))] mut self,
        keep: impl Fn(Told) + Clone + Send + 'static,
    ) -> io::Result<Master> {
        // Once, and here: a file system that hangs stops this thread and no more of them.
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            self.certificates = Some(tls.read().map_err(io::Error::other)?);
        }
        let this = Arc::new(self);
        let (sender, answers) = channel();
        for by in 0..this.sentinels.places.len() {
            this.begin(by, sender.clone(), keep.clone())?;
        }
        drop(sender);
        let mut ballot = Ballot::new(&this.sentinels);
        while let Ok((by, answer)) = answers.recv() {
            if let Some(place) = ballot.told(by, answer.map_err(|error| error.to_string())) {
                let until = Instant::now() + this.patience;
                let addresses = this.asking.look_ups.find(&place, until)?;
                return Ok(Master { place, addresses });
            }
        }
        Err(io::Error::other(ballot.to_string()))
    }

    /// Asks a sentinel in a thread, unless it has not answered an earlier question yet.
    fn begin(
        self: &Arc<Self>,
        by: usize,
        sender: Sender<(usize, io::Result<Place>)>,
        keep: impl Fn(Told) + Send + 'static,
    ) -> io::Result<()> {
        let Some(busy) = self.asking.begin(by) else {
            let _ = sender.send((by, Err(io::Error::other(STILL_ASKED))));
            return Ok(());
        };
        let this = Arc::clone(self);
        let ask = move || {
            let answer = this.ask_one(by).map(|(place, ear)| {
                let word = Word { place: place.clone(), asked_at: this.asked_at };
                keep(Told { by, word, ear });
                place
            });
            // Before the answer, which may be the last that is waited for: the next question asks it again.
            drop(busy);
            // Sending fails if the others have agreed already.
            let _ = sender.send((by, answer));
        };
        threads::start("redbolt-sentinel", ask).map(drop)
    }

    fn ask_one(&self, by: usize) -> io::Result<(Place, Box<Ear>)> {
        let mut line = self.open(&self.sentinels.places[by])?;
        line.write_all(&self.encoded())?;
        let mut decoder = FrameDecoder::new(LIMITS);
        let (mut buffer, mut chunk) = (BytesMut::new(), [0; 512]);
        let mut skips = usize::from(self.credentials.is_some());
        loop {
            while let Some(frame) = decoder.next(&mut buffer).map_err(io::Error::other)? {
                if let Frame::Error(text) = &frame {
                    // Of `AUTH` an argument is the password.
                    let words = String::from_utf8_lossy(without_arguments(text));
                    return Err(io::Error::other(words.into_owned()));
                }
                if skips == 0 {
                    let place = place_in(&frame).ok_or_else(|| io::Error::other(UNKNOWN))?;
                    let socket = line.into_socket(self.dead_peer_timeout)?;
                    return Ok((place, Box::new(Ear::new(socket, decoder, buffer))));
                }
                skips -= 1;
            }
            match line.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => buffer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other(LATE));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn open(&self, place: &Place) -> io::Result<Line> {
        let line = Line::open(place, &self.asking.look_ups, self.patience)?;
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            let session = certificates.session(&over_tls(place)).map_err(io::Error::other)?;
            return line.over_tls(session);
        }
        Ok(line)
    }

    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(credentials) = &self.credentials {
            credentials.encode_auth(&mut out);
        }
        question(&mut out, &self.sentinels.master);
        out
    }
}

/// Where is the master, and tell when that changes.
fn question(out: &mut Vec<u8>, master: &str) {
    let ask = command(out, 3).arg(b"SENTINEL").arg(b"get-master-addr-by-name");
    let _ = ask.arg(master.as_bytes());
    let _ = command(out, 2).arg(b"SUBSCRIBE").arg(CHANNEL);
}

const CHANNEL: &[u8] = b"+switch-master";

/// The place in an answer; `None` if the sentinel does not know the master.
fn place_in(frame: &Frame) -> Option<Place> {
    let Frame::Array(parts) = frame else { return None };
    let [Frame::Bulk(host), Frame::Bulk(port)] = &parts[..] else { return None };
    place_of(std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?)
}

fn place_of(host: &str, port: &str) -> Option<Place> {
    let port = port.parse().ok().filter(|&port| port != 0 && !host.is_empty())?;
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
                Ok(place) => write!(f, "; {sentinel} says {}", shown(place))?,
                Err(words) => write!(f, "; {sentinel}: {}", printable(words))?,
            }
        }
        Ok(())
    }
}

/// A place as people read it. Sentinels name hosts of any characters.
pub(super) fn shown((host, port): &Place) -> String {
    let host = printable(host);
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// A host, a port, an error, a message.
const LIMITS: Limits =
    Limits { bulk: 1 << 10, depth: 1, elements: 3, line: 1 << 9, reply: 1 << 12 };

const LATE: &str = "no answer in time";

const STILL_ASKED: &str = "it has not answered an earlier question yet";

const UNKNOWN: &str = "it does not know that master";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use super::*;

    fn sentinels() -> Sentinels {
        let places = ["a", "b", "c"].map(|host| (host.to_owned(), 26_379)).into();
        Sentinels { places, master: "jobs".to_owned(), tls: false }
    }

    #[test]
    fn a_password_that_is_repeated_is_not_shown() {
        let text = b"ERR unknown command 'AUTH', with args beginning with: 'ann' 's3cret' ";
        assert_eq!(without_arguments(text), b"ERR unknown command 'AUTH'");
        assert_eq!(without_arguments(b"NOAUTH needed"), b"NOAUTH needed");
    }

    fn question(sentinels: Sentinels, credentials: Option<Credentials>) -> Question {
        Question {
            sentinels,
            asking: Asking::new(&Arc::default()),
            credentials,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            certificates: None,
            patience: Duration::from_secs(10),
            dead_peer_timeout: Duration::from_secs(10),
            asked_at: ClockReading::default(),
        }
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
            question(Sentinels { places, ..sentinels() }, None).ask(|_| {})
        };
        let there = found(&[&lie, true_answer, true_answer]).ok().unwrap();
        assert_eq!(there.addresses, ["127.0.0.1:7001".parse().unwrap()]);
        assert!(found(&["", true_answer, true_answer]).is_ok());
        let error = found(&[&lie, &other_lie, true_answer]).err().unwrap().to_string();
        assert!(
            error.starts_with("2 of 3 sentinels must name the same master `jobs`; "),
            "{error}"
        );
        let error = found(&["*-1\r\n"]).err().unwrap().to_string();
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

    /// Most have agreed before it has said anything, and it is not asked a second time meanwhile.
    #[test]
    fn a_sentinel_that_hangs_is_asked_once() {
        let answer = "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n";
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = ("127.0.0.1".to_owned(), silent.local_addr().unwrap().port());
        let asking = Asking::new(&Arc::default());
        let ask = |others: [&str; 2]| {
            let places = others.map(sentinel).into_iter().chain([silent.clone()]).collect();
            let question = question(Sentinels { places, ..sentinels() }, None);
            Question { asking: asking.clone(), ..question }.ask(|_| {})
        };
        assert!(ask([answer; 2]).is_ok());
        assert!(ask([answer; 2]).is_ok());
        let told = ask([answer, "-ERR no\r\n"]).err().unwrap().to_string();
        assert!(told.contains(&format!("{}: {STILL_ASKED}", shown(&silent))), "{told}");
    }

    /// Its bytes are all as they should be.
    #[test]
    fn a_sentinel_that_says_a_byte_now_and_then_is_as_good_as_none() {
        let late = |place: Place, is_tls: bool| {
            let patience = Duration::from_millis(300);
            let question = question(Sentinels { places: vec![place], ..sentinels() }, None);
            #[cfg(feature = "tls")]
            let question = Question { tls: is_tls.then(connector), ..question };
            let question = Question { patience, ..question };
            let (sender, answers) = channel();
            thread::spawn(move || sender.send((is_tls, question.ask(|_| {}).err())));
            let (_, error) = answers.recv_timeout(Duration::from_secs(10)).expect("it ends");
            error.unwrap().to_string()
        };
        let answer = "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n".as_bytes();
        let told = late(trickling(answer), false);
        assert!(told.ends_with(LATE), "{told}");
        // A record of the handshake, and nearly all of it is still to come.
        #[cfg(feature = "tls")]
        assert!(
            late(trickling(b"\x16\x03\x03\x3f\xff\x02\0\x3f\xfb\x03\x03"), true)
                .ends_with("connected, but the TLS handshake did not end")
        );
    }

    #[cfg(feature = "tls")]
    fn connector() -> Connector {
        let settings = crate::net::TlsSettings { accept_any: true, ..Default::default() };
        let address = "rediss+sentinel://a/jobs".parse().unwrap();
        let both = Connector::for_all(settings, Default::default(), &[address]);
        both.unwrap().1.unwrap()
    }

    /// Says this to one client, then zeros, a byte at a time.
    fn trickling(words: &'static [u8]) -> Place {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            for byte in words.iter().copied().chain(std::iter::repeat(0)) {
                if client.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(40));
            }
        });
        ("127.0.0.1".to_owned(), port)
    }

    #[test]
    fn the_sentinels_have_credentials_of_their_own() {
        let encoded = |credentials| question(sentinels(), credentials).encoded();
        let ask = b"*3\r\n$8\r\nSENTINEL\r\n$23\r\nget-master-addr-by-name\r\n$4\r\njobs\r\n\
            *2\r\n$9\r\nSUBSCRIBE\r\n$14\r\n+switch-master\r\n";
        assert_eq!(encoded(None), ask);
        let secret = crate::proto::Secret::new(b"pw".to_vec());
        let told = encoded(Some(Credentials::new(Some(b"me".to_vec()), secret)));
        assert_eq!(told, [b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n", &ask[..]].concat());
    }
}
