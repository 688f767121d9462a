//! A bounded part of `cargo xtask chaos commands` and `signals`, and of their controls.

use std::path::PathBuf;
use std::time::Duration;

use redbolt_chaos::{Commands, CommandsResult, SignalStorm, SignalStormResult, Stage};

fn commands(seconds: u64, both: bool, seed: u64) -> CommandsResult {
    let redbolt = PathBuf::from(env!("CARGO_BIN_EXE_redbolt"));
    let commands = Commands { redbolt, lasts: Duration::from_secs(seconds), lanes: 4, both };
    let result = commands.run(&Stage { program: PathBuf::new(), seed }).unwrap();
    println!("{result}");
    result
}

fn signals(seconds: u64, both: bool, seed: u64) -> SignalStormResult {
    let redbolt = PathBuf::from(env!("CARGO_BIN_EXE_redbolt"));
    let signals = SignalStorm { redbolt, lasts: Duration::from_secs(seconds), lanes: 4, both };
    let result = signals.run(&Stage { program: PathBuf::new(), seed }).unwrap();
    println!("{result}");
    result
}

#[test]
fn no_signal_makes_sections_overlap_or_leaves_a_lock_behind() {
    let holds = |seed| signals(6, false, seed).holds();
    // As below: one overlap is not a proof, a second one is.
    assert!(holds(1) || holds(2) && holds(3));
}

#[test]
fn when_both_processes_are_killed_the_check_of_signals_finds_overlaps() {
    assert!((1..=5).any(|seed| signals(6, true, seed).holds()));
}

#[test]
fn sections_never_overlap_when_one_process_of_redbolt_is_killed_or_stopped() {
    let holds = |seed| commands(12, false, seed).holds();
    // A stall of one process alone is not excused: one overlap is not a proof, a second one is.
    assert!(holds(1) || holds(2) && holds(3));
}

#[test]
fn when_both_processes_are_killed_at_once_the_check_finds_commands_that_go_on() {
    // One overlap is enough, but a slow machine has few sections in that time.
    assert!((1..=5).any(|seed| commands(8, true, seed).holds()));
}
