//! The undos that one node has not confirmed, and the pauses after it has answered them with
//! errors.

use std::time::Duration;

use crate::proto::time::Timestamp;

#[derive(Debug)]
pub(crate) struct Debt {
    /// The number of claims whose undo is not confirmed.
    claims: usize,
    /// When undos that were answered with an error are sent again.
    again_at: Timestamp,
    pause: Duration,
    /// Whether undos were answered with errors and none was confirmed since.
    is_refused: bool,
}

impl Debt {
    pub(crate) fn new() -> Self {
        Self { claims: 0, again_at: Timestamp::NEVER, pause: PAUSE.0, is_refused: false }
    }

    pub(super) fn grows(&mut self) {
        self.claims += 1;
    }

    pub(super) fn shrinks(&mut self) {
        self.claims -= 1;
    }

    pub(crate) fn claims(&self) -> usize {
        self.claims
    }

    /// Records an error. Returns when an undo is sent again: the pauses double.
    pub(super) fn refused(&mut self, now: Timestamp) -> Timestamp {
        self.is_refused = true;
        if self.again_at == Timestamp::NEVER {
            self.again_at = now + self.pause;
            self.pause = (self.pause * 2).min(PAUSE.1);
        }
        self.again_at
    }

    /// Records a confirmation. Returns whether it is the first after errors, so that other undos
    /// can follow.
    pub(super) fn confirmed(&mut self) -> bool {
        self.pause = PAUSE.0;
        std::mem::take(&mut self.is_refused)
    }

    pub(crate) fn again_at(&self) -> Timestamp {
        self.again_at
    }

    pub(crate) fn end_pause(&mut self) {
        self.again_at = Timestamp::NEVER;
    }
}

/// The first and the longest pause after an error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_errors_double_until_one_is_confirmed() {
        let mut debt = Debt::new();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let again_at = debt.refused(Timestamp(0));
            assert_eq!(debt.refused(Timestamp(5)), again_at, "a pause has begun");
            pauses.push(again_at.since(Timestamp(0)).as_millis());
            debt.end_pause();
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000]);
        assert!(debt.confirmed() && !debt.confirmed());
        assert_eq!(debt.refused(Timestamp(0)).since(Timestamp(0)), PAUSE.0);
        debt.end_pause();
        assert_eq!(debt.again_at(), Timestamp::NEVER);
    }
}
