//! The checks of redbolt together with another library. Each has a control: the same with something
//! left out, which must fail.

mod at_least;
mod common;
mod crash;
mod exclusion;
mod fencing;
mod foreign_release;
mod nothing_left;
mod wake_up;
mod wrong_field;

use std::thread;
use std::time::{Duration, Instant};

use redbolt::{AutoExtend, Engine, Profile};

pub(crate) use self::common::{Extent, Found, NONE, SETTLED, at, ms};
use self::common::{held, percentiles, release};
use crate::failure::Failure;
use crate::fleet::{Fleet, comes, tries};
use crate::library::Extends;
use crate::peer::Peer;

/// The checks of a short run, for a library that locks as others do.
pub(crate) const SHORT: [&str; 2] = ["exclusion", "foreign release"];

/// A check: its name, and a function that returns its result if all is as it must be.
pub(crate) type Check = (&'static str, fn(&Fleet<'_>, Extent) -> Result<Found, Failure>);

/// All checks, in the order of the table.
pub(crate) const ALL: [Check; 10] = [
    ("exclusion", exclusion::check),
    ("wake-up", wake_up::check),
    ("extension", extension),
    ("re-entry", re_entry),
    ("readers", readers),
    ("fencing", fencing::check),
    ("foreign release", foreign_release::check),
    ("at least", at_least::check),
    ("crash", crash::check),
    ("nothing left", nothing_left::check),
];

/// Checks that each side keeps a lock for longer than three TTLs, and that without extension it
/// does not.
fn extension(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    let mut peer = fleet.peer()?;
    let ttl = Duration::from_millis(1_000);
    let engine = Engine::new(fleet.config()?)?;
    let request = || fleet.request("long").ttl(ttl);
    let lock = engine.acquire(request().auto_extend(AutoExtend::until_released())).wait()?;
    let until = Instant::now() + 4 * ttl;
    while Instant::now() < until {
        if peer.tries("long", ttl)? {
            return Err("it was granted what redbolt extends".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    drop(lock);
    if !comes(4 * ttl, || peer.tries("long", ttl).unwrap_or(false)) {
        return Err("it is not granted what redbolt has released".into());
    }
    peer.expect("release long", "released")?;
    let unextended = engine.acquire(request()).wait()?;
    if !comes(4 * ttl, || peer.tries("long", ttl).unwrap_or(false)) {
        return Err("control: it is not granted what redbolt does not extend".into());
    }
    drop(unextended);
    peer.expect("release long", "released")?;
    let ours = 4 * ttl.as_secs();
    let (brief, theirs) = match extended_by_it(fleet, &mut peer)? {
        Some(span) => (span.clone(), format!("its own {span}")),
        None => (NONE.to_owned(), "it cannot".to_owned()),
    };
    Ok(Found::new(
        format!("{brief}, {ours} s"),
        format!("redbolt's {ours} s; {theirs} (control: gone after its TTL)"),
    ))
}

/// Returns how long the library has extended its lock, if it can.
fn extended_by_it(fleet: &Fleet<'_>, peer: &mut Peer) -> Result<Option<String>, Failure> {
    let (order, span) = match fleet.library.extends {
        Extends::Never => return Ok(None),
        // Redisson's watchdog is configured with a TTL of 1.5 s.
        Extends::ByItself => ("acquire long 0 0", Duration::from_millis(5_000)),
        Extends::WhenTold => ("acquire long 0 2000", Duration::from_millis(6_500)),
    };
    peer.expect(order, "held")?;
    let client = fleet.client()?;
    let since = Instant::now();
    while since.elapsed() < span {
        if tries(&client, fleet.request("long"))? {
            return Err("redbolt was granted what it extends".into());
        }
        // pottery extends at most three times.
        if fleet.library.extends == Extends::WhenTold && since.elapsed().as_millis() % 1_800 > 1_500
        {
            peer.expect("extend long 2000", "extended")?;
            thread::sleep(Duration::from_millis(300));
        }
        thread::sleep(Duration::from_millis(50));
    }
    peer.expect("release long", "released")?;
    Ok(Some(format!("{:.0} s", span.as_secs_f64())))
}

/// Checks that a peer's owner enters twice, and leaves twice.
fn re_entry(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    if !fleet.library.is_reentrant {
        return Ok(Found::none());
    }
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    peer.expect("enter-twice again", "held")?;
    for left in [true, false] {
        if tries(&client, fleet.request("again"))? {
            return Err("redbolt was granted what it has entered".into());
        }
        peer.expect("release again", "released")?;
        if !left && !tries(&client, fleet.request("again"))? {
            return Err("control: it has left as often as it entered, and keeps redbolt out".into());
        }
    }
    Ok(Found::new("honoured", "held until it has left twice"))
}

/// Checks that readers of both sides hold the lock together, that none ends the others, and that a
/// writer of either waits for the last.
fn readers(fleet: &Fleet<'_>, extent: Extent) -> Result<Found, Failure> {
    if ![Profile::REDISSON_RW, Profile::SYMFONY].contains(&fleet.library.profile) {
        return Ok(Found::none());
    }
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    let reads = || client.acquire(fleet.patiently("book").shared());
    let mut to_them = Vec::new();
    for _ in 0..extent.hand_offs {
        peer.expect("read book 0 20000", "held")?;
        let lock = reads()?;
        if tries(&client, fleet.request("book"))? {
            return Err("redbolt writes beside its reader".into());
        }
        peer.expect("release-read book", "released")?;
        peer.order("acquire book 60000 20000")?;
        thread::sleep(SETTLED);
        let since = Instant::now();
        release(lock.release())?;
        let (reply, at) = peer.reply()?;
        held(&reply)?;
        to_them.push(at.duration_since(since));
        if tries(&client, fleet.request("book").shared())? {
            return Err("redbolt reads beside its writer".into());
        }
        peer.expect("release book", "released")?;
    }
    peer.expect("read book 0 20000", "held")?;
    release(reads()?.release())?;
    if tries(&client, fleet.request("book"))? {
        return Err("a reader of redbolt's has ended its own".into());
    }
    // This reader has no separate key, or has expired.
    let (dead, what) = match fleet.library.profile == Profile::SYMFONY {
        true => (format!("ZADD {} 1 {A_READER}", fleet.key("book")), "time"),
        false => (format!("HSET {} other:1 1", fleet.key("book")), "a key"),
    };
    fleet.servers[0].cmd(&dead);
    peer.expect("release-read book", "released")?;
    if !tries(&client, fleet.request("book"))? {
        return Err(format!("control: a reader without {what} of its own stays").into());
    }
    let spans = percentiles(to_them);
    let words =
        format!("side by side; its writer wakes after {spans} (control: ended without {what})");
    Ok(Found::new("readers", words))
}

/// A name in the form of Symfony's readers.
const A_READER: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
