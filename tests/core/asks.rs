//! Lock requests and undos: which grants count, and which nodes must get the undo.

use redbolt::proto::{
    Event, LockRequest, NodeState, RefusalReason, Verdict, Vote, Wait, WakeStrategy,
};

use crate::world::{Accept, Ran, World, error, ms, secs};

#[test]
fn a_majority_grants_and_late_grants_count_too() {
    let mut world = World::new(5).warm();
    world.servers[3].delay = ms(40).as_nanos() as u64;
    world.servers[4].delay = ms(200).as_nanos() as u64;
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id), "the grant does not wait for the slow nodes");
    assert_eq!(world.holders(b"job"), [true, true, true, false, false]);
    world.run(ms(500));
    assert_eq!(world.core().votes(id).grants().len(), 5);

    world.stop(0);
    world.stop(1);
    world.extend(id, secs(20));
    world.run(ms(500));
    assert!(!world.outcomes(id).contains(&Event::Extended(id)), "two nodes answer too late");
    for node in [3, 4] {
        world.servers[node].delay = 0;
    }
    world.extend(id, secs(20));
    assert!(world.outcomes(id).contains(&Event::Extended(id)), "the late grants make the quorum");

    world.release(id);
    assert_eq!(world.holders(b"job")[2..], [false; 3]);
}

#[test]
fn a_release_undoes_a_grant_that_arrives_later() {
    let mut world = World::new(3).warm();
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    world.release(id);
    assert!(
        matches!(world.outcomes(id)[..], [Event::Granted(_), Event::Released(_, c)] if c.nodes == 2)
    );
    world.resume(2);
    assert_eq!(world.ran(2), ["ask", "check", "undo"]);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn the_undo_reaches_nodes_that_denied_or_were_late() {
    let mut world = World::new(5).warm();
    for node in [0, 1] {
        world.set(node, b"job", b"theirs", 60_000);
    }
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    world.run(ms(60));
    let refusal = match world.outcomes(id)[..] {
        [Event::Refused(_, refusal)] => refusal,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(
        (refusal.reason, refusal.votes.verdict()),
        (RefusalReason::Contended, Verdict::Contended)
    );
    let votes: Vec<_> = (0..5).map(|n| refusal.votes.of(world.node(n))).collect();
    let (deny, grant) = (Some(Vote::Deny), Some(Vote::Grant));
    assert_eq!(votes, [deny, deny, None, grant, grant]);
    assert!(refusal.votes.suspected().contains(world.node(2)));
    for node in [0, 1, 3, 4] {
        assert_eq!(world.ran(node), ["ask", "check", "undo"], "node {node}");
    }
    assert_eq!(world.kept(0), (0, 1), "the silent node owes an undo");
    world.resume(2);
    assert_eq!(world.ran(2), ["ask", "check", "undo"]);
    assert_eq!(
        world.holders(b"job"),
        [true, true, false, false, false],
        "only the foreign key is left"
    );
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_request_is_withdrawn_if_no_byte_of_it_was_written() {
    let mut world = World::new(3).warm();
    for node in [0, 1] {
        world.set(node, b"job", b"theirs", 60_000);
    }
    world.servers[2].window = 0;
    world.lock(b"job", secs(10));
    assert_eq!(world.kept(0), (0, 0), "nothing is owed");
    world.servers[2].window = usize::MAX;
    world.run(ms(100));
    assert_eq!(world.ran(2), [""; 0]);
}

#[test]
fn a_partly_written_request_is_finished_and_undone() {
    let mut world = World::new(3).warm();
    for node in [0, 1] {
        world.set(node, b"job", b"theirs", 60_000);
    }
    world.servers[2].window = 1;
    world.lock(b"job", secs(10));
    assert_eq!(world.kept(0), (0, 1));
    world.servers[2].window = usize::MAX;
    world.run(ms(100));
    assert_eq!(world.ran(2), ["ask", "check", "undo"]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_request_that_waits_for_a_link_is_not_sent_after_its_attempt() {
    let mut world = World::new(3);
    world.servers[2].delay = ms(30).as_nanos() as u64;
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id));
    world.release(id);
    world.run(secs(1));
    assert!(
        world.ran(2).iter().all(|kind| ["client", "info", "probe", "look", "check"].contains(kind)),
        "{:?}",
        world.ran(2)
    );
}

#[test]
fn a_link_that_comes_up_late_is_asked_for_a_lock_that_is_held() {
    let mut world = World::new(3);
    world.servers[2].delay = ms(30).as_nanos() as u64;
    let id = world.lock(b"job", secs(10));
    world.run(secs(1));
    assert_eq!(world.holders(b"job"), [true; 3]);
    assert_eq!(world.core().votes(id).grants().len(), 3);
}

#[test]
fn every_attempt_has_a_separate_token() {
    let mut world = World::with(3, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
    for node in 0..3 {
        world.set(node, b"job", b"theirs", 700);
    }
    let id = world.wait_for(b"job", secs(10));
    world.run(secs(2));
    assert!(world.is_granted(id));
    let mut tokens: Vec<_> =
        world.log.iter().filter(|ran| ran.is_ask()).map(|ran| (ran.node, ran.token())).collect();
    let requests = tokens.len();
    assert!(requests > 3 * 3, "{requests} asks");
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), requests, "no node saw a token twice");
    tokens.dedup_by_key(|&mut (_, token)| token);
    let numbered = |ran: &Ran| ran.whole_token().ends_with(format!("{:02x}", ran.node).as_bytes());
    assert!(
        world.log.iter().filter(|ran| ran.is_ask()).all(numbered),
        "each token ends with its node's number"
    );
}

#[test]
fn a_lock_on_many_keys_is_all_or_nothing() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        world.set(node, b"b", b"theirs", 400);
    }
    let request = LockRequest::new(b"a").and(b"b").and(b"c").ttl(secs(10));
    let id = world.acquire(0, &request, &[b"a", b"b", b"c"]);
    let refusal = match world.outcomes(id)[..] {
        [Event::Refused(_, refusal)] => refusal,
        ref other => panic!("{other:?}"),
    };
    assert_eq!((refusal.reason, refusal.remaining), (RefusalReason::Contended, Some(ms(400))));
    assert_eq!((world.holders(b"a"), world.holders(b"c")), (vec![false; 3], vec![false; 3]));
    assert_eq!(world.count("pttl"), 0, "the denial already contains the TTL");

    let id = world.acquire(0, &request.wait(Wait::Forever), &[b"a", b"b", b"c"]);
    world.run(secs(1));
    assert!(world.is_granted(id));
    world.release(id);
    for key in [b"a", b"b", b"c"] {
        assert_eq!(world.holders(key), [false; 3]);
    }
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn grants_that_arrive_after_the_validity_are_refused_and_undone() {
    let mut world = World::with(3, 1, |settings| settings.response_timeout = secs(5)).warm();
    for server in &mut world.servers {
        server.delay = ms(50).as_nanos() as u64;
    }
    let id = world.lock(b"job", ms(100));
    world.run(ms(300));
    assert!(
        matches!(world.outcomes(id)[..], [Event::Refused(_, r)] if r.reason == RefusalReason::Expired)
    );
    assert_eq!(world.holders(b"job"), [false; 3]);
    for node in 0..3 {
        assert_eq!(world.ran(node), ["ask", "check", "undo"]);
    }
}

/// The byte stream is cut at every place, with the same outcome.
#[test]
fn byte_boundaries_do_not_matter() {
    for chunk in 1..60 {
        let mut world = World::new(3).warm();
        world.cut_bytes(chunk, chunk as u64);
        let id = world.lock(b"job", secs(10));
        assert!(world.is_granted(id), "chunk {chunk}");
        world.extend(id, secs(20));
        assert!(world.outcomes(id).contains(&Event::Extended(id)), "chunk {chunk}");
        world.cut(0, 1, crate::world::Written::Runs);
        world.run(secs(1));
        world.release(id);
        assert_eq!(world.holders(b"job"), [false; 3], "chunk {chunk}");
        assert_eq!(world.kept(0), (0, 0), "chunk {chunk}");
    }
}

/// The client closes its link to a node that becomes a replica. A request that was not written by
/// then needs no undo.
#[test]
fn a_request_is_withdrawn_from_a_node_that_is_disconnected() {
    let mut world = World::new(3).warm();
    world.servers[2].delay = ms(10).as_nanos() as u64;
    world.answer(2, |args| (args[0] == b"SET").then(|| error("READONLY no")).flatten());
    let first = world.lock(b"job", secs(10));
    world.servers[2].window = 0;
    let second = world.lock(b"other", secs(10));
    world.run(ms(30));
    world.servers[2].window = usize::MAX;
    world.run(ms(5));
    assert!(world.is_granted(first) && world.is_granted(second));
    let token = |ran: &Ran| ran.token().to_vec();
    let others = world.log.iter().find(|ran| ran.words[1] == b"other").map(token).unwrap();
    world.run(ms(15));
    let reported = world.log.iter().filter(|ran| ran.node == 2 && (ran.is_ask() || ran.is_undo()));
    assert!(reported.clone().count() >= 1);
    assert!(
        reported.into_iter().all(|ran| ran.token() != others),
        "the node never received the request"
    );
}

/// The other nodes have granted long before.
#[test]
fn a_request_that_has_waited_too_long_for_a_link_is_not_sent() {
    let mut world = World::new(3).warm();
    world.servers[2].accept = Accept::Silent;
    world.hang_up(2);
    world.run(ms(100));
    let id = world.lock(b"job", secs(10));
    world.run(ms(100));
    world.servers[2].accept = Accept::Yes;
    world.run(secs(1));
    assert!(world.is_granted(id));
    assert_eq!(world.state(2), NodeState::Ready);
    assert_eq!(world.holders(b"job"), [true, true, false]);
}
