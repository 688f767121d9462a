//! Formats the list as a table or as JSON.

use redbolt::Config;
use serde_json::{Value, json};

use super::find::Found;
use super::held::{Kind, Lock};
use crate::args::ListArgs;
use crate::duration::show;
use crate::{name, status};

/// The locks that were found.
pub(super) struct Listed<'a> {
    pub(super) config: &'a Config,
    pub(super) found: &'a Found,
    pub(super) locks: &'a [Lock],
    /// Whether names were left out because enough locks were found.
    pub(super) is_cut: bool,
}

impl Listed<'_> {
    /// Returns a table of locks, and a line about what is missing in it.
    pub(super) fn as_text(&self, args: &ListArgs) -> String {
        let nodes = self.config.node_count();
        let head = ["name", "kind", "holder", "left", "waiters", "nodes", ""].map(str::to_owned);
        let rows = self.locks.iter().map(|lock| row(lock, nodes));
        let rows: Vec<_> = [head].into_iter().chain(rows).collect();
        let table = if self.locks.is_empty() { String::new() } else { status::table(&rows) };
        let count = match self.locks.len() {
            0 => "no lock is held".to_owned(),
            1 => "1 lock".to_owned(),
            count => format!("{count} locks"),
        };
        let missing = match (self.is_cut, self.found.is_complete()) {
            (true, _) => format!(", and perhaps more: stopped at --limit {}", args.limit),
            (false, false) => {
                ", and perhaps more: stopped before the end of a large database, see --prefix"
                    .into()
            }
            (false, true) => String::new(),
        };
        format!("{table}{count}{missing}\n")
    }

    /// Returns one object.
    pub(super) fn as_json(&self) -> Value {
        let addresses = self.config.addresses().iter().zip(&self.found.nodes);
        let nodes = addresses.map(|(address, scanned)| {
            json!({
                "address": address.to_string(),
                "complete": scanned.as_ref().is_ok_and(|is_complete| *is_complete),
                "reason": scanned.as_ref().err(),
            })
        });
        json!({
            "locks": self.locks.iter().map(lock_as_json).collect::<Vec<_>>(),
            "complete": !self.is_cut && self.found.is_complete(),
            "quorum": self.config.quorum(),
            "answered": self.found.answered(),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }
}

fn row(lock: &Lock, nodes: usize) -> [String; 7] {
    [
        name::show(&lock.name),
        word(&lock.kind).to_owned(),
        lock.holder.clone(),
        lock.remaining.map_or_else(|| "without end".to_owned(), show),
        lock.waiters.map_or_else(|| "unknown".to_owned(), |waiters| waiters.to_string()),
        format!("{} of {nodes}", lock.on),
        match lock.has_quorum {
            Some(true) => String::new(),
            Some(false) => "no quorum".to_owned(),
            None => "undecided".to_owned(),
        },
    ]
}

fn lock_as_json(lock: &Lock) -> Value {
    let (mut holder, mut hash, mut count, mut of) = (None, None, None, None);
    match &lock.kind {
        Kind::Exclusive { label, hash: fingerprint } => {
            holder = label.as_ref();
            hash = Some(format!("{fingerprint:08x}"));
        }
        Kind::Shared { count: holders } | Kind::Permits { count: holders } => {
            count = Some(holders);
        }
        Kind::Foreign { library } => of = *library,
    }
    let remaining = lock.remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    json!({
        "key": name::text(&lock.name),
        "key_hex": name::hex(&lock.name),
        "kind": word(&lock.kind),
        "holder": holder,
        "hash": hash,
        "count": count,
        "library": of,
        "remaining_ms": remaining,
        "waiters": lock.waiters,
        "on_nodes": lock.on,
        "has_quorum": lock.has_quorum,
    })
}

fn word(kind: &Kind) -> &'static str {
    match kind {
        Kind::Exclusive { .. } => "exclusive",
        Kind::Shared { .. } => "shared",
        Kind::Permits { .. } => "permits",
        Kind::Foreign { .. } => "foreign",
    }
}
