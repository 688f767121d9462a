//! Decodes a RESP2 stream from standard input, one line per element.
//!
//! ```text
//! $ printf 'PING\r\nHGETALL h\r\n' | nc -q 1 127.0.0.1 6379 | cargo run -q --example resp_dump
//! simple 4 "PONG"
//! array 2
//!   bulk 5 "field"
//!   bulk 3 "a\r\n"
//! ```
//!
//! The output is canonical: two outputs are equal if and only if the streams are.
//!
//! ```text
//! line    = indent (text | "int " value | "array " elements | "nil-bulk" | "nil-array") LF
//! indent  = two spaces for each array around the element
//! text    = ("simple " | "error " | "bulk ") bytes " " DQUOTE payload DQUOTE
//! payload = printable ASCII as it is, but \" \\ \r \n \t, and \xhh for every other byte
//! ```
//!
//! Values and counts are decimal. The elements of an array follow its line, each one level
//! deeper; an array ends when it has as many as it announced.
//!
//! Exit status: 0 at the end of a stream of complete replies. 1 if the stream breaks a rule or
//! ends inside a reply; the last line on standard error is then one of
//!
//! ```text
//! violation OFFSET RULE: explanation        the rules are the variants of `redbolt::resp::Rule`
//! incomplete OFFSET: explanation            the length of the stream
//! ```
//!
//! and standard output has every element before that. 2 if reading, writing or the command
//! line fails.
//!
//! `--bulk N`, `--depth N`, `--elements N`, `--line N` and `--reply N` set the limits of
//! `redbolt::resp::Limits`. A stream of any length needs no more memory than one element within
//! them, and a reply is printed as it arrives.

use std::env;
use std::error::Error;
use std::io::{self, BufWriter, Read, Write};
use std::process::ExitCode;

use redbolt::resp::{Decoder, Limits, Token};

fn main() -> ExitCode {
    let outcome = limits(env::args().skip(1))
        .and_then(|limits| Ok(dump(io::stdin().lock(), BufWriter::new(io::stdout()), limits)?));
    match outcome {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(complaint)) => {
            eprintln!("{complaint}");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("resp_dump: {error}");
            ExitCode::from(2)
        }
    }
}

fn limits(mut args: impl Iterator<Item = String>) -> Result<Limits, Box<dyn Error>> {
    let mut limits = Limits::default();
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} takes a number"))?;
        match name.as_str() {
            "--bulk" => limits.bulk = value.parse()?,
            "--depth" => limits.depth = value.parse()?,
            "--elements" => limits.elements = value.parse()?,
            "--line" => limits.line = value.parse()?,
            "--reply" => limits.reply = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(limits)
}

/// Prints the stream, and returns the error at its end, if any.
fn dump(
    mut input: impl Read,
    mut output: impl Write,
    limits: Limits,
) -> io::Result<Option<String>> {
    let mut decoder = Decoder::new(limits);
    let mut window = Window::default();
    loop {
        let depth = decoder.depth();
        match decoder.next(window.bytes()) {
            Ok(Some((token, len))) => {
                write_line(&mut output, depth, &token)?;
                window.consume(len);
            }
            Ok(None) => {
                output.flush()?;
                if window.fill(&mut input)? == 0 {
                    return Ok(end(&decoder, window.bytes()));
                }
            }
            Err(violation) => {
                output.flush()?;
                let (offset, rule) = (violation.offset, violation.rule);
                return Ok(Some(format!("violation {offset} {}: {rule}", rule.name())));
            }
        }
    }
}

fn end(decoder: &Decoder, unread: &[u8]) -> Option<String> {
    let len = decoder.offset() + unread.len() as u64;
    let complete = decoder.depth() == 0 && unread.is_empty();
    (!complete).then(|| format!("incomplete {len}: the stream ends inside a reply"))
}

fn write_line(output: &mut impl Write, depth: usize, token: &Token<'_>) -> io::Result<()> {
    for _ in 0..depth {
        output.write_all(b"  ")?;
    }
    match *token {
        Token::Array(elements) => writeln!(output, "array {elements}"),
        Token::Bulk(payload) => write_text(output, "bulk", payload),
        Token::Error(text) => write_text(output, "error", text),
        Token::Int(value) => writeln!(output, "int {value}"),
        Token::NilArray => writeln!(output, "nil-array"),
        Token::NilBulk => writeln!(output, "nil-bulk"),
        Token::Simple(text) => write_text(output, "simple", text),
    }
}

fn write_text(output: &mut impl Write, kind: &str, payload: &[u8]) -> io::Result<()> {
    write!(output, "{kind} {} \"", payload.len())?;
    for &byte in payload {
        match byte {
            b'"' | b'\\' => output.write_all(&[b'\\', byte])?,
            b'\r' => output.write_all(b"\\r")?,
            b'\n' => output.write_all(b"\\n")?,
            b'\t' => output.write_all(b"\\t")?,
            b' '..=b'~' => output.write_all(&[byte])?,
            _ => write!(output, "\\x{byte:02x}")?,
        }
    }
    output.write_all(b"\"\n")
}

/// The part of the stream in memory: at most one element and one read.
#[derive(Default)]
struct Window {
    buffer: Vec<u8>,
    consumed: usize,
}

impl Window {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.consumed..]
    }

    fn consume(&mut self, len: usize) {
        self.consumed += len;
    }

    /// Reads once, and returns the number of bytes; zero is the end of the stream.
    fn fill(&mut self, input: &mut impl Read) -> io::Result<usize> {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        let held = self.buffer.len();
        self.buffer.resize(held + READ, 0);
        let read = loop {
            match input.read(&mut self.buffer[held..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(held + *read.as_ref().unwrap_or(&0));
        read
    }
}

const READ: usize = 1 << 16;
