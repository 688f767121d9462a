//! Which rule a stream broke, and where.

use std::error::Error;
use std::fmt;

/// The first broken rule of a stream.
///
/// The same stream gives the same violation however it was cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "which rule, and where")]
pub struct Violation {
    /// Offset of the byte that broke the rule, from the start of the stream.
    pub offset: u64,
    /// The broken rule.
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
    /// LF follows every CR of a line. Offset: the byte behind the CR.
    BareCr,
    /// CR precedes every LF of a simple string or an error. Offset: the LF.
    BareLf,
    /// CR LF follows a bulk string's payload. Offset: the byte that is not CR, or not LF.
    BulkEnd,
    /// A bulk string has at most [`Limits::bulk`](super::Limits::bulk) bytes. Offset: the digit that takes its
    /// length over the limit.
    BulkTooLong,
    /// A number is one digit or more. An integer may begin with a plus or a minus, a length only with a minus.
    /// Offset: the byte that does not fit.
    Digit,
    /// A number has no leading zero: there is one spelling of each. Offset: the second digit.
    LeadingZero,
    /// A simple string or an error has at most [`Limits::line`](super::Limits::line) bytes. Offset: the first byte
    /// over the limit.
    LineTooLong,
    /// The only negative length is `-1`, which means nil. Offset: the digit that makes it another number.
    NegativeLength,
    /// Zero has no minus sign. Offset: the zero.
    NegativeZero,
    /// An integer fits an `i64`. Offset: the digit that takes it out of that range.
    Range,
    /// A reply has at most [`Limits::reply`](super::Limits::reply) bytes. Offset: the first byte of the token that
    /// ends past the limit. It is reported once the length of that token is known: for a bulk string by its
    /// header, for others at their end.
    ReplyTooLong,
    /// At most [`Limits::depth`](super::Limits::depth) arrays are open at once. Offset: the `*`.
    TooDeep,
    /// The arrays of a reply announce at most [`Limits::elements`](super::Limits::elements) elements in total.
    /// Offset: the digit that takes the sum over the limit.
    TooManyElements,
    /// A token begins with one of `+ - : $ *`. Offset: the byte that is none of them.
    Type,
}

impl Rule {
    /// The name of the variant, for files and logs.
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
