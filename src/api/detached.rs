//! The part of a detached lock's record that only an API knows: where the nodes are, and which boot of the
//! machine its clock counts from.

use std::borrow::Cow;
use std::fs;

use super::config::Config;
use crate::proto::{DetachedLock, RequestError};

/// Writes both into a record that was detached.
pub(super) fn name(detached: &mut DetachedLock, config: &Config) {
    detached.name(nodes(config), boot());
}

/// The record, if it is of these nodes; without a lease if it is of another boot.
pub(super) fn checked<'r>(
    detached: &'r DetachedLock,
    config: &Config,
) -> Result<Cow<'r, DetachedLock>, RequestError> {
    if !detached.node_names().eq(nodes(config)) {
        return Err(RequestError::OtherNodes);
    }
    let ours = boot();
    // A boot without a name is recognised by the clocks only.
    let known = !ours.is_empty() && !detached.boot().is_empty();
    Ok(match known && detached.boot() != ours {
        true => Cow::Owned(detached.outlived()),
        false => Cow::Borrowed(detached),
    })
}

/// A node is its address and its database: the same key in another one is another lock.
fn nodes(config: &Config) -> impl Iterator<Item = String> {
    let databases = config.settings().nodes.iter().map(|node| node.database);
    config.addresses().iter().zip(databases).map(|(address, db)| format!("{address}/{db}"))
}

/// Linux gives each boot a name of its own; elsewhere it is empty.
fn boot() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}
