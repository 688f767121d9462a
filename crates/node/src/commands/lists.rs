//! Commands on lists that show whether a release was reported. Only the lock scripts write lists,
//! and waiting for an entry is not supported.

use super::call::{Call, Outcome};

pub(super) fn llen(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let count = call.keys().list_len(key)?;
    call.int(count as i64)
}
