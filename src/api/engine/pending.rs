//! Queries that the thread answers once nodes have, or when their time ends: how the connections are, and a lock that is
//! detached. They are checked once a turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::WarmUp;
use super::reply::Responder;
use super::slot::LockSlot;
use crate::api::driver::{Driver, instant_in};
use crate::api::error::EngineError;
use crate::api::report::NodeReport;
use crate::proto::DetachedLock;

pub(super) struct PendingQuery {
    pub(super) until: Instant,
    pub(super) query: Query,
}

pub(super) enum Query {
    /// Until the nodes have answered about this lock, which is detached then.
    Detach(Arc<LockSlot>, Responder<Option<DetachedLock>, EngineError>),
    /// Until the nodes are connected.
    WarmUp(Warming, Responder<NodeReport, EngineError>),
}

/// Which connections are being opened.
pub(super) enum Warming {
    /// The first ones, and after them the second ones if they are wanted.
    First(WarmUp),
    /// The second ones, with the report on the first.
    Second(NodeReport),
}

impl PendingQuery {
    pub(super) fn detach(
        slot: Arc<LockSlot>,
        patience: Duration,
        responder: Responder<Option<DetachedLock>, EngineError>,
    ) -> Self {
        Self { until: instant_in(patience), query: Query::Detach(slot, responder) }
    }

    pub(super) fn warm_up(warm_up: WarmUp, responder: Responder<NodeReport, EngineError>) -> Self {
        let query = Query::WarmUp(Warming::First(warm_up), responder);
        Self { until: instant_in(warm_up.within), query }
    }

    /// Whether there is more to wait for.
    pub(super) fn is_open(&self, driver: &Driver) -> bool {
        if self.until <= Instant::now() {
            return false;
        }
        match &self.query {
            Query::Detach(slot, _) => slot.id().is_some_and(|id| driver.awaits_answers(id)),
            Query::WarmUp(Warming::First(_), _) => !driver.node_report().is_connected(),
            Query::WarmUp(Warming::Second(_), _) => !driver.node_report().is_push_settled(),
        }
    }
}

impl Warming {
    /// Answers, or waits for the second connections.
    pub(super) fn go_on(
        self,
        driver: &mut Driver,
        responder: Responder<NodeReport, EngineError>,
    ) -> Option<PendingQuery> {
        let report = driver.node_report();
        match self {
            Self::First(WarmUp { within, push: true }) => {
                driver.try_push();
                let query = Query::WarmUp(Self::Second(report), responder);
                return Some(PendingQuery { until: instant_in(within), query });
            }
            Self::First(_) => responder.send(Ok(report)),
            Self::Second(before) => responder.send(Ok(report.or_before(before))),
        }
        None
    }
}
