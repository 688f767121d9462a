//! While a lock is held: extension, release, and loss.
//!
//! Apart from `acquiring`, since from the grant on nothing may shorten what the holder was promised. Not here: the undo
//! that a release consists of, see `claims`.

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

/// What is known of a lock while it is held: its extensions, and what its lease rests on.
#[derive(Debug)]
pub(super) struct Hold {
    extension: Extension,
    backing: Backing,
    auto_extension: AutoExtension,
}

/// The extension that is in flight, or was the last.
#[derive(Debug)]
struct Extension {
    ttl: Duration,
    /// How long a node that extends keeps the key.
    lease: Lease,
    /// The nodes whose link it waits for.
    queued: NodeSet,
}

/// The timer of a lock that is extended automatically; without options it is off.
#[derive(Debug)]
struct AutoExtension {
    options: Option<AutoExtend>,
    /// When the next extension is due; never if the lock has been held for long enough.
    at: Timestamp,
    /// The extension in flight was started by the timer.
    is_extending: bool,
    /// The last extension failed, which was reported.
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

    /// Of another lock.
    pub(super) fn begin(&mut self, auto_extend: Option<AutoExtend>) {
        self.backing.clear();
        self.auto_extension = AutoExtension::new(auto_extend);
    }

    /// An attempt, extension or release begins, and no extension waits for a link any more.
    pub(super) fn round_begins(&mut self) {
        self.extension.queued = NodeSet::EMPTY;
    }

    pub(super) fn is_auto_extended(&self) -> bool {
        self.auto_extension.options.is_some()
    }

    /// Whether the extension that is under way came by itself.
    pub(super) fn is_extended_by_itself(&self) -> bool {
        self.auto_extension.is_extending
    }

    /// How it is auto-extended, if it is.
    pub(super) fn auto_extend(&self) -> Option<AutoExtend> {
        self.auto_extension.options
    }

    /// The TTL of the extension that is under way, or was the last.
    pub(super) fn extension_ttl(&self) -> Duration {
        self.extension.ttl
    }

    /// When it is extended by itself.
    pub(super) fn due(&self) -> Timestamp {
        self.auto_extension.at
    }

    /// Whether all nodes that count keep the key for the lock's lease, as when it was granted.
    pub(super) fn is_as_granted(&self) -> bool {
        self.backing.is_as_granted()
    }

    /// These nodes keep the key for the lease, and others may not, of so many in the configuration.
    pub(super) fn rests_on(&mut self, nodes: NodeSet, lease: Lease, of: usize) {
        self.backing.begin(nodes, lease, of);
    }

    /// One more node keeps a permit, for this lease. Where nothing has to be remembered that is not less than the lock's.
    pub(super) fn heal(&mut self, node: NodeId, lease: Lease, now: ClockReading) {
        if !self.backing.is_as_granted() {
            self.backing.keeps(node, lease, now);
        }
    }

    /// Those of the nodes that keep the key at least for as long as the lease.
    pub(super) fn backed(&self, nodes: NodeSet, lease: &Lease) -> NodeSet {
        self.backing.of(nodes, lease)
    }

    /// The lease that a quorum of the nodes supports, if it is known of each of them.
    pub(super) fn supported(&mut self, quorum: usize, now: ClockReading) -> Option<Lease> {
        self.backing.lease(quorum, now)
    }

    /// How long a lock may be held, by its ask and by the configuration.
    pub(super) fn longest(hold: Option<&Self>, config: &Config) -> Option<Duration> {
        let own = hold.and_then(|hold| hold.auto_extension.options?.max_hold);
        own.into_iter().chain(config.settings.max_hold).min()
    }
}
