//! `redbolt status`: shows who holds a lock ([`lock`]), or the state of the nodes ([`mod@nodes`]).
//!
//! It takes no lock and writes nothing to the nodes, not even a restart guard, unless it waits for
//! them ([`wait`]).

mod layout;
mod lock;
mod nodes;
mod wait;

use redbolt::{Client, report::NodeReport};

pub(crate) use self::layout::{restart_guard_as_json, table};
pub(crate) use self::nodes::reason;

use crate::args::StatusArgs;
use crate::exit::Failure;

/// Prints the status. The exit status says whether it is a good one.
pub(crate) fn run(args: &StatusArgs) -> Result<u8, Failure> {
    let wait = wait::Wanted::of(&args.wait)?;
    let builder = crate::nodes::builder(&args.nodes)?;
    let builder = if wait.is_none() { builder.read_only() } else { builder };
    let builder = builder.restart_guard(args.restart_guard.into());
    let client = Client::new(crate::nodes::build(builder, &args.nodes)?)?;
    match (&args.key, wait) {
        (Some(key), _) => lock::show_lock(&client, args, key),
        (None, Some(wanted)) => wait::run(&client, args, &wanted),
        (None, None) => nodes::show_nodes(&client, args),
    }
}

/// Finds out which nodes vote, and which notify waiters.
pub(crate) fn look(client: &Client) -> Result<NodeReport, Failure> {
    nodes::look(client).map(|(report, _)| report)
}
