//! Conformance of fencing: the grants that make a token, are written back, and count.

use redbolt::proto::fence::{Agreement, agreement};
use redbolt::proto::script::{
    ACQUIRE_FENCED, ACQUIRE_IN_QUEUE, ACQUIRE_SHARED_FENCED, UPGRADE_FENCED, WRITE_BACK,
    WRITE_BACK_SHARED,
};
use redbolt::proto::{Event, LockId, LockRequest};
use redbolt_models::fencing::Fencing;
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;

use crate::bench::{Bench, warm};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Alone,
    Shared,
    /// An upgrade by a reader that has a token already.
    Upgraded,
}

/// Tries every order of three grants with counters of 2, 4 and 6, or 3, 5 and 7 for a shared
/// request.
#[test]
fn the_core_agrees_on_tokens_as_the_model_does() {
    for how in [How::Alone, How::Shared, How::Upgraded] {
        let (mut at_once, mut written) = (0, 0);
        for order in ORDERS {
            for code in 0..27 {
                let odd = u8::from(how == How::Shared);
                let counters = [1 + code % 3, 1 + code / 3 % 3, 1 + code / 9];
                match two_grants(how, order, counters.map(|step| 2 * step + odd)) {
                    Agreement::Reached(_) => at_once += 1,
                    Agreement::Behind(_) => written += 1,
                }
            }
        }
        assert_eq!((at_once, written), (6 * 9, 6 * 18), "{how:?}");
    }
}

/// Returns a lock whose request was sent to all nodes.
fn asked(how: How) -> (Bench, LockId) {
    let mut bench = warm();
    let request = LockRequest::new(b"job").fenced();
    if how == How::Alone {
        let id = bench.lock(&request);
        return (bench, id);
    }
    let id = bench.lock(&request.shared());
    if how == How::Upgraded {
        (0..3).for_each(|node| bench.answer(node, "+OK 1\r\n"));
        assert_eq!(bench.reported(), [Event::Granted(id)]);
        let now = bench.now;
        bench.core.try_upgrade(id, now).unwrap();
    }
    (bench, id)
}

/// Answers with two grants, and then with a late one while the token is being written back.
fn two_grants(how: How, order: [usize; 3], counters: [u8; 3]) -> Agreement {
    let (mut bench, id) = asked(how);
    let granted = match how {
        How::Alone | How::Shared => [Event::Granted(id)],
        How::Upgraded => [Event::Upgraded(id)],
    };
    let [first, second, late] = order;
    for node in [first, second] {
        assert_eq!(bench.reported(), []);
        bench.answer(node, &format!("+OK {}\r\n", counters[node]));
    }
    let known = [counters[first].into(), counters[second].into()];
    let agreed = agreement(&known, 2);
    match agreed {
        Agreement::Reached(token) => {
            assert_eq!(bench.reported(), granted);
            assert_eq!(bench.core.fencing_token(id).map(|token| token.get()), Some(token));
        }
        Agreement::Behind(token) => {
            assert_eq!(bench.reported(), []);
            for node in [first, second] {
                let behind = u64::from(counters[node]) < token;
                let writes = writes_back(&mut bench, how, node, token);
                assert_eq!(writes, behind, "{how:?} {order:?} {counters:?}");
            }
            bench.answer(late, &format!("+OK {}\r\n", counters[late]));
            let behind = u64::from(counters[late]) < token;
            let writes = writes_back(&mut bench, how, late, token);
            assert_eq!(writes, behind, "{how:?} {order:?} {counters:?}");
            let counts = Fencing::<3, 2>::RULES.counts(counters[late], token as u8);
            let events = bench.reported();
            assert_eq!(events == granted, counts, "{how:?} {order:?} {counters:?}");
            if !counts {
                finish(&mut bench, if behind { late } else { lower(first, second, counters) });
                assert_eq!(bench.reported(), granted, "{how:?} {order:?} {counters:?}");
            }
            assert_eq!(bench.core.fencing_token(id).map(|token| token.get()), Some(token));
        }
    }
    agreed
}

fn lower(a: usize, b: usize, counters: [u8; 3]) -> usize {
    if counters[a] < counters[b] { a } else { b }
}

/// Returns true if a node is now asked to raise its counter to exactly `token`.
fn writes_back(bench: &mut Bench, how: How, node: usize, token: u64) -> bool {
    let waits = bench.waiting(node) == ["write back"];
    if waits {
        let words = bench.next(node).unwrap();
        let [key, counter] = [&words[3], &words[4]].map(|word| &word[..]);
        assert_eq!((key, counter), (&b"job"[..], &b"redbolt:fence:job"[..]));
        let count = usize::from(how == How::Alone);
        assert_eq!(words[6 + count], token.to_string().into_bytes());
    }
    waits
}

fn finish(bench: &mut Bench, node: usize) {
    bench.answer(node, ":1\r\n");
}

/// A refused write-back confirms nothing, because the key is another holder's by then.
#[test]
fn the_core_does_not_count_a_write_back_that_was_refused() {
    let mut bench = warm();
    let id = bench.lock(&LockRequest::new(b"job").fenced());
    bench.answer(0, "+OK 4\r\n");
    bench.answer(1, "+OK 6\r\n");
    bench.answer(0, ":0\r\n");
    assert_eq!(bench.reported(), []);
    bench.answer(2, "+OK 6\r\n");
    assert_eq!(bench.reported(), [Event::Granted(id)], "the late one is equal");
}

/// Compares the scripts with the model's `granted` and `written_back` for each counter, key owner,
/// proposal, and bound from which a shared request keeps an odd counter.
#[test]
fn the_scripts_count_as_the_nodes_of_the_model_do() {
    let model = Fencing::<3, 2>::RULES;
    for how in [Ask::Alone, Ask::Shared, Ask::Upgraded, Ask::AloneInQueue, Ask::SharedInQueue] {
        for counter in 0..8 {
            for proposed in 1..8 {
                // The library keeps no counter beyond what it proposes.
                for kept_from in 1..=proposed {
                    let shares = matches!(how, Ask::Shared | Ask::SharedInQueue);
                    let granted = model.granted(shares, counter, kept_from, proposed);
                    let case = format!("{how:?} {counter} {kept_from} {proposed}");
                    let mut node = Scripts::new(counter);
                    if how == Ask::Upgraded {
                        assert!(node.ask(Ask::Shared, 0, 1, 1).starts_with("+OK"));
                        node.run(&["SET", "redbolt:fence:job", &counter.to_string()]);
                    }
                    let reply = node.ask(how, 0, proposed, kept_from);
                    assert_eq!(reply, format!("+OK {granted}\r\n"), "{case}");
                    assert_eq!(node.counter(), granted.to_string(), "{case}");
                    // Another client is denied and counts nothing, unless both share the lock.
                    let other = node.ask(Ask::Alone, 2, proposed, kept_from);
                    assert!(other.starts_with(':'), "{case}: {other}");
                    assert_eq!(node.counter(), granted.to_string(), "{case}");
                    if how == Ask::Shared {
                        let then = model.granted(true, granted, kept_from, proposed);
                        let other = node.ask(Ask::Shared, 2, proposed, kept_from);
                        assert_eq!(other, format!("+OK {then}\r\n"), "{case}");
                    }
                }
            }
        }
    }
}

/// Tries write-backs by a client that has the key exclusively, shares it alone or with others, has
/// an upgrade next to its claim as a reader, or has it as the head of the queue; and by one that no
/// longer has it.
#[test]
fn the_scripts_write_back_as_the_nodes_of_the_model_do() {
    let model = Fencing::<3, 2>::RULES;
    for how in [Ask::Alone, Ask::Shared, Ask::Upgraded, Ask::AloneInQueue, Ask::SharedInQueue] {
        for has_others in [false, true] {
            for has_key in [false, true] {
                for (counter, token) in [(3, 5), (5, 5), (7, 5), (0, 2), (4, 2)] {
                    let mut node = Scripts::new(0);
                    if how == Ask::Upgraded || has_others && how == Ask::Shared {
                        node.ask(Ask::Shared, usize::from(how == Ask::Shared), 1, 1);
                    }
                    if has_key {
                        assert!(node.ask(how, 0, 1, 1).starts_with("+OK"), "{how:?}");
                    } else if has_others && how != Ask::Upgraded {
                        node.ask(Ask::Shared, 2, 1, 1);
                    }
                    node.run(&["SET", "redbolt:fence:job", &counter.to_string()]);
                    let case = format!("{how:?} {has_others} {has_key} {counter} {token}");
                    let then = model.written_back(has_key, counter, token);
                    let reply = node.write_back(how, token);
                    assert_eq!(reply, format!(":{}\r\n", u8::from(then.is_some())), "{case}");
                    assert_eq!(node.counter(), then.unwrap_or(counter).to_string(), "{case}");
                }
            }
        }
    }
}

/// A kind of script that grants with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Alone,
    Shared,
    Upgraded,
    AloneInQueue,
    SharedInQueue,
}

/// A server that runs the scripts on one resource.
struct Scripts(Peer);

impl Scripts {
    fn new(counter: u8) -> Self {
        let mut scripts = Self(Peer::new(0, ClockReading::from_micros(0)));
        if counter > 0 {
            scripts.run(&["SET", "redbolt:fence:job", &counter.to_string()]);
        }
        scripts
    }

    fn run(&mut self, words: &[&str]) -> String {
        self.0.run(words, ClockReading::from_micros(0))
    }

    /// Runs a request. A reply from the queue is returned without its stamp. An upgrade names the
    /// reader's claim of the same client.
    fn ask(&mut self, how: Ask, by: usize, proposed: u8, kept_from: u8) -> String {
        let own = token(how, by);
        let [proposed, kept_from] = [proposed, kept_from].map(|it| it.to_string());
        let counter = "redbolt:fence:job";
        match how {
            Ask::Alone => {
                let keys = ["EVAL", ACQUIRE_FENCED.text, "2", "job", counter];
                self.run(&[&keys[..], &[&own, "1000", "1", &proposed, LIFE]].concat())
            }
            Ask::Shared => {
                let keys = ["EVAL", ACQUIRE_SHARED_FENCED.text, "2", "job", counter];
                let args = [&own, "1000", &proposed, LIFE, &kept_from, "1"];
                self.run(&[&keys[..], &args].concat())
            }
            Ask::Upgraded => {
                let keys = ["EVAL", UPGRADE_FENCED.text, "2", "job", counter];
                let reader = token(Ask::Shared, by);
                let args = [&own, "1000", &proposed, LIFE, &reader[..32]];
                self.run(&[&keys[..], &args].concat())
            }
            Ask::AloneInQueue | Ask::SharedInQueue => {
                let mode = if how == Ask::SharedInQueue { 's' } else { 'x' };
                let name = format!("{mode}{}", &own[..32]);
                let ticket = format!("redbolt:line-wait:{name}");
                let queue = [
                    "redbolt:line:job",
                    "redbolt:line-until:job",
                    &ticket,
                    "redbolt:line-call:job",
                ];
                let keys =
                    [&["EVAL", ACQUIRE_IN_QUEUE.text, "6", "job"], &queue[..], &[counter]].concat();
                let args = [&own, "1000", "1", "0", "1", "20", &proposed, LIFE, &kept_from, &name];
                let reply = self.run(&[&keys[..], &args].concat());
                match reply.strip_prefix("+OK ").and_then(|rest| rest.split_once(' ')) {
                    Some((_, counter)) => format!("+OK {counter}"),
                    None => reply,
                }
            }
        }
    }

    fn write_back(&mut self, how: Ask, raise: u8) -> String {
        let (own, raise) = (token(how, 0), raise.to_string());
        let counter = "redbolt:fence:job";
        match how {
            Ask::Alone | Ask::AloneInQueue => {
                self.run(&["EVAL", WRITE_BACK.text, "2", "job", counter, &own, "1", &raise, LIFE])
            }
            Ask::Shared | Ask::Upgraded | Ask::SharedInQueue => {
                self.run(&["EVAL", WRITE_BACK_SHARED.text, "2", "job", counter, &own, &raise, LIFE])
            }
        }
    }

    fn counter(&mut self) -> String {
        match self.get("redbolt:fence:job") {
            none if none.is_empty() => "0".to_owned(),
            counter => counter,
        }
    }

    fn get(&mut self, key: &str) -> String {
        let reply = self.run(&["GET", key]);
        reply.split("\r\n").nth(1).unwrap_or_default().to_owned()
    }
}

/// Returns the token of a client as the script names it.
fn token(how: Ask, by: usize) -> String {
    let digits = ["a", "b", "c"][by].repeat(32);
    match how {
        Ask::Upgraded => format!("w:{}00", "e".repeat(32)),
        _ => format!("{digits}00"),
    }
}

const LIFE: &str = "60000";
