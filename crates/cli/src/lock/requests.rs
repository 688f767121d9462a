//! Signals as requests: those received here and, in the inner process, those passed on by the outer
//! one.
//!
//! If both processes receive a signal from the same sender, it was sent to the whole process group,
//! and so reached the command if that belongs to the group. A signal that only one of them receives
//! must be passed on. The two cases are distinguished when the second signal arrives, or when it
//! has not arrived in time. A process that is delayed for longer counts as one that did not receive
//! the signal. The command then gets it twice, which is better than never.

use std::cell::{Cell, RefCell};
use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::unistd::Pid;
use redbolt::net;
use redbolt::proto::Timestamp;

use super::pair::{Heard, RequestReceiver};
use crate::signals::{Request, Sender, Signal, Signals, is_ignored, undergo};

/// A stream of all signals.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) signals: Signals,
    outer: Option<RequestReceiver>,
    alone: Cell<bool>,
    twins: RefCell<Twins>,
}

/// A signal, with where it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) request: Request,
    /// Whether it was sent to redbolt's process group while the command was there.
    to_group: bool,
}

impl Arrival {
    /// Returns whether the command has received the signal as well.
    pub(super) fn has_reached(self, command: Pid, is_in_group: impl FnOnce() -> bool) -> bool {
        self.request.from == Sender::Process(command) || (self.to_group && is_in_group())
    }
}

impl Requests {
    /// Creates the stream of a process without an outer one.
    pub(super) fn of(signals: Signals) -> Self {
        Self { signals, outer: None, alone: Cell::new(false), twins: RefCell::default() }
    }

    /// Creates the stream of an inner process.
    pub(super) fn with_outer(signals: Signals, outer: RequestReceiver) -> Self {
        Self { outer: Some(outer), ..Self::of(signals) }
    }

    /// Returns the next signal that has arrived.
    pub(super) fn next(&self) -> Option<Arrival> {
        if self.outer.is_none() {
            return self.signals.next().map(Arrival::to_one);
        }
        let mut twins = self.twins.borrow_mut();
        let now = net::now().boot;
        self.take(&mut twins, now);
        twins.next(now, self.is_alone())
    }

    /// Returns a signal that asks for the end while no command runs. Signals that the caller
    /// ignores do not, as with `nohup`. A signal that stops programs stops this process.
    pub(super) fn interruption(&self) -> io::Result<Option<Signal>> {
        while let Some(Arrival { request, .. }) = self.next() {
            if request.is_stop() {
                undergo(request.signal)?;
            } else if request.is_interruption() && !is_ignored(request.signal) {
                return Ok(Some(request.signal));
            }
        }
        Ok(None)
    }

    /// Notes that a command was just started. Earlier signals did not reach it.
    pub(super) fn command_is_started(&self) {
        let mut twins = self.twins.borrow_mut();
        self.take(&mut twins, net::now().boot);
        twins.command_is_started(net::now().boot);
    }

    /// Returns whether the outer process is known to have ended.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.get()
    }

    /// Returns the time until [`next`](Self::next) may return a signal that has already arrived.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.twins.borrow().due_in(net::now().boot)
    }

    /// Returns the descriptors to poll.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // A pipe at its end would always be readable.
        let outer = self.outer.as_ref().filter(|_| !self.is_alone());
        [self.signals.as_fd()].into_iter().chain(outer.map(AsFd::as_fd))
    }

    fn take(&self, twins: &mut Twins, now: Timestamp) {
        iter::from_fn(|| self.signals.next()).for_each(|own| twins.add(own, Way::Own, now));
        iter::from_fn(|| self.hear()).for_each(|other| twins.add(other, Way::Outer, now));
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

impl Arrival {
    fn to_one(request: Request) -> Self {
        Self { request, to_group: false }
    }
}

/// Signals that have arrived at one process or both, in the order of their arrival.
#[derive(Debug, Default)]
struct Twins {
    arrived: Vec<Arrived>,
    /// When the command was started.
    command_since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    request: Request,
    way: Way,
    since: Timestamp,
    is_paired: bool,
    /// The signal stays here for a while, to match later copies.
    is_returned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Own,
    Outer,
}

impl Twins {
    fn add(&mut self, request: Request, way: Way, now: Timestamp) {
        // As in the kernel, SIGCONT removes signals that would stop the process, and these remove
        // SIGCONT.
        if request.signal == Signal::CONT {
            self.arrived.retain(|arrived| !arrived.request.is_stop());
        } else if request.is_stop() {
            self.arrived.retain(|arrived| arrived.request.signal != Signal::CONT);
        }
        self.arrived.retain(|arrived| !arrived.is_returned || !arrived.is_old(now));
        // `timeout` sends a signal to its child and then to the group. A process receives the two
        // as one or as two, depending on timing. Real-time signals are never merged.
        let is_merged = |other: &Arrived| other.is_paired && !request.is_real_time();
        let is_twin = |other: &Arrived| !other.is_paired && other.way != way;
        let mut same = self.arrived.iter_mut().filter(|other| other.request == request);
        match same.find(|other| is_merged(other) || is_twin(other)) {
            Some(twin) => twin.is_paired = true,
            None => self.arrived.push(Arrived::alone(request, way, now)),
        }
    }

    /// Returns the first signal whose arrival is settled: in both processes, or in one after the
    /// time limit. If `is_alone`, every signal is settled.
    fn next(&mut self, now: Timestamp, is_alone: bool) -> Option<Arrival> {
        let is_known = |arrived: &Arrived| {
            !arrived.is_returned && (arrived.is_paired || is_alone || arrived.is_old(now))
        };
        loop {
            let at = self.arrived.iter().position(is_known)?;
            let Arrived { request, since, is_paired, .. } = self.arrived[at];
            if is_paired {
                self.arrived[at].is_returned = true;
            } else {
                self.arrived.remove(at);
            }
            let is_early = since < self.command_since;
            if !is_early || request.is_interruption() || request.is_stop() {
                return Some(Arrival { request, to_group: is_paired && !is_early });
            }
        }
    }

    fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let first = self.arrived.iter().find(|arrived| !arrived.is_paired)?;
        Some(twin_within().saturating_sub(now.since(first.since)))
    }

    /// Notes the start of the command. Earlier signals did not reach it, but count if they would
    /// have ended or stopped the wait.
    fn command_is_started(&mut self, now: Timestamp) {
        self.command_since = now;
    }
}

impl Arrived {
    fn alone(request: Request, way: Way, since: Timestamp) -> Self {
        Self { request, way, since, is_paired: false, is_returned: false }
    }

    fn is_old(&self, now: Timestamp) -> bool {
        now.since(self.since) >= twin_within()
    }
}

/// Returns how long the second process may take to receive a signal that the first has received.
fn twin_within() -> Duration {
    // A process of a test on a busy machine can be delayed for longer. No release reads this.
    #[cfg(debug_assertions)]
    if let Ok(ms) = std::env::var("TEST_TWIN_WITHIN_MS") {
        return Duration::from_millis(ms.parse().unwrap_or(TWIN_WITHIN_MS));
    }
    Duration::from_millis(TWIN_WITHIN_MS)
}

/// Far longer than the outer process takes to pass a signal on, and barely noticeable to a user.
const TWIN_WITHIN_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use rustix_libc_wrappers::process::SignalExt;

    use super::*;

    const TERM: Request =
        Request { signal: Signal::TERM, from: Sender::Process(Pid::from_raw(42)) };
    const INT: Request = Request { signal: Signal::INT, from: Sender::Kernel };

    fn ms(millis: u64) -> Timestamp {
        Timestamp(millis * 1_000_000)
    }

    fn arrival(request: Request, to_group: bool) -> Option<Arrival> {
        Some(Arrival { request, to_group })
    }

    #[test]
    fn a_signal_to_both_processes_was_sent_to_the_group() {
        for (first, second) in [(Way::Own, Way::Outer), (Way::Outer, Way::Own)] {
            let mut twins = Twins::default();
            twins.add(TERM, first, ms(1));
            assert_eq!(
                (twins.next(ms(2), false), twins.due_in(ms(2))),
                (None, Some(ms(99).since(ms(0))))
            );
            twins.add(TERM, second, ms(3));
            assert_eq!(twins.next(ms(3), false), arrival(TERM, true));
            assert_eq!((twins.next(ms(900), false), twins.due_in(ms(900))), (None, None));
        }
    }

    #[test]
    fn a_signal_to_one_process_is_known_as_such_after_a_while() {
        let mut twins = Twins::default();
        twins.add(TERM, Way::Own, ms(1));
        twins.add(TERM, Way::Own, ms(2));
        twins.add(Request { from: Sender::Kernel, ..TERM }, Way::Outer, ms(3));
        twins.add(Request { signal: Signal::HUP, ..TERM }, Way::Outer, ms(3));
        assert_eq!(twins.next(ms(100), false), None);
        assert_eq!(twins.next(ms(101), false), arrival(TERM, false));
        assert_eq!(twins.next(ms(101), false), None);
        assert_eq!(twins.next(ms(102), false), arrival(TERM, false));
        // The other one is late: it counts as another signal.
        twins.add(TERM, Way::Outer, ms(103));
        assert_eq!(twins.next(ms(150), true).map(|one| one.to_group), Some(false), "at once");
    }

    /// As by `timeout`, which sends it to its child and to the group.
    #[test]
    fn a_signal_to_the_group_and_to_one_process_counts_once() {
        let mut twins = Twins::default();
        for (way, at) in [(Way::Own, 1), (Way::Outer, 1), (Way::Outer, 2)] {
            twins.add(TERM, way, ms(at));
        }
        assert_eq!(twins.next(ms(3), false), arrival(TERM, true));
        twins.add(TERM, Way::Outer, ms(50));
        assert_eq!((twins.next(ms(90), false), twins.due_in(ms(90))), (None, None));
        twins.add(TERM, Way::Outer, ms(101));
        assert_eq!(twins.next(ms(900), false), arrival(TERM, false), "another one");
        let real_time = Request { signal: Signal::rt(3).unwrap(), ..TERM };
        for way in [Way::Own, Way::Outer, Way::Outer] {
            twins.add(real_time, way, ms(1000));
        }
        assert_eq!(twins.next(ms(1900), false), arrival(real_time, true));
        assert_eq!(twins.next(ms(1900), false), arrival(real_time, false), "it was sent twice");
    }

    #[test]
    fn a_process_that_was_continued_is_not_stopped_late() {
        let [stop, cont] = [Signal::TSTP, Signal::CONT].map(|signal| Request { signal, ..TERM });
        let mut twins = Twins::default();
        twins.add(TERM, Way::Own, ms(1));
        twins.add(stop, Way::Own, ms(1));
        twins.add(cont, Way::Own, ms(2));
        assert_eq!(twins.next(ms(900), false), arrival(TERM, false));
        assert_eq!(twins.next(ms(900), false), arrival(cont, false));
        assert_eq!(twins.next(ms(900), false), None);
        twins.add(cont, Way::Own, ms(901));
        twins.add(stop, Way::Own, ms(902));
        assert_eq!(twins.next(ms(1900), false), arrival(stop, false));
        assert_eq!(twins.next(ms(1900), false), None);
    }

    #[test]
    fn a_signal_before_the_command_has_not_reached_it() {
        let mut twins = Twins::default();
        twins.add(INT, Way::Own, ms(1));
        let usr = Request { signal: Signal::USR1, ..INT };
        twins.add(usr, Way::Own, ms(1));
        twins.command_is_started(ms(2));
        twins.add(usr, Way::Outer, ms(3));
        twins.add(INT, Way::Outer, ms(3));
        assert_eq!(twins.next(ms(3), false), arrival(INT, false));
        twins.add(INT, Way::Own, ms(200));
        twins.add(INT, Way::Outer, ms(200));
        assert_eq!(twins.next(ms(200), false), arrival(INT, true));
    }

    #[test]
    fn a_command_has_what_its_group_has_and_what_it_has_sent() {
        let command = Pid::from_raw(42);
        let has = |request, to_group, in_group: bool| {
            Arrival { request, to_group }.has_reached(command, || in_group)
        };
        assert!(has(INT, true, true));
        assert!(!has(INT, true, false) && !has(INT, false, true));
        assert!(has(TERM, false, false), "it is the sender");
    }
}
