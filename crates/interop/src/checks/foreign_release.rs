//! A lock is lost, and the other side has acquired it: a release by the former holder must not
//! delete it.
//!
//! A DEL from outside causes the loss, so that the former holder does not notice and releases as
//! usual.

use crate::failure::Failure;
use crate::fleet::{Fleet, tries};

use super::common::{Extent, Found, LONG};

/// Checks the peer's release and redbolt's. Some libraries delete without a check, as their entries
/// state.
pub(super) fn check(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    let said = released_by_it(fleet)?;
    released_by_redbolt(fleet)?;
    let (brief, outcome) = match fleet.library.deletes_without_a_look {
        true => ("it deletes", "it deletes redbolt's lock, which an extension notices"),
        false => ("refused", "redbolt's lock is kept"),
    };
    let words = format!("{outcome}; it says {said}. Its own is kept (control: DEL is noticed)");
    Ok(Found::new(brief, words))
}

fn released_by_it(fleet: &Fleet<'_>) -> Result<String, Failure> {
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    peer.expect("acquire mine 0 20000", "held")?;
    fleet.delete("mine");
    let mut lock = client.acquire(fleet.request("mine"))?;
    // This is the control for those that delete it: until then the key is there.
    lock.extend(LONG)?;
    peer.order("release-lost mine")?;
    let (reply, _) = peer.reply()?;
    let is_deleted = lock.extend(LONG).is_err();
    if is_deleted != fleet.library.deletes_without_a_look {
        return Err(format!("redbolt's lock was deleted: {is_deleted}; it said {reply}").into());
    }
    fleet.delete("mine");
    if lock.extend(LONG).is_ok() {
        return Err("control: a lock that was deleted goes on".into());
    }
    match reply.strip_prefix("refused ") {
        Some(error) => Ok(error.to_owned()),
        None if reply == "released" => Ok("nothing".to_owned()),
        None => Err(reply.into()),
    }
}

/// Checks redbolt's release, and the undo of an attempt that is refused.
fn released_by_redbolt(fleet: &Fleet<'_>) -> Result<(), Failure> {
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    let lock = client.acquire(fleet.request("mine"))?;
    fleet.delete("mine");
    peer.expect("acquire mine 0 20000", "held")?;
    let before = fleet.contents("mine");
    lock.release()?;
    if tries(&client, fleet.request("mine"))? {
        return Err("redbolt was granted what it holds".into());
    }
    if fleet.contents("mine") != before {
        return Err("redbolt has changed what it holds".into());
    }
    fleet.delete("mine");
    if fleet.contents("mine") == before {
        return Err("control: a DEL changes nothing".into());
    }
    Ok(())
}
