//! `status`, `node` and `demo`: commands that take no locks.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Ran, World, eventually, info, redbolt, run};

#[test]
fn status_shows_the_holder_on_each_node() {
    let world = World::of(3);
    let free = world.told_by_all(&["status", "job"], 0).stdout;
    assert_eq!(free.lines().filter(|line| line.contains("  free")).count(), 3, "{free}");
    assert_eq!(free.lines().last(), Some("job: free"));

    let holder = world.start(&["lock", "job", "-c", "echo $PPID > redbolt; exec sleep 600"]);
    let label = format!(":{}", holder.pid());
    world.process("redbolt");
    world.until_on_all("job");
    let held = world.told_by_all(&["status", "job"], 0).stdout;
    for node in &world.nodes {
        let line = held.lines().find(|line| line.starts_with(&node.address())).unwrap();
        assert!(line.contains("held by ") && line.contains(&label), "{line}");
        assert!(line.contains(" left") && line.ends_with('s'), "TTL and round trip: {line}");
    }
    assert!(held.lines().last().unwrap().ends_with("on 3 of 3 nodes"), "{held}");
}

/// The status is that of `redbolt lock --try`.
#[test]
fn with_exit_status_the_state_of_the_lock_decides() {
    let mut world = World::of(3);
    let status = ["status", "--exit-status", "job"];
    world.run(&status).expect(0);
    for mode in [&[][..], &["--shared"], &["--permits", "3"]] {
        let words = [&["acquire", "--ttl", "25s", "--token-file", "file"], mode, &["job"]];
        world.run(&words.concat()).expect(0);
        let held = world.run(&status).expect(75).stdout;
        assert!(held.contains("held") || held.contains("shared by"), "{held}");
        world.run(&["status", "job"]).expect(0);
        world.run(&["release", "--token-file", "file"]).expect(0);
    }
    world.take("job");
    world.run(&status).expect(75);
    world.delete("job");
    world.run(&["status", "--exit-status"]).expect(64);
    world.nodes[0].kill();
    world.run(&status).expect(0);
    world.nodes[1].kill();
    world.run(&status).expect(69);
    let new = World::fresh(3);
    new.run(&["status", "job"]).expect(0);
    new.run(&status).expect(69);
}

#[test]
fn status_shows_why_a_node_does_not_answer() {
    let mut world = World::of(3);
    world.nodes[0].kill();
    let two = world.run(&["status", "job"]).expect(0).stdout;
    assert!(two.lines().next().unwrap().contains("no answer: connection refused"), "{two}");
    assert_eq!(two.lines().last(), Some("job: free"));
    world.nodes[1].pause();
    let one = world.run(&["status", "job"]).expect(69).stdout;
    assert!(one.lines().last().unwrap().contains("undecided, 1 of 3 nodes answered"), "{one}");
    world.nodes[1].resume();
}

fn as_json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn status_in_json() {
    let world = World::of(3);
    let words = ["status", "--json", "job"];
    let json = || as_json(&world.told_by_all(&words, 0));
    assert_eq!(json()["verdict"], "free");
    let holder = world.start(&["lock", "job", "-c", "echo $PPID > redbolt; exec sleep 600"]);
    world.process("redbolt");
    world.until_on_all("job");
    let held = json();
    assert_eq!((&held["key"], &held["verdict"]), (&"job".into(), &"held".into()));
    assert!(held["holder"].as_str().unwrap().ends_with(&format!(":{}", holder.pid())));
    assert_eq!(held["quorum"], 2);
    let nodes = held["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    for (node, server) in nodes.iter().zip(&world.nodes) {
        assert_eq!(node["address"], server.address());
        assert_eq!(node["state"], "held");
        assert!((1..=10_000).contains(&node["remaining_ms"].as_u64().unwrap()), "{node}");
        assert!(node["round_trip_us"].as_u64().is_some() && node["reason"].is_null(), "{node}");
    }
    drop(holder);
    world.nodes[0].pause();
    world.nodes[1].pause();
    let silent = as_json(&world.run(&words).expect(69));
    assert_eq!(silent["verdict"], "undecided");
    assert_eq!(silent["nodes"][0]["state"], "no_answer");
    assert!(silent["nodes"][0]["reason"].as_str().unwrap().contains("no "));
    world.nodes[0].resume();
    world.nodes[1].resume();
}

#[test]
fn a_name_is_shown_on_one_line_whatever_is_in_it() {
    let world = World::of(1);
    let name = OsStr::from_bytes(b"a\nb: free\x1b[2J\xff");
    let said = |words: &[&str], status| {
        let mut command = world.redbolt(words);
        command.arg(name).args((words[0] == "lock").then_some("true"));
        let ran = run(command).expect(status);
        assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "{ran:?}");
        ran
    };
    let shown = r"a\nb: free\u{1b}[2J\xff";
    assert!(said(&["status"], 0).stdout.ends_with(&format!("\n{shown}: free\n")));
    assert!(said(&["unlock"], 0).stdout.ends_with(&format!("\n{shown}: free\n")));
    world.nodes[0].run(&[b"SET", name.as_bytes(), b"x"]);
    said(&["lock", "-n"], 75).expect_says(shown);
}

#[test]
fn json_contains_all_bytes_of_a_name() {
    let world = World::of(1);
    let json = |name: &[u8]| -> Value {
        let mut command = world.redbolt(&["status", "--json"]);
        command.arg(OsStr::from_bytes(name));
        serde_json::from_str(&run(command).expect(0).stdout).unwrap()
    };
    let text = json("\u{fc}\n".as_bytes());
    assert_eq!((&text["key"], &text["key_hex"]), (&"\u{fc}\n".into(), &"c3bc0a".into()));
    let bytes = json(b"a\xff");
    assert_eq!((&bytes["key"], &bytes["key_hex"]), (&Value::Null, &"61ff".into()));
}

/// The output is closed early, as in `redbolt status job | true`.
#[test]
fn a_pipe_closed_early_changes_no_status() {
    let world = World::of(1);
    for words in [
        &["status", "job"][..],
        &["status", "--json", "job"],
        &["init", "--change"],
        &["completions", "bash"],
        &["help"],
        &["bench", "--yes", "--duration", "20ms", "--warm-up", "0s"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = world.redbolt(words).stdout(writer).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{words:?}: {ran:?}");
        assert!(!String::from_utf8_lossy(&ran.stderr).contains("ipe"), "{words:?}: {ran:?}");
    }
}

#[test]
fn status_without_a_name_shows_the_nodes() {
    let mut world = World::fresh(3);
    let new = world.told_by_all(&["status"], 69).stdout;
    assert_eq!(
        new.matches("  no voter: no restart guard: it is new, or has lost its memory").count(),
        3,
        "{new}"
    );
    assert!(new.ends_with("if these nodes are new and never held a lock: redbolt init\n"), "{new}");
    assert!(new.contains("no lock can be taken now: 0 of 3 nodes vote, 2 must\n"), "{new}");
    world.init();
    world.nodes[1].cmd("ACL SETUSER default resetchannels");
    // Support for notifications is found out on another connection, which is not waited for long.
    let mut told = String::new();
    eventually("all nodes answer in time", || {
        told = world.told_by_all(&["status"], 0).stdout;
        told.contains("waiters are not told") && told.matches("tells waiters").count() == 2
    });
    let line = |node: usize| {
        let address = world.nodes[node].address();
        told.lines().find(|line| line.starts_with(&address)).unwrap().to_owned()
    };
    for node in [0, 2] {
        let line = line(node);
        assert!(line.contains("  votes  tells waiters ") && line.ends_with('s'), "{line}");
    }
    assert!(line(1).contains("  votes  waiters are not told: NOPERM"), "{told}");
    assert!(told.ends_with("locks can be taken: 3 of 3 nodes vote, 2 must\n"), "{told}");
    world.nodes[0].kill();
    world.nodes[2].restart();
    let told = world.told_by_all(&["status"], 69).stdout;
    assert!(told.contains("  no voter: connection refused\n"), "{told}");
    assert!(!told.contains("redbolt init"), "not all are new: {told}");

    let mut json = Value::Null;
    eventually("all nodes answer in time", || {
        json = as_json(&world.told_by_all(&["status", "--json"], 69));
        !json["nodes"][1]["notifies_waiters"].is_null()
    });
    assert_eq!(
        (&json["voting"], &json["quorum"], &json["new"]),
        (&1.into(), &2.into(), &false.into())
    );
    let nodes = &json["nodes"];
    assert_eq!(
        (&nodes[0]["votes"], &nodes[0]["reason"]),
        (&false.into(), &"connection refused".into())
    );
    assert_eq!((&nodes[1]["votes"], &nodes[1]["notifies_waiters"]), (&true.into(), &false.into()));
    assert!(nodes[1]["round_trip_us"].as_u64().is_some() && nodes[1]["reason"].is_null(), "{json}");
    assert_eq!(nodes[2]["restart_guard"]["state"], "missing");
}

/// Checking for notifications leaves nothing behind.
#[test]
fn status_of_nodes_writes_nothing() {
    let world = World::of(1);
    world.nodes[0].cmd("CONFIG RESETSTAT");
    let before = changes(&world);
    world.run(&["status"]).expect(0);
    let stats = info(&world, "commandstats");
    assert!(stats.contains("cmdstat_subscribe"), "{stats}");
    assert_eq!(changes(&world), before);
    assert!(!stats.contains("cmdstat_pexpire"), "{stats}");
}

#[test]
fn status_shows_other_data_under_the_name() {
    let world = World::of(3);
    world.nodes[0].cmd("RPUSH job 1 2");
    world.nodes[1].cmd("ZADD job 1 a");
    world.nodes[1].cmd("PEXPIRE job 60000");
    let told = world.told_by_all(&["status", "job"], 0).stdout;
    assert!(told.contains("other data, a list, without end"), "{told}");
    let (_, left) =
        told.split_once("other data, a sorted set, ").unwrap_or_else(|| panic!("{told}"));
    let left: f64 = left.split_once(" s left").unwrap().0.parse().unwrap();
    assert!((20.0..=60.0).contains(&left), "{told}");
    let last = "on 2 of 3 nodes; no lock of redbolt";
    assert!(told.lines().last().unwrap().ends_with(last), "{told}");
    let json = as_json(&world.told_by_all(&["status", "--json", "job"], 0));
    assert_eq!((&json["verdict"], &json["holder"]), (&"foreign".into(), &Value::Null));
    assert_eq!(
        (&json["nodes"][0]["state"], &json["nodes"][0]["data"]["type"]),
        (&"foreign".into(), &"list".into())
    );
    assert_eq!(
        (&json["nodes"][1]["data"]["type"], &json["nodes"][2]["data"]),
        (&"zset".into(), &Value::Null)
    );
    world.take("job");
    let json = as_json(&world.told_by_all(&["status", "--json", "job"], 0));
    assert_eq!((&json["data"]["type"], &json["data"]["bytes"]), (&"string".into(), &13.into()));
}

#[test]
fn status_writes_nothing() {
    for world in [World::of(1), World::fresh(1)] {
        world.nodes[0].cmd("CONFIG RESETSTAT");
        let before = changes(&world);
        world.run(&["status", "job"]).expect(0);
        let stats = info(&world, "commandstats");
        assert!(stats.contains("cmdstat_pttl"), "{stats}");
        // Probing permissions does not write.
        assert_eq!(changes(&world), before);
        assert!(!stats.contains("cmdstat_pexpire"), "{stats}");
    }
}

/// Returns how many writes the first node has executed.
fn changes(world: &World) -> String {
    let info = info(world, "persistence");
    let line = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save:"));
    line.unwrap().to_owned()
}

#[test]
fn an_embedded_node_serves_locks() {
    let mut command = redbolt(&["node", "--port", "0"]);
    let mut node = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (line, hint) = (lines.next().unwrap(), lines.next().unwrap());
    let address = line.split_whitespace().nth(2).unwrap().trim_end_matches(':');
    assert!(hint.ends_with(&format!("redbolt init --node {address}")), "{hint}");
    let init = run(redbolt(&["init", "--node", address]));
    let command = ["job", "-c", "echo under a lock; test $REDBOLT_FENCING_TOKEN -gt 0"];
    let words = [&["lock", "--fencing", "--node", address], &command[..]].concat();
    let ran = run(redbolt(&words));
    let again = run(redbolt(&["node", "--port", address.rsplit(':').next().unwrap()]));
    node.kill().unwrap();
    node.wait().unwrap();
    init.expect(0);
    assert_eq!(ran.expect(0).stdout, "under a lock\n");
    again.expect(71).expect_says("in use");
}

#[test]
fn the_demo_runs_to_its_end() {
    let told = run(redbolt(&["demo"])).expect(0).stdout;
    for line in [
        "redbolt init",
        "5 of 5 nodes are ready",
        "her fencing token is",
        "alice takes the lock in",
        "held by alice",
        "bob has the lock",
        "one node is stopped: alice takes the lock",
        "another one is stopped: alice takes the lock",
        "a third one is stopped: alice is refused",
        "they come back with what they had on disk: 5 of 5",
        "one comes back empty",
        "quarantined 30 s",
        "the other four are enough: alice takes the lock",
    ] {
        assert!(told.contains(line), "{line:?} is missing in:\n{told}");
    }
    assert_eq!(told.matches("  node ").count(), 4, "{told}");
    let tokens = told.lines().filter_map(|line| line.split_once("fencing token is "));
    let tokens: Vec<u64> =
        tokens.map(|(_, rest)| rest.split(':').next().unwrap().parse().unwrap()).collect();
    assert!(matches!(tokens[..], [hers, his] if hers < his), "{tokens:?}");
    assert!((10..=24).contains(&told.lines().count()), "{told}");
}

/// Nodes that do not vote may have forgotten who holds it.
#[test]
fn a_lock_is_not_called_free_when_no_lock_can_be_taken() {
    let world = World::fresh(3);
    let told = world.told_by_all(&["status", "job"], 0).stdout;
    assert!(!told.contains("free"), "{told}");
    let last = "job: not held as far as is known, but no lock can be taken now: 0 of 3 nodes vote, 2 must\n";
    assert!(told.ends_with(last), "{told}");
    let json = || as_json(&world.told_by_all(&["status", "--json", "job"], 0));
    let told = json();
    assert_eq!((&told["verdict"], &told["voting"]), (&"no_key".into(), &0.into()), "{told}");
    let reason = "no lock can be taken now: 0 of 3 nodes vote, 2 must";
    assert_eq!(told["reason"], reason, "{told}");
    assert!(!told.to_string().contains("free"), "{told}");
    world.init();
    assert!(world.told_by_all(&["status", "job"], 0).stdout.ends_with("job: free\n"));
    let told = json();
    assert_eq!((&told["verdict"], &told["reason"]), (&"free".into(), &Value::Null), "{told}");
}

#[test]
fn a_look_at_a_dead_node_takes_one_connect_timeout() {
    let (address, _full) = black_hole();
    let connect_timeout = Duration::from_secs(4);
    for words in [&["status"][..], &["status", "job"]] {
        let words = [words, &["--connect-timeout", "4s", "--node", &address]].concat();
        let ran = run(redbolt(&words)).expect(69);
        assert!(ran.took < 2 * connect_timeout, "{ran:?}");
        assert!(ran.stdout.contains("no connection in 4s"), "{ran:?}");
    }
}

/// An address whose packets vanish: it listens, and its backlog is full.
fn black_hole() -> (String, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    while let Ok(client) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        clients.push(client);
    }
    // It listens as long as its connections wait to be accepted.
    std::mem::forget(listener);
    (address.to_string(), clients)
}

#[test]
fn a_node_that_hangs_is_reported_in_the_same_words_by_all_commands() {
    let world = World::of(3);
    world.nodes[2].pause();
    let line = |told: &str| {
        let hangs = |line: &&str| line.contains(&world.nodes[2].address());
        let line = told.lines().find(hangs).unwrap_or_default().to_owned();
        assert!(line.ends_with("no answer, it seems to hang"), "{told}");
    };
    line(&world.run(&["status"]).expect(0).stdout);
    line(&world.run(&["status", "job"]).expect(0).stdout);
    line(&world.run(&["unlock", "job"]).expect(0).stdout);
    line(&world.run(&["lock", "--try", "job", "--", "true"]).expect(0).stderr);
    line(&world.run(&["acquire", "--try", "--token-file", "held", "job"]).expect(0).stderr);
    let quiet = world.run(&["lock", "--try", "-q", "other", "--", "true"]).expect(0);
    assert_eq!(quiet.stderr, "");
    world.nodes[2].resume();
}
