//! Bugs can be planted only in a separate build, which is never a release. `cargo xtask sim
//! --mutants` shows whether each bug is found.
#![cfg(not(redbolt_mutants))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use redbolt_sim::mutants::{Extent, Gate, plant};

#[test]
fn an_ordinary_build_has_no_bug_to_plant() {
    let error = plant("FailIsDeny").unwrap_err();
    assert!(error.contains("cargo xtask sim --mutant"), "the error explains how: {error}");
    let report = Gate::run(Extent { limit: 1, first: 1, jobs: 1 });
    assert!(!report.is_well, "a gate that did not run has failed");
}

/// Checks only that one file with the compiler, because a whole build would take a minute.
#[test]
fn no_release_build_can_plant_a_bug() {
    let refused = |flags: &[&str]| {
        let compiler = Path::new(env!("CARGO")).with_file_name("rustc");
        let output = Command::new(compiler)
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata"])
            .args(["--out-dir", env!("CARGO_TARGET_TMPDIR")])
            .args(flags)
            .arg(root().join(LIST))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).contains("never for a release")
    };
    let planted = ["--cfg", "redbolt_mutants"];
    assert!(refused(&[&planted[..], &["-C", "debug-assertions=no"]].concat()));
    assert!(!refused(&[&planted[..], &["-C", "debug-assertions=yes"]].concat()));
    assert!(!refused(&["-C", "debug-assertions=no"]));
}

/// Without the flag the compiler does not check the names.
#[test]
fn each_bug_is_planted_somewhere() {
    let list = fs::read_to_string(root().join(LIST)).unwrap();
    let listed: BTreeSet<_> = list
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','))
        .filter(|name| name.chars().all(char::is_alphanumeric))
        .map(str::to_owned)
        .collect();
    assert!(listed.len() >= 20, "{listed:?}");
    let text = [core(), scripts()].concat();
    let sites = text.split("mutant!(").skip(1).filter_map(|rest| rest.split_once(')'));
    let planted: BTreeSet<_> = sites.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(planted, listed);
}

/// Rules read as if there were no bugs: each bug is a separate block before them.
#[test]
fn no_bug_is_part_of_a_rule() {
    let text = [core(), scripts()].concat();
    let faults = planted_in_rules(&text);
    assert!(faults.is_empty(), "not a separate statement:\n{}", faults.join("\n"));
    for rule in [
        "let quorum = if mutant!(Half) { 1 } else { 2 };\n",
        "if is_over || mutant!(Ignored) {\n}\n",
        "Some(_) if mutant!(Ignored) => {}\n",
        "if mutant!(Half) {\n    1\n} else {\n    2\n}\n",
    ] {
        assert_eq!(planted_in_rules(rule).len(), 1, "{rule}");
    }
    assert!(planted_in_rules("if mutant!(Half) && is_odd {\n    return;\n}\n").is_empty());
}

/// Returns the lines that plant a bug elsewhere than in the head of an `if` without an `else`.
fn planted_in_rules(text: &str) -> Vec<&str> {
    let lines: Vec<_> = text.lines().collect();
    let is_in_rule = |&at: &usize| {
        let bare = lines[at].trim_start();
        let indent = &lines[at][..lines[at].len() - bare.len()];
        let end = lines[at..].iter().find_map(|line| line.strip_prefix(indent)?.strip_prefix('}'));
        !(bare.starts_with("if mutant!(") && bare.ends_with('{') && end == Some(""))
    };
    let sites = (0..lines.len()).filter(|&at| lines[at].contains("mutant!("));
    sites.filter(is_in_rule).map(|at| lines[at]).collect()
}

/// Returns the sources of the core, without the list of bugs.
fn core() -> String {
    all_in("src/proto")
}

/// Returns the sources of the models of the scripts.
fn scripts() -> String {
    all_in("crates/node/src/scripts")
}

fn all_in(folder: &str) -> String {
    let mut sources = Vec::new();
    read_all(&root().join(folder), &mut sources);
    sources.concat()
}

fn read_all(folder: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, sources);
        } else if !path.ends_with(LIST) {
            sources.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// Reads the path that cargo sets at run time: two clones with one target directory share this
/// program.
fn root() -> PathBuf {
    let ours =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&ours).join("../..")
}

const LIST: &str = "src/proto/mutants.rs";
