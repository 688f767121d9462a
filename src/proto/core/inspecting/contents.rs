//! What is under a key, by its type and its value: a lock of ours, or other data.
//!
//! The one place that tells them apart, for whoever looks at a lock and for whoever force-unlocks one. The
//! format of another lock library would be one more answer here. Not here: asking the nodes, see the
//! folder's `mod.rs`.

use std::fmt;
use std::time::Duration;

use sha1_smol::Sha1;

use super::foreign;
use crate::proto::config::{MAX_LABEL, check_label};
use crate::proto::core::claims::{RANDOM_DIGITS, TOKEN_DIGITS};
use crate::proto::format::symfony;
use crate::proto::line;
use crate::proto::names::MAX_NODES;
use crate::proto::profile::Profile;
use crate::proto::script::token_behind_time;

/// A key's state on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// There is no such key, or it is kept for those who wait in line.
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
    /// For how long the node will keep the key; `None` if without end.
    pub remaining: Option<Duration>,
}

impl Foreign {
    /// Data of this kind.
    #[must_use]
    pub fn new(kind: DataKind, remaining: Option<Duration>) -> Self {
        Self { kind, remaining }
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
    /// A lock of Redisson.
    Redisson {
        /// Its holder: the beginning of its process' name, and the thread.
        owner: String,
        /// How often it has entered.
        holds: u64,
    },
    /// A read/write lock of Redisson.
    RedissonReadWrite {
        /// Whether a writer has it.
        is_write: bool,
        /// How many have it.
        holders: usize,
        /// One of them, by the beginning of its process' name and the thread.
        owner: Option<String>,
        /// How often that one has entered.
        holds: u64,
    },
    /// A lock of Symfony.
    Symfony {
        /// Whether somebody has it alone.
        is_write: bool,
        /// How many have it.
        holders: usize,
    },
    /// A time, from which on others may take the lock over.
    Time {
        /// When that is, since 1970.
        ends: Duration,
    },
    /// No string. The node does not tell what it is.
    Unknown,
}

impl DataKind {
    /// With which profile a lock takes part in those of whoever has put it there, if that is known.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        match self {
            Self::Redisson { .. } => Some(Profile::Redisson),
            Self::RedissonReadWrite { .. } => Some(Profile::RedissonRw),
            Self::String { bytes: Some(0), .. } => Some(Profile::RedisObjects),
            Self::String { library: Some(foreign::PYTHON_REDIS_LOCK), .. } => {
                Some(Profile::PythonRedisLock)
            }
            Self::Symfony { .. } => Some(Profile::Symfony),
            Self::Time { .. } => Some(Profile::Setnx),
            Self::String { library: Some(_), .. } => Some(Profile::Plain),
            _ => None,
        }
    }

    /// Whether it may be a lock of a member of this profile, as far as its form tells.
    #[must_use]
    pub fn is_of(&self, profile: Profile) -> bool {
        match (profile, self) {
            (Profile::RedisObjects, Self::Time { .. }) => true,
            (Profile::Spring, Self::String { library, .. }) => *library == Some(foreign::UUID),
            _ => self.profile() == Some(profile),
        }
    }
}

impl KeyState {
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

/// Those who hold a key that several can hold, and the members or fields that they are.
pub(super) struct Holders {
    pub(super) state: KeyState,
    pub(super) names: Vec<Vec<u8>>,
}

/// A token without the mark of those who wait in line, and whether there was one.
pub(super) fn without_mark(value: &[u8]) -> (&[u8], bool) {
    let at = value.iter().position(|&byte| byte == b'\n').unwrap_or(value.len());
    let (before, mark) = value.split_at(at);
    let is_mark = mark.len() > 1 && mark.len() <= MARK && mark[1..].iter().all(u8::is_ascii_digit);
    match is_mark && token(before).is_some() {
        true => (before, true),
        false => (value, false),
    }
}

/// What the beginning of a string is: up to [`VIEWED`] bytes, and one more if there are more.
pub(in crate::proto::core) fn of_string(value: &[u8]) -> KeyState {
    if value == line::CLOSED {
        return KeyState::Free;
    }
    if let Some(reader) = value.strip_prefix(READER)
        && let Some((digits, label)) = token(reader)
    {
        let holders = vec![holder(digits, label)];
        return KeyState::Shared(Sharers { holders, count: 1, remaining: None });
    }
    let (value, _) = without_mark(value);
    let timed = token_behind_time(value);
    let value = timed.as_deref().unwrap_or(value);
    let Some((digits, label)) = token(value) else {
        if let Some(ends) = foreign::time(value) {
            return foreign(DataKind::Time { ends });
        }
        let bytes = Some(value.len()).filter(|&bytes| bytes <= LONGEST);
        let fingerprint = fingerprint(&[value]);
        let (library, owner) = bytes.and_then(|_| foreign::of_string(value)).unzip();
        let owner = owner.flatten();
        return foreign(DataKind::String { bytes, fingerprint, library, owner });
    };
    KeyState::Held(holder(digits, label))
}

/// Looks the same on all nodes: the node's number does not count.
fn holder(digits: &[u8], label: Option<&[u8]>) -> Holder {
    let behind: &[u8] = if label.is_some() { b":" } else { b"" };
    let words = [&digits[..RANDOM_DIGITS], behind, label.unwrap_or_default()];
    let label = label.map(|label| String::from_utf8_lossy(label).into_owned());
    Holder { label, fingerprint: fingerprint(&words), remaining: None }
}

/// Who shares a sorted set, as the script [`VIEW_SHARED`](crate::proto::script::VIEW_SHARED) tells. `None` if it is none of ours.
pub(super) fn of_sharers(lines: &[u8]) -> Option<Holders> {
    let lines = std::str::from_utf8(lines).ok()?;
    let name = |line: &str| Some(line.split_once(' ')?.1.to_owned());
    let names = lines.lines().skip(1).filter_map(name).filter(|name| name != symfony::ALONE);
    Some(Holders { state: sharers(lines)?, names: names.map(String::into_bytes).collect() })
}

fn sharers(lines: &str) -> Option<KeyState> {
    let mut lines = lines.lines();
    let count = lines.next()?.parse().ok()?;
    if let Some(state) = foreign::of_set(count, lines.clone()) {
        return Some(state);
    }
    let mut writer = None;
    let mut holder = |line: &str| {
        let (left, token) = line.split_once(' ')?;
        if let Some(token) = token.strip_prefix(WRITER) {
            writer = Some(of_string(token.as_bytes()));
            return Some(None);
        }
        let KeyState::Held(holder) = of_string(token.as_bytes()) else { return None };
        let remaining = Some(Duration::from_millis(left.parse().ok()?));
        Some(Some(Holder { remaining, ..holder }))
    };
    let holders = lines.map(&mut holder).collect::<Option<Vec<_>>>()?;
    let mut holders: Vec<_> = holders.into_iter().flatten().collect();
    holders.truncate(MOST_SHOWN);
    // Whoever is beside a writer is that writer, by its claim as a reader.
    if let Some(KeyState::Held(_)) = writer {
        return writer;
    }
    // Nobody whose time is not over: the key of those who share would be gone as well.
    if holders.is_empty() {
        return None;
    }
    Some(KeyState::Shared(Sharers { holders, count, remaining: None }))
}

/// Who has which permit of a hash, or has it in Redisson's format, as the script [`VIEW_PERMITS`](crate::proto::script::VIEW_PERMITS) tells. `None` if it is
/// none of ours.
pub(super) fn of_permits(lines: &[u8]) -> Option<Holders> {
    let mut lines = std::str::from_utf8(lines).ok()?.lines();
    let first = lines.next()?;
    let is_other = first == "hash";
    // Behind the value of a field, or behind the ms that are left and the slot.
    let name =
        |line: &str| line.splitn(if is_other { 2 } else { 3 }, ' ').last().map(str::to_owned);
    let names = lines.clone().filter_map(name).filter(|name| !is_other || name != "mode");
    let names = names.map(String::into_bytes).collect();
    let state = if is_other { foreign::of_hash(lines)? } else { permits(first, lines)? };
    Some(Holders { state, names })
}

fn permits<'l>(count: &str, lines: impl Iterator<Item = &'l str>) -> Option<KeyState> {
    let count = count.parse().ok()?;
    let holder = |line: &str| {
        let (left, rest) = line.split_once(' ')?;
        let (slot, token) = rest.split_once(' ')?;
        let KeyState::Held(holder) = of_string(token.as_bytes()) else { return None };
        let remaining = Some(Duration::from_millis(left.parse().ok()?));
        Some((slot.parse().ok()?, Holder { remaining, ..holder }))
    };
    let mut holders = lines.map(holder).collect::<Option<Vec<_>>>()?;
    holders.truncate(MOST_SHOWN);
    if holders.is_empty() {
        return None;
    }
    Some(KeyState::Permits(Permits { holders, count, remaining: None }))
}

/// What data is that `TYPE` calls so, and that is no string. Empty where the node did not say.
pub(in crate::proto::core) fn of_type(name: &[u8]) -> KeyState {
    foreign(match name {
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

fn foreign(kind: DataKind) -> KeyState {
    KeyState::Foreign(Foreign { kind, remaining: None })
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
        [b':', label @ ..] if !label.is_empty() && check_label(label).is_ok() => {
            Some((digits, Some(label)))
        }
        _ => None,
    }
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
        for (at, (slot, holder)) in self.holders.iter().enumerate() {
            write!(f, "{}{slot}: {holder}", if at == 0 { "" } else { ", " })?;
        }
        match self.count.saturating_sub(self.holders.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Their names.
impl fmt::Display for Sharers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, holder) in self.holders.iter().enumerate() {
            write!(f, "{}{holder}", if at == 0 { "" } else { ", " })?;
        }
        match self.count.saturating_sub(self.holders.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DataKind::Redisson { .. }
            | DataKind::RedissonReadWrite { .. }
            | DataKind::Symfony { .. }
            | DataKind::Time { .. } => self.kind.fmt(f),
            other => write!(f, "other data, {other}"),
        }
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
            lock => lock.fmt_holders(f),
        }
    }
}

impl DataKind {
    /// Who has a lock of another library.
    fn fmt_holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redisson { owner, holds } => {
                write!(f, "held by Redisson {owner}")?;
                several_holds(f, *holds)
            }
            Self::RedissonReadWrite { is_write, holders, owner, holds } => {
                match is_write {
                    true => f.write_str("held by a writer of Redisson")?,
                    false => {
                        write!(f, "held by {holders} reader{} of Redisson", plural(*holders))?;
                    }
                }
                let Some(owner) = owner else { return Ok(()) };
                let among = if *holders > 1 { ", among them" } else { "" };
                write!(f, "{among} {owner}")?;
                several_holds(f, *holds)
            }
            Self::Symfony { is_write: true, .. } => f.write_str("held by Symfony"),
            Self::Symfony { holders, .. } => {
                write!(f, "held by {holders} reader{} of Symfony", plural(*holders))
            }
            Self::Time { ends } => {
                write!(f, "held by SETNX or redis-objects until second {}", ends.as_secs())
            }
            _ => Ok(()),
        }
    }
}

fn several_holds(f: &mut fmt::Formatter<'_>, holds: u64) -> fmt::Result {
    if holds == 1 { Ok(()) } else { write!(f, ", {holds} holds") }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// What stands before the token of a reader that shares with nobody else, and so is a string.
const READER: &[u8] = b"r:";

/// What a writer's token begins with that is a member of a sorted set.
const WRITER: &str = "w:";

/// The longest token.
const LONGEST: usize = TOKEN_DIGITS + 1 + MAX_LABEL;

/// The longest mark behind it: a line feed, and ms since 1970.
const MARK: usize = 1 + 16;

/// The most holders that are shown.
pub(super) const MOST_SHOWN: usize = 16;

/// So much of a string is looked at, from its beginning.
pub(crate) const VIEWED: usize = LONGEST + MARK;

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00112233445566778899aabbccddeeff00";

    fn held(value: &str) -> Holder {
        match of_string(value.as_bytes()) {
            KeyState::Held(holder) => holder,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn one_holder_looks_the_same_on_all_nodes() {
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
        assert_eq!(of_string(line::CLOSED), KeyState::Free);
    }

    /// On another node the same holder may be among several.
    #[test]
    fn whoever_shares_alone_looks_as_beside_others() {
        let state = of_string(format!("r:{TOKEN}:web-1:77").as_bytes());
        let KeyState::Shared(Sharers { holders, count: 1, remaining: None }) = state else {
            panic!("{state:?}")
        };
        assert_eq!(holders, [held(&format!("{TOKEN}:web-1:77"))]);
        let longest = format!("r:{TOKEN}:{}", "x".repeat(MAX_LABEL));
        assert!(matches!(of_string(longest.as_bytes()), KeyState::Shared(_)));
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
            let state = of_string(value.as_bytes());
            let KeyState::Foreign(data) = &state else { panic!("{value:?}: {state:?}") };
            let told = format!("{data} {data:?}");
            assert!(value.len() < 8 || !told.contains(&value[..8]), "{told}");
            let bytes = Some(value.len());
            assert!(matches!(data.kind, DataKind::String { bytes: b, .. } if b == bytes), "{told}");
        }
        let too_long = format!("{TOKEN}:{}", "x".repeat(MAX_LABEL + 1));
        let KeyState::Foreign(data) = of_string(too_long.as_bytes()) else { panic!() };
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
