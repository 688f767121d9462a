//! What the handles of an engine, its guards and its thread share: the queue, and the report of the end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::queue::Queue;
use super::runtime::Runtime;
use super::shutdown::ShutdownReport;

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
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.ended.notify_all();
    }

    /// The report of the thread, if it ends by then.
    pub(super) fn report_by(&self, until: Instant) -> Option<ShutdownReport> {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if report.is_some() || left.is_zero() {
                return report.clone();
            }
            let waited = self.ended.wait_timeout(report, left);
            report = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
