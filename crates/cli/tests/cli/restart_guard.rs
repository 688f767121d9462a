//! Nodes that may have forgotten locks do not vote, and the messages explain why.

use nix::sys::signal::Signal;
use redbolt_test_servers::{Reply, Server};
use serde_json::Value;

use crate::harness::{World, eventually, info, redbolt, run};

/// Returns the messages, without their numbers of seconds.
fn timeless(said: &str) -> Vec<String> {
    let words = |line: &str| {
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        let mut words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        for at in 1..words.len() {
            if words[at].starts_with('s') && words[at].len() <= 2 && is_number(&words[at - 1]) {
                words[at - 1] = "N".to_owned();
            }
        }
        words.join(" ")
    };
    said.lines().map(words).collect()
}

/// A newcomer's steps: new nodes, a refused lock, the command that the refusal suggests, the lock.
#[test]
fn a_newcomer_learns_why_the_first_lock_waits_and_what_to_do() {
    let world = World::fresh(3);
    let nodes: Vec<_> = world.nodes.iter().map(Server::address).collect();
    let options: String = nodes.iter().map(|node| format!(" --node {node}")).collect();
    let lock = format!("lock --try{options} job -- true");
    let words: Vec<_> = lock.split(' ').collect();
    let refused = run(redbolt(&words)).expect(69);
    let new = "quarantined N s, it has no restart guard: it is new, or has lost its memory";
    let said = [
        "redbolt: job: too few nodes can vote, 2 needed; the command was not run".to_owned(),
        format!("redbolt: node 1 {}: {new}", nodes[0]),
        format!("redbolt: node 2 {}: {new}", nodes[1]),
        format!("redbolt: node 3 {}: {new}", nodes[2]),
        format!("redbolt: if these nodes are new and never held a lock: redbolt init{options}"),
    ];
    assert_eq!(timeless(&refused.stderr), said);

    let hint = refused.stderr.lines().last().unwrap().rsplit(": redbolt ").next().unwrap();
    let words: Vec<_> = hint.split(' ').collect();
    run(redbolt(&words)).expect(0);
    let words: Vec<_> = lock.split(' ').collect();
    assert_eq!(run(redbolt(&words)).expect(0).stderr, "");
}

#[test]
fn a_waiter_reports_the_quarantine_once() {
    for wait in [&["--wait", "30s"][..], &[]] {
        let world = World::fresh(3);
        let limits = ["--max-ttl", "6s", "--ttl", "6s"];
        let words = [&["lock"], wait, &limits, &["job", "-c", "echo ran"]].concat();
        let ran = world.run(&words).expect(0);
        assert_eq!(ran.stdout, "ran\n");
        assert_eq!(ran.stderr.matches("for the quarantine to end").count(), 1, "{ran:?}");
        assert_eq!(ran.stderr.matches("redbolt init --max-ttl 6s").count(), 1, "{ran:?}");
    }
}

#[test]
fn a_wait_that_ends_before_the_quarantine_is_69() {
    let world = World::fresh(1);
    let ran = world.run(&["lock", "--wait", "6s", "job", "--", "touch", "ran"]).expect(69);
    assert_eq!(ran.stderr.matches("for the quarantine to end").count(), 1, "{ran:?}");
    assert_eq!(ran.stderr.matches("redbolt init").count(), 1, "{ran:?}");
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.contains("node 1 ") && last.contains("quarantined"), "{ran:?}");
    assert!(!world.path("ran").exists());
}

#[test]
fn a_waiter_in_a_quarantine_ends_on_a_signal() {
    let world = World::fresh(1);
    let waiter = world.start(&["lock", "job", "--", "touch", "ran"]);
    eventually("the node has its restart guard", || {
        world.nodes[0].cmd("GET redbolt:guard") != Reply::Nil
    });
    waiter.signal(Signal::SIGINT);
    waiter.end().expect(130);
    assert_eq!(world.held_on("job"), 0);
    assert!(!world.path("ran").exists());
}

/// A user copies the hint into another shell.
#[test]
fn init_lets_a_waiter_in_before_the_quarantine_is_over() {
    let world = World::with_limits(3, "600s");
    let waiter = world.start(&["lock", "job", "-c", "echo ran"]);
    eventually("all nodes have a restart guard", || {
        world.nodes.iter().all(|node| node.cmd("GET redbolt:guard") != Reply::Nil)
    });
    world.init();
    assert_eq!(waiter.end().expect(0).stdout, "ran\n");
}

#[test]
fn the_first_lock_can_declare_nodes_new() {
    let world = World::fresh(3);
    let words = ["lock", "--try", "--new-nodes", "job", "--", "true"];
    assert_eq!(world.run(&words).expect(0).stderr, "");
    // Nodes that were flushed later do not count as new.
    world.nodes[..2].iter().for_each(|node| drop(node.cmd("FLUSHALL")));
    world.run(&words).expect(69).expect_says("quarantined");
}

/// Two of three nodes lose a held lock. With the restart guard no other caller is granted it;
/// without, one is.
#[test]
fn a_lock_that_nodes_forgot_is_not_granted_again() {
    let mut world = World::of(3);
    let holder = world.start(&["lock", "--ttl", "20s", "job", "-c", "echo $$ > pid; sleep 600"]);
    world.process("pid");
    world.nodes[..2].iter_mut().for_each(Server::restart);
    let rival = |options: &[&str]| {
        world.run(&[&["lock", "--ttl", "20s"], options, &["job", "--", "true"]].concat())
    };
    let refused = rival(&["-n"]).expect(69);
    assert_eq!(refused.stderr.matches("quarantined").count(), 2, "{refused:?}");
    assert!(!refused.stderr.contains("redbolt init"), "one of them votes: {refused:?}");
    // A release of the previous rival may arrive late. The TTL is longer than that.
    rival(&["--wait", "8s", "--restart-guard", "off"]).expect(0);
    drop(holder);
}

/// A server that syncs each write comes back with its locks and its restart guard.
#[test]
fn a_durable_node_is_believed_after_a_restart() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut world = World::on(vec![Server::with(&durable)]);
    world.init();
    world.nodes[0].restart();
    let lock =
        |trust: &[&str]| world.run(&[&["lock", "-n"], trust, &["job", "--", "true"]].concat());
    // Syncing may take a while.
    eventually("its restart guard is believed", || {
        lock(&["--restart-trust", "durable"]).status == Some(0)
    });
    let strict = lock(&[]).expect(69).expect_says("restarted: its run id changed");
    assert!(!strict.stderr.contains("redbolt init"), "the node is known not to be new: {strict:?}");
}

#[test]
fn a_user_without_info_needs_restart_trust() {
    let world = World::fresh(1);
    world.nodes[0].cmd("ACL SETUSER limited on >pw ~* +@all -info");
    let lock = |trust: &[&str]| {
        let words = [&["lock", "-n", "--new-nodes"], trust, &["job", "--", "true"]].concat();
        let mut command = redbolt(&words);
        command.env("REDBOLT_NODES", format!("redis://limited:pw@{}", world.nodes[0].address()));
        run(command)
    };
    lock(&[]).expect(69).expect_says("NOPERM");
    lock(&["--restart-trust", "marker-only"]).expect(0);
}

#[test]
fn restart_trust_is_one_value_or_one_for_each_node() {
    let world = World::of(3);
    let lock =
        |words: &str| world.run(&["lock", "-n", "--restart-trust", words, "job", "--", "true"]);
    lock("durable").expect(0);
    lock("strict,durable,marker-only").expect(0);
    lock("strict,durable").expect(64).expect_says("2 words for 3 nodes");
    lock("blind").expect(64);
}

#[test]
fn status_shows_each_restart_guard() {
    let world = World::fresh(6);
    let [missing, quarantined, votes, limits, other, run_id] = &world.nodes[..] else {
        unreachable!("six nodes");
    };
    const BIG: u64 = 126_144_000_000;
    let set = |node: &Server, value: &str, ttl: u64| {
        let put = format!("SET redbolt:guard {value} PX {ttl}");
        assert_eq!(node.cmd(&put), Reply::Status("OK".to_owned()));
    };
    set(quarantined, &ours(quarantined, 6), BIG + 25_000);
    set(votes, &ours(votes, 6), BIG - 1);
    set(limits, &ours(limits, 5), BIG);
    set(other, "something", BIG);
    set(run_id, &format!("{}:30000:6:0", "0".repeat(40)), BIG);

    let ran = world.told_by_all(&["status", "job"], 0).stdout;
    for (node, words) in [
        (missing, "no restart guard: it is new, or has lost its memory"),
        (quarantined, "quarantined "),
        (votes, "remembers every lock"),
        (limits, "set up for 5 nodes and a max_ttl of 30s"),
        (other, "its restart guard's key holds something else"),
        (run_id, "the restart guard of an earlier run: it was restarted"),
    ] {
        let line = ran.lines().find(|line| line.starts_with(&node.address())).unwrap();
        assert!(line.contains(&format!("  no key  {words}")), "{words:?} is missing in {line:?}");
    }
    let left = ran.split_once("quarantined ").unwrap().1.split_once(" s").unwrap().0;
    assert!((1..=25).contains(&left.parse::<u32>().unwrap()), "{left}");
    assert!(ran.contains("no lock can be taken now: 1 of 6 nodes vote, 4 must"), "{ran}");
    assert_eq!(missing.cmd("GET redbolt:guard"), Reply::Nil, "status writes nothing");

    let json = world.told_by_all(&["status", "--json", "job"], 0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let states: Vec<_> = (0..6)
        .map(|at| json["nodes"][at]["restart_guard"]["state"].as_str().unwrap().to_owned())
        .collect();
    let expected = ["missing", "quarantined", "votes", "other_limits", "unreadable", "other_run"];
    assert_eq!(states, expected);
    let left = json["nodes"][1]["restart_guard"]["left_ms"].as_u64().unwrap();
    assert!((1..=25_000).contains(&left), "{left}");

    let off = world.run(&["status", "--restart-guard", "off", "job"]).expect(0).stdout;
    assert!(!off.contains("restart_guard") && !off.contains("no lock can be taken"), "{off}");
}

/// Returns the restart guard that a client of `nodes` nodes expects on this one.
fn ours(server: &Server, nodes: usize) -> String {
    let field = |section: &str, name: &str| {
        let Reply::Bulk(text) = server.cmd(&format!("INFO {section}")) else { panic!("no INFO") };
        let text = String::from_utf8(text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().trim().to_owned()
    };
    let (run_id, replication_id) =
        (field("server", "run_id:"), field("replication", "master_replid:"));
    format!("{run_id}.{replication_id}:30000:{nodes}:0")
}

#[test]
fn the_restart_guard_is_written_once() {
    let world = World::of(1);
    world.nodes[0].cmd("CONFIG RESETSTAT");
    for _ in 0..3 {
        world.run(&["lock", "-n", "job", "--", "true"]).expect(0);
    }
    let stats = info(&world, "commandstats");
    let sets = stats.lines().find(|line| line.starts_with("cmdstat_set:")).unwrap();
    let count = |field: &str| -> u32 {
        let value = sets.split([':', ',']).find_map(|pair| pair.strip_prefix(field));
        value.and_then(|value| value.parse().ok()).unwrap()
    };
    // The handshake includes a SET that fails.
    assert_eq!(
        count("calls=") - count("failed_calls="),
        3,
        "SETs of locks, and none of a restart guard: {sets}"
    );
}

#[test]
fn status_shows_the_seconds_of_a_quarantine() {
    let world = World::fresh(1);
    world.run(&["lock", "--try", "job", "--", "true"]).expect(69);
    let told = world.told_by_all(&["status"], 69).stdout;
    let left = told.split_once("no voter: quarantined ").unwrap().1.split_once(" s, ").unwrap().0;
    assert!((1..=30).contains(&left.parse::<u32>().unwrap()), "{told}");
    let json = world.told_by_all(&["status", "--json"], 69).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let node = &json["nodes"][0];
    let left = node["restart_guard"]["left_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&left), "{json}");
    assert!(node["reason"].as_str().unwrap().starts_with("quarantined "), "{json}");
    assert!(!node["reason"].as_str().unwrap().contains("quarantined others"), "{json}");
}
