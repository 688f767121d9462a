//! The restart guard with the library's rules, and with each rule broken. Numbers in brackets are
//! rows of the restart guard's first study.

mod outcome;

use redbolt::proto::RestartTrust;
use redbolt_models::restart_guard::{Check, Enrolment, Extend, Faults, Guarded, RestartGuards};

const RULES: Guarded = Guarded::RULES;

const NONE: Faults = Faults::NONE;
const LOST: Faults = Faults { lost: 1, ..NONE };
const STALE: Faults = Faults { stale: 1, ..NONE };
const FLUSH: Faults = Faults { flushes: 1, ..NONE };
const STEP: Faults = Faults { steps: 1, ..LOST };

/// Each of these faults once, in any order and on any nodes.
const EACH: Faults = Faults { lost: 1, kept: 1, stale: 1, flushes: 1, ..NONE };

fn clean(name: &str, rules: Guarded) {
    outcome::clean(&format!("guard, {name}"), &RestartGuards::<3>::new(rules));
}

fn broken(name: &str, rules: Guarded) {
    outcome::wrong(
        &format!("guard, {name}"),
        &RestartGuards::<3>::new(rules),
        "two holders at once",
    );
}

#[test]
fn with_nothing_left_out_it_survives_a_loss() {
    clean("lost, nothing left out", Guarded { faults: LOST, lean: false, ..RULES });
}

#[test]
fn with_nothing_left_out_it_survives_a_flush() {
    clean("flushed, nothing left out", Guarded { faults: FLUSH, lean: false, ..RULES });
}

#[test]
fn it_survives_each_fault_once() {
    clean("each fault once (35)", Guarded { faults: EACH, ..RULES });
}

#[test]
fn five_nodes_survive_them_too() {
    let rules = Guarded { faults: Faults { stale: 0, ..EACH }, ..RULES };
    outcome::clean("guard, five nodes, lost, kept and flushed", &RestartGuards::<5>::new(rules));
}

#[test]
fn it_survives_faults_that_come_twice() {
    let twice = Faults { lost: 2, flushes: 2, ..NONE };
    clean("lost and flushed twice (36)", Guarded { faults: twice, ..RULES });
    clean("lost and flushed twice, 3 ticks (40)", Guarded { faults: twice, ttl: 3, ..RULES });
    let saves = Faults { stale: 2, saves: 1, ..LOST };
    clean("stale twice, saved between", Guarded { faults: saves, ..RULES });
}

#[test]
fn it_survives_second_attempts() {
    let faults = Faults { lost: 2, ..FLUSH };
    clean("lost twice, three attempts (41)", Guarded { faults, attempts: 3, ..RULES });
}

#[test]
fn an_extension_counts_where_the_grant_counted() {
    let extend = Some(Extend::WhereGranted);
    let faults = Faults { cuts: 1, ..FLUSH };
    clean("extension, flushed and cut (50)", Guarded { extend, faults, ..RULES });
    clean(
        "extension, lost and flushed (50)",
        Guarded { extend, faults: Faults { lost: 1, ..FLUSH }, ..RULES },
    );
}

/// With an operator's setting that nothing is ever lost, a restart costs nothing, and a missing
/// restart guard still costs a quarantine.
#[test]
fn durable_nodes_keep_their_restart_guard() {
    let faults = Faults { kept: 2, lost: 1, flushes: 1, ..NONE };
    clean(
        "durable, kept twice (47)",
        Guarded { restart_trust: RestartTrust::Durable, faults, ..RULES },
    );
}

#[test]
fn the_value_may_be_read_behind_the_set_too() {
    let faults = Faults { stale: 1, ..FLUSH };
    clean("TTL and value behind (59)", Guarded { check: Check::BothBehind, faults, ..RULES });
}

/// A node that becomes a replica and is promoted again keeps its run and its connections.
#[test]
fn it_survives_nodes_that_were_replicas() {
    let check = Check::HistoryBehind;
    let each = Faults { follows: 1, returns: 1, ..NONE };
    clean("was a replica, of either", Guarded { check, faults: each, ..RULES });
    let returns = Faults { returns: 2, saves: 1, ..NONE };
    clean("was a replica of its replica twice", Guarded { check, faults: returns, ..RULES });
    let with_others = Faults { follows: 1, lost: 1, flushes: 1, ..NONE };
    clean("was a replica, lost and flushed", Guarded { check, faults: with_others, ..RULES });
}

#[test]
fn an_extension_survives_nodes_that_were_replicas() {
    let extend = Some(Extend::WhereGranted);
    let faults = Faults { follows: 1, returns: 1, ..NONE };
    let rules = Guarded { check: Check::HistoryBehind, extend, faults, ..RULES };
    clean("extension, was a replica of either", rules);
}

/// A former rule of the library: the value names only the run, and only the TTL is read behind the
/// SET.
#[test]
fn broken_by_a_node_that_was_a_replica() {
    for faults in [Faults { follows: 1, ..NONE }, Faults { returns: 1, ..NONE }] {
        broken("was a replica, TTL behind", Guarded { faults, ..RULES });
        let check = Check::HistoryBefore;
        broken("was a replica, history before the SET", Guarded { check, faults, ..RULES });
    }
    let (check, faults) = (Check::HistoryBehind, Faults { returns: 1, ..NONE });
    let rules = Guarded { check, faults, names_history: false, ..RULES };
    broken("was a replica of its replica, the value names the run alone", rules);
}

#[test]
fn new_nodes_are_declared() {
    clean("init, lost", Guarded { enrolment: Enrolment::Init, faults: LOST, ..RULES });
}

#[test]
fn broken_without_a_restart_guard() {
    broken("none, lost (1)", Guarded { check: Check::None, faults: LOST, ..RULES });
    broken("none, stale (3)", Guarded { check: Check::None, faults: STALE, ..RULES });
}

/// Uptime reveals restarts as long as the clock is not set, and never a flush.
#[test]
fn broken_by_trust_in_uptime() {
    let uptime = |faults| Guarded { check: Check::Uptime, faults, ..RULES };
    clean("uptime alone, lost twice (4)", uptime(Faults { lost: 2, ..NONE }));
    broken("uptime alone, flushed (5)", uptime(FLUSH));
    broken("uptime alone, clock set forward (6)", uptime(STEP));
}

#[test]
fn broken_if_a_missing_restart_guard_means_a_new_node() {
    let enrolment = Enrolment::MissingIsNew;
    broken("missing is new, lost (11)", Guarded { enrolment, faults: LOST, ..RULES });
}

#[test]
fn broken_by_a_quarantine_a_tick_short() {
    let enrolment = Enrolment::Short;
    broken("quarantine a tick short (12)", Guarded { enrolment, faults: LOST, ..RULES });
}

#[test]
fn broken_if_a_missing_restart_guard_means_a_new_node_when_the_server_is_old() {
    let old = |check, faults| {
        let enrolment = Enrolment::MissingIsNewIfOld;
        Guarded { check, enrolment, faults, ..RULES }
    };
    broken("missing on an old node is new, at the handshake (14)", old(Check::Handshake, FLUSH));
    broken("missing on an old node is new (15)", old(Check::TtlBehind, FLUSH));
    broken("missing on an old node is new, clock (16)", old(Check::TtlBehind, STEP));
}

#[test]
fn broken_by_a_check_at_the_handshake_only() {
    broken("handshake only (19)", Guarded { check: Check::Handshake, faults: FLUSH, ..RULES });
}

#[test]
fn broken_by_a_check_before_the_set() {
    broken("TTL before the SET (20)", Guarded { check: Check::TtlBefore, faults: FLUSH, ..RULES });
}

#[test]
fn broken_by_an_enrolment_in_two_commands() {
    let enrolment = Enrolment::ValueFirst;
    broken("value first (25)", Guarded { enrolment, faults: LOST, ..RULES });
}

#[test]
fn broken_by_a_durable_node_that_loses_data() {
    let restart_trust = RestartTrust::Durable;
    broken("durable, stale after all (48)", Guarded { restart_trust, faults: STALE, ..RULES });
}

#[test]
fn broken_by_an_extension_that_counts_every_node_with_the_key() {
    let extend = Some(Extend::WhereOurs);
    broken("extension wherever ours (49)", Guarded { extend, faults: FLUSH, ..RULES });
}

#[test]
fn broken_by_a_value_read_behind_and_a_ttl_read_before() {
    let check = Check::TtlBeforeValueBehind;
    broken("TTL before, value behind (57)", Guarded { check, faults: FLUSH, ..RULES });
}

#[test]
fn broken_if_the_value_is_never_read() {
    broken("TTL alone, stale (58)", Guarded { check: Check::TtlAlone, faults: STALE, ..RULES });
}

/// A gap that remains: the declaration that a node is new may arrive late, and after a flush it is
/// false.
#[test]
fn broken_by_a_late_declaration_that_a_node_is_new() {
    let enrolment = Enrolment::Init;
    broken("init, flushed", Guarded { enrolment, faults: FLUSH, ..RULES });
}

/// The lean model hides none of these.
#[test]
fn broken_with_nothing_left_out() {
    for (name, check, faults) in [
        ("uptime, flushed", Check::Uptime, FLUSH),
        ("handshake only", Check::Handshake, FLUSH),
        ("TTL before the SET", Check::TtlBefore, FLUSH),
    ] {
        broken(
            &format!("{name}, nothing left out"),
            Guarded { check, faults, lean: false, ..RULES },
        );
    }
}
