//! The fields of `--json`, which `JSON.md` has to explain.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::World;

/// Returns the part of the page with this heading, up to the next heading.
fn section(heading: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("JSON.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) =
        page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    rest.split("\n#").next().unwrap().to_owned()
}

/// Returns the names of all fields, at every depth. The names in an object that counts by kind are
/// kinds, not fields.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                if !COUNTS_BY_KIND.contains(&name.as_str()) {
                    fields(value, names);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

const COUNTS_BY_KIND: [&str; 4] = ["refusals", "losses", "fails", "link_failures"];

/// Fails if a field of these outputs is not explained below the heading, or if an explained field
/// is in none of them.
#[track_caller]
fn are_explained(heading: &str, outputs: &[String]) {
    let mut names = BTreeSet::new();
    for output in outputs {
        fields(&serde_json::from_str(output).unwrap(), &mut names);
    }
    let section = section(heading);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_cells = rows.filter_map(|row| row.split(" | ").next());
    let spans = first_cells.flat_map(|cell| cell.split(['`', ',', ' ']));
    let explained: BTreeSet<_> = spans.filter(|it| !it.is_empty()).map(str::to_owned).collect();
    assert_eq!(names, explained, "{heading}: what is printed, and what is explained");
}

#[test]
fn every_field_of_the_status_of_nodes_is_explained() {
    let world = World::of(3);
    let master = redbolt_test_servers::Server::start();
    let more = World::on(vec![master]);
    let ran = [&world, &more].map(|world| world.run(&["status", "--json"]).stdout);
    are_explained("## `redbolt status --json`", &ran);
}

#[test]
fn every_field_of_the_status_of_a_lock_is_explained() {
    let world = World::of(1);
    let status = |key: &str| world.run(&["status", "--json", key]).expect(0).stdout;
    let mut seen = vec![status("free")];
    for (key, mode) in
        [("alone", &[][..]), ("shared", &["--shared"]), ("permits", &["--permits", "3"])]
    {
        let words = [&["acquire", "--ttl", "25s", "--token-file", key], mode, &[key]].concat();
        world.run(&words).expect(0);
        seen.push(status(key));
    }
    let waiter = world.start(&["lock", "alone", "--", "true"]);
    let mut queue = Value::Null;
    crate::harness::eventually("the waiter is in the queue", || {
        let text = status("alone");
        queue = serde_json::from_str::<Value>(&text).unwrap()["queue"].clone();
        seen.push(text);
        queue["count"] == 1
    });
    drop(waiter);
    world.nodes[0].cmd("SET text abc");
    world.nodes[0].cmd("RPUSH list 1");
    world.nodes[0].cmd("HSET redisson 3f1cd5f0-7a3c-4c5e-9d0b-0f2a5b8d6e11:42 2");
    world.nodes[0].cmd("HSET rw mode read 3f1cd5f0-7a3c-4c5e-9d0b-0f2a5b8d6e11:42 1");
    world.nodes[0].cmd("SET timed 1900000000");
    seen.extend(["text", "list", "redisson", "rw", "timed"].map(status));
    are_explained("## `redbolt status --json KEY`", &seen);
}

#[test]
fn every_field_of_observe_is_explained() {
    let mut world = World::of(3);
    let observe = |world: &World| world.run(&["observe", "--once", "--json", "job"]).stdout;
    let leader = world.start(&["lead", "job", "-c", "echo $$ > leads; exec sleep 600"]);
    world.process("leads");
    let led = observe(&world);
    world.nodes[0].kill();
    let silent = observe(&world);
    drop(leader);
    are_explained("## `redbolt observe --json`", &[led, silent]);
}

#[test]
fn every_field_of_bench_is_explained() {
    let world = World::of(1);
    let words = ["bench", "--json", "--yes", "--duration", "50ms", "--warm-up", "0s"];
    are_explained("## `redbolt bench --json`", &[world.run(&words).expect(0).stdout]);
}

#[test]
fn every_field_of_doctor_is_explained() {
    let mut world = World::of(3);
    world.nodes[1].kill();
    are_explained(
        "## `redbolt doctor --json`",
        &[world.run(&["doctor", "--json"]).expect(2).stdout],
    );
}

#[test]
fn every_field_of_list_is_explained() {
    let world = World::of(1);
    for (file, mode) in [("one", &["one"][..]), ("all", &["--shared", "all"])] {
        let words = [&["acquire", "--ttl", "25s", "--token-file", file], mode].concat();
        world.run(&words).expect(0);
    }
    are_explained("## `redbolt list --json`", &[world.run(&["list", "--json"]).expect(0).stdout]);
}

#[test]
fn the_versioning_promise_names_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../RELEASING.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("crates/cli/JSON.md"), "RELEASING.md promises the fields");
}
