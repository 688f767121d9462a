//! Data that no lock wrote, under the keys of locks. The node's reply concerns that key alone. It
//! must not be treated as a protocol error, which would close the connection and fail every other
//! lock's requests on it.

use std::time::Duration;

use redbolt::{LockGuard, LockRequest, Profile};
use redbolt_test_servers::{Connection, Reply, Server};

use crate::support::{builder, long, refusal, server, warm_client};

/// Returns the number of connections that the server has accepted.
fn accepted(connection: &mut Connection) -> String {
    let Reply::Bulk(info) = connection.cmd("INFO stats") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let line = info.lines().find(|line| line.starts_with("total_connections_received:"));
    line.unwrap().to_owned()
}

/// Checks that the request is refused repeatedly while the connection, and another lock on it,
/// survive.
fn refused_without_a_new_connection(server: &Server, data: &[&str], request: LockRequest<'_>) {
    let client = warm_client(builder(std::slice::from_ref(server)));
    let mut other: LockGuard<'_> = client.acquire(long(b"other")).unwrap();
    let mut observer = server.connect();
    for line in data {
        let reply = observer.cmd(line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
    let before = accepted(&mut observer);
    for _ in 0..3 {
        refusal(client.acquire(request.clone()));
    }
    other.extend(Duration::from_secs(30)).unwrap();
    assert_eq!(accepted(&mut observer), before, "{data:?}");
    assert!(other.is_valid());
}

#[test]
fn a_redisson_counter_that_cannot_be_a_token_closes_no_connection() {
    for counter in ["9007199254740991", "9007199254740992", "9223372036854775806", "-1", "-7"] {
        let server = server();
        let set = format!("SET redisson_lock_token:{{job}} {counter}");
        let request = long(b"job").format(Profile::REDISSON).fenced();
        refused_without_a_new_connection(&server, &[&set], request);
        let kept = server.cmd("GET redisson_lock_token:{job}");
        assert_eq!(kept, Reply::Bulk(counter.into()), "it is left as it was");
        assert_eq!(server.cmd("EXISTS job"), Reply::Int(0));
    }
}

#[test]
fn a_semaphore_that_never_ends_closes_no_connection() {
    for score in ["inf", "1e300", "9223372036854775807"] {
        let server = server();
        let data = [
            "HSET job redbolt 1 0 x x 0",
            "PEXPIRE job 60000",
            &format!("ZADD redbolt:until:job {score} x"),
        ];
        refused_without_a_new_connection(&server, &data, long(b"job").permits(1));
    }
}

#[test]
fn an_invalid_queue_closes_no_connection() {
    for [score, name] in [["inf", "x"], ["1e300", "x"], ["-5", "x"], ["1", "a"], ["1", "xa:b"]] {
        let server = server();
        let data = [
            "SET job 00112233445566778899aabbccddeeff00 PX 60000",
            &format!("ZADD redbolt:line:job {score} {name}"),
            &format!("ZADD redbolt:line-until:job 4102444800000 {name}"),
            "PEXPIRE redbolt:line:job 60000",
            "PEXPIRE redbolt:line-until:job 60000",
        ];
        let wait = redbolt::Wait::UpTo(Duration::from_millis(50));
        refused_without_a_new_connection(&server, &data, long(b"job").wait(wait));
    }
}
