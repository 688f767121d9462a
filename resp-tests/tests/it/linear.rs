//! Input in small pieces costs as much as whole input, times a small constant: counted, not timed.
//!
//! A parser becomes quadratic by examining bytes again that it has already seen. To find out
//! whether a call examined an old byte, the test changes that byte before the call. If any change
//! affects the result of the call or the state of the decoder, the call examined the byte; if none
//! does, it did not. So the old bytes that each call examines are counted exactly, through the
//! public interface and in the shipping code. New bytes count once each. (Within one call they are
//! passed over at most twice, once by the fast path and once by the slow one; both only go
//! forward.)

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

/// Returns how many new and old bytes the decoder examines while the stream arrives byte by byte.
fn examined_byte_by_byte(stream: &[u8], limits: &Limits) -> usize {
    let mut decoder = Decoder::new(*limits);
    let (mut at, mut examined) = (0, 0);
    for arrived in 1..=stream.len() {
        let mut buf = stream[at..arrived].to_vec();
        examined += 1;
        let expected = call(&decoder, &buf);
        let looks_at = |old: &usize| looks_at(&decoder, &mut buf, *old, &expected);
        examined += (0..arrived - at - 1).filter(looks_at).count();
        // A byte completes at most one token, so the rest is empty then.
        match decoder.next(&buf) {
            Ok(Some((_, len))) => at += len,
            Ok(None) => {}
            Err(_) => break,
        }
    }
    examined
}

/// Returns `true` if the next call depends on the byte at `old`.
fn looks_at(
    decoder: &Decoder,
    buf: &mut [u8],
    old: usize,
    expected: &(Decoder, Option<String>),
) -> bool {
    let truth = buf[old];
    let differs = POISONS.iter().any(|&poison| {
        buf[old] = poison;
        call(decoder, buf) != *expected
    });
    buf[old] = truth;
    differs
}

/// Returns the whole result of a call, except for the bytes of a payload, which are passed through
/// unexamined.
fn call(decoder: &Decoder, buf: &[u8]) -> (Decoder, Option<String>) {
    let mut decoder = decoder.clone();
    let outcome = match decoder.next(buf) {
        // Nearly all of the million calls end here.
        Ok(None) => return (decoder, None),
        Ok(Some((Token::Bulk(text), len))) => format!("bulk {} {len}", text.len()),
        Ok(Some((Token::Error(text), len))) => format!("error {} {len}", text.len()),
        Ok(Some((Token::Simple(text), len))) => format!("simple {} {len}", text.len()),
        other => format!("{other:?}"),
    };
    (decoder, Some(outcome))
}

/// The bytes that a parser can distinguish, one of each kind.
const POISONS: &[u8] = b"\r\n-+0179*$:x\xff";

/// The most examined bytes per byte: the new byte, the type byte, and the sign of a number. A call
/// that also examines a CR which waits for its LF has examined less of the token's first bytes.
const MOST_PER_BYTE: usize = 3;
