//! Shows the queue of a lock, for `redbolt status` and `redbolt unlock`.
//!
//! A waiter is shown by its label and by its ticket, whose hash is the same on all nodes.

use std::time::Duration;

use redbolt::LockMode;
use redbolt::inspect::{FairQueue, Kept, NodeInspection, Waiter};
use serde_json::{Value, json};

use crate::duration::show;

/// Returns one line for all waiters, and one for each of the first; nothing if the queue is empty.
pub(crate) fn as_text(queue: Option<&FairQueue>, nodes: &[NodeInspection]) -> String {
    let Some(queue) = queue else { return why_unknown(nodes) };
    if queue.count == 0 && queue.kept != Kept::Closed {
        return String::new();
    }
    let kept = if queue.kept == Kept::Closed { ", for whom it is kept" } else { "" };
    let called = queue.called.map(|since| format!(", the first is called for {}", show(since)));
    let head = format!("queue: {}{kept}{}\n", queue.count, called.unwrap_or_default());
    let waiters = queue.waiters.iter().enumerate().map(|(at, waiter)| row(at + 1, waiter));
    let more = match queue.count.saturating_sub(queue.waiters.len()) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    };
    head + &waiters.collect::<String>() + &more
}

fn row(place: usize, waiter: &Waiter) -> String {
    let asked = TICKET.saturating_sub(waiter.remaining);
    let silent = Some(asked).filter(|asked| *asked > SILENT);
    let silent = silent.map_or_else(String::new, |since| format!(", silent for {}", show(since)));
    format!("  {place}. {waiter} waits for {}{silent}\n", show(waiter.age))
}

/// Explains an unknown queue: names the first node that has reported the holder but not the
/// waiters.
fn why_unknown(nodes: &[NodeInspection]) -> String {
    let mut causes = nodes.iter().filter(|node| node.state.is_ok()).filter_map(|node| {
        node.no_queue().map(|cause| format!("node {} {}: {cause}", node.number, node.address))
    });
    causes.next().map_or_else(String::new, |cause| format!("queue: not known, {cause}\n"))
}

/// Describes the queue in the row of a node.
pub(crate) fn of_node(node: &NodeInspection) -> String {
    match &node.queue {
        Ok(FairQueue { count: 0, .. }) => String::new(),
        Ok(queue) => format!("{} in the queue", queue.count),
        Err(_) if node.state.is_err() => String::new(),
        Err(_) => "does not tell who waits".to_owned(),
    }
}

/// Formats the queue as JSON. A value that was not reported is `null`.
pub(crate) fn as_json(queue: Option<&FairQueue>) -> Value {
    let Some(queue) = queue else { return Value::Null };
    let kept = match queue.kept {
        Kept::Closed => "closed",
        Kept::Marked => "marked",
        _ => "open",
    };
    json!({
        "count": queue.count,
        "kept": kept,
        "called_ms": queue.called.map(ms),
        "first": queue.waiters.iter().map(waiter_as_json).collect::<Vec<_>>(),
    })
}

fn waiter_as_json(waiter: &Waiter) -> Value {
    let mode = waiter.mode.and_then(|mode| match mode {
        LockMode::Exclusive => Some("exclusive"),
        LockMode::Permit { .. } => Some("permit"),
        LockMode::Shared => Some("shared"),
        _ => None,
    });
    json!({
        "mode": mode,
        "label": waiter.label,
        "hash": format!("{:08x}", waiter.fingerprint),
        "stamp": waiter.stamp,
        "age_ms": ms(waiter.age),
        "remaining_ms": ms(waiter.remaining),
        "grace_ms": ms(waiter.grace),
    })
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The lifetime of a ticket from each request on.
const TICKET: Duration = Duration::from_secs(6);

/// The time after which a waiter counts as silent. A live waiter sends a request every 2 s or
/// sooner.
const SILENT: Duration = Duration::from_secs(3);
