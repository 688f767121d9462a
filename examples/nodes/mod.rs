//! The nodes of the examples: those that the command line names, or nodes in this process.
#![allow(dead_code, reason = "two examples have more options, and read them themselves")]

use std::io;

use redbolt_node::Node;

/// Returns the addresses after `--node`; `None` if there is any other argument.
pub(crate) fn addresses(mut args: impl Iterator<Item = String>) -> Option<Vec<String>> {
    let mut addresses = Vec::new();
    while let Some(arg) = args.next() {
        if arg != "--node" {
            return None;
        }
        addresses.push(args.next()?);
    }
    Some(addresses)
}

/// Starts nodes that run as long as the values live.
pub(crate) fn embedded_nodes(count: usize) -> io::Result<Vec<Node>> {
    (0..count).map(|_| Node::start()).collect()
}
