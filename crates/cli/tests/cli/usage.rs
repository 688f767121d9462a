//! What is refused before anything is sent, and what helps a newcomer.

use crate::harness::{redbolt, run};

fn ran(words: &[&str]) -> crate::harness::Ran {
    run(redbolt(words))
}

#[test]
fn without_arguments_it_helps() {
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
fn help_tells_of_each_subcommand_as_its_own_option_does() {
    assert_eq!(ran(&["help"]).expect(0).stdout, ran(&["--help"]).expect(0).stdout);
    let subcommands = [
        "lock",
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
    ];
    for name in subcommands {
        let help = ran(&["help", name]).expect(0).stdout;
        assert_eq!(help, ran(&[name, "--help"]).expect(0).stdout);
        assert!(help.contains("Usage: redbolt "), "{help}");
    }
    ran(&["help", "lick"]).expect(64);
}

#[test]
fn wrong_words_are_64() {
    let wrong: [&[&str]; 13] = [
        &["lick"],
        &["lock"],
        &["lock", "job"],
        &["lock", "--try", "--wait", "1s", "job", "--", "true"],
        &["lock", "--ttl", "10s", "--kill-after", "5s", "--node", "a", "job", "--", "true"],
        &["lock", "-E", "256", "job", "--", "true"],
        &["lock", "", "--", "true"],
        &["status"],
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
fn no_nodes_says_how_to_name_them_and_how_to_do_without() {
    for words in [
        &["lock", "job", "--", "true"][..],
        &["status", "job"],
        &["init"],
        &["unlock", "job"],
        &["bench"],
    ] {
        let ran = ran(words).expect(64).expect_says("--node");
        assert!(ran.stderr.contains("REDBOLT_NODES") && ran.stderr.contains("redbolt demo"));
    }
}

#[test]
fn a_ttl_that_cannot_be_is_refused() {
    let lock = |ttl: &str, more: &[&str]| {
        let words = [&["lock", "--node", "127.0.0.1:1", "--ttl", ttl], more];
        ran(&[&words.concat()[..], &["job", "--", "true"]].concat())
    };
    lock("31s", &[]).expect(64).expect_says("maximum");
    lock("2s", &["--max-ttl", "1s"]).expect(64).expect_says("maximum");
    lock("0s", &[]).expect(64).expect_says("zero");
    lock("2ms", &[]).expect(64).expect_says("drift");
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
            "fence",
            "marker-only",
            "token-file",
            "at-least",
            "concurrency",
        ] {
            assert!(script.contains(word), "{shell}, {word}:\n{script}");
        }
        assert!(!script.contains("__exec"), "the shim is nobody's business");
    }
}
