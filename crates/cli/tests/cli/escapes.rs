//! Bytes that a node, a sentinel or another client chose never reach a terminal as they are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use redbolt_test_servers::{Act, Impostor, Reply};
use serde_json::Value;

use crate::harness::{Ran, World, redbolt, run};

/// A text that erases the screen, changes the title of the window, begins a sequence in one byte
/// and reverses the line.
const EVIL: &str = "a\x1b[2J\x1b]0;owned\x07\u{9b}31m\x7f\u{202e}z";

/// Checks that a terminal would print all characters as they are, except for line ends.
#[track_caller]
fn harmless(ran: Ran) -> Ran {
    let is_bad = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.contains(is_bad), "{text:?}");
    }
    ran
}

/// A client that may write to the nodes can create tickets with any label.
fn queue(world: &World, label: &str) {
    let ticket = format!("x{}00:500:{label}", "0123456789abcdef".repeat(2));
    for node in &world.nodes {
        for (key, score) in [("redbolt:line:job", "1"), ("redbolt:line-until:job", "9999999999999")]
        {
            let added = node.run(&[b"ZADD", key.as_bytes(), score.as_bytes(), ticket.as_bytes()]);
            assert_eq!(added, Reply::Int(1));
        }
    }
}

#[test]
fn the_label_of_a_waiter_does_not_erase_the_screen() {
    let world = World::of(1);
    queue(&world, EVIL);
    let status = harmless(world.run(&["status", "job"]).expect(0));
    assert!(status.stdout.contains("  1. exclusive #"), "{status:?}");
    let unlock = harmless(world.run(&["unlock", "job"]).expect(0));
    assert!(unlock.stdout.contains("  1. exclusive #"), "{unlock:?}");
    let json = harmless(world.run(&["status", "--json", "job"]).expect(0)).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["queue"]["first"][0]["label"], Value::Null, "{json}");
    assert_eq!(json["queue"]["first"][0]["mode"], "exclusive");
}

/// Returns every command that shows an error of a node.
#[test]
fn an_error_of_a_node_does_not_erase_the_screen() {
    let world = World::of(1);
    let evil = Impostor::start(Act::Always(format!("-ERR {EVIL}")));
    for words in [
        &["status"][..],
        &["status", "--json", "job"],
        &["lock", "--try", "job", "-c", "true"],
        &["acquire", "--try", "--token-file", "token", "job"],
        &["unlock", "--force", "job"],
        &["observe", "--once", "job"],
        &["observe", "--once", "--json", "job"],
        &["init"],
        &["bench", "--yes", "--duration", "1ms"],
    ] {
        let mut command = world.redbolt(words);
        command.env("REDBOLT_NODES", evil.address()).env("REDBOLT_CONNECT_TIMEOUT", "500ms");
        harmless(run(command));
    }
}

#[test]
fn what_a_sentinel_says_does_not_erase_the_screen() {
    let place = format!("*2\r\n${}\r\n{EVIL}\r\n$4\r\n6379", EVIL.len());
    for line in [place, format!("-ERR {EVIL}")] {
        let evil = Impostor::start(Act::Always(line));
        for words in [
            &["status"][..],
            &["status", "--json"],
            &["lock", "--try", "job", "-c", "true"],
            &["bench", "--yes", "--duration", "1ms"],
        ] {
            let mut command = redbolt(words);
            command.env("REDBOLT_NODES", format!("redis+sentinel://{}/jobs", evil.address()));
            command.env("REDBOLT_CONNECT_TIMEOUT", "500ms");
            harmless(run(command));
        }
    }
}

#[test]
fn json_has_no_character_that_a_terminal_acts_on() {
    let world = World::of(1);
    for words in [["status", "--json"], ["observe", "--json"]] {
        let mut command = world.redbolt(&words);
        command
            .args((words[0] == "observe").then_some("--once"))
            .arg(OsStr::from_bytes(EVIL.as_bytes()));
        let ran = harmless(run(command).expect(0));
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(json["key"], EVIL);
    }
}

#[test]
fn the_path_of_a_socket_does_not_erase_the_screen() {
    let mut command = redbolt(&["status"]);
    command.env("REDBOLT_NODES", "unix:///tmp/%1b%5b2J%c2%9b%0anode");
    let ran = harmless(run(command).expect(69));
    assert!(ran.stdout.contains("unix:///tmp/%1b[2J"), "{ran:?}");
}
