//! The names of the keys on the nodes, found on each of them at once.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::Config;

use crate::args::ListArgs;
use crate::link::{Link, Patience, Place, ask_every_node};
use crate::scan::{Bounds, Scanned, scan};

/// What was found on the nodes.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Each name that is on any node, in order.
    pub(super) names: BTreeSet<Vec<u8>>,
    /// Of each node, in order: whether all its keys were walked through, or why none was.
    pub(super) nodes: Vec<Result<bool, String>>,
}

impl Found {
    /// How many nodes were looked at.
    pub(super) fn answered(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_ok()).count()
    }

    /// Whether no node that was looked at has more keys.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.iter().flatten().all(|is_complete| *is_complete)
    }
}

/// Looks for keys below the prefix.
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

/// Whether the key belongs to the lock of another key.
fn is_part(name: &[u8]) -> bool {
    PARTS.iter().any(|part| name.starts_with(part))
}

fn patience(config: &Config) -> Patience {
    let settings = config.settings();
    let (connect, answer) = (settings.connect_timeout, settings.response_timeout);
    Patience { connect, answer, total: connect + 2 * answer + WALK }
}

/// How the names of keys begin that redbolt keeps beside those of locks.
const PARTS: [&[u8]; 5] = [
    b"redbolt:fence:",
    b"redbolt:lease:",
    b"redbolt:line",
    b"redbolt:slotfence:",
    b"redbolt:until:",
];

const BOUNDS: Bounds = Bounds { walked: 100_000, names: 10_000 };

/// How long the steps of one walk may take together.
const WALK: Duration = Duration::from_secs(10);

/// What a node takes is bounded already; this is for what the system adds.
const MARGIN: Duration = Duration::from_millis(500);
