//! `redbolt node`: an embedded node, for trying redbolt without a Redis server.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::thread;

use redbolt_node::Node;

use crate::args::NodeArgs;
use crate::exit::Failure;

/// Serves a node until the process ends.
pub(crate) fn run(args: &NodeArgs) -> Result<u8, Failure> {
    let wanted = (Ipv4Addr::LOCALHOST, args.port);
    let node = Node::on(wanted.into())
        .map_err(|error| Failure::system(format_args!("port {}: {error}", args.port)))?;
    // The process that started this one may wait for the line, or may have closed the pipe. Both
    // are fine.
    let address = node.address();
    let _ = writeln!(
        io::stdout(),
        "node on {address}: memory only, for development and tests; Ctrl-C ends it\n\
         it is new; to say so, before its first lock: redbolt init --node {address}"
    );
    loop {
        thread::park();
    }
}
