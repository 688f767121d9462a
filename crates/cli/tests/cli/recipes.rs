//! The promises of the manual's recipes: cron sends no mail, and a pod can read its Secret.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use redbolt_test_servers::Server;

use crate::harness::{World, run};
use crate::manual;

#[test]
fn cron_gets_nothing_to_mail_about_a_lock_that_is_held() {
    let world = World::of(3);
    world.take("nightly");
    for quiet in [&["-E", "0", "-q"][..], &["--quiet", "--conflict-exit-code=0"]] {
        for wait in [&["--try"][..], &["--wait", "50ms"]] {
            let words = [&["lock", "--at-least", "30s"], quiet, wait, &["nightly", "true"]];
            let ran = world.run(&words.concat()).expect(0);
            assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
        }
    }
    // A status that is a failure is explained, and so is every other failure.
    world.run(&["lock", "-n", "-q", "nightly", "true"]).expect(75).expect_says("is held by");
    world.run(&["lock", "-n", "-E", "0", "nightly", "true"]).expect(0).expect_says("is held by");
    world.nodes[..2].iter().for_each(Server::pause);
    let words = ["lock", "-n", "-q", "-E", "0", "--response-timeout", "300ms", "nightly", "true"];
    world.run(&words).expect(69).expect_says("too few nodes");
    world.nodes[..2].iter().for_each(Server::resume);
}

/// Returns a value of the recipe for Kubernetes.
fn value<'a>(recipe: &'a str, name: &str) -> &'a str {
    let value = recipe.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("{name} is missing"))
}

/// Kubernetes gives the files of a Secret to root and to the group `fsGroup`.
#[test]
fn the_recipe_for_kubernetes_reads_a_secret_that_its_group_may_read() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let world = World::of(1);
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cronjob.yaml");
    let recipe = fs::read_to_string(recipe).unwrap();
    let number = |name: &str| value(&recipe, name).parse::<u32>().unwrap();
    let node = &world.nodes[0];
    node.cmd("ACL SETUSER ann on >hunter2 ~* &* +@all");
    let nodes = world.path("etc/nodes");
    manual::provide_programs(&world);
    fs::write(&nodes, format!("redis://ann:hunter2@{}\n", node.address())).unwrap();
    let mode = u32::from_str_radix(value(&recipe, "defaultMode"), 8).unwrap();
    chown(&nodes, Some(0), Some(number("fsGroup"))).unwrap();
    fs::set_permissions(&nodes, fs::Permissions::from_mode(mode)).unwrap();
    fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    // The program of the build may be in a folder of its user.
    let program = world.path("redbolt");
    fs::copy(env!("CARGO_BIN_EXE_redbolt"), &program).unwrap();
    let status = program.to_str().unwrap().to_owned() + " status nightly";
    manual::executable(&world.path("report.sh"), &status);

    let words = manual::at_home(&world, value(&recipe, "command"));
    let words: Vec<_> = words.trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(words[0], "redbolt");
    let file = manual::at_home(&world, value(&recipe, "value"));
    let mut command = Command::new(&program);
    command.args(&words[1..]).current_dir("/").env_clear();
    command.env("REDBOLT_NODES_FILE", file).env("REDBOLT_LABEL", "nightly-29401");
    command.uid(number("runAsUser")).gid(number("runAsGroup"));
    let ran = run(command).expect(0);
    assert!(ran.stdout.contains("nightly: held by nightly-29401 on 1"), "{ran:?}");
}
