//! Reads all inputs of the program from bytes alone, without files, sockets and processes. Each
//! function panics if the program would, or if it would neither accept nor refuse.
//!
//! The property tests and the fuzz target `command_line` share these functions.

#![cfg_attr(test, allow(unreachable_pub, reason = "the library for the fuzz target has them"))]

use std::ffi::OsString;
use std::path::Path;

use redbolt::{DetachedLock, net};

use crate::addresses;
use crate::args::{Command, LockArgs, Nodes};
use crate::duration;
use crate::environment;
use crate::nodes;
use crate::say;
use crate::token_file::{self, Content};
use crate::variables::{self, NODES_FILE_VARIABLE, NODES_VARIABLE, chosen};

/// Returns the names of the variables that the program reads.
#[must_use]
pub fn variable_names() -> Vec<&'static str> {
    let of_options = variables::VARIABLES.iter().map(|(_, variable)| *variable);
    of_options.chain([NODES_VARIABLE, NODES_FILE_VARIABLE]).collect()
}

/// Reads a command line with these variables, and a nodes file if one is named, up to the
/// configuration of a client.
///
/// # Panics
///
/// If the program would panic.
pub fn command_line(
    words: &[OsString],
    variables: impl IntoIterator<Item = (&'static str, OsString)>,
    nodes_file: &[u8],
) {
    chosen::with(variables.into_iter().collect(), || {
        let command = match environment::parse(words.iter().cloned()) {
            Ok(cli) => cli.command.with_keys(),
            Err(refusal) => {
                let refusal = environment::blame_environment(refusal, words);
                return assert!(!refusal.to_string().is_empty(), "{words:?}");
            }
        };
        environment_for_command();
        if let Some(nodes) = nodes_of(&command) {
            use_nodes(nodes, nodes_file);
        }
        let args = match command {
            Command::Lock(args) => args,
            Command::Lead(args) => LockArgs::from(args),
            _ => return,
        };
        let _ = args.grace();
        assert!(!args.words().is_empty(), "{words:?}");
    });
}

/// Decides what the command of `redbolt lock` gets of the environment.
fn environment_for_command() {
    let _ = addresses::environment_is_secret();
}

/// Reads a duration, and what is shown of it.
///
/// # Panics
///
/// If the program would panic, or if a duration that is shown cannot be read.
pub fn duration(text: &str) {
    if let Ok(span) = duration::parse(text) {
        duration::show(span);
        assert!(duration::parse(&duration::exact(span)).is_ok(), "{text:?}");
    }
}

/// Reads a token file, and what is shown and written of it.
///
/// # Panics
///
/// If the program would panic, or if the record that it would write cannot be read.
pub fn token_file(bytes: &[u8]) {
    match token_file::content_of(Path::new(SOME_FILE), bytes.to_vec()) {
        Ok(Content::Nothing) => assert!(bytes.is_empty(), "{bytes:?}"),
        Ok(Content::Lock(held)) => {
            let detached = held.detached;
            duration::show(detached.remaining(net::now()));
            assert!(detached.node_names().count() > 0, "{bytes:?}");
            let again: Option<DetachedLock> = detached.to_text().parse().ok();
            assert!(again.is_some_and(|again| again == detached), "{bytes:?}");
        }
        Err(failure) => assert!(!say::lines(failure).is_empty(), "{bytes:?}"),
    }
}

fn nodes_of(command: &Command) -> Option<&Nodes> {
    Some(match command {
        Command::Lock(args) => &args.nodes,
        Command::Lead(args) => &args.nodes,
        Command::Observe(args) => &args.nodes,
        Command::Acquire(args) => &args.nodes,
        Command::Hold(args) => &args.nodes,
        Command::Extend(args) => &args.nodes,
        Command::Release(args) => &args.nodes,
        Command::Status(args) => &args.nodes,
        Command::Unlock(args) => &args.nodes,
        Command::List(args) => &args.nodes,
        Command::Doctor(args) => &args.nodes,
        Command::Init(args) => &args.nodes,
        Command::Bench(args) => &args.nodes,
        _ => return None,
    })
}

/// Does everything that precedes sending. Any named nodes file has these bytes.
fn use_nodes(nodes: &Nodes, nodes_file: &[u8]) {
    let named = variables::value(NODES_FILE_VARIABLE).filter(|_| nodes.addresses.is_empty());
    let named = nodes.nodes_file.as_ref().map(|path| path.clone().into_os_string()).or(named);
    if let Some(path) = named {
        match addresses::of_bytes(Path::new(&path), nodes_file.to_vec()) {
            Ok(given) => drop(nodes.given.set(given)),
            Err(failure) => return assert!(!say::lines(failure).is_empty(), "{nodes_file:?}"),
        }
    }
    match nodes::builder(nodes).and_then(|builder| nodes::build(builder, nodes)) {
        Ok(_) => drop(nodes::init_command(nodes)),
        Err(failure) => assert!(!say::lines(failure).is_empty(), "{nodes:?}"),
    }
}

const SOME_FILE: &str = "token";
