//! A model of turns: the graces, calls and wake-ups of a queue on one node.
//!
//! `fair_queue.rs` shows without any notion of time that every waiter gets in. Here time passes in
//! ticks, and the questions are how long a free lock stays idle while a live waiter waits for it,
//! and whether a head that is on time keeps its turn. One node is enough: a lock is idle on a
//! quorum for no longer than on the slowest node of it.
//!
//! A waiter's request runs when its timer expires: some ticks after the node has woken it, or at
//! the next poll. Time does not pass while a request is due. A holder may hold for any time. With
//! several permits, each free one lets in one more waiter from the front of the queue. A waiter
//! that is let in leaves the queue, which wakes the two behind it. Tickets of dead waiters stay
//! until another waiter removes them. The rest of the queue is in `fair_queue.rs`.

use std::fmt;

use crate::search::Model;

/// Three waiters in the queue, A before B before C, and the rules. At first strangers hold the
/// lock.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// The number of permits; 1 for a lock.
    pub permits: u8,
    /// The ticks from each waiter's wake-up until its request runs.
    pub trips: [u8; WAITERS],
    /// The ticks for which each waiter's turn is kept for it.
    pub graces: [u8; WAITERS],
    /// The maximum number of ticks between two requests of a waiter.
    pub pause: u8,
    /// The number of ticks that the lock may be idle while a live waiter waits.
    pub most_idle: u8,
    /// The number of waiters that may die.
    pub deaths: u8,
    /// The number of waiters that may give up and leave the queue.
    pub give_ups: u8,
    /// The number of wake-ups that may be lost.
    pub unheard: u8,
    /// The number of times that a stranger, a client outside the queue, takes the free lock.
    pub strangers: u8,
    /// Whose grace applies to a called head.
    pub grace: Grace,
    /// True: a waiter that finds the head called retries when the rest of the head's grace has
    /// passed. False: after a whole grace.
    pub reports_rest: bool,
    /// True: only the next waiter behind the free permits retries then; others retry at their next
    /// poll.
    pub next_alone: bool,
    /// The ticks per waiter in front after which a waiter that is not notified of releases inspects
    /// the lock; 0 if it does not.
    pub looks: u8,
    /// True: a request that finds the lock held withdraws the head's call.
    pub clears: bool,
    /// True: the second in the queue is woken too, and calls the head.
    pub second_listens: bool,
    /// True: a waiter that is let in wakes the two behind it, if a permit is left.
    pub leaving_wakes: bool,
}

/// Whose grace applies to a head that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// The head's own, which its ticket carries: the rule.
    OfHead,
    /// That of the waiter that requests.
    OfAsker,
}

/// The number of waiters.
pub const WAITERS: usize = 3;

impl Turns {
    /// The rules of the library, without faults.
    pub const RULES: Self = Self {
        permits: 1,
        trips: [1; WAITERS],
        graces: [3; WAITERS],
        pause: 5,
        most_idle: 1,
        deaths: 0,
        give_ups: 0,
        unheard: 0,
        strangers: 0,
        grace: Grace::OfHead,
        reports_rest: true,
        next_alone: false,
        looks: 1,
        clears: true,
        second_listens: true,
        leaving_wakes: true,
    };
}

/// The lock, the waiters, and the faults that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The number of free permits.
    free: u8,
    waiters: [Waiter; WAITERS],
    /// The ticks for which a permit has been free since the last waiter was let in.
    idle: u8,
    deaths: u8,
    give_ups: u8,
    unheard: u8,
    strangers: u8,
    /// A head that was on time has lost its turn.
    robbed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Waiter {
    stands: bool,
    dead: bool,
    /// The ticks until its next request runs.
    timer: u8,
    /// It was woken for its turn, and its request has not run.
    woken: bool,
    /// The ticks since its turn was called, plus one; 0 if it was not.
    called: u8,
}

/// One event.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Released { received: [bool; WAITERS] },
    Asks { by: usize, answer: Answer },
    Dies { by: usize },
    GivesUp { by: usize },
    Stranger,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |by: usize| char::from(b'A' + by as u8);
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Released { received } => {
                f.write_str("the lock is released, and wakes")?;
                let woken = (0..WAITERS).filter(|&by| received[by]);
                woken.clone().try_for_each(|by| write!(f, " {}", name(by)))?;
                f.write_str(if woken.count() == 0 { " nobody" } else { "" })
            }
            Self::Asks { by, answer } => {
                let what = match answer {
                    Answer::Held => "finds it held",
                    Answer::Granted => "has it",
                    Answer::Calls { .. } => "calls the head",
                };
                write!(f, "{} asks, and {what}", name(by))
            }
            Self::Dies { by } => write!(f, "{} dies", name(by)),
            Self::GivesUp { by } => write!(f, "{} gives up", name(by)),
            Self::Stranger => f.write_str("a stranger takes the lock"),
        }
    }
}

impl Model for Turns {
    type State = State;
    type Step = Step;

    /// Each waiter begins at any point between two requests.
    fn begins(&self) -> Vec<State> {
        let spans = usize::from(self.pause) + 1;
        let timers = |code: usize| [code % spans, code / spans % spans, code / spans / spans];
        let waiter = |timer: usize| Waiter {
            stands: true,
            dead: false,
            timer: timer as u8,
            woken: false,
            called: 0,
        };
        let state = |code| State {
            free: 0,
            waiters: timers(code).map(waiter),
            idle: 0,
            deaths: self.deaths,
            give_ups: self.give_ups,
            unheard: self.unheard,
            strangers: self.strangers,
            robbed: false,
        };
        (0..spans.pow(WAITERS as u32)).map(state).collect()
    }

    fn steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let mut is_due = false;
        for by in (0..WAITERS).filter(|&by| state.waiters[by].waits()) {
            if state.waiters[by].timer == 0 {
                is_due = true;
                let (answer, next) = self.asked(state, by);
                let step = Step::Asks { by, answer };
                match answer == Answer::Granted && next.free > 0 && self.leaving_wakes {
                    true => self.left(&next, by, |next| found(step, next)),
                    false => found(step, next),
                }
            }
            if state.deaths > 0 {
                let mut next = *state;
                next.deaths -= 1;
                next.waiters[by].dead = true;
                found(Step::Dies { by }, next);
            }
            if state.give_ups > 0 {
                let mut next = *state;
                next.give_ups -= 1;
                next.waiters[by].leaves();
                self.left(&next, by, |next| found(Step::GivesUp { by }, next));
            }
        }
        // Time does not pass while a request is due.
        if !is_due {
            found(Step::Tick, state.tick());
        }
        if state.free < self.permits {
            self.release(state, found);
        }
        if state.free > 0 && state.strangers > 0 {
            let mut next = *state;
            next.strangers -= 1;
            (next.free, next.idle) = (state.free - 1, 0);
            // No waiter's turn is left for what the stranger takes.
            let wakes = |waiter: &mut Waiter| waiter.woken &= next.free > 0;
            next.waiters.iter_mut().for_each(wakes);
            found(Step::Stranger, next);
        }
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        if state.robbed {
            return Some("a head that was on time lost its turn");
        }
        (state.idle > self.most_idle).then_some("the lock is idle for too long")
    }
}

impl Turns {
    /// Releases a permit. The head and the second are woken, unless the wake-up is lost.
    fn release(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let listens = state.queue().enumerate().filter(|&(rank, _)| self.receives_release(rank));
        let listens = listens.map(|(_, by)| by).filter(|&by| !state.waiters[by].dead);
        let listens: u8 = listens.map(|by| 1 << by).sum();
        let is_part = |received: &u8| received & !listens == 0;
        for received in (0..1 << WAITERS).filter(is_part) {
            let lost = (listens & !received).count_ones() as u8;
            if lost > state.unheard {
                continue;
            }
            let mut next = *state;
            next.free += 1;
            next.idle = if state.free == 0 { 0 } else { state.idle };
            next.unheard -= lost;
            // A waiter that missed the first release is late even if it is woken by a later one.
            self.wake(&mut next, received, state.free == 0);
            self.read_from_behind(&mut next);
            let received = std::array::from_fn(|by| received >> by & 1 == 1);
            found(Step::Released { received }, next);
        }
    }

    /// Lets waiters that are not notified of releases find the free permit at their next
    /// inspection.
    fn read_from_behind(&self, state: &mut State) {
        let ranked: Vec<_> = state.queue().enumerate().collect();
        for (rank, by) in ranked.into_iter().filter(|&(rank, _)| !self.receives_release(rank)) {
            let after = self.looks * rank as u8 + self.trips[by];
            if self.looks > 0 {
                state.waiters[by].timer = state.waiters[by].timer.min(after);
            }
        }
    }

    /// Wakes the two behind a waiter that has left the queue, because it was let in while permits
    /// are left or gave up. The wake-ups may be lost.
    fn left(&self, state: &State, by: usize, mut found: impl FnMut(State)) {
        let behind = state.queue().filter(|&other| other > by).enumerate();
        let behind = behind.filter(|&(between, _)| self.receives_leaving(between)).map(|it| it.1);
        let behind: u8 =
            behind.filter(|&other| !state.waiters[other].dead).map(|other| 1 << other).sum();
        for received in (0..1 << WAITERS).filter(|received: &u8| received & !behind == 0) {
            let lost = (behind & !received).count_ones() as u8;
            if lost <= state.unheard {
                let mut next = *state;
                next.unheard -= lost;
                self.wake(&mut next, received, true);
                found(next);
            }
        }
    }

    fn wake(&self, state: &mut State, received: u8, is_on_time: bool) {
        for (by, waiter) in state.waiters.iter_mut().enumerate() {
            if received >> by & 1 == 1 {
                waiter.timer = waiter.timer.min(self.trips[by]);
                waiter.woken |= is_on_time;
            }
        }
    }

    /// Runs a request like the queue's script, as far as turns are concerned.
    fn asked(&self, state: &State, by: usize) -> (Answer, State) {
        let mut next = *state;
        next.waiters[by].woken = false;
        next.waiters[by].timer = self.pause;
        if next.free == 0 {
            if self.clears {
                next.waiters.iter_mut().for_each(|waiter| waiter.called = 0);
            }
            return (Answer::Held, next);
        }
        loop {
            let free = usize::from(next.free);
            if next.queue().take(free).any(|first| first == by) {
                next.waiters[by].leaves();
                // A grant that leaves other permits held ends the head's call, as the script does.
                if next.free < self.permits {
                    next.waiters.iter_mut().for_each(|waiter| waiter.called = 0);
                }
                (next.free, next.idle) = (next.free - 1, 0);
                return (Answer::Granted, next);
            }
            let is_next = next.queue().nth(free) == Some(by);
            let head = next.queue().next().expect("whoever asks waits in the queue");
            let grace = self.graces[if self.grace == Grace::OfHead { head } else { by }];
            let waiter = &mut next.waiters[head];
            if waiter.called <= grace {
                waiter.called = waiter.called.max(1);
                let spent = if self.reports_rest { waiter.called } else { 1 };
                let rest = grace + 1 - spent;
                if is_next || !self.next_alone {
                    next.waiters[by].timer = rest.min(self.pause);
                }
                return (Answer::Calls { rest }, next);
            }
            next.robbed |= waiter.woken && !waiter.dead;
            waiter.leaves();
        }
    }

    /// Returns true if a waiter behind `before` others is notified of a release.
    #[must_use]
    pub fn receives_release(&self, before: usize) -> bool {
        before < if self.second_listens { 2 } else { 1 }
    }

    /// Returns true if a waiter with `between` others between itself and one that leaves the queue
    /// is notified of that.
    #[must_use]
    pub fn receives_leaving(&self, between: usize) -> bool {
        between < 2
    }
}

/// A node's reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No permit is free.
    Held,
    /// The waiter is let in.
    Granted,
    /// It is another waiter's turn; that waiter was called and may come for this many more ticks.
    Calls {
        /// At least 1.
        rest: u8,
    },
}

/// One node, for comparison with the shipping scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone(State);

/// The actions of one node.
impl Turns {
    /// Returns a node with all waiters in the queue and strangers as holders.
    ///
    /// # Panics
    ///
    /// Never: there is always an initial state.
    #[must_use]
    pub fn alone(&self) -> Alone {
        Alone(*self.begins().last().expect("a state to begin in"))
    }

    /// Runs a waiter's request. A waiter that is let in has left the queue.
    pub fn ask(&self, node: &mut Alone, by: usize) -> Answer {
        let (answer, next) = self.asked(&node.0, by);
        node.0 = next;
        answer
    }
}

impl Alone {
    /// Frees a permit.
    pub fn release(&mut self) {
        self.0.free += 1;
    }

    /// Lets a client outside the queue take a free permit.
    pub fn is_taken(&mut self) {
        self.0.free -= 1;
    }

    /// Removes a waiter from the queue.
    pub fn leave(&mut self, by: usize) {
        self.0.waiters[by].leaves();
    }

    /// Passes a tick.
    pub fn tick(&mut self) {
        self.0 = self.0.tick();
    }

    /// Returns the number of free permits.
    #[must_use]
    pub fn free(&self) -> u8 {
        self.0.free
    }

    /// Returns true if the waiter is in the queue.
    #[must_use]
    pub fn stands(&self, by: usize) -> bool {
        self.0.waiters[by].stands
    }

    /// Returns the called head and the ticks since its call.
    #[must_use]
    pub fn called(&self) -> Option<(usize, u8)> {
        let head = self.0.queue().next()?;
        self.0.waiters[head].called.checked_sub(1).map(|since| (head, since))
    }
}

impl State {
    /// Returns the waiters in the queue, in order.
    fn queue(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..WAITERS).filter(|&by| self.waiters[by].stands)
    }

    fn tick(&self) -> Self {
        let mut next = *self;
        let is_idle = self.free > 0 && self.waiters.iter().any(Waiter::waits);
        next.idle = if is_idle { self.idle + 1 } else { 0 };
        for waiter in next.waiters.iter_mut().filter(|waiter| waiter.stands) {
            waiter.timer = waiter.timer.saturating_sub(1);
            if waiter.called > 0 {
                waiter.called = (waiter.called + 1).min(LONG_AGO);
            }
        }
        next
    }
}

impl Waiter {
    fn leaves(&mut self) {
        *self = Self { stands: false, timer: 0, woken: false, called: 0, ..*self };
    }

    fn waits(&self) -> bool {
        self.stands && !self.dead
    }
}

/// An age of a call that is larger than every grace.
const LONG_AGO: u8 = 20;
