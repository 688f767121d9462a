//! Conformance of the restart guard: the grants that count, the nodes that are enrolled, and the
//! order of writes.

use std::time::Duration;

use redbolt::proto::restart_guard::BIG_MS;
use redbolt::proto::script::ENROL;
use redbolt::proto::{Event, LockRequest, RestartTrust, Vote};
use redbolt_models::restart_guard::{Decisions, Value};
use redbolt_node::model::ClockReading;
use redbolt_testkit::{Command, Handshake, Kind, Peer};

use crate::bench::{cold, ready, restart_guard_of, restart_guard_value, warm};

const VALUES: [Value; 4] = [Value::Missing, Value::Past, Value::Copied, Value::Present];

/// Returns the handshake of a node with this restart guard.
fn handshakes(value: Value, quarantine: u8) -> Handshake {
    let restart_guard = match value {
        Value::Missing => None,
        Value::Past => Some(restart_guard_value(2, 0)),
        Value::Copied => Some(restart_guard_of(2, 1, Some(b'0'))),
        Value::Present => Some(restart_guard_of(2, 1, Some(b'1'))),
    };
    let pttl = if restart_guard.is_some() { pttl(Some(quarantine)) } else { -2 };
    Handshake { restart_guard, pttl, replication_id: history(b'1'), ..ready(2) }
}

fn history(digit: u8) -> Option<String> {
    String::from_utf8(vec![digit; 40]).ok()
}

/// Returns the TTL of a restart guard with this many ticks of quarantine left.
fn pttl(quarantine: Option<u8>) -> i64 {
    quarantine.map_or(-2, |ticks| Handshake::VOTES + 1_000 * i64::from(ticks))
}

/// Tries every state of the restart guard when the connection opens and at the first request, a
/// script that checks the guard itself.
#[test]
fn the_core_counts_the_grants_that_the_model_counts() {
    let decisions = Decisions::new(RestartTrust::Strict, true);
    let mut counted = 0;
    for value in VALUES {
        for (before, behind) in
            (0..=2).flat_map(|before| [None, Some(0), Some(1), Some(2)].map(|left| (before, left)))
        {
            let counts = decisions.counts(value, behind);
            assert_eq!(
                first_flight(value, before, behind),
                counts,
                "{value:?} {before} {behind:?}"
            );
            counted += u32::from(counts);
        }
    }
    assert_eq!(counted, 3, "with the value that is ours, and a TTL behind the SET that votes");
}

/// Returns true if the third node's grant counts. Otherwise it has to be undone at once.
fn first_flight(value: Value, before: u8, behind: Option<u8>) -> bool {
    let mut bench = cold();
    let id = bench.lock(&LockRequest::new(b"job"));
    for node in 0..2 {
        bench.handshake(node, &ready(node));
    }
    let server = handshakes(value, before);
    bench.handshake(2, &server);
    assert_eq!(bench.waiting(2)[..2], ["ask", "info"], "in the first flight");
    let is_set = behind == Some(0);
    bench
        .answer(2, &if is_set { "+OK\r\n".into() } else { format!("+GUARD {}\r\n", pttl(behind)) });
    // The node is the master that it was at the handshake.
    let words = bench.next(2).expect("the proof is due");
    bench.answer(2, &server.answer(&words).expect("INFO is of the handshake"));
    match bench.core.votes(id).of(bench.node(2)) {
        Some(Vote::Grant) => {
            assert!(!bench.waiting(2).contains(&"undo"));
            true
        }
        Some(Vote::Fail(_)) => {
            assert_eq!(bench.waiting(2).contains(&"undo"), is_set, "{:?}", bench.waiting(2));
            false
        }
        other => panic!("{other:?}"),
    }
}

/// A connection whose guard was as expected before: the model's flush.
#[test]
fn the_core_checks_behind_every_request() {
    let decisions = Decisions::new(RestartTrust::Strict, true);
    for behind in [None, Some(0), Some(1), Some(2)] {
        let mut bench = warm();
        let id = bench.lock(&LockRequest::new(b"job"));
        bench.answer(2, "+OK\r\n");
        bench.answer(2, &format!(":{}\r\n", pttl(behind)));
        let grant = bench.core.votes(id).of(bench.node(2)) == Some(Vote::Grant);
        assert_eq!(grant, decisions.counts(Value::Present, behind), "{behind:?}");
    }
}

#[test]
fn the_core_enrols_where_the_model_does_with_a_whole_quarantine_in_one_command() {
    let decisions = Decisions::new(RestartTrust::Strict, true);
    for (value, quarantine) in VALUES.into_iter().flat_map(|value| [(value, 0), (value, 2)]) {
        let mut bench = cold();
        let handshakes = handshakes(value, quarantine);
        bench.handshake(2, &handshakes);
        let enrolled = bench.waiting(2) == ["enrol"];
        assert_eq!(enrolled, decisions.enrols(value), "{value:?}");
        if enrolled {
            let words = bench.next(2).unwrap();
            let seen = handshakes.restart_guard.unwrap_or_default();
            let life = (BIG_MS + 30_000).to_string().into_bytes();
            assert_eq!(
                words[3..],
                [b"redbolt:guard".to_vec(), seen, restart_guard_of(2, 1, Some(b'1')), life]
            );
            // An enrolment is not a vote: the guard is read again.
            bench.answer(2, ":1\r\n");
            assert_eq!(bench.waiting(2), ["info", "look", "check"]);
        }
    }
}

/// On a connection that was checked a while ago, the history is read behind the request.
#[test]
fn the_core_counts_no_grant_of_a_node_that_was_a_replica() {
    for digit in [b'1', b'0'] {
        let mut bench = cold();
        for node in 0..2 {
            bench.handshake(node, &ready(node));
        }
        bench.handshake(2, &handshakes(Value::Present, 0));
        bench.reported();
        bench.wait(Duration::from_millis(5));
        let id = bench.lock(&LockRequest::new(b"job"));
        assert_eq!(bench.waiting(2), ["ask", "check", "info"]);
        bench.answer(2, "+OK\r\n");
        bench.answer(2, &format!(":{}\r\n", pttl(Some(0))));
        assert_eq!(bench.core.votes(id).of(bench.node(2)), None, "before it is known");
        let reported = Handshake { replication_id: history(digit), ..ready(2) };
        let words = bench.next(2).unwrap();
        bench.answer(2, &reported.answer(&words).unwrap());
        match bench.core.votes(id).of(bench.node(2)) {
            Some(Vote::Grant) => assert_eq!(digit, b'1'),
            Some(Vote::Fail(_)) => {
                assert_eq!(digit, b'0');
                assert_eq!(bench.waiting(2), ["undo", "info", "look", "check"]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A guard with other limits, of any run, or with no valid value: the node does not vote, and
/// nothing is written.
#[test]
fn the_core_does_not_change_foreign_restart_guards() {
    let ours = String::from_utf8(restart_guard_value(2, 1)).unwrap();
    let limits = [":10000:3:0", ":30000:5:0"].map(|limits| ours.replace(":30000:3:0", limits));
    for other in ["x", &limits[0], &limits[1]] {
        let mut bench = cold();
        let id = bench.lock(&LockRequest::new(b"job"));
        for node in 0..2 {
            bench.handshake(node, &ready(node));
        }
        bench.handshake(2, &Handshake { restart_guard: Some(other.into()), ..ready(2) });
        assert_eq!(bench.waiting(2), ["ask", "info", "undo"], "{other}");
        bench.answer(2, "+OK\r\n");
        let vote = bench.core.votes(id).of(bench.node(2));
        assert!(matches!(vote, Some(Vote::Fail(_))), "{other}: {vote:?}");
    }
}

/// Row 49: the key is worth nothing on a node whose grant did not count.
#[test]
fn the_core_extends_only_where_the_grant_counted() {
    for behind in [None, Some(0)] {
        let mut bench = warm();
        let id = bench.lock(&LockRequest::new(b"job").ttl(Duration::from_secs(10)));
        for node in 0..2 {
            bench.answer(node, "+OK\r\n");
            bench.answer(node, &format!(":{}\r\n", Handshake::VOTES));
        }
        assert_eq!(bench.reported(), [Event::Granted(id)]);
        bench.answer(2, "+OK\r\n");
        bench.answer(2, &format!(":{}\r\n", pttl(behind)));
        let now = bench.now;
        bench.core.extend(id, Duration::from_secs(20), now).unwrap();
        // The undo, the check of the restart guard, and the extension, which finds the key.
        for _ in 0..bench.waiting(2).len() {
            let answer = match Command::new(&bench.next(2).unwrap()).kind {
                Kind::Look => "$-1\r\n",
                Kind::Check => ":-2\r\n",
                _ => ":1\r\n",
            };
            bench.answer(2, answer);
        }
        bench.answer(0, ":1\r\n");
        let counted = behind == Some(0);
        assert_eq!(bench.reported() == [Event::Extended(id)], counted, "{behind:?}");
    }
}

/// In the model a node may be enrolled at any moment if its state at that moment requires it.
/// Earlier observations of a client do not make the script do more. The client's own value is
/// written again only for a client that saw it, which is the one that declares nodes new.
#[test]
fn the_script_enrols_only_what_the_model_enrols() {
    for (found, seen, enrols) in [
        ("", "", true),
        ("past", "past", true),
        ("", "past", false),
        ("past", "", false),
        ("other limits", "", false),
        ("ours", "", false),
        ("ours", "past", false),
        ("ours", "ours", true),
    ] {
        let now = ClockReading::from_micros(0);
        let mut node = Peer::new(0, now);
        let mut run = |words: &[&str]| node.run(words, now);
        if !found.is_empty() {
            run(&["SET", "guard", found, "PX", "1000"]);
        }
        let answer = run(&["EVAL", ENROL.text, "1", "guard", seen, "ours", "5000"]);
        let is_ours = enrols || found == "ours";
        assert_eq!(answer, format!(":{}\r\n", u8::from(is_ours)), "{found:?} {seen:?}");
        let pttl = if enrols {
            5000
        } else if found.is_empty() {
            -2
        } else {
            1000
        };
        assert_eq!(run(&["PTTL", "guard"]), format!(":{pttl}\r\n"), "{found:?} {seen:?}");
    }
}
