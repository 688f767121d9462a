//! Conformance of extensions: their effect on a key, and on the validity.

use std::time::Duration;

use redbolt::proto::script::EXTEND;
use redbolt::proto::{Event, LockId, LockRequest, LossCause};
use redbolt_node::model::ClockReading;
use redbolt_testkit::{Handshake, Peer};

use crate::bench::{Bench, warm};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The model's `Script::Longer` sets a longer TTL if the key is the holder's, and does nothing
/// otherwise.
#[test]
fn the_script_does_what_the_nodes_of_the_model_do() {
    for (owner, ttl, extends, yes, then) in [
        ("a", 2_000, 3_000, true, 3_000),
        ("a", 3_000, 1_000, true, 3_000),
        ("b", 2_000, 3_000, false, 2_000),
        ("", 0, 3_000, false, -2),
    ] {
        let now = ClockReading::from_micros(0);
        let mut node = Peer::new(0, now);
        let mut run = |words: &[&str]| node.run(words, now);
        if !owner.is_empty() {
            run(&["SET", "job", owner, "PX", &ttl.to_string()]);
        }
        let reply = run(&["EVAL", EXTEND.text, "1", "job", "a", &extends.to_string()]);
        assert_eq!(reply, format!(":{}\r\n", u8::from(yes)));
        assert_eq!(run(&["PTTL", "job"]), format!(":{then}\r\n"), "{owner} {ttl} {extends}");
    }
}

#[test]
fn the_core_keeps_the_larger_of_both_counted_from_the_first_byte() {
    for (extends, delay, left_ms) in [(20, 1, 20_000 - 202 - 1_000), (2, 1, 10_000 - 102 - 1_000)] {
        let (mut bench, id) = held();
        let now = bench.now;
        bench.core.extend(id, secs(extends), now).unwrap();
        for node in 0..2 {
            assert_eq!(bench.waiting(node), ["extend"]);
        }
        // Late replies do not make the validity longer.
        bench.wait(Duration::from_millis(40));
        bench.answer(0, ":1\r\n");
        bench.answer(1, ":1\r\n");
        assert_eq!(bench.reported(), [Event::Extended(id)]);
        bench.wait(secs(delay) - Duration::from_millis(40));
        let now = bench.now;
        let remaining = bench.core.lease(id).unwrap().remaining(now);
        assert_eq!(remaining, Duration::from_millis(left_ms));
    }
}

#[test]
fn the_core_counts_nothing_after_the_end() {
    let (mut bench, id) = held();
    bench.wait(Duration::from_millis(9_880));
    let now = bench.now;
    bench.core.extend(id, secs(20), now).unwrap();
    bench.wait(Duration::from_millis(30));
    for node in 0..2 {
        bench.answer(node, ":1\r\n");
    }
    assert_eq!(bench.reported(), [Event::Lost(id, LossCause::Expired)]);
}

#[test]
fn the_core_counts_answers_for_their_own_round() {
    let (mut bench, id) = held();
    let now = bench.now;
    bench.core.extend(id, secs(11), now).unwrap();
    let its_time = bench.core.config().settings().response_timeout;
    bench.wait(its_time + Duration::from_millis(10));
    assert!(matches!(bench.reported()[..], [Event::NotExtended(..)]));
    let now = bench.now;
    bench.core.extend(id, secs(20), now).unwrap();
    for node in 0..2 {
        assert_eq!(bench.waiting(node), ["extend", "extend"]);
        bench.answer(node, ":1\r\n");
    }
    assert_eq!(bench.reported(), [], "those were for the first");
    for node in 0..2 {
        bench.answer(node, ":1\r\n");
    }
    assert_eq!(bench.reported(), [Event::Extended(id)]);
}

/// An extension in flight does not outlast the release behind it.
#[test]
fn the_core_extends_nothing_that_is_being_released() {
    let (mut bench, id) = held();
    let now = bench.now;
    bench.core.extend(id, secs(20), now).unwrap();
    let sent: Vec<_> = (0..3).map(|node| bench.waiting(node)).collect();
    assert_eq!(sent, vec![["extend"]; 3]);
    bench.core.release(id, now);
    for node in 0..3 {
        assert_eq!(bench.waiting(node), ["extend", "delete"]);
        bench.answer(node, ":1\r\n");
    }
    assert_eq!(bench.reported(), []);
    for node in 0..3 {
        bench.answer(node, ":1\r\n");
    }
    assert!(matches!(bench.reported()[..], [Event::Released(..)]));
}

/// Returns a lock held for 10 s on all nodes.
fn held() -> (Bench, LockId) {
    let mut bench = warm();
    let id = bench.lock(&LockRequest::new(b"job").ttl(secs(10)));
    for node in 0..3 {
        bench.answer(node, "+OK\r\n");
        bench.answer(node, &format!(":{}\r\n", Handshake::VOTES));
    }
    assert_eq!(bench.reported(), [Event::Granted(id)]);
    (bench, id)
}

/// The model's `Heeds::All`: a node that reports the key missing no longer counts, whichever
/// extension it answers.
#[test]
fn the_core_heeds_a_reported_loss_at_any_time() {
    for late in [false, true] {
        let (mut bench, id) = held();
        let now = bench.now;
        bench.core.extend(id, secs(30), now).unwrap();
        bench.answer(0, ":1\r\n");
        bench.answer(1, ":1\r\n");
        assert_eq!(bench.reported(), [Event::Extended(id)]);
        bench.answer(2, "-MISCONF disk\r\n");
        let now = bench.now;
        bench.core.extend(id, secs(5), now).unwrap();
        let answers = [(0, ":0\r\n"), (1, ":1\r\n"), (2, ":1\r\n")];
        let order = if late { [1, 2, 0] } else { [0, 1, 2] };
        order.into_iter().for_each(|at| bench.answer(answers[at].0, answers[at].1));
        let reported = match late {
            true => [Event::Extended(id), Event::Shortened(id)],
            false => [Event::Shortened(id), Event::Extended(id)],
        };
        assert_eq!(bench.reported(), reported);
        let now = bench.now;
        let remaining = bench.core.lease(id).unwrap().remaining(now);
        assert_eq!(remaining, Duration::from_millis(10_000 - 102), "the third node's");
    }
}
