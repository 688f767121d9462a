//! The script of Spring's lock registries: a resource is a string, the token of its holder.
//!
//! Nobody hears the message of a release here, as with Redisson's.

use super::BAD_ARGUMENTS;
use super::exclusive::undo_value;
use crate::calls::{Answer, Calls, Stop};

/// Deletes the key if it is ours, and tells.
pub(super) fn undo_spring(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    Ok(Answer::Int(undo_value(calls, resource, token)?.into()))
}
