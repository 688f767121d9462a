//! A holder is killed: the other side must wait for its TTL, and no longer.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::fleet::{Fleet, comes, tries};
use crate::own;
use crate::peer::Peer;

use super::common::{Extent, Found};

/// Checks that a dead holder's lock expires, on each side. Without a TTL it would stay.
pub(super) fn check(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    let client = fleet.client()?;
    let mut peer = fleet.peer()?;
    let theirs = outlives(
        || dies(fleet.peer()?, "acquire dead 0 2000"),
        || tries(&client, fleet.request("dead")),
    )?;
    let ours = outlives(|| dies(redbolt(fleet)?, &hold(fleet)), || peer.tries("dead", TTL))?;
    peer.expect("release dead", "released")?;
    dies(redbolt(fleet)?, &hold(fleet))?;
    fleet.make_endless("dead");
    if comes(2 * TTL, || peer.tries("dead", TTL).unwrap_or(true)) {
        return Err("control: it was granted what has no TTL".into());
    }
    fleet.delete("dead");
    Ok(Found::new(
        format!("{theirs}, {ours}"),
        format!("refused for {theirs} and {ours}, then granted (control: never without a TTL)"),
    ))
}

/// Starts a process of redbolt, which connects.
fn redbolt(fleet: &Fleet<'_>) -> Result<Peer, Failure> {
    let mut redbolt = own::start(fleet.library, &fleet.addresses())?;
    redbolt.expect(&format!("pairs {} 1 0", fleet.key("warm-up")), "pairs")?;
    Ok(redbolt)
}

fn hold(fleet: &Fleet<'_>) -> String {
    format!("hold {} {}", fleet.key("dead"), TTL.as_millis())
}

/// Lets it acquire the lock, kills it, and returns the time of the order.
fn dies(mut holder: Peer, order: &str) -> Result<Instant, Failure> {
    let since = Instant::now();
    holder.expect(order, "held")?;
    holder.kill()?;
    Ok(since)
}

/// Checks that the lock of a dead holder keeps the other side out until its TTL has passed.
fn outlives(
    dies: impl FnOnce() -> Result<Instant, Failure>,
    mut is_granted: impl FnMut() -> Result<bool, Failure>,
) -> Result<String, Failure> {
    let since = dies()?;
    if is_granted()? {
        return Err("granted at once what a dead process held".into());
    }
    let mut outcome = Ok(false);
    let comes = comes(10 * TTL, || {
        outcome = is_granted();
        outcome.as_ref().map_or(true, |&is_granted| is_granted)
    });
    let span = since.elapsed();
    match outcome? && comes && span + CLOCKS >= TTL {
        true => Ok(format!("{:.1} s", span.as_secs_f64())),
        false => Err(format!("granted: {comes}, {span:?} after a dead process took it").into()),
    }
}

const TTL: Duration = Duration::from_secs(2);

/// The largest difference between two clocks.
const CLOCKS: Duration = Duration::from_millis(20);
