//! A reply that the core receives, and the requests that it can answer.

use redbolt::proto::HandshakeStep as Step;
use redbolt::proto::fence::is_exclusive;
use redbolt::proto::restart_guard::Standing;
use redbolt::resp::Token;

use super::request::{Kind, Request};

/// A token, as far as the model parses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Array,
    Bulk,
    Clock,
    Error,
    /// A slot.
    Given(u16),
    Guarded,
    Int(i64),
    NilBulk,
    /// An error of a node that may later do what it does not do now.
    NotNow,
    Ok,
    OkWith(u64),
    Simple,
}

impl Received {
    pub(super) fn new(token: Token<'_>) -> Self {
        match token {
            Token::Array(_) | Token::NilArray => Self::Array,
            Token::Bulk(_) => Self::Bulk,
            Token::Int(number) => Self::Int(number),
            Token::NilBulk => Self::NilBulk,
            Token::Simple(b"OK") => Self::Ok,
            Token::Simple(line) => Self::status(line).unwrap_or(Self::Simple),
            Token::Error(text) => match text.split(|&byte| byte == b' ').next() {
                Some(b"BUSY" | b"LOADING" | b"MISCONF" | b"READONLY") => Self::NotNow,
                _ => Self::Error,
            },
        }
    }

    /// Parses a word and a number.
    fn status(line: &[u8]) -> Option<Self> {
        let (word, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        match word {
            "OK" => {
                let counter = number.parse().ok().filter(|&n| is_exclusive(n)).map(Self::OkWith);
                let slot = || number.split(' ').next().and_then(|slot| slot.parse().ok());
                counter.or_else(|| slot().map(Self::Given))
            }
            "GUARD" => {
                let pttl =
                    number.parse().ok().filter(|&pttl| Standing::of(pttl) != Standing::Votes);
                pttl.map(|_| Self::Guarded)
            }
            "CLOCK" => number.parse::<u64>().ok().map(|_| Self::Clock),
            _ => None,
        }
    }

    /// Returns the slot, if the reply gives one.
    pub(super) fn slot(self) -> Option<u16> {
        match self {
            Self::Given(slot) => Some(slot),
            // A slot without further numbers looks like a counter.
            Self::OkWith(number) => u16::try_from(number).ok(),
            _ => None,
        }
    }

    pub(super) fn is_denial(self) -> bool {
        matches!(self, Self::NilBulk | Self::Int(_))
    }

    pub(super) fn is_error(self) -> bool {
        matches!(self, Self::Error | Self::NotNow)
    }

    /// Returns true if the request can be answered with this type. `half`: only the check of a lock
    /// request is unanswered.
    pub(super) fn can_answer(self, request: Request, half: bool, guarded: bool) -> bool {
        let is_status = matches!(self, Self::Ok | Self::OkWith(_) | Self::Guarded | Self::Clock);
        let is_line = is_status || matches!(self, Self::Given(_) | Self::Simple);
        self.is_error()
            || match request {
                Request::Handshake(Step::Auth | Step::Select | Step::SetName) => is_line,
                Request::Handshake(Step::ClientId | Step::Eval | Step::EvalSha | Step::Del)
                | Request::Handshake(Step::DelEx | Step::DelIfEq | Step::RestartGuardTtl)
                | Request::Look(Step::RestartGuardTtl) => matches!(self, Self::Int(_)),
                Request::Handshake(Step::Set) | Request::Look(Step::Set) => self == Self::NilBulk,
                Request::Handshake(Step::RestartGuardValue) | Request::Look(_) => {
                    matches!(self, Self::Bulk | Self::NilBulk)
                }
                Request::ViewType => is_line,
                Request::Handshake(_)
                | Request::Counter
                | Request::History
                | Request::ViewHolders
                | Request::ViewQueue
                | Request::ViewValue => self == Self::Bulk,
                Request::Ask { .. } if half => matches!(self, Self::Int(_)),
                Request::Ask { kind: Kind::Plain, .. } if guarded => {
                    matches!(self, Self::Ok | Self::NilBulk)
                }
                Request::Ask { kind: Kind::InQueue { .. }, .. } => {
                    matches!(self, Self::Clock | Self::Guarded | Self::Int(-1..))
                }
                Request::Ask { kind: Kind::Permit, .. } | Request::Move { .. } => {
                    is_line || matches!(self, Self::Int(-1..))
                }
                Request::Ask { .. } | Request::Change { .. } => {
                    is_status || matches!(self, Self::NilBulk | Self::Int(-1..))
                }
                Request::Delete { .. } => matches!(self, Self::Int(0..=1)),
                Request::Enrol
                | Request::Extend { .. }
                | Request::Leave { .. }
                | Request::Undo { .. }
                | Request::WriteBack { .. } => matches!(self, Self::Int(0..)),
                Request::Kill | Request::KillOthers | Request::Remaining | Request::ViewTtl => {
                    matches!(self, Self::Int(_))
                }
                Request::Caching | Request::Track => is_line,
                Request::Watched => self == Self::Bulk,
            }
    }
}
