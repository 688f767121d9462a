//! Queries sentinels for the current master and counts their answers.
//!
//! Invariant: a master counts only if more than half of the sentinels name it. A failover needs the
//! same majority, so a sentinel that is partitioned, wrong or late is outvoted. Sentinels are
//! queried before every connection; the handshake then checks that the server is a master, and the
//! restart guard what it remembers: a promoted replica is a different run.
//!
//! Sentinels that answer stay connected (`subscriptions`), because connections to a hung or
//! replaced master can stay open for a while.

mod connection;
mod protocol;
mod subscriptions;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use self::connection::BlockingConnection;
use self::protocol::{encode_query, master_in};
use self::subscriptions::{NamedMaster, Subscription};
use super::address::{Address, Sentinels};
use super::host_port::{HostPort, shown};
use super::hosts::{HostResolver, LookUps};
use super::threads;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Connector};
use crate::proto::{
    ClockReading, Credentials, Settings, is_printable, printable, without_arguments,
};
use crate::resp::{BytesMut, Frame, FrameDecoder, Limits};

pub(super) use subscriptions::{NewSubscription, Subscriptions};

#[derive(Clone, Debug, Default)]
pub(crate) struct SentinelAccess {
    pub(crate) credentials: Option<Credentials>,
    /// Overrides the TLS use of the sentinel address; `None` follows it.
    #[cfg(feature = "tls")]
    pub(crate) is_over_tls: Option<bool>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Connector>,
}

/// Returns the current address of the master. Blocks.
pub(crate) fn locate(
    sentinels: &Sentinels,
    access: &SentinelAccess,
    hosts: &HostResolver,
    settings: &Settings,
) -> io::Result<Address> {
    let outstanding = OutstandingQueries::new(&Arc::new(LookUps::new(hosts.clone())));
    let query =
        MasterQuery::new(sentinels.clone(), access, outstanding, settings, ClockReading::default());
    let Master { place, .. } = query.ask(|_| {})?;
    if !place.0.chars().all(is_printable) {
        // `Address` is displayed unescaped, so such a host is rejected.
        return Err(io::Error::other(format!("its sentinels name {}", shown(&place))));
    }
    Ok(Address::of(&place, sentinels.tls))
}

/// The sentinels with a pending query of one link.
#[derive(Clone)]
pub(super) struct OutstandingQueries {
    look_ups: Arc<LookUps>,
    /// One bit per sentinel with a running thread.
    busy: Arc<AtomicU32>,
}

impl OutstandingQueries {
    pub(super) fn new(look_ups: &Arc<LookUps>) -> Self {
        Self { look_ups: Arc::clone(look_ups), busy: Arc::default() }
    }

    /// Marks a sentinel as busy; `None` if an earlier query to it is pending.
    fn begin(&self, by: usize) -> Option<Busy> {
        let bit = 1 << by;
        let is_busy = self.busy.fetch_or(bit, Ordering::AcqRel) & bit != 0;
        (!is_busy).then(|| Busy { all: Arc::clone(&self.busy), bit })
    }
}

/// Marks a sentinel as busy until dropped.
struct Busy {
    all: Arc<AtomicU32>,
    bit: u32,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.all.fetch_and(!self.bit, Ordering::AcqRel);
    }
}

pub(super) struct MasterQuery {
    pub(super) sentinels: Sentinels,
    outstanding: OutstandingQueries,
    /// The credentials for the sentinels, not for the nodes.
    pub(super) credentials: Option<Credentials>,
    /// The TLS connector, if sentinels are reached over TLS.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Connector>,
    /// The contents of the TLS files when the query began.
    #[cfg(feature = "tls")]
    certificates: Option<Certificates>,
    /// The total time per sentinel to look up, connect, complete TLS and answer.
    pub(super) patience: Duration,
    /// The silence after which a subscribed connection is closed.
    pub(super) dead_peer_timeout: Duration,
    pub(super) asked_at: ClockReading,
}

pub(super) struct Master {
    /// The host and port that its sentinels name.
    pub(super) place: HostPort,
    pub(super) addresses: Vec<SocketAddr>,
}

impl MasterQuery {
    pub(super) fn new(
        sentinels: Sentinels,
        access: &SentinelAccess,
        outstanding: OutstandingQueries,
        settings: &Settings,
        asked_at: ClockReading,
    ) -> Self {
        Self {
            #[cfg(feature = "tls")]
            tls: access.tls.clone().filter(|_| access.is_over_tls.unwrap_or(sentinels.tls)),
            #[cfg(feature = "tls")]
            certificates: None,
            sentinels,
            outstanding,
            credentials: access.credentials.clone(),
            // One response timeout each to connect, to complete TLS, and to answer.
            patience: settings.response_timeout.saturating_mul(3).min(settings.connect_timeout),
            dead_peer_timeout: settings.dead_peer_timeout,
            asked_at,
        }
    }

    /// Queries all sentinels at once, and blocks until a majority agrees or all queries have ended.
    /// `keep` receives each sentinel that answers, before its answer counts.
    pub(super) fn ask(
        #[cfg_attr(not(feature = "tls"), expect(unused_mut))] mut self,
        keep: impl Fn(NewSubscription) + Clone + Send + 'static,
    ) -> io::Result<Master> {
        // Read once and on this thread: a hanging file system blocks only one thread.
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
            if let Some(place) = ballot.record(by, answer.map_err(|error| error.to_string())) {
                let until = Instant::now() + this.patience;
                let addresses = this.outstanding.look_ups.find(&place, until)?;
                return Ok(Master { place, addresses });
            }
        }
        Err(io::Error::other(ballot.to_string()))
    }

    /// Queries a sentinel in a new thread, unless an earlier query to it is pending.
    fn begin(
        self: &Arc<Self>,
        by: usize,
        sender: Sender<(usize, io::Result<HostPort>)>,
        keep: impl Fn(NewSubscription) + Send + 'static,
    ) -> io::Result<()> {
        let Some(busy) = self.outstanding.begin(by) else {
            let _ = sender.send((by, Err(io::Error::other(STILL_ASKED))));
            return Ok(());
        };
        let this = Arc::clone(self);
        let ask = move || {
            let answer = this.ask_one(by).map(|(place, subscription)| {
                let named = NamedMaster { place: place.clone(), asked_at: this.asked_at };
                keep(NewSubscription { by, named, subscription });
                place
            });
            // Idle before the answer is sent, which may be the last one awaited: the next query
            // must not find this sentinel busy.
            drop(busy);
            // Sending fails if a majority has already agreed.
            let _ = sender.send((by, answer));
        };
        threads::start("redbolt-sentinel", ask).map(drop)
    }

    fn ask_one(&self, by: usize) -> io::Result<(HostPort, Box<Subscription>)> {
        let mut connection = self.open(&self.sentinels.places[by])?;
        connection.write_all(&self.encoded())?;
        let mut decoder = FrameDecoder::new(LIMITS);
        let (mut buffer, mut chunk) = (BytesMut::new(), [0; 512]);
        let mut skips = usize::from(self.credentials.is_some());
        loop {
            while let Some(frame) = decoder.next(&mut buffer).map_err(io::Error::other)? {
                if let Frame::Error(text) = &frame {
                    // An error reply to `AUTH` may contain the password as an argument.
                    let words = String::from_utf8_lossy(without_arguments(text));
                    return Err(io::Error::other(words.into_owned()));
                }
                if skips == 0 {
                    let place = master_in(&frame).ok_or_else(|| io::Error::other(UNKNOWN))?;
                    let socket = connection.into_socket(self.dead_peer_timeout)?;
                    return Ok((place, Box::new(Subscription::new(socket, decoder, buffer))));
                }
                skips -= 1;
            }
            match connection.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => buffer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other(LATE));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn open(&self, place: &HostPort) -> io::Result<BlockingConnection> {
        let connection =
            BlockingConnection::open(place, &self.outstanding.look_ups, self.patience)?;
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            let session =
                certificates.session(&Address::of(place, true)).map_err(io::Error::other)?;
            return connection.over_tls(session);
        }
        Ok(connection)
    }

    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(credentials) = &self.credentials {
            credentials.encode_auth(&mut out);
        }
        encode_query(&mut out, &self.sentinels.master);
        out
    }
}

#[derive(Debug)]
struct Ballot<'s> {
    sentinels: &'s Sentinels,
    answers: Vec<(usize, Result<HostPort, String>)>,
}

impl<'s> Ballot<'s> {
    fn new(sentinels: &'s Sentinels) -> Self {
        Self { sentinels, answers: Vec::new() }
    }

    /// Records an answer. Returns the master once a majority of sentinels has named it.
    fn record(&mut self, by: usize, answer: Result<HostPort, String>) -> Option<HostPort> {
        self.answers.push((by, answer));
        let (_, last) = self.answers.last()?;
        let place = last.as_ref().ok()?;
        let named = self.answers.iter().filter(|(_, answer)| answer.as_ref() == Ok(place)).count();
        // A majority of all sentinels, not only of those that answered.
        (named >= self.needed()).then(|| place.clone())
    }

    fn needed(&self) -> usize {
        self.sentinels.places.len() / 2 + 1
    }
}

/// Explains why there is no master to connect to.
impl fmt::Display for Ballot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, all) = (self.needed(), self.sentinels.places.len());
        let master = self.sentinels.master.escape_debug();
        write!(f, "{needed} of {all} sentinels must name the same master `{master}`")?;
        for (by, answer) in &self.answers {
            let sentinel = shown(&self.sentinels.places[*by]);
            match answer {
                Ok(place) => write!(f, "; {sentinel} says {}", shown(place))?,
                Err(words) => write!(f, "; {sentinel}: {}", printable(words))?,
            }
        }
        Ok(())
    }
}

/// The limits of a reply: a host, a port, an error, or a message.
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

    fn query(sentinels: Sentinels, credentials: Option<Credentials>) -> MasterQuery {
        MasterQuery {
            sentinels,
            outstanding: OutstandingQueries::new(&Arc::default()),
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

    fn at(host: &str) -> Result<HostPort, String> {
        Ok((host.to_owned(), 6_379))
    }

    #[test]
    fn a_master_is_believed_that_more_than_half_name() {
        let known = sentinels();
        let mut ballot = Ballot::new(&known);
        assert_eq!(ballot.record(0, at("old")), None);
        assert_eq!(ballot.record(2, at("new")), None);
        assert_eq!(ballot.record(1, at("new")), at("new").ok());
        let mut ballot = Ballot::new(&known);
        assert_eq!(ballot.record(0, at("old")), None);
        assert_eq!(ballot.record(1, Err("refused".to_owned())), None);
        assert_eq!(ballot.record(2, at("\x1bnew")), None);
        assert_eq!(
            ballot.to_string(),
            "2 of 3 sentinels must name the same master `jobs`; a:26379 says old:6379; b:26379: refused; \
             c:26379 says \\u{1b}new:6379"
        );
    }

    /// A wrong sentinel and an unreachable one are outvoted; two wrong ones do not form a majority.
    #[test]
    fn all_are_asked_and_the_majority_is_believed() {
        let true_answer = "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n";
        let [lie, other_lie] = ["7002", "7003"].map(|port| true_answer.replace("7001", port));
        let found = |answers: &[&str]| {
            let places = answers.iter().map(|answer| sentinel(answer)).collect();
            query(Sentinels { places, ..sentinels() }, None).ask(|_| {})
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

    /// Answers one client with this text, or closes the connection if it is empty.
    fn sentinel(answer: &str) -> HostPort {
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

    /// The other two agree before it answers, and it is not queried again in the meantime.
    #[test]
    fn a_sentinel_that_hangs_is_asked_once() {
        let answer = "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n";
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = ("127.0.0.1".to_owned(), silent.local_addr().unwrap().port());
        let outstanding = OutstandingQueries::new(&Arc::default());
        let ask = |others: [&str; 2]| {
            let places = others.map(sentinel).into_iter().chain([silent.clone()]).collect();
            let query = query(Sentinels { places, ..sentinels() }, None);
            MasterQuery { outstanding: outstanding.clone(), ..query }.ask(|_| {})
        };
        assert!(ask([answer; 2]).is_ok());
        assert!(ask([answer; 2]).is_ok());
        let told = ask([answer, "-ERR no\r\n"]).err().unwrap().to_string();
        assert!(told.contains(&format!("{}: {STILL_ASKED}", shown(&silent))), "{told}");
    }

    /// Each byte is valid, but the deadline covers the whole answer.
    #[test]
    fn a_sentinel_that_says_a_byte_now_and_then_is_as_good_as_none() {
        let late = |place: HostPort, is_tls: bool| {
            let patience = Duration::from_millis(300);
            let query = query(Sentinels { places: vec![place], ..sentinels() }, None);
            #[cfg(feature = "tls")]
            let query = MasterQuery { tls: is_tls.then(connector), ..query };
            let query = MasterQuery { patience, ..query };
            let (sender, answers) = channel();
            thread::spawn(move || sender.send((is_tls, query.ask(|_| {}).err())));
            let (_, error) = answers.recv_timeout(Duration::from_secs(10)).expect("it ends");
            error.unwrap().to_string()
        };
        let answer = "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n".as_bytes();
        let told = late(trickling(answer), false);
        assert!(told.ends_with(LATE), "{told}");
        // The start of a handshake record, most of which has not arrived.
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

    /// Sends these bytes and then zeros to one client, one byte at a time.
    fn trickling(words: &'static [u8]) -> HostPort {
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
        let encoded = |credentials| query(sentinels(), credentials).encoded();
        let ask = b"*3\r\n$8\r\nSENTINEL\r\n$23\r\nget-master-addr-by-name\r\n$4\r\njobs\r\n\
            *2\r\n$9\r\nSUBSCRIBE\r\n$14\r\n+switch-master\r\n";
        assert_eq!(encoded(None), ask);
        let secret = crate::proto::Secret::new(b"pw".to_vec());
        let told = encoded(Some(Credentials::new(Some(b"me".to_vec()), secret)));
        assert_eq!(told, [b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n", &ask[..]].concat());
    }
}
