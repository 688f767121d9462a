//! The actions on a core, and how an input encodes them.
//!
//! The low half of a byte is the action, the high half its first choice; some actions read more
//! bytes.

use std::time::Duration;

use redbolt::proto::{Cause, MAX_KEYS, Wait};

use super::ledger::Sort;
use super::peer;
use super::world::World;
use crate::input::{Input, pick};

pub(super) fn act(world: &mut World, code: u8, input: &mut Input<'_>) {
    let choice = code >> 4;
    // The upper half of the choices is for push links.
    if choice > 7 && world.waits_in_queue {
        let at = usize::from(choice & 7) % world.pushes.len();
        if on_push_link(world, code & 15, at, input) {
            return;
        }
    }
    match code & 15 {
        0 => acquire(world, 1, Sort::Plain, choice),
        1 => {
            let (keys, sort) = match input.byte() {
                number @ 128..250 if world.can_fence() => {
                    (1 + usize::from(number % 3), Sort::Fenced)
                }
                80..96 => (1, Sort::Permit),
                96..128 => (1, Sort::Shared),
                number @ 0..250 => (2 + usize::from(number % 2), Sort::Plain),
                250..253 => (MAX_KEYS, Sort::Plain),
                _ => (MAX_KEYS + 1, Sort::Plain),
            };
            acquire(world, keys, sort, choice);
        }
        2 => {
            let ttl = ttl(world, input.byte());
            world.extend(choice, ttl);
        }
        3 => world.release(choice),
        4 => on_link(world, choice, World::connect),
        5 => {
            let cause = input.choose(CAUSES);
            on_link(world, choice, |world, at| world.disconnect(at, cause));
        }
        6 => {
            let len = usize::from(input.byte() & 63);
            let bytes = input.bytes(len);
            on_link(world, choice, |world, at| world.deliver(at, bytes));
        }
        7 => {
            let code = input.byte();
            on_link(world, choice, |world, at| {
                let text = peer::plausible(code, &world.wires[at].place);
                world.deliver(at, text.as_bytes());
            });
        }
        8 => on_link(world, choice & 7, |world, at| world.answer(at, choice > 7)),
        9 => {
            // The scripts of the queue are long.
            let many = if world.waits_in_queue { 32 } else { 1 };
            let most = usize::from(input.byte()) * many;
            on_link(world, choice, |world, at| world.transmit(at, most));
        }
        10 => on_link(world, choice, |world, at| world.serve(at, peer::ERA)),
        11 if choice < 8 => world.serve_all(peer::ERA),
        11 => world.serve_all(peer::NEXT_ERA),
        12 => {
            world.pass(pick(STEPS, choice));
            world.tick();
        }
        13 => odd_time(world, choice),
        14 if choice < 12 => {
            world.pass_until_due();
            world.tick();
        }
        14 => world.open_all(),
        15 if choice < 3 => world.inspect([&b"k0"[..], b"\r\n", b""][usize::from(choice)]),
        15 if choice < 6 => world.observe([&b"k0"[..], b"k1", b""][usize::from(choice - 3)]),
        15 if choice < 8 => world.unobserve(),
        15 if choice < 12 => world.change_mode(choice - 8),
        _ => world.hand_on(choice - 12),
    }
}

/// Runs an action on a push link, if it is one that command links have too. Returns true if it is.
fn on_push_link(world: &mut World, action: u8, at: usize, input: &mut Input<'_>) -> bool {
    match action {
        4 => world.connect_push(at),
        5 => world.disconnect_push(at, input.choose(CAUSES)),
        6 => {
            let len = usize::from(input.byte() & 63);
            world.report(at, input.bytes(len));
        }
        7 => world.report(at, peer::pushed(input.byte()).as_bytes()),
        9 => world.transmit_push(at, input.byte().into()),
        10 => world.serve_push(at, peer::ERA),
        _ => return false,
    }
    true
}

fn on_link(world: &mut World, number: u8, act: impl FnOnce(&mut World, usize)) {
    let at = world.wire(number);
    act(world, at);
}

fn acquire(world: &mut World, keys: usize, sort: Sort, choice: u8) {
    let ttl = ttl(world, choice & 3);
    let waits = [
        Wait::No,
        Wait::UpTo(Duration::from_millis(40)),
        Wait::Forever,
        Wait::UpTo(Duration::from_secs(5)),
    ];
    world.acquire(keys, sort, ttl, pick(&waits, choice >> 2));
}

/// Returns a TTL. The first four are for lock requests, all for extensions.
fn ttl(world: &World, choice: u8) -> Duration {
    let (ms, most) = (Duration::from_millis, world.longest_ttl());
    pick(
        &[
            ms(1_000),
            most,
            ms(90),
            Duration::from_micros(2_900),
            ms(10_000),
            Duration::from_micros(900),
            most + ms(1),
            ms(3),
        ],
        choice,
    )
}

/// Lets time pass without timeouts, or makes clocks misbehave.
fn odd_time(world: &mut World, choice: u8) {
    const HOUR: u64 = 3_600_000_000_000;
    let wall = world.wall();
    match choice {
        0..8 => world.pass(pick(STEPS, choice * 2 + 1)),
        8 => world.set_wall(wall.saturating_add(HOUR)),
        9 => world.set_wall(wall.saturating_sub(HOUR)),
        10 => world.set_wall(wall.saturating_add(800_000_000)),
        11 => world.set_wall(0),
        12 => world.set_wall(u64::MAX),
        13 => world.back = 1_000_000,
        14 => world.back = 500_000_000_000,
        _ => world.tick(),
    }
}

const STEPS: &[Duration] = &[
    Duration::from_nanos(1),
    Duration::from_micros(40),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(11),
    Duration::from_millis(25),
    Duration::from_millis(51),
    Duration::from_millis(101),
    Duration::from_millis(490),
    Duration::from_millis(999),
    Duration::from_millis(2_001),
    Duration::from_secs(9),
    Duration::from_secs(31),
    Duration::from_secs(100_000),
];

const CAUSES: &[Cause] = &[
    Cause::ConnectionClosed,
    Cause::ConnectionReset,
    Cause::ConnectionRefused,
    Cause::NameLookup,
    Cause::WrongPassword,
];
