//! The canonical text: one line per token, then a line for an incomplete or invalid end.
//!
//! The vectors are written in it, and the library's `examples/resp_dump.rs` prints it with separate
//! code; the head of that file defines it. Packs quote their streams in the same way. The oracle
//! does not use this module, so that it stays free of formatting.

use std::fmt::Write as _;

use redbolt::resp::Token;

use crate::{Decoded, End};

/// Returns the canonical text of a decoded stream of `len` bytes.
#[must_use]
pub fn render(decoded: &Decoded<'_>, len: usize) -> String {
    let mut out = String::new();
    for (depth, token) in &decoded.tokens {
        out.push_str(&"  ".repeat(*depth));
        out.push_str(&line(token));
        out.push('\n');
    }
    match decoded.end {
        End::Complete => {}
        End::Incomplete => out.push_str(&format!("incomplete {len}\n")),
        End::Violation(v) => out.push_str(&format!("violation {} {}\n", v.offset, v.rule.name())),
    }
    out
}

fn line(token: &Token<'_>) -> String {
    match token {
        Token::Array(elements) => format!("array {elements}"),
        Token::Bulk(payload) => format!("bulk {} {}", payload.len(), quoted(payload)),
        Token::Error(text) => format!("error {} {}", text.len(), quoted(text)),
        Token::Int(value) => format!("int {value}"),
        Token::NilArray => "nil-array".into(),
        Token::NilBulk => "nil-bulk".into(),
        Token::Simple(text) => format!("simple {} {}", text.len(), quoted(text)),
    }
}

/// Returns bytes in quotation marks: printable characters stand for themselves, `\r`, `\n`, `\t`,
/// `\"` and `\\` are escaped, and everything else is written as `\x00`.
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => write!(out, "\\x{byte:02x}").expect("a String takes everything"),
        }
    }
    out.push('"');
    out
}

/// Parses the output of [`quoted`] at the beginning of `text`. Returns the bytes and the rest of
/// the text.
#[must_use]
pub fn unquoted(text: &str) -> Option<(Vec<u8>, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    loop {
        let at = rest.find(['"', '\\'])?;
        bytes.extend(rest[..at].bytes());
        if let Some(behind) = rest[at..].strip_prefix('"') {
            return Some((bytes, behind));
        }
        let escape = &rest[at + 1..];
        let (byte, len) = match escape.bytes().next()? {
            b'r' => (b'\r', 1),
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'x' => (hex(escape.get(1..3)?)?, 3),
            mark @ (b'"' | b'\\') => (mark, 1),
            _ => return None,
        };
        bytes.push(byte);
        rest = &escape[len..];
    }
}

fn hex(digits: &str) -> Option<u8> {
    // The parser would also accept a sign.
    let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| all)
}
