//! Finds the names of the keys on all nodes at once.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::Config;

use crate::args::ListArgs;
use crate::link::{Link, Patience, Place, ask_every_node};
use crate::scan::{Bounds, Scanned, scan};

/// The keys found on the nodes.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The names that are on any node, in order.
    pub(super) names: BTreeSet<Vec<u8>>,
    /// The result for each node, in order: whether all its keys were scanned, or why none was.
    pub(super) nodes: Vec<Result<bool, String>>,
}

impl Found {
    /// Returns how many nodes were scanned.
    pub(super) fn answered(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_ok()).count()
    }

    /// Returns whether every scanned node was scanned completely.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.iter().flatten().all(|is_complete| *is_complete)
    }
}

/// Finds keys below the prefix.
pub(super) fn on_nodes(args: &ListArgs, config: &Config) -> Found {
    let prefix = args.prefix.as_bytes().to_vec();
    let (patience, places) = (patience(config), Place::all(&args.nodes, config));
    let within = patience.total + MARGIN;
    let answers = ask_every_node(config, places, within, move |config, place| {
        let opened = Link::open(config, place, patience);
        let scanned = opened.and_then(|mut link| scan(&mut link, &prefix, BOUNDS));
        scanned.unwrap_or_else(|error| Err(error.to_string()))
    });
    let mut found = Found::default();
    for answer in answers {
        let answer = answer.unwrap_or_else(|| Err("no answer in time".to_owned()));
        found.nodes.push(answer.map(|Scanned { names, is_complete }| {
            found.names.extend(names.into_iter().filter(|name| !is_part(name)));
            is_complete
        }));
    }
    found
}

/// Returns whether the key belongs to the lock of another key.
fn is_part(name: &[u8]) -> bool {
    PARTS.iter().any(|part| name.starts_with(part))
}

fn patience(config: &Config) -> Patience {
    let settings = config.settings();
    let (connect, answer) = (settings.connect_timeout, settings.response_timeout);
    Patience { connect, answer, total: connect + 2 * answer + WALK }
}

/// The prefixes of keys that redbolt keeps in addition to those of locks.
const PARTS: [&[u8]; 5] = [
    b"redbolt:fence:",
    b"redbolt:lease:",
    b"redbolt:line",
    b"redbolt:slotfence:",
    b"redbolt:until:",
];

const BOUNDS: Bounds = Bounds { walked: 100_000, names: 10_000 };

/// The time for all steps of one scan.
const WALK: Duration = Duration::from_secs(10);

/// The time that the system may add, beyond the bound for a node.
const MARGIN: Duration = Duration::from_millis(500);
