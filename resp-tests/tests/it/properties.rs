//! The decoder compared with the oracle on generated streams.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use redbolt::resp::{self, Limits, Token, command};
use resp_tests::{End, feed, frames, oracle};

use crate::report;

#[test]
fn generated_replies_come_back_as_they_were() {
    run("generated replies", (vec(frame(), 0..6), cuts()), |(frames, cuts)| {
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut stream));
        let mut tokens = Vec::new();
        frames.iter().for_each(|frame| frame.tokens(0, &mut tokens));
        let limits = Limits::default();
        let decoded = feed::decode(&stream, &limits, ascending(&cuts, stream.len()));
        prop_assert_eq!(decoded.end, End::Complete);
        prop_assert_eq!(&decoded.tokens, &tokens);
        prop_assert_eq!(oracle::decode(&stream, &limits), decoded);
        Ok(())
    });
}

#[test]
fn encoded_frames_come_back_as_they_were() {
    run("encoded frames", (vec(frame(), 0..6), cuts()), |(generated, cuts)| {
        let owned: Vec<resp::Frame> = generated.iter().map(Frame::owned).collect();
        let (mut stream, mut by_hand) = (Vec::new(), Vec::new());
        owned.iter().for_each(|frame| frame.encode(&mut stream));
        generated.iter().for_each(|frame| frame.write(&mut by_hand));
        prop_assert_eq!(&stream, &by_hand);
        let cuts = ascending(&cuts, stream.len());
        let decoded = frames::decode(&stream, &Limits::default(), cuts);
        prop_assert_eq!(decoded, (owned, End::Complete));
        Ok(())
    });
}

#[test]
fn arbitrary_bytes_decode_like_the_oracle() {
    run("streams of arbitrary bytes", (bytes(), limits(), cuts()), |(stream, limits, cuts)| {
        agree(&stream, &limits, &cuts)
    });
}

#[test]
fn mutated_replies_decode_like_the_oracle() {
    let mutated = (vec(frame(), 1..5), vec(mutation(), 1..4), limits(), cuts());
    run("mutated streams of replies", mutated, |(frames, mutations, limits, cuts)| {
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut stream));
        mutations.iter().for_each(|mutation| mutation.apply(&mut stream));
        agree(&stream, &limits, &cuts)
    });
}

#[test]
fn encoded_commands_decode_to_their_arguments() {
    let arguments = vec(vec(any::<u8>(), 0..40), 1..8);
    run("commands", (arguments, any::<u64>()), |(arguments, number)| {
        let mut stream = Vec::new();
        let count = arguments.len() + 1;
        let encoder = command(&mut stream, count);
        drop(arguments.iter().fold(encoder, |encoder, arg| encoder.arg(arg)).int(number));
        let number = number.to_string();
        let mut expected = vec![(0, Token::Array(u32::try_from(count).unwrap()))];
        expected.extend(arguments.iter().map(|arg| (1, Token::Bulk(arg))));
        expected.push((1, Token::Bulk(number.as_bytes())));
        let decoded = feed::decode(&stream, &Limits::default(), []);
        prop_assert_eq!(decoded.tokens, expected);
        prop_assert_eq!(decoded.end, End::Complete);
        Ok(())
    });
}

fn run<S: Strategy>(what: &str, strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: CASES, ..ProptestConfig::with_source_file(file!()) };
    TestRunner::new(config).run(&strategy, test).unwrap();
    report(&format!("{CASES} proptest cases: {what}"));
}

/// Checks that decoder and oracle agree: in one piece, byte by byte, and split at `cuts`.
fn agree(stream: &[u8], limits: &Limits, cuts: &[Index]) -> Result<(), TestCaseError> {
    let expected = oracle::decode(stream, limits);
    prop_assert_eq!(&feed::decode(stream, limits, []), &expected);
    prop_assert_eq!(&feed::decode(stream, limits, 0..stream.len()), &expected);
    let cuts = ascending(cuts, stream.len());
    prop_assert_eq!(&feed::decode(stream, limits, cuts.iter().copied()), &expected);
    let expected = (frames::of(&expected), expected.end);
    prop_assert_eq!(&frames::decode(stream, limits, []), &expected);
    prop_assert_eq!(&frames::decode(stream, limits, 0..stream.len()), &expected);
    prop_assert_eq!(&frames::decode(stream, limits, cuts), &expected);
    Ok(())
}

/// An owned reply.
#[derive(Clone, Debug)]
enum Frame {
    Array(Vec<Self>),
    Bulk(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    NilArray,
    NilBulk,
    Simple(Vec<u8>),
}

impl Frame {
    fn owned(&self) -> resp::Frame {
        match self {
            Self::Array(frames) => resp::Frame::Array(frames.iter().map(Self::owned).collect()),
            Self::Bulk(bytes) => resp::Frame::Bulk(bytes.clone().into()),
            Self::Error(text) => resp::Frame::Error(text.clone().into()),
            Self::Int(value) => resp::Frame::Int(*value),
            Self::NilArray => resp::Frame::NilArray,
            Self::NilBulk => resp::Frame::NilBulk,
            Self::Simple(text) => resp::Frame::Simple(text.clone().into()),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Array(frames) => {
                out.extend(format!("*{}\r\n", frames.len()).bytes());
                frames.iter().for_each(|frame| frame.write(out));
            }
            Self::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend([bytes, b"\r\n".as_slice()].concat());
            }
            Self::Error(text) => out.extend([b"-", text.as_slice(), b"\r\n"].concat()),
            Self::Int(value) => out.extend(format!(":{value}\r\n").bytes()),
            Self::NilArray => out.extend(b"*-1\r\n"),
            Self::NilBulk => out.extend(b"$-1\r\n"),
            Self::Simple(text) => out.extend([b"+", text.as_slice(), b"\r\n"].concat()),
        }
    }

    fn tokens<'b>(&'b self, depth: usize, tokens: &mut Vec<(usize, Token<'b>)>) {
        tokens.push((
            depth,
            match self {
                Self::Array(frames) => Token::Array(u32::try_from(frames.len()).unwrap()),
                Self::Bulk(bytes) => Token::Bulk(bytes),
                Self::Error(text) => Token::Error(text),
                Self::Int(value) => Token::Int(*value),
                Self::NilArray => Token::NilArray,
                Self::NilBulk => Token::NilBulk,
                Self::Simple(text) => Token::Simple(text),
            },
        ));
        if let Self::Array(frames) = self {
            frames.iter().for_each(|frame| frame.tokens(depth + 1, tokens));
        }
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    let leaf = prop_oneof![
        text().prop_map(Frame::Simple),
        text().prop_map(Frame::Error),
        integer().prop_map(Frame::Int),
        vec(any::<u8>(), 0..40).prop_map(Frame::Bulk),
        vec(select(b"\r\n$*1\0".as_slice()), 0..12).prop_map(Frame::Bulk),
        Just(Frame::NilBulk),
        Just(Frame::NilArray),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| vec(inner, 0..5).prop_map(Frame::Array))
}

/// Generates the bytes of a line, long enough to reach past the byte loop into the vector search.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>().prop_filter("a line", |byte| !b"\r\n".contains(byte)), 0..50)
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), select(EDGES), -1000..1000i64]
}

/// Generates bytes with a meaning to a parser, and any others.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<_> = PIECES.split('|').collect();
    let piece = prop_oneof![
        6 => select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn limits() -> impl Strategy<Value = Limits> {
    let small = (0..20usize, 0..5usize, 0..12u32, 0..20usize, 0..60u64);
    let small = small.prop_map(|(bulk, depth, elements, line, reply)| {
        let mut limits = Limits::default();
        (limits.bulk, limits.depth, limits.elements) = (bulk, depth, elements);
        (limits.line, limits.reply) = (line, reply);
        limits
    });
    prop_oneof![Just(Limits::default()), small]
}

#[derive(Clone, Debug)]
enum Mutation {
    Delete(Index),
    Insert(Index, u8),
    Repeat(Index, Range<usize>),
    Replace(Index, u8),
    Truncate(Index),
}

impl Mutation {
    fn apply(&self, stream: &mut Vec<u8>) {
        if stream.is_empty() {
            return;
        }
        let len = stream.len();
        match self {
            Self::Delete(at) => drop(stream.remove(at.index(len))),
            Self::Insert(at, byte) => stream.insert(at.index(len), *byte),
            Self::Repeat(at, range) => {
                let from = range.start.min(len);
                let piece = stream[from..range.end.clamp(from, len)].to_vec();
                let at = at.index(len);
                stream.splice(at..at, piece);
            }
            Self::Replace(at, byte) => stream[at.index(len)] = *byte,
            Self::Truncate(at) => stream.truncate(at.index(len)),
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = || prop_oneof![select(b"+-:$*\r\n0129".as_slice()), any::<u8>()];
    let at = any::<Index>;
    prop_oneof![
        at().prop_map(Mutation::Delete),
        (at(), byte()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        (at(), 0..40usize, 0..20usize)
            .prop_map(|(at, from, len)| Mutation::Repeat(at, from..from + len)),
        (at(), byte()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        at().prop_map(Mutation::Truncate),
    ]
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    vec(any::<Index>(), 0..5)
}

fn ascending(cuts: &[Index], len: usize) -> Vec<usize> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    cuts.sort_unstable();
    cuts
}

const CASES: u32 = 5000;

const EDGES: &[i64] = &[0, 1, -1, -2, 9, 10, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1];

/// The pieces, separated by `|`.
const PIECES: &str = "+|-|:|$|*|\r\n|\r|\n|0|1|2|3|9|-1|+OK\r\n|$-1\r\n|*1\r\n|*2\r\n|$2\r\n|$0\r\n|+a\r\n|:1\r\n|\
    $1\r\na\r\n|922337203685477580";
