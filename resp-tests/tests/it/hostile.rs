//! Peers that try to use up memory, stack or time get no more than the named limits.
//!
//! A small client reads each stream into a buffer of exactly [`Limits::buffered`] bytes, on a
//! thread with a small stack, under a counting allocator. Peak memory is that buffer and nothing
//! more.

use std::io::Read;
use std::thread;

use allocation_counter::measure;
use redbolt::resp::{
    BytesMut, Decoder, Frame, FrameDecoder, Limits, MAX_DEPTH, Rule, Token, Violation,
};
use resp_tests::End;

#[test]
fn nesting_of_any_depth_ends_at_the_limit() {
    let depths = (1..200).chain([1_000, 10_000, 100_000]);
    for depth in depths {
        let limits = Limits::default();
        let end = end_of(Endless::new(b"*1\r\n").take(4 * depth), limits);
        let within = depth <= limits.depth as u64;
        let expected = if within { End::Incomplete } else { broken(32, Rule::TooDeep) };
        assert_eq!(end, expected, "{depth} deep");
    }
}

#[test]
fn absurd_lengths_are_refused_at_the_digit_that_makes_them_absurd() {
    for (stream, offset, rule) in [
        ("*4294967295\r\n", 7, Rule::TooManyElements),
        ("*9223372036854775807\r\n", 7, Rule::TooManyElements),
        ("*-9223372036854775808\r\n", 2, Rule::NegativeLength),
        ("$4294967295\r\n", 7, Rule::BulkTooLong),
        ("$9223372036854775807\r\n", 7, Rule::BulkTooLong),
        ("$-9223372036854775808\r\n", 2, Rule::NegativeLength),
    ] {
        assert_eq!(end_of(stream.as_bytes(), Limits::default()), broken(offset, rule), "{stream}");
    }
}

#[test]
fn the_largest_lengths_allowed_cost_nothing_until_they_arrive() {
    for stream in ["*1048576\r\n", "$1048576\r\n", "*4294967295\r\n", "$9223372036854775807\r\n"] {
        let cost = measure(|| {
            let mut limits = Limits::default();
            (limits.bulk, limits.elements) = (usize::MAX, u32::MAX);
            let mut decoder = Decoder::new(limits);
            let outcome = decoder.next(stream.as_bytes());
            assert!(!matches!(outcome, Ok(Some((Token::Bulk(_), _)))));
        });
        assert_eq!(cost.count_total, 0, "{stream}");
    }
}

#[test]
fn an_announced_array_of_frames_costs_nothing_until_it_arrives() {
    let mut limits = Limits::default();
    (limits.elements, limits.depth) = (u32::MAX, MAX_DEPTH);
    let stream = b"*100000000\r\n".repeat(MAX_DEPTH);
    let cost = measure(|| {
        let (mut decoder, mut buffer) = (FrameDecoder::new(limits), BytesMut::from(&stream[..]));
        assert_eq!(decoder.next(&mut buffer), Ok(None));
        assert_eq!(decoder.depth(), MAX_DEPTH);
    });
    assert!(cost.bytes_max < 32 << 10, "{} bytes for {}", cost.bytes_max, stream.len());
}

#[test]
fn frames_nest_up_to_the_limit_on_a_small_stack() {
    let mut limits = Limits::default();
    limits.depth = MAX_DEPTH;
    let run = move || {
        let mut buffer = BytesMut::from(&b"*1\r\n".repeat(MAX_DEPTH)[..]);
        buffer.extend_from_slice(b":1\r\n");
        let mut decoder = FrameDecoder::new(limits);
        let frame = decoder.next(&mut buffer).unwrap().unwrap();
        let mut out = Vec::new();
        frame.clone().encode(&mut out);
        assert_eq!(out.len(), 4 * MAX_DEPTH + 4);
        buffer.extend_from_slice(&b"*1\r\n".repeat(100_000));
        assert_eq!(decoder.next(&mut buffer).unwrap_err().rule, Rule::TooDeep);
    };
    thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap();
}

/// This is the most memory that a peer can make a program hold: the reply's bytes, and a frame for
/// each element, twice while the array grows.
#[test]
fn a_reply_of_the_most_elements_is_bounded_by_the_limits() {
    let mut limits = Limits::default();
    limits.elements = 1 << 16;
    let stream = [&b"*65536\r\n"[..], &b"+a\r\n".repeat(1 << 16)].concat();
    let cost = measure(|| {
        let (mut decoder, mut buffer) = (FrameDecoder::new(limits), BytesMut::new());
        let found = stream.chunks(4096).find_map(|piece| {
            buffer.extend_from_slice(piece);
            decoder.next(&mut buffer).unwrap()
        });
        assert!(matches!(found, Some(Frame::Array(elements)) if elements.len() == 1 << 16));
    });
    let elements = 2 * (1 << 16) * size_of::<Frame>();
    let most = (elements + stream.len() + (64 << 10)) as u64;
    assert!(cost.bytes_max < most, "{} bytes, not {most}", cost.bytes_max);
}

#[test]
fn a_million_empty_arrays_are_a_million_replies() {
    let stream = Endless::new(b"*0\r\n").take(4 << 20);
    assert_eq!(end_of(stream, Limits::default()), End::Complete);
    let nested = b"*1000000\r\n".chain(Endless::new(b"*0\r\n").take(4_000_000));
    assert_eq!(end_of(nested, Limits::default()), End::Complete);
}

#[test]
fn announcements_add_up() {
    // Each array announces two more; the depth limit is far away, the limit of elements is not.
    let mut limits = Limits::default();
    limits.elements = 1000;
    let stream = b"*999\r\n".chain(Endless::new(b"*1\r\n+a\r\n").take(1 << 20));
    assert_eq!(end_of(stream, limits), broken(6 + 8 + 1, Rule::TooManyElements));
}

#[test]
fn endless_lines_end_at_the_limit() {
    let over = 1 + Limits::default().line as u64;
    for first in [b"+".as_slice(), b"-ERR "] {
        let stream = first.chain(Endless::new(b"x").take(1 << 24));
        assert_eq!(end_of(stream, Limits::default()), broken(over, Rule::LineTooLong));
    }
}

#[test]
fn endless_digits_end_at_the_longest_number() {
    for (first, digit, offset, rule) in [
        (":", "1", 20, Rule::Range),
        (":-", "1", 21, Rule::Range),
        (":", "0", 2, Rule::LeadingZero),
        (":", "-", 2, Rule::Digit),
        ("$", "1", 7, Rule::BulkTooLong),
        ("*", "1", 7, Rule::TooManyElements),
        ("*-", "1", 3, Rule::NegativeLength),
    ] {
        let stream = first.as_bytes().chain(Endless::new(digit.as_bytes()).take(1 << 20));
        let expected = broken(offset, rule);
        assert_eq!(end_of(stream, Limits::default()), expected, "{first}{digit}…");
    }
}

#[test]
fn an_endless_mix_of_types_takes_no_memory() {
    let replies = b"+a\r\n-b\r\n:1\r\n$1\r\nc\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*1\r\n:1\r\n+d\r\n";
    let stream = Endless::new(replies).take(replies.len() as u64 * 200_000);
    assert_eq!(end_of(stream, Limits::default()), End::Complete);
}

#[test]
fn a_reply_of_many_small_parts_ends_at_the_limit() {
    let mut limits = Limits::default();
    limits.reply = 1 << 16;
    let stream = b"*1000000\r\n".chain(Endless::new(b"$1\r\na\r\n").take(1 << 20));
    let last_start = 10 + ((1 << 16) - 10) / 7 * 7;
    assert_eq!(end_of(stream, limits), broken(last_start, Rule::ReplyTooLong));
}

#[test]
fn bulks_of_the_largest_size_fit_the_buffer() {
    let header = format!("${}\r\n", Limits::default().bulk);
    let bulk = || header.as_bytes().chain(Endless::new(b"\r\n").take(1 << 20)).chain(&b"\r\n"[..]);
    assert_eq!(end_of(bulk().chain(bulk()), Limits::default()), End::Complete);
}

/// Returns how the stream ends for a client that has [`Limits::buffered`] bytes and a small stack.
fn end_of(stream: impl Read + Send, limits: Limits) -> End {
    let run = move || {
        let mut end = End::Complete;
        let cost = measure(|| end = drive(stream, limits));
        (end, cost)
    };
    let (end, cost) = thread::scope(|scope| {
        thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).unwrap().join().unwrap()
    });
    let buffer = limits.buffered() as u64;
    assert_eq!(cost.bytes_max, buffer, "the peak is the buffer");
    assert_eq!(cost.count_total, 1, "nothing but the buffer is allocated");
    end
}

fn drive(mut stream: impl Read, limits: Limits) -> End {
    let mut buffer = vec![0; limits.buffered()];
    let mut decoder = Decoder::new(limits);
    let (mut at, mut held) = (0, 0);
    loop {
        match decoder.next(&buffer[at..held]) {
            Ok(Some((_, len))) => at += len,
            Err(violation) => return End::Violation(violation),
            Ok(None) => {
                buffer.copy_within(at..held, 0);
                (at, held) = (0, held - at);
                assert!(held < buffer.len(), "the decoder wants more bytes than its limits permit");
                match stream.read(&mut buffer[held..]).unwrap() {
                    0 if held == 0 && decoder.depth() == 0 => return End::Complete,
                    0 => return End::Incomplete,
                    read => held += read,
                }
            }
        }
    }
}

fn broken(offset: u64, rule: Rule) -> End {
    End::Violation(Violation { offset, rule })
}

/// A stream that repeats the same bytes.
struct Endless {
    pattern: &'static [u8],
    at: usize,
}

impl Endless {
    fn new(pattern: &'static [u8]) -> Self {
        Self { pattern, at: 0 }
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for byte in buffer.iter_mut() {
            *byte = self.pattern[self.at];
            self.at = (self.at + 1) % self.pattern.len();
        }
        Ok(buffer.len())
    }
}

const STACK: usize = 64 << 10;
