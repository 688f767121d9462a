//! Locks of other libraries, in words: who has one, and for how long it keeps others out.
//!
//! Not here: what they look like on a node, which the library knows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redbolt::inspect::{DataKind, Foreign};

/// Who holds it, or what is there.
pub(crate) fn holder(data: &Foreign) -> String {
    let told = data.to_string();
    told.strip_prefix("held by ").map_or_else(|| told.clone(), str::to_owned)
}

/// As long as its key lives, or without a TTL until the time that it tells.
pub(crate) fn remaining(data: &Foreign) -> Option<Duration> {
    let DataKind::Time { ends } = data.kind else { return data.remaining };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    data.remaining.or_else(|| Some(ends.saturating_sub(now)))
}
