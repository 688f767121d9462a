//! The decoder: bytes in, borrowed tokens out.
//!
//! The caller keeps the bytes. [`Decoder::next`] looks at the unconsumed ones from their start and
//! answers with one token and its length, or with *more bytes are needed*; in the second case it
//! remembers how far it looked, so that trickled input costs no more than input in one piece.
//! Arrays are announced and their elements follow as tokens of their own, so there is no tree, no
//! recursion, and no allocation here at all.
//!
//! Every violation is decided by the first byte at which no valid stream could go on, never by
//! where a read happened to end.

use super::limits::{Limits, MAX_DEPTH};
use super::violation::{Rule, Violation};

/// One element of a RESP2 stream. Payloads borrow the buffer given to [`Decoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'b> {
    /// An array of this many elements begins: the next tokens are its elements, nested arrays
    /// with all of theirs. `Array(0)` is complete.
    Array(u32),
    /// `$`: a string of any bytes.
    Bulk(&'b [u8]),
    /// `-`: an error's text.
    Error(&'b [u8]),
    /// `:`
    Int(i64),
    /// `*-1`
    NilArray,
    /// `$-1`
    NilBulk,
    /// `+`: a line.
    Simple(&'b [u8]),
}

/// An incremental RESP2 decoder. See the [module](super) for an example.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    /// Stream offset of the first unconsumed byte.
    offset: u64,
    /// Stream offset of the first byte of the reply that is being read.
    reply_start: u64,
    /// Elements that the arrays of this reply may still announce.
    elements_left: u32,
    /// Elements still to come in each open array, the innermost last.
    open: [u32; MAX_DEPTH],
    depth: usize,
    partial: Partial,
    violation: Option<Violation>,
}

/// What is known of a token whose end has not arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    /// Bytes of the token that need not be looked at again.
    scanned: usize,
    magnitude: u64,
    negative: bool,
    /// Header and payload length of a bulk string, once the header is complete.
    bulk: Option<(usize, usize)>,
}

/// A broken rule, at an offset from the first unconsumed byte.
type Fault = (usize, Rule);

impl Decoder {
    /// A decoder at the start of a stream.
    ///
    /// A [`Limits::depth`] over [`MAX_DEPTH`] counts as [`MAX_DEPTH`].
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { depth: limits.depth.min(MAX_DEPTH), ..limits };
        Self {
            limits,
            offset: 0,
            reply_start: 0,
            elements_left: limits.elements,
            open: [0; MAX_DEPTH],
            depth: 0,
            partial: Partial::default(),
            violation: None,
        }
    }

    /// The next token of the unconsumed bytes and its length, or `None` if more are needed.
    ///
    /// After `Some((_, len))` the next call's `buf` begins `len` bytes later; after `None` it
    /// begins at the same byte and holds more. At most [`Limits::buffered`] bytes are ever needed.
    ///
    /// # Errors
    ///
    /// The first broken rule ends the stream: every later call returns the same violation.
    #[inline]
    pub fn next<'b>(&mut self, buf: &'b [u8]) -> Result<Option<(Token<'b>, usize)>, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        match self.token(buf) {
            Ok(Some((token, len))) => {
                self.advance(token, len);
                Ok(Some((token, len)))
            }
            Ok(None) => Ok(None),
            Err((at, rule)) => {
                let violation = Violation { offset: self.offset + at as u64, rule };
                self.violation = Some(violation);
                Err(violation)
            }
        }
    }

    /// Bytes of the stream consumed so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Arrays that are open: zero between replies.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn token<'b>(&mut self, buf: &'b [u8]) -> Result<Option<(Token<'b>, usize)>, Fault> {
        let Some(&kind) = buf.first() else { return Ok(None) };
        let found = match kind {
            b'+' => self.line(buf)?.map(|(text, len)| (Token::Simple(text), len)),
            b'-' => self.line(buf)?.map(|(text, len)| (Token::Error(text), len)),
            b':' => self.number(buf, Number::Integer)?.map(|(n, len)| (Token::Int(n), len)),
            b'$' => self.bulk(buf)?,
            b'*' => self.array(buf)?,
            _ => return Err((0, Rule::Type)),
        };
        match found {
            Some((_, len)) if !self.fits_reply(len) => Err((0, Rule::ReplyTooLong)),
            found => Ok(found),
        }
    }

    fn fits_reply(&self, len: usize) -> bool {
        self.offset - self.reply_start + len as u64 <= self.limits.reply
    }

    #[inline]
    fn line<'b>(&mut self, buf: &'b [u8]) -> Result<Option<(&'b [u8], usize)>, Fault> {
        let from = self.partial.scanned.max(1);
        let over = 1 + self.limits.line;
        let window = &buf[from..buf.len().min(over + 1)];
        let Some(found) = line_break(window) else {
            self.partial.scanned = from + window.len();
            return if buf.len() > over { Err((over, Rule::LineTooLong)) } else { Ok(None) };
        };
        let end = from + found;
        if buf[end] == b'\n' {
            return Err((end, Rule::BareLf));
        }
        self.partial.scanned = end;
        match buf.get(end + 1) {
            Some(b'\n') => Ok(Some((&buf[1..end], end + 2))),
            Some(_) => Err((end + 1, Rule::BareCr)),
            None => Ok(None),
        }
    }

    #[inline]
    fn bulk<'b>(&mut self, buf: &'b [u8]) -> Result<Option<(Token<'b>, usize)>, Fault> {
        let (start, len) = match self.partial.bulk {
            Some(known) => known,
            None => match self.number(buf, Number::BulkLength)? {
                None => return Ok(None),
                Some((-1, header)) => return Ok(Some((Token::NilBulk, header))),
                Some((len, header)) => {
                    // Within `Limits::bulk`, a usize.
                    let len = len as usize;
                    if !self.fits_reply(header + len + 2) {
                        return Err((0, Rule::ReplyTooLong));
                    }
                    self.partial.bulk = Some((header, len));
                    (header, len)
                }
            },
        };
        let end = start + len;
        match (buf.get(end), buf.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => Ok(Some((Token::Bulk(&buf[start..end]), end + 2))),
            (Some(b'\r') | None, None) => Ok(None),
            (Some(b'\r'), Some(_)) => Err((end + 1, Rule::BulkEnd)),
            _ => Err((end, Rule::BulkEnd)),
        }
    }

    #[inline]
    fn array<'b>(&mut self, buf: &'b [u8]) -> Result<Option<(Token<'b>, usize)>, Fault> {
        if self.depth >= self.limits.depth {
            return Err((0, Rule::TooDeep));
        }
        Ok(self.number(buf, Number::ArrayLength)?.map(|(n, len)| match u32::try_from(n) {
            Ok(n) => (Token::Array(n), len),
            Err(_) => (Token::NilArray, len),
        }))
    }

    /// The number behind the type byte, and where its line ends.
    #[inline]
    fn number(&mut self, buf: &[u8], kind: Number) -> Result<Option<(i64, usize)>, Fault> {
        let Partial { scanned, mut magnitude, mut negative, .. } = self.partial;
        let mut at = scanned.max(1);
        while let Some(&byte) = buf.get(at) {
            let digits_from = 1 + usize::from(matches!(buf[1], b'-' | b'+'));
            match byte {
                b'0'..=b'9' => {
                    let digit = u64::from(byte - b'0');
                    if at == digits_from {
                        if negative && digit == 0 {
                            return Err((at, Rule::NegativeZero));
                        }
                    } else if magnitude == 0 {
                        return Err((at, Rule::LeadingZero));
                    }
                    let (most, rule) = self.most(kind, negative);
                    magnitude = match magnitude.checked_mul(10).map(|m| m.checked_add(digit)) {
                        Some(Some(next)) if next <= most => next,
                        _ => return Err((at, rule)),
                    };
                }
                b'\r' if at > digits_from => {
                    return match buf.get(at + 1) {
                        Some(b'\n') => Ok(Some((signed(magnitude, negative), at + 2))),
                        Some(_) => Err((at + 1, Rule::BareCr)),
                        None => {
                            self.partial = Partial { scanned: at, magnitude, negative, bulk: None };
                            Ok(None)
                        }
                    };
                }
                b'-' if at == 1 => negative = true,
                b'+' if at == 1 && kind == Number::Integer => {}
                _ => return Err((at, Rule::Digit)),
            }
            at += 1;
        }
        self.partial = Partial { scanned: at, magnitude, negative, bulk: None };
        Ok(None)
    }

    /// The largest magnitude that a number may have, and the rule that a larger one breaks.
    #[inline]
    fn most(&self, kind: Number, negative: bool) -> (u64, Rule) {
        match (kind, negative) {
            (Number::Integer, false) => (i64::MAX as u64, Rule::Range),
            (Number::Integer, true) => (i64::MIN.unsigned_abs(), Rule::Range),
            (_, true) => (1, Rule::NegativeLength),
            (Number::BulkLength, false) => (self.limits.bulk as u64, Rule::BulkTooLong),
            (Number::ArrayLength, false) => (self.elements_left.into(), Rule::TooManyElements),
        }
    }

    /// Moves past a complete token, and past every array that it completes.
    #[inline]
    fn advance(&mut self, token: Token<'_>, len: usize) {
        self.offset += len as u64;
        self.partial = Partial::default();
        if let Token::Array(n @ 1..) = token {
            self.elements_left -= n;
            self.open[self.depth] = n;
            self.depth += 1;
            return;
        }
        while let Some(innermost) = self.open[..self.depth].last_mut() {
            *innermost -= 1;
            if *innermost > 0 {
                return;
            }
            self.depth -= 1;
        }
        self.reply_start = self.offset;
        self.elements_left = self.limits.elements;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    ArrayLength,
    BulkLength,
    Integer,
}

/// `magnitude` is at most 2^63 with a minus and 2^63 - 1 without one.
fn signed(magnitude: u64, negative: bool) -> i64 {
    if negative { 0i64.wrapping_sub_unsigned(magnitude) } else { magnitude as i64 }
}

/// Where the first CR or LF stands. Most lines are a few bytes long, and for them a loop beats
/// the set-up of a vector search.
#[inline]
fn line_break(bytes: &[u8]) -> Option<usize> {
    let (head, tail) = bytes.split_at(bytes.len().min(SHORT_LINE));
    if let Some(found) = head.iter().position(|&b| b == b'\r' || b == b'\n') {
        return Some(found);
    }
    memchr::memchr2(b'\r', b'\n', tail).map(|found| head.len() + found)
}

/// Up to here a line is searched byte by byte.
const SHORT_LINE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a whole stream decodes to, fed in pieces of `step` bytes.
    fn decode(stream: &[u8], step: usize, limits: Limits) -> (Vec<String>, Option<Violation>) {
        let mut decoder = Decoder::new(limits);
        let (mut at, mut seen, mut tokens) = (0, 0, Vec::new());
        loop {
            match decoder.next(&stream[at..seen]) {
                Ok(Some((token, len))) => {
                    tokens.push(format!("{token:?}"));
                    at += len;
                }
                Ok(None) if seen == stream.len() => return (tokens, None),
                Ok(None) => seen = (seen + step).min(stream.len()),
                Err(violation) => return (tokens, Some(violation)),
            }
        }
    }

    fn violation(stream: &[u8]) -> (u64, Rule) {
        let limits = Limits { bulk: 99, depth: 2, elements: 9, line: 9, reply: 120 };
        let (_, whole) = decode(stream, stream.len(), limits);
        let (_, trickled) = decode(stream, 1, limits);
        assert_eq!(whole, trickled, "the cut must not matter");
        let found = whole.expect("a violation");
        (found.offset, found.rule)
    }

    #[test]
    fn every_type_in_one_piece_and_byte_by_byte() {
        let stream = b"+OK\r\n-ERR no\r\n:0\r\n:-9223372036854775808\r\n:9223372036854775807\r\n\
            $0\r\n\r\n$4\r\n\r\n\0\xff\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*1\r\n:+5\r\n+\r\n";
        let limits = Limits::default();
        let (whole, none) = decode(stream, stream.len(), limits);
        assert_eq!(none, None);
        assert_eq!(whole.len(), 14);
        assert_eq!(whole[4], "Int(9223372036854775807)");
        for step in 1..20 {
            assert_eq!(decode(stream, step, limits), (whole.clone(), None));
        }
    }

    #[test]
    fn violations_name_the_byte_and_the_rule() {
        assert_eq!(violation(b"+OK\n"), (3, Rule::BareLf));
        assert_eq!(violation(b"+OK\rX"), (4, Rule::BareCr));
        assert_eq!(violation(b":1\rX"), (3, Rule::BareCr));
        assert_eq!(violation(b"+0123456789\r\n"), (10, Rule::LineTooLong));
        assert_eq!(violation(b":\r\n"), (1, Rule::Digit));
        assert_eq!(violation(b":-\r\n"), (2, Rule::Digit));
        assert_eq!(violation(b":1-\r\n"), (2, Rule::Digit));
        assert_eq!(violation(b":--1\r\n"), (2, Rule::Digit));
        assert_eq!(violation(b":007\r\n"), (2, Rule::LeadingZero));
        assert_eq!(violation(b":-0\r\n"), (2, Rule::NegativeZero));
        assert_eq!(violation(b":9223372036854775808\r\n"), (19, Rule::Range));
        assert_eq!(violation(b":-9223372036854775809\r\n"), (20, Rule::Range));
        assert_eq!(violation(b":99999999999999999999999\r\n"), (20 - 1, Rule::Range));
        assert_eq!(violation(b"$+5\r\n"), (1, Rule::Digit));
        assert_eq!(violation(b"$-2\r\n"), (2, Rule::NegativeLength));
        assert_eq!(violation(b"*-11\r\n"), (3, Rule::NegativeLength));
        assert_eq!(violation(b"$100\r\n"), (3, Rule::BulkTooLong));
        assert_eq!(violation(b"$1\r\nab\r\n"), (5, Rule::BulkEnd));
        assert_eq!(violation(b"$1\r\na\rb"), (6, Rule::BulkEnd));
        assert_eq!(violation(b"*1\r\n*1\r\n*0\r\n"), (8, Rule::TooDeep));
        assert_eq!(violation(b"*9\r\n*1\r\n"), (5, Rule::TooManyElements));
        assert_eq!(
            violation(b"*2\r\n$30\r\n012345678901234567890123456789\r\n$80\r\n"),
            (41, Rule::ReplyTooLong)
        );
        assert_eq!(violation(b"%1\r\n"), (0, Rule::Type));
    }

    #[test]
    fn a_violation_sticks() {
        let mut decoder = Decoder::new(Limits::default());
        let first = decoder.next(b"?").unwrap_err();
        assert_eq!(decoder.next(b"+OK\r\n"), Err(first));
    }

    #[test]
    fn limits_hold_at_their_value() {
        let limits = Limits { bulk: 3, depth: 1, elements: 2, line: 3, reply: 18 };
        assert_eq!(decode(b"*2\r\n+abc\r\n$1\r\na\r\n", 1, limits).1.map(|v| v.rule), None);
        assert_eq!(
            decode(b"*2\r\n+abc\r\n$3\r\nabc\r\n", 1, limits).1.map(|v| v.rule),
            Some(Rule::ReplyTooLong)
        );
    }
}
