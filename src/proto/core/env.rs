//! The environment of a node's transition: configuration, time, random spans, and outputs.
//!
//! Invariant: it holds no collection, so a transition of one node cannot reach another node, a lock
//! or a claim. Effects on these are returned or queued.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::{Common, Env};
use crate::proto::config::{Config, Settings};
use crate::proto::event::{Event, LinkOp};
use crate::proto::names::{LinkId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};

impl<'a> Env<'a> {
    pub(super) fn config(&self) -> &'a Config {
        self.config
    }

    pub(super) fn settings(&self) -> &'a Settings {
        &self.config.settings
    }

    pub(super) fn now(&self) -> ClockReading {
        self.now
    }

    /// Returns a random span below `bound`; zero if that is zero.
    pub(super) fn random_below(&mut self, bound: Duration) -> Duration {
        self.entropy.below(bound)
    }

    /// Reports the node's state with the next events.
    pub(super) fn report_state(&mut self, node: NodeId) {
        self.changed.insert(node);
    }

    #[inline]
    pub(super) fn suspected(&self) -> NodeSet {
        self.suspected
    }

    /// Records whether a node seems to hang. Returns whether that is news, which is reported.
    #[inline]
    pub(super) fn set_suspected(&mut self, node: NodeId, is_suspected: bool) -> bool {
        let is_news = self.suspected.contains(node) != is_suspected;
        if is_news {
            self.report_state(node);
            match is_suspected {
                true => self.suspected.insert(node),
                false => self.suspected.remove(node),
            }
        }
        is_news
    }

    pub(super) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Asks the driver to open a link.
    pub(super) fn open_link(&mut self, link: LinkId) {
        self.ops.push_back(LinkOp::Open(link));
    }

    /// Requests a timeout at `at` or earlier.
    pub(super) fn arm(&mut self, at: Timestamp) {
        self.next_timeout = at.min(self.next_timeout);
    }
}

impl Deref for Env<'_> {
    type Target = Common;

    #[inline]
    fn deref(&self) -> &Common {
        self.common
    }
}

impl DerefMut for Env<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Common {
        self.common
    }
}
