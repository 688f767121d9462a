//! Errors before any command is sent, and help for newcomers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use redbolt_test_servers::Server;

use crate::harness::{World, redbolt, run};

fn ran(words: &[&str]) -> crate::harness::Ran {
    run(redbolt(words))
}

#[test]
fn without_arguments_the_help_is_shown() {
    let ran = ran(&[]).expect(64).expect_says("redbolt demo");
    assert!(ran.stderr.contains("redbolt lock --node"));
}

#[test]
fn help_and_version_are_no_errors() {
    for words in [&["--help"][..], &["lock", "--help"], &["status", "-h"], &["--version"]] {
        assert!(!ran(words).expect(0).stdout.is_empty());
    }
    let init = ran(&["init", "--help"]).expect(0).stdout;
    assert!(init.contains("Never put it into a start script"), "{init}");
    let help = ran(&["lock", "--help"]).stdout;
    for status in ["64", "69", "70", "75", "126", "127"] {
        assert!(help.contains(status), "{status} is missing in:\n{help}");
    }
}

#[test]
fn help_subcommand_equals_the_help_option() {
    assert_eq!(ran(&["help"]).expect(0).stdout, ran(&["--help"]).expect(0).stdout);
    let subcommands = [
        "lock",
        "lead",
        "observe",
        "acquire",
        "extend",
        "release",
        "status",
        "unlock",
        "init",
        "bench",
        "node",
        "demo",
        "completions",
        "man",
    ];
    for name in subcommands {
        let help = ran(&["help", name]).expect(0).stdout;
        assert_eq!(help, ran(&[name, "--help"]).expect(0).stdout);
        assert!(help.contains("Usage: redbolt "), "{help}");
    }
    ran(&["help", "lick"]).expect(64);
}

#[test]
fn wrong_arguments_are_64() {
    let wrong: [&[&str]; 13] = [
        &["lick"],
        &["lock"],
        &["lock", "job"],
        &["lock", "--try", "--wait", "1s", "job", "--", "true"],
        &["lock", "--ttl", "10s", "--kill-after", "5s", "--node", "a", "job", "--", "true"],
        &["lock", "-E", "256", "job", "--", "true"],
        &["lock", "", "--", "true"],
        &["status", "job", "another"],
        &["acquire", "job"],
        &["extend"],
        &["release", "job"],
        &["unlock", "--force"],
        &["completions", "tcsh"],
    ];
    for words in wrong {
        ran(words).expect(64);
    }
}

#[test]
fn a_bare_number_is_no_duration() {
    for option in ["--ttl", "--wait", "--kill-after", "--max-ttl"] {
        ran(&["lock", option, "10", "job", "--", "true"]).expect(64).expect_says("needs a unit");
    }
}

#[test]
fn no_nodes_suggests_how_to_name_or_start_some() {
    for words in [
        &["lock", "job", "--", "true"][..],
        &["status", "job"],
        &["status"],
        &["init"],
        &["unlock", "job"],
        &["bench"],
    ] {
        let ran = ran(words).expect(64).expect_says("--node");
        assert!(ran.stderr.contains("REDBOLT_NODES") && ran.stderr.contains("redbolt demo"));
    }
}

#[test]
fn an_invalid_ttl_is_refused() {
    let lock = |ttl: &str, more: &[&str]| {
        let words = [&["lock", "--node", "127.0.0.1:1", "--ttl", ttl], more];
        ran(&[&words.concat()[..], &["job", "--", "true"]].concat())
    };
    lock("31s", &[]).expect(64).expect_says("maximum");
    lock("2s", &["--max-ttl", "1s"]).expect(64).expect_says("maximum");
    lock("0s", &[]).expect(64).expect_says("zero");
    lock("2ms", &[]).expect(64).expect_says("drift");
}

/// Regression: a wrong REDBOLT_MAX_TTL was blamed on --max-ttl, which was not on the command line.
#[test]
fn a_wrong_environment_variable_is_named() {
    let status = |variable: &str, value: &str, options: &[&str]| {
        let mut command = redbolt(&[&["status", "job"], options].concat());
        command.env("REDBOLT_NODES", "127.0.0.1:1").env(variable, value);
        run(command).expect(64)
    };
    let long = "x".repeat(257);
    for (variable, value, reason) in [
        ("REDBOLT_MAX_TTL", "10", "needs a unit"),
        ("REDBOLT_MAX_TTL", "0s", "out of range"),
        ("REDBOLT_RESTART_GUARD_KEY", long.as_str(), "257 bytes"),
        ("REDBOLT_RESPONSE_TIMEOUT", "10", "needs a unit"),
        ("REDBOLT_CONNECT_TIMEOUT", "10", "needs a unit"),
        ("REDBOLT_RESTART_TRUST", "strict,blind", "'blind'"),
        ("REDBOLT_RESTART_TRUST", "strict,strict", "2 words for 1 nodes"),
        ("REDBOLT_NODES", "redis-1:637O", "`redis-1:637O`: the port"),
        ("REDBOLT_NODES_FILE", "nodes", "both"),
    ] {
        let said = status(variable, value, &[]).expect_says(variable).expect_says(reason);
        assert!(!said.stderr.contains(" for '--") && !said.stderr.contains("--max"), "{said:?}");
    }
    for (options, reason) in [
        (&["--max-ttl", "5"][..], "'--max-ttl"),
        (&["--max-ttl=0s"], "--max-ttl: "),
        (&["--restart-guard-key", ""], "--restart-guard-key: "),
        (&["--node", "redis-1:637O"], "--node: node address `redis-1:637O`"),
    ] {
        let said = status("REDBOLT_MAX_TTL", "10s", options).expect_says(reason);
        assert!(!said.stderr.contains("REDBOLT"), "{said:?}");
    }
}

/// The inner process of `redbolt lock` reads the options, after its own arguments.
#[test]
fn an_argument_is_not_blamed_on_an_equal_environment_variable() {
    for words in
        [&["status", "--max-ttl", "5"][..], &["lock", "--max-ttl", "5", "job", "--", "true"]]
    {
        let mut command = redbolt(words);
        command.env("REDBOLT_MAX_TTL", "5");
        let said = run(command).expect(64).expect_says("'--max-ttl");
        assert!(!said.stderr.contains("REDBOLT"), "{said:?}");
    }
}

#[test]
fn nodes_come_from_a_file_that_others_cannot_write() {
    let world = World::of(3);
    let file = world.path("nodes");
    let nodes: Vec<_> = world.nodes.iter().map(Server::address).collect();
    fs::write(&file, format!("# ours\n{}\n\n  {}\r\n{}", nodes[0], nodes[1], nodes[2])).unwrap();
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let option = || {
        let mut command = world.redbolt(&["lock", "-n", "--nodes-file", "nodes", "job", "true"]);
        command.env("REDBOLT_NODES", "127.0.0.1:1");
        run(command)
    };
    let variable = |more: &[&str]| {
        let mut command = world.redbolt(&[&["lock", "-n"], more, &["job", "true"]].concat());
        command.env_remove("REDBOLT_NODES").env("REDBOLT_NODES_FILE", &file);
        run(command)
    };
    for shared in [0o444, 0o644, 0o664, 0o604, 0o440] {
        mode(shared);
        option().expect(0);
        variable(&[]).expect(0);
    }
    for open in [0o602, 0o666, 0o777] {
        mode(open);
        option()
            .expect(64)
            .expect_says("others must not be able to write")
            .expect_says("chmod o-w");
        variable(&[]).expect(64);
        variable(&["--node", "127.0.0.1:1"]).expect(69);
    }
    mode(0o600);
    let addresses = fs::read_to_string(&file).unwrap();
    fs::write(&file, addresses + "\nredis://:hunter2@redis-4:637O\n").unwrap();
    let said = option()
        .expect(64)
        .expect_says("nodes line 6: node address `redis://(hidden)@redis-4:637O`");
    assert!(!said.stderr.contains("hunter2"), "{said:?}");
    fs::write(&file, "# nobody\n").unwrap();
    option().expect(64).expect_says("it names no node");
    // A file that is too long is refused, not truncated.
    let long = format!("{}\n{}\n#{}\n{}", nodes[0], nodes[1], "-".repeat(256 << 10), nodes[2]);
    fs::write(&file, long).unwrap();
    option().expect(64).expect_says("nodes: longer than 256 KiB");
    fs::remove_file(&file).unwrap();
    option().expect(64).expect_says("nodes: No such file");
}

/// Kubernetes mounts a Secret with `defaultMode: 0440` like this: root owns it, and the group of
/// the pod may read it.
#[test]
fn a_file_with_passwords_is_for_its_owner_and_group_alone() {
    let world = World::of(1);
    world.nodes[0].cmd("ACL SETUSER ann on >hunter2 ~* &* +@all");
    let address = world.nodes[0].address();
    let (nodes, password) = (world.path("nodes"), world.path("password"));
    fs::write(&nodes, format!("redis://ann:hunter2@{address}\n")).unwrap();
    fs::write(&password, "hunter2\n").unwrap();
    let run_with = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&nodes, mode.clone()).unwrap();
        fs::set_permissions(&password, mode).unwrap();
        let user = format!("redis://ann@{address}");
        let lock = ["lock", "-n", "job", "true"];
        let mut from_nodes = world.redbolt(&lock);
        from_nodes.env_remove("REDBOLT_NODES").env("REDBOLT_NODES_FILE", &nodes);
        let mut from_password = world.redbolt(&lock);
        from_password.env("REDBOLT_NODES", user).env("REDBOLT_PASSWORD_FILE", &password);
        [run(from_nodes), run(from_password)]
    };
    for accepted in [0o400, 0o440, 0o600, 0o640] {
        run_with(accepted).into_iter().for_each(|ran| drop(ran.expect(0)));
    }
    for refused in [0o404, 0o444, 0o644, 0o660, 0o620] {
        for ran in run_with(refused) {
            let ran = ran.expect(64).expect_says("chmod 600").expect_says("defaultMode: 0440");
            assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
        }
    }
    // A commented line may have a password as well.
    fs::write(&nodes, format!("{address}\n# redis://ann:hunter2@10.0.0.9\n")).unwrap();
    run_with(0o644)[0].status.filter(|&status| status == 64).unwrap();
}

#[test]
fn a_file_with_passwords_of_another_user_is_refused_and_one_without_is_read() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let world = World::of(1);
    let file = world.path("nodes");
    let run_with = |text: String| {
        fs::write(&file, text).unwrap();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        world.run(&["lock", "-n", "--nodes-file", "nodes", "job", "true"])
    };
    let address = world.nodes[0].address();
    run_with(address.clone()).expect(0);
    run_with(format!("redis://ann:hunter2@{address}")).expect(64).expect_says("another user");
}

/// In a container the host and the process id say little: `4f1c2e0d9a7b:1`.
#[test]
fn a_lock_shows_the_label_that_its_holder_gives() {
    let world = World::of(1);
    let seen = |options: &[&str], variable: Option<&str>| {
        let program = env!("CARGO_BIN_EXE_redbolt");
        let words = [&["lock"], options, &["job", "--", program, "status", "job"]].concat();
        let mut command = world.redbolt(&words);
        command.envs(variable.map(|label| ("REDBOLT_LABEL", label)));
        run(command).expect(0).stdout
    };
    assert!(seen(&["--label", "web/eu 7"], None).contains("job: held by web/eu 7 on 1"));
    assert!(seen(&[], Some("pod-3")).contains("job: held by pod-3 on 1"));
    assert!(seen(&["--label", "web-1"], Some("pod-3")).contains("job: held by web-1 on 1"));
    assert!(seen(&[], Some("")).contains("job: held by "), "that of the process");

    let mut acquire = world.redbolt(&["acquire", "--token-file", "token", "kept"]);
    acquire.env("REDBOLT_LABEL", "pod-4");
    run(acquire).expect(0);
    let who = world.run(&["lock", "-n", "kept", "true"]).expect(75);
    who.expect_says("kept is held by pod-4");
    let words = ["acquire", "--label", "pod-5", "--token-file", "other", "other"];
    world.run(&words).expect(0);
    assert!(world.run(&["status", "other"]).expect(0).stdout.contains("held by pod-5 on"));
}

#[test]
fn a_wrong_label_is_refused_with_the_place_where_it_was_given() {
    let world = World::of(1);
    let long = "x".repeat(129);
    for words in [
        &["lock", "job", "true"][..],
        &["lead", "job", "true"],
        &["acquire", "--token-file", "token", "job"],
    ] {
        for label in ["two\nlines", "\u{e4}", &long] {
            let option = [&words[..1], &["--label", label], &words[1..]].concat();
            world.run(&option).expect(64).expect_says("'--label ");
            let mut command = world.redbolt(words);
            command.env("REDBOLT_LABEL", label);
            run(command).expect(64).expect_says("REDBOLT_LABEL in the environment");
        }
    }
}

/// Other processes of this user could see it, and so could everything that the command runs.
#[test]
fn the_command_does_not_inherit_a_password() {
    let world = World::of(1);
    let nodes = || {
        let seen = world.path("seen");
        let mut command = world.redbolt(&["lock", "job", "-c", "env > seen; echo >> seen"]);
        command.env("REDBOLT_NODES_FILE", "");
        (command, seen)
    };
    let (command, seen) = nodes();
    run(command).expect(0);
    assert!(fs::read_to_string(&seen).unwrap().contains("REDBOLT_NODES="), "there is no password");
    world.nodes[0].cmd("ACL SETUSER locker on >hunter2 ~* &* +@all");
    let (mut command, seen) = nodes();
    let address = world.nodes[0].address();
    command.env("REDBOLT_NODES", format!("redis://locker:hunter2@{address}"));
    run(command).expect(0);
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(seen.contains("REDBOLT_KEY=job") && !seen.contains("hunter2"), "{seen}");
    assert!(!seen.contains("REDBOLT_NODES="), "{seen}");
}

/// The user is not a secret, and the path of a Unix socket may have an `@` in it.
#[test]
fn a_nested_redbolt_has_the_nodes_unless_they_have_a_password() {
    let world = World::of(1);
    let node = &world.nodes[0];
    node.cmd("ACL SETUSER ann on >hunter2 ~* &* +@all");
    let password = world.path("password");
    fs::write(&password, "hunter2\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let nested = |nodes: String, password: Option<&str>| {
        // The program's path may have a blank in it.
        let line = "printf %s \"$REDBOLT_NODES\" > seen; exec \"$0\" status job";
        let program = env!("CARGO_BIN_EXE_redbolt");
        let mut command = world.redbolt(&["lock", "job", "--", "/bin/sh", "-c", line, program]);
        command.env("REDBOLT_NODES", &nodes);
        command.envs(password.map(|path| ("REDBOLT_PASSWORD_FILE", path)));
        (run(command), fs::read_to_string(world.path("seen")).unwrap() == nodes)
    };
    let address = node.address();
    let (ran, is_seen) = nested(format!("redis://ann@{address}"), Some("password"));
    assert!(is_seen && ran.stdout.contains("held by "), "a user alone: {ran:?}");
    ran.expect(0);
    let socket = world.path("redis@jobs.sock");
    symlink(node.socket(), &socket).unwrap();
    let (ran, is_seen) = nested(format!("unix://{}", socket.display()), None);
    assert!(is_seen && ran.stdout.contains("held by "), "a path with an @: {ran:?}");
    ran.expect(0);
    let (ran, is_seen) = nested(format!("redis://ann:hunter2@{address}"), None);
    assert!(!is_seen && !ran.stdout.contains("hunter2"), "{ran:?}");
    ran.expect(64).expect_says("no nodes given");
}

#[test]
fn a_wrong_address_is_shown_without_its_password() {
    for address in ["redis://user:hunter2@host:x", "redis://:hunter2@", "http://u:hunter2@host"] {
        let mut command = redbolt(&["lock", "job", "--", "true"]);
        command.env("REDBOLT_NODES", address);
        let ran = run(command).expect(64);
        assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn no_help_and_no_usage_error_shows_a_password() {
    for words in [&["lock", "--help"][..], &["lock", "--nonsense"], &["lock", "job"]] {
        let mut command = redbolt(words);
        command.env("REDBOLT_NODES", "redis://:hunter2@host");
        let ran = run(command);
        assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    ran(&["man", pages.to_str().unwrap()]).expect(0);
    let mut names: Vec<_> = fs::read_dir(&pages)
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let help = ran(&["--help"]).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let subcommands = listed.take_while(|line| !line.is_empty());
    let mut expected = vec!["redbolt.1".to_owned()];
    expected.extend(subcommands.filter_map(|line| match line.split_whitespace().next() {
        Some("help") | None => None,
        Some(name) => Some(format!("redbolt-{name}.1")),
    }));
    expected.sort();
    assert!(expected.len() > 10, "{help}");
    assert_eq!(names, expected);
    // The page has the exit statuses, which `--help` shows below the options.
    let page = fs::read_to_string(pages.join("redbolt-lock.1")).unwrap();
    for status in ["64", "69", "70", "75", "126", "127"] {
        assert!(page.contains(status), "{status} is missing in:\n{page}");
    }
}

#[test]
fn each_shell_gets_its_completions() {
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef redbolt"), ("fish", "complete")]
    {
        let script = ran(&["completions", shell]).expect(0).stdout;
        for word in [
            mark,
            "kill-after",
            "init",
            "change",
            "fencing",
            "marker-only",
            "token-file",
            "at-least",
            "concurrency",
        ] {
            assert!(script.contains(word), "{shell}, {word}:\n{script}");
        }
        assert!(!script.contains("__exec"), "the hidden subcommand appears in the completions");
    }
}

#[test]
fn a_refused_request_names_its_lock() {
    let told = "redbolt: job: the TTL of 3600s is over the maximum of 30s (max_ttl)";
    let options = ["--node", "127.0.0.1:1", "--ttl", "3600s"];
    let commands = [
        &["lock", "job", "--", "true"][..],
        &["lead", "job", "--", "true"],
        &["acquire", "job", "--token-file", "token"],
    ];
    for command in commands {
        let words = [&command[..1], &options, &command[1..]].concat();
        ran(&words).expect(64).expect_says(told);
    }
}
