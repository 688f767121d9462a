//! Breadth-first search through every state that a model can reach.
//!
//! The path to the first wrong state found is a shortest counterexample. States that differ in
//! names only may be merged, see [`Model::canonical`]. [`search_for_progress`] also finds states
//! from which the model can no longer settle.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

/// A system small enough to be searched exhaustively.
pub trait Model {
    /// Everything that decides what can happen next. It must be small: a search keeps millions of
    /// them.
    type State: Copy + Eq + Hash;
    /// One event; it displays as words.
    type Step: Copy + fmt::Display;

    /// Returns the initial states.
    fn begins(&self) -> Vec<Self::State>;

    /// Reports every event that can happen next, each with the state after it.
    fn steps(&self, state: &Self::State, found: &mut impl FnMut(Self::Step, Self::State));

    /// Describes what is wrong with a state, if anything.
    fn wrong(&self, state: &Self::State) -> Option<&'static str>;

    /// Returns the state without details that cannot contribute to a violation.
    fn thin(&self, state: &Self::State) -> Self::State {
        *state
    }

    /// Returns one representative of all states that differ only in the names of interchangeable
    /// things.
    fn canonical(&self, state: &Self::State) -> Self::State {
        *state
    }
}

/// A model that must also be able to make progress.
pub trait Progress: Model {
    /// Returns true if every process has succeeded or left, and nothing of it remains.
    fn is_settled(&self, state: &Self::State) -> bool;

    /// Returns true if progress may rely on the step. It may not rely on faults or on processes
    /// that give up.
    fn helps(&self, step: &Self::Step) -> bool;
}

/// The result of a search.
#[derive(Debug)]
pub struct Outcome {
    /// The number of states visited.
    pub states: usize,
    /// The number of steps to the furthest state, or to the violation.
    pub depth: u32,
    /// The duration of the search.
    pub took: Duration,
    /// The number of states that no longer lead to a settled one; 0 unless progress was searched
    /// for.
    pub stuck: usize,
    /// True if every state was visited, or the search stopped at a wrong one.
    pub is_all: bool,
    /// The path to a wrong state, if there is one.
    pub violation: Option<Violation>,
}

/// A shortest path to a wrong state.
#[derive(Debug)]
pub struct Violation {
    /// A description of what is wrong.
    pub what: &'static str,
    /// The events that lead there, in order.
    pub steps: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, depth, took, stuck, is_all, .. } = self;
        let first = if *is_all { "" } else { "the first " };
        write!(f, "{first}{states} states, depth {depth}, {:.1} s: ", took.as_secs_f64())?;
        let Some(violation) = &self.violation else { return f.write_str("no violation") };
        write!(f, "VIOLATION, {}", violation.what)?;
        if *stuck > 0 {
            write!(f, " from {stuck} states")?;
        }
        violation
            .steps
            .iter()
            .enumerate()
            .try_for_each(|(at, step)| write!(f, "\n{:4}. {step}", at + 1))
    }
}

/// Visits every state of a model, or stops at the first wrong one.
///
/// # Panics
///
/// Panics if the model has more than [`MOST`] states.
pub fn search<M: Model>(model: &M) -> Outcome {
    let begun = Instant::now();
    let found = Explored::new(model, usize::MAX, |_, _| ());
    found.outcome(model, begun, 0, found.wrong)
}

/// Visits about the `most` states that are nearest to the initial ones, for a model with too many
/// states.
///
/// # Panics
///
/// Panics if it reaches more than [`MOST`] states.
pub fn search_nearest<M: Model>(model: &M, most: usize) -> Outcome {
    let begun = Instant::now();
    let found = Explored::new(model, most, |_, _| ());
    found.outcome(model, begun, 0, found.wrong)
}

/// Visits every state of a model and checks that each leads to a settled one.
///
/// # Panics
///
/// Panics if the model has more than [`MOST`] states.
pub fn search_for_progress<M: Progress>(model: &M) -> Outcome {
    let [outcome] = search_for_progress_of([model]);
    outcome
}

/// Searches models that have the same states and steps but define progress differently, in one
/// visit.
///
/// # Panics
///
/// Panics like [`search_for_progress`].
pub fn search_for_progress_of<M: Progress, const K: usize>(models: [&M; K]) -> [Outcome; K] {
    let begun = Instant::now();
    let mut helping = [const { Vec::new() }; K];
    let mut ends = Vec::new();
    let found = Explored::new(models[0], usize::MAX, |step, edge| match edge {
        Edge::To(next) => {
            for (model, helping) in models.iter().zip(&mut helping) {
                helping.extend(step.filter(|step| model.helps(step)).map(|_| next));
            }
        }
        Edge::NoMore => ends.push(std::array::from_fn::<_, K, _>(|model| helping[model].len())),
    });
    std::array::from_fn(|at| {
        let model = models[at];
        if found.wrong.is_some() {
            return found.outcome(model, begun, 0, found.wrong);
        }
        let ends = ends.iter().map(|ends| ends[at]);
        let stuck = stuck(model, &found.seen.states, &helping[at], &Vec::from_iter(ends));
        found.outcome(model, begun, stuck.len(), stuck.first().map(|&at| (STUCK, at)))
    })
}

/// Returns the states that do not lead to a settled one. `helping` has the successors of all states
/// in order; `ends` has, for each state, the index behind its last successor.
fn stuck<M: Progress>(
    model: &M,
    states: &[M::State],
    helping: &[u32],
    ends: &[usize],
) -> Vec<usize> {
    let mut settles: Vec<bool> = states.iter().map(|state| model.is_settled(state)).collect();
    loop {
        let mut more = false;
        for at in (0..states.len()).rev().filter(|&at| ends[at] > 0) {
            let from = if at == 0 { 0 } else { ends[at - 1] };
            let leads = || helping[from..ends[at]].iter().any(|&next| settles[next as usize]);
            if !settles[at] && leads() {
                (settles[at], more) = (true, true);
            }
        }
        if !more {
            return (0..states.len()).filter(|&at| !settles[at]).collect();
        }
    }
}

/// The violation that [`search_for_progress`] reports for a state that leads to no settled one.
pub const STUCK: &str = "nobody gets any further";

/// A successor of a state, or the end of its successors.
enum Edge {
    To(u32),
    NoMore,
}

/// All states, or those up to the first wrong one.
struct Explored<S> {
    seen: Seen<S>,
    depth: u32,
    /// No further states follow from these.
    is_all: bool,
    wrong: Option<(&'static str, usize)>,
}

impl<S: Copy + Eq + Hash> Explored<S> {
    fn new<M: Model<State = S>>(
        model: &M,
        most: usize,
        mut edge: impl FnMut(Option<&M::Step>, Edge),
    ) -> Self {
        let mut seen = Seen::new();
        let mut wrong = None;
        for state in model.begins() {
            let state = model.canonical(&model.thin(&state));
            if let (at, true) = seen.insert(state, NO_PARENT)
                && wrong.is_none()
            {
                wrong = model.wrong(&state).map(|what| (what, at));
            }
        }
        let (mut depth, mut level_ends, mut at) = (0, seen.states.len(), 0);
        while at < seen.states.len() && seen.states.len() < most && wrong.is_none() {
            if at == level_ends {
                depth += 1;
                level_ends = seen.states.len();
            }
            let state = seen.states[at];
            model.steps(&state, &mut |step, next| {
                if wrong.is_some() {
                    return;
                }
                let next = model.canonical(&model.thin(&next));
                let (to, is_new) = seen.insert(next, at as u32);
                edge(Some(&step), Edge::To(to as u32));
                if is_new {
                    wrong = model.wrong(&next).map(|what| (what, to));
                }
            });
            edge(None, Edge::NoMore);
            at += 1;
        }
        let is_all = at == seen.states.len() || wrong.is_some();
        Self { seen, depth, is_all, wrong }
    }

    fn outcome<M: Model<State = S>>(
        &self,
        model: &M,
        begun: Instant,
        stuck: usize,
        wrong: Option<(&'static str, usize)>,
    ) -> Outcome {
        let retraced = |(what, end)| Violation { what, steps: retrace(model, &self.seen, end) };
        let violation = wrong.map(retraced);
        let depth = violation.as_ref().map_or(self.depth, |found| found.steps.len() as u32);
        let states = self.seen.states.len();
        Outcome { states, depth, took: begun.elapsed(), stuck, is_all: self.is_all, violation }
    }
}

/// The largest number of states that a search accepts. The queue needs 18 GB for as many.
pub const MOST: usize = 200_000_000;

/// Repeats the path with states that are not renamed, so that a node keeps its name from step to
/// step.
fn retrace<M: Model>(model: &M, seen: &Seen<M::State>, end: usize) -> Vec<String> {
    let mut way = vec![end];
    while let Some(parent) = way.last().map(|&at| seen.parents[at]).filter(|&at| at != NO_PARENT) {
        way.push(parent as usize);
    }
    let mut stops = way.into_iter().rev().map(|at| seen.states[at]);
    let first = stops.next().expect("the way has an end");
    let mut begins = model.begins().into_iter().map(|begin| model.thin(&begin));
    let begin = begins.find(|begin| model.canonical(begin) == first);
    let mut state = begin.expect("the way begins at a beginning");
    let mut steps = Vec::new();
    for stop in stops {
        let mut taken = None;
        model.steps(&state, &mut |step, next| {
            let next = model.thin(&next);
            if taken.is_none() && model.canonical(&next) == stop {
                taken = Some((step, next));
            }
        });
        let (step, next) = taken.expect("the step was taken before");
        steps.push(step.to_string());
        state = next;
    }
    steps
}

const NO_PARENT: u32 = u32::MAX;

/// The states so far in order of discovery, each with its predecessor.
struct Seen<S> {
    states: Vec<S>,
    parents: Vec<u32>,
    /// An open-addressing table: the upper half of an entry is half of the hash, the lower half an
    /// index into `states` plus one.
    table: Vec<u64>,
}

impl<S: Copy + Eq + Hash> Seen<S> {
    fn new() -> Self {
        Self { states: Vec::new(), parents: Vec::new(), table: vec![0; 1 << 16] }
    }

    /// Returns the index of the state, and whether it is new.
    fn insert(&mut self, state: S, parent: u32) -> (usize, bool) {
        if (self.states.len() + 1) * 4 > self.table.len() * 3 {
            self.grow();
        }
        let hash = hash_of(&state);
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        while self.table[slot] != 0 {
            let entry = self.table[slot];
            let at = (entry as u32 - 1) as usize;
            if entry >> 32 == hash >> 32 && self.states[at] == state {
                return (at, false);
            }
            slot = (slot + 1) & mask;
        }
        assert!(self.states.len() < MOST, "more than {MOST} states");
        self.states.push(state);
        self.parents.push(parent);
        self.table[slot] = hash >> 32 << 32 | self.states.len() as u64;
        (self.states.len() - 1, true)
    }

    fn grow(&mut self) {
        let mask = self.table.len() * 2 - 1;
        // Free the old table first, or both would be in memory at once.
        self.table = Vec::new();
        self.table = vec![0; mask + 1];
        for (at, state) in self.states.iter().enumerate() {
            let hash = hash_of(state);
            let mut slot = hash as usize & mask;
            while self.table[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.table[slot] = hash >> 32 << 32 | (at as u64 + 1);
        }
    }
}

fn hash_of(state: &impl Hash) -> u64 {
    let mut mixer = Mixer(0);
    state.hash(&mut mixer);
    mixer.finish()
}

/// A hasher that takes a few cycles per word. It need not resist collisions, because no adversary
/// chooses states.
struct Mixer(u64);

impl Mixer {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.mix(n.into());
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.mix(n.into());
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    #[inline]
    fn write_isize(&mut self, n: isize) {
        self.mix(n as u64);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    fn finish(&self) -> u64 {
        (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two interchangeable counters of up to `top`; wrong if both are at `forbidden`.
    struct Counters {
        top: u8,
        forbidden: u8,
        alike: bool,
    }

    impl Model for Counters {
        type State = [u8; 2];
        type Step = usize;

        fn begins(&self) -> Vec<[u8; 2]> {
            vec![[0, 0]]
        }

        fn steps(&self, state: &[u8; 2], found: &mut impl FnMut(usize, [u8; 2])) {
            for which in 0..2 {
                let mut next = *state;
                next[which] += 1;
                if next[which] <= self.top {
                    found(which, next);
                }
            }
        }

        fn wrong(&self, state: &[u8; 2]) -> Option<&'static str> {
            (*state == [self.forbidden; 2]).then_some("both are there")
        }

        fn canonical(&self, state: &[u8; 2]) -> [u8; 2] {
            let mut state = *state;
            if self.alike {
                state.sort_unstable();
            }
            state
        }
    }

    impl Progress for Counters {
        fn is_settled(&self, state: &[u8; 2]) -> bool {
            state[0] == self.top
        }

        /// The second counter stands for faults, on which progress may not rely.
        fn helps(&self, step: &usize) -> bool {
            *step == 0
        }
    }

    #[test]
    fn finds_states_that_cannot_settle() {
        let counters = Counters { top: 4, forbidden: 255, alike: false };
        let all = search_for_progress(&counters);
        assert_eq!((all.states, all.stuck, all.violation.is_none()), (25, 0, true));
        let walled = search_for_progress(&Walled(counters));
        assert_eq!((walled.states, walled.stuck), (5 * 5, 2 * 2), "behind the wall");
        let violation = walled.violation.expect("some are stuck");
        assert_eq!((violation.what, violation.steps), (STUCK, vec!["1".to_string(); 3]));
    }

    /// A wall: once the second counter is beyond 2, the first cannot pass from 1 to 2.
    struct Walled(Counters);

    impl Model for Walled {
        type State = [u8; 2];
        type Step = usize;

        fn begins(&self) -> Vec<[u8; 2]> {
            self.0.begins()
        }

        fn steps(&self, state: &[u8; 2], found: &mut impl FnMut(usize, [u8; 2])) {
            let wall = |next: [u8; 2]| next[1] > 2 && (state[0], next[0]) == (1, 2);
            self.0.steps(state, &mut |step, next| {
                if !wall(next) {
                    found(step, next);
                }
            });
        }

        fn wrong(&self, _: &[u8; 2]) -> Option<&'static str> {
            None
        }
    }

    impl Progress for Walled {
        fn is_settled(&self, state: &[u8; 2]) -> bool {
            self.0.is_settled(state)
        }

        fn helps(&self, step: &usize) -> bool {
            self.0.helps(step)
        }
    }

    #[test]
    fn visits_every_state_once() {
        let all = search(&Counters { top: 250, forbidden: 255, alike: false });
        assert_eq!((all.states, all.depth, all.violation.is_none()), (251 * 251, 500, true));
        let half = search(&Counters { top: 250, forbidden: 255, alike: true });
        assert_eq!((half.states, half.depth), (251 * 252 / 2, 500));
    }

    #[test]
    fn stops_at_the_requested_number_of_states() {
        let part = search_nearest(&Counters { top: 250, forbidden: 255, alike: false }, 1_000);
        assert!((1_000..1_010).contains(&part.states) && !part.is_all, "{part}");
        assert!(part.to_string().starts_with("the first 1"), "{part}");
        let all = search_nearest(&Counters { top: 9, forbidden: 255, alike: false }, 1_000);
        assert!(all.states == 100 && all.is_all, "{all}");
    }

    #[test]
    fn reports_a_shortest_path() {
        for alike in [false, true] {
            let outcome = search(&Counters { top: 9, forbidden: 3, alike });
            let violation = outcome.violation.expect("[3, 3] can be reached");
            assert_eq!((outcome.depth, violation.steps.len()), (6, 6));
            let of = |name| violation.steps.iter().filter(|step| *step == name).count();
            assert_eq!((of("0"), of("1")), (3, 3), "names stay what they are");
        }
    }
}
