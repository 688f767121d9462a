//! A core of three nodes on a bench: what it writes is read as commands, and each is answered by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::restart_guard::{BIG_MS, Expected};
use redbolt::proto::script::{ACQUIRE_FENCED, ACQUIRE_MANY, ENROL, EXTEND, UNDO, WRITE_BACK};
use redbolt::proto::{
    Cause, ClockReading, Config, Core, Event, LinkId, LinkOp, LockId, LockRequest, NodeId,
    NodeSettings, RestartTrust, Settings, Timestamp, WakeStrategy,
};
use redbolt::resp::{Decoder, Limits, Token};
use sha1_smol::Sha1;

pub(crate) struct Bench {
    pub(crate) core: Core,
    links: Vec<LinkId>,
    /// What each node has not answered, in order.
    asked: Vec<VecDeque<Words>>,
    boot: u64,
}

pub(crate) type Words = Vec<Vec<u8>>;

/// How a node handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Handshakes {
    pub(crate) run: u8,
    pub(crate) client_id: u64,
    pub(crate) restart_guard: Option<Vec<u8>>,
    pub(crate) pttl: i64,
}

/// A restart guard's TTL with no quarantine left.
pub(crate) const VOTES: i64 = BIG_MS as i64;

impl Handshakes {
    /// A node that votes.
    pub(crate) fn ready(node: usize) -> Self {
        Self {
            run: 1,
            client_id: 7,
            restart_guard: Some(restart_guard_value(node, 1)),
            pttl: VOTES,
        }
    }
}

/// No two nodes are one server.
fn run_id(node: usize, run: u8) -> [u8; 40] {
    let mut run_id = [b'a' + node as u8; 40];
    run_id[0] = b'0' + run;
    run_id
}

/// What this client expects of a node in its `run`.
pub(crate) fn restart_guard_value(node: usize, run: u8) -> Vec<u8> {
    let run_id = Some(run_id(node, run));
    let (max_ttl_ms, nodes, database, restart_trust) = (30_000, 3, 0, RestartTrust::Strict);
    Expected { run_id, max_ttl_ms, nodes, database, restart_trust }.value()
}

impl Bench {
    /// All links are open, and nothing is answered.
    pub(crate) fn new() -> Self {
        let mut settings = Settings::new(vec![NodeSettings::default(); 3]);
        settings.wake = WakeStrategy::Timer;
        let config = Arc::new(Config::new(settings).unwrap());
        let mut seed = 0u8;
        let entropy = move |bytes: &mut [u8]| {
            for byte in bytes {
                seed = seed.wrapping_mul(181).wrapping_add(57);
                *byte = seed;
            }
        };
        let core = Core::new(config, entropy);
        let asked = vec![VecDeque::new(); 3];
        let mut bench = Self { core, links: Vec::new(), asked, boot: 1_000_000_000 };
        let now = bench.now();
        bench.core.open_all(now);
        while bench.try_open() {}
        bench.links.sort_by_key(|link| link.index());
        bench
    }

    /// All nodes vote, and have nothing left to answer.
    pub(crate) fn warm() -> Self {
        let mut bench = Self::new();
        for node in 0..3 {
            bench.handshake(node, &Handshakes::ready(node));
        }
        while bench.core.poll_event().is_some() {}
        bench
    }

    pub(crate) fn now(&self) -> ClockReading {
        ClockReading { boot: Timestamp(self.boot), wall: Timestamp(self.boot) }
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.boot += span.as_nanos() as u64;
        let now = self.now();
        self.core.timeout(now);
    }

    pub(crate) fn node(&self, node: usize) -> NodeId {
        self.links[node].node()
    }

    /// Connects a link if the core wants one.
    pub(crate) fn try_open(&mut self) -> bool {
        let Some(LinkOp::Open(link)) = self.core.poll_link() else { return false };
        if self.links.len() < 3 {
            self.links.push(link);
        }
        let now = self.now();
        self.core.connected(link, now);
        true
    }

    pub(crate) fn cut(&mut self, node: usize) {
        let now = self.now();
        self.read(node);
        self.asked[node].clear();
        self.core.disconnected(self.links[node], Cause::ConnectionReset, now);
    }

    pub(crate) fn lock(&mut self, ask: &LockRequest<'_>) -> LockId {
        let now = self.now();
        self.core.acquire(ask, now).unwrap()
    }

    /// Answers everything that a handshake asks, and nothing behind it.
    pub(crate) fn handshake(&mut self, node: usize, handshakes: &Handshakes) {
        while let Some(words) = self.next(node) {
            let answer = match (&words[0][..], words.get(1).map(|word| &word[..])) {
                (b"CLIENT", Some(b"SETNAME")) => "+OK\r\n".to_owned(),
                (b"CLIENT", Some(b"ID")) => format!(":{}\r\n", handshakes.client_id),
                (b"INFO", Some(b"server")) => {
                    let run_id = run_id(node, handshakes.run);
                    let run = std::str::from_utf8(&run_id).unwrap();
                    bulk(&format!("run_id:{run}\r\n"))
                }
                (b"INFO", Some(b"replication")) => bulk("role:master\r\n"),
                (b"INFO", Some(b"memory")) => bulk("maxmemory:0\r\n"),
                (b"EVAL" | b"EVALSHA", _) if words[2] == b"0" => ":0\r\n".to_owned(),
                (b"DEL", None) => "-ERR wrong number of arguments\r\n".to_owned(),
                (b"SET", Some(b"redbolt:guard")) => "-ERR syntax error\r\n".to_owned(),
                (b"GET", Some(b"redbolt:guard")) => match &handshakes.restart_guard {
                    Some(value) => bulk(std::str::from_utf8(value).unwrap()),
                    None => "$-1\r\n".to_owned(),
                },
                (b"PTTL", Some(b"redbolt:guard")) => {
                    self.answer(node, &format!(":{}\r\n", handshakes.pttl));
                    return;
                }
                other => panic!("{other:?} is no handshake"),
            };
            self.answer(node, &answer);
        }
    }

    /// Reads what the core has written; returns the oldest command that is not answered.
    pub(crate) fn next(&mut self, node: usize) -> Option<Words> {
        self.read(node);
        self.asked[node].front().cloned()
    }

    /// The kinds of all commands that are not answered.
    pub(crate) fn waiting(&mut self, node: usize) -> Vec<&'static str> {
        self.read(node);
        self.asked[node].iter().map(kind).collect()
    }

    /// Answers the oldest command.
    pub(crate) fn answer(&mut self, node: usize, answer: &str) {
        self.read(node);
        self.asked[node].pop_front().expect("a command to answer");
        let (link, now) = (self.links[node], self.now());
        self.core.space(link)[..answer.len()].copy_from_slice(answer.as_bytes());
        self.core.received(link, answer.len(), now);
    }

    /// What was told about locks since the last time.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.core.poll_event() {
            if !matches!(event, Event::Node(..)) {
                events.push(event);
            }
        }
        events
    }

    fn read(&mut self, node: usize) {
        let link = self.links[node];
        let bytes = self.core.transmit(link).to_vec();
        self.core.transmitted(link, bytes.len());
        self.asked[node].extend(commands(&bytes));
    }
}

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// What kind of command this is.
pub(crate) fn kind(words: &Words) -> &'static str {
    let texts = [
        ("ask", ACQUIRE_FENCED),
        ("ask", ACQUIRE_MANY),
        ("write back", WRITE_BACK),
        ("enrol", ENROL),
        ("extend", EXTEND),
        ("undo", UNDO),
    ];
    let digest = |text: &str| Sha1::from(text).digest().to_string().into_bytes();
    match (&words[0][..], words.get(1)) {
        (b"SET", _) => "ask",
        (b"GET", _) => "get",
        (b"PTTL", _) => "pttl",
        (b"CLIENT", Some(word)) if word == b"KILL" => "kill",
        (b"EVAL" | b"EVALSHA", Some(script)) => {
            let is = |text: &str| *script == text.as_bytes() || *script == digest(text);
            texts.into_iter().find(|(_, text)| is(text)).map_or("other script", |(name, _)| name)
        }
        _ => "other",
    }
}

fn commands(mut bytes: &[u8]) -> Vec<Words> {
    let mut decoder = Decoder::new(Limits::default());
    let mut commands: Vec<Words> = Vec::new();
    while let Some((token, length)) = decoder.next(bytes).unwrap() {
        match token {
            Token::Array(_) => commands.push(Vec::new()),
            Token::Bulk(word) => commands.last_mut().unwrap().push(word.to_vec()),
            other => panic!("{other:?} in a command"),
        }
        bytes = &bytes[length..];
    }
    commands
}
