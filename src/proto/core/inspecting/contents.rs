//! The state of a key, read from a node's replies with the configured formats.

use std::time::Duration;

use crate::proto::format::{self, Data, Format, plain};
use crate::proto::key_state::{
    Holder, KeyState, MOST_SHOWN, Permits, Sharers, holder_of, without_mark,
};
use crate::proto::profile::Profile;

/// A key's state, and what a script needs to remove its holders.
pub(super) struct Contents {
    state: KeyState,
    format: Option<&'static Format>,
    holders: Vec<Vec<u8>>,
}

impl Contents {
    /// Returns the state, the format that recognised the data unless that is redbolt's own, and the
    /// members or fields of several holders.
    pub(super) fn into_parts(self) -> (KeyState, Option<&'static Format>, Vec<Vec<u8>>) {
        (self.state, self.format, self.holders)
    }
}

/// A reader of replies about a key, with these formats, the likeliest first.
pub(super) struct Reader<'a> {
    formats: &'a [Profile],
    named: Option<Profile>,
    key: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader. A format `named` by an operator comes before all others.
    pub(super) fn new(formats: &'a [Profile], named: Option<Profile>, key: &'a [u8]) -> Self {
        Self { formats, named, key }
    }

    /// Reads the beginning of a string.
    pub(super) fn of_string(&self, value: &[u8]) -> Contents {
        let (format, state) = self.recognise(&Data::String(without_mark(value).0)).unzip();
        let state = state.unwrap_or_else(|| plain::recognise(value));
        Contents { state, format, holders: Vec::new() }
    }

    /// Reads the reply of the script [`VIEW_SHARED`](crate::proto::script::VIEW_SHARED) about a
    /// sorted set. `None` if no format recognises it.
    pub(super) fn of_sharers(&self, text: &[u8]) -> Option<Contents> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let count = lines.next()?.parse().ok()?;
        let members = lines.map(|line| line.split_once(' ')).collect::<Option<Vec<_>>>()?;
        self.of_members(&Data::SortedSet { count, members: &members }, &members, || {
            sharers(count, &members)
        })
    }

    /// Reads the reply of the script [`VIEW_PERMITS`](crate::proto::script::VIEW_PERMITS) about a
    /// hash. `None` if no format recognises it.
    pub(super) fn of_permits(&self, text: &[u8]) -> Option<Contents> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let first = lines.next()?;
        let fields = lines.map(|line| line.split_once(' ')).collect::<Option<Vec<_>>>()?;
        if first == "hash" {
            return self.of_members(&Data::Hash(&fields), &fields, || None);
        }
        let state = permits(first.parse().ok()?, &fields)?;
        // The name follows the slot.
        let name = |(_, rest): &(&str, &str)| Some(rest.split_once(' ')?.1.as_bytes().to_vec());
        let holders = fields.iter().filter_map(name).collect();
        Some(Contents { state, format: None, holders })
    }

    fn of_members(
        &self,
        data: &Data<'_>,
        members: &[(&str, &str)],
        own: impl FnOnce() -> Option<KeyState>,
    ) -> Option<Contents> {
        let (format, state) = self.recognise(data).unzip();
        let state = state.or_else(own)?;
        let names = members.iter().map(|&(_, name)| name);
        let names = names.filter(|name| format.is_none_or(|format| format.is_holder(name)));
        let holders = names.map(|name| name.as_bytes().to_vec()).collect();
        Some(Contents { state, format, holders })
    }

    fn recognise(&self, data: &Data<'_>) -> Option<(&'static Format, KeyState)> {
        let formats = self.named.into_iter().chain(self.formats.iter().copied());
        format::recognise(formats, self.key, data)
    }
}

/// Reads redbolt's sorted set of readers, or of a writer and its own claim as a reader.
fn sharers(count: usize, members: &[(&str, &str)]) -> Option<KeyState> {
    let mut writer = None;
    let mut holder = |&(left, name): &(&str, &str)| {
        if let Some(token) = name.strip_prefix(WRITER) {
            writer = holder_of(token.as_bytes());
            return Some(None);
        }
        Some(Some(holder_for(left, name)?))
    };
    let holders = members.iter().map(&mut holder).collect::<Option<Vec<_>>>()?;
    let mut holders: Vec<_> = holders.into_iter().flatten().collect();
    // A force-unlock lists more holders than a view shows.
    holders.truncate(MOST_SHOWN);
    // A reader next to a writer is that writer, with its claim as a reader.
    if let Some(writer) = writer {
        return Some(KeyState::Held(writer));
    }
    // Without an unexpired holder the key would not exist.
    (!holders.is_empty()).then(|| KeyState::Shared(Sharers::new(holders, count, None)))
}

/// Reads a semaphore of redbolt. Each member has its slot before its name.
fn permits(count: usize, members: &[(&str, &str)]) -> Option<KeyState> {
    let holder = |&(left, rest): &(&str, &str)| {
        let (slot, token) = rest.split_once(' ')?;
        Some((slot.parse().ok()?, holder_for(left, token)?))
    };
    let mut holders = members.iter().map(holder).collect::<Option<Vec<_>>>()?;
    // A force-unlock lists more holders than a view shows.
    holders.truncate(MOST_SHOWN);
    (!holders.is_empty()).then(|| KeyState::Permits(Permits::new(holders, count, None)))
}

/// Returns the holder with this token and remaining time in ms.
fn holder_for(left: &str, token: &str) -> Option<Holder> {
    let remaining = Some(Duration::from_millis(left.parse().ok()?));
    Some(Holder { remaining, ..holder_of(token.as_bytes())? })
}

/// The prefix of a writer's token in a sorted set.
const WRITER: &str = "w:";
