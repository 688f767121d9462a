//! The keys of one database at one instant.
//!
//! Every read and write of a key, by a command or a script, goes through [`Keys`], and only here is
//! expiry decided. An expired key is removed when it is touched. Until then it costs memory, never
//! a wrong reply.

use std::{collections::BTreeMap, fmt};

use crate::{clock::ClockReading, fields::Fields, sharers::Sharers, tracking::Journal};

/// The keys of one database, ordered so that two runs never differ.
pub(crate) type Entries = BTreeMap<Vec<u8>, Entry>;

#[derive(Clone)]
pub(crate) struct Entry {
    value: Value,
    /// Unix milliseconds of the last instant at which the key exists.
    expires: Option<i64>,
}

#[derive(Clone)]
enum Value {
    Bytes(Vec<u8>),
    /// A hash, which is not empty: the key ends with its last field.
    Fields(Fields),
    /// A list, which is not empty, with the latest entry first.
    List(Vec<Vec<u8>>),
    /// A sorted set, which is not empty: the key ends with its last member.
    Sharers(Sharers),
}

/// The error of a command on a key with data of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongType;

impl WrongType {
    pub(crate) const TEXT: &str =
        "WRONGTYPE Operation against a key holding the wrong kind of value";
}

impl Entry {
    fn is_over(&self, now: ClockReading) -> bool {
        self.expires.is_some_and(|at| now.millis() > at)
    }
}

/// Returns true if a key exists, without touching it.
pub(crate) fn holds(entries: &Entries, key: &[u8], now: ClockReading) -> bool {
    entries.get(key).is_some_and(|entry| !entry.is_over(now))
}

/// Returns the string under a key, without touching it.
pub(crate) fn string<'e>(entries: &'e Entries, key: &[u8], now: ClockReading) -> Option<&'e [u8]> {
    match entries.get(key).filter(|entry| !entry.is_over(now))?.value {
        Value::Bytes(ref bytes) => Some(bytes),
        Value::Fields(_) | Value::List(_) | Value::Sharers(_) => None,
    }
}

/// Removes all expired keys.
pub(crate) fn expire(entries: &mut Entries, now: ClockReading, journal: &mut Journal) {
    entries.retain(|key, entry| {
        let is_over = entry.is_over(now);
        if is_over {
            journal.changed(key);
        }
        !is_over
    });
}

/// The keys of a connection's database, at the instant of a command.
pub(crate) struct Keys<'s> {
    entries: &'s mut Entries,
    now: ClockReading,
    /// The journal of reads and changes, if a connection tracks.
    journal: Option<&'s mut Journal>,
}

/// The effect of SET on the key's TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    Kept,
    /// Unix milliseconds.
    At(i64),
}

impl<'s> Keys<'s> {
    pub(crate) fn new(entries: &'s mut Entries, now: ClockReading) -> Self {
        Self { entries, now, journal: None }
    }

    pub(crate) fn written_down(self, journal: &'s mut Journal) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Returns the node's clock, as TIME does.
    pub(crate) fn now(&self) -> ClockReading {
        self.now
    }

    /// Returns the bytes of a string.
    pub(crate) fn bytes(&mut self, key: &[u8]) -> Result<Option<&[u8]>, WrongType> {
        match self.read(key) {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::Fields(_) | Value::List(_) | Value::Sharers(_)) => Err(WrongType),
        }
    }

    /// Returns the fields of a hash.
    pub(crate) fn fields(&mut self, key: &[u8]) -> Result<Option<&Fields>, WrongType> {
        match self.read(key) {
            None => Ok(None),
            Some(Value::Fields(fields)) => Ok(Some(fields)),
            Some(Value::Bytes(_) | Value::List(_) | Value::Sharers(_)) => Err(WrongType),
        }
    }

    /// Returns the length of a list.
    pub(crate) fn list_len(&mut self, key: &[u8]) -> Result<usize, WrongType> {
        match self.read(key) {
            None => Ok(0),
            Some(Value::List(entries)) => Ok(entries.len()),
            Some(Value::Bytes(_) | Value::Fields(_) | Value::Sharers(_)) => Err(WrongType),
        }
    }

    /// Returns the members of a sorted set.
    pub(crate) fn sharers(&mut self, key: &[u8]) -> Result<Option<&Sharers>, WrongType> {
        match self.read(key) {
            None => Ok(None),
            Some(Value::Sharers(sharers)) => Ok(Some(sharers)),
            Some(Value::Bytes(_) | Value::Fields(_) | Value::List(_)) => Err(WrongType),
        }
    }

    /// Returns the type, as TYPE does.
    pub(crate) fn kind(&mut self, key: &[u8]) -> &'static str {
        match self.read(key) {
            None => "none",
            Some(Value::Bytes(_)) => "string",
            Some(Value::Fields(_)) => "hash",
            Some(Value::List(_)) => "list",
            Some(Value::Sharers(_)) => "zset",
        }
    }

    /// Returns all data of a key, each part behind its length, so that different data have
    /// different bytes.
    pub(crate) fn dump(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let mut dump = self.kind(key).as_bytes().to_vec();
        let mut add = |part: &[u8]| {
            dump.extend_from_slice(format!(" {} ", part.len()).as_bytes());
            dump.extend_from_slice(part);
        };
        match self.read(key)? {
            Value::Bytes(bytes) => add(bytes),
            Value::Fields(fields) => fields.iter().for_each(|(name, value)| {
                add(name);
                add(value);
            }),
            Value::List(entries) => entries.iter().for_each(|entry| add(entry)),
            Value::Sharers(sharers) => sharers.iter().for_each(|(name, end)| {
                add(name);
                add(end.to_string().as_bytes());
            }),
        }
        Some(dump)
    }

    fn read(&mut self, key: &[u8]) -> Option<&Value> {
        self.live(key);
        // A read of a missing key is tracked too, because its creation is a change.
        self.note_read();
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Returns the milliseconds left like PTTL: −1 without a TTL, −2 without the key.
    pub(crate) fn pttl(&mut self, key: &[u8]) -> i64 {
        let now = self.now.millis();
        let left = match self.live(key) {
            None => -2,
            Some(Entry { expires: None, .. }) => -1,
            Some(Entry { expires: Some(at), .. }) => *at - now,
        };
        self.note_read();
        left
    }

    /// Removes a key and returns true if it existed.
    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.live(key).is_some() && self.entries.remove(key).is_some();
        if was_there {
            self.note_change(key);
        }
        was_there
    }

    /// Sets a key to live for `ttl` milliseconds from now.
    pub(crate) fn set_for(&mut self, key: &[u8], bytes: &[u8], ttl: i64) {
        self.set(key, bytes, Expiry::At(self.now.millis().saturating_add(ttl)));
    }

    /// Gives a key a TTL of `ttl` milliseconds; a TTL of zero or less removes it. Returns true if
    /// it existed.
    pub(crate) fn expire_in(&mut self, key: &[u8], ttl: i64) -> bool {
        self.expire_at(key, self.now.millis().saturating_add(ttl))
    }

    pub(crate) fn contains(&mut self, key: &[u8]) -> bool {
        self.live(key).is_some()
    }

    /// Returns the end of the key in Unix milliseconds, if it exists and has a TTL.
    pub(crate) fn expiry(&mut self, key: &[u8]) -> Option<i64> {
        self.live(key)?.expires
    }

    /// Sets a key, with any previous type.
    pub(crate) fn set(&mut self, key: &[u8], bytes: &[u8], expiry: Expiry) {
        let expires = match expiry {
            Expiry::Never => None,
            Expiry::Kept => self.expiry(key),
            Expiry::At(at) => Some(at),
        };
        match self.entries.get_mut(key) {
            Some(Entry { value: Value::Bytes(before), expires: end }) => {
                before.clear();
                before.extend_from_slice(bytes);
                *end = expires;
            }
            _ => {
                let value = Value::Bytes(bytes.to_vec());
                self.entries.insert(key.to_vec(), Entry { value, expires });
            }
        }
        self.note_change(key);
    }

    pub(crate) fn expire_at(&mut self, key: &[u8], at: i64) -> bool {
        if at <= self.now.millis() {
            return self.delete(key);
        }
        let Some(entry) = self.live(key) else { return false };
        entry.expires = Some(at);
        self.note_change(key);
        true
    }

    /// Sets fields of a hash. A new key has no TTL.
    pub(crate) fn set_fields(
        &mut self,
        key: &[u8],
        fields: &[(&[u8], &[u8])],
    ) -> Result<(), WrongType> {
        if self.live(key).is_none() {
            let value = Value::Fields(Fields::default());
            self.entries.insert(key.to_vec(), Entry { value, expires: None });
        }
        let Some(Entry { value: Value::Fields(of), .. }) = self.live(key) else {
            return Err(WrongType);
        };
        fields.iter().for_each(|(field, value)| of.set(field, value));
        self.note_change(key);
        Ok(())
    }

    /// Removes fields of a hash, and the key with the last of them. Returns the number removed.
    pub(crate) fn remove_fields(
        &mut self,
        key: &[u8],
        fields: &[&[u8]],
    ) -> Result<usize, WrongType> {
        let Some(entry) = self.live(key) else { return Ok(0) };
        let Value::Fields(of) = &mut entry.value else { return Err(WrongType) };
        let removed = fields.iter().filter(|field| of.remove(field)).count();
        if of.is_empty() {
            self.entries.remove(key);
        }
        if removed > 0 {
            self.note_change(key);
        }
        Ok(removed)
    }

    /// Puts an entry in front of a list. A new key has no TTL. Returns the length of the list.
    pub(crate) fn push(&mut self, key: &[u8], entry: &[u8]) -> Result<usize, WrongType> {
        if self.live(key).is_none() {
            let value = Value::List(Vec::new());
            self.entries.insert(key.to_vec(), Entry { value, expires: None });
        }
        let Some(Entry { value: Value::List(entries), .. }) = self.live(key) else {
            return Err(WrongType);
        };
        entries.insert(0, entry.to_vec());
        let len = entries.len();
        self.note_change(key);
        Ok(len)
    }

    /// Adds a member to a sorted set, or sets its end. A new key has no TTL. Returns true if it
    /// changed anything.
    pub(crate) fn share(&mut self, key: &[u8], name: &[u8], end: i64) -> Result<bool, WrongType> {
        if self.live(key).is_none() {
            let value = Value::Sharers(Sharers::default());
            self.entries.insert(key.to_vec(), Entry { value, expires: None });
        }
        self.change_sharers(key, |sharers| sharers.end_at(name, end))
    }

    /// Removes a member of a sorted set and returns true if it existed.
    pub(crate) fn unshare(&mut self, key: &[u8], name: &[u8]) -> Result<bool, WrongType> {
        self.change_sharers(key, |sharers| sharers.remove(name))
    }

    /// Removes all members that end at `time` or earlier.
    pub(crate) fn unshare_until(&mut self, key: &[u8], time: i64) -> Result<(), WrongType> {
        self.change_sharers(key, |sharers| sharers.remove_until(time)).map(drop)
    }

    /// Changes a sorted set; `change` returns true if it did. A set without members is removed.
    fn change_sharers(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Sharers) -> bool,
    ) -> Result<bool, WrongType> {
        let Some(entry) = self.live(key) else { return Ok(false) };
        let Value::Sharers(sharers) = &mut entry.value else { return Err(WrongType) };
        let changed = change(sharers);
        if sharers.is_empty() {
            self.entries.remove(key);
        }
        if changed {
            self.note_change(key);
        }
        Ok(changed)
    }

    fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.entries.get(key)?.is_over(self.now) {
            self.entries.remove(key);
            self.note_change(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    fn note_read(&mut self) {
        self.journal.iter_mut().for_each(|journal| journal.read());
    }

    fn note_change(&mut self, key: &[u8]) {
        self.journal.iter_mut().for_each(|journal| journal.changed(key));
    }
}

/// Omits the values, which are tokens.
impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("count", &self.entries.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_exists_through_its_last_millisecond() {
        let mut entries = Entries::new();
        Keys::new(&mut entries, ClockReading::from_millis(1_000)).set_for(b"k", b"v", 50);
        assert_eq!(Keys::new(&mut entries, ClockReading::from_millis(1_049)).pttl(b"k"), 1);
        assert_eq!(Keys::new(&mut entries, ClockReading::from_millis(1_050)).pttl(b"k"), 0);
        assert_eq!(
            Keys::new(&mut entries, ClockReading::from_millis(1_050)).bytes(b"k"),
            Ok(Some(&b"v"[..]))
        );
        assert_eq!(Keys::new(&mut entries, ClockReading::from_millis(1_051)).pttl(b"k"), -2);
        assert!(entries.is_empty(), "touched and over, it is gone for good");
    }

    #[test]
    fn an_expired_key_does_not_exist_for_any_command() {
        let with_dead_key = |use_it: &dyn Fn(&mut Keys<'_>)| {
            let mut entries = Entries::new();
            Keys::new(&mut entries, ClockReading::from_millis(0)).set_for(b"k", b"v", 10);
            use_it(&mut Keys::new(&mut entries, ClockReading::from_millis(11)));
        };
        with_dead_key(&|keys| assert!(!keys.delete(b"k")));
        with_dead_key(&|keys| assert!(!keys.contains(b"k")));
        with_dead_key(&|keys| assert!(!keys.expire_in(b"k", 100)));
        with_dead_key(&|keys| {
            keys.set(b"k", b"w", Expiry::Kept);
            assert_eq!(keys.pttl(b"k"), -1);
        });
    }

    #[test]
    fn setting_and_expiring_change_the_ttl() {
        let mut entries = Entries::new();
        let mut keys = Keys::new(&mut entries, ClockReading::from_millis(100));
        keys.set_for(b"k", b"v", 10);
        keys.set(b"k", b"w", Expiry::Kept);
        assert_eq!(keys.bytes(b"k"), Ok(Some(&b"w"[..])));
        assert_eq!(keys.pttl(b"k"), 10);
        keys.set(b"k", b"w", Expiry::Never);
        assert_eq!(keys.pttl(b"k"), -1);
        assert!(keys.expire_in(b"k", 7));
        assert_eq!(keys.pttl(b"k"), 7);
        assert!(keys.expire_in(b"k", 0), "nothing left removes the key");
        assert_eq!(keys.pttl(b"k"), -2);
    }
}
