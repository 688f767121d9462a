//! Commands on lists, for those who want to see whether a release was told.
//!
//! Not here: all that write, which only the lock scripts do, and to wait for an entry.

use super::call::{Call, Outcome};

pub(super) fn llen(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let count = call.keys().list_len(key)?;
    call.int(count as i64)
}
