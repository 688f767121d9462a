//! What the examples begin with: the nodes that the command line names, or nodes in this process. Not here: what they show.
#![allow(dead_code, reason = "two examples have more options, and read them themselves")]

use std::io;

use redbolt_node::Node;

/// The addresses after `--node`; `None` if there is any other argument.
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

/// Nodes that run as long as the values live.
pub(crate) fn embedded_nodes(count: usize) -> io::Result<Vec<Node>> {
    (0..count).map(|_| Node::start()).collect()
}
