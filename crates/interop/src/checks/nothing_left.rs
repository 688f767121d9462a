//! Keys and subscriptions left on the nodes, and complaints of a peer.
//!
//! The nodes are read right after a release, with both sides alive and without waiters. Later, a
//! TTL or the end of a connection would have removed the leftovers.

use std::fs;
use std::time::Duration;

use crate::failure::Failure;
use crate::fleet::{Fleet, comes};

use super::common::{Extent, Found};
use super::wake_up::hand_over;

/// Lets each side take the lock over from the other, and checks that only the known leftovers stay.
pub(super) fn check(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    let (mut one, mut two) = (fleet.peer()?, fleet.peer()?);
    let mut client = fleet.client()?;
    for _ in 0..3 {
        hand_over(fleet, &mut client, &mut one, &mut two)?;
    }
    if !is_clean(fleet) {
        return Err(format!("left: {:?}", fleet.leftovers()).into());
    }
    what_is_left_is_seen(fleet)?;
    one.end()?;
    two.end()?;
    drop(client);
    let complaints = fleet.library.complained()?;
    if !complaints.is_empty() {
        return Err(format!("it complained: {}", complaints.join("; ")).into());
    }
    complaints_are_seen(fleet)?;
    let kept: String = fleet
        .library
        .keeps
        .iter()
        .map(|kept| format!(" but {} ({})", kept.what, kept.why))
        .collect();
    let brief = if kept.is_empty() { "nothing" } else { "what is known" };
    let words = format!(
        "right after a release no key, channel or pattern{kept}, no warning (control: each is seen)"
    );
    Ok(Found::new(brief, words))
}

/// Returns `true` if the nodes are clean soon after a release: Redisson deletes the latch of an
/// unlock after that has returned.
fn is_clean(fleet: &Fleet<'_>) -> bool {
    comes(SOON, || fleet.leftovers().is_empty())
}

/// Checks, as a control, that a key with a TTL and subscribed connections are seen.
fn what_is_left_is_seen(fleet: &Fleet<'_>) -> Result<(), Failure> {
    let server = &fleet.servers[0];
    server.cmd("SET forgotten 1 PX 20000");
    let is_seen = !is_clean(fleet);
    server.cmd("DEL forgotten");
    if !is_seen {
        return Err("control: a key that is left is not seen".into());
    }
    for word in ["SUBSCRIBE", "PSUBSCRIBE"] {
        let mut ear = server.connect();
        ear.cmd(&format!("{word} forgotten"));
        if is_clean(fleet) {
            return Err(format!("control: {word} is not seen").into());
        }
    }
    Ok(())
}

/// Checks, as a control, that an unknown line of its processes is seen.
fn complaints_are_seen(fleet: &Fleet<'_>) -> Result<(), Failure> {
    let file = fleet.library.complaints();
    let before = fs::read_to_string(&file)?;
    fs::write(&file, format!("{before}planted\n"))?;
    let seen = fleet.library.complained()?;
    fs::write(&file, before)?;
    match seen == ["planted"] {
        true => Ok(()),
        false => Err("control: a complaint is not seen".into()),
    }
}

/// A time shorter than any TTL that a library sets.
const SOON: Duration = Duration::from_millis(500);
