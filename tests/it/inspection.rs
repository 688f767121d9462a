//! Inspecting nodes and locks without taking part.

use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::{
    inspect::{DataKind, InspectionVerdict, KeyState, Owner},
    report::NodeState,
};
use redbolt_test_servers::{Act, Impostor, Server};

use crate::support::{
    builder, changes, client, client_of, eventually, held_on, looks, patient, patiently, pttl,
    servers, vouch_for, warm_client,
};

#[test]
fn an_inspection_shows_the_holder_and_the_remaining_time() {
    let servers = servers(3);
    let holder = warm_client(builder(&servers).label(b"web-1:77"));
    let lock = holder.acquire(patiently(b"job")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "job") == 3);
    let onlooker = client(&servers);
    let inspection = looks(&onlooker, b"job");
    match &inspection.verdict {
        InspectionVerdict::Held(holder) => {
            assert_eq!(holder.label.as_deref(), Some("web-1:77"));
            assert_eq!(holder.to_string(), "web-1:77");
        }
        other => panic!("{other:?}"),
    }
    for (node, server) in inspection.nodes.iter().zip(&servers) {
        let Ok(KeyState::Held(holder)) = &node.state else { panic!("{node}") };
        let remaining = holder.remaining.unwrap().as_millis() as i64;
        assert!((pttl(server, "job")..=30_000).contains(&remaining), "{remaining}");
        assert!(node.round_trip.unwrap() > Duration::ZERO);
        let shown = format!("node {} {}: held by web-1:77 for ", node.number, server.address());
        assert!(node.to_string().starts_with(&shown), "{node}");
    }
    assert!(lock.is_valid());
    let _ = lock.release();
    eventually("the lock is free", || {
        onlooker.inspect(b"job").unwrap().verdict == InspectionVerdict::Free
    });
}

#[test]
fn an_inspection_and_a_warm_up_write_nothing() {
    let servers = servers(3);
    let writes = || servers.iter().map(changes).sum::<u64>();
    let before = writes();
    let client = client(&servers);
    let report = client.warm_up(Duration::from_secs(5));
    assert!(report.has_quorum() && report.ready() == 3, "{report}");
    assert!(report.nodes.iter().all(|node| node.state == NodeState::Ready));
    assert_eq!(client.inspect(b"job").unwrap().verdict, InspectionVerdict::Free);
    servers[0].cmd("RPUSH list 1");
    for key in [&b"job"[..], b"list", b"\r\n\0"] {
        let _ = client.inspect(key).unwrap();
    }
    assert_eq!(writes(), before + 1, "the list");
    assert!(client.inspect(b"").is_err());
}

#[test]
fn a_key_that_is_not_a_lock_is_shown_with_its_type() {
    let servers = servers(1);
    for (write, kind, words) in [
        ("RPUSH job 1 2 3", DataKind::List, "other data, a list without end"),
        ("HSET job a 1", DataKind::Hash, "other data, a hash without end"),
        ("SADD job a", DataKind::Set, "other data, a set without end"),
        ("ZADD job 1 a", DataKind::SortedSet, "other data, a sorted set without end"),
        ("XADD job * a 1", DataKind::Stream, "other data, a stream without end"),
    ] {
        servers[0].cmd(write);
        let inspection = client(&servers).inspect(b"job").unwrap();
        let InspectionVerdict::Foreign(data) = &inspection.verdict else {
            panic!("{inspection:?}")
        };
        assert_eq!((&data.kind, data.remaining), (&kind, None));
        assert!(inspection.nodes[0].to_string().ends_with(words), "{}", inspection.nodes[0]);
        assert_eq!((inspection.is_locked(), inspection.owner()), (true, Some(Owner::Other)));
        servers[0].cmd("DEL job");
    }
    servers[0].cmd("SET job theirs PX 30000");
    let inspection = client(&servers).inspect(b"job").unwrap();
    let shown = inspection.nodes[0].to_string();
    assert!(shown.contains(": other data, a string of 6 bytes #"), "{shown}");
    assert!(inspection.remaining().is_some());
}

/// A user who may read values but not types learns only that the value is not a string.
#[test]
fn a_user_who_may_not_read_types_sees_less() {
    let servers = servers(1);
    servers[0].cmd("ACL SETUSER looker on >pw ~* +@all -type");
    servers[0].cmd("RPUSH list 1");
    let looker = client_of(patient([format!("redis://looker:pw@{}", servers[0].address())]));
    let inspection = looker.inspect(b"list").unwrap();
    assert!(inspection.nodes[0].to_string().contains(": other data, no string"), "{inspection:?}");
    let kept = looker.force_unlock(b"list", UnlockScope::Anything).unwrap();
    assert!(kept.nodes[0].to_string().contains("NOPERM"), "{kept}");
    servers[0].cmd("SET job 00112233445566778899aabbccddeeff00:me PX 30000");
    assert!(matches!(looker.inspect(b"job").unwrap().verdict, InspectionVerdict::Held(_)));
    assert_eq!(looker.force_unlock(b"job", UnlockScope::Locks).unwrap().broken(), 1);
    assert_eq!(held_on(&servers, "list"), 1);
}

#[test]
fn holders_without_a_quorum_are_undecided() {
    let servers = servers(3);
    servers[0].cmd("SET job 00112233445566778899aabbccddeeff00 PX 30000");
    servers[1].cmd("SET job 10112233445566778899aabbccddeeff01 PX 30000");
    let inspection = client(&servers).inspect(b"job").unwrap();
    assert_eq!(inspection.verdict, InspectionVerdict::Undecided);
}

/// Nodes that do not answer are shown with their cause; the verdict treats their votes as unknown.
#[test]
fn silent_nodes_are_shown_with_their_cause() {
    let servers = servers(1);
    vouch_for(&servers, 3);
    let (dead, web) = (Server::start(), Impostor::start(Act::Http));
    let refused = dead.address();
    drop(dead);
    let addresses = [servers[0].address(), refused.clone(), web.address()];
    let client = client_of(patient(&addresses));
    let inspection = client.inspect(b"job").unwrap();
    assert_eq!(inspection.verdict, InspectionVerdict::Undecided);
    assert_eq!(inspection.nodes[0].state, Ok(KeyState::Free));
    let shown = inspection.nodes[1].to_string();
    assert_eq!(shown, format!("node 2 {refused}: connection refused"));
    let shown = inspection.nodes[2].to_string();
    assert!(shown.contains("not a Redis server"), "{shown}");

    let report = client.warm_up(Duration::from_secs(5));
    assert!(!report.has_quorum());
    assert_eq!(report.ready(), 1, "{report}");
    let start = format!("1 of 3 ready, 2 needed; node 1 {}: ready; node 2 ", addresses[0]);
    assert!(report.to_string().starts_with(&start), "{report}");
}

#[test]
fn a_silent_node_does_not_delay_an_inspection() {
    let servers = servers(3);
    let client = client(&servers);
    assert_eq!(client.warm_up(Duration::from_secs(5)).ready(), 3);
    servers[2].pause();
    let inspection = client.inspect(b"job").unwrap();
    assert_eq!(inspection.verdict, InspectionVerdict::Free);
    assert!(inspection.nodes[2].state.is_err() && inspection.nodes[2].round_trip.is_none());
    servers[2].resume();
}
