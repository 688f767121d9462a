//! The codec benchmarks: shapes and contenders.
//!
//! A decoding contender decodes a stream of whole replies and sums up what it finds, so that no
//! work can be optimised away. An encoding contender appends one command to a reused buffer. The
//! floors are the least code that can do the job on trusted input.

use std::hint::black_box;
use std::io::{self, Read};

use bytes::BytesMut;
use redbolt::resp::{Decoder, Frame, FrameDecoder, Limits, Token, command};
use redis::{Parser, Value};
use redis_protocol::resp2::decode::{decode_bytes_mut, decode_range};
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, BytesFrame, RangeFrame};

/// A stream to decode.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The name of one of its replies.
    pub name: &'static str,
    /// The replies.
    pub stream: Vec<u8>,
    /// The number of replies.
    pub replies: usize,
    /// The length of the pieces in which the stream arrives.
    pub piece: usize,
}

/// A function that returns a decoder for a shape's stream, which sums up what it finds.
pub type Decode = fn(&Shape) -> Box<dyn FnMut() -> u64>;

/// The decoding contenders, the two floors first.
pub const DECODERS: &[(&str, Decode)] = &[
    ("byte loop", with_byte_loop),
    ("line, then bytes", with_line_loop),
    ("redbolt", with_redbolt),
    ("redbolt, frames", with_frames),
    ("memchr per line", with_memchr),
    ("redis-protocol, range", with_range),
    ("redis-protocol, bytes_mut", with_bytes_mut),
    ("redis", with_redis),
];

/// Returns all shapes, with the mixed pipeline also in pieces of 7 bytes.
#[must_use]
pub fn shapes() -> Vec<Shape> {
    let whole = |name, replies: Vec<Vec<u8>>| {
        let (stream, replies) = (replies.concat(), replies.len());
        Shape { name, piece: stream.len(), stream, replies }
    };
    let many = |name, reply: &[u8]| whole(name, vec![reply.to_vec(); 64]);
    let trickled = Shape { piece: 7, ..whole("64 mixed replies, 7 bytes at a time", mixed()) };
    let tens = b"*10000\r\n".iter().copied();
    let array = tens.chain(bulk(&[b'x'; 20]).repeat(10_000)).collect();
    vec![
        many("`+OK`", b"+OK\r\n"),
        Shape { piece: 5, ..many("`+OK`, one per read", b"+OK\r\n") },
        many("`:1`", b":1\r\n"),
        many("`:29998`", b":29998\r\n"),
        many("`$-1`", b"$-1\r\n"),
        many("bulk of 20 bytes", &bulk(&[b'x'; 20])),
        many("pub/sub message", &message()),
        whole("array of 10 000 bulks", vec![array]),
        whole("pipeline of 64 mixed replies", mixed()),
        trickled,
        many("line of 6 bytes", &simple(6)),
        many("line of 8 bytes", &simple(8)),
        many("line of 16 bytes", &simple(16)),
        many("line of 64 bytes", &simple(64)),
        many("line of 1024 bytes", &simple(1024)),
    ]
}

fn bulk(payload: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", payload.len()).as_bytes(), payload, b"\r\n"].concat()
}

fn simple(len: usize) -> Vec<u8> {
    [b"+", vec![b'x'; len].as_slice(), b"\r\n"].concat()
}

fn message() -> Vec<u8> {
    [b"*3\r\n".to_vec(), bulk(b"message"), bulk(b"locks:free"), bulk(b"job:4711")].concat()
}

/// Returns the replies that a lock client gets: grants, denials, TTLs, releases, tokens, errors,
/// lists.
fn mixed() -> Vec<Vec<u8>> {
    let of_eight = [
        b"+OK\r\n".to_vec(),
        b"$-1\r\n".to_vec(),
        b":29998\r\n".to_vec(),
        bulk(b"0123456789abcdef0123456789abcdef"),
        b":1\r\n".to_vec(),
        b"*2\r\n:1\r\n:1732132800123456\r\n".to_vec(),
        b"-NOSCRIPT No matching script. Please use EVAL.\r\n".to_vec(),
        message(),
    ];
    of_eight.iter().cycle().take(64).cloned().collect()
}

fn with_byte_loop(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    with_callback(shape, |bytes, sum| byte_loop(bytes, position_of_cr, |token| add(sum, token)))
}

fn with_line_loop(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    with_callback(shape, |bytes, sum| line_loop(bytes, position_of_cr, |token| add(sum, token)))
}

fn with_memchr(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    with_callback(shape, |bytes, sum| {
        line_loop(bytes, |bytes| memchr::memchr(b'\r', bytes), |token| add(sum, token))
    })
}

#[inline]
fn position_of_cr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\r')
}

fn with_callback(
    shape: &Shape,
    decode: impl Fn(&[u8], &mut u64) -> usize + 'static,
) -> Box<dyn FnMut() -> u64> {
    let shape = shape.clone();
    Box::new(move || {
        let (mut sum, mut at) = (0, 0);
        for arrived in shape.arrivals() {
            at += decode(&shape.stream[at..arrived], &mut sum);
        }
        sum
    })
}

/// Parses tokens, as a floor, and trusts that they are well formed and not too large. Returns the
/// length of the complete ones.
#[inline]
fn byte_loop(
    bytes: &[u8],
    find_cr: impl Fn(&[u8]) -> Option<usize>,
    mut found: impl FnMut(Token<'_>),
) -> usize {
    let mut at = 0;
    while let Some((&kind, rest)) = bytes[at..].split_first() {
        let token = match kind {
            b'+' => line(rest, &find_cr).map(|(text, len)| (Token::Simple(text), len)),
            b'-' => line(rest, &find_cr).map(|(text, len)| (Token::Error(text), len)),
            b':' => number(rest).map(|(value, len)| (Token::Int(value), len)),
            b'*' => number(rest).map(|(elements, len)| match elements {
                -1 => (Token::NilArray, len),
                _ => (Token::Array(elements as u32), len),
            }),
            _ => number(rest).and_then(|(len, header)| match len {
                -1 => Some((Token::NilBulk, header)),
                _ => {
                    let payload = rest.get(header..header + len as usize)?;
                    Some((Token::Bulk(payload), header + payload.len() + 2))
                }
            }),
        };
        match token {
            Some((token, len)) if len <= rest.len() => {
                found(token);
                at += 1 + len;
            }
            _ => break,
        }
    }
    at
}

#[inline]
fn line(rest: &[u8], find_cr: impl Fn(&[u8]) -> Option<usize>) -> Option<(&[u8], usize)> {
    let len = find_cr(rest)?;
    Some((&rest[..len], len + 2))
}

/// Returns a number up to the first byte that is not a digit, and the length of its line.
#[inline]
fn number(rest: &[u8]) -> Option<(i64, usize)> {
    let negative = *rest.first()? == b'-';
    let mut at = usize::from(negative);
    let mut value = 0;
    loop {
        match rest.get(at)?.wrapping_sub(b'0') {
            digit @ 0..=9 => value = value * 10 + i64::from(digit),
            _ => return Some((if negative { -value } else { value }, at + 2)),
        }
        at += 1;
    }
}

/// Finds the end of a line first and then reads the line, as the other floor, with the same trust.
#[inline]
fn line_loop(
    bytes: &[u8],
    find_cr: impl Fn(&[u8]) -> Option<usize>,
    mut found: impl FnMut(Token<'_>),
) -> usize {
    let mut at = 0;
    while let Some(&kind) = bytes.get(at) {
        let text = at + 1;
        let Some(len) = find_cr(&bytes[text..]) else { break };
        let (line, mut end) = (&bytes[text..text + len], text + len + 2);
        if end > bytes.len() {
            break;
        }
        found(match kind {
            b'+' => Token::Simple(line),
            b'-' => Token::Error(line),
            b':' => Token::Int(number_of(line)),
            b'*' if line == b"-1" => Token::NilArray,
            b'*' => Token::Array(number_of(line) as u32),
            _ if line == b"-1" => Token::NilBulk,
            _ => {
                let (payload, len) = (end, number_of(line) as usize);
                end += len + 2;
                if end > bytes.len() {
                    break;
                }
                Token::Bulk(&bytes[payload..payload + len])
            }
        });
        at = end;
    }
    at
}

#[inline]
fn number_of(digits: &[u8]) -> i64 {
    let (negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    if negative { -value } else { value }
}

fn with_redbolt(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    let shape = shape.clone();
    let mut decoder = Decoder::new(Limits::default());
    Box::new(move || {
        let (mut sum, mut at) = (0, 0);
        for arrived in shape.arrivals() {
            while let Some((token, len)) =
                decoder.next(&shape.stream[at..arrived]).expect("the stream is valid")
            {
                add(&mut sum, token);
                at += len;
            }
        }
        sum
    })
}

/// Decodes with frames. This decoder consumes its buffer, as [`with_bytes_mut`] does.
fn with_frames(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    let shape = shape.clone();
    let (mut decoder, mut buffer) = (FrameDecoder::new(Limits::default()), BytesMut::new());
    Box::new(move || {
        let (mut sum, mut seen) = (0, 0);
        for arrived in shape.arrivals() {
            buffer.extend_from_slice(&shape.stream[seen..arrived]);
            seen = arrived;
            while let Some(frame) = decoder.next(&mut buffer).expect("the stream is valid") {
                sum += sum_of_frame(&frame);
            }
        }
        sum
    })
}

fn sum_of_frame(frame: &Frame) -> u64 {
    match frame {
        Frame::Simple(bytes) | Frame::Error(bytes) | Frame::Bulk(bytes) => bytes.len() as u64,
        Frame::Int(value) => *value as u64,
        Frame::Array(frames) => frames.len() as u64 + frames.iter().map(sum_of_frame).sum::<u64>(),
        Frame::NilArray | Frame::NilBulk => 1,
    }
}

fn with_range(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    let shape = shape.clone();
    Box::new(move || {
        let (mut sum, mut at) = (0, 0);
        for arrived in shape.arrivals() {
            while let Some((frame, len)) =
                decode_range(&shape.stream[at..arrived]).expect("the stream is valid")
            {
                sum += sum_of_range(&frame);
                at += len;
            }
        }
        sum
    })
}

fn sum_of_range(frame: &RangeFrame) -> u64 {
    match frame {
        RangeFrame::SimpleString(range)
        | RangeFrame::Error(range)
        | RangeFrame::BulkString(range) => (range.1 - range.0) as u64,
        RangeFrame::Integer(value) => *value as u64,
        RangeFrame::Array(frames) => {
            frames.len() as u64 + frames.iter().map(sum_of_range).sum::<u64>()
        }
        RangeFrame::Null => 1,
    }
}

/// Decodes from a `BytesMut`. This decoder consumes its buffer, so refilling it is part of the
/// work, as reading a socket is.
fn with_bytes_mut(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    let shape = shape.clone();
    let mut buffer = BytesMut::new();
    Box::new(move || {
        let (mut sum, mut seen) = (0, 0);
        for arrived in shape.arrivals() {
            buffer.extend_from_slice(&shape.stream[seen..arrived]);
            seen = arrived;
            while let Some((frame, ..)) =
                decode_bytes_mut(&mut buffer).expect("the stream is valid")
            {
                sum += sum_of_bytes(&frame);
            }
        }
        sum
    })
}

fn sum_of_bytes(frame: &BytesFrame) -> u64 {
    match frame {
        BytesFrame::SimpleString(bytes) | BytesFrame::BulkString(bytes) => bytes.len() as u64,
        BytesFrame::Error(text) => text.len() as u64,
        BytesFrame::Integer(value) => *value as u64,
        BytesFrame::Array(frames) => {
            frames.len() as u64 + frames.iter().map(sum_of_bytes).sum::<u64>()
        }
        BytesFrame::Null => 1,
    }
}

/// Decodes with redis: one parser for all replies, like that of a connection.
fn with_redis(shape: &Shape) -> Box<dyn FnMut() -> u64> {
    let shape = shape.clone();
    let mut parser = Parser::new();
    Box::new(move || {
        let mut pieces = Pieces { bytes: &shape.stream, most: shape.piece };
        let value = |_| parser.parse_value(&mut pieces).expect("the stream is valid");
        (0..shape.replies).map(value).map(|value| sum_of_value(&value)).sum()
    })
}

fn sum_of_value(value: &Value) -> u64 {
    match value {
        Value::Array(values) => values.len() as u64 + values.iter().map(sum_of_value).sum::<u64>(),
        Value::BulkString(bytes) => bytes.len() as u64,
        Value::Int(value) => *value as u64,
        Value::Nil => 1,
        Value::Okay => 2,
        Value::ServerError(error) => error.code().len() as u64,
        Value::SimpleString(text) => text.len() as u64,
        other => unreachable!("not RESP2: {other:?}"),
    }
}

/// A socket that delivers at most this many bytes at a time.
struct Pieces<'b> {
    bytes: &'b [u8],
    most: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.most.min(buffer.len());
        self.bytes.read(&mut buffer[..most])
    }
}

impl Shape {
    /// Returns how much of the stream has arrived after each read.
    fn arrivals(&self) -> impl Iterator<Item = usize> {
        let len = self.stream.len();
        (1..=len.div_ceil(self.piece)).map(move |pieces| (pieces * self.piece).min(len))
    }
}

#[inline]
fn add(sum: &mut u64, token: Token<'_>) {
    *sum = sum.wrapping_add(match token {
        Token::Array(elements) => elements.into(),
        Token::Bulk(bytes) | Token::Error(bytes) | Token::Simple(bytes) => bytes.len() as u64,
        Token::Int(value) => value as u64,
        Token::NilArray | Token::NilBulk => 1,
    });
}

/// A command to encode.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// A lock request: `SET key token NX PX ttl`.
    Set,
    /// An extension: `EVALSHA` with one key and two arguments.
    Evalsha,
}

/// A function that returns an encoder, which appends a command to a reused buffer and returns its
/// length.
pub type Encode = fn(Command) -> Box<dyn FnMut() -> usize>;

/// The encoding contenders, the floor first.
pub const ENCODERS: &[(&str, Encode)] = &[
    ("appends by hand", by_hand),
    ("redbolt", encode_redbolt),
    ("one copy of encoded bytes", one_copy),
    ("redis-protocol", encode_redis_protocol),
    ("redis", encode_redis),
];

/// The arguments, which vary from call to call.
#[derive(Clone, Copy)]
struct Inputs {
    key: &'static [u8],
    token: &'static [u8],
    sha: &'static [u8],
    ttl: u64,
}

/// Returns the inputs. `black_box` hides them, or the compiler would encode them itself.
fn inputs() -> Inputs {
    black_box(Inputs {
        key: b"orders:4711",
        token: b"0123456789abcdef0123456789abcdef",
        sha: b"c5d8ec71e9a0b8a1d3d5f0a2f5e9b8a1d3d5f0a2",
        ttl: 29_998,
    })
}

/// Appends, as a floor, the command piece by piece, with the constant pieces joined and only the
/// lengths and numbers formatted.
fn by_hand(command: Command) -> Box<dyn FnMut() -> usize> {
    into_reused(move |out| {
        let Inputs { key, token, sha, ttl } = inputs();
        match command {
            Command::Set => {
                out.extend_from_slice(b"*6\r\n$3\r\nSET\r\n$");
                append_counted(out, key);
                out.extend_from_slice(b"\r\n$");
                append_counted(out, token);
                out.extend_from_slice(b"\r\n$2\r\nNX\r\n$2\r\nPX\r\n$");
            }
            Command::Evalsha => {
                out.extend_from_slice(b"*6\r\n$7\r\nEVALSHA\r\n$");
                append_counted(out, sha);
                out.extend_from_slice(b"\r\n$1\r\n1\r\n$");
                append_counted(out, key);
                out.extend_from_slice(b"\r\n$");
                append_counted(out, token);
                out.extend_from_slice(b"\r\n$");
            }
        }
        let mut digits = [0; 20];
        append_counted(out, decimal(ttl, &mut digits));
        out.extend_from_slice(b"\r\n");
    })
}

#[inline]
fn append_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut digits = [0; 20];
    out.extend_from_slice(decimal(bytes.len() as u64, &mut digits));
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
}

#[inline]
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[at..];
        }
    }
}

fn encode_redbolt(name: Command) -> Box<dyn FnMut() -> usize> {
    into_reused(move |out| {
        let Inputs { key, token, sha, ttl } = inputs();
        match name {
            Command::Set => {
                command(out, 6).arg(b"SET").arg(key).arg(token).arg(b"NX").arg(b"PX").int(ttl);
            }
            Command::Evalsha => {
                command(out, 6).arg(b"EVALSHA").arg(sha).arg(b"1").arg(key).arg(token).int(ttl);
            }
        }
    })
}

/// Copies bytes that are already encoded, which no encoder can do.
fn one_copy(name: Command) -> Box<dyn FnMut() -> usize> {
    let mut encoded = Vec::new();
    let Inputs { key, token, sha, ttl } = inputs();
    match name {
        Command::Set => {
            command(&mut encoded, 6).arg(b"SET").arg(key).arg(token).arg(b"NX").arg(b"PX").int(ttl)
        }
        Command::Evalsha => {
            command(&mut encoded, 6).arg(b"EVALSHA").arg(sha).arg(b"1").arg(key).arg(token).int(ttl)
        }
    };
    into_reused(move |out| out.extend_from_slice(black_box(&encoded)))
}

fn encode_redis_protocol(name: Command) -> Box<dyn FnMut() -> usize> {
    let mut out = BytesMut::new();
    Box::new(move || {
        out.clear();
        let Inputs { key, token, sha, ttl } = inputs();
        let bulk = BorrowedFrame::BulkString;
        let ttl = BorrowedFrame::Integer(ttl.cast_signed());
        let args = match name {
            Command::Set => [bulk(b"SET"), bulk(key), bulk(token), bulk(b"NX"), bulk(b"PX"), ttl],
            Command::Evalsha => {
                [bulk(b"EVALSHA"), bulk(sha), bulk(b"1"), bulk(key), bulk(token), ttl]
            }
        };
        extend_encode_borrowed(&mut out, &BorrowedFrame::Array(&args), true).expect("a command")
    })
}

fn encode_redis(name: Command) -> Box<dyn FnMut() -> usize> {
    into_reused(move |out| {
        let Inputs { key, token, sha, ttl } = inputs();
        let mut command = redis::Cmd::new();
        match name {
            Command::Set => command.arg(b"SET").arg(key).arg(token).arg(b"NX").arg(b"PX").arg(ttl),
            Command::Evalsha => {
                command.arg(b"EVALSHA").arg(sha).arg(1).arg(key).arg(token).arg(ttl)
            }
        };
        command.write_packed_command(out);
    })
}

fn into_reused(mut encode: impl FnMut(&mut Vec<u8>) + 'static) -> Box<dyn FnMut() -> usize> {
    let mut out = Vec::with_capacity(4096);
    Box::new(move || {
        out.clear();
        encode(&mut out);
        black_box(&out).len()
    })
}
