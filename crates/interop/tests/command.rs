//! The command line of `interop`, without any other library.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

fn interop(words: &[&str]) -> Output {
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_interop"));
    command.args(words).env("REDBOLT_INTEROP_CACHE", nowhere.path()).output().unwrap()
}

#[test]
fn an_unknown_library_is_refused_with_the_names_of_all() {
    let output = interop(&["--peer", "nothing"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("no such library") && errors.contains("redsync"), "{errors}");
}

#[test]
fn a_library_that_is_not_installed_is_named_with_the_command_that_installs_it() {
    let output = interop(&["--installed", "--peer", "redsync"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let is_named = text.contains("no go") || text.contains("--peer redsync installs it");
    assert!(is_named, "{text}");
}
