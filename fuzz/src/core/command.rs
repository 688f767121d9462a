//! What the core sends, read back: strictly, and without the library's own decoder.

use std::sync::LazyLock;

use redbolt::proto::script::{ACQUIRE_FENCED, ACQUIRE_MANY, ENROL, EXTEND, UNDO, WRITE_BACK};
use sha1_smol::Sha1;

/// A command and its length. Anything but an array of bulk strings in its one canonical form is a
/// fault of the core.
pub(super) fn parse(bytes: &[u8]) -> (Vec<&[u8]>, usize) {
    let (count, mut at) = number(bytes, 0, b'*');
    assert!(count > 0, "a command of no words");
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (len, start) = number(bytes, at, b'$');
        words.push(&bytes[start..start + len]);
        assert_eq!(&bytes[start + len..start + len + 2], b"\r\n", "behind a bulk string");
        at = start + len + 2;
    }
    (words, at)
}

/// A header's number, and where the bytes behind it begin.
fn number(bytes: &[u8], at: usize, kind: u8) -> (usize, usize) {
    assert_eq!(bytes[at], kind, "the type of an element");
    let mut value = 0;
    let mut end = at + 1;
    while bytes[end] != b'\r' {
        assert!(bytes[end].is_ascii_digit(), "a digit of a length");
        assert!(value > 0 || end == at + 1, "a leading zero");
        value = value * 10 + usize::from(bytes[end] - b'0');
        end += 1;
    }
    assert!(end > at + 1 && bytes[end + 1] == b'\n', "the end of a header");
    (value, end + 2)
}

/// A number in a command's argument.
pub(super) fn integer(word: &[u8]) -> u64 {
    let text = std::str::from_utf8(word).expect("a number is ASCII");
    text.parse().expect("a number")
}

/// A script of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    AcquireFenced,
    AcquireMany,
    Enrol,
    Extend,
    Undo,
    WriteBack,
}

/// How many there are.
pub(super) const SCRIPTS: usize = 6;

impl Script {
    /// By its text.
    pub(super) fn of_text(text: &[u8]) -> Self {
        Self::find(|(_, known, _)| known.as_bytes() == text)
    }

    /// By its digest.
    pub(super) fn of_digest(digest: &[u8]) -> Self {
        Self::find(|(_, _, known)| known.as_bytes() == digest)
    }

    fn find(wanted: impl Fn(&(Self, &str, String)) -> bool) -> Self {
        KNOWN.iter().find(|known| wanted(known)).expect("a script of the library").0
    }
}

static KNOWN: LazyLock<[(Script, &str, String); SCRIPTS]> = LazyLock::new(|| {
    [
        (Script::AcquireFenced, ACQUIRE_FENCED),
        (Script::AcquireMany, ACQUIRE_MANY),
        (Script::Enrol, ENROL),
        (Script::Extend, EXTEND),
        (Script::Undo, UNDO),
        (Script::WriteBack, WRITE_BACK),
    ]
    .map(|(script, text)| (script, text, Sha1::from(text).digest().to_string()))
});
