//! Leaders and their observers, on real servers: through every API, across failovers and with nodes
//! down.

use std::sync::mpsc;
use std::time::Duration;

use redbolt::leader::{Leader, LeaderVerdict, Leadership, Observation, OwnedObserver};
use redbolt::{
    AcquireError, AutoExtend, Config, Engine, EngineError, Event, LockRequest, LossCause,
    RequestBuilder, RequestError, Wait,
};
use redbolt_test_servers::Server;

use crate::engine::{engine, engine_of};
use crate::support::{
    LIMIT, builder, client_of, default, driver_of, eventually, held_on, outcome, patient,
    process_until, servers,
};

fn candidate(servers: &[Server], label: &str) -> Engine {
    engine_of(builder(servers).label(label))
}

fn campaign(engine: &Engine) -> RequestBuilder<Engine> {
    engine.lock("boss").ttl(Duration::from_secs(3)).wait(LIMIT)
}

fn elected(engine: &Engine) -> Leadership {
    campaign(engine).campaign().wait().unwrap()
}

/// Returns the observer's view once this condition holds for it.
#[track_caller]
fn until(observer: &mut OwnedObserver, is_it: impl Fn(&Observation) -> bool) -> Observation {
    eventually("it is seen", || observer.latest().as_ref().is_some_and(&is_it));
    observer.latest().unwrap()
}

fn is_led_by(label: &str) -> impl Fn(&Observation) -> bool {
    move |seen| {
        seen.leader().is_some_and(|it| it.label.as_deref() == Some(label) && it.term.is_some())
    }
}

fn is_vacant(seen: &Observation) -> bool {
    seen.verdict == LeaderVerdict::Nobody
}

#[test]
fn a_term_from_the_campaign_to_the_resignation() {
    let servers = servers(3);
    let (one, two) = (candidate(&servers, "one:80"), candidate(&servers, "two:80"));
    let mut observer = engine(&servers).observe("boss").unwrap();
    assert!(observer.changed().wait().is_none(), "its engine was dropped");
    let watching = engine(&servers);
    let mut observer = watching.observe("boss").unwrap();
    assert_eq!(observer.changed().wait().unwrap().to_string(), "nobody leads");
    let lead = elected(&one);
    assert!(lead.is_valid() && lead.label() == b"one:80");
    let seen = until(&mut observer, is_led_by("one:80"));
    assert_eq!(seen.leader().unwrap().term, Some(lead.term()));
    assert_eq!(seen.to_string(), format!("one:80 leads in term {}", lead.term()));
    let waiting = campaign(&two).campaign();
    assert!(matches!(
        campaign(&two).wait(Wait::No).campaign().wait(),
        Err(AcquireError::Refused(report)) if report.is_contended()
    ));
    let (first, lost) = (lead.term(), lead.lost());
    assert!(lead.resign().wait().is_ok());
    assert_eq!(lost.wait(), None);
    let next = waiting.wait().unwrap();
    assert!(next.term() > first);
    let seen = until(&mut observer, is_led_by("two:80"));
    assert_eq!(seen.leader().unwrap().term, Some(next.term()));
    drop(next);
    until(&mut observer, is_vacant);
    assert_eq!(held_on(&servers, "boss"), 0);
}

#[test]
fn a_leadership_is_extended_until_it_is_lost_and_its_loss_is_reported() {
    let servers = servers(3);
    let engine = candidate(&servers, "one:80");
    let lead = elected(&engine);
    let (reported, received) = mpsc::channel();
    lead.on_loss(move |cause| reported.send(cause).unwrap());
    let term = lead.term();
    eventually("it is extended", || engine.metrics().wait().unwrap().metrics.auto_extended >= 4);
    assert!(lead.is_valid());
    servers.iter().for_each(|server| drop(server.cmd("DEL boss")));
    assert_eq!(lead.lost().wait(), Some(LossCause::Gone));
    assert_eq!(received.recv_timeout(LIMIT), Ok(LossCause::Gone));
    assert!(!lead.is_valid() && lead.remaining().is_zero());
    assert_eq!(lead.term(), term, "so that a store can refuse what comes too late");
    assert!(elected(&engine).term() > term);
}

/// The leader's process dies: it neither extends nor releases.
#[test]
fn the_next_leader_is_observed_after_the_first_has_died() {
    let servers = servers(3);
    let watching = engine(&servers);
    let mut observer = watching.observe("boss").unwrap();
    let two = candidate(&servers, "two:80");
    // A driver that is no longer processed acts like a dead process.
    let mut one = driver_of(builder(&servers).label(b"one:80"));
    let request = LockRequest::new("boss").ttl(Duration::from_secs(3)).wait(LIMIT).fenced();
    let id = one.acquire(request.auto_extend(AutoExtend::until_released())).unwrap();
    assert_eq!(outcome(&mut one, id), Event::Granted(id));
    let term = one.fencing_token(id).unwrap();
    until(&mut observer, is_led_by("one:80"));
    let next = elected(&two);
    assert!(next.term() > term);
    let seen = until(&mut observer, is_led_by("two:80"));
    assert_eq!(seen.leader().unwrap().term, Some(next.term()));
    process_until(&mut one, "it learns of its loss", |one| one.remaining(id).is_zero());
}

#[test]
fn a_failover_is_seen_with_a_node_down() {
    let mut servers = servers(3);
    let watching = engine(&servers);
    let mut observer = watching.observe("boss").unwrap();
    let (one, two) = (candidate(&servers, "one:80"), candidate(&servers, "two:80"));
    let lead = elected(&one);
    until(&mut observer, is_led_by("one:80"));
    servers[0].kill();
    let waiting = campaign(&two).campaign();
    lead.resign().wait().unwrap();
    let next = waiting.wait().unwrap();
    let seen = until(&mut observer, is_led_by("two:80"));
    assert_eq!(seen.leader().unwrap().term, Some(next.term()));
    assert!(seen.nodes[0].to_string().contains("connection"), "{}", seen.nodes[0]);
    servers[1].kill();
    let seen = until(&mut observer, |seen| seen.verdict == LeaderVerdict::Unknown);
    assert!(!seen.needs_operator(), "they may come back");
    assert_eq!(next.lost().wait(), Some(LossCause::Unextended));
}

#[test]
fn a_client_and_a_driver_can_observe_too() {
    let servers = servers(3);
    let client = client_of(builder(&servers));
    let mut driver = driver_of(builder(&servers));
    let mut observer = client.observe("boss").unwrap();
    assert!(is_vacant(&observer.changed(LIMIT).unwrap()));
    assert_eq!(observer.changed(Duration::ZERO), None, "nothing new");
    let id = driver.observe("boss").unwrap();
    process_until(&mut driver, "it is told", |driver| {
        driver.poll_event() == Some(Event::Observed(id))
    });
    assert!(is_vacant(&driver.observation(id).unwrap()));

    let engine = candidate(&servers, "one:80");
    let lead = elected(&engine);
    let seen = loop {
        let seen = observer.changed(LIMIT).expect("a change comes");
        if is_led_by("one:80")(&seen) {
            break seen;
        }
    };
    let leader: &Leader = seen.leader().unwrap();
    assert_eq!(leader.term, Some(lead.term()));
    process_until(&mut driver, "it sees the leader", |driver| {
        while driver.poll_event().is_some() {}
        let seen = driver.observation(id).unwrap();
        // Their views of single nodes may differ at that moment.
        seen.leader().is_some_and(|seen| seen.term == leader.term)
    });
    driver.unobserve(id);
    assert_eq!(driver.observation(id), None);
    // A client that waits for something else meanwhile misses nothing.
    lead.resign().wait().unwrap();
    assert!(client.lease("other", Duration::from_secs(9)).try_acquire().unwrap().is_some());
    let seen = observer.changed(LIMIT).unwrap();
    assert!(is_vacant(&seen), "{seen}");
}

#[test]
fn an_observer_with_a_wrong_password_reports_why_it_sees_nothing() {
    let servers = servers(3);
    servers.iter().for_each(|server| drop(server.cmd("CONFIG SET requirepass secret")));
    let engine = engine(&servers);
    let mut observer = engine.observe("boss").unwrap();
    let seen = observer.changed().wait().unwrap();
    assert_eq!(seen.verdict, LeaderVerdict::Unknown);
    assert!(seen.needs_operator());
    assert!(seen.to_string().contains("password"), "{seen}");
    // Observing resumes after an operator has corrected the password.
    servers.iter().for_each(|server| {
        let mut connection = server.connect();
        connection.cmd("AUTH secret");
        connection.run(&[b"CONFIG", b"SET", b"requirepass", b""]);
    });
    until(&mut observer, is_vacant);
}

#[test]
fn nodes_that_do_not_notify_are_polled() {
    let servers = servers(3);
    for server in &servers {
        server.cmd("ACL SETUSER default -subscribe");
    }
    let watching = engine(&servers);
    let mut observer = watching.observe("boss").unwrap();
    until(&mut observer, is_vacant);
    let one = candidate(&servers, "one:80");
    let lead = elected(&one);
    until(&mut observer, is_led_by("one:80"));
    drop(lead);
    until(&mut observer, is_vacant);
}

#[test]
fn an_invalid_name_of_an_election_is_refused_at_once() {
    let servers = servers(1);
    let engine = engine(&servers);
    let refused = |name: &[u8]| match engine.observe(name) {
        Err(AcquireError::Request(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(b""), RequestError::EmptyResource);
    assert_eq!(refused(b"redbolt:guard"), RequestError::RestartGuardKey);
    assert_eq!(refused(b"redbolt:fence:boss"), RequestError::CounterKey);
    // Leadership is fenced, and fencing needs a longest TTL with room for clock errors.
    let config = patient([servers[0].address()]).max_ttl(Duration::from_secs(5)).build().unwrap();
    let short = Engine::new(config).unwrap();
    assert_eq!(
        campaign(&short).ttl(Duration::from_secs(1)).campaign().wait().unwrap_err(),
        AcquireError::Request(RequestError::CannotFence)
    );
}

#[test]
fn an_engine_that_is_shut_down_observes_no_more() {
    let servers = servers(1);
    let config: Config = default([servers[0].address()]).build().unwrap();
    let engine = Engine::new(config).unwrap();
    let mut observer = engine.observe("boss").unwrap();
    until(&mut observer, is_vacant);
    while observer.changed().wait().is_some() {
        engine.shutdown(LIMIT);
    }
    let over = AcquireError::Engine(EngineError::ShutDown);
    assert_eq!(engine.observe("boss").unwrap_err(), over);
    assert!(is_vacant(&observer.latest().unwrap()), "the last observation");
}

#[test]
fn a_dropped_observer_sends_no_more_reads() {
    let servers = servers(3);
    let engine = engine(&servers);
    let observers: Vec<_> = (0..100).map(|_| engine.observe("boss").unwrap()).collect();
    for mut observer in observers {
        until(&mut observer, is_vacant);
    }
    // After this, only the last observer's key could still be read.
    let reads =
        || servers.iter().map(|server| crate::support::calls(server, "getrange")).sum::<u64>();
    let mut before = reads();
    eventually("no observer reads any longer", || {
        // Observers read at least every two seconds.
        std::thread::sleep(Duration::from_millis(2_500));
        std::mem::replace(&mut before, reads()) == before
    });
    assert_eq!(engine.panics(), 0);
}
