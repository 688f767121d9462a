//! The library takes locks on embedded nodes as on real ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, Client, Config, LockGuard, LockRequest, RefusalReport, Wait,
    inspect::InspectionVerdict,
};
use redbolt_node::{Memory, Node};

fn nodes(n: usize) -> Vec<Node> {
    (0..n).map(|_| Node::start().unwrap()).collect()
}

fn client(nodes: &[Node], max_ttl: Duration) -> Client {
    // Longer than a machine is stalled.
    let empty = Config::builder()
        .max_ttl(max_ttl)
        .response_timeout(Duration::from_secs(60))
        .dead_peer_timeout(Duration::from_secs(120))
        .new_nodes();
    let all = nodes.iter().fold(empty, |config, node| config.node(&node.address().to_string()));
    let client = Client::new(all.build().unwrap()).unwrap();
    client.warm_up(Duration::from_secs(5));
    client
}

fn request(resource: &[u8]) -> LockRequest<'_> {
    LockRequest::new(resource)
        .ttl(Duration::from_secs(20))
        .wait(Wait::UpTo(Duration::from_secs(10)))
}

fn refusal(outcome: Result<LockGuard<'_>, AcquireError>) -> RefusalReport {
    match outcome {
        Err(AcquireError::Refused(report)) => report,
        other => panic!("a refusal is expected: {other:?}"),
    }
}

#[test]
fn a_lock_of_one_key_and_of_many_is_held_extended_and_released() {
    let nodes = nodes(3);
    let max_ttl = Duration::from_secs(30);
    let (client, rival) = (client(&nodes, max_ttl), client(&nodes, max_ttl));
    for wanted in [request(b"job"), request(b"job").and(b"other")] {
        let mut guard = client.acquire(wanted).unwrap();
        let report = refusal(rival.acquire(request(b"job").wait(Wait::No)));
        assert!(report.is_contended(), "{report}");
        guard.extend(Duration::from_secs(25)).unwrap();
        assert!(guard.remaining() > Duration::from_secs(20));
        assert!(guard.release().is_ok());
        rival.acquire(request(b"job")).unwrap().release().unwrap();
    }
}

#[test]
fn a_lock_is_shared_by_readers_and_then_held_by_a_writer() {
    let nodes = nodes(3);
    let max_ttl = Duration::from_secs(30);
    let [one, two, writer] = [(); 3].map(|()| client(&nodes, max_ttl));
    for fenced in [false, true] {
        let shared = || match fenced {
            true => request(b"job").shared().fenced(),
            false => request(b"job").shared(),
        };
        let mut first = one.acquire(shared()).unwrap();
        let second = two.acquire(shared()).unwrap();
        // A node that receives the second before the first gives it a larger one.
        let tokens = [first.fencing_token(), second.fencing_token()];
        assert!(tokens[0] <= tokens[1] && tokens[0].is_some() == fenced);
        assert!(tokens.into_iter().flatten().all(|token| u64::from(token) % 2 == 1));
        first.extend(Duration::from_secs(25)).unwrap();
        let seen = writer.inspect(b"job").unwrap();
        let InspectionVerdict::Shared(sharers) = &seen.verdict else { panic!("{seen:?}") };
        assert_eq!(sharers.count, 2);
        refusal(writer.acquire(request(b"job").wait(Wait::No)));
        for guard in [first, second] {
            assert!(guard.release().is_ok());
        }
        let alone = writer.acquire(request(b"job")).unwrap();
        refusal(one.acquire(shared().wait(Wait::No)));
        alone.release().unwrap();
    }
}

/// A reader that has expired keeps no client out, even while the key lives on for another reader.
#[test]
fn a_dead_reader_blocks_a_writer_until_its_ttl_has_passed() {
    let nodes = nodes(3);
    let max_ttl = Duration::from_secs(30);
    let [dead, alive, writer] = [(); 3].map(|()| client(&nodes, max_ttl));
    let short = request(b"job").ttl(Duration::from_millis(500)).shared();
    let lock = dead.acquire(short).unwrap();
    let long = alive.acquire(request(b"job").shared()).unwrap();
    // The lock is neither released nor extended any more.
    let _ = lock.detach();
    assert!(long.release().is_ok());
    let start = Instant::now();
    writer.acquire(request(b"job")).unwrap().release().unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "the TTL of the other was 20 s");
}

#[test]
fn a_minority_that_stops_does_no_harm_and_a_majority_refuses() {
    let mut nodes = nodes(3);
    let max_ttl = Duration::from_secs(1);
    let client = client(&nodes, max_ttl);
    nodes[0].stop(Memory::Lost);
    client.acquire(request(b"job").ttl(max_ttl)).unwrap().release().unwrap();

    nodes[1].stop(Memory::Lost);
    let report = refusal(client.acquire(request(b"job").ttl(max_ttl).wait(Wait::No)));
    assert!(!report.is_contended(), "{report}");

    // The node restarts without its memory, and votes again when every lock that it may have
    // forgotten has ended.
    nodes[0].start_again().unwrap();
    client.acquire(request(b"job").ttl(max_ttl)).unwrap().release().unwrap();
}
