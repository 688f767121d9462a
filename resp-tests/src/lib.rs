//! The shared parts of the RESP2 codec's tests: an oracle, a text form, and ways to feed.
//!
//! A crate of its own because its tests need other parsers, a real server and a counting allocator,
//! none of which the library may depend on, and because the fuzz targets use the same oracle. Not
//! here: anything that a lock client needs. `README.md` says what is shown, and how.

#![deny(missing_docs, unsafe_code)]

pub mod case;
pub mod feed;
pub mod frames;
pub mod oracle;
pub mod pack;
pub mod recorded;
pub mod text;

use redbolt::resp::{Token, Violation};

/// Everything that a stream decodes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'b> {
    /// The tokens in order, each with the number of arrays around it.
    pub tokens: Vec<(usize, Token<'b>)>,
    /// The end of the stream.
    pub end: End,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After a complete reply, or before the first.
    Complete,
    /// Inside a reply.
    Incomplete,
    /// At a broken rule.
    Violation(Violation),
}
