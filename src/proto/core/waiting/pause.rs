//! The pause of one lock between two attempts: its end, the notifications that end it early, and
//! the intervals in which notifications are ignored.
//!
//! A pause sends nothing and asks no node, so its rules can be read and tested alone. Randomness is
//! an argument.

use std::time::Duration;

use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::Timestamp;

/// The pause between two attempts, with what it remembers of earlier attempts.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Timestamp,
    /// The end of the pause if no notification shortens it.
    timer: Timestamp,
    /// Whether the key is being read. The pause continues if the key still exists.
    is_reading: bool,
    /// The number of refusals so far, with which the longest pause grows.
    refusals: u32,
    /// Whether some nodes granted in the last refused attempt.
    is_after_split: bool,
    /// The number of split votes since a holder was last seen, or since a refusal without a grant
    /// after which no notification was expected.
    splits: u32,
    jitter: Duration,
    /// The times at which the keys in the way expire, for each node that is known.
    expiries: Vec<(NodeId, Timestamp)>,
    /// The number of these keys that must be gone before a quorum is possible.
    needed: usize,
    /// The leads: the nodes whose notifications end the pause.
    leads: NodeSet,
    /// The nodes that have reported a change since the last attempt began, leads or not.
    notified: NodeSet,
    /// Whether a notification ends the pause, or has ended the one before the current attempt.
    is_woken: bool,
    /// The longest time to ignore notifications once another process has used the turn left to it.
    sit_out: Duration,
    /// Whether that notification came while the lock ignored notifications.
    is_late: bool,
    /// The interval for which notifications were last ignored. It grows with each attempt that
    /// followed a notification and won nothing.
    wake_backoff: Duration,
    /// The end of the interval in which notifications are ignored.
    muted_until: Timestamp,
}

impl Pause {
    /// Forgets the last acquisition and starts a new one.
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

    /// Starts an attempt, which forgets notifications and known expiries. Each key that the attempt
    /// meets is assumed to live `jitter` longer than the node reports.
    pub(super) fn attempt_begins(&mut self, jitter: Duration) {
        self.is_reading = false;
        self.expiries.clear();
        self.notified = NodeSet::default();
        self.jitter = jitter;
    }

    /// Records a refused attempt: whether the vote was split, and how many keys must be gone before
    /// a quorum is possible.
    pub(super) fn refused(&mut self, is_split: bool, needed: usize) {
        self.is_after_split = is_split;
        self.splits += u32::from(is_split);
        self.needed = needed;
    }

    pub(super) fn needed(&self) -> usize {
        self.needed
    }

    /// Returns the shortest and the longest pause after an attempt of duration `took`. After a
    /// split vote there may be no holder, so the pause is short. If nodes will notify, it is long.
    /// Otherwise its upper end grows with each refusal from `least` to `most`.
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

    /// Returns whether the pause separates the clients of a split vote.
    fn is_of_split(&self) -> bool {
        // A holder of a bare quorum, or a key left over on one node, looks like a split vote for
        // its whole TTL, so only the first few are treated as one. A refusal by all nodes alone
        // does not reset the count: the nodes that were free may have granted to other waiters
        // that won nothing either.
        self.is_after_split && self.splits <= SPLITS
    }

    pub(super) fn leads(&self) -> NodeSet {
        self.leads
    }

    pub(super) fn listen_to(&mut self, leads: NodeSet) {
        self.leads = leads;
    }

    /// Returns the leads that have reported a change.
    pub(super) fn reported(&self) -> NodeSet {
        self.notified.and(self.leads)
    }

    /// Records that a node has reported a change. The node may become a lead later.
    pub(super) fn notified(&mut self, node: NodeId) {
        self.notified.insert(node);
    }

    /// Returns whether there is no notification that could end the pause.
    pub(super) fn is_quiet(&self) -> bool {
        self.reported().is_empty() && !self.is_woken
    }

    /// Ends the pause because of a notification, but not while the lock ignores them. Returns
    /// whether this is the first notification to end it.
    pub(super) fn wake(&mut self, now: Timestamp) -> bool {
        self.is_late = now < self.muted_until;
        self.ends_when_it_listens(now);
        !std::mem::replace(&mut self.is_woken, true)
    }

    /// Takes the mark that a notification ended the pause.
    pub(super) fn take_woken(&mut self) -> bool {
        self.is_late = false;
        std::mem::take(&mut self.is_woken)
    }

    pub(super) fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// Returns whether that notification came while the lock ignored notifications, so that it is
    /// old.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Ends the pause because a lock of this core has released the resource, which no node reports
    /// to this core.
    pub(super) fn handed_on(&mut self, now: Timestamp) {
        self.is_woken = false;
        self.is_late = false;
        self.ends_when_it_listens(now);
    }

    fn ends_when_it_listens(&mut self, now: Timestamp) {
        self.until = self.until.min(self.muted_until.max(now));
    }

    /// Makes this pause a turn for other processes. When it ends, `leads` count as having notified
    /// a moment ago, so the key is read before it is requested. If the key is there, notifications
    /// may then be ignored for up to `sit_out`.
    pub(super) fn leaves_turn(&mut self, leads: NodeSet, sit_out: Duration) {
        (self.leads, self.notified, self.needed) = (leads, leads, 1);
        self.is_woken = !leads.is_empty();
        self.is_late = self.is_woken;
        self.sit_out = sit_out;
    }

    /// Waits for the answer to a read of the key, up to `until`. Earlier notifications are
    /// forgotten, because the read is newer.
    pub(super) fn reads_until(&mut self, until: Timestamp) {
        self.is_late = false;
        self.is_woken = false;
        self.notified = NodeSet::default();
        self.is_reading = true;
        self.until = until;
    }

    /// Continues the pause after a read that found the key, as if no notification had come, but no
    /// later than `most`.
    pub(super) fn goes_on(&mut self, most: Timestamp) {
        if std::mem::take(&mut self.is_reading) {
            self.until = self.timer.min(most);
        }
    }

    /// Records that the attempt begun at `since` won nothing. If it followed a notification,
    /// returns the interval for which to ignore notifications. The interval doubles each time up to
    /// `most`; the caller makes half of it random.
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

    /// Returns whether the last attempt was refused although some nodes granted, so that there may
    /// be no holder.
    pub(super) fn follows_split(&self) -> bool {
        self.is_after_split
    }

    /// Makes the pause long, because there is a holder and nodes will notify. Returns when it ends.
    pub(super) fn lengthen(&mut self, now: Timestamp, deadline: Timestamp) -> Timestamp {
        self.splits = 0;
        self.until = (now + AT_LEAST_NOTIFIED).min(deadline);
        self.until
    }

    /// Takes the longest time to ignore notifications after a turn of this core. It is returned
    /// once.
    pub(super) fn take_sit_out(&mut self) -> Duration {
        std::mem::take(&mut self.sit_out)
    }

    pub(super) fn sits_out_until(&mut self, until: Timestamp) {
        self.muted_until = self.muted_until.max(until);
    }

    /// Records how long the key in the way will live on a node. `None` if it is gone already.
    pub(super) fn key_lives(&mut self, node: NodeId, left: Option<Duration>, now: Timestamp) {
        let at = match left {
            Some(left) => now + left + self.jitter,
            // A short delay that keeps two waiters from requesting in step forever.
            None => now + self.jitter / 8,
        };
        self.expiries.retain(|&(of, _)| of != node);
        self.expiries.push((node, at));
    }

    /// Returns how long the key in the way will live on a node, without the added jitter, if known.
    pub(super) fn known(&self, node: NodeId, now: Timestamp) -> Option<Duration> {
        let (_, at) = self.expiries.iter().find(|(of, _)| *of == node)?;
        Some(at.since(now + self.jitter))
    }

    /// Ends the pause when enough keys in the way have expired. Returns the new end, if it is
    /// known.
    pub(super) fn shorten(&mut self, now: Timestamp) -> Option<Timestamp> {
        // The pause after a split vote is random to separate the clients, and must stay so.
        if self.is_of_split() {
            return None;
        }
        // A key can expire before the attempt that met it is known to have failed.
        let free_at = self.free_at(self.needed)?.max(now);
        self.until = self.until.min(free_at);
        Some(self.until)
    }

    /// Returns when the `needed`-th of the keys in the way expires, if that is known.
    pub(super) fn free_at(&mut self, needed: usize) -> Option<Timestamp> {
        self.expiries.sort_unstable_by_key(|&(_, at)| at);
        self.expiries.get(needed.checked_sub(1)?).map(|&(_, at)| at)
    }
}

/// The number of split votes that are followed by a short pause.
const SPLITS: u32 = 4;

/// The longest pause after a split vote, in durations of the attempt.
const SPLIT_ROUND_TRIPS: u32 = 4;

/// The longest pause if nodes notify, which is the cost of a lost message, and the shortest one.
pub(super) const CAP_NOTIFIED: Duration = Duration::from_secs(2);
pub(super) const AT_LEAST_NOTIFIED: Duration = Duration::from_millis(1_500);

/// The time added to the expiry of a key: a key lives to the end of its last millisecond, and
/// waiters must not all request at the same moment.
pub(super) const EXPIRY_JITTER: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(5));

/// The time without ignored notifications after which the interval starts again at
/// [`MUTED_AT_FIRST`]: requests that far apart do not come from a crowd of waiters.
const RESTED: Duration = Duration::from_millis(500);

/// The interval for which notifications are ignored after the first one that won nothing.
const MUTED_AT_FIRST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    #[test]
    fn a_pause_ends_with_the_denying_keys_unless_it_follows_a_split_vote() {
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
    fn a_holder_resets_the_count_of_split_votes_and_a_refusal_does_not() {
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
    fn each_notification_that_wins_nothing_doubles_the_ignored_interval() {
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
    fn a_pause_is_short_after_a_split_long_if_nodes_notify_and_grows_otherwise() {
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
    fn a_pause_is_quiet_until_a_lead_notifies_or_wakes_it() {
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

    /// A core that leaves a turn assumes that its leads have reported others, and ignores
    /// notifications.
    #[test]
    fn notifications_are_ignored_once_after_a_turn_left_to_others() {
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
    fn a_read_that_finds_the_key_does_not_end_the_pause() {
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
    fn a_missing_key_ends_the_pause_almost_at_once() {
        let mut pause = Pause::default();
        pause.attempt_begins(16 * MS);
        pause.key_lives(NodeId(0), None, at(10));
        assert_eq!(pause.free_at(1), Some(at(12)));
    }

    #[test]
    fn the_ignored_interval_starts_again_after_half_a_second_of_rest() {
        let mut pause = Pause::default();
        for (since, backoff) in [(1, MS), (501, 2 * MS), (502, MS)] {
            pause.wake(at(since));
            assert_eq!(pause.was_woken_in_vain(at(since), 8 * MS), Some(backoff), "{since}");
            pause.mute_until(at(1));
        }
    }
}
