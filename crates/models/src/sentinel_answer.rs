//! A model of a replaced master that is still reachable for some clients: for how long it grants
//! alongside the new master.
//!
//! Three sentinels name the old master, and each names the new one from some moment on. A holder is
//! connected to the old master and asks sentinels from time to time. A reply of the old master
//! counts for the holder while a majority of sentinels has named that master in answer to a recent
//! enough question. A rival inspects the new master as soon as a majority names it, and gets the
//! lock there when the quarantine has ended.
//!
//! Why it is safe: the two majorities share a sentinel. It replied to the holder before it replied
//! to the rival, so the holder's question is older than the rival's inspection. Nothing is assumed
//! about how sentinels agree, or how fast.
//!
//! *Lean*: the old master grants every request, and no client releases. The model leaves out
//! further nodes, of which a rival needs more than this one, the drift of clocks, and the contents
//! of the restart guard (`restart_guard`).

use std::fmt;

use redbolt::proto::{ClockReading, Timestamp, sentinel_answer};

use crate::search::Model;

/// The rules, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct SentinelAnswer {
    /// The maximum age of a question whose answer counts; `None`: no maximum.
    pub limit: Option<u8>,
    /// The validity of a lock from its request.
    pub ttl: u8,
    /// The time for which a promoted node does not vote.
    pub quarantine: u8,
    /// The number of sentinels that must have confirmed the old master to the holder: a majority,
    /// or one.
    pub needed: usize,
    /// The moment from which the age of an answer counts.
    pub age: Age,
}

/// The moment from which the age of an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// When the sentinel was asked: the rule.
    OfQuestion,
    /// When its answer was received.
    OfAnswer,
}

impl SentinelAnswer {
    /// The rules of the library.
    pub const RULES: Self =
        Self { limit: Some(2), ttl: 3, quarantine: 5, needed: MOST, age: Age::OfQuestion };

    /// Returns an age from which on larger ages make no difference.
    fn oldest(&self) -> u8 {
        self.limit.unwrap_or(0) + 1
    }

    /// Decides by the library's own rule of when a majority of sentinels was asked, if a majority
    /// is needed.
    fn is_vouched_for(&self, state: &State) -> bool {
        let words = state.seats.iter().filter_map(|seat| seat.word);
        let asked_at = words.map(|age| {
            let at = Timestamp(u64::from(NOW - age));
            ClockReading { boot: at, wall: at }
        });
        let vouched_at = match self.needed {
            MOST => sentinel_answer::vouched_at(SENTINELS, asked_at),
            _ => asked_at.max_by_key(|asked_at| asked_at.boot),
        };
        let age = vouched_at.map(|at| u64::from(NOW) - at.boot.0);
        age.is_some_and(|age| self.limit.is_none_or(|limit| age <= limit.into()))
    }
}

/// The number of sentinels.
pub const SENTINELS: usize = 3;
const MOST: usize = 2;

/// A time that is larger than any age of a question.
const NOW: u8 = u8::MAX;

/// The sentinels, the holder and the rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    seats: [Seat; SENTINELS],
    /// The ticks for which the holder's lock is valid.
    held_for: u8,
    rival: Rival,
}

/// A sentinel, and its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Seat {
    names_the_new: bool,
    /// It has named the new master to the rival.
    reported_rival: bool,
    /// The ticks since the question, while an answer to the holder that names the old master is in
    /// flight.
    answer: Option<u8>,
    /// The age of the question whose answer confirmed the old master to the holder.
    word: Option<u8>,
}

/// The client that goes to the new master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Rival {
    Asks,
    /// The new master was inspected and is quarantined for this many more ticks.
    Waits(u8),
    Holds,
}

/// One event.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Switches(usize),
    Answers(usize),
    Heard(usize),
    Granted,
    Tells(usize),
    Looked,
    Taken,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Switches(at) => write!(f, "sentinel {} names the new master from now on", at + 1),
            Self::Answers(at) => write!(f, "sentinel {} is asked by the holder", at + 1),
            Self::Heard(at) => write!(f, "its answer comes from sentinel {}", at + 1),
            Self::Granted => f.write_str("the old master's answer counts for the holder"),
            Self::Tells(at) => write!(f, "sentinel {} names the new master to the rival", at + 1),
            Self::Looked => f.write_str("the rival looks at the new master"),
            Self::Taken => f.write_str("the rival has the lock on the new master"),
        }
    }
}

impl Model for SentinelAnswer {
    type State = State;
    type Step = Step;

    fn begins(&self) -> Vec<State> {
        vec![State { seats: [Seat::default(); SENTINELS], held_for: 0, rival: Rival::Asks }]
    }

    fn steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        found(Step::Tick, self.after_a_tick(state));
        for at in 0..SENTINELS {
            self.steps_of(at, state, found);
        }
        if self.is_vouched_for(state) {
            found(Step::Granted, State { held_for: self.ttl, ..*state });
        }
        let reported = state.seats.iter().filter(|seat| seat.reported_rival).count();
        match state.rival {
            // The quarantine begins with the inspection, which follows the answers of a majority.
            Rival::Asks if reported > SENTINELS / 2 => {
                found(Step::Looked, State { rival: Rival::Waits(self.quarantine), ..*state });
            }
            Rival::Waits(0) => found(Step::Taken, State { rival: Rival::Holds, ..*state }),
            _ => {}
        }
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        (state.held_for > 0 && state.rival == Rival::Holds).then_some("two hold the lock")
    }

    /// Merges states that differ in the names of sentinels only.
    fn canonical(&self, state: &State) -> State {
        let mut seats = state.seats;
        seats.sort_unstable();
        State { seats, ..*state }
    }
}

impl SentinelAnswer {
    fn steps_of(&self, at: usize, state: &State, found: &mut impl FnMut(Step, State)) {
        let seat = state.seats[at];
        let mut with = |step, seat| {
            let mut seats = state.seats;
            seats[at] = seat;
            found(step, State { seats, ..*state });
        };
        match seat.names_the_new {
            true => with(Step::Tells(at), Seat { reported_rival: true, ..seat }),
            false => {
                with(Step::Switches(at), Seat { names_the_new: true, ..seat });
                with(Step::Answers(at), Seat { answer: Some(0), ..seat });
            }
        }
        if let Some(asked) = seat.answer {
            // Dating by the receipt would make a delayed answer look recent.
            let age = if self.age == Age::OfQuestion { asked } else { 0 };
            with(Step::Heard(at), Seat { answer: None, word: Some(age), ..seat });
        }
    }

    fn after_a_tick(&self, state: &State) -> State {
        let older = |age: Option<u8>| age.map(|age| self.oldest().min(age + 1));
        let seats = state.seats.map(|seat| Seat {
            answer: older(seat.answer),
            word: older(seat.word),
            ..seat
        });
        let rival = match state.rival {
            Rival::Waits(left) => Rival::Waits(left.saturating_sub(1)),
            other => other,
        };
        State { seats, held_for: state.held_for.saturating_sub(1), rival }
    }
}
