//! What the handles of an engine, its guards and its thread share: the queue, and the report of the end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::queue::Queue;
use super::runtime::Runtime;
use super::shutdown::ShutdownReport;
use crate::net::lock;

pub(super) struct Shared {
    pub(super) runtime: Arc<Runtime>,
    pub(super) queue: Queue,
    report: Mutex<Option<ShutdownReport>>,
    ended: Condvar,
}

impl Shared {
    pub(super) fn new(runtime: Runtime, queue: Queue) -> Self {
        Self { runtime: Arc::new(runtime), queue, report: Mutex::new(None), ended: Condvar::new() }
    }

    /// Keeps the report of the thread, which ends.
    pub(super) fn end(&self, report: ShutdownReport) {
        *lock(&self.report) = Some(report);
        self.ended.notify_all();
    }

    /// The report of the thread, if it ends by then.
    pub(super) fn report_by(&self, until: Instant) -> Option<ShutdownReport> {
        let left = until.saturating_duration_since(Instant::now());
        let report = lock(&self.report);
        let waited = self.ended.wait_timeout_while(report, left, |report| report.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}
