//! The command line: what can be typed, and the help that explains it.
//!
//! Everything that can be decided from the words alone is decided here, so that the rest of the
//! program sees only sound requests. Not here: node addresses, which the library reads, because
//! its errors know how not to repeat a password.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Distributed locks on independent Redis or Valkey nodes, for the shell.
#[derive(Debug, Parser)]
#[command(name = "redbolt", bin_name = "redbolt", version, after_help = FIRST_STEPS)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show who holds a lock, node by node, without touching it
    Status(StatusArgs),
    /// Serve a node from memory, for development and tests
    Node(NodeArgs),
    /// Watch five nodes grant, refuse and survive, without any server
    Demo,
    /// Print a completion script for a shell
    #[command(after_help = COMPLETION_HELP)]
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

/// Where the nodes are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct Nodes {
    /// A node: host, host:port, redis://[user[:password]@]host[:port][/db] or unix:///path. Give
    /// it once for each node; every user of the lock must name the same nodes
    #[arg(long = "node", value_name = "ADDRESS", env = "REDBOLT_NODES", hide_env_values = true)]
    #[arg(value_delimiter = ',')]
    pub(crate) addresses: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// The name of the lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The loopback port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6379)]
    pub(crate) port: u16,
}

fn some_bytes(key: OsString) -> Result<OsString, &'static str> {
    if key.is_empty() { Err("the name of a lock cannot be empty") } else { Ok(key) }
}

const FIRST_STEPS: &str = "\
First steps:
  redbolt demo                          see it work, no server needed
  redbolt node --port 7001              or start a node to play with, and in another shell:
  redbolt status --node 127.0.0.1:7001 backup

Instead of repeating --node: export REDBOLT_NODES=10.0.0.1,10.0.0.2,10.0.0.3";

const STATUS_HELP: &str = "\
It takes no lock and writes nothing. A node's line ends with the round trip of its answer.

Exit status: 0 when the lock is held by a quorum or free, 69 when neither can be said, 64 for
wrong usage.";

const COMPLETION_HELP: &str = "\
bash:  redbolt completions bash > ~/.local/share/bash-completion/completions/redbolt
zsh:   redbolt completions zsh > \"${fpath[1]}/_redbolt\"
fish:  redbolt completions fish > ~/.config/fish/completions/redbolt.fish";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
