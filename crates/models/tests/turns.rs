//! The turns of a queue with the rules as they are meant, and with each rule broken.

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
/// Until the third looks.
const LOOK: u8 = 2 * RULES.looks;

/// Clean for this long, and not for a tick less.
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

/// Nobody is woken where the first two are dead. Whoever comes third looks, calls the first, and asks again when each has had its
/// grace.
#[test]
fn two_dead_heads_cost_a_look_and_two_graces() {
    let rules = Turns { deaths: 2, ..RULES };
    idle_at_most("two deaths", LOOK + TRIP + 2 * GRACE, rules);
}

/// Then it has called the first at one poll, and removes it at the next; then it is next itself, and asks again as soon as the
/// second has had its grace.
#[test]
fn two_dead_heads_cost_pauses_if_the_third_does_not_look_or_leaves_the_calls_to_the_second() {
    let rules = Turns { deaths: 2, looks: 0, ..RULES };
    idle_at_most("two deaths, nobody looks", PAUSE + 2 * GRACE, rules);
    let next_alone = Turns { next_alone: true, ..rules };
    idle_at_most("two deaths, only who is next asks again", 2 * PAUSE + GRACE, next_alone);
    let next_alone = Turns { next_alone: true, deaths: 2, ..RULES };
    let late = Turns { most_idle: LOOK + TRIP + 2 * GRACE, pause: 20, ..next_alone };
    wrong("turns, two deaths, the third looks once", &late, IDLE);
}

/// Whoever comes behind a head that somebody else has called waits for what is left of that.
#[test]
fn a_dead_head_costs_one_grace_whoever_has_called_it() {
    let rules = Turns { deaths: 1, give_ups: 1, ..RULES };
    idle_at_most("a death, and one gives up", 2 * TRIP + GRACE, rules);
    let whole = Turns { most_idle: 2 * TRIP + GRACE, reports_rest: false, ..rules };
    wrong("turns, each waits a whole grace", &whole, IDLE);
    // The longer the grace, the more of it.
    let long = Turns { graces: [9; 3], pause: 20, deaths: 1, give_ups: 1, ..RULES };
    idle_at_most("a long grace", 2 * TRIP + 9, long);
    let whole = Turns { reports_rest: false, ..long };
    idle_at_most("each waits a whole long grace", 2 * 9, whole);
}

#[test]
fn a_lost_wake_up_costs_a_pause_at_the_most() {
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
fn broken_if_the_second_does_not_listen() {
    let rules = Turns { deaths: 1, most_idle: TRIP + GRACE, second_listens: false, ..RULES };
    wrong("turns, the second does not listen", &rules, IDLE);
}

/// Of three permits.
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
fn broken_if_who_is_let_in_wakes_nobody() {
    let rules = Turns { leaving_wakes: false, ..PERMITS };
    wrong("turns, three permits, leaving wakes nobody", &rules, IDLE);
}
