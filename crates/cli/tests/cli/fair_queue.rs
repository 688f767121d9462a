//! The queue for a lock, as an operator sees it.

use std::thread;
use std::time::Duration;

use redbolt::config::WakeStrategy;
use redbolt::{Client, Config, LockRequest, Wait};
use redbolt_test_servers::Reply;
use serde_json::Value;

use crate::harness::{World, eventually};

/// A process that waits in the queue for a lock that it does not get.
fn waiter(world: &World) -> Client {
    let builder = Config::builder().wake(WakeStrategy::Queue).label("web-2:7");
    let nodes = world.nodes.iter().map(|node| node.address());
    let builder = nodes.fold(builder, |builder, node| builder.node(&node));
    Client::new(builder.build().unwrap()).unwrap()
}

fn request<'a>() -> LockRequest<'a> {
    LockRequest::new("job").wait(Wait::UpTo(Duration::from_secs(60)))
}

/// Returns the status, once both of two waiters are on all nodes.
fn of_two(world: &World, words: &[&str], status: i32) -> String {
    let told = || world.run(words).expect(status).stdout;
    let mut text = String::new();
    eventually("two wait in the queue on all nodes", || {
        text = told();
        text.matches("2 in the queue").count() == 3
    });
    text
}

#[test]
fn status_and_unlock_show_who_waits_and_for_how_long() {
    let world = World::of(3);
    let holder = waiter(&world);
    let guard = holder.acquire(LockRequest::new("job").ttl(Duration::from_secs(30))).unwrap();
    assert!(!world.run(&["status", "job"]).expect(0).stdout.contains("queue"), "nobody waits");
    thread::scope(|scope| {
        let first = scope.spawn(|| waiter(&world).acquire(request()).unwrap().release());
        eventually("the first has its place", || in_queue(&world) == Some(1));
        let second = scope.spawn(|| waiter(&world).acquire(request().shared()).unwrap().release());
        for (words, status) in [(["status", "job"], 0), (["unlock", "job"], 64)] {
            let told = of_two(&world, &words, status);
            let (_, told) = told.split_once("\nqueue: 2\n").unwrap_or_else(|| panic!("{told}"));
            let lines: Vec<_> = told.lines().collect();
            assert!(
                lines[0].starts_with("  1. web-2:7 exclusive #")
                    && lines[0].contains(" waits for ")
            );
            assert!(lines[1].starts_with("  2. web-2:7 shared #"), "{told}");
            assert!(lines[2].starts_with("job: held by "), "{told}");
        }
        let json: Value =
            serde_json::from_str(&world.told_by_all(&["status", "--json", "job"], 0).stdout)
                .unwrap();
        for queue in [&json["queue"], &json["nodes"][0]["queue"]] {
            assert_eq!((&queue["count"], &queue["kept"]), (&2.into(), &"marked".into()), "{json}");
            assert_eq!(queue["called_ms"], Value::Null);
            let first = &queue["first"][0];
            assert_eq!((&first["mode"], &first["label"]), (&"exclusive".into(), &"web-2:7".into()));
            assert_eq!(first["hash"].as_str().unwrap().len(), 8);
            assert!(
                first["age_ms"].as_u64().unwrap() >= queue["first"][1]["age_ms"].as_u64().unwrap()
            );
        }
        assert_eq!(json["nodes"][0]["queue_reason"], Value::Null);
        let broken = world.run(&["unlock", "--force", "job"]).expect(0).stdout;
        assert!(broken.contains("\nqueue: 2\n"), "{broken}");
        drop(guard);
        assert!(first.join().is_ok() && second.join().is_ok());
    });
    eventually("nobody waits", || in_queue(&world) == Some(0));
}

/// Returns the number of waiters, by a quorum.
fn in_queue(world: &World) -> Option<u64> {
    let json = world.run(&["status", "--json", "job"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    json["queue"]["count"].as_u64()
}

#[test]
fn a_node_that_does_not_tell_who_waits_is_named() {
    let world = World::of(1);
    let rules = "on >secret ~job ~redbolt:guard +@all resetchannels";
    assert_eq!(
        world.nodes[0].cmd(&format!("ACL SETUSER plain {rules}")),
        Reply::Status("OK".into())
    );
    let url = format!("redis://plain:secret@{}", world.nodes[0].address());
    let status = |words: &[&str]| {
        let mut command = world.redbolt(words);
        command.env("REDBOLT_NODES", &url);
        crate::harness::run(command).expect(0).stdout
    };
    let told = status(&["status", "job"]);
    assert!(told.contains("  does not tell who waits  "), "{told}");
    let address = world.nodes[0].address();
    assert!(told.contains(&format!("\nqueue: not known, node 1 {address}: NOPERM")), "{told}");
    assert!(told.ends_with("job: free\n"), "{told}");
    let json: Value = serde_json::from_str(&status(&["status", "--json", "job"])).unwrap();
    assert_eq!((&json["queue"], &json["nodes"][0]["queue"]), (&Value::Null, &Value::Null));
    assert!(json["nodes"][0]["queue_reason"].as_str().unwrap().contains("NOPERM"), "{json}");
}
