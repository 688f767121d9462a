//! Which grants make a token, which are written back, and which count.

use redbolt::proto::fence::{Agreement, agreement};
use redbolt::proto::script::{ACQUIRE_FENCED, WRITE_BACK};
use redbolt::proto::{Event, LockRequest};
use redbolt_models::fencing::Fencing;
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;

use crate::bench::{Bench, warm};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Every order in which three grants with counters of 2, 4 and 6 can come.
#[test]
fn the_core_agrees_on_tokens_as_the_model_does() {
    let (mut at_once, mut written) = (0, 0);
    for order in ORDERS {
        for code in 0..27 {
            let counters = [1 + code % 3, 1 + code / 3 % 3, 1 + code / 9].map(|step| 2 * step);
            match two_grants(order, counters) {
                Agreement::Reached(_) => at_once += 1,
                Agreement::Behind(_) => written += 1,
            }
        }
    }
    assert_eq!((at_once, written), (6 * 9, 6 * 18));
}

/// Two grants, and then a late one while the token is being written back.
fn two_grants(order: [usize; 3], counters: [u8; 3]) -> Agreement {
    let mut bench = warm();
    let id = bench.lock(&LockRequest::new(b"job").fenced());
    let [first, second, late] = order;
    for node in [first, second] {
        assert_eq!(bench.told(), []);
        bench.answer(node, &format!("+OK {}\r\n", counters[node]));
    }
    let known = [counters[first].into(), counters[second].into()];
    let agreed = agreement(&known, 2);
    match agreed {
        Agreement::Reached(token) => {
            assert_eq!(bench.told(), [Event::Granted(id)]);
            assert_eq!(bench.core.fencing_token(id).map(|token| token.get()), Some(token));
        }
        Agreement::Behind(token) => {
            assert_eq!(bench.told(), []);
            for node in [first, second] {
                let behind = u64::from(counters[node]) < token;
                assert_eq!(writes_back(&mut bench, node, token), behind, "{order:?} {counters:?}");
            }
            bench.answer(late, &format!("+OK {}\r\n", counters[late]));
            let behind = u64::from(counters[late]) < token;
            assert_eq!(writes_back(&mut bench, late, token), behind, "{order:?} {counters:?}");
            let counts = Fencing::<3, 2>::RULES.counts(counters[late], token as u8);
            let events = bench.told();
            assert_eq!(events == [Event::Granted(id)], counts, "{order:?} {counters:?}");
            if !counts {
                finish(&mut bench, if behind { late } else { lower(first, second, counters) });
                assert_eq!(bench.told(), [Event::Granted(id)], "{order:?} {counters:?}");
            }
            assert_eq!(bench.core.fencing_token(id).map(|token| token.get()), Some(token));
        }
    }
    agreed
}

fn lower(a: usize, b: usize, counters: [u8; 3]) -> usize {
    if counters[a] < counters[b] { a } else { b }
}

/// Whether a node is now asked to raise its counter, to exactly this.
fn writes_back(bench: &mut Bench, node: usize, token: u64) -> bool {
    let waits = bench.waiting(node) == ["write back"];
    if waits {
        let words = bench.next(node).unwrap();
        let [key, counter] = [&words[3], &words[4]].map(|word| &word[..]);
        assert_eq!((key, counter), (&b"job"[..], &b"redbolt:fence:job"[..]));
        assert_eq!(words[7], token.to_string().into_bytes());
    }
    waits
}

fn finish(bench: &mut Bench, node: usize) {
    bench.answer(node, ":1\r\n");
}

/// A write-back that was refused, for the key is another's by now, confirms nothing.
#[test]
fn the_core_does_not_count_a_write_back_that_was_refused() {
    let mut bench = warm();
    let id = bench.lock(&LockRequest::new(b"job").fenced());
    bench.answer(0, "+OK 4\r\n");
    bench.answer(1, "+OK 6\r\n");
    bench.answer(0, ":0\r\n");
    assert_eq!(bench.told(), []);
    bench.answer(2, "+OK 6\r\n");
    assert_eq!(bench.told(), [Event::Granted(id)], "the late one is equal");
}

/// What a node does, by what its counter is, whose its key is, and what is proposed.
#[test]
fn the_scripts_count_as_the_nodes_of_the_model_do() {
    let table = [(0, 1, 2), (0, 2, 2), (4, 1, 6), (5, 1, 6), (4, 4, 6), (4, 8, 8), (4, 9, 10)];
    for (counter, proposed, granted) in table {
        let mut node = Scripts::new(counter);
        assert_eq!(node.ask("a", proposed), format!("+OK {granted}\r\n"));
        assert_eq!((node.get("job"), node.get("counter")), ("a".into(), granted.to_string()));
        assert!(node.ask("b", proposed).starts_with(':'), "denied, and nothing is counted");
        assert_eq!(node.get("counter"), granted.to_string());
    }
    for (owner, raised) in [("a", true), ("b", false), ("", false)] {
        for (counter, token, then) in [(3, 5, 5), (5, 5, 5), (7, 5, 7)] {
            let mut node = Scripts::new(counter);
            if !owner.is_empty() {
                node.run(&["SET", "job", owner]);
            }
            assert_eq!(node.write_back("a", token), format!(":{}\r\n", u8::from(raised)));
            let then = if raised { then } else { counter };
            assert_eq!(node.get("counter"), then.to_string(), "{owner} {counter} {token}");
        }
    }
}

/// A server's scripts on one resource.
struct Scripts(Peer);

impl Scripts {
    fn new(counter: u64) -> Self {
        let mut scripts = Self(Peer::new(0, ClockReading::from_micros(0)));
        if counter > 0 {
            scripts.run(&["SET", "counter", &counter.to_string()]);
        }
        scripts
    }

    fn run(&mut self, words: &[&str]) -> String {
        self.0.run(words, ClockReading::from_micros(0))
    }

    fn ask(&mut self, token: &str, proposed: u64) -> String {
        let proposed = proposed.to_string();
        let keys = ["2", "job", "counter"];
        let args = [token, "1000", "1", &proposed, "60000"];
        self.run(&[&["EVAL", ACQUIRE_FENCED], &keys[..], &args].concat())
    }

    fn write_back(&mut self, token: &str, raise: u64) -> String {
        let raise = raise.to_string();
        self.run(&["EVAL", WRITE_BACK, "2", "job", "counter", token, "1", &raise, "60000"])
    }

    fn get(&mut self, key: &str) -> String {
        let reply = self.run(&["GET", key]);
        reply.split("\r\n").nth(1).unwrap_or_default().to_owned()
    }
}
