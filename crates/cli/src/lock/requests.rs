//! Signals as requests: those that arrive here and, in the inner process, those that the outer one passes on.
//!
//! A signal to the whole process group reaches both processes, so the inner one gets it twice. It counts once.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use redbolt::proto::Timestamp;

use super::pair::{Heard, RequestReceiver};
use crate::signals::{Request, Signals};

/// The signals, as one stream.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) signals: Signals,
    outer: Option<RequestReceiver>,
    alone: Cell<bool>,
    echoes: RefCell<Echoes>,
}

impl Requests {
    /// For a process without an outer one.
    pub(super) fn of(signals: Signals) -> Self {
        Self { signals, outer: None, alone: Cell::new(false), echoes: RefCell::default() }
    }

    /// For an inner process.
    pub(super) fn with_outer(signals: Signals, outer: RequestReceiver) -> Self {
        Self { outer: Some(outer), ..Self::of(signals) }
    }

    /// The next one that has arrived.
    pub(super) fn next(&self) -> Option<Request> {
        let own = std::iter::from_fn(|| self.signals.next()).map(|request| (request, Way::Own));
        let outer = std::iter::from_fn(|| self.hear()).map(|request| (request, Way::Outer));
        own.chain(outer)
            .find(|&(request, way)| self.is_new(request, way))
            .map(|(request, _)| request)
    }

    /// Whether the outer process is known to be gone.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.get()
    }

    /// What to poll.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // A pipe at its end would always be readable.
        let outer = self.outer.as_ref().filter(|_| !self.is_alone());
        [self.signals.as_fd()].into_iter().chain(outer.map(AsFd::as_fd))
    }

    fn is_new(&self, request: Request, way: Way) -> bool {
        let mut echoes = self.echoes.borrow_mut();
        self.outer.is_none() || echoes.is_new(request, way, redbolt::net::now().boot)
    }

    fn hear(&self) -> Option<Request> {
        match self.outer.as_ref().filter(|_| !self.is_alone())?.hear() {
            Heard::Message(request) => Some(request),
            Heard::Nothing => None,
            Heard::Gone => {
                self.alone.set(true);
                None
            }
        }
    }
}

/// Signals that have arrived one way and may still arrive the other way.
#[derive(Debug, Default)]
struct Echoes(Vec<(Request, Way, Timestamp)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Own,
    Outer,
}

impl Echoes {
    fn is_new(&mut self, request: Request, way: Way, now: Timestamp) -> bool {
        self.0.retain(|&(.., since)| now.since(since) < ECHO_WITHIN);
        let is_twin = |&(other, by, _): &(Request, Way, Timestamp)| other == request && by != way;
        match self.0.iter().position(is_twin) {
            Some(twin) => {
                self.0.remove(twin);
                false
            }
            None => {
                self.0.push((request, way, now));
                true
            }
        }
    }
}

/// Far longer than the outer process takes to pass a signal on, unless it was stopped.
const ECHO_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;

    use super::*;
    use crate::signals::Sender;

    const TERM: Request =
        Request { signal: Signal::SIGTERM, from: Sender::Process(Pid::from_raw(42)) };

    fn ms(millis: u64) -> Timestamp {
        Timestamp(millis * 1_000_000)
    }

    #[test]
    fn a_signal_to_both_processes_counts_once() {
        for (first, second) in [(Way::Own, Way::Outer), (Way::Outer, Way::Own)] {
            let mut echoes = Echoes::default();
            assert!(echoes.is_new(TERM, first, ms(0)));
            assert!(!echoes.is_new(TERM, second, ms(3)));
            assert!(echoes.is_new(TERM, second, ms(4)), "an echo is heard once");
        }
    }

    #[test]
    fn signals_to_one_process_all_count() {
        let mut echoes = Echoes::default();
        assert!((0..5).all(|at| echoes.is_new(TERM, Way::Own, ms(at))));
        let (int, stranger) = (Signal::SIGINT, Sender::Process(Pid::from_raw(43)));
        assert!(echoes.is_new(Request { signal: int, ..TERM }, Way::Outer, ms(5)));
        assert!(echoes.is_new(Request { from: stranger, ..TERM }, Way::Outer, ms(5)));
    }

    #[test]
    fn what_comes_much_later_is_another_signal() {
        let mut echoes = Echoes::default();
        assert!(echoes.is_new(TERM, Way::Own, ms(0)));
        assert!(echoes.is_new(TERM, Way::Outer, ms(1_000)));
    }
}
