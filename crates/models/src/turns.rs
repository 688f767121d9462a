//! Whose turn it is: the graces, calls and wake-ups of a queue, on one node.
//!
//! `fair_queue.rs` shows without any time that everybody gets in; here time passes in ticks, and the question is for
//! how long a free lock stays idle while somebody alive waits for it, and whether a head that is on time keeps
//! its turn. One node is enough: a lock is idle on a quorum for no longer than on the slowest of them.
//!
//! A waiter's ask runs when its timer says so: a while after the node has woken it, or at the next poll. Time
//! does not pass while an ask is due, and holders hold for as long as they like. Of several permits each that is free lets in one
//! more of the queue, from its front, and whoever is let in wakes the two behind it by leaving. Tickets of the dead stay until somebody
//! removes them. Not here: everything of the queue that `fair_queue.rs` has, tickets that end, more than one node.

use std::fmt;

use crate::search::Model;

/// Three waiters in the queue, A before B before C, and the rules. At first strangers hold the lock.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// How many may hold it at once: 1 but for a semaphore.
    pub permits: u8,
    /// After how many ticks each one's ask runs once it was woken.
    pub trips: [u8; WAITERS],
    /// For how many ticks each one's turn is kept for it.
    pub graces: [u8; WAITERS],
    /// The most ticks between two asks of a waiter.
    pub pause: u8,
    /// For how many ticks the lock may be idle while somebody alive waits.
    pub most_idle: u8,
    /// How many waiters may die.
    pub deaths: u8,
    /// How many waiters may give up, and leave the queue.
    pub give_ups: u8,
    /// How many wake-ups may be lost.
    pub unheard: u8,
    /// How often a stranger, who is in no queue, takes the free lock.
    pub strangers: u8,
    /// Whose grace counts.
    pub grace: Grace,
    /// Whoever finds the head called asks again when that is over, and not after a whole grace of its own.
    pub reports_rest: bool,
    /// Only whoever is next does so; others ask at their next poll.
    pub next_alone: bool,
    /// Whoever hears of no release looks after so many ticks for each that stands before it; 0 if it does not.
    pub looks: u8,
    /// An ask that finds the lock held takes the head's call back.
    pub clears: bool,
    /// The second in the queue is woken too, and calls the head.
    pub second_listens: bool,
    /// Whoever is let in wakes the two behind it, if a permit is left.
    pub leaving_wakes: bool,
}

/// Whose grace counts for a head that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// Its own, which its ticket carries: the rule.
    OfHead,
    /// That of whoever asks.
    OfAsker,
}

/// How many there are.
pub const WAITERS: usize = 3;

impl Turns {
    /// The rules as they are meant, and no faults.
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
    /// How many permits nobody holds.
    free: u8,
    waiters: [Waiter; WAITERS],
    /// Ticks for which one has been, since somebody was let in.
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
    /// Ticks until its next ask runs.
    timer: u8,
    /// It was woken for its turn, and its ask has not run.
    woken: bool,
    /// Ticks since its turn was called, plus one; 0 if it was not.
    called: u8,
}

/// One thing that happens.
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

    /// Everybody is somewhere between two asks.
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
            // What it takes was nobody's turn.
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
    /// The head and the second are woken, unless it is lost.
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
            // Whoever did not hear of the first that came free is late for it nevertheless.
            self.wake(&mut next, received, state.free == 0);
            self.read_from_behind(&mut next);
            let received = std::array::from_fn(|by| received >> by & 1 == 1);
            found(Step::Released { received }, next);
        }
    }

    /// Whoever hears of no release finds at its next look that one is free.
    fn read_from_behind(&self, state: &mut State) {
        let ranked: Vec<_> = state.queue().enumerate().collect();
        for (rank, by) in ranked.into_iter().filter(|&(rank, _)| !self.receives_release(rank)) {
            let after = self.looks * rank as u8 + self.trips[by];
            if self.looks > 0 {
                state.waiters[by].timer = state.waiters[by].timer.min(after);
            }
        }
    }

    /// Somebody was let in, and permits are left, or has given up: the two behind it hear that it has left the queue, unless that is lost.
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

    /// The script of the queue, as far as it is about turns.
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
                // Beside others who hold it, the head begins anew to be called.
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

    /// Whether whoever stands behind so many others hears of a release.
    #[must_use]
    pub fn receives_release(&self, before: usize) -> bool {
        before < if self.second_listens { 2 } else { 1 }
    }

    /// Whether whoever has so many between itself and one that leaves the queue hears of that.
    #[must_use]
    pub fn receives_leaving(&self, between: usize) -> bool {
        between < 2
    }
}

/// What a node does with an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody is let in now.
    Held,
    /// It is let in.
    Granted,
    /// Somebody else's turn it is, who has been called and may come for so many ticks more.
    Calls {
        /// At least 1.
        rest: u8,
    },
}

/// A node by itself, for whoever compares it with one that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone(State);

/// What a node does, whoever asks when.
impl Turns {
    /// All wait in the queue, and strangers hold it.
    ///
    /// # Panics
    ///
    /// Never: there is a state to begin in.
    #[must_use]
    pub fn alone(&self) -> Alone {
        Alone(*self.begins().last().expect("a state to begin in"))
    }

    /// A waiter asks. Whoever is let in has left the queue.
    pub fn ask(&self, node: &mut Alone, by: usize) -> Answer {
        let (answer, next) = self.asked(&node.0, by);
        node.0 = next;
        answer
    }
}

impl Alone {
    /// One that was held is free.
    pub fn release(&mut self) {
        self.0.free += 1;
    }

    /// Somebody who is in no queue takes what is free.
    pub fn is_taken(&mut self) {
        self.0.free -= 1;
    }

    /// A waiter leaves the queue.
    pub fn leave(&mut self, by: usize) {
        self.0.waiters[by].leaves();
    }

    /// A tick passes.
    pub fn tick(&mut self) {
        self.0 = self.0.tick();
    }

    /// How many are free.
    #[must_use]
    pub fn free(&self) -> u8 {
        self.0.free
    }

    /// Whether a waiter waits in the queue.
    #[must_use]
    pub fn stands(&self, by: usize) -> bool {
        self.0.waiters[by].stands
    }

    /// For how many ticks the first in the queue has been called, if it has.
    #[must_use]
    pub fn called(&self) -> Option<(usize, u8)> {
        let head = self.0.queue().next()?;
        self.0.waiters[head].called.checked_sub(1).map(|since| (head, since))
    }
}

impl State {
    /// Who waits in the queue, in order.
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

/// A call that is older than every grace.
const LONG_AGO: u8 = 20;
