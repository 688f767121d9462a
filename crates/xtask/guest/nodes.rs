//! Uses the library, the embedded node and the installed command line, all from their packages.

use std::{env, process::Command};

use redbolt::{Client, Config};
use redbolt_node::{Memory, Node};

const NOT_RUN: i32 = 75;

#[test]
fn the_library_and_the_command_line_exclude_each_other_on_embedded_nodes() {
    let mut nodes = Node::set(3).unwrap();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let client =
        Client::new(Config::builder().nodes(&addresses).build().unwrap()).unwrap();
    let run = || {
        let mut command = Command::new(env::var_os("REDBOLT_PROGRAM").unwrap());
        command
            .args(["lock", "--try", "job", "--", "true"])
            .env("REDBOLT_NODES", addresses.join(","));
        command.status().unwrap().code()
    };
    let mut while_held = None;
    assert!(guest::work(&client, b"job", || while_held = run()).unwrap());
    assert_eq!(while_held, Some(NOT_RUN));
    nodes[0].stop(Memory::Lost);
    assert_eq!(run(), Some(0), "two of three nodes are a quorum");
}
