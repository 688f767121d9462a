//! The decoder compared with the parsers that people would otherwise use: hiredis, redis,
//! redis-protocol.
//!
//! Each parser accepts a stream as whole replies, waits for more, or rejects it. If the decoder
//! accepts a stream, the others must find the same replies. Disagreements about other streams are
//! in the table `DISAGREEMENTS.md`, with the reasons. This test generates the table (set
//! `WRITE_DISAGREEMENTS` to write it) and fails if it is out of date.
//!
//! Vectors with limits other than the default are left out, because the others have no such limits.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs};

use redbolt::resp::{Limits, Rule, Token};
use redis::{Parser, Value};
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use resp_tests::case::{self, Case};
use resp_tests::{End, feed, recorded};

use crate::report;

#[test]
fn recorded_replies_are_the_same_to_all_parsers() {
    let hiredis = recorded_verdicts();
    let mut streams = 0;
    for (name, stream) in recorded::read() {
        let expected = ours(&stream);
        assert!(matches!(expected, Verdict::Accepts(_)), "{name}");
        assert_eq!(verdict(&hiredis, "recorded", &name), expected, "{name} by hiredis");
        assert_eq!(redis(&stream), expected, "{name} by redis");
        assert_eq!(redis_protocol(&stream), expected, "{name} by redis-protocol");
        streams += 1;
    }
    report(&format!("{streams} recorded streams are the same to 3 other parsers"));
}

#[test]
fn every_disagreement_on_a_vector_is_in_the_table() {
    let hiredis = recorded_verdicts();
    let mut rows = String::new();
    let (mut agreed, mut disagreed) = (0, 0);
    for vector in case::vectors().iter().filter(|vector| vector.set_limits.is_empty()) {
        let expected = ours(&vector.stream);
        let theirs = [
            verdict(&hiredis, "vectors", &vector.name),
            redis(&vector.stream),
            redis_protocol(&vector.stream),
        ];
        if theirs.iter().all(|verdict| *verdict == expected) {
            agreed += 1;
            continue;
        }
        disagreed += 1;
        write!(rows, "| {} | {}", vector.name, expected.word()).unwrap();
        for verdict in theirs {
            write!(rows, " | {}", if verdict == expected { "" } else { verdict.word() }).unwrap();
        }
        writeln!(rows, " | {} |", reason(vector)).unwrap();
    }
    compare_with_table(&rows);
    report(&format!("{agreed} vectors are the same to 3 other parsers, {disagreed} in the table"));
}

/// Returns the reason why our verdict is right.
fn reason(vector: &Case) -> &'static str {
    let rule = match feed::decode(&vector.stream, &Limits::default(), []).end {
        End::Violation(violation) => violation.rule,
        End::Incomplete => panic!("a parser does not wait for more: {}", vector.name),
        End::Complete => return reason_to_accept(&vector.name),
    };
    match rule {
        Rule::BareCr | Rule::BareLf => {
            "lines end with CR LF, and a simple string holds neither CR nor LF"
        }
        Rule::BulkEnd => "CR LF stands right behind as many bytes as were announced",
        Rule::BulkTooLong | Rule::TooDeep | Rule::TooManyElements => {
            "our limit, decided before anything is held; the others wait for what was announced"
        }
        Rule::Digit => "numbers consist of digits; a length has no sign",
        Rule::LeadingZero | Rule::NegativeZero => {
            "our choice: one spelling for each number, the one that servers write"
        }
        Rule::NegativeLength => "the only negative length is -1, nil",
        Rule::Range => "an integer has 64 bits and a sign",
        Rule::Type => "no reply of RESP2 begins with this byte",
        other => panic!("no reason is known for {other:?}"),
    }
}

/// Returns the reasons for the few valid vectors that another parser reads differently, by name.
fn reason_to_accept(name: &str) -> &'static str {
    match name {
        "error/high-bytes" | "simple/nul-and-high-bytes" => {
            "the specification does not say that lines are UTF-8"
        }
        "integer/plus-max" | "integer/plus-sign" | "integer/plus-zero" => {
            "the specification lets an integer begin with a plus sign"
        }
        other => panic!("a parser reads {other} differently"),
    }
}

fn compare_with_table(rows: &str) {
    let path = case::here("DISAGREEMENTS.md");
    let made = format!("{HEAD}{rows}");
    if env::var_os("WRITE_DISAGREEMENTS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    for (made, committed) in made.lines().zip(committed.lines()) {
        assert_eq!(made, committed, "DISAGREEMENTS.md is out of date");
    }
    assert_eq!(made.len(), committed.len(), "DISAGREEMENTS.md is out of date");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The stream is whole replies, with this digest.
    Accepts(u64),
    Rejects,
    Waits,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Accepts(_) => "accepts",
            Self::Rejects => "rejects",
            Self::Waits => "waits",
        }
    }
}

/// The digest that `hiredis/verdicts.c` computes.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn line(&mut self, depth: usize, kind: &str, number: i64) {
        self.add(format!("{depth} {kind} {number}\n").as_bytes());
    }

    fn text(&mut self, depth: usize, kind: &str, text: &[u8]) {
        self.line(depth, kind, i64::try_from(text.len()).unwrap());
        self.add(text);
        self.add(b"\n");
    }

    fn array(&mut self, depth: usize, elements: usize) {
        self.line(depth, "array", i64::try_from(elements).unwrap());
    }
}

fn ours(stream: &[u8]) -> Verdict {
    let decoded = feed::decode(stream, &Limits::default(), []);
    let mut digest = Digest::new();
    for (depth, token) in decoded.tokens {
        match token {
            Token::Array(elements) => digest.array(depth, elements as usize),
            Token::Bulk(payload) => digest.text(depth, "bulk", payload),
            Token::Error(text) => digest.text(depth, "error", text),
            Token::Int(value) => digest.line(depth, "int", value),
            Token::NilArray | Token::NilBulk => digest.line(depth, "nil", 0),
            Token::Simple(text) => digest.text(depth, "simple", text),
        }
    }
    match decoded.end {
        End::Complete => Verdict::Accepts(digest.0),
        End::Incomplete => Verdict::Waits,
        End::Violation(_) => Verdict::Rejects,
    }
}

/// Returns hiredis's verdict on a stream.
fn verdict(hiredis: &BTreeMap<String, Verdict>, folder: &str, name: &str) -> Verdict {
    let verdict = hiredis.get(&format!("{folder}/{name}.resp"));
    *verdict.unwrap_or_else(|| panic!("no verdict of hiredis on {name}, see verdicts.c"))
}

/// Returns the verdicts in `hiredis/verdicts.txt`.
fn recorded_verdicts() -> BTreeMap<String, Verdict> {
    let text = fs::read_to_string(case::here("hiredis/verdicts.txt")).unwrap();
    let verdict = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let verdict = match words[1] {
            "accepts" => Verdict::Accepts(u64::from_str_radix(words[2], 16).unwrap()),
            "rejects" => Verdict::Rejects,
            "waits" => Verdict::Waits,
            other => panic!("unknown verdict: {other}"),
        };
        (words[0].to_owned(), verdict)
    };
    text.lines().filter(|line| !line.starts_with('#')).map(verdict).collect()
}

fn redis_protocol(stream: &[u8]) -> Verdict {
    let mut digest = Digest::new();
    let mut at = 0;
    while at < stream.len() {
        match decode_range(&stream[at..]) {
            Ok(Some((frame, len))) => {
                add_frame(&mut digest, &frame, &stream[at..], 0);
                at += len;
            }
            Ok(None) => return Verdict::Waits,
            Err(_) => return Verdict::Rejects,
        }
    }
    Verdict::Accepts(digest.0)
}

fn add_frame(digest: &mut Digest, frame: &RangeFrame, stream: &[u8], depth: usize) {
    match frame {
        RangeFrame::Array(frames) => {
            digest.array(depth, frames.len());
            frames.iter().for_each(|frame| add_frame(digest, frame, stream, depth + 1));
        }
        RangeFrame::BulkString(range) => digest.text(depth, "bulk", &stream[range.0..range.1]),
        RangeFrame::Error(range) => digest.text(depth, "error", &stream[range.0..range.1]),
        RangeFrame::Integer(value) => digest.line(depth, "int", *value),
        RangeFrame::Null => digest.line(depth, "nil", 0),
        RangeFrame::SimpleString(range) => digest.text(depth, "simple", &stream[range.0..range.1]),
    }
}

/// Returns redis's verdict. The parser reads ahead and does not report how far. Appending one more
/// reply shows whether the stream ends after a reply.
fn redis(stream: &[u8]) -> Verdict {
    let one_more = [stream, b"+one more\r\n"].concat();
    let last = Value::SimpleString("one more".into());
    match (redis_replies(stream), redis_replies(&one_more)) {
        ((_, Some(end)), _) => end,
        ((replies, None), (more, None)) if more == [&replies[..], &[last]].concat() => {
            let mut digest = Digest::new();
            replies.iter().for_each(|value| add_value(&mut digest, value, 0));
            Verdict::Accepts(digest.0)
        }
        _ => Verdict::Waits,
    }
}

/// Returns the replies up to the end of the stream, and the verdict that ended them earlier, if
/// any.
fn redis_replies(mut stream: &[u8]) -> (Vec<Value>, Option<Verdict>) {
    let (mut parser, mut replies) = (Parser::new(), Vec::new());
    loop {
        match parser.parse_value(&mut stream) {
            Ok(value) => replies.push(value),
            Err(error) if error.to_string().contains("end of file") => return (replies, None),
            Err(_) => return (replies, Some(Verdict::Rejects)),
        }
    }
}

fn add_value(digest: &mut Digest, value: &Value, depth: usize) {
    match value {
        Value::Array(values) => {
            digest.array(depth, values.len());
            values.iter().for_each(|value| add_value(digest, value, depth + 1));
        }
        Value::BulkString(bytes) => digest.text(depth, "bulk", bytes),
        Value::Int(value) => digest.line(depth, "int", *value),
        Value::Nil => digest.line(depth, "nil", 0),
        Value::Okay => digest.text(depth, "simple", b"OK"),
        Value::ServerError(error) => {
            let text = [Some(error.code()), error.details()].into_iter().flatten();
            digest.text(depth, "error", text.collect::<Vec<_>>().join(" ").as_bytes());
        }
        Value::SimpleString(text) => digest.text(depth, "simple", text.as_bytes()),
        resp3 => digest.text(depth, "resp3", format!("{resp3:?}").as_bytes()),
    }
}

const HEAD: &str = "\
# Where other parsers judge a vector differently

Made by `tests/it/differential.rs` of hiredis 0.14.1 (recorded), redis 1.8.1 and redis-protocol
6.0.0. An empty cell agrees with ours. On all recorded replies of real servers, and on every valid
vector that is not in this table, all four find the same replies.

| vector | ours | hiredis | redis | redis-protocol | why ours is right |
|---|---|---|---|---|---|
";
