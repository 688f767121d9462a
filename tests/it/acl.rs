//! The permissions that the manual lists are sufficient and minimal, on every installed kind of
//! server.

use std::time::Duration;

use redbolt::config::WakeStrategy;
use redbolt::{Config, ConfigBuilder, Event, LockMode, Profile, Wait, report::PushState};
use redbolt_test_servers::{Reply, Server, programs};
use redbolt_testkit::acl_rules;

use crate::support::{LIMIT, client_of, driver_of, eventually, patient, patiently, process_until};

/// Starts each kind of server with such a user, once with strict and once with permissive defaults
/// for new users.
fn servers() -> Vec<(String, Server)> {
    let mut all = Vec::new();
    for program in programs() {
        for channels in ["", "resetchannels", "allchannels"] {
            let server = Server::of(&program, &[]);
            let name = format!("{} {channels}", program.display());
            if !channels.is_empty() {
                // Servers before 6.2 do not have this setting.
                let _ = server.cmd(&format!("CONFIG SET acl-pubsub-default {channels}"));
            }
            if let Reply::Error(text) = server.cmd("ACL WHOAMI") {
                assert!(text.starts_with("ERR unknown command"), "{name}: {text}");
                println!("{name} has no ACL");
                continue;
            }
            let knows = |command: &str| {
                server.cmd(&format!("COMMAND INFO {command}")) != Reply::Array(vec![Reply::Nil])
            };
            let rules = acl_rules(knows).join(" ");
            let set = server.cmd(&format!("ACL SETUSER worker on >secret -@all ~jobs:* {rules}"));
            assert_eq!(set, Reply::Status("OK".into()), "{name}: {rules}");
            all.push((name, server));
        }
    }
    assert!(!all.is_empty(), "no server at hand has ACLs");
    all
}

fn as_user(server: &Server, database: u32) -> ConfigBuilder {
    patient([format!("redis://worker:secret@{}/{database}", server.address())])
}

fn set_up(builder: ConfigBuilder) -> Config {
    let config = builder.build().unwrap();
    redbolt::init(&config, LIMIT).unwrap();
    config
}

/// Returns the denials from the server's own log.
fn denials(server: &Server) -> Vec<String> {
    let Reply::Array(entries) = server.cmd("ACL LOG") else { panic!("no ACL LOG") };
    entries.iter().map(|entry| format!("{entry:?}")).collect()
}

#[test]
fn the_manual_s_acl_is_enough_for_every_kind_of_lock() {
    for (name, server) in servers() {
        for database in [0, 3] {
            let client = client_of(as_user(&server, database).new_nodes());
            let requests = [patiently(b"jobs:a"), patiently(b"jobs:a").and(b"jobs:b")];
            let shared = [patiently(b"jobs:a").shared(), patiently(b"jobs:a").permits(3)];
            for request in requests
                .iter()
                .chain(&shared)
                .cloned()
                .flat_map(|request| [request.clone(), request.fenced()])
            {
                let mut lock = client.acquire(request).unwrap();
                lock.extend(LIMIT).unwrap();
                assert!(client.inspect(b"jobs:a").unwrap().nodes[0].state.is_ok(), "{name}");
                if lock.mode() == LockMode::Shared {
                    assert_eq!(lock.try_upgrade(), Ok(true), "{name}");
                    lock.extend(LIMIT).unwrap();
                    lock.downgrade().unwrap();
                } else if lock.downgrade().is_ok() {
                    assert_eq!(lock.try_upgrade(), Ok(true), "{name}");
                }
                assert!(lock.release().is_ok(), "{name}");
            }
        }
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}

/// These formats publish releases in keys, or not at all.
#[test]
fn the_manual_s_acl_is_enough_for_locks_of_python_redis_lock_of_symfony_and_of_setnx() {
    for (name, server) in servers() {
        assert_eq!(server.cmd("ACL SETUSER worker ~lock:*"), Reply::Status("OK".into()), "{name}");
        let client = client_of(as_user(&server, 0).new_nodes());
        let symfony = || patiently(b"jobs:a").format(Profile::SYMFONY);
        let python = patiently(b"lock:a").format(Profile::PYTHON_REDIS_LOCK);
        let setnx = patiently(b"jobs:a").format(Profile::SETNX);
        for request in [python, symfony(), symfony().shared(), setnx] {
            let mut lock = client.acquire(request).unwrap();
            lock.extend(LIMIT).unwrap();
            for key in [&b"lock:a"[..], b"jobs:a"] {
                assert!(client.inspect(key).unwrap().nodes[0].state.is_ok(), "{name}");
            }
            assert!(lock.release().is_ok(), "{name}");
        }
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_manual_s_acl_is_enough_to_lead_and_to_observe() {
    for (name, server) in servers() {
        let _ = set_up(as_user(&server, 0));
        let client = client_of(as_user(&server, 0));
        let mut observer = client.observe(b"jobs:boss").unwrap();
        assert!(observer.changed(LIMIT).unwrap().leader().is_none(), "{name}");
        let leader = client_of(as_user(&server, 0));
        let lock = leader.acquire(patiently(b"jobs:boss").fenced()).unwrap();
        let seen = observer.changed(LIMIT).unwrap();
        assert_eq!(seen.leader().and_then(|it| it.term), lock.fencing_token(), "{name}: {seen}");
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_manual_s_acl_is_enough_to_set_nodes_up_and_to_change_them() {
    for (name, server) in servers() {
        let _ = set_up(as_user(&server, 0));
        let changed = as_user(&server, 0).max_ttl(Duration::from_secs(40)).build().unwrap();
        redbolt::init_change(&changed, LIMIT).unwrap();
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_manual_s_acl_is_enough_to_wait_in_the_queue() {
    for (name, server) in servers() {
        let _ = set_up(as_user(&server, 0));
        for request in [patiently(b"jobs:a"), patiently(b"jobs:a").shared().fenced()] {
            let holder = client_of(as_user(&server, 0));
            let guard = holder.acquire(patiently(b"jobs:a")).unwrap();
            let mut waiter = driver_of(as_user(&server, 0).wake(WakeStrategy::Queue));
            let id = waiter.acquire(request).unwrap();
            let listens = || match server.cmd("INFO clients") {
                Reply::Bulk(info) => {
                    String::from_utf8(info).unwrap().contains("tracking_clients:1")
                }
                other => panic!("{other:?}"),
            };
            process_until(&mut waiter, "it listens", |_| listens());
            drop(guard);
            process_until(&mut waiter, "the lock is granted", |driver| {
                std::iter::from_fn(|| driver.poll_event()).any(|e| e == Event::Granted(id))
            });
            assert!(waiter.node_report().nodes[0].no_queue.is_none(), "{name}");
            waiter.release(id);
            process_until(&mut waiter, "all is confirmed", |driver| !driver.has_pending_releases());
        }
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_manual_s_acl_is_enough_for_notifications() {
    for (name, server) in servers() {
        let _ = set_up(as_user(&server, 0));
        server.cmd("SET jobs:a theirs PX 60000");
        let mut waiter = driver_of(as_user(&server, 0));
        let id = waiter.acquire(patiently(b"jobs:a").wait(Wait::Forever)).unwrap();
        process_until(&mut waiter, "the node notifies", |driver| {
            driver.node_report().nodes[0].push == PushState::Active
        });
        server.cmd("DEL jobs:a");
        let mut granted = false;
        eventually("the lock is granted", || {
            waiter.process();
            granted |= std::iter::from_fn(|| waiter.poll_event()).any(|e| e == Event::Granted(id));
            granted
        });
        waiter.release(id);
        process_until(&mut waiter, "the release is confirmed", |driver| {
            !driver.has_pending_releases()
        });
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_acl_of_the_manual_is_enough_to_receive_the_releases_of_redisson() {
    for (name, server) in servers() {
        let _ = set_up(as_user(&server, 0));
        server.cmd("HSET jobs:a peer:1 1");
        server.cmd("PEXPIRE jobs:a 600000");
        let mut waiter = driver_of(as_user(&server, 0));
        let request = patiently(b"jobs:a").format(Profile::REDISSON).wait(Wait::Forever);
        let id = waiter.acquire(request).unwrap();
        let channel = "redisson_lock__channel:{jobs:a}";
        let receives = || match server.cmd(&format!("PUBSUB NUMSUB {channel}")) {
            Reply::Array(counts) => counts[1] != Reply::Int(0),
            other => panic!("{other:?}"),
        };
        process_until(&mut waiter, "it has subscribed to the channel", |_| receives());
        server.cmd("DEL jobs:a");
        server.cmd(&format!("PUBLISH {channel} 0"));
        process_until(&mut waiter, "the lock is granted", |driver| {
            std::iter::from_fn(|| driver.poll_event()).any(|e| e == Event::Granted(id))
        });
        process_until(&mut waiter, "the channel is left", |_| !receives());
        assert!(waiter.node_report().nodes[0].no_channel.is_none(), "{name}");
        waiter.release(id);
        process_until(&mut waiter, "all is confirmed", |driver| !driver.has_pending_releases());
        assert_eq!(denials(&server), Vec::<String>::new(), "{name}");
    }
}
