//! The lock core under arbitrary bytes, times and disconnects.
//!
//! An input is a configuration followed by actions (`actions`). The core runs in a `World` that
//! plays its driver and its nodes, and checks its promises: `wire` parses every byte that the core
//! sends and matches every reply to its request, `ledger` tracks each lock's life and the votes
//! that were really delivered, `fair_queue` tracks its tickets, and `push` is the other end of a
//! push link. After the last action everything is released and a fresh lock is taken: after any
//! sequence, nothing may be left and the core must still work.
//!
//! The model is not a second core. It never determines what the core has to do next, only what it
//! may never do. It shares with other tests the parser of requests and the table of scripts. The
//! meaning of each request, the driver and the nodes' replies are separate, because the inputs of
//! the corpus choose from them. Nodes do not keep keys; the simulator has such nodes.

mod actions;
mod fair_queue;
mod ledger;
mod peer;
mod push;
mod received;
mod request;
mod setup;
mod wire;
mod world;

use crate::input::Input;

use self::world::World;

/// Checks that the core keeps its promises for any bytes.
pub fn body(input: &[u8]) {
    let mut input = Input::new(input);
    let mut world = World::new(setup::choose(&mut input));
    while let Some(code) = input.next() {
        actions::act(&mut world, code, &mut input);
    }
    world.let_go();
    world.start_afresh();
}

/// Long enough for the whole lives of a few locks.
pub const MAX_LEN: usize = 256;
