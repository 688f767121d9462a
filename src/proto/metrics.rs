//! The counters and histograms of a core: outcomes, votes, undos, connections and durations.
//!
//! They are plain integers of a core that one thread drives, so counting needs no lock, no clock
//! and no allocation. Invariant: the protocol reads none of them, so they decide nothing. The API
//! adds addresses and writes the text for Prometheus.

use std::marker::PhantomData;
use std::time::Duration;

use super::event::{LossCause, RefusalReason};
use super::names::NodeId;
use super::time::{Timestamp, saturating_nanos};
use super::vote::{Cause, Vote};

/// The counts of one core since it was created. No count ever decreases.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The number of accepted acquisitions. Each ends in a grant or a refusal.
    pub acquisitions: u64,
    /// The number of attempts, which are rounds of requests to the nodes. An acquisition makes one,
    /// and another one after each pause. Changes of mode make attempts too.
    pub attempts: u64,
    /// The number of attempts that asked one node first, the lead, because it had reported a
    /// change.
    pub lead_asks: u64,
    /// The number of these whose lead granted, so that the other nodes were asked as well.
    pub lead_grants: u64,
    /// The number of pauses of waiting acquisitions that a notification ended before their timer.
    pub wakes: u64,
    /// The number of acquisitions that waited in the queue on the nodes.
    pub joined_queue: u64,
    /// The number of attempts for a permit whose nodes granted different slots, and were then asked
    /// for the same one.
    pub settled: u64,
    /// The number of requests to nodes that did not keep a held permit.
    pub healed: u64,
    /// The number of acquisitions that were granted.
    pub grants: u64,
    /// The acquisitions that were refused, by reason.
    pub refusals: By<RefusalReason>,
    /// The time from acquire to grant.
    pub wait_granted: Histogram,
    /// The time from acquire to refusal.
    pub wait_refused: Histogram,
    /// The time that waiters were in the queue on the nodes, until they were granted or refused.
    pub wait_in_queue: Histogram,
    /// The time from grant to release or loss. For an attached lock it begins when the lock is
    /// attached. Locks that are still held or were detached are not included.
    pub hold: Histogram,
    /// The number of extensions that reached a quorum.
    pub extended: u64,
    /// The number of extensions that reached no quorum while the lock stayed held.
    pub not_extended: u64,
    /// The number of automatic extensions in `extended`.
    pub auto_extended: u64,
    /// The number of automatic extensions in `not_extended`.
    pub auto_extend_failed: u64,
    /// The number of shared locks that became exclusive.
    pub upgrades: u64,
    /// The number of upgrades that were refused.
    pub upgrades_refused: u64,
    /// The number of exclusive locks that became shared on a quorum of the nodes.
    pub downgrades: u64,
    /// The number of downgrades that the nodes did not grant at once, so that readers are kept out
    /// for longer.
    pub downgrades_delayed: u64,
    /// The number of locks that were attached from another process.
    pub attached: u64,
    /// The number of locks that were detached to another process.
    pub detached: u64,
    /// The number of locks whose holder released them in time. Each lock that was granted or
    /// attached is released, lost or detached in the end.
    pub releases: u64,
    /// The number of releases that a quorum did not confirm in time. Their undos stay owed.
    pub unconfirmed: u64,
    /// The lost locks, by cause.
    pub losses: By<LossCause>,
    /// The number of lost locks that were auto-extended.
    pub auto_extend_losses: u64,
    /// The counts of each node, in the order of the configuration.
    pub nodes: Vec<NodeMetrics>,
    late_after: u64,
}

/// The counts of one core for one node.
///
/// Votes are what the node answered, even if its vote was no longer needed. A vote that arrived
/// after its timeout was counted as a failure before.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The number of requests that were given to the node's link, including those that were
    /// withdrawn before a byte was sent.
    pub asks: u64,
    /// The number of grants.
    pub grants: u64,
    /// The number of denials.
    pub denies: u64,
    /// The answers that were not useful, and the votes that an attempt awaited and did not get, by
    /// cause.
    pub fails: By<Cause>,
    /// The number of answers that arrived after
    /// [`response_timeout`](super::Settings::response_timeout). They are processed nevertheless.
    pub late_replies: u64,
    /// The number of grants that arrived so late that the node was asked again whether it was a
    /// replica in between.
    pub late_proofs: u64,
    /// The number of undos that were sent, including those of releases.
    pub undos: u64,
    /// The number of these that repeated an undo on this node, because the first was not confirmed,
    /// or a ghost of the request might have followed it.
    pub undos_again: u64,
    /// The number of undos that the node confirmed.
    pub undos_confirmed: u64,
    /// The number of connections that were opened. All but the first replaced a lost one.
    pub connections: u64,
    /// The connections that failed to open or ended, by cause.
    pub link_failures: By<Cause>,
    /// The number of notifications on the node's push link: changed keys, and published releases of
    /// other libraries. A report that all keys have changed counts as one.
    pub pushes: u64,
    /// The number of times that the node was suspected of hanging.
    pub suspicions: u64,
    /// The number of timeouts: of an awaited vote, extension or inspection, of a connection, of a
    /// handshake, and of a silent server.
    pub timeouts: u64,
    /// The time from when a request was given to the link until its answer was read. In a blocking
    /// client the answer may be read only in the next call. Handshakes are not included.
    pub round_trip: Histogram,
}

impl NodeMetrics {
    /// Returns the number of connections that replaced a lost one.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        // The first connection replaced none.
        self.connections.saturating_sub(1)
    }

    #[inline]
    pub(super) fn voted(&mut self, vote: Vote) {
        match vote {
            Vote::Grant => self.grants += 1,
            Vote::Deny => self.denies += 1,
            Vote::Fail(cause) => self.fails.count(cause),
        }
    }

    pub(super) fn not_voted(&mut self, cause: Cause) {
        self.fails.count(cause);
        self.timeouts += 1;
    }

    pub(super) fn link_failed(&mut self, cause: Cause) {
        self.link_failures.count(cause);
        self.timeouts += u64::from(matches!(cause, Cause::ConnectTimeout | Cause::DeadPeer));
    }

    /// Counts an undo. `again`: it repeats an earlier one.
    #[inline]
    pub(super) fn undo_sent(&mut self, again: bool) {
        self.undos += 1;
        self.undos_again += u64::from(again);
    }
}

impl Metrics {
    pub(super) fn new(nodes: usize, response_timeout: Duration) -> Self {
        Self {
            acquisitions: 0,
            attempts: 0,
            lead_asks: 0,
            lead_grants: 0,
            wakes: 0,
            joined_queue: 0,
            settled: 0,
            healed: 0,
            grants: 0,
            refusals: By::default(),
            wait_granted: Histogram::default(),
            wait_refused: Histogram::default(),
            wait_in_queue: Histogram::default(),
            hold: Histogram::default(),
            extended: 0,
            not_extended: 0,
            auto_extended: 0,
            upgrades: 0,
            upgrades_refused: 0,
            downgrades: 0,
            downgrades_delayed: 0,
            auto_extend_failed: 0,
            attached: 0,
            detached: 0,
            releases: 0,
            unconfirmed: 0,
            losses: By::default(),
            auto_extend_losses: 0,
            nodes: vec![NodeMetrics::default(); nodes],
            late_after: saturating_nanos(response_timeout),
        }
    }

    /// Returns the counts of one node.
    #[must_use]
    #[inline]
    pub fn node(&self, node: NodeId) -> &NodeMetrics {
        &self.nodes[node.index()]
    }

    /// Returns the number of acquisitions that wait in the queue on the nodes now.
    #[must_use]
    pub fn in_queue(&self) -> u64 {
        // Each waiter that has left the queue has recorded its time there.
        self.joined_queue.saturating_sub(self.wait_in_queue.count())
    }

    #[inline]
    pub(super) fn of(&mut self, node: NodeId) -> &mut NodeMetrics {
        &mut self.nodes[node.index()]
    }

    #[inline]
    pub(super) fn answered(&mut self, node: NodeId, since: Timestamp, now: Timestamp) {
        let took = now.0.saturating_sub(since.0);
        let node = &mut self.nodes[node.index()];
        node.round_trip.add(took);
        node.late_replies += u64::from(took > self.late_after);
    }

    #[inline]
    pub(super) fn granted(&mut self, asked_at: Timestamp, now: Timestamp) {
        self.grants += 1;
        self.wait_granted.record(asked_at, now);
    }

    #[inline]
    pub(super) fn refused(&mut self, reason: RefusalReason, asked_at: Timestamp, now: Timestamp) {
        self.refusals.count(reason);
        self.wait_refused.record(asked_at, now);
    }

    pub(super) fn left_queue(&mut self, joined_at: Timestamp, now: Timestamp) {
        self.wait_in_queue.record(joined_at, now);
    }

    #[inline]
    pub(super) fn released(&mut self, granted_at: Timestamp, now: Timestamp) {
        self.releases += 1;
        self.hold.record(granted_at, now);
    }

    pub(super) fn lost(&mut self, cause: LossCause, granted_at: Timestamp, now: Timestamp) {
        self.losses.count(cause);
        self.hold.record(granted_at, now);
    }
}

/// An enum whose variants are counted separately.
pub trait Kind: Copy + 'static {
    /// All variants.
    const ALL: &'static [Self];

    /// The index of this variant.
    fn place(self) -> usize;
}

/// Implements [`Kind`]. It does not compile if a variant is missing.
macro_rules! kind {
    ($kind:ident: $($variant:ident)*) => {
        impl Kind for $kind {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            #[inline]
            fn place(self) -> usize {
                match self {
                    $(Self::$variant => Self::$variant as usize,)*
                }
            }
        }

        const _: () = assert!(<$kind as Kind>::ALL.len() <= MOST_KINDS);
    };
}

kind!(RefusalReason: Cancelled Contended Expired NoQuorum OutOfTime);

kind!(LossCause: Expired Forked Gone HeldTooLong ShutDown Unextended);

kind!(Cause:
    NoAnswer ConnectTimeout ConnectionRefused ConnectionReset ConnectionClosed Unreachable NameLookup
    Io DeadPeer Tls Violation UnexpectedReply Backlog
    Loading Busy MasterDown DiskTrouble OutOfMemory NoReplicas ReadOnly Unavailable MaxClients
    ServerError Quarantined ClockSkew NotCounted
    PasswordMissing WrongPassword NoPasswordSet NoPermission ProtectedMode NoSuchDatabase UnknownCommand
    ScriptsForbidden TooOld TlsPort PlainPort Certificate TlsRefused
    WrongType Replica ClusterMode SameServer Evicting OtherLimits RestartGuardAltered);

/// The maximum number of variants.
const MOST_KINDS: usize = 64;

/// Counts, one for each variant of `K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By<K> {
    counts: [u64; MOST_KINDS],
    kind: PhantomData<K>,
}

impl<K> Default for By<K> {
    fn default() -> Self {
        Self { counts: [0; MOST_KINDS], kind: PhantomData }
    }
}

impl<K: Kind> By<K> {
    /// Returns the count of this variant.
    #[must_use]
    pub fn of(&self, kind: K) -> u64 {
        self.counts[kind.place()]
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns all variants with their counts, including zeros.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        K::ALL.iter().map(|&kind| (kind, self.of(kind)))
    }

    #[inline]
    pub(super) fn count(&mut self, kind: K) {
        self.counts[kind.place()] += 1;
    }
}

/// A histogram of durations in buckets from 10 µs to 100 s, with bounds in steps of 1, 2 and 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl Histogram {
    /// The upper bounds of the buckets, inclusive. Durations above the last bound are in one more
    /// bucket.
    pub const BOUNDS: [Duration; BUCKETS - 1] = {
        let mut bounds = [Duration::ZERO; BUCKETS - 1];
        let mut at = 0;
        while at < bounds.len() {
            bounds[at] = Duration::from_nanos(BOUNDS[at]);
            at += 1;
        }
        bounds
    };

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations, saturated at 584 years.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the number of durations in each bucket: those of [`BOUNDS`](Self::BOUNDS) in order,
    /// then the one above the last bound.
    #[must_use]
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.buckets
    }

    /// Returns an estimate of the duration that a share `q` of all, from 0 to 1, did not exceed;
    /// `None` if nothing was recorded.
    ///
    /// The true value is in the same bucket, so the estimate differs from it by at most a factor of
    /// 2.5, or by 10 µs in the first bucket. Durations inside a bucket are assumed to be spread
    /// evenly. Above the last bound the estimate is that bound.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        // The rank of the duration, counted from one in order of length.
        let rank = (q.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (at, &inside) in self.buckets.iter().enumerate() {
            if inside > 0 && below + inside >= rank {
                let lower = if at == 0 { 0 } else { BOUNDS[at - 1] };
                let upper = BOUNDS.get(at).copied().unwrap_or(lower);
                let part = (rank - below) as f64 / inside as f64;
                let nanos = lower as f64 + (upper - lower) as f64 * part;
                return Some(Duration::from_nanos(nanos as u64));
            }
            below += inside;
        }
        None
    }

    #[inline]
    pub(super) fn record(&mut self, from: Timestamp, to: Timestamp) {
        self.add(to.0.saturating_sub(from.0));
    }

    /// Adds a duration. At most one bound lies between two powers of two, so the number of bits and
    /// one comparison determine the bucket.
    #[inline]
    fn add(&mut self, nanos: u64) {
        let first = usize::from(FIRST[(u64::BITS - nanos.leading_zeros()) as usize]);
        let over = BOUNDS.get(first).is_some_and(|&bound| nanos > bound);
        self.buckets[first + usize::from(over)] += 1;
        // No count ever decreases, so the sum must not wrap.
        self.sum = self.sum.saturating_add(nanos);
    }
}

/// The number of buckets of a [`Histogram`], including the one above its last bound.
pub const BUCKETS: usize = 23;

const BOUNDS: [u64; BUCKETS - 1] = {
    let mut bounds = [0; BUCKETS - 1];
    let (mut at, mut decade) = (0, 10_000);
    while at < bounds.len() {
        bounds[at] = decade * [1, 2, 5][at % 3];
        at += 1;
        if at % 3 == 0 {
            decade *= 10;
        }
    }
    bounds
};

/// For each number of bits, the number of bounds below the smallest number with that many bits.
const FIRST: [u8; 65] = {
    let mut first = [0; 65];
    let mut bits = 1;
    while bits < first.len() {
        let least = 1 << (bits - 1);
        while (first[bits] as usize) < BOUNDS.len() && BOUNDS[first[bits] as usize] < least {
            first[bits] += 1;
        }
        bits += 1;
    }
    first
};

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spans: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        spans.into_iter().for_each(|span| histogram.record(Timestamp(7), Timestamp(7 + span)));
        histogram
    }

    #[test]
    fn bounds_go_from_ten_microseconds_to_a_hundred_seconds() {
        assert_eq!(BOUNDS[..4], [10_000, 20_000, 50_000, 100_000]);
        assert_eq!(Histogram::BOUNDS[BUCKETS - 2], Duration::from_secs(100));
        for pair in BOUNDS.windows(2) {
            assert!(2 * pair[0] <= pair[1] && 2 * pair[1] <= 5 * pair[0], "{pair:?}");
        }
    }

    /// Durations around every bound and every power of two, and far beyond both ends.
    #[test]
    fn a_span_is_in_the_first_bucket_that_is_not_below_it() {
        let powers = (0..63).map(|bits| 1u64 << bits);
        let edges = powers.chain(BOUNDS).flat_map(|edge| [edge - 1, edge, edge + 1]);
        for span in edges.chain([0, u64::MAX - 7]) {
            let place = BOUNDS.partition_point(|&bound| bound < span);
            let counted = of([span]);
            assert_eq!(counted.buckets()[place], 1, "{span}");
            assert_eq!((counted.count(), counted.sum), (1, span));
        }
    }

    #[test]
    fn a_negative_span_counts_as_zero_and_sums_saturate() {
        let mut histogram = Histogram::default();
        histogram.record(Timestamp(9), Timestamp(3));
        assert_eq!((histogram.buckets()[0], histogram.sum()), (1, Duration::ZERO));
        for _ in 0..2 {
            histogram.record(Timestamp(0), Timestamp(u64::MAX));
        }
        assert_eq!((histogram.count(), histogram.sum), (3, u64::MAX));
    }

    /// Compared with the exact quantile of many durations of every length.
    #[test]
    fn a_quantile_is_off_by_no_more_than_its_bucket() {
        let mut random = 1u64;
        let mut spans: Vec<u64> = (0..10_000)
            .map(|at| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 40) << (at % 13)
            })
            .collect();
        let histogram = of(spans.iter().copied());
        spans.sort_unstable();
        assert!(spans[9_999] < BOUNDS[BUCKETS - 2]);
        for percent in 0..=100u32 {
            let share = f64::from(percent) / 100.0;
            let rank = (100 * percent).max(1) as usize;
            let (exact, told) = (spans[rank - 1], histogram.quantile(share).unwrap());
            let bucket = |span: u64| BOUNDS.partition_point(|&bound| bound < span);
            let told = told.as_nanos() as u64;
            let apart = told.max(exact) as f64 / told.min(exact).max(1) as f64;
            assert!(apart <= 2.5 || bucket(exact) == 0, "{percent} %: {exact}, told {told}");
            assert!(told <= BOUNDS[bucket(exact)], "{percent} %: {exact}, told {told}");
        }
    }

    #[test]
    fn quantiles_at_the_ends() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let one = of([15_000]);
        for share in [-1.0, 0.0, 0.5, 1.0, 2.0, f64::NAN] {
            assert_eq!(one.quantile(share), Some(Duration::from_micros(20)), "{share}");
        }
        let endless = of([u64::MAX - 7]);
        assert_eq!(endless.quantile(0.5), Some(Duration::from_secs(100)));
    }

    #[test]
    fn every_variant_has_its_own_index() {
        fn places<K: Kind>() {
            let mut seen = [false; MOST_KINDS];
            for kind in K::ALL {
                assert!(!std::mem::replace(&mut seen[kind.place()], true));
            }
        }
        places::<RefusalReason>();
        places::<LossCause>();
        places::<Cause>();
        let mut counts = By::default();
        Cause::ALL.iter().for_each(|&cause| counts.count(cause));
        counts.count(Cause::Backlog);
        assert_eq!((counts.of(Cause::Backlog), counts.of(Cause::RestartGuardAltered)), (2, 1));
        assert_eq!(counts.total(), Cause::ALL.len() as u64 + 1);
        assert!(counts.iter().all(|(_, count)| count > 0));
    }
}
