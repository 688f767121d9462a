//! Queries a node for the doctor, without changing anything on it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use redbolt::Config;
use redbolt::resp::Frame;

use super::clock::{self, Offset};
use super::info::Info;
use super::rights::{self, Denied};
use super::stalls::{self, Stall};
use crate::link::{self, Link, Patience, Place};
use crate::scan::{Bounds, Scanned, scan};

/// An answer, or the server's refusal; `None` if the connection failed first.
pub(super) type Asked<T> = Option<Result<T, String>>;

/// The answers of one node.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Whether the connection was opened.
    pub(super) is_open: bool,
    /// Whether the user or the password was refused.
    pub(super) is_refused: bool,
    /// The reason why the connection failed, or ended before all questions.
    pub(super) failure: Option<String>,
    pub(super) info: Asked<Info>,
    /// The settings that the server reports.
    pub(super) settings: BTreeMap<&'static str, String>,
    pub(super) clock: Option<Offset>,
    /// The round trips, the shortest first.
    pub(super) round_trips: Vec<Duration>,
    pub(super) denied: Option<Vec<Denied>>,
    /// Whether the server answers clients that do not log in.
    pub(super) is_open_to_all: Option<bool>,
    pub(super) slow_commands: Asked<Vec<Stall>>,
    pub(super) events: Asked<Vec<Stall>>,
    /// The keys without a TTL, except for the restart guard.
    pub(super) endless: Asked<Scanned>,
}

/// Asks one node all questions.
pub(super) fn ask(config: &Config, place: &Place, prefix: &[u8]) -> Facts {
    let mut facts = Facts::default();
    let asked = Link::open(config, place, patience(config)).and_then(|mut link| {
        facts.is_open = true;
        facts.fill(&mut link, prefix, &config.settings().restart_guard_key)
    });
    match asked {
        Ok(()) if place.has_login() => facts.is_open_to_all = answers_strangers(config, place),
        Ok(()) => {}
        Err(error) => {
            facts.is_refused = error.kind() == ErrorKind::PermissionDenied;
            facts.failure = Some(error.to_string());
        }
    }
    facts
}

/// Returns the longest time for all questions to a node: those of the user, and one without a
/// login.
pub(super) fn longest(config: &Config) -> Duration {
    patience(config).total + config.settings().response_timeout
}

/// Returns whether the server answers a client that does not log in, or `None` if that is not
/// known.
fn answers_strangers(config: &Config, place: &Place) -> Option<bool> {
    let answer = config.settings().response_timeout;
    let patience = Patience { connect: answer, answer, total: answer };
    let mut link = Link::open(config, &place.without_login(), patience).ok()?;
    Some(!matches!(link.ask(&[b"PING"]).ok()?, Frame::Error(_)))
}

/// Returns how long the user's questions may take.
fn patience(config: &Config) -> Patience {
    let settings = config.settings();
    let (connect, answer) = (settings.connect_timeout, settings.response_timeout);
    Patience { connect, answer, total: connect + 4 * answer + PINGING }
}

impl Facts {
    fn fill(&mut self, link: &mut Link, prefix: &[u8], guard: &[u8]) -> io::Result<()> {
        let info = link::text(&link.ask(&[b"INFO"])?);
        if let Err(refusal) = &info
            && REFUSALS.iter().any(|code| refusal.starts_with(code))
        {
            return Err(io::Error::new(ErrorKind::PermissionDenied, refusal.clone()));
        }
        self.info = Some(info.map(|text| Info::parse(&text)));
        self.settings = settings(link)?;
        self.clock = clock::measure(link)?;
        self.round_trips = round_trips(link)?;
        self.denied = Some(rights::probe(link, &absent_key(prefix))?);
        self.slow_commands = Some(stalls::slow_commands(link)?);
        self.events = Some(stalls::events(link)?);
        self.endless = Some(endless(link, prefix, guard)?);
        let subscribe = rights::probe_subscribe(link)?;
        self.denied.iter_mut().for_each(|denied| denied.extend(subscribe));
        Ok(())
    }

    /// Returns a setting, as reported by `CONFIG GET`.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Returns the round trip that this share of them does not exceed, or zero if none was
    /// measured.
    pub(super) fn round_trip(&self, share: f64) -> Duration {
        let rank = (share * self.round_trips.len() as f64).ceil() as usize;
        self.round_trips.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Returns the answer to `INFO`, if there is one.
    pub(super) fn info(&self) -> Option<&Info> {
        self.info.as_ref()?.as_ref().ok()
    }
}

/// Reads each setting separately: `CONFIG GET` takes more than one only since Redis 7, and some
/// settings hold passwords.
fn settings(link: &mut Link) -> io::Result<BTreeMap<&'static str, String>> {
    let words = |name: &&'static str| vec![&b"CONFIG"[..], b"GET", name.as_bytes()];
    let replies = link.ask_all(&SETTINGS.iter().map(words).collect::<Vec<_>>())?;
    let told = SETTINGS.into_iter().zip(replies).filter_map(|(name, reply)| match reply {
        Frame::Array(pair) => Some((name, link::text(pair.get(1)?).ok()?)),
        _ => None,
    });
    Ok(told.collect())
}

/// Measures as many round trips as fit into a time, but at least one.
fn round_trips(link: &mut Link) -> io::Result<Vec<Duration>> {
    let (began, mut round_trips) = (Instant::now(), Vec::new());
    while round_trips.len() < PINGS && (round_trips.is_empty() || began.elapsed() < PINGING) {
        let sent = Instant::now();
        link.ask(&[b"PING"])?;
        round_trips.push(sent.elapsed());
    }
    round_trips.sort_unstable();
    Ok(round_trips)
}

/// Finds the keys that never expire.
fn endless(link: &mut Link, prefix: &[u8], guard: &[u8]) -> io::Result<Result<Scanned, String>> {
    let mut scanned = match scan(link, prefix, BOUNDS)? {
        Ok(scanned) => scanned,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let names: Vec<Vec<u8>> = scanned.names.into_iter().filter(|name| name != guard).collect();
    let mut left = Vec::with_capacity(names.len());
    for batch in names.chunks(BATCH) {
        let commands: Vec<_> = batch.iter().map(|name| vec![&b"PTTL"[..], name]).collect();
        left.extend(link.ask_all(&commands)?);
    }
    let named = names.into_iter().zip(left);
    let is_endless = |(name, left)| (left == Frame::Int(NO_TTL)).then_some(name);
    scanned.names = named.filter_map(is_endless).collect();
    Ok(Ok(scanned))
}

/// Returns the name of a key that exists on no node.
fn absent_key(prefix: &[u8]) -> Vec<u8> {
    let random = RandomState::new().hash_one(Instant::now());
    [prefix, format!("redbolt:doctor:{random:016x}").as_bytes()].concat()
}

/// The codes of errors after which a server answers no question.
const REFUSALS: [&str; 2] = ["NOAUTH", "DENIED"];

/// The settings to read. None of them contains a password.
const SETTINGS: [&str; 10] = [
    "appendonly",
    "appendfsync",
    "save",
    "maxmemory-policy",
    "protected-mode",
    "bind",
    "port",
    "tls-auth-clients",
    "min-replicas-to-write",
    "latency-monitor-threshold",
];

/// The number of questions in one write.
const BATCH: usize = 256;

/// The reply to `PTTL` for a key without a TTL.
const NO_TTL: i64 = -1;

/// How many round trips are measured, and for how long at most.
const PINGS: usize = 200;
const PINGING: Duration = Duration::from_secs(2);

const BOUNDS: Bounds = Bounds { walked: 10_000, names: 2_000 };
