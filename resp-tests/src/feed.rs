//! Ways to feed a stream to the decoder: whole, split once, split everywhere.
//!
//! All ways must decode to the same, which the tests compare. The fuzz targets use them too.

use redbolt::resp::{Decoder, Limits};

use crate::{Decoded, End};

/// Decodes `stream` as if it had arrived in pieces that end at the ascending `cuts`, and at its
/// end.
#[must_use]
pub fn decode<'b>(
    stream: &'b [u8],
    limits: &Limits,
    cuts: impl IntoIterator<Item = usize>,
) -> Decoded<'b> {
    let mut decoder = Decoder::new(*limits);
    let (mut at, mut tokens) = (0, Vec::new());
    for arrived in cuts.into_iter().chain([stream.len()]) {
        loop {
            let depth = decoder.depth();
            match decoder.next(&stream[at..arrived]) {
                Ok(Some((token, len))) => {
                    tokens.push((depth, token));
                    at += len;
                }
                Ok(None) => break,
                Err(violation) => {
                    assert_eq!(
                        decoder.next(b"+OK\r\n"),
                        Err(violation),
                        "the decoder keeps its violation"
                    );
                    return Decoded { tokens, end: End::Violation(violation) };
                }
            }
        }
        assert!(
            arrived - at < limits.buffered(),
            "the decoder wants more bytes than its limits permit"
        );
    }
    let between = decoder.depth() == 0 && at == stream.len();
    Decoded { tokens, end: if between { End::Complete } else { End::Incomplete } }
}
