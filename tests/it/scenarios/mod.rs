//! One list of scenarios that every API runs through, on real servers.
//!
//! A scenario (`list`) is a function that is generic over an [`Api`]. The table below shows which
//! API runs which scenario. `same` runs the scenario as written. Another name runs that scenario
//! instead, if an API cannot run it, and `none` runs nothing: a comment gives the reason. Features
//! that only some APIs have are separate traits, so the compiler checks the table.
//!
//! With the feature `tls`, each API runs the list over TLS as well. Tests of a single API are in
//! `driver`, `engine` and `futures`.

mod api;
mod blocking;
mod embedded;
mod engine;
mod futures;
mod list;

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

macro_rules! scenarios {
    ($($scenario:ident: $client:ident $driver:ident $engine:ident $futures:ident;)*) => {$(
        mod $scenario {
            play!($scenario $client client blocking::Blocking);
            play!($scenario $client client_that_spins blocking::Blocking<true>);
            play!($scenario $driver driver_behind_a_descriptor embedded::BehindADescriptor);
            play!($scenario $driver driver_in_a_registry embedded::InARegistry);
            play!($scenario $engine engine engine::Threaded);
            play!($scenario $engine engine_that_spins engine::Threaded<true>);
            play!($scenario $futures futures_on_tokio futures::OnTokio);
            play!($scenario $futures futures_on_smol futures::OnSmol);
            play!($scenario $futures futures_on_twenty_lines futures::OnTwentyLines);
            #[cfg(feature = "tls")]
            mod over_tls {
                play_over_tls!($scenario $client client blocking::Blocking);
                play_over_tls!($scenario $client client_that_spins blocking::Blocking<true>);
                play_over_tls!($scenario $driver driver embedded::BehindADescriptor);
                play_over_tls!($scenario $engine engine engine::Threaded);
                play_over_tls!($scenario $futures futures futures::OnTokio);
            }
        }
    )*};
}

macro_rules! play {
    ($scenario:ident none $name:ident $api:ty) => {};
    ($scenario:ident same $name:ident $api:ty) => {
        play!($scenario $scenario $name $api);
    };
    ($scenario:ident $instead:ident $name:ident $api:ty) => {
        #[test]
        fn $name() {
            use crate::scenarios::*;
            bounded(list::$instead::<$api>);
        }
    };
}

#[cfg(feature = "tls")]
macro_rules! play_over_tls {
    ($scenario:ident none $name:ident $api:ty) => {};
    ($scenario:ident same $name:ident $api:ty) => {
        play_over_tls!($scenario $scenario $name $api);
    };
    ($scenario:ident $instead:ident $name:ident $api:ty) => {
        #[test]
        fn $name() {
            use crate::scenarios::*;
            bounded(|| crate::support::over_tls(list::$instead::<$api>));
        }
    };
}

scenarios! {
    // scenario                         Client  Driver  Engine  futures
    refused_while_it_is_held:           same    same    same    same;
    waits_until_it_is_released:         same    same    same    same;
    refused_when_its_time_is_over:      same    same    same    same;
    // A driver has no such form: it takes requests, never waits, and reports events.
    locked_by_name_alone:               same    none    same    same;
    tried_by_name_alone:                same    none    same    same;
    // A client that waits blocks its caller's thread, so only its deadline ends the wait.
    cancelled_while_it_waits:           ended_by_its_deadline same same same;
    // A client is not `Sync`, so no other thread can wait with it.
    waiters_take_turns:                 is_for_one_thread same same same;
    extended_and_never_shortened:       same    same    same    same;
    // A client does nothing between two calls, so the next call reports the loss.
    lost_to_a_stranger:                 finds_its_loss same same same;
    lost_by_its_end:                    finds_its_end same same same;
    // For the same reason it cannot extend its locks.
    auto_extended:                         refused_auto_extend same same same;
    auto_extended_until_a_stranger_deletes_it:   none    same    same    same;
    without_a_minority:                 same    same    same    same;
    without_a_majority:                 same    same    same    same;
    nodes_that_forgot_it:               same    same    same    same;
    fenced:                             same    same    same    same;
    all_of_many_keys_or_none:           same    same    same    same;
    many_locks_at_once:                 same    same    same    same;
    looked_at:                          same    same    same    same;
    broken_by_an_operator:              same    same    same    same;
    leaves_for_another_process:         same    same    same    same;
    shared_by_readers:                  same    same    same    same;
    read_then_written_then_read:        same    same    same    same;
    one_of_a_few_permits:               same    same    same    same;
    every_kind_leaves_for_another_process: same same    same    same;
    // A driver's lock is an id, and forgetting an id releases nothing.
    dropped_guard:                      same    forgotten_name same same;
    panic_while_it_is_held:             same    same    same    same;
    end_of_an_api_that_holds:          same    same    same    same;
    // A waiting client is borrowed, so it cannot be dropped.
    end_of_an_api_that_waits:          none    same    same    same;
}

/// Runs a scenario, with a time limit.
fn bounded(scenario: fn()) {
    let (over, ended) = channel();
    let player = thread::spawn(move || {
        scenario();
        over.send(()).unwrap();
    });
    let outcome = ended.recv_timeout(BOUND);
    assert_ne!(outcome, Err(RecvTimeoutError::Timeout), "not finished within {BOUND:?}");
    if let Err(panic) = player.join() {
        resume_unwind(panic);
    }
}

/// A limit longer than any single wait of a scenario.
const BOUND: Duration = Duration::from_secs(60);
