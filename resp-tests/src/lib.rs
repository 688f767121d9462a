//! The shared parts of the RESP2 codec's tests: an oracle, a text form, and ways to feed.
//!
//! This is a separate crate because its tests need other parsers, a real server and a counting
//! allocator, none of which the library may depend on, and because the fuzz targets use the same
//! oracle. `README.md` lists the claims and the tests of each.

#![deny(missing_docs, unsafe_code)]

pub mod case;
pub mod feed;
pub mod frames;
pub mod oracle;
pub mod pack;
pub mod recorded;
pub mod text;

use redbolt::resp::{Token, Violation};

/// The complete result of decoding a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'b> {
    /// The tokens in order, each with the number of arrays around it.
    pub tokens: Vec<(usize, Token<'b>)>,
    /// The end of the stream.
    pub end: End,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream ends after a complete reply, or before the first.
    Complete,
    /// The stream ends inside a reply.
    Incomplete,
    /// The stream breaks a rule.
    Violation(Violation),
}
