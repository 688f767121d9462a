//! The state shared by the handles of an engine, its guards and its event loop: the queue, the seat of
//! an engine without a thread, and the report of the end.
//!
//! The seat is the right to drive the loop. The host takes it for a turn, a caller to write the
//! messages that it has pushed, and a shutdown until the end.
//!
//! # Nothing is left undone
//!
//! Invariant: no thread waits for the seat, and no request is forgotten. A thread pushes its request,
//! and then tries the seat. A thread that leaves the seat first gives it up, then checks the queue
//! ([`Queue::is_due`]), and calls the host if a request has come. A try that fails precedes the moment
//! at which the seat is given up, so its request precedes the check, and the check finds it. The
//! queue's mutex orders the two: a request after the check would have been followed by a try that
//! found the seat free. The tests search all orders of steps for a forgotten request.
//!
//! Because the seat is only tried, its holder may call wakers and destructors of the program: their
//! requests stay in the queue. Only turns and the end call callbacks (`on_loss`).

use std::mem::ManuallyDrop;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::event_loop::EventLoop;
use super::queue::{Message, Queue};
use super::runtime::Runtime;
use super::shutdown::ShutdownReport;
use crate::net::lock;

pub(super) struct Shared {
    pub(super) runtime: Arc<Runtime>,
    pub(super) queue: Queue,
    /// Empty if the engine has a thread, and once it has ended. A forked process does not drop the loop, which another thread
    /// may have been working on. No panic poisons it: each is caught while it is held.
    seat: Mutex<Option<ManuallyDrop<EventLoop>>>,
    report: Mutex<Option<ShutdownReport>>,
    ended: Condvar,
}

impl Shared {
    pub(super) fn new(runtime: Arc<Runtime>, queue: Queue, event_loop: Option<EventLoop>) -> Self {
        let seat = Mutex::new(event_loop.map(ManuallyDrop::new));
        Self { runtime, queue, seat, report: Mutex::new(None), ended: Condvar::new() }
    }

    /// Hands a message over; returns it if it comes too late. Without a thread, the caller writes it if it can.
    pub(super) fn push(&self, message: Message) -> Result<(), Message> {
        self.queue.push(message)?;
        self.write();
        Ok(())
    }

    /// Writes what was pushed. If the seat is taken, its holder calls the host when it leaves.
    pub(super) fn write(&self) {
        if !self.runtime.has_thread {
            self.drive(|event_loop| event_loop.write(&self.queue));
        }
    }

    /// Carries out a turn for the host.
    pub(super) fn turn(&self) {
        self.queue.set_turn_due(true);
        self.drive(|event_loop| {
            self.queue.set_turn_due(false);
            event_loop.work(&self.queue, false)
        });
    }

    /// How long the host may sleep: not at all while a caller has the seat.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let mut timeout = None;
        let is_known = self.drive(|event_loop| event_loop.find_timeout(&mut timeout));
        if is_known { timeout } else { Some(Duration::ZERO) }
    }

    /// Drives a loop that was closed to its end. Returns `false` if another thread has the seat.
    fn work(&self) -> bool {
        self.drive(|event_loop| event_loop.work(&self.queue, true))
    }

    /// Drives the loop if the seat is free, and sees to it that what comes meanwhile is done. The work breaks off if the loop is
    /// over, with whether it has failed, and continues otherwise, with whether the host is to be called. Returns whether the seat
    /// was free.
    fn drive(&self, work: impl FnOnce(&mut EventLoop) -> ControlFlow<bool, bool>) -> bool {
        let Ok(mut seat) = self.seat.try_lock() else { return false };
        let Some(event_loop) = seat.as_mut() else { return true };
        let flow = work(event_loop);
        let ended = seat.take_if(|_| flow.is_break());
        drop(seat);
        match (flow, ended) {
            (Break(failed), Some(it)) => self.end(ManuallyDrop::into_inner(it), failed),
            (Continue(false), _) if !self.queue.is_due() => {}
            _ => self.queue.ring(),
        }
        true
    }

    /// Works on the engine's thread until the engine is closed.
    pub(super) fn run(&self, mut event_loop: EventLoop) {
        let flow = event_loop.work(&self.queue, true);
        self.end(event_loop, flow == Break(true));
    }

    /// Ends the loop, and keeps its report.
    pub(super) fn end(&self, event_loop: EventLoop, has_failed: bool) {
        let report = event_loop.end(&self.queue, has_failed);
        *lock(&self.report) = Some(report);
        self.ended.notify_all();
        // The host waits for the descriptor.
        self.queue.ring();
    }

    /// Whether the engine has ended.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.report).is_some()
    }

    /// The report of an engine that was closed, if it ends by then.
    pub(super) fn report_by(&self, until: Instant) -> Option<ShutdownReport> {
        loop {
            let is_driven = self.work();
            let left = until.saturating_duration_since(Instant::now());
            // Another thread has the seat, for a moment unless it is in a callback.
            let span = if is_driven { left } else { left.min(Duration::from_millis(1)) };
            let waited = self.ended.wait_timeout_while(lock(&self.report), span, |it| it.is_none());
            let report = waited.unwrap_or_else(PoisonError::into_inner).0;
            if report.is_some() || left.is_zero() {
                return report.clone();
            }
        }
    }
}

/// For a thread to report after its time has ended: only the report names the locks that are left. It takes this long
/// only if the thread does not run, or is in a callback.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The hand-over in steps, each of which is one access to what threads share, and all orders of the steps of three threads.
#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    /// A rule of the hand-over that is left out.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        None,
        /// A thread that leaves the seat does not ask for what came meanwhile.
        NoQuestion,
        /// It asks before it gives the seat up.
        EarlyQuestion,
        /// A caller that takes the messages forgets that the host wants a turn.
        ForgottenTurn,
        /// The host's sleep is not measured against what a caller writes.
        NoCall,
    }

    /// The next step of a thread.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum At {
        /// A caller may push, the host sleeps.
        Idle,
        Try(Want),
        Work(Want),
        Leave {
            calls: bool,
        },
        Ask {
            calls: bool,
        },
        Ring,
        Done,
    }

    /// Why a thread wants the seat.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Want {
        Write,
        Turn,
        Timeout,
        End,
    }

    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct State {
        at: [At; 3],
        /// How often each caller will push.
        pushes: [u8; HOST],
        /// Whether each message in the queue is for callers.
        queue: Vec<bool>,
        turn_due: bool,
        has_ended: bool,
        holder: Option<usize>,
        /// Taken from the queue and left to the host.
        mailbox: usize,
        /// Something that a caller wrote is due before the host's sleep ends.
        is_late: bool,
        is_called: bool,
        /// The host asks for its timeout before it sleeps.
        asks_timeout: bool,
        /// The descriptor has become readable since the host looked last.
        is_readable: bool,
    }

    /// The number of the host; the others are callers, of which the second one pushes what is left to the host.
    const HOST: usize = 2;

    impl State {
        fn first(pushes: [u8; HOST]) -> Self {
            let at = [At::Idle, At::Idle, At::Try(Want::Timeout)];
            let (queue, is_late, is_readable) = (Vec::new(), false, false);
            let (turn_due, has_ended, is_called) = (false, false, false);
            let (holder, mailbox, asks_timeout) = (None, 0, true);
            #[rustfmt::skip]
            return Self { at, pushes, queue, turn_due, has_ended, holder, mailbox, is_late, is_called, asks_timeout, is_readable };
        }

        /// The states after one step of a thread: none if it waits.
        fn next(&self, who: usize, fault: Fault, can_drop: bool) -> Vec<Self> {
            let mut next = self.clone();
            next.at[who] = match self.at[who] {
                At::Idle if who == HOST => return self.host_wakes(can_drop),
                At::Idle if self.pushes[who] == 0 => return Vec::new(),
                At::Idle => {
                    next.pushes[who] -= 1;
                    if self.has_ended {
                        At::Idle
                    } else {
                        next.queue.push(who == 0);
                        At::Try(Want::Write)
                    }
                }
                At::Try(want) if self.holder.is_none() => {
                    next.holder = Some(who);
                    At::Work(want)
                }
                // It tries again.
                At::Try(Want::End) => At::Try(Want::End),
                // The host does not sleep.
                At::Try(Want::Timeout) => {
                    next.is_readable = true;
                    At::Idle
                }
                At::Try(_) => next.after(who),
                At::Work(want) => next.work(who, want, fault),
                At::Leave { calls } => {
                    next.holder = None;
                    match fault {
                        Fault::NoQuestion | Fault::EarlyQuestion if calls => At::Ring,
                        Fault::NoQuestion | Fault::EarlyQuestion => next.after(who),
                        _ => At::Ask { calls },
                    }
                }
                At::Ask { calls } if calls || self.is_due() => At::Ring,
                At::Ask { .. } => next.after(who),
                At::Ring => {
                    next.is_readable = true;
                    next.after(who)
                }
                At::Done => return Vec::new(),
            };
            if let (Fault::EarlyQuestion, At::Leave { calls }) = (fault, &mut next.at[who]) {
                *calls |= self.is_due();
            }
            if fault == Fault::NoCall && matches!(next.at[who], At::Leave { .. }) && who != HOST {
                next.at[who] = At::Leave { calls: false };
            }
            vec![next]
        }

        /// As [`Queue::is_due`](super::Queue::is_due).
        fn is_due(&self) -> bool {
            self.turn_due || !self.queue.is_empty()
        }

        /// The host begins a turn if it is woken, or is dropped at any time.
        fn host_wakes(&self, can_drop: bool) -> Vec<Self> {
            let mut woken = self.clone();
            (woken.is_readable, woken.at[HOST]) = (false, At::Try(Want::Turn));
            woken.asks_timeout = true;
            woken.turn_due = true;
            let mut dropped = self.clone();
            dropped.at[HOST] = At::Try(Want::End);
            dropped.queue.push(false);
            let each = [(self.is_readable, woken), (can_drop, dropped)];
            each.into_iter().filter_map(|(may, state)| may.then_some(state)).collect()
        }

        /// What follows a visit at the seat.
        fn after(&self, who: usize) -> At {
            if who == HOST && self.asks_timeout { At::Try(Want::Timeout) } else { At::Idle }
        }

        fn work(&mut self, who: usize, want: Want, fault: Fault) -> At {
            if self.has_ended {
                self.holder = None;
                return if who == HOST { At::Done } else { At::Idle };
            }
            match want {
                Want::Write => {
                    if self.mailbox == 0 {
                        let direct = self.queue.iter().take_while(|&&direct| direct).count();
                        self.mailbox = self.queue.len() - direct;
                        self.is_late |= direct > 0;
                        self.queue.clear();
                        self.turn_due &= fault != Fault::ForgottenTurn;
                    }
                    let is_due = self.mailbox > 0 || self.is_late;
                    let calls = is_due && !std::mem::replace(&mut self.is_called, is_due);
                    At::Leave { calls }
                }
                Want::Turn => {
                    self.queue.clear();
                    (self.turn_due, self.mailbox, self.is_called) = (false, 0, false);
                    At::Leave { calls: false }
                }
                Want::Timeout => {
                    (self.is_late, self.asks_timeout) = (false, false);
                    At::Leave { calls: false }
                }
                Want::End => {
                    self.queue.clear();
                    (self.has_ended, self.mailbox, self.is_late) = (true, 0, false);
                    (self.turn_due, self.holder) = (false, None);
                    if who == HOST { At::Done } else { At::Idle }
                }
            }
        }

        /// Whether all threads rest although something is to be done.
        fn has_forgotten(&self) -> bool {
            let is_undone = self.is_due() || self.mailbox > 0 || self.is_late;
            !self.has_ended && is_undone
        }
    }

    /// Visits every state. Returns how many there are, or one in which something was forgotten.
    fn search(first: State, fault: Fault, can_drop: bool) -> Result<usize, State> {
        let (mut open, mut seen) = (vec![first.clone()], HashSet::from([first]));
        while let Some(state) = open.pop() {
            let next: Vec<State> =
                (0..3).flat_map(|who| state.next(who, fault, can_drop)).collect();
            // A host that can be dropped need not be.
            if next.is_empty() || can_drop && state.next(HOST, fault, false).is_empty() {
                let rests = (0..HOST).all(|who| state.next(who, fault, false).is_empty());
                if rests && state.has_forgotten() {
                    return Err(state);
                }
            }
            open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
        }
        Ok(seen.len())
    }

    #[test]
    fn nothing_is_forgotten_in_any_order_of_steps() {
        for can_drop in [false, true] {
            let seen = search(State::first([2, 2]), Fault::None, can_drop);
            println!("{seen:?} states");
            assert!(seen.unwrap() > 1_000);
        }
    }

    #[test]
    fn each_rule_of_the_hand_over_is_needed() {
        for fault in [Fault::NoQuestion, Fault::EarlyQuestion, Fault::ForgottenTurn, Fault::NoCall]
        {
            let forgotten = search(State::first([2, 2]), fault, false);
            println!("{fault:?}: {forgotten:?}");
            assert!(forgotten.is_err(), "nothing is forgotten with {fault:?}");
        }
    }
}
