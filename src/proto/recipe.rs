//! A kind of lock, as data: which command asks for it, extends it and undoes it, and what the
//! answers mean.
//!
//! Other kinds (fenced, read/write, foreign formats) are more values of [`Recipe`], not more code
//! in the core. Not here: when a command is sent, and to whom.

use crate::resp::{Token, command};

use super::classify::{ServerError, classify};
use super::keys::Keys;
use super::script::{Digests, Loaded, Script};
use super::vote::{Cause, Vote};

/// What is sent for a kind of lock.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) ask: Command,
    pub(super) extend: Command,
    pub(super) undo: Command,
}

/// One resource: `SET NX PX`.
pub(super) const PLAIN: Recipe = Recipe {
    ask: Command::SetIfAbsent,
    extend: Command::Run(Script::Extend),
    undo: Command::Run(Script::Undo),
};

/// Several resources, all or nothing.
pub(super) const MANY: Recipe = Recipe {
    ask: Command::Run(Script::AcquireMany),
    extend: Command::Run(Script::Extend),
    undo: Command::Run(Script::Undo),
};

/// A command that carries keys, a token, and (all but undo) a TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Run(Script),
    SetIfAbsent,
}

/// The arguments of a [`Command`].
pub(super) struct Arguments<'a> {
    pub(super) keys: &'a Keys,
    pub(super) token: &'a [u8],
    pub(super) ttl_ms: Option<u64>,
}

impl Command {
    /// Encodes the command. A script goes by its text the first time on a connection.
    #[inline]
    pub(super) fn encode(
        self,
        out: &mut Vec<u8>,
        args: &Arguments<'_>,
        loaded: &mut Loaded,
        digests: &Digests,
    ) {
        match self {
            Self::SetIfAbsent => {
                let ttl = args.ttl_ms.expect("a SET that asks has a TTL");
                let set = command(out, 6).arg(b"SET").arg(args.keys.first()).arg(args.token);
                let _ = set.arg(b"NX").arg(b"PX").int(ttl);
            }
            Self::Run(script) => {
                let keys = args.keys.len();
                let words = 3 + keys + 1 + usize::from(args.ttl_ms.is_some());
                let mut eval = if loaded.contains(script) {
                    command(out, words).arg(b"EVALSHA").arg(digests.of(script))
                } else {
                    loaded.insert(script);
                    command(out, words).arg(b"EVAL").arg(script.text().as_bytes())
                }
                .int(keys as u64);
                for key in args.keys.iter() {
                    eval = eval.arg(key);
                }
                let eval = eval.arg(args.token);
                if let Some(ttl) = args.ttl_ms {
                    let _ = eval.int(ttl);
                }
            }
        }
    }

    /// Whether the command would now be sent as a script's digest.
    pub(super) fn goes_by_digest(self, loaded: Loaded) -> bool {
        matches!(self, Self::Run(script) if loaded.contains(script))
    }

    /// What the answer to an ask means; `None` if it is no answer to it.
    #[inline]
    pub(super) fn vote(self, answer: Token<'_>) -> Option<Answer> {
        Some(match (self, answer) {
            (_, Token::Simple(b"OK")) => Answer::Vote(Vote::Grant),
            (Self::SetIfAbsent, Token::NilBulk) => Answer::Vote(Vote::Deny),
            (Self::Run(_), Token::Int(remaining_ms @ -1..)) => Answer::DenyFor(remaining_ms),
            (_, Token::Error(text)) => match classify(text) {
                ServerError::NoScript => Answer::NoScript,
                ServerError::Cause(cause) => Answer::Vote(Vote::Fail(cause)),
            },
            _ => return None,
        })
    }
}

/// What a node's answer to an ask means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A denial that says for how many ms more (-1: without end).
    DenyFor(i64),
    /// The node does not know the script by its digest.
    NoScript,
    Vote(Vote),
}

/// What a node's answer to an extension or an undo means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Fail(Cause),
    NoScript,
    /// How many keys, or for an extension: 1 for done, 0 for gone.
    Of(i64),
}

impl Count {
    /// `NOSCRIPT` to anything but a digest is a server's error like any other.
    pub(super) fn to_request(self, by_digest: bool) -> Self {
        match self {
            Self::NoScript if !by_digest => Self::Fail(Cause::ServerError),
            other => other,
        }
    }
}

/// Reads the answer to an extension or an undo; `None` if it is no answer to either.
#[inline]
pub(super) fn count(answer: Token<'_>) -> Option<Count> {
    Some(match answer {
        Token::Int(n @ 0..) => Count::Of(n),
        Token::Error(text) => match classify(text) {
            ServerError::NoScript => Count::NoScript,
            ServerError::Cause(cause) => Count::Fail(cause),
        },
        _ => return None,
    })
}
