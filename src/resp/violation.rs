//! What a byte stream did wrong, and where.

use std::error::Error;
use std::fmt;

/// The first broken rule of a stream.
///
/// The same stream gives the same violation however it was cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "which rule, and where")]
pub struct Violation {
    /// Bytes from the start of the stream to the byte that broke the rule.
    pub offset: u64,
    /// The rule that it broke.
    pub rule: Rule,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.rule)
    }
}

impl Error for Violation {}

/// A rule of RESP2 as this codec reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A CR inside or at the end of a line is followed by LF. Offset: the byte behind the CR.
    BareCr,
    /// No LF stands in a simple string or an error without a CR before it. Offset: the LF.
    BareLf,
    /// CR LF stands right behind a bulk string's payload. Offset: the byte that should be it.
    BulkEnd,
    /// A bulk string has at most [`Limits::bulk`](super::Limits::bulk) bytes. Offset: the digit
    /// that takes its length over that.
    BulkTooLong,
    /// A number consists of digits, at least one; an integer (not a length) may begin with one
    /// sign. Offset: the byte that is neither.
    Digit,
    /// A number has no leading zero, so that each has one spelling. Offset: the second digit.
    LeadingZero,
    /// A simple string or error has at most [`Limits::line`](super::Limits::line) bytes. Offset:
    /// the first byte over it.
    LineTooLong,
    /// The only negative length is `-1`, nil. Offset: the digit that makes it another.
    NegativeLength,
    /// Zero has no minus sign. Offset: the zero.
    NegativeZero,
    /// An integer fits 64 bits with sign. Offset: the digit that takes it out of that range.
    Range,
    /// A reply has at most [`Limits::reply`](super::Limits::reply) bytes. Offset: the first byte
    /// of the token that ends past it. Decided where the length of that token is known: for a
    /// bulk string by its header, for all others by their end.
    ReplyTooLong,
    /// At most [`Limits::depth`](super::Limits::depth) arrays are open at once. Offset: the `*`.
    TooDeep,
    /// The arrays of a reply announce at most [`Limits::elements`](super::Limits::elements)
    /// elements. Offset: the digit that takes the sum over that.
    TooManyElements,
    /// A reply begins with one of `+ - : $ *`. Offset: the byte that is none of them.
    Type,
}

impl Rule {
    /// The name of the rule as it stands in this enum, for files and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BareCr => "BareCr",
            Self::BareLf => "BareLf",
            Self::BulkEnd => "BulkEnd",
            Self::BulkTooLong => "BulkTooLong",
            Self::Digit => "Digit",
            Self::LeadingZero => "LeadingZero",
            Self::LineTooLong => "LineTooLong",
            Self::NegativeLength => "NegativeLength",
            Self::NegativeZero => "NegativeZero",
            Self::Range => "Range",
            Self::ReplyTooLong => "ReplyTooLong",
            Self::TooDeep => "TooDeep",
            Self::TooManyElements => "TooManyElements",
            Self::Type => "Type",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BareCr => "CR without LF",
            Self::BareLf => "LF without CR",
            Self::BulkEnd => "no CR LF behind a bulk string",
            Self::BulkTooLong => "bulk string over the limit",
            Self::Digit => "not a digit",
            Self::LeadingZero => "number with a leading zero",
            Self::LineTooLong => "line over the limit",
            Self::NegativeLength => "negative length other than -1",
            Self::NegativeZero => "negative zero",
            Self::Range => "integer out of 64 bits",
            Self::ReplyTooLong => "reply over the limit",
            Self::TooDeep => "arrays nested over the limit",
            Self::TooManyElements => "array elements over the limit",
            Self::Type => "unknown type byte",
        })
    }
}
