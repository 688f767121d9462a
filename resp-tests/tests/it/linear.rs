//! Trickled input costs what whole input costs, times a small constant: counted, not timed.
//!
//! What makes a parser quadratic is looking again at bytes that it has already seen. Whether a
//! call looked at an old byte is decided by changing that byte before the call: if any change of
//! it changes what the call returns or what the decoder remembers, the call looked; if none does,
//! the byte might as well not be there. So the old bytes that each call examines are counted
//! exactly, through the public interface and in the code that ships. New bytes count once each.
//! (Within one call they are passed over at most twice, once by the short cut and once by the
//! long way; both go forward only.)

use redbolt::resp::{Decoder, Limits, Token};
use resp_tests::case;

use crate::report;

#[test]
fn a_byte_costs_at_most_three_examined() {
    let (mut examined, mut received) = (0, 0);
    for vector in case::vectors() {
        let count = examined_byte_by_byte(&vector.stream, &vector.limits);
        let most = MOST_PER_BYTE * vector.stream.len();
        assert!(count <= most, "{}: {count} bytes examined, not {most}", vector.name);
        examined += count;
        received += vector.stream.len();
    }
    report(&format!("{examined} bytes examined of {received} received one by one"));
}

#[test]
fn a_long_token_costs_per_byte_what_a_short_one_does() {
    for (kind, per_byte) in [("+", 2), ("-", 2), ("$", 2)] {
        let cost = |len: usize| {
            let header = if kind == "$" { format!("${len}\r\n") } else { kind.into() };
            let stream = format!("{header}{}\r\n", "x".repeat(len));
            examined_byte_by_byte(stream.as_bytes(), &Limits::default())
        };
        assert_eq!(cost(800) - cost(400), 400 * per_byte, "{kind}");
        assert_eq!(cost(400) - cost(200), 200 * per_byte, "{kind}");
    }
}

/// New and old bytes that the decoder looks at while the stream arrives byte by byte.
fn examined_byte_by_byte(stream: &[u8], limits: &Limits) -> usize {
    let mut decoder = Decoder::new(*limits);
    let (mut at, mut examined) = (0, 0);
    for arrived in 1..=stream.len() {
        let mut buf = stream[at..arrived].to_vec();
        examined += 1;
        examined += (0..buf.len() - 1).filter(|old| looks_at(&decoder, &mut buf, *old)).count();
        // A byte completes at most one token, so what is left then is empty.
        match decoder.next(&buf) {
            Ok(Some((_, len))) => at += len,
            Ok(None) => {}
            Err(_) => break,
        }
    }
    examined
}

/// Whether the next call depends on the byte at `old`.
fn looks_at(decoder: &Decoder, buf: &mut [u8], old: usize) -> bool {
    let truth = buf[old];
    let expected = call(decoder, buf);
    let differs = POISONS.iter().any(|&poison| {
        buf[old] = poison;
        call(decoder, buf) != expected
    });
    buf[old] = truth;
    differs
}

/// All that a call comes to, but for the bytes of a payload, which are handed through unseen.
fn call(decoder: &Decoder, buf: &[u8]) -> (Decoder, String) {
    let mut decoder = decoder.clone();
    let outcome = match decoder.next(buf) {
        Ok(Some((Token::Bulk(text), len))) => format!("bulk {} {len}", text.len()),
        Ok(Some((Token::Error(text), len))) => format!("error {} {len}", text.len()),
        Ok(Some((Token::Simple(text), len))) => format!("simple {} {len}", text.len()),
        other => format!("{other:?}"),
    };
    (decoder, outcome)
}

/// One byte of each kind that a parser can tell from another.
const POISONS: &[u8] = b"\r\n-+0179*$:x\xff";

/// The new byte, the type byte, and the sign of a number. Where a call also looks again at a CR
/// that waits for its LF, the first bytes of the token have cost less.
const MOST_PER_BYTE: usize = 3;
