//! A bounded share of every program, and of every control. `cargo xtask chaos` runs them at full
//! size.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::time::Duration;

use redbolt_chaos::{
    AutoExtension, FairQueue, Fencing, Ghosts, Leaders, Pauses, Prize, Restarts, Stage, Storm,
};

fn stage() -> Stage {
    Stage { program: PathBuf::from(env!("CARGO_BIN_EXE_chaos")), seed: 1 }
}

fn restarts(cycles: usize, guarded: bool, stale: bool) {
    let max_ttl = Duration::from_millis(400);
    let restarts = Restarts { cycles, nodes: vec![3, 5], lanes: 1, max_ttl, guarded, stale };
    for result in restarts.run(&stage()).unwrap() {
        println!("{result}");
        assert!(result.holds(), "{result}");
    }
}

#[test]
fn no_two_holders_when_nodes_forget_a_lock() {
    restarts(20, true, false);
}

#[test]
fn no_two_holders_when_nodes_restart_from_old_snapshots() {
    restarts(5, true, true);
}

#[test]
fn without_the_restart_guard_the_check_finds_two_holders() {
    restarts(10, false, false);
    restarts(10, false, true);
}

#[test]
fn tokens_grow_over_the_loss_of_a_node_s_memory() {
    let result = Fencing { grants: 500, forget: false }.run(&stage()).unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}

#[test]
fn when_all_counters_are_lost_the_check_finds_tokens_that_do_not_grow() {
    let result = Fencing { grants: 200, forget: true }.run(&stage()).unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}

#[test]
fn a_request_behind_its_undo_leaves_no_key_and_kills_no_other_client() {
    let result = Ghosts { reps: 30, controls: 3, restarts: 5 }.run().unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}

#[test]
fn a_stopped_holder_notices_the_loss_and_is_fenced() {
    let result = Pauses { reps: 10 }.run(&stage()).unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}

fn auto_extension(reps: usize, careless: bool) {
    for result in (AutoExtension { reps, nodes: vec![1, 3], careless }).run(&stage()).unwrap() {
        println!("{result}");
        assert!(result.holds(), "{result}");
    }
}

#[test]
fn an_auto_extending_holder_that_was_stopped_is_notified_once_and_touches_nothing() {
    auto_extension(6, false);
}

#[test]
fn a_careless_extender_is_found() {
    auto_extension(3, true);
}

#[test]
fn no_waiter_is_passed_in_a_queue_whose_waiters_and_nodes_are_stopped_and_killed() {
    fair_queue(12, true);
}

#[test]
fn waiters_by_a_timer_are_found_to_be_passed() {
    fair_queue(60, false);
}

fn fair_queue(rounds: usize, in_queue: bool) {
    let result = FairQueue { rounds, in_queue }.run(&stage()).unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}

#[test]
fn there_is_one_leader_at_a_time_in_growing_terms_and_it_is_observed() {
    leaders(25, false);
}

#[test]
fn two_leaders_are_found_if_the_key_of_one_is_deleted() {
    leaders(50, true);
}

fn leaders(rounds: usize, forget: bool) {
    let result = Leaders { rounds, forget }.run(&stage()).unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}

#[test]
fn no_two_holders_in_a_storm() {
    storm(Prize::Lock, true);
}

#[test]
fn no_permit_twice_in_a_storm() {
    storm(Prize::Permits(3.try_into().unwrap()), true);
}

#[test]
fn no_two_writers_in_a_storm_of_readers_and_writers() {
    storm(Prize::ReadWrite, true);
}

#[test]
fn without_the_restart_guard_the_storm_finds_a_permit_twice() {
    storm(Prize::Permits(3.try_into().unwrap()), false);
}

#[test]
fn without_the_restart_guard_the_storm_finds_two_writers() {
    storm(Prize::ReadWrite, false);
}

fn storm(prize: Prize, guarded: bool) {
    let lasts = Duration::from_secs(if guarded { 10 } else { 60 });
    let storm = Storm { lasts, nodes: 3, guarded, prize };
    let result = storm.run(&stage()).unwrap();
    println!("{result}");
    assert!(result.holds(), "{result}");
}
