//! Replies, encoded in RESP2. Unlike the library's [`Frame`](redbolt::resp::Frame), which has to be
//! built before it is written, a command here writes its reply as it goes.

use std::fmt;

/// Writes replies to the end of a buffer.
pub(crate) struct Reply<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Reply<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Writes a simple string.
    pub(crate) fn status(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes a simple string of any bytes except line ends.
    pub(crate) fn status_line(&mut self, line: &[u8]) {
        self.line(b'+', line);
    }

    /// Writes a simple string of a word and a number.
    pub(crate) fn status_and(&mut self, word: &str, number: i64) {
        self.out.push(b'+');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b' ');
        self.number(number);
    }

    /// Writes an integer.
    pub(crate) fn int(&mut self, value: i64) {
        self.out.push(b':');
        self.number(value);
    }

    /// Writes a bulk string.
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a nil bulk string.
    pub(crate) fn nil(&mut self) {
        self.line(b'$', b"-1");
    }

    /// Writes the head of an array; its elements follow.
    pub(crate) fn array(&mut self, length: usize) {
        self.head(b'*', length);
    }

    /// Writes an error. It may quote a client's words, so line breaks become spaces.
    pub(crate) fn error(&mut self, text: &[u8]) {
        let clean = |&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        self.out.push(b'-');
        self.out.extend(text.iter().map(clean));
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, value: i64) {
        if value < 0 {
            self.out.push(b'-');
        }
        decimal(self.out, value.unsigned_abs());
        self.out.extend_from_slice(b"\r\n");
    }

    fn head(&mut self, kind: u8, length: usize) {
        self.out.push(kind);
        decimal(self.out, length as u64);
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a number. `format!` takes several times as long, and most replies have a number.
pub(crate) fn decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    while value >= 10 {
        // Two digits at a time: long divisions depend on one another.
        let pair = (value % 100) as u8;
        value /= 100;
        first -= 2;
        digits[first] = b'0' + pair / 10;
        digits[first + 1] = b'0' + pair % 10;
    }
    if value > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[first..]);
}

/// Omits the replies, which may contain tokens.
impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_all_their_digits() {
        for value in [0, 7, 10, 99, 100, 101, 1_005, 1_234_567_890, u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
        let mut out = Vec::new();
        Reply::new(&mut out).int(i64::MIN);
        assert_eq!(out, b":-9223372036854775808\r\n");
    }

    #[test]
    fn each_kind_in_its_wire_form() {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out);
        reply.array(7);
        reply.status("OK");
        reply.status_and("OK", -7);
        reply.int(-2);
        reply.bulk(b"a\r\nb");
        reply.bulk(b"");
        reply.nil();
        reply.error(b"ERR a\r\nb");
        assert_eq!(
            out,
            b"*7\r\n+OK\r\n+OK -7\r\n:-2\r\n$4\r\na\r\nb\r\n$0\r\n\r\n$-1\r\n-ERR a  b\r\n"
        );
    }
}
