//! The record of a detached lock, with which another process can continue it, and its text.
//!
//! The text is the lock: any process that has it can extend and release. So only
//! [`DetachedLock::to_text`] shows the token, and no error repeats what it has read. Names of nodes
//! and of the machine's boot are texts that an API sets and compares.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::form::Form;
use crate::proto::config::Config;
use crate::proto::core::claims::hex;
use crate::proto::fence::{FencingToken, MAX_TOKEN};
use crate::proto::key_state::{MAX_LABEL, RANDOM_DIGITS};
use crate::proto::lease::Lease;
use crate::proto::lock_mode::LockMode;
use crate::proto::names::{MAX_NODES, NodeId, NodeSet};
use crate::proto::permits::MAX_PERMITS;
use crate::proto::profile::Profile;
use crate::proto::request::{LockRequest, MAX_KEYS, MAX_RESOURCE};
use crate::proto::time::{ClockReading, Timestamp};

/// A lock that was detached, to be attached by another process on the same machine.
///
/// One process at a time may continue it: two that attach the same record hold the same lock, and
/// what one of them releases the other has lost. Meanwhile no process extends it, and
/// [`AutoExtend`](crate::proto::AutoExtend) is not part of the record.
///
/// Its lease is on both clocks of the machine on which it was taken. The boot clock is the same for
/// all processes there, and never steps back before the next boot. So a record has expired
///
/// * when it has on either clock, as any lease;
/// * when the boot clock is behind the record's, because the machine was restarted since;
/// * when the machine's boot has another name than the record's (APIs on Linux compare it). That
///   detects a restart that took less time than the record is old, and a record that was copied to
///   another machine. If boots have no name, the time of day ends a record after a restart, because
///   it continues while a machine is off. Without a battery for it, trust no record from before a
///   restart.
#[derive(Clone, PartialEq, Eq)]
pub struct DetachedLock {
    pub(crate) nodes: Vec<DetachedNode>,
    pub(crate) quorum: u8,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) mode: LockMode,
    /// The slot of a permit.
    pub(crate) slot: Option<u16>,
    pub(crate) form: Form,
    pub(crate) ttl: Duration,
    pub(crate) lease: Lease,
    pub(crate) held_since: Timestamp,
    /// The time after which no node can have the keys.
    pub(crate) keys_until: Timestamp,
    pub(crate) fencing_token: Option<FencingToken>,
    pub(crate) random: [u8; 16],
    pub(crate) label: Vec<u8>,
    /// The name of the machine's boot, if an API has set it.
    pub(crate) boot: String,
}

/// A node's part in a detached lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetachedNode {
    /// The name that an API has set, empty before.
    pub(crate) name: String,
    pub(crate) part: Part,
}

/// The part of a node: what it may hold of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A node that was asked and has answered with a denial, or a grant that does not count.
    Asked,
    /// A node whose grant counted, but which may not keep the key for the whole lease, because it
    /// missed an extension.
    Behind,
    /// A node whose grant counted, and whose extensions may count.
    Counted,
    /// A node that was asked and has not answered. The request may still run, and its grant never
    /// counts.
    Open,
    /// A node that was never asked.
    Untouched,
}

impl DetachedLock {
    /// Returns the resources of the lock.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Returns the sharing mode.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// Returns the slot of a permit. `None` for any other lock.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        self.slot
    }

    /// Returns the profile, which names the library whose locks it takes part in.
    #[must_use]
    pub fn profile(&self) -> Profile {
        match self.form {
            Form::Foreign(profile) => profile,
            _ => Profile::PLAIN,
        }
    }

    /// Returns the TTL that was requested.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the lease at the time of detaching.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the fencing token, or `None` if none was requested.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.fencing_token
    }

    /// Returns the label in its token, which is printable and may be empty.
    #[must_use]
    pub fn label(&self) -> String {
        String::from_utf8_lossy(&self.label).into_owned()
    }

    /// Returns the names that an API has set for the nodes, in order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Returns the name of the boot of its machine, or an empty text if no API has set one.
    #[must_use]
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Sets the texts that only an API has: the names of the nodes, in order, and the name of the
    /// machine's boot.
    pub fn name(&mut self, nodes: impl IntoIterator<Item = String>, boot: String) {
        for (node, name) in self.nodes.iter_mut().zip(nodes) {
            node.name = name;
        }
        self.boot = boot;
    }

    /// Returns this record with an expired lease, for a machine that has booted since.
    #[must_use]
    pub fn outlived(&self) -> Self {
        // This boot's clock does not show when the keys end, so the core uses the longest TTL.
        Self { lease: Lease::default(), keys_until: Timestamp::NEVER, ..self.clone() }
    }

    /// Returns the validity that is left at `now`.
    #[must_use]
    pub fn remaining(&self, now: ClockReading) -> Duration {
        // The boot clock starts at 0 with each boot, so an old lease could look as if it had hardly
        // begun.
        match self.lease.is_of_boot(now) {
            true => self.lease.remaining(now),
            false => Duration::ZERO,
        }
    }

    /// Returns the request for such a lock.
    pub(crate) fn request(&self) -> LockRequest<'_> {
        let mut keys = self.keys();
        let first = LockRequest::new(keys.next().unwrap_or_default()).ttl(self.ttl);
        let first = first.format(self.profile());
        let first = match self.mode {
            LockMode::Exclusive => first,
            LockMode::Shared => first.shared(),
            LockMode::Permit { of } => first.permits(of),
        };
        let request = keys.fold(first, LockRequest::and);
        if self.fencing_token.is_some() { request.fenced() } else { request }
    }

    /// Returns whether it can be a lock on the nodes of this configuration.
    pub(super) fn fits(&self, config: &Config) -> bool {
        // Quorums of two configurations need not have a node in common, and each could grant the
        // lock.
        self.nodes.len() == config.node_count() && self.quorum == config.quorum
    }

    /// Returns the nodes with one of these parts.
    pub(super) fn with(&self, wanted: &[Part]) -> NodeSet {
        let mut nodes = NodeSet::default();
        for (at, node) in self.nodes.iter().enumerate() {
            if wanted.contains(&node.part) {
                // There are at most MAX_NODES.
                nodes.insert(NodeId(at as u8));
            }
        }
        nodes
    }

    /// Returns the whole record **with the token**: keep it where no other user can read it.
    ///
    /// It has lines of printable ASCII: a name, a blank, a value. Bytes that are not graphic are
    /// written as in URLs, `%0A`. The first line names the form of the record.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        let mut line = |name: &str, value: &str| {
            text.push_str(name);
            text.push(' ');
            text.push_str(value);
            text.push('\n');
        };
        line("boot", &escaped(self.boot.as_bytes()));
        line("quorum", &self.quorum.to_string());
        for node in &self.nodes {
            line("node", &format!("{} {}", node.part.word(), escaped(node.name.as_bytes())));
        }
        line("kind", &self.kind());
        for key in &self.keys {
            line("key", &escaped(key));
        }
        if let (LockMode::Permit { of }, Some(slot)) = (self.mode, self.slot) {
            line("permits", &of.to_string());
            line("slot", &slot.to_string());
        }
        let (since, span_ns) = self.lease.parts();
        line("ttl_ms", &self.ttl.as_millis().to_string());
        line("boot_ns", &since.boot.0.to_string());
        line("wall_ns", &since.wall.0.to_string());
        line("span_ns", &span_ns.to_string());
        line("held_since_ns", &self.held_since.0.to_string());
        line("keys_until_ns", &self.keys_until.0.to_string());
        if let Some(token) = self.fencing_token {
            line("fencing_token", &token.to_string());
        }
        let digits: String = self.random.into_iter().flat_map(hex).map(char::from).collect();
        line("token", &digits);
        line("label", &escaped(&self.label));
        self.form.write(&mut line);
        // This line distinguishes a whole record from one that was cut off between two lines.
        text.push_str(LAST_LINE);
        text.push('\n');
        text
    }

    fn kind(&self) -> String {
        let Form::Foreign(profile) = self.form else { return self.own_kind().to_owned() };
        let more = match (self.mode, self.fencing_token) {
            (_, Some(_)) => OF_FENCED,
            (LockMode::Shared, None) => OF_SHARED,
            _ => "",
        };
        format!("{profile}{more}")
    }

    fn own_kind(&self) -> &'static str {
        match (&self.form, self.fencing_token) {
            (Form::Asked | Form::Foreign(_), _) => {}
            (Form::Upgraded(_), None) => return UPGRADED,
            (Form::Upgraded(_), Some(_)) => return UPGRADED_FENCED,
            (Form::Downgraded, None) => return DOWNGRADED,
            (Form::Downgraded, Some(_)) => return DOWNGRADED_FENCED,
        }
        match (self.mode, self.fencing_token, self.keys.len()) {
            (LockMode::Permit { .. }, None, _) => PERMIT,
            (LockMode::Permit { .. }, Some(_), _) => PERMIT_FENCED,
            (LockMode::Shared, None, _) => SHARED,
            (LockMode::Shared, Some(_), _) => SHARED_FENCED,
            (LockMode::Exclusive, Some(_), _) => FENCED,
            (LockMode::Exclusive, None, 1) => "plain",
            (LockMode::Exclusive, None, _) => "many",
        }
    }

    /// Returns the first field with a value that no lock can have.
    fn contradiction(&self) -> Option<DetachedLockError> {
        let quorum = usize::from(self.quorum);
        let is_printable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let twice = |(at, key): (usize, &Vec<u8>)| self.keys[..at].contains(key);
        let token = self.fencing_token.map_or(1, FencingToken::get);
        let is_of_one = self.mode != LockMode::Exclusive || self.form != Form::Asked;
        // A record is data from outside. An edited one must not become a lock that no quorum has
        // granted.
        let of = if quorum <= self.nodes.len() / 2 || quorum > self.nodes.len() {
            "quorum"
        } else if self.with(&[Part::Counted]).len() < quorum {
            "node"
        } else if let LockMode::Permit { of } = self.mode
            && self.slot.is_none_or(|slot| slot >= of || of > MAX_PERMITS)
        {
            "slot"
        } else if is_of_one && self.keys.len() > 1
            || self.keys.iter().any(Vec::is_empty)
            || self.keys.iter().enumerate().any(twice)
        {
            "key"
        } else if self.ttl.is_zero() || self.ttl > LONGEST {
            "ttl_ms"
        } else if self.lease.parts().1 > LONGEST.as_nanos() as u64 {
            "span_ns"
        } else if !(1..=MAX_TOKEN).contains(&token) {
            "fencing_token"
        } else if !self.label.iter().all(is_printable) {
            "label"
        } else if !self.form.is_possible(self.nodes.len(), quorum) {
            "reader_node"
        } else {
            return None;
        };
        Some(DetachedLockError::Contradiction { of })
    }
}

impl FromStr for DetachedLock {
    type Err = DetachedLockError;

    /// Reads what [`to_text`](DetachedLock::to_text) has written, and nothing else. A program that
    /// reads records contains the formats of all [profiles](crate::Profile).
    ///
    /// # Errors
    ///
    /// Returns the first line that is wrong. The error repeats nothing of the text.
    fn from_str(text: &str) -> Result<Self, DetachedLockError> {
        let mut lines = TextLines::new(text)?;
        let boot = lines.words("boot", MAX_NAME)?;
        let quorum = lines.number("quorum")?;
        let nodes = lines.all("node", MAX_NODES, node)?;
        let kind = lines.field("kind")?;
        let keys = lines.all("key", MAX_KEYS, |value| unescaped(value, MAX_RESOURCE))?;
        let (mode, form, is_fenced) = mode(kind);
        let (mode, slot) = lines.permit(mode)?;
        let ttl = Duration::from_millis(lines.number("ttl_ms")?);
        let lease = lines.lease("boot_ns", "wall_ns", "span_ns")?;
        let held_since = Timestamp(lines.number("held_since_ns")?);
        let keys_until = Timestamp(lines.number("keys_until_ns")?);
        let fencing_token = if is_fenced { Some(lines.number("fencing_token")?) } else { None };
        let random = digits(lines.field("token")?).ok_or_else(|| lines.wrong("token"))?;
        let label =
            unescaped(lines.field("label")?, MAX_LABEL).ok_or_else(|| lines.wrong("label"))?;
        let form = form.read(&mut lines)?;
        lines.end()?;
        let detached = Self {
            nodes,
            quorum,
            keys,
            mode,
            slot,
            form,
            ttl,
            lease,
            held_since,
            keys_until,
            fencing_token: fencing_token.map(FencingToken::new),
            random,
            label,
            boot,
        };
        // Each lock has one text: what is read is what would be written.
        let is_kind = detached.kind() == kind;
        detached.contradiction().map_or(Ok(()), Err)?;
        if is_kind { Ok(detached) } else { Err(DetachedLockError::Contradiction { of: "kind" }) }
    }
}

/// Returns the mode of a lock of this kind, its form, and whether it has a fencing token.
fn mode(kind: &str) -> (LockMode, Form, bool) {
    match kind {
        // The number of permits is in another line.
        PERMIT => (LockMode::Permit { of: 0 }, Form::Asked, false),
        PERMIT_FENCED => (LockMode::Permit { of: 0 }, Form::Asked, true),
        SHARED => (LockMode::Shared, Form::Asked, false),
        SHARED_FENCED => (LockMode::Shared, Form::Asked, true),
        DOWNGRADED => (LockMode::Shared, Form::Downgraded, false),
        DOWNGRADED_FENCED => (LockMode::Shared, Form::Downgraded, true),
        UPGRADED => (LockMode::Exclusive, Form::Upgraded(None), false),
        UPGRADED_FENCED => (LockMode::Exclusive, Form::Upgraded(None), true),
        FENCED => (LockMode::Exclusive, Form::Asked, true),
        _ => foreign(kind).unwrap_or((LockMode::Exclusive, Form::Asked, false)),
    }
}

/// Reads the kind of another library's lock, which must be possible in its format.
fn foreign(kind: &str) -> Option<(LockMode, Form, bool)> {
    let shared = kind.strip_suffix(OF_SHARED).map(|name| (name, LockMode::Shared));
    let (name, mode) = shared.unwrap_or((kind, LockMode::Exclusive));
    let fenced = name.strip_suffix(OF_FENCED);
    let profile = Profile::of_name(fenced.unwrap_or(name))?;
    // A record that was edited must not name a lock that its format cannot express.
    let is_possible = profile.cannot(mode, 1, fenced.is_some()).is_none();
    let is_foreign = profile != Profile::PLAIN && is_possible;
    is_foreign.then_some((mode, Form::Foreign(profile), fenced.is_some()))
}

impl fmt::Debug for DetachedLock {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys().map(|key| key.escape_ascii().to_string()).collect();
        f.debug_struct("DetachedLock")
            .field("keys", &keys)
            .field("label", &self.label())
            .finish_non_exhaustive()
    }
}

impl Part {
    const ALL: [Self; 5] = [Self::Asked, Self::Behind, Self::Counted, Self::Open, Self::Untouched];

    pub(super) fn from_text(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.word() == word)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Behind => "behind",
            Self::Counted => "counted",
            Self::Open => "open",
            Self::Untouched => "untouched",
        }
    }
}

/// The lines of a text, and the number of the last one read.
pub(super) struct TextLines<'t> {
    rest: std::iter::Peekable<std::str::Split<'t, char>>,
    at: usize,
}

impl<'t> TextLines<'t> {
    fn new(text: &'t str) -> Result<Self, DetachedLockError> {
        let whole = text.strip_suffix('\n');
        let mut rest = whole.unwrap_or(text).split('\n').peekable();
        let first = rest.next().unwrap_or_default();
        let form = first.strip_prefix(ANY_FORM);
        if first == FIRST_LINE && whole.is_some() {
            Ok(Self { rest, at: 1 })
        } else if first == FIRST_LINE {
            // The last line is not whole: without its last digits a number is another one.
            Err(DetachedLockError::CutOff)
        } else if form.is_some_and(|form| form.parse::<u32>().is_ok()) {
            Err(DetachedLockError::OtherForm)
        } else {
            Err(DetachedLockError::NoRecord)
        }
    }

    /// Returns whether the next line has this name.
    pub(super) fn goes_on_with(&mut self, name: &str) -> bool {
        self.rest.peek().is_some_and(|line| line.split(' ').next() == Some(name))
    }

    /// Returns the value of the next line, which must have this name.
    pub(super) fn field(&mut self, name: &'static str) -> Result<&'t str, DetachedLockError> {
        self.at += 1;
        let line = self.rest.next().ok_or(DetachedLockError::CutOff)?;
        let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
        value.ok_or_else(|| self.wrong(name))
    }

    /// Reads a lease from three lines with these names.
    pub(super) fn lease(
        &mut self,
        boot_ns: &'static str,
        wall_ns: &'static str,
        span_ns: &'static str,
    ) -> Result<Lease, DetachedLockError> {
        let boot = Timestamp(self.number(boot_ns)?);
        let since = ClockReading { boot, wall: Timestamp(self.number(wall_ns)?) };
        Ok(Lease::from_parts(since, self.number(span_ns)?))
    }

    pub(super) fn number<T: FromStr + ToString>(
        &mut self,
        name: &'static str,
    ) -> Result<T, DetachedLockError> {
        let value = self.field(name)?;
        // Rejects +7 and 007.
        let number = value.parse::<T>().ok().filter(|number| number.to_string() == value);
        number.ok_or_else(|| self.wrong(name))
    }

    fn words(&mut self, name: &'static str, most: usize) -> Result<String, DetachedLockError> {
        let value = self.field(name)?;
        let bytes = unescaped(value, most).ok_or_else(|| self.wrong(name))?;
        String::from_utf8(bytes).map_err(|_| self.wrong(name))
    }

    /// Reads one or more lines of this name.
    pub(super) fn all<T>(
        &mut self,
        name: &'static str,
        most: usize,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, DetachedLockError> {
        let mut found = Vec::new();
        while found.is_empty() || self.goes_on_with(name) {
            let value = self.field(name)?;
            // A text from outside must not take more memory than the largest lock.
            let one = read(value).filter(|_| found.len() < most);
            found.push(one.ok_or_else(|| self.wrong(name))?);
        }
        Ok(found)
    }

    /// Reads the number of permits and the slot, if the mode has them.
    fn permit(&mut self, mode: LockMode) -> Result<(LockMode, Option<u16>), DetachedLockError> {
        let LockMode::Permit { .. } = mode else { return Ok((mode, None)) };
        let mode = LockMode::Permit { of: self.number("permits")? };
        Ok((mode, Some(self.number("slot")?)))
    }

    fn end(mut self) -> Result<(), DetachedLockError> {
        match (self.rest.next(), self.rest.next()) {
            (Some(LAST_LINE), None) => Ok(()),
            (None, _) => Err(DetachedLockError::CutOff),
            _ => Err(DetachedLockError::Line { number: self.at + 1, expected: LAST_LINE }),
        }
    }

    pub(super) fn wrong(&self, name: &'static str) -> DetachedLockError {
        DetachedLockError::Line { number: self.at, expected: name }
    }
}

fn node(value: &str) -> Option<DetachedNode> {
    let (word, name) = value.split_once(' ')?;
    let part = Part::from_text(word)?;
    let name = String::from_utf8(unescaped(name, MAX_NAME)?).ok()?;
    Some(DetachedNode { name, part })
}

pub(super) fn digits(text: &str) -> Option<[u8; 16]> {
    let mut random = [0; 16];
    if text.len() != RANDOM_DIGITS {
        return None;
    }
    for (byte, pair) in random.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = from_hex(pair, b'a')?;
    }
    Some(random)
}

/// Reads two hexadecimal digits, whose letters begin with `ten`.
fn from_hex(pair: &[u8], ten: u8) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        _ if (ten..ten + 6).contains(&byte) => Some(byte - ten + 10),
        _ => None,
    };
    Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.extend(hex(byte).map(|digit| char::from(digit.to_ascii_uppercase())));
        }
    }
    text
}

/// Reads an escaped text. A byte that need not be escaped must not be, so each byte string has one
/// text.
fn unescaped(text: &str, most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len().min(most));
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, left) = match first {
            b'%' => (from_hex(behind, b'A').filter(|&byte| !is_plain(byte))?, &behind[2..]),
            &byte => (Some(byte).filter(|&byte| is_plain(byte))?, behind),
        };
        bytes.push(byte);
        rest = left;
    }
    (bytes.len() <= most).then_some(bytes)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// The reason why a text is not a [`DetachedLock`]. It repeats nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetachedLockError {
    /// A field has a value that no lock can have.
    Contradiction {
        /// The name of the field.
        of: &'static str,
    },
    /// The text ends too early.
    CutOff,
    /// A line is wrong.
    Line {
        /// The number of the line, from one.
        number: usize,
        /// The name that the line must have.
        expected: &'static str,
    },
    /// The text does not begin as a record does.
    NoRecord,
    /// The record has a form that this version cannot read.
    OtherForm,
}

impl fmt::Display for DetachedLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction { of } => write!(f, "the lock record's `{of}` cannot be"),
            Self::CutOff => f.write_str("the lock record is cut off"),
            Self::Line { number, expected } => {
                write!(f, "line {number} of the lock record is no `{expected}` as it must be")
            }
            Self::NoRecord => f.write_str("it is no lock record of redbolt's"),
            Self::OtherForm => f.write_str("a lock record of another version of redbolt"),
        }
    }
}

impl Error for DetachedLockError {}

const ANY_FORM: &str = "redbolt lock record ";
const FIRST_LINE: &str = "redbolt lock record 1";
const LAST_LINE: &str = "end";

/// Kinds of this format's locks that are shared, or have a fencing token, or both.
const PERMIT: &str = "permit";
const PERMIT_FENCED: &str = "permit-fenced";
const SHARED: &str = "shared";
const FENCED: &str = "fenced";
const SHARED_FENCED: &str = "shared-fenced";

/// Suffixes of a profile's name, which is the kind of another library's lock.
const OF_FENCED: &str = "-fenced";
const OF_SHARED: &str = "-shared";

/// Kinds of locks that have changed their mode, by the claim that they are held by.
const UPGRADED: &str = "upgraded";
const UPGRADED_FENCED: &str = "upgraded-fenced";
const DOWNGRADED: &str = "downgraded";
const DOWNGRADED_FENCED: &str = "downgraded-fenced";

/// The longest name of a node or a boot, in bytes.
const MAX_NAME: usize = 1 << 10;

/// The longest TTL.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> DetachedLock {
        let parts = [Part::Counted, Part::Open, Part::Counted];
        let since = ClockReading { boot: Timestamp(5), wall: Timestamp(7) };
        let mut detached = DetachedLock {
            nodes: parts.map(|part| DetachedNode { name: String::new(), part }).into(),
            quorum: 2,
            keys: vec![b"job".to_vec(), b" 100%\n\xff".to_vec()],
            mode: LockMode::Exclusive,
            slot: None,
            form: Form::Asked,
            ttl: Duration::from_secs(10),
            lease: Lease::from_parts(since, 9_898_000_000),
            held_since: Timestamp(5),
            keys_until: Timestamp(10_000),
            fencing_token: Some(FencingToken::new(7)),
            random: [0xa7; 16],
            label: b"web 1:77".to_vec(),
            boot: String::new(),
        };
        detached.name(["a:1/0", "b:1/0", "/c d/2"].map(str::to_owned), "b-1".to_owned());
        detached
    }

    #[test]
    fn a_written_record_can_be_read() {
        let detached = record();
        let text = detached.to_text();
        assert_eq!(DetachedLock::from_str(&text), Ok(detached.clone()));
        assert!(text.contains("\nkey %20100%25%0A%FF\n"), "{text}");
        assert!(text.contains("\nnode counted /c%20d/2\n"), "{text}");
        let fenced = DetachedLock { keys: vec![b"job".to_vec()], ..detached };
        let plain = DetachedLock { fencing_token: None, ..fenced.clone() };
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            for detached in [&fenced, &plain] {
                let detached = DetachedLock { mode, ..detached.clone() };
                assert_eq!(DetachedLock::from_str(&detached.to_text()), Ok(detached));
            }
        }
        let of = |profile| Form::Foreign(profile);
        let counted = DetachedLock { form: of(Profile::REDISSON), ..fenced };
        let mut foreign = vec![counted];
        for profile in [Profile::REDISSON_RW, Profile::SYMFONY] {
            let mode = LockMode::Shared;
            foreign.push(DetachedLock { form: of(profile), mode, ..plain.clone() });
        }
        for profile in Profile::ALL.into_iter().filter(|&profile| profile != Profile::PLAIN) {
            foreign.push(DetachedLock { form: of(profile), ..plain.clone() });
        }
        for detached in foreign {
            assert_eq!(DetachedLock::from_str(&detached.to_text()), Ok(detached));
        }
    }

    #[test]
    fn nothing_but_the_text_shows_the_token() {
        let secret = "a7a7a7a7";
        let detached = record();
        assert!(detached.to_text().contains(secret));
        assert!(!format!("{detached:?}").contains(secret));
        for from in 0..detached.to_text().len() {
            let mut text = detached.to_text();
            text.remove(from);
            if let Err(error) = DetachedLock::from_str(&text) {
                assert!(!format!("{error} {error:?}").contains(secret));
            }
        }
    }

    /// After the loss of any byte, the text is refused, or it is the text of another record.
    #[test]
    fn each_text_belongs_to_one_record() {
        let whole = record().to_text();
        for at in 0..whole.len() {
            let cut = DetachedLock::from_str(&whole[..at]);
            assert!(cut.is_err(), "cut off at {at}");
            for byte in ["", "0", "%", "\n", "\r\n", " ", "A", "\u{fc}"] {
                let text = [&whole[..at], byte, &whole[at + 1..]].concat();
                if let Ok(read) = DetachedLock::from_str(&text) {
                    assert_eq!(read.to_text(), text);
                }
            }
        }
    }

    #[test]
    fn a_record_that_no_lock_can_have_is_refused() {
        let text = record().to_text();
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            DetachedLock::from_str(&text.replacen(from, to, 1)).unwrap_err()
        };
        let of = |of| DetachedLockError::Contradiction { of };
        assert_eq!(refused("quorum 2", "quorum 1"), of("quorum"));
        assert_eq!(refused("quorum 2", "quorum 4"), of("quorum"));
        assert_eq!(refused("node counted a", "node asked a"), of("node"));
        assert_eq!(refused("key %20100%25%0A%FF", "key job"), of("key"));
        assert_eq!(refused("key job", "key "), of("key"));
        assert_eq!(refused("ttl_ms 10000", "ttl_ms 0"), of("ttl_ms"));
        assert_eq!(refused("span_ns 9898000000", "span_ns 86400000000001"), of("span_ns"));
        assert_eq!(refused("fencing_token 7", "fencing_token 0"), of("fencing_token"));
        assert_eq!(refused("label web", "label %0Aweb"), of("label"));
        assert_eq!(
            refused("kind fenced", "kind many"),
            DetachedLockError::Line { number: 16, expected: "token" }
        );
        assert_eq!(refused("record 1", "record 2"), DetachedLockError::OtherForm);
        assert_eq!(refused("redbolt", "rotbolt"), DetachedLockError::NoRecord);
        let words = refused("quorum 2", "quorum 02").to_string();
        assert_eq!(words, "line 3 of the lock record is no `quorum` as it must be");
    }

    #[test]
    fn a_record_from_before_a_restart_has_expired() {
        let detached = record();
        let at = |boot, wall| ClockReading { boot: Timestamp(boot), wall: Timestamp(wall) };
        assert_eq!(detached.remaining(at(5, 7)).as_millis(), 9_898);
        // The time of day was set back as well.
        assert_eq!(detached.remaining(at(4, 0)), Duration::ZERO);
        assert_eq!(detached.outlived().remaining(at(5, 7)), Duration::ZERO);
    }
}
