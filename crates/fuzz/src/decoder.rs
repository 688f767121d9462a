//! The RESP2 decoders of tokens and of frames compared with the oracle, under limits and splits
//! that the input chooses.
//!
//! The first byte of an input chooses the limits, the second how the stream is split; the rest is
//! the stream.

use redbolt::resp::Limits;
use resp_tests::{feed, frames, oracle};

/// Checks that decoders and oracle return the same for the stream, whole and split.
pub fn body(input: &[u8]) {
    let [limits, step, stream @ ..] = input else { return };
    let limits = choose(*limits);
    let expected = oracle::decode(stream, &limits);
    assert_eq!(feed::decode(stream, &limits, []), expected, "in one piece");
    let step = usize::from(*step).max(1);
    let cuts = (0..stream.len()).step_by(step);
    assert_eq!(feed::decode(stream, &limits, cuts.clone()), expected, "in pieces of {step}");
    let expected = (frames::of(&expected), expected.end);
    assert_eq!(frames::decode(stream, &limits, []), expected, "frames in one piece");
    assert_eq!(frames::decode(stream, &limits, cuts), expected, "frames in pieces of {step}");
}

/// Returns the default limits, or limits so small that a short stream reaches them.
fn choose(byte: u8) -> Limits {
    let mut limits = Limits::default();
    if byte & 1 == 1 {
        let small = u32::from(byte);
        limits.bulk = usize::from(byte & 15);
        limits.depth = usize::from(byte >> 5);
        limits.elements = small >> 2 & 15;
        limits.line = usize::from(byte >> 3);
        limits.reply = u64::from(small >> 1);
    }
    limits
}

/// The maximum length of an input: long enough for every construct of the grammar, short enough for
/// many runs per second.
pub const MAX_LEN: usize = 256;
