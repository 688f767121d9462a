//! Conformance of ghosts: when a connection is killed, and when an undo is final.

use std::time::Duration;

use redbolt::proto::LockRequest;
use redbolt_testkit::Handshake;

use crate::bench::{Bench, ready, restart_guard_value, run_id, warm};

const TTL: Duration = Duration::from_secs(20);

/// The model's four cases: whether the request was answered before its connection was lost, and
/// whether the next connection leads to the same process.
#[test]
fn the_core_kills_and_undoes_again_when_the_model_does() {
    for (answered, same_run) in [(true, true), (true, false), (false, true), (false, false)] {
        let ghost = !answered;
        let case = format!("answered {answered}, same run {same_run}");
        let mut bench = given_up(answered, same_run);
        let waiting = bench.waiting(2);
        let kills = ghost && same_run;
        let expected: &[&str] = if kills { &["kill", "undo"] } else { &["undo"] };
        assert_eq!(waiting, expected, "{case}");
        if kills {
            assert_eq!(bench.next(2).unwrap()[2..], [b"ID".to_vec(), b"7".to_vec()], "the old one");
            bench.answer(2, ":1\r\n");
        }
        bench.answer(2, ":0\r\n");
        let settled = !ghost || same_run;
        assert_eq!(bench.core.has_pending_releases(), !settled, "{case}");
        bench.wait(TTL / 2);
        let again: &[&str] = if settled { &[] } else { &["undo"] };
        assert_eq!(bench.waiting(2), again, "{case}");
        if !settled {
            bench.answer(2, ":1\r\n");
        }
        assert!(!bench.core.has_pending_releases(), "{case}");
    }
}

/// A refused kill ends no ghost.
#[test]
fn the_core_undoes_again_if_it_may_not_kill() {
    let mut bench = given_up(false, true);
    bench.answer(2, "-NOPERM no\r\n");
    bench.answer(2, ":0\r\n");
    assert!(bench.core.has_pending_releases());
    bench.wait(TTL / 2);
    assert_eq!(bench.waiting(2), ["undo"]);
}

/// On one connection the undo follows the request, and its reply is final.
#[test]
fn the_core_undoes_behind_the_request() {
    let mut bench = warm();
    let id = bench.lock(&LockRequest::new(b"job").ttl(TTL));
    let _ = bench.next(2);
    let now = bench.now;
    bench.core.release(id, now);
    assert_eq!(bench.waiting(2), ["ask", "check", "undo"]);
}

/// Every attempt has a new token, and a late reply to an abandoned attempt grants nothing.
#[test]
fn the_core_never_reuses_an_abandoned_token() {
    let mut bench = warm();
    let first = bench.lock(&LockRequest::new(b"job").ttl(TTL));
    let tokens: Vec<_> = (0..3).map(|node| bench.next(node).unwrap()[2].clone()).collect();
    let now = bench.now;
    bench.core.release(first, now);
    bench.reported();
    let second = bench.lock(&LockRequest::new(b"job").ttl(TTL));
    for (node, token) in tokens.iter().enumerate() {
        for answer in ["+OK\r\n", &votes(), ":1\r\n"] {
            bench.answer(node, answer);
        }
        let ask = bench.next(node).unwrap();
        assert_ne!(ask[2], *token);
    }
    assert_eq!(bench.reported(), []);
    assert!(bench.core.votes(second).grants().is_empty());
}

/// Returns the TTL of a restart guard that did not change.
fn votes() -> String {
    format!(":{}\r\n", Handshake::VOTES)
}

/// Returns a bench with an attempt on the last node only, whose connection is lost and reopened.
fn given_up(answered: bool, same_run: bool) -> Bench {
    let mut bench = warm();
    let id = bench.lock(&LockRequest::new(b"job").ttl(TTL));
    let _ = bench.next(2);
    for node in 0..2 {
        bench.answer(node, "-LOADING soon\r\n");
        bench.answer(node, &votes());
    }
    if answered {
        bench.answer(2, "+OK\r\n");
        bench.answer(2, &votes());
    }
    bench.cut(2);
    let now = bench.now;
    bench.core.release(id, now);
    for node in 0..2 {
        while bench.next(node).is_some() {
            bench.answer(node, ":0\r\n");
        }
    }
    for _ in 0..100 {
        bench.wait(Duration::from_millis(1));
        if bench.connect().is_some() {
            break;
        }
    }
    let run = if same_run { 1 } else { 2 };
    let restart_guard = Some(restart_guard_value(2, run));
    bench.handshake(
        2,
        &Handshake { run_id: run_id(2, run), restart_guard, client_id: 8, ..ready(2) },
    );
    bench
}
