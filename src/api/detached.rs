//! The part of a detached lock's record that only an API can fill in: the addresses of the nodes,
//! and the boot of the machine from which its clock counts.

use std::borrow::Cow;
use std::fs;

use super::config::Config;
use crate::proto::{DetachedLock, RequestError};

/// Writes the names of the nodes and of the boot into a record.
pub(super) fn name(detached: &mut DetachedLock, config: &Config) {
    detached.name(nodes(config), boot());
}

/// Returns the record if it has these nodes. A record of another boot loses its lease.
pub(super) fn checked<'r>(
    detached: &'r DetachedLock,
    config: &Config,
) -> Result<Cow<'r, DetachedLock>, RequestError> {
    // Claims on other nodes would not add up to a quorum of these.
    if !detached.node_names().eq(nodes(config)) {
        return Err(RequestError::OtherNodes);
    }
    let ours = boot();
    // The names are compared only if both boots have one; otherwise only the clocks can show a
    // restart.
    let known = !ours.is_empty() && !detached.boot().is_empty();
    Ok(match known && detached.boot() != ours {
        true => Cow::Owned(detached.outlived()),
        false => Cow::Borrowed(detached),
    })
}

/// Returns a name for each node: its address and its database, because a key in another database is
/// another lock.
fn nodes(config: &Config) -> impl Iterator<Item = String> {
    let databases = config.settings().nodes.iter().map(|node| node.database);
    config.addresses().iter().zip(databases).map(|(address, db)| format!("{address}/{db}"))
}

/// Returns the name that Linux gives this boot; empty on other systems.
fn boot() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}
