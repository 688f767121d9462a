//! Both sides count in a register that only the lock protects.
//!
//! How often one side finds the lock held by the other depends on the machine, so both continue
//! until it has happened often enough.

use std::thread;
use std::time::Duration;

use redbolt::Client;

use crate::failure::Failure;
use crate::fleet::Fleet;

use super::common::{Extent, Found, release};
use super::wrong_field;

/// Checks that no count is lost, and that without a common key some are.
pub(super) fn check(fleet: &Fleet<'_>, extent: Extent) -> Result<Found, Failure> {
    let wanted = extent.contended();
    let mut all = Count::default();
    for _ in 0..MOST_ROUNDS {
        all.add(&count_together(fleet, "shared", "shared", extent.turns)?);
        if all.ours_contended.min(all.theirs_contended) >= wanted {
            break;
        }
    }
    let Count { theirs, ours, theirs_contended, ours_contended, lost } = all;
    if lost > 0 {
        return Err(format!("{lost} updates are lost").into());
    }
    if ours_contended.min(theirs_contended) < wanted {
        let found = format!("{theirs_contended} and {ours_contended} contended");
        return Err(format!("{found}, and not {wanted} on each side").into());
    }
    let apart = count_together(fleet, "shared", "another", extent.turns)?;
    if apart.lost == 0 {
        return Err("control: with two keys no update was lost".into());
    }
    let wrong = wrong_field::control(fleet)?;
    let control = apart.lost;
    Ok(Found::new(
        format!("{theirs_contended}, {ours_contended}; 0 lost ({control})"),
        format!(
            "{theirs} turns of it and {ours} of redbolt, {theirs_contended} and {ours_contended} of them contended, 0 lost (control: {control} lost with two keys{wrong})"
        ),
    ))
}

/// The result of counting together.
#[derive(Default)]
struct Count {
    theirs: u32,
    ours: u32,
    theirs_contended: u32,
    ours_contended: u32,
    lost: u64,
}

impl Count {
    fn add(&mut self, other: &Self) {
        self.theirs += other.theirs;
        self.ours += other.ours;
        self.theirs_contended += other.theirs_contended;
        self.ours_contended += other.ours_contended;
        self.lost += other.lost;
    }
}

/// Lets the peer count this often, and redbolt for as long as the peer does.
fn count_together(
    fleet: &Fleet<'_>,
    theirs: &str,
    ours: &str,
    turns: u32,
) -> Result<Count, Failure> {
    fleet.servers[0].cmd("DEL counter");
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    peer.order(&format!("count {theirs} counter {turns} 20000"))?;
    let mut count = Count { theirs: turns, ..Count::default() };
    let reply = loop {
        count_once(fleet, &client, ours, &mut count)?;
        if let Some(reply) = peer.has_replied()? {
            break reply;
        }
    };
    let contended = reply.strip_prefix("counted ").ok_or_else(|| reply.clone())?;
    count.theirs_contended = contended.parse()?;
    count.lost = u64::from(turns + count.ours) - fleet.number("counter");
    peer.end()?;
    Ok(count)
}

fn count_once(
    fleet: &Fleet<'_>,
    client: &Client,
    name: &str,
    count: &mut Count,
) -> Result<(), Failure> {
    let lock = match client.acquire(fleet.request(name)) {
        Ok(lock) => lock,
        Err(_) => {
            count.ours_contended += 1;
            client.acquire(fleet.patiently(name))?
        }
    };
    let before = fleet.number("counter");
    thread::sleep(Duration::from_micros(u64::from(count.ours % 4) * 700));
    fleet.servers[0].cmd(&format!("SET counter {}", before + 1));
    release(lock.release())?;
    count.ours += 1;
    thread::sleep(Duration::from_micros(u64::from(count.ours % 5) * 700));
    Ok(())
}

/// The largest number of rounds of a peer, if the two do not meet as often as required.
const MOST_ROUNDS: u32 = 5;
