//! The time from a release to the grant of a waiter.
//!
//! If a library notifies its waiters, the control is a waiter that is not notified, in the same
//! run, so that a slow machine slows both. Servers report each change of a key to redbolt, so the
//! library's messages are tested with a user who may not use tracking.

use std::thread;
use std::time::{Duration, Instant};

use redbolt::{Client, Profile};

use crate::failure::Failure;
use crate::fleet::{Fleet, User};
use crate::peer::Peer;

use super::common::{Extent, Found, LONG, SETTLED, at, held, ms, percentiles, release};

/// Checks the hand-offs between all sides. A waiter that is notified wakes many times sooner than
/// one that is not.
pub(super) fn check(fleet: &Fleet<'_>, extent: Extent) -> Result<Found, Failure> {
    let (mut one, mut two) = (fleet.peer()?, fleet.peer()?);
    let mut client = fleet.client()?;
    let mut spans = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..extent.hand_offs {
        let hand_over = hand_over(fleet, &mut client, &mut one, &mut two)?;
        spans.iter_mut().zip(hand_over).for_each(|(all, span)| all.push(span));
    }
    let [to_it, to_redbolt, among_its_own] = spans;
    let untold = untold(fleet, &mut one, part(&to_it, 50))?;
    let by_message = by_message(fleet, extent, &mut one)?;
    let [to_it, to_redbolt, among] = [to_it, to_redbolt, among_its_own].map(percentiles);
    Ok(Found::new(
        format!("{to_it}, {to_redbolt}, {among}"),
        format!(
            "to it {to_it}, to redbolt {to_redbolt}, among its own {among} ({untold}){by_message}"
        ),
    ))
}

/// Returns the times from redbolt to a peer, from a peer to redbolt, and from one peer to another.
pub(super) fn hand_over(
    fleet: &Fleet<'_>,
    client: &mut Client,
    one: &mut Peer,
    two: &mut Peer,
) -> Result<[Duration; 3], Failure> {
    let to_it = to_it(fleet, client, one, LONG)?;
    let to_redbolt = to_redbolt(fleet, client, one, SETTLED)?;
    one.expect("acquire hand 60000 20000", "held")?;
    two.order("acquire hand 60000 20000")?;
    thread::sleep(SETTLED);
    let since = Instant::now();
    one.expect("release hand", "released")?;
    let (reply, at) = two.reply()?;
    held(&reply)?;
    two.expect("release hand", "released")?;
    Ok([to_it, to_redbolt, at.duration_since(since)])
}

/// Releases redbolt's lock while the peer waits, and returns when the peer has it. A peer that is
/// not notified sleeps for as long as this TTL, or until it has waited for twice as long.
fn to_it(
    fleet: &Fleet<'_>,
    client: &Client,
    waiter: &mut Peer,
    ttl: Duration,
) -> Result<Duration, Failure> {
    let lock = client.acquire(fleet.patiently("hand").ttl(ttl))?;
    waiter.order(&format!("acquire hand {} 20000", (2 * ttl).as_millis()))?;
    thread::sleep(SETTLED);
    let since = Instant::now();
    release(lock.release())?;
    let (reply, at) = waiter.reply()?;
    held(&reply)?;
    Ok(at.duration_since(since))
}

/// Lets the peer release its lock after this time, while redbolt waits.
fn to_redbolt(
    fleet: &Fleet<'_>,
    client: &mut Client,
    holder: &mut Peer,
    settled: Duration,
) -> Result<Duration, Failure> {
    thread::scope(|scope| {
        let waits = scope.spawn(move || waits(client, fleet).map_err(|error| error.to_string()));
        thread::sleep(settled);
        let since = Instant::now();
        holder.expect("release hand", "released")?;
        let at = waits.join().map_err(|_| "the waiter has panicked")??;
        Ok(at.duration_since(since))
    })
}

fn waits(client: &Client, fleet: &Fleet<'_>) -> Result<Instant, Failure> {
    let lock = client.acquire(fleet.patiently("hand"))?;
    let at = Instant::now();
    release(lock.release())?;
    Ok(at)
}

/// Measures, as a control, a release without a notification. There is none for a library that
/// polls, because polling finds every release equally soon.
fn untold(fleet: &Fleet<'_>, waiter: &mut Peer, told: Duration) -> Result<String, Failure> {
    let (span, how) = match fleet.library.profile {
        profile if PUBLISH.contains(&profile) => {
            (to_it(fleet, &fleet.client_as(User::Mute)?, waiter, SHORT)?, "without a message")
        }
        // A user who may not write the list gets no lock of this profile.
        profile if profile == Profile::PYTHON_REDIS_LOCK => {
            (after_a_del(fleet, waiter)?, "after a DEL")
        }
        _ => return Ok("it polls: no control".to_owned()),
    };
    waiter.expect("release hand", "released")?;
    many_times(told, span, 10)?;
    Ok(format!("control: {} {how}", ms(span)))
}

/// Deletes the key without a message. This peer sleeps for as long as the TTL that it requests.
fn after_a_del(fleet: &Fleet<'_>, waiter: &mut Peer) -> Result<Duration, Failure> {
    let client = fleet.client()?;
    let lock = client.acquire(fleet.patiently("hand"))?;
    waiter.order(&format!("acquire hand 60000 {}", (2 * SHORT).as_millis()))?;
    thread::sleep(SETTLED);
    let since = Instant::now();
    fleet.delete("hand");
    let (reply, at) = waiter.reply()?;
    held(&reply)?;
    lock.release()?;
    Ok(at.duration_since(since))
}

/// Checks that messages of the peer alone wake redbolt, as a user without tracking. The control is
/// a user who may not subscribe either, and uses the timer.
fn by_message(fleet: &Fleet<'_>, extent: Extent, holder: &mut Peer) -> Result<String, Failure> {
    if !PUBLISH.contains(&fleet.library.profile) {
        return Ok(String::new());
    }
    let (mut receives, mut goes_by_time) =
        (fleet.client_as(User::Untracked)?, fleet.client_as(User::Deaf)?);
    let (mut heard, mut deaf) = (Vec::new(), Vec::new());
    for _ in 0..extent.hand_offs.clamp(11, 15) {
        for (client, spans) in [(&mut receives, &mut heard), (&mut goes_by_time, &mut deaf)] {
            holder.expect("acquire hand 60000 20000", "held")?;
            spans.push(to_redbolt(fleet, client, holder, TIMER_IS_SLOW)?);
        }
    }
    // Now and then, the timer happens to be due soon.
    many_times(part(&heard, 50), part(&deaf, 75), 3)?;
    Ok(format!(
        "; to redbolt by its message alone {} (control: {} by the timer)",
        percentiles(heard),
        percentiles(deaf)
    ))
}

/// Returns the span below which this percentage of them is.
fn part(spans: &[Duration], part: usize) -> Duration {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    at(&spans, part)
}

/// Checks that the control is slower by at least this factor.
fn many_times(told: Duration, control: Duration, factor: u32) -> Result<(), Failure> {
    match control >= factor * told {
        true => Ok(()),
        false => {
            let (told, control) = (ms(told), ms(control));
            Err(format!("{told} when told, and {control} when not: less than {factor} times")
                .into())
        }
    }
}

/// The TTL when a waiter that is not notified must sleep for it.
const SHORT: Duration = Duration::from_secs(3);

/// The time after which the timer of redbolt's waiter has its longest pauses.
const TIMER_IS_SLOW: Duration = Duration::from_millis(400);

/// The profiles of libraries that publish releases.
const PUBLISH: [Profile; 3] = [Profile::REDISSON, Profile::REDISSON_RW, Profile::SPRING];
