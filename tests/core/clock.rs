//! Time: a validity ends by whichever clock reaches its end first, every timer is on the boot
//! clock, and a driver may call early, late and often.

use redbolt::proto::{
    Cause, ClockReading, Event, LockRequest, LossCause, NodeState, RefusalReason, Timestamp, Wait,
};

use crate::world::{Accept, HOUR, SECOND, World, Written, error, ms, secs};

const STEPS: [i64; 2] = [HOUR, -HOUR];

/// The validity of a lease of ten seconds, in ns.
const VALID: u64 = 9_898_000_000;

/// Acquires a lock of ten seconds and waits for its end, which must be on time by the boot clock.
fn lease_ends_by_boot(world: &mut World, key: &[u8]) {
    let begun = world.boot;
    let id = world.lock(key, secs(10));
    world.run(ms(100));
    assert!(world.is_granted(id));
    assert!(world.remaining(id).as_nanos() as u64 <= VALID - 100_000_000);
    world.run(secs(10));
    let (at, event) = *world.clients[0].events.last().unwrap();
    assert_eq!((at - begun, event), (VALID, Event::Lost(id, LossCause::Expired)));
    world.release(id);
    world.run(secs(1));
}

#[test]
fn after_a_step_a_lease_still_ends_by_boot() {
    for step in STEPS {
        let mut world = World::new(3).warm();
        world.wall_ahead += step;
        lease_ends_by_boot(&mut world, b"job");
        world.wall_ahead -= 2 * step;
        lease_ends_by_boot(&mut world, b"job");
    }
}

#[test]
fn a_step_while_connecting() {
    for step in STEPS {
        let mut world = World::new(3);
        for server in &mut world.servers {
            server.delay = ms(10).as_nanos() as u64;
        }
        world.run(ms(5));
        world.wall_ahead += step;
        lease_ends_by_boot(&mut world, b"job");
    }
}

#[test]
fn a_step_while_asked() {
    for step in STEPS {
        let mut world = World::new(3).warm();
        for node in 0..3 {
            world.pause(node);
        }
        let id = world.lock(b"job", secs(10));
        world.run(ms(10));
        world.wall_ahead += step;
        for node in 0..3 {
            world.resume(node);
        }
        if step > 0 {
            let reported = world.outcomes(id);
            assert!(
                matches!(reported[..], [Event::Refused(_, r)] if r.reason == RefusalReason::Expired)
            );
            assert_eq!(world.holders(b"job"), [false; 3]);
        } else {
            assert_eq!(world.remaining(id).as_nanos() as u64, VALID - 10_000_000);
            world.release(id);
        }
        lease_ends_by_boot(&mut world, b"job");
    }
}

#[test]
fn a_step_while_held() {
    for step in STEPS {
        let mut world = World::new(3).warm();
        let id = world.lock(b"job", secs(10));
        world.run(secs(1));
        world.wall_ahead += step;
        if step > 0 {
            assert!(world.remaining(id).is_zero(), "the lease has expired before any timer fires");
            world.release(id);
            assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
        } else {
            assert_eq!(world.remaining(id).as_nanos() as u64, VALID - SECOND);
            world.run(ms(8_950));
            assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
            world.release(id);
        }
        assert_eq!(world.holders(b"job"), [false; 3]);
        lease_ends_by_boot(&mut world, b"job");
    }
}

#[test]
fn a_small_step_takes_what_it_is_worth() {
    let mut world = World::new(3).warm();
    let begun = world.boot;
    let id = world.lock(b"job", secs(10));
    world.run(secs(1));
    world.wall_ahead += 4 * SECOND as i64;
    assert_eq!(world.remaining(id).as_nanos() as u64, VALID - 5 * SECOND);
    let now = world.now();
    world.core().timeout(now);
    world.run(secs(10));
    let (at, event) = *world.clients[0].events.last().unwrap();
    assert_eq!(event, Event::Lost(id, LossCause::Expired));
    assert!(at - begun <= VALID, "the boot clock ends it at last");
}

/// The next timer of any kind notices the step, though no timer of this lock is due until then.
#[test]
fn a_step_that_ends_a_lease_is_reported_by_the_next_timeout() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.run(secs(1));
    world.wall_ahead += HOUR;
    world.pause(2);
    let now = world.now();
    let looked = world.core().inspect(b"job", now).unwrap();
    world.run_until(secs(2), |world| world.core().take_view(looked).is_some());
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
}

#[test]
fn a_step_while_extending() {
    for step in STEPS {
        let mut world = World::new(3).warm();
        let id = world.lock(b"job", secs(10));
        world.run(secs(1));
        for node in 0..3 {
            world.pause(node);
        }
        world.extend(id, secs(20));
        world.wall_ahead += step;
        for node in 0..3 {
            world.resume(node);
        }
        if step > 0 {
            assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
        } else {
            assert_eq!(world.outcomes(id)[1..], [Event::Extended(id)]);
            assert_eq!(world.remaining(id).as_nanos() as u64, 20 * SECOND - 202_000_000);
        }
        world.release(id);
        assert_eq!(world.holders(b"job"), [false; 3]);
        lease_ends_by_boot(&mut world, b"job");
    }
}

#[test]
fn a_step_while_releasing_pausing_or_owing() {
    for step in STEPS {
        let mut world = World::new(3).warm();
        let id = world.lock(b"job", secs(10));
        world.pause(1);
        world.pause(2);
        world.release(id);
        world.wall_ahead += step;
        world.resume(1);
        assert!(matches!(world.outcomes(id)[1], Event::Released(_, c) if c.nodes == 2));
        world.run(secs(1));
        assert_eq!(world.kept(0), (0, 1), "the third node owes an undo on any wall clock");

        world.wall_ahead -= 2 * step;
        world.set(0, b"other", b"theirs", 2_000);
        world.set(1, b"other", b"theirs", 2_000);
        let waiting = world.wait_for(b"other", secs(10));
        world.run(ms(500));
        world.wall_ahead += step;
        world.run(secs(2));
        assert!(world.is_granted(waiting));
        world.release(waiting);
        world.resume(2);
        assert_eq!(world.kept(0), (0, 0));
        lease_ends_by_boot(&mut world, b"job");
    }
}

/// A function that sets a timer and waits for it, with its name.
type Timer = (&'static str, fn(&mut World));

const TIMERS: [Timer; 12] = [
    ("connect", |world| {
        world.servers[2].accept = Accept::Silent;
        world.cut(0, 2, Written::Vanishes);
        wait_for_state(world, NodeState::Down(Cause::ConnectTimeout));
    }),
    ("answer", |world| {
        world.pause(1);
        world.pause(2);
        let id = world.lock(b"job", secs(10));
        world.run_until(secs(9), |world| !world.outcomes(id).is_empty());
    }),
    ("dead peer", |world| {
        world.pause(2);
        world.lock(b"job", secs(10));
        wait_for_state(world, NodeState::Down(Cause::DeadPeer));
    }),
    ("backoff", |world| {
        world.cut(0, 2, Written::Runs);
        wait_for_state(world, NodeState::Ready);
    }),
    ("pause", |world| {
        foreign(world);
        world.wait_for(b"job", secs(10));
        world.run_until(secs(9), |world| world.log.iter().filter(|ran| ran.is_ask()).count() >= 18);
    }),
    ("deadline", |world| {
        foreign(world);
        let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(700)));
        let id = world.acquire(0, &request, &[b"job"]);
        world.run_until(secs(9), |world| !world.outcomes(id).is_empty());
    }),
    ("release", |world| {
        let id = world.lock(b"job", secs(10));
        for node in 0..3 {
            world.pause(node);
        }
        world.release(id);
        world.run_until(secs(9), |world| world.outcomes(id).len() > 1);
    }),
    ("owed", |world| {
        owe(world);
        world.run_until(secs(9), |world| world.count("undo") + world.count("undo sha") == 3 + 5);
    }),
    ("forget", |world| {
        owe(world);
        world.run_until(secs(11), |world| world.kept(0) == (0, 0));
    }),
    ("second undo", |world| {
        foreign(world);
        for node in 0..3 {
            world.pause(node);
        }
        world.lock(b"job", secs(20));
        world
            .answer(2, |args| (args.get(1) == Some(&&b"KILL"[..])).then(|| error("ERR")).flatten());
        world.cut(0, 2, Written::LeavesGhost);
        for node in 0..3 {
            world.resume(node);
        }
        world.run_until(secs(19), |world| world.kept(0) == (0, 0));
    }),
    ("view", |world| {
        world.pause(2);
        let now = world.now();
        let id = world.core().inspect(b"job", now).unwrap();
        world.run_until(secs(9), |world| world.core().take_view(id).is_some());
    }),
    ("leaving", |world| {
        world.servers[2].delay = ms(200).as_nanos() as u64;
        world.answer(2, |args| (args[0] == b"SET").then(|| error("READONLY no")).flatten());
        world.lock(b"a", secs(10));
        world.run(ms(390));
        world.lock(b"b", secs(10));
        wait_for_state(world, NodeState::Connecting);
    }),
];

fn wait_for_state(world: &mut World, state: NodeState) {
    let node = world.node(2);
    world.run_until(secs(9), |world| world.core().node_state(node) == state);
}

fn foreign(world: &mut World) {
    for node in 0..2 {
        world.set(node, b"job", b"theirs", 60_000);
    }
}

fn owe(world: &mut World) {
    let id = world.lock(b"job", secs(10));
    world.answer(2, |args| (args[0].starts_with(b"EVAL")).then(|| error("MISCONF no")).flatten());
    world.release(id);
}

#[test]
fn every_timer_is_on_the_boot_clock() {
    for (name, wait) in TIMERS {
        let fired = |spoil: fn(&mut World)| {
            let mut world = World::new(3).warm();
            let begun = world.boot;
            spoil(&mut world);
            wait(&mut world);
            (world.boot - begun) / 1_000
        };
        let steady = fired(|_| {});
        assert!(steady > 0, "{name}: it takes time");
        assert_eq!(steady, fired(|world| world.wall_ahead = HOUR), "{name}");
        assert_eq!(steady, fired(|world| world.wall_ahead = -HOUR), "{name}");
        if name != "owed" && name != "forget" && name != "release" {
            assert_eq!(steady, fired(|world| world.jumping = true), "{name}");
        }
    }
}

/// These three begin with a held lock: the clock begins to jump at the release.
#[test]
fn timers_after_a_release_are_on_the_boot_clock() {
    for jumping in [false, true] {
        let mut world = World::new(3).warm();
        let begun = world.boot;
        owe(&mut world);
        world.jumping = jumping;
        world.run_until(secs(11), |world| world.kept(0) == (0, 0));
        assert_eq!(world.boot - begun, 10 * SECOND);
        let undos: Vec<_> = world.log.iter().filter(|ran| ran.is_undo() && ran.node == 2).collect();
        let gaps: Vec<_> =
            undos.windows(2).map(|pair| (pair[1].at - pair[0].at) / 1_000_000).collect();
        assert_eq!(gaps[..7], [20, 40, 80, 160, 320, 640, 1_000]);
    }
}

#[test]
fn a_boot_clock_that_steps_back_is_ignored() {
    let mut world = World::new(3).warm();
    let begun = world.boot;
    let id = world.lock(b"job", secs(10));
    world.run(secs(5));
    let past = ClockReading { boot: Timestamp(begun - 100 * SECOND), wall: world.now().wall };
    let now = world.now();
    world.core().timeout(now);
    world.core().timeout(past);
    let second = world.core().acquire(&LockRequest::new(b"other").ttl(secs(10)), past).unwrap();
    world.flow();
    assert_eq!(
        world.remaining(second).as_nanos() as u64,
        VALID,
        "time is counted from the latest reading"
    );
    world.core().extend(id, secs(1), past).unwrap();
    world.flow();
    world.run(secs(10));
    let reported: Vec<_> = world.clients[0].events.iter().map(|&(at, e)| (at - begun, e)).collect();
    let lost = |id| Event::Lost(id, LossCause::Expired);
    assert!(reported.contains(&(VALID, lost(id))), "{reported:?}");
    assert!(reported.contains(&(5 * SECOND + VALID, lost(second))), "{reported:?}");
}

/// A driver that sleeps too long finds a correct state, and does not spin.
#[test]
fn late_timeouts_are_harmless() {
    for late in [1, 1_000_000, 30_000_000, 700_000_000] {
        for (name, wait) in TIMERS {
            if name != "pause" && name != "leaving" {
                let mut world = World::new(3).warm();
                world.late = late;
                wait(&mut world);
            }
        }
    }
}

#[test]
fn the_end_of_a_lease_is_known_on_time_and_reported_late() {
    let mut world = World::new(3).warm();
    world.late = SECOND;
    let id = world.lock(b"job", secs(10));
    world.run(ms(9_899));
    assert!(world.remaining(id).is_zero());
    assert_eq!(world.outcomes(id), [Event::Granted(id)]);
    world.run(secs(1));
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
}

#[test]
fn early_and_repeated_timeouts_change_nothing() {
    for (name, wait) in TIMERS {
        let trace = |nagging| {
            let mut world = World::new(3).warm();
            world.nagging = nagging;
            wait(&mut world);
            let ran: Vec<_> = world.log.iter().map(|ran| (ran.at, ran.node, ran.kind())).collect();
            (world.boot, ran, world.clients[0].events.clone())
        };
        assert_eq!(trace(false), trace(true), "{name}");
    }
}

/// One node answers while the wall clock is ahead, and the other one when it is back. The first
/// node's earlier answers count as well.
#[test]
fn an_extension_across_a_step_shortens_nothing() {
    let mut world = World::new(3).warm();
    world.stop(2);
    let id = world.lock(b"job", secs(10));
    world.run(secs(2));
    world.wall_ahead = 3 * SECOND as i64;
    world.pause(1);
    world.extend(id, secs(7));
    world.wall_ahead = 0;
    let before = world.remaining(id);
    assert!(before > ms(7_500), "{before:?}");
    world.resume(1);
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
    assert_eq!(world.remaining(id), before);
}
