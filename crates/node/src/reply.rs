//! Replies on their way out, in RESP2.
//!
//! Apart from the library's codec because that one writes commands and reads replies; a server
//! needs the other half.

use std::{fmt, io::Write};

/// Writes replies to the end of a buffer.
pub struct Reply<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Reply<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    /// A simple string.
    pub fn status(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// A simple string that is made of parts.
    pub fn status_of(&mut self, parts: fmt::Arguments<'_>) {
        self.out.push(b'+');
        // Writing to a vector never fails.
        let _ = self.out.write_fmt(parts);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub fn int(&mut self, value: i64) {
        self.line(b':', value.to_string().as_bytes());
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', bytes.len().to_string().as_bytes());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A nil bulk string.
    pub fn nil(&mut self) {
        self.line(b'$', b"-1");
    }

    /// The head of an array; its elements follow.
    pub fn array(&mut self, length: usize) {
        self.line(b'*', length.to_string().as_bytes());
    }

    /// An error. It may quote what a client sent, so line breaks become spaces.
    pub fn error(&mut self, text: &[u8]) {
        let clean: Vec<u8> = text
            .iter()
            .map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte })
            .collect();
        self.line(b'-', &clean);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Replies may hold tokens, and stay out of it.
impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_in_its_wire_form() {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out);
        reply.array(7);
        reply.status("OK");
        reply.status_of(format_args!("OK {}", 7));
        reply.int(-2);
        reply.bulk(b"a\r\nb");
        reply.bulk(b"");
        reply.nil();
        reply.error(b"ERR a\r\nb");
        assert_eq!(
            out,
            b"*7\r\n+OK\r\n+OK 7\r\n:-2\r\n$4\r\na\r\nb\r\n$0\r\n\r\n$-1\r\n-ERR a  b\r\n"
        );
    }
}
