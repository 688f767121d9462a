//! The pause of one lock between two attempts: until when it lasts, whose notification ends it sooner, and for how long
//! notifications are ignored.
//!
//! Apart from the folder's `mod.rs`, which asks the nodes and looks whether the pause is over, so that what follows from
//! a notification for one lock can be read, and tested, without them. Randomness is an argument. Not here: the order
//! among the locks of one core, see `wait_queue`.

use std::time::Duration;

use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::Timestamp;

/// The time between two attempts, and what is remembered of those before.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Timestamp,
    /// Until when it lasted before a notification ended it.
    timer: Timestamp,
    /// The key is being looked at, and it goes on if that is still there.
    is_reading: bool,
    /// Refusals so far, which the cap grows with.
    refusals: u32,
    /// The last refusal won a grant.
    is_after_split: bool,
    /// Such refusals since a holder was seen, or since none came for a while.
    splits: u32,
    jitter: Duration,
    /// When the keys that stand in the way are over, as far as it is known.
    expiries: Vec<(NodeId, Timestamp)>,
    /// How many of these keys have to go before a quorum is possible.
    needed: usize,
    /// The leads: the nodes whose notifications end it.
    leads: NodeSet,
    /// Those that have reported a change since the last attempt began.
    notified: NodeSet,
    /// It ends, or the attempt after it began, because of a notification.
    is_woken: bool,
    /// For how long at the most it ignores notifications once others have taken what was left to them.
    sit_out: Duration,
    /// The notification came while the lock ignored them.
    is_late: bool,
    /// For how long notifications are ignored, after attempts that followed one and won nothing.
    wake_backoff: Duration,
    /// Until when.
    muted_until: Timestamp,
}

impl Pause {
    /// Of a new acquisition.
    pub(super) fn begin(&mut self) {
        let mut expiries = std::mem::take(&mut self.expiries);
        expiries.clear();
        *self = Self { expiries, ..Self::default() };
    }

    pub(super) fn until(&self) -> Timestamp {
        self.until
    }

    pub(super) fn lasts_until(&mut self, until: Timestamp) {
        (self.until, self.timer) = (until, until);
    }

    /// An attempt begins, and notifications count anew. A key that it meets is taken to live longer by `jitter`.
    pub(super) fn attempt_begins(&mut self, jitter: Duration) {
        self.is_reading = false;
        self.expiries.clear();
        self.notified = NodeSet::default();
        self.jitter = jitter;
    }

    /// An attempt was refused: whether the vote was split, and how many keys have to go.
    pub(super) fn refused(&mut self, is_split: bool, needed: usize) {
        self.is_after_split = is_split;
        self.splits += u32::from(is_split);
        self.needed = needed;
    }

    /// How many of the keys in the way have to go before a quorum is possible.
    pub(super) fn needed(&self) -> usize {
        self.needed
    }

    /// How long it is to last, at least and at most, behind an attempt that took so long. After a split vote it is
    /// short, since nobody holds the resource then; where the nodes tell of changes it can be long; otherwise
    /// it grows with each refusal from `least` to `most`.
    pub(super) fn span(
        &mut self,
        took: Duration,
        will_be_notified: bool,
        (least, most): (Duration, Duration),
    ) -> (Duration, Duration) {
        if self.is_of_split() {
            (Duration::ZERO, took * SPLIT_ROUND_TRIPS)
        } else if will_be_notified {
            (AT_LEAST_NOTIFIED, CAP_NOTIFIED)
        } else {
            if !self.is_after_split {
                self.splits = 0;
            }
            let cap = most.min(least * (1 << self.refusals.min(16)));
            self.refusals += 1;
            (least / 8, cap)
        }
    }

    /// Whether it keeps the parties of a split vote apart. Many splits end that, for a holder of a bare quorum, or a
    /// key left over on one node, looks like a split for its whole TTL. A refusal by all nodes does not begin the
    /// count anew by itself: others who ask in vain as well are met at the nodes that are free.
    fn is_of_split(&self) -> bool {
        self.is_after_split && self.splits <= SPLITS
    }

    /// The leads: the nodes whose notifications end it.
    pub(super) fn leads(&self) -> NodeSet {
        self.leads
    }

    pub(super) fn listen_to(&mut self, leads: NodeSet) {
        self.leads = leads;
    }

    /// Those of the leads that have reported a change.
    pub(super) fn reported(&self) -> NodeSet {
        self.notified.and(self.leads)
    }

    /// A node has reported a change. It may become a lead only afterwards.
    pub(super) fn notified(&mut self, node: NodeId) {
        self.notified.insert(node);
    }

    /// Whether no notification has come that could end it.
    pub(super) fn is_quiet(&self) -> bool {
        self.reported().is_empty() && !self.is_woken
    }

    /// Ends because of a notification, as soon as the lock does not ignore it. Whether nothing had ended it before.
    pub(super) fn wake(&mut self, now: Timestamp) -> bool {
        self.is_late = now < self.muted_until;
        self.ends_when_it_listens(now);
        !std::mem::replace(&mut self.is_woken, true)
    }

    /// Whether a notification ended it, which counts once.
    pub(super) fn take_woken(&mut self) -> bool {
        self.is_late = false;
        std::mem::take(&mut self.is_woken)
    }

    /// Whether a notification ended it, or the pause before the present attempt.
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// Whether that notification came while the lock ignored them, so that it is old.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// A lock of this core has released what is waited for, which no node reports.
    pub(super) fn handed_on(&mut self, now: Timestamp) {
        self.is_woken = false;
        self.is_late = false;
        self.ends_when_it_listens(now);
    }

    fn ends_when_it_listens(&mut self, now: Timestamp) {
        self.until = self.until.min(self.muted_until.max(now));
    }

    /// Other processes may take the lock until it is over: then it is as if these nodes had reported that, and
    /// notifications may be ignored for `sit_out` at the most.
    pub(super) fn leaves_turn(&mut self, leads: NodeSet, sit_out: Duration) {
        (self.leads, self.notified, self.needed) = (leads, leads, 1);
        self.is_woken = !leads.is_empty();
        self.is_late = self.is_woken;
        self.sit_out = sit_out;
    }

    /// The key is read, which is answered by `until`: notifications from before are forgotten.
    pub(super) fn reads_until(&mut self, until: Timestamp) {
        self.is_late = false;
        self.is_woken = false;
        self.notified = NodeSet::default();
        self.is_reading = true;
        self.until = until;
    }

    /// The key was read and still exists: the pause lasts as if no notification had come, but at
    /// most until `most`.
    pub(super) fn goes_on(&mut self, most: Timestamp) {
        if std::mem::take(&mut self.is_reading) {
            self.until = self.timer.min(most);
        }
    }

    /// The attempt that began at `since` won nothing. If it followed a notification, these are ignored for a while,
    /// longer each time up to `most`, in half at random: how long.
    pub(super) fn was_woken_in_vain(
        &mut self,
        since: Timestamp,
        most: Duration,
    ) -> Option<Duration> {
        if !self.take_woken() {
            return None;
        }
        let has_rested = since > self.muted_until + RESTED;
        self.wake_backoff = match has_rested {
            true => MUTED_AT_FIRST,
            false => (self.wake_backoff * 2).min(most).max(MUTED_AT_FIRST),
        };
        Some(self.wake_backoff)
    }

    pub(super) fn mute_until(&mut self, until: Timestamp) {
        self.muted_until = until;
    }

    /// Whether the last attempt was refused although nobody may hold the resource.
    pub(super) fn follows_split(&self) -> bool {
        self.is_after_split
    }

    /// There is a holder, and the nodes will notify the lock, so that it can be long. Returns when it ends.
    pub(super) fn lengthen(&mut self, now: Timestamp, deadline: Timestamp) -> Timestamp {
        self.splits = 0;
        self.until = (now + AT_LEAST_NOTIFIED).min(deadline);
        self.until
    }

    /// For how long at the most it may sit out, once: whoever has had its turn lets some others have theirs.
    pub(super) fn take_sit_out(&mut self) -> Duration {
        std::mem::take(&mut self.sit_out)
    }

    pub(super) fn sits_out_until(&mut self, until: Timestamp) {
        self.muted_until = self.muted_until.max(until);
    }

    /// A node has answered that the key in the way will live for so long, or that it has gone already.
    pub(super) fn key_lives(&mut self, node: NodeId, left: Option<Duration>, now: Timestamp) {
        let at = match left {
            Some(left) => now + left + self.jitter,
            // Only as late as it takes two waiters not to ask in step for ever.
            None => now + self.jitter / 8,
        };
        self.expiries.retain(|&(of, _)| of != node);
        self.expiries.push((node, at));
    }

    /// How long the key in the way is known to live on a node, less what is added to it.
    pub(super) fn known(&self, node: NodeId, now: Timestamp) -> Option<Duration> {
        let (_, at) = self.expiries.iter().find(|(of, _)| *of == node)?;
        Some(at.since(now + self.jitter))
    }

    /// It need not outlast the keys that stand in the way; until when, if that is known. One that keeps the parties
    /// of a split vote apart is random, and stays so.
    pub(super) fn shorten(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.is_of_split() {
            return None;
        }
        // A key can be over before the attempt that met it is known to have failed.
        let free_at = self.free_at(self.needed)?.max(now);
        self.until = self.until.min(free_at);
        Some(self.until)
    }

    /// When the `needed`-th of the keys that stand in the way is over, if that is known.
    pub(super) fn free_at(&mut self, needed: usize) -> Option<Timestamp> {
        self.expiries.sort_unstable_by_key(|&(_, at)| at);
        self.expiries.get(needed.checked_sub(1)?).map(|&(_, at)| at)
    }
}

/// So many split votes are answered without a pause.
const SPLITS: u32 = 4;

/// A pause after a split vote is shorter than this many round trips.
const SPLIT_ROUND_TRIPS: u32 = 4;

/// The longest pause where nodes tell of changes: what a lost message costs at the most. And the shortest.
pub(super) const CAP_NOTIFIED: Duration = Duration::from_secs(2);
pub(super) const AT_LEAST_NOTIFIED: Duration = Duration::from_millis(1_500);

/// Waiters do not meet an expiry all at the same moment, and a key lives to the end of its last millisecond.
pub(super) const EXPIRY_JITTER: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(5));

/// Vain asks that are further apart are not of a crowd.
const RESTED: Duration = Duration::from_millis(500);

/// How long notifications are ignored after the first attempt that followed one and won nothing.
const MUTED_AT_FIRST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    #[test]
    fn it_ends_with_the_denying_keys_unless_it_keeps_a_split_apart() {
        let mut pause = Pause::default();
        pause.attempt_begins(2 * MS);
        pause.refused(false, 2);
        pause.lasts_until(at(1_000));
        pause.key_lives(NodeId(0), Some(100 * MS), at(0));
        assert_eq!(pause.shorten(at(0)), None, "two keys have to go");
        pause.key_lives(NodeId(1), Some(50 * MS), at(0));
        pause.key_lives(NodeId(1), Some(60 * MS), at(0));
        assert_eq!(pause.shorten(at(0)), Some(at(102)));
        pause.refused(true, 2);
        pause.key_lives(NodeId(0), None, at(0));
        assert_eq!(pause.shorten(at(0)), None);
        (0..SPLITS).for_each(|_| pause.refused(true, 2));
        assert_eq!(pause.shorten(at(0)), Some(at(62)), "a key left over looks like a split");
    }

    #[test]
    fn refusals_between_split_votes_do_not_keep_the_pauses_short_unless_a_holder_is_seen() {
        let round_trips = |pause: &mut Pause| pause.span(MS, true, (MS, MS)).1 / SPLIT_ROUND_TRIPS;
        let mut pause = Pause::default();
        for _ in 0..SPLITS {
            pause.refused(true, 1);
            assert_eq!(round_trips(&mut pause), MS);
            pause.refused(false, 2);
            assert!(round_trips(&mut pause) > MS);
        }
        pause.refused(true, 1);
        assert!(round_trips(&mut pause) > MS, "as often as that it is no split");
        pause.refused(false, 2);
        pause.lengthen(at(1), at(9_000));
        pause.refused(true, 1);
        assert_eq!(round_trips(&mut pause), MS, "behind a holder it can be one again");
    }

    #[test]
    fn notifications_in_vain_are_ignored_for_ever_longer() {
        let mut pause = Pause::default();
        let mut backoffs = Vec::new();
        pause.listen_to(NodeId(1).into());
        assert_eq!(pause.was_woken_in_vain(at(1), 4 * MS), None, "nobody told");
        for ms in 2..6 {
            pause.attempt_begins(MS);
            pause.lasts_until(at(1_000));
            pause.notified(NodeId(1));
            assert!(!pause.reported().is_empty() && pause.wake(at(ms)));
            backoffs.extend(pause.was_woken_in_vain(at(ms), 4 * MS));
            pause.mute_until(at(ms + 2));
        }
        assert_eq!(backoffs, [MS, 2 * MS, 4 * MS, 4 * MS]);
        pause.lasts_until(at(1_000));
        pause.wake(at(6));
        assert!(pause.is_late());
        assert_eq!(pause.until(), at(7), "told too early");
        assert_eq!(pause.was_woken_in_vain(at(900), 4 * MS), Some(MS), "it has rested");
    }

    #[test]
    fn it_is_short_after_a_split_long_where_nodes_notify_and_grows_otherwise() {
        let mut pause = Pause::default();
        let range = (8 * MS, 100 * MS);
        pause.refused(true, 1);
        assert_eq!(pause.span(3 * MS, true, range), (Duration::ZERO, 12 * MS));
        pause.refused(false, 1);
        assert_eq!(pause.span(3 * MS, true, range), (1_500 * MS, 2_000 * MS));
        for most in [8, 16, 32, 64, 100] {
            assert_eq!(pause.span(3 * MS, false, range), (MS, most * MS));
        }
    }

    #[test]
    fn a_new_acquisition_remembers_nothing_of_the_last_one() {
        let mut pause = Pause::default();
        pause.refused(true, 1);
        pause.span(MS, false, (8 * MS, 100 * MS));
        pause.listen_to(NodeSet::first(2));
        pause.notified(NodeId(1));
        pause.key_lives(NodeId(0), None, at(5));
        pause.mute_until(at(50));
        assert!(pause.wake(at(5)) && pause.follows_split());
        pause.begin();
        assert!(pause.is_quiet() && !pause.is_woken() && !pause.follows_split());
        assert_eq!((pause.leads(), pause.free_at(1)), (NodeSet::default(), None));
        assert_eq!(pause.span(MS, false, (8 * MS, 100 * MS)).1, 8 * MS);
        pause.lasts_until(at(1_000));
        pause.wake(at(10));
        assert_eq!(pause.until(), at(10), "it listens");
    }

    #[test]
    fn it_is_quiet_until_a_lead_has_notified_or_it_was_woken() {
        let mut pause = Pause::default();
        pause.listen_to(NodeId(1).into());
        pause.notified(NodeId(0));
        assert!(pause.is_quiet() && !pause.is_woken());
        pause.notified(NodeId(1));
        assert!(!pause.is_quiet() && !pause.is_woken());
        pause.reads_until(at(100));
        assert!(pause.is_quiet());
        pause.wake(at(1));
        assert!(!pause.is_quiet() && pause.is_woken());
    }

    /// Its leads are taken to have told of the others, and it sits out a turn.
    #[test]
    fn a_turn_that_is_left_to_others_is_sat_out_once() {
        let mut pause = Pause::default();
        pause.leaves_turn(NodeSet::first(2), 5 * MS);
        assert_eq!((pause.leads(), pause.reported()), (NodeSet::first(2), NodeSet::first(2)));
        assert!(pause.is_woken() && pause.is_late());
        assert_eq!((pause.take_sit_out(), pause.take_sit_out()), (5 * MS, Duration::ZERO));
        pause.leaves_turn(NodeSet::default(), 5 * MS);
        assert!(!pause.is_woken() && !pause.is_late(), "nobody tells");
        pause.sits_out_until(at(20));
        pause.sits_out_until(at(10));
        pause.lasts_until(at(1_000));
        pause.wake(at(5));
        assert_eq!((pause.until(), pause.is_late()), (at(20), true));
    }

    #[test]
    fn a_read_of_a_key_that_is_still_there_ends_nothing() {
        let mut pause = Pause::default();
        pause.lasts_until(at(1_000));
        pause.goes_on(Timestamp::NEVER);
        pause.mute_until(at(20));
        pause.wake(at(10));
        assert_eq!((pause.is_late(), pause.until()), (true, at(20)));
        pause.goes_on(Timestamp::NEVER);
        assert_eq!(pause.until(), at(20), "nobody has looked");
        pause.reads_until(at(40));
        pause.goes_on(Timestamp::NEVER);
        assert_eq!(pause.until(), at(1_000));
        pause.wake(at(30));
        pause.reads_until(at(40));
        pause.attempt_begins(MS);
        pause.goes_on(Timestamp::NEVER);
        assert_eq!(pause.until(), at(40), "it is asked for, and no longer looked at");
    }

    #[test]
    fn a_key_that_is_gone_ends_it_nearly_at_once() {
        let mut pause = Pause::default();
        pause.attempt_begins(16 * MS);
        pause.key_lives(NodeId(0), None, at(10));
        assert_eq!(pause.free_at(1), Some(at(12)));
    }

    #[test]
    fn it_has_rested_when_nothing_was_in_vain_for_longer_than_half_a_second() {
        let mut pause = Pause::default();
        for (since, backoff) in [(1, MS), (501, 2 * MS), (502, MS)] {
            pause.wake(at(since));
            assert_eq!(pause.was_woken_in_vain(at(since), 8 * MS), Some(backoff), "{since}");
            pause.mute_until(at(1));
        }
    }
}
