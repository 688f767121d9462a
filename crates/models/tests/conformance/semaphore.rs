//! Conformance of the semaphore: the slots that make a permit, the effect of a move on the previous
//! reply, and the worth of a heal.

use std::time::Duration;

use redbolt::proto::script::{ACQUIRE_PERMIT, EXTEND_PERMIT, UNDO_PERMIT};
use redbolt::proto::{Event, LockId, LockRequest, RefusalReason, Vote};
use redbolt_models::semaphore::{Alone, Semaphore};
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;

use crate::bench::{Bench, warm};

/// The model's `Permit::SameSlot`.
#[test]
fn the_core_holds_a_permit_if_a_quorum_gave_one_slot() {
    let (mut bench, id) = asked(3);
    bench.answer(0, "+OK 0 0 7\r\n");
    bench.answer(1, "+OK 1 0 7\r\n");
    assert_eq!(bench.reported(), [], "two slots are no permit, and a third answer is to come");
    bench.answer(2, "+OK 1 0 7\r\n");
    assert_eq!(bench.reported(), [Event::Granted(id)]);
    assert_eq!(bench.core.slot(id), Some(1));
    assert_eq!(bench.core.votes(id).of(bench.node(0)), Some(Vote::Deny));
    assert_eq!(wanted(&mut bench, 0), 1, "it is healed");
}

/// The model's `Moves::EndAnswer`.
#[test]
fn the_core_counts_no_answer_from_before_a_move() {
    let (mut bench, id) = split();
    assert_eq!(bench.reported(), [], "what two nodes gave before they were moved is nothing");
    let moved: Vec<usize> = (0..3).filter(|&node| bench.waiting(node) == ["move"]).collect();
    assert_eq!(moved.len(), 2, "the third has the slot");
    let slot = wanted(&mut bench, moved[0]);
    assert_eq!(wanted(&mut bench, moved[1]), slot);
    bench.answer(moved[0], &format!("+OK {slot}\r\n"));
    assert_eq!(bench.reported(), [Event::Granted(id)]);
    assert_eq!(bench.core.slot(id).map(u64::from), Some(slot));
    bench.answer(moved[1], ":300\r\n");
    assert_eq!(bench.core.votes(id).grants().len(), 2);
}

#[test]
fn the_core_settles_once_and_undoes_everywhere() {
    let (mut bench, id) = split();
    for node in 0..3 {
        if bench.waiting(node) == ["move"] {
            bench.answer(node, ":300\r\n");
        }
    }
    let is_contended = |event: &Event| matches!(event, Event::Refused(_, it) if it.reason == RefusalReason::Contended);
    let reported = bench.reported();
    assert!(reported.len() == 1 && is_contended(&reported[0]), "{id:?}: {reported:?}");
    for node in 0..3 {
        assert_eq!(bench.waiting(node), ["undo"], "also where it gave another slot");
    }
}

/// Two slots, given by nodes that have no other free slot.
#[test]
fn the_core_requests_no_slot_that_no_quorum_can_give() {
    let (mut bench, _) = asked(3);
    bench.answer(0, "+OK 0 0 0\r\n");
    bench.answer(1, "+OK 1 0 0\r\n");
    bench.answer(2, ":500\r\n");
    assert!(matches!(bench.reported()[..], [Event::Refused(..)]));
    assert_eq!(bench.waiting(0), ["undo"]);
}

/// The model's `Heal::Guarded`: a heal counts only under the restart guard, and then like any
/// grant.
#[test]
fn the_core_counts_a_healed_node_only_under_its_restart_guard() {
    for (answer, counts) in [("+OK 1\r\n", true), ("+GUARD -2\r\n", false), (":400\r\n", false)] {
        let (mut bench, id) = asked(3);
        for (node, slot) in [(0, 0), (1, 1), (2, 1)] {
            bench.answer(node, &format!("+OK {slot} 0 7\r\n"));
        }
        assert_eq!(bench.reported(), [Event::Granted(id)]);
        bench.answer(0, answer);
        let now = bench.now;
        bench.core.extend(id, Duration::from_secs(20), now).unwrap();
        bench.answer(1, ":1\r\n");
        assert_eq!(bench.reported(), [], "one node is no quorum");
        while let Some(words) = bench.next(0) {
            let is_extend =
                redbolt_testkit::Command::new(&words).kind == redbolt_testkit::Kind::Extend;
            bench.answer(0, if is_extend { ":1\r\n" } else { ":0\r\n" });
        }
        let extended = bench.reported().contains(&Event::Extended(id));
        assert_eq!(extended, counts, "{answer}");
    }
}

/// A taken slot is requested again after 2, 4 and 6 round trips; an extension requests none.
#[test]
fn the_core_heals_a_few_times_and_never_with_an_extension() {
    let (mut bench, id) = asked(3);
    bench.answer(0, ":400\r\n");
    bench.wait(Duration::from_millis(10));
    bench.answer(1, "+OK 1 0 7\r\n");
    bench.answer(2, "+OK 1 0 7\r\n");
    assert_eq!(bench.reported(), [Event::Granted(id)]);
    let mut moves = 0;
    while bench.waiting(0).contains(&"move") {
        moves += 1;
        bench.answer(0, ":400\r\n");
        for _ in 0..10 {
            bench.wait(Duration::from_millis(10));
        }
    }
    assert_eq!(moves, 4, "at once, and three times more");
    let now = bench.now;
    bench.core.extend(id, Duration::from_secs(20), now).unwrap();
    assert_eq!(bench.waiting(0), ["extend"]);
}

/// An event on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Ask(usize),
    Move(usize, u8),
    Extend(usize, u8),
    Undo(usize),
    Tick,
}

/// A node that runs the scripts, with the model of it.
struct Run<const C: usize> {
    model: Semaphore<3, C>,
    alone: Alone<C>,
    node: Peer,
    now: u64,
}

impl<const C: usize> Run<C> {
    fn new(model: Semaphore<3, C>) -> Self {
        let node = Peer::new(0, ClockReading::from_micros(START_US));
        Self { model, alone: model.alone(), node, now: START_US }
    }

    fn run(&mut self, words: &[&str]) -> String {
        let reply = self.node.run(words, ClockReading::from_micros(self.now));
        assert!(!reply.starts_with('-'), "{words:?}: {reply}");
        reply
    }

    /// Runs an event on both sides, which have to agree on the reply and on the state afterwards.
    fn step(&mut self, does: Does) {
        let before = self.alone.entries();
        match does {
            // The model leaves the choice of the slot to the node.
            Does::Ask(by) => match self.asks(by, (by as u8).to_string(), "1") {
                Some(slot) => {
                    assert!(self.model.may_give(&self.alone, by, slot), "{does:?}: slot {slot}");
                    let own = before[by].0;
                    assert!(own == 0 || own == slot, "{does:?}: it had slot {own}");
                    self.model.give(&mut self.alone, by, slot);
                }
                None => {
                    let mut slots = 1..=self.model.slots;
                    let may_give = |slot| self.model.may_give(&self.alone, by, slot);
                    assert!(!slots.any(may_give), "{does:?}: a slot is free");
                }
            },
            Does::Move(by, slot) => {
                let real = self.asks(by, (slot - 1).to_string(), "0");
                let is_moved = self.model.moved(&mut self.alone, by, slot);
                assert_eq!(real, is_moved.then_some(slot), "{does:?} on {before:?}");
            }
            Does::Extend(by, slot) => {
                let (ttl, slot_of) = (millis(self.model.extensions[by]), (slot - 1).to_string());
                let keys = ["EVAL", EXTEND_PERMIT.text, "2", "job", ENDS];
                let real = self.run(&[&keys[..], &[&token(by), &ttl, &slot_of]].concat());
                let finds = self.model.extended(&mut self.alone, by, slot);
                assert_eq!(real, format!(":{}\r\n", u8::from(finds)), "{does:?} on {before:?}");
            }
            Does::Undo(by) => {
                let real = self.run(&["EVAL", UNDO_PERMIT.text, "2", "job", ENDS, &token(by)]);
                let was_there = self.model.undone(&mut self.alone, by);
                // An expired entry may still be there or not.
                assert!(!was_there || real == ":1\r\n", "{does:?} on {before:?}: {real}");
            }
            Does::Tick => {
                self.now += TICK_MS * 1_000;
                self.alone.tick();
            }
        }
        assert_eq!(self.there(), self.alone.entries(), "behind {does:?} on {before:?}");
    }

    /// Requests a slot, searching from `first` by `step`, and returns the one given.
    fn asks(&mut self, by: usize, first: String, step: &str) -> Option<u8> {
        let (ttl, slots) = (millis(self.model.ttls[by]), self.model.slots.to_string());
        let keys = ["EVAL", ACQUIRE_PERMIT.text, "2", "job", ENDS];
        let args = [&token(by), &ttl, "1", &slots, &first, step];
        let reply = self.run(&[&keys[..], &args].concat());
        let slot = reply.strip_prefix("+OK ")?.split_whitespace().next().unwrap();
        Some(slot.parse::<u8>().unwrap() + 1)
    }

    fn there(&mut self) -> [(u8, u8); C] {
        std::array::from_fn(|by| {
            let own = token(by);
            let word = |reply: String| reply.lines().nth(1).map(str::to_owned);
            let slot = word(self.run(&["HGET", "job", &own]));
            let end = word(self.run(&["ZSCORE", ENDS, &own]));
            let (Some(slot), Some(end)) = (slot, end) else { return (0, 0) };
            let left = end.parse::<u64>().unwrap().saturating_sub(self.now / 1_000);
            let ticks = u8::try_from(left.div_ceil(TICK_MS)).unwrap();
            if ticks == 0 { (0, 0) } else { (slot.parse::<u8>().unwrap() + 1, ticks) }
        })
    }

    /// Returns the events that may come next.
    fn next(&self) -> Vec<Does> {
        let mut next = vec![Does::Tick];
        for by in 0..C {
            next.extend([Does::Ask(by), Does::Undo(by)]);
            let slots = 1..=self.model.slots;
            next.extend(slots.flat_map(|slot| [Does::Move(by, slot), Does::Extend(by, slot)]));
        }
        next
    }
}

/// Runs every sequence of this many events on a node: the model's `is_free`, `take`,
/// `Extend::ThisSlot` and `Undo::Token`. An entry is never shortened.
#[test]
fn the_scripts_give_move_extend_and_undo_as_the_nodes_of_the_model_do() {
    let three = Semaphore::<3, 3> { ttls: [2, 1, 3], extensions: [1, 3, 1], ..Semaphore::RULES };
    let mut runs = all_runs(three, &mut vec![Does::Ask(0), Does::Ask(1)], 5);
    let two = Semaphore::<3, 2> { slots: 3, ttls: [2, 1], extensions: [1, 3], ..Semaphore::RULES };
    runs += all_runs(two, &mut vec![], 4);
    let one = Semaphore::<3, 2> { slots: 1, ..two };
    runs += all_runs(one, &mut vec![], 5);
    assert!(runs > 60_000, "{runs} runs only");
}

/// Runs these events, and then each continuation.
fn all_runs<const C: usize>(model: Semaphore<3, C>, steps: &mut Vec<Does>, depth: usize) -> usize {
    let mut run = Run::new(model);
    steps.iter().for_each(|&does| run.step(does));
    if steps.len() == depth {
        return 1;
    }
    let mut runs = 1;
    for does in run.next() {
        steps.push(does);
        runs += all_runs(model, steps, depth);
        steps.pop();
    }
    runs
}

#[test]
fn one_server_under_two_names_gives_one_slot() {
    let now = ClockReading::from_micros(0);
    let mut node = Peer::new(0, now);
    let mut ask = |node_digits: &str| {
        let own = format!("{}{node_digits}", "a".repeat(32));
        let keys = ["EVAL", ACQUIRE_PERMIT.text, "2", "job", ENDS];
        node.run(&[&keys[..], &[&own, "2000", "3", "2", "1", "1"]].concat(), now)
    };
    assert_eq!(ask("00"), "+OK 1 0 3\r\n");
    assert_eq!(ask("02"), ":2000\r\n");
}

/// The reply of a node with two slots: full, or the slot that it gave and whether the other one is
/// free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Full,
    Gave { slot: u8, other_is_free: bool },
}

const SAID: [Said; 5] = [
    Said::Full,
    Said::Gave { slot: 1, other_is_free: false },
    Said::Gave { slot: 1, other_is_free: true },
    Said::Gave { slot: 2, other_is_free: false },
    Said::Gave { slot: 2, other_is_free: true },
];

/// Tries every combination of replies that three nodes can give about two slots, and then about a
/// move. The core has a permit exactly when the model's client has one.
#[test]
fn the_core_has_a_permit_whenever_the_model_does() {
    let (mut granted, mut settled) = (0, 0);
    for code in 0..125 {
        let replied = [SAID[code % 5], SAID[code / 5 % 5], SAID[code / 25]];
        for moved in 0..8 {
            match attempt(replied, moved) {
                Came::Granted => granted += 1,
                Came::Settled => settled += 1,
                Came::Refused => {}
            }
        }
    }
    assert!(granted >= 700 && settled >= 140, "{granted} at once, {settled} moved");
}

/// The outcome of an attempt.
enum Came {
    Granted,
    Settled,
    Refused,
}

/// Runs an attempt with these replies. `moved`: the nodes that accept a move, one bit each.
fn attempt(replied: [Said; 3], moved: u8) -> Came {
    let model = Semaphore::<3, 2>::RULES;
    let mut received = model.attempt();
    let (mut bench, id) = asked(2);
    let mut came = None;
    for (node, replied) in replied.into_iter().enumerate() {
        // Once two nodes have decided, the request was undone or is healed.
        if bench.waiting(node) != ["ask"] {
            continue;
        }
        let answer = match replied {
            Said::Full => ":500\r\n".to_owned(),
            Said::Gave { slot, other_is_free } => {
                model.gives(&mut received, node, slot);
                let words = bench.next(node).unwrap();
                let word = |back: usize| String::from_utf8(words[words.len() - back].clone());
                let [first, step]: [u8; 2] =
                    [2, 1].map(|back| word(back).unwrap().parse().unwrap());
                let at = (0..2).find(|at| (first + at * step) % 2 == slot - 1).unwrap();
                let free = if other_is_free { 3 } else { 1 << at };
                format!("+OK {} 0 {free}\r\n", slot - 1)
            }
        };
        bench.answer(node, &answer);
        let has = came_of(&mut bench, id, model.has(&received), &format!("{replied:?}"));
        came = came.or(has);
    }
    if let Some(is_granted) = came {
        let wins = |slot: u8| {
            let may = |replied: &&Said| match **replied {
                Said::Full => false,
                Said::Gave { slot: given, other_is_free } => given == slot || other_is_free,
            };
            replied.iter().filter(may).count() >= 2
        };
        assert!(is_granted || !wins(1) && !wins(2), "{replied:?}: a quorum could give a slot");
        return if is_granted { Came::Granted } else { Came::Refused };
    }
    let moves: Vec<usize> = (0..3).filter(|&node| bench.waiting(node) == ["move"]).collect();
    let slot = wanted(&mut bench, moves[0]) as u8 + 1;
    let reported = model.settles(&mut received, slot);
    assert!(moves.iter().all(|&node| reported[node]), "{replied:?}: {moves:?} to slot {slot}");
    assert_eq!(model.has(&received), None, "{replied:?}: what is moved counts no longer");
    for node in moves {
        if bench.waiting(node) != ["move"] {
            continue;
        }
        assert_eq!(wanted(&mut bench, node) as u8 + 1, slot, "one slot for all");
        match moved >> node & 1 == 1 {
            true => model.gives(&mut received, node, slot),
            false => model.has_not_moved(&mut received, node),
        }
        let answer = if moved >> node & 1 == 1 {
            format!("+OK {}\r\n", slot - 1)
        } else {
            ":300\r\n".to_owned()
        };
        bench.answer(node, &answer);
        came_of(&mut bench, id, model.has(&received), &format!("{replied:?}, moved {moved:b}"));
    }
    Came::Settled
}

/// Compares the core with the model, and returns whether the attempt was granted, if it ended.
fn came_of(bench: &mut Bench, id: LockId, has: Option<u8>, case: &str) -> Option<bool> {
    let slot = bench.core.slot(id).map(|slot| slot as u8 + 1);
    let events = bench.reported();
    let is_refused = events.iter().any(|event| matches!(event, Event::Refused(..)));
    assert!(!is_refused || has.is_none(), "{case}: refused with {has:?}");
    assert_eq!(slot, has, "{case}: {events:?}");
    match events[..] {
        [Event::Granted(_)] => Some(true),
        [Event::Refused(..)] => Some(false),
        _ => None,
    }
}

fn asked(permits: u16) -> (Bench, LockId) {
    let mut bench = warm();
    let request = LockRequest::new(b"job").ttl(Duration::from_secs(10)).permits(permits);
    let id = bench.lock(&request);
    for node in 0..3 {
        assert_eq!(bench.waiting(node), ["ask"]);
    }
    (bench, id)
}

/// Returns a lock for which three nodes gave three slots and have the others free.
fn split() -> (Bench, LockId) {
    let (mut bench, id) = asked(3);
    for node in 0..3 {
        bench.answer(node, &format!("+OK {node} 0 7\r\n"));
    }
    (bench, id)
}

/// Returns the only slot that a node is asked for.
fn wanted(bench: &mut Bench, node: usize) -> u64 {
    let words = bench.next(node).unwrap();
    assert_eq!(bench.waiting(node), ["move"]);
    assert_eq!(words.last().unwrap(), b"0", "the step");
    let slot = String::from_utf8(words[words.len() - 2].clone()).unwrap();
    slot.parse().unwrap()
}

fn token(by: usize) -> String {
    format!("{}00", ["a", "b", "c"][by].repeat(32))
}

/// Returns a little less than this many ticks in milliseconds, so that nothing ends on a tick.
fn millis(ticks: u8) -> String {
    (u64::from(ticks) * (TICK_MS - 1)).to_string()
}

const TICK_MS: u64 = 1_001;
const ENDS: &str = "redbolt:until:job";
const START_US: u64 = 1_767_225_600_000_000;
