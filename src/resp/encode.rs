//! The encoder: commands as arrays of bulk strings.
//!
//! Invariant: every argument is preceded by its length in bytes, so that CR, LF and NUL in it are
//! payload and never syntax. Inline commands, in which they would be syntax, cannot be encoded.
//! Replies are encoded by [`Frame::encode`](super::Frame::encode).

use bytes::BufMut;

/// Begins a command of `args` arguments, including its name, at the end of `out`.
///
/// Exactly that many arguments must follow, which debug builds check.
///
/// ```
/// use redbolt::resp::command;
///
/// let mut out = Vec::new();
/// command(&mut out, 3).arg(b"SET").arg(b"a\r\nb").int(7);
/// assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$1\r\n7\r\n");
/// ```
///
/// # Panics
///
/// If `out` is full and cannot grow. A `Vec` and a `BytesMut` grow, a slice does not.
#[inline]
pub fn command<B: BufMut + ?Sized>(out: &mut B, args: usize) -> CommandEncoder<'_, B> {
    match args {
        // Commands of locks have fewer than ten arguments as a rule.
        0..10 => out.put_slice(&[b'*', b'0' + args as u8]),
        _ => put_decimal(out, b"*", args as u64),
    }
    if args == 0 {
        out.put_slice(b"\r\n");
    }
    CommandEncoder { out, missing: args }
}

/// An encoder for the arguments of one command, returned by [`command`].
///
/// The end of a line is written together with the length of the next argument: one append instead
/// of two.
#[derive(Debug)]
pub struct CommandEncoder<'o, B: BufMut + ?Sized> {
    out: &'o mut B,
    missing: usize,
}

impl<B: BufMut + ?Sized> CommandEncoder<'_, B> {
    /// Appends an argument of any bytes.
    #[inline]
    pub fn arg(mut self, bytes: &[u8]) -> Self {
        self.begin(bytes.len());
        self.out.put_slice(bytes);
        self.end();
        self
    }

    /// Appends an argument that consists of two parts.
    pub fn prefixed(mut self, prefix: &[u8], rest: &[u8]) -> Self {
        self.begin(prefix.len() + rest.len());
        self.out.put_slice(prefix);
        self.out.put_slice(rest);
        self.end();
        self
    }

    /// Appends `count` encoded arguments. They begin with the end of the previous line, and their
    /// last line has no end.
    #[inline]
    pub(crate) fn encoded(mut self, args: &'static [u8], count: usize) -> Self {
        debug_assert!(self.missing >= count, "a command got more arguments than it announced");
        self.missing = self.missing.wrapping_sub(count);
        self.out.put_slice(args);
        self.end();
        self
    }

    /// Appends a number in decimal digits.
    #[inline]
    pub fn int(self, value: u64) -> Self {
        let mut digits = [0; 20];
        let from = decimal(value, &mut digits);
        self.arg(&digits[from..])
    }

    /// Ends the previous line, and begins an argument of `length` bytes.
    #[inline]
    fn begin(&mut self, length: usize) {
        // With another number of arguments the server would misread this command and all that
        // follow.
        debug_assert!(self.missing > 0, "a command got more arguments than it announced");
        self.missing = self.missing.wrapping_sub(1);
        // Appends of constant length are cheap. The names and most values of lock commands need no
        // other.
        match (LENGTHS.get(length), length < 10) {
            (Some(line), true) => self.out.put_slice(&line[..6]),
            (Some(line), false) => self.out.put_slice(line),
            (None, _) => {
                put_decimal(self.out, b"\r\n$", length as u64);
                self.out.put_slice(b"\r\n");
            }
        }
    }

    /// Ends the last line if no argument is missing.
    #[inline]
    fn end(&mut self) {
        if self.missing == 0 {
            self.out.put_slice(b"\r\n");
        }
    }
}

impl CommandEncoder<'_, Vec<u8>> {
    /// Returns the position in the output of the argument that was appended last.
    pub(crate) fn last(&self, argument: &[u8]) -> usize {
        let end = if self.missing == 0 { b"\r\n".len() } else { 0 };
        self.out.len() - argument.len() - end
    }
}

impl<B: BufMut + ?Sized> Drop for CommandEncoder<'_, B> {
    fn drop(&mut self) {
        // The server would wait for the missing arguments, and take the next command for them.
        debug_assert!(
            self.missing == 0 || std::thread::panicking(),
            "a command got fewer arguments than it announced"
        );
    }
}

#[inline]
pub(super) fn header(out: &mut (impl BufMut + ?Sized), kind: u8, value: u64) {
    put_decimal(out, &[kind], value);
    out.put_slice(b"\r\n");
}

fn put_decimal(out: &mut (impl BufMut + ?Sized), before: &[u8], value: u64) {
    let mut digits = [0; 20];
    let from = decimal(value, &mut digits);
    out.put_slice(before);
    out.put_slice(&digits[from..]);
}

/// Writes `value` to the end of `digits`, and returns the index of its first digit.
#[inline]
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> usize {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return at;
        }
    }
}

/// The line that precedes an argument of each length. The last byte is unused for one digit.
static LENGTHS: [[u8; 7]; 100] = {
    let mut lines = [*b"\r\n$0\r\n "; 100];
    let mut length = 0;
    while length < lines.len() {
        let (tens, ones) = (b'0' + length as u8 / 10, b'0' + length as u8 % 10);
        lines[length] = match length {
            0..10 => [b'\r', b'\n', b'$', ones, b'\r', b'\n', b' '],
            _ => [b'\r', b'\n', b'$', tens, ones, b'\r', b'\n'],
        };
        length += 1;
    }
    lines
};

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    #[test]
    fn numbers_of_every_length() {
        let mut value = 1u64;
        for _ in 0..20 {
            let mut out = Vec::new();
            command(&mut out, 1).int(value);
            let text = value.to_string();
            assert_eq!(out, format!("*1\r\n${}\r\n{text}\r\n", text.len()).into_bytes());
            value = value.saturating_mul(10);
        }
    }

    #[test]
    fn every_kind_of_buffer_gets_the_same_bytes() {
        let mut vec = Vec::new();
        command(&mut vec, 3).arg(b"SET").prefixed(b"fence:", b"job").int(123);
        let mut bytes = BytesMut::new();
        command(&mut bytes, 3).arg(b"SET").prefixed(b"fence:", b"job").int(123);
        assert_eq!(bytes, vec);
        let mut array = [0; 64];
        let mut rest = &mut array[..];
        let out: &mut dyn BufMut = &mut rest;
        command(out, 3).arg(b"SET").prefixed(b"fence:", b"job").int(123);
        let left = rest.len();
        assert_eq!(array[..64 - left], vec);
    }

    #[test]
    #[should_panic(expected = "fewer arguments")]
    fn a_missing_argument_is_noticed() {
        drop(command(&mut Vec::new(), 2).arg(b"GET"));
    }
}
