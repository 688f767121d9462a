//! The script of Spring's lock registries: a resource is a string, the token of its holder, and a
//! release is published on a channel.

use super::common::BAD_ARGUMENTS;
use super::exclusive::undo_value;
use super::force_unlock::{remove_seen, resource_and_seen};
use crate::calls::{Answer, Calls, Stop};

/// Deletes the key if it is the holder's, and reports the release.
pub(super) fn undo_spring(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    let count = undo_value(calls, resource, token)?;
    if count {
        report(calls, resource);
    }
    Ok(Answer::Int(count.into()))
}

/// Removes an inspected token, and reports the release.
pub(super) fn force_unlock_spring(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (name, seen) = resource_and_seen(names, argv)?;
    let count = remove_seen(calls, name, seen)?;
    if count > 0 {
        report(calls, name);
    }
    Ok(Answer::Int(count))
}

/// Wakes waiters, on the channel of each registry to which the lock may belong.
fn report(calls: &mut Calls<'_>, resource: &[u8]) {
    let colons = resource.iter().enumerate().filter(|&(_, &byte)| byte == b':').take(16);
    for (at, _) in colons {
        let channel = [&resource[..at], b"-channel:", resource].concat();
        calls.publish_if_allowed(channel, resource);
    }
}
