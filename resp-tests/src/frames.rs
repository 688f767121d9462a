//! Frames: the trees of a stream's tokens, and feeding the decoder of frames.
//!
//! The tokens are the oracle's, and a few lines of recursion turn them into trees. So they share
//! only the type of the result with the decoder.

use redbolt::resp::{BytesMut, Frame, FrameDecoder, Limits, Token};

use crate::{Decoded, End};

/// Returns the complete frames.
#[must_use]
pub fn of(decoded: &Decoded<'_>) -> Vec<Frame> {
    let mut tokens = decoded.tokens.iter().map(|&(_, token)| token);
    std::iter::from_fn(|| frame(&mut tokens)).collect()
}

fn frame<'b>(tokens: &mut impl Iterator<Item = Token<'b>>) -> Option<Frame> {
    Some(match tokens.next()? {
        Token::Array(elements) => {
            Frame::Array((0..elements).map(|_| frame(tokens)).collect::<Option<_>>()?)
        }
        Token::Bulk(payload) => Frame::Bulk(payload.to_vec().into()),
        Token::Error(text) => Frame::Error(text.to_vec().into()),
        Token::Int(value) => Frame::Int(value),
        Token::NilArray => Frame::NilArray,
        Token::NilBulk => Frame::NilBulk,
        Token::Simple(text) => Frame::Simple(text.to_vec().into()),
    })
}

/// Decodes `stream` as if it had arrived in pieces that end at the ascending `cuts`, and at its
/// end.
#[must_use]
pub fn decode(
    stream: &[u8],
    limits: &Limits,
    cuts: impl IntoIterator<Item = usize>,
) -> (Vec<Frame>, End) {
    let (mut decoder, mut buffer) = (FrameDecoder::new(*limits), BytesMut::new());
    let (mut frames, mut at) = (Vec::new(), 0);
    for arrived in cuts.into_iter().chain([stream.len()]) {
        buffer.extend_from_slice(&stream[at..arrived]);
        at = arrived;
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(violation) => {
                    assert_eq!(
                        decoder.next(&mut buffer),
                        Err(violation),
                        "the decoder keeps its violation"
                    );
                    return (frames, End::Violation(violation));
                }
            }
        }
        assert!(
            buffer.len() < limits.buffered(),
            "the decoder wants more bytes than its limits permit"
        );
        assert_eq!(
            decoder.offset(),
            (at - buffer.len()) as u64,
            "the offset is that of the buffer"
        );
    }
    let between = decoder.depth() == 0 && buffer.is_empty();
    (frames, if between { End::Complete } else { End::Incomplete })
}
