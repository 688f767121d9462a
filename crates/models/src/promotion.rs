//! A model of a promoted replica that has the key of a lock, and when an extension counts there.
//!
//! Three sentinels name the old master, and each names the new one from some moment on. A holder
//! takes and extends its lock on the old master until a majority of sentinels has named the new one
//! to it. Then it extends its lock on the new master, a former replica that has the key. A rival is
//! still connected to the old master, on which the holder's key expires. Replies of the old master
//! count for the rival while a majority of sentinels has confirmed that master in reply to a recent
//! enough question.
//!
//! Why it is safe: the two majorities share a sentinel, so the rival's question is older than the
//! holder's move. Once the time limit of an answer has passed since the move, the old master's
//! grants no longer count for the rival. Until then, the key on the old master keeps the rival out.
//!
//! *Lean*: the new master always has the holder's key, however late the replica was, and has no
//! other rivals, see [`sentinel_answer`](crate::sentinel_answer). The sentinels' answers to the
//! holder about the old master are never too old. The model leaves out further nodes, of which a
//! rival needs more than this one, the drift of clocks, and the contents of the restart guard.

use std::fmt;

use redbolt::proto::{ClockReading, Timestamp, sentinel_answer};

use crate::search::Model;
use crate::sentinel_answer::SENTINELS;

/// The rules, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Promotion {
    /// The maximum age of a question whose answer counts; `None`: no maximum.
    pub limit: Option<u8>,
    /// The validity of a lock from its request.
    pub ttl: u8,
    /// The time for which the new master does not vote, from the holder's move.
    pub quarantine: u8,
    /// The number of sentinels that must have confirmed the old master to the rival.
    pub needed: usize,
    /// The extensions that count on the new master.
    pub counts: Counts,
    /// True: an extension that does not count still makes the holder rely on the new master's key.
    pub uncounted_is_known: bool,
}

/// The extensions that count on a promoted master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// All of them, as on a node without sentinels.
    All,
    /// Those on a node that votes.
    OnceItVotes,
    /// Also those of a lock whose key the old master keeps for more than this many ticks from
    /// `Since`.
    KeptAfter(Since, u8),
}

/// The moment from which the old master has to keep the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// When the holder is connected to the new master: the rule.
    Connected,
    /// When the holder asked the sentinels.
    Asked,
}

impl Promotion {
    /// The rules of the library.
    pub const RULES: Self = Self {
        limit: Some(1),
        ttl: 3,
        quarantine: 4,
        needed: MOST,
        counts: Counts::KeptAfter(Since::Connected, 1),
        uncounted_is_known: false,
    };

    /// Returns an age from which on larger ages make no difference.
    fn oldest(&self) -> u8 {
        self.limit.unwrap_or(0) + 1
    }

    /// Decides by the library's own rule of when a majority of sentinels was asked.
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

    /// Returns true if the old master keeps long enough a key that the holder knows to last for
    /// `known` more ticks.
    fn outlives_answers(&self, known: u8, asked: Option<u8>) -> bool {
        match self.counts {
            Counts::KeptAfter(Since::Connected, than) => known > than,
            Counts::KeptAfter(Since::Asked, than) => known > 0 && known + asked.unwrap_or(0) > than,
            Counts::All | Counts::OnceItVotes => false,
        }
    }

    fn asks_first(&self) -> bool {
        matches!(self.counts, Counts::KeptAfter(Since::Asked, _))
    }
}

const MOST: usize = 2;

/// A time that is larger than any age of a question.
const NOW: u8 = u8::MAX;

/// The sentinels, the key on the old master, the holder and the rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    seats: [Seat; SENTINELS],
    /// The key on the old master, with the ticks until it expires.
    key: Key,
    /// The ticks for which the holder's lock is valid. The rival's lock is valid while the key is
    /// the rival's.
    held_for: u8,
    /// The ticks for which the holder relies on its node's key.
    known: u8,
    /// The ticks since the holder asked the sentinels for the master.
    asked: Option<u8>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Free,
    Holders(u8),
    Rivals(u8),
}

/// The master to which the holder is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Old,
    New {
        /// The ticks until it votes.
        quarantine: u8,
        /// The old master keeps the key for long enough.
        outlives_answers: bool,
    },
}

/// A sentinel, and its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Seat {
    names_the_new: bool,
    /// It has named the new master to the holder.
    reported_holder: bool,
    /// The ticks since the question, while an answer to the rival that names the old master is in
    /// flight.
    answer: Option<u8>,
    /// The age of the question whose answer confirmed the old master to the rival.
    word: Option<u8>,
}

/// One event.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Switches(usize),
    Answers(usize),
    Heard(usize),
    Asks,
    Tells(usize),
    Taken,
    Moves,
    Reconnects,
    Extended,
    NotCounted,
    TakenAgain,
    RivalTaken,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Switches(at) => write!(f, "sentinel {} names the new master from now on", at + 1),
            Self::Answers(at) => write!(f, "sentinel {} is asked by the rival", at + 1),
            Self::Heard(at) => write!(f, "the rival receives the answer of sentinel {}", at + 1),
            Self::Asks => f.write_str("the holder asks the sentinels"),
            Self::Tells(at) => write!(f, "sentinel {} names the new master to the holder", at + 1),
            Self::Taken => f.write_str("the holder takes or extends the lock on the old master"),
            Self::Moves => f.write_str("the holder is connected to the new master"),
            Self::Reconnects => f.write_str("the holder is connected to the new master again"),
            Self::Extended => f.write_str("the holder extends its lock on the new master"),
            Self::NotCounted => f.write_str("an extension on the new master does not count"),
            Self::TakenAgain => f.write_str("the holder takes the lock on the new master"),
            Self::RivalTaken => f.write_str("the rival takes the lock on the old master"),
        }
    }
}

impl Model for Promotion {
    type State = State;
    type Step = Step;

    fn begins(&self) -> Vec<State> {
        vec![State {
            seats: [Seat::default(); SENTINELS],
            key: Key::Free,
            held_for: 0,
            known: 0,
            asked: None,
            place: Place::Old,
        }]
    }

    fn steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        found(Step::Tick, self.after_a_tick(state));
        for at in 0..SENTINELS {
            self.steps_of(at, state, found);
        }
        match state.place {
            Place::Old => self.steps_on_the_old(state, found),
            Place::New { .. } => self.steps_on_the_new(state, found),
        }
        // While the holder's key is there, the old master denies the rival.
        if !matches!(state.key, Key::Holders(_)) && self.is_vouched_for(state) {
            found(Step::RivalTaken, State { key: Key::Rivals(self.ttl), ..*state });
        }
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let is_rivals = matches!(state.key, Key::Rivals(_));
        (state.held_for > 0 && is_rivals).then_some("two hold the lock")
    }

    /// Merges states that differ in the names of sentinels only.
    fn canonical(&self, state: &State) -> State {
        let mut seats = state.seats;
        seats.sort_unstable();
        State { seats, ..*state }
    }
}

impl Promotion {
    fn steps_of(&self, at: usize, state: &State, found: &mut impl FnMut(Step, State)) {
        let seat = state.seats[at];
        let mut with = |step, seat| {
            let mut seats = state.seats;
            seats[at] = seat;
            found(step, State { seats, ..*state });
        };
        match seat.names_the_new {
            true if self.asks_first() && state.asked.is_none() => {}
            true => with(Step::Tells(at), Seat { reported_holder: true, ..seat }),
            false => {
                with(Step::Switches(at), Seat { names_the_new: true, ..seat });
                with(Step::Answers(at), Seat { answer: Some(0), ..seat });
            }
        }
        if let Some(age) = seat.answer {
            with(Step::Heard(at), Seat { answer: None, word: Some(age), ..seat });
        }
    }

    fn steps_on_the_old(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let (ttl, known) = (self.ttl, state.known);
        if !matches!(state.key, Key::Rivals(_)) {
            let key = Key::Holders(ttl);
            found(Step::Taken, State { key, held_for: ttl, known: ttl, ..*state });
        }
        if self.asks_first() && state.asked.is_none() {
            found(Step::Asks, State { asked: Some(0), ..*state });
        }
        // The holder follows a majority of sentinels.
        if state.seats.iter().filter(|seat| seat.reported_holder).count() >= MOST {
            let outlives_answers = self.outlives_answers(known, state.asked);
            let place = Place::New { quarantine: self.quarantine, outlives_answers };
            found(Step::Moves, State { place, ..*state });
        }
    }

    fn steps_on_the_new(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let Place::New { quarantine, outlives_answers } = state.place else { return };
        if matches!(self.counts, Counts::KeptAfter(Since::Connected, _)) {
            let place = Place::New {
                quarantine,
                outlives_answers: self.outlives_answers(state.known, None),
            };
            found(Step::Reconnects, State { place, ..*state });
        }
        if quarantine == 0 {
            found(Step::TakenAgain, State { held_for: self.ttl, known: self.ttl, ..*state });
        }
        // An early extension counts only if the old master keeps the key until its replies no
        // longer count for the rival.
        let counts = quarantine == 0 || outlives_answers || self.counts == Counts::All;
        if state.held_for > 0 && counts {
            found(Step::Extended, State { held_for: self.ttl, known: self.ttl, ..*state });
        } else if state.held_for > 0 && self.uncounted_is_known {
            found(Step::NotCounted, State { known: self.ttl, ..*state });
        }
    }

    fn after_a_tick(&self, state: &State) -> State {
        let older = |age: Option<u8>| age.map(|age| self.oldest().min(age + 1));
        let seats = state.seats.map(|seat| Seat {
            answer: older(seat.answer),
            word: older(seat.word),
            ..seat
        });
        let key = match state.key {
            Key::Holders(left) if left > 1 => Key::Holders(left - 1),
            Key::Rivals(left) if left > 1 => Key::Rivals(left - 1),
            _ => Key::Free,
        };
        let place = match state.place {
            Place::Old => Place::Old,
            Place::New { quarantine, outlives_answers } => {
                Place::New { quarantine: quarantine.saturating_sub(1), outlives_answers }
            }
        };
        let held_for = state.held_for.saturating_sub(1);
        let known = state.known.saturating_sub(1);
        State { seats, key, held_for, known, asked: older(state.asked), place }
    }
}
