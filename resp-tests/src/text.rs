//! The canonical text: one line per token, then one for the end if it is not a complete one.
//!
//! The vectors are written in it and `examples/resp_dump.rs` of the library prints it, from its
//! own code; the head of that file defines it. Apart from the oracle, so that the oracle stays
//! free of formatting.

use std::fmt::Write as _;

use redbolt::resp::Token;

use crate::{Decoded, End};

/// The canonical text of a decoded stream of `len` bytes.
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

fn quoted(bytes: &[u8]) -> String {
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
