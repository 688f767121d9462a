//! Questions that the thread answers when nodes have said something, or when their time is over: how the
//! connections are, and a lock that is to leave the process. Apart from `thread` because it looks at them once a
//! turn, and at nothing of theirs in between. Not here: what is answered at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::WarmUp;
use super::reply::Responder;
use super::slot::LockSlot;
use crate::api::driver::{Driver, instant_in};
use crate::api::error::EngineError;
use crate::api::report::NodeReport;
use crate::proto::DetachedLock;

/// One that is waited with.
pub(super) struct Pending {
    pub(super) until: Instant,
    pub(super) question: Question,
}

pub(super) enum Question {
    /// Nodes have yet to answer about this lock, which leaves then.
    Detach(Arc<LockSlot>, Responder<Option<DetachedLock>, EngineError>),
    /// Nodes have yet to be connected to.
    WarmUp(Warming, Responder<NodeReport, EngineError>),
}

/// How far it is with the connections.
pub(super) enum Warming {
    /// The first ones, and behind them the second ones if they are wanted.
    First(WarmUp),
    /// The second ones, with what was known before.
    Second(NodeReport),
}

impl Pending {
    pub(super) fn detach(
        slot: Arc<LockSlot>,
        patience: Duration,
        responder: Responder<Option<DetachedLock>, EngineError>,
    ) -> Self {
        Self { until: instant_in(patience), question: Question::Detach(slot, responder) }
    }

    pub(super) fn warm_up(warm_up: WarmUp, responder: Responder<NodeReport, EngineError>) -> Self {
        let question = Question::WarmUp(Warming::First(warm_up), responder);
        Self { until: instant_in(warm_up.within), question }
    }

    /// Whether there is more to wait for.
    pub(super) fn is_open(&self, driver: &Driver) -> bool {
        if self.until <= Instant::now() {
            return false;
        }
        match &self.question {
            Question::Detach(slot, _) => slot.id().is_some_and(|id| driver.awaits_answers(id)),
            Question::WarmUp(Warming::First(_), _) => !driver.node_report().is_connected(),
            Question::WarmUp(Warming::Second(_), _) => !driver.node_report().is_push_settled(),
        }
    }
}

impl Warming {
    /// Answers, or waits for the second connections.
    pub(super) fn go_on(
        self,
        driver: &mut Driver,
        responder: Responder<NodeReport, EngineError>,
    ) -> Option<Pending> {
        let report = driver.node_report();
        match self {
            Self::First(WarmUp { within, push: true }) => {
                driver.try_push();
                let question = Question::WarmUp(Self::Second(report), responder);
                return Some(Pending { until: instant_in(within), question });
            }
            Self::First(_) => responder.send(Ok(report)),
            Self::Second(before) => responder.send(Ok(report.or_before(before))),
        }
        None
    }
}
