//! Tests extreme values and malformed files: they are refused with a message, and never end
//! `redbolt` with a panic.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::harness::{Ran, World, redbolt, run};

/// The exit status of a Rust program that panics.
const PANICKED: i32 = 101;

#[track_caller]
fn assert_refused_in_words(ran: &Ran, input: &str) {
    let has_panicked = ran.status == Some(PANICKED) || ran.stderr.contains("panicked");
    assert!(!has_panicked && ran.status.is_some(), "{input:?}: {ran:?}");
}

/// Values larger than any clock can count: in seconds, in nanoseconds, or after multiplication by
/// the unit.
const ENDLESS: [&str; 6] = [
    "10000000000000000000s",
    "18000000000000000000s",
    "5000000000000000000s",
    "9223372036854775808s",
    "5124095576030431h",
    "876001h",
];

#[test]
fn a_variable_with_an_endless_time_is_named_and_refused() {
    let world = World::of(1);
    world.run(&["acquire", "--ttl", "20s", "--token-file", "token", "held"]).expect(0);
    let commands: [&[&str]; 8] = [
        &["extend", "--token-file", "token"],
        &["release", "--token-file", "token"],
        &["lock", "job", "--", "true"],
        &["acquire", "--token-file", "other", "job"],
        &["observe", "--once", "job"],
        &["status", "job"],
        &["unlock", "job"],
        &["init"],
    ];
    for variable in ["RESPONSE_TIMEOUT", "CONNECT_TIMEOUT", "MAX_TTL"] {
        let variable = format!("REDBOLT_{variable}");
        for value in ENDLESS {
            for words in commands {
                let mut command = world.redbolt(words);
                command.env(&variable, value);
                let ran = run(command).expect(64).expect_says(&variable);
                assert_refused_in_words(&ran, value);
            }
        }
    }
    world.run(&["release", "--token-file", "token"]).expect(0);
}

#[test]
fn an_option_with_an_endless_time_is_refused() {
    let world = World::of(1);
    world.run(&["acquire", "--ttl", "20s", "--token-file", "token", "held"]).expect(0);
    let commands: [(&[&str], &[&str]); 6] = [
        (&["extend", "--token-file", "token"], &["--ttl", "--response-timeout"]),
        (&["release", "--token-file", "token"], &["--connect-timeout"]),
        (&["lead", "--once", "held", "-c", "true"], &["--wait", "--ttl", "--kill-after"]),
        (&["acquire", "--token-file", "other", "held"], &["--wait", "--ttl"]),
        (&["bench"], &["--duration", "--warm-up", "--ttl", "--busy-poll"]),
        (
            &["lock", "held", "-c", "true"],
            &["--wait", "--ttl", "--kill-after", "--at-least", "--max-ttl"],
        ),
    ];
    for (words, options) in commands {
        for option in options {
            for value in ENDLESS {
                let typed = format!("{option}={value}");
                let words = [&words[..1], &[&typed], &words[1..]].concat();
                assert_refused_in_words(&world.run(&words).expect(64), &typed);
            }
        }
    }
    // The longest wait ends with the lock.
    world.run(&["release", "--token-file", "token"]).expect(0);
    world.run(&["lock", "--wait", "876000h", "held", "-c", "true"]).expect(0);
}

#[test]
fn a_token_file_with_other_numbers_does_not_panic() {
    let world = World::of(1);
    let path = world.path("token");
    let numbers = ["0", "1", "4294967296", "9223372036854775807", "18446744073709551615"];
    let extreme = numbers.into_iter().chain(["18446744073709551616", "-1", "", "\u{fc}"]);
    let extreme: Vec<_> = extreme.collect();
    world.run(&["acquire", "--fencing", "--ttl", "30s", "--token-file", "token", "job"]).expect(0);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for number in &extreme {
            let mut changed = lines.clone();
            let line = format!("{name} {number}");
            changed[at] = &line;
            for command in ["extend", "release"] {
                fs::write(&path, changed.join("\n") + "\n").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
                assert_refused_in_words(&world.run(&[command, "--token-file", "token"]), &line);
            }
        }
    }
}

#[test]
fn a_nodes_file_with_any_bytes_does_not_panic() {
    let world = World::of(1);
    let path = world.path("nodes");
    let lines: [&[u8]; 16] = [
        b"\xff\xfe",
        b"\xef\xbb\xbf127.0.0.1",
        b"127.0.0.1:99999999999999999999",
        b"redis://127.0.0.1/99999999999999999999",
        b"redis://%",
        b"redis://%f@h",
        b"redis://:%zz@h",
        b"redis+sentinel://+++/m",
        b"redis+sentinel://h:1+h:1/m/18446744073709551616",
        b"unix:",
        b"unix://",
        b"unix:///a?db=18446744073709551616",
        b"[::1]:",
        b"[",
        b"://@:?#",
        b"\0",
    ];
    for line in lines {
        fs::write(&path, line).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for words in [
            &["status", "--nodes-file", "nodes", "job"][..],
            &["lock", "--nodes-file", "nodes", "job", "-c", "true"],
        ] {
            let ran = world.run(words).expect(64);
            assert_refused_in_words(&ran, &line.escape_ascii().to_string());
        }
    }
}

/// Empty variables, as created by docker compose (`X=${X}`), Helm and systemd.
#[test]
fn a_variable_that_is_empty_is_not_set() {
    let world = World::of(1);
    for name in VARIABLES {
        let variable = format!("REDBOLT_{name}");
        for words in [&["lock", "job", "-c", "true"][..], &["status", "job"], &["init"]] {
            let mut command = world.redbolt(words);
            command.env(&variable, "");
            // These nodes are not new.
            let status = if words == ["init"] { 73 } else { 0 };
            let ran = run(command).expect(status);
            let is_refused = ran.stderr.contains(&variable) || ran.stderr.contains("a value is");
            assert!(!is_refused, "{variable}: {ran:?}");
        }
    }
    // All variables are empty, as from one template.
    let mut command = world.redbolt(&["lock", "job", "-c", "true"]);
    command.envs(VARIABLES.map(|name| (format!("REDBOLT_{name}"), "")));
    run(command).expect(0);
    // An empty option is a mistake of the option, and not of the variable.
    let mut command = world.redbolt(&["lock", "--tls-ca", "", "job", "-c", "true"]);
    command.env("REDBOLT_TLS_CA", "");
    let ran = run(command).expect(64).expect_says("--tls-ca");
    assert!(!ran.stderr.contains("REDBOLT_TLS_CA"), "{ran:?}");
}

/// Returns all variables but that of the nodes, without which there are none.
const VARIABLES: [&str; 19] = [
    "LABEL",
    "NODES_FILE",
    "PASSWORD_FILE",
    "MAX_TTL",
    "RESTART_GUARD_KEY",
    "RESTART_TRUST",
    "RESPONSE_TIMEOUT",
    "CONNECT_TIMEOUT",
    "SENTINEL_USER",
    "SENTINEL_PASSWORD_FILE",
    "SENTINEL_TLS",
    "SENTINEL_TLS_CA",
    "SENTINEL_TLS_CERT",
    "SENTINEL_TLS_KEY",
    "SENTINEL_TLS_SERVER_NAME",
    "TLS_CA",
    "TLS_CERT",
    "TLS_KEY",
    "TLS_SERVER_NAME",
];

/// The value of each variable is any text.
#[test]
fn a_variable_with_any_value_does_not_panic() {
    let world = World::of(1);
    let mut runner = TestRunner::deterministic();
    let numbers = "[0-9]{1,24}(\\.[0-9]{0,3})?(us|ms|s|m|h|)";
    let text = "(redis|rediss|unix|redis\\+sentinel)://[a-z0-9:@/%,+?#\\[\\].-]{0,20}";
    let value = prop_oneof![numbers, text, "[^\\x00]{0,20}"];
    let commands: [&[&str]; 5] = [
        &["lock", "-n", "job", "true"],
        &["lead", "-n", "--once", "job", "true"],
        &["acquire", "-n", "--token-file", "token", "other"],
        &["status", "job"],
        &["observe", "--once", "job"],
    ];
    for (at, words) in (0..20).flat_map(|_| commands).enumerate() {
        let mut command = world.redbolt(words);
        let name = VARIABLES.into_iter().chain(["NODES"]).nth(at % (VARIABLES.len() + 1)).unwrap();
        let value = value.new_tree(&mut runner).unwrap().current();
        // A node that does not exist is not waited for.
        command.env("REDBOLT_CONNECT_TIMEOUT", "100ms").env("REDBOLT_RESPONSE_TIMEOUT", "100ms");
        if name == "NODES_FILE" || name == "NODES" {
            command.env_remove("REDBOLT_NODES");
        }
        command.env(format!("REDBOLT_{name}"), &value);
        assert_refused_in_words(&run(command), &format!("{name}={value}"));
        let _ = fs::remove_file(world.path("token"));
    }
}

/// Inputs that are refused, with the words that name each. No secret is shown, and nothing else is
/// hidden.
#[test]
fn an_address_that_is_refused_is_shown_with_the_reason() {
    for (address, shown, reason) in [
        ("fe80::1%eth0", "`fe80::1%eth0`", "an IPv6 zone"),
        ("[fe80::1%eth0]:7000", "`[fe80::1%eth0]:7000`", "an IPv6 zone"),
        ("redis://ann:hunter2@[fe80::1%25eth0]", "ann:(hidden)@[fe80::1%25eth0]`", "an IPv6 zone"),
        ("unix://ann:hunter2@/run/redis.sock", "ann:(hidden)@/run/redis.sock`", "of a Unix socket"),
        ("\u{feff}10.0.0.1:7000", "`10.0.0.1:7000`", "a byte order mark (BOM)"),
        ("redis://:hun,ter2@10.0.0.1", "10.0.0.1:6379", "in a password, write it as %2C"),
        ("redis://ann:12,34@h:7000", "h:7000", "in a password, write it as %2C"),
        ("redis://ann:hunter2@h:70000", "`redis://ann:(hidden)@h:70000`", "the port is not"),
    ] {
        let ran = run(redbolt(&["status", "--node", address])).expect(64);
        let ran = ran.expect_says("redbolt: --node: ").expect_says(shown).expect_says(reason);
        assert!(
            !["hunter2", "ter2", "12", "34"].iter().any(|it| ran.stderr.contains(it)),
            "{ran:?}"
        );
    }
}

#[test]
fn a_line_of_the_nodes_file_that_is_refused_is_named_with_the_reason() {
    let world = World::on(Vec::new());
    let path = world.path("my nodes");
    for (line, told) in [
        (
            "10.0.0.1:7000 # the first",
            "line 2: node address `10.0.0.1:7000`: a comment needs a line of",
        ),
        (
            "redis://:hunter2@10.0.0.1\t# ask ops@here",
            "line 2: node address `10.0.0.1:6379`: a comment",
        ),
        ("[fe80::1%eth0]:7000", "line 2: node address `[fe80::1%eth0]:7000`: an IPv6 zone"),
        (
            "unix://ann:hunter2@/s",
            "line 2: node address `unix://ann:(hidden)@/s`: a user or a password",
        ),
    ] {
        write_secret(&path, format!("# nodes\n{line}\n").as_bytes());
        let ran = run(redbolt(&["status", "--nodes-file", path.to_str().unwrap()])).expect(64);
        assert!(ran.stderr.contains(told) && !ran.stderr.contains("hunter2"), "{ran:?}");
    }
    for (text, told) in [
        (
            &b"\xef\xbb\xbf10.0.0.1\n"[..],
            "line 1: node address `10.0.0.1`: it begins with a byte order mark",
        ),
        (b"\xff\xfe1\0", "a byte order mark (BOM) of UTF-16"),
        (b"10.0.0.1\xff", "not UTF-8"),
    ] {
        write_secret(&path, text);
        run(redbolt(&["status", "--nodes-file", path.to_str().unwrap()]))
            .expect(64)
            .expect_says(told);
    }
    let words = ["status", "--node", "10.0.0.1", "--password-file", path.to_str().unwrap()];
    write_secret(&path, b"\xef\xbb\xbfhunter2\n");
    let ran = run(redbolt(&words)).expect(64).expect_says("a byte order mark (BOM)");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}

fn write_secret(path: &Path, text: &[u8]) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A command that is shown runs in a shell as it is.
#[test]
fn a_hint_can_be_copied_to_a_shell() {
    let world = World::fresh(1);
    let path = world.path("my nodes");
    write_secret(&path, world.addresses().as_bytes());
    let mut command = world.redbolt(&["lock", "--try", "--nodes-file"]);
    command.arg(&path).args(["--restart-guard-key", "a 'b'", "job", "--", "true"]);
    command.env_remove("REDBOLT_NODES");
    let ran = run(command).expect(69);
    let hint = ran.stderr.split_once("redbolt init ").unwrap().1.lines().next().unwrap();
    let mut shell = world.command("sh");
    let program = env!("CARGO_BIN_EXE_redbolt");
    shell.env_remove("REDBOLT_NODES").args(["-c", &format!("'{program}' init {hint}")]);
    run(shell).expect(0);
}
