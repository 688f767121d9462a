//! The rule that a stream broke, and where.

use std::error::Error;
use std::fmt;

use super::declare::messages;

/// The first broken rule of a stream.
///
/// However a stream is cut into pieces, the violation is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "which rule, and where")]
pub struct Violation {
    /// The offset from the start of the stream of the byte that broke the rule.
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

messages! {
    /// A rule of RESP2 as this codec applies it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Rule {
        /// LF follows every CR of a line. Offset: the byte after the CR.
        BareCr: "CR without LF",
        /// CR precedes every LF of a simple string or an error. Offset: the LF.
        BareLf: "LF without CR",
        /// CR LF follows a bulk string's payload. Offset: the byte that is not CR, or not LF.
        BulkEnd: "no CR LF behind a bulk string",
        /// A bulk string has at most [`Limits::bulk`](super::Limits::bulk) bytes. Offset: the digit
        /// that takes its length over the limit.
        BulkTooLong: "bulk string over the limit",
        /// A number is one digit or more. An integer may begin with a plus or a minus, a length
        /// only with a minus. Offset: the byte that does not fit.
        Digit: "not a digit",
        /// A number has no leading zero, so that each has one spelling. Offset: the second digit.
        LeadingZero: "number with a leading zero",
        /// A simple string or an error has at most [`Limits::line`](super::Limits::line) bytes.
        /// Offset: the first byte over the limit.
        LineTooLong: "line over the limit",
        /// The only negative length is `-1`, which means nil. Offset: the digit that makes it
        /// another number.
        NegativeLength: "negative length other than -1",
        /// Zero has no minus sign. Offset: the zero.
        NegativeZero: "negative zero",
        /// An integer fits an `i64`. Offset: the digit that takes it out of that range.
        Range: "integer out of 64 bits",
        /// A reply has at most [`Limits::reply`](super::Limits::reply) bytes. Offset: the first
        /// byte of the token that ends past the limit. It is reported once the length of that token
        /// is known: for a bulk string by its header, for other tokens at their end.
        ReplyTooLong: "reply over the limit",
        /// At most [`Limits::depth`](super::Limits::depth) arrays are open at once. Offset: the
        /// `*`.
        TooDeep: "arrays nested over the limit",
        /// The arrays of a reply announce at most [`Limits::elements`](super::Limits::elements)
        /// elements in total. Offset: the digit that takes the sum over the limit.
        TooManyElements: "array elements over the limit",
        /// A token begins with one of `+ - : $ *`. Offset: the byte that is another one.
        Type: "unknown type byte",
    }
}

impl Rule {
    /// Returns the name of the variant, for files and logs.
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
