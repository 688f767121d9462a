//! The scripts on a real server if a key holds data of another type: a value that is not a string
//! is *not ours*, and never an error that stops a script half-way.

use redbolt::LossCause;
use redbolt::proto::script::{self, ACQUIRE_FENCED, EXTEND, UNDO, WRITE_BACK};
use redbolt_test_servers::{Reply, Server};

use crate::support::{builder, eventually, exists, held_on, loss, patiently, servers, warm_client};

/// A command for each type of data that is not a string.
const OTHER_TYPES: [&str; 5] =
    ["RPUSH other x", "SADD other x", "ZADD other 1 x", "HSET other x y", "XADD other * x y"];

fn eval(server: &Server, script: &str, keys: &[&str], args: &[&str]) -> Reply {
    let count = keys.len().to_string();
    let words = [&["EVAL", script, &count], keys, args].concat();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    server.connect().run(&words)
}

fn put(server: &Server, other: &str) {
    server.cmd("DEL other");
    assert!(!matches!(server.cmd(other), Reply::Error(_)), "{other}");
}

fn micros() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_micros() as u64
}

/// The server's own compiler checks the syntax of each `.lua` file.
#[test]
fn a_server_compiles_each_script_and_computes_its_digest() {
    let server = Server::start();
    let mut connection = server.connect();
    for script in script::all() {
        let loaded = connection.run(&[b"SCRIPT", b"LOAD", script.text.as_bytes()]);
        assert_eq!(loaded, Reply::Bulk(script.digest.into()), "{script:?}");
    }
}

#[test]
fn an_undo_continues_past_a_key_of_another_type() {
    let server = Server::start();
    for other in OTHER_TYPES {
        put(&server, other);
        server.cmd("SET a token");
        server.cmd("SET c token");
        let undone = eval(&server, UNDO.text, &["a", "other", "c"], &["token"]);
        assert_eq!(undone, Reply::Int(2), "{other}");
        assert!(exists(&server, "other"), "{other}");
    }
}

#[test]
fn a_key_of_another_type_is_not_extended_and_not_ours() {
    let server = Server::start();
    for other in OTHER_TYPES {
        put(&server, other);
        server.cmd("SET a token PX 5000");
        let extended = eval(&server, EXTEND.text, &["a", "other"], &["token", "60000"]);
        assert_eq!(extended, Reply::Int(0), "{other}");
        assert_eq!(server.cmd("PTTL other"), Reply::Int(-1), "{other}");
        assert!(matches!(server.cmd("PTTL a"), Reply::Int(..=5_000)), "all or nothing");
    }
}

#[test]
fn a_token_is_not_written_back_if_the_key_is_of_another_type() {
    let server = Server::start();
    for other in OTHER_TYPES {
        put(&server, other);
        server.cmd("SET counter 4");
        let args = ["token", "1", "8", "60000"];
        let raised = eval(&server, WRITE_BACK.text, &["other", "counter"], &args);
        assert_eq!(raised, Reply::Int(0), "{other}");
        assert_eq!(server.cmd("GET counter"), Reply::Bulk(b"4".to_vec()));
    }
}

/// A counter that is not a number fails in the same way.
#[test]
fn a_counter_of_another_type_cannot_be_raised() {
    let server = Server::start();
    let cannot = Reply::Error("ERR the fencing counter cannot be raised".into());
    for other in OTHER_TYPES {
        put(&server, other);
        let now = micros().to_string();
        let request = ["token", "1000", "1", &now, "60000"];
        assert_eq!(
            eval(&server, ACQUIRE_FENCED.text, &["job", "other"], &request),
            cannot,
            "{other}"
        );
        assert!(!exists(&server, "job"), "the script has changed nothing");
        server.cmd("SET job token");
        let raise = ["token", "1", "8", "60000"];
        assert_eq!(eval(&server, WRITE_BACK.text, &["job", "other"], &raise), cannot, "{other}");
        server.cmd("DEL job");
    }
}

/// A script that may not read the key cannot conclude that the key is not ours.
#[test]
fn an_unreadable_key_is_an_error_and_not_another_client_s() {
    let server = Server::start();
    server.cmd("SET job token");
    server.cmd("ACL SETUSER default -get");
    for (script, keys, args) in [
        (UNDO.text, &["job"][..], &["token"][..]),
        (EXTEND.text, &["job"], &["token", "60000"]),
        (WRITE_BACK.text, &["job", "counter"], &["token", "1", "8", "60000"]),
    ] {
        match eval(&server, script, keys, args) {
            Reply::Error(text) => {
                assert!(text.contains("script") || text.contains("NOPERM"), "{text}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(exists(&server, "job"));
}

#[test]
fn a_lock_is_released_past_a_key_that_became_another_type() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    let lock = client.acquire(patiently(b"a").and(b"other").and(b"z")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "z") == 3);
    put(&servers[0], OTHER_TYPES[0]);
    match lock.release() {
        Ok(confirmed) => assert!(confirmed.nodes >= 2, "{confirmed:?}"),
        lost => panic!("{lost:?}"),
    }
    eventually("what is ours is gone", || {
        let _ = client.warm_up(std::time::Duration::ZERO);
        held_on(&servers, "a") + held_on(&servers, "z") == 0
    });
    assert_eq!(held_on(&servers, "other"), 1, "what is not ours stays");
}

#[test]
fn a_lock_whose_keys_became_another_type_is_lost() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    let mut lock = client.acquire(patiently(b"other")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "other") == 3);
    servers[..2].iter().for_each(|server| put(server, OTHER_TYPES[3]));
    let error = lock.extend(std::time::Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Gone), "{error}");
}
