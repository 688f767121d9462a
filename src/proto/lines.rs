//! Who waits for what within one core, in the order in which they came.
//!
//! Of the locks of one core that wait for a resource, one asks at a time; the others stand in line behind
//! it, so that they neither wake nor deny one another. A lock on several resources stands in all of their
//! lines, with the place that its arrival gave it, and so two of them cannot wait for each other. Whoever
//! is granted stays in front until it has let go.
//!
//! A line also remembers for a moment what was seen of others, elsewhere, who want the resource: so that
//! this process lets them have their turn. Not here: asking, and waking, see `core/wait.rs`.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::names::{LockId, NodeSet};
use super::steps::step;
use super::time::Nanos;

/// The lines of all resources that somebody here waits for.
///
/// A line is found by a hash of the resource's name. Two names with the same hash would share a line,
/// which costs them turns and nothing else; the seed keeps anybody from choosing such names.
pub(super) struct Lines {
    lines: BTreeMap<Place, Line>,
    seed: [u8; 16],
    /// How many have come so far.
    arrivals: u64,
    /// Emptied queues, to be used again.
    spare: Vec<VecDeque<Waiter>>,
    /// When lines that nobody stands in are looked through for what can be forgotten.
    purge_at: Nanos,
}

/// The place of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// When somebody came: one that came later stands behind in every line that both stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival(u64);

impl Arrival {
    pub(super) const NONE: Self = Self(0);
}

#[derive(Debug)]
struct Waiter {
    came: Arrival,
    /// `None` is a gap: it has left from the middle.
    id: Option<LockId>,
}

#[derive(Debug, Default)]
struct Line {
    /// In the order of their arrivals, by which they are found; in front is no gap.
    waiting: VecDeque<Waiter>,
    /// Gaps are closed together once they are half of it, or each would cost as much as there are behind it.
    gaps: usize,
    /// When somebody elsewhere was last seen with it.
    contended_at: Option<Nanos>,
    /// When a lock of this core last let go of it.
    released_at: Option<Nanos>,
    /// Since when this core has had it again and again, and asked at once each time.
    alone_since: Nanos,
    /// How long a lock of this core waited for it last.
    waited: Duration,
    /// Whose word was waited for last.
    leads: NodeSet,
}

impl Line {
    fn front(&self) -> Option<LockId> {
        self.waiting.front()?.id
    }

    fn leave(&mut self, came: Arrival) {
        let by_arrival = |waiter: &Waiter| {
            step();
            waiter.came.cmp(&came)
        };
        match self.waiting.binary_search_by(by_arrival) {
            // Two names with one hash: it has left.
            Err(_) => {}
            Ok(0) => drop(self.waiting.pop_front()),
            Ok(at) => {
                self.waiting[at].id = None;
                self.gaps += 1;
            }
        }
        while self.waiting.front().is_some_and(|waiter| waiter.id.is_none()) {
            self.waiting.pop_front();
            self.gaps -= 1;
        }
        if self.gaps > self.waiting.len() / 2 {
            self.waiting.retain(|waiter| {
                step();
                waiter.id.is_some()
            });
            self.gaps = 0;
        }
    }

    /// When it can be forgotten, once nobody stands in it.
    fn remembered_until(&self) -> Nanos {
        let last = self.contended_at.max(self.released_at);
        last.map_or_else(Nanos::default, |last| last + REMEMBERED)
    }
}

impl Lines {
    pub(super) fn new(seed: [u8; 16]) -> Self {
        let (lines, spare) = (BTreeMap::new(), Vec::new());
        Self { lines, seed, arrivals: 0, spare, purge_at: Nanos::NEVER }
    }

    /// Whether nobody waits and nothing is remembered.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn place(&self, resource: &[u8]) -> Place {
        let mut hasher = DefaultHasher::new();
        (self.seed, resource).hash(&mut hasher);
        Place(hasher.finish())
    }

    /// Somebody comes, to stand in any number of lines.
    pub(super) fn arrive(&mut self) -> Arrival {
        self.arrivals += 1;
        Arrival(self.arrivals)
    }

    /// Goes to the end of a line; nobody has come since.
    pub(super) fn join(&mut self, place: Place, came: Arrival, id: LockId, now: Nanos) {
        let line = match self.lines.entry(place) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(vacant) => {
                let waiting = self.spare.pop().unwrap_or_default();
                vacant.insert(Line { waiting, alone_since: now, ..Line::default() })
            }
        };
        // Two names with one hash.
        if line.waiting.back().is_none_or(|last| last.came != came) {
            line.waiting.push_back(Waiter { came, id: Some(id) });
        }
    }

    /// Leaves a line, from wherever it stands.
    pub(super) fn leave(&mut self, place: Place, came: Arrival, now: Nanos) {
        let many = self.lines.len() > REMEMBERED_LINES;
        let Some(line) = self.lines.get_mut(&place) else { return };
        line.leave(came);
        if !line.waiting.is_empty() {
            return;
        }
        if now < line.remembered_until() && (line.contended_at.is_some() || !many) {
            self.purge_at = self.purge_at.min(now + REMEMBERED);
        } else {
            self.forget(place);
        }
    }

    pub(super) fn front(&self, place: Place) -> Option<LockId> {
        self.lines.get(&place)?.front()
    }

    /// Those in front of any line.
    pub(super) fn fronts(&self) -> impl Iterator<Item = LockId> {
        self.lines.values().filter_map(Line::front)
    }

    /// Somebody elsewhere has it, and these nodes will tell of it.
    pub(super) fn contended(&mut self, place: Place, leads: NodeSet, now: Nanos) {
        if let Some(line) = self.lines.get_mut(&place) {
            line.contended_at = Some(now);
            line.alone_since = now;
            line.leads = leads;
        }
    }

    /// A lock of this core has let go of it.
    pub(super) fn released(&mut self, place: Place, now: Nanos) {
        if let Some(line) = self.lines.get_mut(&place) {
            line.released_at = Some(now);
        }
    }

    /// When this core let go of it, if others are to have it before it asks again: where somebody
    /// elsewhere was seen with it a moment ago; and once in a while in any case, for whoever asks again at
    /// once is always faster than those who wait, and never sees them.
    pub(super) fn owes_turn(&mut self, place: Place, now: Nanos) -> Option<Nanos> {
        let line = self.lines.get_mut(&place)?;
        let is_contended = line.contended_at.is_some_and(|at| now < at + REMEMBERED);
        if !is_contended {
            if now < line.alone_since + REMEMBERED {
                return None;
            }
            line.alone_since = now;
        }
        line.released_at
    }

    /// Whose word was waited for last.
    pub(super) fn leads(&self, place: Place) -> NodeSet {
        self.lines.get(&place).map_or_else(NodeSet::default, |line| line.leads)
    }

    /// How long a lock of this core waited for it last, others having it.
    pub(super) fn waited(&self, place: Place) -> Duration {
        self.lines.get(&place).map_or(Duration::ZERO, |line| line.waited)
    }

    /// A lock of this core has got it.
    pub(super) fn granted(&mut self, place: Place, waited: Duration) {
        if let Some(line) = self.lines.get_mut(&place) {
            line.waited = waited;
        }
    }

    /// When [`purge`](Self::purge) is due.
    pub(super) fn purge_at(&self) -> Nanos {
        self.purge_at
    }

    /// Forgets the lines in which nobody stands and of which nothing is to be remembered.
    pub(super) fn purge(&mut self, now: Nanos) {
        if now < self.purge_at {
            return;
        }
        self.lines.retain(|_, line| !line.waiting.is_empty() || now < line.remembered_until());
        let is_left = self.lines.values().any(|line| line.waiting.is_empty());
        self.purge_at = if is_left { now + REMEMBERED } else { Nanos::NEVER };
    }

    fn forget(&mut self, place: Place) {
        if let Some(line) = self.lines.remove(&place)
            && self.spare.len() < SPARE
        {
            self.spare.push(line.waiting);
        }
    }
}

/// What was seen of others is remembered for so long.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Of more resources than these only those are remembered that others want.
const REMEMBERED_LINES: usize = 1024;

/// So many emptied queues are kept.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::slab::Slab;

    fn ids<const N: usize>() -> [LockId; N] {
        let mut slab = Slab::new();
        std::array::from_fn(|_| LockId(slab.occupy(|| ()).0))
    }

    #[test]
    fn they_stand_in_the_order_in_which_they_came() {
        let mut lines = Lines::new([7; 16]);
        let place = lines.place(b"job");
        let [a, b, c] = ids();
        let [first, second, third] = [a, b, c].map(|id| {
            let came = lines.arrive();
            lines.join(place, came, id, Nanos(0));
            came
        });
        assert_eq!(lines.front(place), Some(a));
        lines.leave(place, second, Nanos(1));
        assert_eq!(lines.front(place), Some(a));
        lines.leave(place, first, Nanos(2));
        assert_eq!(lines.front(place), Some(c));
        lines.leave(place, third, Nanos(3));
        assert!(lines.is_empty());
    }

    #[test]
    fn contention_is_remembered_for_a_second() {
        let mut lines = Lines::new([7; 16]);
        let place = lines.place(b"job");
        let [a] = ids();
        let came = lines.arrive();
        lines.join(place, came, a, Nanos(0));
        lines.released(place, Nanos(5));
        assert_eq!(lines.owes_turn(place, Nanos(6)), None, "nobody else wants it");
        lines.contended(place, NodeSet::first(1), Nanos(5));
        lines.leave(place, came, Nanos(5));
        assert_eq!(lines.owes_turn(place, Nanos(6)), Some(Nanos(5)));
        assert_eq!(lines.leads(place), NodeSet::first(1));
        let over = Nanos(5) + REMEMBERED;
        assert_eq!(lines.purge_at(), over);
        lines.purge(over);
        assert!(lines.is_empty());
        assert_eq!(lines.purge_at(), Nanos::NEVER);
    }

    /// Whoever asks again at once never sees those who wait.
    #[test]
    fn a_turn_is_owed_once_in_a_while() {
        let mut lines = Lines::new([7; 16]);
        let place = lines.place(b"job");
        let [a] = ids();
        let mut owed = Vec::new();
        for ms in 0..3_500 {
            let now = Nanos(ms * 1_000_000);
            let came = lines.arrive();
            lines.join(place, came, a, now);
            owed.extend(lines.owes_turn(place, now).map(|_| ms));
            lines.released(place, now);
            lines.leave(place, came, now);
        }
        assert_eq!(owed, [1_000, 2_000, 3_000]);
    }

    /// However long somebody stays in front while others come and go.
    #[test]
    fn gaps_take_no_more_room_than_those_who_wait() {
        let mut lines = Lines::new([7; 16]);
        let place = lines.place(b"job");
        let [holder, lasting, passing] = ids();
        let stays = lines.arrive();
        lines.join(place, stays, holder, Nanos(0));
        let mut last = lines.arrive();
        lines.join(place, last, lasting, Nanos(0));
        for _ in 0..10_000 {
            let came = lines.arrive();
            lines.join(place, came, passing, Nanos(0));
            lines.leave(place, last, Nanos(0));
            last = came;
        }
        assert_eq!(lines.front(place), Some(holder));
        assert!(lines.lines[&place].waiting.len() <= 8);
        lines.leave(place, stays, Nanos(0));
        assert_eq!(lines.front(place), Some(passing));
    }
}
