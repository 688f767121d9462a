//! The oracle: a second RESP2 decoder, simple enough to be checked by reading.
//!
//! It gets the whole stream in one slice, recurses into arrays, looks at one byte at a time and
//! keeps no state between calls. It specifies the decoder, which may do none of that. The two share
//! the types of the result, and no code.

use redbolt::resp::{Limits, MAX_DEPTH, Rule, Token, Violation};

use crate::{Decoded, End};

/// Decodes the whole of `stream`.
#[must_use]
pub fn decode<'b>(stream: &'b [u8], limits: &Limits) -> Decoded<'b> {
    let mut oracle = Oracle { stream, limits, tokens: Vec::new(), reply_start: 0, elements: 0 };
    let mut at = 0;
    let end = loop {
        if at == stream.len() {
            break End::Complete;
        }
        oracle.reply_start = at;
        oracle.elements = 0;
        match oracle.element(at, 0) {
            Ok(next) => at = next,
            Err(Stop::OutOfBytes) => break End::Incomplete,
            Err(Stop::Broken(at, rule)) => {
                break End::Violation(Violation { offset: at as u64, rule });
            }
        }
    };
    Decoded { tokens: oracle.tokens, end }
}

struct Oracle<'b, 'l> {
    stream: &'b [u8],
    limits: &'l Limits,
    tokens: Vec<(usize, Token<'b>)>,
    reply_start: usize,
    /// The number of elements that the arrays of this reply have announced.
    elements: u64,
}

enum Stop {
    OutOfBytes,
    Broken(usize, Rule),
}

/// Parsers, each of which takes the offset of its beginning and returns that of its end.
impl<'b> Oracle<'b, '_> {
    fn byte(&self, at: usize) -> Result<u8, Stop> {
        self.stream.get(at).copied().ok_or(Stop::OutOfBytes)
    }

    fn element(&mut self, start: usize, depth: usize) -> Result<usize, Stop> {
        match self.byte(start)? {
            b'+' | b'-' => self.line(start, depth),
            b':' => self.integer(start, depth),
            b'$' => self.bulk(start, depth),
            b'*' if depth < self.limits.depth.min(MAX_DEPTH) => self.array(start, depth),
            b'*' => Err(Stop::Broken(start, Rule::TooDeep)),
            _ => Err(Stop::Broken(start, Rule::Type)),
        }
    }

    /// Adds a complete token, which counts if the reply may be this long.
    fn push(
        &mut self,
        start: usize,
        end: usize,
        depth: usize,
        token: Token<'b>,
    ) -> Result<(), Stop> {
        self.fits(start, end)?;
        self.tokens.push((depth, token));
        Ok(())
    }

    fn fits(&self, start: usize, end: usize) -> Result<(), Stop> {
        if (end - self.reply_start) as u64 > self.limits.reply {
            return Err(Stop::Broken(start, Rule::ReplyTooLong));
        }
        Ok(())
    }

    fn line(&mut self, start: usize, depth: usize) -> Result<usize, Stop> {
        let text = start + 1;
        let mut at = text;
        loop {
            match self.byte(at)? {
                b'\n' => return Err(Stop::Broken(at, Rule::BareLf)),
                b'\r' => break,
                _ if at - text == self.limits.line => {
                    return Err(Stop::Broken(at, Rule::LineTooLong));
                }
                _ => at += 1,
            }
        }
        let end = self.line_end(at, Rule::BareCr)?;
        let payload = &self.stream[text..at];
        let error = self.stream[start] == b'-';
        let token = if error { Token::Error(payload) } else { Token::Simple(payload) };
        self.push(start, end, depth, token)?;
        Ok(end)
    }

    fn integer(&mut self, start: usize, depth: usize) -> Result<usize, Stop> {
        let (least, most) = (i64::MIN.into(), i64::MAX.into());
        let (value, end) = self.number(start + 1, (least, Rule::Range), (most, Rule::Range))?;
        let value = i64::try_from(value).expect("the number is within the given bounds");
        self.push(start, end, depth, Token::Int(value))?;
        Ok(end)
    }

    fn bulk(&mut self, start: usize, depth: usize) -> Result<usize, Stop> {
        let most = (self.limits.bulk as i128, Rule::BulkTooLong);
        let (len, payload) = self.length(start + 1, most)?;
        if len == -1 {
            self.push(start, payload, depth, Token::NilBulk)?;
            return Ok(payload);
        }
        let cr = payload
            + usize::try_from(len).expect("the length is not negative, and within a usize limit");
        self.fits(start, cr + 2)?;
        if self.byte(cr)? != b'\r' {
            return Err(Stop::Broken(cr, Rule::BulkEnd));
        }
        let end = self.line_end(cr, Rule::BulkEnd)?;
        self.push(start, end, depth, Token::Bulk(&self.stream[payload..cr]))?;
        Ok(end)
    }

    fn array(&mut self, start: usize, depth: usize) -> Result<usize, Stop> {
        let left = u64::from(self.limits.elements) - self.elements;
        let (len, mut at) = self.length(start + 1, (left.into(), Rule::TooManyElements))?;
        if len == -1 {
            self.push(start, at, depth, Token::NilArray)?;
            return Ok(at);
        }
        let len = u32::try_from(len).expect("the length is not negative, and within a u32 limit");
        self.push(start, at, depth, Token::Array(len))?;
        self.elements += u64::from(len);
        for _ in 0..len {
            at = self.element(at, depth + 1)?;
        }
        Ok(at)
    }

    /// Parses a number whose only permitted sign is that of `-1`.
    fn length(&self, at: usize, most: (i128, Rule)) -> Result<(i128, usize), Stop> {
        if self.byte(at)? == b'+' {
            return Err(Stop::Broken(at, Rule::Digit));
        }
        self.number(at, (-1, Rule::NegativeLength), most)
    }

    /// Parses a number, with the rules that are broken below `least` and above `most`.
    fn number(
        &self,
        start: usize,
        (least, below): (i128, Rule),
        (most, above): (i128, Rule),
    ) -> Result<(i128, usize), Stop> {
        let sign = self.byte(start)?;
        let digits = if matches!(sign, b'+' | b'-') { start + 1 } else { start };
        let mut value = 0;
        let mut at = digits;
        loop {
            let byte = self.byte(at)?;
            match byte {
                b'\r' if at > digits => return Ok((value, self.line_end(at, Rule::BareCr)?)),
                b'0' if at == digits && sign == b'-' => {
                    return Err(Stop::Broken(at, Rule::NegativeZero));
                }
                b'0'..=b'9' if at > digits && value == 0 => {
                    return Err(Stop::Broken(at, Rule::LeadingZero));
                }
                b'0'..=b'9' => {
                    let digit = i128::from(byte - b'0');
                    value = value * 10 + if sign == b'-' { -digit } else { digit };
                }
                _ => return Err(Stop::Broken(at, Rule::Digit)),
            }
            if value < least {
                return Err(Stop::Broken(at, below));
            }
            if value > most {
                return Err(Stop::Broken(at, above));
            }
            at += 1;
        }
    }

    /// Checks for the LF after the CR at `cr`.
    fn line_end(&self, cr: usize, rule: Rule) -> Result<usize, Stop> {
        if self.byte(cr + 1)? == b'\n' { Ok(cr + 2) } else { Err(Stop::Broken(cr + 1, rule)) }
    }
}
