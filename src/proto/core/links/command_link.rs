//! The command link of one node: how far it is, why it was lost, and when it may be tried again.
//!
//! Apart from the folder's `mod.rs`, which opens and closes it and sends what waits for it, so that each step of a link's
//! life is one method. Not here: what is said on it, see `node`.

use std::time::Duration;

use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

/// A link, and what came of it so far.
#[derive(Debug)]
pub(crate) struct CommandLink {
    state: Link,
    /// Links lost since the last one that was ready.
    failures: u32,
    /// Whether a link was ever tried to the end, so that `cause` says something.
    was_tried: bool,
    /// Why the node is no voter.
    cause: Cause,
    /// From when an ask may open the link ahead of its backoff.
    probe_at: Timestamp,
    /// When the present connection stood, or the last one.
    connected_at: ClockReading,
}

/// How far a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Closed until the backoff is over.
    Down { retry_at: Timestamp },
    /// The socket is being connected.
    Opening { since: Timestamp, until: Timestamp },
    /// The handshake is under way. `fused`: asks may follow it before it is answered.
    Handshake { until: Timestamp, fused: bool },
    /// The restart guard does not let the node vote, or the server takes no writes. It is looked at again at
    /// `until`; never, while that is under way.
    Quarantined { until: Timestamp },
    /// The node votes.
    Ready,
    /// The node is no voter; what it owes is sent, then the link is closed.
    Leaving { until: Timestamp },
}

/// What happens to it.
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

    /// Starts to connect the socket. It is not opened again ahead of its backoff for a while.
    pub(super) fn start_opening(&mut self, now: Timestamp, until: Timestamp) {
        self.state = Link::Opening { since: now, until };
        self.probe_at = now + PROBE.1.min(PROBE.0 * (1 << self.failures.min(8)));
    }

    /// Starts the handshake on a socket that is connected.
    pub(super) fn start_handshake(&mut self, until: Timestamp, fused: bool, now: ClockReading) {
        self.state = Link::Handshake { until, fused };
        self.connected_at = now;
    }

    /// Marks the link as that of a node that votes.
    pub(super) fn mark_ready(&mut self) {
        self.state = Link::Ready;
        (self.was_tried, self.failures) = (true, 0);
    }

    /// Keeps a node that is what it should be from voting for now. It is looked at again at `until`.
    pub(crate) fn quarantine(&mut self, cause: Cause, until: Timestamp) {
        self.state = Link::Quarantined { until };
        self.cause = cause;
        (self.was_tried, self.failures) = (true, 0);
    }

    /// Gives a better reason why the node does not vote.
    pub(crate) fn blame(&mut self, cause: Cause) {
        self.cause = cause;
    }

    /// Starts to leave a node that is not a voter: it is left when it owes nothing, or at `until`.
    pub(super) fn start_leaving(&mut self, cause: Cause, until: Timestamp) {
        self.state = Link::Leaving { until };
        self.cause = cause;
        self.was_tried = true;
    }

    /// Marks the connection as lost; a node that was being left keeps its cause. Returns whether that is news.
    pub(super) fn mark_lost(&mut self, cause: Cause, retry_at: Timestamp) -> bool {
        self.cause = match self.state {
            Link::Down { .. } => return false,
            // The end of a link that we leave says nothing of the node.
            Link::Leaving { .. } => self.cause,
            _ => cause,
        };
        self.state = Link::Down { retry_at };
        self.failures = self.failures.saturating_add(1);
        self.was_tried = true;
        true
    }
}

/// What it is good for.
impl CommandLink {
    #[inline]
    pub(crate) fn state(&self) -> Link {
        self.state
    }

    /// Why the node is no voter.
    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// When the present connection stood, or the last one.
    pub(crate) fn connected_at(&self) -> ClockReading {
        self.connected_at
    }

    /// Whether a link was ever tried to the end, so that the cause says something.
    pub(crate) fn was_tried(&self) -> bool {
        self.was_tried
    }

    /// Whether none was lost since the last one that was ready.
    pub(crate) fn has_not_failed(&self) -> bool {
        self.failures == 0
    }

    /// How long it stays closed at the most if it is lost now.
    pub(super) fn backoff(&self, (least, most): (Duration, Duration)) -> Duration {
        most.min(least * (1 << self.failures.min(16)))
    }

    /// Whether somebody who has a use for it may open it ahead of its backoff.
    pub(crate) fn may_open(&self, now: Timestamp) -> bool {
        now >= self.probe_at
    }

    /// Whether only an operator, or time, can mend why it was lost.
    pub(super) fn is_hopeless(&self) -> bool {
        self.cause.is_configuration() || self.cause == Cause::MaxClients
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, Link::Down { .. })
    }

    /// Whether there is no connection.
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

    /// Whether asks can be sent.
    #[inline]
    pub(crate) fn takes_asks(&self) -> bool {
        // Answers come in order: whether the node may vote is known before the first vote is there.
        matches!(self.state, Link::Ready | Link::Handshake { fused: true, .. })
    }

    /// Whether extensions can be sent: they need no restart guard.
    #[inline]
    pub(crate) fn takes_extensions(&self) -> bool {
        // A node that has forgotten the lock has no key to extend.
        self.takes_asks() || self.is_quarantined()
    }

    /// Whether the node can be asked what its keys hold.
    pub(crate) fn takes_reads(&self) -> bool {
        self.is_ready() || self.is_quarantined()
    }

    /// Whether undos can be sent.
    #[inline]
    pub(crate) fn takes_undos(&self) -> bool {
        // Not behind a handshake that is not fused: in another database an undo finds nothing, which
        // would count as confirmed.
        self.takes_extensions() || self.is_leaving()
    }

    /// Whether it is on its way to take asks and undos.
    pub(crate) fn opens(&self) -> bool {
        matches!(self.state, Link::Opening { .. } | Link::Handshake { .. })
    }

    /// Whether it is known what the node is, or that it cannot be reached.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            Link::Down { .. } => self.was_tried,
            Link::Opening { .. } | Link::Handshake { .. } => false,
            // It is being looked at.
            Link::Quarantined { until } => until != Timestamp::NEVER,
            Link::Ready | Link::Leaving { .. } => true,
        }
    }

    /// Whether it is on its way, or its connection was just lost, so that its return is worth a
    /// wait: servers end connections that are idle. Only when opening it again fails the node is taken
    /// for dead.
    pub(crate) fn may_return(&self) -> bool {
        match self.state {
            Link::Down { .. } => {
                self.failures == 1
                    && matches!(self.cause, Cause::ConnectionClosed | Cause::ConnectionReset)
            }
            _ => self.opens(),
        }
    }
}

/// Asks may open a link that is down ahead of its backoff: so far apart at first, and at most.
const PROBE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(200));

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    /// Servers end connections that are idle.
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
    fn what_a_node_was_left_for_stays_its_cause() {
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
