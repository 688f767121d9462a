//! Tests that each check can fail: they falsify a running world, and expect the check to report it.

use redbolt::proto::{Event as Told, Lease, LockId};

use crate::Lab;
use crate::invariant::Violation;
use crate::plan::{Class, KEYS, Kind, MAX_NODES, MS, Plan};
use crate::world::World;
use crate::world::node::EPOCH_US;

/// Returns a plan with one holder, one rival that waits for it, and no faults.
fn plan() -> Plan {
    let mut plan = Plan::draw(Class::Safe, 1);
    plan.nodes = 3;
    plan.keys = 1;
    plan.setup =
        crate::plan::Setup { restart_guard: true, ..crate::plan::Setup::unguarded(12_000) };
    plan.clients.truncate(1);
    plan.clients[0] =
        crate::plan::ClientPlan { ppm: 0, wall_ahead: 0, late: 0, far: 0, far_from: 0 };
    let other = plan.clients[0];
    plan.clients.push(other);
    plan.node_clocks = [(0, 0); MAX_NODES];
    let mut job = plan.jobs[0];
    (job.client, job.keys, job.at, job.fenced) = (0, 1, 20 * MS, true);
    (job.kind, job.patience, job.work, job.ttl_ms) = (Kind::AutoExtend, 0, 500 * MS, 304);
    let mut rival = job;
    (rival.client, rival.kind, rival.at, rival.ttl_ms) = (1, Kind::Hold, 60 * MS, 305);
    (rival.patience, rival.work) = (1_000 * MS, 100 * MS);
    let mut probe = job;
    (probe.kind, probe.ttl_ms, probe.fenced) = (Kind::Probe, 100, false);
    plan.jobs = vec![job, rival, probe];
    plan.faults.clear();
    plan.net = crate::plan::Net {
        delay: MS,
        jitter: MS / 2,
        tail_per_mille: 0,
        tail: 0,
        loss_per_mille: 0,
        pieces: 1,
        read: usize::MAX,
    };
    plan.heal_at = 2_000 * MS;
    plan
}

/// Plays until `now` is true, lets `doctor` falsify the world, plays on, and returns the violation.
fn found(
    plan: Plan,
    now: impl Fn(&World) -> bool,
    doctor: impl FnOnce(&mut World),
) -> Option<Violation> {
    let mut world = World::new();
    world.plan = plan;
    world.set_up();
    let mut doctor = Some(doctor);
    while world.violation.is_none() {
        let Some((at, event)) = world.queue.pop() else { break };
        world.now = at;
        if !world.happens(event) {
            break;
        }
        if now(&world)
            && let Some(doctor) = doctor.take()
        {
            doctor(&mut world);
        }
    }
    assert!(doctor.is_none(), "the moment for the doctor came");
    world.violation
}

fn name(found: Option<Violation>) -> &'static str {
    found.map_or("nothing", |violation| violation.name())
}

fn is_held(world: &World) -> bool {
    world.jobs[0].was_granted()
}

fn id(world: &World) -> LockId {
    world.jobs[0].id.unwrap()
}

/// Returns an open wire of the first client.
fn wire(world: &World) -> usize {
    world.clients[0].wires[0].unwrap() as usize
}

#[test]
fn nothing_is_found_in_a_correct_world() {
    assert_eq!(name(found(plan(), is_held, |_| {})), "nothing");
}

#[test]
fn two_holders_are_found() {
    let mut lab = Lab::new();
    let doctored = |seed| {
        let mut plan = Plan::draw(Class::MemoryLossUnguarded, seed);
        plan.class = Class::Safe;
        plan
    };
    let found = (0..200).filter_map(|seed| lab.run_plan(&doctored(seed)).violation);
    let names: Vec<_> = found.map(|violation| violation.name()).collect();
    assert!(names.contains(&"I1 two-holders"), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("I1 ")), "{names:?}");
}

#[test]
fn a_lock_without_a_quorum_behind_it_is_found() {
    let mut alone = plan();
    alone.jobs.remove(1);
    alone.jobs[0].kind = Kind::Hold;
    alone.jobs[0].work = 200 * MS;
    let taken = found(alone, is_held, |world| {
        let now = world.now;
        for node in &mut world.nodes[..2] {
            node.observe(&[b"DEL", KEYS[0]], now);
        }
    });
    assert_eq!(name(taken), "I1 no-quorum-behind");
}

#[test]
fn histories_are_judged() {
    let doctored = found(
        plan(),
        |world| world.jobs[1].was_granted(),
        |world| {
            world.is_sampled = true;
            for history in &mut world.histories {
                history.clear();
            }
            for at in 0..2 {
                let does = crate::history::Does::Lock { token: 0, shared: false, slot: None };
                let owner = at as u16;
                let (called, returned) = (at, at);
                let lock = crate::history::Operation { called, returned, owner, does };
                world.record(0, lock);
            }
        },
    );
    assert_eq!(name(doctored), "I1 not-linearizable");
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    let doctored = found(plan(), is_held, |world| {
        let now = world.now;
        world.tokens[0].push((now, u64::MAX));
    });
    assert_eq!(name(doctored), "I2 token-order");
}

#[test]
fn a_lease_that_rests_on_lost_keys_is_found() {
    let mut alone = plan();
    alone.jobs.remove(1);
    (alone.jobs[0].kind, alone.jobs[0].work) = (Kind::Hold, 200 * MS);
    let all_granted = |world: &World| {
        let granted = world.attempts.first().map(|attempt| attempt.granted);
        granted.is_some_and(|granted| granted.iter().flatten().count() == 3)
    };
    let doctored = found(alone, all_granted, |world| world.attempts[0].until[..2].fill(0));
    assert_eq!(name(doctored), "I4 miscredited");
}

#[test]
fn a_counter_of_a_wild_clock_is_found() {
    let mut one_is_wild = plan();
    (one_is_wild.wild, one_is_wild.node_clocks[2]) = (0b100, (900_000_000, 0));
    assert_eq!(name(found(one_is_wild.clone(), is_held, |_| {})), "nothing");
    let doctored =
        found(one_is_wild, is_held, |world| world.nodes[2].count_from(EPOCH_US + 900_000_000));
    assert_eq!(name(doctored), "I2 wild-counter");
}

#[test]
fn a_stale_write_is_found() {
    let is_second = |world: &World| world.jobs[1].was_granted();
    let doctored = found(plan(), is_second, |world| {
        let mut writer = crate::register::User { job: 9, token: Some(1), granted: 0, begun: 0 };
        writer.begun = world.now + 1_000 * MS;
        world.registers[0].clear();
        world.registers[0].write(writer).unwrap();
    });
    assert_eq!(name(doctored), "I3 stale-write");
}

#[test]
fn a_grant_that_no_node_gave_is_found() {
    let is_asked = |world: &World| !world.attempts.is_empty();
    let doctored = found(plan(), is_asked, |world| {
        for wire in &mut world.wires {
            wire.tags.clear();
        }
    });
    assert_eq!(name(doctored), "I4 miscredited");
}

#[test]
fn a_token_that_no_quorum_has_is_found() {
    let is_asked = |world: &World| {
        let granted = world.attempts.first().map(|attempt| attempt.granted);
        granted.is_some_and(|granted| granted.iter().flatten().count() == 1)
    };
    let doctored = found(plan(), is_asked, |world| world.attempts[0].counters = [7; MAX_NODES]);
    assert_eq!(name(doctored), "I4 miscredited");
}

#[test]
fn wrong_blame_is_found() {
    let doctored = found(plan(), is_held, |world| {
        let at = wire(world);
        world.wires[at].down.bytes.extend_from_slice(b"_\r\n");
        world.send(at, false);
    });
    assert_eq!(name(doctored), "I4 blamed-wrongly");
}

#[test]
fn a_key_that_survives_is_found() {
    let doctored = found(
        plan(),
        |world| world.is_healed,
        |world| {
            let digits = world.attempts[0].tag.to_le_bytes();
            let token = [digits, digits].concat();
            let now = world.now;
            world.nodes[2].observe(&[b"SET", KEYS[0], &token, b"PX", b"90000"], now);
        },
    );
    assert_eq!(name(doctored), "I5 key-survives");
}

#[test]
fn memory_that_is_never_freed_is_found() {
    let mut plan = plan();
    plan.jobs[0].ttl_ms = 10_000;
    let doctored = found(plan, is_held, |world| {
        world.plan.setup.max_ttl_ms = 0;
        world.nothing_is_kept();
    });
    assert_eq!(name(doctored), "I7 unbounded");
}

#[test]
fn an_outbox_without_end_is_found() {
    let doctored = found(plan(), is_held, |world| {
        let now = world.clocks(0);
        for _ in 0..2_000 {
            let ask =
                redbolt::proto::LockRequest::new(b"another").ttl(std::time::Duration::from_secs(1));
            world.core(0).acquire(&ask, now).unwrap();
        }
        world.settle(0);
    });
    assert_eq!(name(doctored), "I7 unbounded");
}

#[test]
fn a_lock_that_cannot_be_acquired_is_found() {
    let doctored = found(
        plan(),
        |world| world.is_healed,
        |world| {
            for node in 0..3 {
                world.crash(node, false);
            }
        },
    );
    assert_eq!(name(doctored), "I9 not-live");
}

#[test]
fn a_grant_that_is_reported_late_is_found() {
    let is_decided = |world: &World| {
        let granted = world.attempts.first().map(|attempt| attempt.granted);
        granted.is_some_and(|granted| granted.iter().flatten().count() == 1)
    };
    let mut plan = plan();
    plan.jobs.iter_mut().for_each(|job| job.fenced = false);
    let doctored = found(plan, is_decided, |world| {
        for wire in &mut world.wires {
            wire.tags.clear();
        }
        world.attempts[0].granted = [Some(1); MAX_NODES];
    });
    assert_eq!(name(doctored), "I10 stalled");
}

#[test]
fn secrets_in_texts_are_found() {
    for part in 0..2 {
        let doctored = found(plan(), is_held, |world| {
            let digits = world.attempts[0].tag.to_le_bytes();
            let token = String::from_utf8(digits.to_vec()).unwrap();
            let text = [token.as_str(), crate::world::node::PASSWORD][part];
            world.shows_no_secret("a text", &format!("what is told of {text}."));
        });
        assert_eq!(name(doctored), "I12 leaked");
    }
}

#[test]
fn a_lock_that_ends_twice_is_found() {
    let doctored = found(plan(), is_held, |world| {
        let id = id(world);
        world.reported(0, Told::Granted(id));
    });
    assert_eq!(name(doctored), "outcome");
}

#[test]
fn a_killed_connection_of_another_client_is_found() {
    let doctored = found(plan(), is_held, |world| {
        let other = world.clients[1].wires[0].unwrap() as usize;
        let (killer, killed) = (wire(world), world.wires[other].conn.unwrap());
        let conn = world.wires[killer].conn.unwrap();
        let (clock, id) = (world.nodes[0].clock(world.now), killed.number().to_string());
        let words: [&[u8]; 4] = [b"CLIENT", b"KILL", b"ID", id.as_bytes()];
        world.nodes[0].store.command(conn, &words, clock, &mut Vec::new());
        world.killed(0, 0);
    });
    assert_eq!(name(doctored), "killed-stranger");
}

#[test]
fn bytes_that_are_not_a_request_are_found() {
    let doctored = found(plan(), is_held, |world| {
        let at = wire(world);
        world.wires[at].up.bytes.extend_from_slice(b"PING\r\n");
        world.send(at, true);
    });
    assert_eq!(name(doctored), "malformed");
}

#[test]
fn a_timer_that_never_rests_is_found() {
    let doctored = found(plan(), is_held, |world| {
        for _ in 0..100 {
            world.clients[0].fired(world.now);
        }
        world.clients[0].armed = world.now;
        world.queue.push(world.now, crate::world::queue::Event::Timer(0));
    });
    assert_eq!(name(doctored), "spins");
}

#[test]
fn a_panic_is_found() {
    let mut plan = plan();
    plan.setup.max_ttl_ms = 0;
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = Lab::new().run_plan(&plan);
    let _ = std::panic::take_hook();
    assert_eq!(name(outcome.violation), "panicked");
}

/// Returns true once the rival waits and a node notifies it.
fn is_notified(world: &World) -> bool {
    world.clients[1].reported_by != 0
}

#[test]
fn a_waiter_that_sleeps_is_found() {
    let mut plan = plan();
    // No lease ends by itself.
    plan.jobs[0].ttl_ms = 11_000;
    (plan.jobs[1].patience, plan.heal_at) = (5_000 * MS, 6_000 * MS);
    let doctored = found(plan, is_notified, |world| {
        (world.plan.class, world.plan.longest_sleep) = (Class::Waiting, 300 * MS);
        world.wires.iter_mut().for_each(|wire| wire.drops = u64::MAX);
    });
    assert_eq!(name(doctored), "slept");
}

#[test]
fn retries_without_a_pause_are_found() {
    let doctored = found(plan(), is_notified, |world| {
        for _ in 0..100 {
            world.is_asked(1, 0);
        }
    });
    assert_eq!(name(doctored), "frenzy");
}

#[test]
fn a_lock_that_jumps_the_queue_is_found() {
    let doctored = found(plan(), is_notified, |world| {
        let now = world.now;
        (world.plan.jobs[0].client, world.plan.jobs[0].patience) = (1, MS);
        world.is_in_turn(0, now);
    });
    assert_eq!(name(doctored), "out-of-turn");
}

#[test]
fn a_queue_that_outlives_all_its_waiters_is_found() {
    let doctored = found(plan(), is_notified, |world| {
        let now = world.now;
        world.nodes[0].observe(&[b"SET", b"redbolt:line:lock:job", b"1"], now);
    });
    assert_eq!(name(doctored), "queue-survives");
}

#[test]
fn a_push_link_that_is_left_is_found() {
    let doctored = found(plan(), is_notified, World::nobody_listens);
    assert_eq!(name(doctored), "I7 unbounded");
}

#[test]
fn outcomes_without_a_cause_are_found() {
    let found = |doctor: fn(&mut World)| name(found(plan(), is_held, doctor));
    let gone = found(|world| {
        let grants = world.clients[0].core.votes(id(world)).grants();
        world.is_gone_for_sure(0, grants);
    });
    assert_eq!(gone, "I4 miscredited");
    let extended = found(|world| {
        let votes = world.clients[0].core.votes(id(world));
        world.extension_is_earned(0, &votes, 4_711);
    });
    assert_eq!(extended, "I4 miscredited");
    let revived = found(|world| world.is_no_revival(0, Some(Lease::default())));
    assert_eq!(revived, "outcome");
    let asked = found(|world| world.plan.setup.proven = true);
    assert_eq!(asked, "asked-at-the-door");
}
