//! The environment of a node's transition: configuration, time, random spans, and outputs.
//!
//! Invariant: it holds no collection, so that a transition of one node cannot reach another node, a lock or a claim. What
//! has to follow there is the transition's return value, or an effect that it queues.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::effects::{ClaimEffect, Effect, NodeEffect};
use super::{Common, Env};
use crate::proto::config::{Config, NodeSettings, Settings};
use crate::proto::event::{Event, LinkOp};
use crate::proto::metrics::NodeMetrics;
use crate::proto::names::{ClaimId, LinkId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

impl<'a> Env<'a> {
    /// The configuration.
    pub(super) fn config(&self) -> &'a Config {
        self.config
    }

    /// The settings of all nodes together.
    pub(super) fn settings(&self) -> &'a Settings {
        &self.config.settings
    }

    /// The settings of one node.
    pub(super) fn settings_of(&self, node: NodeId) -> &'a NodeSettings {
        self.config.node(node)
    }

    /// The clock reading of this transition.
    pub(super) fn now(&self) -> ClockReading {
        self.now
    }

    /// Returns a span from zero up to, not including, `bound`; zero if that is zero.
    pub(super) fn random_below(&mut self, bound: Duration) -> Duration {
        self.entropy.below(bound)
    }

    /// The metrics of one node.
    pub(super) fn metrics_of(&mut self, node: NodeId) -> &mut NodeMetrics {
        self.metrics.of(node)
    }

    /// Reports the node's state with the next events.
    pub(super) fn report_state(&mut self, node: NodeId) {
        self.changed.insert(node);
    }

    /// Queues an effect on a node.
    pub(super) fn of_node(&mut self, node: NodeId, effect: NodeEffect) {
        self.effects.of_node(node, effect);
    }

    /// Queues an effect on a claim at a node.
    pub(super) fn of_claim(&mut self, node: NodeId, claim: ClaimId, effect: ClaimEffect) {
        self.effects.of_claim(node, claim, effect);
    }

    /// Continues a set-up whose nodes may all have been read by now.
    pub(super) fn continue_set_up(&mut self) {
        self.effects.push(Effect::SetUp);
    }

    /// The nodes that seem to hang.
    #[inline]
    pub(super) fn suspected(&self) -> NodeSet {
        self.suspected
    }

    /// Records whether a node seems to hang, and reports its state if that is news. Returns whether it is.
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

    /// Reports an outcome.
    pub(super) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Asks the driver to close a node's command link, and ends the connection.
    pub(super) fn close_link(&mut self, node: NodeId, cause: Cause) {
        self.ops.push_back(LinkOp::Close(LinkId::command(node)));
        self.of_node(node, NodeEffect::Sever(cause));
    }

    /// Asks the driver to open a link.
    pub(super) fn open_link(&mut self, link: LinkId) {
        self.ops.push_back(LinkOp::Open(link));
    }

    /// Calls for a timeout at `at` at the latest.
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
