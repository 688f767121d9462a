//! Turns in the queue with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::turns::{Grace, Turns};

use self::outcome::{clean, wrong};

const RULES: Turns = Turns::RULES;

const IDLE: &str = "the lock is idle for too long";
const ROBBED: &str = "a head that was on time lost its turn";

/// A trip, a grace and a pause, in ticks.
const TRIP: u8 = RULES.trips[0];
const GRACE: u8 = RULES.graces[0];
const PAUSE: u8 = RULES.pause;
/// The ticks until the third waiter inspects the lock.
const LOOK: u8 = 2 * RULES.looks;

/// Asserts that the lock is idle for up to `most_idle` ticks, and for no fewer.
#[track_caller]
fn idle_at_most(name: &str, most_idle: u8, rules: Turns) {
    clean(&format!("turns, {name}, {most_idle} ticks"), &Turns { most_idle, ..rules });
    let less = most_idle - 1;
    wrong(&format!("turns, {name}, {less} ticks"), &Turns { most_idle: less, ..rules }, IDLE);
}

#[test]
fn a_release_costs_a_trip() {
    idle_at_most("no faults", TRIP, RULES);
}

#[test]
fn a_dead_head_costs_a_grace() {
    idle_at_most("a death", TRIP + GRACE, Turns { deaths: 1, ..RULES });
}

/// No waiter is woken if the first two are dead. The third inspects the lock, calls the first, and
/// retries after the grace of each.
#[test]
fn two_dead_heads_cost_an_inspection_and_two_graces() {
    let rules = Turns { deaths: 2, ..RULES };
    idle_at_most("two deaths", LOOK + TRIP + 2 * GRACE, rules);
}

/// If the third does not inspect the lock, it calls the first at one poll and removes it at the
/// next. If it also leaves retries to the next waiter, it is next itself only then, and retries
/// after the grace of the second.
#[test]
fn two_dead_heads_cost_pauses_if_the_third_does_not_inspect_or_retry() {
    let rules = Turns { deaths: 2, looks: 0, ..RULES };
    idle_at_most("two deaths, nobody looks", PAUSE + 2 * GRACE, rules);
    let next_alone = Turns { next_alone: true, ..rules };
    idle_at_most("two deaths, only who is next asks again", 2 * PAUSE + GRACE, next_alone);
    let next_alone = Turns { next_alone: true, deaths: 2, ..RULES };
    let late = Turns { most_idle: LOOK + TRIP + 2 * GRACE, pause: 20, ..next_alone };
    wrong("turns, two deaths, the third looks once", &late, IDLE);
}

/// A waiter behind a head that was called earlier waits for the rest of that call.
#[test]
fn a_dead_head_costs_one_grace_for_every_caller() {
    let rules = Turns { deaths: 1, give_ups: 1, ..RULES };
    idle_at_most("a death, and one gives up", 2 * TRIP + GRACE, rules);
    let whole = Turns { most_idle: 2 * TRIP + GRACE, reports_rest: false, ..rules };
    wrong("turns, each waits a whole grace", &whole, IDLE);
    // A long grace makes the difference larger.
    let long = Turns { graces: [9; 3], pause: 20, deaths: 1, give_ups: 1, ..RULES };
    idle_at_most("a long grace", 2 * TRIP + 9, long);
    let whole = Turns { reports_rest: false, ..long };
    idle_at_most("each waits a whole long grace", 2 * 9, whole);
}

#[test]
fn a_lost_wake_up_costs_at_most_a_pause() {
    idle_at_most("all unheard", PAUSE, Turns { unheard: 9, ..RULES });
}

#[test]
fn a_remote_head_keeps_its_turn_by_its_own_grace() {
    let remote = Turns { trips: [4, 1, 1], graces: [5, 2, 2], most_idle: 4, pause: 6, ..RULES };
    clean("turns, a remote head", &remote);
    let of_asker = Turns { grace: Grace::OfAsker, ..remote };
    wrong("turns, the asker's grace", &of_asker, ROBBED);
}

#[test]
fn a_stranger_takes_no_turn_away() {
    let rules = Turns { strangers: 2, ..RULES };
    clean("turns, a stranger twice", &rules);
    let kept = Turns { clears: false, ..rules };
    wrong("turns, calls that stay", &kept, ROBBED);
}

#[test]
fn broken_if_the_second_is_not_woken() {
    let rules = Turns { deaths: 1, most_idle: TRIP + GRACE, second_listens: false, ..RULES };
    wrong("turns, the second does not listen", &rules, IDLE);
}

/// A semaphore of three permits.
const PERMITS: Turns = Turns { permits: 3, ..RULES };

#[test]
fn no_permit_is_idle_for_longer_than_a_lock_would_be() {
    idle_at_most("three permits, no faults", TRIP, PERMITS);
    idle_at_most("three permits, a death", TRIP + GRACE, Turns { deaths: 1, ..PERMITS });
    let two = Turns { deaths: 2, ..PERMITS };
    idle_at_most("three permits, two deaths", LOOK + TRIP + 2 * GRACE, two);
    idle_at_most("three permits, all unheard", PAUSE, Turns { unheard: 9, ..PERMITS });
}

#[test]
fn broken_if_a_granted_waiter_wakes_no_other() {
    let rules = Turns { leaving_wakes: false, ..PERMITS };
    wrong("turns, three permits, leaving wakes nobody", &rules, IDLE);
}
