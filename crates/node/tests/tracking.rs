//! The embedded node compared with a real `redis-server`: which connections get which invalidation
//! messages, and which commands a subscribed connection may send.
//!
//! Random commands run on several connections of both, which track, redirect to one another, read,
//! write, subscribe, and end. Everything that a connection reads is compared byte for byte,
//! including messages among its replies. Replies without a defined order (unsubscribing from all
//! channels at once) are compared without order.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    cell::RefCell,
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant, SystemTime},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{RngSeed, TestCaseError, TestRunner},
};
use redbolt::proto::script::{
    ACQUIRE_FENCED, ACQUIRE_IN_QUEUE, ACQUIRE_MANY, ACQUIRE_REDISSON, ACQUIRE_REDISSON_READ,
    ACQUIRE_REDISSON_WRITE, ACQUIRE_SHARED, ACQUIRE_SHARED_FENCED, ENROL, EXTEND, EXTEND_SHARED,
    FORCE_UNLOCK_REDISSON, LEAVE_QUEUE, UNDO, UNDO_REDISSON, UNDO_REDISSON_RW, UNDO_SHARED,
    UNDO_SPRING, WRITE_BACK, WRITE_BACK_SHARED,
};
use redbolt_node::Node;
use redbolt_test_servers::Server;

#[test]
fn trackers_get_the_messages_of_a_real_server() {
    let pair = RefCell::new(Pair::start());
    let variable = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let config = ProptestConfig {
        cases: variable("PROPTEST_CASES").map_or(400, |cases| cases as u32),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        rng_seed: RngSeed::Fixed(variable("PROPTEST_RNG_SEED").unwrap_or(7)),
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&vec(any_flight(), 1..40), |flights| {
        let mut pair = pair.borrow_mut();
        pair.clear();
        OPENING.iter().for_each(|line| drop(pair.same(line)));
        flights.iter().try_for_each(|flight| pair.fly(flight))?;
        pair.all_the_rest()
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let seen = pair.into_inner().seen;
    for sight in [
        "invalidate\r\n*1",
        "invalidate\r\n$-1",
        "broken_redirect",
        "optin",
        "OPTIN mode.",
        "OPTIN or OPTOUT",
        "Can't execute",
        "pong",
        "+OK 1",
        "WRONGTYPE",
    ] {
        let count = seen.iter().filter(|reply| reply.contains(sight)).count();
        assert!(count >= 10, "{count} of {sight:?} only");
    }
}

/// The random commands cover the rules by chance; here each rule is tested alone.
#[test]
fn each_rule_of_tracking_alone() {
    let reported = |lines: &[&str]| {
        let mut pair = Pair::start();
        pair.clear();
        for line in ["4 SUBSCRIBE __redis__:invalidate", "0 SET k1 v"].iter().chain(lines) {
            pair.same(line);
        }
        pair.same("4 PING").iter().filter(|reply| reply.contains("invalidate")).count()
    };
    let on = "1 CLIENT TRACKING ON REDIRECT {4}";
    assert_eq!(reported(&["1 GET k1", "0 DEL k1"]), 0);
    assert_eq!(reported(&[on, "0 DEL k1"]), 0, "no tracker has read the key");
    assert_eq!(
        reported(&["1 GET k1", on, "0 DEL k1"]),
        0,
        "the key was read before tracking was on"
    );
    assert_eq!(
        reported(&[on, "1 PTTL k1", "0 DEL k1", "0 SET k1 v", "0 DEL k1"]),
        1,
        "one message"
    );
    assert_eq!(reported(&[on, "1 PTTL k2", "0 SET k2 v"]), 1, "a missing key is tracked, too");
    assert_eq!(reported(&[on, "1 GET k1", "0 SET k1 w NX", "0 PEXPIRE k2 9", "0 DEL k2"]), 0);
    assert_eq!(reported(&[on, "1 GET k1", "0 SELECT 1", "0 SET k1 v"]), 1, "in another database");
    assert_eq!(reported(&[on, "1 GETRANGE k1 x y", "0 SET k1 v"]), 1, "the command failed");
    assert_eq!(
        reported(&[on, "1 GET k1", "1 DEL k1"]),
        1,
        "changes by the tracker itself are reported"
    );
    let silent = "1 CLIENT TRACKING ON REDIRECT {4} NOLOOP";
    assert_eq!(
        reported(&[silent, "1 GET k1", "1 SET k1 w", "0 DEL k1"]),
        0,
        "a change by the tracker drops the entry"
    );
    assert_eq!(reported(&[silent, "1 GET k1", "1 FLUSHALL"]), 1);
    assert_eq!(reported(&[on, "0 FLUSHDB"]), 1);
    assert_eq!(reported(&[on, "1 GET k1", "0 SWAPDB 0 1"]), 0);
    let other = ["4 UNSUBSCRIBE", "4 SUBSCRIBE other"];
    assert_eq!(reported(&[on, "1 GET k1", other[0], other[1], "0 DEL k1"]), 1, "on any channel");
    assert_eq!(reported(&[on, "1 GET k1", other[0], "0 DEL k1", other[1]]), 0);
    assert_eq!(reported(&[on, "1 GET k1", "1 CLIENT TRACKING OFF", "0 DEL k1"]), 0);
    let again = [on, "1 GET k1", "1 CLIENT TRACKING OFF", on, "0 DEL k1"];
    assert_eq!(reported(&again), 1, "what was read before OFF is not forgotten");
    assert_eq!(reported(&[on, "1 GET k1", "1 RESET", "0 DEL k1"]), 0);
    assert_eq!(
        reported(&[on, "2 CLIENT TRACKING ON REDIRECT {4}", "1 GET k1", "2 GET k1", "0 DEL k1"]),
        2
    );
    let both = ["2 CLIENT TRACKING ON REDIRECT {4}", "1 EXISTS k1 k2", "2 EXISTS k1 k2"];
    let changed = ["0 SET k2 v", on, both[0], both[1], both[2], "1 DEL k1 k2"];
    assert_eq!(reported(&changed), 4, "the tracker's own changes are reported last");
    assert_eq!(reported(&[on, "1 GET k1", "0 CLIENT KILL ID {1}", "0 DEL k1"]), 0);
    assert_eq!(reported(&[on, "1 GET k1", "1 QUIT", "0 DEL k1"]), 0);
}

/// The commands of one line are sent at once: the command behind CLIENT CACHING YES is the next one
/// of all.
#[test]
fn each_rule_of_opt_in_alone() {
    let reported = |then: &[&str]| {
        let mut pair = Pair::start();
        pair.clear();
        let opt_in = "1 CLIENT TRACKING ON REDIRECT {4} OPTIN";
        for line in ["4 SUBSCRIBE __redis__:invalidate", "0 SET k1 v", opt_in].iter().chain(then) {
            pair.same(line);
        }
        pair.same("0 DEL k1");
        pair.same("4 PING").iter().filter(|reply| reply.contains("invalidate")).count()
    };
    assert_eq!(reported(&["1 GET k1"]), 0, "it did not opt in");
    assert_eq!(reported(&["1 CLIENT CACHING YES; GET k1"]), 1);
    assert_eq!(reported(&["1 CLIENT CACHING YES; GET k2; GET k1"]), 0, "only the next command");
    assert_eq!(reported(&["1 CLIENT CACHING YES; PING; GET k1"]), 0, "whatever it is");
    assert_eq!(reported(&["1 CLIENT CACHING YES; NONSENSE; GET k1"]), 0, "if it is one");
    assert_eq!(reported(&["1 CLIENT CACHING YES; GET k1 k2; GET k1"]), 0, "and if it fails");
    assert_eq!(reported(&["1 CLIENT CACHING YES; GETRANGE k1 x y"]), 1, "it has failed late");
    assert_eq!(reported(&["1 CLIENT CACHING YES; CLIENT ID; GET k1"]), 1, "unless about itself");
    assert_eq!(reported(&["1 CLIENT CACHING YES; CLIENT CACHING; GET k1"]), 1);
    assert_eq!(reported(&["1 CLIENT CACHING YES; CLIENT NONSENSE; GET k1"]), 0);
    assert_eq!(reported(&["1 CLIENT CACHING YES; CLIENT TRACKING FOO; GET k1"]), 1);
    assert_eq!(reported(&["1 CLIENT CACHING YES; RESET; GET k1"]), 0);
    let on = "CLIENT TRACKING ON REDIRECT {4}";
    assert_eq!(reported(&[&format!("1 CLIENT CACHING YES; {on} OPTIN; GET k1")]), 1, "it stays");
    let off = "CLIENT TRACKING OFF";
    assert_eq!(reported(&[&format!("1 CLIENT CACHING YES; {off}; {on} OPTIN; GET k1")]), 0);
    let without = format!("1 {on}; GET k1");
    assert_eq!(reported(&[&without, &format!("1 {on} OPTIN")]), 1, "what was read before stays");
    assert_eq!(reported(&["1 CLIENT CACHING YES; EXISTS k1 k2", "0 SET k2 v"]), 2, "all its keys");
    assert_eq!(
        reported(&["1 CLIENT CACHING YES; CLIENT TRACKINGINFO; CLIENT CACHING NO; GET k1"]),
        1
    );
    assert_eq!(reported(&["1 CLIENT CACHING YES; CLIENT; GET k1"]), 0);
}

/// A script without CLIENT CACHING, like those of the queue, notifies no connection.
#[test]
fn a_script_tracks_its_keys_only_behind_caching() {
    let reported = |before: &str| {
        let mut pair = Pair::start();
        pair.clear();
        pair.same("4 SUBSCRIBE __redis__:invalidate");
        pair.same("1 CLIENT TRACKING ON REDIRECT {4} OPTIN");
        let extend = ["EVAL", EXTEND.text, "2", "k1", "k2", "foreign", "1000"];
        let lines =
            [plain(before), Line::Script(EXTEND.text, vec!["2", "k1", "k2", "foreign", "1000"])];
        pair.fly(&Flight { slot: 1, lines: lines.into() }).unwrap();
        pair.run(1, &extend);
        pair.same("0 SET k2 v");
        pair.same("4 PING").iter().filter(|reply| reply.contains("invalidate")).count()
    };
    assert_eq!(reported("PING"), 0);
    assert_eq!(reported("CLIENT CACHING YES"), 1);
}

/// RESP2 has no other way to learn this.
#[test]
fn a_broken_redirect_shows_in_trackinginfo() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("4 SUBSCRIBE __redis__:invalidate");
    let redirect = "1 CLIENT TRACKING ON REDIRECT {4}";
    let is_broken =
        |pair: &mut Pair| pair.same("1 CLIENT TRACKINGINFO")[0].contains("broken_redirect");
    pair.same(redirect);
    pair.same("1 GET k1");
    pair.same("4 QUIT");
    assert!(!is_broken(&mut pair), "the redirect has not been used yet");
    pair.same("0 SET k1 v");
    assert!(is_broken(&mut pair));
    pair.same(redirect);
    assert!(!is_broken(&mut pair));
}

#[test]
fn a_script_reads_all_its_keys_if_it_reads_one() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("4 SUBSCRIBE __redis__:invalidate");
    pair.same("1 CLIENT TRACKING ON REDIRECT {4}");
    for name in ["k1", "k2", "k1"] {
        pair.same(&format!("0 SET {name} v"));
        pair.run(1, &["EVAL", EXTEND.text, "2", "k1", "k2", "foreign", "1000"]);
        pair.same(&format!("0 DEL {name}"));
        assert!(pair.same("4 PING")[0].contains(name));
    }
}

/// Each rule on a key that slot 1 has read, and that another connection then shares, extends and
/// releases.
#[test]
fn each_rule_of_shared_locks_alone() {
    let reported = |script: &str, rest: &[&str]| {
        let mut pair = Pair::start();
        pair.clear();
        pair.same("4 SUBSCRIBE __redis__:invalidate");
        pair.run(0, &["EVAL", ACQUIRE_SHARED.text, "1", "held", SHARER, "500000", "3"]);
        pair.run(0, &["EVAL", ACQUIRE_SHARED.text, "1", "held", OTHER, "400000", "3"]);
        pair.same("0 SET taken v");
        pair.same("1 CLIENT TRACKING ON REDIRECT {4}");
        pair.same("1 EXISTS free held taken counter");
        pair.run(2, &[&["EVAL", script], rest].concat());
        let replies = pair.same("4 PING");
        let name = |reply: &String| reply.lines().last().map(str::to_owned);
        let reported = replies.iter().filter(|reply| reply.contains("invalidate"));
        reported.filter_map(name).collect::<Vec<_>>()
    };
    let nobody: [&str; 0] = [];
    assert_eq!(reported(ACQUIRE_SHARED.text, &["1", "free", SHARER, "1000", "3"]), ["free"]);
    assert_eq!(reported(ACQUIRE_SHARED.text, &["1", "held", "a third", "1000", "3"]), ["held"]);
    assert_eq!(
        reported(ACQUIRE_SHARED.text, &["1", "held", TWIN, "1000", "3"]),
        ["held"],
        "though denied"
    );
    assert_eq!(reported(ACQUIRE_SHARED.text, &["1", "taken", SHARER, "1000", "3"]), nobody);
    assert_eq!(reported(ACQUIRE_SHARED.text, &["2", "free", "guard", SHARER, "1000", "3"]), nobody);
    assert_eq!(reported(EXTEND_SHARED.text, &["1", "held", OTHER, "900000"]), ["held"]);
    assert_eq!(
        reported(EXTEND_SHARED.text, &["1", "held", OTHER, "1000"]),
        nobody,
        "it has longer"
    );
    assert_eq!(reported(EXTEND_SHARED.text, &["1", "held", "a third", "900000"]), nobody);
    assert_eq!(reported(UNDO_SHARED.text, &["1", "held", OTHER]), ["held"]);
    assert_eq!(reported(UNDO_SHARED.text, &["1", "held", "a third"]), nobody);
    assert_eq!(reported(UNDO_SHARED.text, &["1", "taken", SHARER]), nobody);
    let write_back = ["2", "held", "counter", SHARER, "9", "1000"];
    assert_eq!(reported(WRITE_BACK_SHARED.text, &write_back), ["counter"]);
    let write_back = ["2", "held", "counter", "a third", "9", "1000"];
    assert_eq!(reported(WRITE_BACK_SHARED.text, &write_back), nobody);
}

/// A watcher of a resource is notified of its waiters only once: when they mark it.
#[test]
fn a_request_in_the_queue_changes_the_resource_only_if_it_marks_or_takes_it() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("4 SUBSCRIBE __redis__:invalidate");
    pair.same("1 CLIENT TRACKING ON REDIRECT {4}");
    pair.same(&format!("0 SET k1 {SHARER} PX 500000"));
    let mut is_notified = |words: &[&str]| {
        pair.same("1 EXISTS k1");
        // The replies contain times, which are not the same to the millisecond.
        let replies = [pair.embedded.run(2, words), pair.real.run(2, words)];
        assert!(replies.iter().all(|replies| !replies[0].starts_with('-')), "{replies:?}");
        let replies = pair.same("4 PING");
        replies.iter().any(|reply| reply.contains("invalidate"))
    };
    let ask = |mode: &str, digit: &str| {
        let ticket = format!("{mode}{}", digit.repeat(32));
        let token = format!("{}00", digit.repeat(32));
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "k1", "line", "until", &ticket, "call"];
        let words = [&token, "500000", "3", "0", "1000", "60000", &ticket];
        [&keys[..], &words].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let asks = [ask("x", "b"), ask("x", "c"), ask("s", "d")];
    let [first, second, sharing] = asks.each_ref().map(|ask| words_of(ask));
    assert!(is_notified(&first), "it marks the token");
    assert!(!is_notified(&first));
    assert!(!is_notified(&second));
    assert!(is_notified(&["EVAL", UNDO.text, "1", "k1", SHARER]));
    assert!(!is_notified(&second), "the key is closed");
    assert!(!is_notified(&sharing));
    assert!(is_notified(&first), "it takes it");
    assert!(!is_notified(&second));
    let leave = |digit: &str| {
        let (ticket, member) =
            (format!("x{}", digit.repeat(32)), format!("x{}00:60000", digit.repeat(32)));
        ["EVAL", LEAVE_QUEUE.text, "5", "k1", "line", "until", &ticket, "call", &member]
            .map(str::to_owned)
    };
    let leaves = [leave("b"), leave("c")];
    let [b, c] = leaves.each_ref().map(|leave| words_of(leave));
    assert!(!is_notified(&b), "others wait");
    assert!(is_notified(&["EVAL", UNDO.text, "1", "k1", &format!("{}00", "b".repeat(32))]));
    assert!(!is_notified(&c), "one waits");
    assert!(is_notified(&sharing));
    assert!(!is_notified(&second), "the mark is there");
}

fn words_of(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// A key of a shared lock that is requested unsuccessfully, extended, written back or released is
/// recorded with all other keys of the script.
#[test]
fn a_shared_script_reads_its_keys_if_it_reads_one() {
    let reported = |script: &str, rest: &[&str]| {
        let mut pair = Pair::start();
        pair.clear();
        pair.same("4 SUBSCRIBE __redis__:invalidate");
        pair.same("0 SET taken v");
        pair.same("1 CLIENT TRACKING ON REDIRECT {4}");
        pair.run(1, &[&["EVAL", script], rest].concat());
        pair.same("0 SET taken v");
        pair.same("0 SET counter 7");
        pair.same("4 PING").iter().filter(|reply| reply.contains("invalidate")).count()
    };
    assert_eq!(reported(ACQUIRE_SHARED.text, &["1", "taken", SHARER, "1000", "3"]), 1);
    let ask = ["2", "taken", "counter", SHARER, "1000", "7", "1000", "1", "3"];
    assert_eq!(reported(ACQUIRE_SHARED_FENCED.text, &ask), 2);
    assert_eq!(reported(EXTEND_SHARED.text, &["1", "taken", SHARER, "1000"]), 1);
    assert_eq!(
        reported(WRITE_BACK_SHARED.text, &["2", "taken", "counter", SHARER, "7", "1000"]),
        2
    );
    assert_eq!(reported(UNDO_SHARED.text, &["1", "taken", SHARER]), 1);
}

/// The messages of releases of other libraries' locks, behind the report of the key, and their
/// receivers.
#[test]
fn releases_are_published_as_by_a_real_server() {
    const CHANNELS: [&str; 4] = [
        "redisson_lock__channel:{k1}",
        "redisson_rwlock:{k1}",
        "shop-channel:shop:eu:job",
        "shop:eu-channel:shop:eu:job",
    ];
    // The messages to slot 4: the kind and the subject of each.
    let reported = |before: &[&str], call: &[&str]| {
        let mut pair = Pair::start();
        pair.clear();
        pair.same("4 SUBSCRIBE __redis__:invalidate");
        pair.run(0, before);
        for channel in CHANNELS {
            pair.same(&format!("4 SUBSCRIBE {channel}"));
            pair.same(&format!("0 PUBSUB NUMSUB {channel} other"));
        }
        for line in ["1 CLIENT TRACKING ON REDIRECT {4}", "1 EXISTS k1 shop:eu:job"] {
            pair.same(line);
        }
        pair.run(2, call);
        let received = pair.same("4 PING").into_iter().filter(|reply| reply.contains("message"));
        let words = |reply: String| {
            let words = reply.lines().filter(|line| !line.starts_with(['*', '$']));
            words.skip(1).map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        received.map(words).collect::<Vec<_>>()
    };
    let [lock, rw, shop, eu] = CHANNELS;
    let changed = "__redis__:invalidate k1".to_owned();
    let call = |script, rest: &[&'static str]| [&["EVAL", script, "1", "k1"][..], rest].concat();
    let nothing = ["EXISTS", "k1"];
    assert_eq!(reported(&nothing, &["PUBLISH", lock, "0"]), [format!("{lock} 0")]);
    assert_eq!(reported(&nothing, &["PUBLISH", "other", "0"]), [""; 0]);
    let holds = call(ACQUIRE_REDISSON.text, &[SHARER, "500000"]);
    let released = [changed.clone(), format!("{lock} 0")];
    assert_eq!(reported(&holds, &call(UNDO_REDISSON.text, &[SHARER])), released);
    assert_eq!(reported(&holds, &call(UNDO_REDISSON.text, &[OTHER])), [""; 0]);
    let breaks = call(FORCE_UNLOCK_REDISSON.text, &["hash", SHARER]);
    assert_eq!(reported(&holds, &breaks), released);
    let writes = call(ACQUIRE_REDISSON_WRITE.text, &[SHARER, "500000"]);
    let received = reported(&writes, &call(UNDO_REDISSON_RW.text, &[SHARER]));
    assert_eq!(received, [changed.clone(), format!("{rw} 1")]);
    let reads = call(ACQUIRE_REDISSON_READ.text, &[SHARER, "500000", "3"]);
    let received = reported(&reads, &call(UNDO_REDISSON_RW.text, &[SHARER]));
    assert_eq!(received.last(), Some(&format!("{rw} 0")));
    let name = "shop:eu:job";
    let undo = ["EVAL", UNDO_SPRING.text, "1", name, "mine"];
    let registries = [format!("__redis__:invalidate {name}"), format!("{shop} {name}")];
    let registries = [&registries[..], &[format!("{eu} {name}")]].concat();
    assert_eq!(reported(&["SET", name, "mine"], &undo), registries);
    assert_eq!(reported(&["SET", name, "other"], &undo), [""; 0]);
}

#[test]
fn an_expired_key_is_reported_without_an_access() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("4 SUBSCRIBE __redis__:invalidate");
    pair.same("1 CLIENT TRACKING ON REDIRECT {4} NOLOOP");
    pair.read_before_it_ends("k1");
    let [embedded, real] = [&mut pair.embedded, &mut pair.real].map(|side| {
        side.slots[4].reply().unwrap_or_else(|error| panic!("no message arrived: {error}"))
    });
    assert_eq!(embedded, real);
    assert!(real.ends_with("*1\r\n$2\r\nk1\r\n"), "{real}");
}

/// The tracker itself touches the key, and NOLOOP does not hide the message.
#[test]
fn an_expired_key_is_reported_on_access() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("4 SUBSCRIBE __redis__:invalidate");
    pair.same("1 CLIENT TRACKING ON REDIRECT {4}");
    pair.read_before_it_ends("k1");
    let deadline = Instant::now() + PATIENCE;
    for side in [&mut pair.embedded, &mut pair.real] {
        while side.run(1, &["GET", "k1"]).last().unwrap() != "$-1\r\n" {
            assert!(Instant::now() < deadline, "the key does not end");
        }
    }
    assert!(pair.same("4 PING")[0].contains("k1"));
    pair.same("0 SET k1 v");
    assert!(pair.same("4 PING")[0].contains("k1"), "the read that expired the key is tracked");
}

#[test]
fn a_connection_that_subscribes_is_refused_what_a_real_server_refuses() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("4 SUBSCRIBE a");
    for command in [
        "AUTH x",
        "CLIENT GETNAME",
        "CLIENT GETREDIR",
        "client Id",
        "CLIENT KILL ID 99",
        "CLIENT SETNAME n",
        "CLIENT TRACKING ON",
        "CLIENT TRACKINGINFO",
        "CLIENT CACHING YES",
        "CLIENT FOO",
        "CLIENT",
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
        "FOO",
        "GET k",
        "GET",
        "GETRANGE k 0 1",
        "INFO server",
        "PEXPIRE k 9",
        "PING",
        "PING a",
        "PING a b",
        "PTTL k",
        "SCRIPT EXISTS x",
        "SCRIPT FLUSH",
        "SCRIPT LOAD x",
        "SELECT 0",
        "SET k v",
        "SUBSCRIBE",
        "SUBSCRIBE a b a",
        "SWAPDB 0 1",
        "TIME",
        "TTL k",
        "TYPE k",
        "ZCARD k",
        "ZRANGE k 0 -1",
        "ZRANK k m",
        "ZSCORE k m",
        "UNSUBSCRIBE b c b",
        "UNSUBSCRIBE",
        "UNSUBSCRIBE",
        "UNSUBSCRIBE a",
        "PING",
        "SUBSCRIBE a",
        "RESET",
        "PING",
        "SUBSCRIBE a",
        "QUIT",
    ] {
        pair.same(&format!("4 {command}"));
    }
}

/// The password is required before anything else.
#[test]
fn subscribing_and_tracking_need_the_password() {
    let mut pair = Pair::start();
    pair.clear();
    pair.same("0 SUBSCRIBE a");
    pair.same("1 CONFIG SET requirepass sesame");
    let [embedded, real] = [&mut pair.embedded, &mut pair.real].map(|side| {
        let mut slot = Slot::open(&side.address);
        ["SUBSCRIBE a", "UNSUBSCRIBE", "CLIENT TRACKING ON"].map(|line| {
            slot.send(&encode(&line.split(' ').collect::<Vec<_>>()));
            slot.reply().unwrap()
        })
    });
    assert_eq!(embedded, real);
    assert!(real.iter().all(|reply| reply.starts_with("-NOAUTH ")), "{real:?}");
    pair.same("0 PING");
}

/// Commands in one write on one connection.
#[derive(Clone)]
struct Flight {
    slot: usize,
    lines: Vec<Line>,
}

#[derive(Clone)]
enum Line {
    /// `{3}` stands for the ID of the connection in slot 3.
    Plain(String),
    Script(&'static str, Vec<&'static str>),
    /// The connection ends without QUIT.
    End,
}

/// Formats commands for failure reports.
impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.slot, self.lines)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(line) => write!(f, "{line:?}"),
            Self::Script(text, rest) => {
                let at = SCRIPTS.iter().position(|script| script == text);
                write!(f, "script {at:?} {rest:?}")
            }
            Self::End => write!(f, "the end"),
        }
    }
}

fn any_flight() -> impl Strategy<Value = Flight> {
    let work = (0..LISTENERS, vec(any_work(), 1..5));
    let listening = (LISTENERS..SLOTS, vec(any_listening(), 1..3));
    let anywhere = (0..SLOTS, vec(prop_oneof![any_work(), any_listening()], 1..4));
    let end = (0..SLOTS, any_end().prop_map(|line| vec![line]));
    prop_oneof![10 => work, 3 => listening, 1 => anywhere, 2 => end]
        .prop_map(|(slot, lines)| Flight { slot, lines })
}

fn any_work() -> impl Strategy<Value = Line> {
    prop_oneof![8 => reading(), 8 => writing(), 6 => tracking(), 4 => script(), 4 => shared_script()]
}

fn any_listening() -> impl Strategy<Value = Line> {
    let many = select(vec!["SUBSCRIBE __redis__:invalidate", "PING", "PING x"]);
    let few = select(vec![
        "SUBSCRIBE other",
        "SUBSCRIBE __redis__:invalidate other other",
        "UNSUBSCRIBE",
        "UNSUBSCRIBE __redis__:invalidate",
        "UNSUBSCRIBE other nothing",
        "CLIENT ID",
        "GET k1",
        "RESET",
    ]);
    prop_oneof![2 => many, 1 => few].prop_map(plain)
}

fn any_end() -> impl Strategy<Value = Line> {
    let kill = (0..SLOTS).prop_map(|slot| Line::Plain(format!("CLIENT KILL ID {{{slot}}}")));
    let other = select(vec![
        "CLIENT KILL TYPE pubsub",
        "CLIENT KILL TYPE normal",
        "CLIENT KILL TYPE pubsub SKIPME no",
        "QUIT",
    ]);
    prop_oneof![4 => kill, 1 => other.prop_map(plain), 2 => Just(Line::End)]
}

fn reading() -> impl Strategy<Value = Line> {
    select(vec![
        "GET k1",
        "GET k2",
        "GETRANGE k1 0 1",
        "GETRANGE k1 x y",
        "GET k1 k2",
        "PTTL k1",
        "PTTL k2",
        "TTL k2",
        "TYPE k2",
        "ZCARD k1",
        "ZRANGE k1 0 -1",
        "ZSCORE k2 x",
        "EXISTS k1",
        "EXISTS k1 k2 k1",
        "ECHO e",
    ])
    .prop_map(plain)
}

fn writing() -> impl Strategy<Value = Line> {
    let few = select(vec![
        "FLUSHALL",
        "FLUSHDB",
        "FLUSHDB FOO",
        "SWAPDB 0 1",
        "SELECT 0",
        "SELECT 1",
        "PEXPIRE k1 -1",
    ]);
    let many = select(vec![
        "SET k1 v",
        "SET k2 v",
        "SET k1 v PX 1000000",
        "SET k2 w NX",
        "SET k1 v XX KEEPTTL",
        "SET k1 v FOO",
        "DEL k1",
        "DEL k2 k1 k2",
        "PEXPIRE k1 1000000",
        "PEXPIRE k2 1000000 XX",
        "EXPIRE k2 1000",
    ]);
    prop_oneof![1 => few, 5 => many].prop_map(plain)
}

fn tracking() -> impl Strategy<Value = Line> {
    let target = prop_oneof![4 => LISTENERS..SLOTS, 1 => 0..SLOTS];
    let redirect = (target, select(vec!["", "", " NOLOOP", " OPTIN", " OPTIN NOLOOP"])).prop_map(
        |(slot, end)| Line::Plain(format!("CLIENT TRACKING ON REDIRECT {{{slot}}}{end}")),
    );
    let other = select(vec![
        "CLIENT TRACKING on",
        "CLIENT TRACKING ON noloop",
        "CLIENT TRACKING OFF",
        "CLIENT TRACKING OFF BCAST REDIRECT {4} PREFIX a OPTIN OPTOUT",
        "CLIENT TRACKING FOO",
        "CLIENT TRACKING ON FOO",
        "CLIENT TRACKING ON REDIRECT",
        "CLIENT TRACKING ON PREFIX",
        "CLIENT TRACKING ON REDIRECT x",
        "CLIENT TRACKING ON REDIRECT 0",
        "CLIENT TRACKING ON REDIRECT -1",
        "CLIENT TRACKING ON REDIRECT 99999999",
        "CLIENT TRACKING OFF REDIRECT 99999999",
        "CLIENT TRACKING ON REDIRECT {3} REDIRECT x",
        "CLIENT TRACKING ON PREFIX a",
        "CLIENT TRACKING ON OPTIN",
        "CLIENT CACHING NO",
        "CLIENT CACHING FOO",
        "CLIENT CACHING",
        "CLIENT CACHING YES NO",
        "CLIENT TRACKING ON BCAST OPTIN",
        "CLIENT TRACKING ON OPTIN OPTOUT",
        "CLIENT TRACKING",
        "CLIENT TRACKINGINFO x",
        "CLIENT GETREDIR",
        "CLIENT ID",
        "RESET",
    ]);
    let info = Just(plain("CLIENT TRACKINGINFO"));
    let next = Just(plain("CLIENT CACHING YES"));
    prop_oneof![6 => redirect, 3 => other.prop_map(plain), 3 => info, 6 => next]
}

fn script() -> impl Strategy<Value = Line> {
    let calls: Vec<(&str, Vec<&str>)> = vec![
        (ACQUIRE_MANY.text, vec!["2", "k1", "k2", "v", "1000000", "2"]),
        (ACQUIRE_MANY.text, vec!["2", "k1", "guard", "v", "1000000", "1"]),
        (ACQUIRE_FENCED.text, vec!["2", "k1", "k2", "v", "1000000", "1", "7", "1000000"]),
        (WRITE_BACK.text, vec!["2", "k1", "k2", "v", "1", "9", "1000000"]),
        (ENROL.text, vec!["1", "k2", "v", "w", "1000000"]),
        (EXTEND.text, vec!["2", "k1", "k2", "v", LONGER]),
        (EXTEND.text, vec!["2", "k1", "k2", "v", SHORTER]),
        (EXTEND.text, vec!["0", "v", "1000000"]),
        (UNDO.text, vec!["2", "k1", "k2", "v"]),
        (UNDO.text, vec!["3", "k1", "k2", "k1", "w"]),
    ];
    select(calls).prop_map(|(text, rest)| Line::Script(text, rest))
}

fn shared_script() -> impl Strategy<Value = Line> {
    let who = || select(vec![SHARER, TWIN, OTHER, "somebody"]);
    let ttl = || select(vec![LONGER, SHORTER]);
    let ask =
        (select(vec![vec!["1", "k1"], vec!["1", "k2"], vec!["2", "k1", "guard"]]), who(), ttl())
            .prop_map(|(keys, who, ttl)| {
                (ACQUIRE_SHARED.text, [keys, vec![who, ttl, "3"]].concat())
            });
    let proposal = select(vec![PROPOSAL, PROPOSAL, PROPOSAL, "7"]);
    let ask_fenced = (who(), ttl(), proposal).prop_map(|(who, ttl, proposal)| {
        (ACQUIRE_SHARED_FENCED.text, vec!["2", "k1", "k2", who, ttl, proposal, "1000000", "1", "3"])
    });
    let extend =
        (who(), ttl()).prop_map(|(who, ttl)| (EXTEND_SHARED.text, vec!["1", "k1", who, ttl]));
    let undo = (select(vec!["k1", "k2"]), who())
        .prop_map(|(key, who)| (UNDO_SHARED.text, vec!["1", key, who]));
    let write_back = (who(), select(vec!["9", "9007199254740991"])).prop_map(|(who, least)| {
        (WRITE_BACK_SHARED.text, vec!["2", "k1", "k2", who, least, "1000000"])
    });
    prop_oneof![3 => ask, 2 => ask_fenced, 2 => extend, 2 => undo, 1 => write_back]
        .prop_map(|(text, rest)| Line::Script(text, rest))
}

fn plain(line: &str) -> Line {
    Line::Plain(line.to_owned())
}

/// The two servers, in the same state after the same commands.
struct Pair {
    embedded: Side,
    real: Side,
    /// Everything that the real server has sent.
    seen: Vec<String>,
    _node: Node,
    _server: Server,
}

impl Pair {
    fn start() -> Self {
        let (node, server) = (Node::start().unwrap(), Server::start());
        let real = Slot::open(&server.address());
        let address = node.address().to_string();
        // From here on, connections have the same IDs on both sides.
        let mut before = Slot::open(&address);
        while before.id < real.id {
            before = Slot::open(&address);
        }
        let (embedded, real) = (Side::of(&address), Side::of(&server.address()));
        Self { embedded, real, seen: Vec::new(), _node: node, _server: server }
    }

    /// Resets both.
    fn clear(&mut self) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
        for side in [&mut self.embedded, &mut self.real] {
            side.proposal = now;
            (0..SLOTS).for_each(|slot| drop(side.run(slot, &["RESET"])));
            assert_eq!(side.run(0, &["FLUSHALL"]), ["+OK\r\n"]);
            side.cleared = side.marker;
        }
    }

    /// Runs a line that begins with its slot, and returns the replies of both sides.
    fn same(&mut self, line: &str) -> Vec<String> {
        let (slot, line) = line.split_once(' ').unwrap();
        let flight =
            Flight { slot: slot.parse().unwrap(), lines: line.split("; ").map(plain).collect() };
        let before = self.seen.len();
        self.fly(&flight).unwrap_or_else(|failure| panic!("{failure}"));
        self.seen[before..].to_vec()
    }

    /// Sets a key that lives long enough for both sides to read it before it expires, even on a
    /// busy machine.
    fn read_before_it_ends(&mut self, key: &str) {
        self.same(&format!("0 SET {key} v PX 5000"));
        assert_eq!(self.same(&format!("1 EXISTS {key}")), [":1\r\n"]);
    }

    fn run(&mut self, slot: usize, words: &[&str]) {
        assert_eq!(self.embedded.run(slot, words), self.real.run(slot, words), "{words:?}");
    }

    fn fly(&mut self, flight: &Flight) -> Result<(), TestCaseError> {
        if flight.may_end_any() {
            // Messages in flight to a connection that ends may or may not arrive.
            self.all_the_rest()?;
        }
        let (embedded, real) = (self.embedded.fly(flight), self.real.fly(flight));
        prop_assert_eq!(in_order(flight, &embedded), in_order(flight, &real), "{:?}", flight);
        self.seen.extend(real);
        if flight.may_end_any() {
            self.all_the_rest()?;
        }
        Ok(())
    }

    /// Compares the messages that the connections have received since their last reply.
    fn all_the_rest(&mut self) -> Result<(), TestCaseError> {
        for slot in 0..SLOTS {
            let (embedded, real) = (self.embedded.rest(slot), self.real.rest(slot));
            prop_assert_eq!(embedded, &real[..], "messages to slot {}", slot);
            self.seen.extend(real);
        }
        Ok(())
    }
}

impl Flight {
    fn may_end_any(&self) -> bool {
        self.lines.iter().any(|line| match line {
            Line::Plain(line) => line.starts_with("CLIENT KILL") || line == "QUIT",
            Line::Script(..) => false,
            Line::End => true,
        })
    }
}

/// Sorts names and numbers separately for unsubscribing from all channels, which has no defined
/// order.
fn in_order(flight: &Flight, replies: &[String]) -> Vec<String> {
    let leaves_all = |line: &Line| matches!(line, Line::Plain(line) if line == "UNSUBSCRIBE");
    if !flight.lines.iter().any(leaves_all) {
        return replies.to_vec();
    }
    let mut parts: Vec<String> =
        replies.iter().flat_map(|reply| reply.split("\r\n").map(str::to_owned)).collect();
    parts.sort();
    parts
}

/// One of the two servers, with a few connections.
struct Side {
    address: String,
    slots: Vec<Slot>,
    /// The number of the last barrier.
    marker: u64,
    /// The number of the last barrier before everything was deleted.
    cleared: u64,
    /// Unix microseconds of that time.
    proposal: u128,
}

struct Slot {
    stream: BufReader<TcpStream>,
    id: u64,
}

impl Side {
    fn of(address: &str) -> Self {
        let slots = (0..SLOTS).map(|_| Slot::open(address)).collect();
        Self { address: address.into(), slots, marker: 0, cleared: 0, proposal: 0 }
    }

    fn run(&mut self, slot: usize, words: &[&str]) -> Vec<String> {
        self.exchange(slot, encode(words))
    }

    fn rest(&mut self, slot: usize) -> Vec<String> {
        self.exchange(slot, Vec::new())
    }

    fn fly(&mut self, flight: &Flight) -> Vec<String> {
        if let [Line::End] = flight.lines[..] {
            self.slots[flight.slot].end();
            self.slots[flight.slot] = Slot::open(&self.address);
            return Vec::new();
        }
        let bytes =
            flight.lines.iter().enumerate().flat_map(|(at, line)| self.spell(at, line)).collect();
        self.exchange(flight.slot, bytes)
    }

    fn spell(&self, at: usize, line: &Line) -> Vec<u8> {
        match line {
            Line::Plain(line) => {
                let named = |line: String, (at, slot): (usize, &Slot)| {
                    line.replace(&format!("{{{at}}}"), &slot.id.to_string())
                };
                let line = self.slots.iter().enumerate().fold(line.clone(), named);
                encode(&line.split(' ').collect::<Vec<_>>())
            }
            Line::Script(text, rest) => {
                let at = at as u64;
                let word = |word: &&'static str| match *word {
                    LONGER => (FIRST_LONG + self.marker * 10_000 + at * 1_000).to_string(),
                    SHORTER => {
                        (FIRST_SHORT + (self.marker - self.cleared) * 1_000 + at * 100).to_string()
                    }
                    PROPOSAL => self.proposal.to_string(),
                    word => word.into(),
                };
                let rest: Vec<String> = rest.iter().map(word).collect();
                let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
                encode(&[&["EVAL", text], &rest[..]].concat())
            }
            Line::End => Vec::new(),
        }
    }

    /// Sends commands and a PING, and returns everything up to the PING's reply. A connection that
    /// has ended is reported, and replaced.
    fn exchange(&mut self, slot: usize, mut bytes: Vec<u8>) -> Vec<String> {
        self.marker += 1;
        let marker = format!("marker-{}", self.marker);
        bytes.extend(encode(&["PING", &marker]));
        let (slot, mut replies) = (&mut self.slots[slot], Vec::new());
        slot.send(&bytes);
        loop {
            match slot.reply() {
                Ok(reply) if reply.contains(&marker) => return replies,
                Ok(reply) => replies.push(without_times(reply)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("no reply"),
                Err(_) => {
                    replies.push("the end".into());
                    *slot = Slot::open(&self.address);
                    return replies;
                }
            }
        }
    }
}

impl Slot {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut slot = Self { stream: BufReader::new(stream), id: 0 };
        slot.send(&encode(&["CLIENT", "ID"]));
        // If a password is set, the ID stays unknown.
        let reply = slot.reply().unwrap();
        slot.id = reply.trim_start_matches(':').trim_end().parse().unwrap_or(0);
        slot
    }

    /// A closed peer is noticed when its reply is read.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    fn reply(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        copy_reply(&mut self.stream, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Ends the connection, and waits until the server has noticed.
    fn end(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).unwrap();
        self.stream.read_to_end(&mut Vec::new()).unwrap();
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

/// Replaces remaining times, which are long in these tests, unlike all other numbers, and the clock
/// of a reply.
fn without_times(reply: String) -> String {
    match reply.strip_prefix(':').and_then(|number| number.trim_end().parse::<u64>().ok()) {
        Some(990..) => "a time".into(),
        _ if reply.starts_with("+CLOCK ") => "a clock".into(),
        _ => reply,
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>()).into_bytes()
}

/// The maximum time that a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first slot that subscribes to messages.
const LISTENERS: usize = 3;
const SLOTS: usize = 5;
/// The opening after which most changes cause messages.
const OPENING: [&str; 4] = [
    "3 SUBSCRIBE __redis__:invalidate",
    "4 SUBSCRIBE __redis__:invalidate",
    "1 CLIENT TRACKING ON REDIRECT {3}",
    "2 CLIENT TRACKING ON REDIRECT {4} NOLOOP",
];
/// Stands for a TTL in a script that is longer than all before, so that no comparison depends on a
/// millisecond.
const LONGER: &str = "longer";
const FIRST_LONG: u64 = 2_000_000;
/// Stands for a TTL longer than earlier ones of this kind, and shorter than all others. No key
/// expires by it in a test.
const SHORTER: &str = "shorter";
const FIRST_SHORT: u64 = 100_000;
/// Stands for a proposal close to the clock, and the same on both sides.
const PROPOSAL: &str = "proposal";
const SHARER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00";
/// The token of the same client, to which this server is another node.
const TWIN: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa02";
const OTHER: &str = "cccccccccccccccccccccccccccccccc01";
const SCRIPTS: [&str; 11] = [
    ACQUIRE_FENCED.text,
    ACQUIRE_MANY.text,
    ENROL.text,
    EXTEND.text,
    UNDO.text,
    WRITE_BACK.text,
    ACQUIRE_SHARED.text,
    ACQUIRE_SHARED_FENCED.text,
    EXTEND_SHARED.text,
    UNDO_SHARED.text,
    WRITE_BACK_SHARED.text,
];
