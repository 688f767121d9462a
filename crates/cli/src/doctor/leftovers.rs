//! Finds locks that never end: keys without a TTL, which no living holder leaves.

use std::collections::{BTreeMap, BTreeSet};

use redbolt::Client;
use redbolt::inspect::KeyState;
use redbolt::proto::MAX_RESOURCE;

use super::facts::Facts;
use crate::exit::Failure;
use crate::foreign;

/// Returns the names of the leftovers on each node. With a prefix, every key below it without a TTL
/// is one. Without a prefix, only keys in the form of a lock are, because the rest may be data of
/// other programs.
pub(super) fn of_nodes(
    client: &Client,
    prefix: &[u8],
    facts: &[Facts],
) -> Result<Vec<Vec<Vec<u8>>>, Failure> {
    let endless: Vec<BTreeSet<&Vec<u8>>> = facts.iter().map(names).collect();
    let mut leftovers: Vec<Vec<Vec<u8>>> = vec![Vec::new(); facts.len()];
    let on_any: BTreeMap<&Vec<u8>, ()> = endless.iter().flatten().map(|name| (*name, ())).collect();
    let fit = on_any.into_keys().filter(|name| (1..=MAX_RESOURCE).contains(&name.len()));
    for name in fit.take(MOST) {
        let is_lock: Vec<bool> = match prefix {
            [] => {
                let seen = client.inspect(name).map_err(Failure::usage)?;
                seen.nodes.iter().map(|node| node.state.as_ref().is_ok_and(is_lock)).collect()
            }
            _ => vec![true; facts.len()],
        };
        for (at, _) in is_lock.iter().enumerate().filter(|(_, is_lock)| **is_lock) {
            if endless[at].contains(name) {
                leftovers[at].push(name.clone());
            }
        }
    }
    Ok(leftovers)
}

fn names(facts: &Facts) -> BTreeSet<&Vec<u8>> {
    let scanned = facts.endless.as_ref().and_then(|asked| asked.as_ref().ok());
    scanned.map(|scanned| scanned.names.iter().collect()).unwrap_or_default()
}

/// Returns whether the key is a lock without an end. A value that is a time ends by itself.
fn is_lock(state: &KeyState) -> bool {
    match state {
        KeyState::Held(_) | KeyState::Shared(_) | KeyState::Permits(_) => true,
        KeyState::Foreign(data) => foreign::lock(data).is_some_and(|lock| lock.ends.is_none()),
        _ => false,
    }
}

/// The number of names that are examined more closely.
const MOST: usize = 64;
