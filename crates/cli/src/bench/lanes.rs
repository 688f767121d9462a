//! The locks in flight: each lane takes a lock on its key, releases it and begins again.
//!
//! Each event goes to the lane of its lock.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use redbolt::proto::Refusal;
use redbolt::{Driver, Event, LockId, LockRequest, RefusalReason, Released, RequestError};

use super::figures::{Figures, count};
use crate::args::BenchArgs;

/// All lanes.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    of: HashMap<LockId, usize>,
    ttl: Duration,
    /// The lanes whose next request follows a pause.
    pausing: Vec<usize>,
    /// Whether lanes begin again after a release.
    is_open: bool,
    /// The number of pairs so far, measured or not.
    pub(super) pairs: u64,
    /// The error of the first request, which all others would get too.
    turned_away: Option<RequestError>,
}

struct Lane {
    key: Vec<u8>,
    asked: Instant,
    granted: Instant,
    /// Whether the attempt began after measuring had begun. Earlier ones are not measured.
    counts: bool,
    /// The end of the pause after a refusal.
    pauses_until: Instant,
}

impl Lanes {
    /// Creates lanes that have not begun yet.
    pub(super) fn new(args: &BenchArgs, now: Instant) -> Self {
        let run = RandomState::new().hash_one(now);
        let lane = |number| Lane {
            key: key(run, number, args.key_size as usize),
            asked: now,
            granted: now,
            counts: false,
            pauses_until: now,
        };
        let lanes: Vec<_> = (0..usize::from(args.concurrency)).map(lane).collect();
        Self {
            of: HashMap::with_capacity(lanes.len()),
            pausing: (0..lanes.len()).collect(),
            ttl: args.ttl,
            is_open: true,
            pairs: 0,
            turned_away: None,
            lanes,
        }
    }

    /// Starts the lanes whose pause has ended.
    pub(super) fn ask(&mut self, driver: &mut Driver, counts: bool) -> Result<(), RequestError> {
        if !self.pausing.is_empty() {
            let now = Instant::now();
            let (due, pausing) =
                self.pausing.drain(..).partition(|&at| self.lanes[at].pauses_until <= now);
            self.pausing = pausing;
            let due: Vec<usize> = due;
            driver.batch(|driver| due.iter().for_each(|&at| self.begin(driver, at, counts)));
        }
        self.turned_away.take().map_or(Ok(()), Err)
    }

    /// Returns when the next pause ends.
    pub(super) fn next_ask(&self) -> Option<Instant> {
        self.pausing.iter().map(|&at| self.lanes[at].pauses_until).min()
    }

    /// Returns whether any lock is requested, held or being released.
    pub(super) fn are_under_way(&self) -> bool {
        !self.of.is_empty()
    }

    /// Stops lanes from beginning again.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.pausing.clear();
    }

    /// Releases everything in flight, without waiting.
    pub(super) fn give_up(&mut self, driver: &mut Driver) {
        self.of.drain().for_each(|(id, _)| driver.release(id));
    }

    /// Takes all events and reacts with one write to each node. Measures nothing without `figures`.
    pub(super) fn hear(&mut self, driver: &mut Driver, mut figures: Option<&mut Figures>) {
        driver.batch(|driver| {
            while let Some(event) = driver.poll_event() {
                self.on(driver, event, figures.as_deref_mut());
            }
        });
    }

    fn begin(&mut self, driver: &mut Driver, at: usize, counts: bool) {
        let lane = &mut self.lanes[at];
        (lane.asked, lane.counts) = (Instant::now(), counts);
        match driver.acquire(LockRequest::new(&lane.key).ttl(self.ttl)) {
            Ok(id) => drop(self.of.insert(id, at)),
            Err(error) => self.turned_away = Some(error),
        }
    }

    fn on(&mut self, driver: &mut Driver, event: Event, figures: Option<&mut Figures>) {
        let now = Instant::now();
        match event {
            Event::Granted(id) => self.granted(driver, id, now, figures),
            Event::Released(id, confirmed) => self.released(driver, id, confirmed, now, figures),
            Event::Refused(id, Refusal { reason, .. }) => {
                self.failed(id, now, figures, |figures| count(&mut figures.refusals, reason));
            }
            Event::Lost(id, cause) => {
                driver.release(id);
                self.failed(id, now, figures, |figures| count(&mut figures.losses, cause));
            }
            _ => {}
        }
    }

    fn granted(
        &mut self,
        driver: &mut Driver,
        id: LockId,
        now: Instant,
        figures: Option<&mut Figures>,
    ) {
        let Some(&at) = self.of.get(&id) else { return };
        let by = driver.votes(id).grants();
        // This process may have been stopped for a long time since the reply.
        let is_over = driver.remaining(id).is_zero();
        driver.release(id);
        if is_over {
            return self
                .failed(id, now, figures, |f| count(&mut f.refusals, RefusalReason::Expired));
        }
        let lane = &mut self.lanes[at];
        lane.granted = now;
        if let Some(figures) = figures.filter(|_| lane.counts) {
            figures.granted(by, now - lane.asked);
        }
    }

    fn released(
        &mut self,
        driver: &mut Driver,
        id: LockId,
        confirmed: Released,
        now: Instant,
        figures: Option<&mut Figures>,
    ) {
        let Some(at) = self.of.remove(&id) else { return };
        self.pairs += 1;
        let (lane, counts) = (&self.lanes[at], figures.is_some());
        if let Some(figures) = figures.filter(|_| lane.counts) {
            let quorum = driver.config().quorum();
            let is_confirmed = usize::try_from(confirmed.nodes).is_ok_and(|nodes| nodes >= quorum);
            figures.released(now - lane.granted, now - lane.asked, is_confirmed);
        }
        if self.is_open {
            self.begin(driver, at, counts);
        }
    }

    /// Pauses a lane whose attempt ended without a pair. Requesting again at once would be a busy
    /// loop, since nodes known to be down are not even asked.
    fn failed(
        &mut self,
        id: LockId,
        now: Instant,
        figures: Option<&mut Figures>,
        note: impl FnOnce(&mut Figures),
    ) {
        let Some(at) = self.of.remove(&id) else { return };
        let lane = &mut self.lanes[at];
        lane.pauses_until = now + PAUSE;
        if let Some(figures) = figures.filter(|_| lane.counts) {
            note(figures);
        }
        if self.is_open {
            self.pausing.push(at);
        }
    }
}

/// Returns a key such as `redbolt:bench:0123456789abcdef:00042`, padded with dashes.
fn key(run: u64, number: usize, size: usize) -> Vec<u8> {
    let mut key = format!("{PREFIX}{run:016x}:{number:05}").into_bytes();
    key.resize(size, b'-');
    key
}

/// The prefix of all keys. The benchmark writes no other keys.
const PREFIX: &str = "redbolt:bench:";

/// The pause of a lane after a refusal.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use redbolt::proto::MAX_RESOURCE;

    use super::*;
    use crate::args::SHORTEST_KEY;

    #[test]
    fn keys_are_below_the_prefix_and_as_long_as_was_asked_for() {
        for size in [SHORTEST_KEY as usize, 37, MAX_RESOURCE] {
            let made = key(7, 4095, size);
            assert_eq!(made.len(), size);
            assert!(made.starts_with(b"redbolt:bench:0000000000000007:04095"));
        }
        assert_ne!(key(7, 1, 40), key(8, 1, 40));
    }
}
