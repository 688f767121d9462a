//! The embedded node compared with a real `redis-server`: the same commands must give the same
//! bytes in reply.
//!
//! Random sequences of commands run over TCP on several connections of both: one at a time,
//! pipelined, and byte by byte. Replies that cannot be equal are compared by shape: TTLs within a
//! tolerance, the clock, connection IDs, INFO. The lock scripts run as Lua on one side and as Rust
//! on the other, among all kinds of commands, and in histories of locks only, in which some holders
//! expire before they release.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    cell::{Cell, RefCell},
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant, SystemTime},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{RngSeed, TestCaseError, TestRunner},
};
use redbolt::proto::{
    restart_guard::BIG_MS,
    script::{
        ACQUIRE_FENCED, ACQUIRE_IN_QUEUE, ACQUIRE_MANY, ACQUIRE_PERMIT, ACQUIRE_PERMIT_IN_QUEUE,
        ACQUIRE_PYTHON, ACQUIRE_REDISSON, ACQUIRE_REDISSON_FENCED, ACQUIRE_REDISSON_READ,
        ACQUIRE_REDISSON_WRITE, ACQUIRE_SHARED, ACQUIRE_SHARED_FENCED, ACQUIRE_SYMFONY_READ,
        ACQUIRE_SYMFONY_WRITE, ACQUIRE_TIMED, DOWNGRADE, ENROL, EXTEND, EXTEND_DOWNGRADED,
        EXTEND_PERMIT, EXTEND_REDISSON, EXTEND_REDISSON_RW, EXTEND_SHARED, EXTEND_SYMFONY_WRITE,
        EXTEND_TIMED, FORCE_UNLOCK, FORCE_UNLOCK_PYTHON, FORCE_UNLOCK_REDISSON,
        FORCE_UNLOCK_REDISSON_RW, FORCE_UNLOCK_SPRING, FORCE_UNLOCK_SYMFONY, FORCE_UNLOCK_TIMED,
        LEAVE_QUEUE, UNDO, UNDO_DOWNGRADED, UNDO_PERMIT, UNDO_PYTHON, UNDO_REDISSON,
        UNDO_REDISSON_RW, UNDO_SHARED, UNDO_SPRING, UNDO_SYMFONY_WRITE, UNDO_TIMED, UPGRADE,
        UPGRADE_FENCED, VIEW_DIGEST, VIEW_PERMITS, VIEW_QUEUE, VIEW_SHARED, WRITE_BACK,
        WRITE_BACK_PERMIT, WRITE_BACK_REDISSON, WRITE_BACK_SHARED,
    },
};
use redbolt_node::{
    Node,
    model::{ClockReading, ConnId, Denial, Store},
};
use redbolt_test_servers::Server;

#[test]
fn random_commands_get_the_replies_of_a_real_server() {
    compare(300, 0.3, vec(any_step(), 1..40));
}

#[test]
fn random_histories_of_locks_get_the_replies_of_a_real_server() {
    let pair = compare(450, 0.0, vec(lock_step(lock_call()), 1..60));
    pair.has_answered(&[
        (ACQUIRE_MANY.text, &["+OK", ":", "+GUARD"]),
        (ACQUIRE_FENCED.text, &["+OK ", ":", "+GUARD ", "+CLOCK ", "-ERR the fencing"]),
        (WRITE_BACK.text, &[":0", ":1", "-ERR the fencing"]),
        (FORCE_UNLOCK.text, &[":0", ":1"]),
        (ENROL.text, &[":0", ":1"]),
    ]);
}

/// Shared and exclusive locks, on the same names.
#[test]
fn random_histories_of_shared_locks_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 3 => shared_call()];
    let pair = compare(360, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_SHARED.text, &["+OK", ":", "+GUARD"]),
        (ACQUIRE_SHARED_FENCED.text, &["+OK ", ":", "+GUARD ", "+CLOCK ", "-ERR the fencing"]),
        (EXTEND_SHARED.text, &[":0", ":1"]),
        (UNDO_SHARED.text, &[":0", ":1"]),
        (WRITE_BACK_SHARED.text, &[":0", ":1"]),
        (VIEW_SHARED.text, &["$", "-WRONGTYPE"]),
        (ACQUIRE_FENCED.text, &["+OK ", ":"]),
        (EXTEND.text, &[":0"]),
        (UNDO.text, &[":0"]),
        (FORCE_UNLOCK.text, &[":0", ":1"]),
        (ENROL.text, &[":0", ":1"]),
    ]);
}

/// Permits and locks of the other kinds, on the same names.
#[test]
fn random_histories_of_permits_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 1 => shared_call(), 8 => permit_call()];
    let pair = compare(300, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_PERMIT.text, &["+OK ", ":", "+GUARD ", "+CLOCK "]),
        (EXTEND_PERMIT.text, &[":0", ":1"]),
        (UNDO_PERMIT.text, &[":0", ":1"]),
        (WRITE_BACK_PERMIT.text, &[":0", ":1"]),
        (VIEW_PERMITS.text, &["$"]),
        (FORCE_UNLOCK.text, &[":0", ":1"]),
    ]);
}

/// Locks in Redisson's format and in redbolt's, on the same names.
#[test]
fn random_histories_of_redisson_locks_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 1 => permit_call(), 8 => redisson_call()];
    let pair = compare(300, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_REDISSON.text, &["+OK", ":", "+GUARD"]),
        (ACQUIRE_REDISSON_FENCED.text, &["+OK ", ":", "+GUARD"]),
        (EXTEND_REDISSON.text, &[":0", ":1"]),
        (UNDO_REDISSON.text, &[":0", ":1"]),
        (WRITE_BACK_REDISSON.text, &[":0", ":1"]),
        (FORCE_UNLOCK_REDISSON.text, &[":0", ":1"]),
        (VIEW_PERMITS.text, &["$"]),
        (UNDO.text, &[":0"]),
    ]);
}

/// Locks of Spring's registries, which differ from redbolt's only in their release.
#[test]
fn random_histories_of_spring_locks_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![2 => lock_call(), 1 => redisson_call(), 3 => spring_call()];
    let pair = compare(200, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (UNDO_SPRING.text, &[":0", ":1"]),
        (FORCE_UNLOCK_SPRING.text, &[":0", ":1"]),
        (EXTEND.text, &[":0", ":1"]),
    ]);
}

/// Locks of python-redis-lock and of redbolt, and an operator who breaks them.
#[test]
fn random_histories_of_python_redis_locks_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 1 => redisson_call(), 12 => python_call()];
    let pair = compare(300, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_PYTHON.text, &["+OK", ":", "+GUARD"]),
        (UNDO_PYTHON.text, &[":0", ":1"]),
        (EXTEND.text, &[":0", ":1"]),
        (FORCE_UNLOCK_PYTHON.text, &[":0", ":1"]),
    ]);
}

/// Symfony's locks, exclusive and shared, and redbolt's readers on the same names.
#[test]
fn random_histories_of_symfony_locks_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 1 => shared_call(), 14 => symfony_call()];
    let pair = compare(360, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_SYMFONY_READ.text, &["+OK", ":", "+GUARD"]),
        (ACQUIRE_SYMFONY_WRITE.text, &["+OK", ":", "+GUARD"]),
        (EXTEND_SYMFONY_WRITE.text, &[":0", ":1"]),
        (UNDO_SYMFONY_WRITE.text, &[":0", ":1"]),
        (FORCE_UNLOCK_SYMFONY.text, &[":0", ":1"]),
        (EXTEND_SHARED.text, &[":0", ":1"]),
        (UNDO_SHARED.text, &[":0", ":1"]),
        (VIEW_SHARED.text, &["$"]),
    ]);
}

/// Locks whose value is a time, members of the recipe, which have no TTL, and other locks.
#[test]
fn random_histories_of_timed_locks_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![2 => lock_call(), 1 => redisson_call(), 12 => timed_call()];
    let pair = compare(300, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_TIMED.text, &["+OK", ":", ":-1", "+GUARD"]),
        (EXTEND_TIMED.text, &[":0", ":1"]),
        (UNDO_TIMED.text, &[":0", ":1"]),
        (FORCE_UNLOCK_TIMED.text, &[":0", ":1"]),
    ]);
}

/// Redisson's readers and writers, and other locks on the same names.
#[test]
fn random_histories_of_redisson_s_readers_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 1 => redisson_call(), 12 => redisson_rw_call()];
    let pair = compare(300, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_REDISSON_READ.text, &["+OK", ":", "+GUARD"]),
        (ACQUIRE_REDISSON_WRITE.text, &["+OK", ":", "+GUARD"]),
        (EXTEND_REDISSON_RW.text, &[":0", ":1"]),
        (UNDO_REDISSON_RW.text, &[":0", ":1"]),
        (FORCE_UNLOCK_REDISSON_RW.text, &[":0", ":1"]),
    ]);
}

/// Holders that change their mode, and others.
#[test]
fn random_changes_of_mode_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 5 => shared_call(), 14 => mode_call()];
    let pair = compare(400, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (UPGRADE.text, &["+OK", ":", "+GUARD"]),
        (UPGRADE_FENCED.text, &["+OK ", ":", "+GUARD ", "+CLOCK ", "-ERR the fencing"]),
        (DOWNGRADE.text, &["+OK", ":", "+GUARD"]),
        (EXTEND_DOWNGRADED.text, &[":0", ":1"]),
        (UNDO_DOWNGRADED.text, &[":0", ":1"]),
        (EXTEND_SHARED.text, &[":0", ":1"]),
        (UNDO_SHARED.text, &[":0", ":1"]),
        (WRITE_BACK_SHARED.text, &[":0", ":1"]),
        (ACQUIRE_SHARED.text, &["+OK", ":"]),
    ]);
}

/// Waiters, and locks of the other kinds that are not requested in the queue.
#[test]
fn random_queues_get_the_replies_of_a_real_server() {
    let any_call =
        prop_oneof![1 => lock_call(), 2 => shared_call(), 8 => mode_call(), 36 => queue_call()];
    let pair = compare(400, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (
            ACQUIRE_IN_QUEUE.text,
            &["+OK ", "+WAIT ", "+WAIT 0 ", "+GUARD ", "+CLOCK ", "-ERR the fencing"],
        ),
        (LEAVE_QUEUE.text, &[":0", ":1"]),
        (EXTEND.text, &[":0"]),
        (UNDO.text, &[":0"]),
        (FORCE_UNLOCK.text, &[":0", ":1"]),
        (EXTEND_SHARED.text, &[":0"]),
        (UNDO_SHARED.text, &[":0"]),
        (VIEW_QUEUE.text, &["$"]),
        (VIEW_SHARED.text, &["$"]),
    ]);
}

/// Waiters for permits, other waiters, and holders of permits whose semaphore is marked.
#[test]
fn random_queues_for_permits_get_the_replies_of_a_real_server() {
    let any_call = prop_oneof![1 => lock_call(), 1 => shared_call(), 16 => permit_call(), 10 => queue_call(), 36 => permit_queue_call()];
    let pair = compare(500, 0.0, vec(lock_step(any_call), 1..60));
    pair.has_answered(&[
        (ACQUIRE_PERMIT_IN_QUEUE.text, &["+OK ", "+WAIT ", "+WAIT 0 ", "+GUARD ", "+CLOCK "]),
        (ACQUIRE_IN_QUEUE.text, &["+OK ", "+WAIT "]),
        (ACQUIRE_PERMIT.text, &["+OK ", ":"]),
        (LEAVE_QUEUE.text, &[":0", ":1"]),
        (EXTEND_PERMIT.text, &[":0", ":1"]),
        (UNDO_PERMIT.text, &[":0", ":1"]),
        (FORCE_UNLOCK.text, &[":0", ":1"]),
        (VIEW_QUEUE.text, &["$"]),
        (VIEW_PERMITS.text, &["$"]),
    ]);
}

/// Runs random sequences on both sides, this share of them with a password set.
fn compare(cases: u32, guarded: f64, steps: impl Strategy<Value = Vec<Step>>) -> Pair {
    let pair = RefCell::new(Pair::start());
    let variable = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let config = ProptestConfig {
        cases: variable("PROPTEST_CASES").map_or(cases, |cases| cases as u32),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        rng_seed: RngSeed::Fixed(variable("PROPTEST_RNG_SEED").unwrap_or(7)),
        ..ProptestConfig::default()
    };
    let sequences = (any_delivery(), prop::bool::weighted(guarded), steps);
    let outcome = TestRunner::new(config).run(&sequences, |(delivery, guarded, steps)| {
        let mut pair = pair.borrow_mut();
        pair.clear(guarded);
        let begun = Instant::now();
        let outcome = pair.play(delivery, &steps).and_then(|()| pair.same_keys());
        // A short-lived key may have expired on one side only.
        if begun.elapsed() < SHORT_LIVED { outcome } else { Ok(()) }
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    pair.into_inner()
}

/// Both refuse with the same text, at the same point, and leave the same keys.
#[test]
fn a_removed_command_is_refused_on_both_sides() {
    let digest = |text: &str| sha1_smol::Sha1::from(text).digest().to_string();
    let of_shared =
        ["zadd", "zrem", "zscore", "zrange", "zremrangebyscore", "pexpireat", "type", "time"];
    let of_permits = ["hset", "hget", "hdel", "hmget", "hexists", "zcard", "zrangebyscore"];
    let of_all = ["eval", "evalsha", "set", "get", "del", "pexpire", "pttl"];
    for command in of_all.into_iter().chain(of_shared).chain(of_permits) {
        for denial in [Denial::Forbidden, Denial::RenamedAway] {
            let mut pair = Pair::without(command, denial);
            for words in [
                &["EVAL", UNDO.text, "0"][..],
                &["EVALSHA", &digest(UNDO.text), "0"],
                &["SET", "redbolt:guard", "", "NX", "XX"],
                &["DEL"],
                &["EVAL", ACQUIRE_MANY.text, "1", "k", "token", "60000", "1"],
                &["EXISTS", "k"],
                &["SET", "k", "token", "NX", "PX", "60000"],
                &["EXISTS", "k"],
                &["EVAL", EXTEND.text, "1", "k", "token", "90000"],
                &["EVAL", UNDO.text, "1", "k", "other"],
                &["EVAL", UNDO.text, "1", "k", "token"],
                &["EXISTS", "k"],
                &["PEXPIRE", "k", "x"],
                &["DEL", "k"],
                &["EVAL", ACQUIRE_SHARED.text, "1", "s", SHARER_A, "60000", "3"],
                &["EXISTS", "s"],
                &["EVAL", ACQUIRE_SHARED.text, "1", "s", SHARER_B, "60000", "3"],
                &["EVAL", UNDO_SHARED.text, "1", "s", SHARER_B],
                &["EVAL", UNDO_SHARED.text, "1", "s", SHARER_A],
                &["EXISTS", "s"],
                &[
                    "EVAL",
                    ACQUIRE_PERMIT.text,
                    "2",
                    "p",
                    "u",
                    SHARER_A,
                    "60000",
                    "3",
                    "9",
                    "7",
                    "2",
                ],
                &["EXISTS", "p", "u"],
                &["EVAL", UNDO_PERMIT.text, "2", "p", "u", SHARER_A],
                &["EXISTS", "p", "u"],
            ] {
                pair.same(0, words);
            }
        }
    }
}

/// A command is taken away while others hold the resource in some way, which no operator should do.
#[test]
fn a_script_without_permission_ends_like_on_a_real_server() {
    let mut denying = Denying::start();
    let proposal = unix_micros().to_string();
    let fenced = [SHARER_A, "900000", &proposal, "900000", "1", "3"];
    let fenced = [&["EVAL", ACQUIRE_SHARED_FENCED.text, "2", "k", "c"], &fenced[..]].concat();
    let shares = |token, ttl| ["EVAL", ACQUIRE_SHARED.text, "1", "k", token, ttl, "3"];
    let (a, twin) = (shares(SHARER_A, "600000"), shares(TWIN_OF_A, "600000"));
    let b = shares(SHARER_B, "700000");
    let held_by = [
        &[][..],
        &[&["SET", "k", SHARER_A, "PX", "600000"][..]],
        &[&b],
        &[&a],
        &[&a, &b],
        &[&twin],
        &[&twin, &b],
        &[&shares("somebody", "600000")],
        &[&["EVAL", UPGRADE.text, "1", "k", WRITER_BESIDE_A, "600000", DIGITS_OF_A]],
    ];
    let upgrade = [WRITER_BESIDE_A, "900000", &proposal, "900000", DIGITS_OF_A];
    let upgrade = [&["EVAL", UPGRADE_FENCED.text, "2", "k", "c"], &upgrade[..]].concat();
    let mut refused = 0;
    for command in COMMANDS_OF_SCRIPTS.map(Some).into_iter().chain([None]) {
        for held in held_by {
            for script in [
                &["EVAL", ACQUIRE_SHARED.text, "2", "k", "guard", SHARER_A, "900000", "3"][..],
                &fenced,
                &["EVAL", EXTEND_SHARED.text, "1", "k", SHARER_A, "900000"],
                &["EVAL", UNDO_SHARED.text, "1", "k", SHARER_A],
                &["EVAL", WRITE_BACK_SHARED.text, "2", "k", "c", SHARER_A, "9", "900000"],
                &["EVAL", UPGRADE.text, "2", "k", "guard", WRITER_BESIDE_A, "900000", DIGITS_OF_A],
                &upgrade,
                &[
                    "EVAL",
                    DOWNGRADE.text,
                    "2",
                    "k",
                    "guard",
                    SECOND_OF_A,
                    "900000",
                    "3",
                    DIGITS_OF_A,
                ],
                &["EVAL", EXTEND_DOWNGRADED.text, "1", "k", SHARER_A, "900000"],
                &["EVAL", EXTEND_DOWNGRADED.text, "1", "k", SECOND_OF_A, "900000"],
                &["EVAL", UNDO_DOWNGRADED.text, "1", "k", SHARER_A],
                &["EVAL", UNDO_DOWNGRADED.text, "1", "k", SECOND_OF_A],
                &["EVAL", EXTEND.text, "1", "k", SHARER_A, "900000"],
                &["EVAL", UNDO.text, "1", "k", SHARER_A],
                &["EVAL", WRITE_BACK.text, "2", "k", "c", SHARER_A, "1", "9", "900000"],
                &["EVAL", ACQUIRE_MANY.text, "2", "k", "guard", SHARER_A, "900000", "1"],
                &["EVAL", ENROL.text, "1", "k", SHARER_A, "run", "126144900000"],
                &["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "zset", SHARER_A, SHARER_B],
                &["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "string", LONE_A],
                &["EVAL", VIEW_SHARED.text, "1", "k", "16"],
                &["EVAL", VIEW_DIGEST.text, "1", "k"],
                &["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "dump", "0"],
                &["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "string", SHARER_A],
            ] {
                for before in [&["FLUSHALL"][..], &["SET", "guard", "run", "PX", "900000"]] {
                    denying.same(before);
                }
                held.iter().for_each(|before| drop(denying.same(before)));
                let reply = denying.same_without(command, script);
                refused += usize::from(reply.starts_with(b"-ERR The user"));
                for look in ["PTTL k", "TYPE k", "GET k", "GET c", "ZRANGE k 0 -1 WITHSCORES"] {
                    denying.same(&look.split(' ').collect::<Vec<_>>());
                }
            }
        }
    }
    assert!(refused >= 100, "{refused} were refused only");
}

/// A grant in the queue can be undone by its holder, no key lives for ever, and without a queue
/// nothing is marked.
#[test]
fn a_script_of_the_queue_without_permission_ends_like_on_a_real_server() {
    let mut denying = Denying::start();
    let proposal = unix_micros().to_string();
    let asks = |mode: &'static str, token: &'static str, grace: &'static str| {
        let ticket = if mode == "x" { TICKET_OF_A } else { SHARING_TICKET_OF_A };
        let other = if mode == "x" { TICKET_OF_B } else { SHARING_TICKET_OF_B };
        let ticket = if token == SHARER_B { other } else { ticket };
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k", "line", "until", ticket, "call"];
        [&keys[..], &[token, "600000", "3", "0", "1000", grace, ticket]].concat()
    };
    let fenced = |ticket: &'static str| {
        let keys = [
            "EVAL",
            ACQUIRE_IN_QUEUE.text,
            "7",
            "k",
            "line",
            "until",
            ticket,
            "call",
            "c",
            "guard",
        ];
        let words =
            [SHARER_A, "600000", "3", "0", "1000", "60000", &proposal, "900000", "1", ticket];
        [&keys[..], &words].concat()
    };
    let leaves = |ticket: &'static str, member: &'static str| {
        vec!["EVAL", LEAVE_QUEUE.text, "5", "k", "line", "until", ticket, "call", member]
    };
    let sharing =
        |token: &'static str| vec!["EVAL", ACQUIRE_SHARED.text, "1", "k", token, "600000", "3"];
    let alone = |token: &'static str| vec!["SET", "k", token, "PX", "600000"];
    let held_by = [
        vec![],
        vec![alone(SHARER_B)],
        vec![alone(SHARER_A), asks("x", SHARER_B, "60000")],
        vec![asks("x", SHARER_B, "60000")],
        vec![asks("x", SHARER_B, "60000"), vec!["EVAL", UNDO.text, "1", "k", SHARER_B]],
        vec![asks("x", SHARER_B, "-1"), vec!["DEL", "k"], asks("s", SHARER_A, "60000")],
        vec![sharing(SHARER_B)],
        vec![sharing(SHARER_A), asks("x", SHARER_B, "60000")],
        vec![asks("s", SHARER_B, "60000")],
        vec![asks("s", SHARER_A, "60000")],
        vec![asks("x", SHARER_A, "60000")],
        vec![asks("s", TWIN_OF_A, "60000")],
        vec![vec!["SET", "k", "foreign"]],
    ];
    let mut refused = 0;
    for command in COMMANDS_OF_SCRIPTS.map(Some).into_iter().chain([None]) {
        for held in &held_by {
            for script in [
                asks("x", SHARER_A, "60000"),
                asks("s", SHARER_A, "60000"),
                fenced(TICKET_OF_A),
                fenced(SHARING_TICKET_OF_A),
                leaves(TICKET_OF_B, "x00112233445566778899aabbccddeeff01:60000"),
                leaves(SHARING_TICKET_OF_A, "saaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00:60000"),
                leaves(TICKET_OF_A, "xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00:60000"),
                vec!["EVAL", EXTEND.text, "1", "k", SHARER_A, "900000"],
                vec!["EVAL", UNDO.text, "1", "k", SHARER_A],
                vec!["EVAL", WRITE_BACK.text, "2", "k", "c", SHARER_A, "1", "9", "900000"],
                vec!["EVAL", EXTEND_SHARED.text, "1", "k", SHARER_A, "900000"],
                vec!["EVAL", UNDO_SHARED.text, "1", "k", SHARER_A],
                vec!["EVAL", UPGRADE.text, "1", "k", WRITER_BESIDE_A, "900000", DIGITS_OF_A],
                vec!["EVAL", DOWNGRADE.text, "1", "k", SECOND_OF_A, "900000", "3", DIGITS_OF_A],
                vec!["EVAL", EXTEND_DOWNGRADED.text, "1", "k", SHARER_A, "900000"],
                vec!["EVAL", UNDO_DOWNGRADED.text, "1", "k", SHARER_A],
                vec!["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "zset", SHARER_A, SHARER_B],
                vec!["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "string", SHARER_A],
                vec!["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "string", LONE_A],
                vec!["EVAL", VIEW_SHARED.text, "1", "k", "16"],
                vec!["EVAL", VIEW_QUEUE.text, "4", "k", "line", "until", "call", "180"],
                sharing(SHARER_A),
            ] {
                denying.same(&["FLUSHALL"]);
                denying.same(&["SET", "guard", "run", "PX", "900000"]);
                held.iter().for_each(|before| drop(denying.same(before)));
                let is_foreign = denying.same(&["GET", "k"]) == b"$7\r\nforeign\r\n";
                let reply = denying.same_without(command, &script);
                refused += usize::from(reply.starts_with(b"-ERR The user"));
                for key in ["k", "line", "until", "call", "c", TICKET_OF_A, SHARING_TICKET_OF_B] {
                    let lives = denying.same(&["PTTL", key]);
                    let is_of_others = key == "k" && is_foreign;
                    assert_eq!(
                        lives == b":-1\r\n",
                        is_of_others,
                        "{script:?} without {command:?}: {key}"
                    );
                }
                for look in ["TYPE k", "GET k", "GET c", "GET call", "ZRANGE k 0 -1 WITHSCORES"] {
                    denying.same(&look.split(' ').collect::<Vec<_>>());
                }
                denying.same(&["ZRANGE", "line", "0", "-1", "WITHSCORES"]);
                let sharing = script.contains(&SHARING_TICKET_OF_A);
                let undo = if sharing { UNDO_SHARED.text } else { UNDO.text };
                if script[1] == ACQUIRE_IN_QUEUE.text && reply.starts_with(b"+OK") {
                    let undone = denying.same_without(command, &["EVAL", undo, "1", "k", SHARER_A]);
                    assert_eq!(undone, b":1\r\n", "{script:?} without {command:?}");
                }
                if script[1] == LEAVE_QUEUE.text && reply.starts_with(b":") {
                    let is_left = denying.same(&["ZCARD", "line"]) == b":0\r\n";
                    let value = denying.same(&["GET", "k"]);
                    let mark = denying.same(&["ZSCORE", "k", "line"]);
                    let is_marked = value.contains(&b'\n')
                        && value.iter().filter(|&&byte| byte == b'\n').count() > 2
                        || mark.starts_with(b"$3");
                    assert!(!is_left || !is_marked, "{script:?} without {command:?} on {held:?}");
                }
            }
        }
    }
    assert!(refused >= 100, "{refused} were refused only");
}

/// A writer that waits for readers keeps other readers out while its owner sends requests. A call
/// from the future was made before the node's clock was set back.
#[test]
fn a_waiter_that_blocks_others_has_to_send_requests_in_time() {
    let mut queue = Denying::start();
    let answer = |side: &mut Denying, words: &[&str]| {
        String::from_utf8(side.same(words)).unwrap().trim_end().to_owned()
    };
    let ask = |side: &mut Denying, ticket: &str, token: &str| {
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k", "line", "until", ticket, "call"];
        answer(side, &[&keys[..], &[token, "600000", "3", "0", "1000", "50", ticket]].concat())
    };
    // Waits as long as a key lives that both servers are sent now.
    let passes = |side: &mut Denying, ms: &str| {
        side.same(&["SET", "clock", "1", "PX", ms]);
        let until = Instant::now() + Duration::from_secs(60);
        while side.real.ask(0, &["EXISTS", "clock"]) != b":0\r\n" {
            assert!(Instant::now() < until, "a key of {ms} ms expires");
            thread::sleep(Duration::from_millis(5));
        }
    };
    assert_eq!(ask(&mut queue, SHARING_TICKET_OF_A, SHARER_A), "+OK 1000");
    assert!(ask(&mut queue, TICKET_OF_B, SHARER_B).starts_with("+WAIT "));
    let asks = |side: &mut Denying| ask(side, SHARING_TICKET_OF_B, SECOND_OF_A);
    let is_pinged = |answer: &str| answer.split(' ').nth(6) == Some("50");
    assert!(!is_pinged(&asks(&mut queue)), "it has just asked");
    passes(&mut queue, "600");
    assert!(is_pinged(&asks(&mut queue)), "it has not asked for a while");
    passes(&mut queue, "60");
    // Its key is deleted with it.
    queue.same(&["SET", TICKET_OF_B, "1"]);
    assert!(asks(&mut queue).starts_with("+OK "));
    assert_eq!(answer(&mut queue, &["EXISTS", TICKET_OF_B]), ":0");

    queue.same(&["FLUSHALL"]);
    let first = format!("{TICKET_OF_A}{}:50{}", &SHARER_A[32..34], &SHARER_A[34..]);
    assert_eq!(ask(&mut queue, TICKET_OF_A, SHARER_A), "+OK 1000");
    assert_eq!(answer(&mut queue, &["EVAL", UNDO.text, "1", "k", SHARER_A]), ":1");
    let called = format!("{} {first}", unix_micros() / 1_000 + 60_000);
    queue.same(&["SET", "call", &called, "PX", "600000"]);
    let waits = ask(&mut queue, TICKET_OF_B, SHARER_B);
    assert!(waits.contains(":50 "), "it is called again: {waits}");
}

/// Waiters in the queue, clients outside it, and the remains of a queue: each rule alone, with the
/// replies of both sides.
#[test]
fn each_rule_of_the_queue_alone() {
    let mut queue = Denying::start();
    let answers = |side: &mut Denying, words: &[&str]| {
        let reply = String::from_utf8(side.same(words)).unwrap();
        let reply = reply.trim_end();
        reply.split_once("\r\n").map_or(reply, |(_, rest)| rest).to_owned()
    };
    let ask = |side: &mut Denying, ticket: &str, token: &str, at: &str| {
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k", "line", "until", ticket, "call"];
        let words = [token, "600000", "3", at, "1000", "60000", ticket];
        answers(side, &[&keys[..], &words].concat())
    };
    let leave = |side: &mut Denying, ticket: &str, member: &str| {
        let keys = ["EVAL", LEAVE_QUEUE.text, "5", "k", "line", "until", ticket, "call", member];
        answers(side, &keys)
    };
    let value = |side: &mut Denying| answers(side, &["GET", "k"]);
    let newcomer = ["SET", "k", SECOND_OF_A, "NX", "PX", "600000"];
    let shares = ["EVAL", ACQUIRE_SHARED.text, "1", "k", SECOND_OF_A, "600000", "3"];
    let member =
        |ticket: &str, token: &str| format!("{ticket}{}:60000{}", &token[32..34], &token[34..]);
    let (a, b) = (member(TICKET_OF_A, SHARER_A), member(TICKET_OF_B, SHARER_B));

    // A waits for B, which does not know of any queue. A marked key is marked once.
    queue.same(&["SET", "k", SHARER_B, "PX", "600000"]);
    assert!(ask(&mut queue, TICKET_OF_A, SHARER_A, "0").ends_with(" 1000 0 - -"));
    let marked = value(&mut queue);
    assert!(marked.starts_with(&format!("{SHARER_B}\n")), "{marked}");
    ask(&mut queue, TICKET_OF_A, SHARER_A, "0");
    assert_eq!(value(&mut queue), marked);
    assert_eq!(answers(&mut queue, &["EVAL", EXTEND.text, "1", "k", SHARER_B, "700000"]), ":1");
    assert_ne!(value(&mut queue), marked, "it ends later, and is marked");
    let write_back = ["EVAL", WRITE_BACK.text, "2", "k", "c", SHARER_B, "1", "8", "900000"];
    assert_eq!(answers(&mut queue, &write_back), ":1");
    // It leaves a closed key, which only A can take.
    assert_eq!(answers(&mut queue, &["EVAL", UNDO.text, "1", "k", SHARER_B]), ":1");
    assert_eq!(value(&mut queue), "\nredbolt");
    assert_eq!(answers(&mut queue, &newcomer), "$-1");
    assert!(answers(&mut queue, &shares).starts_with(':'));
    assert_eq!(ask(&mut queue, TICKET_OF_B, SHARER_B, "0"), format!("+WAIT 0 1001 1 {a} -"));
    // A waiter that finds it called for a while receives the rest of the call.
    let called = format!("{} {a}", unix_micros() / 1_000 - 10_000);
    queue.same(&["SET", "call", &called, "PX", "600000"]);
    let waits = ask(&mut queue, TICKET_OF_B, SHARER_B, "0");
    let rest = waits.split([':', ' ']).nth(5).and_then(|rest| rest.parse().ok());
    assert!(rest.is_some_and(|rest: u64| (40_000..=50_000).contains(&rest)), "{waits}");
    assert_eq!(ask(&mut queue, TICKET_OF_A, SHARER_A, "0"), "+OK 1000");
    assert!(ask(&mut queue, TICKET_OF_B, SHARER_B, "0").ends_with(&format!(" 1001 1 {a} -")));
    assert_eq!(leave(&mut queue, TICKET_OF_A, &a), ":1");
    assert_ne!(value(&mut queue), SHARER_A, "B waits");
    assert_eq!(leave(&mut queue, TICKET_OF_B, &b), ":1");
    assert_eq!(value(&mut queue), SHARER_A, "no process waits");
    assert_eq!(answers(&mut queue, &["EVAL", UNDO.text, "1", "k", SHARER_A]), ":1");
    assert_eq!(answers(&mut queue, &["EXISTS", "k", "line", "until", "call"]), ":0");

    // Readers share with readers, but do not pass a writer that waits for them.
    let sharing_a = member(SHARING_TICKET_OF_A, SHARER_A);
    assert_eq!(ask(&mut queue, SHARING_TICKET_OF_A, SHARER_A, "0"), "+OK 1000");
    assert_eq!(ask(&mut queue, SHARING_TICKET_OF_B, SHARER_B, "0"), "+OK 1001");
    assert_eq!(leave(&mut queue, SHARING_TICKET_OF_A, &sharing_a), ":1");
    assert!(answers(&mut queue, &shares).starts_with(':'), "one is in the queue");
    let sharing_b = member(SHARING_TICKET_OF_B, SHARER_B);
    assert_eq!(leave(&mut queue, SHARING_TICKET_OF_B, &sharing_b), ":1");
    assert_eq!(answers(&mut queue, &["ZSCORE", "k", "line"]), "$-1");
    assert_eq!(answers(&mut queue, &["EVAL", UNDO_SHARED.text, "1", "k", SHARER_B]), ":1");
    assert!(ask(&mut queue, TICKET_OF_B, SHARER_B, "0").ends_with(" 1000 0 - -"));
    assert!(answers(&mut queue, &shares).starts_with(':'), "a writer is in the queue");
    let denied = ask(&mut queue, SHARING_TICKET_OF_A, TWIN_OF_A, "0");
    let of_readers = denied.strip_prefix("+WAIT ").and_then(|rest| rest.split_once(' '));
    let (left, rest) = of_readers.expect("it waits");
    let reported = b.strip_suffix(":web-1").expect("its owner has a label, which is not told");
    assert_eq!(rest, format!("1001 1 {reported} -"));
    assert!(left.parse::<u64>().unwrap() > 500_000, "the writer waits for the readers: {left}");
    assert_eq!(answers(&mut queue, &["EVAL", UNDO_SHARED.text, "1", "k", SHARER_A]), ":1");
    assert_eq!(value(&mut queue), "\nredbolt", "the last of them has left a closed key");
    assert_eq!(ask(&mut queue, TICKET_OF_B, SHARER_B, "900"), "+OK 900");
    let broken = ["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "string", SHARER_B];
    assert_eq!(answers(&mut queue, &broken), ":1");
    assert_eq!(value(&mut queue), "\nredbolt");

    // Data of others blocks the queue, and stays.
    queue.same(&["FLUSHALL"]);
    queue.same(&["SET", "k", "foreign"]);
    assert_eq!(answers(&mut queue, &["EVAL", UNDO.text, "1", "k"]), ":0", "a token is required");
    for foreign in ["foreign", "foreign\n17"] {
        queue.same(&["SET", "k", foreign]);
        assert!(ask(&mut queue, TICKET_OF_A, SHARER_A, "0").starts_with("+WAIT -1 "));
        assert_eq!(leave(&mut queue, TICKET_OF_A, &a), ":1");
        assert_eq!(value(&mut queue), foreign);
    }
}

/// A request costs a node the same behind 128 tickets and behind thousands.
#[test]
fn a_waiter_reads_the_128_tickets_in_front_and_waits_for_those_farther_ahead() {
    let mut queue = Denying::start();
    let mut answer = |words: &[&str]| {
        let reply = String::from_utf8(queue.same(words)).unwrap();
        reply.trim_end().to_owned()
    };
    let ask = |ticket: &str| {
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k", "line", "until", ticket, "call"];
        let words = [SHARER_A, "600000", "3", "0", "1000", "60000", ticket];
        [&keys[..], &words].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let ask_for_permit = |ticket: &str| {
        let keys = [
            "EVAL",
            ACQUIRE_PERMIT_IN_QUEUE.text,
            "6",
            "k",
            "line",
            "until",
            ticket,
            "call",
            "held",
        ];
        let words = [SHARER_A, "600000", "3", "0", "1000", "60000", "300", "1", "7", ticket];
        [&keys[..], &words].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut say = |words: Vec<String>| {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        answer(&words)
    };
    let place = |waits: String| {
        let place = waits.split(' ').skip(3).map(str::to_owned).collect::<Vec<_>>();
        place.join(" ")
    };
    let member = |ticket: &str| format!("{ticket}{}:60000", &SHARER_A[32..34]);
    let name = |mode: char, at: usize| format!("{mode}{at:032}");
    let leave = |ticket: &str, member: &str| {
        let keys = ["EVAL", LEAVE_QUEUE.text, "5", "k", "line", "until", ticket, "call", member];
        keys.map(str::to_owned).to_vec()
    };

    // Readers behind a writer that holds the lock. Only the last one has more than 128 before it.
    say(vec!["SET".into(), "k".into(), SHARER_B.into(), "PX".into(), "600000".into()]);
    for at in 0..129 {
        assert_eq!(place(say(ask(&name('s', at)))), "0 - -", "reader {at}");
    }
    let last = name('s', 129);
    let nearest_unseen = member(&name('s', 1));
    assert_eq!(place(say(ask(&last))), format!("2 {nearest_unseen} -"));
    // A writer among the 128 blocks it, as before.
    let writer = name('x', 500);
    assert_eq!(place(say(ask(&writer))).split(' ').next(), Some("130"));
    let behind = name('s', 130);
    let nearest_unseen = member(&name('s', 3));
    let waits = format!("5 {} {nearest_unseen}", member(&writer));
    assert_eq!(place(say(ask(&behind))), waits);
    // The last reader is let in with the others once the one that it waits for has left.
    assert_eq!(say(leave(&name('s', 1), &member(&name('s', 1)))), ":1");
    assert_eq!(place(say(ask(&last))), "0 - -");

    // Permits behind a writer that 300 free slots do not help.
    say(vec!["FLUSHALL".into()]);
    say(vec!["SET".into(), "k".into(), SHARER_B.into(), "PX".into(), "600000".into()]);
    assert_eq!(place(say(ask(&writer))), "0 - -");
    for at in 0..130 {
        let waits = place(say(ask_for_permit(&name('p', at))));
        let expected = match at {
            0..128 => format!("1 {} -", member(&writer)),
            _ => format!("{} {} -", at - 126, member(&name('p', at - 128))),
        };
        assert_eq!(waits, expected, "the request {at} for a permit");
    }
}

/// Only a real server can have such data.
#[test]
fn foreign_data_blocks_a_queue_and_stays() {
    let server = Server::start();
    let mut real = Side::of(&server.address());
    let keys = ["5", "k", "line", "until", TICKET_OF_A, "call"];
    let ask = ["EVAL", ACQUIRE_IN_QUEUE.text].into_iter().chain(keys);
    let ask: Vec<_> =
        ask.chain([SHARER_A, "600000", "3", "0", "1000", "60000", TICKET_OF_A]).collect();
    let member = format!("{TICKET_OF_A}00:60000");
    let leave: Vec<_> =
        ["EVAL", LEAVE_QUEUE.text].into_iter().chain(keys).chain([member.as_str()]).collect();
    for made in [
        "ZADD k 5 line",
        "ZADD k +inf line 7 somebody",
        "ZADD k 1 somebody 2 line",
        "HSET k line 1",
        "RPUSH k line",
        "SADD k line",
    ] {
        for ttl in ["-1", "500000"] {
            real.ask(0, &["DEL", "k"]);
            real.ask(0, &made.split(' ').collect::<Vec<_>>());
            real.ask(0, &["PEXPIRE", "k", if ttl == "-1" { "900000000" } else { ttl }]);
            if ttl == "-1" {
                real.ask(0, &["PERSIST", "k"]);
            }
            let dump = real.ask(0, &["DUMP", "k"]);
            let reported = String::from_utf8(real.ask(0, &ask)).unwrap();
            let left = reported.split(' ').nth(1).unwrap().parse::<i64>().unwrap();
            assert!(if ttl == "-1" { left == -1 } else { left > 400_000 }, "{made}: {reported}");
            assert_eq!(real.ask(0, &leave), b":1\r\n", "{made}");
            assert_eq!(real.ask(0, &["DUMP", "k"]), dump, "{made}");
        }
    }
}

/// Expired tickets on a real server; 64 of them are removed at once.
#[test]
fn expired_tickets_are_removed_from_a_real_queue() {
    let server = Server::start();
    let mut real = Side::of(&server.address());
    for dead in 0..70 {
        let ticket = format!("x{dead:032}00:60000");
        real.ask(0, &["ZADD", "line", &dead.to_string(), &ticket]);
        real.ask(0, &["ZADD", "until", &(dead + 1).to_string(), &ticket]);
    }
    let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k", "line", "until", TICKET_OF_A, "call"];
    let ask = [&keys[..], &[SHARER_A, "600000", "3", "0", "9", "60000", TICKET_OF_A]].concat();
    let waits = String::from_utf8(real.ask(0, &ask)).unwrap();
    assert!(waits.starts_with("+WAIT 0 70 6 x00"), "{waits}");
    assert_eq!(real.ask(0, &ask), b"+OK 70\r\n");
    for key in ["line", "until"] {
        assert_eq!(real.ask(0, &["ZCARD", key]), b":1\r\n");
        let left = integer(&real.ask(0, &["PTTL", key])).unwrap();
        assert!((1..=6_000).contains(&left), "{key} lives for {left} ms");
    }
}

/// A ticket that leaves, or loses its place because it does not come when called, is removed from
/// both sets of the queue.
#[test]
fn a_ticket_that_is_no_longer_in_the_queue_has_no_end_either() {
    let mut queue = Denying::start();
    let ask = |ticket: &'static str, token: &'static str| {
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k", "line", "until", ticket, "call"];
        [&keys[..], &[token, "600000", "3", "0", "1000", "1000", ticket]].concat()
    };
    let member_of_a = format!("{TICKET_OF_A}{}:1000{}", &SHARER_A[32..34], &SHARER_A[34..]);
    let leave =
        ["EVAL", LEAVE_QUEUE.text, "5", "k", "line", "until", TICKET_OF_A, "call", &member_of_a];
    for leaves in [true, false] {
        queue.same(&["FLUSHALL"]);
        queue.same(&["SET", "k", SHARER_B, "PX", "600000"]);
        queue.same(&ask(TICKET_OF_A, SHARER_A));
        queue.same(&ask(TICKET_OF_B, SHARER_B));
        if leaves {
            queue.same(&leave);
        } else {
            queue.same(&["DEL", "k"]);
            let called = format!("{} {member_of_a}", unix_micros() / 1_000 - 10_000);
            queue.same(&["SET", "call", &called, "PX", "600000"]);
            assert!(queue.same(&ask(TICKET_OF_B, SHARER_B)).starts_with(b"+OK "));
        }
        for set in ["line", "until"] {
            assert_eq!(queue.same(&["ZCARD", set]), b":1\r\n", "{set}, leaves: {leaves}");
            assert_eq!(queue.same(&["ZSCORE", set, &member_of_a]), b"$-1\r\n", "{set}");
        }
    }
}

/// The last ticket's removal also removes the mark: an expired holder is removed with it, and the
/// others keep their ends.
#[test]
fn without_a_queue_no_key_outlives_its_holders() {
    let mut queue = Denying::start();
    let left = |side: &mut Denying, key: &str| integer(&side.same(&["PTTL", key])).unwrap();
    let keys = |ticket: &'static str| ["5", "k", "line", "until", ticket, "call"];
    let now = unix_micros() / 1_000;
    let ask = [&["EVAL", ACQUIRE_IN_QUEUE.text], &keys(TICKET_OF_A)[..]].concat();
    let ask = [&ask[..], &[SHARER_A, "600000", "3", "0", "1000", "60000", TICKET_OF_A]].concat();
    let member = format!("{TICKET_OF_A}{}:60000{}", &SHARER_A[32..34], &SHARER_A[34..]);
    let leave = [&["EVAL", LEAVE_QUEUE.text], &keys(TICKET_OF_A)[..], &[&member]].concat();

    // A semaphore.
    let permit =
        ["EVAL", ACQUIRE_PERMIT.text, "2", "k", "u", SHARER_B, "600000", "3", "1", "0", "1"];
    queue.same(&permit);
    assert!(queue.same(&ask).starts_with(b"+WAIT "));
    assert!(left(&mut queue, "k") > 604_000, "it is marked");
    assert_eq!(queue.same(&leave), b":1\r\n");
    assert!(left(&mut queue, "k") <= 600_000, "it ends with its holder");

    // A holder that has ended, and whose key lives on because of its mark.
    queue.same(&["FLUSHALL"]);
    queue.same(&["SET", "k", SHARER_B, "PX", "600000"]);
    queue.same(&ask);
    let ended = format!("{SHARER_B}\n{}", now - 1);
    queue.same(&["SET", "k", &ended, "PX", "7000"]);
    assert_eq!(queue.same(&leave), b":1\r\n");
    assert_eq!(queue.same(&["EXISTS", "k"]), b":0\r\n");
}

/// The mark keeps a key for 8 s past its holder's end. That holder can then neither extend its lock
/// nor write a counter back.
#[test]
fn a_marked_holder_ends_at_its_original_end() {
    let mut queue = Denying::start();
    let now = unix_micros() / 1_000;
    let extend = ["EVAL", EXTEND.text, "1", "k", SHARER_A, "600000"];
    let extend_downgraded = ["EVAL", EXTEND_DOWNGRADED.text, "1", "k", SHARER_A, "600000"];
    let write_back = ["EVAL", WRITE_BACK.text, "2", "k", "c", SHARER_A, "1", "8", "900000"];
    for (left, holds) in [("7000", ":0\r\n"), ("300000", ":1\r\n")] {
        for call in [&extend[..], &extend_downgraded, &write_back] {
            queue.same(&["FLUSHALL"]);
            let ends = now - 8_000 + left.parse::<i64>().unwrap();
            queue.same(&["SET", "k", &format!("{SHARER_A}\n{ends}"), "PX", left]);
            assert_eq!(queue.same(call), holds.as_bytes(), "{left} {call:?}");
        }
    }
    // As a member of a set it has the same end.
    queue.same(&["FLUSHALL"]);
    let ends = (now + 300_000).to_string();
    queue.same(&["SET", "k", &format!("{SHARER_A}\n{ends}"), "PX", "308000"]);
    let downgrade = ["EVAL", DOWNGRADE.text, "1", "k", SECOND_OF_A, "900000", "3", DIGITS_OF_A];
    assert_eq!(queue.same(&downgrade), b"+OK\r\n");
    let score = queue.same(&["ZSCORE", "k", &format!("w:{SHARER_A}")]);
    assert_eq!(score, format!("${}\r\n{ends}\r\n", ends.len()).as_bytes());
}

/// A script that gives a permit leaves nothing that lives for ever, and nothing that its undo
/// cannot remove.
#[test]
fn a_script_of_permits_without_permission_ends_like_on_a_real_server() {
    let mut denying = Denying::start();
    let proposal = unix_micros().to_string();
    let asks = |token: &'static str, first: &'static str, step: &'static str| {
        vec!["EVAL", ACQUIRE_PERMIT.text, "2", "k", "u", token, "600000", "3", "2", first, step]
    };
    let of_guard = |words: Vec<&'static str>| {
        [&["EVAL", ACQUIRE_PERMIT.text, "3", "k", "u", "guard"], &words[5..]].concat()
    };
    let fenced = ["600000", "3", "2", "0", "1", &proposal, "900000"];
    let fenced =
        [&["EVAL", ACQUIRE_PERMIT.text, "3", "k", "u", "f", SHARER_A], &fenced[..]].concat();
    let in_queue = |token: &'static str, ticket: &'static str, permits: &'static str| {
        let keys = ["6", "k", "line", "until", ticket, "call", "u", token, "600000", "3", "0"];
        let words = ["1000", "60000", permits, "0", "1", ticket];
        [&["EVAL", ACQUIRE_PERMIT_IN_QUEUE.text], &keys[..], &words].concat()
    };
    let leaves = |ticket: &'static str, member| {
        vec!["EVAL", LEAVE_QUEUE.text, "5", "k", "line", "until", ticket, "call", member]
    };
    let member_of_b = format!("{PERMIT_TICKET_OF_B}{}:60000{}", &SHARER_B[32..34], &SHARER_B[34..]);
    let held_by = [
        vec!["PING"],
        vec!["SET", "k", SHARER_A, "PX", "600000"],
        vec!["EVAL", ACQUIRE_SHARED.text, "1", "k", SHARER_B, "600000", "3"],
        asks(SHARER_B, "0", "1"),
        asks(SHARER_B, "1", "1"),
        asks(SHARER_A, "0", "1"),
        asks(SHARER_A, "1", "1"),
        asks(TWIN_OF_A, "1", "1"),
        in_queue(SHARER_B, PERMIT_TICKET_OF_B, "1"),
        in_queue(SHARER_A, PERMIT_TICKET_OF_A, "1"),
        vec!["SET", "k", "\nredbolt", "PX", "8000"],
    ];
    let mut refused = 0;
    for command in COMMANDS_OF_SCRIPTS.map(Some).into_iter().chain([None]) {
        for held in &held_by {
            for script in [
                of_guard(asks(SHARER_A, "0", "1")),
                of_guard(asks(SHARER_A, "0", "0")),
                fenced.clone(),
                vec!["EVAL", EXTEND_PERMIT.text, "2", "k", "u", SHARER_A, "900000", "0"],
                vec!["EVAL", UNDO_PERMIT.text, "2", "k", "u", SHARER_A],
                vec![
                    "EVAL",
                    WRITE_BACK_PERMIT.text,
                    "3",
                    "k",
                    "u",
                    "f",
                    SHARER_A,
                    "8",
                    "900000",
                    "0",
                ],
                vec!["EVAL", VIEW_PERMITS.text, "2", "k", "u", "16"],
                vec!["EVAL", EXTEND.text, "1", "k", SHARER_A, "900000"],
                vec!["EVAL", UNDO.text, "1", "k", SHARER_A],
                vec!["EVAL", UNDO_SHARED.text, "1", "k", SHARER_A],
                vec!["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "hash", SHARER_A],
                vec!["EVAL", FORCE_UNLOCK.text, "2", "k", "u", "hash", SHARER_A, SHARER_B],
                in_queue(SHARER_A, PERMIT_TICKET_OF_A, "1"),
                in_queue(SHARER_A, PERMIT_TICKET_OF_A, "2"),
                leaves(PERMIT_TICKET_OF_B, &member_of_b),
                vec!["EVAL", VIEW_QUEUE.text, "4", "k", "line", "until", "call", "180"],
            ] {
                for before in [&["FLUSHALL"][..], &["SET", "guard", "run", "PX", "900000"], held] {
                    denying.same(before);
                }
                let reply = denying.same_without(command, &script);
                refused += usize::from(reply.starts_with(b"-ERR The user"));
                for look in ["k", "u", "f", "line", "until", "call", PERMIT_TICKET_OF_A] {
                    let lives = denying.same(&["PTTL", look]);
                    assert_ne!(lives, b":-1\r\n", "{script:?} without {command:?}: {look} is left");
                }
                if reply.starts_with(b"-ERR") && script[1] == ACQUIRE_PERMIT.text {
                    denying.same(&["EVAL", UNDO_PERMIT.text, "2", "k", "u", SHARER_A]);
                    assert_ne!(denying.same(&["HLEN", "k"]), b":1\r\n", "{script:?}");
                    assert_eq!(denying.same(&["ZSCORE", "u", SHARER_A]), b"$-1\r\n");
                }
                if reply.starts_with(b"+OK") && script[1] == ACQUIRE_PERMIT_IN_QUEUE.text {
                    let undo = ["EVAL", UNDO_PERMIT.text, "2", "k", "u", SHARER_A];
                    let undone = denying.same_without(command, &undo);
                    assert_eq!(undone, b":1\r\n", "{script:?} without {command:?}");
                }
                for look in ["TYPE k", "GET k", "HLEN k", "HGET k 0", "HGET k 1", "HGET f 0"] {
                    denying.same(&look.split(' ').collect::<Vec<_>>());
                }
                denying.same(&["HGET", "k", SHARER_A]);
                denying.same(&["ZRANGE", "u", "0", "-1", "WITHSCORES"]);
            }
        }
    }
    assert!(refused >= 100, "{refused} were refused only");
}

/// A node without a socket and a real server, from both of which commands can be taken away at any
/// time.
struct Denying {
    store: Store,
    conn: ConnId,
    real: Side,
    _server: Server,
    /// The time from which the current keys exist.
    flushed: Instant,
    /// The maximum delay of the real server behind the other since then, as on a stalled machine.
    behind: Duration,
}

impl Denying {
    fn start() -> Self {
        let server = Server::start();
        let now = ClockReading::from_micros(unix_micros() as u64);
        let mut store = Store::new("0123456789012345678901234567890123456789", now);
        let conn = store.connect();
        let (flushed, behind) = (Instant::now(), Duration::ZERO);
        Self { store, conn, real: Side::of(&server.address()), _server: server, flushed, behind }
    }

    fn same(&mut self, words: &[&str]) -> Vec<u8> {
        self.same_without(None, words)
    }

    fn same_without(&mut self, denied: Option<&str>, words: &[&str]) -> Vec<u8> {
        self.rule("-", denied, Some(Denial::Forbidden));
        let began = Instant::now();
        if words[0] == "FLUSHALL" {
            (self.flushed, self.behind) = (began, Duration::ZERO);
        }
        let now = ClockReading::from_micros(unix_micros() as u64);
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut embedded = Vec::new();
        self.store.command(self.conn, &args, now, &mut embedded);
        let real = self.real.ask(0, words);
        self.behind = self.behind.max(began.elapsed());
        LAG.set([self.behind, self.flushed.elapsed()].map(|span| span.as_millis() as u64));
        self.rule("+", denied, None);
        assert!(
            is_same(
                words[0],
                &words.get(1).map_or(String::new(), |word| word.to_ascii_uppercase()),
                &embedded,
                &real
            ),
            "{words:?} without {denied:?}\n  embedded: {}\n  real:     {}",
            embedded.escape_ascii(),
            real.escape_ascii()
        );
        real
    }

    fn rule(&mut self, sign: &str, command: Option<&str>, denial: Option<Denial>) {
        let Some(command) = command else { return };
        self.store.deny(command, denial);
        let rule = format!("{sign}{command}");
        assert_eq!(self.real.ask(1, &["ACL", "SETUSER", "default", &rule]), b"+OK\r\n");
    }
}

/// A granted lock can be undone, and no set lives for ever.
#[test]
fn a_script_of_symfony_without_permission_ends_like_on_a_real_server() {
    let mut denying = Denying::start();
    let ours = format!("s:{SHARER_A}");
    let other = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let words = |script: &'static str, token: &str, rest: &[&str]| {
        let head = ["EVAL", script, "1", "k", token].map(str::to_owned);
        [&head[..], &rest.iter().map(|&it| it.to_owned()).collect::<Vec<_>>()].concat()
    };
    let same = |denying: &mut Denying, command, words: &[String]| {
        denying.same_without(command, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let reads = |token: &str| words(ACQUIRE_SYMFONY_READ.text, token, &["900000", "3"]);
    let writes = |token: &str| words(ACQUIRE_SYMFONY_WRITE.text, token, &["900000"]);
    let set = ["SET", "k", "foreign"].map(str::to_owned).to_vec();
    for command in COMMANDS_OF_SCRIPTS.map(Some).into_iter().chain([None]) {
        for held in [vec![], vec![reads(other)], vec![writes(&ours)], vec![set.clone()]] {
            for (ask, extend, undo) in [
                (reads(&ours), EXTEND_SHARED.text, UNDO_SHARED.text),
                (writes(&ours), EXTEND_SYMFONY_WRITE.text, UNDO_SYMFONY_WRITE.text),
            ] {
                denying.same(&["FLUSHALL"]);
                held.iter().for_each(|before| drop(same(&mut denying, None, before)));
                let reply = same(&mut denying, command, &ask);
                same(&mut denying, command, &words(extend, &ours, &["990000"]));
                let is_foreign = held.contains(&set);
                let lives = denying.same(&["PTTL", "k"]);
                assert_eq!(lives == b":-1\r\n", is_foreign, "{ask:?} without {command:?}");
                denying.same(&["ZRANGE", "k", "0", "-1", "WITHSCORES"]);
                let undone = same(&mut denying, command, &words(undo, &ours, &[]));
                if reply == b"+OK\r\n" {
                    assert_eq!(undone, b":1\r\n", "{ask:?} without {command:?}");
                }
                denying.same(&["ZRANGE", "k", "0", "-1", "WITHSCORES"]);
            }
        }
    }
}

/// No script grants a lock without being able to report its release, no lock stays after its
/// release, and no entry of a list lives for ever.
#[test]
fn a_script_of_python_redis_lock_without_permission_ends_like_on_a_real_server() {
    let mut denying = Denying::start();
    let ask =
        ["EVAL", ACQUIRE_PYTHON.text, "3", "lock:a", "lock-signal:a", "guard", SHARER_A, "900000"];
    let undo = ["EVAL", UNDO_PYTHON.text, "2", "lock:a", "lock-signal:a", SHARER_A];
    let breaks = ["EVAL", FORCE_UNLOCK_PYTHON.text, "1", "lock:a", "string", SHARER_A];
    let commands = ["del", "get", "getrange", "lpush", "pexpire", "pttl", "set"];
    for command in commands.map(Some).into_iter().chain([None]) {
        for held in [&["PING"][..], &["SET", "lock:a", SHARER_A, "PX", "600000"], &ask] {
            for script in [&ask[..], &undo, &breaks] {
                for before in [&["FLUSHALL"][..], &["SET", "guard", "run", "PX", "900000"], held] {
                    denying.same(before);
                }
                let reply = denying.same_without(command, script);
                let may_report = !matches!(command, Some("lpush" | "pexpire"));
                if script == ask && reply == b"+OK\r\n" {
                    assert_eq!(denying.same_without(command, &undo), b":1\r\n", "{command:?}");
                    assert!(may_report && denying.same(&["LLEN", "lock-signal:a"]) == b":1\r\n");
                } else if reply == b":1\r\n" {
                    let reported = denying.same(&["LLEN", "lock-signal:a"]) == b":1\r\n";
                    assert_eq!(reported, may_report, "{command:?}");
                }
                assert_ne!(denying.real.ask(0, &["PTTL", "lock-signal:a"]), b":-1\r\n");
                for look in ["GET lock:a", "PTTL lock:a", "TYPE lock-signal:a"] {
                    denying.same(&look.split(' ').collect::<Vec<_>>());
                }
            }
        }
    }
}

#[test]
fn keys_expire_on_both_sides() {
    let mut pair = Pair::start();
    pair.same(0, &["SET", "k", "v", "PX", "30"]);
    pair.same(0, &["SET", "kept", "v"]);
    let deadline = Instant::now() + Duration::from_secs(5);
    let is_gone = |pair: &mut Pair| {
        [&mut pair.embedded, &mut pair.real].map(|side| side.ask(0, &["EXISTS", "k"]))
            == [b":0\r\n"; 2]
    };
    while !is_gone(&mut pair) {
        assert!(Instant::now() < deadline, "the key outlives its 30 ms by seconds");
        thread::sleep(Duration::from_millis(5));
    }
    for command in ["PTTL", "TTL", "TYPE", "GET", "DEL"] {
        pair.same(0, &[command, "k"]);
    }
    pair.same(0, &["PEXPIRE", "k", "1000"]);
    pair.same(0, &["SET", "k", "w", "XX"]);
    pair.same(0, &["EXISTS", "k", "kept"]);
}

#[test]
fn a_changing_password_is_required_of_the_same_connections() {
    let mut pair = Pair::start();
    pair.same(0, &["CONFIG", "SET", "requirepass", "sesame"]);
    for slot in 0..SLOTS {
        pair.same(slot, &["GET", "k"]);
    }
    pair.same(1, &["RESET"]);
    pair.same(1, &["GET", "k"]);
    pair.same(1, &["AUTH", "wrong"]);
    pair.same(0, &["AUTH", "wrong"]);
    pair.same(0, &["GET", "k"]);
    pair.same(0, &["CONFIG", "SET", "requirepass", ""]);
    pair.same(1, &["GET", "k"]);
    pair.same(0, &["CONFIG", "SET", "requirepass", "other"]);
    pair.same(1, &["GET", "k"]);
    pair.same(1, &["AUTH", "other"]);
    pair.same(1, &["GET", "k"]);
}

#[test]
fn a_proposal_that_is_far_off_is_answered_by_the_clock() {
    let mut pair = Pair::start();
    for side in [&mut pair.embedded, &mut pair.real] {
        let before = micros(&side.ask(0, &["TIME"])).unwrap();
        let ask = ["EVAL", ACQUIRE_FENCED.text, "2", "r1", "c1", "token", "1000", "1", "7", "1000"];
        let reply = String::from_utf8(side.ask(0, &ask)).unwrap();
        let after = micros(&side.ask(0, &["TIME"])).unwrap();
        let clock = reply.strip_prefix("+CLOCK ").unwrap().trim_end().parse().unwrap();
        assert!((before..=after).contains(&clock), "{before} {clock} {after}");
    }
    pair.same(0, &["EXISTS", "r1", "c1"]);
}

/// The real server loads its own dump again, with a pause after each key.
#[test]
fn the_same_commands_are_refused_while_the_keys_are_loaded() {
    let server = Server::with(&[
        "--enable-debug-command",
        "yes",
        "--rdbcompression",
        "no",
        "--key-load-delay",
        "5000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let mut real = Side::of(&server.address());
    for key in 0..1_000 {
        assert_eq!(real.ask(1, &["SET", &format!("k{key}"), &"v".repeat(500)]), b"+OK\r\n");
    }
    let now = ClockReading::from_millis(0);
    let mut store = Store::new("0123456789012345678901234567890123456789", now);
    store.load_until(ClockReading::from_millis(1));
    let conn = store.connect();

    real.slots[0].send(&encode(vec![b"DEBUG".to_vec(), b"RELOAD".to_vec()]), Delivery::InTurn);
    let deadline = Instant::now() + Duration::from_secs(5);
    while !real.ask(1, &["PING"]).starts_with(b"-LOADING ") {
        assert!(Instant::now() < deadline, "the server does not load");
    }
    for command in [
        "AUTH x",
        "CLIENT GETNAME",
        "CLIENT GETREDIR",
        "CLIENT ID",
        "CLIENT KILL ID 99",
        "CLIENT SETNAME n",
        "CLIENT TRACKING ON",
        "CLIENT TRACKINGINFO",
        "CLIENT CACHING YES",
        "CONFIG GET maxmemory",
        "CONFIG SET maxmemory 0",
        "DEL k",
        "ECHO e",
        "EVAL x 0",
        "EVALSHA x 0",
        "EXISTS k",
        "EXPIRE k 9",
        "FLUSHALL",
        "FLUSHDB",
        "GET k",
        "GET",
        "FOO",
        "GETRANGE k 0 1",
        "INFO server",
        "PEXPIRE k 9",
        "PING",
        "PTTL k",
        "RESET",
        "SCRIPT EXISTS x",
        "SCRIPT FLUSH",
        "SCRIPT LOAD x",
        "SELECT 0",
        "SET k v",
        "SWAPDB 0 1",
        "TIME",
        "TTL k",
        "TYPE k",
        "ZCARD k",
        "ZRANGE k 0 -1",
        "ZRANK k m",
        "ZSCORE k m",
        "SUBSCRIBE c",
        "GET k",
        "UNSUBSCRIBE c",
        "QUIT",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut reply = Vec::new();
        store.command(conn, &args, now, &mut reply);
        let expected = real.ask(1, &words);
        let refusal = |reply: &[u8]| reply.starts_with(b"-LOADING ").then(|| reply.to_vec());
        assert_eq!(refusal(&reply), refusal(&expected), "{command}");
    }
    let mut last = Slot::open(&server.address());
    last.send(&encode(vec![b"PING".to_vec()]), Delivery::InTurn);
    assert!(last.reply().starts_with(b"-LOADING "), "it has loaded all before the last command");
}

/// The way in which the bytes of a sequence are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// One command, then its reply.
    InTurn,
    /// Consecutive commands of one connection in one write, then all their replies.
    Pipelined,
    /// One command at a time, with each byte written separately, or a few bytes of a long one.
    ByteByByte,
}

/// One command on one of the connections.
#[derive(Debug, Clone)]
struct Step {
    slot: usize,
    words: Vec<Word>,
}

#[derive(Clone)]
enum Word {
    Bytes(Vec<u8>),
    /// A long time in units of this many milliseconds, different in every step. Long, so that no
    /// key expires while a sequence runs. Different, so that comparing two expiries never depends
    /// on a millisecond.
    Span(u64),
    /// A `Span` of this many milliseconds, and as many units more.
    SpanAnd(u64),
    /// This many microseconds after the start of the sequence, in Unix time.
    Instant(i64),
    /// This many seconds after the start of the sequence, in Unix time.
    Second(i64),
    /// The ID of the connection in this slot.
    IdOf(usize),
    /// One millisecond; nothing is sent until it has passed.
    Brief,
}

/// Formats words for failure reports.
impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Span(unit) => write!(f, "Span({unit})"),
            Self::SpanAnd(more) => write!(f, "SpanAnd({more})"),
            Self::Instant(offset) => write!(f, "Instant({offset})"),
            Self::Second(offset) => write!(f, "Second({offset})"),
            Self::IdOf(slot) => write!(f, "IdOf({slot})"),
            Self::Brief => write!(f, "Brief"),
        }
    }
}

fn any_delivery() -> impl Strategy<Value = Delivery> {
    select(vec![Delivery::InTurn, Delivery::Pipelined, Delivery::ByteByByte])
}

fn any_step() -> impl Strategy<Value = Step> {
    let words = prop_oneof![
        5 => set_command(),
        4 => expire_command(),
        5 => key_command(),
        6 => script_command(),
        3 => session_command(),
        2 => server_command(),
        2 => wrong_command(),
        1 => unknown_command(),
    ];
    (0..SLOTS, words).prop_map(|(slot, words)| Step { slot, words })
}

fn set_command() -> impl Strategy<Value = Vec<Word>> {
    let ttl = |unit: &str, span: Word| vec![text(unit), span];
    let option = prop_oneof![
        4 => select(vec![vec![text("NX")], vec![text("xx")], vec![text("KEEPTTL")]]),
        4 => select(vec![ttl("PX", Word::Span(1)), ttl("ex", Word::Span(1_000))]),
        1 => (select(vec!["PX", "EX"]), odd_number()).prop_map(move |(unit, n)| ttl(unit, text(n))),
        1 => select(vec![vec![text("PX")], vec![text("FOO")], vec![text("")]]),
    ];
    (key(), value(), vec(option, 0..3)).prop_map(|(key, value, options)| {
        [vec![text("SET"), key, value], options.concat()].concat()
    })
}

fn expire_command() -> impl Strategy<Value = Vec<Word>> {
    let spans = select(vec![[text("PEXPIRE"), Word::Span(1)], [text("expire"), Word::Span(1_000)]]);
    let any_condition = vec(select(vec!["NX", "xx", "GT", "lt", "FOO"]), 0..2);
    let odd = (select(vec!["EXPIRE", "PEXPIRE"]), odd_number())
        .prop_map(|(name, number)| [text(name), text(number)]);
    // One odd number in two steps differs by the time between them, which is not the same on both
    // sides.
    let blind_condition = vec(select(vec!["NX", "xx", "FOO"]), 0..2);
    let call = prop_oneof![4 => (spans, any_condition), 1 => (odd, blind_condition)];
    (call, key()).prop_map(|(([name, time], conditions), key)| {
        [name, key, time].into_iter().chain(conditions.into_iter().map(text)).collect()
    })
}

fn key_command() -> impl Strategy<Value = Vec<Word>> {
    let on_one = (select(vec!["GET", "PTTL", "TTL", "TYPE", "pttl"]), key())
        .prop_map(|(name, key)| vec![text(name), key]);
    let on_many = (select(vec!["DEL", "EXISTS"]), vec(key(), 1..4))
        .prop_map(|(name, keys)| [vec![text(name)], keys].concat());
    let edge = || select(vec!["0", "1", "3", "-1", "-3", "-100", "-9223372036854775808", "x"]);
    let range = (key(), edge(), edge())
        .prop_map(|(key, start, end)| vec![text("GETRANGE"), key, text(start), text(end)]);
    let of_set =
        prop_oneof![
            key().prop_map(|key| vec![text("ZCARD"), key]),
            (select(vec!["zscore", "ZRANK"]), key(), sharer())
                .prop_map(|(command, key, name)| vec![text(command), key, name]),
            (key(), edge(), edge(), select(vec!["", "WITHSCORES", "withscores WithScores", "FOO"]))
                .prop_map(|(key, start, stop, end)| {
                    [vec![text("ZRANGE"), key, text(start), text(stop)], line(end)].concat()
                }),
        ];
    prop_oneof![3 => on_one, 2 => on_many, 2 => range, 2 => of_set]
}

fn script_command() -> impl Strategy<Value = Vec<Word>> {
    let call = (select(vec!["EVAL", "EVALSHA"]), any_script(), vec(key(), 0..4), sharer())
        .prop_map(|(name, script, keys, token)| script_call(name, script, keys, token));
    let bad_count = select(vec!["3", "-1", "x", "01", "9223372036854775807"]);
    let bad_call = (select(vec!["EVAL", "EVALSHA"]), any_script(), bad_count)
        .prop_map(|(name, script, n)| vec![text(name), script_word(name, script), text(n)]);
    let manage = prop_oneof![
        any_script().prop_map(|script| vec![text("SCRIPT"), text("LOAD"), text(script)]),
        vec(any_script(), 1..3).prop_map(|scripts| {
            let shas = scripts.into_iter().map(|script| script_word("EVALSHA", script));
            [text("script"), text("Exists")].into_iter().chain(shas).collect()
        }),
        select(vec!["SYNC", "async", "FOO"]).prop_map(|how| vec![
            text("SCRIPT"),
            text("FLUSH"),
            text(how)
        ]),
        Just(vec![text("SCRIPT"), text("FLUSH")]),
    ];
    let odd_sha = select(vec!["abc", "0123456789abcdef0123456789abcdef01234567"])
        .prop_map(|sha| vec![text("EVALSHA"), text(sha), text("0")]);
    prop_oneof![12 => call, 2 => bad_call, 3 => manage, 1 => odd_sha]
}

fn script_call(name: &str, script: &str, keys: Vec<Word>, token: Word) -> Vec<Word> {
    let head = vec![text(name), script_word(name, script), text(&keys.len().to_string())];
    let arguments = match script {
        _ if [UNDO.text, UNDO_SHARED.text].contains(&script) => vec![],
        _ if script == ACQUIRE_MANY.text => vec![Word::Span(1), text(&keys.len().to_string())],
        _ if script == ACQUIRE_SHARED.text => vec![Word::Span(1), text("3")],
        _ => vec![Word::Span(1)],
    };
    [head, keys, vec![token], arguments].concat()
}

/// Generates commands of clients on the keys of a lock, and of others on the same keys.
fn lock_step(call: impl Strategy<Value = Vec<Word>>) -> impl Strategy<Value = Step> {
    let look =
        (select(vec!["GET", "PTTL", "DEL", "TYPE", "ZCARD", "HLEN"]), select(LOCK_KEYS.to_vec()))
            .prop_map(|(name, key)| vec![text(name), text(key)]);
    let words = prop_oneof![
        8 => call,
        3 => restart_guard_write(),
        2 => counter_write(),
        3 => look,
    ];
    (0..SLOTS - 1, words).prop_map(|(slot, words)| Step { slot, words })
}

fn lock_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let restart_guard = || prop::option::of(Just(text("guard")));
    let acquire_many = (name(), resources(), restart_guard(), token()).prop_map(
        |(name, resources, restart_guard, token)| {
            let arguments = vec![token, Word::Span(1), count(&resources)];
            call(
                name,
                ACQUIRE_MANY.text,
                [resources, restart_guard.into_iter().collect()].concat(),
                arguments,
            )
        },
    );
    let acquire_fenced = (name(), resources(), restart_guard(), token(), proposal(), life())
        .prop_map(|(name, resources, restart_guard, token, proposal, life)| {
            let arguments = vec![token, Word::Span(1), count(&resources), proposal, life];
            let keys = [counters(&resources), restart_guard.into_iter().collect()].concat();
            call(name, ACQUIRE_FENCED.text, [resources, keys].concat(), arguments)
        });
    let write_back = (name(), resources(), token(), proposal(), life()).prop_map(
        |(name, resources, token, least, life)| {
            let arguments = vec![token, count(&resources), least, life];
            let counters = counters(&resources);
            call(name, WRITE_BACK.text, [resources, counters].concat(), arguments)
        },
    );
    let enrol = (name(), restart_guard_value(), restart_guard_value(), restart_guard_ttl())
        .prop_map(|(name, seen, value, ttl)| {
            call(name, ENROL.text, vec![text("guard")], vec![seen, value, ttl])
        });
    let others = (name(), select(vec![EXTEND.text, UNDO.text]), resources(), token())
        .prop_map(|(name, script, resources, token)| script_call(name, script, resources, token));
    let kind = prop_oneof![8 => select(vec!["string", "zset"]), 1 => select(vec!["none", "hash"])];
    let seen = prop_oneof![8 => token(), 1 => select(vec!["", "t", "r:"]).prop_map(text)];
    let force_unlock =
        (name(), select(vec!["r1", "r2"]), kind, seen).prop_map(|(name, key, kind, seen)| {
            call(name, FORCE_UNLOCK.text, breaks(key), vec![text(kind), seen])
        });
    prop_oneof![
        2 => acquire_many,
        5 => acquire_fenced,
        3 => write_back,
        2 => enrol,
        3 => others,
        2 => force_unlock,
    ]
}

/// Generates commands of readers, on a resource that may be held in another way.
fn shared_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    // Seldom a key with other data.
    let resource = || {
        prop_oneof![12 => select(vec!["r1", "r1", "r2"]), 1 => select(vec!["c1", "guard"])]
            .prop_map(text)
    };
    let restart_guard = || prop::option::weighted(0.25, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let nodes = || select(vec!["3", "3", "1", "0"]).prop_map(text);
    let acquire = (name(), resource(), restart_guard(), sharer(), ttl(), nodes()).prop_map(
        |(name, resource, restart_guard, token, ttl, nodes)| {
            let keys = [vec![resource], restart_guard.into_iter().collect()].concat();
            call(name, ACQUIRE_SHARED.text, keys, vec![token, ttl, nodes])
        },
    );
    let least = select(vec![text("1"), Word::Instant(-2_000), Word::Instant(2_000_000)]);
    let numbers = (proposal(), life(), least, nodes());
    let acquire_fenced = (name(), resource(), restart_guard(), sharer(), ttl(), numbers).prop_map(
        |(name, resource, restart_guard, token, ttl, (proposal, life, least, nodes))| {
            let counter = counters(std::slice::from_ref(&resource));
            let keys = [vec![resource], counter, restart_guard.into_iter().collect()].concat();
            let arguments = vec![token, ttl, proposal, life, least, nodes];
            call(name, ACQUIRE_SHARED_FENCED.text, keys, arguments)
        },
    );
    let write_back = (name(), resource(), sharer(), proposal(), life()).prop_map(
        |(name, resource, token, least, life)| {
            let keys = [counters(std::slice::from_ref(&resource)), vec![resource]].concat();
            let keys = keys.into_iter().rev().collect();
            call(name, WRITE_BACK_SHARED.text, keys, vec![token, least, life])
        },
    );
    let extend = (name(), resource(), sharer(), ttl()).prop_map(|(name, resource, token, ttl)| {
        call(name, EXTEND_SHARED.text, vec![resource], vec![token, ttl])
    });
    let undo = (name(), resource(), sharer()).prop_map(|(name, resource, token)| {
        call(name, UNDO_SHARED.text, vec![resource], vec![token])
    });
    let of_operator =
        (name(), resource(), vec(sharer(), 1..3), 0..3).prop_map(|(name, key, seen, does)| {
            match does {
                0 => call(name, VIEW_SHARED.text, vec![key], vec![text("16")]),
                1 => call(
                    name,
                    FORCE_UNLOCK.text,
                    vec![key, text("u1")],
                    [vec![text("zset")], seen].concat(),
                ),
                _ => {
                    let words = ["string", LONE_A].map(text).to_vec();
                    call(name, FORCE_UNLOCK.text, vec![key, text("u1")], words)
                }
            }
        });
    prop_oneof![4 => acquire, 5 => acquire_fenced, 7 => write_back, 5 => extend, 3 => undo, 3 => of_operator]
}

/// Generates commands of holders of permits, on a resource that may be held in another way.
fn permit_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    // Seldom keys with other data.
    let pair = || {
        let usual = select(vec![["r1", "u1"], ["r1", "u1"], ["r2", "u2"]]);
        let odd = select(vec![["c1", "u1"], ["r1", "r2"], ["r1", "c1"]]);
        prop_oneof![20 => usual, 1 => odd].prop_map(|pair| pair.map(text).to_vec())
    };
    let guard = || prop::option::weighted(0.2, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let slot = || select(vec!["0", "0", "0", "1", "2"]).prop_map(text);
    let order = (select(vec!["1", "2", "3", "5", "70"]), slot(), select(vec!["0", "0", "1", "3"]));
    let numbers = (select(vec!["3", "3", "1", "0"]), order, any::<bool>(), proposal(), life());
    let acquire = (name(), pair(), guard(), sharer(), ttl(), numbers).prop_map(
        |(
            name,
            pair,
            guard,
            token,
            ttl,
            (nodes, (permits, first, step), fenced, proposal, life),
        )| {
            let counters = if fenced { vec![text("f1")] } else { vec![] };
            let keys = [pair, counters, guard.into_iter().collect()].concat();
            let order = vec![token, ttl, text(nodes), text(permits), first, text(step)];
            let of_token = if fenced { vec![proposal, life] } else { vec![] };
            call(name, ACQUIRE_PERMIT.text, keys, [order, of_token].concat())
        },
    );
    let write_back = (name(), pair(), sharer(), proposal(), life(), slot()).prop_map(
        |(name, pair, token, least, life, slot)| {
            let keys = [pair, vec![text("f1")]].concat();
            call(name, WRITE_BACK_PERMIT.text, keys, vec![token, least, life, slot])
        },
    );
    let extend =
        (name(), pair(), sharer(), ttl(), slot()).prop_map(|(name, pair, token, ttl, slot)| {
            call(name, EXTEND_PERMIT.text, pair, vec![token, ttl, slot])
        });
    let undo = (name(), pair(), sharer())
        .prop_map(|(name, pair, token)| call(name, UNDO_PERMIT.text, pair, vec![token]));
    let of_operator = (name(), pair(), vec(sharer(), 1..3), any::<bool>()).prop_map(
        |(name, pair, seen, looks)| match looks {
            true => call(name, VIEW_PERMITS.text, pair, vec![text("16")]),
            false => call(name, FORCE_UNLOCK.text, pair, [vec![text("hash")], seen].concat()),
        },
    );
    prop_oneof![8 => acquire, 4 => write_back, 5 => extend, 3 => undo, 2 => of_operator]
}

/// Generates commands in Redisson's format, on a resource that may be held in another way.
fn redisson_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    // Seldom keys with other data.
    let pair = || {
        let usual = select(vec![["r1", "f1"], ["r1", "f1"], ["r2", "f2"]]);
        let odd = select(vec![["c1", "f1"], ["r1", "r2"], ["r1", "u1"]]);
        prop_oneof![20 => usual, 1 => odd].prop_map(|pair| pair.map(text).to_vec())
    };
    let guard = || prop::option::weighted(0.2, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let acquire = (name(), pair(), guard(), sharer(), ttl(), any::<bool>()).prop_map(
        |(name, pair, guard, token, ttl, fenced)| {
            let (script, keys) = match fenced {
                true => (ACQUIRE_REDISSON_FENCED.text, pair),
                false => (ACQUIRE_REDISSON.text, vec![pair[0].clone()]),
            };
            call(name, script, [keys, guard.into_iter().collect()].concat(), vec![token, ttl])
        },
    );
    let write_back =
        (name(), pair(), sharer(), proposal()).prop_map(|(name, pair, token, least)| {
            call(name, WRITE_BACK_REDISSON.text, pair, vec![token, least])
        });
    let extend = (name(), pair(), sharer(), ttl()).prop_map(|(name, pair, token, ttl)| {
        call(name, EXTEND_REDISSON.text, vec![pair[0].clone()], vec![token, ttl])
    });
    let undo = (name(), pair(), sharer()).prop_map(|(name, pair, token)| {
        call(name, UNDO_REDISSON.text, vec![pair[0].clone()], vec![token])
    });
    let of_operator = (name(), pair(), vec(sharer(), 1..3), any::<bool>()).prop_map(
        |(name, pair, seen, looks)| match looks {
            true => call(name, VIEW_PERMITS.text, pair, vec![text("16")]),
            false => {
                let words = [vec![text("hash")], seen].concat();
                call(name, FORCE_UNLOCK_REDISSON.text, vec![pair[0].clone()], words)
            }
        },
    );
    prop_oneof![6 => acquire, 3 => write_back, 4 => extend, 4 => undo, 6 => of_operator]
}

/// Generates commands of members of Spring's registries, on a resource that may be held in another
/// way.
fn spring_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let resource = || select(vec!["r1", "r1", "r2"]).prop_map(text);
    let acquire = (resource(), token()).prop_map(|(resource, token)| {
        vec![text("SET"), resource, token, text("NX"), text("PX"), Word::Span(1)]
    });
    let extend = (name(), resource(), token())
        .prop_map(|(name, resource, token)| script_call(name, EXTEND.text, vec![resource], token));
    let undo = (name(), resource(), token()).prop_map(|(name, resource, token)| {
        call(name, UNDO_SPRING.text, vec![resource], vec![token])
    });
    let force = (name(), resource(), token()).prop_map(|(name, resource, token)| {
        call(name, FORCE_UNLOCK_SPRING.text, vec![resource], vec![text("string"), token])
    });
    prop_oneof![3 => acquire, 2 => extend, 3 => undo, 2 => force]
}

/// Generates commands of python-redis-lock, on a key that sometimes is held in another way and a
/// list that may be something else.
fn python_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let pair = || {
        let usual = select(vec![["lock:a", "lock-signal:a"], ["lock:a", "lock-signal:a"]]);
        let odd =
            select(vec![["r1", "lock-signal:a"], ["c1", "lock-signal:a"], ["lock:a", "lock:b"]]);
        prop_oneof![12 => usual, 1 => odd].prop_map(|pair| pair.map(text).to_vec())
    };
    let guard = || prop::option::weighted(0.2, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let acquire =
        (name(), pair(), guard(), token(), ttl()).prop_map(|(name, pair, guard, token, ttl)| {
            let keys = [pair, guard.into_iter().collect()].concat();
            call(name, ACQUIRE_PYTHON.text, keys, vec![token, ttl])
        });
    let extend = (name(), pair(), token()).prop_map(|(name, pair, token)| {
        script_call(name, EXTEND.text, vec![pair[0].clone()], token)
    });
    let undo = (name(), pair(), token())
        .prop_map(|(name, pair, token)| call(name, UNDO_PYTHON.text, pair, vec![token]));
    let force = (name(), pair(), token()).prop_map(|(name, pair, token)| {
        call(name, FORCE_UNLOCK_PYTHON.text, vec![pair[0].clone()], vec![text("string"), token])
    });
    let by_hand = select(vec![
        "LLEN lock-signal:a",
        "TYPE lock-signal:a",
        "GET lock-signal:a",
        "DEL lock-signal:a",
        "SET lock-signal:a foreign PX 700000",
        "LLEN lock:b",
        "SET lock:a foreign",
        "GET lock:a",
        "PTTL lock:a",
    ]);
    prop_oneof![5 => acquire, 2 => extend, 4 => undo, 2 => force, 2 => by_hand.prop_map(line)]
}

/// Generates commands of Symfony's holders, on a resource that sometimes is held in another way.
fn symfony_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let resource =
        || prop_oneof![12 => select(vec!["r1", "r1", "r2"]), 1 => Just("c1")].prop_map(text);
    let guard = || prop::option::weighted(0.2, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let of_peer = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let holder = move || {
        let ours = select(vec![SHARER_A, SHARER_A, SHARER_B, TWIN_OF_A, TWIN_OF_B]);
        let other = select(vec![of_peer, of_peer, "s:short", SHARER_A, &of_peer[1..]]);
        prop_oneof![6 => ours.prop_map(|it| format!("s:{it}")), 1 => other.prop_map(str::to_owned)]
            .prop_map(|name| text(&name))
    };
    let nodes = || select(vec!["3", "3", "1", "0"]).prop_map(text);
    let ask = (name(), resource(), guard(), holder(), ttl(), nodes(), any::<bool>()).prop_map(
        |(name, resource, guard, token, ttl, nodes, reads)| {
            let keys = [vec![resource], guard.into_iter().collect()].concat();
            match reads {
                true => call(name, ACQUIRE_SYMFONY_READ.text, keys, vec![token, ttl, nodes]),
                false => call(name, ACQUIRE_SYMFONY_WRITE.text, keys, vec![token, ttl]),
            }
        },
    );
    let extend = (name(), resource(), holder(), ttl(), any::<bool>()).prop_map(
        |(name, resource, token, ttl, reads)| {
            let script = if reads { EXTEND_SHARED.text } else { EXTEND_SYMFONY_WRITE.text };
            call(name, script, vec![resource], vec![token, ttl])
        },
    );
    let undo =
        (name(), resource(), holder(), any::<bool>()).prop_map(|(name, resource, token, reads)| {
            let script = if reads { UNDO_SHARED.text } else { UNDO_SYMFONY_WRITE.text };
            call(name, script, vec![resource], vec![token])
        });
    let of_operator = (name(), resource(), vec(holder(), 1..3), any::<bool>()).prop_map(
        |(name, key, seen, looks)| match looks {
            true => call(name, VIEW_SHARED.text, vec![key], vec![text("16")]),
            false => {
                let words = [vec![text("zset")], seen].concat();
                call(name, FORCE_UNLOCK_SYMFONY.text, vec![key], words)
            }
        },
    );
    prop_oneof![16 => ask, 12 => extend, 8 => undo, 6 => of_operator]
}

/// Generates commands of holders whose value is a time, and of members that leave their own.
fn timed_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let resource =
        || prop_oneof![12 => select(vec!["r1", "r1", "r2"]), 1 => Just("u1")].prop_map(text);
    let guard = || prop::option::weighted(0.2, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let names = || {
        let names = prop_oneof![12 => select(vec!["r1", "r1", "r2"]), 1 => Just("u1")];
        names.prop_map(|name| vec![text(name), text(&format!("redbolt:lease:{name}"))])
    };
    let acquire =
        (name(), names(), guard(), sharer(), ttl()).prop_map(|(name, names, guard, token, ttl)| {
            let keys = [names, guard.into_iter().collect()].concat();
            call(name, ACQUIRE_TIMED.text, keys, vec![token, ttl])
        });
    let extend = (name(), names(), sharer(), ttl()).prop_map(|(name, names, token, ttl)| {
        call(name, EXTEND_TIMED.text, names, vec![token, ttl])
    });
    let undo = (name(), names(), sharer())
        .prop_map(|(name, names, token)| call(name, UNDO_TIMED.text, names, vec![token]));
    let odd = ["", "1", "4200000001", "999999999", "1000000000.5", "1.2.3", " 1100000000", "x1"];
    let time = || {
        prop_oneof![
            3 => select(vec![-5_000, -5, 400_000, 800_000]).prop_map(Word::Second),
            1 => select(odd.to_vec()).prop_map(text),
        ]
    };
    let force = (name(), resource(), time()).prop_map(|(name, resource, seen)| {
        call(name, FORCE_UNLOCK_TIMED.text, vec![resource], vec![text("string"), seen])
    });
    let of_member = (resource(), time(), any::<bool>()).prop_map(|(resource, time, is_new)| {
        let set = vec![text("SET"), resource, time];
        [set, if is_new { vec![text("NX")] } else { vec![] }].concat()
    });
    let of_lease = select(vec![
        line("PTTL redbolt:lease:r1"),
        line("DEL redbolt:lease:r1"),
        line("SET redbolt:lease:r1 somebody"),
    ]);
    prop_oneof![
        10 => acquire,
        6 => extend,
        6 => undo,
        5 => of_member,
        9 => force,
        1 => of_lease,
    ]
}

/// Generates commands of Redisson's readers and writers, and of clients that touch the readers'
/// keys.
fn redisson_rw_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let resource =
        || prop_oneof![12 => select(vec!["r1", "r1", "r2"]), 1 => Just("c1")].prop_map(text);
    let guard = || prop::option::weighted(0.2, Just(text("guard")));
    let ttl = || prop_oneof![3 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let ask = (name(), resource(), guard(), sharer(), ttl(), any::<bool>()).prop_map(
        |(name, resource, guard, token, ttl, reads)| {
            let keys = [vec![resource], guard.into_iter().collect()].concat();
            match reads {
                true => call(name, ACQUIRE_REDISSON_READ.text, keys, vec![token, ttl, text("3")]),
                false => call(name, ACQUIRE_REDISSON_WRITE.text, keys, vec![token, ttl]),
            }
        },
    );
    let extend = (name(), resource(), sharer(), ttl()).prop_map(|(name, resource, token, ttl)| {
        call(name, EXTEND_REDISSON_RW.text, vec![resource], vec![token, ttl])
    });
    let undo = (name(), resource(), sharer()).prop_map(|(name, resource, token)| {
        call(name, UNDO_REDISSON_RW.text, vec![resource], vec![token])
    });
    let hold = |holder: &str| format!("{{r1}}:{holder}:rwlock_timeout:1");
    let of_holds = select(vec![
        line(&format!("DEL {}", hold(SHARER_A))),
        line(&format!("SET {} 1", hold(SHARER_B))),
        line(&format!("PTTL {}", hold(SHARER_A))),
        line(&format!("PTTL {}", hold(SHARER_B))),
    ]);
    let field = || {
        let fields = select(vec![SHARER_A, SHARER_A, SHARER_B, TWIN_OF_A]);
        (fields, any::<bool>()).prop_map(|(token, writes)| {
            text(&format!("{token}{}", if writes { ":write" } else { "" }))
        })
    };
    let force = (name(), resource(), vec(field(), 1..3)).prop_map(|(name, resource, seen)| {
        let words = [vec![text("hash")], seen].concat();
        call(name, FORCE_UNLOCK_REDISSON_RW.text, vec![resource], words)
    });
    prop_oneof![6 => ask, 3 => extend, 4 => undo, 2 => force, 2 => of_holds]
}

/// Generates commands of holders with two claims, each of which may be the other's.
fn mode_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let resource = || select(vec!["r1", "r1", "r1", "r1", "r2"]).prop_map(text);
    let restart_guard = || prop::option::weighted(0.25, Just(text("guard")));
    let ttl = || prop_oneof![5 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let known = || select(vec![SHARER_A, SHARER_A, SECOND_OF_A, SECOND_OF_A, TWIN_OF_A]);
    let writer = move || known().prop_map(|token| text(&format!("w:{token}")));
    let digits = || select(vec![SHARER_A, SECOND_OF_A]).prop_map(|token| text(&token[..32]));
    let hold = (name(), resource(), known()).prop_map(|(name, resource, token)| {
        let arguments = vec![text(token), Word::Span(1), text("1")];
        call(name, ACQUIRE_MANY.text, vec![resource], arguments)
    });
    let upgrade = (name(), resource(), restart_guard(), writer(), ttl(), digits()).prop_map(
        |(name, resource, restart_guard, token, ttl, digits)| {
            let keys = [vec![resource], restart_guard.into_iter().collect()].concat();
            call(name, UPGRADE.text, keys, vec![token, ttl, digits])
        },
    );
    let numbers = (ttl(), proposal(), life());
    let fenced = (name(), resource(), restart_guard(), writer(), numbers, digits()).prop_map(
        |(name, resource, restart_guard, token, (ttl, proposal, life), digits)| {
            let counter = counters(std::slice::from_ref(&resource));
            let keys = [vec![resource], counter, restart_guard.into_iter().collect()].concat();
            call(name, UPGRADE_FENCED.text, keys, vec![token, ttl, proposal, life, digits])
        },
    );
    let downgrade = (name(), resource(), restart_guard(), known(), ttl(), digits()).prop_map(
        |(name, resource, restart_guard, token, ttl, digits)| {
            let keys = [vec![resource], restart_guard.into_iter().collect()].concat();
            call(name, DOWNGRADE.text, keys, vec![text(token), ttl, text("3"), digits])
        },
    );
    // Both names of a holder, more often the one for which such a script is meant.
    let of = move |marked: bool| {
        let others = if marked { 1 } else { 4 };
        prop_oneof![others => known().prop_map(text), 5 - others => writer()]
    };
    let which =
        |of_writer, of_member| prop_oneof![Just((of_writer, false)), Just((of_member, true))];
    let extend = which(EXTEND_DOWNGRADED.text, EXTEND_SHARED.text)
        .prop_flat_map(move |(script, marked)| {
            (name(), Just(script), resource(), of(marked), ttl())
        })
        .prop_map(|(name, script, key, token, ttl)| {
            call(name, script, vec![key], vec![token, ttl])
        });
    let undo = which(UNDO_DOWNGRADED.text, UNDO_SHARED.text)
        .prop_flat_map(move |(script, marked)| (name(), Just(script), resource(), of(marked)))
        .prop_map(|(name, script, key, token)| call(name, script, vec![key], vec![token]));
    let write_back = (name(), resource(), writer(), proposal(), life()).prop_map(
        |(name, resource, token, least, life)| {
            let counter = counters(std::slice::from_ref(&resource));
            let keys = [vec![resource], counter].concat();
            call(name, WRITE_BACK_SHARED.text, keys, vec![token, least, life])
        },
    );
    prop_oneof![3 => hold, 3 => upgrade, 6 => fenced, 5 => downgrade, 9 => extend, 6 => undo, 1 => write_back]
}

/// Generates commands of waiters for a resource, and of holders that find it marked.
fn queue_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let at = || select(vec![0, 0, 0, 0, 0, 1]);
    let known = || select(vec![SHARER_A, SHARER_A, SHARER_A, SHARER_B, SECOND_OF_A, TWIN_OF_A]);
    let ttl = || prop_oneof![5 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let mode = || select(vec!["x", "s"]);
    // No grace, or more than a sequence takes: anything in between could differ between the sides.
    let grace = || select(vec!["60000", "60000", "60000", "-1"]);
    let stamp = select(vec![-3_000_000, 7, 60_000_000]).prop_map(Word::Instant);
    let stamp = prop_oneof![3 => Just(text("0")), 1 => stamp];
    let place = select(vec![-2_000_000, -1_000, 0, 0, 900_000_000]).prop_map(Word::Instant);
    let guard = prop::option::weighted(0.1, Just(text("guard")));
    let counted = prop::option::weighted(0.4, (proposal(), life(), select(vec!["1", "9e15"])));
    let lock = (known(), ttl(), select(vec!["3", "3", "1"]), counted, guard);
    let acquire = (name(), at(), mode(), grace(), stamp, place, lock).prop_map(
        |(name, at, mode, grace, stamp, place, (token, ttl, nodes, counted, guard))| {
            let ticket = format!("{mode}{}", &token[..32]);
            let mut keys = queue_keys(at, &ticket);
            let mut arguments = vec![text(token), ttl, text(nodes), stamp, place, text(grace)];
            if let Some((proposal, life, least)) = counted {
                keys.push(text(["c1", "c2"][at]));
                let least = if least == "1" { text("1") } else { Word::Instant(-2_000) };
                arguments.extend([proposal, life, least]);
            }
            keys.extend(guard);
            arguments.push(text(&ticket));
            call(name, ACQUIRE_IN_QUEUE.text, keys, arguments)
        },
    );
    let leave =
        (name(), at(), mode(), known(), grace()).prop_map(|(name, at, mode, token, grace)| {
            let ticket = format!("{mode}{}", &token[..32]);
            let member = text(&format!("{ticket}{}:{grace}{}", &token[32..34], &token[34..]));
            call(name, LEAVE_QUEUE.text, queue_keys(at, &ticket), vec![member])
        });
    let of_holder =
        (name(), known(), ttl(), proposal(), 0..24).prop_map(|(name, token, ttl, least, which)| {
            let (key, token) = (vec![text("r1")], text(token));
            match which {
                0 | 1 => call(name, EXTEND.text, key, vec![token, ttl]),
                2 | 3 => call(name, UNDO.text, key, vec![token]),
                4 | 8 => {
                    let numbers = vec![token, text("1"), least, text("604800000")];
                    call(name, WRITE_BACK.text, vec![text("r1"), text("c1")], numbers)
                }
                5 | 9 | 20..22 => {
                    call(name, FORCE_UNLOCK.text, breaks("r1"), vec![text("string"), token])
                }
                10 | 22 => call(name, FORCE_UNLOCK.text, breaks("r1"), vec![text("zset"), token]),
                6 => call(name, ACQUIRE_MANY.text, key, vec![token, ttl, text("1")]),
                11..14 => call(name, EXTEND_SHARED.text, key, vec![token, ttl]),
                14..16 => call(name, UNDO_SHARED.text, key, vec![token]),
                16 | 17 => call(name, VIEW_SHARED.text, key, vec![text("16")]),
                _ => {
                    let keys = ["r1", "l1", "e1", "n1"].map(text).to_vec();
                    call(name, VIEW_QUEUE.text, keys, vec![text("180")])
                }
            }
        });
    let by_hand = select(vec![
        "GET r1",
        "ZRANGE r1 0 -1 WITHSCORES",
        "ZCARD l1",
        "ZRANGE l1 0 -1",
        "PTTL e1",
        "GET n1",
        "DEL l1",
        "DEL e1",
        "DEL n1",
        "DEL r1",
        "SET r1 foreign PX 700000",
        "SET r1 for\never",
        "SET r1 closed\n17",
        "ZSCORE r1 line",
    ])
    .prop_map(line);
    let closed = Just(vec![text("SET"), text("r1"), text("\nredbolt"), text("PX"), text("5000")]);
    prop_oneof![12 => acquire, 8 => leave, 18 => of_holder, 2 => by_hand, 1 => closed]
}

/// Generates commands of waiters for one of few permits, and of holders that find their semaphore
/// marked.
fn permit_queue_call() -> impl Strategy<Value = Vec<Word>> {
    let name = || select(vec!["EVAL", "EVALSHA"]);
    let known = || select(vec![SHARER_A, SHARER_A, SHARER_B, SECOND_OF_A, TWIN_OF_A]);
    let ttl = || prop_oneof![7 => Just(Word::Span(1)), 1 => Just(Word::Brief)];
    let grace = || select(vec!["60000", "60000", "60000", "-1"]);
    let stamp = select(vec![-3_000_000, 7, 60_000_000]).prop_map(Word::Instant);
    let stamp = prop_oneof![5 => Just(text("0")), 1 => stamp];
    let place = select(vec![-2_000_000, -1_000, 0, 0, 900_000_000]).prop_map(Word::Instant);
    let guard = prop::option::weighted(0.1, Just(text("guard")));
    let counted = prop::option::weighted(0.3, (proposal(), life()));
    let order = (select(vec!["1", "1", "2", "2", "3", "70"]), select(vec!["0", "1"]));
    let lock = (known(), ttl(), select(vec!["3", "3", "1"]), order, counted, guard);
    let acquire = (name(), grace(), stamp, place, lock).prop_map(
        |(name, grace, stamp, place, (token, ttl, nodes, (permits, first), counted, guard))| {
            let ticket = format!("p{}", &token[..32]);
            let mut keys = queue_keys(0, &ticket);
            keys.push(text("u1"));
            let mut arguments = vec![text(token), ttl, text(nodes), stamp, place, text(grace)];
            arguments.extend([text(permits), text(first), text("1")]);
            if let Some((proposal, life)) = counted {
                keys.push(text("f1"));
                arguments.extend([proposal, life]);
            }
            keys.extend(guard);
            arguments.push(text(&ticket));
            call(name, ACQUIRE_PERMIT_IN_QUEUE.text, keys, arguments)
        },
    );
    let leave = (name(), known(), grace()).prop_map(|(name, token, grace)| {
        let ticket = format!("p{}", &token[..32]);
        let member = text(&format!("{ticket}{}:{grace}{}", &token[32..34], &token[34..]));
        call(name, LEAVE_QUEUE.text, queue_keys(0, &ticket), vec![member])
    });
    let of_holder = (name(), known(), ttl(), 0..12).prop_map(|(name, token, ttl, which)| {
        let (pair, token) = (["r1", "u1"].map(text).to_vec(), text(token));
        match which {
            0..4 => call(name, UNDO_PERMIT.text, pair, vec![token]),
            4..6 => call(name, EXTEND_PERMIT.text, pair, vec![token, ttl, text("0")]),
            6 => call(name, EXTEND_PERMIT.text, pair, vec![token, ttl, text("1")]),
            7 | 8 => {
                let words = [token, ttl, text("3"), text("2"), text("0"), text("0")];
                call(name, ACQUIRE_PERMIT.text, pair, words.to_vec())
            }
            9 => call(name, FORCE_UNLOCK.text, pair, vec![text("hash"), token]),
            10 => call(name, VIEW_PERMITS.text, pair, vec![text("16")]),
            _ => {
                let keys = ["r1", "l1", "e1", "n1"].map(text).to_vec();
                call(name, VIEW_QUEUE.text, keys, vec![text("180")])
            }
        }
    });
    let by_hand = ["HGET r1 line", "HLEN r1", "GET r1", "PTTL r1", "PTTL u1", "ZCARD l1", "DEL n1"];
    let by_hand = select(by_hand.to_vec()).prop_map(line);
    prop_oneof![14 => acquire, 7 => leave, 12 => of_holder, 2 => by_hand]
}

/// Returns the keys of an operator who breaks this lock.
fn breaks(resource: &str) -> Vec<Word> {
    vec![text(resource), text("u1")]
}

/// Returns the keys of one of two resources, and of a ticket.
fn queue_keys(at: usize, ticket: &str) -> Vec<Word> {
    let own = [["r1", "l1", "e1"], ["r2", "l2", "e2"]][at].map(text);
    let more = [text(&format!("w:{}", &ticket[..3])), text(["n1", "n2"][at])];
    own.into_iter().chain(more).collect()
}

fn call(name: &str, script: &str, keys: Vec<Word>, arguments: Vec<Word>) -> Vec<Word> {
    let head = vec![text(name), script_word(name, script), count(&keys)];
    [head, keys, arguments].concat()
}

fn resources() -> impl Strategy<Value = Vec<Word>> {
    select(vec![vec!["r1"], vec!["r2"], vec!["r1", "r2"], vec!["r2", "r1", "r2"], vec![]])
        .prop_map(|names| names.into_iter().map(text).collect())
}

fn counters(resources: &[Word]) -> Vec<Word> {
    let counter = |resource: &Word| match resource {
        Word::Bytes(name) if name == b"r1" => text("c1"),
        _ => text("c2"),
    };
    resources.iter().map(counter).collect()
}

fn count(words: &[Word]) -> Word {
    text(&words.len().to_string())
}

/// Generates proposals well within the 5 s of tolerance, or far outside.
fn proposal() -> impl Strategy<Value = Word> {
    let near = select(vec![-1_000_000, -1, 0, 700_000]);
    let far = select(vec![-600_000_000, 400_000_000]);
    prop_oneof![8 => near, 1 => far].prop_map(Word::Instant)
}

fn life() -> impl Strategy<Value = Word> {
    select(vec![Word::Span(1), text("604800000")])
}

fn restart_guard_value() -> impl Strategy<Value = Word> {
    select(vec!["run-1:30000:3:0", "run-2:30000:3:0", ""]).prop_map(text)
}

/// Generates TTLs within a quarantine, past it, or that no client sets.
fn restart_guard_ttl() -> impl Strategy<Value = Word> {
    prop_oneof![
        4 => select(vec![Word::Span(1), text(&(BIG_MS - SHORTEST_SPAN).to_string())]),
        2 => Just(Word::SpanAnd(BIG_MS)),
        1 => select(vec!["126144030000000", "9007199254740000", "99999999999999999"]).prop_map(text),
    ]
}

fn restart_guard_write() -> impl Strategy<Value = Vec<Word>> {
    let ttl = prop_oneof![
        4 => restart_guard_ttl().prop_map(|ttl| vec![text("PX"), ttl]),
        1 => Just(vec![]),
    ];
    (restart_guard_value(), ttl)
        .prop_map(|(value, ttl)| [vec![text("SET"), text("guard"), value], ttl].concat())
}

/// Generates numbers behind and ahead of the clock, around the largest one, odd ones, and invalid
/// ones.
fn counter_write() -> impl Strategy<Value = Vec<Word>> {
    let numbers = select(vec![
        "1",
        "0",
        "-7",
        "9007199254740989",
        "9007199254740990",
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775807",
        "18446744073709551616",
        "2251799813685248.5",
        "2251799813685249.5",
        "3e15",
        " 12\t",
        "12\u{0}x",
        "+5",
        ".5",
        "inf",
        "-inf",
        "nan",
        "-nan",
        "1e999",
        "",
        " ",
        "x",
        "12x",
        "1 2",
        "1e",
        "\u{a0}1",
        "token-a",
    ])
    .prop_map(text);
    let clocks = select(vec![-3_600_000_000, -1_000, 1_000, 3_600_000_000]).prop_map(Word::Instant);
    (select(vec!["c1", "c2"]), prop_oneof![2 => numbers, 1 => clocks])
        .prop_map(|(key, value)| vec![text("SET"), text(key), value])
}

fn script_word(name: &str, script: &str) -> Word {
    match name {
        "EVAL" => text(script),
        _ => text(&sha1_smol::Sha1::from(script).digest().to_string()),
    }
}

fn session_command() -> impl Strategy<Value = Vec<Word>> {
    let lines = select(vec![
        "PING",
        "ping hello",
        "ECHO hello",
        "CLIENT ID",
        "client getname",
        "CLIENT SETNAME worker-1",
        "CLIENT SETNAME \u{e9}",
        "CLIENT KILL 127.0.0.1:1",
        "CLIENT KILL ID 99999999",
        "CLIENT KILL ID 0",
        "CLIENT KILL ID x SKIPME no",
        "CLIENT KILL ID 1 ID",
        "CLIENT KILL SKIPME yes",
        "CLIENT KILL FOO 1",
        "CLIENT KILL TYPE normal SKIPME yes",
        "client kill skipme YES type NORMAL",
        "CLIENT KILL TYPE pubsub",
        "CLIENT KILL TYPE slave TYPE replica TYPE master",
        "CLIENT KILL TYPE foo",
        "CLIENT KILL TYPE",
        "CLIENT KILL TYPE normal ID 99999999",
        "SELECT 0",
        "SELECT 1",
        "SELECT 15",
        "SELECT 16",
        "SELECT -1",
        "SELECT 01",
        "SELECT 2147483648",
        "RESET",
        "QUIT",
    ])
    .prop_map(line);
    let auth = select(vec![
        "AUTH sesame",
        "auth bob pw",
        "AUTH default sesame",
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH bob wrong",
        "AUTH nobody pw",
        "AUTH a b c",
    ])
    .prop_map(line);
    let kill = (0..SLOTS, select(vec!["", "SKIPME yes", "SKIPME no"])).prop_map(|(slot, more)| {
        [line("CLIENT KILL ID"), vec![Word::IdOf(slot)], line(more)].concat()
    });
    prop_oneof![6 => lines, 3 => auth, 1 => kill]
}

fn server_command() -> impl Strategy<Value = Vec<Word>> {
    let lines = select(vec![
        "TIME",
        "FLUSHALL",
        "FLUSHDB",
        "FLUSHALL async",
        "FLUSHDB SYNC",
        "FLUSHALL FOO",
        "SWAPDB 0 1",
        "swapdb 1 15",
        "SWAPDB 1 1",
        "SWAPDB 0 16",
        "SWAPDB -1 0",
        "SWAPDB x 1",
        "SWAPDB 0 01",
        "SWAPDB 0 2147483648",
        "FLUSHDB SYNC SYNC",
        "CONFIG GET maxmemory",
        "config get MAXMEMORY-POLICY",
        "CONFIG GET requirepass",
        "CONFIG GET nosuch",
        "CONFIG SET maxmemory 100mb",
        "CONFIG SET maxmemory 1GB maxmemory-policy volatile-ttl",
        "CONFIG SET maxmemory 0",
        "CONFIG SET maxmemory 1.5",
        "CONFIG SET maxmemory 5x",
        "CONFIG SET maxmemory-policy AllKeys-LRU",
        "CONFIG SET maxmemory-policy noeviction",
        "CONFIG SET maxmemory-policy foo",
        "CONFIG SET maxmemory 2gb maxmemory-policy foo",
        "CONFIG SET maxmemory 0 maxmemory 0",
        "CONFIG SET nosuch 1",
        "CONFIG SET maxmemory 0 nosuch",
        "CONFIG SET requirepass sesame",
    ])
    .prop_map(line);
    let no_password = Just([line("CONFIG SET requirepass"), vec![text("")]].concat());
    let sections = select(vec!["server", "REPLICATION", "memory", "nosuch", "all"]);
    let info =
        vec(sections, 0..3).prop_map(|sections| line(&format!("INFO {}", sections.join(" "))));
    prop_oneof![5 => lines, 1 => no_password, 3 => info]
}

/// Generates an existing command with any number of arguments that make little sense.
fn wrong_command() -> impl Strategy<Value = Vec<Word>> {
    let names = select(vec![
        "SET",
        "GET",
        "GETRANGE",
        "DEL",
        "EXISTS",
        "TYPE",
        "ZCARD",
        "ZRANGE",
        "ZRANK",
        "ZSCORE",
        "PTTL",
        "TTL",
        "PEXPIRE",
        "EXPIRE",
        "EVAL",
        "EVALSHA",
        "SCRIPT",
        "SCRIPT EXISTS",
        "SCRIPT LOAD",
        "AUTH",
        "SELECT",
        "CLIENT",
        "CLIENT ID",
        "CLIENT SETNAME",
        "CLIENT GETNAME",
        "CLIENT KILL",
        "TIME",
        "PING",
        "ECHO",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB",
        "CONFIG",
        "CONFIG GET",
        "CONFIG SET",
        "RESET",
        "CLIENT foo",
        "script FOO",
        "Config \u{1}",
    ]);
    let arguments = select(vec!["k1", "FOO", "-", "k\r\n1", "7"]);
    (names, vec(arguments, 0..5)).prop_map(|(name, arguments)| {
        [line(name), arguments.into_iter().map(text).collect()].concat()
    })
}

/// Generates an unknown command name, with arbitrary bytes behind it.
fn unknown_command() -> impl Strategy<Value = Vec<Word>> {
    (vec(any::<u8>(), 0..150), vec(vec(any::<u8>(), 0..150), 0..4)).prop_map(|(tail, arguments)| {
        let name = [&b"FOO"[..], &tail].concat();
        std::iter::once(name).chain(arguments).map(Word::Bytes).collect()
    })
}

fn any_script() -> impl Strategy<Value = &'static str> {
    select(vec![
        UNDO.text,
        EXTEND.text,
        ACQUIRE_MANY.text,
        ACQUIRE_SHARED.text,
        EXTEND_SHARED.text,
        UNDO_SHARED.text,
    ])
}

fn key() -> impl Strategy<Value = Word> {
    select(KEYS.to_vec()).prop_map(|key| Word::Bytes(key.into()))
}

fn token() -> impl Strategy<Value = Word> {
    select(vec!["token-a", "token-b"]).prop_map(text)
}

/// Generates names that redbolt gives to readers, and one that it does not.
fn sharer() -> impl Strategy<Value = Word> {
    prop_oneof![6 => select(vec![SHARER_A, SHARER_A, SHARER_A, TWIN_OF_A, SHARER_B, TWIN_OF_B]), 1 => Just("token-a")]
        .prop_map(text)
}

fn value() -> impl Strategy<Value = Word> {
    prop_oneof![3 => token(), 1 => vec(any::<u8>(), 0..20).prop_map(Word::Bytes)]
}

fn odd_number() -> impl Strategy<Value = &'static str> {
    select(vec![
        "0",
        "-1",
        "-0",
        "01",
        "+5",
        " 5",
        "",
        "x",
        "1.5",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "9223372036854775",
        "-9223372036854776",
        "9221000000000000000",
        "126144000000",
        "126144030000000",
    ])
}

fn text(text: &str) -> Word {
    Word::Bytes(text.into())
}

fn line(words: &str) -> Vec<Word> {
    words.split(' ').filter(|word| !word.is_empty()).map(text).collect()
}

/// The two servers, in the same state after the same commands.
struct Pair {
    embedded: Side,
    real: Side,
    /// Unix time in microseconds.
    start: i64,
    /// The scripts that were sent as text, and the replies.
    scripts: Vec<(Vec<u8>, Vec<u8>)>,
    _node: Node,
    _server: Server,
}

impl Pair {
    fn start() -> Self {
        Self::of(Server::with(&["--user", "bob", "on", ">pw", "~*", "&*", "+@all"]), |_| {})
    }

    /// Starts a pair from which an operator has taken a command away.
    fn without(command: &str, denial: Denial) -> Self {
        let minus = format!("-{command}");
        let args = match denial {
            Denial::Forbidden => {
                &["--user", "default", "on", "nopass", "~*", "&*", "+@all", &minus][..]
            }
            Denial::RenamedAway => &["--rename-command", command, ""],
        };
        Self::of(Server::with(args), |store| store.deny(command, Some(denial)))
    }

    fn of(server: Server, alter: impl FnOnce(&mut Store)) -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        let mut store =
            Store::new("0123456789012345678901234567890123456789", ClockReading::from_millis(now));
        store.add_user("bob", "pw");
        alter(&mut store);
        let node = Node::serving(store, ([127, 0, 0, 1], 0).into()).unwrap();
        let (embedded, real) = (Side::of(&node.address().to_string()), Side::of(&server.address()));
        Self { embedded, real, start: 0, scripts: Vec::new(), _node: node, _server: server }
    }

    fn same(&mut self, slot: usize, words: &[&str]) {
        let embedded = self.embedded.ask(slot, words).escape_ascii().to_string();
        let real = self.real.ask(slot, words).escape_ascii().to_string();
        assert_eq!(embedded, real, "{words:?}");
    }

    /// Resets both: no keys, no scripts, and a password if `guarded`.
    fn clear(&mut self, guarded: bool) {
        let password = if guarded { "sesame" } else { "" };
        self.embedded.clear(password);
        self.real.clear(password);
        self.start = unix_micros();
    }

    /// Asserts that each script got more than a few replies with each of these beginnings.
    fn has_answered(&self, expected: &[(&str, &[&str])]) {
        for (script, replies) in expected {
            for reply in *replies {
                let answered = |(sent, got): &&(Vec<u8>, Vec<u8>)| {
                    sent == script.as_bytes() && got.starts_with(reply.as_bytes())
                };
                let count = self.scripts.iter().filter(answered).count();
                assert!(count >= 10, "{count} of {reply:?} only, to {script}");
            }
        }
    }

    /// Compares all keys that a sequence may have left: first which exist, then their contents.
    fn same_keys(&mut self) -> Result<(), TestCaseError> {
        let of_locks = LOCK_KEYS.into_iter().chain(QUEUE_KEYS).map(str::as_bytes);
        let keys: Vec<&[u8]> = KEYS.into_iter().chain(of_locks).collect();
        let key = |key: &&[u8]| Word::Bytes(key.to_vec());
        for database in ["0", "1", "15"] {
            let mut steps = vec![line("AUTH default sesame"), vec![text("SELECT"), text(database)]];
            let before = steps.len();
            steps.extend(keys.iter().map(|it| vec![text("TYPE"), key(it)]));
            let types = self.ask_both(steps)?;
            let exists = |at: usize| types[before + at] != b"+none\r\n";
            let left = (0..keys.len()).filter(|at| exists(*at)).map(|at| key(&keys[at]));
            let steps: Vec<_> = left.flat_map(contents_of).collect();
            if !steps.is_empty() {
                self.ask_both(steps)?;
            }
        }
        Ok(())
    }

    /// Sends the same commands to both on one connection, and returns the replies of the real one.
    fn ask_both(&mut self, commands: Vec<Vec<Word>>) -> Result<Vec<Vec<u8>>, TestCaseError> {
        let steps: Vec<_> = commands.into_iter().map(|words| Step { slot: 0, words }).collect();
        self.fly(Delivery::Pipelined, 0, &steps)
    }

    fn play(&mut self, delivery: Delivery, steps: &[Step]) -> Result<(), TestCaseError> {
        let mut done = 0;
        while done < steps.len() {
            let flight = match delivery {
                Delivery::Pipelined => flight(&steps[done..]),
                _ => 1,
            };
            self.fly(delivery, done, &steps[done..done + flight])?;
            done += flight;
        }
        Ok(())
    }

    /// Sends some steps of one connection, the first of which has the index `at`, compares the
    /// replies, and returns those of the real one.
    fn fly(
        &mut self,
        delivery: Delivery,
        at: usize,
        steps: &[Step],
    ) -> Result<Vec<Vec<u8>>, TestCaseError> {
        let embedded = self.embedded.exchange(delivery, self.start, at, steps);
        // Single bytes test the reader of the embedded node.
        let whole = if delivery == Delivery::ByteByByte { Delivery::InTurn } else { delivery };
        let real = self.real.exchange(whole, self.start, at, steps);
        for ((step, embedded), real) in steps.iter().zip(&embedded).zip(&real) {
            let (name, second) = (step.word(0), step.word(1));
            prop_assert!(
                is_same(&name, &second, embedded, real),
                "{step:?}\n  embedded: {}\n  real:     {}",
                embedded.escape_ascii(),
                real.escape_ascii()
            );
            if let ("EVAL", Some(Word::Bytes(script))) = (&name[..], step.words.get(1)) {
                self.scripts.push((script.clone(), real.clone()));
            }
        }
        if steps.iter().any(Step::is_brief) {
            thread::sleep(BRIEF);
        }
        let last = &steps[steps.len() - 1];
        for slot in last.ended_slots(&real[real.len() - 1]) {
            prop_assert!(self.real.has_ended(slot), "{last:?} does not end {slot} of the real one");
            prop_assert!(self.embedded.has_ended(slot), "{last:?} does not end {slot}");
        }
        Ok(real)
    }
}

/// Returns commands that show the content of a key of any type.
fn contents_of(key: Word) -> Vec<Vec<Word>> {
    let fields = ["0", "1", "2", "3", "4", SHARER_A, TWIN_OF_A, SHARER_B, TWIN_OF_B];
    let mut commands = vec![
        vec![text("GET"), key.clone()],
        [vec![text("ZRANGE"), key.clone()], line("0 -1 WITHSCORES")].concat(),
        vec![text("HLEN"), key.clone()],
    ];
    commands.extend(fields.map(|field| vec![text("HGET"), key.clone(), text(field)]));
    commands.push(vec![text("PTTL"), key]);
    commands
}

/// Returns the number of steps that go into one write: those of one connection, up to one that ends
/// a connection or has a brief time.
fn flight(steps: &[Step]) -> usize {
    let together = steps.iter().take_while(|step| step.slot == steps[0].slot).count();
    let is_last = |step: &Step| step.may_end_connections() || step.is_brief();
    let ending = steps[..together].iter().position(is_last);
    ending.map_or(together, |at| at + 1)
}

impl Step {
    fn word(&self, at: usize) -> String {
        match self.words.get(at) {
            Some(Word::Bytes(word)) => String::from_utf8_lossy(word).to_ascii_uppercase(),
            _ => String::new(),
        }
    }

    fn may_end_connections(&self) -> bool {
        self.word(0) == "QUIT" || (self.word(0) == "CLIENT" && self.word(1) == "KILL")
    }

    fn is_brief(&self) -> bool {
        self.words.iter().any(|word| matches!(word, Word::Brief))
    }

    /// Returns the connections that this command ended, if it got this reply.
    fn ended_slots(&self, reply: &[u8]) -> Vec<usize> {
        let killed_some = reply.starts_with(b":") && reply != b":0\r\n";
        match self.word(0).as_str() {
            "QUIT" => vec![self.slot],
            "CLIENT" if self.word(1) == "KILL" && killed_some => match self.words.get(3) {
                Some(Word::IdOf(slot)) => vec![*slot],
                _ => (0..SLOTS).filter(|&slot| slot != self.slot).collect(),
            },
            _ => Vec::new(),
        }
    }
}

/// One of the two servers, with a few connections.
struct Side {
    address: String,
    slots: Vec<Slot>,
}

struct Slot {
    stream: BufReader<TcpStream>,
    id: u64,
}

impl Side {
    fn of(address: &str) -> Self {
        let slots = (0..SLOTS).map(|_| Slot::open(address)).collect();
        Self { address: address.into(), slots }
    }

    /// Resets the server and all connections; the last connection uses another database. The
    /// current password, if any, is the only one that the sequences set.
    fn clear(&mut self, password: &str) {
        self.ask(0, &["AUTH", "default", "sesame"]);
        self.ask(0, &["CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction"]);
        assert_eq!(self.ask(0, &["FLUSHALL"]), b"+OK\r\n");
        assert_eq!(self.ask(0, &["SCRIPT", "FLUSH"]), b"+OK\r\n");
        assert_eq!(self.ask(0, &["CONFIG", "SET", "requirepass", password]), b"+OK\r\n");
        for slot in 0..SLOTS {
            assert_eq!(self.ask(slot, &["RESET"]), b"+RESET\r\n");
        }
        // This is refused if a password is set.
        self.ask(SLOTS - 1, &["SELECT", "1"]);
    }

    fn ask(&mut self, slot: usize, words: &[&str]) -> Vec<u8> {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.slots[slot].send(&encode(words), Delivery::InTurn);
        self.slots[slot].reply()
    }

    fn exchange(
        &mut self,
        delivery: Delivery,
        start: i64,
        at: usize,
        steps: &[Step],
    ) -> Vec<Vec<u8>> {
        let encode_step = |(i, step): (usize, &Step)| {
            encode(step.words.iter().map(|word| self.spell(word, start, at + i)).collect())
        };
        let bytes: Vec<u8> = steps.iter().enumerate().flat_map(encode_step).collect();
        let slot = &mut self.slots[steps[0].slot];
        slot.send(&bytes, delivery);
        steps.iter().map(|_| slot.reply()).collect()
    }

    fn spell(&self, word: &Word, start: i64, step: usize) -> Vec<u8> {
        match word {
            Word::Bytes(bytes) => bytes.clone(),
            Word::IdOf(slot) => self.slots[*slot].id.to_string().into(),
            Word::Span(unit) => (span(step) / unit).to_string().into(),
            Word::SpanAnd(more) => (span(step) + more).to_string().into(),
            Word::Instant(offset) => (start + offset).to_string().into(),
            Word::Second(offset) => (start / 1_000_000 + offset).to_string().into(),
            Word::Brief => b"1".to_vec(),
        }
    }

    /// Returns true if the connection has ended; opens another in its place.
    fn has_ended(&mut self, slot: usize) -> bool {
        let ended = self.slots[slot].stream.fill_buf().is_ok_and(<[u8]>::is_empty);
        self.slots[slot] = Slot::open(&self.address);
        ended
    }
}

impl Slot {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut slot = Self { stream: BufReader::new(stream), id: 0 };
        slot.send(&encode(vec![b"CLIENT".to_vec(), b"ID".to_vec()]), Delivery::InTurn);
        // If a password is set by now, the ID stays unknown, and 0 matches no connection.
        slot.id = integer(&slot.reply()).unwrap_or(0) as u64;
        slot
    }

    fn send(&mut self, bytes: &[u8], delivery: Delivery) {
        let size = match delivery {
            // A script of some kilobytes in single bytes would take longer than all else.
            Delivery::ByteByByte if bytes.len() > LONG => bytes.len() / PIECES,
            Delivery::ByteByByte => 1,
            Delivery::InTurn | Delivery::Pipelined => bytes.len(),
        };
        bytes.chunks(size).for_each(|piece| self.stream.get_mut().write_all(piece).unwrap());
    }

    /// Returns the bytes of one reply, or a text of the test if there is none.
    fn reply(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match copy_reply(&mut self.stream, &mut bytes) {
            Ok(()) => bytes,
            Err(error) => format!("no reply: {error}").into(),
        }
    }
}

fn copy_reply(from: &mut BufReader<TcpStream>, to: &mut Vec<u8>) -> io::Result<()> {
    let start = to.len();
    if from.read_until(b'\n', to)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let kind = to[start];
    let number = std::str::from_utf8(&to[start + 1..]).ok().and_then(|n| n.trim_end().parse().ok());
    match (kind, number) {
        (b'$', Some(length @ 0u64..)) => from.take(length + 2).read_to_end(to).map(drop),
        (b'*', Some(length @ 0u64..)) => (0..length).try_for_each(|_| copy_reply(from, to)),
        _ => Ok(()),
    }
}

fn encode(words: Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(&word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns milliseconds that differ between steps and are not in the order of the steps.
fn span(step: usize) -> u64 {
    SHORTEST_SPAN * (1 + (step as u64 * 17) % 61)
}

/// Returns true if the replies are equal, or of the same shape if they cannot be equal.
fn is_same(name: &str, second: &str, embedded: &[u8], real: &[u8]) -> bool {
    match (name, second) {
        ("TTL", _) => embedded == real || is_close(embedded, real, 1_000),
        ("PTTL" | "EVAL" | "EVALSHA", _) if is_close(embedded, real, 1) => true,
        ("EVAL" | "EVALSHA", _) if is_same_refusal(embedded, real) => true,
        ("EVAL" | "EVALSHA", _) if is_same_view(embedded, real) => true,
        ("EVAL" | "EVALSHA", _) if is_same_queue(embedded, real) => true,
        ("EVAL" | "EVALSHA", _) if is_same_hash(embedded, real) => true,
        ("EVAL" | "EVALSHA", script) if is_script(VIEW_DIGEST.text, script) => {
            embedded == real || [embedded, real].iter().all(|reply| reply.starts_with(b"$40\r\n"))
        }
        ("EVAL" | "EVALSHA", script) if is_same_place(script, embedded, real) => true,
        ("GET", _) if is_same_mark(embedded, real) => true,
        ("GET", _) if is_same_holder(embedded, real) => true,
        // A script that grants needs a key. Lua reports the missing key in its own words, with the
        // script's name.
        ("EVAL" | "EVALSHA", _) if is_lua_s_own(real) => is_error(embedded),
        ("CLIENT", "ID") => {
            embedded == real || [embedded, real].iter().all(|r| integer(r) > Some(0))
        }
        ("ZRANGE", "E1" | "E2") => have_close_ends(&by_name(embedded), &by_name(real)),
        ("ZRANGE" | "ZSCORE", _) => have_close_ends(embedded, real),
        ("TIME", _) => embedded == real || are_times(embedded, real),
        ("INFO", _) => embedded == real || is_info_part(embedded, real),
        // Scripts that are not lock scripts fail on both sides, for different reasons.
        ("EVAL", text) if !text.starts_with("LOCAL") && !text.starts_with("FOR") => {
            embedded == real || is_error(embedded) && is_error(real)
        }
        ("SCRIPT", "LOAD") => embedded == real || is_error(embedded) && is_error(real),
        _ => embedded == real,
    }
}

thread_local! {
    /// The delay of the real server in this test, in ms, and the age of its keys.
    static LAG: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// Returns true if both replies are close remaining times of a key with a TTL.
fn is_close(embedded: &[u8], real: &[u8], unit: u64) -> bool {
    let span = |reply| integer(reply).and_then(|n| u64::try_from(n).ok());
    match (span(embedded), span(real)) {
        (Some(a), Some(b)) => {
            let is_long = a.min(b) >= SHORTEST_SPAN / unit / 2;
            let [behind, old] = LAG.get();
            let is_of_queue = a.min(b) >= 4_000_u64.saturating_sub(old) / unit
                && a.abs_diff(b) <= (1_000 + behind) / unit;
            is_long && a.abs_diff(b) <= TOLERANCE / unit || is_of_queue
        }
        _ => false,
    }
}

/// Returns true if this word, a text or a digest, calls the script.
fn is_script(text: &str, word: &str) -> bool {
    let digest = sha1_smol::Sha1::from(text).digest().to_string();
    [text, &digest].iter().any(|it| it.eq_ignore_ascii_case(word))
}

/// Returns true if both replies are the same place in the queue, or the same grant, except for the
/// time left of a holder or a call, and a stamp from the clock.
fn is_same_place(script: &str, embedded: &[u8], real: &[u8]) -> bool {
    if ![ACQUIRE_IN_QUEUE.text, ACQUIRE_PERMIT_IN_QUEUE.text]
        .into_iter()
        .any(|it| is_script(it, script))
    {
        return false;
    }
    let words = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (embedded, real) = (words(embedded), words(real));
    let left_and_stamp = if real[0] == "+WAIT" { [1, 2] } else { [0, 1] };
    let are_close =
        |a: &str, b: &str| is_close(format!(":{a}").as_bytes(), format!(":{b}").as_bytes(), 1);
    let is_close = |(at, (a, b)): (usize, (&String, &String))| {
        let [left, stamp] = left_and_stamp;
        let of_call = |a: &str, b: &str| {
            let (a, b) = a.split_once(':').zip(b.split_once(':'))?;
            Some(a.0 == b.0 && are_close(a.1, b.1))
        };
        let is_close_call = real[0] == "+WAIT" && at == LAST && of_call(a, b) == Some(true);
        let is_close_left = at == left && are_close(a, b);
        a == b || is_close_left || is_close_call || at == stamp && are_close_ends(a, b)
    };
    embedded.len() == real.len() && embedded.iter().zip(&real).enumerate().all(is_close)
}

/// The word of a reply that names the last ticket in front.
const LAST: usize = 4;

/// Returns true if both replies are equal except for the time in a mark or a call.
fn is_same_mark(embedded: &[u8], real: &[u8]) -> bool {
    let begins = |reply: &[u8]| reply.splitn(3, |byte| b"\n ".contains(byte)).count() == 3;
    begins(embedded) && have_close_ends(embedded, real)
}

/// Returns true if both replies have the same fields, which a server has in another order.
fn is_same_hash(embedded: &[u8], real: &[u8]) -> bool {
    let fields = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        let mut lines: Vec<_> = text.split("\r\n").nth(1)?.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines.contains(&"hash".to_owned()).then_some(lines)
    };
    fields(embedded).is_some() && fields(embedded) == fields(real)
}

/// Returns true if both replies have the same holder behind close times.
fn is_same_holder(embedded: &[u8], real: &[u8]) -> bool {
    let parts = |reply: &[u8]| {
        let value = String::from_utf8_lossy(reply).into_owned();
        let (time, digits) = value.trim_end().split_once("\r\n")?.1.split_once('.')?;
        Some((time.parse::<u64>().ok()?, digits.to_owned()))
    };
    let (Some(one), Some(other)) = (parts(embedded), parts(real)) else { return false };
    let are_now = one.0.min(other.0) > THE_PAST;
    are_now && one.1 == other.1 && one.0.abs_diff(other.0) <= TOLERANCE / 1_000
}

/// A number of seconds that is not a current time.
const THE_PAST: u64 = 1_000_000_000;

/// Returns true if both replies give the same reason why a script did nothing, with close numbers.
fn is_same_refusal(embedded: &[u8], real: &[u8]) -> bool {
    let number =
        |reply: &[u8], reason: &[u8]| integer(&[b":", reply.strip_prefix(reason)?].concat());
    let restart_guards = [embedded, real].map(|reply| number(reply, b"+GUARD ").unwrap_or(0));
    let clocks = [embedded, real].map(|reply| number(reply, b"+CLOCK ").unwrap_or(0));
    let is_close = |[a, b]: [i64; 2], tolerance| a.min(b) > 0 && a.abs_diff(b) <= tolerance;
    is_close(restart_guards, TOLERANCE) || is_close(clocks, TOLERANCE * 1_000)
}

/// Returns true if both replies have the same names, each behind a close remaining time.
fn is_same_view(embedded: &[u8], real: &[u8]) -> bool {
    let lines = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let is_close = |(a, b): (&String, &String)| match (a.split_once(' '), b.split_once(' ')) {
        (Some((a, name)), Some((b, other))) if name == other => {
            let times = [a, b].map(|time| format!(":{time}"));
            is_close(times[0].as_bytes(), times[1].as_bytes(), 1)
        }
        _ => a == b,
    };
    let is_bulk = [embedded, real].iter().all(|reply| reply.starts_with(b"$"));
    let (embedded, real) = (lines(embedded), lines(real));
    is_bulk && embedded.len() == real.len() && embedded.iter().zip(&real).all(is_close)
}

/// Returns true if both replies have the same tickets in the same order, with close stamps and
/// times, behind the same count and the same mark.
fn is_same_queue(embedded: &[u8], real: &[u8]) -> bool {
    let words = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        let lines = text.lines().skip(1).map(|line| line.split(' ').map(str::to_owned).collect());
        lines.collect::<Vec<Vec<String>>>()
    };
    let is_close = |a: &String, b: &String| match (a.parse::<i64>(), b.parse::<i64>()) {
        (Ok(a), Ok(b)) => a == b || a.min(b) >= 0 && a.abs_diff(b) <= 1_000,
        _ => a == b,
    };
    let is_same = |(at, (a, b)): (usize, (&Vec<String>, &Vec<String>))| match (&a[..], &b[..]) {
        ([count, kept, since], [other, mark, other_since]) if at == 0 => {
            (count, kept) == (other, mark) && is_close(since, other_since)
        }
        ([name, stamp, age, left], [other, other_stamp, other_age, other_left]) => {
            let is_same_stamp = stamp == other_stamp || are_close_ends(stamp, other_stamp);
            name == other && is_same_stamp && is_close(age, other_age) && is_close(left, other_left)
        }
        _ => false,
    };
    let is_bulk = [embedded, real].iter().all(|reply| reply.starts_with(b"$"));
    let (embedded, real) = (words(embedded), words(real));
    is_bulk && embedded.len() == real.len() && embedded.iter().zip(&real).enumerate().all(is_same)
}

/// Sorts by name, because members that end in the same millisecond on one side may be in another
/// order.
fn by_name(reply: &[u8]) -> Vec<u8> {
    let mut words: Vec<&[u8]> = reply.split(|&byte| byte == b'\n').collect();
    words.sort_by_key(|word| if word.starts_with(b"1") { &b"1"[..] } else { word });
    words.join(&b'\n')
}

/// Returns true if both replies are equal except for Unix times in ms, which are close.
fn have_close_ends(embedded: &[u8], real: &[u8]) -> bool {
    let words = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        text.split(['\r', '\n', ' ']).map(str::to_owned).collect::<Vec<_>>()
    };
    let (embedded, real) = (words(embedded), words(real));
    let is_close = |(a, b): (&String, &String)| a == b || are_close_ends(a, b);
    embedded.len() == real.len() && embedded.iter().zip(&real).all(is_close)
}

/// Returns true if both are Unix times, in ms or in µs, which are close.
fn are_close_ends(a: &str, b: &str) -> bool {
    let time = |text: &str| text.parse().ok().filter(|&time: &u64| time > 1_000_000_000_000);
    match (time(a), time(b)) {
        (Some(a), Some(b)) if a.min(b) > 1_000_000_000_000_000 => a.abs_diff(b) <= 1_000_000,
        (Some(a), Some(b)) => a.abs_diff(b) <= TOLERANCE,
        _ => false,
    }
}

fn is_lua_s_own(real: &[u8]) -> bool {
    let words = b"command arguments must be strings or integers";
    is_error(real) && real.windows(words.len()).any(|part| part == words)
}

fn are_times(embedded: &[u8], real: &[u8]) -> bool {
    match (micros(embedded), micros(real)) {
        (Some(a), Some(b)) => a.abs_diff(b) <= TOLERANCE * 1_000,
        _ => false,
    }
}

/// Returns the Unix time in a reply to TIME.
fn micros(reply: &[u8]) -> Option<u64> {
    let text = String::from_utf8(reply.to_vec()).ok()?;
    let ["*2", "$10", seconds, _, micros] = text.lines().collect::<Vec<_>>()[..] else {
        return None;
    };
    let micros = micros.parse().ok().filter(|&micros: &u64| micros < 1_000_000)?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000 + micros)
}

/// Returns true if the embedded node's INFO has some of the sections and some of their lines, in a
/// form that a client cannot distinguish from the real one.
fn is_info_part(embedded: &[u8], real: &[u8]) -> bool {
    let (embedded, real) = (String::from_utf8_lossy(embedded), String::from_utf8_lossy(real));
    let (embedded, real) = (info_lines(&embedded), info_lines(&real));
    !embedded.is_empty()
        && embedded.iter().all(|(section, key, value)| {
            let twin = real.iter().find(|(s, k, _)| (s, k) == (section, key));
            twin.is_some_and(|(_, _, real)| real == value || INFO_THAT_DIFFERS.contains(key))
        })
}

fn info_lines(info: &str) -> Vec<(&str, &str, &str)> {
    let mut section = "";
    let mut lines = Vec::new();
    for line in info.split("\r\n").skip(1).filter(|line| !line.is_empty()) {
        match line.split_once(':') {
            Some((key, value)) => lines.push((section, key, value)),
            None => section = line,
        }
    }
    lines
}

fn integer(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
}

fn unix_micros() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64
}

fn is_error(reply: &[u8]) -> bool {
    reply.starts_with(b"-ERR ")
}

const KEYS: [&[u8]; 4] = [b"k1", b"k2", b"", b"\r\n\0\xff"];
/// Two resources, their counters, and the restart guard.
const LOCK_KEYS: [&str; 8] = ["r1", "r2", "u1", "u2", "c1", "c2", "f1", "guard"];
/// The keys of these resources' queues: their tickets by stamp and by end, and the called ticket.
const QUEUE_KEYS: [&str; 9] = ["l1", "l2", "e1", "e2", "n1", "n2", "w:xaa", "w:x00", "w:saa"];
/// The shortest lifetime of a key that a queue leaves.
const SHORT_LIVED: Duration = Duration::from_secs(1);
const SLOTS: usize = 3;
/// The length in bytes above which a request is sent in pieces.
const LONG: usize = 256;
const PIECES: usize = 31;
/// The value of a resource of which A is the only reader.
const LONE_A: &str = "r:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00";
const SHARER_A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00";
/// The token of the same client, to which this server is another node.
const TWIN_OF_A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa02";
const SHARER_B: &str = "00112233445566778899aabbccddeeff01:web-1";
const TWIN_OF_B: &str = "00112233445566778899aabbccddeeff00:web-1";
/// The time after which a millisecond has passed on any clock here.
const BRIEF: Duration = Duration::from_millis(3);
/// The token of the other claim of holder A.
const SECOND_OF_A: &str = "fedcba9876543210fedcba987654321000:web-1";
const WRITER_BESIDE_A: &str = "w:fedcba9876543210fedcba987654321000:web-1";
const TICKET_OF_A: &str = "xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const TICKET_OF_B: &str = "x00112233445566778899aabbccddeeff";
const SHARING_TICKET_OF_A: &str = "saaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const SHARING_TICKET_OF_B: &str = "s00112233445566778899aabbccddeeff";
const PERMIT_TICKET_OF_A: &str = "paaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const PERMIT_TICKET_OF_B: &str = "p00112233445566778899aabbccddeeff";
const DIGITS_OF_A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const COMMANDS_OF_SCRIPTS: [&str; 24] = [
    "del",
    "dump",
    "get",
    "getrange",
    "hdel",
    "hexists",
    "hget",
    "hmget",
    "hset",
    "pexpire",
    "pexpireat",
    "pttl",
    "set",
    "time",
    "type",
    "zadd",
    "zcard",
    "zcount",
    "zrange",
    "zrangebyscore",
    "zrank",
    "zrem",
    "zremrangebyscore",
    "zscore",
];
/// The shortest TTL in milliseconds. It is far above the tolerance, so that no wrong time passes
/// for a right one. The tolerance is below the 8 s by which a marked key outlives its holder.
const SHORTEST_SPAN: u64 = 200_000;
const TOLERANCE: u64 = 4_000;
const INFO_THAT_DIFFERS: [&str; 5] =
    ["redis_version", "run_id", "server_time_usec", "uptime_in_seconds", "uptime_in_days"];
