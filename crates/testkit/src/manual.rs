//! The instructions of the manual for operators, for tests that follow them, and pages of it that
//! programs write. Its links and names are checked by `tests/house`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Returns the rules of the ACL in the manual, without the key patterns of locks, for a server that
/// has these commands.
pub fn acl_rules(knows: impl Fn(&str) -> bool) -> Vec<String> {
    let text = include_str!("../../../docs/use/operations.md");
    let (_, rest) = text.split_once("```text\n~redbolt:guard").expect("the manual lists them");
    let (list, rest) = rest.split_once("```").expect("the list ends");
    let is_rule = |word: &&str| word.starts_with(['~', '+', '&']) || *word == "resetchannels";
    let all = ["~redbolt:guard"].into_iter().chain(list.split_whitespace().filter(is_rule));
    let native = NATIVE.iter().filter(|name| knows(name)).map(|name| format!("+{name}"));
    let native = native.inspect(|rule| assert!(rest.contains(rule), "the manual names {rule}"));
    all.map(str::to_owned).chain(native).collect()
}

/// Prints a page of a program, writes it to the file, if there is one, and returns the outcome.
pub fn publish(program: &str, page: &str, file: Option<&Path>, has_failed: bool) -> ExitCode {
    println!("\n{page}");
    let written = file.map_or(Ok(()), |file| fs::write(file, page));
    if let (Some(file), Err(error)) = (file, &written) {
        eprintln!("{program}: {}: {error}", file.display());
    }
    match has_failed || written.is_err() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// The servers' native commands for a release, the one that redbolt prefers first.
pub const NATIVE: [&str; 2] = ["delifeq", "delex"];
