//! Which slots make a permit, what a move does to the answer before it, and what a heal is worth.

use std::time::Duration;

use redbolt::proto::script::{ACQUIRE_PERMIT, EXTEND_PERMIT, UNDO_PERMIT};
use redbolt::proto::{Event, LockId, LockRequest, RefusalReason, Vote};
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;

use crate::bench::{Bench, warm};

/// The model's `Permit::SameSlot`.
#[test]
fn the_core_holds_a_permit_where_a_quorum_gave_one_slot() {
    let (mut bench, id) = asked(3);
    bench.answer(0, "+OK 0 0 7\r\n");
    bench.answer(1, "+OK 1 0 7\r\n");
    assert_eq!(bench.told(), [], "two slots are no permit, and a third answer is to come");
    bench.answer(2, "+OK 1 0 7\r\n");
    assert_eq!(bench.told(), [Event::Granted(id)]);
    assert_eq!(bench.core.slot(id), Some(1));
    assert_eq!(bench.core.votes(id).of(bench.node(0)), Some(Vote::Deny));
    assert_eq!(wanted(&mut bench, 0), 1, "it is healed");
}

/// The model's `Moves::EndAnswer`.
#[test]
fn the_core_counts_no_answer_from_before_a_move() {
    let (mut bench, id) = split();
    assert_eq!(bench.told(), [], "what two nodes gave before they were moved is nothing");
    let moved: Vec<usize> = (0..3).filter(|&node| bench.waiting(node) == ["move"]).collect();
    assert_eq!(moved.len(), 2, "the third has the slot");
    let slot = wanted(&mut bench, moved[0]);
    assert_eq!(wanted(&mut bench, moved[1]), slot);
    bench.answer(moved[0], &format!("+OK {slot}\r\n"));
    assert_eq!(bench.told(), [Event::Granted(id)]);
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
    let told = bench.told();
    assert!(told.len() == 1 && is_contended(&told[0]), "{id:?}: {told:?}");
    for node in 0..3 {
        assert_eq!(bench.waiting(node), ["undo"], "also where it gave another slot");
    }
}

/// Two slots of which nodes have nothing else free.
#[test]
fn the_core_asks_for_no_slot_that_no_quorum_can_give() {
    let (mut bench, _) = asked(3);
    bench.answer(0, "+OK 0 0 0\r\n");
    bench.answer(1, "+OK 1 0 0\r\n");
    bench.answer(2, ":500\r\n");
    assert!(matches!(bench.told()[..], [Event::Refused(..)]));
    assert_eq!(bench.waiting(0), ["undo"]);
}

/// The model's `Heal::Guarded`: a heal is a grant only under the restart guard, and then as any other.
#[test]
fn the_core_counts_a_healed_node_only_under_its_restart_guard() {
    for (answer, counts) in [("+OK 1\r\n", true), ("+GUARD -2\r\n", false), (":400\r\n", false)] {
        let (mut bench, id) = asked(3);
        for (node, slot) in [(0, 0), (1, 1), (2, 1)] {
            bench.answer(node, &format!("+OK {slot} 0 7\r\n"));
        }
        assert_eq!(bench.told(), [Event::Granted(id)]);
        bench.answer(0, answer);
        let now = bench.now;
        bench.core.extend(id, Duration::from_secs(20), now).unwrap();
        bench.answer(1, ":1\r\n");
        assert_eq!(bench.told(), [], "one node is no quorum");
        while let Some(words) = bench.next(0) {
            let is_extend =
                redbolt_testkit::Command::new(&words).kind == redbolt_testkit::Kind::Extend;
            bench.answer(0, if is_extend { ":1\r\n" } else { ":0\r\n" });
        }
        let extended = bench.told().contains(&Event::Extended(id));
        assert_eq!(extended, counts, "{answer}");
    }
}

/// A slot that is taken is asked for again after 2, 4 and 6 round trips, and an extension asks for none.
#[test]
fn the_core_heals_a_few_times_and_never_with_an_extension() {
    let (mut bench, id) = asked(3);
    bench.answer(0, ":400\r\n");
    bench.wait(Duration::from_millis(10));
    bench.answer(1, "+OK 1 0 7\r\n");
    bench.answer(2, "+OK 1 0 7\r\n");
    assert_eq!(bench.told(), [Event::Granted(id)]);
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

/// The model's `Extend::ThisSlot` and `Undo::Token`; and an entry is never shortened.
#[test]
fn the_scripts_do_what_the_nodes_of_the_model_do() {
    let now = ClockReading::from_micros(0);
    let mut node = Peer::new(0, now);
    let mut run = |words: &[&str]| node.run(words, now);
    let ask = |token, ttl, first, step| {
        vec!["EVAL", ACQUIRE_PERMIT, "2", "s", "ends", token, ttl, "3", "2", first, step]
    };
    let (a, b) = ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb01");
    let twin = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa02";
    assert_eq!(run(&ask(a, "2000", "1", "1")), "+OK 1 0 3\r\n");
    assert_eq!(
        run(&ask(twin, "2000", "1", "1")),
        ":2000\r\n",
        "one client, two names of one server"
    );
    assert_eq!(run(&ask(b, "3000", "1", "1")), "+OK 0 0 2\r\n");
    let extend = |token, slot| vec!["EVAL", EXTEND_PERMIT, "2", "s", "ends", token, "9000", slot];
    assert_eq!(run(&extend(a, "0")), ":0\r\n", "that is another's");
    assert_eq!(run(&ask(a, "1000", "0", "0")), ":3000\r\n", "the slot is taken");
    assert_eq!(run(&extend(a, "1")), ":0\r\n", "and the one before is given up");
    assert_eq!(run(&ask(b, "1000", "1", "0")), "+OK 1\r\n", "so that it is free");
    assert_eq!(run(&["PTTL", "s"]), ":3000\r\n", "an entry is never shortened");
    assert_eq!(run(&["EVAL", UNDO_PERMIT, "2", "s", "ends", a]), ":0\r\n");
    assert_eq!(run(&extend(b, "1")), ":1\r\n");
    assert_eq!(run(&["EVAL", UNDO_PERMIT, "2", "s", "ends", b]), ":1\r\n");
    assert_eq!((run(&["PTTL", "s"]), run(&["PTTL", "ends"])), (":-2\r\n".into(), ":-2\r\n".into()));
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

/// Three nodes gave three slots, and have the others free.
fn split() -> (Bench, LockId) {
    let (mut bench, id) = asked(3);
    for node in 0..3 {
        bench.answer(node, &format!("+OK {node} 0 7\r\n"));
    }
    (bench, id)
}

/// The slot that a node is asked for, and no other.
fn wanted(bench: &mut Bench, node: usize) -> u64 {
    let words = bench.next(node).unwrap();
    assert_eq!(bench.waiting(node), ["move"]);
    assert_eq!(words.last().unwrap(), b"0", "the step");
    let slot = String::from_utf8(words[words.len() - 2].clone()).unwrap();
    slot.parse().unwrap()
}
