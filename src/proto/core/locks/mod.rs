//! The locks of a core, each with its active state unless it is idle.
//!
//! A lock that all nodes have granted, and that has no work, is *idle*: it costs only its bytes,
//! because a program may hold very many locks. `find` includes idle locks, `at_work` and `active`
//! do not, and `activate` ends the idleness.

mod lock;
mod round;

use crate::proto::core::mode_change::ModeChange;
use crate::proto::names::LockId;
use crate::proto::request::LockRequest;
use crate::proto::slab::Slab;
use crate::proto::time::{ClockReading, Timestamp, ttl_ms};
use crate::proto::vote::Votes;

pub(super) use self::lock::{Active, Lock, Phase};
pub(super) use self::round::Round;

/// The locks of a core, with ids that are never reused.
#[derive(Debug)]
pub(super) struct Locks {
    places: Slab<LockId, LockEntry>,
    /// The active states of idle locks, for reuse.
    #[expect(clippy::vec_box, reason = "it goes back to locks, which hold it in boxes")]
    pool: Vec<Box<Active>>,
}

#[derive(Debug)]
struct LockEntry {
    lock: Lock,
    /// The active state, or `None` if the lock is idle. After the lock's end it stays for the next
    /// lock in this place.
    active: Option<Box<Active>>,
}

impl LockEntry {
    fn new() -> Self {
        Self { lock: Lock::new(), active: None }
    }

    /// Takes back from a lock with which it was exchanged what belongs to the id and not to the
    /// claim.
    fn keeps_of_its_name(&mut self, other: &mut Self) {
        // The caller waits for the id, and counts the time of holding by it.
        if let (Some(active), Some(others)) = (&mut self.active, &mut other.active) {
            std::mem::swap(&mut active.waiting, &mut others.waiting);
            std::mem::swap(&mut active.mode_change, &mut others.mode_change);
        }
        self.lock.swap_times(&mut other.lock);
    }
}

impl Locks {
    pub(super) fn new() -> Self {
        Self { places: Slab::new(), pool: Vec::new() }
    }

    /// Creates an active lock from a request.
    pub(super) fn begin(
        &mut self,
        request: &LockRequest<'_>,
        now: ClockReading,
        votes: Votes,
    ) -> (LockId, &mut Lock, &mut Active) {
        let (id, place) = self.places.occupy(LockEntry::new);
        let active = place.active.get_or_insert_with(|| self.pool.pop().unwrap_or_default());
        active.begin(request, now, votes);
        place.lock.begin(request.mode, ttl_ms(request.ttl));
        (id, &mut place.lock, active)
    }

    /// Returns the active state of a held lock. An idle lock gets one in which all nodes have
    /// granted.
    pub(super) fn activate(
        &mut self,
        id: LockId,
        granted: Votes,
    ) -> Option<(&mut Lock, &mut Active)> {
        let place = self.places.find_mut(id)?;
        let active = place.active.get_or_insert_with(|| {
            let mut active = self.pool.pop().unwrap_or_default();
            // A lock becomes idle only when all nodes have granted, so these votes are exact.
            active.rest_granted(granted);
            active
        });
        Some((&mut place.lock, active))
    }

    /// Exchanges two active locks with their active states, but not their waits, mode changes, TTLs
    /// and times of holding.
    pub(super) fn exchange(&mut self, one: LockId, other: LockId) {
        let Some(first) = self.places.find_mut(one) else { return };
        let mut first = std::mem::replace(first, LockEntry::new());
        if let Some(second) = self.places.find_mut(other) {
            std::mem::swap(&mut first, second);
            second.keeps_of_its_name(&mut first);
        }
        if let Some(place) = self.places.find_mut(one) {
            *place = first;
        }
    }

    /// Makes a lock idle, and keeps its active state for reuse.
    pub(super) fn put_away(&mut self, id: LockId) {
        let Some(place) = self.places.find_mut(id) else { return };
        let active = place.active.take();
        if self.pool.len() < SPARE {
            self.pool.extend(active);
        }
    }

    /// Ends a lock. Its active state stays for the next lock in its place, unless there are very
    /// many.
    pub(super) fn free(&mut self, id: LockId) {
        // Otherwise a burst of locks would keep its memory for ever.
        if self.places.vacant() >= VACANT
            && let Some(place) = self.places.find_mut(id)
        {
            drop(place.active.take());
        }
        self.places.free(id);
    }

    /// Returns a lock, idle or not.
    #[inline]
    pub(super) fn find(&self, id: LockId) -> Option<&Lock> {
        Some(&self.places.find(id)?.lock)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, id: LockId) -> Option<&mut Lock> {
        Some(&mut self.places.find_mut(id)?.lock)
    }

    /// Returns a lock and its active state, or `None` if it is idle.
    #[inline]
    pub(super) fn at_work(&self, id: LockId) -> Option<(&Lock, &Active)> {
        let place = self.places.find(id)?;
        Some((&place.lock, place.active.as_deref()?))
    }

    #[inline]
    pub(super) fn at_work_mut(&mut self, id: LockId) -> Option<(&mut Lock, &mut Active)> {
        let place = self.places.find_mut(id)?;
        Some((&mut place.lock, place.active.as_deref_mut()?))
    }

    /// Returns the active state of a lock, or `None` if it is idle.
    #[inline]
    pub(super) fn active(&self, id: LockId) -> Option<&Active> {
        self.places.find(id)?.active.as_deref()
    }

    #[inline]
    pub(super) fn active_mut(&mut self, id: LockId) -> Option<&mut Active> {
        self.places.find_mut(id)?.active.as_deref_mut()
    }

    /// Returns the part of a lock in a change of its holder's mode.
    #[inline]
    pub(super) fn mode_change(&self, id: LockId) -> ModeChange {
        self.active(id).map_or(ModeChange::None, |active| active.mode_change)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns one past the last place, for loops during which locks begin and end.
    pub(super) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    pub(super) fn at(&self, place: usize) -> Option<LockId> {
        self.places.at(place)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = LockId> {
        self.places.ids()
    }

    #[inline]
    pub(super) fn arm(&mut self, id: LockId, at: Timestamp) {
        self.places.arm(id, at);
    }

    pub(super) fn due(&self) -> Timestamp {
        self.places.due()
    }

    /// Returns a time no later than the next work for this lock.
    pub(super) fn due_of(&self, id: LockId) -> Timestamp {
        self.places.due_of(id)
    }

    /// Returns the next lock for which something may be due at `by`, see [`Slab::next_due`].
    pub(super) fn next_due(&mut self, at: &mut usize, by: Timestamp) -> Option<LockId> {
        self.places.next_due(at, by)
    }
}

/// The number of vacant places that keep the active state of their last lock.
const VACANT: usize = 4096;

/// The number of active states of idle locks that are kept for reuse.
const SPARE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::names::NodeId;
    use crate::proto::vote::Vote;

    /// The rest of another lock's work has no effect.
    #[test]
    fn an_idle_lock_that_becomes_active_has_all_grants() {
        let now = ClockReading { boot: Timestamp(7), wall: Timestamp(7) };
        let mut locks = Locks::new();
        let mut failed = Votes::new(3, 2);
        failed.cast(NodeId(1), Vote::Deny);
        let (id, _, active) = locks.begin(&LockRequest::new(b"job"), now, failed);
        active.round.lasts_until(Timestamp(9));
        locks.put_away(id);
        assert!(locks.find(id).is_some() && locks.at_work(id).is_none());
        assert!(locks.active(id).is_none() && locks.active_mut(id).is_none());
        let granted = Votes::granted(Votes::new(3, 2));
        let (_, active) = locks.activate(id, granted).unwrap();
        assert_eq!(active.votes.grants().len(), 3);
        assert_eq!(active.round.until(), Timestamp::NEVER);
        let (_, active) = locks.activate(id, failed).unwrap();
        assert_eq!(active.votes.grants().len(), 3, "it has its work already");
        locks.free(id);
        assert!(locks.find(id).is_none() && locks.activate(id, granted).is_none());
    }
}
