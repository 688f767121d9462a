//! Held locks: extension, release, and loss.
//!
//! Invariant: the validity of a held lock gets shorter only with time, or when a node reports that
//! its key is missing. A release consists of undos, see `claims`.

mod auto_extend;
mod backing;
mod extension;
mod loss;
mod release;

use std::time::Duration;

use self::backing::Backing;
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::{config::Config, lease::Lease, request::AutoExtend};

/// The state of a lock while it is held: its extensions, and the support of its lease.
#[derive(Debug)]
pub(super) struct Hold {
    extension: Extension,
    backing: Backing,
    auto_extension: AutoExtension,
}

/// The extension in flight, or the last one.
#[derive(Debug)]
struct Extension {
    ttl: Duration,
    /// The time for which a node that extends keeps the key.
    lease: Lease,
    /// The nodes whose link the extension waits for.
    queued: NodeSet,
}

/// The timer of automatic extension; without options it is off.
#[derive(Debug)]
struct AutoExtension {
    options: Option<AutoExtend>,
    /// The time of the next extension; never while one is in flight, or after the longest hold.
    at: Timestamp,
    /// Whether the timer started the extension in flight.
    is_extending: bool,
    /// Whether an automatic extension has failed since the last success, which was reported.
    has_failed: bool,
}

impl Hold {
    pub(super) const fn new() -> Self {
        Self {
            extension: Extension {
                ttl: Duration::ZERO,
                lease: Lease::NONE,
                queued: NodeSet::EMPTY,
            },
            backing: Backing::new(),
            auto_extension: AutoExtension::new(None),
        }
    }

    pub(super) fn begin(&mut self, auto_extend: Option<AutoExtend>) {
        self.backing.clear();
        self.auto_extension = AutoExtension::new(auto_extend);
    }

    pub(super) fn round_begins(&mut self) {
        self.extension.queued = NodeSet::EMPTY;
    }

    pub(super) fn is_auto_extended(&self) -> bool {
        self.auto_extension.options.is_some()
    }

    pub(super) fn is_extended_by_itself(&self) -> bool {
        self.auto_extension.is_extending
    }

    pub(super) fn auto_extend(&self) -> Option<AutoExtend> {
        self.auto_extension.options
    }

    pub(super) fn extension_ttl(&self) -> Duration {
        self.extension.ttl
    }

    pub(super) fn due(&self) -> Timestamp {
        self.auto_extension.at
    }

    pub(super) fn is_as_granted(&self) -> bool {
        self.backing.is_as_granted()
    }

    /// Records that these nodes, of `of` in the configuration, keep the key for the lease; others
    /// may not.
    pub(super) fn rests_on(&mut self, nodes: NodeSet, lease: Lease, of: usize) {
        self.backing.begin(nodes, lease, of);
    }

    /// Records that another node keeps a permit for `lease`. If no leases are stored, it is not
    /// shorter than the lock's.
    pub(super) fn heal(&mut self, node: NodeId, lease: Lease, now: ClockReading) {
        if !self.backing.is_as_granted() {
            self.backing.keeps(node, lease, now);
        }
    }

    pub(super) fn backed(&self, nodes: NodeSet, lease: &Lease) -> NodeSet {
        self.backing.of(nodes, lease)
    }

    /// Returns the lease that a quorum supports; `None` if leases of fewer nodes are known.
    pub(super) fn supported(&mut self, quorum: usize, now: ClockReading) -> Option<Lease> {
        self.backing.lease(quorum, now)
    }

    /// Returns how long a lock may be held, by its request and the configuration.
    pub(super) fn longest(hold: Option<&Self>, config: &Config) -> Option<Duration> {
        let own = hold.and_then(|hold| hold.auto_extension.options?.max_hold);
        own.into_iter().chain(config.settings.max_hold).min()
    }
}
