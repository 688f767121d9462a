//! The decoder: bytes in, borrowed tokens out.
//!
//! The caller keeps the bytes. [`Decoder::next`] returns the first token of the unconsumed bytes
//! and its length, or `None` if more bytes are needed. It keeps its position in an incomplete
//! token, so that input in small pieces costs no more than in one piece. An array is a token with
//! the number of elements that follow, and each element is a separate token: there is no tree, no
//! recursion and no allocation.
//!
//! Invariant: a violation is reported at the first byte that no valid stream can have there,
//! however the stream was cut into reads. A reply over its limit is reported once the length of the
//! token that ends past the limit is known.
//!
//! The *short cut* recognises tokens that are complete and well formed, which nearly all are. All
//! others take the *long way*, which has the rules and keeps the state of a token between calls.
//! Without the short cut a scalar costs twice as much.

use super::limits::{Limits, MAX_DEPTH};
use super::violation::{Rule, Violation};

/// An element of a RESP2 stream. Payloads borrow the buffer given to [`Decoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "RESP2 has no others")]
pub enum Token<'b> {
    /// `*`: the beginning of an array with this many elements, which are the next tokens. A nested
    /// array is followed by its own elements. `Array(0)` is complete.
    Array(u32),
    /// `$`: a string of any bytes.
    Bulk(&'b [u8]),
    /// `-`: the text of an error.
    Error(&'b [u8]),
    /// `:`: an integer.
    Int(i64),
    /// `*-1`: a null array.
    NilArray,
    /// `$-1`: a null string.
    NilBulk,
    /// `+`: a line of text.
    Simple(&'b [u8]),
}

/// An incremental RESP2 decoder. See the [module](super) for an example.
///
/// Two decoders are equal if they return the same results for all further input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoder {
    limits: Limits,
    progress: Progress,
    /// The stream offset of the first unconsumed byte.
    offset: u64,
    /// The stream offset of the open reply. Stale between replies.
    reply_start: u64,
    /// The number of elements that the arrays of the open reply may still announce. Stale between
    /// replies.
    elements_left: u32,
    /// The number of missing elements of the innermost open array.
    missing: u32,
    depth: usize,
    /// For each open array, the outermost first, the value of `missing` when it was opened.
    around: [u32; MAX_DEPTH],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Fresh,
    Inside(Partial),
    /// A rule was broken, so nothing that follows can be trusted.
    Broken(Violation),
}

/// The state of a token that is not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Partial {
    /// The number of bytes of the token that need not be read again.
    scanned: usize,
    magnitude: u64,
    negative: bool,
    /// The start of a bulk string's payload, once its header is complete.
    payload: Option<usize>,
}

type Found<'b> = (Token<'b>, usize);

/// A broken rule, and its offset from the first unconsumed byte.
type Fault = (usize, Rule);

impl Decoder {
    /// Returns a decoder at the start of a stream.
    ///
    /// Limits beyond the decoder's maximum are lowered: [`Limits::depth`] to [`MAX_DEPTH`], and
    /// [`Limits::bulk`] and [`Limits::line`] to a quarter of the address space.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            // Larger values could overflow sums, or the array of open arrays.
            limits: Limits {
                bulk: limits.bulk.min(LONGEST_PAYLOAD),
                depth: limits.depth.min(MAX_DEPTH),
                line: limits.line.min(LONGEST_PAYLOAD),
                ..limits
            },
            progress: Progress::Fresh,
            offset: 0,
            reply_start: 0,
            elements_left: 0,
            missing: 0,
            depth: 0,
            around: [0; MAX_DEPTH],
        }
    }

    /// Returns the first token of `buf` and its length, or `None` if more bytes are needed.
    ///
    /// After `Some((_, len))` the next `buf` must begin `len` bytes later. After `None` it must
    /// begin at the same byte and have more bytes. At most [`Limits::buffered`] bytes are ever
    /// needed.
    ///
    /// # Errors
    ///
    /// The first broken rule ends the stream: every later call returns the same violation.
    #[inline]
    pub fn next<'b>(&mut self, buf: &'b [u8]) -> Result<Option<(Token<'b>, usize)>, Violation> {
        // The short cut needs no state: it only takes tokens that are complete.
        if self.progress == Progress::Fresh {
            let Some((&kind, rest)) = buf.split_first() else { return Ok(None) };
            if let Some((token, len)) = self.whole(kind, rest) {
                self.advance(token, len);
                return Ok(Some((token, len)));
            }
        }
        self.step(buf)
    }

    /// Returns the number of consumed bytes of the stream.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of open arrays, which is zero between replies.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Moves past a complete token, and past every array that it completes.
    #[inline(always)]
    fn advance(&mut self, token: Token<'_>, len: usize) {
        let start = self.offset;
        self.offset += len as u64;
        if let Token::Array(elements @ 1..) = token {
            self.open(elements, start);
        } else if self.depth > 0 {
            self.missing -= 1;
            if self.missing == 0 {
                self.close();
            }
        }
    }

    #[inline(always)]
    fn open(&mut self, elements: u32, start: u64) {
        if self.depth == 0 {
            self.reply_start = start;
            self.elements_left = self.limits.elements;
        }
        // Counted over the whole reply, because nesting would multiply a limit for each array.
        self.elements_left -= elements;
        self.around[self.depth] = self.missing;
        self.missing = elements;
        self.depth += 1;
    }

    fn close(&mut self) {
        while self.missing == 0 {
            self.depth -= 1;
            if self.depth == 0 {
                return;
            }
            self.missing = self.around[self.depth] - 1;
        }
    }

    /// Returns whether the reply may have `len` more bytes.
    #[inline(always)]
    fn fits_reply(&self, len: usize) -> bool {
        let before = if self.depth > 0 { self.offset - self.reply_start } else { 0 };
        before + len as u64 <= self.limits.reply
    }

    #[inline(always)]
    fn announceable(&self) -> u32 {
        if self.depth > 0 { self.elements_left } else { self.limits.elements }
    }
}

/// The short cut for tokens that are complete and break no rule.
///
/// `None` means that the long way must decide, and never that a rule is broken. Every function is
/// inlined by force: when the compiler inlined only some of them, `:1` cost half as much again.
impl Decoder {
    #[inline(always)]
    fn whole<'b>(&self, kind: u8, rest: &'b [u8]) -> Option<Found<'b>> {
        let (token, len) = match (kind, rest) {
            // The reply that grants a lock.
            (b'+', [b'O', b'K', b'\r', b'\n', ..]) if self.limits.line >= 2 => {
                Some((Token::Simple(&rest[..2]), 4))
            }
            (b'+', _) => self.whole_line(rest).map(|(text, len)| (Token::Simple(text), len)),
            (b'-', _) => self.whole_line(rest).map(|(text, len)| (Token::Error(text), len)),
            (b':', _) => whole_integer(rest).map(|(value, len)| (Token::Int(value), len)),
            (b'$', [b'-', b'1', b'\r', b'\n', ..]) => Some((Token::NilBulk, 4)),
            (b'$', _) => self.whole_bulk(rest),
            (b'*', _) => self.whole_array(rest),
            _ => None,
        }?;
        self.fits_reply(1 + len).then_some((token, 1 + len))
    }

    #[inline(always)]
    fn whole_line<'b>(&self, rest: &'b [u8]) -> Option<(&'b [u8], usize)> {
        let end = line_break(rest)?;
        let whole = end <= self.limits.line && rest[end..].starts_with(b"\r\n");
        whole.then(|| (&rest[..end], end + 2))
    }

    #[inline(always)]
    fn whole_bulk<'b>(&self, rest: &'b [u8]) -> Option<Found<'b>> {
        let (len, header) = whole_number(rest)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= self.limits.bulk)?;
        let (payload, behind) = rest[header..].split_at_checked(len)?;
        behind.starts_with(b"\r\n").then_some((Token::Bulk(payload), header + len + 2))
    }

    #[inline(always)]
    fn whole_array<'b>(&self, rest: &'b [u8]) -> Option<Found<'b>> {
        let (elements, header) = whole_number(rest)?;
        let elements = u32::try_from(elements).ok()?;
        let allowed = self.depth < self.limits.depth && elements <= self.announceable();
        allowed.then_some((Token::Array(elements), header))
    }
}

/// Reads a number that has too few digits to be out of range. Returns it with the length of its
/// line.
#[inline(always)]
fn whole_number(rest: &[u8]) -> Option<(i64, usize)> {
    // Most lengths and numbers in the replies to lock commands have one digit.
    if let [digit @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return Some((i64::from(digit - b'0'), 3));
    }
    whole_digits(rest, 0, 0)
}

/// Reads an integer, faster if it has many digits: the restart guard's TTL has twelve.
#[inline(always)]
fn whole_integer(rest: &[u8]) -> Option<(i64, usize)> {
    match eight_digits(rest) {
        Some(value) => whole_digits(rest, value, 8),
        None => whole_number(rest),
    }
}

/// Reads the digits after the first `digits`, whose value is `value`.
#[inline(always)]
fn whole_digits(rest: &[u8], mut value: i64, mut digits: usize) -> Option<(i64, usize)> {
    while let Some(digit @ 0..=9) = rest.get(digits).map(|byte| byte.wrapping_sub(b'0')) {
        // More digits might overflow, which the long way checks.
        if digits == SAFE_DIGITS {
            return None;
        }
        value = value * 10 + i64::from(digit);
        digits += 1;
    }
    let canonical = digits == 1 || digits > 1 && rest[0] != b'0';
    (canonical && rest[digits..].starts_with(b"\r\n")).then_some((value, digits + 2))
}

/// Returns the number in the first eight bytes, if all are digits. One word holds them: its bytes
/// are combined into pairs, pairs into fours, and fours into the number.
#[inline]
fn eight_digits(rest: &[u8]) -> Option<i64> {
    let bytes = u64::from_le_bytes(*rest.first_chunk()?);
    let digits = bytes ^ 0x3030_3030_3030_3030;
    // A byte above nine has its highest bit set, or gets it from the addition.
    let strange = (digits | digits.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080;
    if strange != 0 {
        return None;
    }
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let eight = (fours * 10_000 + (fours >> 32)) & 0xffff_ffff;
    Some(eight as i64)
}

/// The long way, for tokens that arrive in pieces, with all rules.
impl Decoder {
    #[inline(never)]
    fn step<'b>(&mut self, buf: &'b [u8]) -> Result<Option<Found<'b>>, Violation> {
        let mut partial = match self.progress {
            Progress::Fresh => Partial::default(),
            Progress::Inside(partial) => partial,
            // The position of the next token is unknown, so the stream cannot be resumed.
            Progress::Broken(violation) => return Err(violation),
        };
        let Some(&kind) = buf.first() else { return Ok(None) };
        match self.token(kind, buf, &mut partial) {
            Ok(Some((token, len))) => {
                self.progress = Progress::Fresh;
                self.advance(token, len);
                Ok(Some((token, len)))
            }
            Ok(None) => {
                self.progress = Progress::Inside(partial);
                Ok(None)
            }
            Err((at, rule)) => {
                let violation = Violation { offset: self.offset + at as u64, rule };
                self.progress = Progress::Broken(violation);
                Err(violation)
            }
        }
    }

    fn token<'b>(
        &self,
        kind: u8,
        buf: &'b [u8],
        partial: &mut Partial,
    ) -> Result<Option<Found<'b>>, Fault> {
        let found = match kind {
            b'+' => self.line(buf, partial)?.map(|(text, len)| (Token::Simple(text), len)),
            b'-' => self.line(buf, partial)?.map(|(text, len)| (Token::Error(text), len)),
            b':' => {
                self.number(buf, Number::Integer, partial)?.map(|(n, len)| (Token::Int(n), len))
            }
            b'$' => self.bulk(buf, partial)?,
            b'*' => self.array(buf, partial)?,
            _ => return Err((0, Rule::Type)),
        };
        match found {
            Some((_, len)) if !self.fits_reply(len) => Err((0, Rule::ReplyTooLong)),
            found => Ok(found),
        }
    }

    fn line<'b>(
        &self,
        buf: &'b [u8],
        partial: &mut Partial,
    ) -> Result<Option<(&'b [u8], usize)>, Fault> {
        let from = partial.scanned.max(1);
        let over = 1 + self.limits.line;
        // One byte past the limit is enough to reject a line without an end.
        let window = &buf[from..buf.len().min(over + 1)];
        let Some(found) = line_break(window) else {
            partial.scanned = from + window.len();
            return if buf.len() > over { Err((over, Rule::LineTooLong)) } else { Ok(None) };
        };
        let end = from + found;
        if buf[end] == b'\n' {
            return Err((end, Rule::BareLf));
        }
        partial.scanned = end;
        match buf.get(end + 1) {
            Some(b'\n') => Ok(Some((&buf[1..end], end + 2))),
            Some(_) => Err((end + 1, Rule::BareCr)),
            None => Ok(None),
        }
    }

    fn bulk<'b>(&self, buf: &'b [u8], partial: &mut Partial) -> Result<Option<Found<'b>>, Fault> {
        let start = match partial.payload {
            Some(known) => known,
            None => match self.number(buf, Number::BulkLength, partial)? {
                None => return Ok(None),
                Some((-1, header)) => return Ok(Some((Token::NilBulk, header))),
                Some((len, header)) => {
                    // Rejected by the header, before the caller buffers the payload.
                    if !self.fits_reply(header + len as usize + 2) {
                        return Err((0, Rule::ReplyTooLong));
                    }
                    *partial.payload.insert(header)
                }
            },
        };
        // It fits: the length is at most `Limits::bulk`, a usize.
        let end = start + partial.magnitude as usize;
        // The payload is not searched, so CR LF inside it is data.
        match (buf.get(end), buf.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => Ok(Some((Token::Bulk(&buf[start..end]), end + 2))),
            (Some(b'\r') | None, None) => Ok(None),
            (Some(b'\r'), Some(_)) => Err((end + 1, Rule::BulkEnd)),
            _ => Err((end, Rule::BulkEnd)),
        }
    }

    fn array<'b>(&self, buf: &'b [u8], partial: &mut Partial) -> Result<Option<Found<'b>>, Fault> {
        // Decided by the type byte alone, so an empty or a null array is too deep as well.
        if self.depth >= self.limits.depth {
            return Err((0, Rule::TooDeep));
        }
        let number = self.number(buf, Number::ArrayLength, partial)?;
        Ok(number.map(|(n, len)| match u32::try_from(n) {
            Ok(n) => (Token::Array(n), len),
            // `number` lets no negative length pass but -1.
            Err(_) => (Token::NilArray, len),
        }))
    }

    /// Reads the number after the type byte. Returns it with the end of its line.
    fn number(
        &self,
        buf: &[u8],
        kind: Number,
        partial: &mut Partial,
    ) -> Result<Option<(i64, usize)>, Fault> {
        let mut at = partial.scanned.max(1);
        while let Some(&byte) = buf.get(at) {
            let digits_from = 1 + usize::from(matches!(buf[1], b'-' | b'+'));
            match byte {
                b'0'..=b'9' => self
                    .digit(byte - b'0', at - digits_from, kind, partial)
                    .map_err(|rule| (at, rule))?,
                b'\r' if at > digits_from => {
                    partial.scanned = at;
                    return match buf.get(at + 1) {
                        Some(b'\n') => Ok(Some((partial.signed(), at + 2))),
                        Some(_) => Err((at + 1, Rule::BareCr)),
                        None => Ok(None),
                    };
                }
                b'-' if at == 1 => partial.negative = true,
                // The protocol page allows a plus sign for integers only.
                b'+' if at == 1 && kind == Number::Integer => {}
                _ => return Err((at, Rule::Digit)),
            }
            at += 1;
        }
        partial.scanned = at;
        Ok(None)
    }

    /// Adds a digit, the `place`th from the left, counted from 0.
    fn digit(
        &self,
        digit: u8,
        place: usize,
        kind: Number,
        partial: &mut Partial,
    ) -> Result<(), Rule> {
        match (place, digit) {
            // Each number has one spelling: one that Redis never writes is a sign of another peer.
            (0, 0) if partial.negative => return Err(Rule::NegativeZero),
            (1.., _) if partial.magnitude == 0 => return Err(Rule::LeadingZero),
            _ => {}
        }
        let (most, rule) = self.most(kind, partial.negative);
        // The magnitude is at most 2^63, and ten times that fits into 128 bits but not into 64.
        let magnitude = u128::from(partial.magnitude) * 10 + u128::from(digit);
        partial.magnitude =
            u64::try_from(magnitude).ok().filter(|next| *next <= most).ok_or(rule)?;
        Ok(())
    }

    /// Returns the largest magnitude of a number, and the rule that a larger one breaks.
    fn most(&self, kind: Number, negative: bool) -> (u64, Rule) {
        match (kind, negative) {
            (Number::Integer, false) => (i64::MAX as u64, Rule::Range),
            (Number::Integer, true) => (i64::MIN.unsigned_abs(), Rule::Range),
            (_, true) => (1, Rule::NegativeLength),
            (Number::BulkLength, false) => (self.limits.bulk as u64, Rule::BulkTooLong),
            (Number::ArrayLength, false) => (self.announceable().into(), Rule::TooManyElements),
        }
    }
}

impl Partial {
    /// Returns the number. `digit` limits its magnitude to 2^63 with a minus sign, else to 2^63 -
    /// 1.
    fn signed(&self) -> i64 {
        if self.negative {
            0i64.wrapping_sub_unsigned(self.magnitude)
        } else {
            self.magnitude as i64
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    ArrayLength,
    BulkLength,
    Integer,
}

/// Returns the position of the first CR or LF. Most lines are errors, which are long enough for a
/// vector search; the short cut has already handled `+OK`.
#[inline]
fn line_break(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\r', b'\n', bytes)
}

/// The maximum length of a payload. No slice is as long, and sums with it do not overflow.
const LONGEST_PAYLOAD: usize = isize::MAX as usize / 2;

/// The number of digits that always fit into an `i64`.
const SAFE_DIGITS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte in each place: these are all the ways in which a word can be wrong.
    #[test]
    fn eight_digits_are_a_number_and_nothing_else_is() {
        for at in 0..8 {
            for byte in 0..=u8::MAX {
                for fill in *b"0159" {
                    let mut word = [fill; 8];
                    word[at] = byte;
                    let number = byte.is_ascii_digit().then(|| {
                        word.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
                    });
                    assert_eq!(eight_digits(&word), number, "{word:?}");
                }
            }
        }
        assert_eq!(eight_digits(b"1234567"), None);
        assert_eq!(eight_digits(b"12345678\r\n"), Some(12_345_678));
    }

    /// Decodes a whole stream that arrives in pieces of `step` bytes.
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
    fn limits_beyond_the_maximum_are_safe() {
        let limits = Limits {
            bulk: usize::MAX,
            depth: usize::MAX,
            elements: u32::MAX,
            line: usize::MAX,
            reply: u64::MAX,
        };
        for announced in ["18446744073709551615", "18446744073709551614", "9223372036854775807"] {
            let stream = format!("${announced}\r\n");
            let found = decode(stream.as_bytes(), 1, limits).1;
            assert_eq!(found.map(|v| v.rule), Some(Rule::BulkTooLong), "{announced}");
        }
        let (tokens, none) = decode(b"*4294967295\r\n+a\r\n:1", 1, limits);
        assert_eq!((tokens.len(), none), (2, None));
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
