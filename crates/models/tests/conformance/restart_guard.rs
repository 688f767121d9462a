//! Which grants count, who is enrolled, and in which order things are written.

use std::time::Duration;

use redbolt::proto::restart_guard::BIG_MS;
use redbolt::proto::script::ENROL;
use redbolt::proto::{Event, LockRequest, RestartTrust, Vote};
use redbolt_models::restart_guard::{Decisions, Value};
use redbolt_node::model::ClockReading;
use redbolt_testkit::{Command, Handshake, Kind, Peer};

use crate::bench::{cold, ready, restart_guard_of, restart_guard_value, warm};

const VALUES: [Value; 4] = [Value::Missing, Value::Past, Value::Copied, Value::Present];

/// What a node with this restart guard tells a handshake.
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

/// A restart guard's TTL with so many ticks of quarantine left.
fn pttl(quarantine: Option<u8>) -> i64 {
    quarantine.map_or(-2, |ticks| Handshake::VOTES + 1_000 * i64::from(ticks))
}

/// Everything that the restart guard can be when the connection opens, and for the ask of the first flight,
/// which is a script and looks itself.
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

/// Whether the third node's grant counts. If not, it is undone at once.
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
    // It is the master that it was when the handshake ran.
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

/// The same on a connection that was found good before: what the model calls a flush.
#[test]
fn the_core_looks_behind_every_ask() {
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
            // It does not vote for having been enrolled: it is looked at again.
            bench.answer(2, ":1\r\n");
            assert_eq!(bench.waiting(2), ["info", "look", "check"]);
        }
    }
}

/// A connection that was found good a while ago: behind the ask it is read whether the node was a replica since.
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

/// Other limits, of whichever run, and what is no restart guard at all: no vote, and nothing is written.
#[test]
fn the_core_leaves_restart_guards_that_are_not_ours_alone() {
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

/// Row 49: where the grant did not count, having the key is worth nothing.
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
        // The undo, the look at the restart guard, and the extension, which finds the key.
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

/// In the model anybody may enrol a node at any moment where what is found then calls for it. Nothing
/// that was seen earlier makes the script do more. Our own value is written once more for those only who
/// saw it, which is whoever says that the nodes are new.
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
