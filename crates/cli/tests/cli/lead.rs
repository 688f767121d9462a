//! `redbolt lead` and `redbolt observe`: there is one leader at a time, each later one has a larger
//! term, and observers see it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Running, World, eventually, lives, send, shell_until};

/// Starts a leader that writes its terms to a separate file, and leads until it is asked to end.
fn lead(world: &World, name: &str, options: &[&str]) -> Running {
    let leads = shell_until(&format!("{name}.end"));
    let line = format!("echo $$ > {name}.pid; echo $REDBOLT_TERM >> {name}; {leads}; exit 7");
    let words =
        [&["lead", "--ttl", "6s", "--label", name], options, &["boss", "-c", &line]].concat();
    world.start(&words)
}

/// Returns the terms in which it has led so far.
fn terms(world: &World, name: &str) -> Vec<u64> {
    let text = fs::read_to_string(world.path(name)).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Returns the number of its first, second, ... term, once it leads.
#[track_caller]
fn term(world: &World, name: &str, nth: usize) -> u64 {
    eventually(&format!("{name} leads"), || terms(world, name).len() >= nth);
    terms(world, name)[nth - 1]
}

fn end(world: &World, name: &str) {
    fs::write(world.path(&format!("{name}.end")), "").unwrap();
}

/// A running `redbolt observe`, which writes to a file.
struct Observing(Child);

impl Drop for Observing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn observe(world: &World) -> Observing {
    let mut command = world.redbolt(&["observe", "--json", "boss"]);
    let file = File::create(world.path("seen")).unwrap();
    Observing(command.stdout(file).stderr(Stdio::null()).spawn().unwrap())
}

/// Returns the reports so far, in order.
fn seen(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.path("seen")).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn is_seen(world: &World, leader: &str, term: u64) -> bool {
    let is_it = |seen: &Value| seen["leader"] == leader && seen["term"] == term;
    seen(world).last().is_some_and(is_it)
}

#[test]
fn one_leads_at_a_time_and_the_next_in_a_larger_term() {
    let world = World::of(3);
    let one = lead(&world, "one", &[]);
    let first = term(&world, "one", 1);
    let two = lead(&world, "two", &[]);
    world
        .run(&["lead", "--try", "boss", "--", "true"])
        .expect(75)
        .expect_says("boss is held by one");
    assert!(terms(&world, "two").is_empty());
    end(&world, "one");
    one.end().expect(7);
    assert!(term(&world, "two", 1) > first);
    end(&world, "two");
    two.end().expect(7);
    assert_eq!(world.held_on("boss"), 0);
}

#[test]
fn a_killed_leader_is_followed_by_another_and_observers_see_it() {
    let world = World::of(3);
    let observing = observe(&world);
    eventually("nobody leads", || seen(&world).last().is_some_and(|it| it["verdict"] == "nobody"));
    let one = lead(&world, "one", &[]);
    let first = term(&world, "one", 1);
    eventually("the first is seen", || is_seen(&world, "one", first));
    let two = lead(&world, "two", &[]);
    let (outer, inner, command) = (one.pid(), one.inner(), world.process("one.pid"));
    for process in [outer, inner, command] {
        send(process, Signal::SIGKILL);
    }
    let second = term(&world, "two", 1);
    assert!(second > first);
    eventually("the second is seen", || is_seen(&world, "two", second));
    // No leader is shown with a term of another.
    for line in seen(&world) {
        match line["term"].as_u64() {
            Some(term) if term == first => assert_eq!(line["leader"], "one"),
            Some(term) => assert_eq!((&line["leader"], term), (&"two".into(), second)),
            None => {}
        }
    }
    end(&world, "two");
    two.end().expect(7);
    eventually("nobody leads", || seen(&world).last().is_some_and(|it| it["verdict"] == "nobody"));
    drop(observing);
}

#[test]
fn a_leader_that_loses_the_lead_stops_its_command_and_campaigns_again() {
    let world = World::of(3);
    let running = lead(&world, "one", &[]);
    let first = term(&world, "one", 1);
    let command = world.process("one.pid");
    world.take("boss");
    eventually("the command is stopped", || !lives(command));
    assert_eq!(terms(&world, "one"), [first], "another one leads");
    world.delete("boss");
    assert!(term(&world, "one", 2) > first);
    end(&world, "one");
    running.end().expect(7).expect_says("boss: campaigning again");
}

#[test]
fn with_once_the_loss_of_the_lead_ends_it() {
    let world = World::of(3);
    let running = lead(&world, "one", &["--once"]);
    term(&world, "one", 1);
    world.take("boss");
    running.end().expect(70).expect_says("the lock is lost");
}

#[test]
fn a_leader_that_was_asked_to_end_does_not_campaign_again() {
    let world = World::of(3);
    let running = lead(&world, "one", &[]);
    term(&world, "one", 1);
    running.signal(Signal::SIGTERM);
    running.end().expect(128 + 15);
    assert_eq!(world.held_on("boss"), 0, "it has resigned");
    world.take("boss");
    let waiting = lead(&world, "two", &[]);
    waiting.inner();
    waiting.signal(Signal::SIGTERM);
    waiting.end().expect(128 + 15);
}

/// Stops all of its processes, as by a debugger or a machine that is suspended.
#[test]
fn a_leader_that_was_stopped_learns_of_its_loss_and_campaigns_again() {
    let world = World::of(3);
    let one = lead(&world, "one", &[]);
    let first = term(&world, "one", 1);
    let (outer, inner, command) = (one.pid(), one.inner(), world.process("one.pid"));
    let all = [inner, outer, command];
    all.into_iter().for_each(|process| send(process, Signal::SIGSTOP));
    let two = lead(&world, "two", &[]);
    let second = term(&world, "two", 1);
    assert!(second > first);
    // The command is last: otherwise it would see that it may end, before it is ended.
    all.into_iter().for_each(|process| send(process, Signal::SIGCONT));
    eventually("its command is stopped", || !lives(command));
    assert_eq!(terms(&world, "one"), [first]);
    end(&world, "two");
    two.end().expect(7);
    assert!(term(&world, "one", 2) > second);
    end(&world, "one");
    one.end().expect(7).expect_says("campaigning again");
}

#[test]
fn a_leader_whose_inner_process_is_killed_campaigns_again() {
    let world = World::of(3);
    let running = lead(&world, "one", &[]);
    let first = term(&world, "one", 1);
    send(running.inner(), Signal::SIGKILL);
    assert!(term(&world, "one", 2) > first);
    end(&world, "one");
    running.end().expect(7).expect_says("was killed by signal");
}

#[test]
fn a_look_tells_who_leads_with_a_node_down() {
    let mut world = World::of(3);
    let once = &["observe", "--once", "boss"];
    assert_eq!(world.run(once).expect(0).stdout, "boss: nobody leads\n");
    let running = lead(&world, "10.0.0.7:8080", &[]);
    let number = term(&world, "10.0.0.7:8080", 1);
    world.nodes[0].kill();
    let told = world.run(once).expect(0).stdout;
    assert_eq!(told, format!("boss: 10.0.0.7:8080 leads in term {number}\n"));
    world.nodes[1].kill();
    let told = world.run(once).expect(69).stdout;
    assert!(told.starts_with("boss: it is not known who leads; node 1 "), "{told}");
    let json = world.run(&["observe", "--once", "--json", "boss"]).expect(69).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["verdict"], &json["leader"]), (&"unknown".into(), &Value::Null));
    assert_eq!(json["silent"].as_array().unwrap().len(), 2, "{json}");
    drop(running);
}

#[test]
fn an_observer_with_a_wrong_password_says_so_and_ends() {
    let world = World::of(3);
    for node in &world.nodes {
        node.cmd("CONFIG SET requirepass secret");
    }
    for words in [&["observe", "boss"][..], &["observe", "--once", "boss"]] {
        let ran = world.run(words).expect(69);
        assert!(ran.stdout.contains("it is not known who leads; node 1 "), "{ran:?}");
        assert!(ran.stdout.contains("password"), "{ran:?}");
    }
}

#[test]
fn an_observer_that_nobody_reads_ends() {
    let world = World::of(1);
    let mut command = world.redbolt(&["observe", "boss"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    // It tries to report that there is no leader.
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Runs `redbolt observe boss | head -1`, while nothing changes.
#[test]
fn an_observer_ends_when_its_reader_has_read_enough() {
    let world = World::of(1);
    let mut command = world.redbolt(&["observe", "boss"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
}

#[test]
fn a_label_that_cannot_be_one_is_wrong_usage() {
    let world = World::of(1);
    let long = "x".repeat(129);
    for label in ["two\nlines", &long] {
        world.run(&["lead", "--label", label, "boss", "--", "true"]).expect(64);
    }
    world.run(&["observe", "redbolt:guard"]).expect(64);
}
