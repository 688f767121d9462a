//! One link as its other end sees it: which requests it was sent, and which of them it answered.
//!
//! Requests are known from the moment that the core has their bytes. Answers are matched to them
//! by order alone, as the core has to.

use std::collections::VecDeque;

use redbolt::proto::{Cause, LinkId};
use redbolt::resp::{Decoder, Limits, Token};

use super::command::{Script, integer, parse};
use super::ledger::Ledger;

/// What the driver knows of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Opening,
    Open,
}

/// One command of the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Auth,
    Select,
    SetName,
    ClientId,
    InfoServer,
    InfoReplication,
    InfoMemory,
}

/// A command, as far as its answer matters. Locks are named by their place in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Greet(Step),
    Ask { lock: usize, attempt: usize, many: bool },
    Extend { lock: usize, round: usize },
    Undo { lock: usize, attempt: usize },
    Remaining,
    Kill,
    ViewValue,
    ViewTtl,
}

pub(super) struct Wire {
    pub(super) link: Option<LinkId>,
    pub(super) state: State,
    pub(super) node: usize,
    /// Counts connections.
    pub(super) connection: u32,
    /// The bytes that the socket has not taken.
    unsent: Vec<u8>,
    /// Requests and the lengths of their commands, in the order of the stream, without those that
    /// were sent and answered.
    requests: VecDeque<(Request, usize)>,
    sent: usize,
    answered: usize,
    /// Bytes of the first unsent request that were sent.
    cut: usize,
    /// The scripts whose text was sent on this connection.
    loaded: [bool; 3],
    /// The last request, answered or not.
    last: Option<Request>,
    /// Whether `AUTH` or `SELECT` has to come before everything else, and whether it ever did.
    must_be_proven: bool,
    proven: bool,
    refused: bool,
    greeted: bool,
    decoder: Decoder,
    /// Received bytes that make no token yet.
    pub(super) partial: Vec<u8>,
}

/// What an answer is to the request that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was asked for, by bytes that were sent.
    Sent,
    /// It was asked for, by bytes that were not sent yet.
    Early,
    /// It cannot be an answer: the connection has to end.
    Fatal,
}

impl Wire {
    pub(super) fn new(node: usize, must_be_proven: bool) -> Self {
        Self {
            link: None,
            state: State::Closed,
            node,
            connection: 0,
            unsent: Vec::new(),
            requests: VecDeque::new(),
            sent: 0,
            answered: 0,
            cut: 0,
            loaded: [false; 3],
            last: None,
            must_be_proven,
            proven: false,
            refused: false,
            greeted: false,
            decoder: Decoder::new(limits()),
            partial: Vec::new(),
        }
    }

    /// The connection is gone, and everything that belonged to it.
    pub(super) fn reset(&mut self, state: State) {
        self.state = state;
        self.connection += 1;
        self.unsent.clear();
        self.requests.clear();
        (self.sent, self.answered, self.cut) = (0, 0, 0);
        self.loaded = [false; 3];
        self.last = None;
        (self.refused, self.greeted) = (false, false);
        self.decoder = Decoder::new(limits());
        self.partial.clear();
    }

    /// The oldest request without an answer.
    pub(super) fn oldest(&self) -> Option<Request> {
        self.requests.get(self.answered).map(|&(request, _)| request)
    }

    /// Requests that were sent and wait for their answer.
    pub(super) fn waiting(&self) -> usize {
        self.sent.saturating_sub(self.answered)
    }

    pub(super) fn waiting_at(&self, at: usize) -> Request {
        self.requests[self.answered + at].0
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.unsent.is_empty() && self.answered == self.requests.len()
    }

    pub(super) fn token(&mut self, at: usize) -> Result<Option<(Token<'_>, usize)>, Cause> {
        self.decoder.next(&self.partial[at..]).map_err(|_| Cause::Violation)
    }

    /// The socket took so many bytes.
    pub(super) fn took(&mut self, bytes: usize) {
        self.unsent.drain(..bytes);
        self.cut += bytes;
        while let Some(&(_, len)) = self.requests.get(self.sent)
            && self.cut >= len
        {
            self.cut -= len;
            self.sent += 1;
        }
        self.forget_done();
    }

    fn forget_done(&mut self) {
        while self.sent > 0 && self.answered > 0 {
            self.requests.pop_front();
            self.sent -= 1;
            self.answered -= 1;
        }
    }

    /// Learns what the core wants to send by now. Only asks are ever taken back, and only untouched
    /// ones; everything else is appended.
    pub(super) fn sync(&mut self, unsent: &[u8], ledger: &mut Ledger) {
        if self.unsent == unsent {
            return;
        }
        let kept = self.keep(unsent);
        let mut at = kept;
        while at < unsent.len() {
            let (words, len) = parse(&unsent[at..]);
            let request = self.read(&words, ledger);
            self.requests.push_back((request, len));
            self.last = Some(request);
            at += len;
        }
        self.unsent.clear();
        self.unsent.extend_from_slice(unsent);
    }

    /// Drops the requests that were taken back; says how many bytes of the others are still there.
    fn keep(&mut self, unsent: &[u8]) -> usize {
        let (mut old, mut new) = (0, 0);
        let mut at = self.sent;
        while let Some(&(request, len)) = self.requests.get(at) {
            let cut = if at == self.sent { self.cut } else { 0 };
            let bytes = &self.unsent[old..old + len - cut];
            old += bytes.len();
            if unsent[new..].starts_with(bytes) {
                new += bytes.len();
                at += 1;
            } else {
                assert!(matches!(request, Request::Ask { .. }), "{request:?} was taken back");
                assert!(cut == 0 && at >= self.answered, "an ask was taken back in the middle");
                self.requests.remove(at);
            }
        }
        new
    }

    fn read(&mut self, words: &[&[u8]], ledger: &mut Ledger) -> Request {
        assert_eq!(self.state, State::Open, "a command without a connection");
        let request = self.understand(words, ledger);
        match (request, self.last) {
            (Request::Greet(step), None) => assert!(step <= Step::SetName),
            (Request::Greet(step), Some(Request::Greet(last))) => assert!(step > last),
            (request, None) => panic!("{request:?} before the greeting"),
            (Request::Greet(step), Some(last)) => panic!("{step:?} behind {last:?}"),
            _ => {
                let proven = self.proven || !self.must_be_proven || self.greeted;
                assert!(proven, "{request:?} as who, and in which database?");
            }
        }
        request
    }

    fn understand(&mut self, words: &[&[u8]], ledger: &mut Ledger) -> Request {
        match words {
            [b"AUTH", ..] => Request::Greet(Step::Auth),
            [b"SELECT", _] => Request::Greet(Step::Select),
            [b"CLIENT", b"SETNAME", _] => Request::Greet(Step::SetName),
            [b"CLIENT", b"ID"] => Request::Greet(Step::ClientId),
            [b"INFO", b"server"] => Request::Greet(Step::InfoServer),
            [b"INFO", b"replication"] => Request::Greet(Step::InfoReplication),
            [b"INFO", b"memory"] => Request::Greet(Step::InfoMemory),
            [b"CLIENT", b"KILL", b"ID", _] => Request::Kill,
            [b"GETRANGE", ..] => Request::ViewValue,
            [b"PTTL", _] if self.last == Some(Request::ViewValue) => Request::ViewTtl,
            [b"PTTL", _] => Request::Remaining,
            [b"SET", key, token, b"NX", b"PX", ttl] => {
                let (lock, attempt) = ledger.asks(&[key], token, integer(ttl));
                Request::Ask { lock, attempt, many: false }
            }
            [b"EVAL", text, count, args @ ..] => {
                let script = Script::of_text(text);
                self.loaded[script as usize] = true;
                self.script(script, integer(count), args, ledger)
            }
            [b"EVALSHA", digest, count, args @ ..] => {
                let script = Script::of_digest(digest);
                assert!(self.loaded[script as usize], "{script:?} by a digest unknown there");
                self.script(script, integer(count), args, ledger)
            }
            _ => panic!("an unknown command of {} words", words.len()),
        }
    }

    fn script(&self, script: Script, keys: u64, args: &[&[u8]], ledger: &mut Ledger) -> Request {
        let keys = usize::try_from(keys).expect("a number of keys");
        match (script, &args[..keys], &args[keys..]) {
            (Script::AcquireMany, keys, [token, ttl]) => {
                let (lock, attempt) = ledger.asks(keys, token, integer(ttl));
                Request::Ask { lock, attempt, many: true }
            }
            (Script::Extend, keys, [token, ttl]) => {
                let (lock, round) = ledger.extends(keys, token, integer(ttl));
                Request::Extend { lock, round }
            }
            (Script::Undo, keys, [token]) => {
                let (lock, attempt) = ledger.undoes(keys, token, self.node);
                Request::Undo { lock, attempt }
            }
            (script, keys, rest) => panic!("{script:?} of {} and {}", keys.len(), rest.len()),
        }
    }

    /// Matches a token to the oldest request without an answer; `None` if there is none.
    pub(super) fn answer(&mut self, token: Received, ledger: &mut Ledger) -> Option<Answer> {
        let request = self.oldest()?;
        if !token.can_answer(request) {
            return Some(Answer::Fatal);
        }
        let answer = if self.answered < self.sent { Answer::Sent } else { Answer::Early };
        self.answered += 1;
        match request {
            Request::Greet(step) => self.greeted_by(step, token),
            Request::Ask { lock, attempt, .. } => {
                ledger.ask_answered(lock, attempt, self.node, token)
            }
            Request::Extend { lock, round } => {
                ledger.extend_answered(lock, round, self.node, token)
            }
            Request::Undo { lock, attempt } => {
                ledger.undo_answered(lock, attempt, self.node, token)
            }
            Request::Remaining | Request::Kill | Request::ViewValue | Request::ViewTtl => {}
        }
        self.forget_done();
        Some(answer)
    }

    fn greeted_by(&mut self, step: Step, token: Received) {
        if matches!(step, Step::Auth | Step::Select) && token.is_error() {
            self.refused = true;
        }
        if step == Step::InfoMemory {
            self.greeted = true;
            self.proven |= !self.refused;
        }
    }
}

/// A token, as far as the model looks into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Array,
    Bulk,
    Error,
    Int(i64),
    NilBulk,
    Ok,
    Simple,
    WrongType,
}

impl Received {
    pub(super) fn new(token: Token<'_>) -> Self {
        match token {
            Token::Array(_) | Token::NilArray => Self::Array,
            Token::Bulk(_) => Self::Bulk,
            Token::Int(number) => Self::Int(number),
            Token::NilBulk => Self::NilBulk,
            Token::Simple(b"OK") => Self::Ok,
            Token::Simple(_) => Self::Simple,
            Token::Error(text) if contains(text, b"WRONGTYPE") => Self::WrongType,
            Token::Error(_) => Self::Error,
        }
    }

    pub(super) fn is_error(self) -> bool {
        matches!(self, Self::Error | Self::WrongType)
    }

    /// Whether this is of a type that the request can be answered with.
    fn can_answer(self, request: Request) -> bool {
        self.is_error()
            || match request {
                Request::Greet(Step::Auth | Step::Select | Step::SetName) => {
                    matches!(self, Self::Ok | Self::Simple)
                }
                Request::Greet(Step::ClientId) => matches!(self, Self::Int(_)),
                Request::Greet(_) | Request::ViewValue => self == Self::Bulk,
                // Of an ask that is forgotten the core does not know for how many keys it was.
                Request::Ask { .. } => matches!(self, Self::Ok | Self::NilBulk | Self::Int(-1..)),
                Request::Extend { .. } | Request::Undo { .. } => matches!(self, Self::Int(0..)),
                Request::Remaining | Request::ViewTtl | Request::Kill => {
                    matches!(self, Self::Int(_))
                }
            }
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// Those of the core, which are its own affair; no input is long enough to tell the larger ones
/// apart.
fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.bulk, limits.line, limits.reply) = (64 << 10, 64 << 10, 1 << 20);
    (limits.depth, limits.elements) = (2, 16);
    limits
}
