//! The queue of waiters with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::fair_queue::{
    Admits, Closing, Deletes, FairQueue, Faults, FirstAsk, Mode, Order, Placing,
};

use self::outcome::{clean_nearby, progresses, stuck, wrong};

type Two = FairQueue<3, 2>;
type Three = FairQueue<3, 3>;

/// A process that waits, and one that comes twice and could pass it.
const TWO: Two = Two { comes: [1, 2], ..Two::RULES };

/// Three processes on the fewest nodes that are possible.
const THREE: Three = Three { down: 1, ..Three::RULES };

const PASSED: &str = "a newcomer passed";

const NONE: Faults = TWO.faults;
const DEATH: Faults = Faults { deaths: 1, ..NONE };

/// The ways to keep newcomers out.
const FIRST_ASKS: [(&str, FirstAsk); 3] = [
    ("every ask reads the queue", FirstAsk::Script),
    ("a closed key", CLOSED),
    ("a read behind the ask", FirstAsk::ReadBehind),
];

const CLOSED: FirstAsk = FirstAsk::Closed(Closing::ALWAYS);

#[test]
fn no_newcomer_passes_a_known_place_and_all_get_in() {
    for (name, first_ask) in FIRST_ASKS {
        let model = Two { first_ask, down: 1, ..TWO };
        progresses(&format!("queue, once and twice, one down, {name}"), &model);
    }
}

#[test]
fn no_newcomer_passes_after_a_process_dies() {
    for (name, first_ask) in FIRST_ASKS {
        let model = Two { first_ask, down: 1, faults: DEATH, ..TWO };
        progresses(&format!("queue, once and twice, one down, a death, {name}"), &model);
    }
}

/// The queue may be read first, unlike the restart guard: a process that began after the place was
/// known reads after that too.
#[test]
fn the_queue_may_be_read_before_the_ask() {
    let model = Two { first_ask: FirstAsk::ReadBefore, down: 1, faults: DEATH, ..TWO };
    progresses("queue, once and twice, one down, a death, a read before the ask", &model);
}

/// One clock is ahead, so the nodes report the same stamps at once, or do not.
#[test]
fn clocks_may_differ() {
    for clocks in [[3, 3], [3, 1], [1, 3]] {
        let model = Two { clocks, down: 1, ..TWO };
        progresses(&format!("queue, once and twice, one down, clocks {clocks:?}"), &model);
    }
}

#[test]
fn a_try_respects_the_queue() {
    for (name, first_ask) in FIRST_ASKS {
        let waits = [true, true, false];
        let model = Three { first_ask, waits, ..THREE };
        progresses(&format!("queue, two wait and one tries, one down, {name}"), &model);
    }
}

#[test]
fn readers_and_writers_wait_in_one_queue() {
    for (name, first_ask) in FIRST_ASKS {
        let modes = [Mode::Exclusive, Mode::Shared];
        let model = Two { first_ask, modes, comes: [2; 2], down: 1, ..TWO };
        progresses(&format!("queue, a writer and a reader twice, one down, {name}"), &model);
    }
}

/// Released keys are deleted by the server's own command if no process waits in the queue.
const NATIVE: Two = Two { first_ask: CLOSED, deletes: Deletes::Natively, down: 1, ..TWO };

#[test]
fn keys_may_be_deleted_natively() {
    progresses("queue, once and twice, one down, native", &NATIVE);
    let modes = [Mode::Exclusive, Mode::Shared];
    let model = Two { modes, comes: [2; 2], ..NATIVE };
    progresses("queue, a writer and a reader twice, one down, native", &model);
    let model = Two { faults: DEATH, ..NATIVE };
    progresses("queue, once and twice, one down, a death, native", &model);
}

#[test]
fn broken_by_a_native_delete_past_the_mark() {
    let model = Three { first_ask: CLOSED, deletes: Deletes::PastTheMark, ..THREE };
    wrong("queue, native past the mark", &model, PASSED);
}

#[test]
fn broken_by_a_native_delete_that_no_script_follows() {
    stuck("queue, native without the script", &Two { deletes: Deletes::Once, ..NATIVE });
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn all_three_nodes() {
    for (name, first_ask) in FIRST_ASKS {
        progresses(&format!("queue, two once, {name}"), &Two { first_ask, ..Two::RULES });
        progresses(&format!("queue, once and twice, {name}"), &Two { first_ask, ..TWO });
        let model = Two { first_ask, faults: DEATH, ..Two::RULES };
        progresses(&format!("queue, two once, a death, {name}"), &model);
    }
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn three_processes() {
    for (name, first_ask) in FIRST_ASKS {
        progresses(&format!("queue, three once, one down, {name}"), &Three { first_ask, ..THREE });
    }
}

const A_READER: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn two_come_twice_each_to_two_nodes() {
    for (name, first_ask) in FIRST_ASKS {
        let model = Two { first_ask, comes: [2; 2], down: 1, ..Two::RULES };
        progresses(&format!("queue, two twice, one down, {name}"), &model);
    }
}

/// These need up to 14 GB.
#[test]
#[ignore = "half an hour: cargo xtask models --all"]
fn two_come_twice_each_to_three_nodes() {
    for (what, modes) in [("two", TWO.modes), ("a writer and a reader", A_READER)] {
        let model = |first_ask| Two { first_ask, modes, comes: [2; 2], ..Two::RULES };
        for (name, first_ask) in FIRST_ASKS {
            progresses(&format!("queue, {what} twice, {name}"), &model(first_ask));
        }
        let kept = Two { leaves_at_once: false, ..model(FirstAsk::Script) };
        let name = format!("queue, {what} twice, tickets kept to the release");
        clean_nearby(&name, 10_000_000, &kept);
    }
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn a_writer_and_two_readers() {
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Shared];
    for (name, first_ask) in FIRST_ASKS {
        let model = Three { first_ask, modes, ..THREE };
        progresses(&format!("queue, a writer and two readers, one down, {name}"), &model);
    }
}

#[test]
#[ignore = "many minutes: cargo xtask models --all"]
fn three_of_which_one_comes_twice() {
    for (name, first_ask) in FIRST_ASKS {
        let model = Three { first_ask, comes: [1, 1, 2], ..THREE };
        progresses(&format!("queue, two once and one twice, one down, {name}"), &model);
    }
}

/// These have more states than fit.
#[test]
#[ignore = "many minutes: cargo xtask models --all"]
fn three_processes_on_three_nodes() {
    for (name, first_ask) in FIRST_ASKS {
        let model = Three { first_ask, ..Three::RULES };
        clean_nearby(&format!("queue, three once, {name}"), 20_000_000, &model);
    }
}

#[test]
fn three_processes_on_three_nodes_to_begin_with() {
    for (name, first_ask) in FIRST_ASKS {
        let model = Three { first_ask, ..Three::RULES };
        clean_nearby(&format!("queue, three once, {name}"), 100_000, &model);
    }
}

/// Two permits on each node. The holder of the second one comes and leaves.
const PERMITS: Three = Three { permits: 2, ..THREE };

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn a_semaphore_lets_the_head_in() {
    progresses("queue, two permits, three once, one down", &PERMITS);
}

#[test]
fn broken_by_a_semaphore_that_lets_in_while_slots_are_free() {
    let model = Three { admits: Admits::WhileFree, comes: [1, 1, 2], ..PERMITS };
    wrong("queue, two permits, in while free", &model, PASSED);
}

#[test]
fn broken_by_a_plain_ask() {
    wrong("queue, a plain first ask", &Two { first_ask: FirstAsk::Open, down: 1, ..TWO }, PASSED);
}

#[test]
fn broken_by_a_key_that_is_not_closed() {
    for (name, closing, faults) in [
        ("release", Closing { release: false, ..Closing::ALWAYS }, NONE),
        ("undo", Closing { undo: false, ..Closing::ALWAYS }, NONE),
        ("ask", Closing { ask: false, ..Closing::ALWAYS }, DEATH),
        ("expiry", Closing { expiry: false, ..Closing::ALWAYS }, DEATH),
        ("ending", Closing { lasts: false, ..Closing::ALWAYS }, NONE),
    ] {
        let first_ask = FirstAsk::Closed(closing);
        let model = Three { first_ask, faults, ..THREE };
        wrong(&format!("queue, closed but for {name}"), &model, PASSED);
    }
}

#[test]
fn broken_by_an_order_of_each_node() {
    stuck("queue, each node's own order", &Two { order: Order::EachNode, down: 1, ..TWO });
}

#[test]
fn broken_by_clocks_as_stamps() {
    let clocks = [2, 1];
    wrong("queue, clocks as stamps", &Two { order: Order::Clocks, clocks, ..TWO }, PASSED);
}

#[test]
fn broken_by_a_stamp_that_is_raised_once_the_place_is_known() {
    let order = Order::RaisedWithPlace;
    wrong("queue, T raised once the place is known", &Two { order, ..TWO }, PASSED);
}

#[test]
fn broken_by_a_stamp_that_is_sent_before_a_quorum() {
    wrong("queue, T before a quorum", &Two { order: Order::BeforeQuorum, ..TWO }, PASSED);
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn broken_by_a_stamp_that_is_lowered() {
    wrong("queue, T lowered", &Two { order: Order::Lowered, ..TWO }, PASSED);
}

#[test]
fn broken_by_a_ticket_that_goes_with_a_grant() {
    wrong("queue, ticket dropped by a grant", &Two { keeps_ticket: false, ..TWO }, PASSED);
}

#[test]
fn broken_if_a_grant_comes_before_the_raise() {
    let placing = Placing::RaisesWhereDenied;
    stuck("queue, T raises where it denies only", &Two { placing, down: 1, ..TWO });
}

#[test]
fn broken_if_a_grant_does_not_report_the_stamp() {
    stuck("queue, a grant tells no stamp", &Two { grant_reports: false, down: 1, ..TWO });
}

/// After the head is skipped, a request without T writes a ticket behind T, which stays there.
#[test]
fn broken_by_a_stamp_that_only_raises_where_tickets_are_lost() {
    let placing = Placing::Raises;
    progresses("queue, T raises", &Two { placing, down: 1, ..TWO });
    let faults = Faults { skips: 1, ..NONE };
    let model = Two { placing, faults, promises: false, down: 1, ..TWO };
    stuck("queue, T raises, a skip", &model);
}

/// A grace and a node that loses its queue may cost a place.
#[test]
fn a_skip_and_a_lost_queue_cost_places() {
    for (name, faults) in PLACES_LOST {
        wrong(&format!("queue, a {name}"), &Two { faults, ..TWO }, PASSED);
    }
}

/// They never cost exclusion or progress.
#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn a_skip_and_a_lost_queue_cost_nothing_else() {
    for (name, faults) in PLACES_LOST {
        let model = Two { promises: false, faults, down: 1, ..TWO };
        progresses(&format!("queue, a {name}, without the promise"), &model);
    }
}

const PLACES_LOST: [(&str, Faults); 2] =
    [("skip", Faults { skips: 1, ..NONE }), ("loss", Faults { losses: 1, ..NONE })];
