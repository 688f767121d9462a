//! A master that was replaced while cut off from the clients' view: how long it grants while the new master grants too.
//!
//! Three sentinels name the old master, and each names the new one from some moment on. A holder is connected to the old master, and
//! asks sentinels now and then. An answer of the old master counts for it while most sentinels have named that master in reply to
//! a question that is recent enough. A rival inspects the new master as soon as most sentinels name that one, and gets the lock
//! there when the quarantine has ended.
//!
//! Why it holds: the two majorities share a sentinel. That sentinel replied to the holder before it replied to the rival, so the
//! holder's question is older than the rival's inspection. Nothing is assumed about how sentinels agree, or how fast.
//!
//! *Lean*: the old master grants every request, and no client releases. The model leaves out several nodes, of which a rival needs
//! more than this one, the drift of clocks, and what the restart guard is (`restart_guard`).

use std::fmt;

use redbolt::proto::{ClockReading, Timestamp, sentinel_answer};

use crate::search::Model;

/// The rules, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct SentinelAnswer {
    /// How old the question may be that a word answers; `None`: as old as it likes.
    pub limit: Option<u8>,
    /// For how long a lock is valid from when it was asked for.
    pub ttl: u8,
    /// For how long a node that was promoted does not vote.
    pub quarantine: u8,
    /// How many sentinels must have given their word to the holder: most, or one.
    pub needed: usize,
    /// From when the age of a word counts.
    pub age: Age,
}

/// From when the age of a word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// From when the sentinel was asked: the rule.
    OfQuestion,
    /// From when its answer came.
    OfAnswer,
}

impl SentinelAnswer {
    /// The rules as they are meant.
    pub const RULES: Self =
        Self { limit: Some(2), ttl: 3, quarantine: 5, needed: MOST, age: Age::OfQuestion };

    /// An age from which on it does not matter any more.
    fn oldest(&self) -> u8 {
        self.limit.unwrap_or(0) + 1
    }

    /// By the library's own rule of when most sentinels had been asked, where so many are needed.
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

/// How many sentinels there are, and how many are most of them.
pub const SENTINELS: usize = 3;
const MOST: usize = 2;

/// A moment that is later than any question's age.
const NOW: u8 = u8::MAX;

/// The sentinels, the holder and the rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    seats: [Seat; SENTINELS],
    /// Ticks for which the holder's lock is valid.
    held_for: u8,
    rival: Rival,
}

/// A sentinel, and what has become of its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Seat {
    names_the_new: bool,
    /// It has told the rival.
    reported_rival: bool,
    /// An answer to the holder that names the old master is on its way: ticks since the question.
    answer: Option<u8>,
    /// The age of its word for the old master.
    word: Option<u8>,
}

/// The one who goes to the new master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Rival {
    Asks,
    /// The new master was looked at, and is quarantined for so many ticks.
    Waits(u8),
    Holds,
}

/// One thing that happens.
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

    /// Sentinels are alike.
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
