//! The lock core under arbitrary bytes, times and disconnects.
//!
//! An input is a configuration followed by actions (`actions`). The core runs in a `World` that
//! plays its driver and its nodes, and holds it to what it promises: `wire` reads every byte that
//! it sends and matches every answer to its request, `ledger` keeps each lock's life and the
//! votes that were really delivered. After the last action everything is let go and a fresh lock
//! is taken: whatever was done to the core, nothing may be left and it must still work.
//!
//! The model is not a second core. It never says what the core has to do next, only what it can
//! never do. It shares with other tests how requests are read and which script is which; what each request may be,
//! how the core is driven and what nodes answer it keeps for itself, because inputs of the corpus choose from
//! that. Not here: nodes that keep keys, which the simulation has.

mod actions;
mod ledger;
mod peer;
mod setup;
mod wire;
mod world;

use crate::input::Input;

use self::world::World;

/// The core keeps its promises, whatever it is told.
pub fn body(input: &[u8]) {
    let mut input = Input::new(input);
    let mut world = World::new(setup::choose(&mut input));
    while let Some(code) = input.next() {
        actions::act(&mut world, code, &mut input);
    }
    world.let_go();
    world.start_afresh();
}

/// Long enough for a few locks through their whole lives.
pub const MAX_LEN: usize = 256;
