//! The state of a key: free, a lock of redbolt, or other data.
//!
//! Invariant: only what redbolt writes is taken for a lock of redbolt, and no secret of a holder is shown.

use std::fmt;
use std::time::Duration;

use sha1_smol::Sha1;

use super::names::MAX_NODES;
use super::profile::Profile;

/// A key's state on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// There is no such key, or it is kept for those who wait in the queue.
    Free,
    /// A lock of redbolt.
    Held(Holder),
    /// Permits of a semaphore of redbolt.
    Permits(Permits),
    /// A lock of redbolt that is shared.
    Shared(Sharers),
    /// Something else, such as a lock of another library or an application's data. Nobody can lock
    /// the resource as long as it is there.
    Foreign(Foreign),
}

/// Who holds a key, as far as may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The label behind the token, if it has one; printable.
    pub label: Option<String>,
    /// The first 4 bytes of a SHA-1 of the value, without the node's number in it: equal on all nodes for
    /// one holder, and no help to whoever would like to release the lock.
    pub fingerprint: u32,
    /// For how long the node will keep the key; `None` if without end.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// One that is known by these.
    #[must_use]
    pub fn new(label: Option<String>, fingerprint: u32, remaining: Option<Duration>) -> Self {
        Self { label, fingerprint, remaining }
    }
}

/// Those who share a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharers {
    /// Up to 16 of them, those first who end first, each with a time of its own.
    pub holders: Vec<Holder>,
    /// How many there are.
    pub count: usize,
    /// How long the node will keep the key, which is as long as the last of them lasts.
    pub remaining: Option<Duration>,
}

impl Sharers {
    /// These and maybe others, `count` in all.
    #[must_use]
    pub fn new(holders: Vec<Holder>, count: usize, remaining: Option<Duration>) -> Self {
        Self { holders, count, remaining }
    }
}

/// Those who hold permits of a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permits {
    /// Up to 16 of them, those first who end first, each with the number of its permit and a time of its own.
    pub holders: Vec<(u16, Holder)>,
    /// How many permits are taken.
    pub count: usize,
    /// How long the node will keep the key, which is as long as the last of them lasts.
    pub remaining: Option<Duration>,
}

impl Permits {
    /// These and maybe others, `count` in all.
    #[must_use]
    pub fn new(holders: Vec<(u16, Holder)>, count: usize, remaining: Option<Duration>) -> Self {
        Self { holders, count, remaining }
    }
}

/// Data that redbolt has not put there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Foreign {
    /// What it is.
    pub kind: DataKind,
    /// The profiles whose members write data of this form, the likeliest first. Profiles of formats that are not
    /// [configured](crate::ConfigBuilder::formats) are missing.
    pub profiles: Vec<Profile>,
    /// For how long the node will keep the key; `None` if without end.
    pub remaining: Option<Duration>,
}

impl Foreign {
    /// Data of this kind, which no profile is known for.
    #[must_use]
    pub fn new(kind: DataKind, remaining: Option<Duration>) -> Self {
        Self { kind, profiles: Vec::new(), remaining }
    }

    /// The same data, which may be of these profiles.
    #[must_use]
    pub fn of_profiles(self, profiles: &[Profile]) -> Self {
        Self { profiles: profiles.to_vec(), ..self }
    }

    /// Whether it may be a lock of a member of this profile, as far as its form tells.
    #[must_use]
    pub fn is_of(&self, profile: Profile) -> bool {
        self.profiles.contains(&profile)
    }

    /// A string, of these libraries if they are known, with the owner that it names.
    pub(super) fn string(
        value: &[u8],
        library: Option<&'static str>,
        owner: Option<String>,
    ) -> Self {
        let bytes = Some(value.len()).filter(|&bytes| bytes <= LONGEST);
        let fingerprint = fingerprint(&[value]);
        Self::new(DataKind::String { bytes, fingerprint, library, owner }, None)
    }
}

/// A lock of another library, as far as its format shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignLock {
    /// The type of its key, as `TYPE` names it.
    pub key_type: &'static str,
    /// The library, if only one has this format.
    pub library: Option<&'static str>,
    /// Whether a writer has it; `None` if its format has no readers.
    pub is_write: Option<bool>,
    /// The number of holders; `None` if its format has one.
    pub holders: Option<usize>,
    /// One of the holders, without most of its name, which is a secret.
    pub owner: Option<String>,
    /// How often that one has entered, 0 if it is not known; `None` if its format does not count that.
    pub holds: Option<u64>,
    /// When others may take it over, since 1970; `None` if its key ends with it.
    pub ends: Option<Duration>,
    /// All of it in words, such as `held by 2 readers of Symfony`.
    pub words: String,
}

impl ForeignLock {
    /// A lock at a key of this type, in words.
    #[must_use]
    pub fn new(key_type: &'static str, words: String) -> Self {
        Self {
            key_type,
            library: None,
            is_write: None,
            holders: None,
            owner: None,
            holds: None,
            ends: None,
            words,
        }
    }
}

/// What data is, without telling any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataKind {
    /// A string that is no token of redbolt.
    String {
        /// How long it is; `None` if it is longer than any token.
        bytes: Option<usize>,
        /// The first 4 bytes of a SHA-1 of its beginning.
        fingerprint: u32,
        /// The libraries that write strings of this form, if any is known.
        library: Option<&'static str>,
        /// Who has put it there, if the library writes that beside its secret; printable.
        owner: Option<String>,
    },
    /// A hash.
    Hash,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A stream.
    Stream,
    /// A type of a module, by its name; printable.
    Module(String),
    /// A lock of another library.
    Lock(ForeignLock),
    /// No string. The node does not tell what it is.
    Unknown,
}

impl KeyState {
    /// Other data, which no profile is known for.
    pub(super) fn foreign(kind: DataKind) -> Self {
        Self::Foreign(Foreign::new(kind, None))
    }

    /// For how long the node will keep the key; `None` if without end, or if there is none.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Free => None,
            Self::Held(holder) => holder.remaining,
            Self::Permits(permits) => permits.remaining,
            Self::Shared(sharers) => sharers.remaining,
            Self::Foreign(data) => data.remaining,
        }
    }

    pub(super) fn lives_for(self, remaining: Option<Duration>) -> Self {
        match self {
            Self::Free => Self::Free,
            Self::Held(holder) => Self::Held(Holder { remaining, ..holder }),
            Self::Permits(permits) => Self::Permits(Permits { remaining, ..permits }),
            Self::Shared(Sharers { mut holders, count, .. }) => {
                // Of some it is not told who ends first.
                for holder in &mut holders {
                    holder.remaining = holder.remaining.or(remaining);
                }
                Self::Shared(Sharers { holders, count, remaining })
            }
            Self::Foreign(data) => Self::Foreign(Foreign { remaining, ..data }),
        }
    }
}

/// A token without the mark of those who wait in the queue, and whether there was one.
pub(super) fn without_mark(value: &[u8]) -> (&[u8], bool) {
    let at = value.iter().position(|&byte| byte == b'\n').unwrap_or(value.len());
    let (before, mark) = value.split_at(at);
    let is_mark = mark.len() > 1 && mark.len() <= MARK && mark[1..].iter().all(u8::is_ascii_digit);
    match is_mark && token(before).is_some() {
        true => (before, true),
        false => (value, false),
    }
}

/// The holder with this token, if it is one of redbolt.
#[must_use]
pub fn holder_of(token: &[u8]) -> Option<Holder> {
    self::token(token).map(|(digits, label)| holder(digits, label))
}

/// Looks the same on all nodes: the node's number does not count.
fn holder(digits: &[u8], label: Option<&[u8]>) -> Holder {
    let behind: &[u8] = if label.is_some() { b":" } else { b"" };
    let words = [&digits[..RANDOM_DIGITS], behind, label.unwrap_or_default()];
    let label = label.map(|label| String::from_utf8_lossy(label).into_owned());
    Holder { label, fingerprint: fingerprint(&words), remaining: None }
}

/// What data is that `TYPE` calls so, and that is no string. Empty where the node did not say.
pub(super) fn of_type(name: &[u8]) -> KeyState {
    KeyState::foreign(match name {
        b"hash" => DataKind::Hash,
        b"list" => DataKind::List,
        b"set" => DataKind::Set,
        b"zset" => DataKind::SortedSet,
        b"stream" => DataKind::Stream,
        // Between the two questions it has become another.
        b"" | b"none" | b"string" => DataKind::Unknown,
        module => {
            let name = String::from_utf8_lossy(&module[..module.len().min(LONGEST)]);
            DataKind::Module(name.replace(|char: char| !char.is_ascii_graphic(), "?"))
        }
    })
}

/// The digits and the label of a token, if this is one: just as `Claim::write_token` writes it.
fn token(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (digits, rest) = value.split_at_checked(TOKEN_DIGITS)?;
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if !digits.iter().all(|byte| digit(byte).is_some()) {
        return None;
    }
    let node = digits[RANDOM_DIGITS..].iter().filter_map(digit).fold(0, |sum, d| sum * 16 + d);
    if usize::from(node) >= MAX_NODES {
        return None;
    }
    match rest {
        [] => Some((digits, None)),
        [b':', label @ ..] if !label.is_empty() && is_label(label) => Some((digits, Some(label))),
        _ => None,
    }
}

/// Whether a token can have this label: printable ASCII, and spaces.
pub(super) fn is_label(text: &[u8]) -> bool {
    text.len() <= MAX_LABEL && text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

pub(super) fn fingerprint(parts: &[&[u8]]) -> u32 {
    let mut sha1 = Sha1::new();
    parts.iter().for_each(|part| sha1.update(part));
    let digest = sha1.digest().bytes();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => f.write_str(label),
            None => write!(f, "unlabelled #{:08x}", self.fingerprint),
        }
    }
}

/// Their permits and names.
impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.holders, self.count, |f, (slot, holder)| write!(f, "{slot}: {holder}"))
    }
}

/// Their names.
impl fmt::Display for Sharers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.holders, self.count, |f, holder| holder.fmt(f))
    }
}

/// Writes those that are known, and how many of `count` are not.
fn list<T>(
    f: &mut fmt::Formatter<'_>,
    known: &[T],
    count: usize,
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (at, one) in known.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        write(f, one)?;
    }
    match count.saturating_sub(known.len()) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_lock = matches!(self.kind, DataKind::Lock(_));
        write!(f, "{}{}", if is_lock { "" } else { "other data, " }, self.kind)
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String { bytes: Some(bytes), fingerprint, library, owner } => {
                write!(f, "a string of {bytes} byte{} #{fingerprint:08x}", plural(*bytes))?;
                match (library, owner) {
                    (Some(library), Some(owner)) => write!(f, " (as of {library}, by {owner})"),
                    (Some(library), None) => write!(f, " (as of {library})"),
                    (None, _) => Ok(()),
                }
            }
            Self::String { bytes: None, fingerprint, .. } => {
                write!(f, "a string of more than {LONGEST} bytes #{fingerprint:08x}")
            }
            Self::Hash => f.write_str("a hash"),
            Self::List => f.write_str("a list"),
            Self::Set => f.write_str("a set"),
            Self::SortedSet => f.write_str("a sorted set"),
            Self::Stream => f.write_str("a stream"),
            Self::Module(name) => write!(f, "of the type {name}"),
            Self::Unknown => f.write_str("no string"),
            Self::Lock(lock) => f.write_str(&lock.words),
        }
    }
}

/// The ending of a noun behind this number.
pub(super) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Hexadecimal digits of a token that are random.
pub(super) const RANDOM_DIGITS: usize = 32;

/// Hexadecimal digits of a token, before its label. The last two are the node's number: what is undone
/// or extended on another node's server, to which an address may lead one day, finds nothing of ours.
pub(super) const TOKEN_DIGITS: usize = RANDOM_DIGITS + 2;

/// The most bytes in a token's label.
pub const MAX_LABEL: usize = 128;

/// The longest token.
pub(super) const LONGEST: usize = TOKEN_DIGITS + 1 + MAX_LABEL;

/// The longest mark behind it: a line feed, and ms since 1970.
const MARK: usize = 1 + 16;

/// The most holders that are shown.
pub(super) const MOST_SHOWN: usize = 16;

/// So much of a string is looked at, from its beginning.
pub(super) const VIEWED: usize = LONGEST + MARK;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::fair_queue;
    use crate::proto::format::plain::recognise;

    const TOKEN: &str = "00112233445566778899aabbccddeeff00";

    fn held(value: &str) -> Holder {
        match recognise(value.as_bytes()) {
            KeyState::Held(holder) => holder,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn one_holder_is_shown_alike_on_all_nodes() {
        let ours = held(&format!("{TOKEN}:web-1:77"));
        assert_eq!(ours.label.as_deref(), Some("web-1:77"));
        assert_eq!(ours, held("00112233445566778899aabbccddeeff1f:web-1:77"), "on another node");
        let another = held("10112233445566778899aabbccddeeff00:web-1:77");
        assert_ne!(ours.fingerprint, another.fingerprint);
        assert_ne!(ours.fingerprint, held(&format!("{TOKEN}:web-1:78")).fingerprint);
        assert_eq!(held(TOKEN).label, None);
        assert!(!format!("{ours:?} {ours}").contains("0011"));
        let longest = format!("{TOKEN}:{}", "x".repeat(MAX_LABEL));
        assert_eq!(longest.len(), LONGEST);
        assert_eq!(held(&longest).label.unwrap().len(), MAX_LABEL);
    }

    #[test]
    fn a_mark_behind_a_token_is_none_of_it() {
        assert_eq!(held(&format!("{TOKEN}:web\n1767225600000")), held(&format!("{TOKEN}:web")));
        assert_eq!(without_mark(format!("{TOKEN}\n7").as_bytes()), (TOKEN.as_bytes(), true));
        assert_eq!(without_mark(TOKEN.as_bytes()), (TOKEN.as_bytes(), false));
        for foreign in [&b"job\n7"[..], b"\n7", b"x"] {
            assert_eq!(without_mark(foreign), (foreign, false));
        }
        assert_eq!(recognise(fair_queue::CLOSED), KeyState::Free);
    }

    /// On another node the same holder may be among several.
    #[test]
    fn a_single_reader_is_shown_as_one_of_several_is() {
        let state = recognise(format!("r:{TOKEN}:web-1:77").as_bytes());
        let KeyState::Shared(Sharers { holders, count: 1, remaining: None }) = state else {
            panic!("{state:?}")
        };
        assert_eq!(holders, [held(&format!("{TOKEN}:web-1:77"))]);
        let longest = format!("r:{TOKEN}:{}", "x".repeat(MAX_LABEL));
        assert!(matches!(recognise(longest.as_bytes()), KeyState::Shared(_)));
        assert!(longest.len() <= VIEWED);
    }

    /// Whatever is taken for a lock can be force-unlocked, so that nothing else may be.
    #[test]
    fn only_what_we_write_is_taken_for_a_lock() {
        for value in [
            "",
            "x",
            "{\"user\":1}",
            "00112233445566778899aabbccddeeff", // 32 digits: others' tokens
            "00112233445566778899aabbccddeeff0", // one digit short
            "00112233445566778899aabbccddeeff000", // one too many
            "00112233445566778899AABBCCDDEEFF00", // not as we write them
            "zz112233445566778899aabbccddeeff00:x", // no digits
            "00112233445566778899aabbccddeeff20", // node 32
            "00112233445566778899aabbccddeeffff:x", // node 255
            "00112233445566778899aabbccddeeff00:", // a label of nothing
            "00112233445566778899aabbccddeeff00 x", // something else behind it
            "00112233445566778899aabbccddeeff00:web-1:77\n", // no label has that
            "00112233445566778899aabbccddeeff00:w\u{fc}b", // nor that
            "0x112233-4455-6677-8899-aabbccddeeff", // a UUID
            "r:00112233445566778899aabbccddeeff0", // a reader, one digit short
            "r:00112233445566778899aabbccddeeff00\n7", // marked as no reader is
        ] {
            let state = recognise(value.as_bytes());
            let KeyState::Foreign(data) = &state else { panic!("{value:?}: {state:?}") };
            let shown = format!("{data} {data:?}");
            assert!(value.len() < 8 || !shown.contains(&value[..8]), "{shown}");
            let bytes = Some(value.len());
            assert!(
                matches!(data.kind, DataKind::String { bytes: b, .. } if b == bytes),
                "{shown}"
            );
        }
        let too_long = format!("{TOKEN}:{}", "x".repeat(MAX_LABEL + 1));
        let KeyState::Foreign(data) = recognise(too_long.as_bytes()) else { panic!() };
        assert!(data.to_string().starts_with("other data, a string of more than 163 bytes #"));
    }

    #[test]
    fn data_is_named_by_its_type() {
        let named = |name: &[u8]| match of_type(name) {
            KeyState::Foreign(data) => data.to_string(),
            other => panic!("{other:?}"),
        };
        for (name, words) in [
            ("hash", "other data, a hash"),
            ("list", "other data, a list"),
            ("set", "other data, a set"),
            ("zset", "other data, a sorted set"),
            ("stream", "other data, a stream"),
            ("ReJSON-RL", "other data, of the type ReJSON-RL"),
            ("a\x1b[2J", "other data, of the type a?[2J"),
            ("", "other data, no string"),
        ] {
            assert_eq!(named(name.as_bytes()), words);
        }
    }
}
