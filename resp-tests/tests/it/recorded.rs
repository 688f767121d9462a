//! Replies recorded from real servers decode completely, wherever they are split.

use redbolt::resp::{Decoder, Limits};
use resp_tests::{End, feed, frames, oracle, recorded};

use crate::report;

#[test]
fn recorded_replies_decode_like_the_oracle() {
    let (mut streams, mut replies) = (0, 0);
    for (name, stream) in recorded::read() {
        let decoded = feed::decode(&stream, &Limits::default(), []);
        assert_eq!(decoded.end, End::Complete, "{name}");
        assert_eq!(decoded, oracle::decode(&stream, &Limits::default()), "{name}");
        let bytewise = feed::decode(&stream, &Limits::default(), 0..stream.len());
        assert_eq!(bytewise, decoded, "{name} byte by byte");
        let expected = (frames::of(&decoded), End::Complete);
        assert_eq!(frames::decode(&stream, &Limits::default(), []), expected, "{name}");
        let bytewise = frames::decode(&stream, &Limits::default(), 0..stream.len());
        assert_eq!(bytewise, expected, "{name} byte by byte");
        replies += decoded.tokens.iter().filter(|(depth, _)| *depth == 0).count();
        streams += 1;
    }
    assert!(streams >= 686, "only {streams} recorded streams");
    assert!(replies >= 792, "only {replies} recorded replies");
    report(&format!("{replies} recorded replies in {streams} streams"));
}

/// A split only affects the token that it falls into. So each token is split at each of its bytes,
/// and the decoder's state afterwards must be the same as without the split. Then everything that
/// follows is the same, too.
#[test]
fn no_split_changes_what_a_recorded_reply_decodes_to() {
    let mut splits = 0;
    for (name, stream) in recorded::read() {
        let mut decoder = Decoder::new(Limits::default());
        let mut at = 0;
        while at < stream.len() {
            let before = decoder.clone();
            let found = decoder.next(&stream[at..]).unwrap().unwrap();
            for cut in 0..found.1 {
                let mut decoder_of_pieces = before.clone();
                let part = decoder_of_pieces.next(&stream[at..at + cut]);
                assert_eq!(part, Ok(None), "{name} at {at}, cut behind {cut}");
                let rest = decoder_of_pieces.next(&stream[at..]);
                assert_eq!(rest, Ok(Some(found)), "{name} at {at}, cut behind {cut}");
                assert_eq!(decoder_of_pieces, decoder, "{name} at {at}, cut behind {cut}");
                splits += 1;
            }
            at += found.1;
        }
    }
    report(&format!("{splits} ways to split the recorded replies"));
}
