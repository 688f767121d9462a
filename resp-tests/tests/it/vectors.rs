//! Every vector decodes to its text, by the decoder and by the oracle, wherever it is split.

use redbolt::resp::Rule;
use resp_tests::case::{self, Case};
use resp_tests::{Decoded, End, feed, frames, oracle, text};

use crate::report;

#[test]
fn every_vector_decodes_to_its_text() {
    let vectors = case::vectors();
    for vector in &vectors {
        let decoded = feed::decode(&vector.stream, &vector.limits, []);
        let text = text::render(&decoded, vector.stream.len());
        assert_eq!(text, vector.expected, "{}", vector.name);
    }
    assert!(vectors.len() >= 268, "vectors are missing");
    report(&format!("{} vectors", vectors.len()));
}

#[test]
fn the_oracle_agrees_on_every_vector() {
    for vector in case::vectors() {
        let text =
            text::render(&oracle::decode(&vector.stream, &vector.limits), vector.stream.len());
        assert_eq!(text, vector.expected, "{}", vector.name);
    }
}

#[test]
fn the_frames_of_a_vector_are_the_trees_of_its_tokens() {
    let mut found = 0;
    for Case { stream, limits, name, .. } in case::vectors() {
        let decoded = oracle::decode(&stream, &limits);
        let expected = frames::of(&decoded);
        found += expected.len();
        assert_eq!(frames::decode(&stream, &limits, []), (expected, decoded.end), "{name}");
    }
    assert!(found >= 100, "only {found} frames");
    report(&format!("{found} frames in the vectors"));
}

#[test]
fn no_split_changes_what_a_vector_decodes_to() {
    let splits: usize = case::vectors().iter().map(every_split).sum();
    report(&format!("{splits} ways to split the vectors"));
}

#[test]
fn every_rule_has_a_vector() {
    let broken: Vec<_> = case::vectors().iter().filter_map(rule).collect();
    for rule in RULES {
        assert!(broken.contains(&rule), "no vector breaks {rule:?}");
    }
}

/// Splits at every single byte, at all bytes, and for short vectors at every pair of bytes.
fn every_split(vector: &Case) -> usize {
    let Case { stream, limits, name, .. } = vector;
    let whole = feed::decode(stream, limits, []);
    let whole_frames = frames::decode(stream, limits, []);
    let mut splits = 0;
    let mut check = |cuts: &[usize]| {
        let cut: Decoded<'_> = feed::decode(stream, limits, cuts.iter().copied());
        assert_eq!(cut, whole, "{name} cut at {cuts:?}");
        let cut_frames = frames::decode(stream, limits, cuts.iter().copied());
        assert_eq!(cut_frames, whole_frames, "frames of {name} cut at {cuts:?}");
        splits += 1;
    };
    let all: Vec<_> = (0..stream.len()).collect();
    check(&all);
    for &first in &all {
        check(&[first]);
        if stream.len() <= SHORT {
            (first + 1..stream.len()).for_each(|second| check(&[first, second]));
        }
    }
    splits
}

fn rule(vector: &Case) -> Option<Rule> {
    match oracle::decode(&vector.stream, &vector.limits).end {
        End::Violation(violation) => Some(violation.rule),
        _ => None,
    }
}

const SHORT: usize = 64;

const RULES: [Rule; 14] = [
    Rule::BareCr,
    Rule::BareLf,
    Rule::BulkEnd,
    Rule::BulkTooLong,
    Rule::Digit,
    Rule::LeadingZero,
    Rule::LineTooLong,
    Rule::NegativeLength,
    Rule::NegativeZero,
    Rule::Range,
    Rule::ReplyTooLong,
    Rule::TooDeep,
    Rule::TooManyElements,
    Rule::Type,
];
