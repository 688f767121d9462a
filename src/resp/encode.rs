//! The encoder: commands as arrays of bulk strings, and nothing else.
//!
//! Every argument carries its length in bytes, so CR, LF and NUL inside one are payload, never
//! syntax. Inline commands, where they would be syntax, cannot be written with it.

/// Begins a command of `args` arguments, its name included, at the end of `out`.
///
/// Exactly that many arguments must follow (checked in debug builds).
///
/// ```
/// use redbolt::resp::command;
///
/// let mut out = Vec::new();
/// command(&mut out, 3).arg(b"SET").arg(b"a\r\nb").int(7);
/// assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$1\r\n7\r\n");
/// ```
#[inline]
pub fn command(out: &mut Vec<u8>, args: usize) -> CommandEncoder<'_> {
    header(out, b'*', args as u64);
    CommandEncoder { out, missing: args }
}

/// Takes the arguments of one command. Made by [`command`].
#[derive(Debug)]
pub struct CommandEncoder<'o> {
    out: &'o mut Vec<u8>,
    missing: usize,
}

impl CommandEncoder<'_> {
    /// Appends an argument of any bytes.
    #[inline]
    pub fn arg(mut self, bytes: &[u8]) -> Self {
        self.count();
        header(self.out, b'$', bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends an argument that is made of two parts.
    pub fn prefixed(mut self, prefix: &[u8], rest: &[u8]) -> Self {
        self.count();
        header(self.out, b'$', (prefix.len() + rest.len()) as u64);
        self.out.extend_from_slice(prefix);
        self.out.extend_from_slice(rest);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends a number in decimal digits.
    #[inline]
    pub fn int(self, value: u64) -> Self {
        let mut digits = [0; 20];
        let from = decimal(value, &mut digits);
        self.arg(&digits[from..])
    }

    /// Where in the output the argument is that was appended last.
    pub(crate) fn last(&self, argument: &[u8]) -> usize {
        self.out.len() - argument.len() - b"\r\n".len()
    }

    fn count(&mut self) {
        debug_assert!(self.missing > 0, "a command got more arguments than it announced");
        self.missing = self.missing.wrapping_sub(1);
    }
}

impl Drop for CommandEncoder<'_> {
    fn drop(&mut self) {
        debug_assert!(
            self.missing == 0 || std::thread::panicking(),
            "a command got fewer arguments than it announced"
        );
    }
}

/// A type byte, a number, CR LF.
#[inline]
fn header(out: &mut Vec<u8>, kind: u8, value: u64) {
    // Appends of constant length are cheap, and no argument of a lock command needs the third.
    if value < 10 {
        out.extend_from_slice(&[kind, b'0' + value as u8, b'\r', b'\n']);
        return;
    }
    if value < 100 {
        let (tens, ones) = (value as u8 / 10, value as u8 % 10);
        out.extend_from_slice(&[kind, b'0' + tens, b'0' + ones, b'\r', b'\n']);
        return;
    }
    let mut digits = [0; 20];
    let from = decimal(value, &mut digits);
    out.push(kind);
    out.extend_from_slice(&digits[from..]);
    out.extend_from_slice(b"\r\n");
}

/// Writes `value` to the end of `digits` and returns where it begins.
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

#[cfg(test)]
mod tests {
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
    #[should_panic(expected = "fewer arguments")]
    fn a_missing_argument_is_noticed() {
        drop(command(&mut Vec::new(), 2).arg(b"GET"));
    }
}
