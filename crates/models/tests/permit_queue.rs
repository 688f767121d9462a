//! Permits in the queue with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::permit_queue::{Admits, Keeps, Moves, Permit, PermitQueue, Promise};

use self::outcome::{both_progress, progresses, stuck, wrong};

/// Two nodes; the third is down.
type Two = PermitQueue<2, 2>;
type Three = PermitQueue<2, 3>;

const ONE_PERMIT: Two = Two { permits: 1, comes: [1, 2], promise: Promise::OfLock, ..Two::RULES };
const THREE: Three = Three::RULES;

/// One of the processes is exclusive.
const ALONE: Two = Two { alone: [true, false], comes: [1, 2], ..Two::RULES };

const PASSED: &str = "a newcomer passed";
const SAME: &str = "two permits with one slot";
const MORE: &str = "more permits than slots";

#[test]
fn one_permit_is_as_a_lock() {
    progresses("permit queue, one permit, once and twice", &ONE_PERMIT);
    progresses(
        "permit queue, one permit, once and twice, a death",
        &Two { deaths: 1, ..ONE_PERMIT },
    );
}

#[test]
fn no_two_have_one_slot_and_all_get_in_also_while_holders_stay() {
    let stay = Three { releases: false, ..THREE };
    both_progress(["permit queue, three", "permit queue, three, holders stay"], [&THREE, &stay]);
}

#[test]
fn a_process_that_only_tries_passes_no_waiter() {
    let model = Three { waits: [true, true, false], ..THREE };
    progresses("permit queue, two wait and one tries", &model);
}

#[test]
fn an_exclusive_waiter_is_not_passed_and_passes_no_waiter() {
    progresses("permit queue, one alone, and one twice", &ALONE);
    progresses("permit queue, one alone, and one twice, a death", &Two { deaths: 1, ..ALONE });
}

#[test]
fn no_permit_stays_free_while_a_process_waits() {
    let model = Two { releases: false, deaths: 1, comes: [2, 1], ..Two::RULES };
    progresses("permit queue, twice and once, holders stay, a death", &model);
}

#[test]
fn holders_heal_the_third_node() {
    let nodes = PermitQueue::<3, 2> { heals: true, ..PermitQueue::RULES };
    progresses("permit queue, three nodes, two heal", &nodes);
    let one = PermitQueue { permits: 1, promise: Promise::OfLock, ..nodes };
    progresses("permit queue, three nodes, one permit, two heal", &one);
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn three_with_a_death_and_one_of_them_alone() {
    progresses("permit queue, three, a death", &Three { deaths: 1, ..THREE });
    let alone = [true, false, false];
    progresses("permit queue, one alone and two", &Three { alone, ..THREE });
}

#[test]
fn broken_by_a_mark_that_is_left_out() {
    let keeps = Keeps::OnceClosed;
    let waits = [true, true, false];
    wrong("permit queue, no mark", &Three { keeps, waits, ..THREE }, PASSED);
}

#[test]
fn broken_by_a_key_that_is_not_closed() {
    wrong(
        "permit queue, not closed",
        &Three { keeps: Keeps::WhileHeld, waits: [true, true, false], ..THREE },
        PASSED,
    );
}

#[test]
fn broken_by_permits_that_pass_an_exclusive_waiter() {
    wrong("permit queue, behind anybody", &Two { admits: Admits::BehindAnybody, ..ALONE }, PASSED);
}

#[test]
fn broken_by_a_slot_for_every_request() {
    wrong(
        "permit queue, one permit, for anybody",
        &Two { admits: Admits::Anybody, ..ONE_PERMIT },
        PASSED,
    );
}

#[test]
fn a_queue_for_several_permits_does_not_keep_the_promise_of_a_lock() {
    wrong(
        "permit queue, the promise of a lock",
        &Three { promise: Promise::OfLock, ..THREE },
        PASSED,
    );
}

#[test]
fn broken_by_nodes_that_count_permits_separately() {
    let model = PermitQueue::<3, 3> { permit: Permit::AnySlots, ..PermitQueue::RULES };
    wrong("permit queue, three nodes, any slots", &model, MORE);
}

#[test]
fn broken_by_an_answer_that_counts_after_its_move() {
    wrong(
        "permit queue, an answer counts after its move",
        &Three { moves: Moves::KeepAnswer, ..THREE },
        SAME,
    );
}

#[test]
fn broken_by_an_attempt_that_is_not_undone() {
    stuck("permit queue, no undo", &Two { undoes: false, permits: 1, ..Two::RULES });
}

#[test]
fn broken_by_a_holder_that_stays_in_the_queue() {
    let model = Two { leaves_at_once: false, releases: false, ..Two::RULES };
    stuck("permit queue, holders stay in the queue", &model);
}
