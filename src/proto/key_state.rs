//! The state of a key: free, a lock of redbolt, or other data.
//!
//! Invariant: only data that redbolt writes is taken for a lock of redbolt, and no secret of a
//! holder is shown.

use std::fmt;
use std::time::Duration;

use sha1_smol::Sha1;

use super::names::MAX_NODES;
use super::profile::Profile;

/// The state of a key on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// The key does not exist, or only holds the place of waiters in the queue.
    Free,
    /// An exclusive lock of redbolt.
    Held(Holder),
    /// The permits of a redbolt semaphore.
    Permits(Permits),
    /// A shared lock of redbolt.
    Shared(Sharers),
    /// Other data, such as a lock of another library or an application's data. While it exists, no
    /// client can lock the resource.
    Foreign(Foreign),
}

/// The holder of a key, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The label that follows the token, if there is one. Printable.
    pub label: Option<String>,
    /// The first 4 bytes of a SHA-1 of the value without the node's number. It is equal on all
    /// nodes for one holder, and does not help to release the lock.
    pub fingerprint: u32,
    /// The remaining TTL of the key on this node; `None` if the key does not expire.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// Returns a holder with this label, fingerprint and remaining TTL.
    #[must_use]
    pub fn new(label: Option<String>, fingerprint: u32, remaining: Option<Duration>) -> Self {
        Self { label, fingerprint, remaining }
    }
}

/// The holders of a shared lock (readers).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharers {
    /// Up to 16 readers, those that expire first, each with its own remaining TTL.
    pub holders: Vec<Holder>,
    /// The number of readers.
    pub count: usize,
    /// The remaining TTL of the key on this node, which is that of its last reader.
    pub remaining: Option<Duration>,
}

impl Sharers {
    /// Returns `count` readers, of which `holders` are known.
    #[must_use]
    pub fn new(holders: Vec<Holder>, count: usize, remaining: Option<Duration>) -> Self {
        Self { holders, count, remaining }
    }
}

/// The holders of a semaphore's permits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permits {
    /// Up to 16 holders, those that expire first, each with the number of its permit and its own
    /// remaining TTL.
    pub holders: Vec<(u16, Holder)>,
    /// The number of permits in use.
    pub count: usize,
    /// The remaining TTL of the key on this node, which is that of its last holder.
    pub remaining: Option<Duration>,
}

impl Permits {
    /// Returns `count` permits, of which `holders` are known.
    #[must_use]
    pub fn new(holders: Vec<(u16, Holder)>, count: usize, remaining: Option<Duration>) -> Self {
        Self { holders, count, remaining }
    }
}

/// Data that redbolt's format did not write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Foreign {
    /// The kind of data.
    pub kind: DataKind,
    /// The profiles with data of this form, the most likely first. Only profiles of
    /// [configured](crate::ConfigBuilder::formats) formats are listed.
    pub profiles: Vec<Profile>,
    /// The remaining TTL of the key on this node; `None` if the key does not expire.
    pub remaining: Option<Duration>,
}

impl Foreign {
    /// Returns data of this kind, without a profile.
    #[must_use]
    pub fn new(kind: DataKind, remaining: Option<Duration>) -> Self {
        Self { kind, profiles: Vec::new(), remaining }
    }

    /// Returns the same data with these possible profiles.
    #[must_use]
    pub fn of_profiles(self, profiles: &[Profile]) -> Self {
        Self { profiles: profiles.to_vec(), ..self }
    }

    /// Returns whether the data may be a lock of this profile, judged by its form.
    #[must_use]
    pub fn is_of(&self, profile: Profile) -> bool {
        self.profiles.contains(&profile)
    }

    /// Returns a string, with the library and the owner if they are known.
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
    /// The type of the key, as named by the `TYPE` command.
    pub key_type: &'static str,
    /// The library, if only one uses this format.
    pub library: Option<&'static str>,
    /// Whether the holder is a writer; `None` if the format has no readers.
    pub is_write: Option<bool>,
    /// The number of holders; `None` if the format has only one.
    pub holders: Option<usize>,
    /// The name of one of the holders, shortened because most of it is a secret.
    pub owner: Option<String>,
    /// The number of times that this holder has entered, 0 if unknown; `None` if the format does
    /// not count entries.
    pub holds: Option<u64>,
    /// The time since 1970 at which others may take the lock over; `None` if that is when the key
    /// expires.
    pub ends: Option<Duration>,
    /// A description, such as `held by 2 readers of Symfony`.
    pub words: String,
}

impl ForeignLock {
    /// Returns a lock at a key of this type, with a description.
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

/// The kind of data at a key, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataKind {
    /// A string that is not a token of redbolt.
    String {
        /// The length in bytes; `None` if the string is longer than any token.
        bytes: Option<usize>,
        /// The first 4 bytes of a SHA-1 of the beginning of the string.
        fingerprint: u32,
        /// The libraries that write strings of this form, if any is known.
        library: Option<&'static str>,
        /// The owner, if the library writes it next to its secret. Printable.
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
    /// A type of a module, with its printable name.
    Module(String),
    /// A lock of another library.
    Lock(ForeignLock),
    /// Not a string. The node did not report the type.
    Unknown,
}

impl KeyState {
    pub(super) fn foreign(kind: DataKind) -> Self {
        Self::Foreign(Foreign::new(kind, None))
    }

    /// Returns the remaining TTL of the key; `None` if the key does not expire or does not exist.
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
                // Some readers were reported without their own time. None of them outlasts the
                // key.
                for holder in &mut holders {
                    holder.remaining = holder.remaining.or(remaining);
                }
                Self::Shared(Sharers { holders, count, remaining })
            }
            Self::Foreign(data) => Self::Foreign(Foreign { remaining, ..data }),
        }
    }
}

/// Returns the token without the mark of the queue, and whether there was a mark.
pub(super) fn without_mark(value: &[u8]) -> (&[u8], bool) {
    let at = value.iter().position(|&byte| byte == b'\n').unwrap_or(value.len());
    let (before, mark) = value.split_at(at);
    let is_mark = mark.len() > 1 && mark.len() <= MARK && mark[1..].iter().all(u8::is_ascii_digit);
    // In other data a line feed is a part of the value.
    match is_mark && token(before).is_some() {
        true => (before, true),
        false => (value, false),
    }
}

/// Returns the holder with this token, if the token is one of redbolt.
#[must_use]
pub fn holder_of(token: &[u8]) -> Option<Holder> {
    self::token(token).map(|(digits, label)| holder(digits, label))
}

/// Returns a holder that looks the same on all nodes: the node's number is left out.
fn holder(digits: &[u8], label: Option<&[u8]>) -> Holder {
    let behind: &[u8] = if label.is_some() { b":" } else { b"" };
    // The digits release the lock, so only a hash of them is shown.
    let words = [&digits[..RANDOM_DIGITS], behind, label.unwrap_or_default()];
    let label = label.map(|label| String::from_utf8_lossy(label).into_owned());
    Holder { label, fingerprint: fingerprint(&words), remaining: None }
}

/// Returns the state for a reply to `TYPE`, which is empty if the node did not reply.
pub(super) fn of_type(name: &[u8]) -> KeyState {
    KeyState::foreign(match name {
        b"hash" => DataKind::Hash,
        b"list" => DataKind::List,
        b"set" => DataKind::Set,
        b"zset" => DataKind::SortedSet,
        b"stream" => DataKind::Stream,
        // A string, or no key: the key has changed since it was read.
        b"" | b"none" | b"string" => DataKind::Unknown,
        module => {
            let name = String::from_utf8_lossy(&module[..module.len().min(LONGEST)]);
            // The name is shown on terminals, so control characters are replaced.
            DataKind::Module(name.replace(|char: char| !char.is_ascii_graphic(), "?"))
        }
    })
}

/// Returns the digits and the label of a token exactly as `Claim::write_token` writes it.
fn token(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (digits, rest) = value.split_at_checked(TOKEN_DIGITS)?;
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    // Strict, because force-unlock deletes everything that is recognised as a lock of redbolt.
    if !digits.iter().all(|byte| digit(byte).is_some()) {
        return None;
    }
    let node = digits[RANDOM_DIGITS..].iter().filter_map(digit).fold(0, |sum, d| sum * 16 + d);
    // redbolt never writes such a number.
    if usize::from(node) >= MAX_NODES {
        return None;
    }
    match rest {
        [] => Some((digits, None)),
        [b':', label @ ..] if !label.is_empty() && is_label(label) => Some((digits, Some(label))),
        _ => None,
    }
}

/// Returns whether a text can be a label: at most [`MAX_LABEL`] bytes of printable ASCII and
/// spaces.
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

/// Writes the holders with the numbers of their permits.
impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.holders, self.count, |f, (slot, holder)| write!(f, "{slot}: {holder}"))
    }
}

impl fmt::Display for Sharers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.holders, self.count, |f, holder| holder.fmt(f))
    }
}

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

/// Returns the plural ending of a noun after this number.
pub(super) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The number of random hexadecimal digits of a token.
pub(super) const RANDOM_DIGITS: usize = 32;

/// The number of hexadecimal digits of a token before its label. The last two are the node's
/// number: if a node's address one day leads to the server of another node, an undo or extension
/// there finds no key of this claim.
pub(super) const TOKEN_DIGITS: usize = RANDOM_DIGITS + 2;

/// The maximum length of a label in bytes.
pub const MAX_LABEL: usize = 128;

pub(super) const LONGEST: usize = TOKEN_DIGITS + 1 + MAX_LABEL;

/// The maximum length of a queue's mark in bytes: a line feed, and ms since 1970.
const MARK: usize = 1 + 16;

pub(super) const MOST_SHOWN: usize = 16;

/// The number of bytes of a string that are read, from its beginning.
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
    fn a_mark_is_not_part_of_the_token() {
        assert_eq!(held(&format!("{TOKEN}:web\n1767225600000")), held(&format!("{TOKEN}:web")));
        assert_eq!(without_mark(format!("{TOKEN}\n7").as_bytes()), (TOKEN.as_bytes(), true));
        assert_eq!(without_mark(TOKEN.as_bytes()), (TOKEN.as_bytes(), false));
        for foreign in [&b"job\n7"[..], b"\n7", b"x"] {
            assert_eq!(without_mark(foreign), (foreign, false));
        }
        assert_eq!(recognise(fair_queue::CLOSED), KeyState::Free);
    }

    /// On another node the same holder may be one of several.
    #[test]
    fn a_single_reader_is_shown_like_one_of_several() {
        let state = recognise(format!("r:{TOKEN}:web-1:77").as_bytes());
        let KeyState::Shared(Sharers { holders, count: 1, remaining: None }) = state else {
            panic!("{state:?}")
        };
        assert_eq!(holders, [held(&format!("{TOKEN}:web-1:77"))]);
        let longest = format!("r:{TOKEN}:{}", "x".repeat(MAX_LABEL));
        assert!(matches!(recognise(longest.as_bytes()), KeyState::Shared(_)));
        assert!(longest.len() <= VIEWED);
    }

    /// Data that is taken for a lock can be force-unlocked, so nothing else may be.
    #[test]
    fn only_strings_of_redbolt_are_taken_for_a_lock() {
        for value in [
            "",
            "x",
            "{\"user\":1}",
            "00112233445566778899aabbccddeeff", // 32 digits, as in tokens of other libraries
            "00112233445566778899aabbccddeeff0", // one digit short
            "00112233445566778899aabbccddeeff000", // one too many
            "00112233445566778899AABBCCDDEEFF00", // uppercase, which redbolt does not write
            "zz112233445566778899aabbccddeeff00:x", // not hexadecimal
            "00112233445566778899aabbccddeeff20", // node 32
            "00112233445566778899aabbccddeeffff:x", // node 255
            "00112233445566778899aabbccddeeff00:", // an empty label
            "00112233445566778899aabbccddeeff00 x", // a space instead of a colon
            "00112233445566778899aabbccddeeff00:web-1:77\n", // a line feed in the label
            "00112233445566778899aabbccddeeff00:w\u{fc}b", // not ASCII
            "0x112233-4455-6677-8899-aabbccddeeff", // a UUID
            "r:00112233445566778899aabbccddeeff0", // a reader, one digit short
            "r:00112233445566778899aabbccddeeff00\n7", // a mark, which a reader never has
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
