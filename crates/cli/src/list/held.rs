//! One row of the list: a lock, combined from the replies of the nodes about its name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::inspect::{DataKind, Foreign, Inspection, InspectionVerdict, KeyState};

use crate::foreign::{self, remaining};

/// A lock that is on at least one node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) name: OsString,
    pub(super) kind: Kind,
    /// The holders, as `redbolt status` shows them.
    pub(super) holder: String,
    pub(super) remaining: Option<Duration>,
    /// The number of waiters in the queue, if the nodes report it.
    pub(super) waiters: Option<usize>,
    /// The number of nodes that have the lock.
    pub(super) on: usize,
    /// Whether a quorum of the nodes has the lock, without which it is not held; `None` if this
    /// depends on nodes that did not answer.
    pub(super) has_quorum: Option<bool>,
}

/// The mode in which a lock is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exclusive {
        label: Option<String>,
        hash: u32,
    },
    Shared {
        count: usize,
    },
    Permits {
        count: usize,
    },
    /// A lock of another library, with the name of its profile or of the library.
    Foreign {
        library: Option<&'static str>,
    },
}

impl Lock {
    /// Returns the lock of this name, or `None` if no node that answered has one.
    pub(super) fn of(name: &[u8], seen: &Inspection, quorum: usize) -> Option<Self> {
        let states = || seen.nodes.iter().filter_map(|node| node.state.as_ref().ok());
        let agreed = by_quorum(&seen.verdict);
        let is_agreed = agreed.is_some();
        let most = || most_frequent(states().filter(|state| is_lock(state))).cloned();
        let state = agreed.or_else(most)?;
        let on = states().filter(|other| is_same(&state, other)).count();
        let unknown = seen.nodes.len() - states().count();
        let has_quorum = if is_agreed || on + unknown < quorum { Some(is_agreed) } else { None };
        Some(Self {
            name: OsStr::from_bytes(name).to_owned(),
            on,
            remaining: match &state {
                KeyState::Foreign(data) => remaining(data),
                state => state.remaining(),
            },
            waiters: seen.queue.as_ref().map(|queue| queue.count),
            holder: holder(&state),
            kind: kind(&state)?,
            has_quorum,
        })
    }
}

/// Returns the state that a quorum of the nodes agrees on, if it is a lock.
fn by_quorum(verdict: &InspectionVerdict) -> Option<KeyState> {
    let state = match verdict {
        InspectionVerdict::Held(holder) => KeyState::Held(holder.clone()),
        InspectionVerdict::Shared(sharers) => KeyState::Shared(sharers.clone()),
        InspectionVerdict::Permits(permits) => KeyState::Permits(permits.clone()),
        InspectionVerdict::Foreign(data) => KeyState::Foreign(data.clone()),
        _ => return None,
    };
    Some(state).filter(is_lock)
}

fn is_lock(state: &KeyState) -> bool {
    match state {
        KeyState::Held(_) | KeyState::Shared(_) | KeyState::Permits(_) => true,
        // A string can have the form of a lock by chance, unless it also expires.
        KeyState::Foreign(data) => {
            foreign::lock(data).is_some() || library(data).is_some() && data.remaining.is_some()
        }
        _ => false,
    }
}

/// Returns the lock that is on the most nodes, of several under one name.
fn most_frequent<'a>(states: impl Iterator<Item = &'a KeyState> + Clone) -> Option<&'a KeyState> {
    let count = |state: &&KeyState| states.clone().filter(|other| is_same(state, other)).count();
    states.clone().max_by_key(count)
}

/// Returns whether two nodes report the same lock.
fn is_same(one: &KeyState, other: &KeyState) -> bool {
    match (one, other) {
        (KeyState::Held(one), KeyState::Held(other)) => one.fingerprint == other.fingerprint,
        (KeyState::Shared(_), KeyState::Shared(_))
        | (KeyState::Permits(_), KeyState::Permits(_))
        | (KeyState::Foreign(_), KeyState::Foreign(_)) => true,
        _ => false,
    }
}

fn kind(state: &KeyState) -> Option<Kind> {
    Some(match state {
        KeyState::Held(holder) => {
            Kind::Exclusive { label: holder.label.clone(), hash: holder.fingerprint }
        }
        KeyState::Shared(sharers) => Kind::Shared { count: sharers.count },
        KeyState::Permits(permits) => Kind::Permits { count: permits.count },
        KeyState::Foreign(data) => Kind::Foreign { library: library(data) },
        _ => return None,
    })
}

fn holder(state: &KeyState) -> String {
    match state {
        KeyState::Held(holder) => holder.to_string(),
        KeyState::Shared(sharers) => sharers.to_string(),
        KeyState::Permits(permits) => permits.to_string(),
        KeyState::Foreign(data) => foreign::holder(data),
        _ => String::new(),
    }
}

/// Returns the library that writes locks of this form. A string of unknown form may be any data.
fn library(data: &Foreign) -> Option<&'static str> {
    match &data.kind {
        DataKind::Lock(lock) => lock.library,
        DataKind::String { library, .. } => *library,
        _ => None,
    }
}
