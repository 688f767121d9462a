//! The command link of one node as a state machine: its state, why it was lost, and when to retry.
//!
//! Each step in the life of a link is one method, which sends nothing.

use std::time::Duration;

use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

/// The state of a link, and the result of earlier attempts.
#[derive(Debug)]
pub(crate) struct CommandLink {
    state: Link,
    /// The number of links lost since the last one that was ready.
    failures: u32,
    /// Whether a link was ever tried to the end, so that `cause` is set.
    was_tried: bool,
    /// The reason why the node does not vote.
    cause: Cause,
    /// The time from which a request may open the link ahead of its backoff.
    probe_at: Timestamp,
    /// The time of the last connection.
    connected_at: ClockReading,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The link is closed until the backoff ends.
    Down { retry_at: Timestamp },
    /// The socket is being connected.
    Opening { since: Timestamp, until: Timestamp },
    /// The handshake is in progress. `fused`: requests may follow before it is answered.
    Handshake { until: Timestamp, fused: bool },
    /// The restart guard does not let the node vote, or the server takes no writes. It is read
    /// again at `until`, which is `NEVER` while a read is pending.
    Quarantined { until: Timestamp },
    /// The node votes.
    Ready,
    /// The node does not vote. The undos that it owes are sent, and then the link is closed.
    Leaving { until: Timestamp },
}

impl CommandLink {
    pub(super) fn new() -> Self {
        Self {
            state: Link::Down { retry_at: Timestamp::default() },
            failures: 0,
            was_tried: false,
            cause: Cause::default(),
            probe_at: Timestamp::default(),
            connected_at: ClockReading::default(),
        }
    }

    /// Starts to connect the socket. Until `probe_at` it is not opened again ahead of its backoff.
    pub(super) fn start_opening(&mut self, now: Timestamp, until: Timestamp) {
        self.state = Link::Opening { since: now, until };
        self.probe_at = now + PROBE.1.min(PROBE.0 * (1 << self.failures.min(8)));
    }

    pub(super) fn start_handshake(&mut self, until: Timestamp, fused: bool, now: ClockReading) {
        self.state = Link::Handshake { until, fused };
        self.connected_at = now;
    }

    /// Marks the node as one that votes.
    pub(super) fn mark_ready(&mut self) {
        self.state = Link::Ready;
        (self.was_tried, self.failures) = (true, 0);
    }

    /// Keeps a node that is otherwise in order from voting for now. It is read again at `until`.
    pub(crate) fn quarantine(&mut self, cause: Cause, until: Timestamp) {
        self.state = Link::Quarantined { until };
        self.cause = cause;
        (self.was_tried, self.failures) = (true, 0);
    }

    /// Replaces the reason why the node does not vote.
    pub(crate) fn blame(&mut self, cause: Cause) {
        self.cause = cause;
    }

    /// Starts to leave a node that must not vote. The link is closed once nothing is pending, or at
    /// `until`.
    pub(super) fn start_leaving(&mut self, cause: Cause, until: Timestamp) {
        self.state = Link::Leaving { until };
        self.cause = cause;
        self.was_tried = true;
    }

    /// Marks the connection as lost. Returns `false` if it was lost before.
    pub(super) fn mark_lost(&mut self, cause: Cause, retry_at: Timestamp) -> bool {
        self.cause = match self.state {
            Link::Down { .. } => return false,
            // The loss of a link that is being left shows nothing about the node.
            Link::Leaving { .. } => self.cause,
            _ => cause,
        };
        self.state = Link::Down { retry_at };
        self.failures = self.failures.saturating_add(1);
        self.was_tried = true;
        true
    }
}

impl CommandLink {
    #[inline]
    pub(crate) fn state(&self) -> Link {
        self.state
    }

    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    pub(crate) fn connected_at(&self) -> ClockReading {
        self.connected_at
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.was_tried
    }

    pub(crate) fn has_not_failed(&self) -> bool {
        self.failures == 0
    }

    /// Returns the longest backoff if the link is lost now.
    pub(super) fn backoff(&self, (least, most): (Duration, Duration)) -> Duration {
        most.min(least * (1 << self.failures.min(16)))
    }

    pub(crate) fn may_open(&self, now: Timestamp) -> bool {
        now >= self.probe_at
    }

    /// Returns whether only an operator, or time, can remove the cause of the loss.
    pub(super) fn is_hopeless(&self) -> bool {
        self.cause.is_configuration() || self.cause == Cause::MaxClients
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, Link::Down { .. })
    }

    /// Returns whether there is no connection.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, Link::Down { .. } | Link::Opening { .. })
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        matches!(self.state, Link::Quarantined { .. })
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == Link::Ready
    }

    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.state, Link::Leaving { .. })
    }

    /// Returns whether requests can be sent.
    #[inline]
    pub(crate) fn takes_asks(&self) -> bool {
        // Answers come in order, so the handshake is judged before the first vote arrives.
        matches!(self.state, Link::Ready | Link::Handshake { fused: true, .. })
    }

    /// Returns whether extensions can be sent, which need no restart guard.
    #[inline]
    pub(crate) fn takes_extensions(&self) -> bool {
        // A node that has forgotten the lock has no key to extend.
        self.takes_asks() || self.is_quarantined()
    }

    /// Returns whether keys of the node can be read.
    pub(crate) fn takes_reads(&self) -> bool {
        self.is_ready() || self.is_quarantined()
    }

    /// Returns whether undos can be sent.
    #[inline]
    pub(crate) fn takes_undos(&self) -> bool {
        // Not behind a handshake that is not fused: in another database an undo finds nothing,
        // which would count as a confirmation.
        self.takes_extensions() || self.is_leaving()
    }

    /// Returns whether the link is being opened.
    pub(crate) fn opens(&self) -> bool {
        matches!(self.state, Link::Opening { .. } | Link::Handshake { .. })
    }

    /// Returns whether the state of the node is known, or that it cannot be reached.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            Link::Down { .. } => self.was_tried,
            Link::Opening { .. } | Link::Handshake { .. } => false,
            // A read is pending.
            Link::Quarantined { until } => until != Timestamp::NEVER,
            Link::Ready | Link::Leaving { .. } => true,
        }
    }

    /// Returns whether the link is being opened or was just lost, so that waiting for it is
    /// worthwhile.
    pub(crate) fn may_return(&self) -> bool {
        match self.state {
            // Servers end idle connections. The node is taken for dead only if opening the link
            // again fails.
            Link::Down { .. } => {
                self.failures == 1
                    && matches!(self.cause, Cause::ConnectionClosed | Cause::ConnectionReset)
            }
            _ => self.opens(),
        }
    }
}

/// The interval in which requests open a link ahead of its backoff: the first, and the longest.
const PROBE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(200));

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    /// Servers end idle connections.
    #[test]
    fn a_link_that_was_just_lost_may_return_and_one_that_was_lost_again_may_not() {
        let mut link = CommandLink::new();
        assert!(!link.may_return() && !link.is_settled());
        assert!(link.has_not_failed() && !link.was_tried());
        link.start_opening(at(0), at(100));
        link.start_handshake(at(100), true, ClockReading::default());
        assert!(link.takes_asks() && link.opens() && !link.is_settled());
        link.mark_ready();
        assert!(link.mark_lost(Cause::ConnectionReset, at(50)) && link.may_return());
        assert!(!link.has_not_failed() && link.was_tried());
        assert!(!link.mark_lost(Cause::Io, at(60)), "it was lost before");
        assert_eq!(link.cause(), Cause::ConnectionReset);
        link.start_opening(at(60), at(160));
        assert!(link.may_return() && !link.may_open(at(109)) && link.may_open(at(110)));
        link.mark_lost(Cause::ConnectionReset, at(200));
        assert!(!link.may_return() && link.is_settled());
    }

    #[test]
    fn the_cause_of_leaving_a_node_stays() {
        let mut link = CommandLink::new();
        link.start_opening(at(0), at(100));
        link.start_handshake(at(100), false, ClockReading::default());
        assert!(!link.takes_asks() && !link.takes_undos());
        link.start_leaving(Cause::Evicting, at(300));
        assert!(link.takes_undos() && !link.takes_extensions());
        link.mark_lost(Cause::ConnectionClosed, at(400));
        assert_eq!((link.cause(), link.may_return()), (Cause::Evicting, false));
        assert!(link.is_hopeless() && link.was_tried() && link.is_down());
    }

    #[test]
    fn the_backoff_doubles_until_a_link_is_ready() {
        let range = (Duration::from_millis(10), Duration::from_millis(35));
        let mut link = CommandLink::new();
        let mut backoffs = Vec::new();
        for _ in 0..3 {
            backoffs.push(link.backoff(range).as_millis());
            link.start_opening(at(0), at(100));
            link.mark_lost(Cause::ConnectionRefused, at(200));
        }
        assert_eq!(backoffs, [10, 20, 35]);
        link.quarantine(Cause::Quarantined, at(300));
        assert_eq!(link.backoff(range).as_millis(), 10);
        assert!(link.takes_extensions() && !link.takes_asks());
    }

    #[test]
    fn the_state_of_a_node_is_not_known_while_it_is_being_read() {
        let mut link = CommandLink::new();
        link.quarantine(Cause::Quarantined, Timestamp::NEVER);
        assert!(!link.is_settled());
        link.quarantine(Cause::Quarantined, at(300));
        assert!(link.is_settled());
    }
}
