//! One list of scenarios, and every way to hold a lock goes through it, on real servers.
//!
//! A scenario (`list`) is a function that is generic over a [`Api`]; here is the table which says who
//! plays it. `same` is the scenario as it is written. Another name is what happens instead where an API
//! cannot do that, and `none` is nothing at all: the comment says why. What a scenario asks for beyond the
//! plain front is a trait of its own, so the compiler sees to it that the table tells the truth.
//!
//! Not here: what belongs to one front alone, see `driver`, `engine` and `futures` beside this.

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

scenarios! {
    // scenario                         Client  Driver  Engine  futures
    refused_while_it_is_held:           same    same    same    same;
    waits_until_it_is_released:         same    same    same    same;
    refused_when_its_time_is_over:      same    same    same    same;
    // A driver has events in their place: it is asked by a request, and never waits.
    locked_by_name_alone:               same    none    same    same;
    tried_by_name_alone:                same    none    same    same;
    // Nobody can call a client while it waits on its caller's thread: its deadline ends the wait.
    cancelled_while_it_waits:           ended_by_its_deadline same same same;
    // And nobody else can wait with it: it is not `Sync`.
    waiters_take_turns:                 is_for_one_thread same same same;
    extended_and_never_shortened:       same    same    same    same;
    // Between two calls a client hears nothing: it is told by what it calls.
    lost_to_a_stranger:                 finds_its_loss same same same;
    lost_by_its_end:                    finds_its_end same same same;
    // And has nobody who could extend a lock meanwhile.
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
    // A driver's lock is a name, and to forget that releases nothing.
    dropped_guard:                      same    forgotten_name same same;
    panic_while_it_is_held:             same    same    same    same;
    end_of_an_api_that_holds:          same    same    same    same;
    // A client that waits is borrowed, so that nobody can end it.
    end_of_an_api_that_waits:          none    same    same    same;
}

/// Plays a scenario, for so long at the most.
fn bounded(scenario: fn()) {
    let (over, ended) = channel();
    let player = thread::spawn(move || {
        scenario();
        over.send(()).unwrap();
    });
    let outcome = ended.recv_timeout(BOUND);
    assert_ne!(outcome, Err(RecvTimeoutError::Timeout), "not over in {BOUND:?}");
    if let Err(panic) = player.join() {
        resume_unwind(panic);
    }
}

/// Every single wait of a scenario is shorter.
const BOUND: Duration = Duration::from_secs(60);
