//! The simulator under `cargo test`: a few schedules of each class, without optimisation.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redbolt_sim::{Class, Cut, Lab, Outcome, Plan, Totals, hunt, run};

fn totals(class: Class, seeds: std::ops::Range<u64>) -> Totals {
    let mut lab = Lab::new();
    let mut totals = Totals::default();
    for seed in seeds {
        let outcome = lab.run(class, seed);
        let found = outcome.violation.as_ref().map(ToString::to_string);
        assert_eq!(found, None, "cargo xtask sim --class {class} --replay {seed}");
        totals.count(seed, &outcome);
    }
    totals
}

#[test]
fn safe_schedules_have_no_violation() {
    let totals = totals(Class::Safe, 1_000_000..1_000_400);
    assert!(totals.grants > 400 && totals.refusals > 100 && totals.losses > 10, "{totals:?}");
    assert_eq!(totals.expected, 0);
}

#[test]
fn schedules_with_shared_locks_have_no_violation() {
    let totals = totals(Class::Shared, 1_000_000..1_000_400);
    assert!(totals.grants > 600 && totals.fenced > 50 && totals.losses > 10, "{totals:?}");
    assert_eq!(totals.expected, 0);
}

/// Schedules that found a bug once. A change of the generator changes what these seeds mean, so
/// they may no longer reach that bug. Therefore each bug also has a test in `tests/core`.
#[test]
fn schedules_that_found_a_bug_find_none_again() {
    let mut lab = Lab::new();
    for (class, seed) in FOUND {
        let found = lab.run(class, seed).violation.map(|violation| violation.to_string());
        assert_eq!(found, None, "cargo xtask sim --class {class} --replay {seed}");
    }
}

const FOUND: [(Class, u64); 48] = [
    // A lock that came back after nodes had forbidden the queue was judged by its former place.
    (Class::Safe, 477_724_493_642),
    // A waiter listened to a node that a dead holder had for a moment longer (ticket/mod.rs).
    (Class::Waiting, 7_780_975_117_879),
    // A job that started again was judged by the ticket of its former lock.
    (Class::Shared, 10_844_862_776_427),
    // A waiter subscribed to a node that an attempt of a client without another node had won alone
    // (core/fair_queue.rs).
    (Class::Waiting, 9_893_743_659_836),
    // A client waited in each attempt for a node that it had never reached, and missed its turn
    // (core/hang.rs).
    (Class::Waiting, 10_105_733_510_046),
    // A process that had left a turn to others did not notice that one of them had come a moment
    // too late (core/wait_queue.rs).
    (Class::Waiting, 11_605_096_918_059),
    // The head had stopped, and gave up within its grace: those behind it were judged by their own.
    (Class::Permits, 58_000_000_419_080),
    // A reply from before a machine stopped with its clock was taken for that to a later question
    // (core/restart_guard/watch.rs).
    (Class::Safe, 57_000_002_199_376),
    // A reader that died next to others that had released kept a writer waiting for a pause
    // (core/fair_queue.rs).
    (Class::Waiting, 52_000_000_000_987),
    // A reader that became the head of the queue considered itself blocked by the other readers
    // (core/fair_queue.rs).
    (Class::Waiting, 52_000_000_058_458),
    // A lease exceeded the longest hold: a node had got an extension late when its holder became a
    // reader.
    (Class::Shared, 19_000_545_977),
    // A grant did not count because its node did not vote any more; it was taken for a refusal, and
    // not undone.
    (Class::Shared, 4_452_995_813_194),
    // A request was delayed until its node had been a replica, directly behind one that was not
    // (core/history.rs).
    (Class::Shared, 1_669_163_114_479),
    // A late grant whose undo was confirmed before the proof behind it.
    (Class::Safe, 18_000_018_665),
    // A process waits for a permit, and extends another one of the same resource.
    (Class::Permits, 14_000_026_478),
    // A request by a clock that is faster than the node's came within the grace of the called
    // waiter, and cost another grace.
    (Class::Permits, 16_068),
    // A handshake took so long that the node was a replica between two of its commands.
    (Class::Profiles, 12_141_802_701_960),
    // A machine that stopped for a moment, with its clock, while a node was a replica.
    (Class::Safe, 6_293_657_968_769),
    // A second undo that fell due while its lock was held (core/owed.rs).
    (Class::Safe, 9_200_030_994),
    (Class::Safe, 9_400_490_500),
    (Class::Safe, 9_500_270_670),
    // Requests that piled up at a hanging node, and all ran there at once.
    (Class::Safe, 9_100_173_786),
    // A client whose clock agrees with one of two nodes (core/fence.rs).
    (Class::Safe, 9_300_900_541),
    // A node that is found to have lost its memory when only it and one with a wild clock are left.
    (Class::Safe, 21_000_782_537),
    // No client can be granted the lock until an operator helps, and the bound of the wait had
    // grown with that.
    (Class::Safe, 22_001_943_749),
    // A node is suspected while a token is written back to another node (core/fence.rs).
    (Class::Safe, 24_000_233_988),
    // A late denial was taken for the answer to an extension (core/holding.rs).
    (Class::Safe, 25_000_067_852),
    // A reply behind garbage, which no client can understand.
    (Class::Safe, 25_000_817_030),
    // A lock that was detached by a client whose addresses led to other servers.
    (Class::Safe, 28_000_337_377),
    (Class::Safe, 28_001_003_376),
    // The client that detached a lock reads the reply to its own extension.
    (Class::Safe, 7_625_579_813_928),
    // A server with a wild clock that also answered at another server's address (core/fence.rs).
    (Class::Safe, 60_017_955_556),
    // An unsolicited reply behind an empty piece answered a request that was sent meanwhile.
    (Class::Safe, 60_023_344_104),
    // Waiters deny each other the one node that the holder does not have (unit tests of
    // waiting/pause.rs).
    (Class::Waiting, 70_010_042_056),
    // A node that came back with an earlier memory shows an odd counter from then (fence.rs).
    (Class::Shared, 21_634),
    // One server grants two readers, which are one client that asks it as two nodes (script.rs).
    (Class::Shared, 87_552),
    // A refused upgrade hands on what it gave back, to a lock that was not inspected.
    (Class::Shared, 7_003_497),
    // An upgrade was held for longer than a lock may be (core/mode_change.rs).
    (Class::Shared, 500_001_263),
    // A forbidden SET left a mark that ended before its key (it/fair_queue.rs).
    (Class::Permits, 3_020_493_830_808),
    // The second waiter inspected a free resource after each request, and requested again
    // (core/fair_queue.rs).
    (Class::Safe, 3_020_493_982_920),
    (Class::Safe, 81_805),
    (Class::Shared, 3_020_493_879_907),
    // Two that joined the queue at once each took the other for the head (core/fair_queue.rs).
    (Class::Waiting, 720_003_848),
    // A node that is free, but has another waiter in front, was not among those whose end a pause
    // waits for.
    (Class::Waiting, 9_100_000_115_712),
    // The third in the queue, behind a ticket whose key was missing, requested once in a
    // millisecond.
    (Class::Shared, 4_781_457_799_618),
    // The first of two, behind a ticket whose key was missing: it was twice on one server, under
    // its name for another node.
    (Class::Safe, 20_000_001_713_189),
    // A second slot was free behind a head that did not come, and the first slot had been left to
    // the head.
    (Class::Permits, 12_271_845_782_311),
    // A fault of the checker: a request ran behind the undo of a detached lock, and was answered
    // with an error.
    (Class::Safe, 31_003_000_522_476),
];

/// The positive control: where exclusion cannot hold, the checker reports violations.
#[test]
fn broken_assumptions_break_exclusion() {
    for class in [Class::ClockStep, Class::MemoryLossUnguarded] {
        let totals = totals(class, 0..100);
        assert!(totals.expected > 0, "{class}: {totals:?}");
    }
}

/// The clock of one node is enough if the holder has a bare quorum.
#[test]
fn one_clock_set_forward_breaks_exclusion() {
    let mut lab = Lab::new();
    let mut totals = Totals::default();
    for seed in 0..400 {
        let plan = Plan::draw(Class::ClockStep, seed);
        if plan.to_string().matches("StepNode { back: false }").count() == 1 {
            let outcome = lab.run_plan(&plan);
            assert_eq!(
                outcome.violation, None,
                "cargo xtask sim --class clock-step --replay {seed}"
            );
            totals.count(seed, &outcome);
        }
    }
    assert!(totals.expected > 0, "{totals:?}");
}

/// Fencing contains what clock steps break: the fenced register refuses what the unfenced one
/// takes.
#[test]
fn fencing_contains_a_clock_step() {
    let totals = totals(Class::ClockStep, 500..650);
    assert!(totals.fenced > 0 && totals.writes_refused > 0 && totals.stale_writes > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut used = Lab::new();
    for seed in 0..30 {
        let class = Class::ALL[seed as usize % Class::ALL.len()];
        let once = used.run(class, seed);
        assert_eq!(run(class, seed), once, "{class} {seed}");
    }
    let hashes: std::collections::BTreeSet<_> =
        (0..30).map(|seed| used.run(Class::Safe, seed).hash).collect();
    assert_eq!(hashes.len(), 30, "different seeds give different traces");
}

#[test]
fn a_plan_replays_like_its_seed_and_can_be_cut() {
    let mut lab = Lab::new();
    let plan = Plan::draw(Class::Safe, 7);
    let whole: Outcome = lab.run(Class::Safe, 7);
    assert_eq!(lab.run_plan(&plan), whole);
    assert_eq!(lab.run_plan(&plan.clone().without(&Cut::default())), whole);
    let cut: Cut = "c0,c1,c2,calm".parse().unwrap();
    assert!(lab.run_plan(&plan.without(&cut)).events < whole.events);
    assert!("x1".parse::<Cut>().is_err() && "f".parse::<Cut>().is_err());
}

#[test]
fn a_search_without_a_violation_ends() {
    assert_eq!(hunt(Class::Safe, 2_000_000, 20), None);
}
