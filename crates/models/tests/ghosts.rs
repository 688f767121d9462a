//! Undo across connections with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::ghosts::Ghosts;

use self::outcome::{clean, wrong};

const RULES: Ghosts = Ghosts::RULES;

const KILLED: &str = "a stranger's connection was killed";
const NOT_THERE: &str = "the key of a lock that is held is not there";
const NOT_DONE: &str = "an undo counts as done, and the key is there or may yet come";

#[test]
fn ghosts_end_with_the_kill_or_the_second_undo() {
    clean("ghosts, the rules", &RULES);
    clean("ghosts, no kill", &Ghosts { may_kill: false, ..RULES });
}

/// A kill in the same process is final even if the network keeps bytes for ever; a second undo is
/// not.
#[test]
fn the_kill_needs_no_bound_of_the_network() {
    let endless = Ghosts { network_keeps: None, restarts: 0, ..RULES };
    clean("ghosts, kept for ever", &endless);
    wrong("ghosts, kept for ever, no kill", &Ghosts { may_kill: false, ..endless }, NOT_DONE);
}

#[test]
fn broken_by_a_kill_without_a_check_of_the_run() {
    let blind = Ghosts { same_run_only: false, ..RULES };
    wrong("ghosts, kill in any process", &blind, KILLED);
}

#[test]
fn broken_if_an_undo_is_final_while_a_ghost_lives() {
    let once = Ghosts { undo_again: false, may_kill: false, ..RULES };
    wrong("ghosts, one undo", &once, NOT_DONE);
}

#[test]
fn broken_by_an_undo_that_overtakes_its_request() {
    wrong("ghosts, undo before the ask", &Ghosts { in_order: false, ..RULES }, NOT_DONE);
}

#[test]
fn broken_by_a_token_that_is_used_again() {
    let stale = Ghosts { fresh_token: false, ..RULES };
    wrong("ghosts, one token for all attempts", &stale, NOT_THERE);
}

#[test]
fn broken_by_a_late_answer_that_counts() {
    let late = Ghosts { late_is_nothing: false, ..RULES };
    wrong("ghosts, late answers count", &late, NOT_THERE);
}
